"""From a profile that was just computed to a report: head and columns."""

from __future__ import annotations

import linecache
import os
from typing import Any

import numpy as np

from nkisim.chip import dtypes
from nkisim.chip.hw import VERSIONS
from nkisim.chip.memory import HBM, PSUM, SBUF
from nkisim.errors.frames import known_as
from nkisim.timing.cost import trigger_us
from nkisim.timing.critical_path import label
from nkisim.timing.reasons import reasons
from nkisim.trace.names import assigned_on

from .columns import DMA, Report
from .metrics import metrics
from .tiles import tiles

FINEST_TICK_US = 1e-4  # times are whole ticks, so that a column is 4 bytes an event
CONTEXT_LINES = 30  # of source around the lines in use, in a file too long to embed
WHOLE_FILE_LINES = 1500
DMA_ROWS = 12  # overlapping transfers are drawn below each other, on so many rows


def report_of(prof: Any) -> Report:
    """Return the report of a profile (a report is returned as it is)."""
    return prof if isinstance(prof, Report) else _build(prof)


def _build(prof: Any) -> Report:
    tl, trace = prof.timeline, prof.trace
    end = max(float(np.max(tl.end_us)), float(prof.latency_us))
    tick = max(FINEST_TICK_US, end / 2**31)

    def ticks(us: Any) -> np.ndarray:
        return np.rint(np.maximum(np.asarray(us, np.float64), 0.0) / tick).astype(np.uint32)

    lines, line_of = _lines(trace.lines)
    seg, mem = tl.dma_segments, prof.memory
    engine = np.asarray(tl.engine, np.int8)
    start, stop = ticks(tl.start_us), ticks(tl.end_us)
    columns = {
        "start": start,
        "dur": stop - start,
        "issue": ticks(tl.issue_us),
        "engine": engine,
        "queue": np.asarray(tl.queue, np.int8),
        "kind": np.asarray(tl.spec, np.int32),
        "line": line_of[np.asarray(tl.line, np.int64)],
        "node": np.asarray(tl.node, np.int32),
        "pred": np.asarray(tl.pred, np.int32),
        "trigger": _triggers(prof, ticks),
        "row": _rows(start, stop, engine == DMA),
        "operand": trace.operands().storage.astype(np.int32),
        "seg_engine": seg["engine"].astype(np.int8),
        "seg_start": ticks(seg["start_us"]),
        "seg_dur": ticks(seg["end_us"]) - ticks(seg["start_us"]),
        "seg_instr": seg["instr"].astype(np.int32),
        "seg_bytes": seg["bytes"].astype(np.int32),
        "mem_time": ticks(mem.time_us),
        "mem_sbuf": np.asarray(mem.sbuf_bytes, np.int32),
        "mem_psum": np.asarray(mem.psum_banks, np.int16),
        "node_parent": np.array(trace.node_parent, np.int32),
        "node_loop": np.array(trace.node_loop, np.int32),
        "node_iter": np.array(trace.node_iter, np.int32),
    }
    names, tensors = _tensors(trace, lines, line_of)
    columns.update(
        tensors,
        **_lifetimes(prof, ticks, line_of),
        **reasons(prof.schedule),
        **_values(prof),
        **tiles(prof, ticks, line_of, list(lines), names, tensors["storage_name"]),
    )
    where = {key: i for i, key in enumerate(lines)}
    files = sorted({file for file, _, _ in lines})
    short = _short_names(files)
    hw = prof.hw
    head = {
        "kernel": prof.kernel_name,
        "case": str(prof.case),
        "arguments": [{k: v for k, v in a.items() if k != "storage"} for a in prof.arguments],
        "dialect": prof.dialect,
        "release": prof.release,
        "date": prof.date,
        "target": hw.name,
        "generation": VERSIONS[hw.version],
        "descriptors": str(prof.descriptors),
        "calibrated": bool(hw.calibrated),
        "model_error": _model_error(prof),
        "in_order_us": getattr(prof, "in_order_us", None),
        "tick_us": tick,
        "latency_us": float(prof.latency_us),
        "body_us": float(prof.body_us),
        "profile_total_us": float(prof.profile_total_us),
        "bound": str(prof.bound),
        "engine_busy": {k: float(v) for k, v in prof.engine_busy.items()},
        "flops": float(prof.flops or 0),
        "mfu": float(prof.mfu or 0),
        "hbm_read_bytes": int(prof.hbm_read_bytes),
        "hbm_write_bytes": int(prof.hbm_write_bytes),
        "dma_transfer_count": int(prof.dma_transfer_count),
        "instructions": {k: int(v) for k, v in sorted(prof.instructions.items())},
        "hbm_gbps": float(hw.hbm_gbps_per_core),
        "dma_gbps": float(hw.dma_engines * hw.timing.dma_engine_gbps),
        "peak_tflops": dict(hw.peak_tflops),
        "elementwise_tflops": hw.pmax * hw.dve_ghz / 1e3,
        "sbuf_bytes": int(hw.sbuf_usable_bytes),
        "psum_banks": int(hw.psum_banks),
        "dma_engines": int(hw.dma_engines),
        "dma_start_us": float(hw.timing.dma_start_us),
        "psum_bank_bytes": int(hw.psum_bank_bytes),
        "sbuf_peak_bytes": int(np.max(columns["mem_sbuf"], initial=0)),
        "psum_peak_banks": int(np.max(columns["mem_psum"], initial=0)),
        "kinds": [_op_spec(k, x) for k, x in zip(trace.op_specs, prof.schedule.transfers)],
        "loops": list(trace.loop_kind),
        "names": names,
        "lines": [[file, line, function] for file, line, function in lines],
        "files": _files(lines),
        "findings": [_finding(f, where, short) for f in prof.findings],
        "values": _which_values(prof),
        "first_bad": _first_bad(prof, line_of),
        **_accounts(prof, where),
        "advice": [_advice(a, where) for a in prof.advice],
        "verdict": prof.verdict,
    }
    for line in head["lines"]:
        line[0] = files.index(line[0])
    for file in head["files"]:
        file["name"] = short[file["name"]]
    report = Report(head, columns)
    head["metrics"] = metrics(report)
    return report


