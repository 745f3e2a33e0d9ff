"""Grade a class: `nox -s grade -- SUBMISSIONS --lab NAME --out DIR`.

A submission is a task: texts in, a verdict out, the same bytes on every machine. Tasks run on this
machine's cores, or on a cluster (`--scheduler`), whose workers may die. Each verdict is
written when it is there, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
import unicodedata
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console

import nkisim
from nkisim import workers

from ..cli import known_labs, positive
from ..dialect import DIALECTS, dialect_of
from ..show import add_json, answer, progress, terminal
from ..spec import SpecError
from . import judge, memory, policy, sandbox, staff, submissions
from .cluster import JOBS, on_cluster
from .gradebook import Gradebook
from .plan import Graded, LatePolicy, digest, load_plan
from .report import environment, write_reports

Task = dict[str, Any]


LEAST_S = 60.0  # for what is judged again
_ENVIRONMENT = {
    "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    "OPENBLAS_NUM_THREADS": "1",
    "NKI_BACKEND": "sim",
    "NKI_BANNER": "0",
}


@dataclass(frozen=True)
class Request:
    """What is graded and how: the command line, and what the machine has room for.

    `rows`: all submissions of `folder`, by student; `students`: whom to grade, () for all.
    `jobs`: judges at a time, None for a cluster's own number; `memory`: bytes for each.
    """

    graded: Graded
    folder: Path
    out: Path
    rows: dict[str, dict[str, str]]
    students: tuple[str, ...]
    full: bool
    again: bool
    sandbox: str
    sources: submissions.Sources
    scheduler: str | None
    jobs: int | None
    memory: int


class Killed(RuntimeError):
    """A judge was killed from outside: by a person, or by a machine that ran out of memory."""


def grade_one(task: Task) -> dict[str, Any]:
    """Judge one submission in a process of its own and return the verdict. Runs on any worker.

    A judge that is killed says nothing about the submission: it is judged again.
    """
    why = ""
    for _ in range(3):
        try:
            return _judge(task)
        except Killed as error:
            why = str(error)
    raise Killed(
        f"the judge of {task['student']} was lost three times ({why}); is there enough memory "
        "for --jobs at a time?"
    )


def one_judge(seconds: float) -> workers.Workers:
    """Return a process that judges a submission; it is Lost after so many seconds."""
    return workers.Workers(
        judge.begin, jobs=1, seconds=seconds, method="spawn", script=False, plain=True,
        environment=_ENVIRONMENT,
    )  # fmt: skip


def _judge(task: Task) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="labkit-grade-") as scratch:
        folder = Path(scratch) / "submission"
        folder.mkdir()
        for name, text in task["files"].items():
            (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
        job = {
            **{k: v for k, v in task.items() if k not in ("files", "student")},
            "submission": str(folder),
        }
        begun = time.monotonic()
        with one_judge(task["patience_s"]) as process:
            answer = process.ask(job)
        if not isinstance(answer, workers.Lost):
            if "failed" in answer:
                raise RuntimeError(
                    f"the judge failed; this is no fault of the submission:\n{answer['failed']}"
                )
            return answer
        if answer.why == "time":
            return _unjudged(task, "it took longer than all limits allow")
        stuck = judge.stuck_at(job)
        if stuck is None:
            raise Killed(answer.text)
        # the rest is judged without that case, in the time left
        took = time.monotonic() - begun
        left = {name: max(task[name] - took, LEAST_S) for name in ("total_s", "patience_s")}
        return _judge({**task, **left, "stuck": [*task.get("stuck", []), stuck]})


def _unjudged(task: Task, why: str) -> dict[str, Any]:
    """Return the verdict on a submission that could not be run at all."""
    return {
        "schema": "trainium-labs/verdict",
        "schema_version": 1,
        "lab": task["name"],
        "dialect": dialect_of(task["kernels"]),
        "key": task["key"],
        "submission_sha256": task["submission_sha256"],
        "nkisim": nkisim.__version__,
        "backend": "sim",
        "latency_kind": "predicted",
        "points": 0.0,
        "of": task["of"],
        "lines": [],
        "cases": [],
        "flags": [],
        "looks": [],
        "printed": "",
        "problem": why,
    }


def seed_of(out: Path, lab: str) -> int:
    """Return the secret seed of a lab; the secret is made once and kept in OUT/private."""
    path = out / "private" / "secret"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        os.chmod(path.parent, 0o700)
        fd, part = tempfile.mkstemp(dir=path.parent)  # for its owner only
        try:
            with os.fdopen(fd, "w") as file:
                file.write(secrets.token_hex(16))
            os.link(part, path)  # whole or not at all, and the first one counts
        except FileExistsError:
            pass
        finally:
            os.unlink(part)
    secret = path.read_text(encoding="utf-8").strip()
    if len(secret) < 32:
        raise SpecError(
            f"{path} is not a secret: anyone could know the inputs of the hidden "
            "cases. Restore it; or delete it, and everything is judged again with "
            "a new one"
        )
    return seed_from(secret + lab)


def seed_from(secret: str) -> int:
    """Return a seed of 128 bits: more than a search from values that a kernel has seen can try."""
    return int.from_bytes(hashlib.sha256(secret.encode()).digest()[:16], "big")


def take_folder(out: Path, graded: Graded) -> None:
    """Make OUT, for its owner only: it holds grades, and the machine may have other users.

    Raises SpecError if it has the verdicts of another lab, which would count as this one's.
    """
    if not out.exists():
        out.mkdir(parents=True)
        os.chmod(out, 0o700)
    for path in (out / "verdicts").glob("*.json"):
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            other = found["lab"], found["dialect"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
        if other != (graded.lab.name, graded.lab.dialect):
            raise SpecError(
                f"{out} has the verdicts of {' in '.join(other)}; give each lab, and "
                "each dialect, a folder of its own"
            )


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep other graders from OUT; raise SpecError if one works there already."""
    private = out / "private"
    private.mkdir(exist_ok=True)
    os.chmod(private, 0o700)
    lock = FileLock(private / "grader.lock")
    try:
        lock.acquire(timeout=0)  # ends with the process, however that ends
    except Timeout:
        raise SpecError(
            f"another grader works on {out}, and both would write the same files. Wait "
            "until it is done, or give another --out"
        ) from None
    try:
        yield
    finally:
        lock.release()


