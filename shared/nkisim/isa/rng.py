"""Vector Engine: random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, semantics
from ..chip.memory import SBUF
from ..machine import limits
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from . import formulas
from .dve import put
from .operands import Tile, Vector, result_dtype
from .table import VECTOR, instruction


def _run_dropout(m: Machine, ins: Instr, dst: Tensor) -> None:
    data = ins.srcs[0].np
    put(
        semantics.dropout(dtypes.as_float32(data), ins.scalar(0, data.ndim), m.core.registers.rng),
        dst,
    )


@instruction(
    "dropout",
    public="nisa.dropout",
    engines=(VECTOR,),
    nki="nisa.dropout(dst, data, prob)",
    operands=(Tile("data"), Vector("prob", numbers=True, like="data")),
    promotes=("data",),
    run=_run_dropout,
    cost=formulas.stream,
    source="Neuron SDK 2.26 API reference: nisa.dropout",
)
def dropout(m: Machine, data: Any, prob: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Replace elements by zero with probability `prob` (number or (P, 1)); no rescaling."""
    if dtypes.is_int(data.dtype) and dtype is not None and result_dtype(dtype) != data.dtype:
        m.find(
            "NKI-D07",
            "note",
            "nisa.dropout of integers makes another dtype; documented is that of the data",
            m.here(),
        )
    return Instr()


def _run_rand(m: Machine, ins: Instr, dst: Tensor) -> None:
    put(m.core.registers.rng.random(dst.shape, dtype=np.float32), dst)


@instruction(
    "rand",
    engines=(VECTOR,),
    run=_run_rand,
    cost=formulas.stream,
    source="Neuron SDK 2.26 API reference: nl.rand",
)
def rand(m: Machine, shape: Any, dtype: Any = None) -> Instr:
    """Return an SBUF tile of uniform random numbers in [0, 1)."""
    dims = tuple(int(n) for n in limits.sizes(shape))
    dt = dtypes.FLOAT32 if dtype is None else dtypes.normalize(dtype)
    limits.check_tile(m.hw, SBUF, dims, dt)
    return Instr(dims, dt)


def _run_seed(m: Machine, ins: Instr, dst: Tensor) -> None:
    number, at = ins.scalars[0]
    seed = int(number) if at < 0 else int(ins.srcs[at].np.reshape(-1)[0])
    m.core.registers.rng = np.random.default_rng(seed & 0xFFFFFFFF)


@instruction(
    "random_seed",
    engines=(VECTOR,),
    run=_run_seed,
    cost=formulas.stream,
    operands=(Tile("seed", numbers=True, elements=(1, 1)),),
    source="Neuron SDK 2.26 API reference: nl.random_seed",
)
def random_seed(m: Machine, seed: Any, *, mask: Any = None) -> Instr:
    """Seed the random number generator with an int or a (1, 1) tile."""
    return Instr((1, 1), dtypes.INT32)
