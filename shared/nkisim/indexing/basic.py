"""Basic subscripts: integers, slices and `nl.ds`, where `Tensor.__getitem__` has no short way."""

from __future__ import annotations

from typing import Any

from ..chip.memory import HBM
from ..errors import NkiError, fail
from .geometry import Axis, Beyond, Strided, View, carried, leaving
from .index import Slice, whole


def view(t: Strided, keys: tuple, itemsize: int) -> View:
    """Return the view of `t` that one integer, slice or `nl.ds` a dim means."""
    part = t.nblock if t.memory is not HBM else -1
    offset, nblock = t.offset, t.nblock
    shape: list[int] = []
    strides: list[int] = []
    axes: list[Axis] = []
    notes: list[Beyond] = []
    for d, (k, n, s) in enumerate(zip(keys, t.shape, t.strides)):
        value = whole(k, "a subscript")
        if value is not None:
            lo = _inside(value, d, t.shape)
            offset += lo * s
            axes.append((lo, {}))
            if d == part:  # on chip the partition dim never goes away
                shape.append(1)
                strides.append(s)
            elif d < part:
                nblock -= 1
            continue
        lo, hi, step = slice_range(k, d, n)
        if d == part and step != 1:
            raise fail(
                "NKI-P05",
                "the partition dimension was sliced with a step",
                given=f"step {step}",
                limit="partitions of a tile are contiguous",
                hint="put the strided dimension on the free axis, or load the rows "
                "with a strided access to HBM",
            )
        axes.append((lo, {len(shape): step}))
        if hi > n or lo < 0:
            notes.append(Beyond(d, n, *axes[-1]))
        offset += lo * s
        shape.append(-(-(hi - lo) // step))
        strides.append(s * step)
    if part >= 0 and len(shape) < 2:
        shape.append(1)  # tile[:, k] is (P, 1)
        strides.append(itemsize)
    new = tuple(shape)
    return offset, new, tuple(strides), nblock, leaving(carried(t.oob, axes) + notes, new)


def _inside(value: int, d: int, shape: tuple[int, ...]) -> int:
    """Return an integer subscript of dim `d`, counted from the front, or raise."""
    n = shape[d]
    if not -n <= value < n:
        raise fail(
            "NKI-I01",
            f"subscript {value} is outside of dimension {d}",
            given=f"index {value}",
            limit=f"0 .. {n - 1} (tensor of shape {shape})",
            hint="check the loop bound: it should be size // tile size",
        )
    return value + n if value < 0 else value


def slice_range(k: Any, d: int, n: int) -> tuple[int, int, int]:
    """Return (start, stop, step) of a slice or nl.ds over dim `d`, of size n; stop may be past."""
    if k.__class__ is Slice:
        if k.size < 1:
            raise fail(
                "NKI-I01",
                f"dimension {d} is cut to nothing",
                given=f"nl.ds({k.start}, {k.size})",
                limit=f"a size of 1 .. {n}",
                hint="nl.ds(start, size) takes a size, not where it ends",
            )
        return k.start, k.start + k.size, 1
    if k.__class__ is not slice:
        raise not_a_subscript(k)
    parts = [
        None if v is None else whole(v, "the bound of a slice") for v in (k.start, k.stop, k.step)
    ]
    for v, raw in zip(parts, (k.start, k.stop, k.step)):
        if v is None and raw is not None:
            raise fail(
                "NKI-I03",
                "a slice bound is not an integer",
                given=f"{type(raw).__name__} in {k!r}"[:90],
                hint="use // instead of / so that sizes stay integers",
            )
    lo, hi, step = parts[0] or 0, n if parts[1] is None else parts[1], parts[2]
    step = 1 if step is None else step
    if step <= 0:
        raise fail(
            "NKI-I03",
            "a slice has a step that is not positive",
            given=f"step {step}",
            limit="steps of 1 or more",
            hint="turn the array round on the host, before the kernel is called: x[:, ::-1]",
        )
    from_the_end = lo < 0 or hi < 0
    given = f"{lo}:{hi}"
    lo = lo + n if lo < 0 else lo
    hi = hi + n if hi < 0 else hi
    if hi <= lo:
        hint = "a window ends behind its start: start:start + size"
        if hi > n or lo >= n:
            hint = "a tile size larger than the tensor gives an empty last tile"
        if from_the_end:
            given += f", which is {lo}:{hi}: a negative bound counts from the end"
            hint = "before element 0 there is none: begin at max(0, start)"
        raise fail(
            "NKI-I01",
            f"dimension {d} is cut to nothing",
            given=given,
            limit=f"0 <= start < stop <= {n}",
            hint=hint,
        )
    return lo, hi, min(step, hi - lo)  # of one element no step is asked, however large


def not_a_subscript(k: Any) -> NkiError:
    """Return the error for a subscript of an unknown form."""
    return fail(
        "NKI-I03",
        f"a tensor cannot be subscripted with {type(k).__name__}",
        given=" ".join(repr(k).split())[:60],
        limit="integers, a:b slices, nl.ds(start, size), ..., nl.arange(n)[:, None]"
        " and nl.mgrid indices, or an index tile for indirect access",
        hint="nl.arange in the place of np.arange" if type(k).__name__ == "ndarray" else "",
        nki_hint="t[i], t[0:128, j*512:(j+1)*512]",
    )
