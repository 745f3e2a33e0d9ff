"""A pytest plugin: of AWS's kernel library, only the tests that leave trn2 out."""

from __future__ import annotations

from typing import Any


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Deselect what another suite runs on trn2."""
    kept = [
        item
        for item in items
        if (mark := item.get_closest_marker("platforms"))
        and any(str(p) == "trn2" for p in mark.kwargs.get("exclude") or ())
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
