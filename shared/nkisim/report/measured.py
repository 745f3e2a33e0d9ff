"""A profile that was measured on a chip, as a `Report`: read, and matched with a predicted one.

Read are `neuron-profile view --output-format json` (lists "instruction" and "dma": timestamp and
duration in ns, label, opcode; its user guide) and the tables of Neuron Explorer as JSON
("Instruction", "DmaPacketAggregated": start_ts, duration_ns, engine, opcode, nki_source_location;
its profile schema reference), which `python -m labkit neuron export` makes of its Parquet files.
Other fields and other tables are left alone; both formats grow with each release.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import numpy as np

from .columns import DMA, ENGINES, Report, ReportError

#: How the tools name engines and their rows in the timeline, by how the name begins.
PREFIXES = (
    ("tensor", "tensor"),
    ("pe", "tensor"),
    ("vector", "vector"),
    ("dve", "vector"),
    ("scalar", "scalar"),
    ("act", "scalar"),
    ("gpsimd", "gpsimd"),
    ("pool", "gpsimd"),
    ("sync", "sync"),
    ("sp", "sync"),
)
#: Instructions of every program that no line of a kernel asks for (set-up, waits, end).
BOOKKEEPING = frozenset(
    "NOP DRAIN NOTIFY WRITE TENSOR_LOAD COMPARE_BRANCH EVENT_SEMAPHORE EVENT_SEMAPHORE_RANGE_CLEAR "
    "SET_ORDERING_MODE BRANCH HALT".split()
)
MOVING = "tensormatrix"  # the row of moving data; loading weights has a row of its own
PLACE = re.compile(r"([^\s\[\]'\",]+\.py):(\d+)")


def load_measured(path: str | os.PathLike[str], kernel: str = "", target: str = "") -> Report:
    """Read a measured profile; raise ReportError, with a sentence, if the file is none."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ReportError(
            f"{path} is not JSON. A measured profile comes from  neuron-profile view "
            "--output-format json  or  python -m labkit neuron export."
        ) from None
    if not isinstance(document, dict):
        raise ReportError(f"{path} is not a measured profile: it is no JSON object.")
    rows = document.get("instruction", document.get("Instruction"))
    if not isinstance(rows, list) or not rows:
        raise ReportError(
            f'{path} is not a measured profile: it has no list "instruction" (or '
            '"Instruction"), or an empty one. A summary-json has none; ask for '
            "--output-format json."
        )
    try:
        return _build(document, rows, os.path.basename(os.fspath(path)), kernel, target)
    except (KeyError, TypeError, ValueError) as error:
        raise ReportError(
            f"{path} is not a measured profile as documented ({type(error).__name__}: {error})."
        ) from None


def _number(row: dict[str, Any], *names: str) -> float:
    for name in names:
        if row.get(name) is not None:
            return float(row[name])
    raise KeyError(names[0])


def _engine(row: dict[str, Any]) -> str:
    """Return our name of an event's engine; "" for rows that are no engine (collectives)."""
    text = str(row.get("engine") or row.get("label") or "").lower().lstrip("q")
    return next((name for prefix, name in PREFIXES if text.startswith(prefix)), "")


def _track(row: dict[str, Any]) -> str:
    return str(row.get("timeline_track") or row.get("label") or "").lower()


def _direction(row: dict[str, Any]) -> str:
    """Return load, store or copy, as far as a transfer's queue tells it."""
    queue = str(row.get("queue_type") or row.get("queue_name") or row.get("name") or "").lower()
    return (
        "load"
        if "input" in queue or "load" in queue
        else "store"
        if "output" in queue or "store" in queue or "save" in queue
        else "copy"
    )


class Event(NamedTuple):
    """One row of a profile: an instruction, or (on `DMA`) a transfer. Times in ns."""

    engine: int  # index into ENGINES
    opcode: str  # of a transfer: the name of what it moves
    track: str
    start: float
    duration: float
    place: tuple[str, int] | None  # file and line in a kernel
    moves: str = ""  # of a transfer: load, store or copy
    size: int = 0  # of a transfer: bytes
    wait: float = 0.0


