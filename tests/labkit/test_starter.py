"""The students' repository: what is in it, that it works, and that no solution is left in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from rich.console import Console

import nkisim
from labkit.dialect import DIALECTS, KERNELS, MANIFEST, course_dialect, default_dialect
from labkit.evaluate import PASSED, evaluate
from labkit.load import load_lab
from labkit.show import show_steps
from labkit.spec import SpecError
from labkit.starter.export import commit, export
from labkit.starter.handouts import render
from labkit.starter.leaks import find_leaks, secrets_of
from labkit.starter.markers import MarkerError, split, split_file
from labkit.starter.pages import bring_linked, slug
from labkit.starter.update import apply, opened
from nkisim.course import COURSES, chosen

ROOT = Path(__file__).parents[2]
LABS = sorted(p.parent for p in ROOT.glob("labs/*/spec.py"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Export all labs once."""
    folder = tmp_path_factory.mktemp("starter") / "out"
    found = export(ROOT, folder)
    commit(folder)
    return found


@pytest.mark.parametrize(
    "text, says",
    [
        ("# END SOLUTION", "f:1: END SOLUTION without a BEGIN"),
        ("# BEGIN SOLUTION step=1\nx", "f:1: BEGIN SOLUTION is never ended"),
        (
            "# BEGIN SOLUTION step=1\n# BEGIN SOLUTION step=2\n# END SOLUTION",
            "f:2: BEGIN SOLUTION ins",
        ),
        ("# BEGIN SOLUTION\n# END SOLUTION", "f:1: BEGIN SOLUTION needs step=NUMBER"),
        ("# BEGIN SOLUTION step=1 stup=x\n# END SOLUTION", "'stup=x' is not one of step, section"),
        ("# BEGIN SOLUTION step=1 step=2\n# END SOLUTION", "step is given twice"),
        ("# BEGIN SOLUTION step=1\n# END SOLUTION step=1", "takes nothing"),
        ("# begin solution step=1", "f:1: this looks like a marker"),
        ("#BEGINNING OF SOLUTION\nBEGIN SOLUTION", None),
        ("x = 1  # BEGIN SOLUTION step=1", "f:1: this looks like a marker"),
        ("# BEGIN SOLUTIONS step=1", "f:1: this looks like a marker"),
        ("# BEGIN SOLUTION step=1 section='2. it\n# END SOLUTION", "No closing quotation"),
    ],
)
def test_markers_that_are_not_in_order_are_refused(text, says):
    if says is None:
        assert split(text, "f")[1] == []
    else:
        with pytest.raises(MarkerError, match=re.escape(says)):
            split(text, "f")


def test_a_stub_keeps_the_indent_and_may_be_given():
    text, regions = split(
        'def f():\n    a = 1\n    # BEGIN SOLUTION step=7 section="7. It"\n'
        '    return a\n    # END SOLUTION\n# BEGIN SOLUTION step=1 stub=""\n'
        "B = 2\n# END SOLUTION\n",
        "f",
    )
    scope: dict = {}
    exec(text, scope)
    with pytest.raises(
        NotImplementedError, match="step 7 is not written yet: write f in f; see '7. It' in"
    ):
        scope["f"]()
    assert "B" not in scope and [r.lines for r in regions] == [("    return a",), ("B = 2",)]


@pytest.mark.parametrize("lab", LABS, ids=lambda p: p.name)
def test_sections_of_markers_and_steps_are_headings_of_the_readme(lab):
    headings = set(re.findall(r"^## (.*)$", (lab / "README.md").read_text("utf-8"), re.M))
    regions = split_file(load_lab(lab).kernels)[1]
    assert regions
    assert {r.section for r in regions if r.stub} <= headings
    assert {s.section for s in load_lab(lab).steps} <= headings
    assert {r.step for r in regions} <= {s.number for s in load_lab(lab).steps}


