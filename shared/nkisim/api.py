"""The public door of nkisim."""
from __future__ import annotations

from typing import Any

from .checks.finding import Finding, as_finding, worst_first
from .errors import NkiError
from .launch import Run, launch, watched


def run(kernel: Any, *args: Any, target: str | None = None, **kwargs: Any) -> Run:
    """Run a kernel and return its outputs with findings and counts.

    Args:
        kernel: a function, decorated with `@nki.jit` or plain; or `kernel[grid]`.
        args, kwargs: what the kernel takes; NumPy (or torch) arrays become HBM tensors.
        target: "trn1", "trn2" ...; default NEURON_PLATFORM_TARGET_OVERRIDE, else trn1
            (kernels of the package nki: trn2).

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
    with watched() as runs:
        try:
            launch(kernel, args, kwargs, target=target)
        except Exception as error:      # some rules travel inside the type that the SDK raises
            if not isinstance(rule := getattr(error, "nki_error", error), NkiError):
                raise
            runs.append([as_finding(rule)])
    return worst_first(f for found in runs for f in found)


def keep_memory() -> None:
    """Keep the memory of dead tiles from one run to the next: up to 256 MB instead of 32.

    For a thread of a process that runs kernels and nothing else; a run of a large kernel takes an
    eighth less time when its pages are there.
    """
    from .chip import pages
    pages.keep_on()


def rows() -> list[dict[str, Any]]:
    """Return what the table of instructions declares, plain values, one dict for each instruction.

    Keys: `name`; `beta1` and `nki`: its public name ("nisa.activation") in neuronxcc.nki and in
    nki, "" where it has none; `parameters`: by dialect, {parameter: whether it must be given};
    `operands`: name, `role` (read, write, update), `form` (tile, vector: (P, 1), access: what DMA
    moves, offset: a tile at a run-time offset), `dtype` (one that it takes and AWS documents),
    `numbers` and `optional` (a number, or None, will do), `width` (elements per partition that it
    must have, or None); `engines`; `writes`: the memories of its result; `targets` that have it.
    `python -m nkisim coverage --json` prints it.
    """
    from .declared import declared
    return declared()
