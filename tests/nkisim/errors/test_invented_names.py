"""Names that people and programs invent: what is suggested is there, in the kernel's dialect."""

from __future__ import annotations

import importlib
import inspect
import re

import numpy as np
import pytest

import nkisim
from nkisim.language import unknown_names

MODULES = {
    (dialect, module): importlib.import_module(f"nkisim.language.{dialect}.{name}")
    for dialect in ("nki", "beta1")
    for module, name in (("nl", "language"), ("nisa", "isa"))
}
#: counted most in published failures: name -> words of the answer in each dialect
ASKED = {
    "nl.clip": ("op0=nl.maximum, operand0=low", "nl.minimum(nl.maximum(t, low), high)"),
    "nisa.fill": ("nisa.memset(dst=t", "nl.full("),
    "nl.reshape": ("t.reshape(", "t.reshape("),
    "nisa.scalar_mul": ("nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply", "nl.multiply(t, 2.0)"),
    "nisa.multiply": ("nisa.tensor_tensor(dst=y", None),
    "nl.dot": ("nisa.nc_matmul", "nc_matmul"),
    "nl.value": ("a number of Python", "a number of Python"),
    "nl.scalar": ("a number of Python", "a number of Python"),
    "nisa.transpose": ("nisa.nc_transpose(dst=p", "nisa.nc_transpose"),
    "nisa.exp": ("nisa.activation(dst=y, op=nl.exp", "nisa.activation(nl.exp, t)"),
    "nisa.load": ("nisa.dma_copy(dst=t", "nl.load"),
    "nisa.store": ("nisa.dma_copy(", "nl.store"),
    "nisa.tensor_add": ("op=nl.add", "nl.add"),
    "nisa.reduce_sum": ("op=nl.add", "nl.sum"),
    "nl.tile_shape": ("t.shape", "t.shape"),
    "nl.program_count": ("nl.num_programs", "num_programs"),
    "nl.concatenate": ("nisa.tensor_copy", "t[:, 0:n] = a"),
    "nl.range": ("range(n)", "affine_range"),
    "nisa.div": ("nisa.reciprocal", "nl.reciprocal"),
    "nl.cast": ("nisa.tensor_copy", "dtype="),
    "nisa.matmul": ("nisa.nc_matmul(dst=p", "nisa.nc_matmul"),
    "nl.bf16": ("bfloat16", "bfloat16"),
    "nl.SBUF": ("buffer=nl.sbuf", "buffer=nl.sbuf"),
    "nl.empty": ("nl.ndarray", "nl.ndarray"),
    "nl.sigmod": ("nl.sigmoid", "nl.sigmoid"),
    "nisa.tensor_tensr": ("nisa.tensor_tensor",) * 2,
}


@pytest.mark.parametrize("dialect", ["nki", "beta1"])
@pytest.mark.parametrize("name", ASKED)
def test_a_name_that_is_not_there_says_what_is_meant(name, dialect):
    words = ASKED[name][dialect == "beta1"]
    module, _, leaf = name.partition(".")
    with pytest.raises(AttributeError) as caught:
        getattr(MODULES[dialect, module], leaf)
    assert words is None or words in str(caught.value)
    if dialect == "nki":
        assert not re.search(r"nl\.(load|store|divide|mod)\b", str(caught.value))


@pytest.mark.parametrize("dialect", ["nki", "beta1"])
@pytest.mark.parametrize("name", ["zork", "qqqqqq", "x"])
def test_nothing_is_suggested_where_nothing_is_near(name, dialect):
    for module in ("nl", "nisa"):
        with pytest.raises(AttributeError, match=f"has no '{name}'.$"):
            getattr(MODULES[dialect, module], name)


@pytest.mark.parametrize("dialect", ["nki", "beta1"])
def test_what_is_suggested_is_there_with_these_arguments(dialect):
    texts = {pair[dialect == "nki"] for pair in unknown_names.TABLE.values()}
    texts |= {unknown_names.instead("nisa", name, dialect) for name in ("add", "exp", "sum", "max")}
    for text in texts:
        for module, name in re.findall(r"\b(nl|nisa)\.([a-z]\w*)", text):
            assert hasattr(MODULES[dialect, module], name), text
        for module, name, given in re.findall(r"\b(nl|nisa)\.(\w+)\(([^()]*)\)", text):
            there = inspect.signature(getattr(MODULES[dialect, module], name)).parameters
            named = re.findall(r"(\w+)=", given)
            assert set(named) <= set(there), text


def test_no_name_of_the_table_is_one_of_nki():
    """What exists is never answered by the table."""
    for dialect in ("nki", "beta1"):
        nl, nisa = MODULES[dialect, "nl"], MODULES[dialect, "nisa"]
        from nkisim.language.beta1.names import NAMES as OLD
        from nkisim.language.nki.names import NAMES as NEW

        names = NEW if dialect == "nki" else OLD
        for module, facade in (("nl", nl), ("nisa", nisa)):
            for name in names[module].split():
                if name in unknown_names.TABLE:
                    try:
                        getattr(facade, name)
                    except AttributeError as error:
                        assert "Write" not in str(error), name


HEAD = {
    "nki": "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n",
    "beta1": "from neuronxcc import nki\nimport neuronxcc.nki.isa as nisa\n"
    "import neuronxcc.nki.language as nl\n",
}
BODY = {
    "nki": """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    t, u, y = (nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf) for _ in range(3))
    nisa.dma_copy(dst=t, src=x[0:128])
    nisa.dma_copy(dst=u, src=x[0:128])
    p = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
    a = b = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=a, value=1.0)
    low, high, n, shape, value = 0.0, 1.0, 64, (128, 128), 0.5
    if {reduces}:
        y = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.sbuf)
    {line}
    nisa.dma_copy(dst=out, src=t)
    return out
""",
    "beta1": """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x[0:128])
    u = nl.load(x[0:128])
    a = b = nl.load(x[0:128, 0:64])
    stationary, moving = t, u
    low, high, n, shape, value, dtype = 0.0, 1.0, 64, (128, 128), 0.5, nl.float32
    {line}
    nl.store(out, nl.copy(u))
    return out
""",
}
RUN = (
    "clip fill reshape scalar_mul scalar_add scalar_sub scalar_div tensor_add tensor_sub "
    "tensor_mul tensor_max div reduce_sum reduce_max reduce_min reduce_mean dot transpose copy "
    "cast load concatenate empty full_like ones_like mul sub plus neg absolute inverse "
    "leaky_relu swish gelu_ where_"
).split()


@pytest.mark.parametrize("dialect", ["nki", "beta1"])
@pytest.mark.parametrize("name", RUN)
def test_what_is_suggested_runs(name, dialect, tmp_path):
    text = unknown_names.instead("nl", name, dialect)
    if name == "where_":
        text = text.replace("condition", "nl.greater(a, b)")
    line = re.split(
        r", (?:or|with|and) |, nl\.minimum\(nl|, nisa\.tensor_scalar with| for |, of t", text
    )[0]
    line = line.replace("out, src=x", "out, src=x[0:128]")
    path = tmp_path / "kernel_of_a_name.py"
    path.write_text(
        HEAD[dialect] + BODY[dialect].format(line=line, reduces="axis=1" in line), encoding="utf-8"
    )
    names: dict = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    prof = nkisim.profile(names["kernel"], np.ones((256, 128), np.float32), target="trn2")
    assert {f.id for f in prof.findings if f.severity != "note"} <= {"NKI-O07", "NKI-U04"}, line
