"""Let Autocomp (github.com/ucb-bar/autocomp) evaluate kernels on nkisim: docs/searchers.md.

    python tools/searchers/autocomp_nkisim.py --autocomp DIR evaluate trn-tutorial-nki1 2 FILE ...
    python tools/searchers/autocomp_nkisim.py --autocomp DIR search

`evaluate` hands kernels to Autocomp's Trainium backend; `search` runs its
autocomp/search/run_search.py as it is configured there. A problem's harness says what is right; the
latency is predicted, never measured.
"""

from __future__ import annotations

import argparse
import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: the stand-in for torch_xla that the public suites run with as well
XLA = Path(__file__).resolve().parents[1] / "conformance" / "standins" / "xla"
TIMEOUT_S = 600  # of one kernel, as in Autocomp
#: In place of a harness's last block, which asks for hardware in the newer dialect: first the
#: harness's own test, then its own benchmark, with a launcher that predicts.
_MAIN = """
if __name__ == "__main__":
    import neuronxcc.nki as _nkisim
    nki.benchmark = _nkisim.benchmark
    if not test_nki({reference}, solution):
        print("Test failed")
        raise SystemExit(1)
    print("Test passed")
    benchmark_nki(solution)
"""


def make_backend() -> type:
    """Return Autocomp's Trainium backend with nkisim in the place of the chip."""
    from autocomp.backend.trn import trn_eval

    import nkisim

    class NkisimEvalBackend(trn_eval.TrnEvalBackend):  # type: ignore[misc, name-defined]
        """Evaluates each kernel in a process of its own; results say that they are predicted."""

        def __init__(self, parallel: bool = False):
            self.parallel = False  # that way loads compiled kernels with the Neuron Runtime

        @staticmethod
        def _detect_num_cores() -> int:
            return os.cpu_count() or 1

        def _evaluate_single(
            self,
            test_code: str,
            code_str: str,
            temp_dir: Path,
            idx: int,
            core_id: int | None = None,
        ) -> dict[str, Any]:
            """Return {"correct", "latency" (ms, predicted), "stdout", "stderr", "predicted_by"}."""
            if not trn_eval._test_is_nki_v1(test_code):
                code_str = self._strip_v1_imports(code_str)
            test = test_code.partition("if __name__")[0].replace("# SUBSTITUTE HERE", code_str)
            path = Path(temp_dir) / f"code_{idx}.py"
            path.write_text(
                test + _MAIN.format(reference=self._extract_ref_func_name(test_code)),
                encoding="utf-8",
            )
            result: dict[str, Any] = {
                "correct": False,
                "latency": None,
                "stdout": "",
                "stderr": "",
                "predicted_by": f"nkisim {nkisim.__version__}",
            }
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "nkisim", "run", str(path)],
                    capture_output=True,
                    text=True,
                    timeout=TIMEOUT_S,
                    env=environment(),
                )
            except subprocess.TimeoutExpired:
                return {**result, "stderr": f"Timed out after {TIMEOUT_S} seconds"}
            result.update(stdout=done.stdout, stderr=done.stderr)
            if "Test passed" in done.stdout and done.returncode == 0:
                result.update(correct=True, latency=self._extract_latency(done.stdout))
            return result

    return NkisimEvalBackend


def environment() -> dict[str, str]:
    """Return the environment of a kernel's process, with a torch_xla if there is none."""
    paths = [os.environ.get("PYTHONPATH", "")]
    if find_spec("torch_xla") is None:
        paths.append(str(XLA))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def evaluate(backend: type, kind: str, number: int, files: list[Path]) -> int:
    """Evaluate kernels for a problem of Autocomp; return 0 if all are right."""
    from autocomp.search.prob import Prob

    results = backend().evaluate_code(
        Prob(kind, number), [f.read_text(encoding="utf-8") for f in files], "trn"
    )
    for file, result in zip(files, results):
        latency = result["latency"]
        said = "no latency" if latency is None else f"{latency} ms"
        print(
            f"{file}: right, {said} predicted by nkisim, not measured"
            if result["correct"]
            else f"{file}: not right\n{(result['stdout'] + result['stderr'])[-2000:]}"
        )
    return 0 if all(r["correct"] for r in results) else 1


def main() -> int:
    """Put the backend in the place of Autocomp's, and evaluate or search."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--autocomp",
        type=Path,
        required=True,
        metavar="DIR",
        help="a checkout of github.com/ucb-bar/autocomp",
    )
    what = parser.add_subparsers(dest="what", required=True)
    one = what.add_parser("evaluate", help="kernels for one problem")
    one.add_argument("kind", help="a folder of its harnesses: trn-tutorial-nki1 ...")
    one.add_argument("number", type=int)
    one.add_argument("files", type=Path, nargs="+", help="each defines solution(...)")
    what.add_parser("search", help="run autocomp/search/run_search.py as it is configured")
    options = parser.parse_args()
    script = options.autocomp / "autocomp" / "search" / "run_search.py"
    if not script.is_file():
        parser.error(f"{options.autocomp} is no checkout of Autocomp: there is no {script}")
    missing = [str(f) for f in getattr(options, "files", ()) if not f.is_file()]
    if missing:
        parser.error(f"there is no file {', '.join(missing)}")
    sys.path.insert(0, str(options.autocomp))
    os.environ.setdefault("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")  # else asked of AWS
    try:
        backend = make_backend()
    except ImportError as error:
        parser.error(
            f"Autocomp cannot be imported ({error}); install its dependencies: "
            f"python -m pip install -e {options.autocomp}"
        )
    if options.what == "evaluate":
        return evaluate(backend, options.kind, options.number, options.files)
    from autocomp.backend.trn import trn_eval

    trn_eval.TrnEvalBackend = backend
    sys.argv = [str(script)]
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
