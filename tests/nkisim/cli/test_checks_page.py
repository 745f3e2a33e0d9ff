"""The page of all checks has every rule."""

from __future__ import annotations

from nkisim.cli.main import SUBJECTS, all_rules, explain
from nkisim.errors import RULES, basis


def test_every_rule_has_a_subject_and_is_on_the_page(capsys):
    assert explain(["--all"]) == 0
    text = capsys.readouterr().out
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
