"""A pytest plugin: what the tests of AWS's kernel library import and its publication leaves out.

Two modules of its harness (locks of remote machines, an analysis of traces) are not in the public
repository, older ones take their dtypes from inside of AWS's compiler, and an attribute that only
compiled kernels get is asked for in its simulation mode. Tests that only trace a kernel ask the
compiler for it, as if they were in no mode; a trace is a run here. Some of their kernels look at
views alone and return an argument as it is, because a kernel must return something; a run would
refuse that as a result. The mode skips cases with a large number in their names. Where a test
function has no others, these run here, within the time that the suite gives to each. Kernels of
0.2 use the name `builtin`, which its parser knew.
"""

from __future__ import annotations

import builtins
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import neuron_dtypes  # type: ignore[import-not-found]


def _module(name: str, **contents: Any) -> None:
    sys.modules[name] = module = ModuleType(name)
    module.__dict__.update(contents)


_module("test.utils.scripts", __path__=[])
_module(
    "test.utils.scripts.remote_lock_scripts", LockResult=SimpleNamespace, LockStatus=SimpleNamespace
)
_module("test.utils.perf_analysis_private", analyze_trace=lambda *_, **__: None)
_module("neuronxcc.starfish", __path__=[])
_module("neuronxcc.starfish.support", __path__=[], dtype=neuron_dtypes)
sys.modules["neuronxcc.starfish.support.dtype"] = neuron_dtypes


class _Frontend:
    """What the harness traces kernels with: their own assertions hold, or they do not."""

    def compile(self, kernel: Any, inputs: dict[str, Any], lnc: int, **_: Any) -> None:
        """Run a kernel on the inputs of its test."""
        import nki  # type: ignore[import-not-found]
        import nki.language as nl  # type: ignore[import-not-found]

        def traced(**given: Any) -> Any:
            result = kernel(**given)
            if all(result is not x for x in given.values()):
                return result
            return nl.zeros((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)

        nki.cpu_simulate(nki.jit(traced))[lnc](**inputs)


_module("nki.compiler.frontend", NKIFrontend=_Frontend, ParserFrontend=_Frontend)


def pytest_configure(config: Any) -> None:
    """Give kernels the name that the parser knew."""
    import nki_cpu_simulator.nki.builtin as known  # type: ignore[import-not-found]

    builtins.builtin = known  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Let functions run that skip every case because its shapes are large."""
    functions: dict[str, list[Any]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in functions.values():
        if all(any(map(_is_slow, case.own_markers)) for case in cases):
            for case in cases:
                case.own_markers[:] = [m for m in case.own_markers if not _is_slow(m)]


def _is_slow(mark: Any) -> bool:
    return mark.name == "skip" and "slow simulation" in mark.kwargs.get("reason", "")


def pytest_collection_finish(session: Any) -> None:
    """Say that no kernel was compiled."""
    from test.utils.test_orchestrator import Orchestrator  # type: ignore[import-not-found]

    if not hasattr(Orchestrator, "_compiled_kernel"):
        Orchestrator._compiled_kernel = None
