"""nkisim: a portable simulator of the Neuron Kernel Interface (NKI).

Importing it lets `import neuronxcc.nki` fall back to the simulator where the AWS SDK is absent.
`simulate` and `run` are the public door; they load NumPy when they are first asked for.

PYTEST_DONT_REWRITE: the start-up hook may have imported it before pytest looks.
"""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"
__all__ = ["TARGETS", "Finding", "NkiError", "Profile", "Run", "check", "installed_dialect",
           "keep_memory", "profile", "rows", "run", "simulate", "tune"]

from .finder import install as _install  # noqa: E402 (after __all__, before use)

_install()

_LAZY = {"simulate": "api", "run": "api", "check": "api", "rows": "api", "keep_memory": "api",
         "Run": "launch", "Finding": "checks.finding", "NkiError": "errors", "TARGETS": "chip.hw",
         "profile": "prediction", "Profile": "prediction", "installed_dialect": "finder",
         "tune": "tuning.tune"}


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that the start-up hook stays cheap."""
    if name not in _LAZY:
        raise AttributeError(f"module 'nkisim' has no attribute {name!r}")
    from importlib import import_module
    value = globals()[name] = getattr(import_module(f"nkisim.{_LAZY[name]}"), name)
    return value
