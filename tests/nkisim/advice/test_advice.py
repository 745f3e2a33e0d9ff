"""The advisor: each cause is named in a kernel that has it, with its line, and not in its twin."""

from __future__ import annotations

import json
import re
from pathlib import Path

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import model_kernels
import nkisim.advice
from nkisim.advice.causes import CAUSES
from nkisim.chip import dtypes
from nkisim.simulation.prediction import profile
from nkisim.timing import compiler, whatif
from nkisim.timing.schedule import schedule

P = 128


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def half(*shape):
    return np.zeros(shape, dtypes.BFLOAT16)


# -- kernels: (with the cause, without it) ---------------------------------------------------------


def matmuls(hoisted):
    """Return a matmul whose left operand is loaded for each tile of the result, or once."""

    @nki.jit
    def kernel(a, b):
        n = b.shape[1] // 512
        out = nl.ndarray((P, b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
        left = nl.load(a) if hoisted else None
        for j in nl.affine_range(n):
            here = left if hoisted else nl.load(a)  # repeated-loads
            right = nl.load(b[:, j * 512 : (j + 1) * 512])
            nl.store(
                out[:, j * 512 : (j + 1) * 512],
                nisa.tensor_copy(nisa.nc_matmul(here[:, 0:P], right), dtype=a.dtype),
            )
        return out

    return kernel


def two_passes(fused):
    """Return a kernel that squares and doubles, by way of HBM or not."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        between = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.hbm)
        for i in nl.affine_range(a.shape[0]):
            x = nl.load(a[i])
            square = nl.multiply(x, x)
            if fused:
                nl.store(out[i], nl.multiply(square, 2.0))
            else:
                nl.store(between[i], square)
        if not fused:
            for i in nl.affine_range(a.shape[0]):
                back = nl.load(between[i])  # round-trip
                nl.store(out[i], nl.multiply(back, 2.0))
        return out

    return kernel


def transposed_load(by_dma):
    @nki.jit
    def kernel(a):
        out = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(a.shape[0] // P):
            rows = slice(i * P, (i + 1) * P)
            if by_dma:
                turned = nl.load_transpose2d(a[rows])  # transposing-dma
            else:
                turned = nisa.nc_transpose(nl.load(a[rows]))
            nl.store(out[:, rows], turned)
        return out

    return kernel


def one_channel(strided):
    @nki.jit
    def kernel(a):
        out = nl.ndarray((P, 512), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((P, 512), dtype=a.dtype, buffer=nl.sbuf)
        for i in nl.sequential_range(4):
            x = nl.load(a[:, :, i] if strided else a[:, i * 512 : (i + 1) * 512])  # small-pieces
            total[...] = nl.add(total, x)
        nl.store(out, total)
        return out

    return kernel


def banks(count):
    """Return matmuls that go round in so many banks."""

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((P, 512), dtype=nl.bfloat16, buffer=nl.shared_hbm)
        s, m = nl.load(a), nl.load(b)
        done = nl.ndarray((P, 64, 512), dtype=nl.bfloat16, buffer=nl.sbuf)
        acc = nl.ndarray(
            (64, nl.par_dim(P), 512),
            dtype=nl.float32,
            buffer=ncc.psum.mod_alloc(base_bank=0, num_bank_tiles=(count,)),
        )
        for i in nl.affine_range(64):
            acc[i] = nisa.nc_matmul(s, m)  # psum-banks
            done[:, i] = nisa.tensor_copy(acc[i], dtype=nl.bfloat16)
        nl.store(out, done[:, 63])
        return out

    return kernel


def products(columns, step=1):
    """Return matmuls of so many columns, the elements of the stationary `step` apart."""

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((P, columns), dtype=nl.float32, buffer=nl.shared_hbm)
        s, m = nl.load(a), nl.load(b)
        acc = nl.zeros((P, columns), dtype=nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(256):
            acc += nisa.nc_matmul(s[:, 0 : P * step : step], m[:, 0:columns])  # here
        nl.store(out, nisa.tensor_copy(acc))
        return out

    return kernel


def turned(times):
    @nki.jit
    def kernel(a):
        out = nl.ndarray((P, P), dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        bank = nl.ndarray((P, P), dtype=a.dtype, buffer=nl.psum)
        for _ in nl.sequential_range(times):
            bank[...] = nisa.nc_transpose(x)  # transposes
        nl.store(out, nisa.tensor_copy(bank))
        return out

    return kernel


def vectors(parts, free, times):
    """Return a chain of additions on tiles (parts, free)."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        for i in nl.affine_range(times):
            part = x[:, i % (a.shape[1] // free) * free :][:, 0:free]
            part[...] = nisa.tensor_scalar(part, nl.add, 1.0)  # here
        nl.store(out, x)
        return out

    return kernel


def functions(mixed):
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        for _ in nl.sequential_range(40):
            x[...] = nisa.activation(nl.exp, x)
            x[...] = nisa.activation(nl.tanh if mixed else nl.exp, x)  # activation-tables
        nl.store(out, x)
        return out

    return kernel


def kept(count):
    """Return a kernel that keeps so many tiles of 64 KiB a partition until its end."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tiles = []
        for i in range(count):
            tiles.append(nl.add(nl.load(a[i]), 1.0))  # spills
        for i in range(count):
            nl.store(out[i], tiles[i])
        return out

    return kernel


def breaks(pause):
    """Return matmuls with a load before each few of them, or not."""

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((P, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        s, m = nl.load(a), nl.load(b)
        total = nl.zeros((P, 512), dtype=nl.float32, buffer=nl.sbuf)
        for _ in nl.sequential_range(30):
            acc = nl.zeros((P, 512), dtype=nl.float32, buffer=nl.psum)
            for _ in nl.affine_range(6):
                acc += nisa.nc_matmul(s, m)  # cold-clock
            total[...] = nl.add(total, acc)
            if pause:
                m[...] = nisa.tensor_copy(total, dtype=m.dtype)
        nl.store(out, total)
        return out

    return kernel


BF = half(P, 512)
#: cause: (kernel with it, arguments), (its twin, arguments)
TWINS = {
    "spills": ((kept(8), zeros(8, P, 8192)), (kept(2), zeros(2, P, 8192))),
    "repeated-loads": (
        (matmuls(False), half(P, 4096), half(P, 8192)),
        (matmuls(True), half(P, 4096), half(P, 8192)),
    ),
    "round-trip": ((two_passes(False), zeros(16, P, 2048)), (two_passes(True), zeros(16, P, 2048))),
    "transposing-dma": (
        (transposed_load(True), half(4096, P)),
        (transposed_load(False), zeros(4096, P)),
    ),
    "small-pieces": ((one_channel(True), zeros(P, 512, 4)), (one_channel(False), zeros(P, 2048))),
    "small-transfers": (
        (model_kernels.add(10), zeros(256000), zeros(256000)),
        (model_kernels.add(1000), zeros(256000), zeros(256000)),
    ),
    "one-tile": (
        (model_kernels.add(2000), zeros(256000), zeros(256000)),
        (model_kernels.add(250), zeros(256000), zeros(256000)),
    ),
    "single-buffer": (
        (model_kernels.add_in_place_of(1), zeros(1280000), zeros(1280000)),
        (model_kernels.add_in_place_of(4), zeros(1280000), zeros(1280000)),
    ),
    "psum-banks": ((banks(1), half(P, P), BF), (banks(8), half(P, P), BF)),
    "fp32-passes": ((products(512), zeros(P, P), zeros(P, 512)), (products(512), half(P, P), BF)),
    "weights-reload": (
        (products(128, step=16), half(P, 16 * P), BF),
        (products(128), half(P, P), BF),
    ),
    "transposes": ((turned(200), zeros(P, P)), (turned(1), zeros(P, P))),
    "short-matmuls": ((products(16), half(P, P), BF), (products(512), half(P, P), BF)),
    "short-instructions": (
        (vectors(P, 8, 800), zeros(P, 1024)),
        (vectors(P, 1024, 800), zeros(P, 1024)),
    ),
    "idle-lanes": (
        (vectors(1, 1024, 100), zeros(1, 1024)),
        (vectors(P, 1024, 100), zeros(P, 1024)),
    ),
    "activation-tables": ((functions(True), zeros(P, 256)), (functions(False), zeros(P, 256))),
    "cold-clock": ((breaks(True), half(P, P), BF), (breaks(False), half(P, P), BF)),
    "wide-data": (
        (model_kernels.add(1000), zeros(2560000), zeros(2560000)),
        (model_kernels.add(1000), half(2560000), half(2560000)),
    ),
}


def advice(kernel, *args, target="trn2"):
    return profile(kernel, *args, target=target, compute=False, compiler=compiler.DEFAULT).advice


def test_every_cause_has_twins():
    assert set(TWINS) == {c.name for c in CAUSES}


def test_the_page_of_profiling_lists_every_cause():
    text = (Path(__file__).parents[3] / "docs" / "profiling.md").read_text()
    rows = text.split("| cause |")[1].split("\n\n")[0]
    assert [
        name
        for row in rows.splitlines()[2:]
        for name in re.findall(r"`([\w-]+)`", row.split("|")[1])
    ] == [c.name for c in CAUSES]


@pytest.mark.parametrize("cause", TWINS)
def test_a_cause_is_named_where_it_is_and_not_in_the_twin(cause):
    with_it, without_it = TWINS[cause]
    target = "trn1" if cause == "transposing-dma" else "trn2"  # trn2's DMAs transpose quickly
    found = {a.cause: a for a in advice(*with_it, target=target)}
    assert cause in found
    said = found[cause]
    assert said.where is not None and said.where.function in ("kernel", with_it[0].__name__)
    line = Path(said.where.file).read_text().splitlines()[said.where.line - 1]
    if "#" in line:
        assert line.split("# ")[1] in (cause, "here")
    assert cause not in {a.cause for a in advice(*without_it)}


@pytest.mark.parametrize("cause", TWINS)
def test_a_sentence_says_what_it_would_save_and_that_this_is_predicted(cause):
    for a in advice(*TWINS[cause][0]):
        assert 0 < a.saves_us < a.latency_us
        assert re.match(r"\w+\.py:\d+: ", str(a)) and str(a).endswith("us (predicted).")
        assert "{" not in str(a)
        assert json.loads(json.dumps(a.to_dict()))["predicted"] is True
    assert len(advice(*TWINS[cause][0])) <= 3


def test_what_is_saved_is_about_what_the_twin_is_faster():
    """The saving of a fused pass, of loads done once, of more buffers, against the real thing."""
    for cause in ("round-trip", "repeated-loads", "single-buffer", "fp32-passes"):
        slow, fast = (
            profile(k, *args, target="trn2", compute=False, compiler=compiler.DEFAULT)
            for k, *args in TWINS[cause]
        )
        said = next(a for a in slow.advice if a.cause == cause)
        real = slow.latency_us - fast.latency_us
        assert 0.6 * real < said.saves_us < 1.6 * real, cause


def test_a_schedule_without_nothing_is_the_schedule():
    prof = profile(matmuls(False), half(P, 512), half(P, 2048), target="trn2", compute=False)
    plan, on = prof.schedule, frozenset(prof.compiler)
    assert whatif.without(plan, prof.hw, dge=True, on=on) == pytest.approx(prof.body_us)
    everything = np.ones(len(plan.deps.before), bool)
    assert whatif.without(plan, prof.hw, dge=True, on=on, keep=everything) == pytest.approx(
        prof.body_us
    )


def test_halves_move_the_same_bytes_and_as_many_again_instructions():
    prof = profile(model_kernels.add(100), zeros(P * 200), zeros(P * 200), target="trn2")
    cut = whatif.halves(prof.trace)
    assert len(cut) == 2 * len(prof.trace)
    plan = schedule(cut, prof.hw, dge=True)
    assert (
        sum(
            x.nbytes
            for k, x in enumerate(plan.transfers)
            if x
            for _ in range(int((plan.deps.spec == k).sum()))
        )
        == 3 * 4 * P * 200
    )


def test_a_kernel_without_known_faults_gets_a_verdict_instead():
    prof = profile(products(512), half(P, P), BF, target="trn1", compute=False)
    assert prof.advice == []
    assert "Tensor Engine is busy" in prof.verdict and "predicted" in prof.verdict
    assert prof.verdict in prof.summary()


def test_the_summary_says_what_to_change_first():
    prof = profile(model_kernels.add(2), zeros(P * 200), zeros(P * 200), target="trn2")
    told = prof.summary().split("what to change first:")[1]
    assert all(str(a) in told for a in prof.advice) and prof.advice
    assert prof.to_dict()["advice"][0]["cause"] == "small-transfers"


def test_the_advisor_knows_no_kernel():
    home = Path(nkisim.advice.__file__).parent
    text = "".join(p.read_text() for p in home.glob("*.py")).lower()
    for word in ("conv", "ffnn", "vecadd", "matmul_tiled", "softmax", "attention"):
        assert word not in text


@pytest.mark.parametrize("options", [None, (), tuple(compiler.OPTIONS)])
@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_any_schedule_can_be_advised_on(target, options):
    wide, deep = zeros(128, 64), zeros(16, 128, 512)
    for kernel, *args in (
        (model_kernels.rounds, wide),
        (model_kernels.hoard, deep),
        (model_kernels.hoard_psum, zeros(P, P), zeros(P, 512)),
        (model_kernels.crowd, half(P, P), BF),
        (model_kernels.add(10), zeros(25600), zeros(25600)),
    ):
        prof = profile(kernel, *args, target=target, compiler=options, compute=False)
        for a in prof.advice:
            assert 0 < a.saves_us <= prof.body_us and "{" not in str(a)
        assert prof.advice or prof.verdict
