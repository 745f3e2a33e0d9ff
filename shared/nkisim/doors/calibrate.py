"""`python -m nkisim calibrate`: compare the latency model with published measurements.

Every record is listed: with its error, or with the reason why it could not be run. The records
that nkisim carries were used to fit constants of `chip/`; other records judge the model. Kernels of
ours that have the structure of a record's kernel need no sources and are compared in any case.
"""
from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ..chip import hw
from ..errors import NkiError
from ..prediction import Profile, profile
from ..timing import compiler as compiling
from . import fit, records
from .records import METRICS, Record, Skipped

#: numbers that differ by less than this are the same: repeated runs differ by so much
SAME = 0.005
#: variants that differ by more than this are worth telling apart
CLEAR = 0.05


@dataclass
class Outcome:
    """What became of one record."""

    id: str
    target: str
    metric: str
    measured_us: float
    predicted_us: float | None = None
    error_pct: float | None = None
    skipped: str | None = None          # why it has no prediction
    family: str = ""
    variant: str = ""
    bound: str = ""
    instructions: int = 0
    seconds: float = 0.0                # of our own time
    body_us: float = 0.0
    relative: bool = False              # only ratios within the family count: its error is that
    ranked: bool = True
    across_pct: float | None = None     # error by constants that were fitted without the family
    counted: dict[str, float] = field(default_factory=dict)     # by the profiler ...
    counters: dict[str, float] = field(default_factory=dict)    # ... and by the model


def predict(record: Record, sources: Path | None, cache: dict[str, Profile],
            compiler: Iterable[str] | None = None) -> Profile:
    """Run a record's kernel, timing only; the same kernel is run once for all its records.

    Without sources: the kernel of ours that has its structure.
    """
    if record.metric not in METRICS:
        raise Skipped(f"there is no metric {record.metric!r}; known are {', '.join(METRICS)}")
    key = json.dumps([record.twin if sources is None else [record.source, record.set], record.args,
                      record.kwargs, record.target, record.descriptors], sort_keys=True,
                     default=str)
    if key not in cache:
        func = records.kernel(record, sources) if sources else records.twin(record)
        args, kwargs = records.arguments(record)
        cache.clear()                   # profiles are large; the same kernels come in a row
        cache[key] = profile(func, *args, target=record.target, compute=False,
                             descriptors=record.descriptors, compiler=compiler, **kwargs)
    return cache[key]


def compare(record: Record, sources: Path | None, cache: dict[str, Profile],
            compiler: Iterable[str] | None = None) -> Outcome:
    """Return the outcome of one record; whatever goes wrong becomes the reason to skip it."""
    out = Outcome(record.id, record.target, record.metric, record.value_us, family=record.family,
                  variant=record.variant, relative=record.scale == "relative",
                  ranked=record.ranked, counted=record.counters)
    begin = time.perf_counter()
    try:
        us = 0.0
        for part in record.parts or (record,):          # launches whose times add up
            prof = predict(part, sources, cache, compiler)
            us += float(getattr(prof, METRICS[record.metric]))
    except Skipped as exc:
        out.skipped = str(exc)
    except Exception as exc:            # other people's code: it can fail in any way
        kind = "" if isinstance(exc, NkiError) else f"{type(exc).__name__}: "
        out.skipped = f"{kind}{' '.join(str(exc).split())}"[:300]
    else:
        out.predicted_us = us
        out.error_pct = 100.0 * (us / record.value_us - 1.0)
        out.bound, out.instructions, out.body_us = prof.bound, len(prof.trace), prof.body_us
        out.counters = {name: _counter(prof, name, value)
                        for name, value in record.counters.items()}
    out.seconds = time.perf_counter() - begin
    return out


def _counter(prof: Profile, name: str, published: float) -> float:
    """Return what the model counts, rounded as what was published in 10^6 bytes is."""
    if not name.endswith("_mb"):
        return prof.counters[name]
    return round(prof.counters[name.removesuffix("mb") + "bytes"] / 1e6,
                 0 if float(published).is_integer() else 1)


