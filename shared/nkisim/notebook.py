"""`%load_ext nkisim.notebook`: the magic %%nki, which runs a cell's kernel and shows what it did.

    %%nki x, y --target trn2
    @nki.jit
    def add(a, b): ...

The cell is run as it is; then the last kernel that it defines (or `--kernel NAME`) is called with
the arguments of the first line, Python expressions separated by commas. The result has `outputs`,
`profile` and `findings`, and shows them.
"""

from __future__ import annotations

import argparse
import ast
import shlex
from html import escape
from typing import Any

from .checks.finding import worst_first
from .simulation.prediction import Profile, profile

EDGE = 3  # values that are shown of each end of an output


class MagicError(ValueError):
    """The first line of a %%nki cell cannot be used; a sentence for the user."""


class CellResult:
    """What a %%nki cell did: `outputs` (arrays), `profile`, `findings`, worst first."""

    def __init__(self, prof: Profile):
        self.profile, self.outputs = prof, prof.outputs
        self.findings = worst_first(prof.findings)

    def __repr__(self) -> str:
        lines = "".join(f"\n{f}" for f in self.findings)
        outputs = "".join(f"\n{name}: {text}" for name, text in described(self.outputs))
        return f"{headline(self.profile)}{outputs}{lines or NOTHING_FOUND}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td style='text-align:left'><code>"
            f"{escape(text)}</code></td></tr>"
            for name, text in described(self.outputs)
        )
        items = (
            "".join(f._repr_html_() for f in self.findings)
            or f"<p>{escape(NOTHING_FOUND.strip())}</p>"
        )
        return (
            f"<p><b>{escape(headline(self.profile))}</b></p><table>{rows}</table>{items}"
            "<details><summary>Timeline, memory, source</summary>"
            f"{self.profile._repr_html_()}</details>"
        )


NOTHING_FOUND = "\nNo findings: no hazard, no undefined read, no alias."


def headline(prof: Profile) -> str:
    """Return the sentence about the time; it says that it is predicted."""
    counts = (
        f"{sum(prof.instructions.values()):,} instructions, {prof.dma_transfer_count:,} transfers"
    )
    return (
        f"{prof.kernel_name}: {prof.latency_us:,.1f} us on {prof.target}, predicted, not "
        f"measured; {counts}; limited by {prof.bound}"
    )


def described(outputs: Any) -> list[tuple[str, str]]:
    """Return (name, shape, dtype and a few values) of what a kernel returned."""
    results = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    out = []
    for k, value in enumerate(results):
        if not hasattr(value, "shape"):
            out.append((f"output {k}", repr(value)[:200]))
            continue
        flat = value.reshape(-1)
        texts = [f"{v:.6g}" for v in flat[:EDGE].tolist()]
        if len(flat) > EDGE:
            texts += ["..."] * (len(flat) > 2 * EDGE) + [
                f"{v:.6g}" for v in flat[max(EDGE, len(flat) - EDGE) :].tolist()
            ]
        out.append((f"output {k}", f"{value.dtype} {list(value.shape)}: {' '.join(texts)}"))
    return out


def parse(line: str) -> tuple[str, argparse.Namespace]:
    """Return the expression of the arguments, and the options; raises MagicError."""
    parser = argparse.ArgumentParser(
        prog="%%nki", add_help=False, allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--target")
    parser.add_argument("--kernel")
    before, mark, after = line.partition("--")
    try:
        options, left = parser.parse_known_args(shlex.split(mark + after))
    except (argparse.ArgumentError, ValueError) as error:
        raise MagicError(
            f"%%nki: {error}. Write %%nki ARGUMENTS [--target trn2] [--kernel NAME]"
        ) from None
    if left:
        raise MagicError(
            f"%%nki does not know {left[0]!r}; it takes arguments for the kernel, "
            "separated by commas, then --target and --kernel"
        )
    return before.strip(), options


def kernel_in(cell: str) -> str | None:
    """Return the name of the last function of a cell whose decorators name nki."""
    names = [
        node.name
        for node in ast.parse(cell).body
        if isinstance(node, ast.FunctionDef)
        and any("nki" in ast.unparse(d) for d in node.decorator_list)
    ]
    return names[-1] if names else None


def _run(shell: Any, cell: str) -> bool:
    """Run what stands below %%nki; places in it are said by number and lines of the whole cell."""
    count = shell.execution_count  # in newer versions it is the next cell's already
    running = getattr(shell.displayhook.exec_result, "execution_count", None)
    shell.execution_count = running or count
    try:
        return bool(shell.run_cell(f"# %%nki\n{cell}", store_history=False).success)
    finally:
        shell.execution_count = count


def load_ipython_extension(shell: Any) -> None:
    """Register %%nki; IPython calls this for `%load_ext nkisim.notebook`."""

    def nki(line: str, cell: str) -> CellResult | None:
        """Run a cell that defines a kernel, call the kernel, and show what it did."""
        arguments, options = parse(line)
        if not _run(shell, cell):
            return None  # the cell's own error has been shown
        name = options.kernel or kernel_in(cell)
        if name is None:
            raise MagicError(
                "%%nki: the cell defines no kernel (a function with @nki.jit); define "
                "one, or name one with --kernel"
            )
        if name not in shell.user_ns:
            raise MagicError(f"%%nki: there is no kernel named {name}")
        values = shell.ev(f"({arguments},)" if arguments else "()")
        return CellResult(profile(shell.user_ns[name], *values, target=options.target))

    shell.register_magic_function(nki, "cell", "nki")


__all__ = ["MagicError", "CellResult", "load_ipython_extension"]
