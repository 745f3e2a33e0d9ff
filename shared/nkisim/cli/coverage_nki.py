"""What is modelled of `nki`, the dialect of today: its public names at release 0.7."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any

from ..isa.table import ROWS
from ..language import nki
from ..language.nki import collectives, compiler, isa, language
from ..language.nki.names import NAMES

TITLES = {
    "nki": "`nki`",
    "nl": "`nki.language` (nl)",
    "nisa": "`nki.isa` (nisa)",
    "ncc": "`nki.compiler` (ncc)",
    "nccl": "`nki.collectives`",
}
#: names that are taken and change nothing
TAKEN = {f"ncc.{n}": "nothing of it changes a run" for n in NAMES["ncc"].split()}
#: names that 0.7 has no more
UNTIL = {"nl.dynamic_range": "until 0.6, and with NKI_COMPILER_FRONTEND=custom"}
MODULES: dict[str, types.ModuleType] = {
    "nki": nki,
    "nl": language,
    "nisa": isa,
    "ncc": compiler,
    "nccl": collectives,
}


def names() -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each public name."""
    for module, text in NAMES.items():
        for name in text.split():
            yield module, name


def found(module: str, name: str) -> Any:
    """Return what the simulator has under a name, or None."""
    return getattr(MODULES[module], name, None)


def markdown() -> list[str]:
    """Return the lines of the page."""
    all_names = list(names())
    count = sum(found(m, n) is not None and f"{m}.{n}" not in TAKEN for m, n in all_names)
    rest = len(all_names) - count - len(TAKEN)
    parts = [
        "\n# The package `nki`\n",
        f"Of the {len(all_names)} public names of NKI 0.7 (Neuron SDK 2.33) {count} are modelled, "
        f"{len(TAKEN)} accepted but not modelled, and {rest} are missing. Parameters are "
        "those of 0.7 where its documents were to be had, else of 0.6; keywords that a "
        "function does not have are an error.",
    ]
    rows = {row.nki.partition("(")[0]: row for row in ROWS.values() if row.nki}
    for module, title in TITLES.items():
        parts += [
            f"\n## {title}\n",
            "| name | status | parameters | instruction (engines) |",
            "|---|---|---|---|",
        ]
        for name in sorted((n for m, n in all_names if m == module), key=str.lower):
            value, row = found(module, name), rows.get(f"{module}.{name}")
            # since Python 3.13 enums have one as well, in another form in each version
            own = None if inspect.isclass(value) else getattr(value, "__signature__", None)
            says = f"`{own}`" if isinstance(own, inspect.Signature) else "-"
            steps = f"`{row.name}` ({', '.join(row.engines)})" if row else "-"
            status = "missing" if value is None else "modelled"
            if f"{module}.{name}" in TAKEN:
                status = f"accepted but not modelled: {TAKEN[f'{module}.{name}']}"
            if f"{module}.{name}" in UNTIL:
                status += f" ({UNTIL[f'{module}.{name}']})"
            parts.append(
                f"| `{module}.{name}` | {status} | {says.replace('|', chr(92) + '|')} | {steps} |"
            )
    return parts
