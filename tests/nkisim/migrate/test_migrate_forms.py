"""`migrate` writes what builds, where neuronxcc.nki has forms that the newer compiler refuses."""

from __future__ import annotations

import numpy as np
import pytest
from test_migrate import MADE, rewritten

from nkisim.migrate.file import Call, migrate

X = np.random.default_rng(5).random((128, 64)).astype(np.float32) + 0.5


@pytest.mark.parametrize(
    "line, becomes",
    [
        ("t / t", "nl.multiply(t, nl.reciprocal(t, dtype=nl.float32))"),
        ("nl.divide(t, s)", "nl.reciprocal(s, dtype=nl.float32).broadcast(1, 64)"),
        ("t / 4.0", "nl.multiply(t, 1.0 / 4.0)"),
        ("2.0 / t", "nl.reciprocal(t"),
        ("t + s", "nl.add(t, s.broadcast(1, 64))"),
        ("s - t", "nl.subtract(s.broadcast(1, 64), t)"),
        ("nl.power(t, 2)", "nl.square(t)"),
        ("t + nl.sum(t, axis=1)", "keepdims=True"),
    ],
)
def test_what_does_not_build_becomes_what_does(line, becomes):
    done = rewritten(
        MADE
        + f"""
t = nl.load(x)
s = nl.max(t, axis=1, keepdims=True)
u = {line}
nl.store(out, u)
return out""",
        X,
    )
    assert becomes in done.text and done.decisions == []


@pytest.mark.parametrize(
    "line, says", [("nl.power(t, 3)", "op0=nl.power"), ("nl.mod(t, 2.0)", "remainders")]
)
def test_what_has_no_such_form_is_a_decision(line, says):
    text = (
        "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n\n\n@nki.jit\n"
        "def kernel(x):\n    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
        f"    t = nl.load(x)\n    nl.store(out, {line})\n    return out\n"
    )
    done = migrate("kernels.py", text, [Call("kernel", (X,), {})], "trn2")
    assert any(says in str(d) for d in done.decisions)