def test_what_students_get(made):
    names = {
        p.relative_to(made.folder).as_posix()
        for p in made.folder.rglob("*")
        if p.is_file() and ".git/" not in p.as_posix()
    }
    assert {
        "README.md",
        "noxfile.py",
        "LICENSE",
        "starter.json",
        ".github/workflows/ci.yml",
        "labs/ffnn/kernels.py",
        "labs/ffnn/spec.py",
    } <= names
    assert not [n for n in names if re.search(r"solutions|hidden|infra|conformance|tests/", n)]
    text = "".join((made.folder / n).read_text("utf-8") for n in names)
    assert "SOLUTION" not in text and "{version}" not in text and "{kernels}" not in text
    compile((made.folder / "noxfile.py").read_text("utf-8"), "noxfile.py", "exec")
    assert made.leaks == []


#: patterns of what a reader of one dialect has no use for: names of the other one
EITHER = r"(newer|older|other) dialect|two dialects|both dialects|--dialect\b"
OF_THE_OTHER = {
    "beta1": (
        EITHER,
        r"\bimport nki\b|kernels_nki|_nki\.(py|ipynb)|\baccumulate=(k >|not |True|False)",
    ),
    "nki": (
        EITHER,
        r"\bneuronxcc\b|(?<!\w)kernels\.py\b|\bbeta ?1\b",
        r"affine_range|sequential_range|par_dim|mod_alloc|mgrid|\bncc\.",
        r"\bnl\.(load|store|copy|zeros|load_transpose2d)\b",
    ),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_starter_has_no_word_of_the_other_dialect(dialect, tmp_path):
    """What a student reads: pages, kernels, notebooks, workflows, and the testers' help."""
    folder = export(ROOT, tmp_path / "out", dialect=dialect).folder
    (other,) = (d for d in DIALECTS if d != dialect)
    names = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
    read = [n for n in names if not n.endswith(".svg") and n != MANIFEST]
    assert len(read) > 20 and not [n for n in names if Path(n).name == KERNELS[other]]
    texts = {n: (folder / n).read_text("utf-8") for n in read}
    tester = folder / "labs" / "vecadd" / "tester.py"
    texts["tester.py --help"] = subprocess.run(
        [sys.executable, str(tester), "--help"],
        cwd=tester.parent,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "shared")},
    ).stdout
    found = [
        f"{name}: {match[0]}"
        for name, text in texts.items()
        for word in OF_THE_OTHER[dialect]
        for match in re.finditer(word, text)
    ]
    assert found == []
    chip = {"beta1": "trn1", "nki": "trn2"}
    for lab in ("vecadd", "ffnn", "conv2d"):
        figures = re.findall(r"NAME_OF_CASE, (.*?)\)", texts[f"labs/{lab}/writeup.md"])
        assert set(figures) == {chip[dialect]}, lab
    of_labs = {n: t for n, t in texts.items() if n.startswith("labs/") and n.endswith(".md")}
    assert len(of_labs) > 3 and [n for n, t in of_labs.items() if chip[other] in t] == []
    handout = texts["labs/vecadd/README.md"]
    assert f"`{KERNELS[dialect]}` | **the file you edit**" in handout and "<details" in handout


@pytest.mark.parametrize("course", COURSES)
def test_a_course_decides_dialect_and_target_of_a_starter(course, tmp_path, monkeypatch):
    row = COURSES[course]
    folder = export(ROOT, tmp_path / "out", ["vecadd"], row.dialect, course=course).folder
    lab = folder / "labs" / "vecadd"
    assert (lab / row.kernels).is_file()
    monkeypatch.delenv("NKI_COURSE", raising=False)
    monkeypatch.chdir(lab)
    found = chosen().course
    assert found is not None and found.name == course
    assert course_dialect() == row.dialect


@pytest.mark.parametrize(
    "text, says",
    [
        ("<!-- nki -->a", "is never closed"),
        ("a<!-- /nki -->", "without a beginning"),
        ("<!-- nki -->a<!-- beta1 -->b<!-- /beta1 --><!-- /nki -->", "inside of <!-- nki -->"),
        ("```sh\n<!-- nki -->\n```\n<!-- /nki -->", "in a block of code"),
        ("* <!-- nki -->[a](b)<!-- /nki -->", "is raw HTML"),
        ("<!-- nki -->\na\n<!-- /nki --> b", "is raw HTML"),
    ],
)
def test_marks_of_a_handout_that_are_not_in_order_are_refused(text, says):
    with pytest.raises(SpecError, match=says):
        render(text, "nki", "page.md")


