"""`python -m nkisim profile script.py:function`: predict a kernel's time without writing a script.

Only shapes and dtypes of the arguments matter to the prediction, so the inputs are random.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import math
import os
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from nkisim.cli.main import did_you_mean
from nkisim.errors import NkiError
from nkisim.errors.frames import trim
from nkisim.finder import install
from nkisim.timing import compiler

_EXAMPLE = """example:
  python -m nkisim profile kernels.py:vector_add_stream --arg 256000:float32 --arg 256000:float32 \\
      --target trn2 --html add.html

A prediction is not a measurement: every output says so. Exit codes: 0 profiled, 1 the kernel broke
a rule or failed, 2 there was nothing to profile."""
_SHORT = {
    "fp32": "float32",
    "f32": "float32",
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "int": "int32",
    "i32": "int32",
    "i8": "int8",
    "u8": "uint8",
}
_ARRAY = re.compile(r"\(?\s*(\d+(?:\s*[x,*]\s*\d+)*)\s*,?\s*\)?\s*:\s*(\w+)")
#: broken rules that mean that the command was wrong, not the kernel
_WRONG_CALL = ("NKI-T01", "NKI-K09", "NKI-K10", "NKI-D01", "NKI-D02", "NKI-K03", "NKI-K04")
#: elements of one input; more is a typing error rather than a kernel's input
_MOST = 2**33


class CannotProfile(Exception):
    """There is nothing to profile; the message is a sentence for the user."""


def command(argv: list[str]) -> int:
    """Profile one kernel; print the summary, write the files asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim profile",
        epilog=_EXAMPLE,
        description="Predict how long a kernel takes, and show where the time goes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kernel", metavar="script.py:function")
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
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a constant of the script, for this run: FREE_DIM=1000",
    )
    parser.add_argument("--target", help="trn1, trn2 ...; default: as for every kernel")
    parser.add_argument(
        "--compiler",
        metavar="NAMES",
        help="what the compiler may do: "
        + "; ".join(f"{n}: {text}" for n, text in compiler.OPTIONS.items())
        + f". Default: {','.join(compiler.DEFAULT)}, and where the compiler's "
        f'middle end works on the kernel {",".join(compiler.MIDDLE_END)}; "" for '
        "strictly as written",
    )
    parser.add_argument(
        "--descriptors",
        help="static or dge; default: as the target and the kernel's compile options imply",
    )
    parser.add_argument("--html", metavar="FILE", help="write the page to look at")
    parser.add_argument("--perfetto", metavar="FILE", help="write a trace for ui.perfetto.dev")
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write it for python -m nkisim view and for programs (head.metrics); "
        "- for standard output, instead of the summary",
    )
    parser.add_argument(
        "--no-compute",
        action="store_true",
        help="leave out the arithmetic: faster, the same prediction",
    )
    options = parser.parse_args(argv)
    from nkisim.report import ReportError

    try:
        return _profile(options)
    except (CannotProfile, ReportError) as problem:
        print(f"nkisim profile: {problem}", file=sys.stderr)
        return 2


def _profile(options: argparse.Namespace) -> int:
    from nkisim import report
    from nkisim.chip import hw
    from nkisim.simulation.prediction import profile

    try:
        core = hw.get(options.target) if options.target is not None else None
        args = [value_of(text, "--arg") for text in options.arg]
        kwargs = dict(named_argument(text, "--kwarg") for text in options.kwarg)
        constants = dict(named_argument(text, "--set") for text in options.set)
        on = None if options.compiler is None else compiler.options(options.compiler)
    except NkiError as error:
        print(error.render(), file=sys.stderr)
        return 2
    kernel = load_kernel(options.kernel, constants)
    try:
        prof = profile(
            kernel,
            *args,
            target=core.name if core else None,
            compute=not options.no_compute,
            compiler=on,
            descriptors=options.descriptors,
            tile_values=options.html is not None,
            **kwargs,
        )
    except BaseException as error:
        return _failed(error)
    text = report.summary(prof)
    for path, save in (
        (options.html, report.save_html),
        (options.json, report.save_json),
        (options.perfetto, report.save_perfetto),
    ):
        if path and not (path == "-" and save is report.save_json):
            try:
                save(prof, path)
            except OSError as error:
                raise CannotProfile(f"{path} cannot be written: {error.strerror}.") from None
            print(f"wrote {path}", file=sys.stderr)
    print(report.as_json(prof) if options.json == "-" else text)
    return 0


