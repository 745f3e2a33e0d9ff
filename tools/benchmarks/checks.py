"""What the checks cost: a run that looks for findings against one that looks for none.

    python tools/benchmarks/checks.py [--repeat N] [--target trn1|trn2] [--lab LAB] [CASE ...]

Runs with NKISIM_CHECKS=teach and =off alternate in this process; the table shows the ratio of the
shortest CPU times, which is what to compare between machines. Without names: the conv2d lab's
224 x 224 case in float16, in both dialects.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "shared"))


def main() -> int:
    """Print a line for each case and dialect."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--target", default="trn2", choices=("trn1", "trn2"))
    parser.add_argument("--lab", default="conv2d")
    parser.add_argument("cases", nargs="*", default=["speed_224x224_float16"])
    args = parser.parse_args()

    import nkisim
    from labkit.inputs import make_inputs
    from labkit.load import load_lab, load_module

    lab = load_lab(ROOT / "labs" / args.lab)
    levels = ("teach", "off")
    print(f"{'case':<40}{'dialect':<10}{'ratio':>6}   findings")
    for dialect in lab.dialects:
        module = load_module(lab.speaking(dialect).kernels, "kernels")
        for name in args.cases:
            case = lab.case(name)
            inputs, kernel = make_inputs(case, lab.seed), getattr(module, case.kernel)
            best, found = dict.fromkeys(levels, float("inf")), 0
            for _ in range(args.repeat):
                for level in levels:
                    os.environ["NKISIM_CHECKS"] = level
                    begun = time.process_time()
                    run = nkisim.run(kernel, *inputs, target=args.target, **case.kwargs)
                    best[level] = min(best[level], time.process_time() - begun)
                    found += len(run.findings)
            print(
                f"{name:<40}{dialect:<10}{best['teach'] / best['off']:>6.3f}   "
                f"{found // args.repeat}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