def test_a_handout_is_rendered_for_one_dialect():
    text = (
        "Run `kernels.py`<!-- both --> or the other<!-- /both -->.\n\n<!-- beta1 -->\nOlder.\n"
        "<!-- /beta1 -->\n\n<!-- nki -->\n<details><summary>In the newer dialect</summary>\n\n"
        "Newer: `python tester.py --dialect nki`.\n\n</details>\n<!-- /nki -->\n\n<!-- other -->\n"
    )
    assert render(text, "beta1") == "Run `kernels.py`.\n\nOlder.\n\n<!-- other -->\n"
    assert render("--host my-trn1", "beta1") == "--host my-trn1"
    assert render("--host my-trn1", "nki") == "--host my-trn2"  # which that dialect is for
    assert render(text, "nki") == (
        "Run `kernels_nki.py`.\n\nNewer: `python tester.py`.\n\n<!-- other -->\n"
    )


def links(page: Path) -> list[tuple[Path, str]]:
    """Return (file, section) of what a page links to, or names as a notebook."""
    text = page.read_text("utf-8")
    found = [
        target.partition("#")
        for target in re.findall(r"\]\(([^)\s]+)\)", text)
        if not re.match(r"\w+:", target)
    ]
    return [(page.parent / name if name else page, anchor) for name, _, anchor in found] + [
        (page.parent / name, "") for name in re.findall(r"[\w/]*\btour\w*\.ipynb", text)
    ]


@pytest.mark.sample(4)
@pytest.mark.parametrize("dialect", ["beta1", "nki"])
@pytest.mark.parametrize("lab", [None, *(p.name for p in LABS)])
def test_no_link_of_a_starter_leads_nowhere(lab, dialect, tmp_path):
    if lab and dialect not in load_lab(ROOT / "labs" / lab).dialects:
        with pytest.raises(SpecError, match="not written in the dialect"):
            export(ROOT, tmp_path / "out", [lab], dialect)
        return
    made = export(ROOT, tmp_path / "out", [lab] if lab else [], dialect)
    assert made.leaks == []
    pages = sorted(made.folder.rglob("*.md"))
    assert len(pages) > 1
    targets = [(page, *link) for page in pages for link in links(page)]
    assert [str(target) for _, target, _ in targets if not target.is_file()] == []
    for page, target, anchor in targets:
        headings = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.M) if anchor else ()
        assert not anchor or anchor in map(slug, headings), (page, anchor)
    assert any(target.suffix == ".ipynb" for _, target, _ in targets)


def test_the_section_of_another_lab_that_a_handout_needs_comes_along(tmp_path):
    folder = export(ROOT, tmp_path / "out", ["conv2d"]).folder
    engine = (folder / "docs" / "ffnn-the-machine.md").read_text("utf-8")
    assert "systolic" in engine and "](machine.md#a-chip-and-a-core)" in engine
    assert "SBUF" in (folder / "docs" / "machine.md").read_text("utf-8")
    assert not (folder / "labs" / "vecadd").exists()


def test_a_section_of_a_page_of_docs_is_called_after_the_page(tmp_path):
    folder = export(ROOT, tmp_path / "out", ["moe", "puzzles"], "nki").folder
    pages = {p.name for p in (folder / "docs").glob("*.md")}
    assert "gather-scatter-what-it-costs.md" in pages
    assert not [p for p in pages if p.startswith("docs-")]


@pytest.mark.parametrize(
    "link", ["../other/tester.py", "../other/README.md", "../no.svg", "../other/README.md#nothing"]
)
def test_a_handout_that_links_to_what_students_do_not_get_is_refused(link, tmp_path):
    (tmp_path / "labs" / "other").mkdir(parents=True)
    for name in ("README.md", "tester.py"):
        (tmp_path / "labs" / "other" / name).write_text("# Other\n")
    with pytest.raises(SpecError, match="other|no.svg"):
        bring_linked(tmp_path, {"labs/mine/README.md": f"See [that]({link}).".encode()})


def test_an_export_is_the_same_bytes_again(made, tmp_path):
    export(ROOT, tmp_path / "again")
    assert (
        commit(tmp_path / "again")
        == subprocess.run(
            ["git", "-C", str(made.folder), "rev-parse", "HEAD"],
            text=True,
            check=True,
            capture_output=True,
        ).stdout.strip()
    )


