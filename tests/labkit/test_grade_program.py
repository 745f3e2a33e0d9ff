"""A kernel in the judge is a program: it is recorded without values, and carried out afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import nkisim
from grading import ROOT
from labkit.grade import judge
from labkit.grade.facade import Facade
from labkit.grade.judge import Bench
from labkit.grade.plan import load_plan
from labkit.inputs import make_inputs
from test_grade_alike import HEADS, JIT, judged

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

#: kernels that keep what they learn from one call for the next
CALLS = "\nCALLS = []\n"
#: a chain of copies through blocks of a tile, in a loop that says that they are independent or not
CHAIN = JIT + (
    "    CALLS.append(1)\n"
    "    def chain(t):\n"
    "        s = nl.ndarray((128, 5 * 128), dtype=t.dtype, buffer=nl.sbuf)\n"
    "        s[:, 0:128] = nl.copy(t)\n"
    "        for i in LOOP(4):\n"
    "            s[:, (i + 1) * 128:(i + 2) * 128] = nl.copy(s[:, i * 128:(i + 1) * 128])\n"
    "        t[...] = nl.copy(s[:, 512:640])\n"
    "    return turned(matrix, chain)\n"
)
#: two loops, one in the other, whose iterations write the same bytes of HBM
NESTED = {
    "kernels": (
        "    out = nl.ndarray((128, 128), dtype=matrix.dtype, buffer=nl.shared_hbm)\n"
        "    for i in nl.affine_range(4):\n"
        "        t = nl.load(matrix[i * 32:i * 32 + 32, 0:128])\n"
        "        for j in nl.affine_range(4):\n"
        "            p = nisa.nc_transpose(t[0:32, j * 32:j * 32 + 32])\n"
        "            nl.store(out[j * 32:j * 32 + 32, i * 32:i * 32 + 32], p)\n"
        "    return out\n"
    ),
    "kernels_nki": (
        "    out = nl.ndarray((128, 128), dtype=matrix.dtype, buffer=nl.shared_hbm)\n"
        "    for i in nl.affine_range(4):\n"
        "        t = nl.ndarray((32, 128), dtype=matrix.dtype, buffer=nl.sbuf)\n"
        "        nisa.dma_copy(dst=t, src=matrix[i * 32:i * 32 + 32, 0:128])\n"
        "        for j in nl.affine_range(4):\n"
        "            p = nl.ndarray((32, 32), dtype=matrix.dtype, buffer=nl.psum)\n"
        "            s = nl.ndarray((32, 32), dtype=matrix.dtype, buffer=nl.sbuf)\n"
        "            nisa.nc_transpose(dst=p, data=t[0:32, j * 32:j * 32 + 32])\n"
        "            nisa.tensor_copy(dst=s, src=p)\n"
        "            nisa.dma_copy(dst=out[j * 32:j * 32 + 32, i * 32:i * 32 + 32], src=s)\n"
        "    return out\n"
    ),
}


def written(folder: Path, file: str, text: str) -> Path:
    """Write a file of kernels; return its folder."""
    (folder / f"{file}.py").write_text(HEADS[file] + text)
    return folder


@pytest.mark.parametrize(
    "loop, right",
    [
        ("nl.sequential_range", True),
        ("nl.affine_range", False),
        ("(nl.affine_range if len(CALLS) == 1 else nl.sequential_range)", False),
    ],
)
def test_a_promise_of_independence_is_held_against_the_run_that_is_timed(tmp_path, loop, right):
    """A kernel that promises it in its first call alone is called once."""
    text = CALLS + CHAIN.replace("LOOP", loop)
    reply, case = judged(written(tmp_path, "kernels", text), "kernels")
    expected = make_inputs(case, 3)[0].T
    np.testing.assert_array_equal(reply["outputs"], expected)
    if right:
        assert reply["shuffled"] is None or np.array_equal(reply["shuffled"], expected)
    else:
        assert isinstance(reply["shuffled"], str) or (reply["shuffled"] != expected).any()


def test_a_loop_that_is_left_cannot_hide_its_order(tmp_path):
    text = CALLS + CHAIN.replace("LOOP(4):", "nl.affine_range(5):\n            if i == 4: break")
    reply, _ = judged(written(tmp_path, "kernels", text), "kernels")
    assert "cannot run in another order" in reply["shuffled"]


@pytest.fixture
def always_shuffled(monkeypatch):
    """Let the judge carry out each program in another order as well."""

    class Meets:
        may_meet, findings = True, ()

    real = judge.in_another_order
    monkeypatch.setattr(judge, "in_another_order", lambda run, again: real(Meets, again))


@pytest.mark.parametrize("file", NESTED)
def test_iterations_of_loops_in_loops_run_in_another_order(tmp_path, always_shuffled, file):
    reply, case = judged(written(tmp_path, file, JIT + NESTED[file]), file)
    np.testing.assert_array_equal(reply["outputs"], make_inputs(case, 3)[0].T)
    np.testing.assert_array_equal(reply["shuffled"], reply["outputs"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("lab, file", [("vecadd", "kernels"), ("ffnn", "kernels_nki")])
def test_the_programs_of_the_staff_run_in_any_order(always_shuffled, lab, file):
    graded = load_plan(ROOT / "labs" / lab)
    graded = graded if file == "kernels" else graded.speaking("nki")
    job = {"submission": str(graded.lab.folder), "sandbox": "none", "kernels": file, "seed": 3}
    bench = Bench(job, graded, Facade())
    try:
        for case, target in graded.runs:
            reply = bench.run(case, target)
            if "error" in reply:
                assert case.expect is not None, reply
                continue
            outputs, shuffled = reply["outputs"], reply["shuffled"]
            assert not isinstance(shuffled, str), (case.name, shuffled)
            for one, other in zip(np.atleast_1d(outputs), np.atleast_1d(shuffled)):
                np.testing.assert_allclose(one, other, 1e-5, 1e-5)
    finally:
        bench.stop()


def test_a_kernel_runs_once_and_before_anything_is_computed(tmp_path, monkeypatch):
    """What it prints of its tiles is printed when it has gone: no clock tells a value."""
    said = []
    record = nkisim.record

    def recorded(*args, **kwargs):
        run = record(*args, **kwargs)
        said.append(("recorded", run.outputs))
        return run

    monkeypatch.setenv("NKI_BANNER", "0")
    monkeypatch.setattr(nkisim, "record", recorded)
    monkeypatch.setattr("builtins.print", lambda *args, **_: said.append(("printed", args)))
    text = CALLS + JIT + (
        "    CALLS.append(1)\n    assert len(CALLS) == 1\n"
        "    return turned(matrix, lambda t: nl.device_print('t', t))\n"
    )  # fmt: skip
    reply, _ = judged(written(tmp_path, "kernels", text), "kernels")
    assert "error" not in reply, reply
    assert [what for what, _ in said] == ["recorded", "printed"] and said[0][1] is None


def of_nki(folder, text):
    """Return a judge of a file of `import nki`, and a case of it."""
    graded = load_plan(ROOT / "labs" / "vecadd").speaking("nki")
    job = {
        "submission": str(written(folder, "kernels_nki", text)),
        "sandbox": "none",
        "kernels": "kernels_nki",
        "seed": 3,
    }
    return Bench(job, graded, Facade()), graded.lab.case("transpose_128x128")


COUNTS = """
KEPT = []

