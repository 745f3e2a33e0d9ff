"""What every function of `nl` does first: it needs a kernel, and says which keywords it has not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...errors import fail
from ...machine import assignment, keywords
from ...machine.context import machine


def _check_fits(
    api: str, signature: inspect.Signature, args: tuple, kw: dict[str, Any], other: dict[str, Any]
) -> None:
    """Raise if a call does not fit its signature; `other` are keywords that it does not have."""
    try:
        signature.bind(*args, **kw)
    except TypeError as exc:
        wrong = keywords.describe_unknown(other, signature.parameters)
        raise fail(
            "NKI-X01",
            f"{api} was not given what it takes: {exc}"
            + (f"; it has no {', '.join(wrong)}" if wrong else ""),
            limit=f"{api}{keywords.bare(signature)}",
            hint=keywords.cure(api, str(exc), signature, args, other),
        ) from None


def public(plan: Callable, name: str = "", module: str = "nl") -> Any:
    """Make `plan(m, ...)` the function `nl.name`, without the machine in its signature.

    `module`: nl, or nisa.
    """
    name = name or plan.__name__
    api = f"{module}.{name}"
    signature = inspect.signature(plan)
    params = list(signature.parameters.values())[1:]
    signature = signature.replace(parameters=params)
    names = frozenset(p.name for p in params if p.kind is not p.VAR_POSITIONAL)

    def function(*args: Any, **kw: Any) -> Any:
        m = machine(api)
        m.flush()
        other = {}
        if kw and not names.issuperset(kw):  # beta 1 takes and ignores them
            keywords.unknown(m, api, kw, names)
            other = {k: v for k, v in kw.items() if k not in names}
            kw = {k: v for k, v in kw.items() if k in names}
        try:
            result = plan(m, *args, **kw)
        except TypeError:
            _check_fits(api, signature, args, kw, other)
            raise
        if module == "nl" and kw.get("dtype") is not None:
            assignment.has_its_dtype(result)
        return result

    function.__code__ = function.__code__.replace(co_name=name)  # what errors call it
    function.__name__ = function.__qualname__ = name
    function.__doc__ = plan.__doc__
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function
