"""`tester.py --as-graded`: cases judged as the grader does it, before the deadline."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import nkisim

from ..evaluate import Outcome
from ..load import load_module
from ..spec import Case, Lab, SpecError
from .facade import Facade
from .judge import Bench, judge_case
from .plan import Graded, Plan


def outcomes(
    lab: Lab, runs: Sequence[tuple[Case, str]], *, seed: int, time_limit: float | None = None
) -> Iterator[Outcome]:
    """Judge (case, target) pairs by the files that are handed in, and yield an outcome each.

    Only those files are there, the kernels run in a process without the simulator, and inputs
    depend on `seed` and on the files, so that each version of them is tried on new ones.
    `time_limit`: seconds for a case (default: what the cases say).
    Raises: SpecError on Windows, where the grader does not run.
    """
    if os.name != "posix":
        raise SpecError(
            "--as-graded needs Linux or macOS, as the grader does; on Windows run it in WSL"
        )
    nkisim.be_strict()
    seconds = time_limit or max(case.timeout_s for case, _ in runs)
    graded = Graded(lab, Plan(lab.rubric, timeout_s=seconds, total_s=math.inf), frozenset())
    with tempfile.TemporaryDirectory(prefix="labkit-as-graded-") as scratch:
        digest = hashlib.sha256()
        for name in lab.handed_in:
            if (lab.folder / name).is_file():
                digest.update(Path(shutil.copy(lab.folder / name, scratch)).read_bytes())
        job = {
            "submission": scratch,
            "sandbox": "none",  # the student's own files, on a machine of theirs
            "kernels": lab.kernels.stem,
            "seed": seed,
            "submission_sha256": digest.hexdigest(),
        }
        bench = Bench(job, graded, Facade())
        bench.read_source(runs)
        reference = load_module(lab.folder / "reference.py")
        try:
            for case, target in runs:
                begun = time.monotonic()
                outcome, _ = judge_case(bench, case, target, reference)
                outcome.seconds = time.monotonic() - begun
                yield outcome
        finally:
            bench.stop()
