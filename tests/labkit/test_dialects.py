"""Labs in two dialects: which file is run, and what the installed SDK speaks."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from labkit import SpecError
from labkit.cli import simulate
from labkit.commands import main
from labkit.evaluate import PASSED, evaluate
from labkit.grade.plan import load_plan
from labkit.load import load_lab
from nkisim.finder import spoken

LABS = Path(__file__).parents[2] / "labs"


@pytest.mark.parametrize(
    "compiler, package, dialect",
    [
        (None, None, "beta1"),  # no SDK: the simulator, and kernels.py
        (None, "0.0.1", "beta1"),  # the placeholder on PyPI is no SDK
        ("2.21.18209.0", None, "beta1"),
        ("2.24.5133.0", "0.3.0", "beta1"),  # SDK 2.29 has both
        ("2.25.3371.0", "0.4.0", "nki"),
        ("2.27.5334.0", "0.6.0", "nki"),
        ("2.28.7631.0", "0.7.0", "nki"),
        (None, "0.3.0+23928721754", "nki"),  # the wheel alone
    ],
)
def test_the_default_is_what_the_installed_sdk_speaks(compiler, package, dialect):
    assert spoken(compiler, package) == dialect


def test_the_dialect_picks_the_file_and_is_recorded(tmp_path, capsys):
    results = tmp_path / "results.json"
    code = main(
        [
            "simulate",
            "vecadd",
            "--target",
            "trn2",
            "--dialect",
            "nki",
            "--in-process",
            "--results",
            str(results),
        ]
    )
    said = capsys.readouterr().out
    assert code == 0 and "vecadd (nki)" in said and "21 passed, 0 failed" in said
    (run,) = json.loads(results.read_text())["runs"]
    assert run["dialect"] == "nki"
    import hashlib

    assert (
        run["kernels_sha256"]
        == hashlib.sha256((LABS / "vecadd" / "kernels_nki.py").read_bytes()).hexdigest()
    )


@pytest.mark.full
def test_labs_run_on_one_core_whatever_the_shell_says(tmp_path, monkeypatch, capsys):
    """NEURON_LOGICAL_NC_CONFIG=2 of a Neuron machine would double the counts of a case."""
    for degree in ("1", "2"):
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", degree)
        results = tmp_path / f"{degree}.json"
        assert (
            main(
                [
                    "simulate",
                    "vecadd",
                    "--target",
                    "trn2",
                    "--dialect",
                    "nki",
                    "--results",
                    str(results),
                ]
            )
            == 0
        )
    one, two = (
        [c["stats"] for c in json.loads((tmp_path / f"{d}.json").read_text())["runs"][0]["cases"]]
        for d in "12"
    )
    assert one == two


@pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")
def test_a_kernel_cannot_ask_for_two_cores_in_a_lab(tmp_path):
    """It would have its times and points for half of the work; kernel[1] is what all have."""
    from labkit.grade.facade import Facade
    from labkit.grade.judge import Bench
    from labkit.grade.plan import load_plan
    from labkit.run.backends import run_kernel

    text = (LABS / "vecadd" / "kernels_nki.py").read_text()
    graded = load_plan(LABS / "vecadd").speaking("nki")
    for cores, says in ((1, ""), (2, "asks for 2 cores")):
        changed = f"{text}\nmatrix_transpose = matrix_transpose[{cores}]\n"
        (tmp_path / "kernels_nki.py").write_text(changed)
        bench = Bench(
            {"submission": str(tmp_path), "sandbox": "none", "kernels": "kernels_nki", "seed": 3},
            graded,
            Facade(),
        )
        try:
            reply = bench.run(graded.lab.case("transpose_128x128"), "trn2")
        finally:
            bench.stop()
        assert says in reply["error"]["text"] if says else "error" not in reply
    import nki

    with pytest.raises(ValueError, match="asks for 2 cores"):
        run_kernel("sim", nki.jit(lambda x: x)[2], (), {}, "trn2", dialect="nki")


def test_a_tester_refuses_a_kernel_that_asks_for_two_cores(tmp_path):
    """Micro kernels of nki.isa.core_barrier are run on two, and by verify_sim."""
    lab, path = load_lab(LABS / "vecadd").speaking("nki"), tmp_path / "kernels_nki.py"
    path.write_text(
        (LABS / "vecadd" / "kernels_nki.py").read_text()
        + "\nmatrix_transpose = matrix_transpose[2]\n"
    )
    (outcome,) = evaluate(
        lab, [(lab.case("transpose_128x128"), "trn2")], in_process=True, kernels=path
    )
    assert outcome.status != PASSED and "asks for 2 cores" in outcome.detail


def test_the_fleet_runs_both_unless_told_otherwise(tmp_path, capsys):
    code = simulate(
        ["vecadd", "--target", "trn2", "--in-process", "--results", str(tmp_path / "results.json")]
    )
    said = capsys.readouterr().out
    assert code == 0 and "vecadd\n" in said.replace(" ", "") and "vecadd (nki)" in said
    assert "42 passed, 0 failed" in said


def test_a_lab_without_kernels_in_a_dialect_says_so():
    lab = load_lab(LABS / "vecadd")
    assert lab.dialects == ("beta1", "nki")
    nowhere = replace(lab, folder=LABS / "vecadd" / "solutions")
    with pytest.raises(SpecError, match="there is no file .*kernels_nki.py"):
        nowhere.speaking("nki")


def test_the_sdk_is_asked_for_the_package_of_the_dialect():
    lab = load_lab(LABS / "vecadd").speaking("nki")
    (outcome,) = evaluate(lab, [(lab.case("naive_128"), "trn2")], backend="hw")
    assert outcome.status != PASSED and "package nki" in outcome.detail


def test_a_lab_of_one_dialect_is_run_in_that_one(monkeypatch, tmp_path, capsys):
    """Its tester refuses the other, a fleet of the other leaves it out, its name stands alone."""
    from labkit.cli import add_common_flags, simulate

    lab = load_lab(LABS / "puzzles")
    assert (lab.dialects, lab.dialect, lab.label) == (("nki",), "nki", "puzzles")
    assert lab.handed_in == ("kernels_nki.py",)
    parser = argparse.ArgumentParser()
    add_common_flags(parser, lab)
    assert parser.parse_args([]).dialect == "nki"
    with pytest.raises(SystemExit):
        parser.parse_args(["--dialect", "beta1"])
    assert "invalid choice: 'beta1'" in capsys.readouterr().err
    results = ["--results", str(tmp_path / "r.json"), "--in-process", "--target", "trn2"]
    with pytest.raises(SpecError, match="there is no file .*kernels.py"):
        simulate(["puzzles", "--dialect", "beta1", *results])
    for folder, files in (("lab", ("README.md", "spec.py", "reference.py", "tester.py")),):
        (tmp_path / folder).mkdir()
        for name in files:
            (tmp_path / folder / name).write_text("")
    with pytest.raises(SpecError, match="lacks kernels.py or kernels_nki.py"):
        load_lab(tmp_path / "lab")


@pytest.mark.parametrize("dialect, target", [("beta1", "trn1"), ("nki", "trn2")])
@pytest.mark.parametrize("lab", ["vecadd", "ffnn", "conv2d"])
def test_a_lab_is_graded_on_the_generation_of_its_dialect(lab, dialect, target):
    graded = load_plan(LABS / lab).speaking(dialect)
    assert {t for _, t in graded.runs} == {target}
    limits = [
        c.threshold_us
        for line in graded.lab.rubric
        if line.speed
        for c in map(graded.lab.case, line.cases)
    ]
    assert all(target in limit for limit in limits)


def test_a_plan_may_name_generations():
    graded = load_plan(LABS / "vecadd")
    named = replace(graded, plan=replace(graded.plan, targets=("trn1", "trn2")))
    assert {t for _, t in named.runs} == {"trn1", "trn2"}
