"""`python -m nkisim migrate kernels.py`: rewrite kernels for `import nki`, and say what is left."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tokenize
from typing import Any

from nkisim.cli.profile import CannotProfile, load_kernel, named_argument, value_of
from nkisim.errors import NkiError
from nkisim.finder import install

_EXAMPLE = """examples:
  python -m nkisim migrate kernels.py:vector_add --arg 256000:float32 --arg 256000:float32
  python -m nkisim migrate kernels.py --call "conv2d 4x128x32x32:float32 128x128x3x3:float32" \\
      --call "transpose 256x384:float32" --output kernels_nki.py

The kernels are run once on the simulator, on random inputs of these shapes, to see which expression
is a tile of what shape. What no run reaches stays as it was, and is listed. Exit codes: 0 rewritten
and equal, 1 something is left for a person or differs, 2 there was nothing to rewrite."""


def command(argv: list[str]) -> int:
    """Rewrite one file; print what a person has to decide, and how old and new compare."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim migrate",
        epilog=_EXAMPLE,
        description="Rewrite kernels from neuronxcc.nki to the dialect of `import nki` (0.3 and "
        "later), run both and compare the outputs.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kernel", metavar="script.py[:function]")
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="SHAPE:DTYPE",
        help="the next argument of the function: 128x512:bfloat16, or a value",
    )
    parser.add_argument(
        "--kwarg", action="append", default=[], metavar="NAME=VALUE", help="an argument by name"
    )
    parser.add_argument(
        "--call",
        action="append",
        default=[],
        metavar="'FUNCTION ARG ...'",
        help="a call of another kernel of the file; can be given again",
    )
    parser.add_argument(
        "--target", help="what is simulated: trn1, trn2 ... (default trn2)", default="trn2"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where the new file goes (default: NAME_nki.py beside the old one; "
        "- for standard output)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite the output")
    options = parser.parse_args(argv)
    try:
        return _migrate(options)
    except CannotProfile as problem:
        print(f"nkisim migrate: {problem}", file=sys.stderr)
        return 2


def _migrate(options: argparse.Namespace) -> int:
    install()
    path, _, name = options.kernel.rpartition(":")
    if not path or not name.isidentifier():
        path, name = options.kernel, ""
    calls = _calls(options, path, name)
    output = options.output or os.path.splitext(path)[0] + "_nki.py"
    if output != "-" and os.path.exists(output) and not options.force:
        raise CannotProfile(
            f"{output} is there already. --force overwrites it, --output FILE writes another."
        )
    from nkisim.migrate.file import migrate

    with tokenize.open(path) as file:  # as Python reads it: without the mark of Notepad
        text = file.read()
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        done = migrate(os.path.abspath(path), text, calls, options.target)
    except NkiError as error:
        print("The old kernel does not run, so nothing was rewritten:", file=sys.stderr)
        print(error.render(), file=sys.stderr)
        return 1
    except Exception as error:
        print(
            "The old kernel does not run, so nothing was rewritten:\n"
            f"{type(error).__name__}: {error}",
            file=sys.stderr,
        )
        return 1
    if output == "-":
        if hasattr(sys.stdout, "reconfigure"):  # Python's sources are UTF-8 on Windows, too
            sys.stdout.reconfigure(encoding="utf-8")
        print(done.text, end="")
    else:
        try:
            with open(output, "w", encoding="utf-8", newline="\n") as file:
                file.write(done.text)
        except OSError as error:
            raise CannotProfile(
                f"{output} cannot be written: {error.strerror}. --output FILE writes it elsewhere."
            ) from None
    return _report(done, path, output)


def _calls(options: argparse.Namespace, path: str, name: str) -> list[Any]:
    """Return the runs that are asked for; raise CannotProfile if there is none."""
    from nkisim.migrate.file import Call

    calls = []
    try:
        if name or options.arg or options.kwarg:
            calls.append(
                Call(
                    _kernel_name(path, name),
                    tuple(value_of(a, "--arg") for a in options.arg),
                    dict(named_argument(k, "--kwarg") for k in options.kwarg),
                )
            )
        for text in options.call:
            function, *words = shlex.split(text)
            named = [w for w in words if w.partition("=")[0].isidentifier() and "=" in w]
            calls.append(
                Call(
                    _kernel_name(path, function),
                    tuple(value_of(w, "--call") for w in words if w not in named),
                    dict(named_argument(w, "--call") for w in named),
                )
            )
    except NkiError as error:
        raise CannotProfile(error.render()) from None
    if not calls:
        _kernel_name(path, "")  # names the kernels that there are
    return calls


def _kernel_name(path: str, name: str) -> str:
    """Return the name of a function of the script, or raise with the names of those there are."""
    return load_kernel(f"{path}:{name}" if name else path).__name__


def _report(done: Any, path: str, output: str) -> int:
    out = sys.stderr if output == "-" else sys.stdout
    if output != "-":
        print(f"wrote {output}", file=out)
    from nkisim.migrate.index import NOT_REACHED

    bad = False
    for c in done.comparisons:
        if c.error is not None:
            bad = True
            print(f"\n{c.kernel}: the new kernel does not run yet", file=out)
            print(
                c.error.render()
                if isinstance(c.error, NkiError)
                else f"{type(c.error).__name__}: {c.error}",
                file=out,
            )
        else:
            right = c.equal and c.worst < 1e-2
            bad = bad or not right
            said = (
                "the same outputs"
                if right and c.worst == 0
                else f"outputs within {c.worst:.1e} of the largest element"
                if right
                else f"OUTPUTS DIFFER, by {c.worst:.1e} of the largest element"
            )
            print(
                f"{c.kernel}: {said}; predicted {c.old_us:,.1f} us before, "
                f"{c.new_us:,.1f} us after",
                file=out,
            )
    for finding in done.refused:
        print(finding, file=out)
    if done.decisions:
        print(f"\nFor you to decide, by line of {path}:", file=out)
        for d in done.decisions:
            if d.why != NOT_REACHED:
                print(f"  {d.line}: {d.text}\n      {d.why}", file=out)
        missed = [str(d.line) for d in done.decisions if d.why == NOT_REACHED]
        if missed:
            print(
                f"  {', '.join(missed)}: {NOT_REACHED}; --call with other arguments may reach them",
                file=out,
            )
    return 1 if bad or done.decisions or done.refused else 0
