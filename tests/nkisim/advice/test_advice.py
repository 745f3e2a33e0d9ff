"""The advisor: each cause is named in a kernel that has it, with its line, and not in its twin."""

from __future__ import annotations

import json
import re
from pathlib import Path

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import nki as nki2
import nki.isa as nisa2
import nki.language as nl2
import numpy as np
import pytest

import kernels_to_advise_beta1
import model_kernels
import nkisim
import nkisim.advice
from kernels_to_advise import JOBS, MORE
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


def products(columns, step=1, times=256):
    """Return matmuls of so many columns, the elements of the stationary `step` apart."""

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((P, columns), dtype=nl.float32, buffer=nl.shared_hbm)
        s, m = nl.load(a), nl.load(b)
        acc = nl.zeros((P, columns), dtype=nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(times):
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
    "few-tiles": (
        (model_kernels.add(1000), zeros(256000), zeros(256000)),
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
    assert set(TWINS) | set(JOBS) == {c.name for c in CAUSES}


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


def test_without_a_product_no_operand_can_be_chosen_to_save_a_transpose():
    given = zeros(8 * P, P)
    assert "transposes" not in {a.cause for a in advice(transposed_load(False), given)}


@pytest.mark.parametrize("cause", TWINS)
def test_a_sentence_says_what_it_would_save_and_that_this_is_predicted(cause):
    for a in advice(*TWINS[cause][0]):
        assert 0 < a.saves_us < a.latency_us
        assert re.match(r"\w+\.py:\d+: ", str(a)) and str(a).endswith("us (predicted).")
        assert "{" not in str(a)
        assert json.loads(json.dumps(a.to_dict()))["predicted"] is True
    assert len(advice(*TWINS[cause][0])) <= 3


#: cause: (kernel, arguments), (the same job after the advice, arguments)
FOLLOWED = {
    **{
        cause: TWINS[cause]
        for cause in (
            "round-trip",
            "repeated-loads",
            "small-pieces",
            "single-buffer",
            "psum-banks",
            "fp32-passes",
            "weights-reload",
            "activation-tables",
        )
    },
    "one-tile": (TWINS["one-tile"][0], (model_kernels.add(1000), *TWINS["one-tile"][0][1:])),
    "few-tiles": (TWINS["few-tiles"][0], (model_kernels.add(500), *TWINS["few-tiles"][0][1:])),
    "transposing-dma": (
        TWINS["transposing-dma"][0],
        (transposed_load(False), *TWINS["transposing-dma"][0][1:]),
    ),
    "short-matmuls": (
        (products(16, times=2048), half(P, P), BF),
        (products(512, times=64), half(P, P), BF),
    ),
    "short-instructions": (
        (vectors(P, 8, 800), zeros(P, 1024)),
        (vectors(P, 1024, 6), zeros(P, 1024)),
    ),
}


def test_every_cause_is_held_against_a_followed_kernel():
    assert set(FOLLOWED) | set(JOBS) == {c.name for c in CAUSES}


@pytest.mark.parametrize("cause", FOLLOWED)
def test_what_is_saved_is_what_following_the_advice_brings(cause):
    target = "trn1" if cause == "transposing-dma" else "trn2"
    slow, fast = (
        profile(k, *args, target=target, compute=False, compiler=compiler.DEFAULT)
        for k, *args in FOLLOWED[cause]
    )
    said = next(a for a in slow.advice if a.cause == cause)
    real = slow.latency_us - fast.latency_us
    assert 0.8 * real < said.saves_us < 1.2 * real


CASES = {
    **{(cause, ""): job for cause, job in JOBS.items()},
    **MORE,
    **{(cause, "beta 1"): job for cause, job in kernels_to_advise_beta1.JOBS.items()},
}


def doubted(prof):
    """Return the rules that say that a kernel is wrong, or that a compiler may refuse it."""
    return {f.id for f in prof.findings if f.severity != "note" or f.id.startswith("NKI-R")}


def test_a_form_that_a_rule_doubts_is_seen_here():
    @nki2.jit
    def kernel(a):
        x, total = (nl2.ndarray((P, n), dtype=nl2.float32, buffer=nl2.sbuf) for n in (512, 1))
        out = nl2.ndarray((P, 1), dtype=nl2.float32, buffer=nl2.shared_hbm)
        nisa2.dma_copy(dst=x, src=a)
        nisa2.activation_reduce(dst=x, op=nl2.square, data=x, reduce_op=nl2.add, reduce_res=total)
        nisa2.dma_copy(dst=out, src=total)
        return out

    assert doubted(profile(kernel, zeros(P, 512), target="trn2")) == {"NKI-R26"}


@pytest.mark.parametrize("cause, other", CASES)
def test_following_advice_brings_what_it_says_within_a_fifth(cause, other):
    slow, given, fast, taken, options = CASES[cause, other]
    before, after = (
        profile(k, *args, target="trn2", compute=False, **options)
        for k, args in ((slow, given), (fast, taken))
    )
    said = {a.cause: a for a in before.advice}
    assert cause in said and cause not in {a.cause for a in after.advice}
    assert doubted(after) <= doubted(before)
    saved = before.latency_us - after.latency_us
    assert 0.8 * saved <= said[cause].saves_us <= 1.2 * saved
    where = said[cause].where
    line = Path(where.file).read_text().splitlines()[where.line - 1]
    assert "# " not in line or line.split("# ")[1] == cause


@pytest.mark.sample(8)
@pytest.mark.parametrize("cause", sorted(set(JOBS) - {"wide-data", "idle-lanes"}))
def test_the_kernel_after_the_advice_computes_the_same(cause):
    slow, given, fast, _, _ = JOBS[cause]
    rng = np.random.default_rng(0)
    args = [
        rng.permuted(np.linspace(-1, 1, a.size, dtype=np.float32)).reshape(a.shape).astype(a.dtype)
        for a in given
    ]
    one, other = (
        np.asarray(nkisim.run(k, *args, target="trn2").outputs, np.float32).ravel()
        for k in (slow, fast)
    )
    # products of another shape add up in another order: a rounding of bfloat16
    assert np.allclose(one, other, 2.0**-7 if cause == "masked-columns" else 0.0, 0.0)


def test_dtypes_that_a_case_demands_are_not_advised_against():
    prof = profile(products(512), zeros(P, P), zeros(P, 512), target="trn2", compute=False)
    assert "fp32-passes" in {a.cause for a in prof.advice}
    again = profile(products(512), zeros(P, P), zeros(P, 512), target="trn2", compute=False)
    again.keep_dtypes = True
    assert "fp32-passes" not in {a.cause for a in again.advice}


def test_other_dtypes_come_last_and_only_if_the_task_allows_them():
    shorter = [c for c in CAUSES if c.narrows]
    assert all("if the task allows 16 bits" in c.remedy for c in shorter)
    same, other = [c for c in CAUSES if not c.narrows and not c.kin][:2]
    found = [(9.0, shorter[0], None), (2.0, same, None), (5.0, other, None)]
    assert [saves for saves, _, _ in nkisim.advice._chosen(found)] == [5.0, 2.0, 9.0]


def test_tiles_follow_each_other_only_where_they_do():
    alone, overlapping = (
        profile(model_kernels.add(f), zeros(256000), zeros(256000), target="trn2", compute=False)
        for f in (2000, 1000)
    )
    assert "follow each other" in str(next(a for a in alone.advice if a.cause == "one-tile"))
    assert not any("follow each other" in str(a) for a in overlapping.advice)


def test_no_lab_has_results_that_nothing_reads():
    from labkit.inputs import dtype_of
    from labkit.load import load_lab, load_module

    for lab, name in (("ffnn", "predict_small_fully_optimized"), ("conv2d", "small_in128_out256")):
        found = load_lab(Path(__file__).parents[3] / "labs" / lab)
        kernels = load_module(found.folder / "kernels_nki.py", f"advised_{lab}")
        case = next(c for c in found.cases if c.name == name)
        args = [np.zeros(t.shape, dtype_of(t.dtype)) for t in case.inputs]
        prof = profile(
            getattr(kernels, case.kernel),
            *args,
            target="trn2",
            compute=False,
            **case.kwargs,
            **case.kernel_kwargs,
        )
        assert not any(a.cause.startswith("unread") for a in prof.advice)


def test_a_verdict_on_a_kernel_that_waits_says_where_and_for_what():
    prof = profile(vectors(P, 64, 4), zeros(P, 64), target="trn2", compute=False)
    said = nkisim.advice.verdict(prof.schedule, prof.hw, True)
    assert re.search(r"rest are waits.*test_advice.py:\d+'s \w+ \w+.* \(\d+\.\d us\)", said)
    busy = profile(products(512), half(P, P), BF, target="trn1", compute=False)
    assert "rest are waits" not in nkisim.advice.verdict(busy.schedule, busy.hw)


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
    summary = prof.summary().split("what to change first:")[1]
    assert all(str(a) in summary for a in prof.advice) and prof.advice
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
