"""`nl.NkiTensor`: a view of a tensor, as kernels of this dialect hold it.

It wraps a tensor of the machine, or an access with a run-time offset. There are no operators and
no results: instructions write their `dst`. Integer subscripts, slices and the view methods give
other views of the same bytes; nothing is copied.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from math import prod
from typing import Any

from ...chip import dtypes, ops
from ...chip.memory import HBM, SBUF
from ...errors import NkiError, fail
from ...indexing.index import Slice, as_int
from ...indexing.indirect import Indirect
from ...loops import source
from ...machine import numpy_idioms, suggestions, truth_values
from ...machine.limits import integer
from ...machine.tensor import Tensor
from . import columns, refusals, views
from .assign import assign
from .enums import DataType, MemoryRegion
from .objects import NKIObject
from .registers import NkiScalar, VirtualRegister

_ON_CHIP = {"sbuf": MemoryRegion.sbuf, "psum": MemoryRegion.psum}


class Empty:
    """A view without elements, or one that leaves its tensor (`error`): kernels make such views
    where a core or a last tile has nothing to do, and do not use them."""

    def __init__(self, t: Tensor, shape: tuple[int, ...], error: NkiError | None = None):
        self.shape, self.dtype, self.memory, self.error = shape, t.dtype, t.memory, error


#: what `help(t.view)` shows: the compiler's view takes a data type and nothing else
VIEW_SIGNATURE = inspect.Signature(
    [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("self", "dtype")]
)


class NkiTensor(NKIObject):
    """An N-dimensional view of a tensor in HBM, SBUF or PSUM."""

    __slots__ = ("_base", "_t", "buffer", "name")

    def __init__(
        self,
        t: Tensor | Indirect,
        buffer: MemoryRegion | None = None,
        name: str = "",
        base: Tensor | None = None,
    ):
        self._t: Any = t
        self.buffer = buffer or _ON_CHIP.get(t.memory, MemoryRegion.private_hbm)
        self.name = name
        self._base: Tensor = t if base is None else base  # type: ignore[assignment]

    def _like(self, t: Any) -> NkiTensor:
        new = NkiTensor.__new__(NkiTensor)  # as __init__ does: a view is made very often
        new._t, new.buffer, new.name, new._base = t, self.buffer, self.name, self._base
        return new

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it."""
        return self._t._repr_html_()

    # -- what kernels may ask -------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        return self._t.shape

    @property
    def dtype(self) -> str:
        """Return the name of the dtype."""
        return dtypes.name(self._t.dtype)

    @property
    def ndim(self) -> int:
        return len(self._t.shape)

    @property
    def size(self) -> int:
        return prod(self._t.shape)

    @property
    def itemsize(self) -> int:
        return self._t.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the strides in elements; on chip the first is the storage's free size."""
        t = self._plain("strides")
        return tuple(s // t.dtype.itemsize for s in t.strides)

    @property
    def offset(self) -> int:
        """Return the place of the first element in the storage, in elements."""
        t = self._plain("offset")
        return (t.offset - views.origin(self._base)) // t.dtype.itemsize

    @property
    def data(self) -> NkiTensor:
        """Return the tensor itself: what instructions take, as of a grid (NKI 0.7)."""
        return self

    @property
    def base_tensor(self) -> NkiTensor:
        """Return the tensor that this is a view of: AWS's kernel library asks its arguments."""
        return NkiTensor(self._base, self.buffer, self.name)

    def __len__(self) -> int:
        return self._t.shape[0]

    def is_contiguous(self) -> bool:
        """Return whether the elements lie one after another, on chip within each partition."""
        t = self._plain("is_contiguous")
        step = t.dtype.itemsize
        dims = list(zip(t.shape, t.strides))
        for n, s in reversed(dims if t.memory is HBM else dims[1:]):
            if n != 1 and s != step:
                return False
            step *= n
        return True

    def get_pattern(self) -> list[list[int]]:
        """Return [[stride, count], ...] of the dims, in elements."""
        return [[s, n] for s, n in zip(self.strides, self.shape)]

    def is_indirect(self) -> bool:
        """Return whether a run-time offset is part of the view."""
        return isinstance(self._t, Indirect | columns.Columns)

    def _plain(self, what: str) -> Tensor:
        if self._t.__class__ is Empty:
            raise no_elements(self._t)
        if self.is_indirect():
            raise fail(
                "NKI-N02",
                f"{what} of a view that has a run-time offset",
                given=f"{self!r}",
                limit="an indirect view is used as it is",
                hint="make the other views first, then .ap, .select or .vector_select",
            )
        return self._t.settle()

    # -- views ----------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> NkiTensor:
        t, keys = self._t, key if type(key) is tuple else (key,)
        if t.__class__ is Tensor and t.pending is None:
            new = t.part(keys)
            if t.m.loops.nest is not None:
                if new is None:
                    new = t.m.loops.nest.view(t, keys)
                    if new is not None and new.oob is not None:
                        t.m.check_bounds(new)
                else:
                    t.m.loops.nest.follow(t, new)
            if new is not None and new.shape:
                return self._like(new)
        t = self._plain("a subscript")
        if range in [k.__class__ for k in keys]:  # nl.affine_range(n) as a subscript means 0:n
            keys = key = tuple(
                slice(k.start, k.stop, k.step) if k.__class__ is range else k for k in keys
            )
        for k in keys:
            if k.__class__ in (NkiTensor, VirtualRegister, NkiScalar, list) or isinstance(
                k, NkiTensor
            ):
                raise fail(
                    "NKI-N02",
                    "a tensor is subscripted by a value that the kernel computes",
                    given=f"{type(k).__name__} as a subscript",
                    limit="integers, slices, nl.ds and ...",
                    hint="t.select(dim, index), t.vector_select(0, indices), or "
                    "t.ap(pattern, scalar_offset=...)",
                )
        empty = _empty(t, keys)
        if empty is not None:
            return self._like(empty)
        new = t[key]
        if isinstance(new, Tensor) and new.oob is not None:
            t.m.check_bounds(new)
        if isinstance(new, Tensor) and not new.shape:  # HBM keeps one dim at least
            new = new.like(new.offset, (1,), (new.dtype.itemsize,), 0, None)
        return self._like(new)

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Return elements start .. end of one dim, every `step`-th."""
        keys: list[Any] = [slice(None)] * self.ndim
        keys[_dim(dim, self.ndim)] = slice(start, end, step if step != 1 else None)
        return self[tuple(keys)]

    def select(self, dim: int, index: Any) -> NkiTensor:
        """Return one element of a dim, without the dim; `index` may be a (1, 1) tensor."""
        d = _dim(dim, self.ndim)
        t = self._plain("select")
        n = as_int(index)
        if n is None:
            return self._like(views.dynamic_select(t, d, index))
        return self._like(views.select(t, d, n))

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Return rows of an HBM tensor that a tile of indices (P, 1) in SBUF chooses."""
        return self._like(views.vector_select(self._plain("vector_select"), dim, vector_offset))

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """Return the dims in another order; on chip dim 0 stays."""
        return self._like(views.permute(self._plain("permute"), dims))

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """Return a dim of size 1 repeated, by a stride of 0."""
        t = self._plain("broadcast")
        return self._like(views.broadcast(t, _dim(dim, self.ndim), size))

    def expand_dim(self, dim: int) -> NkiTensor:
        """Return the view with a dim of size 1 at `dim`."""
        t = self._plain("expand_dim")
        if t.memory is not HBM and dim == 0:
            raise views.partitions("expand_dim", t)
        return self._like(t.expand_dims(_dim(dim, self.ndim + 1)))

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Return the view without a dim of size 1."""
        t = self._plain("squeeze_dim")
        return self._like(views.squeeze(t, _dim(dim, self.ndim)))

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """Return the view with one dim split; one size may be -1."""
        t = self._plain("reshape_dim")
        return self._like(views.split(t, _dim(dim, self.ndim), shape))

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Return the view with dims start_dim .. end_dim as one; they must be contiguous."""
        t = self._plain("flatten_dims")
        a, b = _dim(start_dim, self.ndim), _dim(end_dim, self.ndim)
        if b < a:
            raise fail(
                "NKI-S06",
                "flatten_dims ends before it starts",
                given=f"dims {a} .. {b}",
                limit="start_dim <= end_dim",
            )
        return self.reshape((*t.shape[:a], prod(t.shape[a : b + 1]), *t.shape[b + 1 :]))

    def reshape(self, shape: Any, *more: Any) -> NkiTensor:
        """Return the same elements in another shape; on chip dim 0 stays.

        A tensor that is reshaped whole is the base of its access patterns from then on.
        """
        t, base = self._plain("reshape"), self._base
        sizes = (shape, *more) if as_int(shape) is not None else tuple(shape)
        new = views.reshape(t, sizes)
        whole = (t.offset, t.size * t.dtype.itemsize) == (
            base.offset,
            base.size * base.dtype.itemsize,
        )
        return NkiTensor(new, self.buffer, self.name, new if whole else base)

    def rearrange(
        self, src_pattern: tuple, dst_pattern: tuple, fixed_sizes: dict[str, int] | None = None
    ) -> NkiTensor:
        """Split, reorder and merge dims by name."""
        return self._like(
            views.rearrange(self._plain("rearrange"), src_pattern, dst_pattern, fixed_sizes or {})
        )

    def view(self, dtype: Any, *more: Any) -> NkiTensor:
        """Return the same bytes as another dtype; the last dim scales."""
        if more or type(dtype) in (int, tuple):
            shape = dtype if type(dtype) is tuple else (dtype, *more)
            raise fail(
                "NKI-K14",
                "t.view takes a data type",
                given=f"{shape}",
                hint=f"t.reshape({shape}) regroups elements",
            )
        return self._like(self._plain("view").view(dtype))

    view.__signature__ = VIEW_SIGNATURE  # type: ignore[attr-defined]
    reinterpret_cast = view

    def __format__(self, how: str) -> str:
        """Return the tensor's text; raise NKI-K14 for a format, which would need values."""
        return numpy_idioms.formatted(self, how)

    def ap(
        self,
        pattern: Any,
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """Return an access pattern [[stride, count], ...] over the storage, in elements.

        `offset` is added to the view's own. A run-time offset counts in strides of the base
        tensor's dim `indirect_dim`.
        """
        t = self._plain("ap")
        if scalar_offset is not None and t.memory is SBUF and as_int(scalar_offset) is None:
            refusals.offset(t.m)
        try:
            return self._like(
                views.pattern(
                    t,
                    self._base,
                    pattern,
                    offset,
                    scalar_offset,
                    vector_offset,
                    integer(indirect_dim, "indirect_dim"),
                    dtype,
                )
            )
        except NkiError as error:
            if error.id != "NKI-I01":
                raise
            return self._like(Empty(t, tuple(int(n) for _, n in pattern), error))

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Return the columns that a tile of offsets chooses (see columns.py); NeuronCore-v4."""
        return self._like(columns.of(self._plain("indirect"), index, num_elem))

    def __copy__(self, memo: Any = None) -> NkiTensor:
        return self  # a copy of a view would be the same bytes

    __deepcopy__ = __copy__

    # -- what there is not ----------------------------------------------------------------------
    def __setitem__(self, key: Any, value: Any) -> None:
        dst = self if key is Ellipsis else self[key]
        assign(self._base.m, dst._t, value._t if isinstance(value, NkiTensor) else value)

    def __iter__(self) -> Any:
        raise fail(
            "NKI-I08",
            "a tensor cannot be looped over",
            hint=suggestions.iterated(
                self._base.memory is not HBM, "for i in range(0, t.shape[0], 128)"
            ),
        )

    def __bool__(self) -> bool:
        return truth_values.of_view(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kw: Any) -> Any:
        return numpy_idioms.numpy_function(ufunc, method, inputs, kw)

    def __array__(self, *args: Any, **kw: Any) -> Any:
        raise numpy_idioms.no_value("np.array(...)")

    def __float__(self) -> float:
        raise numpy_idioms.no_value("float(...)")

    def __int__(self) -> int:
        raise numpy_idioms.no_value("int(...)")

    def __eq__(self, other: Any) -> Any:
        # one element: `if scale == 1.0` is asked of parameters that may be tiles or numbers
        if isinstance(other, (int, float)) and getattr(self._t, "size", 0) == 1:
            return truth_values.compared_with_number(other)
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"NkiTensor(shape={self._t.shape}, dtype={self.dtype}, buffer={self.buffer.value})"

    def __str__(self) -> str:
        return f"{self!r}: {numpy_idioms.VALUES}"


source.PLAIN.update((NkiTensor, MemoryRegion, DataType))


def no_elements(t: Empty) -> NkiError:
    """Return the error for a use of a view without elements, or of one that leaves its tensor."""
    return t.error or fail(
        "NKI-I01",
        "a view without elements is used",
        given=f"shape {t.shape}",
        limit="at least one element in each dim",
        hint="a slice goes from start to start + size: x[i:i + 128]; where there is nothing to do, "
        "leave the instruction out: if stop > start: ...",
    )


def _empty(t: Tensor, keys: tuple) -> Empty | None:
    """Return the view of a subscript a:a, None if it selects something."""
    cuts = [
        d
        for d, k in enumerate(keys)
        if k.__class__ is slice and k.stop is not None and k.start is not None and k.start == k.stop
    ]
    if (
        not cuts
        or Ellipsis in [k for k in keys if k is Ellipsis]
        or not all(d < len(t.shape) and 0 <= keys[d].start <= t.shape[d] for d in cuts)
    ):
        return None
    return Empty(t, tuple(0 if d in cuts else n for d, n in enumerate(t.shape)))


def _dim(dim: Any, rank: int) -> int:
    d = integer(dim, "a dim")
    if not -rank <= d < rank:
        raise fail("NKI-S06", f"dim {d} does not exist", limit=f"0 .. {rank - 1}")
    return d % rank


def _instead(t: NkiTensor, symbol: str, name: str, other: Any, turned: bool) -> str:
    """Return what to write for an operator on a tensor."""
    plain = symbol if symbol in ("<=", ">=") else symbol.rstrip("=")
    bias = isinstance(other, (int, float)) or (  # what no product gives
        other.__class__ is NkiTensor
        and other.buffer is not MemoryRegion.psum
        and not (symbol == "+=" and other.shape == t.shape)
    )
    if t.buffer is MemoryRegion.psum and (plain == "@" or plain == "+" and not bias):
        return (
            "nisa.nc_matmul(dst=acc, stationary=..., moving=...): the first write to a place "
            "of PSUM overwrites, later ones add"
        )
    if plain in ("<", "<=", ">", ">="):
        return suggestions.comparison(t, symbol, name, other)
    if other is None:
        return suggestions.unary(t, symbol)
    return suggestions.operator(t, plain, name, other, turned)


def _no_operator(symbol: str, name: str, turned: bool = False) -> Any:
    def method(self: NkiTensor, other: Any = None) -> Any:
        raise fail(
            "NKI-N04",
            f"tensors have no operator {symbol}",
            given=f"{self!r} {symbol} ...",
            limit="results are written by instructions, into a dst",
            hint=_instead(self, symbol, name, other, turned),
        )

    return method


for _symbol, _method, _name in (
    *(op[:3] for op in ops.ARITHMETIC),
    ("//", "floordiv", "divide"),
    ("@", "matmul", "matmul"),
):
    for _prefix in ("", "r", "i"):
        setattr(
            NkiTensor,
            f"__{_prefix}{_method}__",
            _no_operator(_symbol + ("=" if _prefix == "i" else ""), _name, _prefix == "r"),
        )
for _symbol, _method, _name in (
    *(op[:3] for op in ops.COMPARISONS if op.method not in ("eq", "ne")),
    ("-", "neg", "negative"),
    ("~", "invert", "invert"),
    ("abs", "abs", "abs"),
):
    setattr(NkiTensor, f"__{_method}__", _no_operator(_symbol, _name))


#: what this dialect has for what people ask a tensor for, where it is not that of neuronxcc.nki
_HINTS = {
    "unsqueeze": "t.expand_dim(dim)",
    "squeeze": "t.squeeze_dim(dim)",
    "flatten": "t.flatten_dims(first, last)",
    "ravel": "t.flatten_dims(first, last)",
    **dict.fromkeys(("expand", "repeat", "tile", "broadcast_to"), "t.broadcast(dim, size)"),
    **dict.fromkeys(
        ("astype", "to", "type", "float", "half", "bfloat16", "int"),
        "nisa.tensor_copy(dst, t), with dst of that dtype",
    ),
    **dict.fromkeys(("copy", "clone"), "nisa.tensor_copy(dst, t)"),
    **dict.fromkeys(
        ("T", "mT", "transpose", "t", "swapaxes"),
        "nisa.nc_transpose(dst=p, data=t), with p in nl.psum and of the dtype of "
        "t, up to 128 x 128; t.permute for free dims",
    ),
    **dict.fromkeys(
        ("matmul", "dot", "mm", "bmm", "einsum"),
        "nisa.nc_matmul(dst=p, stationary=..., moving=...), with p in nl.psum",
    ),
    **dict.fromkeys(
        ("clip", "clamp"),
        "nisa.tensor_scalar(dst, t, op0=nl.maximum, operand0=low, op1=nl.minimum, operand1=high)",
    ),
    "expand_dims": "t.expand_dim(dim)",
    **dict.fromkeys(("fill", "fill_"), "nisa.memset(t, value)"),
}
for _name in sorted({*numpy_idioms.METHODS, *_HINTS}):
    if not hasattr(NkiTensor, _name):
        setattr(NkiTensor, _name, numpy_idioms.no_method(_name, _HINTS))


def plain(x: Any) -> Any:
    """Return the machine's tensor of an NkiTensor; anything else as it is."""
    return x._t if x.__class__ is NkiTensor else x


def wrap(t: Any, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """Return a tensor of the machine as kernels hold it; its instruction is issued."""
    return NkiTensor(t.settle(), buffer, name)


__all__ = ["NKIObject", "NkiTensor", "Slice", "plain", "wrap"]
