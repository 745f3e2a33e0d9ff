"""The kernels that a script calls, each with its predicted time."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nkisim.cli import answer, script
from nkisim.cli.time_limit import OutOfTime
from nkisim.cli.words import CannotRun
from nkisim.simulation import launch

if TYPE_CHECKING:
    from nkisim.simulation.prediction import Profile

_ROWS = 30  # of the table that are printed
_WIDTH = 60  # characters of the arguments


@dataclass
class Row:
    """Calls of one kernel with arguments of the same shapes, which take the same time."""

    profile: Profile  # of the last of them
    calls: int = 1

    @property
    def arguments(self) -> str:
        """Return the arguments as `a=128x512:float32, n=4`."""
        return ", ".join(
            f"{a['name']}="
            + (
                f"{'x'.join(map(str, a['shape']))}:{a['dtype']}"
                if "shape" in a
                else str(a["value"])
            )
            for a in self.profile.arguments
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what calls of one row have in common."""
        return self.profile.kernel_name, self.arguments, self.profile.latency_us

    def to_dict(self) -> dict[str, Any]:
        """Return the row for JSON; the time of one call in microseconds, predicted."""
        return {
            "kernel": self.profile.kernel_name,
            "target": self.profile.target,
            "arguments": list(self.profile.arguments),
            "calls": self.calls,
            "latency_us": self.profile.latency_us,
            "bound": self.profile.bound,
        }


def ordered(argv: Sequence[str]) -> list[str]:
    """Return the words with a bare --json in front, where it takes no other word as its value."""
    words = answer.json_first(argv)
    if list(words) != list(argv):
        return ["--json=-", *words[:-1]]
    return words


def run(
    options: argparse.Namespace,
    rest: list[str],
    on: Iterable[str] | None,
    descriptors: str | None,
) -> tuple[int, dict[str, Any] | None, list[Row]]:
    """Run a script to its end; return (exit code, the error that ended it, the rows of its calls).

    Raises CannotRun if it calls no kernel.
    """
    from nkisim.simulation.prediction import of_run

    rows: dict[tuple[Any, ...], Row] = {}

    def observe(name: str, one: launch.Run) -> None:
        row = Row(of_run(one, name, descriptors, on))
        if before := rows.pop(row.key, None):
            row.calls += before.calls
        rows[row.key] = row

    start = script.prepared(options, rest)
    code, problem = 0, None
    launch.OBSERVERS.append(observe)
    try:
        start()
    except SystemExit as end:
        code = 1 if answer.exit_code(end) else 0
    except (CannotRun, OutOfTime, KeyboardInterrupt):
        raise
    except BaseException as error:
        answer.say("profile", error)
        code, problem = answer.code_of(error), answer.error_of(error)
    finally:
        launch.OBSERVERS.remove(observe)
    if not rows and not code:
        raise script.no_kernel(options, "Profile", "python tester.py --in-process")
    return code, problem, list(rows.values())


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, in the order of their last calls."""
    lines = [f"{'row':>3}  {'calls':>5}  {'us each':>12}  kernel"]
    skipped = max(0, len(rows) - _ROWS)
    if skipped:
        lines.append(f"     {skipped} rows before; --row N shows one, --json all")
    for n, row in list(enumerate(rows, 1))[skipped:]:
        arguments = row.arguments
        arguments = arguments if len(arguments) <= _WIDTH else arguments[: _WIDTH - 3] + "..."
        lines.append(
            f"{n:>3}  {row.calls:>5}  {row.profile.latency_us:>12,.1f}  "
            f"{row.profile.kernel_name}({arguments})"
        )
    total = sum(row.calls * row.profile.latency_us for row in rows)
    calls = sum(row.calls for row in rows)
    lines.append(f"all  {calls:>5}  {total:>12,.1f}  (predicted; the sum, one after another)")
    return "\n".join(lines)


def chosen(rows: Sequence[Row], number: int | None) -> Row:
    """Return row `number`, the last one for None; raise CannotRun for one that there is not."""
    if number is None:
        return rows[-1]
    if not 1 <= number <= len(rows):
        raise CannotRun(f"--row {number}: the table has rows 1 to {len(rows)}.")
    return rows[number - 1]
