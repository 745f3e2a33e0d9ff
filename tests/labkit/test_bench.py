"""`nox -s benchmark` and `nox -s profile` where there is no hardware."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import nkisim
from labkit.evaluate import evaluate
from labkit.fleet.bench import has_neuron_devices
from labkit.load import load_lab
from labkit.show import show_slow
from labkit.spec import FLEET_TARGETS, TARGETS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(has_neuron_devices(), reason="would measure on this machine")


def labkit(*args: str, cwd: Path) -> subprocess.CompletedProcess:
    env = {
        **os.environ,
        "NKI_BANNER": "0",
        "COLUMNS": "120",
        "PYTHONPATH": str(ROOT / "shared"),
        "LABKIT_LABS": str(ROOT / "labs"),
    }
    return subprocess.run(
        [sys.executable, "-m", "labkit", *args],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_benchmark_says_that_it_predicts_and_records_it(tmp_path):
    done = labkit(
        "benchmark",
        "vecadd",
        "--case",
        "stream_256000_free1000",
        "--target",
        "trn2",
        "--in-process",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "Latency, predicted" in done.stdout and "not measured" in done.stdout
    (run,) = json.loads((tmp_path / "results" / "results.json").read_text())["runs"]
    (case,) = run["cases"]
    assert case["latency_kind"] == "predicted" and case["latency_us"]["p50"] > 0


def test_profile_writes_a_page_and_a_trace_for_each_case(tmp_path):
    done = labkit(
        "profile",
        "vecadd",
        "--case",
        "stream_256000_free1000",
        "--target",
        "trn2",
        "--in-process",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    names = {p.name for p in (tmp_path / "profiles").iterdir()}
    assert names == {
        "vecadd_stream_256000_free1000_trn2.html",
        "vecadd_stream_256000_free1000_trn2.pftrace",
    }


def test_an_uncalibrated_generation_is_predicted_and_said_to_be_so(tmp_path):
    done = labkit(
        "benchmark",
        "vecadd",
        "--case",
        "stream_256000_free1000",
        "--target",
        "trn3",
        "--in-process",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "trn3" in done.stdout and "not calibrated" in done.stdout


@pytest.mark.parametrize(
    "args, sentence",
    [(["vecad"], "there is no lab 'vecad'"), (["vecadd", "--case", "nothing"], "no case nothing")],
)
def test_wrong_arguments_end_in_a_sentence(tmp_path, args, sentence):
    done = labkit("benchmark", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr and "Traceback" not in done.stderr


def test_labs_know_every_generation_that_can_be_simulated():
    assert TARGETS == nkisim.TARGETS and set(FLEET_TARGETS) < set(TARGETS)


def test_recorded_times_have_the_seed_of_the_run(tmp_path):
    """They had the lab's seed, whatever --seed said."""
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "labs" / "conv2d" / "tester.py"),
            "--test-case",
            "speed_32x16_float16",
            "--target",
            "trn2",
            "--in-process",
            "--record",
            "--seed",
            "7",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NKI_BANNER": "0", "PYTHONPATH": str(ROOT / "shared")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    times = json.loads((tmp_path / "results" / "execution_times.json").read_text())
    (run,) = json.loads((tmp_path / "results" / "results.json").read_text())["runs"]
    assert times["seed"] == run["seed"] == 7


def test_a_kernel_that_is_too_slow_is_told_what_to_change_first():
    lab = load_lab(ROOT / "labs" / "conv2d")
    case = next(c for c in lab.cases if c.name == "speed_32x16_float16")
    (outcome,) = evaluate(
        lab, [(case, "trn2")], in_process=True, kernels=lab.folder / "solutions" / "step1_naive.py"
    )
    assert outcome.status == "passed" and outcome.meets_threshold is False
    console = Console(file=io.StringIO(), width=100)
    show_slow(console, [outcome])
    said = console.file.getvalue()
    assert "right, but too slow, predicted" in said and "of 84 us" in said
    assert "step1_naive.py:46: " in said and "would save" in said
    assert outcome.to_dict()["stats"]["advice"]
    (fast,) = evaluate(lab, [(case, "trn2")], in_process=True)
    assert "advice" not in fast.stats
