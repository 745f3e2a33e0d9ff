"""The commands in the pages run and print what the page says (see CONTRIBUTING.md).

A shown line must occur in the output. `...` in it stands for anything, and `~85` for a number
within a fifth of 85: what the latency model predicts may move a little without the page being
wrong. A handout shows the whole output, in order: what it leaves out is a line `...`.
A Python block with a title is a file that the commands of the page use. Handouts are run as the
students of each dialect get them.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit.dialect import DIALECTS, KERNELS, MANIFEST
from labkit.starter.handouts import render

ROOT = Path(__file__).resolve().parents[1]


def commands(text: str) -> Iterator[tuple[str, list[str], int]]:
    """Yield (command, lines of output, exit code) for every `$` line of a console block."""
    for block in re.findall(r"^ *```console\n(.*?)^ *```", text, re.M | re.S):
        for part in re.split(r"^ *\$ ", block.replace("\\\n", " "), flags=re.M)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            code = 0
            if shown and (end := re.fullmatch(r"\(exit code (\d+)\)", shown[-1])):
                code, shown = int(end.group(1)), shown[:-1]
            yield command, shown, code


#: How far a number after "~" may be off, as a part of it.
ABOUT = 0.2
_SPECIAL = re.compile(r"(\.\.\.|~[\d,.]*\d(?:e-?\d+)?)")


def occurs(line: str, said: str) -> bool:
    """Return whether a shown line is part of an output; both have single spaces."""
    pattern, numbers = "", []
    for part in _SPECIAL.split(line):
        if part == "...":
            pattern += ".*?"
        elif part.startswith("~"):
            numbers.append(float(part[1:].replace(",", "")))
            pattern += r"(\d[\d,.]*(?:e-?\d+)?)"
        else:
            pattern += re.escape(part)
    for found in re.finditer(pattern, said):
        got = [float(text.rstrip(".,").replace(",", "")) for text in found.groups()]
        if all(abs(a - b) <= ABOUT * abs(b) for a, b in zip(got, numbers)):
            return True
    return False


def is_printed(shown: list[str], said: str) -> bool:
    """Return whether an output is what a page shows, with `...` for what is left out, and no gap.

    Blanks are not compared: where a table ends depends on the width of the terminal.
    """
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    parts: list[list[re.Pattern[str]]] = [[]]
    for line in shown:
        if line.strip() == "...":
            parts.append([])
        else:
            pieces = " ".join(line.split()).split("...")
            parts[-1].append(re.compile(" *.* *".join(re.escape(p.strip()) for p in pieces)))

    def here(part: list[re.Pattern[str]], at: int) -> bool:
        return len(lines) - at >= len(part) and all(
            p.fullmatch(line) for p, line in zip(part, lines[at:])
        )

    at = len(parts[0])
    if not here(parts[0], 0) or (len(parts) == 1 and at != len(lines)):
        return False
    for part in parts[1:-1]:
        found = next((k for k in range(at, len(lines) + 1) if here(part, k)), None)
        if found is None:
            return False
        at = found + len(part)
    last = len(lines) - len(parts[-1])
    return len(parts) == 1 or (last >= at and here(parts[-1], last))


def files(text: str) -> dict[str, str]:
    """Return the files that a page shows: its Python blocks with a title."""
    return dict(re.findall(r'^```python title="([\w.]+)"\n(.*?)^```', text, re.M | re.S))


def readers_environment() -> dict[str, str]:
    """Return the environment without what our other tests need: a reader has AWS's chips alone."""
    return {name: value for name, value in os.environ.items() if name != "NKISIM_TARGETS"}


def run(
    command: str, shown: list[str], code: int, folder: Path, whole: bool = False, **env: str
) -> None:
    """Run a command of a page in a folder, and hold it to what the page shows.

    `whole`: that is all that it prints to standard output, in order.
    """
    program, *args = shlex.split(command)
    assert program == "python", "commands in console blocks begin with python"
    if args[0].endswith("tester.py"):  # pages promise results, not how long this machine takes
        args += ["--timeout", str(HANGS)]
    done = subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        text=True,
        capture_output=True,
        encoding="utf-8",
        timeout=2 * HANGS,
        env={**readers_environment(), **env},
    )
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, said
    if whole and shown:
        assert is_printed(shown, done.stdout + done.stderr), (
            f"{shown} is not: {done.stdout}{done.stderr}"
        )
        return
    for line in shown:
        assert occurs(" ".join(line.split()), said), f"{line!r} is not in: {said}"


