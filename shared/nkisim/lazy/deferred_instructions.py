"""Instructions that wait for products: those which drain PSUM, and what follows from them.

Where an instruction reads what products.py has not computed yet, all of it would have to be
computed now. If nothing can tell the difference, the instruction waits instead, as the products do.
What is known about memory (which bytes have been written) is brought up to date at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..chip.memory import FULLY, HBM, NEVER
from ..errors import NkiError
from ..machine.tensor import Tensor
from .float32_copies import refresh_shadow

if TYPE_CHECKING:
    from ..machine.instruction import Instr
    from ..machine.interface import Machine


def may_wait(m: Machine, ins: Instr, outs: tuple[Tensor, ...]) -> bool:
    """Return whether an instruction can be put off until the products that it reads are computed.

    A load cannot: as long as it does nothing, everything that follows would have to wait too.
    """
    if (
        not m.compute
        or m.transfers is not None
        or m.launch.cores is not None
        or m.watch is not None
        or ins.row.deferrable is None
        or not ins.row.deferrable(ins)
    ):
        return False
    if (
        len(outs) != 1
        or ins.mask is not None
        or ins.over is not None
        or ins.accumulate
        or ins.scatters
        or outs[0].storage.arena
        or any(ref() is not None for ref in outs[0].storage.aliases or ())
    ):
        return False
    return all(
        t.memory is not HBM
        and not t.storage.arena
        and t.storage.defined(t.offset, t.shape, t.strides, t.dtype.itemsize)
        for t in ins.srcs
    )


def hold(m: Machine, ins: Instr, dst: Tensor) -> None:
    """Put an instruction off, and note what it will have written."""
    st = dst.storage
    if st.init == NEVER and dst.size * dst.dtype.itemsize == st.nbytes and 0 not in dst.strides:
        st.fresh()
        st.init = FULLY
    st.mark(dst.offset, dst.shape, dst.strides, dst.dtype.itemsize)

    def run(ins: Instr, dst: Tensor) -> None:
        if all(s.storage is not st for s in ins.srcs):
            dst.to_write()
        try:
            m.run(ins, dst)
        except NkiError as exc:
            raise exc.at(m.trace.where(ins.line), final=True)  # noqa: B904 (the same exception)
        st.version += 1
        if st.shadow is not None:
            refresh_shadow(dst)

    m.products.hold(run, ins, dst)


__all__ = ["hold", "may_wait"]
