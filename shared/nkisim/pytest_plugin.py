"""pytest plugin: `import neuronxcc.nki` works in conftest files and tests.

Installed packages load it by themselves (entry point `pytest11`); a checkout that is only on
the path uses `-p nkisim.pytest_plugin`. `--nkisim-checks strict` lets a test fail whose kernels
have a finding of severity warning or error; off looks for none.
"""

from __future__ import annotations

import os
from typing import Any

from nkisim.checks.strictness import LEVELS, VARIABLE
from nkisim.finder import install

install()  # on import: plugins are imported before any conftest


def pytest_addoption(parser: Any) -> None:
    """Add the option of the level."""
    parser.getgroup("nkisim").addoption(
        "--nkisim-checks",
        choices=LEVELS,
        default=None,
        help=f"how strictly findings about kernels are taken (sets {VARIABLE})",
    )


def pytest_configure(config: Any) -> None:
    """Set the level for kernels of the tests, and of the programs that they start."""
    if level := config.getoption("--nkisim-checks", None):
        os.environ[VARIABLE] = level
