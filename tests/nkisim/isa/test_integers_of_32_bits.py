"""tensor_tensor of 32-bit integers in the package nki: exact, or float32, by the API page.

"When all input/output tiles are int32 or uint32, the operation defaults to GpSimd Engine, which
uses native integer arithmetic": all arithmetic, unless an operand lies in PSUM or an engine is
named. One tile of another dtype, and the engine computes in float32.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

BIG = 1 << 24
EXACT = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


def run(a, b, op, dtype, buffer=None, engine=None):
    @nki.jit
    def kernel(a, b):
        dst = nl.ndarray(a.shape, dtype=getattr(nl, dtype), buffer=buffer or nl.sbuf)
        more = {} if engine is None else {"engine": engine}
        nisa.tensor_tensor(dst, nl.load(a), nl.load(b), op=getattr(nl, op), **more)
        if buffer is not None:
            copy = nl.ndarray(a.shape, dtype=dst.dtype)
            nisa.tensor_copy(copy, dst)
            dst = copy
        out = nl.ndarray(a.shape, dtype=dst.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, dst)
        return out

    got = nkisim.run(kernel, a, b, target="trn2")
    engines = {k.engine for k in got.trace.op_specs if k.row.name == "tensor_tensor"}
    return got.outputs, engines.pop()


A = np.array([[BIG + 1, BIG, 7, 1, 2**31 - 1]] * 4)
B = np.array([[BIG, BIG + 1, 7, 2, 1]] * 4)


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_all_arithmetic_is_exact(op, dtype):
    a, b = A.astype(dtype), B.astype(dtype)
    got, engine = run(a, b, op, dtype)
    assert engine == "gpsimd" and got.dtype == a.dtype
    assert (got == EXACT[op](a, b).astype(dtype)).all()


@pytest.mark.parametrize("dtypes", [("int32", "uint32", "int32"), ("uint32", "int32", "uint32")])
def test_int32_with_uint32_is(dtypes):
    first, second, result = dtypes
    got, engine = run(A.astype(first), B.astype(second), "subtract", result)
    assert engine == "gpsimd" and (got == (A - B).astype(result)).all()
    got, _ = run(A.astype(first), B.astype(second), "maximum", result)
    assert (got == np.maximum(A, B)).all()


@pytest.mark.parametrize("op", ["subtract", "maximum", "equal", "add"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_into_a_tile_of_another_dtype_the_vector_engine_computes_in_float32(op, dtype):
    got, engine = run(A.astype(np.uint32), B.astype(np.uint32), op, dtype)
    value = EXACT[op](A.astype(np.float32), B.astype(np.float32)).astype(np.float32)
    if dtype == "int16":
        value = np.clip(value, -(2**15), 2**15 - 1)
    assert engine == "vector" and (got == value.astype(got.dtype)).all()


def test_one_minus_two_is_minus_one_in_float32():
    one, two = np.full((4, 4), 1, np.uint32), np.full((4, 4), 2, np.uint32)
    assert (run(one, two, "subtract", "float32")[0] == -1).all()
    assert (run(one, two, "subtract", "int16")[0] == -1).all()
    assert (run(one, two, "subtract", "uint32")[0] == 2**32 - 1).all()


@pytest.mark.parametrize("where", [{"buffer": nl.psum}, {"engine": nisa.engine.vector}], ids=str)
def test_psum_and_a_named_engine_mean_float32(where):
    got, engine = run(A.astype(np.int32), B.astype(np.int32), "equal", "int32", **where)
    assert engine == "vector" and got[0].tolist() == [1, 1, 1, 0, 0]
