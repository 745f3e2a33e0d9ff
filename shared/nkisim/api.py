"""The public door of nkisim."""
from __future__ import annotations

from typing import Any

from .checks.finding import Finding, as_finding, worst_first
from .errors import NkiError
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


def check(kernel: Any, *args: Any, target: str | None = None, **kwargs: Any) -> list[Finding]:
    """Run a kernel and return all that is wrong with it, worst first; a broken rule included.

    Args: as for `run`. Returns: Finding objects (id, severity "error", "warning" or "note", text,
    where, other, hint); empty if nothing is wrong. `python -m nkisim check` does it for a script.
    """
    try:
        return worst_first(launch(kernel, args, kwargs, target=target).findings)
    except NkiError as error:
        return [as_finding(error)]
    except Exception as error:          # some rules travel inside the type that the SDK raises
        if isinstance(rule := getattr(error, "nki_error", None), NkiError):
            return [as_finding(rule)]
        raise
