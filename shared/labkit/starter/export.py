"""Export the students' repository: `nox -s starter -- [--lab NAME] [--course trn2] [--out DIR]`.

Only what is listed here is exported; nothing is left out of a copy of everything. The result is
the same bytes on every run: no times, no order of a file system, a commit with fixed dates.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import nkisim

from ..dialect import KERNELS, MANIFEST
from ..load import discover, load_lab
from ..mistakes import FILE as MISTAKES
from ..show import add_json, answer
from ..spec import FILES, SpecError
from .handouts import render
from .leaks import Leak, Secrets, find_leaks, secrets_of
from .markers import MarkerError, Region, split_file
from .pages import bring_linked

TEMPLATE = Path(__file__).parent / "template"
#: file of the export -> file of the template; the student's repository has these next to the labs
TEMPLATES = {
    "README.md": "README.md",
    "noxfile.py": "noxfile.py.txt",
    ".gitignore": "gitignore",
    ".gitattributes": "gitattributes",
    ".github/workflows/ci.yml": "ci.yml",
}
#: pages of the staff's repository that students get beside the handouts
PAGES = ("docs/machine.md", "docs/reading-a-profile.md", "docs/remote-work.md")
SCHEMA = "trainium-labs/starter"
#: date of the one commit: it must not depend on when the export is made
DATE = "2000-01-01T00:00:00+00:00"


@dataclass
class Export:
    """What `export` made: the folder, the solutions that were taken out, and leaks, if any."""

    folder: Path
    regions: list[Region]
    leaks: list[Leak]


def lab_files(lab: Path, dialect: str) -> Iterator[tuple[str, Path]]:
    """Yield (name in the export, file) of what students get of a lab."""
    if dialect not in KERNELS:
        raise SpecError(f"there is no dialect {dialect!r}; there are {' and '.join(KERNELS)}")
    if not (lab / KERNELS[dialect]).is_file():
        raise SpecError(
            f"the lab {lab.name} has no {KERNELS[dialect]}: it is not written in the "
            f"dialect {dialect}"
        )
    for name in (*FILES, KERNELS[dialect]):
        yield name, lab / name
    for name in ("writeup.md", MISTAKES):
        if (lab / name).is_file():
            yield name, lab / name


def _staff_only(lab: Path) -> Iterator[Path]:
    for folder in ("solutions", "hidden"):
        for kind in ("*.py", "*.md"):  # solutions, and answers to the questions
            yield from sorted((lab / folder).rglob(kind))


def export(
    root: Path,
    out: Path,
    labs: Sequence[str] = (),
    dialect: str = "beta1",
    wheel: Path | None = None,
    course: str = "",
) -> Export:
    """Write the students' repository of the staff's at `root` to `out`, which must be new or empty.

    `course`: the name of one that writes the dialect (default: `nkisim.course.OF_DIALECT`).

    Raises SpecError for what cannot be exported, MarkerError for markers that are not in order.
    Leaks are returned; the caller refuses to publish an export that has any.
    """
    if out.exists() and any(out.iterdir()):
        raise SpecError(f"{out} is not empty; give another --out, or remove it first")
    names = discover(root / "labs")
    unknown = [lab for lab in labs if lab not in names]
    if unknown:
        raise SpecError(f"there is no lab {unknown[0]!r}; the labs are {', '.join(names)}")
    # labs that are written in other dialects stay here, unless they were asked for
    names = [name for name in names if (root / "labs" / name / KERNELS[dialect]).is_file()]
    files: dict[str, bytes] = {}
    editable: list[str] = []
    regions: list[Region] = []
    secret: list[tuple[str, tuple[str, ...]]] = []
    given: list[str] = []
    tours: dict[str, str] = {}
    for name in labs or names:
        lab = load_lab(root / "labs" / name)
        for file, path in lab_files(root / "labs" / name, dialect):
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".md":
                text = render(text, dialect, f"{name}/{file}")
            if path.suffix == ".py":
                text, solutions = split_file(path)
                if file in KERNELS.values() and not solutions:
                    raise SpecError(
                        f"labs/{name}/{file} has no solution between markers: it "
                        "would be published as it is"
                    )
                ast.parse(text, f"{name}/{file}")
                regions += solutions
                secret += [(f"{r.file}:{r.line}", r.lines) for r in solutions]
            given.append(text)
            files[f"labs/{name}/{file}"] = text.encode()
        tour = root / "labs" / name / tour_of(dialect)
        if tour.is_file():
            files[f"labs/{name}/{tour.name}"] = tour.read_bytes()
            tours[name] = code_of(tour)
        editable += [
            f"labs/{name}/{file}"
            for file in (*lab.handed_in, "writeup.md", KERNELS[dialect])
            if f"labs/{name}/{file}" in files
        ]
        secret += [
            (f"{name}/{p.parent.name}/{p.name}", tuple(p.read_text(encoding="utf-8").splitlines()))
            for p in _staff_only(root / "labs" / name)
        ]
        for other in KERNELS.values():  # solutions of the dialect that stays here
            if (root / "labs" / name / other).is_file():
                secret += [
                    (f"{r.file}:{r.line}", r.lines)
                    for r in split_file(root / "labs" / name / other)[1]
                ]
    for page in PAGES:
        if (root / page).is_file():
            text = render((root / page).read_text(encoding="utf-8"), dialect, page)
            given.append(text)
            files[page] = text.encode()
    bring_linked(root, files, lambda text, page: render(text, dialect, page))
    version = wheel.name.split("-")[1] if wheel is not None else nkisim.__version__
    files[".github/workflows/classroom.yml"] = classroom(labs or names, version).encode()
    for target, source in TEMPLATES.items():
        text = (TEMPLATE / source).read_text(encoding="utf-8")
        for name, value in (
            ("{version}", version),
            ("{kernels}", KERNELS[dialect]),
            ("{tour}", f"labs/{(labs or names)[0]}/{tour_of(dialect)}"),
        ):
            text = text.replace(name, value)
        files[target] = text.encode()
    files["pyproject.toml"] = (
        f'[tool.nkisim]\ncourse = "{course or nkisim.course.OF_DIALECT[dialect].name}"\n'.encode()
    )
    files["LICENSE"] = (root / "LICENSE").read_bytes()
    if wheel is not None:
        files[f"wheels/{wheel.name}"] = wheel.read_bytes()
    files = {target: unix(data) for target, data in files.items()}
    files[MANIFEST] = manifest(files, editable, dialect, version)
    for target, data in sorted(files.items()):
        path = out / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    # the helpers that labs and staff write alike are no secret: they are in what is given
    given += [files[t].decode() for t in TEMPLATES if t != MANIFEST]
    return Export(out, regions, find_leaks(out, secrets_by_lab(secret, given, tours)))


def secrets_by_lab(
    secret: Sequence[tuple[str, tuple[str, ...]]], given: Sequence[str], tours: dict[str, str]
) -> Secrets:
    """Return the secrets of all labs; a lab's tour gives away nothing of its own lab.

    What the tour of another lab shows is no secret: a load and a store look alike everywhere.
    """
    secrets = Secrets({}, {})
    for lab in dict.fromkeys(place.partition("/")[0] for place, _ in secret):
        of_lab = [(place, lines) for place, lines in secret if place.startswith(f"{lab}/")]
        others = [text for name, text in tours.items() if name != lab]
        part = secrets_of(of_lab, [*given, *others])
        secrets.lines.update(part.lines)
        secrets.shapes.update(part.shapes)
    return secrets


def code_of(notebook: Path) -> str:
    """Return the cells of code of a notebook as one text."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")


