"""`python -m nkisim calibrate`: compare the latency model with published measurements.

Every record is listed: with its error, or with the reason why it could not be run. The records
that nkisim carries were used to fit constants of `chip/`; other records judge the model. Kernels of
ours that have the structure of a record's kernel need no sources and are compared in any case.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from ..chip import hw
from ..chip.core import NeuronCore
from ..errors import NkiError
from ..simulation.error_bands import calibration, shares
from ..simulation.kinds import kind_of, never_seen
from ..simulation.prediction import Profile, profile
from ..timing import compiler as compiling
from ..workers import MOST_JOBS
from . import bands, fit, records
from .baseline import write, write_page
from .outcomes import Outcome, counter_lines, lines, report, skipped_lines
from .points import Launch, overhead_us
from .records import METRICS, Record, Skipped


def predict(
    record: Record,
    sources: Path | None,
    cache: dict[str, Profile],
    compiler: Iterable[str] | None = None,
) -> Profile:
    """Run a record's kernel, timing only; the same kernel is run once for all its records.

    Without sources: the kernel of ours that has its structure.
    """
    if record.metric not in METRICS:
        raise Skipped(f"there is no metric {record.metric!r}; known are {', '.join(METRICS)}")
    key = json.dumps(
        [
            record.twin if sources is None else [record.source, record.set],
            record.args,
            record.kwargs,
            record.target,
            record.descriptors,
        ],
        sort_keys=True,
        default=str,
    )
    if key not in cache:
        func = records.kernel(record, sources) if sources else records.twin(record)
        args, kwargs = records.arguments(record)
        cache.clear()  # profiles are large; the same kernels come in a row
        cache[key] = profile(
            func,
            *args,
            target=record.target,
            compute=False,
            descriptors=record.descriptors,
            compiler=compiler,
            **kwargs,
        )
    return cache[key]


def compare(
    record: Record,
    sources: Path | None,
    cache: dict[str, Profile],
    compiler: Iterable[str] | None = None,
    unseen: Callable[[Record], NeuronCore | None] = lambda _: None,
) -> Outcome:
    """Return the outcome of one record; whatever goes wrong becomes the reason to skip it.

    `unseen`: the core to predict it with besides, with constants that do not know its family.
    """
    out = Outcome(
        record.id,
        record.target,
        record.metric,
        record.value_us,
        family=record.family,
        variant=record.variant,
        relative=record.scale == "relative",
        ranked=record.ranked,
        counted=record.counters,
        file=record.file,
    )
    begin = time.perf_counter()
    try:
        us = across = blind = 0.0
        other = unseen(record)
        for part in record.parts or (record,):  # launches whose times add up
            prof = predict(part, sources, cache, compiler)
            us += float(getattr(prof, METRICS[record.metric]))
            if other is not None:
                across += Launch.of(prof).body_us(other) + overhead_us(record.metric, other)
            kind = kind_of(
                prof.schedule, prof.hw, prof.descriptors == "dge", prof.bound, prof.cores
            )
            core = never_seen(kind, prof.hw)
            blind += (
                float(getattr(prof, METRICS[record.metric]))
                if core is prof.hw
                else Launch.of(prof).body_us(core) + overhead_us(record.metric, core)
            )
    except Skipped as exc:
        out.skipped = str(exc)
    except Exception as exc:  # other people's code: it can fail in any way
        name = "" if isinstance(exc, NkiError) else f"{type(exc).__name__}: "
        out.skipped = f"{name}{' '.join(str(exc).split())}"[:300]
    else:
        out.predicted_us = us
        out.error_pct = 100.0 * (us / record.value_us - 1.0)
        out.kind, out.blind_us = kind, blind
        out.blind_pct = 100.0 * (blind / record.value_us - 1.0)
        if other is not None:
            out.across_us, out.across_pct = across, 100.0 * (across / record.value_us - 1.0)
        out.bound, out.instructions, out.body_us = prof.bound, len(prof.trace), prof.body_us
        out.unknown = prof.trust.unknown
        out.shares = shares(prof.schedule, prof.hw, prof.descriptors == "dge")
        out.counters = {
            name: _counter(prof, name, value) for name, value in record.counters.items()
        }
    out.seconds = time.perf_counter() - begin
    return out


def _counter(prof: Profile, name: str, published: float) -> float:
    """Return what the model counts, rounded as what was published in 10^6 bytes is."""
    if not name.endswith("_mb"):
        return prof.counters[name]
    return round(
        prof.counters[name.removesuffix("mb") + "bytes"] / 1e6,
        0 if float(published).is_integer() else 1,
    )


def explain(record: Record, prof: Profile) -> list[str]:
    """Return where the time of a record's kernel goes."""
    t = prof.hw.timing
    plan = prof.schedule
    predicted = getattr(prof, METRICS[record.metric])
    out = [
        f"{record.id}: {record.metric} on {record.target}, {prof.descriptors} descriptors",
        f"  source     {record.source['repo']} {record.source['path']} at "
        f"{record.source['commit'][:10]}, {record.source['function']}"
        + (f", candidate {record.source['candidate']}" if "candidate" in record.source else ""),
        f"  measured   {record.value_us:.1f} us ({record.confidence or 'no'} confidence)",
        f"  predicted  {predicted:.1f} us ({100 * (predicted / record.value_us - 1):+.1f} %), "
        f"bound by {prof.bound}",
        f"  body       {prof.body_us:.1f} us; launch adds {t.launch_us} us to nc_latency, "
        f"{t.profile_us} us to profile_total ({t.provenance['launch_us'].tag})",
        "",
        "  engine busy      us   of body",
    ]
    out += [
        f"  {e:<11} {us:>8.1f}   {us / max(prof.body_us, 1e-9):>6.1%}"
        for e, us in plan.busy.items()
    ]
    out += ["", "  instruction                 count     us each    us in all  waited (us in all)"]
    wait = plan.issue.copy()
    duration = np.array(
        [w.interval_us if w else x.us if x else 0.0 for w, x in zip(plan.works, plan.transfers)]
    )
    spec = np.array(plan.deps.spec, np.int64)
    for q in set(plan.deps.queue):  # time that a queue stood still before an instruction
        on_queue = np.flatnonzero(np.array(plan.deps.queue) == q)
        order = on_queue[np.argsort(plan.issue[on_queue], kind="stable")]
        before = np.concatenate([[0.0], (plan.issue + duration[spec])[order[:-1]]])
        wait[order] = np.maximum(0.0, plan.issue[order] - before)
    total = np.bincount(spec, duration[spec], len(duration))
    waits = np.bincount(spec, wait, len(duration))
    counts = np.bincount(spec, minlength=len(duration))
    for k in np.argsort(-total):
        row = prof.trace.op_specs[k]
        shapes = " ".join("x".join(map(str, p.shape)) for p in row.operands[:2])
        x = plan.transfers[k]
        more = f"  {x.descriptors} descriptors, {x.nbytes} B, {x.engines} engines" if x else ""
        out.append(
            f"  {row.row.name + ' ' + row.engine:<26} {counts[k]:>6} {duration[k]:>11.3f} "
            f"{total[k]:>12.1f} {waits[k]:>12.1f}  {shapes}{more}"
        )
    used = sorted({s.tag for s in t.provenance.values()})
    out += ["", f"  constants of {prof.hw.name} are {', '.join(used)}: see docs/latency-model.md"]
    return out


