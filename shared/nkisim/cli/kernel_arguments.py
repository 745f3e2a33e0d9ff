"""How a command names a kernel and its arguments: FILE:KERNEL --arg SHAPE:DTYPE --kwarg NAME=VALUE.

Every command that takes a kernel declares them here, and loads the kernel from here.
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

from nkisim.cli.words import CannotRun, did_you_mean
from nkisim.errors import NkiError
from nkisim.errors.frames import trim
from nkisim.finder import install

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
#: FILE:KERNEL as one word; C:\kernels.py has a colon of its own
_SPEC = re.compile(r"(.+):([^\W\d]\w*)")
#: elements of one input; more is a typing error rather than a kernel's input
_MOST = 2**33


def add_kernel(parser: argparse.ArgumentParser, metavar: str = "FILE:KERNEL") -> None:
    """Add the kernel, which `options.kernel` has, and its arguments."""
    parser.add_argument(
        "kernel", metavar=metavar, help="a Python file and a function in it: kernels.py:vector_add"
    )
    add_values(parser)


def add_values(parser: argparse.ArgumentParser) -> None:
    """Add --arg and --kwarg: what the kernel is called with."""
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="SHAPE:DTYPE|FILE.npy",
        help="the next positional argument: random values of a shape and dtype "
        "(128x512:bfloat16), an array from a file, or a plain value",
    )
    parser.add_argument(
        "--kwarg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument by name: pool_size=2, bias=256:float32, or mask=mask.npy",
    )


def add_constants(parser: argparse.ArgumentParser) -> None:
    """Add --set: constants of the kernel's file."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a constant of the file, for this run: FREE_DIM=1000",
    )


def is_kernel(word: str) -> bool:
    """Return whether a word names a kernel in a file, as FILE:KERNEL does, and not a script."""
    match = _SPEC.fullmatch(word)
    return match is not None and match[1].endswith(".py") and not os.path.isfile(word)


def call_of(options: argparse.Namespace) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional arguments and those by name; raise CannotRun and NkiError."""
    args = [value_of(text, "--arg") for text in options.arg]
    return args, dict(named_argument(text, "--kwarg") for text in options.kwarg)


def constants_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the constants of --set by name; raise CannotRun and NkiError."""
    return dict(named_argument(text, "--set") for text in options.set)


def value_of(text: str, option: str) -> Any:
    """Return a random array for SHAPE:DTYPE, that of a .npy file, else the plain Python value."""
    match = _ARRAY.fullmatch(text.strip())
    if not match:
        if text.strip().lower().endswith(".npy"):
            return _array_in(text.strip(), option)
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            if re.search(r"\d[x,:]", text):
                raise CannotRun(
                    f"{option} {text} is neither SHAPE:DTYPE (as in 128x512:bfloat16) nor a value."
                ) from None
            return text  # a word, such as mode=fast
    import numpy as np

    from nkisim.chip import dtypes

    shape = tuple(int(n) for n in re.split(r"\s*[x,*]\s*", match[1]))
    if 0 in shape:
        raise CannotRun(f"{option} {text}: a tensor of shape {shape} is no input for a kernel.")
    if math.prod(shape) > _MOST:
        raise CannotRun(
            f"{option} {text}: {math.prod(shape):,} elements are more than the "
            f"{_MOST:,} that an input may have here; try a smaller size."
        )
    dtype = dtypes.normalize(_SHORT.get(match[2].lower(), match[2]))
    rng = np.random.default_rng(0)
    if dtypes.is_int(dtype) or dtype == np.bool_:
        return rng.integers(0, 2 if dtype == np.bool_ else 8, shape).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def _array_in(path: str, option: str) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise CannotRun(
            f"{option} {path}: there is no such file (looked from {os.getcwd()})."
        ) from None
    except (OSError, ValueError, EOFError) as error:
        raise CannotRun(
            f"{option} {path} cannot be read: {error}. numpy.save writes such a file."
        ) from None


