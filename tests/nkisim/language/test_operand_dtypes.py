"""The dtypes that AWS documents for operands of `import nki`: each is tried with all dtypes.

A row says what a call takes, after the API reference of NKI 0.6; another dtype is refused or said.
"""

import linecache

import numpy as np
import pytest

import nkisim

FLOAT = {"float32", "tfloat32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2"}
INTEGER = {"int8", "uint8", "int16", "uint16", "int32", "uint32"}
ALL = FLOAT | INTEGER
F32 = {"float32"}
HEAD = """\
import nki, nki.isa as nisa, nki.language as nl
@nki.jit
def kernel(given):
    out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
"""


def tile(name, dtype, columns=64, rows=128, memory="sbuf"):
    made = f"{name} = nl.ndarray(({rows}, {columns}), dtype=nl.{dtype}, buffer=nl.{memory})"
    return f"    {made}\n" + (f"    nisa.memset(dst={name}, value=1)\n" if memory == "sbuf" else "")


X, ONE = tile("x", "float32"), 1
#: what is given: (dtypes that it takes, tiles that are there, its name, columns, the call)
OPERANDS = {
    "tensor_scalar, operand0": (
        F32, X, "v", ONE, "tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=v)"),
    "tensor_scalar of integers, operand0": (
        F32, tile("x", "int32"), "v", ONE, "tensor_scalar(dst=x, data=x, op0=nl.add, operand0=v)"),
    "tensor_scalar, operand1": (
        F32, X, "v", ONE,
        "tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0, op1=nl.less, operand1=v)"),
    "tensor_scalar, operand0 of bits": (
        INTEGER, tile("x", "int32"), "v", ONE,
        "tensor_scalar(dst=x, data=x, op0=nl.bitwise_and, operand0=v)"),
    "tensor_scalar of bits": (
        INTEGER, "", "v", 64, "tensor_scalar(dst=v, data=v, op0=nl.bitwise_or, operand0=1)"),
    "tensor_tensor of bits": (
        INTEGER, "", "v", 64, "tensor_tensor(dst=v, data1=v, data2=v, op=nl.bitwise_xor)"),
    "tensor_scalar_reduce, operand0": (
        F32, X + tile("r", "float32", 1), "v", ONE,
        "tensor_scalar_reduce(dst=x, data=x, op0=nl.multiply, operand0=v, reduce_op=nl.add, "
        "reduce_res=r)"),
    "scalar_tensor_tensor, operand0": (
        ALL, X, "v", ONE,
        "scalar_tensor_tensor(dst=x, data=x, op0=nl.multiply, operand0=v, op1=nl.add, operand1=x)"),
    "activation, scale": (F32, X, "v", ONE, "activation(dst=x, op=nl.exp, data=x, scale=v)"),
    "activation, bias": (
        ALL - {"tfloat32"}, X, "v", ONE, "activation(dst=x, op=nl.exp, data=x, bias=v)"),
    "tensor_copy_predicated, predicate": (
        {"uint8", "uint16", "uint32"}, X, "v", 64,
        "tensor_copy_predicated(dst=x, src=x, predicate=v)"),
    "nc_matmul": (
        FLOAT - {"tfloat32"}, tile("p", "float32", 64, 64, "psum"), "v", 64,
        "nc_matmul(dst=p, stationary=v, moving=v)"),
    "tensor_scalar_cumulative, src": (
        ALL - {"int32", "uint32"}, tile("o", "float32"), "v", 64,
        "tensor_scalar_cumulative(dst=o, src=v, op0=nl.add, op1=nl.add, imm0=1.0, "
        "reduce_cmd=nisa.reduce_cmd.reset_reduce)"),
    "local_gather, index": (
        {"uint16"}, X + tile("o", "float32", 16), "v", ONE,
        "local_gather(dst=o, src_buffer=x, index=v)"),
    "local_gather, dst": (
        F32, X + tile("i", "uint16", 1), "v", 16, "local_gather(dst=v, src_buffer=x, index=i)"),
    "nc_n_gather, indices": (
        {"uint32"}, X + tile("o", "float32"), "v", 64, "nc_n_gather(dst=o, data=x, indices=v)"),
    "nc_n_gather, dst": (
        F32, X + tile("i", "uint32"), "v", 64, "nc_n_gather(dst=v, data=x, indices=i)"),
    "nc_stream_shuffle, dst": (
        F32, X, "v", 64, "nc_stream_shuffle(dst=v, src=x, shuffle_mask=[*range(32)])"),
    "nc_transpose, dst of 32 x 32": (
        F32, tile("x", "float32", 32, 32), "v", 32,
        "nc_transpose(dst=v[0:32], data=x, engine=nisa.engine.vector)"),
    "dma_transpose, dst": (
        {"bfloat16"}, tile("x", "bfloat16", 128), "v", 128, "dma_transpose(dst=v, src=x)"),
    "rng, dst": (INTEGER, "", "v", 64, "rng(dst=v)"),
    "dropout of integers, prob": (
        F32, tile("x", "int32"), "v", ONE, "dropout(dst=x, data=x, prob=v)"),
    "dropout, prob": (FLOAT, X, "v", ONE, "dropout(dst=x, data=x, prob=v)"),
    "dropout, dst": (F32, X, "v", 64, "dropout(dst=v, data=x, prob=0.5)"),
    "set_rng_seed": (
        {"float32", "tfloat32", "int32", "uint32"}, "", "v", ONE, "set_rng_seed(src_seeds=v[0:1])"),
    "range_select, bound0": (
        F32, X + tile("o", "float32") + tile("b", "float32", 1), "v", ONE,
        "range_select(dst=o, on_true_tile=x, comp_op0=nl.less, comp_op1=nl.greater, bound0=v, "
        "bound1=b)"),
    "select_reduce, predicate": (
        {"int8", "uint8", "int16", "uint16"}, X + tile("o", "float32"), "v", 64,
        "select_reduce(dst=o, predicate=v, on_true=x, on_false=0.0)"),
}  # fmt: skip