def _events(
    document: dict[str, Any], rows: list[dict[str, Any]]
) -> tuple[list[Event], Counter[str]]:
    """Return instructions and transfers by time, and how many rows of what are neither."""
    events: list[Event] = []
    left_out: Counter[str] = Counter()
    for row in rows:
        name = _engine(row)
        if not name:
            left_out[str(row.get("label") or row.get("engine"))] += 1
            continue
        place = PLACE.search(str(row.get("nki_source_location") or ""))
        events.append(
            Event(
                ENGINES.index(name),
                str(row["opcode"]),
                _track(row),
                _number(row, "timestamp", "start_ts"),
                _number(row, "duration", "duration_ns"),
                (place[1], int(place[2])) if place else None,
                wait=float(row.get("evt_wait_time_ns") or 0),
            )
        )
    for row in document.get("dma") or document.get("DmaPacketAggregated") or ():
        events.append(
            Event(
                DMA,
                str(row.get("variable") or row.get("queue_name") or "transfer"),
                "dma",
                _number(row, "timestamp", "start_ts"),
                _number(row, "duration", "duration_ns"),
                None,
                _direction(row),
                int(float(row.get("transfer_bytes") or row.get("size") or 0)),
            )
        )
    events.sort(key=lambda e: (e.start, e.engine))
    return events, left_out


def _build(
    document: dict[str, Any], rows: list[dict[str, Any]], source: str, kernel: str, target: str
) -> Report:
    events, left_out = _events(document, rows)
    if not events:
        raise ReportError(f"{source} has no instruction on an engine of the NeuronCore.")
    # the runtime's set-up before the kernel's first instruction is of no line, and can be long
    moving = any(e.track.startswith(MOVING) for e in events)
    own = [_of_a_kernel(e, moving) for e in events]
    first = own.index(True) if True in own else 0
    before = sum(e.start < events[first].start for e in events)
    if before:
        left_out["set-up before the kernel begins"] += before
    columns, scale = _columns(events[before:], own[before:])
    return Report(
        _head(document, scale, columns, left_out)
        | {"source": source, "kernel": kernel or source, "target": target or "?"},
        columns,
    )


class Scale(NamedTuple):
    """What the columns of a timeline count in: its tick and end in us, specs (engine, name, moves,
    bytes) and places of instructions."""

    tick: float
    end: float
    specs: list[tuple[int, str, str, int]]
    places: list[tuple[str, int]]


def _columns(events: list[Event], own: list[bool]) -> tuple[dict[str, Any], Scale]:
    """Return the columns of a `Report`; time begins with the first event."""
    begin = np.array([e.start - events[0].start for e in events]) / 1e3
    length = np.array([max(0.0, e.duration) for e in events]) / 1e3
    end = float(np.max(begin + length))
    tick = max(1e-4, end / 2**31)

    def ticks(us: Any) -> np.ndarray:
        return np.rint(np.asarray(us, np.float64) / tick).astype(np.uint32)

    keys = [(e.engine, e.opcode, e.moves, e.size) for e in events]
    specs = {k: n for n, k in enumerate(dict.fromkeys(keys))}
    places = {p: n for n, p in enumerate(sorted({e.place for e in events if e.place}))}
    engine = np.array([e.engine for e in events], np.int8)
    dma = np.nonzero(engine == DMA)[0]
    below = _rows(begin, length, engine == DMA)
    nothing, one = np.zeros(0, np.int32), np.zeros(1, np.int32)
    return {
        "start": ticks(begin),
        "dur": ticks(length),
        "issue": ticks(begin),
        "engine": engine,
        "queue": np.where(engine == DMA, -1, engine).astype(np.int8),
        "kind": np.array([specs[k] for k in keys], np.int32),
        "line": np.array([places[e.place] if e.place else -1 for e in events], np.int32),
        "node": np.zeros(len(events), np.int32),
        "pred": np.full(len(events), -1, np.int32),
        "trigger": np.zeros(len(events), np.uint32),
        "row": below,
        "operand": nothing,
        "wait": ticks([e.wait / 1e3 for e in events]),
        "matched": np.array(own, np.uint8),
        "seg_engine": below[dma].astype(np.int8),
        "seg_start": ticks(begin[dma]),
        "seg_dur": ticks(length[dma]),
        "seg_instr": dma.astype(np.int32),
        "seg_bytes": np.array([events[i].size for i in dma], np.int32),
        "mem_time": one.astype(np.uint32),
        "mem_sbuf": one,
        "mem_psum": one.astype(np.int16),
        "node_parent": one,
        "node_loop": one,
        "node_iter": one,
        "storage_name": nothing,
        "storage_memory": nothing.astype(np.uint8),
        "life_storage": nothing,
        "life_line": nothing,
        "life_bytes": nothing,
        "life_first": nothing.astype(np.uint32),
        "life_last": nothing.astype(np.uint32),
        "pair": np.full(len(events), -1, np.int32),
    }, Scale(tick, end, list(specs), list(places))