def _lines(places: list[Any]) -> tuple[list[tuple[str, int, str]], np.ndarray]:
    """Return the distinct (file, line, function), and for each of the trace's line ids its index.

    The trace tells two calls on one line apart. The last element stands for line id -1.
    """
    index: dict[tuple[str, int, str], int] = {}
    ids = [index.setdefault((w.file, w.line, w.function), len(index)) for w in places]
    return list(index), np.array([*ids, -1], np.int32)


def _files(lines: list[tuple[str, int, str]]) -> list[dict[str, Any]]:
    """Return the source files: name, number of the first line, text of the lines."""
    out = []
    for file in sorted({f for f, _, _ in lines}):
        text = [t.rstrip("\r\n") for t in linecache.getlines(file)]
        used = [n for f, n, _ in lines if f == file]
        first, last = 1, len(text)
        if len(text) > WHOLE_FILE_LINES:
            first = max(1, min(used) - CONTEXT_LINES)
            last = min(max(used) + CONTEXT_LINES, first + WHOLE_FILE_LINES)
        out.append({"name": file, "first": first, "text": text[first - 1 : last]})
    return out


def _short_names(files: list[str]) -> dict[str, str]:
    """Return names without the folders, which the reader does not need; with one if they clash."""
    base = [os.path.basename(known_as(f)) for f in files]
    return {
        f: b if base.count(b) == 1 else "/".join((os.path.basename(os.path.dirname(f)), b))
        for f, b in zip(files, base)
    }


def _model_error(prof: Any) -> str:
    """Return what the profile says of its model's error, in words; "" if it says nothing."""
    error = getattr(prof, "model_error", None)
    return "" if error is None else str(error)


def _finding(
    f: Any, where: dict[tuple[str, int, str], int], short: dict[str, str]
) -> dict[str, Any]:
    message = f.text
    for file, name in short.items():
        message = message.replace(file, name)

    def place(w: Any) -> int:
        return where.get((w.file, w.line, w.function), -1) if w is not None else -1

    def text(w: Any) -> str:
        return w.short if w is not None else ""

    return {
        "id": f.id,
        "severity": f.severity,
        "text": message,
        "line": place(f.where),
        "place": text(f.where),
        "other_line": place(f.other),
        "other": text(f.other),
    }


def _advice(a: Any, where: dict[tuple[str, int, str], int]) -> dict[str, Any]:
    """Return a piece of advice: the sentence without its place, the place, what it would save."""
    line = where.get((a.where.file, a.where.line, a.where.function), -1) if a.where else -1
    return {
        "cause": a.cause,
        "text": a.sentence,
        "line": line,
        "place": a.place,
        "saves_us": float(a.saves_us),
        "latency_us": float(a.latency_us),
    }


def _accounts(prof: Any, where: dict[tuple[str, int, str], int]) -> dict[str, Any]:
    """Return floor, traffic of tensors, regions and critical path; places as "file:line", and the
    index of the line where a row has one."""
    by_text = {str(w): (w.short, where[w.file, w.line, w.function]) for w in prof.trace.lines}

    def placed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        out = []
        for row in rows:
            place, line = by_text.get(row["where"] or "", ("", -1))
            out.append({**row, "where": place, "line": line})
        return out

    path, regions = prof.critical_path(), prof.regions()
    return {
        "floor": prof.floor(),
        "tensors": placed(prof.tensors()),
        "regions": {name: placed(rows) for name, rows in regions.items()},
        "critical_path": {
            "total_us": path["total_us"],
            "spent_us": path["spent_us"],
            "by_line": placed(path["by_line"]),
        },
    }


