"""The two dialects of NKI that labs are written in."""
from __future__ import annotations

#: dialect -> the file of a lab's kernels; "beta1" is `neuronxcc.nki`, "nki" is `import nki`
KERNELS = {"beta1": "kernels.py", "nki": "kernels_nki.py"}
DIALECTS = tuple(KERNELS)
#: what verdicts and entries from before they named one speak
FIRST = "beta1"
PACKAGE = {"beta1": "neuronxcc.nki", "nki": "nki"}


def spoken(kernels: str) -> str:
    """Return the dialect of a file of a lab's kernels; a file of another name is of the first."""
    return next((d for d, file in KERNELS.items() if file == kernels), FIRST)
