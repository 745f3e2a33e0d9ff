"""`labkit evaluate` and `labkit serve`: nkisim's, with the kernels of strangers in a sandbox.

The candidate's file runs in a process that has no simulator, no inputs and no reference, and can
reach nothing (sandbox.py); nkisim evaluates it from outside, as the judge of a class does. What
arguments, reference and files a request names is up to whoever sends it, and is trusted.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import linecache
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import nkisim

from ..dialect import PACKAGE
from ..run.refused import functions_behind
from .facade import Facade
from .judge import configured, function_of
from .rpc_server import Overdue, Refused, Session, StudentError
from .sandbox import Student, choose

#: what the candidate's file is called where it runs
MODULE = "candidate"
#: seconds that a run may take where the request does not say it
SECONDS = 600.0
_HELP = """usage: labkit {name} [--sandbox auto|bubblewrap|user] ...

nkisim {name}, with the kernels of strangers in the grader's sandbox: they reach no file, no
network, no input and no reference. `user` is for root in a container that is itself a sandbox.
There are no fixes: these would be tried outside of it. The rest is as for nkisim {name}:
"""


class _Session(Session):
    """A session whose places are those of the file that the request names."""

    shown = ""

    def _place(self, where: Any) -> tuple[str, int, str] | None:
        place = super()._place(where)
        return place and (self.shown, *place[1:])


@contextmanager
def kernel(
    request: Mapping[str, Any], sandbox: str = "bubblewrap"
) -> Iterator[tuple[Any, list[Any]]]:
    """Yield (the kernel that a request names, to launch here while it runs in the sandbox; what
    a compiler refuses in its source).

    Raises what loading its file raises; OSError if there is no such file.
    """
    file, _, name = request["kernel"].rpartition(":")
    text = request["source"] if "source" in request else Path(file).read_text("utf-8")
    shown = str(Path(file).resolve()) if file else f"<{MODULE}>"
    linecache.cache[shown] = (len(text), None, text.splitlines(True), shown)
    dialect = _dialect(text, shown)
    with tempfile.TemporaryDirectory(prefix="labkit-evaluate-") as folder:
        (Path(folder) / f"{MODULE}.py").write_text(text, "utf-8")
        student = Student(Path(folder), sandbox)
    try:
        session = _Session(
            _facade(), student.read, student.write, {f"{MODULE}.py": text}, PACKAGE[dialect]
        )
        session.shown = shown
        session.send(session.facade.describe())
        _ask(session, student, request, ["import", MODULE])
        yield (
            _launched(session, student, request, name, _parameters(text, name)),
            [
                f
                for function in functions_behind(text, name)
                for f in nkisim.refusals(text, shown, function, dialect)
            ],
        )
    finally:
        student.stop()


in_bubblewrap = partial(kernel, sandbox="bubblewrap")
as_user = partial(kernel, sandbox="user")
#: what `nkisim --loader` calls, by the kind of sandbox
LOADERS = {"bubblewrap": "in_bubblewrap", "user": "as_user"}


@lru_cache(maxsize=1)
def _facade() -> Facade:
    return Facade()


def _dialect(text: str, file: str) -> str:
    """Return the dialect that a file imports; raise SyntaxError if it is not Python."""
    for node in ast.walk(ast.parse(text, file)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if any(n.split(".")[0] == "neuronxcc" for n in names):
            return "beta1"
    return "nki"


def _ask(session: Session, student: Student, request: Mapping[str, Any], what: list[Any]) -> Any:
    """Return what the candidate's process answers; an error of its own is raised as that."""
    session.deadline = time.monotonic() + float(request.get("seconds") or SECONDS)
    try:
        session.send(what)
        return session.serve()
    except StudentError as error:
        raise _raised(session, error) from None
    except Overdue:
        raise RuntimeError("the kernel ran for too long and was stopped") from None
    except Refused as error:
        code = student.process.poll()
        raise RuntimeError(f"{error}" + (f" (exit code {code})" if code else "")) from None


def _parameters(text: str, kernel: str) -> list[str]:
    """Return the names of a kernel's parameters in a file; reports call tensors by them."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == kernel:
            return [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    return []


def _launched(
    session: Session, student: Student, request: Mapping[str, Any], name: str, names: list[str]
) -> Any:
    """Return a kernel of this process that asks the candidate's which instructions to run."""
    answer = _ask(session, student, request, ["kernel", name])

    def run_there(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        session.begin()
        job = ["run", name, dict(request.get("set", {}))]
        return _ask(session, student, request, [*job, session.encode(args), session.encode(kwargs)])

    here = function_of(
        name if name.isidentifier() else "kernel",
        len(request.get("args", ())), list(request.get("kwargs", {})), run_there, names,
    )  # fmt: skip
    return configured(session, session.package, here, answer)


def _raised(session: Session, error: StudentError) -> Exception:
    """Return an error of the candidate's own as Python's, at its line."""
    kind = getattr(builtins, error.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return _at(session, error, RuntimeError(f"{error.kind}: {error.text}"))
    try:
        return _at(session, error, kind(error.text))
    except TypeError:  # UnicodeError and its like take more than a text
        return _at(session, error, RuntimeError(f"{error.kind}: {error.text}"))


def _at(session: Session, error: StudentError, raised: Exception) -> Exception:
    if isinstance(raised, SyntaxError) and error.where:
        raised.filename, raised.lineno, _ = error.where
        return raised
    where = [f"{MODULE}.py", *error.where[1:]] if error.where else None
    try:  # a stub stands at the line; what is raised in it has the frame
        session._stub(where)(int, ("?",), {})
    except ValueError as at:
        return raised.with_traceback(at.__traceback__)
    return raised


def evaluate_parser() -> argparse.ArgumentParser:
    """Return the parser of what evaluate takes besides nkisim's options."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--sandbox", nargs="?", choices=("auto", *LOADERS), default="auto")
    return parser


serve_parser = evaluate_parser


def evaluate(argv: Sequence[str] | None = None) -> int:
    """Evaluate kernels of strangers; exit codes of `nkisim evaluate`."""
    return _nkisim("evaluate", argv)


def serve(argv: Sequence[str] | None = None) -> int:
    """Serve evaluations of kernels of strangers, a JSON object a line."""
    return _nkisim("serve", argv)


def _nkisim(name: str, argv: Sequence[str] | None) -> int:
    """Run a command of nkisim whose kernels are loaded in the sandbox."""
    options, rest = evaluate_parser().parse_known_args(argv)
    if "-h" in rest or "--help" in rest:
        print(_HELP.format(name=name), flush=True)
        return subprocess.call([sys.executable, "-m", "nkisim", name, "--help"])
    loader = f"{__name__}:{LOADERS[choose(options.sandbox or 'auto')]}"
    return subprocess.call([sys.executable, "-m", "nkisim", name, *rest, "--loader", loader])
