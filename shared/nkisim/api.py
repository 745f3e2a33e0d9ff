"""The public door of nkisim."""

from __future__ import annotations

import inspect
from typing import Any

from .checks.finding import Finding, as_finding, worst_first
from .chip import hw
from .errors import NkiError
from .report import drawing
from .report.drawing import Drawing
from .simulation.launch import Run, collected_findings, launch
from .timing import floor


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


def record(kernel: Any, *args: Any, target: str | None = None, **kwargs: Any) -> Run:
    """Run a kernel without its arithmetic, each iteration of its loops, and return the record.

    Args, raises: as for `run`, but for what the checks of a record or of values find. No value is
    there for the kernel to see; one that reads numbers from memory is run again with values.
    Returns: a Run whose outputs are None.
    """
    return launch(
        kernel, args, kwargs, target=target, compute=False, every_iteration=True, checks=False
    )


def draw(
    kernel: Any, *args: Any, target: str | None = None, code: bool = True, **kwargs: Any
) -> Drawing:
    """Run a kernel and return a drawing of what each of its lines reads and writes.

    Args: as for `run`; `code`: whether the source lines stand in it as well.
    Returns: an object with the text of an SVG file, `svg`; notebooks show it. It has a row for each
    source line, at most 40: it is meant for small kernels.
    Raises: NkiError when the kernel breaks a rule of NKI or of the chip.
    """
    made = launch(kernel, args, kwargs, target=target)
    body = getattr(kernel, "func", kernel)
    names = inspect.signature(body).bind(*args, **kwargs).arguments
    shapes = {name: tuple(x.shape) for name, x in names.items() if hasattr(x, "shape")}
    return drawing.draw(made.trace, shapes, getattr(body, "__name__", "a kernel"), code)


def simulate(kernel: Any, *args: Any, target: str | None = None, **kwargs: Any) -> Any:
    """Run a kernel and return its outputs as arrays (torch in, torch out)."""
    return run(kernel, *args, target=target, **kwargs).outputs


def check(kernel: Any, *args: Any, target: str | None = None, **kwargs: Any) -> list[Finding]:
    """Run a kernel and return all that is wrong with it, worst first; a broken rule included.

    Args: as for `run`. Returns: Finding objects (id, severity "error", "warning" or "note", text,
    where, other, hint); empty if nothing is wrong. `python -m nkisim check` does it for a script.
    """
    with collected_findings() as runs:
        try:
            launch(kernel, args, kwargs, target=target)
        except Exception as error:  # some rules travel inside the type that the SDK raises
            if not isinstance(rule := getattr(error, "nki_error", error), NkiError):
                raise
            runs.append([as_finding(rule)])
    return worst_first(f for of_run in runs for f in of_run)


def least_us(
    target: str,
    came: int,
    went: int,
    *,
    flops: float = 0.0,
    dtype: str = "float32",
    moved: bool = False,
) -> float:
    """Return the least time in microseconds that any kernel can take, by the figures of the chip.

    Args: bytes of inputs and of outputs; operations of the Tensor Engine (two for a product and
    its addition) and their dtype; `moved`: whether DMAs alone can do it (copies and sums).
    """
    core = hw.get(target)
    return floor.floor_us(core, came, went, floor.tensor_us(core, flops, dtype), moved)


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
    from .instruction_table import declared

    return declared()


def standalone() -> dict[str, str]:
    """Return the sources, by name, of what has to be where a kernel's Python runs, and needs
    nothing of the simulator there: for graders whose kernels run in a process without it."""
    from .language.nki import objects
    from .machine import bytecode

    return {"bytecode": inspect.getsource(bytecode), "objects": inspect.getsource(objects)}