@pytest.mark.full
def test_the_other_dialect_is_exported_without_solutions_too(tmp_path):
    made = export(ROOT, tmp_path / "nki", dialect="nki")
    assert made.leaks == [] and {r.step for r in made.regions if "ffnn" in r.file} == {2, 3, 4}
    for lab in LABS:
        text = (made.folder / "labs" / lab.name / "kernels_nki.py").read_text("utf-8")
        assert "SOLUTION" not in text and "is not written yet" in text


def test_testers_of_a_starter_take_its_dialect(tmp_path, monkeypatch):
    """A student of a class in `nki` writes kernels_nki.py, and no flag says so."""
    folder = tmp_path / "out"
    export(ROOT, folder, dialect="nki")
    kernels = folder / "labs" / "vecadd" / "kernels_nki.py"
    text = kernels.read_text(encoding="utf-8")
    begin = text.index("    raise NotImplementedError(\n        'step 4")
    kernels.write_text(text[:begin] + "    raise AssertionError('this one')\n", encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "tester.py", "--kernel", "transpose", "-n", "128"],
        cwd=kernels.parent,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "shared")},
    )
    assert run.returncode == 1 and "this one" in run.stdout
    monkeypatch.chdir(kernels.parent)
    assert (course_dialect(), default_dialect()[0]) == ("nki", "nki")
    monkeypatch.chdir(ROOT)
    assert course_dialect() == "" and default_dialect()[0] == "beta1"
    (folder / "pyproject.toml").unlink()  # it says the course; without it the manifest decides
    monkeypatch.setattr("nkisim.course._of_folder", nkisim.course._of_folder.__wrapped__)
    assert course_dialect(kernels.parent) == "nki"
    (folder / "starter.json").write_text("{", encoding="utf-8")
    assert course_dialect(kernels.parent) == ""


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt", reason="its runner is Ubuntu, and bash is that of WSL here")
def test_the_commands_of_the_classroom_workflow_tell_solved_from_not(made, tmp_path):
    """What its runner does: the command in a shell in the repository; 0 is the point."""
    repository = tmp_path / "student"
    shutil.copytree(made.folder, repository, ignore=shutil.ignore_patterns(".git"))
    steps = yaml.safe_load((repository / ".github/workflows/classroom.yml").read_text())
    (command,) = [
        s["with"]["command"] for s in steps["jobs"]["labs"]["steps"] if s.get("id") == "vecadd"
    ]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "shared"),
        "COLUMNS": "120",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    env.pop("LABKIT_LABS", None)

    def run():
        return subprocess.run(
            ["bash", "-c", command], cwd=repository, env=env, text=True, capture_output=True
        )

    unsolved = run()
    assert unsolved.returncode == 1 and "Traceback" not in unsolved.stderr, unsolved
    for file in (ROOT / "labs" / "vecadd").glob("*.py"):
        shutil.copy(file, repository / "labs" / "vecadd")
    solved = run()
    assert solved.returncode == 0, solved.stdout + solved.stderr


def test_kernels_without_markers_are_not_published(tmp_path):
    import shutil

    for name in ("labs", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, tmp_path / name)
    path = tmp_path / "labs" / "vecadd" / "kernels.py"
    path.write_text(re.sub(r".*(BEGIN|END) SOLUTION.*\n", "", path.read_text()))
    with pytest.raises(SpecError, match="would be published as it is"):
        export(tmp_path, tmp_path / "out", ["vecadd"])


