"""What is said first about the mistakes that newcomers make, and that nothing is said about twins.

A row is a mistake: the body of a kernel, and what the first message must say, so that the cause is
clear from it alone. Bodies get the inputs `a` and `b` (128 x 512, float32) and `out` (128 x 512).
"""

from __future__ import annotations

import textwrap
from typing import NamedTuple

import numpy as np
import pytest
from neuronxcc import nki

import nkisim

A, B = (np.random.default_rng(n).random((128, 512), dtype=np.float32) for n in (0, 1))


class Row(NamedTuple):
    """A mistake, the rule and words of its first message, and what to write (None: no twin)."""

    name: str
    wrong: str
    id: str
    words: tuple[str, ...]
    right: str | None


SUM = """
acc = nl.zeros((128, 512), nl.float32{where})
for i in nl.{loop}(4):
    {step}
nl.store(out, {take})
"""
PRODUCTS = """
w = nl.load(a[:, 0:128])
{before}
for m in nl.affine_range(4):
    {inside}
    for k in nl.affine_range(2):
        acc {how} nisa.nc_matmul(w, nl.load(b[:, m * 128:(m + 1) * 128]))
    nl.store(out[:, m * 128:(m + 1) * 128], nl.copy(acc))
"""
ZEROS = "acc = nl.zeros((128, 128), nl.float32, buffer=nl.psum)"


def of_sum(step: str, loop: str = "affine_range", where: str = "", take: str = "acc") -> str:
    return SUM.format(step=step, loop=loop, where=where, take=take)


def of_products(before: str = "", inside: str = ZEROS, how: str = "+=") -> str:
    return PRODUCTS.format(before=before, inside=inside, how=how)


def store_of(expression: str) -> str:
    return f"t, u = nl.load(a), nl.load(b)\nnl.store(out, {expression})"


