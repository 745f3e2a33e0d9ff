"""`nki.isa` (nisa): the instructions, straight from the table, with their `dst` first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...chip import dtypes, hw
from ...chip.memory import PSUM
from ...errors import NkiError, fail
from ...indexing.index import as_int
from ...isa import (
    act,
    columns,
    dma,
    dve,
    dynamic,
    gpsimd,
    mx,
    nki_instructions,
    pe,
    reduce,
    rng,
    search,
)
from ...isa.table import ROWS
from ...machine import bodies
from ...machine.context import NeedsValues, current, machine
from ...machine.interface import Machine
from ...machine.limits import integer
from ..public_names import show_public_names_only
from . import adapters, call, compat
from . import isa_constants as constants
from .call import Signature, argument, instruction, issue, strict, written
from .enums import (
    dependency,
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from .handles import NkiInstruction
from .registers import BITS, NkiScalar, VirtualRegister
from .tensor import NkiTensor
from .views import settled

#: the modules that write the table; importing them is what fills it
TABLE = (act, columns, dma, dve, dynamic, gpsimd, mx, nki_instructions, pe, reduce, rng, search)

tensor_engine, scalar_engine, vector_engine = engine.tensor, engine.scalar, engine.vector
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown
sync_engine = engine.sync


NkiValidationError = NkiError  # what AWS's package raises for a broken constraint


INSTRUCTIONS = {
    row.nki.partition("(")[0].removeprefix("nisa."): instruction(
        row, adapters.ADAPTERS.get(row.name, adapters.operands)
    )
    for row in ROWS.values()
    if row.nki.startswith("nisa.") and not row.is_collective
}
call.INSTRUCTIONS.update(INSTRUCTIONS)
globals().update(INSTRUCTIONS)


def _own(text: str) -> Any:
    """Make `plan(m, **given)` a public instruction with a signature of its own."""
    signature = Signature.of_text(text)
    name = signature.api.removeprefix("nisa.")

    def wrap(plan: Any) -> Any:
        def function(*args: Any, **kw: Any) -> NkiInstruction:
            m = machine(signature.api)
            m.flush()
            _, args, kw = compat.translated(m, name, args, kw)
            values = signature.bind(args, kw)
            plan(m, **dict(zip(signature.names[:-1], map(argument, values))))
            return NkiInstruction.issued(m, values[-1])

        function.__code__ = function.__code__.replace(co_name=name)
        function.__name__ = function.__qualname__ = name
        function.__doc__ = plan.__doc__
        function.__signature__ = signature.signature  # type: ignore[attr-defined]
        return function

    return wrap


@_own("nisa.nc_transpose(dst, data, engine=0)")
def nc_transpose(m: Machine, dst: Any, data: Any, engine: int) -> None:
    """Transpose a tile (P, F...) to (F, P): Tensor Engine to PSUM, or Vector Engine in 32 x 32."""
    dst, data = settled(m, dst), m.tile(settled(m, data), "data")
    written("nisa.nc_transpose", dst)
    if engine not in (0, 1, 5):
        raise fail(
            "NKI-E01",
            "nisa.nc_transpose runs on the Tensor or the Vector Engine",
            limit="nisa.engine.tensor (up to 128 x 128), nisa.engine.vector (up to 32 x 32)",
        )
    on_pe = engine == 1 or engine == 0 and dst.memory is PSUM and data.memory is not PSUM
    row = ROWS["nc_transpose" if on_pe else "nc_transpose_dve"]
    issue(m, row, {"data": data, "dst": dst})


@_own(ROWS["core_barrier"].nki)
def core_barrier(m: Machine, data: Any, cores: Any, engine: int) -> None:
    """Block an engine until the other core of kernel[2] has come to its barrier, with `data`."""
    if m.launch.cores is not None:
        ins = ROWS["core_barrier"].issue(
            m, (), {"data": settled(m, data), "cores": cores, "engine": engine}
        )
        m.trace.record(ins, (ins.dst,), m.here(), m.core.node)
        m.launch.cores.wait(("a barrier",))


_GPSIMD_DMA = {4: 1024, 2: 512, 1: 256}  # bytes per partition, by item size


@_own(ROWS["sendrecv"].nki)
def sendrecv(
    m: Machine,
    src: Any,
    dst: Any,
    send_to_rank: Any,
    recv_from_rank: Any,
    pipe_id: Any,
    dma_engine: int,
) -> None:
    """Send a tile to the other core and receive one of the same shape from it."""
    src, dst = settled(m, src), settled(m, dst)
    written("nisa.sendrecv", dst)
    written("nisa.sendrecv", src)
    if m.launch.cores is None:
        raise fail(
            "NKI-N10",
            "nisa.sendrecv on one core",
            limit="a kernel launched as kernel[2]",
            hint="if nl.num_programs() == 2: ...",
        )
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise fail(
            "NKI-S01",
            "nisa.sendrecv: src and dst differ",
            given=f"src {src!r}, dst {dst!r}",
            limit="one shape and dtype for both",
        )
    most = _GPSIMD_DMA[src.dtype.itemsize]
    if dma_engine == 2 and src.size // src.shape[0] * src.dtype.itemsize > most:
        raise fail(
            "NKI-P08",
            "nisa.sendrecv by the DMA of GpSimd moves too much",
            given=f"src {src!r}",
            limit=f"{most} bytes per partition",
            hint="leave dma_engine out",
        )
    me = m.core.program_id[0]
    ranks = {"send_to_rank": send_to_rank, "recv_from_rank": recv_from_rank}
    if any(integer(rank, name) != 1 - me for name, rank in ranks.items()):
        raise fail(
            "NKI-N10",
            "nisa.sendrecv with a core that is not the other one",
            given=f"core {me}: " + ", ".join(f"{k}={v}" for k, v in ranks.items()),
            limit=f"{1 - me} for both: two cores run together",
            hint="other = 1 - nl.program_id(0)",
        )
    m.catch_up()
    m.launch.cores.posted[pipe_id, me, m.launch.cores.met[me]] = (
        (np.array(src.np), m.undefined.sent(src)) if m.compute else (None, None)
    )
    m.launch.cores.wait((f"nisa.sendrecv with pipe_id {pipe_id}",))
    value, origins = m.launch.cores.posted[pipe_id, 1 - me, m.launch.cores.met[me] - 1]
    if value is not None and (value.shape, value.dtype) != (dst.shape, dst.np.dtype):
        raise fail(
            "NKI-S01",
            "nisa.sendrecv: the cores send tiles that differ",
            given=f"received {value.shape} of {value.dtype}, dst {dst!r}",
            limit="one shape and dtype for both",
        )
    issue(m, ROWS["sendrecv"], {"src": src, "dst": dst, "value": value})
    if origins is not None:
        m.undefined.spoil((dst,), [origins])


def get_nc_version() -> Any:
    """Return the generation of the NeuronCore that is simulated."""
    m = current.get()
    return nc_version[(m.hw if m is not None else hw.get()).version]


def get_nc_sub_version() -> int:
    """Return the step of the generation; one is simulated of each."""
    return 0


# -- registers -----------------------------------------------------------------------------------


def register_alloc(x: Any = None) -> VirtualRegister:
    """Return a new register, with an integer in it if one is given."""
    m = machine("nisa.register_alloc")
    if isinstance(x, NkiTensor):
        compat.warn_older_form(
            m,
            "nisa.register_alloc of a tensor",
            "r = nisa.register_alloc(); nisa.register_load(r, tile)",
        )
        register_load(r := VirtualRegister(), x)
        return r
    number = as_int(x)
    if x is not None and number is None:
        raise fail(
            "NKI-N07",
            "nisa.register_alloc takes an integer",
            given=type(x).__name__,
            limit="an int, or nothing",
        )
    return VirtualRegister(_immediate(number or 0, "nisa.register_alloc"))


def _immediate(number: int, api: str) -> int:
    """Return an integer that fits into a register, or raise NKI-N07."""
    if not -1 << BITS - 1 <= number < 1 << BITS:
        raise fail(
            "NKI-N07",
            f"{api}: the number does not fit into a register",
            given=f"{number}",
            limit=f"{BITS} bits: {-1 << BITS - 1} .. {(1 << BITS) - 1}",
        )
    return number


def _is_register(x: Any, api: str) -> VirtualRegister:
    if not isinstance(x, VirtualRegister):
        raise fail(
            "NKI-N07",
            f"{api} takes a register",
            given=type(x).__name__,
            limit="what nisa.register_alloc() returns",
        )
    return x


def _source(x: Any, api: str) -> Any:
    """Return what a register holds, or a scalar: what loops of 0.6 give as a register."""
    if isinstance(x, NkiScalar):
        m = machine(api)
        m.find(
            "NKI-N07",
            "note",
            f"{api} is given a scalar. nl.fori_loop gives its body one since "
            "0.7, and whether what takes registers takes it is in no document: write "
            "nisa.scalar_store(tile, i)",
            m.here(),
        )
        return x.value
    return _is_register(x, api).value


def _one(m: Machine, t: Any, api: str) -> Any:
    t = settled(m, t)
    if getattr(t, "size", 0) != 1:
        raise fail(
            "NKI-S09",
            f"{api} moves one element",
            given=f"{t!r}"[:80],
            limit="a (1, 1) tensor in HBM or SBUF",
        )
    return t


def _read(m: Machine, t: Any) -> Any:
    """Return the one element of a tensor; raise NKI-U01 if nothing has written it."""
    bodies.charge_load(m, t.memory == "hbm")
    m.catch_up()
    m.undefined.refuse((t,))
    m.memory.unseen.add(t.storage.id)
    return t.np.reshape(-1)[0]


def register_move(dst: Any, src: Any) -> None:
    """Copy an integer or a register into a register."""
    number = as_int(src)
    api = "nisa.register_move"
    value = _source(src, api) if number is None else _immediate(number, api)
    _is_register(dst, api).set(value)


def register_load(dst: Any, src: Any) -> None:
    """Read one element of HBM or SBUF into a register."""
    m = machine("nisa.register_load")
    m.flush()
    t = _one(m, argument(src), "nisa.register_load")
    if not m.compute:
        raise NeedsValues
    value = _read(m, t)
    _is_register(dst, "nisa.register_load").set(
        float(value) if dtypes.is_float(t.dtype) else int(value)
    )


def register_store(dst: Any, src: Any) -> None:
    """Write a register into one element of HBM or SBUF."""
    m = machine("nisa.register_store")
    m.flush()
    t = _one(m, argument(dst), "nisa.register_store")
    value = _source(src, "nisa.register_store")
    if t.memory == "hbm":
        dma.store(t, value)
    else:
        dve.memset(t.shape, value, t.dtype, dst=t)


def _width(t: Any, api: str) -> Any:
    """Return a (1, 1) tensor of the width of scalars, or raise."""
    if t.dtype != dtypes.INT32:
        raise fail(
            "NKI-N12",
            f"{api} moves another dtype",
            given=f"{t!r}"[:80],
            limit="nl.int32 (nl.int64 exists in NKI and is not modelled; unsigned dtypes "
            "are not accepted)",
            hint="an int32 tile, which nisa.tensor_copy converts into",
        )
    return t


def _tracing(m: Machine, api: str) -> None:
    if not m.dialect.scalars:
        raise fail(
            "NKI-N12",
            f"{api} " + ("without tracing" if not m.dialect.traced else "came with NKI 0.7"),
            limit="NKI 0.7, without NKI_COMPILER_FRONTEND=custom",
            hint="nisa.register_alloc, nisa.register_load and nisa.register_store",
        )


def scalar_load(src: Any) -> NkiScalar:
    """Return the number in a (1, 1) tensor of HBM or SBUF as a scalar. Since 0.7."""
    m = machine("nisa.scalar_load")
    _tracing(m, "nisa.scalar_load")
    m.flush()
    t = _width(_one(m, argument(src), "nisa.scalar_load"), "nisa.scalar_load")
    if not m.compute:
        raise NeedsValues
    return NkiScalar(int(_read(m, t)))


def scalar_store(dst: Any, value: Any) -> None:
    """Write a scalar into a (1, 1) tensor of HBM or SBUF. Since 0.7."""
    m = machine("nisa.scalar_store")
    _tracing(m, "nisa.scalar_store")
    m.flush()
    t = _width(_one(m, argument(dst), "nisa.scalar_store"), "nisa.scalar_store")
    if not isinstance(value, NkiScalar):
        raise fail(
            "NKI-N07",
            "nisa.scalar_store takes a scalar",
            given=f"{value!r}"[:80],
            limit="what nisa.scalar_load and arithmetic on it return",
            hint="nisa.memset(tile, 5) for a number that is known",
        )
    if t.memory == "hbm":
        dma.store(t, value.value)
    else:
        dve.memset(t.shape, value.value, t.dtype, dst=t)


for _plain in (
    register_alloc,
    register_load,
    register_move,
    register_store,
    scalar_load,
    scalar_store,
):
    globals()[_plain.__name__] = strict(f"nisa.{_plain.__name__}", _plain)


def __getattr__(name: str) -> Any:
    """Return an instruction of an older release; say that a name is not modelled, or not there."""
    from .versions import missing

    if name in compat.SAME:
        return compat.same(name, INSTRUCTIONS[compat.SAME[name]])
    raise missing("nisa", name, globals())


__all__ = [
    "NkiInstruction",
    "NkiScalar",
    "NkiValidationError",
    "VirtualRegister",
    "constants",
    "dependency",
    "dge_mode",
    "dma_engine",
    "engine",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "matmul_perf_mode",
    "nc_transpose",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "sendrecv",
    "core_barrier",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "scalar_load",
    "scalar_store",
    "scalar_engine",
    "sync_engine",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
    *INSTRUCTIONS,
]
show_public_names_only(__name__)