def tour_of(dialect: str) -> str:
    """Return the name of the notebook that goes with the kernels of a lab."""
    return KERNELS[dialect].replace("kernels", "tour").replace(".py", ".ipynb")


def classroom(labs: Sequence[str], version: str = "0") -> str:
    """Return the workflow for GitHub Classroom: a check a lab, reported together."""
    steps, results = [], []
    for lab in labs:
        steps.append(
            f"      - name: {lab}\n        id: {lab}\n"
            "        uses: classroom-resources/autograding-command-grader@v1\n"
            f"        with:\n          test-name: {lab}\n"
            f"          command: python -m labkit simulate {lab} --finished\n"
            "          timeout: 10\n          max-score: 1"
        )
        results.append(f'          {lab.upper()}_RESULTS: "${{{{ steps.{lab}.outputs.result }}}}"')
    text = (TEMPLATE / "classroom.yml").read_text(encoding="utf-8")
    for name, value in (
        ("{steps}", "\n".join(steps)),
        ("{results}", "\n".join(results)),
        ("{runners}", ",".join(labs)),
        ("{version}", version),
    ):
        text = text.replace(name, value)
    return text


def unix(data: bytes) -> bytes:
    """Return a text with the line ends of Unix, anything else as it is.

    Where git writes \\r\\n into a checkout (Windows), a file is still the one that was exported.
    """
    return data if b"\0" in data else data.replace(b"\r\n", b"\n")


