"""Causes that lie with the compute engines: what an instruction costs beyond its elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..chip import dtypes
from ..chip.hw import NeuronCore
from ..timing import cost, whatif
from ..timing.cost import Work
from ..timing.schedule import ENGINES
from ..trace.footprint import Accesses, accesses
from ..trace.trace import OpSpec
from .facts import DMA, Facts, is_transpose
from .sign import Sign

NAMES = {"vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd", "tensor": "Tensor"}
TENSOR = ENGINES.index("tensor")


def _matmul(spec: OpSpec) -> bool:
    return spec.engine == "tensor"


def _moving(spec: OpSpec) -> int:
    """Return the columns that a matmul streams."""
    p = spec.operands[-1]
    return p.elements // p.shape[0]


def _signs(
    facts: Facts, hw: NeuronCore, wanted: np.ndarray
) -> Iterator[tuple[int, float, int, np.ndarray]]:
    """Yield (line, time that another chip would save, most frequent op spec, instructions)."""
    saves = np.where(wanted, facts.cheaper(hw), 0.0)
    cheaper = np.flatnonzero(saves[facts.spec] > 0.0)
    for line, instrs in facts.by_line(cheaper):
        specs = facts.spec[instrs]
        yield line, float(saves[specs].sum()), int(np.bincount(specs).argmax()), instrs


def _on(facts: Facts, engine: str) -> np.ndarray:
    return np.array([e == engine for e in facts.plan.engines] or [False])


def _at_costs_of(facts: Facts, sign: Sign, hw: NeuronCore) -> float:
    """Return the body if a line's instructions cost what they do on another chip."""
    engine = {id(k): e for k, e in zip(facts.op_specs, facts.plan.engines)}
    return facts.without(instrs=sign.instrs, work=lambda k, w: cost.work(k, hw, engine[id(k)]))


# -- Tensor Engine -------------------------------------------------------------------------------


def _one_pass(facts: Facts) -> NeuronCore:
    return facts.faster(pe_wide_instructions=1, pe_wide_passes=1, pe_transpose_passes=1)


def wide(facts: Facts) -> Iterator[Sign]:
    """Matmuls of float32."""
    wanted = _on(facts, "tensor") & ~np.array([is_transpose(k) for k in facts.op_specs] or [False])
    for line, most, _, instrs in _signs(facts, _one_pass(facts), wanted):
        yield Sign(line, most, {"passes": facts.hw.timing.pe_wide_passes}, instrs)


def narrow_dtype(facts: Facts, sign: Sign) -> float:
    """With operands of bfloat16."""
    return facts.others(sign.instrs, _of_bfloat16)


