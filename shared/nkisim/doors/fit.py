"""`calibrate --fit FILES`: propose constants of the latency model from measurements of one's own.

One value of each constant for all kernels of a target. The logarithms of predicted over measured
are made small by Gauss-Newton steps with damping; confidence intervals are those of a linear model
around the result. Nothing is written into `chip/`: a person reads the proposal first.
"""
from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..chip import hw
from ..chip.core import NeuronCore, Timing
from ..launch import Run, as_kernel, launch
from ..prediction import descriptor_path
from ..timing import compiler as compiling
from ..timing.schedule import schedule
from . import records
from .records import Record, Skipped

STEPS, STEP = 30, 0.02          # of the iteration; relative step of a derivative
WIDEST = math.log(3.0)          # a constant moves by at most this factor in a step
BLIND = 1e-4                    # a constant that moves no prediction by so much is not seen
ALIKE = 0.05                    # singular values below this: constants that go together
CONFIDENCE = 0.95


class Refusal(ValueError):
    """There is nothing to propose; the text says why."""


@dataclass
class Point:
    """One measured kernel, traced once; `seconds` of the model are asked with other constants."""

    record: Record
    run: Run
    dge: bool

    def predict(self, core: NeuronCore, on: frozenset[str]) -> float:
        """Return the record's metric in us, as the model with these constants predicts it."""
        plan = schedule(self.run.trace, core, dge=self.dge, on=on)
        if not len(plan.issue):
            raise Skipped("it executes nothing")
        body = float(plan.end.max()) - float(plan.issue.min())
        extra = {"nc_latency": core.timing.launch_us, "profile_total": core.timing.profile_us}
        return body + extra.get(self.record.metric, 0.0)


@dataclass
class Proposal:
    """What a fit says of one target."""

    target: str
    constants: list[dict[str, Any]]
    points: list[dict[str, Any]]
    before_pct: float
    after_pct: float
    left_out: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {"schema": 1, "kind": "proposal", **self.__dict__}


def prepare(record: Record, sources: Path | None) -> Point:
    """Trace a record's kernel; raise Skipped where it cannot be run."""
    func = records.kernel(record, sources) if sources and not record.twin else \
        records.twin(record)
    args, kwargs = records.arguments(record)
    core = hw.get(record.target)
    options = str(getattr(func, "options", {}).get("additional_compile_opt") or "")
    inner = as_kernel(getattr(func, "kernel", func))
    path = descriptor_path(core, options, record.descriptors)
    return Point(record, launch(inner, tuple(args), kwargs, target=core.name, compute=False),
                 path == "dge")


def candidates(timing: Timing) -> list[str]:
    """Return the constants that may be fitted: numbers above 0 that AWS has not stated."""
    return [f.name for f in fields(timing) if isinstance(getattr(timing, f.name), float)
            and getattr(timing, f.name) > 0 and not f.name.startswith("compiler_")
            and timing.provenance[f.name].tag != "documented"]


def quantile(freedom: int) -> float:
    """Return Student's t for a two-sided 95 % interval (Hill's expansion; 1 and 2 are exact)."""
    if freedom == 1:
        return math.tan(math.pi * CONFIDENCE / 2)
    if freedom == 2:
        p = (1 + CONFIDENCE) / 2
        return (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    z, n = 1.959964, float(freedom)
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2) \
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)