def _head(
    document: dict[str, Any], scale: Scale, columns: dict[str, Any], left_out: Counter[str]
) -> dict[str, Any]:
    """Return what a `Report` says of a whole run: the profile's summary, and "?" or 0 for what only
    a prediction knows."""
    summary = (document.get("summary") or document.get("Summary") or [{}])[0]
    metrics = {
        k: v for k, v in summary.items() if isinstance(v, (int, float)) and not isinstance(v, bool)
    }
    total = float(metrics.get("total_time") or 0) * 1e6 or scale.end
    files = sorted({os.path.basename(file) for file, _ in scale.places})
    return {
        "measured": True,
        "generation": 0,
        "calibrated": True,
        "model_error": "",
        "tick_us": scale.tick,
        "latency_us": total,
        "body_us": scale.end,
        "profile_total_us": total,
        "bound": "?",
        "engine_busy": {},
        "flops": 0.0,
        "mfu": 0.0,
        "hbm_read_bytes": int(metrics.get("hbm_read_bytes", 0)),
        "hbm_write_bytes": int(metrics.get("hbm_write_bytes", 0)),
        "dma_transfer_count": len(columns["seg_instr"]),
        "instructions": {},
        "hbm_gbps": 1.0,
        "peak_tflops": {"bfloat16": 1.0},
        "elementwise_tflops": 1.0,
        "sbuf_bytes": 0,
        "psum_banks": 0,
        "dma_engines": int(np.max(columns["row"], initial=0)) + 1,
        "sbuf_peak_bytes": 0,
        "psum_peak_banks": 0,
        "kinds": [
            {
                "name": name.lower(),
                "engine": ENGINES[e],
                "outputs": 0,
                "accumulate": False,
                "operands": [],
                "moves": moves,
                "bytes": size,
                "flops": 0,
                "useful": 0,
                "elementwise": 0,
            }
            for e, name, moves, size in scale.specs
        ],
        "loops": [],
        "names": ["?"],
        "lines": [[files.index(os.path.basename(f)), number, ""] for f, number in scale.places],
        "files": [{"name": name, "first": 1, "text": []} for name in files],
        "findings": [
            {
                "id": "",
                "severity": "note",
                "line": -1,
                "place": "",
                "other_line": -1,
                "other": "",
                "text": f"{n} events are not shown: {label} (no work of the kernel on an engine)",
            }
            for label, n in left_out.items()
        ],
        "metrics": dict(sorted(metrics.items())),
    }


def _of_a_kernel(event: Event, moving: bool) -> bool:
    """Return whether an event can be an instruction that the kernel wrote; `moving`: the Tensor
    Engine's moving data has a row of its own."""
    if event.engine == DMA:
        return True
    name = event.opcode.upper()
    return (
        name not in BOOKKEEPING
        and "PSEUDO" not in name
        and (ENGINES[event.engine] != "tensor" or not moving or event.track.startswith(MOVING))
    )


def _rows(begin: np.ndarray, length: np.ndarray, which: np.ndarray) -> np.ndarray:
    from .document import _rows as rows

    scale = 1e4
    return rows(
        (begin * scale).astype(np.int64), ((begin + length) * scale).astype(np.int64), which
    )


# ---- matching


