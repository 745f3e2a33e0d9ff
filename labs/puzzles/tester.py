"""Try one puzzle (--puzzle 3), or all of them, and show how far you are."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

try:
    from labkit.cli import add_bench_flags, add_common_flags, guarded, run_tester
except ModuleNotFoundError as error:
    print(f"could not run: {error.name} is not installed; README.md at the top of the repository "
          "has the command that installs what the labs need", file=sys.stderr)
    sys.exit(2)
from spec import LAB, PUZZLES


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tester; return 0 if all passed, 1 if a case failed, 2 if it could not run."""
    parser = argparse.ArgumentParser(prog="tester.py", description=__doc__)
    parser.add_argument("--puzzle", type=int, choices=range(1, len(PUZZLES) + 1), metavar="N",
                        help=f"only this one, 1 to {len(PUZZLES)}")
    add_common_flags(parser, LAB)
    add_bench_flags(parser)
    args = parser.parse_args(argv)
    cases = LAB.cases if args.puzzle is None else (LAB.cases[args.puzzle - 1],)
    return run_tester(LAB, cases, args)


if __name__ == "__main__":
    sys.exit(guarded(main))
