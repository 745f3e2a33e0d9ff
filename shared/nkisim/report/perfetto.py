"""The profile as a trace for the Perfetto UI, in Perfetto's own format (a protobuf, `Trace`).

The messages are few and flat, so they are put together here (`_field`); the numbers of their fields
are those of `protos/perfetto/trace/*.proto`, which the tests parse the file with. Names that end
in .gz are compressed, which Perfetto reads as well.
"""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from .columns import DMA, ENGINES, Report
from .document import report_of
from .summary import headline

ENGINE_NAMES = ("Tensor Engine", "Vector Engine", "Scalar Engine", "GpSimd Engine", "Sync Engine")
#: numbers of tracks: two groups, and after each what is in it; counters
CORE, DMA_ENGINES, COUNTERS = 1, 1000, 2000
FLOW_LIMIT = 50_000  # arrows; more would double the file and cannot be read anyway

# -- messages ------------------------------------------------------------------------------------

#: TracePacket
PACKET, TIMESTAMP, SEQUENCE, TRACK_EVENT, INTERNED, FLAGS, DESCRIPTOR = 1, 8, 10, 11, 12, 13, 60
FIRST, NEEDS_FIRST = 1, 2  # sequence_flags: interned data begin here, are needed here
#: TrackEvent
ANNOTATION, CATEGORY, TYPE, NAME, TRACK = 4, 3, 9, 10, 11
COUNTER_VALUE, FLOW, LAST_FLOW = 30, 47, 48
BEGIN, END, COUNTER = 1, 2, 4  # type
#: DebugAnnotation
A_NAME, A_INT, A_DOUBLE, A_STRING = 1, 4, 5, 17
#: TrackDescriptor, CounterDescriptor
UUID, T_NAME, PARENT, T_COUNTER, ORDERING, RANK, UNIT = 1, 2, 5, 8, 11, 12, 6
EXPLICIT = 3  # child_ordering
#: InternedData: lists of (iid = 1, name = 2)
CATEGORIES, NAMES, A_NAMES, A_STRINGS = 1, 2, 3, 29


@lru_cache(maxsize=1 << 16)
def _varint(n: int) -> bytes:
    out = bytearray()
    n &= (1 << 64) - 1  # negative numbers: two's complement
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _field(number: int, value: int | float | str | bytes) -> bytes:
    """Return a field: an integer as a varint, a float as a double, else its bytes with a length."""
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode("utf-8") if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _fixed(number: int, value: int) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<Q", value)


class _Interned:
    """Strings that are written once and then called by number, from 1 on."""

    def __init__(self) -> None:
        self.tables: dict[int, dict[str, int]] = {
            t: {} for t in (CATEGORIES, NAMES, A_NAMES, A_STRINGS)
        }

    def __call__(self, table: int, text: str) -> int:
        numbers = self.tables[table]
        return numbers.setdefault(text, len(numbers) + 1)

    def note(self, name: str, value: int | float | str) -> bytes:
        """Return a debug annotation: what the UI lists below "Arguments"."""
        if isinstance(value, str):
            text = _field(A_STRING, self(A_STRINGS, value))
        else:
            text = _field(A_DOUBLE if isinstance(value, float) else A_INT, value)
        return _field(ANNOTATION, _field(A_NAME, self(A_NAMES, name)) + text)

    def message(self) -> bytes:
        """Return the InternedData of all strings so far."""
        return b"".join(
            _field(table, _field(1, n) + _field(2, text))
            for table, numbers in self.tables.items()
            for text, n in numbers.items()
        )


_PACKET, _TIMESTAMP = _varint(PACKET << 3 | 2), _varint(TIMESTAMP << 3)
_SAME = _field(SEQUENCE, 1) + _field(FLAGS, NEEDS_FIRST) + _varint(TRACK_EVENT << 3 | 2)


def _event(ns: int, body: bytes) -> bytes:
    """Return the packet of a track event (_field, written out: this is done very often)."""
    head = _TIMESTAMP + _varint(ns) + _SAME + _varint(len(body))
    return _PACKET + _varint(len(head) + len(body)) + head + body


