"""Causes that lie with DMAs: their number, their pieces, and bytes that need not be moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..chip.memory import HBM, SBUF
from ..timing import whatif
from ..timing.cost import Transfer, issue_us
from ..trace.trace import OpSpec
from .facts import Facts
from .sign import Sign, size

#: DMAs of one line below which their triggers are no pattern
FEW = 4
#: what takes so much of something else is worth being taken out with it
NEARLY = 0.5
#: an engine below this share of the time could do more
BUSY = 0.75
#: DMAs that spend no more of their time than this on other things than bytes are limited by bytes
EFFICIENT = 0.3


def _plain(facts: Facts) -> np.ndarray:
    """Return the DMAs that the kernel asked for."""
    return facts.of_specs(lambda k, n: facts.plan.transfers[n] is not None and not k.row.spills)


def _transfer(facts: Facts, n: int) -> Transfer:
    x = facts.plan.transfers[n]
    assert x is not None
    return x


def _rates(facts: Facts, instrs: np.ndarray) -> dict[str, float]:
    """Return what a line's DMAs move a second, and what they could, in GB/s."""
    moved, us = facts.nbytes[facts.spec[instrs]].sum(), facts.dma_us[facts.spec[instrs]].sum()
    full = facts.hw.dma_engines * facts.hw.timing.dma_engine_gbps
    return {"rate": moved / us / 1e3, "full": full}


def _excess(facts: Facts, instrs: np.ndarray) -> float:
    """Return how much longer DMAs keep the DMA engines than their bytes need."""
    ideal = facts.stream_us(int(facts.nbytes[facts.spec[instrs]].sum()))
    return float(facts.dma_us[facts.spec[instrs]].sum()) - ideal


# -- small pieces --------------------------------------------------------------------------------


def transposing(facts: Facts) -> Iterator[Sign]:
    """DMAs that transpose."""
    turning = facts.of_specs(lambda k, n: k.engine == "dma" and k.row.transposes)
    for line, instrs in facts.by_line(turning):
        item = facts.op_specs[facts.spec[instrs[0]]].operands[0].dtype.itemsize
        yield Sign(line, _excess(facts, instrs), {"item": item, **_rates(facts, instrs)}, instrs)


