"""A pytest plugin: a test of KLR's language passes only if what it accepts is not refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from klr import frontend


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[Any]:
    """Ask after each test; many of them look at no errors themselves."""
    frontend.errors.clear()
    result = yield
    if "fail" not in item.name:
        assert not frontend.errors, f"refused: {frontend.errors[0]}"
    return result
