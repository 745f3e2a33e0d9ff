"""When loads are triggered: not as soon as there is memory, but in time for who uses them.

A compiler schedules a load as long before its first use as it takes a load to need, by an estimate
of its own, and places tiles in memory by that schedule. So on the chip a load waits until the
engine that uses it has come that near; where the estimate is too short, as for loads of few bytes,
the engine then waits for its data, however much memory there is.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

import numpy as np

from ..chip.hw import NeuronCore
from ..trace.footprint import LOADS, PE, Dependencies
from ..trace.trace import OpSpec
from . import cost
from .slices import adds_products

#: multiples of it lie evenly between whole numbers, however many are taken (the golden ratio)
EVENLY = (math.sqrt(5.0) - 1.0) / 2.0


def _first_uses(deps: Dependencies) -> tuple[np.ndarray, np.ndarray]:
    """Return the loads that are waited for, and their first reader, in program order."""
    loads = deps.queue[deps.before] == LOADS
    users = deps.before[loads]  # sorted, and who waits as well
    fresh = np.append(True, users[1:] != users[:-1])[: len(users)]
    return users[fresh], deps.after[loads][fresh]


def by_use(deps: Dependencies) -> np.ndarray:
    """Return the loads in the order in which what they load is used first.

    Of those that the same instruction uses, the one that may be triggered earlier comes first;
    unused loads come last, so that nothing that is used waits for them. A load whose place
    another load takes is used when that one is. No load gets behind one that it waits for: whatever
    frees its memory comes before it in the program, and so uses nothing that is used later.
    Where cores meet, they keep the order of the program: else each could wait for the other one.
    """
    loads = np.flatnonzero(deps.queue == LOADS)
    last = np.full(len(deps.queue), -1)  # that each waits for
    before, after = deps.waits()
    np.maximum.at(last, after, before)
    use = np.arange(len(deps.queue))
    use[loads] += len(use)
    of_load = deps.queue[deps.before] == LOADS
    meets = deps.meetings[deps.queue[deps.meetings] == LOADS]
    for one, then in zip(meets[:-1].tolist(), meets[1:].tolist()):
        last[then] = max(last[then], last[one])
    first = np.concatenate([deps.before[of_load], meets[:-1]])
    uses = np.concatenate([deps.after[of_load], meets[1:]])
    order = np.argsort(first, kind="stable")[::-1]
    for load, user in zip(
        first[order].tolist(), uses[order].tolist()
    ):  # the last load first: who uses one comes after it
        use[load] = min(use[load], use[user])
    return loads[np.lexsort((last[loads], use[loads]))]


def leads(
    deps: Dependencies,
    specs: Sequence[OpSpec],
    works: list[cost.Work | None],
    transfers: list[cost.Transfer | None],
    hw: NeuronCore,
) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (instruction, load): the load is not triggered before the instruction is done.

    It is the last one of the engine that uses the load first which begins the estimated time of
    the load before that use, if the engine did nothing but work; or the one before that, where it
    ends far too late: an engine with instructions longer than a load would else stand still after
    each. Loads that come before it in the program do not wait. Nor does any load of a kernel
    whose DMAs take longer than its engines (by their bytes: the estimate is the compiler's): there
    the engines are late, and each load is due. The nearer a kernel is to that, the longer loads are
    taken to need.
    Where `deps.lines` is known, a load is triggered where the step before its own begins, not in
    the middle of it, if that is one instruction earlier or the step takes as long as the load. A
    step is what the engine does with what the same line loaded last.
    Loads wait for whole instructions, and no source tells the compiler's
    estimate to the last digit: so loads need a little more and a little less in turn, and no kernel
    is a quarter slower for a hair. (Spills are not in that schedule yet.)
    """
    t = hw.timing
    busy = np.array([w.interval_us if w else 0.0 for w in works] or [0.0])[deps.spec]
    moved = (
        np.array(
            [x.nbytes if x and not k.row.spills else 0 for k, x in zip(specs, transfers)] or [0]
        )[deps.spec].sum()
        / 1e3
    )
    most = np.bincount(deps.queue[deps.queue < LOADS], busy[deps.queue < LOADS]).max(initial=0.0)
    moving = moved / (hw.dma_engines * t.dma_engine_gbps)
    if moving >= most:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    needs = np.array(
        [
            t.compiler_load_us + x.nbytes / t.compiler_load_gbps / 1e3 if x else 0.0
            for x in transfers
        ]
        or [0.0]
    )[deps.spec]
    needs *= max(1.0, t.compiler_load_idle / (1.0 - moving / most))  # of the DMAs' time
    loads, users = _first_uses(deps)
    place = np.arange(1, len(loads) + 1) * EVENLY % 1.0
    needs = needs[loads] * (1.0 + t.compiler_load_spread * (2.0 * place - 1.0))
    pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for q in range(LOADS):  # each compute engine
        engine = np.flatnonzero(deps.queue == q)
        on_queue = deps.queue[users] == q
        begin = np.cumsum(busy[engine]) - busy[engine]
        at = begin[np.searchsorted(engine, users[on_queue])] - needs[on_queue]
        last = np.searchsorted(begin, at, "right") - 1
        last -= begin[last] + busy[engine[last]] - at > t.compiler_load_late_us
        if deps.lines is not None:
            before = _before(deps.lines[loads[on_queue]], users[on_queue])
            begins = np.searchsorted(engine, users[on_queue][before]) - 1
            reads = (deps.queue[deps.after] == q) & (deps.queue[deps.before] == LOADS)
            work = np.bincount(deps.before[reads], busy[deps.after[reads]], len(deps.queue))
            long = work[loads[on_queue][before]] >= needs[on_queue]
            last = np.where(
                (before >= 0) & (long | (begins == last - 1)) & (begins < last), begins, last
            )
        valid = last >= 0
        pairs.append((engine[last[valid]], loads[on_queue][valid]))
    before, after = (np.concatenate(x) for x in zip(*pairs))
    earlier = before < after
    return before[earlier], after[earlier]


