"""The advisor on the labs' ladders: on each step it names what the next step does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labkit.load import load_module
from nkisim.simulation.prediction import profile

#: without what the compiler may mend by itself: a ladder is about what the source says
AS_WRITTEN = ("reorder", "engines", "rename")

LABS = Path(__file__).parents[2] / "labs"
CONV = "conv2d/solutions/step{}.py"


def zeros(*shape, dtype=np.float16):
    return np.zeros(shape, dtype)


def image(channels, filters, size, pool, side=64):
    """Return the arguments of a convolution whose result has `side` rows and columns."""
    return (
        zeros(1, channels, side + size - 1, side + size - 1),
        zeros(filters, channels, size, size),
        zeros(filters),
        pool,
    )


DEEP, POOLED = image(256, 256, 3, 1), image(256, 256, 3, 2)
VECTOR = (zeros(256000, dtype=np.float32),) * 2
PRODUCT = zeros(1024, 1024), zeros(1024, 2048)
NETWORK = tuple(
    zeros(*s, dtype=np.float32)
    for s in ((512, 1024), (1024, 2048), (1, 2048), (2048, 512), (1, 512))
)

#: file, kernel, constants, arguments, what the next step does: cause, a piece of the line, and the
#: targets on which the next step is faster
LADDERS = {
    "vecadd: more partitions": (
        "vecadd/kernels.py",
        "vector_add_tiled",
        {"ROW_CHUNK": 1},
        [v[:2560] for v in VECTOR],
        "small-transfers",
        "nl.load(a_vec[",
        ("trn1", "trn2"),
    ),
    "vecadd: more columns": (
        "vecadd/kernels.py",
        "vector_add_tiled",
        {"ROW_CHUNK": 128},
        [v[:25600] for v in VECTOR],
        "small-",
        "nl.load(a_vec[",
        ("trn1", "trn2"),
    ),
    "vecadd: many more columns": (
        "vecadd/kernels.py",
        "vector_add_stream",
        {"FREE_DIM": 2},
        [v[:25600] for v in VECTOR],
        "small-",
        "nl.load(a_tiles[i])",
        ("trn1", "trn2"),
    ),
    "vecadd: two tiles": (
        "vecadd/kernels.py",
        "vector_add_stream",
        {"FREE_DIM": 2000},
        VECTOR,
        "one-tile",
        "nl.load(a_tiles[i])",
        ("trn1", "trn2"),
    ),
    "vecadd: more buffers": (
        "vecadd/kernels.py",
        "vector_add_direct_allocation",
        {"ALLOC_TILES": 1, "ALLOC_FREE_DIM": 200},
        VECTOR,
        "single-buffer",
        "nl.load(a_tiles[i])",
        ("trn1", "trn2"),
    ),
    "conv2d 1: filters once": (
        CONV.format("1_naive"),
        "fused_conv2d_maxpool",
        {},
        DEEP,
        "repeated-loads",
        "nl.load(W[",
        ("trn1", "trn2"),
    ),
    "conv2d 1: filters in wide pieces": (
        CONV.format("1_naive"),
        "fused_conv2d_maxpool",
        {},
        DEEP,
        "small-pieces",
        "nl.load(W[",
        ("trn1", "trn2"),
    ),
    "conv2d 2: input rows once": (
        CONV.format("2_filters_once"),
        "fused_conv2d_maxpool",
        {},
        DEEP,
        "repeated-loads",
        "nl.load(X[",
        ("trn1", "trn2"),
    ),
    "conv2d 2: several rows with one load": (
        CONV.format("2_filters_once"),
        "fused_conv2d_maxpool",
        {},
        DEEP,
        "small-",
        "nl.load(X[",
        ("trn1", "trn2"),
    ),
    "conv2d 3: fused pool": (
        CONV.format("3_rows_per_bank"),
        "fused_conv2d_maxpool",
        {},
        POOLED,
        "round-trip",
        "nl.load(conv[",
        ("trn1", "trn2"),
    ),
    "conv2d 4: wide DMAs": (
        CONV.format("4_fused_pool"),
        "fused_conv2d_maxpool",
        {},
        image(128, 128, 1, 1),
        "small-transfers",
        "nl.load(X[",
        ("trn2",),
    ),
    "conv2d 4: once for all output channels": (
        CONV.format("4_fused_pool"),
        "fused_conv2d_maxpool",
        {},
        image(128, 512, 1, 1),
        "repeated-loads",
        "nl.load(X[",
        ("trn1",),
    ),
    "ffnn: transpose on the Tensor Engine": (
        "ffnn/solutions/step1_transpose_by_dma.py",
        "nki_transpose",
        {},
        [zeros(1024, 1024, dtype=np.float32)],
        "transposing-dma",
        "nl.load_transpose2d(",
        ("trn1",),
    ),
    "ffnn: hoist the load": (
        "ffnn/kernels.py",
        "nki_matmul_tiled",
        {},
        PRODUCT,
        "repeated-loads",
        "nl.load(lhsT[",
        ("trn1", "trn2"),
    ),
    "ffnn: block the free dim": (
        "ffnn/kernels.py",
        "nki_matmul_hoist_load",
        {},
        PRODUCT,
        "repeated-loads",
        "nl.load(rhs[",
        ("trn1", "trn2"),
    ),
    "ffnn: keep the block": (
        "ffnn/kernels.py",
        "nki_matmul_block_free_dimension",
        {},
        PRODUCT,
        "repeated-loads",
        "nl.load(lhsT[",
        ("trn1",),
    ),
    "ffnn: fuse the layers": (
        "ffnn/kernels.py",
        "nki_forward",
        {},
        NETWORK,
        "round-trip",
        "nl.load(",
        ("trn1", "trn2"),
    ),
}


@pytest.mark.sample(15)
@pytest.mark.parametrize(
    ("step", "target"), [(step, target) for step, row in LADDERS.items() for target in row[-1]]
)
def test_on_a_step_the_advisor_names_what_the_next_one_does(monkeypatch, step, target):
    file, kernel, constants, args, cause, piece, _ = LADDERS[step]
    module = load_module(LABS / file)
    for name, value in constants.items():
        monkeypatch.setattr(module, name, value)
    advice = profile(
        getattr(module, kernel), *args, target=target, compute=False, compiler=AS_WRITTEN
    ).advice
    named = [(a.cause, place.text) for a in advice for place in (a.where, *a.also)]
    assert any(c.startswith(cause) and piece in text for c, text in named), named


@pytest.mark.parametrize("target", ("trn1", "trn2"))
def test_the_last_step_has_none_of_the_faults_of_the_others(target):
    kernels = load_module(LABS / "conv2d" / "kernels.py")
    for args in (DEEP, POOLED):
        assert (
            profile(kernels.fused_conv2d_maxpool, *args, target=target, compute=False).advice == []
        )


@pytest.mark.parametrize("step", ("1_naive", "2_filters_once", "3_rows_per_bank", "4_fused_pool"))
def test_both_dialects_get_the_same_advice(step):
    """As written: what their compilers do with loads that are repeated differs."""
    savings = []
    for suffix in ("", "_nki"):
        module = load_module(LABS / CONV.format(step + suffix))
        prof = profile(
            module.fused_conv2d_maxpool, *POOLED, target="trn2", compute=False, compiler=AS_WRITTEN
        )
        savings.append({a.cause: a.saves_us for a in prof.advice})
    assert list(savings[0]) == list(savings[1])
    assert savings[0] == pytest.approx(savings[1], rel=0.02)


@pytest.mark.parametrize("target", ("trn1", "trn2"))
def test_fusing_the_pool_saves_about_what_was_said(target):
    slow, fast = (
        profile(
            load_module(LABS / CONV.format(step)).fused_conv2d_maxpool,
            *POOLED,
            target=target,
            compute=False,
        )
        for step in ("3_rows_per_bank", "4_fused_pool")
    )
    said = next(a for a in slow.advice if a.cause == "round-trip").saves_us
    assert 0.7 * said < slow.latency_us - fast.latency_us < 1.3 * said
