"""`python -m nkisim migrate kernels.py`: rewrite kernels for `import nki`, and say what is left."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tokenize
from typing import Any

from nkisim import course
from nkisim.cli import answer, document, settings
from nkisim.cli.kernel_arguments import (
    add_values,
    call_of,
    load_kernel,
    named_argument,
    value_of,
)
from nkisim.cli.words import CannotRun
from nkisim.errors import NkiError
from nkisim.finder import install

_EXAMPLE = """examples:
  nkisim migrate kernels.py:vector_add --arg 256000:float32 --arg 256000:float32
  nkisim migrate kernels.py --call "conv2d 4x128x32x32:float32 128x128x3x3:float32" \\
      --call "transpose 256x384:float32" --output kernels_nki.py

The kernels are run once on the simulator, on random inputs of these shapes, to see which expression
is a tile of what shape. What no run reaches stays as it was, and is listed. Exit codes: 0 rewritten
and equal, 1 something is left for a person or differs, 2 there was nothing to rewrite."""


def parser() -> answer.Parser:
    """Return the parser of the command."""
    parser = answer.Parser(
        "migrate",
        epilog=_EXAMPLE,
        description="Rewrite kernels from neuronxcc.nki to the dialect of `import nki` (0.3 and "
        "later), run both and compare the outputs.",
    )
    parser.add_argument("kernel", metavar="FILE[:KERNEL]")
    add_values(parser)
    parser.add_argument(
        "--call",
        action="append",
        default=[],
        metavar="'FUNCTION ARG ...'",
        help="a call of another kernel of the file; can be given again",
    )
    settings.add_settings(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="where the new file goes (default: NAME_nki.py beside the old one; "
        "- for standard output)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite the output")
    document.add_json(parser)
    settings.add_timeout(parser)
    return parser


def command(argv: list[str]) -> int:
    """Rewrite one file; print what a person has to decide, and how old and new compare."""
    options = parser().parse_args(argv)
    return answer.give(
        "migrate", lambda: _migrate(options), as_json=options.json, seconds=options.timeout
    )


def _target(options: argparse.Namespace, path: str) -> str:
    """Return the generation that both run on: as asked, else that of a course of import nki.

    No course is set: the old kernel is written in another dialect than the new one.
    """
    own = course.chosen(options.course, os.path.dirname(os.path.abspath(path))).course
    asked = settings.settle(argparse.Namespace(**{**vars(options), "course": course.NONE}))
    if asked is None and own is not None and own.dialect == "nki":
        return own.target
    return asked or course.OF_DIALECT["nki"].target


def _migrate(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    install()
    path, _, name = options.kernel.rpartition(":")
    if not path or not name.isidentifier():
        path, name = options.kernel, ""
    target = _target(options, path)
    calls = _calls(options, path, name)
    output = options.output or os.path.splitext(path)[0] + "_nki.py"
    if output != "-" and os.path.exists(output) and not options.force:
        raise CannotRun(
            f"{output} is there already. --force overwrites it, --output FILE writes another."
        )
    from nkisim.migrate.file import migrate

    with tokenize.open(path) as file:  # as Python reads it: without the mark of Notepad
        text = file.read()
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        done = migrate(os.path.abspath(path), text, calls, target)
    except NkiError as error:
        print("The old kernel does not run, so nothing was rewritten:", file=sys.stderr)
        print(error.render(), file=sys.stderr)
        return 1, {"error": answer.error_of(error)}
    except Exception as error:
        print(
            "The old kernel does not run, so nothing was rewritten:\n"
            f"{type(error).__name__}: {error}",
            file=sys.stderr,
        )
        return 1, {"error": answer.error_of(error)}
    if output == "-":
        if hasattr(sys.stdout, "reconfigure"):  # Python's sources are UTF-8 on Windows, too
            sys.stdout.reconfigure(encoding="utf-8")
        print(done.text, end="")
    else:
        try:
            with open(output, "w", encoding="utf-8", newline="\n") as file:
                file.write(done.text)
        except OSError as error:
            raise CannotRun(
                f"{output} cannot be written: {error.strerror}. --output FILE writes it elsewhere."
            ) from None
    return _report(done, path, output), _fields(done, output)


def _fields(done: Any, output: str) -> dict[str, Any]:
    """Return what was done for JSON."""
    return {
        "output": None if output == "-" else output,
        "text": done.text if output == "-" else None,
        "comparisons": [
            {
                "kernel": c.kernel,
                "equal": c.equal,
                "worst": c.worst,
                "old_us": c.old_us,
                "new_us": c.new_us,
                "error": None if c.error is None else answer.error_of(c.error),
            }
            for c in done.comparisons
        ],
        "decisions": [{"line": d.line, "text": d.text, "why": d.why} for d in done.decisions],
        "refused": [str(finding) for finding in done.refused],
    }


def _calls(options: argparse.Namespace, path: str, name: str) -> list[Any]:
    """Return the runs that are asked for; raise CannotRun if there is none."""
    from nkisim.migrate.file import Call

    calls = []
    try:
        if name or options.arg or options.kwarg:
            args, kwargs = call_of(options)
            calls.append(Call(_kernel_name(path, name), tuple(args), kwargs))
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
        raise CannotRun(error.render()) from error
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
            summary = (
                "the same outputs"
                if right and c.worst == 0
                else f"outputs within {c.worst:.1e} of the largest element"
                if right
                else f"OUTPUTS DIFFER, by {c.worst:.1e} of the largest element"
            )
            print(
                f"{c.kernel}: {summary}; predicted {c.old_us:,.1f} us before, "
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
