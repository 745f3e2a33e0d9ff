"""`nkisim run script.py args...`: like `python script.py args...`, plus the import rule.

The script sees what it would see without us: sys.argv, sys.path[0], `__name__`, its exit code.
When it fails, a broken rule of NKI is printed as its five slots, and a traceback shows the user's
frames alone.
"""

from __future__ import annotations

import argparse
import builtins
import importlib.machinery
import importlib.util
import os
import re
import runpy
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from nkisim.chip.hw import TARGET_VARIABLE
from nkisim.cli import answer, document, settings, watch
from nkisim.cli.kernel_arguments import (
    add_constants,
    add_values,
    call_of,
    constants_of,
    file_of,
    is_kernel,
    kernels_elsewhere,
    load_kernel,
)
from nkisim.cli.time_limit import OutOfTime, limited
from nkisim.cli.words import CannotRun, near
from nkisim.errors import NkiError
from nkisim.errors.frames import trim
from nkisim.finder import install

_READS_ARGUMENTS = re.compile(r"argv|argparse|parse_|\b(?:click|typer|fire|docopt)\b|\bmain\(")
_USAGE = """nkisim {0} [OPTION ...] script.py [args ...]
       nkisim {0} [OPTION ...] -m module [args ...]
       nkisim {0} FILE:KERNEL --arg SHAPE:DTYPE ... [OPTION ...]"""


def parser() -> answer.Parser:
    """Return the parser of the command."""
    parser = answer.Parser(
        "run",
        usage=_USAGE.format("run"),
        description="Run a Python script or module with neuronxcc.nki served by the import rule, "
        "or one kernel of a file on arguments that the command makes.",
        epilog="Exit codes: the script's own; 1 if a kernel broke a rule, if an error was found\n"
        "in one (an output that is not written), or if the script failed; 2 if nothing could run.",
    )
    parser.add_argument(
        "--full-traceback",
        action="store_true",
        help="also show the frames of the simulator, to find an error in it",
    )
    add_script(parser)
    return parser


def add_script(parser: answer.Parser) -> None:
    """Add what `run` and `check` have in common: a script, module or kernel, and the settings."""
    parser.add_argument("-m", dest="module", help="run a module, as python -m does")
    parser.add_argument("script", nargs="?", metavar="script.py|FILE:KERNEL")
    add_values(parser)
    add_constants(parser)
    settings.add_settings(parser)
    document.add_json(parser)
    settings.add_timeout(parser)
    settings.add_watch(parser)


