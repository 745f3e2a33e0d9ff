"""Causes that lie with work that is not needed: what is loaded or computed and never read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..chip.memory import HBM
from ..isa.table import ROWS
from ..isa.variants import Activation, NothingSelected, Ops, Reduction
from ..timing import whatif
from ..timing.cost import Work
from ..trace.footprint import Accesses, accesses
from ..trace.trace import OpSpec, operand_at
from .facts import Facts
from .sign import Sign, size

#: instructions of a trace that is looked through; beyond, it takes too long
MOST = 400_000
#: an engine that has less of another one's work than this could take some of it
IDLE = 0.7
#: a mask that fills with this or less leaves nothing of an exponential
HIDDEN = -1e3


def unread(facts: Facts) -> np.ndarray:
    """Return the instructions whose results nothing reads that leads to HBM, in program order.

    A result is a tile between two writes of all of it; it counts as read if a part of it is.
    """
    if facts.unread is None:
        facts.unread = _unread(facts) if len(facts.spec) <= MOST else np.zeros(0, np.int64)
    return facts.unread


def _unread(facts: Facts) -> np.ndarray:
    acc = accesses(facts.trace, facts.hw, "rename" in facts.on)
    write, instr = acc.ev["write"], acc.ev["instr"]
    count = len(acc.versions.storage)
    reads = np.bincount(acc.vid[~write], minlength=count)
    on_chip = ~acc.stores.hbm[acc.ev["storage"]]
    if not (on_chip & write & (reads[acc.vid] == 0)).any():
        return np.zeros(0, np.int64)
    return _backwards(facts, acc, instr, write)


def masked(facts: Facts) -> np.ndarray:
    """Return the instructions on tiles where a mask selects nothing.

    Those after the mask, as long as all they read is such a tile (of a product: one of the two),
    and those before it whose results are used for nothing else.
    """
    hides = np.array([_hides(k) for k in facts.op_specs] or [False])[facts.spec]
    if len(facts.spec) > MOST or not hides.any():
        return np.zeros(0, np.int64)
    acc = accesses(facts.trace, facts.hw, "rename" in facts.on)
    idle = _idle(facts, acc, hides)
    useless = _backwards(facts, acc, acc.ev["instr"], acc.ev["write"], idle)
    return np.setdiff1d(useless, unread(facts))


def _hides(spec: OpSpec) -> bool:
    """Return whether all that an instruction writes is a number that makes no difference later."""
    return isinstance(spec.variant, NothingSelected) and (
        spec.variant.fill == 0.0 or spec.variant.fill <= HIDDEN
    )


def _idle(facts: Facts, acc: Accesses, hides: np.ndarray) -> np.ndarray:
    """Return (bool) the masks that select nothing, and what only goes on with what they write."""
    idle, filled = hides.copy(), dict[int, bool]()  # version -> nothing else is in it
    first = np.searchsorted(acc.ev["instr"], np.arange(len(facts.spec) + 1)).tolist()
    vid, writes = acc.vid.tolist(), acc.ev["write"].tolist()
    wide = np.array([p.elements > p.shape[0] for _, _, p in facts.trace.operand_specs()] or [False])
    wide_at = wide[acc.ev["operand_spec"]].tolist()
    product = np.array([k.engine == "tensor" for k in facts.op_specs] or [False])[facts.spec]
    for i in range(len(facts.spec)):
        events = range(first[i], first[i + 1])
        if not hides[i] and not facts.is_dma[i]:
            read = [a for a in events if not writes[a]]
            if product[i]:  # a sum in PSUM that it goes on with is no operand
                own = {vid[a] for a in events if writes[a]}
                idle[i] = any(filled.get(vid[a], False) for a in read if vid[a] not in own)
            else:
                large = [a for a in read if wide_at[a]] or read
                idle[i] = bool(large) and all(filled.get(vid[a], False) for a in large)
        for a in events:
            if writes[a]:
                filled[vid[a]] = bool(idle[i]) and filled.get(vid[a], True)
    return idle


def masked_work(facts: Facts) -> Iterator[Sign]:
    """Instructions that work on what a mask hides, as one, at the line of the mask."""
    instrs = masked(facts)
    if not len(instrs):
        return
    hides = np.array([_hides(k) for k in facts.op_specs])[facts.spec[instrs]]
    us = facts.interval + facts.dma_us + facts.trigger_us
    yield Sign(
        facts.busiest(instrs[hides], us),
        float(us[facts.spec[instrs]].sum()),
        {"count": f"{len(instrs):,}", "tiles": f"{int(hides.sum()):,}"},
        instrs,
    )


def _backwards(
    facts: Facts,
    acc: Accesses,
    instr: np.ndarray,
    write: np.ndarray,
    gone: np.ndarray | None = None,
) -> np.ndarray:
    """Go back through the program: what an instruction that counts reads, counts.

    `gone` (bool): these do not count.
    """
    # a kernel may return a tile without storing it; then nothing is known
    stores = [any(p.memory is HBM for p in k.operands[: k.outputs]) for k in facts.op_specs]
    if not np.array(stores or [False])[facts.spec].any():
        return np.zeros(0, np.int64)
    keeps = np.array(
        [
            not k.outputs
            or k.row.is_collective
            or k.row.spills
            or bool(getattr(k.variant, "registers", 0))
            or stored
            for k, stored in zip(facts.op_specs, stores)
        ]
        or [False]
    )[facts.spec].tolist()
    needed = np.zeros(len(acc.versions.storage), bool).tolist()
    first = np.searchsorted(instr, np.arange(len(facts.spec) + 1)).tolist()
    vid, writes = acc.vid.tolist(), write.tolist()
    out = []
    for i in range(len(facts.spec) - 1, -1, -1):
        events = range(first[i], first[i + 1])
        if gone is not None and gone[i]:
            out.append(i)
            continue
        if not (keeps[i] or any(writes[a] and needed[vid[a]] for a in events)):
            out.append(i)
            continue
        for a in events:
            if not writes[a]:
                needed[vid[a]] = True
    return np.array(out[::-1], np.int64)


def unread_loads(facts: Facts) -> Iterator[Sign]:
    """DMAs whose data nothing reads."""
    instrs = unread(facts)
    yield from _signs(facts, instrs[facts.is_dma[instrs]])


def unread_results(facts: Facts) -> Iterator[Sign]:
    """Instructions of the engines whose results nothing reads, and what only leads up to them."""
    instrs = unread(facts)
    if not facts.is_dma[instrs].all():
        yield from _signs(facts, instrs)


def left_out(facts: Facts, sign: Sign) -> float:
    """With a program that does not have the instructions."""
    deps = whatif.dropped(facts.plan.deps, sign.instrs)
    return min(facts.body, facts.without(deps=facts.planned_anew(deps)))


def _signs(facts: Facts, some: np.ndarray) -> Iterator[Sign]:
    us = facts.interval + facts.dma_us + facts.trigger_us
    for line, of_line in facts.by_line(some):
        specs = facts.spec[of_line]
        yield Sign(
            line,
            float(us[specs].sum()),
            {"count": f"{len(of_line):,}", "nbytes": size(int(facts.nbytes[specs].sum()))},
            of_line,
        )


# -- sums that need no pass of their own ---------------------------------------------------------


def separate_sums(facts: Facts) -> Iterator[Sign]:
    """Sums over a tile that one instruction wrote, which could have summed it as well."""
    sums = np.array([_is_sum(k) for k in facts.op_specs] or [False])[facts.spec]
    if len(facts.spec) > MOST or not sums.any():
        return
    made = _makers(facts, sums)
    made_here = np.array([i for i, maker in made.items() if maker >= 0], np.int64)
    for line, instrs in facts.by_line(made_here):
        place = facts.where(int(facts.line[made[int(instrs[0])]]))
        yield Sign(
            line,
            float(facts.interval[facts.spec[instrs]].sum()),
            {"count": f"{len(instrs):,}", "other": f"line {place.line}" if place else "another"},
            instrs,
        )


def _is_sum(spec: OpSpec) -> bool:
    return isinstance(spec.variant, Reduction) and spec.variant.op == "add"


def _sums_as_well(spec: OpSpec) -> bool:
    """Return whether an engine could sum what an elementwise instruction writes meanwhile.

    Not squares: NKI-R26 doubts that compilers take an activation that adds them up.
    """
    v = spec.variant
    if not isinstance(v, Activation | Ops) or spec.outputs != 1 or v.registers:
        return False
    sources = spec.operands[spec.outputs :]
    two_tiles = len(sources) == 2 and sources[0] == sources[1]
    return not two_tiles and getattr(v, "function", "") != "square"


def _makers(facts: Facts, sums: np.ndarray) -> dict[int, int]:
    """Return, for each sum, the instruction that made all of what it reads and could sum it; -1 if
    there is none: several did, or it has two wide operands that differ."""
    acc = accesses(facts.trace, facts.hw, "rename" in facts.on)
    could = np.array([_sums_as_well(k) for k in facts.op_specs] or [False])[facts.spec].tolist()
    patterns = [p for _, _, p in facts.trace.operand_specs()]
    writer: dict[int, tuple[int, int]] = {}  # version -> (who wrote it, how many elements)
    wide: dict[int, set[tuple[int, int]]] = {}  # instruction -> what it reads, but for columns
    made: dict[int, int] = {}
    columns = (acc.ev[c].tolist() for c in ("instr", "write", "offset", "operand_spec"))
    for i, writes, at, k, version in zip(*columns, acc.vid.tolist()):
        p = patterns[k]
        if writes:
            writer[version] = (-1, 0) if version in writer else (i, p.elements)
        elif sums[i]:
            by, elements = writer.get(version, (-1, 0))
            fits = by >= 0 and could[by] and elements == p.elements
            made[i] = by if fits and len(wide.get(by, ())) < 2 else -1
        elif could[i] and p.elements > p.shape[0]:
            wide.setdefault(i, set()).add((version, at))
    return made


def squares(facts: Facts) -> Iterator[Sign]:
    """Squares that the Vector Engine multiplies out while the Scalar Engine has less to do."""
    if facts.share["scalar"] > IDLE * facts.share["vector"]:
        return
    multiplies = np.array(
        [
            k.engine == "vector"
            and k.variant == Ops("multiply")
            and len(k.operands) == 3
            and k.operands[1] == k.operands[2]
            for k in facts.op_specs
        ]
        or [False]
    )
    rows, starts = np.array(facts.trace.rows, np.int64), np.array(facts.trace.starts, np.int64)
    products = np.flatnonzero(multiplies[facts.spec])
    one, other = (operand_at(starts[products], n) for n in (1, 2))
    same = (rows[one] == rows[other]) & (rows[one + 1] == rows[other + 1])
    for line, instrs in facts.by_line(products[same]):
        yield Sign(
            line,
            float(facts.interval[facts.spec[instrs]].sum()),
            {
                "count": f"{len(instrs):,}",
                "busy": facts.of_latency["vector"],
                "idle": facts.of_latency["scalar"],
            },
            instrs,
        )


def on_scalar(facts: Facts, sign: Sign) -> float:
    """With squares on the Scalar Engine, an activation each."""

    def squared(spec: OpSpec) -> OpSpec:
        return replace(
            spec,
            row=ROWS["activation"],
            engine="scalar",
            variant=Activation("square"),
            operands=spec.operands[:2],
        )

    return facts.others(sign.instrs, squared)


def summed_meanwhile(facts: Facts, sign: Sign) -> float:
    """With sums that take no time."""
    return facts.without(instrs=sign.instrs, work=_nothing)


def _nothing(spec: OpSpec, work: Work) -> Work:
    return replace(work, interval_us=0.0, latency_us=0.0)
