"""Let AccelOpt (github.com/zhang677/AccelOpt) profile NKI kernels on nkisim: docs/searchers.md.

    python tools/searchers/accelopt_nkisim.py --accelopt DIR SCRIPT [arguments of the script ...]

SCRIPT is one of AccelOpt's, such as scripts/sequential_profile.py: it runs unmodified. In the place
of the chip are nkisim and, where the script calls neuron-profile, a program that prints the summary
of the *predicted* profile, and says so.
"""

from __future__ import annotations

import argparse
import csv
import os
import runpy
import shlex
import stat
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

LABEL = "predicted by nkisim {version} for {target}, not measured"


class Launcher:
    """`nki.baremetal` of nkisim that leaves a predicted profile where a trace is asked for.

    The simulator is deterministic, and AccelOpt runs a kernel with the same arrays many times to
    time it: outputs and prediction of the last arguments are kept.
    """

    def __init__(self, baremetal: Any):
        self.baremetal = baremetal
        self.last: tuple[Any, list[Any]] | None = None
        self.outputs: Any = None
        self.profile: Any = None

    def __call__(self, function: Any, *, save_trace_name: str | None = None, **options: Any) -> Any:
        """Return the kernel, callable with arrays."""

        def run(*args: Any) -> Any:
            import nkisim

            kernel = self.baremetal(function, **options)
            last = self.last
            if (
                last is None
                or last[0] is not function
                or len(last[1]) != len(args)
                or any(a is not b for a, b in zip(last[1], args))
            ):
                self.outputs, self.profile = kernel(*args), None
                self.last = function, list(args)
            if save_trace_name:
                self.profile = self.profile or nkisim.profile(kernel, *args, compute=False)
                self.profile.save_json(save_trace_name)
            return self.outputs

        return run


def summary_json(argv: list[str]) -> int:
    """Do what `neuron-profile view --output-format summary-json -n NEFF -s NTFF` does."""
    parser = argparse.ArgumentParser(prog="neuron-profile", description=summary_json.__doc__)
    parser.add_argument("command", choices=["view"])
    parser.add_argument("--output-format", choices=["summary-json"], required=True)
    parser.add_argument("-n", dest="neff")
    parser.add_argument("-s", dest="profile", required=True)
    options = parser.parse_args(argv)
    import json

    import nkisim
    from nkisim import report

    try:
        found = report.load(options.profile)
    except report.ReportError as problem:
        print(f"neuron-profile (nkisim): {problem}", file=sys.stderr)
        return 1
    label = LABEL.format(version=nkisim.__version__, target=found.head["target"])
    print(json.dumps({label: found.head["metrics"]}))
    return 0


def install_command(folder: Path) -> None:
    """Put a program neuron-profile into a folder, and the folder in front of PATH."""
    program = folder / "neuron-profile"
    program.write_text(
        f"#!/bin/sh\nexec {shlex.quote(sys.executable)} "
        f'{shlex.quote(str(Path(__file__).resolve()))} --neuron-profile "$@"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def label(path: Path) -> None:
    """Add a column to a table of results that says whose numbers these are."""
    import nkisim
    from nkisim.chip import hw

    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    target = hw.get(os.environ.get(hw.TARGET_VARIABLE) or None).name
    text = LABEL.format(version=nkisim.__version__, target=target)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [*row, "profile_source" if not n else text] for n, row in enumerate(rows)
        )


def main() -> int:
    """Run one of AccelOpt's scripts."""
    if sys.argv[1:2] == ["--neuron-profile"]:
        return summary_json(sys.argv[2:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--accelopt",
        type=Path,
        required=True,
        metavar="DIR",
        help="a checkout of github.com/zhang677/AccelOpt",
    )
    parser.add_argument("script", help="of AccelOpt, such as scripts/sequential_profile.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    script = next(
        (p for p in (Path(options.script), options.accelopt / options.script) if p.is_file()), None
    )
    if script is None or not (options.accelopt / "accelopt").is_dir():
        parser.error(
            f"there is no {options.script}, or {options.accelopt} is no checkout of AccelOpt"
        )
    import nkisim  # noqa: F401 (serves neuronxcc.nki)

    nki: Any = import_module("neuronxcc.nki")
    nki.baremetal = Launcher(nki.baremetal)
    sys.path[:0] = [str(options.accelopt), str(script.parent)]
    sys.argv = [str(script), *options.arguments]
    with tempfile.TemporaryDirectory() as folder:
        install_command(Path(folder))
        runpy.run_path(str(script), run_name="__main__")
    if "--output_path" in options.arguments:
        label(Path(options.arguments[options.arguments.index("--output_path") + 1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