def match(measured: Report, predicted: Report) -> int:
    """Pair instructions of the two profiles, by engine; return how many pairs there are.

    What both tools give a line of the source is paired by line, in order: the k-th on a line with
    the k-th. What has no line is paired where both engines have the same sequence of names. What is
    left has no partner: the compiler has split, joined or moved it.
    """
    pair = measured.columns["pair"]
    pair[:] = -1
    taken: set[int] = set()
    for engine in range(len(ENGINES)):
        a = _in_order(measured, engine, measured.columns["matched"] > 0)
        b = _in_order(predicted, engine, np.ones(len(predicted.columns["start"]), bool))
        places_a, places_b = _places(measured, a), _places(predicted, b)
        by_place: dict[Any, list[int]] = defaultdict(list)
        for i in b:
            by_place[places_b[i]].append(i)
        if engine != DMA:
            for place in set(places_a.values()) - {None}:
                at_place = [i for i in a if places_a[i] == place]
                for i, j in zip(at_place, by_place.get(place, ())):
                    pair[i] = j
                    taken.add(j)
        rest_a = [i for i in a if pair[i] < 0 and (engine == DMA or places_a[i] is None)]
        rest_b = [j for j in b if j not in taken]
        names_a, names_b = _names(measured, rest_a, engine), _names(predicted, rest_b, engine)
        if len(rest_a) == len(rest_b) and (
            engine != DMA or len(set(names_a)) == 1 or names_a == names_b
        ):
            pairs = list(zip(rest_a, rest_b))  # the same number, in the engine's order
        else:
            pairs = _by_name(rest_a, rest_b, names_a, names_b)
        for i, j in pairs:
            pair[i] = j
            taken.add(j)
    measured.head["matched"] = int(np.count_nonzero(pair >= 0))
    measured.head["unmatched"] = [
        int(np.count_nonzero((pair < 0) & (measured.columns["matched"] > 0))),
        len(predicted.columns["start"]) - len(taken),
    ]
    return measured.head["matched"]


def _by_name(
    a: list[int], b: list[int], names_a: list[str], names_b: list[str]
) -> list[tuple[int, int]]:
    """Pair what has the same name: in order where both have as many, else what stands in line."""
    count_a, count_b = Counter(names_a), Counter(names_b)
    sure = {name for name in count_a if count_a[name] == count_b[name]}
    pairs: list[tuple[int, int]] = []
    for name in sure:
        pairs += zip(
            [i for i, n in zip(a, names_a) if n == name],
            [j for j, n in zip(b, names_b) if n == name],
        )
    a, names_a = _without(a, names_a, sure)
    b, names_b = _without(b, names_b, sure)
    blocks = SequenceMatcher(None, names_a, names_b, autojunk=False).get_matching_blocks()
    return pairs + [(a[m.a + k], b[m.b + k]) for m in blocks for k in range(m.size)]


def _without(which: list[int], names: list[str], sure: set[str]) -> tuple[list[int], list[str]]:
    left = [(i, n) for i, n in zip(which, names) if n not in sure]
    return [i for i, _ in left], [n for _, n in left]


def _in_order(report: Report, engine: int, keep: np.ndarray) -> list[int]:
    which = np.nonzero((report.columns["engine"] == engine) & keep)[0]
    return which[np.argsort(report.columns["start"][which], kind="stable")].tolist()


def _places(report: Report, which: list[int]) -> dict[int, Any]:
    head, line = report.head, report.columns["line"]

    def place(i: int) -> Any:
        if line[i] < 0:
            return None
        file, number, _ = head["lines"][line[i]]
        return os.path.basename(head["files"][file]["name"]), number

    return {i: place(i) for i in which}


def _names(report: Report, which: list[int], engine: int) -> list[str]:
    """Return what tells instructions apart: of transfers the direction, else the name."""
    specs, spec = report.head["kinds"], report.columns["kind"]
    if engine == DMA:
        return [specs[spec[i]]["moves"] for i in which]
    return [re.sub(r"^(nc|pe|dve|act)_|_", "", specs[spec[i]]["name"].lower()) for i in which]


