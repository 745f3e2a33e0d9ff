"""Testers, fleets and starters follow the course that is chosen."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import nkisim
from labkit import SpecError
from labkit.cli import choose_course, guarded, in_dialect_of, simulate, targets_of
from labkit.commands import main
from labkit.load import load_lab
from labkit.starter.export import export

ROOT = Path(__file__).resolve().parents[2]
LAB = load_lab(ROOT / "labs" / "vecadd")


@pytest.fixture(autouse=True)
def no_course(monkeypatch):
    for name in ("NKI_COURSE", "NKISIM_TARGETS"):
        monkeypatch.setenv(name, "")  # so that what a test sets is taken back
        monkeypatch.delenv(name)


def flags(**given):
    """Return the flags of a tester."""
    return argparse.Namespace(
        **{"course": None, "dialect": None, "dialect_asked": False, "target": None,
           "one_target": True, **given}
    )  # fmt: skip


@pytest.mark.parametrize(
    "course, dialect, target", [("trn1", "beta1", "trn1"), ("trn2", "nki", "trn2"),
                                ("trn3", "nki", "trn3"), (None, "beta1", "trn1")]
)  # fmt: skip
def test_a_course_decides_kernels_and_generation_of_a_tester(course, dialect, target):
    args = flags(course=course)
    lab = in_dialect_of(LAB, args)
    assert (lab.dialect, args.target) == (dialect, target)
    assert list(targets_of(lab))[-1:] == [target if course else "trn2"]


def test_fleets_run_what_aws_runs():
    assert targets_of(LAB.speaking("beta1")) == ["trn1", "trn2"]
    assert targets_of(LAB.speaking("nki")) == ["trn2"]


def test_what_aws_does_not_run_is_said_and_none_insists():
    with pytest.raises(SpecError, match="not supported on Trn1/Inf2.*--course none"):
        in_dialect_of(LAB, flags(dialect="nki", target="trn1"))
    with pytest.raises(SpecError, match="writes kernels_nki.py"):
        choose_course(flags(course="trn2", dialect="beta1", dialect_asked=True))
    args = flags(course="none", dialect="nki", target="trn1")
    assert in_dialect_of(LAB, args).dialect == "nki" and args.target == "trn1"
    assert nkisim.course.runs("nki", "trn1")


def test_the_variable_decides_as_the_flag_does(monkeypatch):
    monkeypatch.setenv("NKI_COURSE", "trn2")
    assert in_dialect_of(LAB, flags()).dialect == "nki"


@pytest.mark.parametrize(
    ("words", "code", "keys"),
    [
        ("progress vecadd", 0, {"steps", "cases"}),
        ("benchmark vecadd --case transpose_1024x512 --target trn1", 0, {"cases"}),
        ("submit vecadd --no-check", 1, {"archive", "missing"}),
        ("history", 2, set()),
        ("update nowhere", 2, set()),
        ("verify_sim", 2, set()),
        ("grade nowhere --lab vecadd --out out --sandbox none", 2, set()),
        ("grade", 2, set()),
        ("remote list", 2, set()),
        ("gradescope --lab nothing", 2, set()),
        ("autograde nowhere --lab vecadd", 2, set()),
        ("leaderboard key nowhere/key", 2, set()),
    ],
)
def test_commands_answer_in_json(words, code, keys, tmp_path, monkeypatch, capsys):
    """Also where the arguments are wrong, or there is nothing to answer."""
    monkeypatch.chdir(tmp_path)
    name, *rest = words.split()
    assert main([name, *rest, "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == f"labkit.{name}/1" and answer["exit_code"] == code
    assert (answer["error"] is None) == (code < 2 or name == "history") and keys <= {*answer}


def test_a_tester_answers_in_json(capsys):
    args = ["--json", "--dialect", "nki", "--target", "trn1", "vecadd"]
    assert guarded(simulate, args) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "labkit.tester/1" and answer["exit_code"] == 2
    assert "Trn1/Inf2" in answer["error"]["what"]


def test_help_lists_commands_with_a_line_each(capsys):
    assert main(["--help"]) == 0
    assert "simulate     run the labs without hardware" in capsys.readouterr().out
    assert main(["simulat"]) == 2
    assert "did you mean 'simulate'?" in capsys.readouterr().err


@pytest.mark.parametrize("course, dialect", [("trn1", "beta1"), ("trn3", "nki")])
def test_a_starter_says_its_course_to_every_command(course, dialect, tmp_path):
    export(ROOT, tmp_path / "out", ["vecadd"], dialect, course=course)
    chosen = nkisim.course.chosen(start=tmp_path / "out" / "labs" / "vecadd")
    assert chosen.course is nkisim.course.COURSES[course]
    assert chosen.why == str(tmp_path / "out" / "pyproject.toml")
