"""What the labs' kernels take in both dialects: predicted by one compiler, and by each one's.

    python tools/benchmarks/dialects.py [--target trn1|trn2|trn3] [--lab LAB] [--full] [--outputs]

Column "same" is the ratio nki / beta1 with one set of compiler options for both; "own" the one with
those that AWS's compiler has for each: it works on kernels of beta 1 with its middle end (loads are
hoisted, loops vectorized, DMAs spread) and takes those of the package nki as they are written.
`--outputs` computes both and compares them; exit code 1 if they differ. docs/nki-dialect.md tells
what the ratios come from.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "shared"))
MOST = 0.03


def differ(one: Any, other: Any) -> bool:
    """Return whether the outputs of two runs are different numbers."""
    import numpy as np

    pairs = zip(one, other) if isinstance(one, tuple) else [(one, other)]
    return any(not np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def main() -> int:
    """Print a line for each case that both dialects have."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--target", default="trn2", choices=("trn1", "trn2", "trn3"))
    parser.add_argument("--lab", choices=("vecadd", "ffnn", "conv2d"))
    parser.add_argument("--full", action="store_true", help="all cases, not only the quick ones")
    parser.add_argument("--outputs", action="store_true", help="compute and compare the outputs")
    args = parser.parse_args()

    import nkisim
    from labkit.inputs import make_inputs
    from labkit.load import load_lab, load_module
    from labkit.spec import MustRaise
    from nkisim.timing.compiler import DEFAULT

    bad = far = count = 0
    print(f"{'case':<48}{'beta1 us':>10}{'same':>8}{'own':>8}{'  outputs' * args.outputs}")
    for folder in sorted(ROOT.glob(f"labs/{args.lab or '*'}/spec.py")):
        lab = load_lab(folder.parent)
        modules = {d: load_module(lab.speaking(d).kernels, "kernels") for d in lab.dialects}
        for case in lab.cases:
            if isinstance(case.expect, MustRaise) or not args.full and "quick" not in case.fleets:
                continue
            inputs, runs = make_inputs(case, lab.seed), {}
            for dialect, module in modules.items():
                for name, value in case.constants.items():
                    setattr(module, name, value)
                function, given = (
                    getattr(module, case.kernel),
                    {**case.kwargs, **case.kernel_kwargs},
                )
                for own in (False, True):
                    runs[dialect, own] = nkisim.profile(
                        function,
                        *inputs,
                        target=args.target,
                        compute=args.outputs and not own,
                        compiler=None if own else DEFAULT,
                        **given,
                    )
            base = runs["beta1", False].latency_us
            same = runs["nki", False].latency_us / base
            own = runs["nki", True].latency_us / runs["beta1", True].latency_us
            told = ""
            if args.outputs:
                other = differ(runs["beta1", False].outputs, runs["nki", False].outputs)
                told, bad = "   differ" if other else "     same", bad + other
            far, count = far + (abs(same - 1) > MOST), count + 1
            print(
                f"{lab.name + ' ' + case.name:<48}{base:>10.1f}{same:>8.3f}{own:>8.3f}{told}",
                flush=True,
            )
    print(f"\n{far} of {count} cases are off by more than {MOST:.0%} with the same options.")
    print("All times are predicted by nkisim, not measured.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
