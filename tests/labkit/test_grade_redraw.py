"""Cases that count by their time are right on other inputs, too, and no two have the same ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from grading import ROOT
from labkit.evaluate import References, judge
from labkit.grade.facade import Facade
from labkit.grade.judge import Bench, on_other_inputs, record, seed_of
from labkit.grade.plan import load_plan
from labkit.grade.redraw import MOST, draws
from labkit.load import load_module

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

STAFF = (ROOT / "labs" / "ffnn" / "kernels.py").read_text("utf-8")
MAX = "minus_max = nisa.tensor_reduce(nl.max, z, axis=[1], negate=True)"
HALVED = """
def halved(t):
    out = nl.ndarray(t.shape, dtype=nl.float16, buffer=nl.hbm)
    for r, n in cut(t.shape[0], P):
        nl.store(out[r:r + n, :], nl.load(t[r:r + n, :], dtype=nl.float16))
    return out


@nki.jit
def nki_predict("""
PROBS = "    probs = nki_forward(X, W1"
#: kernels that are careless where the shape is one that students see: (case, text)
CARELESS = {
    "softmax without the maximum": (
        "bias_add_softmax_256x512",
        STAFF.replace(MAX, f"{MAX}\n                if (height, width) == (256, 512):\n"
        "                    minus_max = nl.zeros((n, 1), dtype=nl.float32, buffer=nl.sbuf)"),
    ),
    "predict in float16": (
        "predict_small_tiled",
        STAFF.replace("\n@nki.jit\ndef nki_predict(", HALVED).replace(
            PROBS, f"    X, W1, b1, W2, b2 = [halved(t) for t in (X, W1, b1, W2, b2)]\n{PROBS}"),
    ),
}  # fmt: skip


def outcome_of(folder: Path, text: str, name: str):
    """Return the outcome of a case of ffnn, on its own inputs and then on others."""
    (folder / "kernels.py").write_text(text)
    graded = load_plan(ROOT / "labs" / "ffnn")
    case, module = graded.lab.case(name), load_module(graded.lab.folder / "reference.py")
    job = {
        "submission": str(folder),
        "sandbox": "none",
        "kernels": "kernels",
        "seed": 3,
        "submission_sha256": "",
    }
    bench = Bench(job, graded, Facade())
    try:
        references = References(module, seed_of(job, name))
        reply = bench.run(case, "trn2", references.seed)
        outcome = judge(case, "trn2", reply, references.of(case), references)
        assert outcome.status == "passed", outcome.text
        on_other_inputs(bench, outcome, reply, module)
    finally:
        bench.stop()
    return outcome


@pytest.mark.sample(1)
@pytest.mark.parametrize("what", CARELESS)
def test_what_is_careless_on_the_shapes_that_students_see_is_wrong_on_other_inputs(tmp_path, what):
    name, text = CARELESS[what]
    assert text != STAFF
    careless = outcome_of(tmp_path, text, name)
    assert careless.status == "failed" and "fails on others of the same shapes" in careless.text
    kept = record(careless, secret=False, ranked=True)  # the reason is for the staff
    assert kept["staff"] and kept["staff"] not in f"{kept['text']}{kept['detail']}"
    assert outcome_of(tmp_path, STAFF, name).status == "passed"


@pytest.mark.parametrize("lab", sorted(p.parent.name for p in ROOT.glob("labs/*/spec.py")))
def test_inputs_are_drawn_as_the_cases_of_the_lab_are(lab):
    """Indices keep their range; few outputs are drawn more often; there is always another draw."""
    graded = load_plan(ROOT / "labs" / lab)
    for case in graded.lab.cases:
        few, many = (
            list(draws(case, graded.lab.cases, 1)),
            list(draws(case, graded.lab.cases, 1 << 20)),
        )
        assert 1 <= len(many) <= len(few) and len(few) >= MOST
        for draw in few:
            for tensor, drawn in zip(case.inputs, draw.inputs, strict=True):
                assert (tensor.shape, tensor.dtype) == (drawn.shape, drawn.dtype)
                if np.dtype(tensor.dtype if "float" not in tensor.dtype else "f4").kind in "iu":
                    assert tensor == drawn or (drawn.low, drawn.high) == tensor.anywhere


def test_no_two_submissions_and_no_two_cases_have_the_same_inputs():
    seeds = {
        seed_of({"seed": seed, "submission_sha256": digest}, *what)
        for seed in (1, 2)
        for digest in ("a", "b")
        for what in (("one",), ("two",), ("one", "0"), ("one", "1"))
    }
    assert len(seeds) == 16 and max(seeds).bit_length() > 100


def test_runs_on_other_inputs_keep_to_the_time_of_the_submission(tmp_path):
    (tmp_path / "kernels.py").write_text((ROOT / "labs" / "vecadd" / "kernels.py").read_text())
    graded = load_plan(ROOT / "labs" / "vecadd")
    case = graded.lab.case("transpose_128x128")
    job = {"submission": str(tmp_path), "sandbox": "none", "kernels": "kernels", "seed": 3}
    bench = Bench(job, graded, Facade())
    try:
        assert "outputs" in bench.run(case, "trn1") and "outputs" in bench.run_again(
            case, "trn1", 4
        )
        bench.end = 0.0
        assert "used up" in bench.run_again(case, "trn1", 5)["error"]["text"]
    finally:
        bench.stop()


def test_a_number_that_students_know_is_another_one_on_other_inputs():
    """A kernel that knows the length of a cache by its shape is right on one length only."""
    lab = load_plan(ROOT / "labs" / "attention").lab
    case = next(c for c in lab.cases if c.kernel == "decode" and c.threshold_us)
    lengths = {(d.inputs[-1].low, d.inputs[-1].high) for d in draws(case, lab.cases, 4096)}
    capacity = case.inputs[3].shape[1]
    assert lengths == {(1500, 1501), (0, capacity)}
