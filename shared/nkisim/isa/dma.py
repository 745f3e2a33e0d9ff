"""DMA: everything that moves data between HBM and SBUF."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes, ops
from ..chip.memory import HBM, PSUM, SBUF
from ..errors import NkiError, fail, out_of_bound_at_run_time
from ..indexing.indirect import Patterned, one_for_each_row
from ..machine import limits, suggestions
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.tensor import Indirect, Tensor
from . import formulas, sums
from .cheaper import FEWER_BYTES
from .dve import copied_exactly
from .operands import READ, WRITE, Moved, Tile, is_scalar
from .table import DMA, instruction
from .variants import PLAIN, Access


def _skips(mode: Any) -> bool:
    """Return whether an `nisa.oob_mode` drops what lies outside."""
    return int(mode) == 1


def as_tile_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the tile that an HBM access loads into: 1-D goes to partitions."""
    return shape if len(shape) > 1 else (*shape, 1) if shape else (1, 1)


def with_shape(t: Any, shape: tuple[int, ...]) -> Any:
    """Return an operand seen with `shape`, which has as many elements."""
    if t.shape == shape or isinstance(t, Indirect):
        return t.with_shape(shape) if isinstance(t, Patterned) else t
    if not t.shape:
        return t.like(t.offset, shape, (t.dtype.itemsize,) * len(shape), 0, t.oob)
    if len(t.shape) == 1 and shape == (*t.shape, 1):  # by far the most frequent
        return t.like(t.offset, shape, (*t.strides, t.dtype.itemsize), 0, t.oob)
    return t.reshape(shape)


def _chosen(at: Indirect, flat: np.ndarray, write: bool) -> None:
    """Note which elements of a tensor in HBM indices have chosen: bytes that have to be moved."""
    if at.base.memory is HBM:
        st = at.base.storage
        assert st is not None
        at.base.m.memory.chosen.mark(st.id, st.nbytes, at.base.dtype.itemsize, flat, write)