def fit(points: Sequence[Point], names: Sequence[str] | None = None,
        told: Callable[[int], None] = lambda _: None) -> Proposal:
    """Fit constants to the points of one target.

    `names`: which constants (default: all that may be and that the points can tell apart). Raises
    Refusal where there are not more distinct points than constants.
    """
    core = hw.get(points[0].record.target)
    on = frozenset(compiling.options(None))
    distinct = {(p.record.source["path"], p.record.source["function"], p.record.variant,
                 p.record.metric, p.dge) for p in points}
    may = candidates(core.timing)
    unknown = sorted(set(names or ()) - set(may))
    if unknown:
        raise Refusal(f"{unknown[0]} is no constant that can be fitted on {core.name}; those are "
                      + ", ".join(may))
    if names and len(distinct) <= len(names):
        raise Refusal(_too_few(len(distinct), len(names)))
    measured = np.log([p.record.value_us for p in points])

    def residuals(values: np.ndarray, of: Sequence[str]) -> np.ndarray:
        new: dict[str, Any] = {n: float(math.exp(v)) for n, v in zip(of, values)}
        changed = replace(core, timing=replace(core.timing, **new))
        return np.log([p.predict(changed, on) for p in points]) - measured

    def slopes(values: np.ndarray, of: Sequence[str], base: np.ndarray) -> np.ndarray:
        columns = []
        for k in range(len(of)):
            moved = values.copy()
            moved[k] += STEP
            columns.append((residuals(moved, of) - base) / STEP)
        return np.array(columns).T.reshape(len(base), len(of))

    chosen = list(names or may)
    left_out: dict[str, str] = {}
    begin = np.log([getattr(core.timing, n) for n in chosen])
    first = residuals(begin, chosen)
    jacobian = slopes(begin, chosen, first)
    seen = [k for k in range(len(chosen)) if np.abs(jacobian[:, k]).max() > BLIND]
    left_out |= {n: "no kernel depends on it" for k, n in enumerate(chosen) if k not in seen}
    keep: list[int] = []            # the most telling first; what goes along with those is left
    for k in sorted(seen, key=lambda k: -np.linalg.norm(jacobian[:, k])):
        scaled = jacobian[:, [*keep, k]] / np.linalg.norm(jacobian[:, [*keep, k]], axis=0)
        if len(keep) + 1 < len(distinct) and np.linalg.svd(scaled)[1][-1] > ALIKE:
            keep.append(k)
        else:
            left_out[chosen[k]] = "the kernels cannot tell it from the others" \
                if len(keep) + 1 < len(distinct) else "there are not more kernels than constants"
    if names and len(keep) < len(names):
        raise Refusal("; ".join(f"{n}: {why}" for n, why in left_out.items()))
    if not keep or len(distinct) <= len(keep):
        raise Refusal(_too_few(len(distinct), max(1, len(keep))))
    chosen = [chosen[k] for k in sorted(keep)]
    values = np.log([getattr(core.timing, n) for n in chosen])
    base, damping = residuals(values, chosen), 1e-3
    for step in range(STEPS):
        told(step)
        jacobian = slopes(values, chosen, base)
        normal = jacobian.T @ jacobian
        move = -np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12),
                                jacobian.T @ base)
        tried = values + np.clip(move, -WIDEST, WIDEST)
        after = residuals(tried, chosen)
        if after @ after < base @ base:
            gain = 1 - (after @ after) / (base @ base)
            values, base, damping = tried, after, damping / 5
            if gain < 1e-5:
                break
        else:
            damping *= 10
            if damping > 1e6:
                break
    jacobian = slopes(values, chosen, base)
    freedom = len(distinct) - len(chosen)
    spread = base @ base / freedom
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * spread
    wide = quantile(freedom) * np.sqrt(np.maximum(0.0, np.diag(covariance)))
    return Proposal(
        core.name,
        [{"name": n, "now": float(getattr(core.timing, n)), "proposed": float(math.exp(v)),
          "low": float(math.exp(v - w)), "high": float(math.exp(min(v + w, 700))),
          "tag": core.timing.provenance[n].tag} for n, v, w in zip(chosen, values, wide)],
        [{"id": p.record.id, "measured_us": p.record.value_us,
          "before_us": float(math.exp(b + m)), "after_us": float(math.exp(a + m))}
         for p, b, a, m in zip(points, first, base, measured)],
        100 * float(np.median(np.abs(np.expm1(first)))),
        100 * float(np.median(np.abs(np.expm1(base)))), left_out)


def _too_few(points: int, constants: int) -> str:
    return (f"{points} distinct measured kernels cannot determine {constants} constants: at least "
            f"{constants + 1} are needed (measuring one again adds none). Measure more kernels, "
            "or name fewer constants with --constants.")


def lines(proposal: Proposal) -> list[str]:
    """Return a proposal as text."""
    out = [f"{proposal.target}: median |error| {proposal.before_pct:.1f} % now, "
           f"{proposal.after_pct:.1f} % with the proposal, on the {len(proposal.points)} "
           "measurements that it was fitted to", "",
           f"{'constant':<36}{'now':>12}{'proposed':>12}   95 % interval          tag"]
    for c in proposal.constants:
        interval = f"{c['low']:.4g} to {c['high']:.4g}"
        sure = "" if c["low"] <= c["now"] <= c["high"] else "  differs"
        out.append(f"{c['name']:<36}{c['now']:>12.4g}{c['proposed']:>12.4g}   {interval:<22} "
                   f"{c['tag']}{sure}")
    out += ["", f"{'kernel':<52}{'measured us':>12}{'now':>10}{'proposed':>10}"]
    out += [f"{p['id'][:51]:<52}{p['measured_us']:>12.1f}{p['before_us']:>10.1f}"
            f"{p['after_us']:>10.1f}" for p in proposal.points]
    if proposal.left_out:
        out += ["", "not fitted: " + "; ".join(f"{n} ({why})"
                                               for n, why in proposal.left_out.items())]
    return out


def propose(files: Sequence[str], sources: Path | None, target: str | None,
            names: Sequence[str] | None) -> tuple[list[Proposal], list[str]]:
    """Return a proposal for each target of some files of records, and what was left out."""
    wanted = [r for file in files for r in records.load(file)
              if target is None or hw.get(r.target).name == target]
    points: dict[str, list[Point]] = {}
    notes = []
    for record in wanted:
        try:
            point = prepare(record, sources)
            points.setdefault(hw.get(record.target).name, []).append(point)
        except Exception as exc:            # other people's code: it can fail in any way
            notes.append(f"{record.id}: {' '.join(str(exc).split())}"[:300])
    if not points:
        raise Refusal("no record could be run: " + ("; ".join(notes) or "there are none"))
    return [fit(found, names) for found in points.values()], notes


def save(proposals: Sequence[Proposal], path: Path) -> None:
    """Write proposals as JSON."""
    path.write_text(json.dumps([p.to_dict() for p in proposals], indent=1) + "\n",
                    encoding="utf-8")
