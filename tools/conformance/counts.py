"""Count results, keep the counts of the last run, and compare with what was accepted.

Counts are kept by suite and by the commit of the checkout, so that any set of checkouts can be
compared with what is known of it. `counts.json` is committed: numbers and commits, nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .outcome import FAILED, NOT_HERE, OUTCOMES, PASSED, REFUSED
from .pool import Done

ACCEPTED = Path(__file__).with_name("counts.json")
LAST = Path(__file__).resolve().parents[2] / "results" / "conformance.json"

#: suite -> commit -> what was counted
Counts = dict[str, dict[str, dict[str, int]]]


def of(done: Sequence[Done]) -> Counts:
    """Return the counts of finished jobs: by outcome, and findings by severity and id.

    Where a suite runs a sample of each test function's cases, its functions have a row of their
    own: a function is what the worst of its cases is.
    """
    counts: dict[str, dict[str, Counter]] = {}
    seen: set[tuple[str, str, str, str]] = set()
    for one in done:
        count = counts.setdefault(one.job.suite, {}).setdefault(one.job.commit, Counter())
        count.update({outcome: 0 for outcome in OUTCOMES})
        count.update(result.outcome for result in one.results)
        for finding in one.findings:  # a line that many cases run is one finding
            place = finding.place or one.job.name
            key = (one.job.suite, str(one.job.checkout), finding.id, place)
            if key not in seen:
                seen.add(key)
                count[f"{finding.severity} {finding.id}"] += 1
    for suite, commit, outcome in _functions(done):
        count = counts.setdefault(f"{suite}: functions", {}).setdefault(commit, Counter())
        count.update({name: 0 for name in OUTCOMES} | {outcome: 1})
    return {
        suite: {commit: dict(sorted(count.items())) for commit, count in sorted(some.items())}
        for suite, some in counts.items()
    }


def _functions(done: Sequence[Done]) -> Iterator[tuple[str, str, str]]:
    """Yield suite, commit and outcome of each test function of suites that run samples."""
    cases: dict[tuple[str, str, str], set[str]] = {}
    for one in done:
        for result in one.results if one.job.detail.get("sampled") else ():
            key = (one.job.suite, one.job.commit, result.case.partition("[")[0])
            cases.setdefault(key, set()).add(result.outcome)
    for (suite, commit, _), outcomes in cases.items():
        yield suite, commit, next(o for o in (FAILED, REFUSED, PASSED, NOT_HERE) if o in outcomes)


def total(some: dict[str, dict[str, int]], among: Iterable[str] | None = None) -> Counter:
    """Return the sum over the commits of a suite (those in `among`, if given)."""
    out: Counter = Counter()
    for commit in some if among is None else set(some) & set(among):
        out.update(some[commit])
    return out


def findings(count: dict[str, int]) -> dict[str, int]:
    """Return the findings among a suite's counts."""
    return {name: n for name, n in count.items() if name not in OUTCOMES and n}


def worse(now: Counts, accepted: Counts) -> list[str]:
    """Return a sentence for each count that is worse than what was accepted, of one commit."""
    out = []
    for suite, some in now.items():
        for commit, count in some.items():
            old = accepted.get(suite, {}).get(commit)
            if old is None:
                continue
            for name in {**old, **count}:
                was, new = old.get(name, 0), count.get(name, 0)
                bad = new < was if name == PASSED else new > was
                if bad and name in (PASSED, REFUSED, FAILED, *findings({**old, **count})):
                    out.append(
                        f"{suite}, checkout {commit or '(no commit)'}: {name} was {was}, is {new}"
                    )
    return out


def read(path: Path, mode: str) -> Counts:
    """Return the counts of a file for "quick" or "full" runs; none if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8")).get(mode, {})
    except FileNotFoundError:
        return {}


def write_last(done: Iterable[Done], mode: str, counts: Counts, sources: Path, path: Path) -> None:
    """Write everything about a run; suites that did not run keep what is known of them."""
    everything: dict[str, Any] = {}
    if path.exists():
        everything = json.loads(path.read_text(encoding="utf-8"))
    everything.setdefault(mode, {}).update(counts)
    cases = everything.setdefault(f"{mode} cases", {})
    cases.update({suite: [] for suite in counts})
    for one in done:
        checkout = one.job.checkout.name
        cases[one.job.suite] += [
            {
                "checkout": checkout,
                "commit": one.job.commit,
                "job": one.job.name,
                "results": [short(r.to_dict(), sources) for r in one.results],
                "findings": [short(vars(f), sources) for f in one.findings],
            }
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


def short(record: dict[str, Any], sources: Path) -> dict[str, Any]:
    """Return a record with places relative to the folder of sources."""
    return {
        k: v.replace(f"{sources.resolve()}/", "") if isinstance(v, str) else v
        for k, v in record.items()
    }


def accept(mode: str, counts: Counts) -> None:
    """Write the counts as accepted; those of other commits and suites stay."""
    everything: dict[str, Any] = {}
    if ACCEPTED.exists():
        everything = json.loads(ACCEPTED.read_text(encoding="utf-8"))
    for suite, some in counts.items():
        named = {commit: count for commit, count in some.items() if commit}
        everything.setdefault(mode, {}).setdefault(suite, {}).update(named)
    lines = []
    for kind in sorted(everything):
        suites = []
        for suite in sorted(everything[kind]):
            rows = ",\n".join(
                f"   {json.dumps(commit)}: {json.dumps(count)}"
                for commit, count in sorted(everything[kind][suite].items())
            )
            suites.append(f"  {json.dumps(suite)}: {{\n{rows}\n  }}")
        lines.append(f" {json.dumps(kind)}: {{\n" + ",\n".join(suites) + "\n }")
    ACCEPTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