@nki.jit
def matrix_transpose(matrix):
    assert not KEPT, "knows of another case"
    KEPT.append(1)
    out = nl.ndarray(matrix.shape, dtype=matrix.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((1, 4), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=matrix[0:1, 0:4].view(nl.int32))
    nisa.tensor_scalar(dst=t, data=t, op0=nl.bitwise_and, operand0=1)
    COUNT
    nisa.dma_copy(dst=out, src=matrix)
    return out
"""


@pytest.mark.parametrize(
    "count, again",
    [
        ("for _ in nl.dynamic_range(0, nisa.scalar_load(t[0:1, 0:1])): KEPT.append(2)", False),
        ("for _ in nl.static_range(0): KEPT.append(2)", True),
    ],
)
def test_who_has_seen_a_value_sees_no_other_case(tmp_path, count, again):
    """A loop that is as long as memory says has to see that; then the case is its last."""
    text = COUNTS.replace("COUNT", count)
    if not again:  # the call that was ended because it needs values leaves its mark
        text = text.replace("assert not KEPT", "assert len(KEPT) < 2")
    bench, case = of_nki(tmp_path, text)
    try:
        first, second = bench.run(case, "trn2"), bench.run(case, "trn2")
    finally:
        bench.stop()
    assert "error" not in first, first
    assert ("knows of another case" in str(second.get("error"))) is again


def test_the_run_that_is_timed_is_not_told_from_those_on_other_inputs(tmp_path):
    """One that asks for a value only where cases ran before it runs where none did."""
    text = """
RAN = []


@nki.jit
def matrix_transpose(matrix):
    knows = bool(RAN)
    RAN.append(1)
    if knows:
        v, r = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf), nisa.register_alloc()
        nisa.memset(v, 1)
        nisa.register_load(r, v)
        nl.fori_loop(0, r, lambda i: None)
    return turned(matrix)
"""
    bench, case = of_nki(tmp_path, text)
    try:
        counts = [bench.run(case, "trn2")["stats"]["instructions"] for _ in range(2)]
    finally:
        bench.stop()
    assert counts[0] == counts[1]


HIDDEN = {
    "a float for its number": "    it.it._nki_id = float(it.it._nki_id)\n    return it\n",
    "a default for its end": (
        "    ask = sys.modules['__main__'].ask\n"
        "    while (i := ask('operator', 'next', [['H', it.it._nki_id], -1])) != -1:\n"
        "        yield i\n"
    ),
    "an argument of a call": (
        "    ask = sys.modules['__main__'].ask\n"
        "    of_loop = ['T', [['H', it.it._nki_id]]]\n"
        "    ask('call', 'neuronxcc.nki.language.zeros', of_loop, ['M', []])\n"
        "    return it\n"
    ),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_no_loop_is_hidden_from_the_other_order(tmp_path, how):
    hide = "\n\nimport sys\n\n\ndef hide(loop):\n    it = iter(loop)\n" + HIDDEN[how] + "\n"
    text = CALLS + hide + CHAIN.replace("LOOP(4)", "hide(nl.affine_range(4))")
    reply, _ = judged(written(tmp_path, "kernels", text), "kernels")
    assert reply["error"]["kind"] == "crash", reply


def test_a_tile_that_an_iteration_takes_from_the_one_before_is_named(tmp_path):
    carried = JIT + (
        "    def sums(t):\n"
        "        for i in nl.affine_range(4):\n"
        "            t = nl.add(t, t)\n"
        "        return t\n\n"
        "    return turned(matrix, sums)\n"
    )
    reply, _ = judged(written(tmp_path, "kernels", carried), "kernels")
    assert "the one before it made" in reply["shuffled"], reply
