"""Profiles in the documented formats of AWS's tools, made by hand: no chip has run them.

They are made from a predicted profile whose times are changed in a way that the test knows.
"""

from __future__ import annotations

import os
from typing import Any

from nkisim import report
from nkisim.report.columns import DMA, ENGINES

#: How neuron-profile labels the rows of the timeline.
LABELS = {
    "tensor": "TensorMatrix",
    "vector": "Vector",
    "scalar": "Scalar",
    "gpsimd": "GpSimd",
    "sync": "Sync",
}


def hand_made(
    prof: Any, stretch: dict[str, float], explorer: bool = False, places: bool = True
) -> dict[str, Any]:
    """Return a "measured" document; `stretch`: by which factor each engine is slower."""
    r = report.report_of(prof)
    start, dur = r.us("start"), r.us("dur")
    instruction, dma = [], []
    for i in range(len(start)):
        engine = ENGINES[r.columns["engine"][i]]
        kind = r.head["kinds"][r.columns["kind"][i]]
        begin, length = int(1e6 + start[i] * 1e3), int(dur[i] * 1e3 * stretch.get(engine, 1.0))
        times = (
            {"start_ts": begin, "end_ts": begin + length, "duration_ns": length}
            if explorer
            else {"timestamp": begin, "duration": length}
        )
        if r.columns["engine"][i] == DMA:
            queue = {"load": "input", "store": "output"}.get(kind["moves"], "data")
            dma.append(
                {**times, "queue_type": queue, "transfer_bytes": kind["bytes"]}
                if explorer
                else {**times, "queue_name": f"q{queue}0", "size": kind["bytes"]}
            )
            continue
        file, line, _ = r.head["lines"][r.columns["line"][i]]
        row = {**times, "opcode": kind["name"].upper(), "operands": "made by hand"}
        row.update({"engine": engine} if explorer else {"label": LABELS[engine]})
        if places:
            name = os.path.basename(r.head["files"][file]["name"])
            row["nki_source_location"] = f"['{name}:{line}']"
        instruction.append(row)
    # what every program has besides
    for n in range(3):
        extra = {"opcode": "EVENT_SEMAPHORE", "operands": ""}
        instruction.append(
            {
                **extra,
                "engine": "vector",
                "start_ts": 500_000 + n,
                "end_ts": 500_020,
                "duration_ns": 20,
            }
            if explorer
            else {**extra, "label": "Vector", "timestamp": 500_000 + n, "duration": 20}
        )
    total = {"total_time": 1.5 * float(max(start + dur)) / 1e6}
    if explorer:
        return {"Summary": [total], "Instruction": instruction, "DmaPacketAggregated": dma}
    return {"summary": [total], "instruction": instruction, "dma": dma}
