"""CHECKS.md has the page of every rule, and stays up to date."""

from __future__ import annotations

from pathlib import Path

from nkisim.cli.main import SUBJECTS, all_rules, pages
from nkisim.errors import RULES, basis

PAGE = Path(__file__).resolve().parents[3] / "CHECKS.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == pages(), "python -m nkisim explain --write"


def test_every_rule_has_a_subject_and_is_on_the_page():
    text = pages()
    assert {id[4] for id in RULES} <= set(SUBJECTS)
    assert all(f"### {id}: " in text for id in RULES)


def test_every_rule_says_how_it_is_known():
    """On its page, or with the release and the source of each construct."""
    silent = [
        id
        for id, rule in all_rules().items()
        if "How it is known: " not in rule.text and "(source: " not in rule.text
    ]
    assert not silent
    assert all(id in all_rules() for id in basis._KNOWN)
