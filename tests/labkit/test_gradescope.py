"""The autograder's archive, unpacked and run as Gradescope does, and the workflow of Classroom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import pytest
import yaml

from grading import ROOT, SOLVED
from labkit.grade.gradescope import build_archive, check, describe_limit, limits, results
from labkit.grade.plan import load_plan
from labkit.starter.export import classroom

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

STUBBED = SOLVED.split("    # BEGIN SOLUTION")[0] + "    raise NotImplementedError('not yet')\n"
NEW = (ROOT / "labs" / "vecadd" / "kernels_nki.py").read_text("utf-8")


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Build the archive of vecadd once."""
    return built(tmp_path_factory, "kernels")


@pytest.fixture(scope="module")
def archive_nki(tmp_path_factory):
    """Build it for the other dialect."""
    return built(tmp_path_factory, "kernels_nki")


def built(tmp_path_factory, kernels):
    """Build an archive twice; any file stands for the wheel, which is not installed."""
    folder = tmp_path_factory.mktemp("autograder")
    wheel = folder / "trainium_labs-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    data = build_archive(ROOT, "vecadd", wheel, "secret", kernels)
    assert data == build_archive(ROOT, "vecadd", wheel, "secret", kernels)
    (folder / "autograder.zip").write_bytes(data)
    return folder / "autograder.zip"


@pytest.mark.full
def test_a_submission_in_the_other_dialect_is_judged(archive_nki, tmp_path):
    test_a_submission_is_judged_in_its_folder(archive_nki, tmp_path, NEW, 10, "kernels_nki.py")


@pytest.mark.sample(1)
@pytest.mark.parametrize("text, score", [(SOLVED, 10), (STUBBED, 0), (None, 0)])
def test_a_submission_is_judged_in_its_folder(archive, tmp_path, text, score, name="kernels.py"):
    for folder in ("source", "submission", "results"):
        (tmp_path / folder).mkdir()
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "source")
    if text is not None:
        (tmp_path / "submission" / name).write_text(text)
    env = {
        "PATH": os.environ["PATH"],
        "AUTOGRADER": str(tmp_path),
        "GRADER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "shared"),
    }
    if os.geteuid() != 0 and subprocess.run(["which", "bwrap"], capture_output=True).returncode:
        pytest.skip("neither root nor bubblewrap")
    done = subprocess.run(
        ["bash", str(tmp_path / "source" / "run_autograder")],
        env=env,
        cwd=tmp_path,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "results" / "results.json").read_text())
    assert check(document) == [] and document["score"] == score
    if text is not None:
        tiers = {t["name"]: t["visibility"] for t in document["tests"]}
        assert tiers["matrix_transpose"] == "visible"
        assert tiers["matrix_transpose on other shapes"] == (
            "visible" if score else "after_published"
        )
    assert (tmp_path / "source").stat().st_mode & 0o077 == 0


def test_what_is_in_the_archive(archive):
    with zipfile.ZipFile(archive) as file:
        names = set(file.namelist())
        assert {"setup.sh", "run_autograder", "secret", "labs/vecadd/hidden/plan.py"} <= names
        assert file.getinfo("run_autograder").external_attr >> 16 & 0o111
        text = b"".join(file.read(n) for n in names)
    assert b"nisa.nc_transpose(" not in text
    for script in ("setup.sh", "run_autograder"):
        with zipfile.ZipFile(archive) as file:
            subprocess.run(["bash", "-n"], input=file.read(script), check=True)


@pytest.mark.parametrize(
    "document, says",
    [
        ({"score": 1}, None),
        ({"tests": []}, "neither score"),
        ({"score": "1"}, "a number"),
        ({"score": 1, "visibility": "all"}, "visibility"),
        ({"score": 1, "x": 2}, "unknown keys"),
        ({"score": 1, "tests": [{"score": float("nan")}]}, "numbers"),
        ([], "an object"),
        ({"score": 1, "leaderboard": [{"name": "a", "value": 1, "order": "up"}]}, "order"),
    ],
)
def test_the_documented_schema(document, says):
    found = check(document)
    assert (found == []) if says is None else says in found[0]


def test_a_right_and_fast_verdict_is_on_the_leaderboard():
    case = {
        "case": "c",
        "hidden": False,
        "status": "passed",
        "latency_us": 4.0,
        "threshold_us": 9,
        "text": "",
        "detail": "",
    }
    verdict = {
        "cases": [case, {**case, "latency_us": 9.0}],
        "lines": [],
        "points": 3,
        "of": 3,
        "nkisim": "1",
        "key": "k",
        "flags": [],
    }
    assert results(verdict)["leaderboard"][0] == {
        "name": "predicted us (geometric mean)",
        "value": 6.0,
        "order": "asc",
    }
    assert "leaderboard" not in results({**verdict, "points": 2})


@pytest.mark.parametrize("name", ["vecadd", "ffnn"])
def test_labs_without_thresholds_have_a_leaderboard_too(name):
    case = {
        "case": "c",
        "hidden": False,
        "status": "passed",
        "latency_us": 4.0,
        "threshold_us": None,
        "text": "",
        "detail": "",
    }
    graded = load_plan(ROOT / "labs" / name)
    assert not any(c.threshold_us for c, _ in graded.runs)
    verdict = {
        "cases": [
            case,
            {**case, "latency_us": 9.0},
            {**case, "hidden": True, "latency_us": 1e6},
        ],  # tells of its shape
        "lines": [],
        "points": 3,
        "of": 3,
        "nkisim": "1",
        "key": "k",
        "flags": [],
    }
    assert results(verdict)["leaderboard"][0]["value"] == 6.0


def test_a_submission_ends_before_the_autograder_does():
    for total in (60, 600, 7200):
        for minutes in (2, 10, 40):
            found = limits(total, minutes)
            assert found["total_s"] < found["patience_s"] < 60 * minutes
    assert limits(60, 10)["total_s"] == 60
    assert "less than the 600 s of the plan" in describe_limit(600, 10)
    assert describe_limit(60, 10) == "a submission may take 60 s of it"


def test_the_workflow_of_classroom_is_a_workflow():
    document = yaml.safe_load(classroom(["vecadd", "ffnn"]))
    steps = document["jobs"]["labs"]["steps"]
    assert [s.get("id") for s in steps if s.get("id")] == ["vecadd", "ffnn"]
    assert steps[-1]["with"]["runners"] == "vecadd,ffnn"
    assert "${{ steps.ffnn.outputs.result }}" in steps[-1]["env"]["FFNN_RESULTS"]
