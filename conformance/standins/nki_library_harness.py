"""A pytest plugin: what the tests of AWS's kernel library import and its publication leaves out.

Two modules of its harness (locks of remote machines, an analysis of traces) are not in the public
repository, and an attribute that only compiled kernels get is asked for in its simulation mode.
"""
from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any


def _module(name: str, **contents: Any) -> None:
    sys.modules[name] = module = ModuleType(name)
    module.__dict__.update(contents)


_module("test.utils.scripts", __path__=[])
_module("test.utils.scripts.remote_lock_scripts", LockResult=SimpleNamespace,
        LockStatus=SimpleNamespace)
_module("test.utils.perf_analysis_private", analyze_trace=lambda *_, **__: None)


def pytest_collection_finish(session: Any) -> None:
    """Say that no kernel was compiled."""
    from test.utils.test_orchestrator import Orchestrator  # type: ignore[import-not-found]
    if not hasattr(Orchestrator, "_compiled_kernel"):
        Orchestrator._compiled_kernel = None