def make_tasks(
    request: Request, deadline: datetime | None
) -> tuple[list[submissions.Submission], list[Task]]:
    """Take all submissions in and return them with a task for each that can be judged."""
    graded, out, rows = request.graded, request.out, request.rows
    lab = graded.lab
    seed = seed_of(out, lab.name)
    key = digest(lab.folder, nkisim.__version__, str(seed), str(request.full), lab.kernels.stem)
    wanted = [unicodedata.normalize("NFC", s) for s in request.students or rows]
    unknown = [s for s in wanted if s not in rows]
    if unknown:
        raise SpecError(f"there is no submission of {unknown[0]!r} in {request.folder}")
    common: Task = {
        "name": lab.name,
        "lab": str(lab.folder.resolve()),
        "kernels": lab.kernels.stem,
        "sandbox": request.sandbox,
        "seed": seed,
        "full": request.full,
        "of": graded.points,
        "memory": request.memory,
        "total_s": graded.plan.total_s,
        "patience_s": graded.plan.total_s + 300,
        "submission_sha256": "",
        "key": key,
    }
    common["staff_us"] = staff.times(graded, out / "private", common, grade_one)
    key = digest(lab.folder, key, json.dumps(common["staff_us"], sort_keys=True))
    taken, tasks = [], []
    for student in sorted(wanted):
        with tempfile.TemporaryDirectory(prefix="labkit-submissions-") as scratch:
            submission = submissions.take(
                rows[student],
                request.folder,
                lab.name,
                lab.handed_in,
                deadline,
                Path(scratch),
                request.sources,
            )
        taken.append(submission)
        files = {
            name: data.decode("utf-8", "surrogateescape") for name, data in submission.files.items()
        }
        tasks.append(
            {
                **common,
                "student": student,
                "files": files,
                "submission_sha256": submission.sha256,
                "key": hashlib.sha256(f"{key}{submission.sha256}".encode()).hexdigest(),
            }
        )
    ids = [s.id.casefold() for s in taken]  # on macOS capital letters make no other file
    twice = [s.student for s in taken if ids.count(s.id.casefold()) > 1]
    if twice:
        raise SpecError(
            f"{twice[0]!r} and {twice[1]!r} would have the same files; name one of them otherwise"
        )
    return taken, tasks


