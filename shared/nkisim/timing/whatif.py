"""How long a schedule would take without one of its costs: the same run, with that taken out.

A cost is the time of some instructions, a constant of the chip, or waits for each other. What is
compared is the body: from the first trigger to the last completion, in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..chip.hw import NeuronCore
from ..trace.footprint import Dependencies
from ..trace.rewrite import Draft
from ..trace.trace import SPEC, OpSpec, Trace
from . import compiler, cost, events
from .schedule import Schedule, generators, queue_of, schedule

#: what an instruction costs -> what it would cost
Cheaper = Callable[[OpSpec, cost.Work], cost.Work]
Faster = Callable[[OpSpec, cost.Transfer], cost.Transfer]


def body_us(plan: Schedule) -> float:
    """Return the time from the first trigger to the last completion."""
    return float(plan.end.max(initial=0.0) - plan.issue.min(initial=np.inf)) if len(plan.end) else 0


def without(
    plan: Schedule,
    hw: NeuronCore,
    *,
    dge: bool,
    on: frozenset[str],
    instrs: np.ndarray | None = None,
    work: Cheaper | None = None,
    transfer: Faster | None = None,
    keep: np.ndarray | None = None,
    deps: Dependencies | None = None,
    window: int | None = None,
) -> float:
    """Return the body of a schedule when some things cost less.

    `instrs` (numbers; default all) cost what `work` and `transfer` make of their costs; of the
    waits only those are left that `keep` (bool, by pair of `plan.deps`) tells. `hw` may be a chip
    that is faster than that of the schedule; `deps`: instead of `plan.deps`; `window`: among how
    many of its next instructions an engine chooses, default as the compiler does.
    """
    deps = deps or plan.deps
    specs, count = plan.trace.op_specs, len(plan.trace.op_specs)
    spec = deps.spec
    which = np.arange(len(spec)) if instrs is None else instrs
    changed = np.unique(spec[which]).tolist()
    place = {k: count + n for n, k in enumerate(changed)}  # the changed ones, after the others
    again = np.arange(count)
    again[changed] = [place[k] for k in changed]
    spec = spec.copy()
    spec[which] = again[spec[which]]
    works, transfers = list(plan.works), list(plan.transfers)
    for k in changed:
        w, x = works[k], transfers[k]
        works.append(work(specs[k], w) if w and work else w)
        transfers.append(transfer(specs[k], x) if x and transfer else x)
    queues = [queue_of(k, e) for k, e in zip(specs, plan.engines)]
    deps = replace(deps, spec=spec)
    if keep is not None:
        deps = replace(deps, before=deps.before[keep], after=deps.after[keep])
    times = events.run(
        deps,
        [*queues, *(queues[k] for k in changed)],
        works,
        transfers,
        hw,
        generators(hw, dge, on),
        window or (hw.timing.compiler_window if "reorder" in on else 1),
    )
    hop = np.where([x is None for x in transfers], hw.timing.hop_us, 0.0)[deps.spec]
    return float((np.array(times.seen) - hop).max() - np.min(times.issue))


def fused(plan: Schedule, gone: np.ndarray, data: np.ndarray) -> Dependencies:
    """Return the dependencies without some instructions that only pass data on.

    What uses the data waits for those who made them, and comes right after them in the program.
    `data`: the waits (pairs of `plan.deps`) for data; the others of what is gone are not kept.
    """
    deps = plan.deps
    n = len(deps.spec)
    dropped = np.zeros(n, bool)
    dropped[gone] = True
    order = np.argsort(deps.after, kind="stable")
    flows = list(zip(deps.before[order].tolist(), deps.after[order].tolist(), data[order].tolist()))
    makers: dict[int, set[int]] = {i: set() for i in gone.tolist()}
    pairs: set[tuple[int, int]] = set()
    key, moved = list(range(n)), [False] * n
    for b, a, flow in flows:
        if not flow or not (b in makers or moved[b]):
            if a in makers:
                if flow:
                    makers[a].add(b)
            elif b not in makers:
                pairs.add((b, a))
            continue
        group = makers.get(b, {b})
        if a in makers:
            makers[a] |= group
        else:
            pairs |= {(m, a) for m in group}
            if not moved[a]:  # earlier than it stands
                key[a], moved[a] = -1, True
    for b, a in sorted(pairs, key=lambda pair: pair[1]):
        if moved[a] and key[b] > key[a]:
            key[a] = key[b]
    rank = np.argsort(np.array(key), kind="stable")
    rank = rank[~dropped[rank]]
    return _renumbered(deps, rank, np.array(sorted(pairs), np.int64).reshape(-1, 2))


def delayed(deps: Dependencies, late: np.ndarray, by: int) -> Dependencies:
    """Return the dependencies of a program in which some instructions come later.

    `late`: the first of them (numbers); with them goes all that uses what they make. They come `by`
    instructions later, as if they were in a later iteration; nothing else waits for memory
    that they use, as with more buffers.
    """
    moved = np.zeros(len(deps.spec), bool)
    moved[late] = True
    order = np.argsort(deps.before, kind="stable")
    flows = moved.tolist()
    for b, a in zip(deps.before[order].tolist(), deps.after[order].tolist()):
        if flows[b]:  # who comes before is settled: pairs go forwards
            flows[a] = True
    late = np.array(flows)
    rank = np.argsort(np.arange(len(deps.spec)) + by * late, kind="stable")
    stay = ~(
        late[deps.before] & ~late[deps.after]
    )  # what is left: waits for memory of what is late
    return _renumbered(deps, rank, np.stack([deps.before[stay], deps.after[stay]], axis=1))


def dropped(deps: Dependencies, gone: np.ndarray) -> Dependencies:
    """Return the dependencies without some instructions that nothing needs."""
    left = np.ones(len(deps.spec), bool)
    left[gone] = False
    return _renumbered(deps, np.flatnonzero(left), np.stack([deps.before, deps.after], axis=1))


def _renumbered(deps: Dependencies, rank: np.ndarray, pairs: np.ndarray) -> Dependencies:
    """Return the dependencies of the instructions `rank` in that order, with these waits."""
    place = np.full(len(deps.spec), -1)
    place[rank] = np.arange(len(rank))
    both = place[pairs]
    both = both[(both[:, 0] >= 0) & (both[:, 0] < both[:, 1])]
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    psum = np.argsort(place[deps.psum_instr], kind="stable")
    psum = psum[place[deps.psum_instr[psum]] >= 0]
    leads = place[np.array(deps.leads)]
    leads = leads[:, (leads[0] >= 0) & (leads[0] < leads[1])]
    return replace(
        deps,
        spec=deps.spec[rank],
        queue=deps.queue[rank],
        before=both[:, 0],
        after=both[:, 1],
        leads=(leads[0], leads[1]),
        release=None if deps.release is None else deps.release[rank],
        psum_instr=place[deps.psum_instr][psum],
        psum_version=deps.psum_version[psum],
        contended={int(place[i]): bank for i, bank in deps.contended.items() if place[i] >= 0},
    )


def halved(plan: Schedule, hw: NeuronCore, *, dge: bool, on: frozenset[str]) -> float:
    """Return the body of a schedule whose tiles are cut in two along their last dim."""
    return _again(plan, halves(plan.trace), hw, dge, on)


def others(
    plan: Schedule,
    hw: NeuronCore,
    instrs: np.ndarray,
    other: Callable[[OpSpec], OpSpec],
    *,
    dge: bool,
    on: frozenset[str],
) -> float:
    """Return the body of a schedule whose instructions `instrs` are what `other` makes of them."""
    draft = Draft(plan.trace)
    for i in instrs.tolist():
        draft.rows[draft.starts[i] + SPEC] = draft.spec(other(draft.spec_of(i)))
    return _again(plan, draft.finish(), hw, dge, on)


def _again(plan: Schedule, trace: Trace, hw: NeuronCore, dge: bool, on: frozenset[str]) -> float:
    """Return the body of a trace that was made of a schedule's, after what compilers rewrite."""
    on = on - compiler.REWRITES  # those are done by now
    meets = np.array([k.row.is_collective for k in plan.trace.op_specs])[plan.deps.spec]
    return body_us(
        schedule(
            trace,
            hw,
            dge=dge,
            on=on,
            met=None if plan.deps.release is None else plan.deps.release[meets],
        )
    )


