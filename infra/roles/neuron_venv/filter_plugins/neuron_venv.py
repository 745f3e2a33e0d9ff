"""Choose an environment by pattern."""

from __future__ import annotations

import re


def first(pattern: str, paths: list[str]) -> str:
    """Return the first path that matches, or an empty string."""
    return next((p for p in paths if re.search(pattern, p)), "")


class FilterModule:
    """Register the filter."""

    def filters(self) -> dict:
        """Return name and function."""
        return {"neuron_venv_first": first}
