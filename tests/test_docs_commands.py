"""Every block of commands in the documentation: run by a test, or its programs and flags exist.

`console`: run (tests/test_docs.py, tests/test_contributing.py). `sh`: takes long, changes the
reader's environment, or waits for a browser. `sh needs-aws`: needs an account or a chip. What is
not run is held against the programs' own help, the sessions of noxfile.py, and the files.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .test_docs import EXTENDING, OF_INFRA, readers_environment
from .test_docs import PAGES as RUN

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = (
    "*.md",
    "docs/*.md",
    "labs/*/README.md",
    "labs/*/solutions/*.md",
    "infra/*.md",
    "infra/roles/*/README.md",
)
PAGES = [page for pattern in PATTERNS for page in sorted(ROOT.glob(pattern))]
#: Blocks of commands are `console`, `sh` or `sh needs-aws`; other names for them would be missed.
COMMANDS = {"console", "sh", "sh needs-aws"}
OTHER_NAMES = ("bash", "shell", "zsh", "fish", "powershell", "terminal", "sh")
#: Programs that are not ours: only that the line is one that a shell reads.
FOREIGN = {
    "ssh",
    "ssh-keygen",
    "git",
    "aws",
    "export",
    ".",
    "mkdir",
    "cp",
    "cd",
    "srun",
    "sbatch",
    "squeue",
    "cluster-hours",
}
#: Names in commands that stand for something of the reader's.
NEEDS_AWS = re.compile(
    r"--host\b|--backend hw|ansible-playbook|python -m classroom|^aws |^ssh |"
    r"pip\.repos\.neuron|labkit remote",
    re.M,
)


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yield (what stands behind the backticks, text) of the blocks of a page."""
    for info, text in re.findall(
        r"^ *```([^\n`]*)\n(.*?)^ *```", page.read_text("utf-8"), re.M | re.S
    ):
        yield re.sub(r' (title="[\w.]+"|(as|file)=[\w.]+)$', "", info.strip()), text


def commands() -> Iterator[Any]:
    """Yield the commands of all blocks that are not run."""
    for page in PAGES:
        for info, text in blocks(page):
            if info.startswith("sh"):
                for line in text.replace("\\\n", " ").splitlines():
                    for part in shlex.split(line, comments=True) and re.split(r" && ", line):
                        words = tuple(shlex.split(part, comments=True))
                        if words:
                            yield pytest.param(page, words, id=f"{page.name}: {' '.join(words)}")


@cache
def help_of(folder: Path, *start: str) -> str:
    """Return what a program of ours says of itself."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "shared"), str(ROOT / "infra"))),
        "COLUMNS": "200",
        "NKI_BANNER": "0",
    }
    done = subprocess.run(
        [sys.executable, *start, "--help"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def flags_exist(words: tuple[str, ...], text: str) -> None:
    """Hold all flags of a command against a help text."""
    for word in words:
        if word.startswith("-") and word != "--" and not re.fullmatch(r"-?\d.*", word):
            flag = word.partition("=")[0]
            assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text), f"there is no {flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_each_block_is_of_a_kind_and_says_if_it_needs_aws(page):
    for info, text in blocks(page):
        assert info in COMMANDS or not info.startswith(OTHER_NAMES), f"{info!r}: {text[:80]}"
        if info == "console":
            assert page in (*RUN, OF_INFRA, EXTENDING, ROOT / "AWS_SETUP.md"), (
                "no test runs these blocks"
            )  # infra/tests/test_days.py: the last one
        if info.startswith("sh"):
            assert bool(NEEDS_AWS.search(text)) == (info == "sh needs-aws"), text


@pytest.mark.sample(30)
@pytest.mark.parametrize("page, words", list(commands()))
def test_a_command_that_is_not_run_has_programs_files_and_flags_that_exist(page, words):
    if words[0] in ("nkisim", "labkit"):  # installed as programs as well
        words = ["python", "-m", *words]
    folder, program = page.parent, words[0]
    if program in ("python", "python3") and words[1] == "-m":
        module = words[2]
        if module == "nox":
            return session(words[3:])
        if module in ("pip", "venv"):
            return packages(words[3:])
        if module == "pytest":
            assert (ROOT / words[3]).is_file(), f"there is no {words[3]}"
            return None
        assert module in ("nkisim", "labkit", "classroom"), f"no one checks {module}"
        if module == "classroom":
            pytest.importorskip("boto3", reason="infra's programs need the extra infra")
        flags_exist(words[4:], help_of(ROOT, "-m", module, words[3]))
        if module == "labkit" and words[3] == "remote":
            assert words[4] in help_of(ROOT, "-m", "labkit", "remote")
    elif program in ("python", "python3"):
        file = (
            folder / words[1]
            if (folder / words[1]).is_file()
            else ROOT / words[1].removeprefix("../")
        )  # from a checkout beside this one
        assert file.is_file(), f"there is no {words[1]}"
        programs = [k for k, word in enumerate(words) if word.endswith(".py")]
        flags_exist(
            words[2 : programs[1] if programs[1:] else None], help_of(file.parent, file.name)
        )
    elif program == "nox":
        session(words[1:])
    elif program == "ansible-playbook":
        playbook(words)
    elif program in ("bash", "jupyter"):
        assert (ROOT / words[-1]).is_file()
    elif program == "pip":
        packages(words[1:])
    else:
        assert program in FOREIGN, f"no one checks {program}"
        for word in words[1:]:
            if program == "cp" and not word.startswith("~"):
                assert (ROOT / word).is_file(), f"there is no {word}"


def session(words: tuple[str, ...]) -> None:
    """Check a command of nox: the session, and the flags of the program behind it."""
    assert words[0] == "-s"
    assert re.search(rf"^def {words[1]}\(", (ROOT / "noxfile.py").read_text("utf-8"), re.M), (
        f"there is no session {words[1]}"
    )
    if "--" in words:
        more = words[words.index("--") + 1 :]
        start = ["-m", "labkit", words[1]]
        if words[1] == "leaderboard":
            start, more = [*start, more[0]], more[1:]
        flags_exist(more, help_of(ROOT, *start))


def packages(words: tuple[str, ...]) -> None:
    """Check pip and venv: files of requirements and extras exist."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for before, word in zip(words, words[1:]):
        if before == "-r":
            assert (ROOT / word).is_file(), f"there is no {word}"
        if before == "-e" and word.startswith("."):
            for extra in re.findall(r"\w+", word):
                assert re.search(rf"^{extra} = \[", project, re.M), f"there is no extra {extra}"


