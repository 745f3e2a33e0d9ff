"""`tester.py --as-graded` says what the grader says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grading import ROOT
from labkit.inputs import make_inputs
from labkit.load import load_lab

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A student's copy of vecadd, without the hidden cases."""
    unwanted = shutil.ignore_patterns("__pycache__", "hidden", "results")
    return Path(shutil.copytree(ROOT / "labs" / "vecadd", tmp_path / "vecadd", ignore=unwanted))


def test(lab: Path, *flags: str) -> tuple[int, dict, str]:
    """Run the tester; return exit code, JSON, and what it says to people."""
    command = [sys.executable, "tester.py", "--kernel", "transpose", "-n", "128", "--json", *flags]
    done = subprocess.run(command, cwd=lab, text=True, capture_output=True)
    return done.returncode, json.loads(done.stdout), done.stderr


test.__test__ = False


def test_both_say_the_same_of_a_right_kernel(lab: Path) -> None:
    code, usual, _ = test(lab)
    graded_code, graded, said = test(lab, "--as-graded")
    assert (code, graded_code) == (0, 0), said
    (one,), (other,) = usual["cases"], graded["cases"]
    assert other["status"] == "passed" and other["latency_us"]["p50"] > 0
    assert one["stats"]["instructions"] == other["stats"]["instructions"]
    recorded = json.loads((lab / "results" / "results.json").read_text())
    assert len(recorded["runs"]) == 1  # the first one


def test_what_is_not_handed_in_is_not_there(lab: Path) -> None:
    (lab / "helper.py").write_text("SIZE = 128\n")
    with (lab / "kernels.py").open("a") as file:
        file.write("\n\nfrom helper import SIZE\n")
    assert test(lab)[0] == 0
    code, graded, _ = test(lab, "--as-graded")
    assert code == 2 and "helper" in graded["cases"][0]["text"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("size, code", [(1, 1), (0, 0)])
def test_an_answer_for_the_inputs_of_the_tester_fails(lab: Path, size: int, code: int) -> None:
    """A kernel knows an element of the tester's input; its twin stores nothing that it knows."""
    known = make_inputs(load_lab(lab).case("transpose_128x128"), 149)[0][0, 0]
    kernels = lab / "kernels.py"
    more = f"    nl.store(out[0:{size}, 0:1], nl.full(({size}, 1), {float(known)!r}, nl.float32))\n"
    with kernels.open("a") as file:
        file.write("\n\nhonest = matrix_transpose\n\n\n@nki.jit\ndef matrix_transpose(matrix):\n")
        file.write("    out = honest(matrix)\n" + more * size + "    return out\n")
    assert test(lab)[0] == 0
    assert test(lab, "--as-graded")[0] == code


@pytest.mark.parametrize("flags", [("--backend", "hw"), ("--in-process",), ("--profile", "x")])
def test_flags_that_contradict_are_refused(lab: Path, flags: tuple[str, ...]) -> None:
    code, said, _ = test(lab, "--as-graded", *flags)
    assert code == 2 and "--as-graded" in said["error"]["what"]
