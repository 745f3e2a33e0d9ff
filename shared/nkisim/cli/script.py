"""`python -m nkisim run script.py args...`: like `python script.py args...`, plus the import rule.

The script sees what it would see without us: sys.argv, sys.path[0], `__name__`, its exit code.
When it fails, a broken rule of NKI is printed as its five slots, and a traceback shows the user's
frames alone.
"""

from __future__ import annotations

import argparse
import builtins
import difflib
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable
from types import CodeType, ModuleType

from nkisim.checks import strictness
from nkisim.chip.hw import TARGET_VARIABLE, TARGETS, get
from nkisim.errors import NkiError
from nkisim.errors.frames import trim
from nkisim.finder import install

_USAGE = """python -m nkisim run [OPTION ...] script.py [args ...]
       python -m nkisim run [OPTION ...] -m module [args ...]"""
_WITH_VALUE = ("--checks", "--language", "--target")


class CannotRun(Exception):
    """There is nothing to run; the message is a sentence for the user."""


def command(argv: list[str]) -> int:
    """Run a script or module; return 0, 1 if it failed, 2 if there was nothing to run."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim run",
        usage=_USAGE,
        description="Run a Python script or module with neuronxcc.nki served by the import rule.",
    )
    parser.add_argument(
        "--full-traceback",
        action="store_true",
        help="also show the frames of the simulator, to find an error in it",
    )
    parser.add_argument(
        "--language",
        choices=("refuse", "teach", "strict", "off"),
        help="what is done about Python that a compiler of NKI refuses: reported "
        "(the default), an error, nothing (sets NKI_LANGUAGE)",
    )
    parser.add_argument(
        "--checks",
        choices=strictness.LEVELS,
        help="how strictly findings are taken: reported (teach, the default), an "
        f"error (strict), none looked for (off) (sets {strictness.VARIABLE})",
    )
    parser.add_argument(
        "--target",
        metavar="NAME",
        help=f"the generation that is simulated: {', '.join(TARGETS)} (sets "
        f"{TARGET_VARIABLE}; default: trn1, for kernels of nki trn2)",
    )
    parser.add_argument("-m", dest="module", help="run a module, as python -m does")
    parser.add_argument("script", nargs="?")
    # Everything from the script's name on belongs to the script, so argparse must not see it.
    own, rest = _split(argv)
    options = parser.parse_args(own)
    if options.script is None and options.module is None:
        parser.print_usage(sys.stderr)
        print("nkisim run: name a script, or a module after -m", file=sys.stderr)
        return 2
    if options.language:
        os.environ["NKI_LANGUAGE"] = options.language
    if options.checks:
        os.environ[strictness.VARIABLE] = options.checks
    if options.target:
        try:
            os.environ[TARGET_VARIABLE] = get(options.target).name
        except NkiError as error:
            print(error.render(), file=sys.stderr)
            return 2
    _name_own_options(parser, options.module or options.script, rest)
    install()
    try:
        if options.module is not None:
            start = _prepare_module(options.module, rest)
        else:
            start = _prepare_script(options.script, rest)
    except CannotRun as problem:
        print(f"nkisim run: {problem}", file=sys.stderr)
        return 2
    return _guarded(start, options.full_traceback)


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Cut the arguments behind the name of the script or module."""
    for i, word in enumerate(argv):
        if i and argv[i - 1] in _WITH_VALUE:
            continue
        if word == "-m":
            return argv[: i + 2], argv[i + 2 :]
        if word.startswith("-m") or not word.startswith("-"):
            return argv[: i + 1], argv[i + 1 :]
    return argv, []


def _name_own_options(parser: argparse.ArgumentParser, name: str, rest: list[str]) -> None:
    """Say which of the script's arguments are spelled like options of this command."""
    own = {option for action in parser._actions for option in action.option_strings}
    own -= {"-h", "--help", "-m"}
    given = [word for word in rest if word.partition("=")[0] in own]
    if given:
        print(
            f"nkisim run: {' and '.join(given)} after {name} goes to the script; "
            f"if it is meant for nkisim, write it before {name}.",
            file=sys.stderr,
        )


def _prepare_script(script: str, args: list[str]) -> Callable[[], None]:
    if os.path.isdir(script):
        raise CannotRun(f"{script} is a folder; name the script in it.")
    try:
        with open(script, "rb") as file:
            source = file.read()
    except FileNotFoundError:
        raise CannotRun(
            f"there is no file {script} (looked from {os.getcwd()}).{_similar(script)}"
        ) from None
    except OSError as error:
        raise CannotRun(f"{script} cannot be read: {error.strerror}.") from None

    path = os.path.abspath(script)
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
    )
    if sys.version_info < (3, 15):
        main.__dict__["__cached__"] = None
    # The real thing, not a stand-in that goes away: pickle, inspect and multiprocessing look here.
    sys.modules["__main__"] = main
    sys.argv[:] = [script, *args]
    _set_first_path(os.path.dirname(os.path.realpath(script)))

    def start() -> None:
        code: CodeType = compile(source, path, "exec", dont_inherit=True)
        exec(code, main.__dict__)

    return start


def _prepare_module(name: str, args: list[str]) -> Callable[[], None]:
    sys.argv[:] = ["-m", *args]
    _set_first_path(os.getcwd())

    def start() -> None:
        # In here because it imports the parent packages, which is code of the user.
        if not _is_runnable(name):
            raise CannotRun(f"there is no module {name} to run (looked from {os.getcwd()}).")
        runpy.run_module(name, run_name="__main__", alter_sys=True)

    return start


def _is_runnable(name: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return False
        raise
    except ValueError:  # a relative or empty name
        return False
    return spec is not None


def _set_first_path(folder: str) -> None:
    """Make `folder` the first entry of sys.path, where `python -m` has put the working folder."""
    if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:
        return  # the user asked Python for no such entry
    sys.path[0] = folder


def _similar(script: str) -> str:
    folder, name = os.path.split(script)
    try:
        there = [f for f in os.listdir(folder or ".") if f.endswith(".py")]
    except OSError:
        return f" There is no folder {folder} either."
    close = difflib.get_close_matches(name, there, n=1)
    return f" Did you mean {os.path.join(folder, close[0])}?" if close else ""


# -- failures ----------------------------------------------------------------------------------


def _guarded(start: Callable[[], None], full_traceback: bool) -> int:
    """Run the user's program to its end; turn its exceptions into text and an exit code."""
    try:
        start()
    except SystemExit:
        raise  # the script's own exit code; Python knows what to do with it
    except CannotRun as problem:
        print(f"nkisim run: {problem}", file=sys.stderr)
        return 2
    except BaseException as error:
        if not full_traceback:
            # Some rules travel inside the exception type that the SDK raises for them.
            rule = getattr(error, "nki_error", error)
            if isinstance(rule, NkiError):
                _flush_stdout()
                print(rule.render(), file=sys.stderr)
                return 1
            trim(error)
        _flush_stdout()
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _flush_stdout() -> None:
    """Let what the script printed come before its error when both go to one file."""
    try:
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):
        pass  # none there, closed pipe, closed file