def parser() -> argparse.ArgumentParser:
    """Return the parser of calibrate."""
    parser = argparse.ArgumentParser(
        prog="nkisim calibrate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--measurements", metavar="FILE", help="records (default: nkisim's own)")
    parser.add_argument(
        "--sources",
        metavar="DIR",
        help="public repositories, checked out as DIR/<owner>+<name> (their "
        "kernels are executed; default: sources)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--write",
        metavar="FILE",
        type=Path,
        help="write figures and predictions of all records, as nkisim carries "
        "them in data/calibration.json (needs --sources)",
    )
    parser.add_argument(
        "--page",
        metavar="FILE",
        type=Path,
        help="put the figures of data/calibration.json into a page, and do nothing else",
    )
    parser.add_argument("--explain", metavar="ID", help="show where the time of one record goes")
    parser.add_argument(
        "--compiler",
        metavar="NAMES",
        help="what the compiler may do, as for python -m nkisim profile",
    )
    parser.add_argument("--target", help="only records of this target")
    parser.add_argument(
        "--only",
        metavar="TEXT",
        action="append",
        default=[],
        help="only records whose id contains this (may be repeated)",
    )
    parser.add_argument(
        "--counters",
        action="store_true",
        help="compare transfers, bytes and busy shares with published ones",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        default=1,
        help="so many processes; each may need several GB (default: 1)",
    )
    parser.add_argument(
        "--across",
        metavar="FILE",
        nargs="+",
        default=[],
        help="proposals of --fit --write: predict each record also by the "
        "constants that were fitted without its family",
    )
    parser.add_argument(
        "--fit",
        metavar="FILE",
        nargs="+",
        default=[],
        help="propose constants from these records (those of verify_sim); "
        "--write FILE keeps the proposal",
    )
    parser.add_argument(
        "--most",
        metavar="N",
        type=int,
        default=fit.MOST,
        help="with --fit: leave out kernels of more instructions than this (default: %(default)s)",
    )
    parser.add_argument("--constants", metavar="NAMES", help="with --fit: only these, with commas")
    return parser


