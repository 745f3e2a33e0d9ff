"""Drawings of what kernels read and write, from their own runs; without a line of their code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import nkisim
from labkit import make_inputs
from labkit.load import load_lab, load_module

LABS = Path(__file__).resolve().parents[2] / "labs"


class Picture(NamedTuple):
    """A drawing as a file of docs/figures."""

    text: str

    def svg(self) -> str:
        """Return the file's text."""
        return self.text


def run(lab_name: str, case_name: str) -> Picture:
    """Draw the kernel of a case, in the dialect that its lab is written in."""
    lab = load_lab(LABS / lab_name)
    case = lab.case(case_name)
    module = load_module(lab.kernels, f"figure_{lab_name}")
    for name, value in case.constants.items():
        setattr(module, name, value)
    drawn = nkisim.draw(
        getattr(module, case.kernel),
        *make_inputs(case, lab.seed),
        target=case.targets[0],
        code=False,
        **case.kwargs,
        **case.kernel_kwargs,
    )
    return Picture(drawn.svg)


#: name of a figure -> the function that draws it
RUNS: dict[str, Callable[[], Picture]] = {
    f"puzzle-{case.name}": partial(run, "puzzles", case.name)
    for case in load_lab(LABS / "puzzles").cases
}
