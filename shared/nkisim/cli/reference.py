"""The page of a function of NKI, for `nkisim explain nc_matmul`: its call, what it does, where."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from ..course import chosen
from ..instruction_table import declared

#: dialect -> the package that kernels import; modules whose functions have pages, by short name
PACKAGES = {"nki": "import nki", "beta1": "neuronxcc.nki"}
_MODULES = {
    "nki": {"nisa": "nkisim.language.nki.isa", "nl": "nkisim.language.nki.language"},
    "beta1": {"nisa": "nkisim.language.beta1.isa", "nl": "nkisim.language.beta1.language"},
}


def names() -> list[str]:
    """Return the names of the functions that have pages, without their modules."""
    functions = set()
    for modules in _MODULES.values():
        for module in map(import_module, modules.values()):
            functions |= {n for n in vars(module) if inspect.isfunction(vars(module)[n])}
    return sorted(name for name in functions if not name.startswith("_"))


def page(word: str) -> str:
    """Return the page of a function of NKI ("nc_matmul", "nisa.nc_matmul"), "" if there is none.

    With a course, of its dialect alone.
    """
    prefix, _, name = word.strip().rpartition(".")
    course = chosen().course
    parts: dict[str, list[str]] = {}  # what a function does -> how it is called
    for dialect in [course.dialect] if course else PACKAGES:
        for short, module in _MODULES[dialect].items():
            function = getattr(import_module(module), name, None) if name.isidentifier() else None
            if prefix and prefix.rpartition(".")[2] not in (short, module.rpartition(".")[2]):
                continue
            if not inspect.isfunction(function) or name.startswith("_"):
                continue
            api = f"{short}.{name}"
            call = f"{PACKAGES[dialect]}:  {api}{_signature(function)}"
            text = "\n\n".join(filter(None, (inspect.getdoc(function), _engines(api, dialect))))
            parts.setdefault(text, []).append(call)
    return "\n\n\n".join("\n".join([*calls, "", text]) for text, calls in parts.items())


def _signature(function: Any) -> str:
    """Return a signature without annotations."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def _engines(api: str, dialect: str) -> str:
    """Return where an instruction runs, by the table; "" for what is none."""
    for row in declared():
        if row[dialect] == api:
            where = f"Runs on: {', '.join(row['engines'])}; writes {' or '.join(row['writes'])}"
            return f"{where}; on {', '.join(row['targets'])}."
    return ""
