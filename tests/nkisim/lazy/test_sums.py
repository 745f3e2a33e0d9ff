"""Random products that are added to parts of one PSUM tile in loops, against NumPy."""

from __future__ import annotations

import neuronxcc.nki as old
import neuronxcc.nki.isa as old_isa
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nkisim.lazy import async_matmul
from nkisim.simulation.launch import launch
from random_loops import compiled

ROWS, WIDTH = 32, 64
NEW = """
def kernel(x):
    out = nl.ndarray(({rows}, {width}), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    acc = nl.ndarray(({rows}, {width}), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(acc, a[:, 0:{rows}], a[:, 0:{width}])
{body}
    new = nl.ndarray(({rows}, {width}), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=new, src=acc)
    nisa.dma_copy(dst=out, src=new)
    return out
"""
OLD = """
def kernel(x):
    out = nl.ndarray(({rows}, {width}), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.load(x)
    acc = nl.zeros(({rows}, {width}), dtype=nl.float32, buffer=nl.psum)
    acc += nisa.nc_matmul(a[:, 0:{rows}], a[:, 0:{width}])
{body}
    nl.store(out, value=acc)
    return out
"""
#: when a product adds to its sum; in neuronxcc.nki always
ADDS = ["True", "True", "False", "i > 0", "j > 0", "j != 0"]
product_ = st.fixed_dictionaries(
    {
        "adds": st.sampled_from(ADDS),
        "rows": st.sampled_from([8, 16, 32]),
        "width": st.sampled_from([4, 8, 16]),
        "step": st.sampled_from([1, 1, 2]),
        "at": st.sampled_from(["0", "3", "i", "4*i", "j", "4*j", "4*i + j", "i + j", "1 - j"]),
        "left": st.sampled_from(["0", "i", "j"]),
        "right": st.sampled_from(["0", "i", "16*j"]),
        "inner": st.booleans(),
    }
)


def _product(x, dialect):
    end = f"{x['at']} + {x['width'] * x['step']}"
    dst = f"acc[0:{x['rows']}, {x['at']}:{end}" + (f":{x['step']}]" if x["step"] > 1 else "]")
    operands = (
        f"a[:, {x['left']}:{x['left']} + {x['rows']}], "
        f"a[:, {x['right']}:{x['right']} + {x['width']}]"
    )
    if dialect == "nki":
        return f"nisa.nc_matmul({dst}, {operands}, accumulate={x['adds']})"
    return f"{dst} += nisa.nc_matmul({operands})"


def source_of(program, dialect):
    """Return a kernel of two loops: lines of the outer one, those of the inner one among them."""
    outer, inner = (
        ["    " * depth + _product(x, dialect) for x in program if x["inner"] == within]
        for depth, within in ((2, False), (3, True))
    )
    inside = ["        for j in nl.affine_range(2):", *(inner or ["            pass"])]
    return (NEW if dialect == "nki" else OLD).format(
        rows=ROWS,
        width=WIDTH,
        body="\n".join(["    for i in range(2):", "        j = 0", *outer, *inside]),
    )


def expected(program, x, dialect):
    """Return what the kernel computes, one product after the other."""
    acc = x[:, :ROWS].T @ x[:, :WIDTH]

    def add(p, i, j):
        at, left, right = (eval(p[key], {"i": i, "j": j}) for key in ("at", "left", "right"))
        value = x[:, left : left + p["rows"]].T @ x[:, right : right + p["width"]]
        part = acc[: p["rows"], at : at + p["width"] * p["step"] : p["step"]]
        adds = dialect != "nki" or eval(p["adds"], {"i": i, "j": j})
        part[...] = part + value if adds else value

    for i in range(2):
        for p in program:
            if not p["inner"]:
                add(p, i, 0)
        for j in range(2):
            for p in program:
                if p["inner"]:
                    add(p, i, j)
    return acc


def part(**given):
    """Return a product: the defaults, but for what is given."""
    return {
        "adds": "True",
        "rows": 8,
        "width": 4,
        "step": 1,
        "at": "0",
        "left": "0",
        "right": "0",
        "inner": True,
        **given,
    }


@pytest.mark.sample(1)
@pytest.mark.parametrize("dialect", ["nki", "beta1"])
@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@example([part(inner=False), part(adds="j > 0", at="j", left="j")])  # opens what is added to
@example([part(), part(rows=32, width=16)])
@example([part(width=8), part(width=8, step=2)])
@given(st.lists(product_, min_size=1, max_size=4))
def test_random_products(monkeypatch, dialect, program):
    x = np.random.default_rng(0).integers(-2, 3, (16, 80)).astype(np.float32)
    want = expected(program, x, dialect)
    names = {"nl": nl, "nisa": nisa} if dialect == "nki" else {"nl": old_nl, "nisa": old_isa}
    kernel = compiled(source_of(program, dialect), nki if dialect == "nki" else old, **names)
    for every, threads in ((False, "1"), (False, "2"), (True, "2")):
        monkeypatch.setenv(async_matmul.VARIABLE, threads)
        got = launch(kernel, (x,), {}, target="trn2", every_iteration=every)
        assert np.array_equal(got.outputs, want)
