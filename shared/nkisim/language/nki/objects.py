"""`nl.NKIObject`, the base of classes that kernels define.

It needs nothing of the simulator: where a kernel runs in a process without it, that has this file.
"""

from __future__ import annotations

import inspect
from typing import Any


class NKIObject:
    """Base of the classes that kernels may define and be given.

    The language takes every name that a class body assigns for a field of it, annotated or not, and
    gives None to those that have no value: `@dataclass class Sizes(nl.NKIObject): rows = 1` makes
    `Sizes(rows=128)`.
    """

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        declared = inspect.get_annotations(cls)
        for name in declared:
            if not hasattr(cls, name):
                setattr(cls, name, None)
        plain = {
            name: Any
            for name, value in vars(cls).items()
            if name not in declared and not name.startswith("__") and _is_value(value)
        }
        if plain:  # dataclass() comes after this, and reads annotations
            typed = {**declared, **plain}
            order = [n for n in declared if n not in vars(cls)] + [
                n for n in vars(cls) if n in typed
            ]
            cls.__annotations__ = {name: typed[name] for name in order}

    def __init__(self, *args: Any, **kwargs: Any):
        """Set the fields, in the order of the class bodies; one without a default is None."""
        bodies = [c for c in reversed(type(self).__mro__) if issubclass(c, NKIObject)]
        fields = list(dict.fromkeys(n for c in bodies for n in inspect.get_annotations(c)))
        given = dict(zip(fields, args))
        wrong = [n for n in kwargs if fields and n not in fields or n in given]
        if len(args) > len(fields) or wrong:
            raise TypeError(
                f"{type(self).__name__}({', '.join(fields)}) was given "
                + (
                    f"{wrong[0]!r}, which it has not, or has already"
                    if wrong
                    else f"{len(args)} values"
                )
            )
        defaults = {n: getattr(type(self), n, None) for n in fields}
        for name, value in {**defaults, **given, **kwargs}.items():
            setattr(self, name, value)
        if post := getattr(self, "__post_init__", None):
            post()


def _is_value(x: Any) -> bool:
    """Return whether what a class body assigns is a value, that a default may be: no method."""
    return not hasattr(x, "__get__") and not isinstance(x, type) and x.__hash__ is not None
