"""Binding a call to its parameters, and keywords that a function does not have.

Beta 1 ignores such keywords; the simulator says so.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import source_text

if TYPE_CHECKING:
    from .interface import Machine

#: keywords that kernels pass to name a result or to direct the compiler; the chip knows none
SILENT = frozenset(
    ("name", "lazy_initialization", "precise_schedule", "max_free_vec_size", "directives")
)


#: the default of a parameter that has none
REQUIRED = inspect.Parameter.empty


class Parameters:
    """The parameters of a function: names, defaults, places, and how many go by place."""

    def __init__(self, defaults: dict[str, Any], by_place: int):
        self.names, self.defaults = tuple(defaults), list(defaults.values())
        self.places = {name: i for i, name in enumerate(self.names)}
        self.by_place = by_place
        #: past the last one that is required
        self.required = max((i for i, d in enumerate(self.defaults, 1) if d is REQUIRED), default=0)

    def bind(self, args: tuple, kw: dict[str, Any]) -> list[Any] | None:
        """Return the arguments in the order of the parameters, None if the call does not fit.

        `inspect.Signature.bind` takes 20 times as long, and each planned call comes by here.
        """
        given = len(args)
        if given > self.by_place:
            return None
        values = [*args, *self.defaults[given:]]
        for name, value in kw.items():
            place = self.places.get(name, -1)
            if place < given:  # there is none, or it is given by place as well
                return None
            values[place] = value
        for place in range(given, self.required):
            if values[place] is REQUIRED:
                return None
        return values


def bare(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature without annotations, as a person reads it."""
    return inspect.Signature([p.replace(annotation=p.empty) for p in signature.parameters.values()])


def describe_unknown(given: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return in words each of the keywords that is not in `known`, with what it may mean."""
    names, words = sorted(known), []
    for name in given:
        if name not in SILENT and name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            words.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    return words


def unknown(m: Machine, api: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Add a finding for the keywords of a call of `api` that are not in `known`."""
    if words := describe_unknown(given, known):
        more = (
            f". In neuronxcc.nki the result is assigned: t[...] = {api}(...)"
            if "dst" in given
            else ""
        )
        m.find(
            "NKI-K11",
            "warning",
            f"{api} has no argument {', '.join(words)}; the SDK ignores it without a word{more}",
            m.here(),
        )


def tuple_meant(args: tuple) -> str:
    """Return what to write for f(128, 512, dtype=...), "" for other arguments."""
    sizes = [argument for argument in args if type(argument) is int]
    return f"a shape is one tuple: ({', '.join(map(str, sizes))})" if len(sizes) > 1 else ""


def left_out(api: str, name: str, args: tuple = ()) -> str:
    """Return what to write for an argument that was left out, "" if nothing is known of it."""
    if (
        name in ("y", "x")
        and api.startswith("nl.")
        and all(isinstance(argument, (int, float)) for argument in args)
    ):
        return f"as an operator it is not called: op0={api}, and operand0= for the number"
    return {
        "axis": f"{api}(..., axis=1): the free axis of a tile (P, F)",
        "dtype": f"{api}(..., dtype=nl.float32)",
        "value": f"{api}(..., value=0.0)",
    }.get(name, "")


def _destination_first(
    api: str, signature: inspect.Signature, args: tuple, given: Iterable[str]
) -> str:
    """Return what to write for f(t, a, b), with the tile of the result first, as in `import nki`.

    "" if the call is not of that form.
    """
    memories = [getattr(argument, "memory", "") for argument in args]
    if "dst" in signature.parameters or not any(memories[1:]) or memories[0] in ("", "hbm"):
        return ""
    try:
        signature.bind_partial(*args[1:], **{k: None for k in given if k in signature.parameters})
    except TypeError:
        return ""
    calls = source_text.calls(api)
    if len(calls) != 1 or len(calls[0].args) != len(args):
        return f"in neuronxcc.nki the result is assigned: t[...] = {api}(...)"
    first, *rest = map(ast.unparse, calls[0].args)
    rest += [ast.unparse(k) for k in calls[0].keywords]
    dst = f"{first}[...]" if first.isidentifier() else first
    return f"in neuronxcc.nki the result is assigned: {dst} = {api}({', '.join(rest)})"


def _destination_last(api: str, args: tuple) -> str:
    """Return what to write for nl.load(source, destination), "" for another call."""
    if not api.startswith("nl.load") or len(args) < 2 or not hasattr(args[1], "memory"):
        return ""
    calls = source_text.calls(api)
    source, dst = (
        map(ast.unparse, calls[0].args)
        if len(calls) == 1 and len(calls[0].args) == 2
        else ("x", "out" if args[1].memory == "hbm" else "t")
    )
    if args[1].memory == "hbm":
        return f"the result is a tile, which is stored: t = {api}({source}); nl.store({dst}, t)"
    whole = f"{dst}[...]" if dst.isidentifier() else dst
    return f"the result is assigned: {whole} = {api}({source})"


def cure(
    api: str,
    problem: str,
    signature: inspect.Signature,
    args: tuple = (),
    given: Iterable[str] = (),
) -> str:
    """Return what to write for a call that does not fit its signature."""
    if (
        "dst" in given
        or "dst" in source_text.arguments(api, ())
        and "dst" not in signature.parameters
    ):
        made = "" if api != "nisa.memset" else "shape, value, dtype=nl.float32"
        return f"in neuronxcc.nki the result is assigned: t = {api}({made or '...'})"
    if "positional" in problem or "multiple values" in problem:
        if text := _destination_first(api, signature, args, given) or _destination_last(api, args):
            return text
    if "multiple values" in problem and (text := tuple_meant(args)):
        return text
    named = [
        p.name
        for p in signature.parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.name not in ("mask", "kwargs")
    ]
    if "too many positional" in problem and named:
        return f"by name: {api}({', '.join(f'{name}=...' for name in named[:2])})"
    missing = re.search(r"missing a required argument: '(\w+)'", problem)
    return (
        left_out(api, missing[1], args) if missing else ""
    ) or f"help({api}) says what each argument is"