def named_argument(text: str, option: str) -> tuple[str, Any]:
    """Return name and value of NAME=VALUE; raise CannotRun for other texts."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise CannotRun(f"{option} {text} is not NAME=VALUE.")
    return name.strip(), value_of(value, f"{option} {name.strip()}:")


# -- the file ------------------------------------------------------------------------------------


def file_of(spec: str) -> str:
    """Return the file of FILE:KERNEL (or FILE:KERNEL,KERNEL), or the word itself."""
    path, colon, name = spec.rpartition(":")
    return path if colon and not {*"/\\."} & {*name} else spec


def functions(path: str) -> tuple[ModuleType, list[str]]:
    """Return a file's module, imported, not run as main, and the names of its kernels."""
    if not os.path.isfile(path):
        raise CannotRun(
            f"there is no file {path} (looked from {os.getcwd()}). Say which kernel as FILE:KERNEL."
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


def kernels_elsewhere(module: ModuleType, path: str) -> list[str]:
    """Return FILE:KERNEL of each kernel of a module, then of the files that it imports."""
    kernels = [f"{path}:{name}" for name in kernels_in(module)]
    folder = os.path.dirname(os.path.abspath(path))
    for other in vars(module).values():
        file = getattr(other, "__file__", None) if isinstance(other, ModuleType) else None
        if file and os.path.dirname(os.path.abspath(file)) == folder:
            beside = os.path.join(os.path.dirname(path), os.path.basename(file))
            kernels += [f"{beside}:{name}" for name in kernels_in(other)]
    return kernels


def load_kernel(
    spec: str, constants: dict[str, Any] | None = None, module: ModuleType | None = None
) -> Callable[..., Any]:
    """Return the function of FILE:KERNEL; the file is imported, not run as main.

    `constants` replace names that the file defines; `module` is the file, if it is loaded.
    Raises CannotRun.
    """
    path, colon, name = spec.rpartition(":")
    if not colon or not name.isidentifier():
        path, name = spec, ""
    if module is None:
        module, _ = functions(path)
    kernels = kernels_in(module)
    kernels_there = (
        f" Kernels in it: {', '.join(kernels)}." if kernels else " It defines no kernel."
    )
    if not name:
        beside = kernels_elsewhere(module, path)
        if beside and not kernels:
            kernels_there += f" Files that it imports do: {', '.join(beside)}."
        raise CannotRun(
            f"say which function of {path}, as in "
            f"{beside[0] if beside else f'{path}:my_kernel'}.{kernels_there}"
        )
    function = getattr(module, name, None)
    if function is None:
        guess = did_you_mean(name, kernels or _functions_of(module))
        raise CannotRun(f"{path} has no function {name}{guess or '.'}{kernels_there}")
    if not callable(function):
        raise CannotRun(
            f"{name} in {path} is {type(function).__name__}, not a function.{kernels_there}"
        )
    for constant, value in (constants or {}).items():
        if not hasattr(module, constant):
            guess = did_you_mean(constant, [n for n in vars(module) if n.isupper()])
            raise CannotRun(f"{path} defines no {constant}{guess or '.'}")
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
    if spec is None:
        raise CannotRun(f"{path} is not a Python script.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with open(path, "rb") as file:  # not Python's bytecode, which may be of the last second's
            code = compile(file.read(), os.path.abspath(path), "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        rule = getattr(error, "nki_error", error)
        if isinstance(rule, NkiError):
            raise CannotRun(f"{path} fails when it is imported:\n{rule.render()}") from rule
        if isinstance(error, SystemExit):
            raise CannotRun(
                f"{path} ends the program when it is imported; put what it does "
                "under if __name__ == '__main__':"
            ) from None
        trim(error)
        sys.excepthook(type(error), error, error.__traceback__)
        raise CannotRun(f"{path} fails when it is imported (above).") from error
    return module
