"""What a machine refuses: operands in the wrong place, partitions, writes of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..chip import dtypes
from ..chip.memory import PSUM
from ..errors import NkiError, fail
from ..indexing.index import Index, Mask
from . import suggestions
from .block import BlockTensor
from .tensor import Indirect, Shifted, Tensor

if TYPE_CHECKING:
    from .interface import Machine

MAX_DIMS = 5  # of an access pattern: the partition dim and 4 free dims


def not_a_tile(value: Any, name: str) -> NoReturn:
    """Raise for an operand that is no tile."""
    if isinstance(value, BlockTensor):
        raise fail(
            "NKI-P03",
            f"operand {name} still has block dimensions",
            given=f"shape {value.shape}",
            hint="index the block dims first: t[i]",
        )
    if isinstance(value, Indirect):
        raise fail(
            "NKI-I11",
            f"operand {name} is an indirect access",
            limit="only nl.load, nl.store, nisa.dma_copy and nisa.tensor_copy_dynamic_* "
            "take index tiles",
            hint="load it into a tile first",
        )
    if isinstance(value, np.ndarray):
        raise fail(
            "NKI-M02",
            f"operand {name} is a NumPy array",
            given=f"numpy array of shape {value.shape}",
            limit="instructions work on tiles",
            hint=suggestions.host_array(value),
        )
    if isinstance(value, Mask):
        raise fail(
            "NKI-M02",
            f"operand {name} is a mask, not a tile",
            limit="a condition over indices goes to mask= or to pred= of nisa.affine_select",
            hint="nisa.affine_select(pred=..., on_true_tile=x, on_false_value=v) takes it",
        )
    if isinstance(value, (Index, Shifted)):
        raise fail(
            "NKI-M02",
            f"operand {name} is an index expression, not a tile",
            hint="nisa.iota(expr, dtype) turns it into a tile",
        )
    not_of_nki(value, name)
    raise fail(
        "NKI-M02",
        f"operand {name} is not a tile",
        given=f"{type(value).__name__}",
        limit="a tensor in SBUF or PSUM",
        hint=(
            "an operator stands where a tile does: look at the order of the arguments, or name them"
            if callable(value) and not isinstance(value, str)
            else suggestions.no_tile(name, value)
        ),
        nki_hint="an instruction returns a handle, not its result: use the tile that it was "
        "given as dst"
        if type(value).__name__ == "NkiInstruction"
        else "",
    )


def of_another_launch(t: Tensor) -> NoReturn:
    """Raise for a tensor that an earlier launch has made and the kernel has kept."""
    made = t.m.trace.where(t.storage.where) if t.storage is not None else None
    raise fail(
        "NKI-K19",
        "a tensor of an earlier launch is used",
        given=f"{t!r}" + (f", made at {made}" if made else ""),
        limit="a tensor ends with the launch that made it: SBUF and PSUM belong to the next "
        "kernel then",
        hint="make it in the kernel each time; what has to last from launch to launch is an "
        "output, and an argument of the next one",
    )


def mixed(what: str, hint: str = "") -> NkiError:
    """Return the error for two dialects in one kernel."""
    return fail(
        "NKI-K20",
        what,
        limit="a kernel has one dialect",
        hint=hint
        or "this file mixes two dialects, neuronxcc.nki and nki: write `import nki`, "
        "`import nki.isa as nisa` and `import nki.language as nl`, or neuronxcc.nki "
        "in all three",
    )


def not_of_nki(value: Any, name: str) -> None:
    """Raise for a tensor of nki among the operands of neuronxcc.nki."""
    if type(value).__name__ == "NkiTensor":
        raise mixed(f"operand {name} is a tensor of nki, the instruction is of neuronxcc.nki")


def rank(m: Machine, tile: Tensor, name: str) -> None:
    """Report a tile of more dims than an access pattern has, contiguous ones counting once.

    The compiler splits such an instruction; here it stays one, so that its start-up cost is
    counted once only.
    """
    real = [(n, s) for n, s in zip(tile.shape[1:], tile.strides[1:]) if n > 1]
    dims = 1 + sum(1 for (_, s), (n, inner) in zip(real, [*real[1:], (0, 0)]) if s != n * inner)
    if dims > MAX_DIMS:
        m.find(
            "NKI-S03",
            "warning",
            f"operand {name} of shape {tile.shape} has {dims} dims (contiguous ones counted once) "
            f"and an access pattern has {MAX_DIMS}, the partition dim and {MAX_DIMS - 1} free "
            "dims: the compiler splits this into several instructions, which are predicted "
            "as one. Copy to a contiguous tile first, or loop over one of the dims",
            m.here(),
        )


def out_of_scope(m: Machine, tile: Tensor, name: str) -> NoReturn:
    """Raise for a tile whose loop has ended."""
    assert tile.storage is not None
    raise fail(
        "NKI-L01",
        f"operand {name} was created inside a loop that has ended",
        given=f"tile created at {m.trace.where(tile.storage.where)}",
        limit="a tile bound in a loop body is visible in that body only",
        hint="make a tile for the sum before the loop, and add to it inside: "
        f"acc = nl.zeros({tile.shape}, dtype=nl.float32, buffer=nl.psum); "
        "acc += nisa.nc_matmul(...)"
        if tile.memory is PSUM
        else "create the tensor before the loop (nl.ndarray, nl.zeros) and assign to "
        "it inside: t[...] = ...",
        nki_hint="create the tile before the loop with nl.ndarray, and write it inside: dst=t",
    )


def start_partition(t: Tensor) -> None:
    """Enforce where a range of partitions may start."""
    p0, n = t.offset // t.storage.row_bytes, t.shape[0]  # type: ignore[union-attr]
    step = 128 if n > 64 else 64 if n > 32 else 32
    if p0 % step:
        allowed = {128: "0", 64: "0 or 64", 32: "0, 32, 64 or 96"}[step]
        raise fail(
            "NKI-P04",
            "an instruction starts at a partition where it cannot",
            given=f"{n} partition(s) from partition {p0}",
            limit=f"{n} partitions start at {allowed}",
            hint="engines read from partition 0, 32, 64 or 96; move data across "
            "partitions with a DMA, a transpose or nisa.nc_stream_shuffle",
        )


def immutable(t: Tensor) -> NoReturn:
    """Raise for a write into a kernel's input."""
    raise fail(
        "NKI-O01",
        "the kernel writes into one of its inputs",
        given=f"{t!r} is a kernel parameter",
        limit="parameters are read-only unless annotated nt.mutable_tensor",
        hint="create the output with nl.ndarray(..., buffer=nl.shared_hbm) and return it",
    )


