"""The ffnn lab: each kernel against float64, and what happens with input they cannot take."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import nkisim
from labkit import SpecError, compare, make_inputs
from labkit.evaluate import FAILED, PASSED, evaluate
from labkit.load import load_lab, load_module

FOLDER = Path(__file__).parents[2] / "labs" / "ffnn"
KERNELS = load_module(FOLDER / "kernels.py", "ffnn_kernels")
REFERENCE = load_module(FOLDER / "reference.py", "ffnn_reference")
SPEC = load_module(FOLDER / "spec.py", "ffnn_spec")
LAB = load_lab(FOLDER)
PLAN = load_module(FOLDER / "hidden" / "plan.py", "ffnn_plan").plan(SPEC)
MATMULS = list(KERNELS.MATMULS)


def array(*shape, dtype="float32", seed=0):
    return (np.random.default_rng(seed).random(shape, dtype=np.float32) - 0.5).astype(dtype)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(128, 128), (384, 1152), (2304, 128)])
def test_transpose_only_moves(shape, dtype, target):
    a = array(*shape, dtype=dtype)
    np.testing.assert_array_equal(nkisim.simulate(KERNELS.nki_transpose, a, target=target), a.T)


@pytest.mark.parametrize("act", ["relu", "softmax"])
@pytest.mark.parametrize("shape", [(128, 256), (200, 77), (3, 2000)])
def test_bias_add_act(act, shape):
    A, b = array(*shape), array(1, shape[1], seed=1)
    got = nkisim.simulate(KERNELS.nki_bias_add_act, A, b, act=act)
    verdict = compare(REFERENCE.bias_add_act(A, b, act), got, accumulate=shape[1], roundings=4)
    assert verdict.ok, verdict.render()


def in_float16(inputs, rounded):
    """The probabilities if some operands of products are rounded; what inputs have in common is
    taken out of them, and added as a bias."""

    def less(name, x):
        return x.astype(np.float16).astype(np.float64) if name in rounded else x

    X, W1, b1, W2, b2 = (x.astype(np.float64) for x in inputs)
    hidden = REFERENCE.relu(less("X", X - 0.5) @ less("W1", W1) + 0.5 * W1.sum(0) + b1)
    mean = hidden.mean(0)
    scores = less("hidden", hidden - mean) @ less("W2", W2) + mean @ W2 + b2
    return REFERENCE.softmax(scores).astype(np.float32)


@pytest.mark.parametrize(
    "rounded", [("X", "W1", "hidden", "W2"), ("X", "W1"), ("hidden", "W2"), ("W1",), ("W2",)]
)
@pytest.mark.parametrize("name", ["forward_small", "forward_odd"])
def test_a_network_of_float32_that_is_computed_in_float16_is_wrong(name, rounded):
    (case,) = (c for c in (*LAB.cases, *PLAN.hidden) if c.name == name)
    inputs = make_inputs(case, LAB.seed)
    exact = REFERENCE.forward(*inputs)
    for parts, right in ((), True), (rounded, False):
        verdict = compare(
            exact,
            in_float16(inputs, parts),
            dtype=inputs[0].dtype,
            accumulate=case.accumulate,
            roundings=case.roundings,
            functions=case.functions,
        )
        assert verdict.ok == right, verdict.render()


def test_classes_that_are_chosen_in_float16_are_wrong():
    """One row in a thousand has two classes so near to each other; the hidden case has 4096."""
    (case,) = (c for c in PLAN.hidden if c.name == "predict_many")
    inputs = make_inputs(case, LAB.seed)
    for rounded, right in ((), True), (("X", "W1", "hidden", "W2"), False):
        chosen = in_float16(inputs, rounded).argmax(1).astype(np.int32)
        assert compare(REFERENCE.predict(*inputs), chosen).ok == right


def test_softmax_of_large_numbers_does_not_overflow():
    A = array(128, 64) * 1000
    got = nkisim.simulate(KERNELS.nki_bias_add_act, A, np.zeros((1, 64), np.float32), act="softmax")
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got.sum(axis=1), 1, rtol=1e-5)


def test_a_softmax_that_overflows_fails_a_case_that_students_see(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "ffnn", ignore=shutil.ignore_patterns("results"))
    lab = load_lab(tmp_path / "ffnn")
    case = lab.case("bias_add_softmax_128x64_to1000")
    (right,) = evaluate(lab, [(case, "trn1")])
    kernels = tmp_path / "ffnn" / "kernels.py"
    text = kernels.read_text("utf-8")
    body = text[text.index("def nki_bias_add_act") : text.index("def check_matmul")]
    overflows = (
        body[: body.index("\n    # BEGIN")]
        + """
    out = nl.ndarray((height, width), dtype=A.dtype, buffer=nl.shared_hbm)
    x = nl.exp(nl.add(nl.load(A), nl.load(b)))
    nl.store(out, nl.divide(x, nl.sum(x, axis=1, keepdims=True)))
    return out