def level(outcomes: Iterable[Outcome]) -> None:
    """Let errors of records whose machine is not ours be those of ratios within the family."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for o in outcomes:
        if o.relative and o.predicted_us is not None:
            groups[o.family].append(o)
    for mine in groups.values():
        rate = float(np.exp(np.median([np.log(o.measured_us / (o.predicted_us or 1))
                                       for o in mine])))
        for o in mine:
            o.error_pct = 100.0 * ((o.predicted_us or 0) * rate / o.measured_us - 1.0)


def order(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Return how many pairs of variants, and best variants, of a family are told rightly.

    Pairs are those that differ by more than CLEAR; a best one is right if the one that is
    predicted to be best is within CLEAR of the one that is.
    """
    groups: dict[tuple, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for o in outcomes:
        if o.predicted_us is not None and o.ranked:
            groups[o.family, o.target, o.metric][o.variant or o.id].append(o)
    out = dict.fromkeys(("pairs", "pairs_right", "families", "best_right"), 0)
    for variants in groups.values():
        some = [(float(np.mean([o.measured_us for o in v])),
                 float(np.mean([o.predicted_us or 0 for o in v]))) for v in variants.values()]
        if len(some) < 2:
            continue
        for a, b in combinations(sorted(some), 2):
            if b[0] > a[0] * (1 + CLEAR):
                out["pairs"] += 1
                out["pairs_right"] += a[1] < b[1]
        out["families"] += 1
        best = min(some, key=lambda pair: pair[1])
        out["best_right"] += best[0] <= min(some)[0] * (1 + CLEAR)
    return out


def rank_correlation(a: list[float], b: list[float]) -> float:
    """Return Spearman's rank correlation; values within SAME share the mean of their ranks."""
    def ranks(x: list[float]) -> np.ndarray:
        values = np.asarray(x, float)
        order = np.argsort(values, kind="stable")
        steps = np.diff(values[order]) > SAME * values[order][:-1]
        group = np.concatenate([[0], np.cumsum(steps)])
        out = np.empty(len(x))
        for g in set(group.tolist()):
            out[order[group == g]] = np.flatnonzero(group == g).mean()
        return out
    ra, rb = ranks(a), ranks(b)
    if ra.std() == 0 or rb.std() == 0:
        return float("nan")
    return float(np.corrcoef(ra, rb)[0, 1])


def families(outcomes: list[Outcome]) -> dict[str, tuple[int, float]]:
    """Return {family: (variants, rank correlation)} of families with two and more variants.

    What several people measured of one variant counts once, as the mean.
    """
    groups: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for o in outcomes:
        if o.predicted_us is not None:
            groups[o.family][o.variant or o.id].append(o)
    return {name: (len(g), rank_correlation(
        [float(np.mean([o.measured_us for o in v])) for v in g.values()],
        [float(np.mean([float(o.predicted_us or 0) for o in v])) for v in g.values()]))
        for name, g in sorted(groups.items()) if len(g) >= 2}


def by_family(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return how far each family is off: records, median and worst |error| in percent."""
    groups: dict[str, list[float]] = defaultdict(list)
    for o in outcomes:
        if o.error_pct is not None:
            groups[o.family].append(abs(o.error_pct))
    return [{"family": name, "records": len(e), "median_error_pct": round(float(np.median(e)), 1),
             "worst_error_pct": round(max(e), 1)} for name, e in sorted(groups.items())]


def report(outcomes: list[Outcome], twins: Iterable[Outcome] = ()) -> dict[str, Any]:
    """Return everything as one JSON-ready dict; figures are of the records, not of our twins."""
    level(outcomes)
    errors = [abs(o.error_pct) for o in outcomes if o.error_pct is not None]
    unseen = [abs(o.across_pct) for o in outcomes if o.across_pct is not None]
    return {
        "records": [asdict(o) for o in outcomes],
        "compared": len(errors), "skipped": len(outcomes) - len(errors),
        "median_error_pct": float(np.median(errors)) if errors else None,
        "p90_error_pct": float(np.percentile(errors, 90)) if errors else None,
        "across": {"records": len(unseen), "median_error_pct": float(np.median(unseen)),
                   "p90_error_pct": float(np.percentile(unseen, 90))} if unseen else None,
        "order": order(outcomes),
        "families": [{"family": f, "variants": n, "rank_correlation": None if r != r else r}
                     for f, (n, r) in families(outcomes).items()],
        "twins": [asdict(o) for o in twins],
    }


def write(path: Path, outcomes: list[Outcome], twins: Iterable[Outcome]) -> None:
    """Write what a comparison of all records said: nkisim carries it as data/calibration.json.

    Predictions are in microseconds, by the record's id; `twins` of kernels of ours.
    """
    for o in outcomes:                  # figures are those of the predictions as they are kept
        if o.predicted_us is not None:
            o.predicted_us = round(o.predicted_us, 4)
            o.error_pct = 100.0 * (o.predicted_us / o.measured_us - 1.0)
    facts = report(outcomes)

    def predictions(some: Iterable[Outcome]) -> dict[str, float]:
        return {o.id: round(o.predicted_us, 4) for o in some if o.predicted_us is not None}
    kept = {name: round(facts[name], 1) for name in ("median_error_pct", "p90_error_pct")}
    near = [{"target": o.target, "bound": o.bound, "body_us": round(o.body_us, 1),
             "error_pct": round(abs(o.error_pct if o.across_pct is None else o.across_pct), 1)}
            for o in outcomes if o.error_pct is not None and not o.relative]
    document = {"schema": 2, "compared": facts["compared"], "skipped": facts["skipped"], **kept,
                "across": {k: round(v, 1) for k, v in (facts["across"] or {}).items()},
                "order": facts["order"],
                "families": by_family(outcomes),
                "predicted_us": predictions(outcomes), "twins_us": predictions(twins),
                "neighbours": near}
    text = json.dumps(document, indent=1)
    text = re.sub(r"\{\s+(\"(?:target|family)\": [^{}]*?)\s+\}",     # a line each
                  lambda m: "{" + re.sub(r"\s+", " ", m[1]) + "}", text)
    path.write_text(text + "\n", encoding="utf-8")


def _table(outcomes: list[Outcome]) -> list[str]:
    width = max((len(o.id) for o in outcomes), default=2)
    out = [f"{'id':<{width}}  target  metric         measured us  predicted us   error %"]
    for o in outcomes:
        head = f"{o.id:<{width}}  {o.target:<6}  {o.metric:<13} {o.measured_us:>12.1f}"
        out.append(f"{head}  skipped: {o.skipped}" if o.predicted_us is None else
                   f"{head}  {o.predicted_us:>12.1f}  {o.error_pct:>+8.1f}")
    return out


def lines(outcomes: list[Outcome], twins: list[Outcome] | None = None) -> list[str]:
    """Return the tables as text."""
    facts = report(outcomes)
    out = [*_table(outcomes), ""]
    if facts["compared"]:
        out.append(f"{facts['compared']} records compared, {facts['skipped']} skipped; |error|: "
                   f"median {facts['median_error_pct']:.1f} %, "
                   f"90th percentile {facts['p90_error_pct']:.1f} %")
    else:
        out.append(f"nothing was compared: {facts['skipped']} records skipped")
    if facts["across"]:
        out.append(f"{facts['across']['records']} of them by constants that were fitted without "
                   f"their family: median {facts['across']['median_error_pct']:.1f} %, "
                   f"90th percentile {facts['across']['p90_error_pct']:.1f} %")
    told = facts["order"]
    if told["pairs"]:
        out.append(f"of {told['pairs']} pairs of variants that differ by more than {CLEAR:.0%}, "
                   f"{told['pairs_right'] / told['pairs']:.0%} are told apart rightly; the best "
                   f"one of {told['best_right']} families of {told['families']}")
    for f in facts["families"]:
        rank = f["rank_correlation"]
        out.append(f"  rank correlation {'   n/a' if rank is None else f'{rank:6.3f}'} over "
                   f"{f['variants']} variants of {f['family']}")
    if twins:
        out += ["", "Kernels of ours with the structure of the published ones (no sources needed):",
                *_table(twins)]
        errors = [abs(o.error_pct) for o in twins if o.error_pct is not None]
        if errors:
            out += ["", f"{len(errors)} compared; |error|: median {np.median(errors):.1f} %, "
                    f"90th percentile {np.percentile(errors, 90):.1f} %"]
    return out


def counter_lines(outcomes: list[Outcome]) -> list[str]:
    """Return what profilers counted beside what the model counts, as text."""
    out = [f"{'id':<44}{'counter':<17}{'counted':>15}{'model':>15}"]
    exact = every = 0
    for o in outcomes:
        for name, value in o.counted.items():
            if name not in o.counters:
                continue
            ours, whole = o.counters[name], float(value).is_integer() and value > 1
            every, exact = every + whole, exact + (whole and ours == value)
            shown = (f"{int(value):>15,}{int(ours):>15,}" if whole else
                     f"{value:>15.3f}{ours:>15.3f}")
            out.append(f"{o.id[:43]:<44}{name:<17}{shown}"
                       + ("" if not whole or ours == value else f"  {ours / value - 1:+.1%}"))
    return [*out, "", f"{exact} of {every} whole numbers are exactly those of the profiler"]


def explain(record: Record, prof: Profile) -> list[str]:
    """Return where the time of a record's kernel goes."""
    t = prof.hw.timing
    plan = prof.schedule
    predicted = getattr(prof, METRICS[record.metric])
    out = [f"{record.id}: {record.metric} on {record.target}, {prof.descriptors} descriptors",
           f"  source     {record.source['repo']} {record.source['path']} at "
           f"{record.source['commit'][:10]}, {record.source['function']}"
           + (f", candidate {record.source['candidate']}" if "candidate" in record.source else ""),
           f"  measured   {record.value_us:.1f} us ({record.confidence or 'no'} confidence)",
           f"  predicted  {predicted:.1f} us ({100 * (predicted / record.value_us - 1):+.1f} %), "
           f"bound by {prof.bound}",
           f"  body       {prof.body_us:.1f} us; launch adds {t.launch_us} us to nc_latency, "
           f"{t.profile_us} us to profile_total ({t.provenance['launch_us'].tag})", "",
           "  engine busy      us   of body"]
    out += [f"  {e:<11} {us:>8.1f}   {us / max(prof.body_us, 1e-9):>6.1%}"
            for e, us in plan.busy.items()]
    out += ["", "  instruction                 count     us each    us in all  waited (us in all)"]
    wait = plan.issue.copy()
    duration = np.array([w.interval_us if w else x.us if x else 0.0
                         for w, x in zip(plan.works, plan.transfers)])
    kind = np.array(plan.deps.kind, np.int64)
    for q in set(plan.deps.queue):          # time that a queue stood still before an instruction
        mine = np.flatnonzero(np.array(plan.deps.queue) == q)
        order = mine[np.argsort(plan.issue[mine], kind="stable")]
        before = np.concatenate([[0.0], (plan.issue + duration[kind])[order[:-1]]])
        wait[order] = np.maximum(0.0, plan.issue[order] - before)
    total = np.bincount(kind, duration[kind], len(duration))
    waits = np.bincount(kind, wait, len(duration))
    counts = np.bincount(kind, minlength=len(duration))
    for k in np.argsort(-total):
        row = prof.trace.kinds[k]
        shapes = " ".join("x".join(map(str, p.shape)) for p in row.operands[:2])
        x = plan.transfers[k]
        more = f"  {x.descriptors} descriptors, {x.nbytes} B, {x.engines} engines" if x else ""
        out.append(f"  {row.row.name + ' ' + row.engine:<26} {counts[k]:>6} {duration[k]:>11.3f} "
                   f"{total[k]:>12.1f} {waits[k]:>12.1f}  {shapes}{more}")
    used = sorted({s.tag for s in t.provenance.values()})
    out += ["", f"  constants of {prof.hw.name} are {', '.join(used)}: see docs/latency-model.md"]
    return out


def command(argv: list[str]) -> int:
    """Compare the latency model with published measurements."""
    parser = argparse.ArgumentParser(prog="python -m nkisim calibrate", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measurements", metavar="FILE", help="records (default: nkisim's own)")
    parser.add_argument("--sources", metavar="DIR",
                        help="public repositories, checked out as DIR/<owner>+<name> (their "
                             "kernels are executed; default: sources)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--write", metavar="FILE", type=Path,
                        help="write figures and predictions of all records, as nkisim carries "
                             "them in data/calibration.json (needs --sources)")
    parser.add_argument("--explain", metavar="ID", help="show where the time of one record goes")
    parser.add_argument("--compiler", metavar="NAMES", help="what the compiler may do, as for "
                        "python -m nkisim profile")
    parser.add_argument("--target", help="only records of this target")
    parser.add_argument("--only", metavar="TEXT", action="append", default=[],
                        help="only records whose id contains this (may be repeated)")
    parser.add_argument("--counters", action="store_true",
                        help="compare transfers, bytes and busy shares with published ones")
    parser.add_argument("--across", metavar="FILE", nargs="+", default=[],
                        help="proposals of --fit --write: their errors of families that a fit "
                             "has not seen are kept beside the others")
    parser.add_argument("--fit", metavar="FILE", nargs="+", default=[],
                        help="propose constants from these records (those of verify_sim); "
                             "--write FILE keeps the proposal")
    parser.add_argument("--most", metavar="N", type=int, default=fit.MOST,
                        help="with --fit: leave out kernels of more instructions than this "
                             "(default: %(default)s)")
    parser.add_argument("--constants", metavar="NAMES", help="with --fit: only these, with commas")
    options = parser.parse_args(argv)
    if options.fit:
        return _fit(options)
    try:
        wanted = records.load(options.measurements)
        target = hw.get(options.target).name if options.target else None
        on = None if options.compiler is None else compiling.options(options.compiler)
    except NkiError as exc:
        print(f"nkisim calibrate: {exc}", file=sys.stderr)
        return 2
    wanted = [r for r in wanted if (not target or _name(r.target) == target)
              and (not options.only or any(text in r.id for text in options.only))]
    sources = Path(options.sources or "sources")
    if options.write and (not options.sources or options.only or target or options.compiler):
        print("nkisim calibrate: --write is for all records: it goes with --sources, and without "
              "--only, --target and --compiler", file=sys.stderr)
        return 2
    if options.explain:
        return _explain([r for r in wanted if r.id == options.explain], options.explain, sources,
                        on)
    if not wanted:
        print("nkisim calibrate: no record is left after --target and --only", file=sys.stderr)
        return 2
    cache: dict[str, Profile] = {}
    outcomes: list[Outcome] = []
    twins: list[Outcome] = []
    jobs = [(outcomes, r, sources) for r in wanted] + [(twins, r, None) for r in wanted if r.twin]
    for n, (done, record, where) in enumerate(jobs, 1):
        if sys.stderr.isatty():
            print(f"\r{n}/{len(jobs)} {record.id:<60.60}", end="", file=sys.stderr, flush=True)
        done.append(compare(record, where, cache, on))
    try:
        unseen = {p["id"]: p.get("across_pct") for name in options.across
                  for one in json.loads(Path(name).read_text("utf-8")) for p in one["points"]}
    except (OSError, ValueError, TypeError, KeyError) as exc:
        print(f"nkisim calibrate: --across: no proposal of --fit: {exc}", file=sys.stderr)
        return 2
    for o in outcomes:
        o.across_pct = unseen.get(o.id)
    if sys.stderr.isatty():
        print("\r" + " " * 75 + "\r", end="", file=sys.stderr)
    text = counter_lines(outcomes) if options.counters else lines(outcomes, twins)
    print(json.dumps(report(outcomes, twins), indent=1) if options.json else "\n".join(text))
    asked = outcomes if options.sources else outcomes + twins
    if options.write and any(o.predicted_us is not None for o in outcomes):
        write(options.write, outcomes, twins)
    return 0 if any(o.predicted_us is not None for o in asked) else 2


def _fit(options: argparse.Namespace) -> int:
    names = [n.strip() for n in options.constants.split(",")] if options.constants else None
    try:
        target = hw.get(options.target).name if options.target else None
        proposals, notes = fit.propose(options.fit, Path(options.sources or "."), target, names,
                                         _progress, options.most)
    except (NkiError, fit.Refusal) as exc:
        print(f"nkisim calibrate: {exc}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps([p.to_dict() for p in proposals], indent=1))
    else:
        print("\n\n".join("\n".join(fit.lines(p)) for p in proposals))
    for note in notes:
        print(f"left out: {note}", file=sys.stderr)
    if options.write:
        fit.save(proposals, options.write)
    return 0


def _progress(what: str) -> None:
    """Show what is being done, where somebody looks."""
    if sys.stderr.isatty():
        print(f"\r{what:<75.75}", end="", file=sys.stderr, flush=True)


def _name(target: str) -> str:
    """Return the name of a record's target; of an unknown one, what the record says."""
    try:
        return hw.get(target).name
    except NkiError:
        return target


def _explain(found: list[Record], id: str, sources: Path, on: Iterable[str] | None) -> int:
    if not found:
        print(f"nkisim calibrate: there is no record {id!r}", file=sys.stderr)
        return 2
    try:
        prof = predict(found[0], sources, {}, on)
    except Exception as exc:            # other people's code: it can fail in any way
        kind = "" if isinstance(exc, (NkiError, Skipped)) else f"{type(exc).__name__}: "
        print(f"nkisim calibrate: {id} cannot be run: {kind}{exc}", file=sys.stderr)
        return 2
    print("\n".join(explain(found[0], prof)))
    return 0
