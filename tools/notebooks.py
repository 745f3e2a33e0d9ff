"""Write the labs' notebooks, one for each dialect of NKI: `python tools/notebooks.py`.

A tour is Markdown, `tour.md` of a lab. A block of Python is a code cell, what stands between two of
them a cell of text. The words behind "python" say for which dialect a cell is (`older`:
neuronxcc.nki, `newer`: import nki; without either: both) and give it tags (`raises-exception`: it
ends in an error on purpose). `import IMPORT`, `KERNELS` and `TARGET` stand for what the dialect
calls them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

LABS = Path(__file__).resolve().parents[1] / "labs"
#: dialect -> what the name of the notebook ends in, its imports, the file of a lab's kernels, and
#: the chip that its course is on
DIALECTS = {
    "older": (
        "",
        "import neuronxcc.nki as nki\nimport neuronxcc.nki.isa as nisa\n"
        "import neuronxcc.nki.language as nl",
        "kernels.py",
        "trn1",
    ),
    "newer": (
        "_nki",
        "import nki\nimport nki.isa as nisa\nimport nki.language as nl",
        "kernels_nki.py",
        "trn2",
    ),
}
CELL = re.compile(r"^```python([^\n]*)\n(.*?)^```\n", re.M | re.S)


def cells(tour: str, dialect: str) -> list[tuple[list[str], str, str]]:
    """Return (words behind "python", kind, text) of the cells of a dialect."""
    out: list[tuple[list[str], str, str]] = []
    ended = 0
    for block in [*CELL.finditer(tour), None]:
        words = block[1].split() if block else []
        text = tour[ended : block.start() if block else None].strip()
        if text:
            out.append(([], "markdown", text))
        if block:
            ended = block.end()
            if dialect in words or not set(words) & set(DIALECTS):
                out.append((words, "code", block[2].rstrip()))
    return out


def notebook(name: str, tour: str, dialect: str) -> dict[str, Any]:
    """Return the notebook of a tour in a dialect, without outputs (format 4.5)."""
    _, imports, kernels, target = DIALECTS[dialect]
    out = []
    for number, (words, kind, text) in enumerate(cells(tour, dialect)):
        text = text.replace("import IMPORT", imports)
        text = text.replace("KERNELS", kernels).replace("TARGET", target)
        tags = [word for word in words if word not in DIALECTS]
        cell: dict[str, Any] = {
            "cell_type": kind,
            "id": f"{name}-{number:02}",
            "metadata": {"tags": tags} if tags else {},
            "source": text.splitlines(keepends=True),
        }
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        out.append(cell)
    return {
        "cells": out,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def all_notebooks() -> dict[str, str]:
    """Return place (below labs/) and text of every notebook."""
    return {
        f"{lab.name}/tour{DIALECTS[dialect][0]}.ipynb": json.dumps(
            notebook(lab.name, (lab / "tour.md").read_text("utf-8"), dialect),
            indent=1,
            sort_keys=True,
            ensure_ascii=False,
        )
        + "\n"
        for lab in sorted(tour.parent for tour in LABS.glob("*/tour.md"))
        for dialect in DIALECTS
        if (lab / DIALECTS[dialect][2]).is_file()
    }


if __name__ == "__main__":
    for file, text in all_notebooks().items():
        (LABS / file).write_text(text, "utf-8")
        print(f"wrote {file}")
