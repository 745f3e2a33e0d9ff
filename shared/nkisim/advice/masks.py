"""Work on the columns of a row in which a mask selects nothing, before the mask and after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..chip.memory import HBM
from ..isa.variants import ColumnsSelected
from ..timing import whatif
from ..timing.cost import Work
from ..trace.footprint import Accesses, accesses
from ..trace.trace import OpSpec
from .facts import Facts
from .sign import Sign
from .work import HIDDEN

#: instructions of a trace that is looked through; beyond, it takes too long
MOST = 100_000
#: bytes of a partition, from - to
Span = tuple[float, float]
WHOLE: Span = (0.0, 1.0)


def _hides(spec: OpSpec) -> bool:
    v = spec.variant
    return isinstance(v, ColumnsSelected) and (v.fill == 0.0 or v.fill <= HIDDEN)


class _Rows:
    """The accesses of a run by instruction, and which columns of them count.

    `live`: by version, the bytes of a partition that are not masked, where that is known;
    `share`: by instruction, how much of its columns counts, 0 to 1.
    """

    def __init__(self, facts: Facts, acc: Accesses):
        self.facts, self.specs = facts, [facts.op_specs[k] for k in facts.spec.tolist()]
        count = len(self.specs)
        self.first = np.searchsorted(acc.ev["instr"], np.arange(count + 1)).tolist()
        self.vid, self.write = acc.vid.tolist(), acc.ev["write"].tolist()
        self.lo, self.hi = acc.ev["lo"].tolist(), acc.ev["hi"].tolist()
        self.number = acc.ev["operand"].tolist()
        self.share = np.ones(count)
        self.forwards()
        self.backwards(len(acc.versions.storage))

    def mine(self, i: int, write: bool) -> list[int]:
        """Return the accesses of an instruction."""
        return [a for a in range(self.first[i], self.first[i + 1]) if self.write[a] == write]

    def part(self, a: int, span: Span | None) -> Span:
        """Return which part of an access lies in a span of its version, as shares of its bytes."""
        if span is None:
            return WHOLE
        lo, size = self.lo[a], self.hi[a] - self.lo[a]
        begin, end = max(span[0], lo), min(span[1], lo + size)
        return ((begin - lo) / size, (end - lo) / size) if end > begin else (0.0, 0.0)

    def bytes(self, a: int, part: Span) -> Span:
        """Return the bytes of a partition that are a part of an access."""
        size = self.hi[a] - self.lo[a]
        return self.lo[a] + part[0] * size, self.lo[a] + part[1] * size

    def keeps_columns(self, i: int, a: int) -> bool:
        """Return whether a column that an instruction writes comes from that column of an operand:
        the moving one of a product, all of an elementwise instruction."""
        spec = self.specs[i]
        out, operand = spec.operands[0], spec.operands[self.number[a]]
        if spec.engine == "tensor" and self.number[a] != len(spec.operands) - 1:
            return False
        columns = (p.elements // p.shape[0] for p in (out, operand))
        turned = bool(getattr(spec.variant, "transposes", False))
        return len(set(columns)) == 1 and out.elements > out.shape[0] and not turned

    def forwards(self) -> None:
        """Follow what a mask leaves of its tile to those who read it."""
        live: dict[int, Span] = {}
        for i, spec in enumerate(self.specs):
            reads, writes = self.mine(i, False), self.mine(i, True)
            own = {self.vid[a] for a in writes}  # a sum that it goes on with is no operand
            parts = {
                a: self.part(a, live.get(self.vid[a])) for a in reads if self.vid[a] not in own
            }
            if _hides(spec):
                v = spec.variant
                n = spec.operands[0].elements // spec.operands[0].shape[0]
                left: Span = v.first / n, v.last / n
            elif spec.engine == "dma":
                left = WHOLE
            elif any(p[1] <= p[0] for p in parts.values()):
                left = (0.0, 0.0)
            else:
                kept = [p for a, p in parts.items() if self.keeps_columns(i, a) and p != WHOLE]
                left = kept[0] if kept else WHOLE
                if not kept and spec.engine != "tensor":  # a sum over what is left
                    self.share[i] = min((p[1] - p[0] for p in parts.values()), default=1.0)
            self.share[i] = min(self.share[i], left[1] - left[0])
            if left[1] <= left[0] and spec.accumulate:
                continue  # what else is in the sum counts
            for a in writes:
                if left == WHOLE:
                    live.pop(self.vid[a], None)
                else:
                    live[self.vid[a]] = self.bytes(a, left)

    def backwards(self, versions: int) -> None:
        """Follow back what is needed: of what a mask reads, the columns that it selects."""
        needed: list[Span | None] = [None] * versions
        for i in range(len(self.specs) - 1, -1, -1):
            spec = self.specs[i]
            outs = spec.operands[: spec.outputs]
            stored = spec.engine == "dma" or any(p.memory is HBM for p in outs)
            part = WHOLE
            for a in self.mine(i, True) if not stored else ():
                span = needed[self.vid[a]]
                part = self.part(a, span) if span else (0.0, 0.0)
            if _hides(spec):
                n = outs[0].elements // outs[0].shape[0]
                part = spec.variant.first / n, spec.variant.last / n
            self.share[i] = min(self.share[i], part[1] - part[0])
            if self.share[i] <= 0.0:
                continue
            for a in self.mine(i, False):
                span = self.bytes(a, part if self.keeps_columns(i, a) else WHOLE)
                old = needed[self.vid[a]]
                needed[self.vid[a]] = (
                    span if old is None else (min(old[0], span[0]), max(old[1], span[1]))
                )


def masked_columns(facts: Facts) -> Iterator[Sign]:
    """Instructions that work on columns in which a mask selects nothing, at the mask's line."""
    hides = np.array([_hides(k) for k in facts.op_specs] or [False])[facts.spec]
    if len(facts.spec) > MOST or not hides.any():
        return
    share = _Rows(facts, accesses(facts.trace, facts.hw, "rename" in facts.on)).share
    instrs = np.flatnonzero((share < 1.0) & ~facts.is_dma)
    us = facts.interval[facts.spec[instrs]] * (1.0 - share[instrs])
    yield Sign(
        facts.busiest(np.flatnonzero(hides), facts.interval),
        float(us.sum()),
        {"count": f"{len(instrs):,}", "left": float(share[hides].mean())},
        instrs,
        share,
    )


def narrowed(facts: Facts, sign: Sign) -> float:
    """With instructions that go through the columns which count, and without those with none."""
    share = sign.more
    gone = sign.instrs[share[sign.instrs] <= 0.0]
    deps = whatif.dropped(facts.plan.deps, gone)
    left = np.ones(len(facts.spec), bool)
    left[gone] = False
    shorter = sign.instrs[share[sign.instrs] > 0.0]
    place = (np.cumsum(left) - 1)[shorter]
    count = len(facts.op_specs)
    specs = facts.spec[shorter]
    sums = np.bincount(specs, share[shorter], count), np.bincount(specs, minlength=count)
    mean = {
        id(k): float(s / max(1, n)) for k, s, n in zip(facts.op_specs, *(x.tolist() for x in sums))
    }

    def shorten(spec: OpSpec, work: Work) -> Work:
        saved = work.interval_us * (1.0 - mean[id(spec)])
        return replace(
            work, interval_us=work.interval_us - saved, latency_us=work.latency_us - saved
        )

    again = facts.without(deps=facts.planned_anew(deps), instrs=place, work=shorten)
    return min(facts.body, again)
