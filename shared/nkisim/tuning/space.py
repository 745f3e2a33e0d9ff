"""What is tried: values of a kernel's constants and arguments, and variants of the kernel."""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import itertools
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import fail
from ..errors.frames import known_as
from ..simulation.launch import Kernel, as_kernel

_MISSING = object()
#: one candidate takes a tenth of a second or more: beyond this a day would not be enough
MOST = 200_000


@dataclass(frozen=True)
class Candidate:
    """A variant of the kernel (its place among them) and the values that it is tried with.

    `name`: the kernel's, with its file where variants of several files have one name.
    """

    variant: int
    name: str
    values: tuple[tuple[str, Any], ...]
    file: str = ""

    def __str__(self) -> str:
        return ", ".join([f"{n}={value_text(v)}" for n, v in self.values]) or "as it is"


def value_text(value: Any) -> str:
    """Return a value as a person would write it."""
    return str(getattr(value, "__name__", value))


def kernel_of(function: Any) -> Kernel:
    """Return the kernel of what users hold: a kernel, a plain function, a launcher of one."""
    return as_kernel(getattr(function, "kernel", function))


def constants_of(function: Any) -> dict[str, Any]:
    """Return the names of the file of a kernel; of a partial, of the function in it."""
    inner = kernel_of(function).func
    while isinstance(inner, functools.partial):
        inner = inner.func
    names: dict[str, Any] = getattr(inner, "__globals__", {})
    return names


def parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a kernel."""
    return inspect.signature(kernel_of(function).func).parameters


def now(function: Any, name: str) -> Any:
    """Return what an argument or a constant is without tuning; _MISSING if there is no such name.

    An argument without a default has None.
    """
    kernel_parameters = parameters(function)
    if name in kernel_parameters:
        return (
            None
            if kernel_parameters[name].default is inspect.Parameter.empty
            else kernel_parameters[name].default
        )
    return constants_of(function).get(name, _MISSING)


def candidates(variants: Sequence[Any], choices: Mapping[str, Iterable[Any]]) -> list[Candidate]:
    """Return every variant with every combination of values, after a look at the names.

    Raises NkiError (NKI-K17) for names that a variant does not know and for empty choices.
    """
    lists = {name: list(values) for name, values in choices.items()}
    for function in variants:
        for name, values in lists.items():
            if now(function, name) is _MISSING:
                raise _unknown(function, name)
            if not values:
                raise fail(
                    "NKI-K17",
                    f"there is no value to try for {name}",
                    given=f"{name}=",
                    limit="one value or more",
                    hint=f"{name}=128,256,512",
                )
    total = len(variants)
    for values in lists.values():
        total *= len(values)
    if total > MOST or not total:
        raise fail(
            "NKI-K17",
            "this is too much to try" if total else "there is nothing to try",
            given=f"{total:,} combinations",
            limit=f"1 to {MOST:,}",
            hint="give fewer values for each name; a first sweep can be a coarse one",
        )
    names, files = _names(variants), [_file(f) for f in variants]
    out = [
        Candidate(k, names[k], tuple(zip(lists, values)), files[k])
        for k in range(len(variants))
        for values in itertools.product(*lists.values())
    ]
    return list({(c.variant, str(c)): c for c in out}.values())  # a value may be given twice


def _file(function: Any) -> str:
    """Return the file of a kernel, as it is called from here; "" if it has none."""
    code = getattr(kernel_of(function).func, "__code__", None)
    return known_as(code.co_filename) if code is not None else ""


def _names(variants: Sequence[Any]) -> list[str]:
    """Return the names of variants, with as much before them as tells them apart."""
    plain = [kernel_of(f).__name__ for f in variants]
    if len({*plain}) == len(plain):
        return plain
    longer = [f"{os.path.basename(_file(f))}:{name}" for f, name in zip(variants, plain)]
    if len({*longer}) < len(longer):
        longer = [f"{name}#{k}" for k, name in enumerate(longer)]
    return longer


def _unknown(function: Any, name: str) -> Exception:
    kernel = kernel_of(function)
    constants = [n for n in constants_of(function) if n.isupper() and not n.startswith("_")]
    names = [*parameters(function), *constants]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return fail(
        "NKI-K17",
        f"{kernel.__name__} has no argument or constant {name}",
        given=f"{name}=...",
        limit="arguments: "
        + (", ".join(parameters(function)) or "-")
        + "; constants of its file: "
        + (", ".join(constants) or "-"),
        hint=f"did you mean {close[0]}?" if close else "tune one of these",
    )


@contextmanager
def applied(function: Any, candidate: Candidate) -> Iterator[dict[str, Any]]:
    """Set a candidate's constants where its kernel looks them up; yield its arguments by name."""
    kernel_parameters, constants = parameters(function), constants_of(function)
    named = {n: v for n, v in candidate.values if n in kernel_parameters}
    before = {n: constants[n] for n, _ in candidate.values if n not in kernel_parameters}
    try:
        constants.update((n, v) for n, v in candidate.values if n not in kernel_parameters)
        yield named
    finally:
        constants.update(before)


def derived(function: Any, names: Iterable[str]) -> list[str]:
    """Return a sentence for each constant that the file computed from one that is tuned.

    It was computed when the file was imported, and keeps its value.
    """
    kernel = kernel_of(function)
    source = _source(kernel.func)
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return []
    out = []
    wanted = set(names) - set(parameters(function))
    for node in tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        used = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)} & wanted
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if used and isinstance(target, ast.Name):
                out.append(
                    f"{target.id} is computed from {', '.join(sorted(used))} when the file "
                    "is imported, and keeps its value: tune it as well, or compute it in "
                    "the kernel"
                )
    return out


def _source(function: Callable[..., Any]) -> str:
    module = inspect.getmodule(function)
    try:
        return inspect.getsource(module) if module is not None else ""
    except (OSError, TypeError):
        return ""
