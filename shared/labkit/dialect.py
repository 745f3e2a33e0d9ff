"""The two dialects of NKI that labs are written in, and which one an installed SDK speaks."""
from __future__ import annotations

from importlib import metadata

from nkisim.finder import FIRST_COMPILER_WITHOUT_NKI

#: dialect -> the file of a lab's kernels; "beta1" is `neuronxcc.nki`, "nki" is `import nki`
KERNELS = {"beta1": "kernels.py", "nki": "kernels_nki.py"}
DIALECTS = tuple(KERNELS)
PACKAGE = {"beta1": "neuronxcc.nki", "nki": "nki"}
_PLACEHOLDER = "0.0.1"      # the distribution `nki` on PyPI, which holds nothing


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def spoken(compiler: str | None, package: str | None) -> str:
    """Return the dialect for given versions of `neuronx-cc` and `nki` (None: not installed).

    A compiler before 2.25 takes neuronxcc.nki, also beside a package `nki` (SDK 2.27 to 2.29 have
    both); a later one, or the package alone, speaks the new one. Without an SDK it is "beta1".
    """
    if compiler is not None:
        parts = tuple(int(p) for p in compiler.split(".")[:2] if p.isdigit())
        return "beta1" if parts < FIRST_COMPILER_WITHOUT_NKI else "nki"
    return "nki" if package not in (None, _PLACEHOLDER) else "beta1"


def default_dialect() -> str:
    """Return the dialect of the SDK that is installed here, else "beta1"."""
    return spoken(_version("neuronx-cc"), _version("nki"))