ROWS = (
    Row(
        "a sum by assignment",
        of_sum("acc[...] = nl.add(acc, nl.load(a))"),
        "NKI-L02",
        ("reads what another one wrote", "+= for a sum"),
        of_sum("acc += nl.load(a)"),
    ),
    Row(
        "= for += of a product",
        of_products(how="[...] ="),
        "NKI-L05",
        ("all but the last one computed is lost", "Was a sum meant? += adds"),
        of_products(),
    ),
    Row(
        "a tile that is overwritten before it is used",
        of_sum("acc[...] = nl.load(a)"),
        "NKI-L05",
        ("all but the last one computed is lost", "Was a sum meant? += adds"),
        of_sum("acc += nl.load(a)"),
    ),
    Row(
        "no par_dim",
        """
t = nl.ndarray((4, 128, 128), nl.float32)
for i in nl.affine_range(4):
    t[i] = nl.load(a[:, i * 128:(i + 1) * 128])
    nl.store(out[:, i * 128:(i + 1) * 128], t[i])
""",
        "NKI-S01",
        ("nl.par_dim(128)", "t[i] is then a tile"),
        """
t = nl.ndarray((4, nl.par_dim(128), 128), nl.float32)
for i in nl.affine_range(4):
    t[i] = nl.load(a[:, i * 128:(i + 1) * 128])
    nl.store(out[:, i * 128:(i + 1) * 128], t[i])
""",
    ),
    Row(
        "np.add",
        store_of("np.add(t, u)"),
        "NKI-K14",
        ("np.add", "nl.add"),
        store_of("nl.add(t, u)"),
    ),
    Row("np.exp", store_of("np.exp(t)"), "NKI-K14", ("np.exp", "nl.exp"), store_of("nl.exp(t)")),
    Row(
        "x.max()",
        store_of("t - t.max()"),
        "NKI-K14",
        ("max", "nl.max"),
        store_of("t - nl.max(t, axis=1, keepdims=True)"),
    ),
    Row(
        "float(x[0, 0])",
        store_of("t * float(t[0, 0])"),
        "NKI-K14",
        ("float",),
        store_of("nl.multiply(t, t[:, 0:1])"),
    ),
    Row(".T", store_of("t.T"), "NKI-K14", (".T", "nl.transpose"), store_of("t")),
    Row(
        "np.array",
        store_of("np.array(t)"),
        "NKI-K14",
        ("np.array(...) asks a tile for its values",),
        store_of("t"),
    ),
    Row(
        "unequal partitions",
        """
t, u = nl.load(a), nl.load(b[0:64])
nl.store(out, nl.add(t, u))
""",
        "NKI-S04",
        ("128", "64"),
        store_of("nl.add(t, u)"),
    ),
    Row(
        "values=",
        "nl.store(out, values=nl.load(a))",
        "NKI-X01",
        ("values", "value"),
        "nl.store(out, value=nl.load(a))",
    ),
    Row(
        "nl.max of two tiles",
        store_of("nl.max(t, u)"),
        "NKI-S10",
        ("nl.maximum(a, b)",),
        store_of("nl.maximum(t, u)"),
    ),
    Row(
        "a running sum that each iteration stores",
        of_sum("acc += nl.load(a); nl.store(out[:, i * 128:(i + 1) * 128], acc[:, 0:128])"),
        "NKI-L02",
        ("reads a sum that others add to", "sequential_range"),
        of_sum(
            "acc += nl.load(a); nl.store(out[:, i * 128:(i + 1) * 128], acc[:, 0:128])",
            "sequential_range",
        ),
    ),
    Row(
        "an accumulator outside of the loop over its results",
        of_products(ZEROS, "pass"),
        "NKI-L02",
        ("reads a sum that others add to", "create the accumulator inside the loop"),
        of_products(),
    ),
    Row(
        "+= into PSUM that no one has set",
        of_products(inside=ZEROS.replace("zeros", "ndarray")),
        "NKI-U03",
        ("never set", "nl.zeros"),
        of_products(),
    ),
    Row(
        "a tile of an if",
        """
if a.shape[0] > 64:
    t = nl.load(a)
else:
    t = nl.load(b)
nl.store(out, t)
""",
        "NKI-L11",
        ("an if", "err_local_variable_used_out_of_scope"),
        "t = nl.load(a if a.shape[0] > 64 else b)\nnl.store(out, t)",
    ),
    Row(
        "a tile of a range loop",
        "for i in range(2):\n    t = nl.load(a)\nnl.store(out, t)",
        "NKI-L11",
        ("loop", "err_local_variable_used_out_of_scope"),
        "t = nl.ndarray((128, 512), nl.float32)\nfor i in range(2):\n    t[...] = nl.load(a)\n"
        "nl.store(out, t)",
    ),
    Row(
        "five tiles of 80 kB",
        """
tiles = [nl.zeros((128, 20480), nl.float32) for _ in range(COUNT)]
total = tiles[0]
for t in tiles[1:]:
    total = nl.add(total[:, 0:512], t[:, 0:512])
nl.store(out, total)
""".replace("COUNT", "5"),
        "NKI-M10",
        ("alive at the same time", "bytes per partition of SBUF"),
        "t = nl.zeros((128, 20480), nl.float32)\nnl.store(out, t[:, 0:512])",
    ),
    Row(
        "sixteen banks",
        """
w = nl.load(a[:, 0:128])
banks = [nl.zeros((128, 512), nl.float32, buffer=nl.psum) for _ in range(16)]
for bank in banks:
    bank += nisa.nc_matmul(w, nl.load(b))
total = nl.zeros((128, 512), nl.float32)
for bank in banks:
    total[...] = nl.add(total, bank)
nl.store(out, total)
""",
        "NKI-M10",
        ("16 banks", "which has 8"),
        """
w = nl.load(a[:, 0:128])
bank = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
for k in range(16):
    bank += nisa.nc_matmul(w, nl.load(b))
nl.store(out, nl.copy(bank))
""",
    ),
    Row(
        "a sum of integers",
        of_products(inside=ZEROS.replace("float32", "int32")),
        "NKI-D08",
        ("integer accumulator", "float32"),
        of_products(),
    ),
)


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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_first_message_says_the_cause(said, row):
    first = said(row.wrong)[0]
    text = f"{first.text} {first.suggestion()}"
    assert first.id == row.id and all(word in text for word in row.words), str(first)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_nothing_is_said_of_its_twin(said, row):
    assert not [f for f in said(row.right) if f.severity != "note"]


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


def test_a_name_that_nl_does_not_have(said):
    with pytest.raises(AttributeError, match=r"nl has no 'plus'. Write nl.add\(t, u\)"):
        said(store_of("nl.plus(t, u)"))


def test_a_negative_index_counts_from_the_end_as_in_python(said):
    assert not said(store_of("nl.add(t, u[:, -1])"))


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
