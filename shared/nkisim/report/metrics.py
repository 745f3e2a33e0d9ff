"""The metrics of a profile, by the names that neuron-profile gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.timing.regions import active_us

from .columns import DMA, ENGINES, Report


def metrics(report: Report) -> dict[str, Any]:
    """Return the metrics of a profile by neuron-profile's names."""
    head, columns = report.head, report.columns
    specs, engine = head["kinds"], columns["engine"]
    start, dur = report.us("start"), report.us("dur")
    total = head["profile_total_us"]
    out: dict[str, Any] = {
        "body_time": head["body_us"] / 1e6,
        "bound": head["bound"],
        "target": head["target"],
        "total_time": total / 1e6,
        "nc_latency": head["latency_us"] / 1e6,
        "hbm_read_bytes": head["hbm_read_bytes"],
        "hbm_write_bytes": head["hbm_write_bytes"],
        "dma_transfer_count": head["dma_transfer_count"],
        "sbuf_peak_bytes_per_partition": head["sbuf_peak_bytes"],
        "psum_peak_banks": head["psum_peak_banks"],
    }
    # A DMA's trigger is an instruction of the queue that it is on.
    runs = np.where(engine == DMA, columns["queue"], engine)
    begin = np.where(engine == DMA, report.us("issue"), start)
    busy = np.where(engine == DMA, report.us("trigger"), dur)
    for e, name in enumerate(ENGINES[:DMA]):
        on_engine = runs == e
        active = active_us(begin[on_engine], (begin + busy)[on_engine])
        out[f"{name}_engine_active_time"] = active / 1e6
        out[f"{name}_engine_active_time_percent"] = active / total
        out[f"{name}_engine_instruction_count"] = int(np.count_nonzero(on_engine))
        out[f"{name}_engine_instruction_time"] = float(np.sum(busy[on_engine])) / 1e6
    seg_start, seg_stop = report.us("seg_start"), report.us("seg_start") + report.us("seg_dur")
    dma = active_us(seg_start, seg_stop)
    moving = engine == DMA
    out["dma_active_time"], out["dma_active_time_percent"] = dma / 1e6, dma / total
    out["dma_transfer_time"] = float(np.sum(dur[moving])) / 1e6
    any_us = active_us(np.r_[begin, seg_start], np.r_[begin + busy, seg_stop])
    out["total_active_time"], out["total_active_time_percent"] = any_us / 1e6, any_us / total

    count = np.bincount(columns["kind"], minlength=len(specs))
    moved = sum(int(n) * k["bytes"] for n, k in zip(count, specs) if k["moves"])
    out["dma_transfer_total_bytes"] = moved
    out["dma_transfer_average_bytes"] = moved / max(1, out["dma_transfer_count"])
    out["matmul_instruction_count"] = int(sum(n for n, k in zip(count, specs) if k["flops"]))
    out.update(_flops(head, count))
    return dict(sorted(out.items()))


def _flops(head: dict[str, Any], count: np.ndarray) -> dict[str, Any]:
    """Return the metrics of arithmetic.

    As neuron-profile counts: a float32 matmul is two passes of the array and counts twice, and
    utilisation is relative to the bf16 peak; so a saturated float32 kernel shows about 50 %.
    """
    hardware = model = transposes = 0.0
    for n, spec in zip(count, head["kinds"]):
        wide = any(d == "float32" for _, d, _ in spec["operands"][spec["outputs"] :])
        flops = float(n) * spec["flops"] * (2 if wide and spec["useful"] else 1)
        hardware += flops
        if spec["useful"]:
            model += flops
        else:
            transposes += flops
    seconds = head["profile_total_us"] / 1e6
    peak = head["peak_tflops"]["bfloat16"] * 1e12
    moved = head["hbm_read_bytes"] + head["hbm_write_bytes"]
    bandwidth = head["hbm_gbps"] * 1e9
    return {
        "hardware_flops": int(hardware),
        "model_flops": int(model),
        "transpose_flops": int(transposes),
        "hfu_estimated_percent": hardware / seconds / peak,
        "mfu_estimated_percent": model / seconds / peak,
        "mbu_estimated_percent": moved / seconds / bandwidth,
        "mm_arithmetic_intensity": model / moved if moved else 0.0,
        "peak_flops_bandwidth_ratio": peak / bandwidth,
    }