def _track(uuid: int, name: str, parent: int = 0, rank: int = 0, unit: str = "") -> bytes:
    """Return the packet that says what a track is called and below which one it stands."""
    body = _field(UUID, uuid) + _field(T_NAME, name) + _field(RANK, rank)
    body += _field(PARENT, parent) if parent else _field(ORDERING, EXPLICIT)
    if unit:
        body += _field(T_COUNTER, _field(UNIT, unit))
    return _field(PACKET, _field(SEQUENCE, 1) + _field(DESCRIPTOR, body))


# -- the trace -----------------------------------------------------------------------------------


def save_perfetto(prof: Any, path: str | os.PathLike[str]) -> None:
    """Write a profile as a trace for https://ui.perfetto.dev (which works offline once loaded)."""
    report = report_of(prof)
    interned = _Interned()
    body = [
        *_tracks(report),
        *_instructions(report, interned),
        *_segments(report, interned),
        *_counters(report),
    ]
    first = _field(
        PACKET, _field(SEQUENCE, 1) + _field(FLAGS, FIRST) + _field(INTERNED, interned.message())
    )
    data = first + b"".join(body)
    if os.fspath(path).endswith(".gz"):
        data = gzip.compress(data, 6, mtime=0)
    with open(path, "wb") as file:
        file.write(data)


def _tracks(report: Report) -> Iterator[bytes]:
    head = report.head
    rows = report.columns["row"][report.columns["engine"] == DMA]
    lanes = list(ENGINE_NAMES) + [
        f"DMA transfers {r + 1}" for r in range(int(max(rows, default=-1)) + 1)
    ]
    yield _track(CORE, f"{head['kernel']}: {headline(report)}")
    yield _track(DMA_ENGINES, "DMA engines", rank=1)
    for group, names in (
        (CORE, lanes),
        (DMA_ENGINES, [f"DMA engine {e}" for e in range(head["dma_engines"])]),
    ):
        for n, name in enumerate(names, 1):
            yield _track(group + n, name, group, n)
    for n, (name, unit, _) in enumerate(_memories(report)):
        yield _track(COUNTERS + n, f"{name} ({unit})", CORE, len(lanes) + 1 + n, unit)


def _instructions(report: Report, interned: _Interned) -> Iterator[bytes]:
    """Yield the slices of instructions and of the triggers of DMAs, with arrows to who waits."""
    head, col = report.head, report.columns
    engine, row = col["engine"].astype(int), col["row"].astype(int)
    count = len(engine)
    tracks = CORE + np.where(engine == DMA, len(ENGINE_NAMES) + 1 + row, engine + 1)
    transfers = np.flatnonzero((engine == DMA) & (col["queue"] >= 0))
    tracks = np.r_[tracks, CORE + 1 + col["queue"][transfers]]
    start, stop = _slices(
        np.r_[report.us("start"), report.us("issue")[transfers]],
        np.r_[report.us("dur"), report.us("trigger")[transfers]],
        tracks,
    )
    of_spec = [
        _field(NAME, interned(NAMES, k["name"]))
        + _field(CATEGORY, interned(CATEGORIES, k["engine"]))
        + _arguments(k, interned)
        for k in head["kinds"]
    ]
    places = [interned.note("line", f"{head['files'][f]['name']}:{n}") for f, n, _ in head["lines"]]
    places.append(b"")
    specs, lines, pred = col["kind"].tolist(), col["line"].tolist(), col["pred"].tolist()
    ends = (report.us("start") + report.us("dur")).round(4).tolist()
    queues = [interned.note("queue", name) for name in ENGINES]
    queue = np.where(engine == DMA, col["queue"], -1).tolist()
    arrows = _arrows(pred)
    trigger = _field(NAME, interned(NAMES, "trigger")) + _field(
        CATEGORY, interned(CATEGORIES, "trigger")
    )
    for n in np.lexsort((np.asarray(stop), np.asarray(start), tracks)).tolist():
        if n < count:
            body = (
                of_spec[specs[n]]
                + interned.note("instruction", n)
                + places[lines[n]]
                + interned.note("waited_for", pred[n])
                + interned.note("ends_us", ends[n])
                + arrows.get(n, b"")
                + (queues[queue[n]] if queue[n] >= 0 else b"")
            )
        else:
            body = trigger + interned.note("of_instruction", int(transfers[n - count]))
        yield from _slice(int(tracks[n]), start[n], stop[n], body)


