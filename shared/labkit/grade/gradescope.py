"""Gradescope: `nox -s gradescope -- --lab NAME` builds the archive of an autograder.

The archive has `setup.sh` and `run_autograder`, as Gradescope wants them, the wheel, and the lab
with its hidden cases. There the container is the outer sandbox; inside, bubblewrap is used if the
container lets it, else the kernels run as another user, who cannot read the autograder's folder.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import secrets
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..cli import positive
from ..dialect import DIALECTS, dialect_of
from ..show import add_json, answer
from ..spec import SpecError, hbm_bytes
from . import memory, sandbox, submissions
from .plan import digest, load_plan
from .run import grade_one, seed_from, write_json

SETUP = """#!/usr/bin/env bash
# Runs once, when Gradescope builds the image. The environment is where every user may read it.
set -euo pipefail
apt-get update -qq
apt-get install -y -qq python3 python3-venv bubblewrap util-linux
python3 -m venv /opt/grader
/opt/grader/bin/pip install -q /autograder/source/{wheel}[grade]
chmod -R go-rwx /autograder/source
"""
RUN = """#!/usr/bin/env bash
# Runs for each submission. Paths can be replaced, so that the archive can be tried anywhere.
set -euo pipefail
root="${{AUTOGRADER:-/autograder}}"
chmod go-rwx "$root"    # source, and what Gradescope says of earlier submissions
chmod -R go-rwx "$root/source"
exec "${{GRADER_PYTHON:-/opt/grader/bin/python}}" -m labkit autograde "$root" --lab {lab}{more} \\
    --minutes {minutes}
"""
#: what Gradescope gives an autograder by default, and what Python and files take
MINUTES, BESIDE_S = 10, 60
VISIBILITY = ("hidden", "after_due_date", "after_published", "visible")


def build_archive(
    root: Path, lab: str, wheel: Path, secret: str, kernels: str, minutes: int = MINUTES
) -> bytes:
    """Return the autograder's zip; the same bytes for the same repository, wheel and secret.

    `minutes`: the time limit that the assignment has; a submission is stopped before it.
    """
    folder = root / "labs" / lab
    load_plan(folder)
    more = "" if kernels == "kernels" else f" --kernels {kernels}"
    files: dict[str, tuple[bytes, int]] = {
        "setup.sh": (SETUP.format(wheel=wheel.name).encode(), 0o755),
        "run_autograder": (RUN.format(lab=lab, more=more, minutes=minutes).encode(), 0o755),
        wheel.name: (wheel.read_bytes(), 0o644),
        "secret": (secret.encode(), 0o600),
    }
    for path in sorted([*folder.glob("*.py"), *folder.glob("*.md"), *folder.glob("hidden/*.py")]):
        text = path.read_bytes()
        if path.name in ("kernels.py", "kernels_nki.py"):
            from ..starter.markers import split_file

            text = split_file(path)[0].encode()  # no grader needs the answers
        files[f"labs/{lab}/{path.relative_to(folder).as_posix()}"] = text, 0o644
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, mode) in sorted(files.items()):
            info = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()


def results(verdict: dict[str, Any]) -> dict[str, Any]:
    """Return results.json of a verdict; what hidden cases say is shown after grades are out."""
    hidden = {c["case"] for c in verdict["cases"] if c["hidden"]}
    tests = []
    for line in verdict["lines"]:
        secret = "a hidden case" in line["why"] or "hidden" in line["text"]
        tests.append(
            {
                "name": line["text"],
                "score": line["points"],
                "max_score": line["of"],
                "status": "passed" if line["points"] == line["of"] else "failed",
                "output": line["why"],
                "output_format": "text",
                "visibility": "after_published" if secret else "visible",
            }
        )
    first = next((c for c in verdict["cases"] if c["status"] != "passed" and not c["hidden"]), None)
    problem = verdict.get("problem")
    if first is not None:
        problem = f"{first['case']}: {first['detail'] or first['text']}"
    document: dict[str, Any] = {
        "score": verdict["points"],
        "output_format": "text",
        "output": (problem + "\n\n" if problem else "")
        + "Values and limits are simulated by nkisim; times are predicted, not measured.",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
        "extra_data": {
            "nkisim": verdict["nkisim"],
            "key": verdict["key"],
            "hidden_cases": len(hidden),
            "flags": [*verdict["flags"], *_review_flags(verdict)],
        },
    }
    if verdict["points"] == verdict["of"] and (lines := _leaderboard(verdict)):
        document["leaderboard"] = [*lines, {"name": "points", "value": verdict["points"]}]
    return document


def _leaderboard(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the columns of the leaderboard, the one that is ranked first; [] without times."""
    timed = [
        c
        for c in verdict["cases"]
        if c["status"] == "passed" and c["latency_us"] and c.get("contest", not c["hidden"])
    ]
    judged = [c for c in timed if c["threshold_us"]] or timed  # where a lab has thresholds
    moved = [hbm_bytes(c) or math.nan for c in judged]
    if not judged:
        return []
    means = {"time": _mean([c["latency_us"] for c in judged]), "bytes": _mean(moved) / 1e6}
    columns = {
        "predicted us (geometric mean)": means["time"],
        "MB of HBM (geometric mean)": means["bytes"],
    }
    rank = verdict.get("rank", ["time"])
    if len(rank) > 1:  # the order of scores, which are relative to a reference
        columns = {"mean of us and MB (geometric)": _mean([means[q] for q in rank]), **columns}
    elif rank == ["bytes"]:
        columns = dict(reversed(columns.items()))
    return [
        {"name": name, "value": round(value, 3), "order": "asc"}
        for name, value in columns.items()
        if not math.isnan(value)
    ]