def small_pieces(facts: Facts) -> Iterator[Sign]:
    """DMAs whose descriptors take longer than their bytes."""
    enough = facts.hw.timing.dma_small_write_bytes

    def small(k: OpSpec, n: int) -> bool:
        x = facts.plan.transfers[n]
        return (
            x is not None
            and not k.row.spills
            and not k.row.transposes
            and x.nbytes // x.descriptors <= enough
        )

    for line, instrs in facts.by_line(facts.of_specs(small)):
        specs = facts.spec[instrs]
        n = int(np.bincount(specs).argmax())
        x = _transfer(facts, n)
        load = facts.op_specs[n].operands[0].memory is not HBM
        yield Sign(
            line,
            _excess(facts, instrs),
            {
                "piece": size(x.nbytes // x.descriptors),
                "enough": size(enough),
                "verb": "read" if load else "write",
                **_rates(facts, instrs),
            },
            instrs,
        )


def streaming(facts: Facts, sign: Sign) -> float:
    """Without descriptors: all DMA engines move the bytes at their full rate."""
    return facts.without(instrs=sign.instrs, transfer=lambda k, x: _streamed(facts, x))


def _streamed(facts: Facts, x: Transfer) -> Transfer:
    return replace(x, us=min(x.us, facts.stream_us(x.nbytes)), engines=facts.hw.dma_engines)


def small_transfers(facts: Facts) -> Iterator[Sign]:
    """DMAs that take their queue longer than the DMA engines need for the bytes, and not much
    shorter than these take for the descriptors."""
    ideal = np.array([facts.stream_us(n) for n in facts.nbytes])
    short = facts.trigger_us > np.maximum(ideal, NEARLY * facts.dma_us)
    for line, instrs in facts.by_line(_plain(facts)):
        instrs = instrs[short[facts.spec[instrs]]]
        if len(instrs) < FEW:
            continue
        specs = facts.spec[instrs]
        n = int(np.bincount(specs).argmax())
        pattern = next(
            (p for p in facts.op_specs[n].operands if p.memory is SBUF),
            facts.op_specs[n].operands[0],
        )
        parts = pattern.shape[0]
        most = float(facts.trigger_us[specs].sum()) + _excess(facts, instrs)
        yield Sign(
            line,
            most,
            {
                "count": f"{len(instrs):,}",
                "nbytes": size(facts.nbytes[n]),
                "partitions": parts,
                "pmax": facts.hw.pmax,
                "row": size(facts.nbytes[n] / parts),
                "trigger": float(facts.trigger_us[n]),
            },
            instrs,
        )


def joined(facts: Facts, sign: Sign) -> float:
    """As parts of DMAs so large that their queue is no slower than the DMA engines."""

    def part(spec: OpSpec, x: Transfer) -> Transfer:
        ideal, trigger = facts.stream_us(x.nbytes), issue_us(x, facts.hw, facts.dge)
        whole = x if spec.row.transposes else _streamed(facts, x)
        return replace(whole, triggers=min(1.0, ideal / trigger))

    return facts.without(instrs=sign.instrs, transfer=part)


# -- bytes that need not be moved ----------------------------------------------------------------


def spills(facts: Facts) -> Iterator[Sign]:
    """What tiles that do not fit cost."""
    moved = facts.of_specs(lambda k, n: k.row.spills)
    if len(moved):
        us = facts.dma_us + facts.trigger_us + facts.interval
        psum = not facts.nbytes[facts.spec[moved]].any()
        yield Sign(
            facts.busiest(moved, us),
            float(us[facts.spec[moved]].sum()),
            {
                "memory": "PSUM" if psum else "SBUF",
                "nbytes": size(
                    sum(facts.op_specs[k].operands[0].nbytes for k in facts.spec[moved])
                ),
            },
            moved,
        )


def gone(facts: Facts, sign: Sign) -> float:
    """Without the instructions, in a program whose tiles all have room."""
    data, deps = ~facts.reuse, facts.plan.deps
    deps = replace(deps, before=deps.before[data], after=deps.after[data])
    plan = replace(facts.plan, deps=deps)
    deps = whatif.fused(plan, sign.instrs, np.ones(len(deps.before), bool))
    return min(facts.body, facts.without(deps=facts.planned_anew(deps)))


def _scaled(x: Transfer, share: float) -> Transfer:
    return replace(x, us=x.us * share, triggers=float(share > 0.0))


def round_trips(facts: Facts) -> Iterator[Sign]:
    """Tensors that the kernel writes to HBM and reads again."""
    side, count = facts.hbm_side, len(facts.trace.storages)
    ours = ~np.array([k.row.spills for k in facts.op_specs] or [False])[facts.spec[side["instr"]]]
    written = np.bincount(side["storage"][side["write"] & ours], minlength=count) > 0
    read = np.bincount(side["storage"][~side["write"] & ours], minlength=count) > 0
    returned = (written & read)[side["storage"]] & ours
    if not returned.any():
        return
    instrs, back = np.unique(side["instr"][returned]), side["instr"][returned & ~side["write"]]
    line = facts.busiest(back, facts.dma_us + facts.trigger_us)
    reader = facts.busiest(side["instr"][returned & side["write"]], facts.dma_us + facts.trigger_us)
    specs = facts.spec[instrs]
    place = facts.where(reader)
    yield Sign(
        line,
        float((facts.dma_us + facts.trigger_us)[specs].sum()),
        {
            "nbytes": size(int(facts.nbytes[specs].sum())),
            "other": f"stored by line {place.line}" if place else "stored before",
        },
        instrs,
    )


def fused(facts: Facts, sign: Sign) -> float:
    """Without the way to HBM and back: what uses the data does so as soon as they are there."""
    return facts.without(deps=whatif.fused(facts.plan, sign.instrs, ~facts.reuse))


def repeated_loads(facts: Facts) -> Iterator[Sign]:
    """Bytes of HBM that are loaded again, by line. `more`: the share of each DMA that is new."""
    side = facts.hbm_side
    plain = ~np.array([k.row.spills or k.indirect for k in facts.op_specs] or [False])
    loads = ~side["write"] & plain[facts.spec[side["instr"]]]
    written = np.unique(side["storage"][side["write"]])
    loads &= ~np.isin(side["storage"], written)  # what changes may have to be read again
    side = {name: column[loads] for name, column in side.items()}
    share = np.ones(len(facts.spec))
    _identical(facts, side, share)
    _overlapping(facts, side, share)
    us = (facts.dma_us + facts.trigger_us)[facts.spec]
    for line, instrs in facts.by_line(np.unique(side["instr"])):
        again = instrs[share[instrs] < 1.0]
        total = facts.nbytes[facts.spec[instrs]]
        new = float((total * share[instrs]).sum())
        most = float(((1.0 - share[instrs]) * us[instrs]).sum())
        if len(again):
            nbytes = size(int(total.sum()))
            problem = f"{nbytes} of HBM that were loaded before are loaded again"
            if new:
                times = f"{total.sum() / new:.3g}"
                problem = f"the same {size(new)} of HBM are loaded {times} times ({nbytes}"
            problem += f" in {len(instrs):,} DMAs" + (")" if new else "")
            yield Sign(line, most, {"what": problem}, again, share)


def _identical(facts: Facts, side: dict[str, np.ndarray], share: np.ndarray) -> None:
    """Note which loads are of a place that was loaded before, by the same line or another."""
    patterns: dict[tuple, int] = {}
    same = [
        patterns.setdefault((p.shape, p.strides, p.dtype), len(patterns))
        for _, _, p in facts.trace.operand_specs()
    ]
    key = np.stack([side["storage"], side["lowest"], np.array(same)[side["operand_spec"]]])
    _, first = np.unique(key, axis=1, return_index=True)
    again = np.ones(key.shape[1], bool)
    again[first] = False
    share[side["instr"][again]] = 0.0


def _overlapping(facts: Facts, side: dict[str, np.ndarray], share: np.ndarray) -> None:
    """Note how much of the loads that are left is new: windows of rows overlap.

    Looked at are loads that are dense in each partition, whose partitions are equally far apart.
    """
    operand_specs = facts.trace.operand_specs()
    dense = np.array(
        [p.span(free=True) * p.shape[0] == p.nbytes for _, _, p in operand_specs] or [False]
    )
    step = np.array([abs(p.strides[0]) for _, _, p in operand_specs] or [0])
    span = np.array([p.span(free=True) for _, _, p in operand_specs] or [0])
    kept = dense[side["operand_spec"]] & (share[side["instr"]] > 0.0)
    which, instr, lowest = (side[name][kept] for name in ("operand_spec", "instr", "lowest"))
    key = np.stack([facts.line[instr], side["storage"][kept], step[which]])
    groups = np.unique(key, axis=1, return_inverse=True)[1].ravel()
    for g in range(int(groups.max(initial=-1)) + 1):
        accesses = np.flatnonzero(groups == g)
        accesses = accesses[np.argsort(lowest[accesses], kind="stable")]
        begin, length = lowest[accesses], span[which[accesses]]
        reach = np.maximum.accumulate(begin + length)
        covered = np.append(begin[0], reach[:-1])
        new = np.clip(begin + length - np.maximum(begin, covered), 0, None)
        share[instr[accesses]] = new / length


def only_new(facts: Facts, sign: Sign) -> float:
    """Without the bytes that were loaded before."""
    share = sign.more[sign.instrs]
    total = np.bincount(facts.spec[sign.instrs], share, len(facts.op_specs))
    count = np.bincount(facts.spec[sign.instrs], minlength=len(facts.op_specs))
    mean = dict(enumerate((total / np.maximum(1, count)).tolist()))
    ids = {id(k): n for n, k in enumerate(facts.op_specs)}
    return facts.without(instrs=sign.instrs, transfer=lambda k, x: _scaled(x, mean[ids[id(k)]]))


def _but_dma(shares: dict[str, float]) -> list[float]:
    return [share for e, share in shares.items() if e != "dma"]


def wide(facts: Facts) -> Iterator[Sign]:
    """A kernel that only its bytes limit, and whose elements have 32 bits."""
    plain = _plain(facts)
    if (
        facts.share["dma"] < BUSY
        or max(_but_dma(facts.share)) >= BUSY
        or _excess(facts, plain) > EFFICIENT * float(facts.dma_us[facts.spec[plain]].sum())
    ):
        return
    wide_dmas = facts.of_specs(
        lambda k, n: (
            facts.plan.transfers[n] is not None
            and k.operands[0].dtype.itemsize == 4
            and not k.row.spills
        )
    )
    if len(wide_dmas):
        yield Sign(
            facts.busiest(wide_dmas, facts.dma_us),
            float(facts.dma_us[facts.spec[wide_dmas]].sum()) / 2,
            {"busy": facts.of_latency["dma"], "other": max(_but_dma(facts.of_latency))},
            wide_dmas,
        )


def narrow(facts: Facts, sign: Sign) -> float:
    """With half of the bytes."""
    return facts.without(instrs=sign.instrs, transfer=lambda k, x: replace(x, us=x.us / 2))


# -- who makes the descriptors -------------------------------------------------------------------


def _made_on_chip(facts: Facts, makers: tuple[str, ...]) -> np.ndarray:
    """Return the DMAs of the kernel whose descriptors the hardware makes, as one of these asked."""
    if not (facts.dge and facts.hw.hwdge):
        return np.zeros(0, np.int64)
    plain = _plain(facts)
    chosen = np.array(
        [x is not None and x.maker in makers for x in facts.plan.transfers] or [False]
    )
    return plain[chosen[facts.spec[plain]]]


def descriptors(facts: Facts) -> Iterator[Sign]:
    """DMAs of fixed places whose descriptors the hardware makes while the kernel runs."""
    each = facts.trigger_us - facts.hw.timing.dma_trigger_us
    for line, instrs in facts.by_line(_made_on_chip(facts, ("",))):
        specs = facts.spec[instrs]
        yield Sign(
            line,
            float(each[specs].sum()),
            {"count": f"{len(instrs):,}", "each": float(facts.trigger_us[specs].mean())},
            instrs,
        )


def made_before(facts: Facts, sign: Sign) -> float:
    """With descriptors that lie in HBM before the kernel starts."""
    return facts.without(instrs=sign.instrs, transfer=lambda k, x: replace(x, maker="static"))


#: who asked for descriptors -> the engine whose unit makes them
_UNIT = {"hwdge": "sync", "sync": "sync", "scalar": "scalar"}
_OTHER = {"sync": "scalar", "scalar": "sync"}


def one_queue(facts: Facts) -> Iterator[Sign]:
    """DMAs for which the kernel asks one unit for descriptors, while the other has less to do."""
    instrs = _made_on_chip(facts, tuple(_UNIT))
    if facts.hw.timing.dge_units < 2 or len(instrs) < FEW:
        return
    unit = np.array([_UNIT.get(x.maker, "") if x else "" for x in facts.plan.transfers], object)
    asked, each = unit[facts.spec[instrs]], facts.trigger_us[facts.spec[instrs]]
    us = {u: float(each[asked == u].sum()) for u in _OTHER}
    full = max(us, key=lambda u: us[u])
    waiting = instrs[asked == full]
    yield Sign(
        facts.busiest(waiting, facts.trigger_us),
        (us[full] - us[_OTHER[full]]) / 2,
        {"count": f"{len(waiting):,}", "full": full, "other": _OTHER[full]},
        np.concatenate([one[1::2] for _, one in facts.by_line(waiting)]),
        _OTHER[full],
    )


def two_queues(facts: Facts, sign: Sign) -> float:
    """With every second of them asked of the other unit."""
    return facts.without(instrs=sign.instrs, transfer=lambda k, x: replace(x, maker=sign.more))
