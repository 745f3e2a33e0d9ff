"""The profile as a trace that the Perfetto UI and Chrome's tracer (chrome://tracing) open.

It is written in the JSON trace-event format, which both read; Perfetto looks at the content of a
file, not at its name. Names that end in .gz or .pftrace are compressed, which both read as well.
"""
from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from .columns import DMA, ENGINES, Report
from .document import report_of
from .summary import headline

ENGINE_NAMES = ("Tensor Engine", "Vector Engine", "Scalar Engine", "GpSimd Engine", "Sync Engine")
CORE, DMA_ENGINES = 1, 2        # process ids; thread ids begin at 1: Perfetto treats 0 specially
FLOW_LIMIT = 50_000             # arrows; more would double the file and cannot be read anyway


def save_perfetto(prof: Any, path: str | os.PathLike[str]) -> None:
    """Write a profile as a trace for https://ui.perfetto.dev (which works offline once loaded)."""
    report = report_of(prof)
    compressed = os.fspath(path).endswith((".gz", ".pftrace"))
    opened = gzip.open(path, "wt", 6, encoding="utf-8") if compressed else \
        open(path, "w", encoding="utf-8")
    with opened as file:
        title = json.dumps(f"{report.head['kernel']}: {headline(report)}")
        file.write(f'{{"displayTimeUnit":"ns","otherData":{{"title":{title}}},"traceEvents":[\n')
        file.write(",\n".join(_events(report)))
        file.write("\n]}\n")


def _events(report: Report) -> Iterator[str]:
    """Yield the trace events of a report, each as JSON.

    What repeats is encoded once: half a million calls of json.dumps would take a minute.
    """
    head, col = report.head, report.columns
    for event in [*_names(report), *_counters(report)]:
        yield json.dumps(event, separators=(",", ":"))
    threads = _threads(report)
    transfers = np.flatnonzero((col["engine"] == DMA) & (col["queue"] >= 0))
    start, dur = _slices(np.r_[report.us("start"), report.us("issue")[transfers]],
                         np.r_[report.us("dur"), report.us("trigger")[transfers]],
                         np.r_[threads, col["queue"][transfers] + 1])
    names = [json.dumps(k["name"]) for k in head["kinds"]]
    opening = [f'{{"ph":"X","pid":{CORE},"name":{n},"cat":"{k["engine"]}","args":{{{_arguments(k)}'
               for n, k in zip(names, head["kinds"])]
    places = [json.dumps(f"{head['files'][f]['name']}:{n}") for f, n, _ in head["lines"]] + ['""']
    kind, line, pred = col["kind"].tolist(), col["line"].tolist(), col["pred"].tolist()
    ends = (report.us("start") + report.us("dur")).round(4).tolist()
    queue, moves = col["queue"].tolist(), (col["engine"] == DMA).tolist()
    for i, (ts, length, k) in enumerate(zip(start, dur, kind)):
        by = f',"queue":"{ENGINES[queue[i]]}"' if moves[i] and 0 <= queue[i] < DMA else ""
        yield (f'{opening[k]},"instruction":{i},"line":{places[line[i]]},"waited_for":{pred[i]}{by}'
               f',"ends_us":{ends[i]}}},"tid":{threads[i]},"ts":{ts},"dur":{length}}}')
    for i, ts, length in zip(transfers.tolist(), start[len(kind):], dur[len(kind):]):
        yield (f'{{"ph":"X","pid":{CORE},"name":"trigger","cat":"trigger","tid":{queue[i] + 1},'
               f'"ts":{ts},"dur":{length},"args":{{"of_instruction":{i}}}}}')
    yield from _flows(start, dur, pred, threads)
    yield from _segments(report, names)


def _names(report: Report) -> Iterator[dict[str, Any]]:
    head = report.head
    title = f"{head['kernel']}: {headline(report)}"
    rows = report.columns["row"][report.columns["engine"] == DMA]
    lanes = list(ENGINE_NAMES) + [f"DMA transfers {r + 1}" for r in range(_rows(rows))]
    for pid, name, threads in ((CORE, title, lanes),
                               (DMA_ENGINES, "DMA engines",
                                [f"DMA engine {e}" for e in range(head["dma_engines"])])):
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
        for tid, text in enumerate(threads, 1):
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": text}}
            yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid,
                   "args": {"sort_index": tid}}


