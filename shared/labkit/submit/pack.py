"""`nox -s submit -- LAB`: pack what a lab asks for, check it, and say what is missing.

The check is the tester's, on the cases that students have: the grader runs hidden ones as well, on
a secret seed. The archive has the same bytes for the same files.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from ..cli import RESULTS, known_labs, targets_of
from ..dialect import DIALECTS, course_dialect
from ..evaluate import PASSED, evaluate
from ..grade.rules import find_flags
from ..show import add_json, answer, progress, show_failures, show_steps, terminal
from ..spec import Lab, SpecError
from .writeup import check_writeup

FOLDER = Path("submissions")


def problems_of(lab: Lab) -> list[str]:
    """Return why a lab's files cannot be graded, in sentences; [] if they can."""
    problems = []
    for name in lab.handed_in:
        path = lab.folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
            continue
        if path.stat().st_size > 1 << 20:
            problems.append(f"{name} is larger than 1 MiB: the grader takes no larger file")
        source = path.read_bytes()
        try:
            compile(source, name, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            line, problem = getattr(error, "lineno", 1), getattr(error, "msg", error)
            problems.append(f"{name}:{line} is not Python: {problem}")
        except (RecursionError, MemoryError):
            problems.append(f"{name} cannot be read by Python: it is nested too deeply")
        problems += [
            f"{f['file']}:{f['line']} {f['what']}: kernels need neither, and staff will look"
            for f in find_flags(name, source.decode("utf-8", "replace"))
        ]
    return problems


def archive(lab: Lab) -> bytes:
    """Return the archive to submit: the editable files and the writeup only."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name in (*lab.handed_in, "writeup.md", "writeup.pdf"):
            path = lab.folder / name
            if path.is_file() and not path.is_symlink():
                info = zipfile.ZipInfo(f"labs/{lab.name}/{name}", (2000, 1, 1, 0, 0, 0))
                info.external_attr = 0o644 << 16
                info.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(info, path.read_bytes())
    return out.getvalue()


def submit_parser() -> argparse.ArgumentParser:
    """Return the parser of submit."""
    names, _ = known_labs()
    parser = argparse.ArgumentParser(prog="nox -s submit --", description=submit.__doc__)
    parser.add_argument("lab", help=f"one of {', '.join(names)}")
    parser.add_argument(
        "--out",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help="where the archive goes (default: %(default)s)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help=f"what the writeup is held against (default: {RESULTS} here, at the "
        "top, and in the lab's folder: testers write where they are started)",
    )
    parser.add_argument(
        "--dialect",
        choices=DIALECTS,
        default=course_dialect() or None,
        help="of the submitted kernels (default: the course's, else the first that the lab has)",
    )
    parser.add_argument("--no-check", action="store_true", help="pack without running the cases")
    parser.add_argument("--to", metavar="URL", help="send it to the contest's live server")
    parser.add_argument("--student", metavar="NAME", help="your name there")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="a file with your token")
    add_json(parser)
    return parser


def submit(argv: Sequence[str] | None = None) -> int:
    """Pack a lab for handing in; 0 if nothing is missing, 1 if something is (packed anyway)."""
    _, load = known_labs()
    parser = submit_parser()
    args = parser.parse_args(argv)
    if args.to and not (args.student and args.token_file):
        parser.error("--to needs --student and --token-file")
    lab = load([args.lab])[0]
    lab = lab.speaking(args.dialect or lab.dialect)
    console = terminal()
    missing = problems_of(lab)
    fatal = any("is not Python" in m or "is missing" in m for m in missing)
    if fatal and not lab.kernels.is_file():
        raise SpecError(f"there is nothing to hand in: {missing[0]}")
    if not fatal and not args.no_check:
        missing += _run(lab, console)
    writeup = lab.folder / "writeup.md"
    if writeup.is_file():
        places = (
            [args.results]
            if args.results
            else dict.fromkeys(
                folder / RESULTS for folder in (Path(), lab.folder.parents[1], lab.folder)
            )
        )
        missing += check_writeup(writeup, places, lab.name)
    elif not (lab.folder / "writeup.pdf").is_file():
        missing.append("writeup.md (or writeup.pdf) is missing")
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{lab.name}.zip"
    path.write_bytes(archive(lab))
    answer.update(archive=str(path), missing=missing)
    for line in missing:
        console.print(f"[yellow]missing[/] {escape(line)}", highlight=False, soft_wrap=True)
    console.print(
        f"packed {path}: hand in this file"
        if not missing
        else f"packed {path} as it is; {len(missing)} things are missing",
        highlight=False,
    )
    if args.to:
        from .send import send

        return send(console, args.to, args.student, args.token_file, path.read_bytes())
    return 1 if missing else 0


def _run(lab: Lab, console: object) -> list[str]:
    """Run the quick cases; return what does not pass."""
    from rich.console import Console

    assert isinstance(console, Console)
    runs = [
        (case, target)
        for case in lab.cases
        for target in targets_of(lab)
        if "quick" in case.fleets and lab.runs(case, target)
    ]
    outcomes = []
    with progress(console) as bar:
        task = bar.add_task(lab.name, total=len(runs))
        for outcome in evaluate(lab, runs):
            outcomes.append(outcome)
            bar.advance(task)
    show_failures(console, outcomes)
    show_steps(console, lab, outcomes)
    return [f"{o.case.name} on {o.target}: {o.state}" for o in outcomes if o.status != PASSED]