def playbook(words: tuple[str, ...]) -> None:
    """Check a command of ansible-playbook: the file, and the variables that the class knows."""
    assert (ROOT / words[1]).is_file(), f"there is no {words[1]}"
    known = "".join(p.read_text("utf-8") for p in (ROOT / "infra" / "classroom").rglob("*.py"))
    for before, word in zip(words, words[1:]):
        if before == "-e" and not word.startswith("class="):
            name = word.partition("=")[0]
            assert re.search(rf"\b{name.replace('_', '[-_]')}\b", known), f"no option {name}"
        if word.startswith("-"):
            assert word in ("-e", "--check", "--limit"), f"no one checks {word}"


@pytest.mark.parametrize(
    "words, text, fails",
    [
        (("--a", "1"), "usage: x --a A", False),
        (("--a",), "--ab", True),
        (("-1",), "", False),
        (("--a=2",), "--a A", False),
    ],
)
def test_a_flag_that_is_not_there_is_found(words, text, fails):
    if fails:
        with pytest.raises(AssertionError):
            flags_exist(words, text)
    else:
        flags_exist(words, text)


def test_the_readme_leads_a_newcomer_to_a_passing_kernel_in_three_commands(tmp_path):
    """Run them from an empty folder; what pip installs is what the tests already have."""
    text = (ROOT / "README.md").read_text("utf-8")
    section = text.split("## A lab to do\n")[1].split("\n## ")[0]
    lines = re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)[0].splitlines()
    clone, install, run = (shlex.split(line, comments=True) for line in lines)
    assert clone[:2] == ["git", "clone"] and clone[-2:] == ["cd", "trainium-labs"]
    done = subprocess.run(["git", "clone", "-q", str(ROOT), "trainium-labs"], cwd=tmp_path)
    if done.returncode:
        pytest.skip("not a git working tree")
    home = tmp_path / "trainium-labs"
    # a stock Debian or Ubuntu refuses pip outside of an environment
    assert install[:4] == ["python3", "-m", "venv", ".venv"]
    assert install[4:9] == ["&&", ".", ".venv/bin/activate", "&&", "python"]
    assert install[9:12] == ["-m", "pip", "install"] and install[-1] == ".[labs]"
    env = {**readers_environment(), "PYTHONPATH": str(home / "shared"), "NKI_BANNER": "0"}
    done = subprocess.run(
        [sys.executable, *run[1:]],
        cwd=home,
        env=env,
        text=True,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "within tolerance" in done.stdout