"""
    )
    kernels.write_text(text.replace(body, overflows), "utf-8")
    (wrong,) = evaluate(lab, [(case, "trn1")])
    assert (right.status, wrong.status) == (PASSED, FAILED) and "NaN or inf" in wrong.detail


@pytest.mark.parametrize("which", MATMULS)
@pytest.mark.parametrize(
    "k, m, n, dtype",
    [(256, 640, 1536, "float32"), (128, 128, 96, "float16"), (384, 128, 512, "float32")],
)
def test_matmuls(which, k, m, n, dtype):
    lhsT, rhs = array(k, m, dtype=dtype), array(k, n, dtype=dtype, seed=1)
    got = nkisim.simulate(KERNELS.MATMULS[which], lhsT, rhs)
    verdict = compare(REFERENCE.matmul(lhsT, rhs), got, dtype=lhsT.dtype, accumulate=k)
    assert verdict.ok, verdict.render()


def test_each_matmul_loads_less_than_the_one_before():
    lhsT, rhs = array(512, 1024), array(512, 4096, seed=1)
    runs = [nkisim.run(KERNELS.MATMULS[which], lhsT, rhs) for which in MATMULS]
    read = [r.hbm_read_bytes for r in runs]
    assert read == sorted(read, reverse=True) and len(set(read)) == len(read)
    assert len({r.instructions["nc_matmul"] for r in runs}) == 1  # the work is the same


@pytest.mark.parametrize("which", MATMULS)
def test_predict(which):
    inputs = make_inputs(SPEC.network_case("n", "nki_predict", SPEC.SMALL_LAB), 3)
    got = nkisim.simulate(KERNELS.nki_predict, *inputs, matmul_kernel=which)
    assert got.dtype == np.int32 and got.shape == (SPEC.SMALL_LAB.batch,)
    assert compare(REFERENCE.predict(*inputs), got).ok
    # a twin that is off by one row must not pass
    assert not compare(REFERENCE.predict(*inputs), np.roll(got, 1)).ok


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: KERNELS.nki_transpose(array(100, 128)), "works in tiles of 128 x 128"),
        (lambda: KERNELS.nki_bias_add_act(array(128, 64), array(1, 32)), "one row of 64 elements"),
        (
            lambda: KERNELS.nki_bias_add_act(array(128, 64), array(1, 64), act="tanh"),
            "act must be 'relu' or 'softmax'",
        ),
        (lambda: KERNELS.nki_matmul_tiled(array(128, 128), array(256, 512)), "must agree"),
        (lambda: KERNELS.nki_matmul_tiled(array(128, 100), array(128, 512)), "multiples of 128"),
        (lambda: KERNELS.nki_matmul_tiled(array(128, 128), array(128, 700)), "multiple of it"),
        (
            lambda: KERNELS.nki_predict(
                array(128, 128), array(128, 128), array(1, 128), array(128, 4), array(1, 4)
            ),
            "there are 4 classes",
        ),
    ],
)
def test_wrong_shapes_name_the_rule(call, said):
    with pytest.raises(AssertionError, match=re.escape(said)):
        call()


def test_unknown_matmul_kernel():
    inputs = make_inputs(SPEC.network_case("n", "nki_predict", SPEC.SMALL_LAB), 3)
    with pytest.raises(ValueError, match="no matmul kernel 'fast'; there are tiled"):
        KERNELS.nki_predict(*inputs, matmul_kernel="fast")


def test_stored_data_is_checked(tmp_path):
    def load(folder):
        return make_inputs(
            SPEC.network_case("n", "nki_predict", SPEC.SMALL_LAB, folder=str(folder)), 0
        )

    inputs = make_inputs(SPEC.network_case("n", "nki_predict", SPEC.SMALL_LAB), 3)
    REFERENCE.store(tmp_path, inputs, np.zeros(SPEC.SMALL_LAB.batch, np.int32))
    for given, stored in zip(inputs, load(tmp_path)):
        np.testing.assert_array_equal(given, stored)
    np.save(tmp_path / "W2.npy", inputs[3].astype(np.float16))
    with pytest.raises(SpecError, match="W2.npy holds float16"):
        load(tmp_path)
    np.save(tmp_path / "W2.npy", inputs[3][:-1])
    with pytest.raises(SpecError, match=r"W2.npy holds float32 of shape \(1023, 512\)"):
        load(tmp_path)
    (tmp_path / "W2.npy").write_bytes(b"no array")
    with pytest.raises(SpecError, match="is not a NumPy array file"):
        load(tmp_path)
    (tmp_path / "W2.npy").unlink()
    with pytest.raises(SpecError, match="there is no file W2.npy"):
        load(tmp_path)


def test_steps_of_the_lab_have_points():
    assert sum(line.points for line in LAB.rubric) == 30
    assert {c.kernel for c in LAB.cases if "lab" in c.fleets} >= {
        "nki_transpose",
        "nki_bias_add_act",
        "nki_forward",
        "nki_predict",
    }
