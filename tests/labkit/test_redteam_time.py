"""Submissions that go for time: each is refused, or as slow as the honest kernel of its work."""

from __future__ import annotations

import json
import os
import re

import pytest

import redteam
import redteam_moves
import redteam_rows
import redteam_time
from grading import ROOT, needs_sandbox
from labkit.grade.run import grade
from nkisim.isa.table import ROWS
from nkisim.language.nki import isa as _all_rows  # noqa: F401 (rows of this dialect alone)
from redteam_time import Attack

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

ATTACKS: dict[str, Attack] = {**redteam_rows.ATTACKS, **redteam_moves.ATTACKS}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Judge all of them, in one submission for each dialect."""
    return {
        name: case
        for dialect in ("beta1", "nki")
        for name, case in redteam_time.judged(
            tmp_path_factory.mktemp(dialect),
            dialect,
            {n: a for n, a in ATTACKS.items() if a.dialect == dialect},
            "none",
        ).items()
    }


@pytest.mark.full
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gains_no_time(name, cases):
    assert not redteam_time.gain(ATTACKS[name], cases, name)


def test_there_are_as_many_as_promised():
    """The pages say more than 230 submissions, and more than 170 for time."""
    assert len(ATTACKS) > 170
    assert len({a.tries for a in ATTACKS.values()}) >= 80
    attacks = {**redteam.KERNELS, **redteam.archives()}
    assert len(attacks) + len(ATTACKS) > 230 and not set(attacks) & set(ATTACKS)
    grading, tried = (
        (ROOT / "docs" / name).read_text("utf-8") for name in ("grading.md", "red-team.md")
    )
    assert "More than 230 hostile" in grading and "more than 170, in both dialects" in grading
    assert "more than 170 that go for time" in " ".join(tried.split())


def test_what_was_tried_names_tests_that_are_there():
    """Each of the 17 holes of the review has one; a name is that of a test or of an attack."""
    text = (ROOT / "docs" / "red-team.md").read_text("utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    tests = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.M)
    }
    attacks = {*redteam.KERNELS, *redteam_moves._PAIRS, *redteam_rows._PAIRS}
    for row in rows:
        if "`test_" in row[-1]:
            named = set(re.findall(r"`(\w+)`", row[-1]))
            assert named <= tests | attacks, named - tests - attacks
    holes = [row[0][2:] for row in rows if row[0][2:].isdecimal() and "`test_" in row[-1]]
    assert holes == [str(n) for n in range(1, 18)]
    for dialect in ("beta1", "nki"):
        assert sum(a.dialect == dialect for a in ATTACKS.values()) >= 60


def test_each_cheaper_form_of_a_row_is_attacked():
    declared = {(row.name, c.by) for row in ROWS.values() for c in row.cheaper}
    attacked = {form for a in ATTACKS.values() for form in a.forms}
    assert declared <= attacked, f"no attack for {sorted(declared - attacked)}"
    assert attacked <= declared, f"not declared: {sorted(attacked - declared)}"


def test_an_attack_that_gains_is_noticed():
    """The referee of these tests: a faster attack, a twin that fails, another end."""
    attack = Attack("beta1", "copy", "copy nothing", "")
    fast, slow = ({"status": "passed", "latency_us": us} for us in (99.0, 100.0))
    wrong = {"status": "failed", "text": "NKI-O08", "detail": "", "latency_us": None}
    assert "99.0 us" in redteam_time.gain(attack, {"a": fast, "honest_a": slow}, "a")
    assert not redteam_time.gain(attack, {"a": slow, "honest_a": fast}, "a")
    assert not redteam_time.gain(attack, {"a": slow, "honest_a": slow}, "a")
    assert "twin fails" in redteam_time.gain(attack, {"a": slow, "honest_a": wrong}, "a")
    assert "it fails" in redteam_time.gain(attack, {"a": wrong, "honest_a": slow}, "a")
    refused = attack._replace(says="NKI-O08")
    assert not redteam_time.gain(refused, {"a": wrong}, "a")
    assert "passes" in redteam_time.gain(refused, {"a": slow}, "a")
    assert "otherwise" in redteam_time.gain(refused._replace(says="NKI-E14"), {"a": wrong}, "a")


@needs_sandbox
@pytest.mark.full
def test_all_go_through_the_sandbox(tmp_path, monkeypatch):
    """Grade attacks and twins as submissions of a class, each by itself; hold them to the same."""
    for dialect, stem in (("beta1", "kernels"), ("nki", "kernels_nki")):
        attacks = {n: a for n, a in ATTACKS.items() if a.dialect == dialect}
        folder = tmp_path / dialect
        lab = redteam_time.lab(
            folder / "labs", dialect, [(n, a.task, a.target) for n, a in attacks.items()]
        )
        monkeypatch.setenv("LABKIT_LABS", str(lab.parent))
        for name, a in attacks.items():
            texts = {name: redteam_time.kernel(name, a.task, a.body, a.above, a.below)}
            if not a.says:
                texts[f"honest_{name}"] = redteam_time.kernel(name, a.task, redteam_time.twin(a))
            for who, text in texts.items():
                (folder / "subs" / who).mkdir(parents=True)
                (folder / "subs" / who / f"{stem}.py").write_text(
                    redteam_time.file_of(dialect, [text])
                )
        assert (
            grade(
                [
                    str(folder / "subs"),
                    "--lab",
                    "redteam",
                    "--out",
                    str(folder / "out"),
                    "--dialect",
                    dialect,
                ]
            )
            == 0
        )
        for name, a in attacks.items():
            found = {}
            for who in (name, f"honest_{name}") if not a.says else (name,):
                verdict = json.loads((folder / f"out/verdicts/{who}.json").read_text())
                (found[who],) = (c for c in verdict["cases"] if c["case"] == name)
                assert verdict["points"] == (0 if a.says else 1), (who, found[who])
            assert not redteam_time.gain(a, found, name), name


def test_the_example_of_the_page_is_an_attack(tmp_path):
    text = (ROOT / "docs" / "grading.md").read_text("utf-8")
    entry = text[text.index("To add one") :].split("```python\n")[1].split("```")[0]
    (pair,) = eval("{" + entry + "}", {"_pair": redteam_moves._pair}).values()
    assert set(pair) == {"beta1", "nki"}
    for dialect, attack in pair.items():
        cases = redteam_time.judged(tmp_path / dialect, dialect, {"scaled": attack}, "none")
        assert not redteam_time.gain(attack, cases, "scaled")
