"""One run of a command: the class, the cloud, check mode, what was changed, and what to tell the
user."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..aws.cloud import Cloud
from .class_file import ClassSpec


@dataclass
class Run:
    """Carry what every step needs. `check=True` changes nothing and records what would change."""

    spec: ClassSpec
    cloud: Cloud
    check: bool = False
    limit: frozenset[str] | None = None  # students; None means all
    discard: frozenset[str] = frozenset()  # whose work may be given up
    say: Callable[[str], None] = lambda _: None
    changes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    def do(self, what: str, act: Callable[[], Any]) -> Any:
        """Do `act` and record it as a change; in check mode only record."""
        result = None if self.check else act()
        with self._lock:
            self.changes.append(what)
        return result

    def warn(self, what: str) -> None:
        """Add a warning that the user reads at the end."""
        with self._lock:
            if what not in self.warnings:
                self.warnings.append(what)

    def wants(self, *names: str) -> bool:
        """Return whether a student or machine, under any of its names, is within --limit."""
        return self.limit is None or bool(self.limit & set(names))
