"""The figures are what their code draws from `hw` and from profiles of today."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET

import pytest
from docs.figures import chip, diagrams
from docs.figures.__main__ import FACTS, HERE, LABS, main
from docs.figures.diagrams import DIAGRAMS
from docs.figures.predicted import PREDICTED
from docs.figures.runs import RUNS

from nkisim.chip import hw

#: How far a predicted figure may move before it is drawn anew, as a part of it.
ABOUT = 0.2
AGAIN = "python -m docs.figures writes it anew"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_what_its_code_draws(name: str):
    assert (HERE / f"{name}.svg").read_text("utf-8") == DIAGRAMS[name]().svg(), AGAIN


#: Facts that the diagrams show, and values that no chip has.
OTHER = {
    "pmax": 67,
    "psum_banks": 11,
    "gemm_stationary_fmax": 71,
    "gemm_moving_fmax": 311,
    "dma_engines": 13,
    "sbuf_bytes": 77 * 1024,
    "psum_bank_bytes": 5 * 1024,
    "hbm_gbps": 1234.0,
    "pe_ghz": 7.7,
    "dve_ghz": 6.6,
    "act_ghz": 5.5,
    "pool_ghz": 4.4,
}


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_cannot_contradict_the_chip(name: str, monkeypatch: pytest.MonkeyPatch):
    """With the facts of another chip it shows those, and none of ours."""

    def numbers() -> set[str]:
        root = ET.fromstring(DIAGRAMS[name]().svg())
        words = " ".join(e.text or "" for e in root.iter() if not e.tag.endswith("style"))
        return {number.rstrip(".,") for number in re.findall(r"\d[\d.,]*", words)}

    ours = numbers()
    cores = tuple(dataclasses.replace(core, **OTHER) for core in diagrams.CORES)
    for module in (diagrams, chip):
        monkeypatch.setattr(module, "CORES", cores)
        monkeypatch.setattr(module, "TRN1", cores[0])
    theirs = numbers()
    facts = {
        f"{value:,}"
        for core in hw.CORES
        for value in vars(core).values()
        if isinstance(value, int) and value >= 100
    }
    assert not theirs & facts, "a number that is not from `hw`"
    assert (theirs - ours) or not ours & facts
    if name == "memory":
        assert {"67", "11", "77", "5", "1,234", "7.7", "6.6", "5.5", "4.4", "13"} <= theirs


@pytest.mark.parametrize("name", PREDICTED)
def test_a_figure_of_profiles_shows_what_is_predicted_today(name: str):
    drawing, said = PREDICTED[name]()
    assert json.loads(FACTS.read_text("utf-8"))[name] == pytest.approx(said, rel=ABOUT), AGAIN
    now, then = (
        ET.fromstring(text).findtext("{*}title")
        for text in (drawing.svg(), (HERE / f"{name}.svg").read_text("utf-8"))
    )
    assert now == then, AGAIN


@pytest.mark.parametrize("name, draw", LABS.items())
def test_the_diagram_of_a_lab_is_what_its_code_draws(name: str, draw):
    assert (HERE / f"{name}.svg").read_text("utf-8") == draw().svg(), AGAIN


@pytest.mark.parametrize("name", RUNS)
def test_a_drawing_of_a_run_is_that_of_today_and_shows_no_line_of_the_solution(name: str):
    text = (HERE / f"{name}.svg").read_text("utf-8")
    assert text == RUNS[name]().svg(), AGAIN
    assert "dst=" not in text and "nisa." not in text and not re.search(r"line \d", text)


@pytest.mark.parametrize("name", [*LABS, *DIAGRAMS, *RUNS, *PREDICTED])
def test_a_figure_says_what_it_shows_and_has_two_sets_of_colours(name: str):
    text = (HERE / f"{name}.svg").read_text("utf-8")
    root = ET.fromstring(text)
    assert root.findtext("{*}title") and root.findtext("{*}desc")
    assert "prefers-color-scheme:dark" in text
    wide = float(root.attrib["viewBox"].split()[2])
    for box in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(box.attrib["x"]) <= wide
    assert "predicted" in text.lower() or name not in PREDICTED  # never as if it were measured


def test_a_name_that_is_no_figure_is_said(capsys):
    assert main(["nonsense"]) == 2
    assert "no figure 'nonsense'" in capsys.readouterr().err