def _before(lines: np.ndarray, users: np.ndarray) -> np.ndarray:
    """Return, for each load, the last one before it of its line with another user; -1 for none.

    `lines`, `users`: the source line and the first user of each load that an engine waits for; the
    result are places in them.
    """
    order = np.lexsort((users, lines))
    line, user = lines[order], users[order]
    fresh = np.append(True, (line[1:] != line[:-1]) | (user[1:] != user[:-1]))[: len(order)]
    first = np.flatnonzero(fresh)  # loads of one line that one instruction uses are one step
    follows = np.append(False, line[first[1:]] == line[first[:-1]])[: len(first)]
    follows &= line[first] >= 0
    before = np.where(follows, np.append(-1, order[first[:-1]])[: len(first)], -1)
    out = np.empty(len(order), np.int64)
    out[order] = before[np.cumsum(fresh) - 1]
    return out


def waits(
    deps: Dependencies,
    specs: Sequence[OpSpec],
    works: list[cost.Work | None],
    transfers: list[cost.Transfer | None],
    hw: NeuronCore,
    on: Container[str],
) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (instruction, load or fill) of all that the options `on` let come late."""
    pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    if "late-loads" in on:
        pairs.append(leads(deps, specs, works, transfers, hw))
    if "late-fills" in on:
        pairs.append(late_fills(deps, specs))
    before, after = (np.concatenate(x) for x in zip(*pairs))
    return before, after


def late_fills(deps: Dependencies, specs: Sequence[OpSpec]) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (product, fill): a fill begins no sooner than that product is done.

    Only fills of tiles to which the same engine next adds what lies in PSUM: the compiler puts
    them right before that, so the engine does not fill tiles far ahead while it waits. The product
    is the first of those that are added.
    """
    empty = np.zeros(0, np.int64)
    fills = np.array([k.row.fills and len(k.operands) == 1 for k in specs] or [False])
    fills = fills[deps.spec]
    if not fills.any():
        return empty, empty
    pairs = np.flatnonzero(fills[deps.before])
    first = pairs[np.append(True, np.diff(deps.before[pairs]) > 0)[: len(pairs)]]
    fill, user = deps.before[first], deps.after[first]  # pairs are sorted: its next use
    adds = np.array([adds_products(k) for k in specs])[deps.spec[user]]
    adds &= deps.queue[fill] == deps.queue[user]
    of_product = np.flatnonzero(deps.queue[deps.before] == PE)[::-1]
    product = np.full(len(deps.queue), -1)  # the first that each instruction waits for
    product[deps.after[of_product]] = deps.before[of_product]
    before, after = product[user[adds]], fill[adds]
    valid = (before >= 0) & (before < after)
    return before[valid], after[valid]