def _slice(track: int, start: int, stop: int, body: bytes) -> tuple[bytes, bytes]:
    begin, end = _ends(track)
    return _event(start, begin + body), _event(stop, end)


@lru_cache
def _ends(track: int) -> tuple[bytes, bytes]:
    """Return what begins and what ends a slice on a track."""
    where = _field(TRACK, track)
    return _field(TYPE, BEGIN) + where, _field(TYPE, END) + where


def _arrows(pred: list[int]) -> dict[int, bytes]:
    """Return, by instruction, the flows from what it waited for last and to who waited for it."""
    out: dict[int, bytes] = {}
    for i in [i for i, p in enumerate(pred) if p >= 0][:FLOW_LIMIT]:
        out[pred[i]] = out.get(pred[i], b"") + _fixed(FLOW, i + 1)
        out[i] = out.get(i, b"") + _fixed(LAST_FLOW, i + 1)
    return out


def _slices(
    start_us: np.ndarray, dur_us: np.ndarray, track: np.ndarray
) -> tuple[list[int], list[int]]:
    """Return begin and end of slices in whole nanoseconds.

    Slices of a track must not overlap, be it by a rounded nanosecond. An engine takes an
    instruction before the last one has left its pipeline: it is cut where the next one starts.
    """
    start = np.rint(start_us * 1000).astype(np.int64)
    stop = np.rint((start_us + dur_us) * 1000).astype(np.int64)
    order = np.lexsort((stop, start, track))
    after = np.append(start[order][1:], 0)
    last = np.append(np.diff(track[order]) != 0, True)[: len(order)]
    stop[order] = np.where(last, stop[order], np.minimum(stop[order], after[: len(order)]))
    return start.tolist(), stop.tolist()


def _arguments(spec: dict[str, Any], interned: _Interned) -> bytes:
    text = [f"{memory} {dtype}{shape}" for memory, dtype, shape in spec["operands"]]
    return interned.note("writes", ", ".join(text[: spec["outputs"]])) + interned.note(
        "reads", ", ".join(text[spec["outputs"] :])
    )


def _segments(report: Report, interned: _Interned) -> Iterator[bytes]:
    """Yield what each of the DMA engines did."""
    col = report.columns
    tracks = DMA_ENGINES + 1 + col["seg_engine"].astype(int)
    start, stop = _slices(report.us("seg_start"), report.us("seg_dur"), tracks)
    of = col["seg_instr"].tolist()
    dma = _field(CATEGORY, interned(CATEGORIES, "dma"))
    names = [_field(NAME, interned(NAMES, k["name"])) + dma for k in report.head["kinds"]]
    spec, size = col["kind"].tolist(), col["seg_bytes"].tolist()
    for n in np.lexsort((np.asarray(stop), np.asarray(start), tracks)).tolist():
        body = (
            names[spec[of[n]]]
            + interned.note("instruction", of[n])
            + interned.note("bytes", size[n])
        )
        yield from _slice(int(tracks[n]), start[n], stop[n], body)


def _memories(report: Report) -> list[tuple[str, str, np.ndarray]]:
    col = report.columns
    return [
        ("SBUF in use", "bytes per partition", col["mem_sbuf"]),
        ("PSUM in use", "banks", col["mem_psum"]),
    ]


def _counters(report: Report) -> Iterator[bytes]:
    """Yield how much of SBUF and PSUM is in use, at each change."""
    at = np.rint(report.us("mem_time") * 1000).astype(np.int64).tolist()
    for n, (_, _, values) in enumerate(_memories(report)):
        where, last = _field(TYPE, COUNTER) + _field(TRACK, COUNTERS + n), None
        for ns, value in zip(at, values.tolist()):
            if value != last:
                yield _event(ns, where + _field(COUNTER_VALUE, value))
                last = value