def _gather(src: Any, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the elements of an access with a mask or run-time indices, and which are valid."""
    if isinstance(src, Indirect):
        flat, valid = src.flat()
        base = src.base
        _chosen(src, flat[valid if mask is None else mask & valid], write=False)
    else:
        flat, valid, base = src.flat_index(), None, src
    data = base.storage.elements(base.dtype)
    take = valid if mask is None else mask if valid is None else mask & valid
    safe = flat if take is None else np.where(take, flat, 0)
    return data[safe], valid


def gathered(operand: Any, skip: bool) -> np.ndarray:
    """Return the elements of a tensor or of an indirect access; those outside are 0 or an error."""
    if isinstance(operand, Tensor):
        return operand.np
    value, valid = _gather(operand, None)
    if valid is not None and not valid.all():
        if not skip:
            raise_out_of_bound(operand, *operand.flat())
        value = np.where(valid, value, np.zeros((), value.dtype))
    return value


def scatter(
    m: Machine,
    dst: Indirect,
    value: np.ndarray,
    rmw: bool = False,
    skip: bool = False,
    mask: np.ndarray | None = None,
    unique: bool = False,
    line: int = -1,
) -> None:
    """Write rows chosen at run time, of those only what a mask selects.

    `unique`: that no two of them are the same is a promise, also where they add.
    """
    flat, valid = dst.flat()
    if mask is not None:
        valid, flat = valid[mask], flat[mask]
        value = np.broadcast_to(value, mask.shape)[mask]
    data = dst.base.storage.elements(dst.base.dtype)
    if not valid.all() and not skip:
        raise_out_of_bound(dst, flat, valid)
    value = np.broadcast_to(dtypes.cast(value, dst.dtype), flat.shape)
    for write in (False, True) if rmw else (True,):  # what it adds to is read
        _chosen(dst, flat[valid], write)
    if m.settings.checks and dst.rows.size > 1 and (unique or not rmw):
        check_collisions(m, flat[valid], value[valid], unique, line)
    if rmw:
        np.add.at(data, flat[valid], value[valid])
    else:
        data[flat[valid]] = value[valid]
    st = dst.base.storage
    if st is not None and st.init != 2:
        hit = np.zeros(st.nbytes // dst.dtype.itemsize, dtype=bool)
        hit[flat[valid]] = True
        st.mark(0, hit.shape, (dst.dtype.itemsize,), dst.dtype.itemsize, hit)


def check_collisions(
    m: Machine, at: np.ndarray, value: np.ndarray, unique: bool, line: int
) -> None:
    """Say that rows of a scatter go to one place; of equal values any may be the last."""
    order = np.argsort(at, kind="stable")
    same = at[order][1:] == at[order][:-1]
    if not unique:
        same &= value[order][1:] != value[order][:-1]
    if same.any():
        first = int(order[1:][same][0])
        m.find(
            "NKI-I16",
            "warning",
            "run-time indices send different rows to the same place "
            f"({int(same.sum()):,} of {at.size:,} elements, the first is element {at[first]:,}"
            " of the tensor): "
            + (
                "nisa.dma_compute takes unique indices only"
                if unique
                else "which of them is left is undefined"
            ),
            line,
        )


def raise_out_of_bound(access: Indirect, flat: np.ndarray, valid: np.ndarray) -> None:
    """Raise IndexError (NKI-I02) for the first of the element addresses that are not valid."""
    bad = flat[~valid]
    size = access.base.storage.nbytes // access.base.dtype.itemsize  # type: ignore[union-attr]
    first = int(bad.min() if bad.min() < 0 else bad[bad >= 0].min())
    room = access.limit if isinstance(access, Patterned) else access.base.shape[access.dim]
    given = access.indices()
    outside = given[(given < 0) | (given >= room)]
    if outside.size or given.size == 1:
        raise out_of_bound_at_run_time(
            first, size, int(outside[0] if outside.size else given[0]), room
        )
    raise out_of_bound_at_run_time(first, size)


def _is_plain(ins: Instr) -> bool:
    """Return whether a DMA goes by fixed addresses, and adds nothing."""
    return ins.variant is PLAIN


def _run_copy(m: Machine, ins: Instr, dst: Tensor) -> None:
    """Copy with a cast; run-time indices and masks gather or scatter."""
    src = ins.params.get("src") or (ins.srcs[0] if ins.srcs else None)
    out_at = ins.params.get("dst")
    if "scalar" in ins.params:
        number = ins.params["scalar"]  # an integer for integers is kept as it is
        exact = (
            isinstance(number, (int, np.integer))
            and dst.dtype.kind in "iu"
            and np.iinfo(dst.dtype).min <= number <= np.iinfo(dst.dtype).max
        )
        value: Any = np.full(ins.grid or dst.shape, number, dst.dtype if exact else np.float32)
        valid = None
    elif ins.mask is not None or isinstance(src, Indirect):
        value, valid = _gather(src, ins.mask)
        if valid is not None and not valid.all() and not ins.params.get("skip"):
            if ins.mask is None or not valid[np.broadcast_to(ins.mask, valid.shape)].all():
                raise_out_of_bound(src, *src.flat())  # type: ignore[union-attr,arg-type]
    else:
        assert src is not None
        value, valid = src.np, None
    if out_at is not None:
        scatter(
            m,
            out_at,
            value,
            ins.params.get("rmw", False),
            ins.params.get("skip", False),
            ins.mask,
            line=ins.line,
        )
        return
    if ins.params.get("rmw"):
        value = dst.np + value
    where = ins.mask if valid is None else valid if ins.mask is None else ins.mask & valid
    if ins.skips:
        ins.wrote = where
    if where is None:
        dtypes.cast(value, dst.dtype, out=dst.np)
        if ins.srcs and isinstance(src, Tensor):
            copied_exactly(m, ins, np.asarray(value), dst)
    elif dst.oob is not None:
        flat = dst.flat_index()[where]
        data = dst.storage.elements(dst.dtype)  # type: ignore[union-attr]
        data[flat] = dtypes.cast(np.broadcast_to(value, where.shape)[where], dst.dtype)
    else:
        np.copyto(dst.np, dtypes.cast(value, dst.dtype), where=where)


#: who makes the descriptors, by the numbers of dge_mode; 3, unknown: the compiler chooses
_MAKERS = {0: "static", 1: "gpsimd", 2: "hwdge", 4: "scalar", 5: "sync"}
HARDWARE = frozenset(("hwdge", "scalar", "sync"))

_TRAITS: dict[str, Any] = dict(engines=(DMA,), on_partitions=False)
_COPY: dict[str, Any] = dict(
    _TRAITS, run=_run_copy, masks_itself=True, cost=formulas.descriptors, cheaper=FEWER_BYTES
)


@instruction(
    "load",
    public="nl.load",
    operands=(Moved("src"),),
    writes=(SBUF,),
    loop_vectorizable=True,
    **_COPY,
    loads=True,
    source="Neuron SDK 2.26 API reference: nl.load",
)
def load(m: Machine, src: Any, *, mask: Any = None, dtype: Any = None, mode: Any = 0) -> Instr:
    """Load an HBM access into a new SBUF tile, casting to `dtype` if given.

    The first dim of the access becomes the partition dim (at most 128); a 1-D access of n
    elements gives a tile of shape (n, 1). `mode=nisa.oob_mode.skip` leaves out the rows whose
    run-time index is outside of the tensor: their part of the destination keeps what it had.
    """
    shape = as_tile_shape(src.shape)
    dt = src.dtype if dtype is None else dtypes.normalize(dtype)
    if mask is None and shape[0] > m.hw.pmax:
        if len(src.shape) == 1 and shape[0] > m.hw.pmax and (cure := suggestions.row_of_matrix()):
            raise fail(
                "NKI-P01",
                f"a tile of {shape[0]} partitions is larger than SBUF has",
                given=f"a row of {shape[0]} elements, each in a partition of its own",
                limit=f"{m.hw.pmax} partitions",
                hint=cure,
            )
        limits.check_tile(m.hw, SBUF, shape, dt)
    if isinstance(src, Indirect):
        one_for_each_row("nl.load", src)
        src = with_shape(src, shape)
        ins = Instr(
            shape,
            dt,
            srcs=(src.rows, src.base),
            variant=Access(indirect=True, chosen=1, run=src.run()),
            params={"src": src, "skip": _skips(mode)},
        )
        ins.skips = _skips(mode)
        return ins
    return Instr(shape, dt, srcs=(with_shape(src, shape),), params={})


def _fit(dst: Any, src: Any, api: str, names: tuple[str, str] = ("dst", "value")) -> Any:
    """Return the destination seen with the value's shape, or raise."""
    shape = src.shape
    if dst.shape == shape:
        return dst
    a, b = [n for n in dst.shape if n != 1], [n for n in shape if n != 1]
    if a == b and (isinstance(dst, Patterned) or not isinstance(dst, Indirect)):
        return with_shape(dst, shape)
    lead = len(dst.shape) - len(shape)
    if lead == 0 and all(x == y or y == 1 for x, y in zip(dst.shape, shape)):
        return dst  # the value is repeated
    raise fail(
        "NKI-S01",
        f"{api}: destination and value have different shapes",
        given=f"destination {dst.shape}, value {shape}",
        limit="equal shapes"
        + "; only dims of size 1 of the value are repeated" * (api == "nl.store"),
        hint=suggestions.copy(api, dst, src, names),
    )


@instruction(
    "store",
    public="nl.store",
    writes=(HBM,),
    deferrable=_is_plain,
    **_COPY,
    operands=(Moved("dst", WRITE), Tile("value", numbers=True)),
    source="Neuron SDK 2.26 API reference: nl.store",
)
def store(m: Machine, dst: Any, value: Any, *, mask: Any = None, mode: Any = 0) -> Instr:
    """Store an SBUF tile or a number into an HBM access of the same shape (1-D from (n, 1)).

    `mode=nisa.oob_mode.skip` drops the rows whose run-time index is outside of the tensor.
    """
    if is_scalar(value):
        if not isinstance(dst, Indirect):
            return Instr(dst.shape, dst.dtype, srcs=(), dst=dst, params={"scalar": value})
        return Instr(
            dst.base.shape,
            dst.dtype,
            srcs=(dst.rows,),
            dst=dst.base,
            grid=dst.shape,
            params={"scalar": value, "dst": dst, "skip": _skips(mode)},
            variant=Access(indirect=True, scatter=True, run=dst.run(), shape=dst.shape),
        )
    if value.memory is PSUM:  # since SDK 2.26 the compiler copies
        value = m.op("copy", value, mask=mask).settle()
    return _copy(_fit(dst, value, "nl.store"), value, {"skip": _skips(mode)})


def run_of(*operands: Any) -> int:
    """Return the elements contiguous in all operands with run-time indices, 0 for none."""
    return min((operand.run() for operand in operands if isinstance(operand, Indirect)), default=0)


def _copy(dst: Any, src: Any, params: dict) -> Instr:
    """Plan the copy for any mix of plain and indirect operands; `params["rmw"]`: it adds."""
    srcs: list[Tensor] = []
    if isinstance(src, Indirect):
        params["src"] = src
        srcs.append(src.rows)
    else:
        srcs.append(src)
    target = dst
    if isinstance(dst, Indirect):
        params["dst"] = dst
        srcs.append(dst.rows)
        target = dst.base
    gathers = "src" in params
    indirect = gathers or "dst" in params
    adds = params.get("rmw", False)
    made = params.pop("descriptors", "")
    if indirect and made == "static":  # the host does not know the place
        made = "gpsimd"
    if adds and target is dst:
        srcs.append(target)  # read, modified and written
    if gathers:
        srcs.append(src.base)
    ins = Instr(
        target.shape,
        target.dtype,
        srcs=tuple(srcs),
        dst=target,
        params=params,
        variant=Access(
            indirect,
            "dst" in params,
            adds,
            int(gathers),
            run_of(src, dst),
            dst.shape if gathers and "dst" in params else (),
            made,
        )
        if indirect or adds or made
        else PLAIN,
        grid=dst.shape,
    )
    ins.inplace = adds  # the order of additions does not matter
    ins.skips = gathers and target is dst and params.get("skip", False)
    return ins


@instruction(
    "dma_copy",
    public="nisa.dma_copy",
    writes=(HBM, SBUF),
    loop_vectorizable=True,
    deferrable=_is_plain,
    **_COPY,
    nki="nisa.dma_copy(dst, src, priority=None, oob_mode=0, dge_mode=0, engine=0)",
    operands=(Moved("dst", WRITE, HBM, SBUF), Moved("src", READ, HBM, SBUF, copied=True)),
    sums=sums.READ_MODIFY_WRITE,
    source="Neuron SDK 2.26 API reference: nisa.dma_copy",
)
def dma_copy(
    m: Machine,
    *,
    dst: Any,
    src: Any,
    mask: Any = None,
    dst_rmw_op: Any = None,
    oob_mode: Any = 0,
    dge_mode: Any = 3,
) -> Instr:
    """Copy between HBM and SBUF, in any direction, with a cast if the dtypes differ.

    Shapes hold the same elements in the same order; (n,) and (n, 1) are alike. `dst_rmw_op` adds
    to what is there (np.add only). `oob_mode.skip` drops rows whose run-time index is outside.
    """
    made = _MAKERS.get(dge_mode, "")
    if made in HARDWARE and not m.hw.hwdge:
        raise fail(
            "NKI-E03",
            "hardware descriptor generation is asked for",
            given=f"dge_mode=hwdge on {m.hw.name}",
            limit="NeuronCore-v3 (trn2) or newer",
            hint="leave dge_mode out, or simulate for trn2",
        )
    if (
        m.dialect.refuses_dma_forms
        and isinstance(src, Tensor)
        and src.shape
        and src.shape[0] > 1
        and src.strides[0] == 0
    ):
        m.find(
            "NKI-R12",
            "note",
            f"nisa.dma_copy reads one row for all {src.shape[0]} partitions: "
            "a compiler of beta 1 has refused that (NCC_IBCG901). Try: nl.broadcast_to of the "
            "row in SBUF",
            m.here(),
        )
    if made and made != "gpsimd" and (_by_vector(src) or _by_vector(dst)):
        raise fail(
            "NKI-E01",
            "nisa.dma_copy: these descriptors cannot go where indices point",
            given=f"a gather or scatter with dge_mode={'none' if made == 'static' else 'hwdge'}",
            limit="indices of rows: dge_mode unknown or swdge; GpSimd alone reads them",
            hint="leave dge_mode out",
        )
    params: dict[str, Any] = {"skip": _skips(oob_mode), "descriptors": made}
    if dst_rmw_op is not None:
        if ops.resolve_alu(dst_rmw_op).name != "add" or params["skip"]:
            raise fail(
                "NKI-E04",
                "this read-modify-write is not supported",
                limit="dst_rmw_op=np.add, with oob_mode.error",
            )
        params["rmw"] = True
    if isinstance(src, Indirect) or isinstance(dst, Indirect):
        dst = _fit(dst, src, "nisa.dma_copy", ("dst", "src"))
    elif dst.shape != src.shape:
        if dst.size != src.size:
            dst = _fit(dst, src, "nisa.dma_copy", ("dst", "src"))
        else:
            _regroups(m, dst, src)
            dst, src = _in_one_shape(dst, src)
    return _copy(dst, src, params)


def _by_vector(x: Any) -> bool:
    """Return whether a vector of indices, not one offset for all, chooses what is accessed."""
    return isinstance(x, Indirect) and not (isinstance(x, Patterned) and x.rows.size == 1)


def _regroups(m: Machine, dst: Any, src: Any) -> None:
    """Say that a copy keeps the order of elements, where shapes look as if it transposed them."""
    sizes = [n for n in src.shape if n != 1]
    if len(sizes) == 2 and sizes[0] != sizes[1] and [n for n in dst.shape if n != 1] == sizes[::-1]:
        m.find(
            "NKI-S15",
            "warning",
            f"a DMA copies shape {tuple(src.shape)} to shape "
            f"{tuple(dst.shape)} element by element, in their order: that is a reshape, not a "
            "transpose",
            m.here(),
        )


def _in_one_shape(dst: Any, src: Any) -> tuple[Any, Any]:
    """Return both with one shape: the one in HBM as the other one is, or the other way around."""
    try:
        return (
            (with_shape(dst, src.shape), src)
            if dst.memory is HBM
            else (dst, with_shape(src, dst.shape))
        )
    except NkiError:  # no view of strided data
        try:
            return (
                (dst, with_shape(src, dst.shape))
                if dst.memory is HBM
                else (with_shape(dst, src.shape), src)
            )
        except NkiError:
            pass
        raise


def _run_transpose(m: Machine, ins: Instr, dst: Tensor) -> None:
    src, axes = ins.params.get("src"), ins.params["axes"]
    if src is None:
        dtypes.cast(ins.srcs[0].np.transpose(axes), dst.dtype, out=dst.np)
        return
    value, valid = _gather(src, None)
    assert valid is not None
    if not (ins.skips or valid.all()):
        raise_out_of_bound(src, *src.flat())
    value, valid = value.transpose(axes), valid.transpose(axes)
    np.copyto(dst.np, dtypes.cast(value, dst.dtype), where=valid)
    ins.wrote = valid


_TRANSPOSE: dict[str, Any] = dict(
    _TRAITS,
    run=_run_transpose,
    writes=(SBUF,),
    transposes=True,
    cost=formulas.descriptors,
    cheaper=FEWER_BYTES,
)


@instruction(
    "load_transpose2d",
    public="nl.load_transpose2d",
    operands=(Moved("src"),),
    **_TRANSPOSE,
    wide_on_tensor_engine=True,
    source="Neuron SDK 2.26 API reference: nl.load_transpose2d",
)
def load_transpose2d(m: Machine, src: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Load an HBM access of shape (R, C) transposed, as a tile of shape (C, R); C <= 128."""
    if isinstance(src, Indirect):
        raise fail(
            "NKI-I13",
            "nl.load_transpose2d does not take an index tile",
            limit="indirect access: nl.load, nl.store and nisa.dma_copy",
            hint="gather the rows with nl.load first",
        )
    if len(src.shape) != 2:
        raise fail("NKI-S03", "nl.load_transpose2d takes a 2-D access", given=f"shape {src.shape}")
    return _transposed(m, src, (1, 0), dtype)


def _transposed(m: Machine, src: Any, axes: tuple[int, ...], dtype: Any, mode: Any = 0) -> Instr:
    """Plan a DMA that permutes the axes of what it moves."""
    shape = tuple(src.shape[a] for a in axes)
    dt = src.dtype if dtype is None else dtypes.normalize(dtype)
    limits.check_tile(m.hw, SBUF, shape, dt)
    params: dict[str, Any] = {"axes": axes}
    if isinstance(src, Indirect):
        ins = Instr(
            shape,
            dt,
            srcs=(src.rows, src.base),
            params={**params, "src": src},
            variant=Access(indirect=True, chosen=1, run=src.run()),
            grid=src.shape,
            kept=axes,
        )
        ins.skips = _skips(mode)
        return ins
    return Instr(shape, dt, srcs=(src,), params=params, grid=src.shape, kept=axes)


#: orders of dims that a DMA transposes to, by rank
TRANSPOSES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def _refused_by_compilers(m: Machine, dtype: Any) -> None:
    """Refuse a transpose of 4-byte data; where no compiler is asked, note that one would."""
    call = f"nisa.dma_transpose of {dtypes.name(dtype)}"
    if getattr(m.launch.kernel, "mode", "") == "simulation":
        m.find(
            "NKI-R13",
            "note",
            f"{call}: a compiler of beta 1 has refused that (NCC_ISFV902); "
            "2-byte dtypes compile. Try: nisa.nc_transpose",
            m.here(),
        )
        return
    raise fail(
        "NKI-R13",
        f"{call}: the compiler of beta 1 refuses that (NCC_ISFV902)",
        given=dtypes.name(dtype),
        limit="dtypes of 2 bytes",
    )


@instruction(
    "dma_transpose",
    public="nisa.dma_transpose",
    nki="nisa.dma_transpose(dst, src, axes=None, priority=None, dge_mode=0, oob_mode=0)",
    operands=(Moved("src", READ, HBM, SBUF),),
    hidden=("oob_mode",),
    **_TRANSPOSE,
    wide_on_tensor_engine=True,
    source="Neuron SDK 2.26 API reference: nisa.dma_transpose",
)
def dma_transpose(
    m: Machine,
    src: Any,
    *,
    axes: Any = None,
    mask: Any = None,
    dtype: Any = None,
    dge_mode: Any = 3,
    oob_mode: Any = 0,
) -> Instr:
    """Transpose by DMA from HBM or SBUF into a new tile: first and last axis change places.

    `axes` is (1, 0), (2, 1, 0) or (3, 1, 2, 0), by rank. `oob_mode.skip` leaves out the elements
    whose run-time index is outside of the tensor.
    """
    rank = len(src.shape)
    want = TRANSPOSES.get(rank)
    if want is None or axes is not None and tuple(axes) != want:
        raise fail(
            "NKI-S03",
            "nisa.dma_transpose does not have this permutation",
            given=f"rank {rank}, axes {axes}",
            limit="(1, 0), (2, 1, 0) or (3, 1, 2, 0), by rank",
        )
    if m.dialect.refuses_dma_forms and src.dtype.itemsize == 4:
        _refused_by_compilers(m, src.dtype)
    return _transposed(m, src, want, dtype, oob_mode)


def _run_sendrecv(m: Machine, ins: Instr, dst: Tensor) -> None:
    dst.np[...] = ins.params


@instruction(
    "sendrecv",
    nki="nisa.sendrecv(src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine=1)",
    engines=(DMA,),
    on_partitions=False,
    run=_run_sendrecv,
    writes=(SBUF,),
    operands=(Moved("src", READ, SBUF), Moved("dst", WRITE, SBUF)),
    hidden=("value",),
    cost=formulas.descriptors,
    cheaper=FEWER_BYTES,
    needs="hwdge",
    is_collective=True,
    source="Neuron SDK 2.32 API reference: nki.isa.sendrecv",
)
def sendrecv(m: Machine, src: Any, dst: Any, value: Any = None) -> Instr:
    """Send a tile to the other core and receive one of the same shape from it."""
    return Instr(dst.shape, dst.dtype, srcs=(src,), dst=dst, params=value)


@instruction(
    "atomic_rmw",
    public="nl.atomic_rmw",
    writes=(HBM,),
    **_COPY,
    operands=(Moved("dst", WRITE), Tile("value", memories=(SBUF,))),
    sums=sums.READ_MODIFY_WRITE,
    source="Neuron SDK 2.26 API reference: nl.atomic_rmw",
)
def atomic_rmw(m: Machine, dst: Any, value: Any, op: Any, *, mask: Any = None) -> Instr:
    """Add a tile to rows of HBM that an index tile selects, atomically (op=np.add)."""
    if ops.resolve_alu(op).name != "add":
        raise fail("NKI-E04", "this read-modify-write is not supported", limit="op=np.add")
    return _copy(_fit(dst, value, "nl.atomic_rmw"), value, {"rmw": True})
