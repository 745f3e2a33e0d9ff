"""What is said of matrices of unequal rows, and what looks like a mistake and is none.

The mistakes that newcomers make are in the catalogue (data/examples). Bodies get the inputs `a` and
`b` (128 x 512, float32) and `out` (128 x 512).
"""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from neuronxcc import nki

import nkisim

A, B = (np.random.default_rng(n).random((128, 512), dtype=np.float32) for n in (0, 1))


@pytest.fixture
def said(tmp_path):
    """Return what runs a body and returns what is said about it, worst first.

    That an input is not read is said of many of these: they are small.
    """

    def run(body: str, *args, wanted: str = ""):
        text = (
            "import neuronxcc.nki.isa as nisa\nimport neuronxcc.nki.language as nl\n"
            "import numpy as np\n\n\ndef kernel(a, b):\n"
            "    out = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.shared_hbm)\n"
            + textwrap.indent(body.strip("\n") + "\nreturn out\n", "    ")
        )
        file = tmp_path / "kernel.py"
        file.write_text(text)
        scope: dict = {}
        exec(compile(text, str(file), "exec"), scope)
        return [
            f
            for f in nkisim.check(nki.jit(scope["kernel"]), *(args or (A, B)), target="trn2")
            if f.id == wanted or f.id != "NKI-O07" and "is never used" not in f.text
        ]

    return run


MATMUL = """
acc = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
for k in nl.affine_range(a.shape[0] // 128):
    at = nl.ds(k * 128, 128)
    acc += nisa.nc_matmul(nl.load(a[at]), nl.load(b[at]))
nl.store(out, nl.copy(acc))
"""


def test_matrices_that_are_multiplied_have_equally_many_rows(said):
    """The loop goes over the rows of one: those of the other that are more are left out."""
    lhsT, rhs = np.ones((256, 128), np.float32), np.ones((384, 512), np.float32)
    (first,) = said(MATMUL, lhsT, rhs, wanted="NKI-O07")
    assert first.severity == "warning" and "rows 256 ... 383 of input b" in first.text
    assert "a, which it is multiplied with, has 256 rows" in first.text
    assert not said(MATMUL, lhsT, rhs[:256], wanted="NKI-O07")
    added = MATMUL.replace(
        "acc += nisa.nc_matmul(nl.load(a[at]), nl.load(b[at]))",
        "nl.store(out, nl.load(b[at])); nl.load(a[at])",
    ).replace("nl.store(out, nl.copy(acc))", "")
    assert not [
        f for f in said(added, lhsT[:128], rhs[:256], wanted="NKI-O07") if f.severity != "note"
    ], "they are not multiplied"


def test_a_negative_index_counts_from_the_end_as_in_python(said):
    assert not said("t, u = nl.load(a), nl.load(b)\nnl.store(out, nl.add(t, u[:, -1]))")


def test_rows_that_a_mask_leaves_out_are_not_missed(said):
    """The pattern of AWS's tutorial of RMSNorm: a tile whose last rows do not exist."""
    body = """
i, c = nl.arange(128)[:, None], nl.arange(512)[None, :]
t = nl.load(a[i, c], mask=i < 100)
square = nl.sum(nl.square(t), axis=[1])
nl.store(out[i, c], nl.multiply(t, nl.rsqrt(square)), mask=i < 100)
nl.store(out[100:128], 0)
"""
    assert not said(body)
