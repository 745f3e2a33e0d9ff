"""The name of the machine for annotations.

What it calls takes it as an argument, and the interpreter imports that: so imports point one way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .interpreter import Interpreter

#: one NeuronCore executing one kernel launch
Machine: TypeAlias = "Interpreter"
