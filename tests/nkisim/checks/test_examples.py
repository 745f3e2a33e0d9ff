"""The catalogue of mistakes: each is named, with its line; the kernel without it is clean.

They are in data/examples; `explain` shows the first of each rule and dialect.
"""

from __future__ import annotations

import re

import pytest
from golden import found_in

from nkisim.cli import examples, main
from nkisim.cli.examples import BETA1, NKI, Example

ALL = examples.examples()
#: rules about files, settings, launchers and records, which no kernel shows
NO_KERNEL = {
    "NKI-C01",
    "NKI-G00",
    "NKI-K07",
    "NKI-K08",
    "NKI-K10",
    "NKI-K13",
    "NKI-K15",
    "NKI-K16",
    "NKI-K17",
    "NKI-K18",
    "NKI-R29",
    "NKI-T01",
    "NKI-T02",
    "NKI-T03",
}
#: of older releases only, or said in a run under another id: what `lint` alone says
LINT_ONLY = {"NKI-G11", "NKI-G22", "NKI-G26", "NKI-G36", "NKI-G37"}


def case(e: Example):
    return pytest.param(e, id=f"{e.id}-{e.dialect}-{e.title}".replace(" ", "_"))


@pytest.fixture
def findings(tmp_path):
    """Return what is found when an example's wrong or right kernel runs."""
    return lambda e, wrong: found_in(e, wrong, tmp_path)


@pytest.mark.parametrize("e", list(map(case, ALL)))
def test_a_mistake_is_named_with_its_line(e, findings):
    found = findings(e, wrong=True)
    named = [f for f in found if f.id == e.id]
    assert named, [(f.id, f.text) for f in found]
    others = {f.id for f in found if f.severity != "note"} - {e.id}
    assert not others, [(f.id, f.text) for f in found]
    text = " ".join(f"{f.text} {f.hint}" for f in named)
    assert not e.says or any(word in text for word in e.says), text
    if e.id.startswith("NKI-"):
        places = {p.text.strip() for f in named for p in (f.where, f.other) if p is not None}
        assert places & e.named(), places


@pytest.mark.parametrize("e", list(map(case, ALL)))
def test_the_same_without_the_mistake_is_clean(e, findings):
    found = findings(e, wrong=False)
    assert [(f.id, f.text) for f in found if f.severity != "note" or f.id == e.id] == []


def test_the_catalogue_is_large_in_both_dialects():
    for dialect in (BETA1, NKI):
        assert sum(e.dialect == dialect for e in ALL) >= 60
    assert len({(e.dialect, e.title) for e in ALL}) == len(ALL)
    for e in ALL:
        assert {mark for mark, _ in e.lines} <= set(" -+*") and e.text(True) != e.text(False)


def test_every_rule_that_a_kernel_can_break_has_an_example():
    assert set(main.all_rules()) - {e.id for e in ALL} == NO_KERNEL | LINT_ONLY


def test_a_page_shows_both_kernels_in_both_dialects(capsys):
    assert main.main(["explain", "NKI-U01"]) == 0
    said = capsys.readouterr().out
    assert "With import neuronxcc.nki" in said and re.search(r"^ *\+ acc", said, re.M)
    assert re.search(r"^ *\+ ", said, re.M) and "With import nki," in said
