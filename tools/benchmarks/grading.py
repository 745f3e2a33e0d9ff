"""Submissions that are graded per minute: a class of changed solutions, by the labs' quick plans.

python tools/benchmarks/grading.py [--count N] [--lab NAME ...] [--jobs N]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "shared"), str(ROOT / "tests" / "labkit")]


def main() -> int:
    """Grade a class and print how many submissions a minute that is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--lab", action="append", choices=("vecadd", "ffnn", "conv2d"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    from labkit.grade.run import grade
    from mutants import submissions

    for lab in args.lab or ("vecadd", "ffnn", "conv2d"):
        with tempfile.TemporaryDirectory() as scratch:
            for student, text in submissions(lab, args.count).items():
                folder = Path(scratch) / "subs" / student
                folder.mkdir(parents=True)
                (folder / "kernels.py").write_text(text, "utf-8")
            begun = time.perf_counter()
            if grade(
                [
                    f"{scratch}/subs",
                    "--lab",
                    lab,
                    "--out",
                    f"{scratch}/out",
                    "--jobs",
                    str(args.jobs),
                ]
            ):
                return 1
            minutes = (time.perf_counter() - begun) / 60
            print(
                f"{lab}: {args.count} submissions, {args.count / minutes:.0f} per minute with "
                f"{args.jobs} at a time",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
