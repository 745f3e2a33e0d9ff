"""`python -m nkisim tune script.py:function --set NAME=a,b,c`: which values are the fastest?"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import functools
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from nkisim.cli import answer, settings, watch
from nkisim.cli.kernel_arguments import (
    add_kernel,
    call_of,
    file_of,
    functions,
    load_kernel,
)
from nkisim.cli.words import CannotRun, did_you_mean
from nkisim.errors import NkiError
from nkisim.errors.frames import trim
from nkisim.timing import compiler
from nkisim.tuning import plot, space
from nkisim.tuning import tune as tuning
from nkisim.tuning.sweep import SECONDS, Job

_EXAMPLE = """example:
  python -m nkisim tune kernels.py:vector_add_stream --arg 256000:float32 --arg 256000:float32 \\
      --set FREE_DIM=125,250,500,1000,2000 --reference reference.py:vector_add

NAME is a constant of the script or an argument of the kernel. Several functions are variants:
kernels.py:blocked,streamed or kernels.py:'matmul_*'.

Predictions are not measurements, and of two that differ by less than the error of the model it
cannot tell which is faster: the table marks them. Exit codes: 0 tuned, 1 all candidates are
refused or one that was run is wrong, 2 there was nothing to tune."""


def parser() -> answer.Parser:
    """Return the parser of the command."""
    parser = answer.Parser(
        "tune",
        epilog=_EXAMPLE,
        description="Predict a kernel with many values of its constants and arguments, and run "
        "the fastest with arithmetic.",
    )
    add_kernel(parser, "FILE:KERNEL[,KERNEL...]")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=A,B,C",
        help="values to try of a constant or an argument; may be repeated: all "
        "combinations are tried",
    )
    parser.add_argument(
        "--reference",
        metavar="FILE:FUNCTION",
        help="takes what the kernel takes, returns what it should; without it candidates "
        "are held against what the kernel computes as it is now",
    )
    settings.add_settings(parser)
    settings.add_watch(parser)
    parser.add_argument(
        "--compiler",
        metavar="NAMES",
        help="what the compiler may do, as for nkisim profile",
    )
    parser.add_argument("--descriptors", help="static or dge")
    parser.add_argument(
        "--best",
        type=int,
        default=tuning.BEST,
        metavar="N",
        help="run with arithmetic, the fastest first, until N are right (default: %(default)s; "
        "0: run none)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=SECONDS,
        metavar="S",
        help="seconds that a candidate may take (default: %(default)s; 0: as long as it does)",
    )
    parser.add_argument(
        "--memory", type=float, metavar="GB", help="memory that a candidate may take (Linux)"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    parser.add_argument(
        "--rows", type=int, default=20, metavar="N", help="rows of the table (default: %(default)s)"
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="print one JSON object instead of the table (docs/json.md); with FILE.json: write "
        "all candidates there",
    )
    parser.add_argument("--svg", metavar="FILE", help="draw time against SBUF (needs matplotlib)")
    return parser


def command(argv: list[str]) -> int:
    """Sweep one kernel; print the table, write the files asked for."""
    own = parser()
    options = own.parse_args(answer.json_first(argv))
    for name in ("jobs", "rows"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            own.error(f"--{name} must be 1 or more; it is {getattr(options, name)}")
    if options.best < 0:
        own.error(f"--best must not be negative; it is {options.best}")
    if options.watch:
        return watch.rerun("tune", argv, options.kernel.rpartition(":")[0])

    def body() -> tuple[int, dict[str, Any]]:
        try:
            return _tune(options)
        except NkiError as error:
            raise CannotRun(error.render()) from error

    return answer.give("tune", body, as_json=options.json == "-")


def load(spec: str, sets: Sequence[str]) -> tuple[list[Callable], list[space.Candidate]]:
    """Return variants and candidates of a command; raises CannotRun and NkiError."""
    path, colon, names = spec.rpartition(":")
    if not colon or {*"/\\."} & {*names}:  # C:\kernels.py has a colon of its own
        load_kernel(spec)  # says what is missing
    module, kernels = functions(path)
    variants: list[Callable] = []
    for name in (n.strip() for n in names.split(",")):
        matching = [n for n in kernels if fnmatch.fnmatchcase(n, name)]
        if any(c in name for c in "*?["):
            if not matching:
                raise CannotRun(
                    f"no kernel in {path} is like {name}. Kernels in it: "
                    f"{', '.join(kernels) or 'none'}."
                )
            variants += [getattr(module, n) for n in matching]
        else:
            variants.append(load_kernel(f"{path}:{name}", module=module))
    choices = {}
    for text in sets:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise CannotRun(f"--set {text} is not NAME=A,B,C.")
        choices[name] = [
            _value(word, name, variants[0], vars(module), path) for word in _split(values)
        ]
    return variants, space.candidates(variants, choices)


def _split(text: str) -> list[str]:
    """Return the values of a list: cut at the commas that no bracket or quote encloses."""
    parts, depth, quote, at = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and not depth:
            parts.append(text[at:i])
            at = i + 1
    parts.append(text[at:])
    return [p.strip() for p in parts if p.strip()]


def _value(word: str, name: str, function: Any, names: dict[str, Any], path: str) -> Any:
    """Return a Python value, a word where the constant is a word, or what the script calls so."""
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        pass
    now = space.now(function, name)
    if isinstance(now, str):
        return word
    head, *rest = word.split(".")
    if head in names:
        try:
            return functools.reduce(getattr, rest, names[head])
        except AttributeError:
            pass
    elif now is None and word.isidentifier():  # an argument without a default
        return word
    raise CannotRun(
        f"--set {name}: {word} is neither a Python value nor a name in {path}"
        + (f"{did_you_mean(word, names)}" if word.isidentifier() else "")
        + (
            f"; {name} is {space.value_text(now)} now"
            if isinstance(now, (int, float, str, tuple))
            else ""
        )
        + "."
    )


def _tune(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    target = settings.settle(options, file_of(options.kernel))
    on = None if options.compiler is None else compiler.options(options.compiler)
    args, kwargs = call_of(options)
    variants, wanted = load(options.kernel, options.set)
    if len(wanted) < 2 and not options.set:
        raise CannotRun(
            f"there is nothing to choose between in {options.kernel}: give values "
            "(--set FREE_DIM=500,1000), or several functions (kernels.py:f,g)."
        )
    reference = load_kernel(options.reference) if options.reference else None
    if options.svg:
        plot.library()
    job = Job(
        variants,
        wanted,
        tuple(args),
        kwargs,
        {"target": target, "descriptors": options.descriptors, "compiler": on},
        functools.partial(_load_in_process, options.kernel, tuple(options.set)),
        options.timeout or None,
        int(options.memory * 1e9) if options.memory else None,
    )
    show = _progress if sys.stderr.isatty() else None
    try:
        tuned = tuning.run(job, reference, options.best, options.jobs, show)
    except NkiError:
        raise
    except Exception as error:  # of the reference: kernels' are rows
        trim(error)
        sys.excepthook(type(error), error, error.__traceback__)
        raise CannotRun(f"the reference {options.reference} fails (above).") from None
    if show:
        print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    _write(options, tuned)
    print(tuned.table(options.rows))
    if not tuned.rows:
        print(
            f"\nall candidates are refused; the first one:\n{tuned.refused[0].page}",
            file=sys.stderr,
        )
    return 1 if tuned.wrong or not tuned.rows else 0, tuned.to_dict()


def _load_in_process(
    spec: str, sets: tuple[str, ...]
) -> tuple[list[Callable], list[space.Candidate]]:
    """Load variants and candidates in another process, with the one that `tuning.run` adds."""
    variants, wanted = load(spec, sets)
    return variants, [*wanted, tuning.as_it_is(variants, wanted)]


def _progress(done: int, total: int) -> None:
    print(f"\r{done}/{total} candidates predicted", end="", file=sys.stderr, flush=True)


def _write(options: argparse.Namespace, found: tuning.Tuning) -> None:
    for path, save in ((options.json, _save_json), (options.svg, tuning.Tuning.save_svg)):
        if not path or (path == "-" and save is _save_json):
            continue
        try:
            save(found, path)
        except OSError as error:
            raise CannotRun(f"{path} cannot be written: {error.strerror}.") from None
        print(f"wrote {path}", file=sys.stderr)


def _save_json(found: tuning.Tuning, path: str) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(found.to_dict(), indent=1) + "\n")
