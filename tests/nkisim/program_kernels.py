"""The steps of a random program (program_steps.py) as kernels of both dialects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nkisim  # noqa: F401  (the packages below are its own)
from program_steps import AXES, CUTS, FILL, GROUP, F, P, Program, R, Step

import neuronxcc.nki as old  # isort: skip
import neuronxcc.nki.isa as old_isa  # isort: skip
import neuronxcc.nki.language as old_nl  # isort: skip
import nki  # isort: skip
import nki.isa as nisa  # isort: skip
import nki.language as nl  # isort: skip

# -- the kernel of nki -----------------------------------------------------------------------------


class Newer:
    """The steps of a program as instructions of `import nki`, on one core."""

    def __init__(self, x: Any, given: dict[Step, list[Any]], core: int, shared: list[Any]):
        self.x, self.given, self.core, self.shared = x, given, core, shared
        self.t = self.tile()
        nisa.dma_copy(dst=self.t, src=x[0:P])

    @staticmethod
    def tile(shape: tuple[int, ...] = (P, F), dtype: Any = nl.float32) -> Any:
        return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)

    def add(self, other: Any, op: Any = nl.add) -> None:
        nisa.tensor_tensor(dst=self.t, data1=self.t, data2=other, op=op)

    def scratch(self) -> Any:
        """Return a tensor of HBM that holds the input."""
        out = nl.ndarray((R, F), dtype=nl.float32, buffer=nl.hbm)
        nisa.dma_copy(dst=out, src=self.x)
        return out

    def all_of(self, scratch: Any) -> None:
        """Add all rows of a tensor of HBM to the tile."""
        self.add(self.load(scratch[R - P : R], nl.float32))
        first = self.t[0 : R - P]
        low = self.load(scratch[0 : R - P], nl.float32)
        nisa.tensor_tensor(dst=first, data1=first, data2=low, op=nl.add)

    def load(self, source: Any, like: Any) -> Any:
        t = self.tile(source.shape, like)
        nisa.dma_copy(dst=t, src=source)
        return t

    # -- rows ------------------------------------------------------------------------------------
    def rows(self, s: Step, i: Any) -> None:
        index = self.load(self.given[s][0], nl.int32)
        mode = nisa.oob_mode.skip if s.skip else nisa.oob_mode.error

        def chosen(of: Any) -> Any:
            if s.form == "vector_select":
                return of.vector_select(0, index)
            return of.ap([[F, P], [1, F]], vector_offset=index, indirect_dim=0)

        if s.kind == "gather":
            got = self.tile()
            nisa.memset(dst=got, value=FILL)
            nisa.dma_copy(dst=got, src=chosen(self.x), oob_mode=mode)
            self.add(got)
            return
        scratch = self.scratch()
        if s.kind == "scatter":
            nisa.dma_copy(dst=chosen(scratch), src=self.t, oob_mode=mode)
        else:
            to = chosen(scratch)
            nisa.dma_compute(dst=to, srcs=[self.t, to], reduce_op=nl.add, oob_mode=mode)
        self.all_of(scratch)

    def turned(self, s: Step, i: Any) -> None:
        """Gather rows and transpose them, a part of the tile's columns at a time."""
        index = self.load(self.given[s][0], nl.uint32)
        half = nl.ndarray((R, F), dtype=nl.bfloat16, buffer=nl.hbm)
        nisa.dma_copy(dst=half, src=self.x)
        shape, wide = (s.number, *CUTS[s.form]), CUTS[s.form][-1]
        if s.form == "vector_select":
            rows = half.vector_select(0, index)
        else:
            steps = [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
            rows = half.ap([*map(list, zip(steps, shape))], vector_offset=index, indirect_dim=0)
        order = AXES[len(shape)]
        got = self.tile(tuple(shape[a] for a in order), nl.bfloat16)
        nisa.memset(dst=got, value=FILL)
        mode = nisa.oob_mode.skip if s.skip else nisa.oob_mode.error
        nisa.dma_transpose(dst=got, src=rows, axes=order, oob_mode=mode)
        flat = got.reshape((wide, s.number * F // wide))
        for c in range(0, flat.shape[1], F):
            to = self.t[0:wide, 0 : min(F, flat.shape[1] - c)]
            nisa.tensor_tensor(dst=to, data1=to, data2=flat[:, c : c + to.shape[1]], op=nl.add)

    def number(self, s: Step, i: Any, of: Step | None = None) -> Any:
        """Return the number of a step (given with step `of`) as a tile, register or scalar."""
        first, factor = (*s.at, 0)[:2]
        if i is not None and factor:
            if (first, factor) == (0, 1):
                return i  # a register may be no more
            return i * factor + first if first else i * factor
        tile = self.load(self.given[of or s][0], nl.int32)
        if s.form == "tile":
            return tile
        if s.form == "register":
            r = nisa.register_alloc()
            nisa.register_load(r, tile)
            return r
        if s.form == "move":
            r, copy = nisa.register_alloc(), nisa.register_alloc(7)
            nisa.register_load(r, tile)
            nisa.register_move(copy, r)
            return copy
        return nisa.scalar_load(tile)

    def one_row(self, s: Step, i: Any) -> None:
        n = self.number(s, i)

        def chosen(of: Any) -> Any:
            if s.number:
                return of.select(0, n)
            return of.ap([[F, 1], [1, F]], scalar_offset=n, indirect_dim=0)

        if s.kind == "row in":
            row = self.tile((1, F))
            nisa.dma_copy(dst=row, src=chosen(self.x))
            nisa.tensor_tensor(dst=self.t[0:1], data1=self.t[0:1], data2=row, op=nl.add)
            return
        scratch = self.scratch()
        nisa.dma_copy(dst=chosen(scratch), src=self.t[0:1])
        self.all_of(scratch)

    def columns(self, s: Step, i: Any) -> None:
        width, n = F // 2, self.number(s, i)
        view = self.t.ap([[F, P], [1, width]], scalar_offset=n, indirect_dim=1)
        u = self.tile((P, width))
        if s.kind == "columns in":
            nisa.tensor_copy(dst=u, src=view)
            nisa.tensor_copy(dst=self.t[:, 0:width], src=u)
        else:
            nisa.dma_copy(dst=u, src=self.x[0:P, 0:width])
            nisa.tensor_copy(dst=view, src=u)

    def indirect(self, s: Step, i: Any) -> None:
        index, count = self.load(self.given[s][0], nl.uint16), len(s.at) * GROUP // P
        view = self.t.indirect(index, count)
        u = self.tile((P, count))
        dst, src = (u, view) if s.kind == "columns gathered" else (view, u)
        if s.kind == "columns scattered":
            nisa.dma_copy(dst=u, src=self.x[0:P, 0:count])
        if s.form == "activation":
            nisa.activation(dst=dst, op=nl.copy, data=src)
        elif s.form == "scalar":
            nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=1.0)
        else:
            nisa.tensor_copy(dst=dst, src=src)
        if s.kind == "columns gathered":
            nisa.tensor_copy(dst=self.t[:, 0:count], src=u)

    # -- numbers, loops, cores -------------------------------------------------------------------
    def count(self, s: Step, i: Any) -> None:
        n = self.number(s, i)
        to = self.tile((1, 1), nl.int32)
        if s.form == "move":
            nisa.register_store(to, n)
        else:
            nisa.scalar_store(to, n * s.number + 1)
        as_float = self.tile((1, 1))
        nisa.tensor_copy(dst=as_float, src=to)
        first = self.t[0:1, 0:1]
        nisa.tensor_tensor(dst=first, data1=first, data2=as_float, op=nl.add)

    def loop(self, s: Step, i: Any) -> None:
        low, high, step = s.at
        if s.form == "while":
            self.while_(s)
            return
        if s.form.startswith("dynamic"):
            self.dynamic(s)
            return

        def body(k: Any) -> None:
            for b in s.body:
                self.step(b, k)

        if s.form in ("scalar", "register"):
            high = self.number(Step("", s.form, s.at[1:2]), None, s)
        nl.fori_loop(low, high, body, step)

    def dynamic(self, s: Step) -> None:
        """Loop over nl.dynamic_range; one bound or both may be in registers."""
        bounds: list[Any] = list(s.at[:2])
        for k, table in enumerate(reversed(self.given.get(s, []))):
            r = nisa.register_alloc()
            nisa.register_load(r, self.load(table, nl.int32))
            bounds[1 - k] = r
        for i in nl.dynamic_range(*bounds, s.at[2]):
            if s.number:
                nisa.register_move(i, 0)
            for b in s.body:
                self.step(b, i)

    def while_(self, s: Step) -> None:
        """Count down in a tile; the body does not see the count."""
        left = self.load(self.given[s][0][0:1, 0:1], nl.int32)
        r = nisa.register_alloc()
        nisa.register_load(r, left)

        def body(r: Any) -> Any:
            for b in s.body:
                self.step(b, None)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
            nisa.register_load(r, left)
            return r

        nl.while_loop(r, body)

    def scalar(self, s: Step, i: Any) -> None:
        nisa.tensor_scalar(dst=self.t, data=self.t, op0=nl.add, operand0=float(s.number))

    def random(self, s: Step, i: Any) -> None:
        draws = []
        for seed in self.given[s]:
            u = self.tile((P, F), nl.uint16)
            if s.form == "state":
                state = self.load(seed, nl.uint32)
                nisa.rand_set_state(state, engine=nisa.engine.gpsimd)
                nisa.rng(u, engine=nisa.engine.gpsimd)
            else:
                nisa.set_rng_seed(self.load(seed[0:1, 0:1], nl.uint32))
                nisa.rng(u, engine=nisa.engine.vector)
            draw = self.tile()
            nisa.tensor_copy(dst=draw, src=u)
            draws.append(draw)
        nisa.tensor_tensor(dst=draws[0], data1=draws[0], data2=draws[1], op=nl.subtract)
        self.add(draws[0])

    def interval(self, s: Step, i: Any) -> None:
        u, above, below = self.tile(), self.tile(), self.tile()
        nisa.rand2(u, float(s.number), float(s.number + 1))
        low = float(s.at[0])
        nisa.tensor_scalar(dst=above, data=u, op0=nl.greater_equal, operand0=low)
        nisa.tensor_scalar(dst=below, data=u, op0=nl.less_equal, operand0=low + 1)
        self.add(above)
        self.add(below)
        self.scalar(Step("scalar", number=-1), i)

    def dropout(self, s: Step, i: Any) -> None:
        u = self.tile()
        nisa.dropout(dst=u, data=self.t, prob=float(s.number))
        self.t = u

    def exchange(self, s: Step, i: Any) -> None:
        other, to = self.tile(), self.core if s.number else 1 - self.core
        nisa.sendrecv(src=self.t, dst=other, send_to_rank=to, recv_from_rank=to, pipe_id=0)
        self.add(other)

    def meet(self, s: Step, i: Any) -> None:
        both = self.shared.pop(0)
        nisa.dma_copy(dst=both[self.core], src=self.t)
        if not s.number:
            nisa.core_barrier(both, (0, 1))
        other = self.tile()
        nisa.dma_copy(dst=other, src=both[1 - self.core])
        self.add(other, nl.maximum)

    def step(self, s: Step, i: Any = None) -> None:
        """Issue the instructions of a step."""
        DOES[s.kind](self, s, i)


DOES: dict[str, Callable[[Newer, Step, Any], None]] = {
    "gather": Newer.rows,
    "gather turned": Newer.turned,
    "scatter": Newer.rows,
    "scatter add": Newer.rows,
    "row in": Newer.one_row,
    "row out": Newer.one_row,
    "columns in": Newer.columns,
    "columns out": Newer.columns,
    "columns gathered": Newer.indirect,
    "columns scattered": Newer.indirect,
    "loop": Newer.loop,
    "scalar": Newer.scalar,
    "count": Newer.count,
    "random": Newer.random,
    "interval": Newer.interval,
    "dropout": Newer.dropout,
    "exchange": Newer.exchange,
    "meet": Newer.meet,
}


def newer(program: Program, steps: list[Step]) -> Any:
    def kernel(*given: Any) -> Any:
        inputs, more = given[: program.cores], given[program.cores :]
        core = nl.program_id(0) if program.cores > 1 else 0
        out = nl.ndarray((program.cores, P, F), dtype=nl.float32, buffer=nl.shared_hbm)
        shared = []
        for s in program.steps:
            if s.kind == "meet":
                shared.append(nl.ndarray((2, P, F), dtype=nl.float32, buffer=nl.shared_hbm))
        tables: dict[Step, list[Any]] = {}
        for s, table in zip(steps, more, strict=True):
            tables.setdefault(s, []).append(table)
        run = Newer(inputs[core], tables, core, shared)
        for s in program.steps:
            run.step(s)
        nisa.dma_copy(dst=out[core], src=run.t)
        return out

    jitted = nki.jit(kernel)
    return jitted[2] if program.cores > 1 else jitted


# -- the kernel of neuronxcc.nki -------------------------------------------------------------------


def _turned(x: Any, rows: Any, t: Any, s: Step) -> Any:
    """Return the tile and the rows that indices choose, transposed."""
    half = old_nl.ndarray((R, *CUTS[s.form]), dtype=old_nl.bfloat16, buffer=old_nl.hbm)
    old_isa.dma_copy(dst=half, src=x.reshape(half.shape))
    rank, wide = len(half.shape), CUTS[s.form][-1]
    at = [
        old_nl.arange(n)[tuple(slice(None) if e == d else None for e in range(rank))]
        for d, n in enumerate((s.number, *CUTS[s.form]))
    ]
    first = old_nl.arange(s.number)[:, None]
    got = old_isa.dma_transpose(half[(rows[first, 0], *at[1:])], axes=AXES[rank])
    flat = got.reshape((wide, s.number * F // wide))
    for c in range(0, flat.shape[1], F):
        to = min(F, flat.shape[1] - c)
        t[0:wide, 0:to] = old_nl.add(t[0:wide, 0:to], flat[:, c : c + to])
    return t


def older(program: Program, steps: list[Step]) -> Any:
    def kernel(x: Any, *more: Any) -> Any:
        i_p, i_f = old_nl.arange(P)[:, None], old_nl.arange(F)[None, :]
        out = old_nl.ndarray((1, P, F), dtype=x.dtype, buffer=old_nl.shared_hbm)
        t, tables = old_nl.load(x[0:P]), dict(zip(steps, more, strict=True))
        for s in program.steps:
            if s.kind == "scalar":
                t = old_nl.add(t, float(s.number))
                continue
            rows = old_nl.load(tables[s])
            mode = old_isa.oob_mode.skip if s.skip else old_isa.oob_mode.error
            if s.kind == "gather turned":
                t = _turned(x, rows, t, s)
                continue
            if s.kind == "gather":
                got = old_nl.full((P, F), FILL, dtype=x.dtype, buffer=old_nl.sbuf)
                if s.form == "dma_copy":
                    old_isa.dma_copy(dst=got, src=x[rows[i_p, 0], i_f], oob_mode=mode)
                else:
                    got[i_p, i_f] = old_nl.load(x[rows[i_p, 0], i_f], mode=mode)
                t = old_nl.add(t, got)
                continue
            scratch = old_nl.ndarray((R, F), dtype=x.dtype, buffer=old_nl.hbm)
            old_isa.dma_copy(dst=scratch, src=x)
            if s.form == "dma_copy":
                old_isa.dma_copy(dst=scratch[rows[i_p, 0], i_f], src=t, oob_mode=mode)
            else:
                old_nl.store(scratch[rows[i_p, 0], i_f], t, mode=mode)
            t = old_nl.add(t, old_nl.load(scratch[R - P : R]))
            low = old_nl.add(t[0 : R - P], old_nl.load(scratch[0 : R - P]))
            t[0 : R - P] = low
        old_nl.store(out[0], t)
        return out

    return old.jit(kernel)
