"""The conformance program on checkouts made here: what is counted as what, and when it fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAD = """\
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
"""
ADD = """
@nki.jit
def vector_add_naive(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x, y = nl.load(a.reshape((128, 1))), nl.load(b.reshape((128, 1)))
    nl.store(out.reshape((128, 1)), x + y)
    return out
"""
TRANSPOSE = """
@nki.jit
def matrix_transpose(m):
    out = nl.ndarray((m.shape[1], m.shape[0]), dtype=m.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m.shape[0] // 128):
        for j in nl.affine_range(m.shape[1] // 128):
            tile = nl.load(m[i * 128:(i + 1) * 128, j * 128:(j + 1) * 128])
            nl.store(out[j * 128:(j + 1) * 128, i * 128:(i + 1) * 128], nisa.nc_transpose(tile))
    return out
"""
REFUSED = TRANSPOSE.replace("i * 128:(i + 1) * 128, j * 128", "i * 128:(i + 2) * 128, j * 128", 1)
CONV_BY_HAND = """
@nki.jit
def fused_conv2d_maxpool(X, W, bias, pool_size=1):
    raise RuntimeError("write this")
"""


def write(folder: Path, **files: str) -> Path:
    """Write files (`__` in a name for `/`) with the usual imports before them; return `folder`."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + textwrap.dedent(text))
    return folder


def commit(folder: Path) -> str:
    """Make a folder a git checkout and return its commit, 7 digits."""

    def git(*words: str) -> str:
        return subprocess.run(
            [
                "git",
                "-C",
                str(folder),
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@example.org",
                *words,
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "one")
    return git("rev-parse", "HEAD")[:7]


def run(
    sources: Path, *options: str, results: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the program as a maintainer does."""
    path = os.pathsep.join([str(ROOT / "tools"), str(ROOT / "shared")])
    more = ["--results", str(results or sources.parent / "last.json")]
    return subprocess.run(
        [sys.executable, "-m", "conformance", "--sources", str(sources), *more, *options],
        capture_output=True,
        text=True,
        cwd=sources.parent,
        env={**os.environ, "PYTHONPATH": path},
        timeout=300,
    )


def outcomes(results: Path, mode: str = "quick") -> dict[str, str]:
    """Return "checkout case" -> "outcome: reason" of the last run."""
    cases = json.loads(results.read_text())[f"{mode} cases"]
    return {
        f"{job['checkout']} {r['case']}": f"{r['outcome']}: {r['reason']}"
        for jobs in cases.values()
        for job in jobs
        for r in job["results"]
    }


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> tuple[Path, Path]:
    """Return sources with two checkouts of a course's layout, run, and the results."""
    sources = tmp_path_factory.mktemp("course") / "sources"
    good = write(
        sources / "one+asst",
        part1__kernels=ADD + TRANSPOSE,
        part1__run_benchmark="",
        part2__conv2d=CONV_BY_HAND,
    )
    commit(good)
    write(
        sources / "two+asst",
        part1__run_benchmark="",
        part2__conv2d="def fused_conv2d_maxpool(:",
        part1__kernels=ADD.replace("x + y", "x - y") + REFUSED,
    )
    results = sources.parent / "last.json"
    done = run(sources, "--suite", "CS149 2025", results=results)
    assert done.returncode == 0, done.stderr
    return sources, results


def test_right_wrong_refused_and_unwritten_kernels_are_told_apart(course):
    got = outcomes(course[1])
    assert got["one+asst part1/kernels.py vector_add_naive 128"] == "passed: "
    assert got["one+asst part1/kernels.py matrix_transpose 256x512"] == "passed: "
    wrong = got["two+asst part1/kernels.py vector_add_naive 128"]
    assert wrong.startswith("failed: 128 of 128 elements are wrong")
    refused = got["two+asst part1/kernels.py matrix_transpose 256x512"]
    assert refused.startswith("refused: NKI-")
    own = [why for case, why in got.items() if "one+asst part2" in case]
    assert own and set(own) == {"not here: its own RuntimeError: write this"}
    unwritten = {why for case, why in got.items() if "two+asst part2" in case}
    assert len(unwritten) == 1 and unwritten.pop().startswith("not here: SyntaxError")


def test_a_refusal_has_its_place_in_the_checkout(course):
    cases = json.loads(course[1].read_text())["quick cases"]["CS149 2025"]
    places = [r["place"] for job in cases for r in job["results"] if r["outcome"] == "refused"]
    assert places and all(p.startswith("two+asst/part1/kernels.py:") for p in places)


def test_checkouts_stay_as_they_are(course):
    assert not list(course[0].rglob("__pycache__"))


def test_counts_are_by_commit(course):
    counts = json.loads(course[1].read_text())["quick"]["CS149 2025"]
    assert len(counts) == 2 and "" in counts  # one is no git checkout


@pytest.fixture
def accepted(tmp_path, monkeypatch):
    """Return a function that runs in this process with counts.json in `tmp_path`."""
    from conformance import cli, counts

    monkeypatch.setattr(counts, "ACCEPTED", tmp_path / "counts.json")

    def start(*options: str) -> int:
        return cli.main(
            [
                "--sources",
                str(tmp_path / "sources"),
                "--suite",
                "CS149 2025",
                "--results",
                str(tmp_path / "last.json"),
                *options,
            ]
        )

    return start


@pytest.mark.full
def test_worse_than_accepted_is_exit_1(tmp_path, accepted, monkeypatch, capsys):
    from conformance import layouts

    monkeypatch.setattr(layouts, "commit_of", lambda checkout: "1234567")
    checkout = write(
        tmp_path / "sources" / "a+b", part1__kernels=ADD, part1__run_benchmark="", part2__conv2d=""
    )
    assert accepted("--accept") == 0
    assert json.loads((tmp_path / "counts.json").read_text())["quick"] == {
        "CS149 2025": {"1234567": {"passed": 1, "refused": 0, "failed": 0, "not here": 0}}
    }
    assert accepted() == 0
    write(checkout, part1__kernels=ADD.replace("x + y", "x - y"))
    assert accepted() == 1
    text = capsys.readouterr().out
    assert "passed was 1, is 0" in text and "0 (1)" in text


def test_a_finding_is_counted_once_and_listed(tmp_path, accepted, capsys):
    hole = ADD.replace(
        "nl.store(out.reshape((128, 1)), x + y)",
        "nl.store(out.reshape((128, 1))[0:64], (x + y)[0:64])",
    )
    write(
        tmp_path / "sources" / "a+b", part1__kernels=hole, part1__run_benchmark="", part2__conv2d=""
    )
    assert accepted("--findings") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "error NKI-O04 a+b/part1/kernels.py:" in text
    assert "error NKI-O04 1" in text


TESTS = """
import unittest
import pytest

@nki.jit(mode="simulation")
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, 2 * nl.load(x))
    return out

class Tests(unittest.TestCase):
    def test_right(self):
        assert (double(np.ones((4, 4), np.float32)) == 2).all()

    def test_wrong(self):
        self.assertEqual(double(np.ones((4, 4), np.float32)).sum(), 48)

    def test_refused(self):
        double(np.ones((129, 4), np.float32))

    def test_crash(self):
        [][0]

def test_not_modelled():
    import nki.collectives
    nki.collectives.all_reduce

@pytest.mark.skip(reason="needs a chip")
def test_skipped():
    pass

@pytest.mark.xfail(reason="products of integers are float32")
def test_it_knows_to_fail():
    assert False

@pytest.mark.xfail(reason="a bug of another simulator")
def test_that_passes_here():
    pass
"""
SCRIPT = """
if __name__ == "__main__":
    from torch_xla.core import xla_model as xm
    print("they match" if xm.xla_device().type == "cpu" else "they differ")
"""


@pytest.mark.full
def test_suites_of_tests_and_scripts(tmp_path):
    pytest.importorskip("torch")
    sdk = write(
        tmp_path / "sources" / "aws-neuron+aws-neuron-sdk@v2.26.1",
        nki__test__test_double=TESTS,
        nki__test__test_absent="import no_such_package",
        nki__examples__one__one_torch=SCRIPT,
        nki__examples__two__two_torch=SCRIPT.replace("they match", "they differ"),
    )
    done = run(sdk.parent, "--suite", "docs 2.26", "--suite", "doc examples")
    assert done.returncode == 0, done.stderr
    where = "aws-neuron+aws-neuron-sdk@v2.26.1 nki"
    got = {case.removeprefix(where): why for case, why in outcomes(tmp_path / "last.json").items()}
    file = "/test/test_double.py"
    assert got[f"{file}::Tests::test_right"] == "passed: "
    assert got[f"{file}::Tests::test_wrong"].startswith("failed: AssertionError: ")
    assert got[f"{file}::Tests::test_refused"].startswith("refused: NKI-P01")
    assert got[f"{file}::Tests::test_crash"].startswith("failed: crash: IndexError")
    assert "all_reduce exists in NKI and is not modelled" in got[f"{file}::test_not_modelled"]
    assert got[f"{file}::test_not_modelled"].startswith("not here")
    assert got[f"{file}::test_skipped"].startswith("not here: skipped")
    assert (
        got[f"{file}::test_it_knows_to_fail"]
        == "not here: it says that it fails: products of integers are float32"
    )
    assert got[f"{file}::test_that_passes_here"] == "passed: "
    assert got["/test/test_absent.py"].startswith("not here: ModuleNotFoundError")
    assert got["/examples/one/one_torch.py"] == "passed: "
    assert got["/examples/two/two_torch.py"] == "failed: it says: they differ"


def ended(tmp_path: Path, text: str, seconds: int) -> dict[str, str]:
    """Run a file of tests as one job and return what became of its cases."""
    from conformance import pool
    from conformance.layouts import Job

    root = write(tmp_path / "a+b", test_it=text)
    job = Job(
        "s",
        root,
        "",
        "test_it.py",
        "tests",
        root / "test_it.py",
        "trn1",
        seconds,
        detail={"options": []},
    )
    (done,) = pool.Pool(1).run([job])
    return {r.case: f"{r.outcome}: {r.reason}" for r in done.results}


def test_what_was_finished_before_a_crash_counts(tmp_path):
    assert ended(
        tmp_path,
        """
        import os
        def test_one(): pass
        def test_two(): os._exit(3)
        def test_three(): pass
    """,
        300,
    ) == {
        "test_it.py::test_one": "passed: ",
        "test_it.py::test_two": "failed: the process that ran it ended with exit code 3",
        "test_it.py::test_three": "failed: the process that ran it ended with exit code 3",
    }


SAMPLED = """
import time
import pytest

@nki.jit
def add(a, wrong):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a) + (2 if wrong else 1))
    return out

@pytest.mark.parametrize("n", range(20))
def test_right(n):
    a = np.full((4, 4), n, np.float32)
    assert (nki.simulate_kernel(add, a, False) == a + 1).all()

@pytest.mark.parametrize("n", range(20))
def test_wrong_of_one_size(n):
    a = np.full((4, 4), n, np.float32)
    assert (nki.simulate_kernel(add, a, n == 13) == a + 1).all()

def test_long():
    while True:
        time.sleep(0.01)

def test_whose_own_mistake_it_is():
    {}["no such key"]
"""


def test_a_result_that_was_cut_off_is_a_failure_of_that_case_alone(tmp_path):
    """A child that was ended while it wrote, or a full disk, must not end the run of all."""
    from conformance import layouts, pool, suites

    suite = suites.Suite("some", "", "trn2", (suites.Part("tests", ("test_*.py",)),), ("an/owner",))
    checkout = write(tmp_path / "sources" / "an+owner", test_some="def test_a(): pass")
    (job,) = layouts.jobs(suite, checkout, full=False)
    out = tmp_path / "out"
    out.write_text('{"expected": ["a", "b"]}\n{"case": "a", "outcome": "passed"}\n{"case": "b", "o')
    got = {r.case: r.outcome for r in pool._read(job, out, "", "")}
    assert got == {"a": "passed", "b": "failed"}
    out.write_text('{"expected": ["a", ')
    (lost,) = pool._read(job, out, "", "")
    assert (lost.case, lost.outcome) == (job.name, "failed")
    assert lost.reason == "its results were cut off"


@pytest.mark.full
def test_a_sample_of_each_function_is_counted_by_functions(tmp_path):
    from conformance import counts, layouts, pool, suites

    part = suites.Part("tests", ("test_*.py",), sample=3, each=2)
    suite = suites.Suite("some", "", "trn2", (part,), ("an/owner",))
    checkout = write(tmp_path / "sources" / "an+owner", test_some=SAMPLED)
    (job,) = layouts.jobs(suite, checkout, full=False)
    (done,) = pool.Pool(1).run([job])
    got = {r.case.partition("::")[2]: (r.outcome, r.reason) for r in done.results}
    assert [n for n in got if "right" in n] == ["test_right[0]", "test_right[6]", "test_right[13]"]
    assert got["test_long"] == ("failed", "not finished in 2 s")
    assert got["test_whose_own_mistake_it_is"][0] == "not here"
    count = counts.of([done])
    assert (count["some"][""]["passed"], count["some"][""]["failed"]) == (5, 2)
    by_function = count["some: functions"][""]
    assert {k: by_function[k] for k in ("passed", "failed", "not here")} == {
        "passed": 1,
        "failed": 2,
        "not here": 1,
    }
    (whole,) = layouts.jobs(suite, checkout, full=True)
    assert (whole.detail["sample"], whole.detail["each"]) == (0, 2)


def test_a_smaller_sample_is_one_of_the_suites_that_have_samples_and_is_counted_apart(tmp_path):
    from conformance import cli, layouts, suites

    sampled = suites.Part("tests", ("test_*.py",), sample=3, each=2)
    suite = suites.Suite(
        "some", "", "trn2", (sampled, suites.Part("tests", ("a.py",))), ("an/owner",)
    )
    checkout = write(tmp_path / "sources" / "an+owner", test_some=SAMPLED)
    for sample, size in ((1, 1), (0, 3)):
        (job,) = layouts.jobs(cli._sampled(suite, sample), checkout, full=False)
        assert (job.detail["sample"], job.detail["sampled"]) == (size, True)
    assert cli._sampled(suite, 1).parts[1].sample == 0
    given = ["--sources", str(tmp_path)]
    modes = [cli._mode(cli._parse(given + more)) for more in ([], ["--sample", "1"], ["--full"])]
    assert modes == ["quick", "sample 1", "full"]
    with pytest.raises(SystemExit):
        cli._parse([*given, "--sample", "1", "--full"])


@pytest.mark.full
def test_what_does_not_end_is_stopped(tmp_path):
    assert ended(tmp_path, "import time; time.sleep(600)", 1) == {
        "test_it.py": "failed: not finished after 1 s"
    }


@pytest.mark.parametrize(
    "options, text",
    [
        (("--suite", "CS194 2025"), "did you mean 'CS149 2025'"),
        (
            ("--suite", "samples"),
            "git clone https://github.com/aws-neuron/nki-samples "
            "DIR/aws-neuron+nki-samples@0898a77 && git -C",
        ),
        (("--suite", "CS149 2024"), "any checkout DIR/owner+name that has part1/vec_add.py"),
    ],
)
def test_what_cannot_run_says_how_it_could(tmp_path, options, text):
    (tmp_path / "sources").mkdir()
    done = run(tmp_path / "sources", *options)
    assert done.returncode == 2
    assert text in done.stderr and "Traceback" not in done.stderr


def test_a_folder_that_is_not_there(tmp_path):
    done = run(tmp_path / "sources")
    assert done.returncode == 2 and "there is no folder" in done.stderr


# -- what is committed -----------------------------------------------------------------------------


def test_the_accepted_counts_are_those_that_the_document_names():
    from conformance import counts, outcome, suites

    from nkisim.lint.constructs import RULES  # with those of its own

    text = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    assert f"`{counts.ACCEPTED.relative_to(ROOT).as_posix()}`" in text
    named = text.partition("The file has counts of the suites ")[2].partition(";")[0]
    quick = counts.read(counts.ACCEPTED, "quick")
    assert set(re.findall(r"`([^`]+)`", named)) == {s for s in quick if ": functions" not in s}
    assert {s.removesuffix(": functions") for s in quick} <= {s.name for s in suites.SUITES}
    for some in quick.values():
        for commit, count in some.items():
            assert re.fullmatch("[0-9a-f]{7}", commit) and count[outcome.PASSED]
            for name in counts.findings(count):
                severity, _, rule = name.partition(" ")
                assert severity in ("warning", "error") and rule in RULES