def command(argv: list[str]) -> int:
    """Compare the latency model with published measurements."""
    options = parser().parse_args(argv)
    if options.sources and not Path(options.sources).is_dir():
        print(f"nkisim calibrate: --sources: there is no folder {options.sources}", file=sys.stderr)
        return 2
    if options.fit:
        return _fit(options)
    if options.page:
        try:
            write_page(options.page, calibration())
        except (OSError, ValueError) as exc:
            print(f"nkisim calibrate: --page: {options.page}: {exc}", file=sys.stderr)
            return 2
        return 0
    try:
        wanted = records.load(options.measurements)
        target = hw.get(options.target).name if options.target else None
        on = None if options.compiler is None else compiling.options(options.compiler)
        unseen = fit.Unseen(options.across)
    except (NkiError, fit.Refusal) as exc:
        print(f"nkisim calibrate: {exc}", file=sys.stderr)
        return 2
    wanted = [
        r
        for r in wanted
        if (not target or _name(r.target) == target)
        and (not options.only or any(text in r.id for text in options.only))
    ]
    sources = Path(options.sources or "sources")
    if options.write and (not options.sources or options.only or target or options.compiler):
        print(
            "nkisim calibrate: --write is for all records: it goes with --sources, and without "
            "--only, --target and --compiler",
            file=sys.stderr,
        )
        return 2
    if options.explain:
        return _explain(
            [r for r in wanted if r.id == options.explain], options.explain, sources, on
        )
    if not wanted:
        print("nkisim calibrate: no record is left after --target and --only", file=sys.stderr)
        return 2
    jobs: list[tuple[Record, Path | None]] = [(r, sources) for r in wanted]
    jobs += [(r, None) for r in wanted if r.twin]
    compared = []
    for n, outcome in enumerate(_compared(jobs, options.jobs, on, unseen), 1):
        _progress(f"{n}/{len(jobs)} {outcome.id}")
        compared.append(outcome)
    _progress("")
    outcomes, twins = compared[: len(wanted)], compared[len(wanted) :]
    text = counter_lines(outcomes) if options.counters else lines(outcomes, twins)
    if not options.counters:
        text += ["", *bands.kind_lines(bands.by_kind(outcomes))]
    print(json.dumps(report(outcomes, twins), indent=1) if options.json else "\n".join(text))
    if options.sources or options.counters:  # the tables say why, among hundreds of lines
        sys.stdout.flush()
        for line in skipped_lines(outcomes):
            print(line, file=sys.stderr)
    asked = outcomes if options.sources else outcomes + twins
    if options.write and any(o.predicted_us is not None for o in outcomes):
        write(options.write, outcomes, twins)
    return 0 if any(o.predicted_us is not None for o in asked) else 2


def _compared(
    jobs: list[tuple[Record, Path | None]],
    processes: int,
    on: Iterable[str] | None,
    unseen: Callable,
) -> Iterator[Outcome]:
    """Yield the outcomes of records, in their order; those of one source in one process."""
    batches = [list(g) for _, g in groupby(jobs, key=lambda job: (job[0].source, job[1]))]
    compare_group = partial(_compare_all, on=on, unseen=unseen)
    if processes < 2:
        for group in batches:
            yield from compare_group(group)
        return
    with ProcessPoolExecutor(min(processes, MOST_JOBS)) as pool:
        for outcomes in pool.map(compare_group, batches):
            yield from outcomes


def _compare_all(
    jobs: list[tuple[Record, Path | None]], on: Iterable[str] | None, unseen: Callable
) -> list[Outcome]:
    cache: dict[str, Profile] = {}
    return [compare(record, where, cache, on, unseen) for record, where in jobs]


def _fit(options: argparse.Namespace) -> int:
    names = [n.strip() for n in options.constants.split(",")] if options.constants else None
    try:
        target = hw.get(options.target).name if options.target else None
        proposals, notes = fit.propose(
            options.fit, Path(options.sources or "."), target, names, _progress, options.most
        )
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
    """Show progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{what:<75.75}" + "\r" * (not what), end="", file=sys.stderr, flush=True)


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
    except Exception as exc:  # other people's code: it can fail in any way
        name = "" if isinstance(exc, (NkiError, Skipped)) else f"{type(exc).__name__}: "
        print(f"nkisim calibrate: {id} cannot be run: {name}{exc}", file=sys.stderr)
        return 2
    print("\n".join(explain(found[0], prof)))
    return 0
