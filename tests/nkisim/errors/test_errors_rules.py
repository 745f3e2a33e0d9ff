"""The registry of rules: each id in the sources has a page that teaches, and each page is used."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim
from nkisim import errors
from nkisim.cli import main
from nkisim.errors.rules import RULES

SOURCES = [p for p in Path(nkisim.__file__).parent.rglob("*.py") if p.name != "rules.py"]
USED = {id for p in SOURCES for id in re.findall(r'"(NKI-[A-Z]\d\d)"', p.read_text())}


def test_every_id_in_the_sources_has_a_rule_and_every_rule_is_used():
    assert len(USED) > 50
    assert USED == set(main.all_rules())  # wherever they stand, and whatever was imported


@pytest.mark.parametrize("id", sorted(RULES))
def test_every_page_says_more_than_its_title(id, capsys):
    rule = RULES[id]
    assert re.fullmatch(r"NKI-[A-Z]\d\d", id) and rule.id == id
    assert rule.title and not rule.title.endswith(".")
    assert len(rule.text) > len(rule.title) + 20 and rule.text.rstrip().endswith((".", ")"))
    assert re.fullmatch(r"(err_[a-z0-9_]+)?", rule.name)
    assert main.main(["explain", id]) == 0
    said = capsys.readouterr().out
    pieces = re.split(r"\{\w+\}", rule.text)  # between figures of hw
    assert rule.title in said and all(piece in said for piece in pieces)


def test_an_error_fills_its_slots_from_the_rule_and_the_line():
    error = errors.fail("NKI-S09", "a sentence")  # this line
    assert error.limit == RULES["NKI-S09"].title and error.hint == RULES["NKI-S09"].hint
    assert error.given == 'error = errors.fail("NKI-S09", "a sentence")  # this line'
    assert error.where.file == __file__
    assert error.render().count(error.given) == 1


def test_an_error_names_the_instruction_not_the_line_that_met_it():
    """An instruction runs when its result is used: the error still names the line that made it."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((1, 1), np.float32, buffer=nl.shared_hbm)
        t = nl.load(x[64 + nl.arange(128)[:, None], nl.arange(4)[None, :]])  # the bug
        u = nl.zeros((4, 4), np.float32)
        nl.store(out, u[0:1, 0:1])
        return out, t

    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(kernel, np.zeros((128, 4), np.float32))
    assert caught.value.id == "NKI-I01"
    assert caught.value.where.text.endswith("# the bug")


@pytest.mark.parametrize(
    "file, users",
    [
        ("/usr/lib/python3.12/multiprocessing/process.py", False),
        ("/usr/lib/python3.12/site-packages/nkisim/api.py", False),
        ("/usr/lib/python3.12/site-packages/theirs/kernels.py", True),
        ("/course/alice/kernels.py", True),
    ],
)
def test_the_place_of_an_error_is_in_no_library_of_pythons(file, users, monkeypatch):
    """Where packages lie below Python's library: there is no virtual environment."""
    monkeypatch.setattr(errors, "_PYTHON", "/usr/lib/python3.12/")
    monkeypatch.setattr(errors.frames, "HERE", "/usr/lib/python3.12/site-packages/nkisim/")
    assert errors._is_not_users(file) is not users


def test_a_traceback_ends_in_the_users_code():
    @nki.jit
    def inner(t):
        return nl.exp(t)  # innermost

    @nki.jit
    def kernel(x):
        return inner(x)

    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(kernel, np.zeros((4, 4), np.float32))
    frames = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["kernel", "inner"]
    assert caught.value.where.text.endswith("# innermost")


def test_a_users_own_exception_passes_as_it_is():
    @nki.jit
    def kernel(x):
        return x[{}["no such key"]]

    with pytest.raises(KeyError, match="no such key") as caught:
        nkisim.run(kernel, np.zeros((4, 4), np.float32))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "kernel"


def test_findings_name_a_rule_and_two_places():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((4, 4), np.float32, buffer=nl.shared_hbm)
        t = nl.zeros((4, 4), np.float32)
        for i in nl.affine_range(2):
            t[...] = nl.load(x[i])
        nl.store(out, t)
        return out

    run = nkisim.run(kernel, np.zeros((2, 4, 4), np.float32))
    (finding,) = run.findings
    assert finding.id in RULES and finding.severity == "warning"
    text = str(finding)
    assert finding.where.text == "t[...] = nl.load(x[i])" and f"{finding.where.line}" in text
    assert finding.other is not None and finding.id in text
