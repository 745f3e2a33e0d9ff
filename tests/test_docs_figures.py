"""The figures are what their code draws from `hw` and from profiles of today."""
from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from docs.figures.__main__ import FACTS, HERE, main
from docs.figures.diagrams import DIAGRAMS
from docs.figures.predicted import PREDICTED

#: How far a predicted figure may move before it is drawn anew, as a part of it.
ABOUT = 0.2
AGAIN = "python -m docs.figures writes it anew"


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_what_its_code_draws(name: str):
    assert (HERE / f"{name}.svg").read_text("utf-8") == DIAGRAMS[name]().svg(), AGAIN


@pytest.mark.parametrize("name", PREDICTED)
def test_a_figure_of_profiles_shows_what_is_predicted_today(name: str):
    drawing, said = PREDICTED[name]()
    assert json.loads(FACTS.read_text("utf-8"))[name] == pytest.approx(said, rel=ABOUT), AGAIN
    now, then = (ET.fromstring(text).findtext("{*}title") for text in
                 (drawing.svg(), (HERE / f"{name}.svg").read_text("utf-8")))
    assert now == then, AGAIN


@pytest.mark.parametrize("name", [*DIAGRAMS, *PREDICTED])
def test_a_figure_says_what_it_shows_and_has_two_sets_of_colours(name: str):
    text = (HERE / f"{name}.svg").read_text("utf-8")
    root = ET.fromstring(text)
    assert root.findtext("{*}title") and root.findtext("{*}desc")
    assert "prefers-color-scheme:dark" in text
    wide = float(root.attrib["viewBox"].split()[2])
    for box in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(box.attrib["x"]) <= wide
    assert "predicted" in text.lower() or name in DIAGRAMS      # never as if it were measured


def test_a_name_that_is_no_figure_is_said(capsys):
    assert main(["nonsense"]) == 2
    assert "no figure 'nonsense'" in capsys.readouterr().err