def _mean(values: list[float]) -> float:
    """Return the geometric mean of numbers above 0, NaN if one is."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _review_flags(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the times to look at; a hidden case's name is its shape, and later submissions are
    given the results of earlier ones."""
    return [
        {
            "case": "a hidden case",
            "target": look["target"],
            "hidden": True,
            "what": "its time is too good: judge the submission with nox -s grade",
        }
        if look["hidden"]
        else look
        for look in verdict.get("looks", [])
    ]


def check(document: Any) -> list[str]:
    """Return what of a results.json is not as Gradescope documents it."""
    wrong = []

    def need(ok: bool, what: str) -> None:
        if not ok:
            wrong.append(what)

    if not isinstance(document, dict):
        return ["results.json must be an object"]
    allowed = {
        "score",
        "execution_time",
        "output",
        "output_format",
        "test_output_format",
        "test_name_format",
        "visibility",
        "stdout_visibility",
        "extra_data",
        "tests",
        "leaderboard",
    }
    need(set(document) <= allowed, f"unknown keys {sorted(set(document) - allowed)}")
    need("score" in document or bool(document.get("tests")), "neither score nor tests")
    if "score" in document:
        need(_is_number(document["score"]), "score must be a number")
    for key in ("visibility", "stdout_visibility"):
        need(document.get(key, "visible") in VISIBILITY, f"{key} must be one of {VISIBILITY}")
    for i, test in enumerate(document.get("tests", ())):
        need(
            set(test)
            <= {
                "score",
                "max_score",
                "status",
                "name",
                "name_format",
                "number",
                "output",
                "output_format",
                "tags",
                "visibility",
                "extra_data",
            },
            f"test {i} has unknown keys",
        )
        need(
            _is_number(test.get("score", 0)) and _is_number(test.get("max_score", 0)),
            f"test {i}: scores must be numbers",
        )
        need(test.get("status", "passed") in ("passed", "failed"), f"test {i}: status")
        need(test.get("visibility", "visible") in VISIBILITY, f"test {i}: visibility")
        need(isinstance(test.get("output", ""), str), f"test {i}: output must be text")
    for i, entry in enumerate(document.get("leaderboard", ())):
        need({"name", "value"} <= set(entry) <= {"name", "value", "order"}, f"leaderboard {i}")
        need(entry.get("order", "desc") in ("asc", "desc"), f"leaderboard {i}: order")
    return wrong


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def autograde_parser() -> argparse.ArgumentParser:
    """Return the parser of autograde."""
    parser = argparse.ArgumentParser(prog="labkit autograde", description=autograde.__doc__)
    parser.add_argument("root", type=Path, help="the folder with source, submission and results")
    parser.add_argument("--lab", required=True)
    parser.add_argument("--kernels", default="kernels")
    parser.add_argument("--minutes", type=positive, default=MINUTES)
    add_json(parser)
    return parser