def test_an_export_to_a_folder_with_files_is_refused(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(SpecError, match="not empty"):
        export(ROOT, tmp_path)
    with pytest.raises(SpecError, match="no lab 'vecad'"):
        export(ROOT, tmp_path / "new", ["vecad"])


def first_cases(lab, step):
    """Return a small case of each kernel of a step."""
    cases = {}
    for case in sorted(
        (c for c in lab.cases if c.name in step.cases and "quick" in c.fleets),
        key=lambda c: sum(t.shape[0] * t.shape[-1] for t in c.inputs),
    ):
        cases.setdefault(case.kernel, case)
    return list(cases.values())


def test_the_first_run_is_a_board_and_no_failure(made, tmp_path):
    folder = Path(shutil.copytree(made.folder, tmp_path / "mine"))

    def simulate(*more):
        return subprocess.run(
            [sys.executable, "-m", "labkit", "simulate", "vecadd", *more],
            cwd=folder,
            text=True,
            capture_output=True,
        )

    first = simulate()
    assert first.returncode == 0 and len(first.stdout.splitlines()) < 15, first.stdout
    assert "not started" in first.stdout and "failed on" not in first.stdout
    assert simulate("--finished").returncode == 1
    kernels = load_lab(folder / "labs" / "vecadd").kernels
    wrong = "\n\n@nki.jit\ndef matrix_transpose(matrix):\n    return matrix\n"
    kernels.write_text(kernels.read_text("utf-8") + wrong, "utf-8")
    begun = simulate()
    assert begun.returncode == 1 and "failing" in begun.stdout, begun.stdout


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [p.name for p in LABS])
def test_each_step_says_which_section_and_passes_with_its_solution(made, name, tmp_path):
    staff = load_lab(ROOT / "labs" / name)
    folder = made.folder
    if "beta1" not in staff.dialects:
        folder = export(ROOT, tmp_path / "out", [name], staff.dialect).folder
    lab = load_lab(folder / "labs" / name)
    stubs, solved = lab.kernels, staff.kernels.read_text("utf-8")
    for step in lab.steps[:: max(1, len(lab.steps) // 5)]:
        cases = first_cases(lab, step)
        if not cases:
            continue
        runs = [(c, "trn2" if "trn2" in c.targets else c.targets[0]) for c in cases]
        outcomes = list(evaluate(lab, runs, kernels=stubs))
        functions = re.findall(r"^def (\w+)", solved, re.M)
        for outcome in outcomes:
            said = re.search(
                r"is not written yet: write (\w+) in kernels(?:_nki)?\.py; see '", outcome.text
            )
            assert said and said[1] in functions, outcome.text
        console = Console(record=True, width=100)
        show_steps(console, lab, outcomes)
        assert "not started" in console.export_text()
        path = tmp_path / f"kernels_{step.number}.py"
        path.write_text(split(written(solved, step.number), "f")[0])
        for outcome in evaluate(lab, runs, kernels=path):
            assert outcome.status == PASSED, (step, outcome.case.name, outcome.text)


def written(text, last):
    """Return staff's kernels without the markers of the steps up to `last`: they are written."""
    kept, done = [], False
    for line in text.splitlines():
        found = re.search(r"BEGIN SOLUTION step=(\d+)", line)
        if found:
            done = int(found[1]) <= last
        if not (done and "SOLUTION" in line):
            kept.append(line)
    return "\n".join(kept) + "\n"


SECRET = """    strip = nl.ndarray((nl.par_dim(tile), rows), dtype=matrix.dtype, buffer=nl.sbuf)
    for r in nl.affine_range(rows // tile):
        block = nl.load(matrix[r * tile:(r + 1) * tile, c * tile:(c + 1) * tile])
        strip[:, r * tile:(r + 1) * tile] = nisa.nc_transpose(block)
"""


@pytest.fixture
def secrets():
    """Return what a solution must not leave behind."""
    return secrets_of([("kernels.py:1", tuple(SECRET.splitlines()))], ["x = 1\n"])


@pytest.mark.parametrize(
    "file, text",
    [
        ("README.md", "Try\n\n    block=nl.load(matrix[r*tile:(r+1)*tile,c*tile:(c+1)*tile])\n"),
        ("a.py", "# strip[:, r * tile:(r + 1) * tile] = nisa.nc_transpose(block)\n"),
        (
            "b.py",
            "for i in nl.affine_range(n // t):\n    b = nl.load(m[i * t:(i + 1) * t, "
            "k * t:(k + 1) * t])\n    s[:, i * t:(i + 1) * t] = nisa.nc_transpose(b)\n",
        ),
        (
            "c.md",
            "```python\nfor i in nl.affine_range(n // t):\n    b = nl.load(m[i * t:(i + 1) * t, "
            "k * t:(k + 1) * t])\n    s[:, i * t:(i + 1) * t] = nisa.nc_transpose(b)\n```\n",
        ),
        ("d.ipynb", json.dumps({"source": [SECRET]})),
        ("x.pyc", "anything"),
    ],
)
def test_leaks_are_found_in_any_file(tmp_path, secrets, file, text):
    (tmp_path / "fine.py").write_text("y = nl.load(x[0:128])\n")
    assert find_leaks(tmp_path, secrets) == []
    (tmp_path / file).write_text(text)
    assert find_leaks(tmp_path, secrets)


def test_leaks_are_found_in_archives_and_in_history(tmp_path, secrets):
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as wheel:
        wheel.writestr("labkit/x.py", SECRET)
    assert "w.whl!labkit/x.py" in str(find_leaks(tmp_path, secrets)[0])
    (tmp_path / "w.whl").unlink()
    (tmp_path / "old.py").write_text(SECRET)
    commit(tmp_path)
    (tmp_path / "old.py").unlink()
    assert "git blob" in str(find_leaks(tmp_path, secrets)[0])


def test_an_update_replaces_what_is_the_staffs_and_nothing_else(tmp_path):
    here, new = tmp_path / "here", tmp_path / "new"
    export(ROOT, here, ["vecadd"])
    edited = "# my work\n"
    (here / "labs/vecadd/kernels.py").write_text(edited)
    (here / "labs/vecadd/tester.py").write_text("# changed by a student\n")
    (here / "notes.txt").write_text("mine")
    export(ROOT, new, ["vecadd"])
    fixed = (new / "labs/vecadd/spec.py").read_text() + "# a fix\n"
    manifest = json.loads((new / "starter.json").read_text())
    for name, text in (
        ("labs/vecadd/spec.py", fixed),
        ("labs/vecadd/kernels.py", "# theirs\n"),
        ("extra.md", "new\n"),
    ):
        (new / name).write_text(text)
        manifest["files"][name] = __import__("hashlib").sha256(text.encode()).hexdigest()
    (new / "starter.json").write_text(json.dumps(manifest))
    said = apply(here, new)
    assert (here / "labs/vecadd/kernels.py").read_text() == edited
    assert (here / "labs/vecadd/spec.py").read_text() == fixed
    assert (here / "labs/vecadd/tester.py.yours").read_text() == "# changed by a student\n"
    assert (here / "notes.txt").exists() and (here / "extra.md").exists()
    assert len(said) == 4 and apply(here, new) == []


@pytest.mark.parametrize("theirs", ["unix", "windows"])
def test_line_ends_of_a_checkout_are_no_change(theirs, tmp_path):
    """Git for Windows writes \\r\\n into the files of a clone, if nothing tells it otherwise."""
    here, new = tmp_path / "here", tmp_path / "new"
    for folder in (here, new) if theirs == "windows" else (here,):
        export(ROOT, folder, ["vecadd"])
        for path in (p for p in folder.rglob("*") if p.is_file()):
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    if theirs == "unix":
        export(ROOT, new, ["vecadd"])
    assert apply(here, new) == []
    (here / "labs/vecadd/tester.py").write_bytes(b"# changed by a student\r\n")
    assert apply(here, new) == [
        "labs/vecadd/tester.py was changed by you: your file is now labs/vecadd/tester.py.yours",
        "labs/vecadd/tester.py is updated",
    ]


def test_git_keeps_the_line_ends_of_the_starter_on_windows(made, tmp_path):
    here = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "-q", "-c", "core.autocrlf=true", str(made.folder), str(here)], check=True
    )
    assert b"\r" not in (here / "noxfile.py").read_bytes()


def test_an_update_that_is_damaged_or_writes_outside_is_refused(tmp_path):
    here, new = tmp_path / "here", tmp_path / "new"
    export(ROOT, here, ["vecadd"])
    export(ROOT, new, ["vecadd"])
    (new / "noxfile.py").write_text("cut off")
    with pytest.raises(SpecError, match="damaged: noxfile.py"):
        apply(here, new)
    manifest = json.loads((new / "starter.json").read_text())
    manifest["files"]["../evil.py"] = ""
    (new / "starter.json").write_text(json.dumps(manifest))
    with pytest.raises(SpecError, match="outside"):
        apply(here, new)
    with pytest.raises(SpecError, match="https, not http"), opened("http://example.com/x.zip"):
        pass
