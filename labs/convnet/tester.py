"""Check the kernels: small cases (the default), or with --speed those that ask for a time."""
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
from spec import KERNELS, LAB


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tester; return 0 if all passed, 1 if a case failed, 2 if it could not run."""
    parser = argparse.ArgumentParser(prog="tester.py", description=__doc__)
    parser.add_argument("--kernel", choices=KERNELS, help="only this one")
    parser.add_argument("--speed", action="store_true",
                        help="the large cases, each with a threshold (the contest's)")
    add_common_flags(parser, LAB)
    add_bench_flags(parser)
    args = parser.parse_args(argv)
    fleet = "contest" if args.speed else "quick"
    return run_tester(LAB, [c for c in LAB.cases
                            if fleet in c.fleets and args.kernel in (None, c.kernel)], args)


if __name__ == "__main__":
    sys.exit(guarded(main))