def autograde(argv: Sequence[str] | None = None) -> int:
    """Judge the submission of an autograder's folder and write its results/results.json."""
    args = autograde_parser().parse_args(argv)
    source, root = args.root / "source", args.root
    folder = source / "labs" / args.lab
    secret = (source / "secret").read_text()
    kind = "bubblewrap" if not sandbox.probe() else sandbox.choose("user")
    graded = load_plan(folder).speaking(dialect_of(args.kernels))
    seed = seed_from(secret + args.lab)
    with tempfile.TemporaryDirectory() as scratch:
        submission = submissions.take(
            {"student": "submission", "source": "submission"},
            root,
            args.lab,
            [f"{args.kernels}.py"],
            None,
            Path(scratch),
        )
    task = {
        "student": "submission",
        "name": args.lab,
        "lab": str(folder.resolve()),
        "files": {n: d.decode("utf-8", "surrogateescape") for n, d in submission.files.items()},
        "kernels": args.kernels,
        "sandbox": kind,
        "seed": seed,
        "full": False,
        "submission_sha256": submission.sha256,
        "of": graded.points,
        "key": digest(folder, submission.sha256),
        "staff_us": {},
        "memory": memory.fit(1, graded.plan.memory_gb * memory.GIB, memory.machine())[1],
        **limits(graded.plan.total_s, args.minutes),
    }
    if submission.problem:
        from .run import _unjudged

        verdict = _unjudged(task, submission.problem)
    else:
        verdict = grade_one(task)
    document = results(verdict)
    wrong = check(document)
    if wrong:
        raise SpecError(f"results.json would not be as Gradescope wants it: {wrong[0]}")
    write_json(root / "results" / "results.json", document)
    answer["results"] = str(root / "results" / "results.json")
    return 0


def limits(total_s: float, minutes: int) -> dict[str, float]:
    """Return the limits of a submission: an autograder that is stopped itself leaves no results.

    `total_s`: what the plan allows; `minutes`: what Gradescope allows, for all that happens.
    """
    left = max(30.0, 60.0 * minutes - BESIDE_S)
    return {"total_s": min(total_s, left - BESIDE_S / 2), "patience_s": min(total_s + 300, left)}


def describe_limit(total_s: float, minutes: int) -> str:
    """Return in words how a plan goes with a time limit."""
    allowed_s = limits(total_s, minutes)["total_s"]
    return f"a submission may take {allowed_s:.0f} s of it" + (
        f", less than the {total_s:.0f} s of the plan (--minutes for more)"
        if allowed_s < total_s
        else ""
    )


def gradescope_parser() -> argparse.ArgumentParser:
    """Return the parser of gradescope."""
    parser = argparse.ArgumentParser(prog="nox -s gradescope --", description=gradescope.__doc__)
    parser.add_argument("--lab", required=True, metavar="NAME")
    parser.add_argument(
        "--dialect",
        choices=DIALECTS,
        help="of the kernels that are graded (default: the first that the lab has)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: dist/autograder-NAME.zip"
    )
    parser.add_argument(
        "--minutes",
        type=positive,
        default=MINUTES,
        metavar="N",
        help="the assignment's time limit on Gradescope (default: %(default)s); a "
        "submission is stopped before it",
    )
    add_json(parser)
    return parser


def gradescope(argv: Sequence[str] | None = None) -> int:
    """Build the autograder's archive of a lab, to be uploaded to Gradescope."""
    from ..starter.export import build_wheel

    args = gradescope_parser().parse_args(argv)
    root = Path(__file__).resolve().parents[3]
    if not (root / "labs" / args.lab / "spec.py").is_file():
        raise SpecError(f"there is no lab {args.lab!r} in the staff's repository")
    graded = load_plan(root / "labs" / args.lab)
    graded = graded.speaking(args.dialect or graded.lab.dialect)
    out = args.out or Path("dist") / f"autograder-{args.lab}.zip"
    with tempfile.TemporaryDirectory(prefix="labkit-wheel-") as scratch:
        data = build_archive(
            root,
            args.lab,
            build_wheel(root, Path(scratch)),
            secrets.token_hex(16),
            graded.lab.kernels.stem,
            args.minutes,
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    answer["archive"] = str(out)
    print(
        f"{out}: upload it as the autograder of {args.lab}. It holds hidden cases and a secret: "
        f"keep it as you keep an exam. Set its time limit to {args.minutes} minutes or more: "
        f"{describe_limit(graded.plan.total_s, args.minutes)}"
    )
    return 0