def manifest(files: dict[str, bytes], editable: Sequence[str], dialect: str, version: str) -> bytes:
    """Return starter.json: the version, and the hash of every file that staff may replace."""
    document = {
        "schema": SCHEMA,
        "schema_version": 1,
        "version": version,
        "dialect": dialect,
        "editable": sorted(set(editable)),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def commit(folder: Path) -> str:
    """Make the export a git repository with one commit, the same on every run; return its id."""
    env = {
        **os.environ,
        "GIT_AUTHOR_DATE": DATE,
        "GIT_COMMITTER_DATE": DATE,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
    }
    for name, value in (("NAME", "course staff"), ("EMAIL", "staff@example.invalid")):
        env[f"GIT_AUTHOR_{name}"] = env[f"GIT_COMMITTER_{name}"] = value

    def git(*args: str) -> str:
        return subprocess.run(
            [
                "git",
                "-C",
                str(folder),
                "-c",
                "core.autocrlf=false",
                "-c",
                "core.fileMode=false",
                "-c",
                "commit.gpgSign=false",
                *args,
            ],
            check=True,
            env=env,
            text=True,
            capture_output=True,
        ).stdout.strip()

    git("init", "-q", "-b", "main", "--template=")
    git("add", "-A")
    git("commit", "-q", "-m", "The labs")
    return git("rev-parse", "HEAD")


def build_wheel(root: Path, out: Path) -> Path:
    """Build the wheel of this repository's packages, the same bytes on every run; return it.

    Its version ends in a hash of the sources (0.1.0+s1a2b3c4d): pip installs an update of the
    starter because the version that it is pinned to is another one.
    Raises SpecError if the build fails, with the last lines of what it said.
    """
    env = {**os.environ, "SOURCE_DATE_EPOCH": "946684800"}  # what DATE is, in seconds
    with tempfile.TemporaryDirectory(prefix="labkit-build-") as scratch:
        copy = Path(scratch) / "src"
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.pyc")
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            copy.mkdir(exist_ok=True)
            shutil.copyfile(root / name, copy / name)
        shutil.copytree(root / "shared", copy / "shared", ignore=ignore, copy_function=_plain)
        hasher = hashlib.sha256()
        for path in sorted(p for p in (copy / "shared").rglob("*") if p.is_file()):
            hasher.update(path.relative_to(copy).as_posix().encode() + b"\0" + path.read_bytes())
        project = (copy / "pyproject.toml").read_text(encoding="utf-8")
        (copy / "pyproject.toml").write_text(
            re.sub(
                r'^version = "([^"+]+)"',
                rf'version = "\1+s{hasher.hexdigest()[:8]}"',
                project,
                count=1,
                flags=re.M,
            ),
            encoding="utf-8",
        )
        done = subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(copy)],
            env=env,
            text=True,
            capture_output=True,
        )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        if last.endswith("No module named build"):
            last = "the package build is not installed: python -m pip install build"
        raise SpecError(f"the wheel could not be built:\n{last}")
    return next(iter(sorted(out.glob("*.whl"))))


def _plain(source: str, target: str) -> str:
    """Copy a file without its mode: a umask must not show in the wheel."""
    shutil.copyfile(source, target)
    os.chmod(target, 0o644)
    return target


def starter_parser() -> argparse.ArgumentParser:
    """Return the parser of starter."""
    parser = argparse.ArgumentParser(prog="nox -s starter --", description=starter.__doc__)
    parser.add_argument(
        "--lab",
        action="append",
        default=[],
        metavar="NAME",
        help="export only this lab (may be repeated; default: all)",
    )
    parser.add_argument(
        "--course",
        choices=tuple(nkisim.course.COURSES),
        help="what students write and run, all of it: "
        + "; ".join(c.title for c in nkisim.course.COURSES.values())
        + " (default: trn1)",
    )
    parser.add_argument(
        "--dialect",
        choices=tuple(KERNELS),
        help="the dialect alone: beta1 is the course trn1, nki the course trn2",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("dist") / "starter",
        metavar="DIR",
        help="where to, a new or empty folder (default: %(default)s)",
    )
    parser.add_argument("--no-git", action="store_true", help="write files, make no repository")
    parser.add_argument(
        "--no-wheel",
        action="store_true",
        help="leave out the simulator's wheel: students install it from an index",
    )
    add_json(parser)
    return parser


def starter(argv: Sequence[str] | None = None) -> int:
    """Export the students' repository and prove that no solution is in it."""
    args = starter_parser().parse_args(argv)
    course = (
        nkisim.course.COURSES[args.course]
        if args.course
        else nkisim.course.OF_DIALECT[args.dialect or "beta1"]
    )
    if args.dialect not in (None, course.dialect):
        raise SpecError(
            f"the course {course.title} writes {course.kernels}; leave out --dialect {args.dialect}"
        )
    root = Path(__file__).resolve().parents[3]
    if not (root / "labs").is_dir():
        raise SpecError(
            "starters are exported from the staff's repository; run nox -s starter "
            "there, not from an installed package"
        )
    with tempfile.TemporaryDirectory(prefix="labkit-wheel-") as scratch:
        wheel = None if args.no_wheel else build_wheel(root, Path(scratch))
        try:
            made = export(root, args.out, args.lab, course.dialect, wheel, course.name)
        except (MarkerError, SyntaxError) as error:
            raise SpecError(f"nothing was exported: {error}") from None
    if not args.no_git:
        commit(args.out)
    answer.update(folder=str(args.out), leaks=[str(leak) for leak in made.leaks])
    for leak in made.leaks:
        print(f"LEAK {leak}", file=sys.stderr)
    if made.leaks:
        print(f"{len(made.leaks)} leaks: do not publish {args.out}", file=sys.stderr)
        return 1
    steps = {(r.file, r.step) for r in made.regions}
    print(
        f"{args.out}: {len(made.regions)} solutions of {len(steps)} steps were taken out, "
        "and none of their lines or statements is left in any file or commit"
    )
    return 0
