"""Check the kernels of the network one by one, at the lab's full size or (--small) a small one."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

try:
    from labkit import Case, SpecError
    from labkit.cli import add_bench_flags, add_common_flags, guarded, run_tester
except ModuleNotFoundError as error:
    print(f"could not run: {error.name} is not installed; README.md at the top of the repository "
          "has the command that installs what the labs need", file=sys.stderr)
    sys.exit(2)
from spec import FULL_LAB, LAB, MATMULS, SMALL_LAB, network_case

#: What each step of the lab runs, by the first letters of the cases' names.
STEPS = {"transpose": "transpose_", "bias_add_act": "bias_add_", "forward": "forward",
         "predict": "predict"}


def parser() -> argparse.ArgumentParser:
    """Return the command line of this lab."""
    p = argparse.ArgumentParser(prog="tester.py", description=__doc__)
    for step in STEPS:
        p.add_argument(f"--test-{step.replace('_', '-')}", action="store_true",
                       help=f"check nki_{step}")
    p.add_argument("--test-matmul", action="store_true", help="check the four matmul kernels")
    p.add_argument("--test-all", action="store_true", help="check everything (the default)")
    p.add_argument("--small", action="store_true", help="small sizes: seconds instead of minutes")
    p.add_argument("--matmul-kernel", choices=MATMULS,
                   help="the matmul that nki_predict uses (default: tiled)")
    p.add_argument("--load-data", metavar="FOLDER",
                   help="check nki_predict on the data that reference.py --store-data wrote there")
    p.add_argument("--benchmark", action="store_true",
                   help="run nki_predict with each of the matmul kernels and compare them")
    add_common_flags(p, LAB)
    add_bench_flags(p)
    return p


def cases_of(args: argparse.Namespace) -> list[Case]:
    """Return the cases that the flags ask for; raise SpecError where they do not fit together."""
    size = SMALL_LAB if args.small else FULL_LAB
    matmul = args.matmul_kernel or "tiled"
    if args.load_data:
        return [network_case("predict_stored", "nki_predict", size, matmul=matmul,
                             folder=args.load_data)]
    if args.benchmark:
        return [network_case(f"predict_{which}", "nki_predict", size, matmul=which, measure=True)
                for which in ([args.matmul_kernel] if args.matmul_kernel else MATMULS)]
    if args.matmul_kernel:
        return [network_case(f"predict_{matmul}", "nki_predict", size, matmul=matmul)]
    steps = [first for step, first in STEPS.items() if getattr(args, f"test_{step}")]
    if args.test_matmul:
        steps.append("matmul_")
    if args.test_all or not steps:
        steps = ["transpose_", "bias_add_", "matmul_", "forward", "predict"]
    fleet = "quick" if args.small else "lab"
    cases = [case for case in LAB.cases if fleet in case.fleets or case.name.startswith("matmul_")]
    # the four matmuls have cases of their own: one prediction is enough
    return [c for c in cases if c.name.startswith(tuple(steps))
            and c.kernel_kwargs.get("matmul_kernel", "tiled") == "tiled"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tester; return 0 if all passed, 1 if a case failed, 2 if it could not run."""
    args = parser().parse_args(argv)
    if args.benchmark and args.load_data:
        raise SpecError("--benchmark makes its own inputs; leave out --load-data")
    return run_tester(LAB, cases_of(args), args)


if __name__ == "__main__":
    sys.exit(guarded(main))
