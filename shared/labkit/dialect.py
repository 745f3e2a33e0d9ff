"""The two dialects of NKI that labs are written in."""
from __future__ import annotations

#: dialect -> the file of a lab's kernels; "beta1" is `neuronxcc.nki`, "nki" is `import nki`
KERNELS = {"beta1": "kernels.py", "nki": "kernels_nki.py"}
DIALECTS = tuple(KERNELS)
PACKAGE = {"beta1": "neuronxcc.nki", "nki": "nki"}


def dialect_of(stem: str) -> str:
    """Return the dialect of a file of kernels by its name without the ending."""
    return next((d for d, file in KERNELS.items() if file == f"{stem}.py"), "beta1")