def _rows(rows: np.ndarray) -> int:
    return int(rows.max()) + 1 if len(rows) else 0


def _threads(report: Report) -> list[int]:
    """Return the thread of each instruction; transfers that overlap are on threads of their own."""
    engine, row = report.columns["engine"].astype(int), report.columns["row"].astype(int)
    return np.where(engine == DMA, len(ENGINE_NAMES) + 1 + row, engine + 1).tolist()


def _slices(start_us: np.ndarray, dur_us: np.ndarray,
            thread: np.ndarray) -> tuple[list[float], list[float]]:
    """Return start and duration of slices in whole nanoseconds, as microseconds.

    Perfetto drops slices of a thread that overlap, be it by a rounded nanosecond. An engine takes
    an instruction before the last one has left its pipeline: it is cut where the next one starts.
    """
    start = np.rint(start_us * 1000).astype(np.int64)
    dur = np.rint((start_us + dur_us) * 1000).astype(np.int64) - start
    order = np.lexsort((start, thread))
    room = np.append(np.diff(start[order]), 0)
    last = np.append(np.diff(thread[order]) != 0, True)
    dur[order] = np.where(last, dur[order], np.minimum(dur[order], room))
    return (start / 1000).tolist(), (dur / 1000).tolist()


def _arguments(kind: dict[str, Any]) -> str:
    text = [f"{memory} {dtype}{shape}" for memory, dtype, shape in kind["operands"]]
    args = {"writes": ", ".join(text[:kind["outputs"]]), "reads": ", ".join(text[kind["outputs"]:])}
    return json.dumps(args)[1:-1]


def _flows(start: list[float], dur: list[float], pred: list[int],
           threads: list[int]) -> Iterator[str]:
    """Yield an arrow from what an instruction waited for last to the instruction."""
    waits = [i for i, p in enumerate(pred) if p >= 0]
    same = f'"cat":"dependency","name":"waits for","pid":{CORE}'
    for i in waits[:FLOW_LIMIT]:
        p = pred[i]
        # A flow binds to the slice that encloses its time stamp, and the end is not inside.
        begin, end = round(start[p] + dur[p] / 2, 5), round(start[i] + dur[i] / 2, 5)
        yield f'{{"ph":"s",{same},"id":{i},"tid":{threads[p]},"ts":{begin}}}'
        yield f'{{"ph":"f","bp":"e",{same},"id":{i},"tid":{threads[i]},"ts":{end}}}'


def _segments(report: Report, names: list[str]) -> Iterator[str]:
    """Yield what each of the DMA engines did."""
    col = report.columns
    of = col["seg_instr"]
    start, dur = _slices(report.us("seg_start"), report.us("seg_dur"), col["seg_engine"])
    for e, ts, length, i, k, size in zip(col["seg_engine"].tolist(), start, dur, of.tolist(),
                                         col["kind"][of].tolist(), col["seg_bytes"].tolist()):
        yield (f'{{"ph":"X","pid":{DMA_ENGINES},"name":{names[k]},"cat":"dma","tid":{e + 1},'
               f'"ts":{ts},"dur":{length},"args":{{"instruction":{i},"bytes":{size}}}}}')


def _counters(report: Report) -> Iterator[dict[str, Any]]:
    """Yield how much of SBUF and PSUM is in use, at each change."""
    col = report.columns
    at = report.us("mem_time").round(4).tolist()
    for name, unit, values in (("SBUF in use", "bytes per partition", col["mem_sbuf"]),
                               ("PSUM in use", "banks", col["mem_psum"])):
        last = None
        for ts, value in zip(at, values.tolist()):
            if value != last:
                yield {"ph": "C", "name": f"{name} ({unit})", "pid": CORE, "ts": ts,
                       "args": {unit: value}}
                last = value