def _of_bfloat16(spec: OpSpec) -> OpSpec:
    """Return a product whose float32 operands are bfloat16."""
    operands = tuple(
        replace(p, dtype=dtypes.BFLOAT16, strides=tuple(s // 2 for s in p.strides))
        if n >= spec.outputs and p.dtype == np.float32
        else p
        for n, p in enumerate(spec.operands)
    )
    return replace(spec, operands=operands)


def _free_loads(facts: Facts) -> NeuronCore:
    return facts.faster(pe_load_cycles_per_column=0.0, pe_strided_load_cycles_per_byte=0.0)


def reloads(facts: Facts) -> Iterator[Sign]:
    """Matmuls that load the stationary operand for longer than they stream the moving one."""
    for line, most, n, instrs in _signs(facts, _free_loads(facts), _on(facts, "tensor")):
        spec = facts.op_specs[n]
        stationary = spec.operands[spec.outputs]
        apart = stationary.strides[-1]
        yield Sign(
            line,
            most,
            {
                "rows": stationary.shape[0],
                "columns": stationary.elements // stationary.shape[0],
                "moving": _moving(spec),
                "apart": f", its elements {apart} bytes apart"
                if apart > stationary.dtype.itemsize
                else "",
            },
            instrs,
        )


def no_reload(facts: Facts, sign: Sign) -> float:
    """With weights that are there at once."""
    return _at_costs_of(facts, sign, _free_loads(facts))


def transposes(facts: Facts) -> Iterator[Sign]:
    """Transposes on the Tensor Engine, by line: those of a tile that was transposed before, and
    all of them where there are none and a product could take its operands the other way."""
    turning = facts.of_specs(lambda k, n: is_transpose(k))
    if not len(turning):
        return
    products = facts.of_specs(lambda k, n: _matmul(k) and not is_transpose(k))
    acc = accesses(facts.trace, facts.hw, "rename" in facts.on)
    again, copies = _repeated(facts, acc, turning)
    work = facts.interval[facts.spec]
    all_of_it = float(work[np.asarray(facts.plan.engine) == TENSOR].sum())
    for line, instrs in facts.by_line(turning):
        busy = facts.of_latency["tensor"] * float(work[instrs].sum()) / all_of_it
        say = {"count": f"{len(instrs):,}", "busy": busy, "remedy": OTHER_LAYOUT}
        repeated = instrs[np.isin(instrs, again)]
        if not len(repeated) and not len(products):
            continue
        if len(repeated):
            say["remedy"] = f"{len(repeated):,} are of tiles that were transposed before: {KEEP}"
            instrs = repeated
        paid = np.append(instrs, [c for t in instrs.tolist() for c in copies.get(t, ())]).astype(
            int
        )
        yield Sign(line, float(facts.interval[facts.spec[paid]].sum()), say, np.sort(paid))


KEEP = "transpose each tile once and keep it"
OTHER_LAYOUT = (
    "choose which operand is stationary so that the result comes out in the layout that is needed"
)


def _repeated(
    facts: Facts, acc: Accesses, transposes: np.ndarray
) -> tuple[list[int], dict[int, list[int]]]:
    """Return the transposes of what was transposed before, and by transpose what only copies its
    result: instructions of the other engines that read nothing else."""
    turns = np.zeros(len(facts.spec), bool)
    turns[transposes] = True
    ev, vid = acc.ev, acc.vid
    seen: set[tuple[int, int, int]] = set()
    again, made, reads = [], dict[int, int](), dict[int, set[int]]()
    rows = zip(
        *(ev[c].tolist() for c in ("instr", "write", "offset", "operand_spec")), vid.tolist()
    )
    for i, writes, at, k, version in rows:
        if turns[i] and writes:
            made[version] = i
        elif turns[i]:
            key = version, at, k
            if key in seen:
                again.append(i)
            seen.add(key)
        elif not writes and facts.plan.engine[i] not in (TENSOR, DMA):
            reads.setdefault(i, set()).add(made.get(version, -1))
    copies: dict[int, list[int]] = {}
    for i, sources in reads.items():
        if len(sources) == 1 and -1 not in sources:
            copies.setdefault(sources.pop(), []).append(i)
    return again, copies


def no_transposes(facts: Facts, sign: Sign) -> float:
    """With a program that does not have them, nor the copies of their results."""
    deps = whatif.dropped(facts.plan.deps, sign.instrs)
    return min(facts.body, facts.without(deps=facts.planned_anew(deps)))


def _first_warmup(facts: Facts) -> float:
    """Return what the first warm-up of the Tensor Engine costs: nothing helps against that."""
    t = facts.hw.timing
    return t.pe_window_us * (1.0 - 1.0 / t.pe_cold_factor)


def cold(facts: Facts) -> Iterator[Sign]:
    """A Tensor Engine whose clock is not full, after its first warm-up."""
    factor = facts.hw.timing.pe_cold_factor
    matmuls = np.flatnonzero(facts.plan.engine == TENSOR)
    lost = (
        facts.plan.busy["tensor"]
        - float(facts.interval[facts.spec[matmuls]].sum())
        - _first_warmup(facts)
    )
    if lost > 0.0 and factor > 1.0:
        yield Sign(
            facts.busiest(matmuls, facts.interval),
            facts.body - facts.plan.busy["tensor"] + lost,
            {"factor": factor, "cold": lost * factor / (factor - 1.0)},
            matmuls,
        )


def warm(facts: Facts, sign: Sign) -> float:
    """With the full clock, once it is warm, and work of other tiles in the breaks."""
    hw, deps = facts.faster(pe_cold_factor=1.0), replace(facts.plan.deps, fences={})
    return facts.without(hw=hw, deps=deps, window=len(facts.spec)) + _first_warmup(facts)


# -- short instructions --------------------------------------------------------------------------


def _no_gaps(facts: Facts) -> NeuronCore:
    return facts.faster(
        pe_gap_cycles=0.0,
        min_interval_cycles=0,
        dve_gap_us=0.0,
        act_gap_us=0.0,
        pool_gap_us=0.0,
        pool_start_cycles=0,
    )


def short_matmuls(facts: Facts) -> Iterator[Sign]:
    """Matmuls of few columns."""
    hw = _no_gaps(facts)
    saved = facts.cheaper(hw)
    for line, most, n, instrs in _signs(facts, hw, _on(facts, "tensor")):
        moving = _moving(facts.op_specs[n])
        if moving < facts.hw.gemm_moving_fmax:
            yield Sign(
                line,
                most,
                {
                    "count": f"{len(instrs):,}",
                    "moving": moving,
                    "most": facts.hw.gemm_moving_fmax,
                    "fixed": float(saved[n]) * facts.hw.pe_ghz * 1e3,
                },
                instrs,
            )


def joined_matmuls(facts: Facts, sign: Sign) -> float:
    """As parts of matmuls that stream as many columns as one can: what each costs besides, and the
    loading of the stationary operand, is shared."""
    most = facts.hw.gemm_moving_fmax

    def part(spec: OpSpec, w: Work) -> Work:
        n = _moving(spec)
        long = replace(
            spec,
            operands=tuple(
                replace(p, shape=(p.shape[0], most), strides=(p.strides[0], p.strides[-1]))
                if k in (0, len(spec.operands) - 1)
                else p
                for k, p in enumerate(spec.operands)
            ),
        )
        whole = cost.work(long, facts.hw, "tensor").interval_us
        return replace(w, interval_us=min(w.interval_us, whole * n / most))

    return facts.without(instrs=sign.instrs, work=part)


def short_instructions(facts: Facts) -> Iterator[Sign]:
    """Instructions of the other engines whose start takes longer than their elements."""
    hw = _no_gaps(facts)
    saved = facts.cheaper(hw)
    short = (saved > 0.5 * facts.interval) & ~_on(facts, "tensor")
    for line, most, n, instrs in _signs(facts, hw, short):
        engine = facts.plan.engines[n]
        out = facts.op_specs[n].operands[0]
        yield Sign(
            line,
            most,
            {
                "count": f"{len(instrs):,}",
                "engine": NAMES[engine],
                "elements": out.elements // out.shape[0],
                "fixed": float(saved[n]) * facts.hw.ghz(engine) * 1e3,
            },
            instrs,
        )


def no_gaps(facts: Facts, sign: Sign) -> float:
    """With instructions that take as long as their elements: parts of larger ones.

    One that waits for the result of the last one waits for its part, too.
    """
    hw, engine = _no_gaps(facts), {id(k): e for k, e in zip(facts.op_specs, facts.plan.engines)}

    def part(spec: OpSpec, work: Work) -> Work:
        new = cost.work(spec, hw, engine[id(spec)])
        share = new.interval_us / work.interval_us if work.interval_us else 1.0
        return replace(new, latency_us=new.latency_us * share)

    return facts.without(instrs=sign.instrs, work=part)


def idle_lanes(facts: Facts) -> Iterator[Sign]:
    """Instructions on at most half of the partitions."""
    lanes = np.array([max(p.shape[0] for p in k.operands) for k in facts.op_specs] or [1])
    few = (lanes <= facts.hw.pmax // 2) & (facts.interval > 0.0) & ~_on(facts, "tensor")
    saves = np.where(few, facts.interval * (1.0 - lanes / facts.hw.pmax), 0.0)
    cheaper = np.flatnonzero(saves[facts.spec] > 0.0)
    for line, instrs in facts.by_line(cheaper):
        n = int(np.bincount(facts.spec[instrs]).argmax())
        yield Sign(
            line,
            float(saves[facts.spec[instrs]].sum()),
            {
                "engine": NAMES[facts.plan.engines[n]],
                "partitions": int(lanes[n]),
                "pmax": facts.hw.pmax,
            },
            instrs,
        )


def all_lanes(facts: Facts, sign: Sign) -> float:
    """With the work spread over all partitions."""

    def spread(spec: OpSpec, work: Work) -> Work:
        share = max(p.shape[0] for p in spec.operands) / facts.hw.pmax
        saved = work.interval_us * (1.0 - share)
        return replace(
            work, interval_us=work.interval_us - saved, latency_us=work.latency_us - saved
        )

    return facts.without(instrs=sign.instrs, work=spread)


# -- Scalar Engine -------------------------------------------------------------------------------


def tables(facts: Facts) -> Iterator[Sign]:
    """Changes of the activation table."""
    table = np.array([w.table if w else "" for w in facts.plan.works] or [""], object)
    activations = np.flatnonzero(table[facts.spec] != "")
    activations = activations[np.argsort(facts.plan.start[activations], kind="stable")]
    used = table[facts.spec[activations]]
    changes = activations[np.append(True, used[1:] != used[:-1])[: len(activations)]]
    if len(changes) > 1:
        each = facts.hw.timing.act_table_us
        names = sorted(set(used.tolist()))
        yield Sign(
            facts.busiest(changes, np.ones(len(facts.op_specs))),
            each * len(changes),
            {"count": len(changes), "each": each, "functions": ", ".join(names)},
            changes,
            each * (len(names) - 1),
        )


def no_tables(facts: Facts, sign: Sign) -> float:
    """Without loads of tables, but for one a function; the first is there before its data."""
    body = facts.without(hw=facts.faster(act_table_us=0.0))
    return min(facts.body, body + sign.more)
