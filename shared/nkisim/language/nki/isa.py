"""`nki.isa` (nisa): the instructions, straight from the table, with their `dst` first."""
from __future__ import annotations

from typing import Any

from ...chip import dtypes, hw
from ...chip.memory import PSUM
from ...errors import fail
from ...isa import act, dma, dve, dynamic, gpsimd, pe, reduce, rng, search
from ...isa.table import ROWS
from ...machine.context import current, machine
from ...machine.machine import Machine
from . import enums as constants
from . import notation
from .call import NkiInstruction, Signature, argument, instruction, issue, settled, written
from .enums import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from .registers import VirtualRegister

#: the modules that write the table; importing them is what fills it
TABLE = (act, dma, dve, dynamic, gpsimd, pe, reduce, rng, search)

tensor_engine, scalar_engine, vector_engine = engine.tensor, engine.scalar, engine.vector
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown
sync_engine = engine.sync


class NkiValidationError(Exception):
    """A constraint of the hardware is broken; the simulator raises nkisim.NkiError."""


INSTRUCTIONS = {row.nki.partition("(")[0].removeprefix("nisa."): instruction(
    row, notation.ADAPTERS.get(row.name, notation.operands))
    for row in ROWS.values() if row.nki.startswith("nisa.")}
globals().update(INSTRUCTIONS)


def _own(text: str) -> Any:
    """Make `plan(m, **given)` a public instruction with a signature of its own."""
    form = Signature.of_text(text)

    def wrap(plan: Any) -> Any:
        def function(*args: Any, **kw: Any) -> NkiInstruction:
            m = machine(form.api)
            m.flush()
            values = form.bind(args, kw)
            plan(m, **dict(zip(form.names[:-1], map(argument, values))))
            return NkiInstruction(len(m.trace.starts), values[-1])
        name = form.api.removeprefix("nisa.")
        function.__code__ = function.__code__.replace(co_name=name)
        function.__name__ = function.__qualname__ = name
        function.__doc__ = plan.__doc__
        function.__signature__ = form.signature                 # type: ignore[attr-defined]
        return function
    return wrap


@_own("nisa.nc_transpose(dst, data, engine=0)")
def nc_transpose(m: Machine, dst: Any, data: Any, engine: int) -> None:
    """Transpose a tile (P, F...) to (F, P): Tensor Engine into PSUM, or Vector Engine in 32 x 32.
    """
    dst, data = settled(m, dst), settled(m, data)
    written("nisa.nc_transpose", dst)
    if dst.dtype != getattr(data, "dtype", None):
        raise fail("NKI-D05", "nisa.nc_transpose does not cast", given=f"{data!r} to {dst!r}",
                   limit="dst has the dtype of data",
                   hint="make the PSUM tile with dtype=data.dtype")
    if engine not in (0, 1, 5):
        raise fail("NKI-E01", "nisa.nc_transpose runs on the Tensor or the Vector Engine",
                   limit="nisa.engine.tensor (up to 128 x 128), nisa.engine.vector (up to 32 x 32)")
    on_pe = engine == 1 or engine == 0 and dst.kind is PSUM and data.kind is not PSUM
    row = ROWS["nc_transpose" if on_pe else "nc_transpose_dve"]
    issue(m, row, {"data": data, "dst": dst})


def get_nc_version() -> Any:
    """Return the generation of the NeuronCore that is simulated."""
    m = current.get()
    return nc_version((m.hw if m is not None else hw.get()).generation)


def get_nc_sub_version() -> int:
    """Return the step of the generation; one is simulated of each."""
    return 0


# -- registers -----------------------------------------------------------------------------------

def register_alloc(x: Any = None) -> VirtualRegister:
    """Return a new register, with an integer in it if one is given."""
    machine("nisa.register_alloc")
    if x is not None and not isinstance(x, int):
        raise fail("NKI-N07", "nisa.register_alloc takes an integer", given=type(x).__name__,
                   limit="an int, or nothing (0.2 took a tensor as well)",
                   hint="r = nisa.register_alloc(); nisa.register_load(r, tile)")
    return VirtualRegister(x)


def _is_register(x: Any, api: str) -> VirtualRegister:
    if not isinstance(x, VirtualRegister):
        raise fail("NKI-N07", f"{api} takes a register", given=type(x).__name__,
                   limit="what nisa.register_alloc() returns")
    return x


def _one(m: Machine, t: Any, api: str) -> Any:
    t = settled(m, t)
    if getattr(t, "size", 0) != 1:
        raise fail("NKI-S09", f"{api} moves one element", given=f"{t!r}"[:80],
                   limit="a (1, 1) tensor in HBM or SBUF")
    return t


def register_move(dst: Any, src: Any) -> None:
    """Copy an integer or a register into a register."""
    value = src.value if isinstance(src, VirtualRegister) else src
    _is_register(dst, "nisa.register_move").set(int(value))


def register_load(dst: Any, src: Any) -> None:
    """Read one element of HBM or SBUF into a register."""
    m = machine("nisa.register_load")
    m.flush()
    t = _one(m, argument(src), "nisa.register_load")
    m.products.run()
    value = t.np.reshape(-1)[0] if m.compute else 0
    _is_register(dst, "nisa.register_load").set(float(value) if dtypes.is_float(t.dtype)
                                                else int(value))


def register_store(dst: Any, src: Any) -> None:
    """Write a register into one element of HBM or SBUF."""
    m = machine("nisa.register_store")
    m.flush()
    t = _one(m, argument(dst), "nisa.register_store")
    value = _is_register(src, "nisa.register_store").value
    if t.kind == "hbm":
        dma.store(t, float(value))
    else:
        dve.memset(t.shape, value, t.dtype, dst=t)


def __getattr__(name: str) -> Any:
    """Say that a name of the package is not modelled, or that it does not exist."""
    from .versions import missing
    raise missing("nisa", name, globals())


__all__ = ["NkiInstruction", "NkiValidationError", "VirtualRegister", "constants", "dge_mode",
           "dma_engine", "engine", "get_nc_sub_version", "get_nc_version", "gpsimd_engine",
           "matmul_perf_mode", "nc_transpose", "nc_version", "oob_mode", "reduce_cmd",
           "register_alloc", "register_load", "register_move", "register_store",
           "scalar_engine", "tensor_engine", "unknown_engine", "vector_engine", *INSTRUCTIONS]