def _first_bad(prof: Any, line_of: np.ndarray) -> list[dict[str, Any]]:
    """Return the first instructions that wrote a NaN and an infinity, of those with values."""
    kept, out = getattr(prof, "tile_values", None), []
    if kept is None:
        return []
    rows = kept.rows
    spec, line, _ = prof.trace.instructions()
    for kind, name in (("nan", "NaN"), ("inf", "infinity")):
        bad = rows[rows[kind] > 0]
        if not len(bad):
            continue
        row = bad[int(np.argmin(bad["instr"]))]
        i = int(row["instr"])
        place = prof.trace.where(int(line[i]))
        out.append(
            {
                "what": name,
                "instr": i,
                "name": label(prof.trace.op_specs[spec[i]]),
                "elements": int(row[kind]),
                "of": int(row["count"]),
                "line": int(line_of[int(line[i])]),
                "place": place.short if place else "",
            }
        )
    return out


def _values(prof: Any) -> dict[str, np.ndarray]:
    """Return what tiles held, as flat columns; none if it was not kept."""
    kept = getattr(prof, "tile_values", None)
    if kept is None:
        return {}
    rows = kept.rows
    return {
        f"val_{name}": np.ascontiguousarray(rows[name]).reshape(-1) for name in rows.dtype.names
    }


def _which_values(prof: Any) -> dict[str, Any]:
    """Return the sizes of histograms and pictures, and whether every instruction has them."""
    kept = getattr(prof, "tile_values", None)
    if kept is None:
        return {}
    rows, columns = kept.rows["picture"].shape[1:]
    return {
        "bins": int(kept.rows["histogram"].shape[1]),
        "rows": int(rows),
        "columns": int(columns),
        "complete": bool(kept.complete),
    }


def _op_spec(spec: Any, transfer: Any) -> dict[str, Any]:
    """Return an op spec: its name, engine, operands and work."""
    flops, useful = spec.row.flops(spec)
    return {
        "name": spec.row.name,
        "engine": spec.engine,
        "outputs": spec.outputs,
        "accumulate": bool(spec.accumulate),
        "operands": [[p.memory, dtypes.name(p.dtype), list(p.shape)] for p in spec.operands],
        "moves": _direction(spec),
        "bytes": int(spec.operands[0].nbytes),
        "descriptors": int(transfer.descriptors) if transfer else 0,
        "flops": flops,
        "useful": useful,
        "elementwise": _elementwise(spec),
    }


def _elementwise(spec: Any) -> int:
    """Return the elements that a Vector, Scalar or GpSimd instruction goes through."""
    if spec.engine not in ("vector", "scalar", "gpsimd"):
        return 0
    return max((p.elements for p in spec.operands), default=0)


def _direction(spec: Any) -> str:
    """Return "load", "store" or "copy" for a DMA transfer, "" for other instructions."""
    if spec.engine != "dma":
        return ""
    if spec.operands[0].memory is HBM:
        return "copy" if spec.read_bytes else "store"
    return "load" if spec.read_bytes else "copy"


def _triggers(prof: Any, ticks: Any) -> np.ndarray:
    """Return how long each DMA's trigger keeps its queue busy (0 for other instructions)."""
    per_op_spec = [0.0 if x is None else trigger_us(x, prof.hw) for x in prof.schedule.transfers]
    return ticks(np.array(per_op_spec)[np.asarray(prof.timeline.spec, np.int64)])


def _rows(start: np.ndarray, stop: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Put events that overlap in time on different rows: the first that is free, or free next."""
    out = np.zeros(len(start), np.uint8)
    ends = [0] * DMA_ROWS
    todo = np.nonzero(which)[0]
    for i in todo[np.argsort(start[todo], kind="stable")].tolist():
        s = int(start[i])
        row = next((r for r in range(DMA_ROWS) if ends[r] <= s), None)
        if row is None:
            row = int(np.argmin(ends))
        out[i] = row
        ends[row] = max(ends[row], int(stop[i]))
    return out


def _tensors(
    trace: Any, lines: list[tuple[str, int, str]], line_of: np.ndarray
) -> tuple[list[str], dict[str, np.ndarray]]:
    """Return names, and for each storage which of them it has and where it lies.

    A tensor is called after the variable on the line that made it.
    """
    names = ["?", "input", "placed by the kernel"]
    by_line = []
    for file, number, _ in lines:
        text = assigned_on(file, number)
        if text not in names:
            names.append(text)
        by_line.append(names.index(text))
    by_line.append(0)  # line unknown
    storages = trace.storages.table()
    name = np.array(by_line, np.int32)[line_of[storages.line]]
    name[storages.readonly] = names.index("input")
    name[storages.arena] = names.index("placed by the kernel")
    code = {SBUF: 0, PSUM: 1, HBM: 2}  # in the file
    memory = np.array([code[x] for x in trace.storages.MEMORIES], np.uint8)
    return names, {"storage_name": name, "storage_memory": memory[storages.code]}


def _lifetimes(prof: Any, ticks: Any, line_of: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of what is in memory from when to when."""
    life = prof.memory.lifetimes
    return {
        "life_storage": np.asarray(life["storage"], np.int32),
        "life_line": line_of[np.asarray(life["line"], np.int64)],
        "life_first": ticks(life["first_us"]),
        "life_last": ticks(life["last_us"]),
        "life_bytes": np.asarray(life["bytes_per_partition"], np.int32),
    }
