"""`calibrate --fit FILES`: propose constants of the latency model from measurements.

One value of each constant for all kernels of a target. The logarithms of predicted over measured
are made small by Gauss-Newton steps. With constants named, nothing else counts. Else all that
AWS has not stated are fitted at once: held to what they are now (the looser, the less is known of
them), kernels that the model does not understand count little, all families count alike, and
what moves fewer than three families is left alone. Beside the error stands the one of each family
predicted by a fit without it; intervals are those of fits to families drawn at random.
Nothing is written into `chip/`: a person reads the proposal first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..chip import hw
from ..chip.core import NeuronCore, Timing
from ..errors import NkiError
from . import records
from .points import Point, prepare
from .records import Record

STEPS, STEP = 30, 0.02  # of the iteration; relative step of a derivative
WIDEST = math.log(3.0)  # a constant moves by at most this factor in a step
BLIND = 1e-4  # a constant that moves no prediction by so much is not seen
ALIKE = 0.05  # singular values below this: constants that go together
CONFIDENCE = 0.95
#: how far a constant may be from what it is, as a factor's logarithm
LOOSE = {"fitted": math.log(1.1), "narrow": math.log(1.2), "assumed": math.log(1.5)}
NOISE, OUTLIER = 0.08, 1.5  # of a measurement, relatively; beyond so many of it: counts less
MOVED, FAMILIES = 0.02, 3  # a constant has to move so many families by so much of itself
DRAWS = 200  # of families, for intervals
MOST = 15_000  # instructions of a kernel that is fitted to


class Refusal(ValueError):
    """There is nothing to propose; the text says why."""


@dataclass
class Proposal:
    """What a fit says of one target."""

    target: str
    constants: list[dict[str, Any]]
    points: list[dict[str, Any]]
    before_pct: float
    after_pct: float
    left_out: dict[str, str]
    across_pct: float | None = None  # median |error| of families that a fit has not seen
    #: family -> constants that were fitted without it
    folds: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {"schema": 1, "kind": "proposal", **self.__dict__}


def candidates(timing: Timing) -> list[str]:
    """Return the constants that may be fitted: numbers above 0 that AWS has not stated."""
    return [
        f.name
        for f in fields(timing)
        if isinstance(getattr(timing, f.name), float)
        and getattr(timing, f.name) > 0
        and (
            f.name.startswith("compiler_load")
            or not f.name.startswith(("compiler_", "pe_window", "pe_full", "pe_half"))
        )
        and timing.provenance[f.name].tag != "documented"
    ]


def quantile(freedom: int) -> float:
    """Return Student's t for a two-sided 95 % interval (Hill's expansion; 1 and 2 are exact)."""
    if freedom == 1:
        return math.tan(math.pi * CONFIDENCE / 2)
    if freedom == 2:
        p = (1 + CONFIDENCE) / 2
        return (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    z, n = 1.959964, float(freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


@dataclass
class _Model:
    """Logarithms of predicted over measured, as they depend on logarithms of constants."""

    points: Sequence[Point]
    core: NeuronCore
    measured: np.ndarray = field(init=False)
    family: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.measured = np.log([p.record.value_us for p in self.points])
        names = [p.record.family for p in self.points]
        if len(set(names)) < FAMILIES:  # then each kernel stands for itself
            names = [f"{p.record.family} {p.record.variant}" for p in self.points]
        self.family = np.unique(names, return_inverse=True)[1]

    def residuals(self, values: np.ndarray, of: Sequence[str]) -> np.ndarray:
        new: dict[str, Any] = {n: float(math.exp(v)) for n, v in zip(of, values)}
        changed = replace(self.core, timing=replace(self.core.timing, **new))
        return np.log([p.predict(changed) for p in self.points]) - self.measured

    def slopes(
        self,
        values: np.ndarray,
        of: Sequence[str],
        base: np.ndarray,
        progress: Callable[[str], None] = lambda _: None,
    ) -> np.ndarray:
        columns = []
        for k, name in enumerate(of):
            progress(name)
            moved = values.copy()
            moved[k] += STEP
            columns.append((self.residuals(moved, of) - base) / STEP)
        return np.array(columns).T.reshape(len(base), len(of))

    def levelled(self, x: np.ndarray) -> np.ndarray:
        """Return rows less the median of their family, where only ratios within it count."""
        out = np.array(x, float)
        relative = np.array([p.record.scale == "relative" for p in self.points])
        for f in np.unique(self.family[relative]):
            of_family = relative & (self.family == f)
            out[of_family] -= np.median(out[of_family], axis=0)
        return out


def fit(
    points: Sequence[Point],
    names: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Proposal:
    """Fit constants to the points of one target.

    `names`: which constants (default: all that may be, held to what they are). Raises Refusal
    where there are not more distinct points than constants.
    """
    model = _Model(points, hw.get(points[0].target))
    distinct = len(
        {
            (
                p.record.source["path"],
                p.record.source["function"],
                p.record.variant,
                p.record.metric,
                p.dge,
            )
            for p in points
        }
    )
    may = candidates(model.core.timing)
    unknown = sorted(set(names or ()) - set(may))
    if unknown:
        raise Refusal(
            f"{unknown[0]} is no constant that can be fitted on {model.core.name}; "
            "those are " + ", ".join(may)
        )
    if distinct <= len(names or ""):
        raise Refusal(_too_few(distinct, len(names or "")))
    chosen = list(names or may)
    begin = np.log([getattr(model.core.timing, n) for n in chosen])
    first = model.residuals(begin, chosen)
    jacobian = model.slopes(begin, chosen, first, progress)
    if names:
        return _exactly(model, chosen, begin, first, jacobian, distinct)
    return _held(model, chosen, begin, first, jacobian)


def _exactly(
    model: _Model,
    chosen: list[str],
    begin: np.ndarray,
    first: np.ndarray,
    jacobian: np.ndarray,
    distinct: int,
) -> Proposal:
    """Fit the constants that were named, and only to the measurements."""
    left_out: dict[str, str] = {}
    for k, name in enumerate(chosen):
        rest = [j for j in range(len(chosen)) if j != k and np.abs(jacobian[:, j]).max() > BLIND]
        columns = jacobian[:, [*rest, k]]
        if np.abs(jacobian[:, k]).max() <= BLIND:
            left_out[name] = "no kernel depends on it"
        elif np.linalg.svd(columns / np.linalg.norm(columns, axis=0))[1][-1] <= ALIKE:
            left_out[name] = "the kernels cannot tell it from the others"
    if left_out:
        raise Refusal("; ".join(f"{n}: {why}" for n, why in left_out.items()))
    values, base, damping = begin, first, 1e-3
    for _ in range(STEPS):
        normal = jacobian.T @ jacobian
        move = -np.linalg.solve(
            normal + damping * np.diag(np.diag(normal) + 1e-12), jacobian.T @ base
        )
        tried = values + np.clip(move, -WIDEST, WIDEST)
        after = model.residuals(tried, chosen)
        if after @ after < base @ base:
            gain = 1 - (after @ after) / (base @ base)
            values, base, damping = tried, after, damping / 5
            if gain < 1e-5:
                break
            jacobian = model.slopes(values, chosen, base)
        else:
            damping *= 10
            if damping > 1e6:
                break
    jacobian = model.slopes(values, chosen, base)
    freedom = distinct - len(chosen)
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * (base @ base / freedom)
    wide = quantile(freedom) * np.sqrt(np.maximum(0.0, np.diag(covariance)))
    return _proposal(model, chosen, values, values - wide, values + wide, first, base, None, {})


def _held(
    model: _Model, constants: list[str], begin: np.ndarray, first: np.ndarray, jacobian: np.ndarray
) -> Proposal:
    """Fit all constants at once, held to what they are now."""
    moves = np.array(
        [
            len(np.unique(model.family[np.abs(jacobian[:, k]) > MOVED]))
            for k in range(len(constants))
        ]
    )
    left_out = {
        n: "no kernel depends on it"
        if np.abs(jacobian[:, k]).max() <= BLIND
        else f"it moves {moves[k]} families, fewer than {FAMILIES}"
        for k, n in enumerate(constants)
        if moves[k] < FAMILIES
    }
    keep = [k for k, n in enumerate(constants) if n not in left_out]
    if not keep:
        raise Refusal("; ".join(f"{n}: {why}" for n, why in left_out.items()))
    chosen, start, slope = (
        [constants[k] for k in keep],
        begin[keep],
        model.levelled(jacobian[:, keep]),
    )
    source = [model.core.timing.provenance[n] for n in chosen]
    loose = np.array([LOOSE["narrow" if s.narrow else s.tag] for s in source])
    values, base = start, first
    for _ in range(3):
        move = _step(model, slope, model.levelled(base), values - start, loose)
        while np.abs(move).max() > 1e-3:
            after = model.residuals(values + move, chosen)
            worse = _loss(model, base, values - start, loose)
            if _loss(model, after, values + move - start, loose) < worse:
                values, base = values + move, after
                break
            move = move / 2
        else:
            break
    level, here = model.levelled(base), values - start
    across = np.empty(len(base))
    folds: dict[str, dict[str, float]] = {}
    for f in np.unique(model.family):  # each family, by a fit without it
        of_family = model.family == f
        without = _step(model, slope, level, here, loose, (~of_family).astype(float))
        across[of_family] = level[of_family] + slope[of_family] @ without
        names = {p.record.family for p, m in zip(model.points, of_family) if m}
        folds |= dict.fromkeys(names, dict(zip(chosen, np.exp(values + without).tolist())))
    rng = np.random.default_rng(0)
    count = int(model.family.max()) + 1
    drawn = np.array(
        [
            _step(
                model,
                slope,
                level,
                here,
                loose,
                np.bincount(rng.integers(0, count, count), minlength=count)[model.family].astype(
                    float
                ),
            )
            for _ in range(DRAWS)
        ]
    )
    low, high = (
        values + np.quantile(drawn, q, axis=0) for q in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
    )
    made = _proposal(
        model,
        chosen,
        values,
        np.minimum(low, values),
        np.maximum(high, values),
        first,
        base,
        across,
        left_out,
        moves[keep],
    )
    made.folds = folds
    return made


def _weights(model: _Model) -> np.ndarray:
    """Return the weights of the points: a family counts as the root of its points."""
    return 1 / np.sqrt(np.bincount(model.family)[model.family])


def _loss(model: _Model, residuals: np.ndarray, moved: np.ndarray, loose: np.ndarray) -> float:
    r = np.abs(model.levelled(residuals)) / NOISE
    huber = np.where(r <= OUTLIER, r * r, 2 * OUTLIER * r - OUTLIER**2)
    return float(_weights(model) @ huber + ((moved / loose) ** 2).sum())


def _step(
    model: _Model,
    slope: np.ndarray,
    level: np.ndarray,
    moved: np.ndarray,
    loose: np.ndarray,
    times: np.ndarray | None = None,
) -> np.ndarray:
    """Return how to move the constants; `times`: how often each point counts."""
    weights = _weights(model) * (1.0 if times is None else times)
    move = np.zeros(slope.shape[1])
    for _ in range(8):  # what is far off counts less
        r = np.abs(level + slope @ move) / NOISE
        w = weights * np.minimum(1.0, OUTLIER / np.maximum(r, 1e-9)) / NOISE**2
        move = np.linalg.solve(
            slope.T @ (w[:, None] * slope) + np.diag(loose**-2.0),
            -slope.T @ (w * level) - moved / loose**2,
        )
    return np.clip(move, -WIDEST, WIDEST)


def _proposal(
    model: _Model,
    chosen: list[str],
    values: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    first: np.ndarray,
    base: np.ndarray,
    across: np.ndarray | None,
    left_out: dict[str, str],
    moves: np.ndarray | None = None,
) -> Proposal:
    def median(x: np.ndarray) -> float:
        return 100 * float(np.median(np.abs(np.expm1(model.levelled(x)))))

    timing = model.core.timing
    constants = [
        {
            "name": n,
            "now": float(getattr(timing, n)),
            "proposed": float(math.exp(v)),
            "low": float(math.exp(a)),
            "high": float(math.exp(min(b, 700))),
            "tag": timing.provenance[n].tag,
        }
        for n, v, a, b in zip(chosen, values, low, high)
    ]
    if moves is not None:
        constants = [{**c, "families": int(m)} for c, m in zip(constants, moves)]
    points = [
        {
            "id": p.record.id,
            "measured_us": p.record.value_us,
            "before_us": float(math.exp(b + m)),
            "after_us": float(math.exp(a + m)),
        }
        for p, b, a, m in zip(model.points, first, base, model.measured)
    ]
    if across is not None:
        points = [{**p, "across_pct": 100 * float(math.expm1(x))} for p, x in zip(points, across)]
    return Proposal(
        model.core.name,
        constants,
        points,
        median(first),
        median(base),
        left_out,
        None if across is None else 100 * float(np.median(np.abs(np.expm1(across)))),
    )


def _too_few(points: int, constants: int) -> str:
    return (
        f"{points} distinct measured kernels cannot determine {constants} constants: at least "
        f"{constants + 1} are needed (measuring one again adds none). Measure more kernels, "
        "or name fewer constants with --constants."
    )


def lines(proposal: Proposal) -> list[str]:
    """Return a proposal as text."""
    held = proposal.across_pct is not None
    across = f", {proposal.across_pct:.1f} % for families that a fit has not seen" if held else ""
    out = [
        f"{proposal.target}: median |error| {proposal.before_pct:.1f} % now, "
        f"{proposal.after_pct:.1f} % with the proposal, on the {len(proposal.points)} "
        f"measurements that it was fitted to{across}",
        "",
        f"{'constant':<36}{'now':>12}{'proposed':>12}   95 % interval          tag",
    ]
    for c in proposal.constants:
        interval = f"{c['low']:.4g} to {c['high']:.4g}"
        sure = "" if c["low"] <= c["now"] <= c["high"] else "  differs"
        moves = f"  ({c['families']} families)" if "families" in c else ""
        out.append(
            f"{c['name']:<36}{c['now']:>12.4g}{c['proposed']:>12.4g}   {interval:<22} "
            f"{c['tag']}{moves}{sure}"
        )
    out += [
        "",
        f"{'kernel':<52}{'measured us':>12}{'now':>10}{'proposed':>10}"
        + (f"{'unseen %':>10}" if held else ""),
    ]
    out += [
        f"{p['id'][:51]:<52}{p['measured_us']:>12.1f}{p['before_us']:>10.1f}"
        f"{p['after_us']:>10.1f}" + (f"{p['across_pct']:>+10.1f}" if held else "")
        for p in proposal.points
    ]
    if proposal.left_out:
        out += [
            "",
            "not fitted: " + "; ".join(f"{n} ({why})" for n, why in proposal.left_out.items()),
        ]
    return out


def propose(
    files: Sequence[str],
    sources: Path | None,
    target: str | None,
    names: Sequence[str] | None,
    progress: Callable[[str], None] = lambda _: None,
    most: int = MOST,
) -> tuple[list[Proposal], list[str]]:
    """Return a proposal for each target of some files of records, and what was left out.

    `most`: kernels of more instructions are left out, since a fit runs each a hundred times.
    """
    wanted = [
        r
        for file in files
        for r in records.load(file)
        if target is None or hw.get(r.target).name == target
    ]
    points: dict[str, list[Point]] = {}
    notes = []
    for record in wanted:
        progress(record.id)
        try:
            point = prepare(record, sources)
        except Exception as exc:  # other people's code: it can fail in any way
            notes.append(f"{record.id}: {' '.join(str(exc).split())}"[:300])
            continue
        if point.instructions > most:
            notes.append(f"{record.id}: {point.instructions} instructions, more than {most}")
        else:
            points.setdefault(point.target, []).append(point)
    if not points:
        raise Refusal("no record could be run: " + ("; ".join(notes) or "there are none"))
    return [fit(of_target, names, progress) for of_target in points.values()], notes


class Unseen:
    """Constants that were fitted without a family, from proposals that `save` wrote.

    Raises Refusal where a file is no proposal.
    """

    def __init__(self, files: Sequence[str]):
        self.found: dict[str, tuple[dict[str, float], dict[str, dict[str, float]]]] = {}
        for name in files:
            try:
                for one in json.loads(Path(name).read_text("utf-8")):
                    constants = {c["name"]: float(c["proposed"]) for c in one["constants"]}
                    self.found[one["target"]] = constants, one["folds"]
                    for values in (constants, *one["folds"].values()):
                        if not values.keys() <= {f.name for f in fields(Timing)}:
                            raise KeyError(*values)
            except (OSError, ValueError, TypeError, KeyError, AttributeError, NkiError) as exc:
                raise Refusal(f"{name} is no proposal of --fit --write: {exc!r}"[:200]) from None

    def __call__(self, record: Record) -> NeuronCore | None:
        """Return the core to predict a record with; None: there is no proposal for its target.

        A family without fitted kernels is predicted by the proposal itself.
        """
        core = hw.get(record.target)
        if core.name not in self.found:
            return None
        constants, folds = self.found[core.name]
        values: dict[str, Any] = folds.get(record.family, constants)
        return replace(core, timing=replace(core.timing, **values))


def save(proposals: Sequence[Proposal], path: Path) -> None:
    """Write proposals as JSON."""
    path.write_text(json.dumps([p.to_dict() for p in proposals], indent=1) + "\n", encoding="utf-8")