def said(tmp_path, monkeypatch, body, target):
    """Return the rules that a kernel of this body breaks, notes on dtypes among them."""
    path = tmp_path / "kernel.py"
    path.write_text(
        HEAD + body + "    nisa.memset(dst=one, value=1)\n    nisa.dma_copy(dst=out, src=one)\n"
        "    return out\n"
    )
    linecache.checkcache(str(path))
    space = {"__name__": "given"}
    exec(compile(path.read_text(), path, "exec"), space)
    try:
        run = nkisim.run(space["kernel"], np.zeros((1, 1), np.float32), target=target)
    except nkisim.NkiError as error:
        return {error.id}
    return {f.id for f in run.findings if f.severity != "note" or f.id in ("NKI-D07", "NKI-R02")}


@pytest.mark.parametrize("what", OPERANDS)
def test_an_operand_takes_the_dtypes_that_are_documented(what, tmp_path, monkeypatch):
    takes, there, name, columns, call = OPERANDS[what]
    one = "    one = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)\n"
    for dtype in sorted(ALL):
        body = there + tile(name, dtype, columns) + one + f"    nisa.{call}\n"
        found = said(tmp_path, monkeypatch, body, "trn2") - {"NKI-U04"}
        assert bool(found) == (dtype not in takes), (what, dtype, found)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("call", ["nl.matmul(v, v, transpose_x=True)", "nl.transpose(v)"])
def test_the_tensor_engine_of_trn1_writes_float32(call, target, tmp_path, monkeypatch):
    one = "    one = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)\n"
    for dtype in ("float32", "bfloat16", "float16"):
        body = tile("v", dtype) + one + f"    p = {call}\n"
        found = said(tmp_path, monkeypatch, body, target) - {"NKI-U04"}
        assert found == ({"NKI-R38"} if target == "trn1" and dtype != "float32" else set())
