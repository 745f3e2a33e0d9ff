"""Figures from profiles of the labs' own kernels: timelines and a roofline, all predicted."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import nkisim
from nkisim.chip import hw
from nkisim.timing.schedule import ENGINES

from .drawing import Drawing

BIN = 1.5  # units of the drawing in which an engine's work is added up ...
LEVELS = 8  # ... to the height of its lane, in so many steps
LABS = Path(__file__).resolve().parents[2] / "labs"
NAMES = {
    "tensor": "Tensor",
    "vector": "Vector",
    "scalar": "Scalar",
    "gpsimd": "GpSimd",
    "dma": "DMA",
}


def kernel(file: str, name: str, **constants: Any) -> Any:
    """Return a kernel of the labs, in a module of its own with the given constants."""
    path = LABS / file
    module = type(sys)(f"figure_{path.stem}")
    module.__file__ = str(path)
    exec(compile(path.read_text("utf-8"), str(path), "exec"), module.__dict__)
    module.__dict__.update(constants)
    return module.__dict__[name]


def timeline(d: Drawing, prof: Any, top: float, scale: float, left: float = 92) -> float:
    """Draw the lanes of a profile, `scale` units a microsecond; return where they end below."""
    line = prof.timeline
    engine = np.asarray(line.engine)
    start = np.asarray(line.start_us)
    y = top
    for name in NAMES:
        mine = np.flatnonzero(engine == ENGINES.index(name))
        if not len(mine):
            continue
        d.text(left - 8, y + 11, NAMES[name], "dim small", "end")
        d.rect(left, y, float(line.end_us.max()) * scale, 14, "faint", edge=False)
        for a, wide, share in shares(start[mine], np.asarray(line.end_us)[mine], BIN / scale):
            d.rect(
                left + a * scale, y + 14 * (1 - share), wide * scale, 14 * share, name, edge=False
            )
        y += 18
    return y


def shares(start: np.ndarray, end: np.ndarray, width: float) -> list[tuple[float, float, float]]:
    """Return (from, length, share of it that is busy) of stretches that look alike.

    An engine that works a little all the time must not look like one that works all the time.
    """
    union: list[list[float]] = []
    for k in np.argsort(start, kind="stable"):
        if union and start[k] <= union[-1][1]:
            union[-1][1] = max(union[-1][1], float(end[k]))
        else:
            union.append([float(start[k]), float(end[k])])
    edges = np.array(union)
    grid = np.arange(0, edges[-1, 1] + 2 * width, width)
    length = edges[:, 1] - edges[:, 0]
    after = np.cumsum(length)
    done = np.interp(grid, edges.ravel(), np.column_stack([after - length, after]).ravel(), left=0)
    part = np.ceil(np.diff(done) / width * LEVELS - 1e-6) / LEVELS
    cuts = np.flatnonzero(np.append(True, np.diff(part) != 0))
    return [
        (float(grid[a]), float(width * (b - a)), min(1.0, float(part[a])))
        for a, b in zip(cuts, np.append(cuts[1:], len(part)))
        if part[a] > 0
    ]


def profile(of: Any, *arguments: np.ndarray, target: str, **more: Any) -> Any:
    """Predict without arithmetic: the figures need times only."""
    return nkisim.profile(of, *arguments, target=target, compute=False, **more)


def overlap() -> tuple[Drawing, dict[str, float]]:
    """Draw vector_add_stream with two widths."""
    a = np.zeros(256000, np.float32)
    runs = {
        n: profile(
            kernel("vecadd/kernels.py", "vector_add_stream", FREE_DIM=n), a, a, target="trn1"
        )
        for n in (2000, 1000)
    }
    d = Drawing(
        "One large tile, or two",
        "Engine timelines of vector_add_stream on 256000 elements with FREE_DIM 2000 and "
        "1000, predicted for trn1.",
        620,
        210,
    )
    scale = 500 / max(p.body_us for p in runs.values())
    y = 34.0
    for free, p in runs.items():
        # students count the transfers and say what overlaps: neither stands here
        d.text(16, y - 8, f"FREE_DIM = {free}", "ink bold")
        y = timeline(d, p, y, scale) + 40
    d.text(
        16,
        202,
        "Predicted for trn1, without launch; DMA: from the first byte to completion.",
        "dim small",
    )
    return d, {f"free{n}": p.body_us for n, p in runs.items()}


STEPS = {
    "step1_naive": "1: as defined",
    "step2_filters_once": "2: filters once",
    "step3_rows_per_bank": "3: rows fill a bank",
    "step4_fused_pool": "4: pooling fused",
    "step5_wide_dma": "5: wide transfers",
    "kernels": "the solution",
}


def ladder() -> tuple[Drawing, dict[str, float]]:
    """Draw the engines' timelines of the steps to the fast convolution."""
    x, w, b = (np.zeros(s, np.float16) for s in ((1, 256, 66, 66), (256, 256, 3, 3), (256,)))
    runs = {}
    for file in STEPS:
        path = f"conv2d/{'' if file == 'kernels' else 'solutions/'}{file}.py"
        runs[file] = profile(
            kernel(path, "fused_conv2d_maxpool"), x, w, b, target="trn2", pool_size=2
        )
    d = Drawing(
        "From a naive convolution to a fast one",
        "Engine timelines of the ladder of conv2d, each on its own scale: "
        "256 to 256 channels, 66 x 66, float16, with pooling, predicted for trn2.",
        620,
        610,
    )
    y = 34.0
    for file, p in runs.items():
        busy = p.schedule.busy["tensor"] / p.body_us
        d.text(16, y - 8, f"{STEPS[file]}", "ink bold")
        d.text(604, y - 8, f"{p.body_us:,.0f} us, Tensor Engine busy {busy:.0%}", "ink", "end")
        y = timeline(d, p, y, 510 / p.body_us) + 24
    d.text(
        16,
        y - 4,
        "Each on its own scale, height: how busy; predicted for trn2, 256 to 256 "
        "channels, 66 x 66, float16, pool 2.",
        "dim small",
    )
    d.height = int(y + 8)
    return d, {file: p.body_us for file, p in runs.items()}


