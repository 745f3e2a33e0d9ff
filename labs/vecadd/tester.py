"""Run one kernel of this lab on one size, or (without --kernel) the whole fleet."""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

try:
    from labkit import Case, MustFailNumerically, SpecError
    from labkit.cli import (
        add_common_flags,
        backend_of,
        guarded,
    in_dialect_of,
        note_latency,
        positive,
        run_cases,
        run_fleet,
        run_tester,
    )
    from labkit.evaluate import PASSED, exit_code
    from labkit.show import (
        show_failures,
        show_findings,
        show_printed,
        show_stats,
        terminal,
    )
except ModuleNotFoundError as error:
    print(f"could not run: {error.name} is not installed; README.md at the top of the repository "
          "has the command that installs what the labs need", file=sys.stderr)
    sys.exit(2)
from spec import FREE_DIM_OF, KERNELS, LAB, add_case, transpose_case


def parser() -> argparse.ArgumentParser:
    """Return the command line of this lab."""
    p = argparse.ArgumentParser(prog="tester.py", description=__doc__)
    p.add_argument("--kernel", choices=KERNELS, help="without it, the lab's fleet runs")
    p.add_argument("-n", "--size", type=positive, metavar="N",
                   help="elements of the vectors, or columns of the matrix")
    p.add_argument("-m", type=positive, metavar="M", help="rows of the matrix (default: N)")
    p.add_argument("--row-chunk", type=positive, help="replaces ROW_CHUNK of vector_add_tiled")
    p.add_argument("--free-dim", type=positive,
                   help="replaces FREE_DIM (stream) or ALLOC_FREE_DIM (alloc, alloc_bad)")
    p.add_argument("--profile", "--profile_name", metavar="NAME", default="",
                   help="on the chip: write NAME.neff and NAME.ntff; simulated: NAME.html and "
                        "NAME.pftrace, with the predicted latency")
    add_common_flags(p, LAB)
    return p


def case_of(args: argparse.Namespace) -> Case:
    """Return the case that the flags describe; raise SpecError where they do not fit together."""
    if args.size is None:
        raise SpecError(f"--kernel {args.kernel} needs a size, for example -n "
                        f"{256 if args.kernel == 'transpose' else 25600}")
    if args.m and args.kernel != "transpose":
        raise SpecError("-m is the height of a matrix; only --kernel transpose has one")
    if args.row_chunk and args.kernel != "tiled":
        raise SpecError("--row-chunk is for --kernel tiled")
    if args.free_dim and args.kernel not in FREE_DIM_OF:
        raise SpecError(f"--free-dim is for --kernel {', '.join(FREE_DIM_OF)}")
    if args.kernel == "transpose":
        return transpose_case(args.m or args.size, args.size)
    constants: dict[str, Any] = {}
    if args.row_chunk:
        constants["ROW_CHUNK"] = args.row_chunk
    if args.free_dim:
        constants[FREE_DIM_OF[args.kernel]] = args.free_dim
    return add_case(args.kernel, args.size, constants=constants)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tester; return 0 if all passed, 1 if a case failed, 2 if it could not run."""
    args = parser().parse_args(argv)
    if args.list:
        return run_tester(LAB, LAB.cases, args)
    in_dialect_of(LAB, args)            # which decides the generation, if no flag does
    console = terminal()
    backend = backend_of(args)
    if args.kernel is None:
        given = [f for f in ("size", "m", "row_chunk", "free_dim", "profile") if getattr(args, f)]
        if given:
            raise SpecError(f"--{given[0].replace('_', '-')} needs --kernel as well")
        return run_fleet([LAB], "quick", [args.target], args, console)
    case = case_of(args)
    outcomes = run_cases(LAB, [(case, args.target)], args, console, args.profile)
    outcome = outcomes[0]
    if outcome.status != PASSED:
        show_failures(console, outcomes)
        return exit_code(outcomes)
    shapes = " + ".join("x".join(map(str, t.shape)) for t in case.inputs)
    console.print(f"{case.kernel} on {args.target} ({backend}), {shapes}: {outcome.text}",
                  highlight=False, soft_wrap=True)
    if isinstance(case.expect, MustFailNumerically):
        console.print(outcome.detail, highlight=False, soft_wrap=True, markup=False)
        console.print(f"\nWhy: {case.expect.why}", highlight=False)
    show_findings(console, outcome)
    show_printed(console, outcomes)
    if args.profile or outcome.latency:
        show_stats(console, outcome)
        note_latency(console, outcomes)
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(guarded(main))
