"""The one table: a row per instruction.

A row says what an instruction is called, which engines run it, what it may write, how it is
planned (operands and limits), what it computes, and where that is documented. Rows are written
with `@instruction(...)` over their plan function, here in `isa/`; the facade, the checks, the
coverage page and the tests read the table.
"""
from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..chip.memory import PSUM, SBUF
from ..errors import NkiError, fail, user_frame
from ..machine.context import current, machine
from .formulas import no_flops

if TYPE_CHECKING:
    from ..machine.machine import Instr, Machine
    from ..machine.tensor import Tensor
    from ..trace.trace import Kind
    from .formulas import Flops, Formula

# engines, by the names that profiles use
TENSOR, VECTOR, SCALAR, GPSIMD, SYNC, DMA = "tensor", "vector", "scalar", "gpsimd", "sync", "dma"
ANY = "any"             # engine=unknown where several can do it: the schedule balances the load


@dataclass(frozen=True, eq=False)
class Row:
    """One instruction of the chip.

    `run(machine, instr, dst)` computes in NumPy and writes `dst`; `check(machine, instr, dst)`
    looks at the destination once it is known; `writes` are the memories it can write;
    `accumulates`: `psum += op(...)` is this one instruction; `masks_itself`: `run` honours
    `instr.mask`; `on_partitions`: operands obey the start-partition rule; `cost`: the formula of
    `formulas.py` for the engine's cycles; `flops`: its matmul arithmetic; `merges`: keeps bytes of
    the destination that it does not write, so that it needs what was there; `transposes`: a DMA
    that moves element by element; `read_modify_write`: a DMA that adds to what is there;
    `act_table`: `extra[0]` names the function whose table the Scalar Engine needs.
    """

    name: str
    engines: tuple[str, ...]
    run: Callable[[Machine, Instr, Tensor], None]
    writes: tuple[str, ...] = (SBUF, PSUM)
    check: Callable[[Machine, Instr, Tensor], None] | None = None
    accumulates: bool = False
    masks_itself: bool = False
    on_partitions: bool = True
    cost: Formula | None = None
    flops: Callable[[Kind], Flops] = no_flops
    merges: bool = False
    transposes: bool = False
    read_modify_write: bool = False
    act_table: bool = False
    source: str = ""
    doc: str = ""

    def __repr__(self) -> str:
        return f"<{self.name}>"


ROWS: dict[str, Row] = {}


def misuse(name: str, plan: Callable, exc: Exception) -> NkiError:
    """Return the error for a call that its plan could not make sense of."""
    text = str(exc).replace("plan_", "").replace("(m, ", "(") or type(exc).__name__
    params = [p for p in inspect.signature(plan).parameters.values() if p.name != "m"]
    sig = str(inspect.Signature(params))
    return fail("NKI-X01", f"{name} was not given what it takes: {text}", limit=f"{name}{sig}",
                hint=f"help({name}) says what each argument is")


def instruction(name: str, *, engines: tuple[str, ...], run: Callable, source: str,
                **traits: Any) -> Callable[[Callable], Callable]:
    """Make a plan function into a row of the table; return the public function of the row.

    The plan `plan(m, *args)` has the public signature after the machine `m`, checks the operands
    and returns an `Instr`. The public function issues it and returns the result tile.
    """
    def wrap(plan: Callable) -> Callable:
        row = ROWS[name] = Row(name, engines, run, source=source, doc=plan.__doc__ or "", **traits)
        default = engines[0]
        params = list(inspect.signature(plan).parameters.values())[1:]
        allowed = frozenset(p.name for p in params)

        @functools.wraps(plan)
        def api(*args: Any, **kw: Any) -> Any:
            m = current.get()
            if m is None:
                m = machine(name)
            if m.pending is not None:
                m.flush()
            if kw and not allowed.issuperset(kw):       # beta 1 ignores unknown names
                kw = {k: v for k, v in kw.items() if k in allowed}
            try:
                ins = plan(m, *args, **kw)
                ins.row = row
                if not ins.engine:
                    ins.engine = default
                ins.line = m.trace.line(user_frame(sys._getframe(1)))
                return m.issue(ins)
            except NkiError:
                raise
            except (TypeError, ValueError, KeyError, AttributeError, IndexError) as exc:
                if hasattr(exc, "nki_error"):
                    raise
                raise misuse(name, plan, exc) from None
        api.__name__ = api.__qualname__ = name
        api.__signature__ = inspect.Signature(params)      # type: ignore[attr-defined]
        api.row = row                                       # type: ignore[attr-defined]
        del api.__wrapped__                                 # type: ignore[attr-defined]
        return api
    return wrap
