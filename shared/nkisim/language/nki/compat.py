"""Calls of instructions as older releases had them: what 0.3 changed in a call.

With NKI_LANGUAGE_VERSION=0.1 or 0.2 a call means what it did then (`arguments`, `meant`). In later
releases one that can mean nothing else is issued as it was meant, with a warning (`today`): most
published kernels do not say what release they are for. What can be read in two ways keeps today's
meaning. What only looks for mistakes that older releases did not look for stays as it is.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...chip import dtypes
from ...errors import NkiError, fail
from ...lint import level
from ...machine.context import current
from ...machine.interface import Machine
from ...machine.tensor import Tensor
from .enums import dge_mode, dma_engine, oob_mode

#: instructions whose parameters had another order (API references of 0.1 and 0.2)
_ORDER = {
    "affine_select": (
        "dst",
        "pattern",
        "offset",
        "channel_multiplier",
        "on_true_tile",
        "on_false_value",
        "cmp_op",
        "name",
    ),
    "dma_compute": ("dst", "srcs", "scales", "reduce_op", "name"),
    "dma_copy": ("dst", "src", "dst_rmw_op", "oob_mode", "dge_mode", "unique_indices", "name"),
    "dma_transpose": ("dst", "src", "axes", "dge_mode", "oob_mode", "name"),
}
#: and those that 0.3 had
_ORDER_0_3 = {
    "dma_copy": ("dst", "src", "oob_mode", "dge_mode", "engine", "name"),
    "dma_transpose": _ORDER["dma_transpose"],
}
#: the place of an argument, what it is there in the older order alone, and the least arguments
_TELLS: dict[str, tuple[int, Any, int]] = {
    "affine_select": (3, int, 6),
    "dma_compute": (2, (list, tuple), 4),
}
#: parameters that have gone since, with the values that change nothing here
_GONE: dict[str, dict[str, tuple]] = {
    "dma_copy": {"dst_rmw_op": (None,), "unique_indices": (True,)},
}
_RENAMED = {"register_move": {"imm": "src"}, "nc_matmul": {"is_moving_zero": "is_moving_onezero"}}
HINT = "; kernels of NKI 0.1 and 0.2 run with NKI_LANGUAGE_VERSION=0.2"

_CHANGED = frozenset((*_TELLS, *_ORDER_0_3, *_GONE, *_RENAMED, "sendrecv"))

#: an instruction's name, its arguments by place and by name
Call = tuple[str, tuple, dict[str, Any]]


def translated(m: Machine, name: str, args: tuple, kw: dict[str, Any]) -> Call:
    """Return a call as one of today, if an older release has it so; else as it is."""
    if m.dialect.older:
        return arguments(name, args, kw)
    return as_in_0_3(m, name, args, kw) if name in _CHANGED or "dtype" in kw else (name, args, kw)


def arguments(name: str, args: tuple, kw: dict[str, Any]) -> Call:
    """Return a call of 0.1 or 0.2 as one of today."""
    order = _ORDER.get(name, ())
    if len(args) <= len(order):
        kw = {**dict(zip(order, args)), **kw}
        args = ()
    return _renamed(name, args, kw)[0]


def as_in_0_3(m: Machine, name: str, args: tuple, kw: dict[str, Any]) -> Call:
    """Return a call as one of today; say it if an older release alone has it in this form."""
    renamed: list[str] = []
    order: tuple[str, ...] = ()
    place, kind, least = _TELLS.get(name, (0, (), len(args) + 1))
    if len(args) >= least and isinstance(args[place], kind):
        order = _ORDER[name]
        renamed.append("arguments by place")
    elif len(args) > 2 and isinstance(args[-1], (oob_mode, dge_mode)) and level.release() == "0.3":
        order = _ORDER_0_3.get(name, ())
    if len(args) <= len(order):
        kw, args = {**dict(zip(order, args)), **kw}, ()
    own = name
    call, gone = _renamed(name, args, kw)
    for change in (*renamed, *gone):
        warn_older_form(m, f"nisa.{own}: {change}", f"nisa.{call[0]}({', '.join(call[2])})")
    return call


def _renamed(name: str, args: tuple, kw: dict[str, Any]) -> tuple[Call, list[str]]:
    """Return a call by its name and keywords of today, and what of it has another name or none."""
    renamed, kw = [], dict(kw)
    for gone, idle in _GONE.get(name, {}).items():
        if gone in kw and any(kw[gone] is x for x in idle):
            del kw[gone]
            renamed.append(f"{gone}=")
    for old, new in _RENAMED.get(name, {}).items():
        if old in kw and new not in kw:
            kw[new] = kw.pop(old)
            renamed.append(f"{old}=")
    if name == "sendrecv" and isinstance(kw.get("use_gpsimd_dma"), bool):
        gpsimd = kw.pop("use_gpsimd_dma")
        kw.setdefault("dma_engine", dma_engine.gpsimd_dma if gpsimd else dma_engine.dma)
        renamed.append("use_gpsimd_dma=")
    if _is_dtype(kw.get("dtype")):  # 0.1 did not look at what it did not know
        del kw["dtype"]
        renamed.append("dtype=, where the dtype of dst is that of the result")
    if name == "dma_copy" and callable(kw.get("dst_rmw_op")):
        both = dict(zip(("dst", "src"), args)) | kw
        name, args, renamed = "dma_compute", (), [*renamed, "dst_rmw_op="]
        kw = {
            "dst": both["dst"],
            "srcs": [both["src"], both["dst"]],
            "reduce_op": both["dst_rmw_op"],
            **{k: kw[k] for k in ("unique_indices", "oob_mode", "name") if k in kw},
        }
    return (name, args, kw), renamed


def _is_dtype(x: Any) -> bool:
    """Return whether something is a dtype."""
    try:
        return x is not None and dtypes.normalize(x) is not None
    except (TypeError, NkiError):
        return False


def warn_older_form(m: Machine, what: str, remedy: str, since: str = "0.3") -> None:
    """Report a call of a release before `since`; raise if strictness asks for that."""
    if level.release() >= since:
        verdict = level.in_run("older_call", what, remedy)
        if verdict is not None:
            m.find(*verdict, m.here())


def meant(name: str, given: dict[str, Any]) -> None:
    """Change arguments by name into what they meant in 0.1 and 0.2."""
    if name == "tensor_reduce" and given["data"].__class__ is Tensor:
        given["axis"] = tuple(_last(given["axis"], len(given["data"].shape)))


def _last(axis: Any, rank: int) -> list[int]:
    """Return axes of a reduction of 0.1 and 0.2, which counted from the last one: "[1, 2] is a
    legal axis field" of four dims."""
    many = len(axis) if isinstance(axis, (list, tuple)) else 1
    return list(range(max(1, rank - many), rank))


