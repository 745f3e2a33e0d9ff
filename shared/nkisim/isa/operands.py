"""Operand rules that many instructions share: alignment, vector operands, dtypes of results."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, ops
from ..chip.memory import PSUM
from ..errors import fail
from ..machine.geometry import moved
from ..machine.instruction import Instr
from ..machine.machine import Machine
from ..machine.tensor import Tensor


def align(t: Tensor, rank: int) -> Tensor:
    """Return a tile with dims of size 1 inserted after the partition dim (trap 4)."""
    have = len(t.shape)
    if have >= rank:
        return t
    pad = rank - have
    item = t.dtype.itemsize
    return t.like(t.offset, (t.shape[0], *(1,) * pad, *t.shape[1:]),
                  (t.strides[0], *(item,) * pad, *t.strides[1:]), 0, moved(t.oob, t.shape, 1, pad))


def same_shape(a: Tensor, b: Tensor, names: tuple[str, str], api: str
               ) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Return two tiles aligned to one shape; dims of size 1 on the free axes repeat."""
    if a.shape == b.shape:
        return a, b, a.shape
    if a.shape[0] != b.shape[0]:
        raise fail("NKI-S04", f"{api}: the operands have different numbers of partitions",
                   given=f"{names[0]} {a.shape}, {names[1]} {b.shape}",
                   limit="nisa instructions never broadcast the partition dim",
                   hint="repeat the smaller one with nl.broadcast_to(x, shape=(128, n)), or use "
                        "the nl functions (nl.add ...), which do it for you")
    if len(a.shape) != len(b.shape):
        if a.size == b.size:                        # same elements, other grouping
            small, big = (a, b) if len(a.shape) < len(b.shape) else (b, a)
            if [n for n in small.shape if n > 1] != [n for n in big.shape if n > 1] \
                    and min(len(a.shape), len(b.shape)) == 2:
                flat = small.reshape(big.shape)
                return (flat, b, big.shape) if small is a else (a, flat, big.shape)
        rank = max(len(a.shape), len(b.shape))
        a, b = align(a, rank), align(b, rank)
    shape = tuple(x if y == 1 else y for x, y in zip(a.shape, b.shape))
    if any(x not in (n, 1) or y not in (n, 1) for x, y, n in zip(a.shape, b.shape, shape)):
        raise fail("NKI-S02", f"{api}: the operands have different shapes",
                   given=f"{names[0]} {a.shape}, {names[1]} {b.shape}",
                   limit="equal free dims, or dims of size 1 that repeat",
                   hint="slice both to the same tile")
    return a, b, shape


def not_both_psum(a: Tensor, b: Any, names: tuple[str, str], api: str) -> None:
    """Raise if both operands lie in PSUM: it has one read port for an instruction."""
    if a.kind is PSUM and isinstance(b, Tensor) and b.kind is PSUM:
        raise fail("NKI-M07", f"{api} reads both operands from PSUM",
                   given=f"{names[0]} {a!r}, {names[1]} {b!r}",
                   limit="at most one of two tile operands in PSUM",
                   hint="copy one to SBUF first: nl.copy(x)")


def is_scalar(x: Any) -> bool:
    return isinstance(x, (int, float, np.generic))


def vector(m: Machine, x: Any, partitions: int, name: str, api: str) -> Any:
    """Return a vector operand: a number, or a tile of shape (P, 1)."""
    if is_scalar(x):
        return x
    t = m.tile(x, name)
    if t.shape[0] != partitions or t.size != partitions:
        raise fail("NKI-S09", f"{api}: {name} is neither a number nor one element a partition",
                   given=f"shape {t.shape}", limit=f"a number or a tile of shape ({partitions}, 1)",
                   hint="for a tile of the same shape use nisa.tensor_tensor")
    return t


def split_vectors(*values: Any) -> tuple[tuple[Tensor, ...], tuple]:
    """Separate vector tiles from numbers: (tiles, template with None where a tile goes)."""
    tiles = tuple(v for v in values if isinstance(v, Tensor))
    return tiles, tuple(None if isinstance(v, Tensor) else v for v in values)


def values_of(ins: Instr, first: int, template: tuple, rank: int) -> list:
    """Return the run-time values of operands that `split_vectors` has split."""
    out: list = []
    k = first
    for v in template:
        if v is None:
            a = dtypes.as_float32(ins.srcs[k].np)
            out.append(a.reshape((a.shape[0],) + (1,) * (rank - 1)))
            k += 1
        else:
            out.append(v)
    return out


def result_dtype(dtype: Any, *operands: Any) -> np.dtype:
    """Return the dtype of a result: as asked, else promoted from the operands (2.0.2)."""
    if dtype is not None:
        got = dtypes.normalize(dtype)
        return dtypes.UINT8 if got == dtypes.BOOL else got
    out = None
    for x in operands:
        dt = x.dtype if isinstance(x, Tensor) else dtypes.of_scalar(x)
        out = dt if out is None else dtypes.promote(out, dt)
    assert out is not None
    return out


def check_bitvec(op: ops.AluOp, operands: tuple, api: str) -> None:
    """Raise if a bitvec operator meets a float."""
    if op.kind != "bitvec":
        return
    for x in operands:
        bad = dtypes.is_float(x.dtype) if isinstance(x, Tensor) else isinstance(x, float)
        if bad:
            raise fail("NKI-D06", f"{api}: nl.{op.name} works on raw bits",
                       given="a float operand", limit="integer operands and result",
                       hint="cast to an integer dtype, or .view() the bits as uint32")


def engine_name(engine: Any, allowed: tuple[str, ...], api: str, psum: bool = False) -> str:
    """Return the engine that an `engine=` argument asks for; unknown picks the default."""
    code = int(engine) if engine is not None else 0
    if code == 0:
        return ""
    name = {1: "tensor", 2: "scalar", 3: "gpsimd", 5: "vector", 6: "sync"}.get(code, str(code))
    if name not in allowed:
        raise fail("NKI-E01", f"{api} does not run on the {name} engine",
                   limit="engines: " + ", ".join(allowed), hint="leave engine= out")
    if name == "gpsimd" and psum:
        raise fail("NKI-E02", f"{api} on GpSimd touches PSUM",
                   limit="GpSimd reads and writes SBUF only",
                   hint="use the vector or scalar engine")
    return name