def differences(measured: Report, predicted: Report) -> list[dict[str, Any]]:
    """Return, by line and instruction, measured and predicted us of what is paired, and the waits.

    A wait is what was measured as one, else the time that the engine stood still before. The
    largest difference comes first.
    """
    pair = measured.columns["pair"]
    out: dict[Any, dict[str, Any]] = {}
    us = [(r.us("start"), r.us("dur"), _gaps(r)) for r in (measured, predicted)]
    for i in np.nonzero(pair >= 0)[0].tolist():
        j = int(pair[i])
        line = int(predicted.columns["line"][j])
        spec = predicted.head["kinds"][predicted.columns["kind"][j]]
        row = out.setdefault(
            (line, spec["name"] + spec["moves"]),
            {
                "line": line,
                "name": f"{spec['moves']} (DMA)" if spec["moves"] else spec["name"],
                "engine": spec["engine"],
                "count": 0,
                "measured_us": 0.0,
                "predicted_us": 0.0,
                "measured_wait_us": 0.0,
                "predicted_wait_us": 0.0,
                "at": i,
                "worst": -1.0,
            },
        )
        row["count"] += 1
        for (_, dur, gap), who, k in ((us[0], "measured", i), (us[1], "predicted", j)):
            row[f"{who}_us"] += float(dur[k])
            row[f"{who}_wait_us"] += float(gap[k])
        error = abs(float(us[0][1][i] - us[1][1][j]))
        if error > row["worst"]:
            row["worst"], row["at"] = error, i
    for row in out.values():
        if row["line"] >= 0:
            file, number, _ = predicted.head["lines"][row["line"]]
            row["place"] = f"{predicted.head['files'][file]['name']}:{number}"
        else:
            row["place"] = ""
    return sorted(out.values(), key=lambda r: -abs(r["measured_us"] - r["predicted_us"]))


def _gaps(report: Report) -> np.ndarray:
    """Return how long each instruction's engine stood still (or waited) before it, in us."""
    start, stop = report.us("start"), report.us("start") + report.us("dur")
    out = report.us("wait").copy() if "wait" in report.columns else np.zeros(len(start))
    for engine in range(DMA):
        order = np.nonzero(report.columns["engine"] == engine)[0]
        order = order[np.argsort(start[order], kind="stable")]
        free = np.maximum.accumulate(stop[order])[:-1] if len(order) else stop[:0]
        gap = np.maximum(0.0, start[order[1:]] - free)
        out[order[1:]] = np.where(out[order[1:]] > 0, out[order[1:]], gap)
    return out


def both(measured: Report, predicted: Report) -> Report:
    """Match the two and return the measured one, ready to be shown above the other."""
    match(measured, predicted)
    measured.head["differences"] = differences(measured, predicted)
    _share_lines(measured, predicted)
    return measured


def _share_lines(measured: Report, predicted: Report) -> None:
    """Give the measured profile the source of the predicted one, and the lines of its partners."""
    names = {os.path.basename(f["name"]): n for n, f in enumerate(predicted.head["files"])}
    files, lines = list(predicted.head["files"]), [list(x) for x in predicted.head["lines"]]
    numbers = {(x[0], x[1]): n for n, x in reversed(list(enumerate(lines)))}
    renamed = []
    for file, number, function in measured.head["lines"]:
        name = measured.head["files"][file]["name"]
        if name not in names:
            names[name] = len(files)
            files.append(measured.head["files"][file])
        key = names[name], number
        if key not in numbers:
            numbers[key] = len(lines)
            lines.append([*key, function])
        renamed.append(numbers[key])
    line, pair = measured.columns["line"], measured.columns["pair"]
    own = np.array([*renamed, -1], np.int32)[line]
    theirs = predicted.columns["line"][np.maximum(pair, 0)]
    measured.columns["line"] = np.where(own >= 0, own, np.where(pair >= 0, theirs, -1)).astype(
        np.int32
    )
    measured.head["files"], measured.head["lines"] = files, lines


def table(measured: Report) -> str:
    """Return where the model erred, as text."""
    head = measured.head
    missing = head["unmatched"]
    lines = [
        f"{head['matched']} instructions matched; {missing[0]} measured and {missing[1]} "
        "predicted ones have no partner",
        f"measured total {head['profile_total_us']:,.1f} us",
        "",
        f"{'line':<28}{'instruction':<24}{'count':>7}{'measured us':>13}{'predicted':>11}"
        f"{'error':>9}{'wait us':>10}{'predicted':>11}",
    ]
    for r in head["differences"]:
        error = 100 * (r["predicted_us"] / r["measured_us"] - 1) if r["measured_us"] else 0.0
        lines.append(
            f"{r['place'][-27:]:<28}{r['name'][:23]:<24}{r['count']:>7}"
            f"{r['measured_us']:>13,.1f}{r['predicted_us']:>11,.1f}{error:>+8.0f}%"
            f"{r['measured_wait_us']:>10,.1f}{r['predicted_wait_us']:>11,.1f}"
        )
    return "\n".join(lines)