def parse(own: answer.Parser, argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return (options, arguments of the script); say which of those look like options of ours.

    Words after a script go to the script. If it reads no arguments, options of this command that
    stand there are the command's. After FILE:KERNEL, where no script runs, all words are.
    """
    head, rest = _split(argv, own)
    if (
        head
        and "-m" not in head
        and (is_kernel(head[-1]) or (_own_options(own, rest) and _takes_nothing(head[-1])))
    ):
        head, rest = argv, []
    options = own.parse_args(head)
    if options.script is None and options.module is None:
        own.error("name a script, a kernel as FILE:KERNEL, or a module after -m")
    if not is_kernel(options.script or "") and (options.arg or options.kwarg or options.set):
        own.error(
            "--arg, --kwarg and --set go with FILE:KERNEL; arguments of a script stand after it"
        )
    _name_own_options(own, options.module or options.script, rest)
    return options, rest


def command(argv: list[str]) -> int:
    """Run a script, module or kernel; return 0, 1 if it failed, 2 if there was nothing to run."""
    options, rest = parse(parser(), argv)
    if options.watch:
        return watch.rerun("run", argv, file_of(options.script or "."))
    if options.json or is_kernel(options.script or ""):
        return answer.give(
            "run",
            lambda: _answered(options, rest),
            as_json=options.json,
            seconds=options.timeout,
            kernels_only=True,
        )
    with settings.restored():
        try:
            start = prepared(options, rest)
        except (CannotRun, NkiError) as problem:
            answer.say("run", problem)
            return 2
        return _guarded(start, options.full_traceback, options.timeout)


def prepared(options: argparse.Namespace, rest: list[str]) -> Callable[[], Any]:
    """Return what is to be run, once the settings are made; raises CannotRun and NkiError."""
    target = settings.settle(options, file_of(options.script) if options.script else None)
    if target:
        os.environ[TARGET_VARIABLE] = target
    install()
    if options.module is not None:
        return _prepare_module(options.module, rest)
    if is_kernel(options.script):
        return prepare_kernel(options)
    return _prepare_script(options.script, rest)


def prepare_kernel(options: argparse.Namespace) -> Callable[[], Any]:
    """Return a function that runs the kernel on its arguments, and returns the `Run`."""
    try:
        (args, kwargs), constants = call_of(options), constants_of(options)
    except NkiError as error:
        raise CannotRun(error.render()) from error
    kernel = load_kernel(options.script, constants)

    def start() -> Any:
        from nkisim.api import run

        return run(kernel, *args, **kwargs)

    return start


def no_kernel(options: argparse.Namespace, verb: str, of_a_lab: str) -> CannotRun:
    """Return the error of a script that calls no kernel, with what to give instead."""
    main = sys.modules.get("__main__")
    script = options.script or "script.py"
    kernels = kernels_elsewhere(main, script) if main is not None else []
    first = kernels[0] if kernels else f"{script}:KERNEL"
    more = f" ({', '.join(kernels[1:])})" if len(kernels) > 1 else ""
    return CannotRun(
        f"the script calls no kernel. {verb} one of its kernels, as in {first}{more} "
        f"--arg 128x512:float32, or the script that calls it; of a lab: {of_a_lab}"
    )


def _answered(options: argparse.Namespace, rest: list[str]) -> tuple[int, dict[str, Any]]:
    """Run it for an answer in JSON, or a kernel for one in words."""
    from nkisim.checks.finding import worst_first
    from nkisim.simulation import launch

    start = prepared(options, rest)
    code, last = 0, None
    with launch.collected_findings() as runs:
        try:
            last = start()
        except SystemExit as end:
            code = answer.exit_code(end)
    findings = worst_first(f for one in runs for f in one)
    for finding in findings:
        if finding.severity != "note":
            print(str(finding), file=sys.stderr)
    outputs = [
        {"shape": list(a.shape), "dtype": str(a.dtype)}
        for a in answer.arrays(last.outputs if last is not None else None)
    ]
    if last is not None:
        shown = ", ".join(f"{o['dtype']}{o['shape']}" for o in outputs) or "nothing"
        print(f"{options.script.rpartition(':')[2]} ran on {last.target} and returned {shown}")
    wrong = any(f.severity == "error" for f in findings)
    fields = {"kernels": len(runs), "findings": [f.to_dict() for f in findings], "outputs": outputs}
    return code or int(wrong), fields


def _split(argv: list[str], own: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Cut the arguments behind the name of the script or module."""
    valued = {o for a in own._actions for o in a.option_strings if a.nargs != 0} - {"-m"}
    for i, word in enumerate(argv):
        if i and argv[i - 1] in valued:
            continue
        if word == "-m":
            return argv[: i + 2], argv[i + 2 :]
        if word.startswith("-m") or not word.startswith("-"):
            return argv[: i + 1], argv[i + 1 :]
    return argv, []


def _own_options(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """Return the words that are spelled like options of this command."""
    own = {option for action in parser._actions for option in action.option_strings}
    own -= {"-h", "--help", "-m"}
    return [word for word in words if word.partition("=")[0] in own]


def _takes_nothing(script: str) -> bool:
    """Return whether nothing in a script looks like it reads arguments, itself or by a main()."""
    try:
        with open(script, encoding="utf-8") as file:
            return not _READS_ARGUMENTS.search(file.read())
    except (OSError, UnicodeDecodeError):
        return False


def _name_own_options(parser: answer.Parser, name: str, rest: list[str]) -> None:
    """Say which of the script's arguments are spelled like options of this command."""
    given = _own_options(parser, rest)
    if given:
        print(
            f"nkisim {parser.command}: {' and '.join(given)} after {name} goes to the script; "
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
        scripts = {f.removesuffix(".py"): f for f in os.listdir(folder or ".") if f.endswith(".py")}
    except OSError:
        return f" There is no folder {folder} either."
    close = near(name.removesuffix(".py"), scripts)
    return f" Did you mean {os.path.join(folder, scripts[close])}?" if close else ""


# -- failures ----------------------------------------------------------------------------------


def _guarded(start: Callable[[], Any], full_traceback: bool, seconds: float | None = None) -> int:
    """Run the user's program to its end; turn its exceptions into text and an exit code.

    `seconds`: how long one kernel may run. An error that was found in a kernel makes 1 of 0.
    """
    from nkisim.simulation import launch

    before = launch.errors_found()
    try:
        with limited(seconds, kernels_only=True):
            start()
    except SystemExit as end:
        if end.code in (None, 0) and launch.errors_found() > before:
            return 1
        raise  # the script's own exit code; Python knows what to do with it
    except (CannotRun, OutOfTime) as problem:
        _flush_stdout()
        answer.say("run", problem)
        return answer.code_of(problem)
    except BaseException as error:
        return _failed(error, full_traceback)
    return 1 if launch.errors_found() > before else 0


def _failed(error: BaseException, full_traceback: bool) -> int:
    """Print what the user's program raised; return the exit code."""
    rule = getattr(error, "nki_error", error)  # some travel inside the type that the SDK raises
    if not full_traceback:
        if isinstance(rule, NkiError):
            _flush_stdout()
            print(rule.render(), file=sys.stderr)
            return 1
        trim(error)
    _flush_stdout()
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, SyntaxError) and not isinstance(rule, NkiError):
        return 2
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _flush_stdout() -> None:
    """Let what the script printed come before its error when both go to one file."""
    try:
        sys.stdout.flush()
    except (AttributeError, OSError, ValueError):
        pass  # none there, closed pipe, closed file
