"""The instructions of a profile as a table: CSV, or Parquet where pyarrow is installed.

Columns have the names that Neuron Explorer gives them in its table "Instruction", so that what
reads one reads the other; times are in nanoseconds from the start of the launch.
"""

from __future__ import annotations

import csv
import os
from typing import Any

import numpy as np

from .columns import DMA, ENGINES, Report, ReportError
from .document import report_of

#: how Neuron Explorer calls the engines
_ENGINES = {
    "tensor": "Tensor",
    "vector": "Vector",
    "scalar": "Scalar",
    "gpsimd": "GpSimd",
    "sync": "Sync",
    "dma": "DMA",
}
#: why an instruction waited (timing/reasons.py), by its code
_WHY = ("", "data", "buffer", "order", "space", "late-load")
COLUMNS = (
    "instruction_id",
    "start_ts",
    "end_ts",
    "duration_ns",
    "issue_ts",
    "engine",
    "queue",
    "opcode",
    "operands",
    "nki_source_location",
    "transfer_bytes",
    "waited_for",
    "wait_reason",
    "predicted",
)


def rows(prof: Any) -> list[dict[str, Any]]:
    """Return a row for each instruction of a profile or report, in program order, by COLUMNS."""
    report = report_of(prof)
    head, c = report.head, report.columns
    launch = head["latency_us"] - head["body_us"] if not head.get("measured") else 0.0
    start, issue = (_ns(report, name, launch) for name in ("start", "issue"))
    length = _ns(report, "dur", 0.0)
    files = [file["name"] for file in head["files"]]
    places = [f"{files[file]}:{line}" for file, line, _ in head["lines"]]
    kinds = [
        (
            f"{k['moves'].upper()}" if k["moves"] else k["name"].upper(),
            "; ".join(f"{m} {d} [{', '.join(map(str, shape))}]" for m, d, shape in k["operands"]),
            k["bytes"] if k["moves"] else 0,
        )
        for k in head["kinds"]
    ]
    why = c.get("why", np.zeros(len(start), np.uint8))
    out = []
    for i, (kind, engine, queue, line, pred) in enumerate(
        zip(*(c[name].tolist() for name in ("kind", "engine", "queue", "line", "pred")))
    ):
        opcode, operands, moved = kinds[kind]
        out.append(
            {
                "instruction_id": i,
                "start_ts": start[i],
                "end_ts": start[i] + length[i],
                "duration_ns": length[i],
                "issue_ts": issue[i],
                "engine": _ENGINES[ENGINES[engine]],
                "queue": _ENGINES[ENGINES[queue]] if engine == DMA and queue >= 0 else "",
                "opcode": opcode,
                "operands": operands,
                "nki_source_location": places[line] if line >= 0 else "",
                "transfer_bytes": moved,
                "waited_for": pred if pred >= 0 else None,
                "wait_reason": _WHY[int(why[i])],
                "predicted": not head.get("measured"),
            }
        )
    return out


def _ns(report: Report, name: str, launch: float) -> list[int]:
    return np.rint((report.us(name) + launch) * 1e3).astype(np.int64).tolist()


def save_table(prof: Any, path: str | os.PathLike[str]) -> None:
    """Write the instructions of a profile, CSV or Parquet as the name of the file ends.

    Raises ReportError for another ending, and for .parquet where pyarrow is not installed.
    """
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending == ".csv":
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows(prof))
    elif ending == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise ReportError(
                f"{path}: Parquet is written by pyarrow, which is not installed (pip install "
                "pyarrow). A name that ends in .csv needs nothing."
            ) from None
        table = pyarrow.Table.from_pylist(rows(prof))
        pyarrow.parquet.write_table(table, os.fspath(path))
    else:
        raise ReportError(f"{path}: a table of instructions ends in .csv or .parquet.")