#: Seconds after which a case counts as hanging; no machine that is merely busy takes that long.
HANGS = 1800
#: Infra's tests replay it, with a fake cloud.
OF_INFRA = ROOT / "docs" / "class-days.md"
#: test_contributing.py runs its commands, after its diffs.
EXTENDING = ROOT / "docs" / "extending.md"
#: The pages whose `console` blocks are run here.
PAGES = tuple(
    page
    for page in (
        ROOT / "README.md",
        *sorted(ROOT.glob("docs/*.md")),
        *sorted(ROOT.glob("labs/*/README.md")),
        *sorted(ROOT.glob("labs/*/solutions/answers.md")),
    )
    if page not in (OF_INFRA, EXTENDING) and "```console" in page.read_text("utf-8")
)
HANDOUTS = tuple(sorted(ROOT.glob("labs/*/README.md")))


@pytest.mark.full
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("page", HANDOUTS, ids=lambda p: p.parent.name)
def test_the_commands_of_a_handout(page: Path, dialect: str, tmp_path: Path):
    """Run what students of a dialect read, where their repository says which one it is."""
    if not (page.parent / KERNELS[dialect]).is_file():
        pytest.skip("the lab is not written in this dialect")
    text = render(page.read_text("utf-8"), dialect, page.parent.name)
    folder = tmp_path / "labs" / page.parent.name
    shutil.copytree(page.parent, folder, ignore=shutil.ignore_patterns("__pycache__", "results"))
    (tmp_path / MANIFEST).write_text(json.dumps({"dialect": dialect}), "utf-8")
    for name, code in files(text).items():
        (folder / name).write_text(code, "utf-8")
    for command, shown, code in commands(text):
        run(command, shown, code, folder, whole=True, NKI_BANNER="0")


@pytest.mark.full
@pytest.mark.parametrize(
    "page", [p for p in PAGES if p not in HANDOUTS], ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_the_commands_of_a_page(page: Path, tmp_path: Path):
    """Run them in order, in one copy: they build on each other."""
    # answer keys lie below the lab whose commands they run, pages of docs below the repository
    home = page.parents[page.parent.name == "solutions" or page.parent == ROOT / "docs"]
    # what pages of the repository speak of
    parts = ("labs", "tools") if home == ROOT else ("",)
    folder = tmp_path / home.name
    for part in parts:
        shutil.copytree(
            home / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "results")
        )
    text = page.read_text("utf-8")
    for name, code in files(text).items():
        (folder / name).write_text(code, "utf-8")
    for command, shown, code in commands(text):
        run(command, shown, code, folder)


#: Words a minute of a reader of technical text; studies of adults' reading say 200 to 260.
WORDS_A_MINUTE = 200


def words(text: str) -> int:
    """Count what a reader meets: prose, code and tables; not what is folded, nor addresses."""
    text = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return len(re.findall(r"\S*\w\S*", text))


def test_a_newcomer_reaches_a_passing_step_1_in_five_minutes_of_reading():
    """README.md from its top to the end of the first kernel, then vecadd's until step 1 passes."""
    path = (ROOT / "README.md").read_text("utf-8").split("\n## A kernel to look at")[0]
    assert path.index("--kernel tiled") < path.index("labs/vecadd/README.md")
    handout = (ROOT / "labs" / "vecadd" / "README.md").read_text("utf-8")
    handout = render(handout, "beta1", "vecadd")
    passes = handout.index("latency", handout.index("vector_add_tiled on ... (sim)"))
    path += handout[:passes]
    assert words(path) <= 5 * WORDS_A_MINUTE, f"{words(path) / WORDS_A_MINUTE:.1f} minutes"


def functions(code: str) -> dict[str, str]:
    """Return the kernels of some Python as text without decorators, docstrings and annotations."""
    found = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef):
            if ast.get_docstring(node):
                node.body = node.body[1:]
            node.decorator_list = []
            found[node.name] = ast.unparse(node)
    return found


@pytest.mark.parametrize("page", sorted(ROOT.glob("labs/*/README.md")), ids=lambda p: p.parent.name)
def test_a_kernel_that_a_handout_shows_is_that_of_its_file(page: Path):
    """The shown code of each dialect is the file's: students compare the two."""
    given = [
        functions((page.parent / name).read_text("utf-8"))
        for name in ("kernels.py", "kernels_nki.py")
        if (page.parent / name).is_file()
    ]
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
        for name, text in functions(block).items():
            assert text in [file.get(name) for file in given], f"{name} is another in the file"