def _failed(error: BaseException) -> int:
    """Print what went wrong in the kernel; return the exit code."""
    rule = getattr(error, "nki_error", error)
    if isinstance(rule, NkiError):
        print(rule.render(), file=sys.stderr)
        if rule.id == "NKI-K04":
            print(
                "Give its arguments in order with --arg SHAPE:DTYPE, or by name with --kwarg.",
                file=sys.stderr,
            )
        return 2 if rule.id in _WRONG_CALL else 1
    trim(error)
    sys.excepthook(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


# -- arguments -----------------------------------------------------------------------------------


def value_of(text: str, option: str) -> Any:
    """Return a random array for SHAPE:DTYPE, else the plain Python value."""
    found = _ARRAY.fullmatch(text.strip())
    if not found:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            if re.search(r"\d[x,:]", text):
                raise CannotProfile(
                    f"{option} {text} is neither SHAPE:DTYPE (as in 128x512:bfloat16) nor a value."
                ) from None
            return text  # a word, such as mode=fast
    import numpy as np

    from nkisim.chip import dtypes

    shape = tuple(int(n) for n in re.split(r"\s*[x,*]\s*", found[1]))
    if 0 in shape:
        raise CannotProfile(f"{option} {text}: a tensor of shape {shape} is no input for a kernel.")
    if math.prod(shape) > _MOST:
        raise CannotProfile(
            f"{option} {text}: {math.prod(shape):,} elements are more than the "
            f"{_MOST:,} that an input may have here; try a smaller size."
        )
    dtype = dtypes.normalize(_SHORT.get(found[2].lower(), found[2]))
    rng = np.random.default_rng(0)
    if dtypes.is_int(dtype) or dtype == np.bool_:
        return rng.integers(0, 2 if dtype == np.bool_ else 8, shape).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def named_argument(text: str, option: str) -> tuple[str, Any]:
    """Return name and value of NAME=VALUE; raise CannotProfile for other texts."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise CannotProfile(f"{option} {text} is not NAME=VALUE.")
    return name.strip(), value_of(value, f"{option} {name.strip()}:")


# -- the script ----------------------------------------------------------------------------------


def functions(path: str) -> tuple[ModuleType, list[str]]:
    """Return a script's module, imported, not run as main, and the names of its kernels."""
    if not os.path.isfile(path):
        raise CannotProfile(
            f"there is no file {path} (looked from {os.getcwd()}). Say which "
            "kernel as script.py:function."
        )
    module = _import(path)
    return module, kernels_in(module)


def kernels_in(module: ModuleType) -> list[str]:
    """Return the names of a module's kernels."""
    from nkisim.simulation.launch import Kernel

    return [
        n
        for n, value in vars(module).items()
        if isinstance(getattr(value, "kernel", value), Kernel)
    ]


def load_kernel(
    spec: str, constants: dict[str, Any] | None = None, module: ModuleType | None = None
) -> Callable[..., Any]:
    """Return the function of `script.py:function`; the script is imported, not run as main.

    `constants` replace names that the script defines; `module` is the script, if it is loaded.
    Raises CannotProfile.
    """
    path, colon, name = spec.rpartition(":")
    if not colon or not name.isidentifier():
        path, name = spec, ""
    if module is None:
        module, _ = functions(path)
    kernels = kernels_in(module)
    known = f" Kernels in it: {', '.join(kernels)}." if kernels else " It defines no kernel."
    if not name:
        raise CannotProfile(
            f"say which function of {path}, as in "
            f"{path}:{kernels[0] if kernels else 'my_kernel'}.{known}"
        )
    function = getattr(module, name, None)
    if function is None:
        guess = did_you_mean(name, kernels or _functions_of(module))
        raise CannotProfile(f"{path} has no function {name}{guess or '.'}{known}")
    if not callable(function):
        raise CannotProfile(
            f"{name} in {path} is {type(function).__name__}, not a function.{known}"
        )
    for constant, value in (constants or {}).items():
        if not hasattr(module, constant):
            guess = did_you_mean(constant, [n for n in vars(module) if n.isupper()])
            raise CannotProfile(f"{path} defines no {constant}{guess or '.'}")
        setattr(module, constant, value)
    return function


def _functions_of(module: ModuleType) -> list[str]:
    """Return the names of the functions that a module defines itself, not those it imports."""
    return [
        n
        for n, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]


def _import(path: str) -> ModuleType:
    install()
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # its own imports, as if run
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:  # kernels.py may be numpy.py
        name = f"_profiled_{name}"
    spec = importlib.util.spec_from_file_location(name, os.path.abspath(path))
    if spec is None or spec.loader is None:
        raise CannotProfile(f"{path} is not a Python script.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        rule = getattr(error, "nki_error", error)
        if isinstance(rule, NkiError):
            raise CannotProfile(f"{path} fails when it is imported:\n{rule.render()}") from None
        if isinstance(error, SystemExit):
            raise CannotProfile(
                f"{path} ends the program when it is imported; put what it does "
                "under if __name__ == '__main__':"
            ) from None
        trim(error)
        sys.excepthook(type(error), error, error.__traceback__)
        raise CannotProfile(f"{path} fails when it is imported (above).") from None
    return module
