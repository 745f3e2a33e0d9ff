"""Views of tensors: other shapes and strides over the same bytes, with or without run-time offsets.

Functions take and return tensors of the machine (or the indirect accesses of it); `NkiTensor` is
the form in which kernels hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...chip import dtypes
from ...chip.memory import HBM, SBUF, merge_dims
from ...errors import NkiError, fail
from ...indexing.index import as_int
from ...indexing.indirect import Indirect, Patterned
from ...machine import regroupings
from ...machine.interface import Machine
from ...machine.limits import integer
from ...machine.tensor import Tensor
from .registers import held


def origin(base: Tensor) -> int:
    """Return the byte at which a tensor begins in its storage."""
    return base.offset


def partitions(what: str, t: Tensor) -> NkiError:
    """Return the error for a view that would touch the partition dim."""
    return fail(
        "NKI-S07",
        f"{what} would move data across partitions",
        given=f"shape {t.shape}",
        limit="on chip dim 0 is the partitions, and stays",
        hint="view the tensor so in HBM before the copy, or transpose",
    )


def _sizes(shape: Sequence[Any], what: str) -> list[int]:
    return [integer(n, f"a size of {what}") for n in shape]


def _filled(sizes: list[int], total: int) -> tuple[int, ...]:
    """Return sizes with -1 replaced by the rest of `total`; raise NKI-S06 for others below 1."""
    if sizes.count(-1) == 1:
        rest = prod(n for n in sizes if n != -1)
        sizes[sizes.index(-1)] = total // rest if rest else 0
    if min(sizes, default=1) < 1:
        raise fail(
            "NKI-S06",
            "a view has a size below 1",
            given=f"{tuple(sizes)}",
            limit="positive sizes; one may be -1: what is left",
        )
    return tuple(sizes)


def reshape(t: Tensor, shape: Sequence[Any]) -> Tensor:
    """Return the same elements in another shape; on chip the partition dim stays."""
    new = _filled(_sizes(shape, "a reshape"), t.size)
    if t.memory is not HBM and prod(new) == t.size:
        if not new or new[0] != t.shape[0]:
            raise fail(
                "NKI-S07",
                "reshape would move data across partitions",
                given=f"{t.shape} to {new}",
                limit="on chip shape[0] stays",
                hint="reshape in HBM before the copy, or transpose",
            )
        free = merge_dims(t.shape[1:], t.strides[1:], new[1:])
        if free is None:
            raise fail(
                "NKI-S07",
                "this reshape is no view of a strided tile",
                given=f"{t.shape} with strides {t.strides} (bytes) to {new}",
                limit="dims that merge are contiguous",
                hint="reshape the whole tensor before slicing it, or copy it first",
            )
        regroupings.reshaped(t.m, t, new)
        return t.like(t.offset, new, (t.strides[0], *free), 0, None)
    return t.reshape(new)


def split(t: Tensor, dim: int, shape: Sequence[Any]) -> Tensor:
    """Return a view with one dim split into several."""
    parts = _filled(_sizes(shape, "reshape_dim"), t.shape[dim])
    if prod(parts) != t.shape[dim]:
        raise fail(
            "NKI-S06",
            f"reshape_dim of dim {dim} to another number of elements",
            given=f"{t.shape[dim]} to {parts}",
            limit="as many elements as the dim has",
        )
    if t.memory is not HBM and dim == 0 and parts[0] != t.shape[0]:
        raise partitions("reshape_dim", t)
    step = t.strides[dim]
    strides: list[int] = []
    for n in reversed(parts):
        strides.insert(0, step)
        step *= n
    return t.like(
        t.offset,
        (*t.shape[:dim], *parts, *t.shape[dim + 1 :]),
        (*t.strides[:dim], *strides, *t.strides[dim + 1 :]),
        0,
        None,
    )


def permute(t: Tensor, dims: Sequence[int]) -> Tensor:
    """Return a view with its dims in another order."""
    order = tuple(integer(d, "a dim") for d in dims)
    if sorted(order) != list(range(len(t.shape))):
        raise fail(
            "NKI-S06",
            "permute does not name every dim once",
            given=f"{order}",
            limit=f"the dims 0 .. {len(t.shape) - 1} in some order",
        )
    if t.memory is not HBM and order[0] != 0:
        raise partitions("permute", t)
    return t.like(
        t.offset, tuple(t.shape[d] for d in order), tuple(t.strides[d] for d in order), 0, None
    )


def broadcast(t: Tensor, d: int, size: int) -> Tensor:
    """Return a view with a dim of size 1 repeated."""
    n = integer(size, "a size")
    if t.shape[d] != 1:
        raise fail(
            "NKI-S02",
            f"broadcast of dim {d}, which has more than one element",
            given=f"shape {t.shape}",
            limit="only dims of size 1 repeat",
        )
    if t.memory is not HBM and d == 0 and n != 1:
        raise partitions("broadcast", t)
    return t.like(
        t.offset,
        (*t.shape[:d], n, *t.shape[d + 1 :]),
        (*t.strides[:d], 0, *t.strides[d + 1 :]),
        0,
        None,
    )


def squeeze(t: Tensor, d: int) -> Tensor:
    """Return a view without a dim of size 1."""
    if t.shape[d] != 1:
        raise fail(
            "NKI-S06",
            f"squeeze_dim of dim {d}, which has more than one element",
            given=f"shape {t.shape}",
            limit="a dim of size 1",
        )
    if t.memory is not HBM and d == 0:
        raise partitions("squeeze_dim", t)
    return _without(t, d, 0)


def _without(t: Tensor, d: int, index: int) -> Tensor:
    """Return a view of one element of a dim, without the dim; a tile keeps two dims."""
    shape = (*t.shape[:d], *t.shape[d + 1 :])
    strides = (*t.strides[:d], *t.strides[d + 1 :])
    least = 1 if t.memory is HBM else 2
    if len(shape) < least:
        shape, strides = (*shape, 1), (*strides, t.dtype.itemsize)
    return t.like(t.offset + index * t.strides[d], shape, strides, 0, None)


def select(t: Tensor, d: int, index: int) -> Tensor:
    """Return one element of a dim, without the dim (on chip dim 0 stays, of size 1)."""
    n = t.shape[d]
    if not -n <= index < n:
        raise fail(
            "NKI-I01",
            f"index {index} is outside of dimension {d}",
            limit=f"0 .. {n - 1} (tensor of shape {t.shape})",
        )
    if t.memory is not HBM and d == 0:
        index %= n
        return t[index : index + 1]
    return _without(t, d, index % n)


def rearrange(t: Tensor, src: Sequence[Any], dst: Sequence[Any], known: dict[str, int]) -> Tensor:
    """Split, reorder and merge dims by name: ('b', ('h', 'w')) to ('b', 'w', 'h')."""
    sizes: dict[str, int] = {str(k): integer(v, "a size") for k, v in known.items()}
    groups = [(g,) if isinstance(g, str) else tuple(g) for g in src]
    if len(groups) != len(t.shape):
        raise fail(
            "NKI-S06",
            "rearrange names another number of dims",
            given=f"{src!r}",
            limit=f"{len(t.shape)} dims (shape {t.shape})",
        )
    for d in range(len(groups) - 1, -1, -1):
        names = groups[d]
        if len(names) == 1:
            sizes.setdefault(names[0], t.shape[d])
            continue
        t = split(t, d, [sizes.get(n, -1) for n in names])
        for k, n in enumerate(names):
            sizes[n] = t.shape[d + k]
    flat = [n for g in groups for n in g]
    target = [(g,) if isinstance(g, str) else tuple(g) for g in dst]
    wanted = [n for g in target for n in g]
    if sorted(flat) != sorted(wanted):
        raise fail(
            "NKI-S06",
            "rearrange has other names on its two sides",
            given=f"{flat} and {wanted}",
            limit="the same names, each once",
        )
    moved = permute(t, [flat.index(n) for n in wanted])
    return reshape(moved, [prod(sizes[n] for n in g) for g in target])


# -- access patterns -----------------------------------------------------------------------------


def pattern(
    t: Tensor,
    base: Tensor,
    pairs: Any,
    offset: Any,
    scalar_offset: Any,
    vector_offset: Any,
    indirect_dim: int,
    dtype: Any,
) -> Tensor | Indirect:
    """Return the view of a storage that [[stride, count], ...] says, in elements of `dtype`."""
    dt = t.dtype if dtype is None else dtypes.normalize(dtype)
    if not isinstance(pairs, (list, tuple)) or not all(
        isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs
    ):
        raise fail(
            "NKI-N03",
            ".ap takes pairs",
            given=f"pattern={pairs!r}"[:90],
            limit="[[stride, count], ...], on chip the partitions first",
            hint="t.get_pattern() is that of the view itself",
        )
    if offset is not None and not isinstance(offset, (int, np.integer)):
        raise fail(
            "NKI-N03",
            ".ap: offset is no number",
            given=f"{offset!r}"[:90],
            limit="elements, an int",
            hint="a number that the kernel computes goes with "
            "scalar_offset=, one for each row with vector_offset=",
        )
    steps = [(integer(p[0], "a stride"), integer(p[1], "a count")) for p in pairs]
    if not steps or min(n for _, n in steps) < 1:
        raise fail("NKI-N03", "an access pattern has a count below 1", given=f"{pairs!r}"[:90])
    more = 0 if offset is None else integer(offset, "offset")
    if vector_offset is not None and scalar_offset is not None:
        raise fail(
            "NKI-N02", ".ap is given two run-time offsets", limit="scalar_offset or vector_offset"
        )
    moved = vector_offset is not None or scalar_offset is not None
    if moved and (
        not 0 <= indirect_dim < len(base.shape) or vector_offset is not None and indirect_dim
    ):
        raise fail(
            "NKI-N02",
            ".ap: indirect_dim does not fit",
            given=f"indirect_dim={indirect_dim}",
            limit=f"a dim of the base tensor {base.shape}; 0 with vector_offset",
        )
    scale, rest = divmod(prod(base.shape[indirect_dim + 1 :]) * base.dtype.itemsize, dt.itemsize)
    if moved and rest:
        raise fail(
            "NKI-N02",
            ".ap: a run-time offset moves the pattern by a part of an element",
            given=f"indirect_dim={indirect_dim} of {base!r}, elements of {dtypes.name(dt)}",
            limit="steps of whole elements",
        )
    at = held(scalar_offset)
    if at is None and base.m.dialect.older:  # 0.1 and 0.2 take a number of Python as well
        at = as_int(scalar_offset)
    if at is not None:
        more, scalar_offset = more + at * scale, None
    moved = vector_offset is not None or scalar_offset is not None
    view = _strided(t, base, steps, more, dt, moved and (base.memory is HBM or indirect_dim > 0))
    if not moved:
        return view
    rows = _rows(scalar_offset) if vector_offset is None else _rows(vector_offset, columns=True)
    if vector_offset is not None:
        if base.memory is not HBM:
            raise fail(
                "NKI-N02",
                "vector_offset on a tensor that is not in HBM",
                given=f"{base!r}",
                limit="gathers and scatters of rows are DMAs",
            )
        if rows.size < view.shape[0] or rows.size > 1 == view.shape[0]:
            raise fail(
                "NKI-N02",
                "vector_offset has another number of rows than the pattern",
                given=f"{rows.size} offsets for {view.shape[0]} rows",
                limit="one offset for each row",
            )
        view = view.like(view.offset, view.shape, (0, *view.strides[1:]), 0, None)
    whole = base if dt == base.dtype else base.view(dt)
    if base.memory is not HBM and not indirect_dim:
        scale = base.strides[0] // dt.itemsize
    return Patterned(whole, view, rows, scale, _room(base, view, indirect_dim, scale))


def _room(base: Tensor, view: Tensor, dim: int, step: int) -> int:
    """Return how many numbers from 0 on a run-time offset may be: in HBM, rows of the tensor; on
    chip those with which the pattern stays inside of the tensor, in each partition."""
    if base.memory is HBM:
        return base.shape[dim]
    item = view.dtype.itemsize
    p, at = divmod(view.offset - base.offset, base.strides[0])
    if dim == 0:
        return base.shape[0] - p - view.shape[0] + 1
    end = at + sum(max(0, (n - 1) * s) for n, s in zip(view.shape[1:], view.strides[1:]))
    free = prod(base.shape[1:]) * base.dtype.itemsize
    return min(base.shape[dim], (free - item - end) // (step * item) + 1)


def _strided(
    t: Tensor, base: Tensor, steps: list[tuple[int, int]], more: int, dt: np.dtype, dynamic: bool
) -> Tensor:
    item = dt.itemsize
    counts = tuple(n for _, n in steps)
    if t.memory is HBM:
        start = t.offset + more * item
        strides = tuple(s * item for s, _ in steps)
        ends = [(n - 1) * s for n, s in zip(counts, strides)]
        lo, hi = start + sum(min(e, 0) for e in ends), start + sum(max(e, 0) for e in ends) + item
        if not dynamic and (lo < 0 or hi > t.storage.nbytes):
            raise _outside(lo // item, (hi - 1) // item, t.storage.nbytes // item, base)
        return t.like(start, counts, strides, 0, None, dt)
    free = prod(base.shape[1:]) * base.dtype.itemsize // item
    row = base.strides[0]
    (step, n), rest = steps[0], steps[1:]
    if n > 1 and step != free:
        raise fail(
            "NKI-N03",
            "the first pair of an access pattern on chip is not the partitions",
            given=f"[{step}, {n}] on a tensor of {free} elements a partition",
            limit=f"a stride of {free}: partitions follow each other",
            hint=f"[[{free}, {n}], ...]; use t.get_pattern() as a start",
        )
    p0, f0 = divmod(t.offset - base.offset, row)
    p, f = divmod(p0 * free + f0 // item + more, free)
    ends = [(c - 1) * s for s, c in rest]
    lo, hi = f + sum(min(e, 0) for e in ends), f + sum(max(e, 0) for e in ends)
    if not 0 <= p <= p + n <= base.shape[0]:
        raise _outside(p, p + n - 1, base.shape[0], base, "partitions")
    if not dynamic and (lo < 0 or hi >= free):
        raise _outside(lo, hi, free, base)
    if not rest:
        rest, counts = [(1, 1)], (*counts, 1)
    return t.like(
        base.offset + p * row + f * item, counts, (row, *(s * item for s, _ in rest)), 0, None, dt
    )


def _outside(lo: int, hi: int, n: int, base: Tensor, what: str = "elements") -> NkiError:
    return fail(
        "NKI-I01",
        "an access pattern leaves the tensor",
        given=f"{what} {lo} .. {hi}",
        limit=f"0 .. {n - 1} (tensor of shape {base.shape})",
    )


def _how_to_index(t: Any) -> str:
    """Return what to try for a tensor that is no run-time offset."""
    if not isinstance(t, Tensor) or t.memory is not SBUF:
        return "nisa.dma_copy the indices into SBUF first"
    if t.dtype.kind not in "iu":
        return "nisa.tensor_copy them into a tile of int32 first"
    return "one column: index[:, 0:1], and an instruction for each of the others"


def _rows(x: Any, columns: bool = False) -> Tensor:
    """Return the tile of a run-time offset; `columns`: it may have several a partition."""
    t = getattr(x, "_t", None)
    if (
        not isinstance(t, Tensor)
        or t.memory is not SBUF
        or t.dtype.kind not in "iu"
        or t.size != t.shape[0]
        and not (columns and len(t.shape) == 2)
    ):
        raise fail(
            "NKI-N02",
            "a run-time offset is no tile of indices",
            given=f"{x!r}"[:90],
            limit="an int32 or uint32 tile (1, 1) or (P, 1) in SBUF, a register or a scalar",
            hint=_how_to_index(t)
            if as_int(x) is None
            else "what Python knows is no run-time offset: .ap(pattern, offset=n) counts it in "
            "elements",
        )
    return t.settle()


def dynamic_select(t: Tensor, d: int, index: Any) -> Tensor | Indirect:
    """Return the element of a dim that a (1, 1) tile, register or scalar chooses, without it."""
    at = held(index)
    if at is not None:
        return select(t, d, at)
    if t.memory is not HBM and d == 0:
        raise partitions("select by a tile", t)
    rows = _rows(index)
    if rows.size != 1:
        raise fail(
            "NKI-N02",
            "select takes one index",
            given=f"shape {rows.shape}",
            limit="a (1, 1) tile",
            hint="t.vector_select(0, indices) takes one a partition",
        )
    return Patterned(t, _without(t, d, 0), rows, t.strides[d] // t.dtype.itemsize, t.shape[d])


def vector_select(t: Tensor, dim: Any, offsets: Any) -> Indirect:
    """Return rows of an HBM tensor, one for each index of a tile (P, 1)."""
    if as_int(dim) != 0 or t.memory is not HBM:
        raise fail(
            "NKI-N02",
            "vector_select selects rows of a tensor in HBM",
            given=f"dim {dim} of {t!r}",
            limit="dim 0, in HBM",
        )
    rows = _rows(offsets)
    view = t.like(t.offset, (rows.shape[0], *t.shape[1:]), (0, *t.strides[1:]), 0, None)
    return Patterned(t, view, rows, t.strides[0] // t.dtype.itemsize, t.shape[0])


def settled(m: Machine, x: Any) -> Any:
    """Return the tile that an operand with a run-time offset means now; others as they are."""
    if isinstance(x, Patterned) and x.rows.size == 1:
        m.catch_up()
        m.memory.unseen.add(x.rows.storage.id)  # type: ignore[union-attr]
        return x.at(int(x.rows.np.reshape(-1)[0]) if m.compute else 0)
    if isinstance(x, Indirect):
        raise fail(
            "NKI-I11",
            "an operand is an indirect access",
            limit="indices of rows go with nisa.dma_copy, nisa.dma_transpose and nisa.dma_compute",
            hint="copy the rows into a tile first",
        )
    return x
