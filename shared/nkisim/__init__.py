"""nkisim: a portable simulator of the Neuron Kernel Interface (NKI).

Importing it lets `import neuronxcc.nki` fall back to the simulator where the AWS SDK is absent.
`simulate` and `run` are the public door; they load NumPy when they are first asked for.

PYTEST_DONT_REWRITE: the start-up hook may have imported it before pytest looks.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.2.0"
__all__ = [
    "TARGETS",
    "Evaluation",
    "Finding",
    "NkiError",
    "Profile",
    "Run",
    "be_strict",
    "check",
    "completion",
    "course",
    "draw",
    "evaluate",
    "installed_dialect",
    "least_us",
    "profile",
    "record",
    "refusals",
    "register_source",
    "rows",
    "run",
    "simulate",
    "standalone",
    "tune",
    "workers",
]

from .finder import install  # noqa: E402 (after __all__, before use)

install()

_LAZY = {
    "simulate": "api",
    "run": "api",
    "record": "api",
    "draw": "api",
    "check": "api",
    "rows": "api",
    "be_strict": "strictly",
    "least_us": "api",
    "refusals": "strictly",
    "register_source": "errors.lines",
    "standalone": "api",
    "Run": "simulation.launch",
    "Finding": "checks.finding",
    "NkiError": "errors",
    "TARGETS": "chip.hw",
    "profile": "simulation.prediction",
    "Profile": "simulation.prediction",
    "installed_dialect": "finder",
    "tune": "tuning.tune",
    "evaluate": "evaluation.evaluate",
    "Evaluation": "evaluation.evaluate",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that the start-up hook stays cheap."""
    if name in ("completion", "course", "workers"):
        from importlib import import_module

        return import_module(f"nkisim.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'nkisim' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"nkisim.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not: what completion shows."""
    return sorted([*__all__, "__version__"])
