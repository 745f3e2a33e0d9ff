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

from nkisim.cli.main import did_you_mean
from nkisim.cli.profile import CannotProfile, functions, load_kernel, named_argument, value_of
from nkisim.errors import NkiError
from nkisim.errors.frames import trim
from nkisim.timing import compiler
from nkisim.tuning import plot, space
from nkisim.tuning import tune as tuning
from nkisim.tuning.sweep import Job

_EXAMPLE = """example:
  python -m nkisim tune kernels.py:vector_add_stream --arg 256000:float32 --arg 256000:float32 \\
      --set FREE_DIM=125,250,500,1000,2000 --reference reference.py:vector_add

NAME is a constant of the script or an argument of the kernel. Several functions are variants:
kernels.py:blocked,streamed or kernels.py:'matmul_*'.

Predictions are not measurements, and of two that differ by less than the error of the model it
cannot tell which is faster: the table marks them. Exit codes: 0 tuned, 1 all candidates are
refused or one that was run is wrong, 2 there was nothing to tune."""


def command(argv: list[str]) -> int:
    """Sweep one kernel; print the table, write the files asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim tune",
        epilog=_EXAMPLE,
        description="Predict a kernel with many values of its constants and arguments, and run "
        "the fastest with arithmetic.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kernel", metavar="script.py:function[,function...]")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=A,B,C",
        help="values to try of a constant or an argument; may be repeated: all "
        "combinations are tried",
    )
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="SHAPE:DTYPE",
        help="the next positional argument: 128x512:bfloat16, or a plain value",
    )
    parser.add_argument(
        "--kwarg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument by name: pool_size=2, or bias=256:float32",
    )
    parser.add_argument(
        "--reference",
        metavar="script.py:function",
        help="takes what the kernel takes, returns what it should; without it the "
        "fastest candidates are held against each other",
    )
    parser.add_argument("--target", help="trn1, trn2 ...; default: as for every kernel")
    parser.add_argument(
        "--compiler",
        metavar="NAMES",
        help="what the compiler may do, as for python -m nkisim profile",
    )
    parser.add_argument("--descriptors", help="static or dge")
    parser.add_argument(
        "--best",
        type=int,
        default=tuning.BEST,
        metavar="N",
        help="run the N fastest with arithmetic (default: %(default)s; 0: none)",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    parser.add_argument(
        "--rows", type=int, default=20, metavar="N", help="rows of the table (default: %(default)s)"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write all candidates; - for standard output, instead of the table",
    )
    parser.add_argument("--svg", metavar="FILE", help="draw time against SBUF (needs matplotlib)")
    options = parser.parse_args(argv)
    for name in ("jobs", "rows"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} must be 1 or more; it is {getattr(options, name)}")
    if options.best < 0:
        parser.error(f"--best must not be negative; it is {options.best}")
    try:
        return _tune(options)
    except CannotProfile as problem:
        print(f"nkisim tune: {problem}", file=sys.stderr)
    except NkiError as error:
        print(error.render(), file=sys.stderr)
    return 2


def load(spec: str, sets: Sequence[str]) -> tuple[list[Callable], list[space.Candidate]]:
    """Return variants and candidates of a command; raises CannotProfile and NkiError."""
    path, colon, names = spec.rpartition(":")
    if not colon or {*"/\\."} & {*names}:  # C:\kernels.py has a colon of its own
        load_kernel(spec)  # says what is missing
    module, known = functions(path)
    variants: list[Callable] = []
    for name in (n.strip() for n in names.split(",")):
        some = [n for n in known if fnmatch.fnmatchcase(n, name)]
        if any(c in name for c in "*?["):
            if not some:
                raise CannotProfile(
                    f"no kernel in {path} is like {name}. Kernels in it: "
                    f"{', '.join(known) or 'none'}."
                )
            variants += [getattr(module, n) for n in some]
        else:
            variants.append(load_kernel(f"{path}:{name}", module=module))
    choices = {}
    for text in sets:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise CannotProfile(f"--set {text} is not NAME=A,B,C.")
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
    raise CannotProfile(
        f"--set {name}: {word} is neither a Python value nor a name in {path}"
        + (f"{did_you_mean(word, names)}" if word.isidentifier() else "")
        + (
            f"; {name} is {space.shown(now)} now"
            if isinstance(now, (int, float, str, tuple))
            else ""
        )
        + "."
    )


def _tune(options: argparse.Namespace) -> int:
    from nkisim.chip import hw

    core = hw.get(options.target) if options.target is not None else None
    on = None if options.compiler is None else compiler.options(options.compiler)
    args = tuple(value_of(text, "--arg") for text in options.arg)
    kwargs = dict(named_argument(text, "--kwarg") for text in options.kwarg)
    variants, wanted = load(options.kernel, options.set)
    if len(wanted) < 2 and not options.set:
        raise CannotProfile(
            f"there is nothing to choose between in {options.kernel}: give values "
            "(--set FREE_DIM=500,1000), or several functions (kernels.py:f,g)."
        )
    reference = load_kernel(options.reference) if options.reference else None
    if options.svg:
        plot.library()
    job = Job(
        variants,
        wanted,
        args,
        kwargs,
        {"target": core.name if core else None, "descriptors": options.descriptors, "compiler": on},
        functools.partial(_again, options.kernel, tuple(options.set)),
    )
    show = _progress if sys.stderr.isatty() else None
    try:
        found = tuning.run(job, reference, options.best, options.jobs, show)
    except NkiError:
        raise
    except Exception as error:  # of the reference: kernels' are rows
        trim(error)
        sys.excepthook(type(error), error, error.__traceback__)
        raise CannotProfile(f"the reference {options.reference} fails (above).") from None
    if show:
        print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    _write(options, found)
    print(
        json.dumps(found.to_dict(), indent=1) if options.json == "-" else found.table(options.rows)
    )
    if not found.rows:
        print(
            f"\nall candidates are refused; the first one:\n{found.refused[0].page}",
            file=sys.stderr,
        )
    return 1 if found.wrong or not found.rows else 0


def _again(spec: str, sets: tuple[str, ...]) -> tuple[list[Callable], list[space.Candidate]]:
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
            raise CannotProfile(f"{path} cannot be written: {error.strerror}.") from None
        print(f"wrote {path}", file=sys.stderr)


def _save_json(found: tuning.Tuning, path: str) -> None:
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(found.to_dict(), indent=1) + "\n")