def reduced(m: Machine, dst: Any, data: Tensor, axes: list[int]) -> list[int] | None:
    """Return the axes that 0.2 made of those of a reduction that are not the last ones, if `dst`
    has the size of its result; else None. No release since reduces over what the axes say."""
    last = _last(axes, len(data.shape))
    left = prod(n for i, n in enumerate(data.shape) if i not in last)
    if getattr(dst, "size", None) != left:
        return None
    warn_older_form(
        m,
        f"nisa.tensor_reduce: axis {tuple(axes)} of shape {data.shape} into dst {dst.shape}, "
        f"which is taken for {tuple(last)}",
        f"axis={tuple(last)}; other dims are brought to the end: t.permute((0, 2, 1))",
    )
    return last


def filled(shape: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """Return whether a transpose writes a `dst` with fewer dims of size 1: 0.4 and later do not."""
    return level.release() < "0.4" and [n for n in shape if n != 1] == [n for n in want if n != 1]


#: instructions that 0.4 dropped -> what does the same
SAME = dict.fromkeys(("tensor_copy_dynamic_src", "tensor_copy_dynamic_dst"), "tensor_copy")


def same(name: str, instead: Any) -> Any:
    """Return an instruction that 0.4 dropped."""

    def function(*args: Any, **kw: Any) -> Any:
        m = current.get()
        if m is not None:
            warn_older_form(m, f"nisa.{name}", f"nisa.{SAME[name]}", since="0.4")
        return instead(*args, **kw)

    function.__name__ = function.__qualname__ = name
    return function


# -- names -----------------------------------------------------------------------------------------


class Marked(int):
    """The size of a dim that is said to be the partition dim."""


def par_dim(size: Any) -> Any:
    """Return the size of a dim: the parser of 0.1 and 0.2 did not look at the mark."""
    m = current.get()
    if m is not None:
        warn_older_form(m, f"nl.par_dim({size})", f"{size}: dim 0 of a tile is the partition dim")
    return size if level.older() else Marked(size)


def marked(shape: Any) -> None:
    """Raise if a dim that is not the first one is said to be the partition dim."""
    if isinstance(shape, (tuple, list)) and any(n.__class__ is Marked for n in shape[1:]):
        raise fail(
            "NKI-S01",
            "a partition dim that is not the first one",
            given=f"{shape}",
            limit="dim 0 of a tile is the partition dim: blocks of tiles are gone",
            hint="a list of tiles" + HINT,
        )


NAMES = {"par_dim": par_dim}  # of nl