def assigned_hbm(dst: Any) -> NoReturn:
    """Raise for an assignment to HBM."""
    raise fail(
        "NKI-M03",
        "an HBM tensor is assigned to directly",
        given=f"destination of shape {dst.shape} in HBM",
        limit="only DMA writes HBM",
        hint=suggestions.assigned_hbm(),
        nki_hint="nisa.dma_copy(dst=out, src=tile)",
    )


def bounds(name: str, args: tuple) -> NoReturn:
    """Raise for the bounds of a loop that Python's range does not take."""
    if len(args) == 3 and all(type(a) is int for a in args):
        raise fail(
            "NKI-L03",
            f"{name} does not move",
            given="step 0",
            limit="a step that is not 0",
            hint=f"{name}(start, stop, tile)",
        )
    given = ", ".join(f"{type(a).__name__} {a!r}"[:60] for a in args) or "no bounds"
    raise fail(
        "NKI-K05",
        f"the bounds of {name} must be integers",
        given=given,
        limit="(stop), (start, stop) or (start, stop, step)",
        hint=suggestions.no_bound(args) or "use // instead of / so that sizes stay integers",
    )


def narrow_sum(m: Machine, dst: Tensor) -> None:
    """Raise for products that are added up as integers; say it of those in 16 bits."""
    if dtypes.is_int(dst.dtype):
        raise fail(
            "NKI-D08",
            "a matmul adds to an integer accumulator",
            given=f"{dst!r}",
            limit="PSUM adds up products as float32",
        )
    m.find(
        "NKI-D11",
        "warning",
        f"products are added up in {dtypes.name(dst.dtype)}: each sum is "
        "rounded to it, and an instruction of its own adds",
        m.here(),
        dst.storage.where,
    )


def does_not_fit(dst: Tensor, shape: tuple[int, ...]) -> NoReturn:
    """Raise for a value of `shape` that is assigned to a destination of another one."""
    if dst.shape[0] == 1 and dst.shape[1:] == shape:
        hint = (
            f"dims before the partition dim are marked: nl.ndarray((n, nl.par_dim({shape[0]}), "
            "...)), and t[i] is then a tile"
        )
    else:
        hint = suggestions.value(dst, shape)
    raise fail(
        "NKI-S01",
        "the destination has another shape than the value",
        given=f"destination {dst.shape}, value {shape}",
        limit="equal shapes; only dims of size 1 of the value are repeated",
        hint=hint,
    )
