"""The public door of nkisim."""
from __future__ import annotations

from typing import Any

from .launch import Run, launch


def run(kernel: Any, *args: Any, target: str | None = None, **kwargs: Any) -> Run:
    """Run a kernel and return its outputs with findings and counts.

    Args:
        kernel: a function, decorated with `@nki.jit` or plain; or `kernel[grid]`.
        args, kwargs: what the kernel takes; NumPy (or torch) arrays become HBM tensors.
        target: "trn1", "trn2" ...; default NEURON_PLATFORM_TARGET_OVERRIDE, else trn1.

    Raises: NkiError when the kernel breaks a rule of NKI or of the chip.
    """
    return launch(kernel, args, kwargs, target=target)


def simulate(kernel: Any, *args: Any, target: str | None = None, **kwargs: Any) -> Any:
    """Run a kernel and return its outputs as arrays (torch in, torch out)."""
    return run(kernel, *args, target=target, **kwargs).outputs