def run_tasks(
    tasks: Sequence[Task], request: Request
) -> Iterator[tuple[Task, dict[str, Any] | None, str]]:
    """Yield tasks and their verdicts as they are done, from this machine or from a cluster; None
    and why where there is no verdict: one submission does not keep a class from its grades."""
    if not tasks:
        return
    if request.scheduler:
        yield from on_cluster(
            tasks, grade_one, request.scheduler, request.jobs or JOBS, request.out / "private"
        )
        return
    with ThreadPoolExecutor(request.jobs) as pool:
        futures = {pool.submit(grade_one, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                try:
                    yield futures[future], future.result(), ""
                except RuntimeError as error:
                    yield futures[future], None, str(error)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def write_json(path: Path, document: Any) -> None:
    """Write JSON whole or not at all, the same bytes for the same content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(part, path)


def keep_pages(folder: Path, pages: dict[str, str]) -> None:
    """Write the profiles that staff should look at; those of an earlier verdict go."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in pages.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def known_verdict(path: Path, key: str) -> bool:
    """Return whether a verdict of an earlier run is one on these very files, plan and seed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["key"] == key
    except (OSError, ValueError, KeyError, TypeError):
        return False


def grade_parser() -> argparse.ArgumentParser:
    """Return the parser of grade."""
    names, _ = known_labs()
    parser = argparse.ArgumentParser(prog="nox -s grade --", description=grade.__doc__)
    parser.add_argument(
        "submissions",
        type=Path,
        help="a folder with a folder or archive for each student, or with submissions.csv",
    )
    parser.add_argument("--lab", required=True, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results go")
    parser.add_argument(
        "--student",
        action="append",
        metavar="NAME",
        help="grade only this one again (may be repeated)",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="the lab's whole rubric at full size instead of its quick plan",
    )
    parser.add_argument(
        "--dialect",
        choices=DIALECTS,
        help="of the kernels that are graded (default: the first that the lab has)",
    )
    parser.add_argument(
        "--sandbox",
        choices=sandbox.KINDS,
        default="auto",
        help="what strangers' code runs in (default: bubblewrap, or nothing runs)",
    )
    parser.add_argument(
        "--jobs",
        type=positive,
        metavar="N",
        help=f"at a time (default: as many as cores and memory allow; {JOBS} on Slurm)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="WHERE",
        help="grade on a Dask cluster (its address), or in a queue (slurm, slurm:PARTITION)",
    )
    parser.add_argument(
        "--deadline",
        type=policy.deadline,
        metavar="TIME",
        help="such as 2026-05-01T23:59:00-07:00, or none; times are in "
        "submissions.csv. Kept in DIR: later commands need not repeat it",
    )
    parser.add_argument(
        "--late-per-day",
        type=float,
        metavar="SHARE",
        help=f"of the points that a late day costs (default: {LatePolicy.per_day})",
    )
    parser.add_argument(
        "--late-days",
        type=int,
        metavar="N",
        help=f"days after which nothing is accepted (default: {LatePolicy.days})",
    )
    parser.add_argument(
        "--change-deadline",
        action="store_true",
        help="grades that were given may change by another deadline or late policy",
    )
    parser.add_argument(
        "--roster",
        type=Path,
        metavar="CSV",
        help="who is in the class (column student); others are in no gradebook",
    )
    parser.add_argument(
        "--staff",
        action="append",
        metavar="NAME",
        help="a submission that is in no gradebook (default: staff)",
    )
    parser.add_argument(
        "--host",
        action="append",
        metavar="HOST[/OWNER]",
        default=[],
        help="whose repositories are cloned, over https or ssh (default: https of "
        f"{', '.join(submissions.HOSTS)})",
    )
    parser.add_argument(
        "--local-sources",
        action="store_true",
        help="sources of submissions.csv may be anywhere on this machine",
    )
    parser.add_argument("--again", action="store_true", help="judge also what has a verdict")
    add_json(parser)
    return parser


def grade(argv: Sequence[str] | None = None) -> int:
    """Grade submissions: verdicts, a report for each student, a summary and a gradebook."""
    _, load = known_labs()
    args = grade_parser().parse_args(argv)
    sources = submissions.Sources(tuple(args.host), args.local_sources)
    kind = sandbox.choose(args.sandbox)
    environment()  # what reports need is there, before hours go into judging
    graded = load_plan(load([args.lab])[0].folder, args.full)
    graded = graded.speaking(args.dialect or graded.lab.dialect)
    sandbox.keep_from(kind, graded.lab.folder)
    rows = submissions.find(args.submissions)
    jobs, per_judge = args.jobs, graded.plan.memory_gb * memory.GIB
    if not args.scheduler:
        jobs, per_judge = memory.fit(jobs, per_judge, memory.machine())
    request = Request(
        graded,
        folder=args.submissions,
        out=args.out,
        rows=rows,
        students=tuple(args.student or ()),
        full=args.full,
        again=args.again,
        sandbox=kind,
        sources=sources,
        scheduler=args.scheduler,
        jobs=jobs,
        memory=per_judge,
    )
    take_folder(args.out, graded)
    with alone(args.out):
        late, text = policy.settle(
            args.out, args.deadline, args.late_per_day, args.late_days, rows, args.change_deadline
        )
        gradebook = Gradebook.of(args.out, args.roster, args.staff)
        console = terminal()
        console.print(text, highlight=False, soft_wrap=True, markup=False)
        return _grade(request, late, gradebook, console)


def _grade(request: Request, late: LatePolicy, gradebook: Gradebook, console: Console) -> int:
    """Judge what has no verdict yet, and write the reports."""
    graded, out = request.graded, request.out
    entries, tasks = make_tasks(request, late.deadline)
    by_id = {s.student: s for s in entries}
    todo = []
    for task in tasks:
        path = out / "verdicts" / f"{by_id[task['student']].id}.json"
        if by_id[task["student"]].problem:
            write_json(path, {**_unjudged(task, by_id[task["student"]].problem)})
        elif request.again or not known_verdict(path, task["key"]):
            todo.append(task)
    failed: dict[str, str] = {}
    with progress(console) as bar:
        counter = bar.add_task(f"grading {graded.lab.name}", total=len(tasks))
        bar.advance(counter, len(tasks) - len(todo))
        for task, verdict, why in run_tasks(todo, request):
            path = out / "verdicts" / f"{by_id[task['student']].id}.json"
            if verdict is None:
                failed[task["student"]] = why
                path.unlink(missing_ok=True)  # of other files, or by another plan
            else:
                keep_pages(out / "looks" / path.stem, verdict.pop("pages", {}))
                write_json(path, verdict)
            bar.advance(counter)
    rows = write_reports(out, graded, late, entries, gradebook)
    unread = sum(bool(s.problem) for s in entries)
    judged, before = len(todo) - len(failed), len(tasks) - len(todo) - unread
    answer.update(judged=judged, before=before, unread=unread, not_judged=failed)
    answer["gradebook"] = str(out / "grades.csv")
    console.print(
        f"{len(rows)} submissions: {judged} judged now, {before} before, "
        f"{unread} could not be read",
        highlight=False,
    )
    console.print(
        f"sandbox: {request.sandbox}; gradebook {out / 'grades.csv'}, summary "
        f"{out / 'summary.html'}, reports in {out / 'reports'}",
        highlight=False,
        soft_wrap=True,
    )
    earlier = sorted({r["student"] for r in rows} - {*by_id}) if not request.students else []
    if earlier:
        console.print(
            f"in the gradebook from earlier runs, and not submitted now: "
            f"{', '.join(earlier)} (delete {out / 'verdicts'}/NAME.json to leave them "
            "out)",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
    if apart := [r for r in rows if r["apart"]]:
        console.print(
            "In NO gradebook: "
            + "; ".join(f"{r['student']} ({r['apart']})" for r in apart)
            + f". They are in {out / 'apart.csv'}",
            highlight=False,
            soft_wrap=True,
            markup=False,
            style="bold",
        )
    if failed:
        raise SpecError(
            f"not judged, and in no gradebook: {', '.join(sorted(failed))}. Of the "
            f"first: {failed[min(failed)]}\nEverybody else is; run the same command "
            "again"
        )
    return 0
