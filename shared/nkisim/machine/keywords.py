"""Keywords that a function does not have: beta 1 ignores them, the simulator says so."""
from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .machine import Machine

#: keywords that kernels pass to name a result or to direct the compiler; the chip knows none
SILENT = frozenset(("name", "lazy_initialization", "precise_schedule", "max_free_vec_size",
                    "directives"))


def bare(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature without annotations, as a person reads it."""
    return inspect.Signature([p.replace(annotation=p.empty)
                              for p in signature.parameters.values()])


def said(given: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return in words each of the keywords that is not in `known`, with what it may mean."""
    names, words = sorted(known), []
    for name in given:
        if name not in SILENT and name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            words.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    return words


def unknown(m: Machine, api: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Add a finding for the keywords of a call of `api` that are not in `known`."""
    if words := said(given, known):
        m.find("NKI-K11", "warning", f"{api} has no argument {', '.join(words)}; the SDK ignores "
               "it without a word", m.here())
