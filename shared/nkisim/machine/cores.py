"""Two cores that run one kernel together, `kernel[2]`: each has its own SBUF, PSUM and engines.

They run in turn on one machine: a core goes on until it waits for the other one (a barrier, an
exchange of tiles) or ends. So a run is the same every time, and a wait without an answer is seen.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip.memory import HBM, NEVER
from ..errors import fail
from .instruction import Instr
from .state import Core, Registers
from .tensor import Tensor

if TYPE_CHECKING:
    from .interface import Machine


class _Stopped(BaseException):
    """Ends a core after another one has failed."""


class Cores:
    """The cores of a launch; `met` says how often each of them has come to where they wait."""

    def __init__(self, m: Machine, count: int):
        self.m, self.count = m, count
        self.turn = 0
        self.changed = threading.Condition()
        self.done = [False] * count
        self.waits: list[Any] = [None] * count
        self.error: BaseException | None = None
        self.results: list[Any] = [None] * count
        self.posted: dict[Any, Any] = {}
        self.met = [0] * count
        self.nodes: list[int] = []
        self.replaced: set[int] = set()  # HBM in which a core replaced a value by another one
        self._kept = [Core() for _ in range(count)]

    def run(self, call: Callable[[], Any]) -> Any:
        """Call the kernel on every core; return what the first one returns."""
        m, tr = self.m, self.m.trace
        loop, parent = len(tr.loop_kind), m.core.node
        tr.loop_kind.append("cores")
        tr.loop_line.append(-1)
        m.loops.open.append(True)
        for i in range(self.count):
            m.enter(loop, parent, i)
            self.nodes.append(m.core.node)
            self._kept[i] = Core(
                program_id=(i,),
                node=m.core.node,
                top=m.core.node,
                depth=m.core.depth,
                registers=Registers(np.random.default_rng(i)),
            )
        others = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(self._core, i, call), daemon=True
            )
            for i in range(1, self.count)
        ]
        for thread in others:
            thread.start()
        self._core(0, call)
        for thread in others:
            thread.join()
        self._kept.clear()  # the launch lets go of what is the machine's
        m.loops.open[loop] = False
        m.core.node = parent
        if self.error is not None:
            raise self.error
        return self.results[0]

    def _core(self, i: int, call: Callable[[], Any]) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.turn == i or self.error is not None)
        try:
            if self.error is None:
                self._restore(i)
                with self.m.overflow.errstate():
                    self.results[i] = call()
                    self.m.flush()
        except _Stopped:
            pass
        except BaseException as exc:
            self.error = self.error or exc
        finally:
            with self.changed:
                self.done[i] = True
                self._save(i)
                self.turn = next((j for j in range(self.count) if not self.done[j]), i)
                self.changed.notify_all()

    def _save(self, i: int) -> None:
        self._kept[i] = self.m.core

    def _restore(self, i: int) -> None:
        self.m.core = self._kept[i]

    def execute(self, ins: Instr, outs: tuple[Tensor, ...]) -> None:
        """Execute an instruction, and note where another value was before in HBM.

        Two cores that write the same value to the same place do no harm.
        """
        before = [
            (t, t.storage.origins(t.offset, t.shape, t.strides, t.dtype.itemsize) < 0, t.np.copy())
            for t in outs
            if self.turn and t.memory is HBM and t.storage.init != NEVER and t.oob is None
        ]
        self.m.execute(ins, outs[0])
        for t, there, old in before:
            same = (old == t.np) | (old != old) & (t.np != t.np)  # NaN is like NaN
            if (there & ~same).any():
                self.replaced.add(t.storage.id)

    def wait(self, what: tuple) -> None:
        """Let the core that runs wait until the others have come to the same point."""
        self.m.flush()
        self.m.catch_up()
        me = self.m.core.program_id[0]
        self.met[me] += 1
        others = [j for j in range(self.count) if j != me]
        if all(self.waits[j] == what for j in others):
            for j in others:
                self.waits[j] = None  # they go on when it is their turn
            return
        if any(self.done[j] or self.waits[j] is not None for j in others):
            raise self._deadlock(what, others)
        self.waits[me] = what
        with self.changed:
            self._save(me)
            self.turn = others[0]
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.turn == me or self.error is not None)
        if self.error is not None:
            raise _Stopped
        self._restore(me)
        if self.waits[me] is not None:
            raise self._deadlock(what, others)

    def _deadlock(self, what: tuple, others: list[int]) -> Exception:
        waits = ", ".join(
            f"core {j} " + ("has ended" if self.done[j] else f"waits for {self.waits[j][0]}")
            for j in others
        )
        return fail(
            "NKI-N10",
            "a core waits for one that never comes",
            given=f"core {self.m.core.program_id[0]} waits for {what[0]}; {waits}",
            limit="both cores come to the same barriers and exchanges, in one order",
            hint="call nisa.core_barrier and nisa.sendrecv on every path of both cores, "
            "with the same pipe_id",
        )