def halves(trace: Trace) -> Trace:
    """Return a trace with two instructions for each that goes through tiles element by element.

    First all of an iteration that work on first halves, then those on second halves, as in a loop
    over tiles of half the size.
    """
    draft, cut = Draft(trace), [_half(k) for k in trace.op_specs]
    specs, _, nodes = (a.tolist() for a in trace.instructions())
    run: list[int] = []
    for i in range(len(specs) + 1):
        if run and (i == len(specs) or cut[specs[i]] is None or nodes[i] != nodes[run[0]]):
            for second in (False, True):
                for j in run:
                    half, shifts = cut[specs[j]]  # type: ignore[misc]
                    draft.put(
                        run[0],
                        j,
                        half,
                        [
                            (s, at + second * shift)
                            for (s, at), shift in zip(
                                (draft.operand(j, n) for n in range(len(shifts))), shifts
                            )
                        ],
                    )
            for j in run:
                draft.drop(j)
            run = []
        if i < len(specs) and cut[specs[i]] is not None:
            run.append(i)
    return draft.finish()


def _half(spec: OpSpec) -> tuple[OpSpec, list[int]] | None:
    """Return half of an instruction, and how many bytes further each operand's other half is.

    None for an instruction that cannot be cut: not every operand is as long, or one number.
    """
    n = spec.operands[0].shape[-1]
    if (
        spec.engine == "tensor"
        or spec.row.transposes
        or spec.indirect
        or spec.masked
        or n % 2
        or len(spec.operands) < 2
        or any(p.shape[-1] not in (1, n) for p in spec.operands)
    ):
        return None
    long = [p.shape[-1] == n for p in spec.operands]
    operands = tuple(
        replace(p, shape=(*p.shape[:-1], n // 2)) if cut else p
        for p, cut in zip(spec.operands, long)
    )
    return (
        replace(spec, operands=operands),
        [p.strides[-1] * (n // 2) if cut else 0 for p, cut in zip(spec.operands, long)],
    )
