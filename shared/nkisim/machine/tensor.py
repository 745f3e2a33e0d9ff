"""Tensors: a dtype and a strided access pattern over a storage.

Every subscript is a view (offset, shape, strides in bytes); nothing is copied. The result of an
instruction is a tensor whose instruction is still `pending`: assigning it (`t[...] = op(...)`),
accumulating it (`psum += nc_matmul(...)`) or using it decides where the instruction writes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip import dtypes, ops
from ..chip.memory import HBM, Storage, contiguous_strides, merge_dims
from ..errors import fail
from ..indexing import affine, basic
from ..indexing.geometry import Axis, Notes, carried, leaving, moved, reshaped
from ..indexing.index import Index, Mask, Slice, plain, whole
from ..indexing.indirect import Indirect, Shifted
from . import numpy_idioms, regroupings, suggestions, truth_values

if TYPE_CHECKING:
    from .interface import Machine

_ALL = slice(None)


Array = np.ndarray  # inside Tensor the name `np` is a property
Dtype = np.dtype


def _sliced(key: Any) -> Any:
    """Return a subscript with a slice for `nl.ds`."""
    return slice(key.start, key.start + key.size) if type(key) is Slice else key


class Tensor:
    """An N-dimensional tensor on HBM, SBUF or PSUM.

    `nblock` counts the block dims before the partition dim (always 0 on HBM). `oob` notes where
    the view leaves the tensor, until a mask or a subscript cuts that away (geometry.py).
    """

    __slots__ = (
        "m",
        "storage",
        "offset",
        "shape",
        "strides",
        "dtype",
        "nblock",
        "oob",
        "pending",
        "memory",
        "owner",
        "_np",
        "uncut",
        "__weakref__",
    )
    storage: Storage  # None while the instruction is pending, and in a BlockTensor
    uncut: tuple[tuple[int, ...], list[tuple[int, int]]]  # of what a mask has cut; else unset

    def __init__(
        self,
        m: Machine,
        storage: Any,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype,
        nblock: int = 0,
        memory: str = HBM,
    ):
        self.m, self.storage, self.offset = m, storage, offset
        self.shape, self.strides, self.dtype = shape, strides, dtype
        self.nblock = nblock
        self.oob: Notes = None
        self.pending: Any = None
        self.memory = memory
        self.owner: Any = None  # logical tile, where tiles may share bytes
        self._np: np.ndarray | None = None

    # -- what kernels may ask -------------------------------------------------
    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def size(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n

    def __len__(self) -> int:
        return self.shape[0]

    def assert_shape(self, shape: Any) -> Tensor:
        """Check the shape and return the tensor itself."""
        if tuple(shape) != self.shape:
            raise fail(
                "NKI-S05",
                "a tensor has another shape than the kernel says",
                given=f"shape {self.shape}",
                limit=f"shape {tuple(shape)}",
            )
        return self

    def _repr_html_(self) -> str:
        """Return what a notebook shows of it (`display(tile)` in a kernel)."""
        from .notebook_view import html

        return html(self.settle())

    # -- data -----------------------------------------------------------------
    @property
    def np(self) -> Array:
        """Return the elements as a NumPy view of the storage's bytes."""
        a = self._np
        if a is None:
            st = self.settle().storage
            assert st is not None
            if st.wide is None and dtypes.PRECISE.get():
                held = dtypes.FLOAT32 if self.dtype == dtypes.TFLOAT32 else self.dtype
                data = (
                    st.data
                    if self.oob is not None
                    else st.data_of(self.offset, self.shape, self.strides, held.itemsize)
                )
                a = self._np = np.ndarray(self.shape, held, data, self.offset, self.strides)
            else:  # not kept: the values move between bytes and float32
                a = self._elsewhere(st.elements(self.dtype))
        return a

    def to_write(self) -> None:
        """Let the next use of `np` be a write of all elements, without looking at any before."""
        if (
            self._np is None
            and self.oob is None
            and dtypes.PRECISE.get()
            and self.storage.wide is None
            and (data := self.storage.data_to_write()) is not None
        ):
            self._np = np.ndarray(
                self.shape, dtypes.storage(self.dtype), data, self.offset, self.strides
            )

    def _elsewhere(self, flat: Array) -> Array:
        """Return the tensor's elements out of all of its storage, whose item size may differ."""
        item, held = self.dtype.itemsize, flat.itemsize
        return np.ndarray(
            self.shape,
            flat.dtype,
            flat,
            self.offset // item * held,
            tuple(s // item * held for s in self.strides),
        )

    def settle(self) -> Tensor:
        """Make sure that the instruction that produces this tensor has been issued."""
        if self.pending is not None:
            self.m.flush()
        return self

    def same_place(self, other: Tensor) -> bool:
        """Return whether both are the same bytes in the same order; a nest notices who asks."""
        if (
            self.storage is not other.storage
            or self.shape != other.shape
            or self.strides != other.strides
        ):
            return False
        if self.m.loops.nest is not None:
            self.m.loops.nest.compared(self, other)
        return self.offset == other.offset

    # -- subscripts -----------------------------------------------------------
    def __getitem__(self, key: Any) -> Tensor:
        if self.pending is not None:
            self.m.flush()
        if key is Ellipsis:
            return self
        keys = key if type(key) is tuple or issubclass(type(key), tuple) else (key,)
        view = self.part(keys)
        if view is None:
            return self._subscript(keys)
        if self.m.loops.nest is not None:
            self.m.loops.nest.follow(self, view)
        return view

    def part(self, keys: tuple) -> Tensor | None:
        """Return the view that integers and slices inside of the tensor mean; None for others.

        Each operand of each instruction comes by here, so that it looks at a key only once.
        """
        if self.oob is not None or len(keys) > len(self.shape):
            return None
        part = nblock = self.nblock if self.memory is not HBM else -1
        offset, shape, strides = self.offset, [], []
        for d, (k, n, s) in enumerate(zip(keys, self.shape, self.strides)):
            if type(k) is slice:
                start, stop = k.start, k.stop
                if k.step is not None:
                    return None
                if stop is not None:
                    if type(stop) is not int or stop < 1 or stop > n:
                        return None
                    n = stop
                if start is not None:
                    if type(start) is not int or start < 0 or start >= n:
                        return None
                    offset += start * s
                    n -= start
            elif type(k) is int and 0 <= k < n:
                offset += k * s
                n = 1
                if d != part:  # a partition dim never goes away
                    nblock -= d < part
                    continue
            else:
                return None
            shape.append(n)
            strides.append(s)
        shape += self.shape[len(keys) :]
        strides += self.strides[len(keys) :]
        if part >= 0 and len(shape) < 2:  # tile[:, k] is (P, 1)
            shape.append(1)
            strides.append(self.dtype.itemsize)
        v = object.__new__(Tensor)  # as `__init__` and `like` do, sooner
        v.m, v.storage, v.dtype, v.memory = self.m, self.storage, self.dtype, self.memory
        v.offset, v.shape, v.strides = offset, tuple(shape), tuple(strides)
        v.nblock, v.owner = max(nblock, 0), self.owner
        v.oob = v.pending = v._np = None
        return v

    def _subscript(self, keys: tuple) -> Tensor:
        """Resolve the subscripts that the fast path leaves: `...`, ds, indices, past the end."""
        rank = len(self.shape)
        if (
            self.m.loops.nest is not None
            and (view := self.m.loops.nest.view(self, keys)) is not None
        ):
            return view
        keys = tuple(map(plain, keys))
        if (view := self.part(tuple(map(_sliced, keys)))) is not None:
            return view
        tiles = [d for d, k in enumerate(keys) if isinstance(k, (Tensor, Shifted))]
        if tiles or any(isinstance(k, Indirect) for k in keys):
            self.m.check_bounds(self)
            return Indirect.make(self, keys, tiles)  # type: ignore[return-value]
        if len(keys) == 1 and isinstance(keys[0], (Mask, bool)):
            return self.masked(keys[0])
        if Ellipsis in [k for k in keys if k.__class__ is type(Ellipsis)]:
            at = next(i for i, k in enumerate(keys) if k is Ellipsis)
            keys = (*keys[:at], *[_ALL] * (rank - len(keys) + 1), *keys[at + 1 :])
        if len(keys) > rank:
            raise fail(
                "NKI-I03",
                "more subscripts than dimensions",
                given=f"{len(keys)} subscripts",
                limit=f"shape {self.shape}",
            )
        keys = (*keys, *[_ALL] * (rank - len(keys)))
        if any(k.__class__ is Index for k in keys):
            return self.like(*affine.view(self.m.memory.views, self, keys))
        return self.like(*basic.view(self, keys, self.dtype.itemsize))

    def like(
        self,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        nblock: int,
        oob: Notes,
        dtype: Dtype | None = None,
    ) -> Tensor:
        """Return a view of the same bytes: what a `View` says, of the same logical tile.

        `oob` says where the view leaves the tensor, in terms of its own dims (geometry.py).
        """
        t = Tensor(
            self.m, self.storage, offset, shape, strides, dtype or self.dtype, nblock, self.memory
        )
        t.owner, t.oob = self.owner, oob
        if self.m.loops.nest is not None:
            self.m.loops.nest.follow(self, t)
        return t

    def narrow(self, box: list[tuple[int, int]]) -> Tensor:
        """Return the part of the view inside [lo, hi) of each dim (dims of size 1 stay whole)."""
        assert len(box) == len(self.shape), "a box has a range for each dim"
        offset, shape = self.offset, list(self.shape)
        axes: list[Axis] = [(0, {d: 1}) for d in range(len(shape))]
        for d, (lo, hi) in enumerate(box):
            if shape[d] > 1 and (lo, hi) != (0, shape[d]):
                offset += lo * self.strides[d]
                shape[d] = hi - lo
                axes[d] = (lo, {d: 1})
        new = tuple(shape)
        oob = self.oob and leaving(carried(self.oob, axes), new)
        return self.like(offset, new, self.strides, self.nblock, oob)

    def masked(self, mask: Mask | bool) -> Tensor:
        """Return the part of the view that a mask selects: `t[i_p, i_f][i_f < n]`.

        A mask over loop variables only is a bool, for all or nothing. The part remembers `uncut`,
        what it was cut from and where: a product may be written to a tile of the whole size.
        """
        if mask is True:
            return self
        box = mask.box(self.shape) if isinstance(mask, Mask) else [(0, 0)]
        if box is None:
            raise fail(
                "NKI-X02",
                "this mask does not cut a box out of the operand",
                limit="a subscript by a mask selects a range of each dimension",
                hint="use the mask= of the instruction",
            )
        if any(lo >= hi for lo, hi in box):
            raise fail(
                "NKI-I01",
                "a subscript by a mask selects nothing",
                given=f"tensor of shape {self.shape}",
                hint="leave out the iterations in which nothing is left: if i < n: ...",
            )
        part = self.narrow(box)
        if part is not self and self.memory is not HBM:
            part.uncut = self.shape, box
        return part

    def flat_index(self, shape: tuple[int, ...] | None = None) -> Array:
        """Return the element index in the storage of every element of the view (int64)."""
        out = np.full(self.shape, self.offset // self.dtype.itemsize, dtype=np.int64)
        for d, (n, s) in enumerate(zip(self.shape, self.strides)):
            step = s // self.dtype.itemsize
            out += (step * np.arange(n)).reshape((-1,) + (1,) * (len(self.shape) - d - 1))
        return out if shape is None else np.broadcast_to(out, shape)

    # -- views ------------------------------------------------------------------
    def reshape(self, *sizes_or_shape: Any, shape: Any = None, **kwargs: Any) -> Tensor:
        """Return a view of another shape; on chip the partition dim must stay."""
        self.settle()
        args = sizes_or_shape if shape is None else (shape,)
        new = tuple(args[0]) if len(args) == 1 and not np.isscalar(args[0]) else args
        sizes = [whole(n, "a size of a reshape") for n in new]
        if any(n is None for n in sizes):
            raise fail(
                "NKI-S06",
                "a shape has a size that is not an integer",
                given=f"{new!r}",
                hint="use // instead of / so that sizes stay integers",
            )
        if sizes.count(-1) == 1:
            rest = prod(n for n in sizes if n != -1)  # type: ignore[misc]
            sizes[sizes.index(-1)] = self.size // rest if rest else 0
        target: tuple[int, ...] = tuple(sizes)  # type: ignore[arg-type]
        if prod(target) != self.size or min(target, default=1) < 1:
            raise fail(
                "NKI-S06",
                "reshape to another number of elements",
                given=f"{self.shape} ({self.size} elements) to {target} ({prod(target)} elements)",
                limit="a view has as many elements as the tensor",
                hint="is the size a multiple of the tile size? A reshape repeats nothing; for one "
                "row in all partitions load it, and nl.broadcast_to(tile, shape=(128, n))",
                nki_hint="is the size a multiple of the tile size? A reshape repeats nothing; one "
                "row goes into all partitions with nisa.dma_copy(dst=t, src=row.broadcast(0, 128))",
            )
        strides = merge_dims(self.shape, self.strides, target)
        nblock = self.nblock
        if self.memory is not HBM:
            p, ps = self.shape[self.nblock], self.strides[self.nblock]
            at = [
                d
                for d in range(len(target))
                if target[d] == p and strides is not None and (strides[d] == ps or p == 1)
            ]
            if strides is None or not at:
                raise fail(
                    "NKI-S07",
                    "reshape would move data across partitions",
                    given=f"{self.shape} to {target}",
                    limit="on chip only free dims (and block dims) can be regrouped",
                    hint="reshape in HBM before the load, or transpose",
                )
            if p == 1:
                nblock = min(at, key=lambda d: abs(d - self.nblock))
            else:
                nblock = at[0]
        elif strides is None:
            raise fail(
                "NKI-S07",
                "this reshape cannot be a view of strided HBM data",
                given=f"{self.shape} with strides {self.strides} to {target}",
                hint="reshape the whole tensor before slicing it",
            )
        regroupings.reshaped(self.m, self, target)
        return self.like(
            self.offset, target, strides, nblock, reshaped(self.oob, self.shape, target)
        )

    def expand_dims(self, axis: int) -> Tensor:
        """Return a view with a dim of size 1 inserted at `axis`."""
        self.settle()
        rank = len(self.shape) + 1
        if not -rank <= axis < rank:
            raise fail(
                "NKI-S06", f"axis {axis} is outside of the tensor", limit=f"{-rank} .. {rank - 1}"
            )
        axis %= rank
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        strides = (*self.strides[:axis], self.dtype.itemsize, *self.strides[axis:])
        nblock = self.nblock + (1 if axis <= self.nblock and self.memory is not HBM else 0)
        return self.like(self.offset, shape, strides, nblock, moved(self.oob, self.shape, axis))

    def as_tile(self) -> Tensor:
        """Return the part of a tile that a subscript names, as a tile: every part is one here."""
        return self.settle()

    def __format__(self, how: str) -> str:
        return numpy_idioms.formatted(self, how)

    def view(self, dtype: Any) -> Tensor:
        """Return the same bytes as another dtype; the last dim scales."""
        self.settle()
        dt = dtypes.normalize(dtype)
        old, new = self.dtype.itemsize, dt.itemsize
        shape, strides = self.shape, self.strides
        if old != new:
            self.m.check_bounds(self)
            nbytes = shape[-1] * old
            if strides[-1] != old or nbytes % new:
                raise fail(
                    "NKI-D04",
                    "a view as another dtype needs a contiguous last dim",
                    given=f"{shape} of {self.dtype} as {dt}",
                    limit="the last dim's bytes divide by the new item size",
                )
            shape, strides = (*shape[:-1], nbytes // new), (*strides[:-1], new)
        return self.like(self.offset, shape, strides, self.nblock, self.oob, dt)

    def broadcast_to(self, shape: Any) -> Tensor:
        """Return the tensor repeated to `shape`: free dims cost nothing, partitions a matmul."""
        return self.m.broadcast(self, tuple(shape))

    def astype(self, dtype: Any) -> Tensor:
        """Return a copy cast to `dtype`."""
        return self.m.op("copy", self, dtype=dtype)

    # -- writes -------------------------------------------------------------------
    def __setitem__(self, key: Any, value: Any) -> None:
        dst = self if key is Ellipsis else self[key]
        self.m.assign(dst, value)

    def __iadd__(self, other: Any) -> Tensor:
        return self.m.accumulate(self, other, "add")

    def __isub__(self, other: Any) -> Tensor:
        return self.m.accumulate(self, other, "subtract")

    def __imul__(self, other: Any) -> Tensor:
        return self.m.accumulate(self, other, "multiply")

    def __itruediv__(self, other: Any) -> Tensor:
        return self.m.accumulate(self, other, "divide")

    # -- operators: the nl functions, without partition broadcast ---------------------
    def __bool__(self) -> bool:
        return truth_values.of_handle(self)

    __hash__ = object.__hash__

    def __copy__(self, memo: Any = None) -> Tensor:
        return self  # a copy of a tile would be the same bytes

    __deepcopy__ = __copy__

    def __iter__(self) -> Any:
        raise fail(
            "NKI-I08",
            "a tensor cannot be looped over",
            hint=suggestions.iterated(
                self.memory is not HBM, "for i in nl.affine_range(t.shape[0])"
            ),
        )

    # -- what a tile does not have, and people ask it for ------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kw: Any) -> Any:
        return numpy_idioms.numpy_function(ufunc, method, inputs, kw)

    def __array__(self, *args: Any, **kw: Any) -> Any:
        raise numpy_idioms.no_value("np.array(...)")

    def __float__(self) -> float:
        raise numpy_idioms.no_value("float(...)")

    def __int__(self) -> int:
        raise numpy_idioms.no_value("int(...)")

    def __matmul__(self, other: Any) -> Any:
        raise fail(
            "NKI-K14",
            "tiles have no operator @",
            hint="nl.matmul(a, b), or nisa.nc_matmul(a_t, b) with the contraction dim on "
            "partitions",
        )

    def __floordiv__(self, other: Any) -> Any:
        raise fail(
            "NKI-K14",
            "tiles have no operator //",
            hint="nl.floor(nl.divide(a, b)), or nl.right_shift for powers of two",
        )

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={dtypes.name(self.dtype)}, buffer={self.memory})"

    def __str__(self) -> str:
        return f"{self!r}: {numpy_idioms.VALUES}"


def _binary(name: str, swap: bool = False) -> Any:
    def method(self: Tensor, other: Any) -> Any:
        if other.__class__ is Index and name == "add" and self.dtype.kind in "iu":
            return Shifted(self, other)
        if other is None and name in ("equal", "not_equal"):
            return truth_values.compared_with_none(name)
        return self.m.op(name, other, self) if swap else self.m.op(name, self, other)

    return method


for _op in ops.ARITHMETIC:
    setattr(Tensor, f"__{_op.method}__", _binary(_op.name))
    setattr(Tensor, f"__r{_op.method}__", _binary(_op.name, swap=True))
for _op in ops.COMPARISONS:
    setattr(Tensor, f"__{_op.method}__", _binary(_op.name))
for _sym, _name in (("neg", "negative"), ("invert", "invert"), ("abs", "abs")):
    setattr(Tensor, f"__{_sym}__", (lambda n: lambda self: self.m.op(n, self))(_name))


# Properties, not __getattr__: with that, Python looks up every attribute of a tensor the slow way.
for _name in numpy_idioms.METHODS:
    if not hasattr(Tensor, _name):
        setattr(Tensor, _name, numpy_idioms.no_method(_name))


def new_tensor(
    m: Machine, storage: Storage, shape: tuple[int, ...], dtype: np.dtype, memory: str = HBM
) -> Tensor:
    """Return a row-major tensor over a whole HBM storage."""
    return Tensor(m, storage, 0, shape, contiguous_strides(shape, dtype.itemsize), dtype, 0, memory)


def same_bytes(src: Tensor, tile: Tensor) -> bool:
    """Return whether the rows of a tile are bytes as they lie in HBM."""
    item = src.dtype.itemsize
    rows = contiguous_strides(src.shape[1:], item)
    return (
        src.dtype == tile.dtype
        and item == 4
        and dtypes.PRECISE.get()
        and all(
            n == 1 or a == b == c
            for n, a, b, c in zip(src.shape[1:], rows, src.strides[1:], tile.strides[1:])
        )
    )