def roofline() -> tuple[Drawing, dict[str, float]]:
    """Draw the labs' kernels under the roofs of trn2."""
    core = hw.get("trn2")
    half = np.dtype(ml_dtypes.bfloat16)

    def conv(file: str, height: int) -> Any:
        return profile(
            kernel(file, "fused_conv2d_maxpool"),
            np.zeros((1, 128, height, 64), half),
            np.zeros((128, 128, 3, 3), half),
            np.zeros(128, half),
            target="trn2",
        )

    def matmul(name: str) -> Any:
        return profile(
            kernel("ffnn/kernels.py", name),
            np.zeros((1024, 1024), half),
            np.zeros((1024, 2048), half),
            target="trn2",
        )

    runs = {
        "conv2d, step 1": conv("conv2d/solutions/step1_naive.py", 16),
        "conv2d, solution": conv("conv2d/kernels.py", 64),
        "conv2d, step 2": conv("conv2d/solutions/step2_filters_once.py", 34),
        "ffnn, fully optimized": matmul("nki_matmul_fully_optimized"),
    }
    d = Drawing(
        "A roofline with the labs' kernels",
        "Operations a second over operations per byte of HBM traffic, bfloat16 on trn2, predicted.",
        620,
        380,
    )
    left, right, top, low = 70, 600, 30, 320
    x0, x1, y0, y1 = 0.0, 4.0, -1.0, 2.3

    def px(v: float) -> float:
        return left + (math.log10(v) - x0) / (x1 - x0) * (right - left)

    def py(v: float) -> float:
        return low - (math.log10(v) - y0) / (y1 - y0) * (low - top)

    for e in range(int(x0), int(x1) + 1):
        d.line((px(10.0**e), top), (px(10.0**e), low), dash=True)
        d.text(px(10.0**e), low + 18, f"{10**e:,}", "dim small", "middle")
    for e in range(int(y0), int(y1) + 1):
        d.line((left, py(10.0**e)), (right, py(10.0**e)), dash=True)
        d.text(left - 8, py(10.0**e) + 4, f"{10.0**e:g}", "dim small", "end")
    band, peak = core.hbm_gbps_per_core / 1e3, core.peak_tflops["bfloat16"]
    knee = peak / band
    d.line((px(1), py(band)), (px(knee), py(peak)), (right, py(peak)), kind="roof")
    d.text(
        px(knee),
        py(100.0) - 7,
        f"Tensor Engine: {peak:g} x 10^12 a second (bfloat16)",
        "ink small",
        "middle",
    )
    d.text(px(3.4), py(band * 1.7), f"HBM: {core.hbm_gbps_per_core:.0f} GB/s a core", "ink small")
    facts = {}
    for name, p in runs.items():
        intensity = p.flops / (p.hbm_read_bytes + p.hbm_write_bytes)
        rate = p.flops / p.latency_us / 1e6
        facts[name] = rate
        d.dot(px(intensity), py(rate), f"{name}: {rate:.3g} x 10^12/s at {intensity:.3g} a byte")
        d.text(px(intensity) + 9, py(rate) + 4, name, "ink small")
    d.text(
        (left + right) / 2, low + 38, "operations per byte of HBM traffic", "ink small", "middle"
    )
    d.text(8, 20, "10^12 operations a second (predicted)", "ink small")
    d.text(8, 374, "Left of the knee bytes are the limit, right of it the engine.", "dim small")
    return d, facts


PREDICTED = {"overlap": overlap, "ladder": ladder, "roofline": roofline}
