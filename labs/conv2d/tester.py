"""Check conv2d kernels for correctness and speed: a case, or a fleet of cases."""
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
from spec import LAB

FLEETS = ("quick", "basic", "graded", "berkeley", "stanford", "stanford_pool", "full")


def parser() -> argparse.ArgumentParser:
    """Return the command line of this lab."""
    p = argparse.ArgumentParser(prog="tester.py", description=__doc__)
    what = p.add_mutually_exclusive_group()
    what.add_argument("--fleet", choices=FLEETS, help="a group of cases (default: berkeley)")
    what.add_argument("--basic", action="store_true", help="the same as --fleet basic")
    what.add_argument("--test_maxpool", "--test-maxpool", action="store_true",
                      help="the same as --fleet stanford_pool")
    what.add_argument("--test-case", metavar="NAME", help="one case, by name (see --list)")
    add_common_flags(p, LAB)
    add_bench_flags(p)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tester; return 0 if all passed, 1 if a case failed, 2 if it could not run."""
    args = parser().parse_args(argv)
    if args.test_case:
        cases = [LAB.case(args.test_case)]
    else:
        fleet = ("basic" if args.basic else "stanford_pool" if args.test_maxpool
                 else args.fleet or "berkeley")
        cases = [case for case in LAB.cases if fleet in case.fleets]
    return run_tester(LAB, cases, args)


if __name__ == "__main__":
    sys.exit(guarded(main))
