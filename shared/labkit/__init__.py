"""labkit: run, compare, record and score the kernels of the labs.

It knows nothing of how the simulator works and nothing of any particular lab: a lab is data
(`Lab`, `Case`), and one evaluator serves them all. Importing labkit makes `import neuronxcc.nki`
work: the AWS SDK if it is installed, else the simulator.
"""

from __future__ import annotations

from .run import threads  # noqa: F401  (first: NumPy reads what it sets)

# isort: split
import nkisim  # noqa: F401  (a door: installs the import rule for neuronxcc.nki)

from .inputs import make_inputs
from .mistakes import Mistake
from .run.compare import AnyArgmax, Comparison, compare
from .spec import (
    Case,
    Contest,
    Lab,
    MustFailNumerically,
    MustRaise,
    Passes,
    RubricLine,
    SpecError,
    Step,
    Tensor,
)
from .tolerance import Tolerance, tolerance

__all__ = [
    "AnyArgmax",
    "Case",
    "Comparison",
    "Contest",
    "Lab",
    "Mistake",
    "MustFailNumerically",
    "MustRaise",
    "Passes",
    "RubricLine",
    "SpecError",
    "Step",
    "Tensor",
    "Tolerance",
    "compare",
    "make_inputs",
    "tolerance",
]


def __dir__() -> list[str]:
    """Return the public names: what completion shows."""
    return sorted(__all__)
