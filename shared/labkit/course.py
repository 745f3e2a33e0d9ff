"""What a course does beside the labs themselves: the commands, loaded when they are called."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

#: command of `python -m labkit` -> module and function that do it
PLACES = {"starter": "starter.export:starter", "update": "starter.update:update",
          "gradescope": "grade.gradescope:gradescope", "autograde": "grade.gradescope:autograde",
          "leaderboard": "board.cli:leaderboard",
          "grade": "grade.run:grade", "submit": "submit.pack:submit"}


def _command(place: str) -> Callable[[Sequence[str] | None], int]:
    module, _, function = place.partition(":")

    def run(argv: Sequence[str] | None = None) -> int:
        return int(getattr(import_module(f"labkit.{module}"), function)(argv))
    return run


COMMANDS = {name: _command(place) for name, place in PLACES.items()}