@pytest.mark.parametrize("page", sorted(ROOT.glob("labs/*/README.md")), ids=lambda p: p.parent.name)
def test_what_a_handout_shows_in_one_dialect_it_shows_in_the_other(page: Path):
    if not (page.parent / "kernels.py").is_file():
        return  # written in the newer dialect alone
    text = page.read_text("utf-8")
    names = [n for d in DIALECTS for n in files(render(text, d, page.parent.name))]
    assert {n for n in names if not n.endswith("_nki.py")} == {
        n.replace("_nki.py", ".py") for n in names if n.endswith("_nki.py")
    }


def sections(text: str) -> dict[str, str]:
    """Return the sections of a page by the number that their headings begin with."""
    parts = re.split(r"^## (?:Step )?(\d\w?)[.:]?(?: .*)?$", text, flags=re.M)[1:]
    return {number: body.split("\n## ")[0] for number, body in zip(parts[::2], parts[1::2])}


@pytest.mark.parametrize("page", sorted(ROOT.glob("labs/*/README.md")), ids=lambda p: p.parent.name)
def test_every_question_has_an_answer_in_the_key(page: Path):
    """A section with questions has a section of answers, and lists are of the same length."""
    answers = sections((page.parent / "solutions" / "answers.md").read_text("utf-8"))
    asked = {
        number: body
        for number, body in sections(page.read_text("utf-8")).items()
        if re.search(r"^Questions?:", body, re.M)
    }
    assert asked and set(asked) <= set(answers)
    for number, body in asked.items():
        for list_ in re.findall(r"^Questions:\n\n(.*?\n)(?=\n\S(?!\.))", body, re.M | re.S):
            of = [len(re.findall(r"^\d\. ", part, re.M)) for part in (list_, answers[number])]
            assert of[0] == of[1] > 1, number


#: What a handout may say in a transcript of a figure: nothing. Its questions ask for them.
FIGURES = re.compile(
    r"^ *(latency|instructions:|dma_|hbm_|HBM|total_|bound|mfu|tensor_|sbuf_|\w+ +right +passed)"
)
#: A figure with its unit, as the key of answers says it.
VALUE = re.compile(r"\b(\d[\d,.]*\d|\d) (us|ms|transfers|GB|MB|matmuls)\b")
#: What a question or its explanation gives, to count with.
GIVEN = {("739", "us"), ("0.23", "GB")}


@pytest.mark.parametrize("page", HANDOUTS, ids=lambda p: p.parent.name)
def test_no_handout_answers_its_own_questions(page: Path):
    text = page.read_text("utf-8")
    lines = [line for _, shown, _ in commands(text) for line in shown if FIGURES.match(line)]
    assert [line for line in lines if "..." not in line] == []
    key = page.parent / "solutions" / "answers.md"
    if key.is_file():
        found = VALUE.finditer(key.read_text("utf-8").replace("~", ""))
        answers = {m.groups() for m in found} - GIVEN
        assert not answers & {m.groups() for m in VALUE.finditer(text)}


@pytest.mark.parametrize(
    "shown, said, same",
    [
        (["a 1", "b"], "a   1\n\nb\n", True),
        (["a", "c"], "a\nb\nc\n", False),
        (["a", "...", "c"], "a\nb\nc\n", True),
        (["a", "...", "c"], "a\nc\n", True),
        (["a ... us"], "a 17.2 us\n", True),
        (["a"], "a\nb\n", False),
        (["b"], "a\nb\n", False),
        (["...", "b"], "a\nb\n", True),
    ],
)
def test_a_shown_output_has_no_hidden_gaps(shown: list[str], said: str, same: bool):
    assert is_printed(shown, said) is same


def test_the_rules_that_handouts_name_exist_and_say_so():
    from nkisim.errors.rules import RULES

    rows = [
        row
        for page in ROOT.glob("labs/*/README.md")
        for row in re.findall(r"^\| (.*NKI-\w\d\d.*) \|", page.read_text("utf-8"), re.M)
    ]
    assert len(rows) > 10
    assert {i for row in rows for i in re.findall(r"NKI-\w\d\d", row)} <= set(RULES)


@pytest.mark.parametrize(
    "line, said, expected",
    [
        ("takes ~85 us", "it takes 84.7 us.", True),
        ("takes ~85 us", "it takes 60 us", False),
        ("~5,200 us", "5,161.4 us", True),
        ("total ~3.1e-05", "total 2.84e-05", True),
        ("a ... c", "a b c", True),
        ("a ... c", "a b", False),
        ("a.c", "abc", False),
    ],
)
def test_shown_lines_are_held_against_the_output(line: str, said: str, expected: bool):
    assert occurs(line, said) is expected
