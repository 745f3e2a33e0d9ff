"""`labkit evaluate` and `labkit serve`: nkisim's, with the kernels of strangers in a sandbox.

The candidate's file runs in a process that has no simulator, no inputs and no reference, and can
reach nothing (sandbox.py); nkisim evaluates it from outside, as the judge of a class does. What
arguments, reference and files a request names is up to whoever sends it, and is trusted.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import contextlib
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
from .recording import Recording
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


class _Candidate:
    """The process of a request's kernel, which says what to run; nothing is computed meanwhile.

    One that has learnt a value, as it reads numbers from memory, is replaced before it runs again.
    """

    def __init__(self, request: Mapping[str, Any], text: str, shown: str, sandbox: str):
        self.request, self.text, self.shown, self.sandbox = request, text, shown, sandbox
        self.dialect = _dialect(text, shown)
        self.student: Student | None = None
        self.told = False

    def start(self) -> Session:
        """Return the session of a new process, which has loaded the file.

        Raises what loading the file raises.
        """
        self.stop()
        with tempfile.TemporaryDirectory(prefix="labkit-evaluate-") as folder:
            (Path(folder) / f"{MODULE}.py").write_text(self.text, "utf-8")
            self.student = Student(Path(folder), self.sandbox)
        student, files = self.student, {f"{MODULE}.py": self.text}
        package = PACKAGE[self.dialect]
        session = _Session(_facade(), student.read, student.write, files, package)
        session.shown = self.shown
        session.send(session.facade.describe())
        self.ask(session, ["import", MODULE])
        return session

    def stop(self) -> None:
        """End the process."""
        if self.student is not None:
            self.student.stop()

    def kernel(self) -> Any:
        """Return a kernel of this process that is carried out as the candidate's process says.

        Raises what loading the file raises.
        """
        self.recording = self.recorded_by(self.start())
        self.recording.player.prepare = self.prepare
        return self.recording.player

    def recorded_by(self, session: Session) -> Recording:
        """Return what records the kernel of a process."""
        name, request = self.request["kernel"].rpartition(":")[2], self.request
        answer = self.ask(session, ["kernel", name])
        job = ["run", name, dict(request.get("set", {}))]
        named = (
            name if name.isidentifier() else "kernel", len(request.get("args", ())),
            list(request.get("kwargs", {})),
        )  # fmt: skip
        return Recording(session, job, answer, named, self.in_another_process)

    def in_another_process(self) -> Session:
        """Return the session of a process that has run nothing, and will be told values."""
        session = self.start()
        self.told = True
        self.begin(session)
        return session

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], target: str | None) -> Any:
        """Return what carries out the kernel in a launch; it is recorded if it has to be.

        An error of the kernel's is raised where it is carried out, after what it asked for before.
        """
        if self.told:
            self.told, self.recording = False, self.recorded_by(self.start())
        recording = self.recording
        recording.played = 0
        if not recording.programs:
            self.begin(recording.session)
            try:
                with self.words(recording.session):
                    recording.record(args, kwargs, target)
            except Exception as error:
                if not recording.programs:
                    raise
                if recording.wrong is not None:
                    recording.wrong = error
        return recording.player

    def begin(self, session: Session) -> None:
        """Give a process its time anew."""
        session.deadline = time.monotonic() + float(self.request.get("seconds") or SECONDS)

    def ask(self, session: Session, what: list[Any]) -> Any:
        """Return what the process answers; an error of its own is raised as that."""
        self.begin(session)
        with self.words(session):
            session.send(what)
            return session.serve()

    @contextmanager
    def words(self, session: Session) -> Iterator[None]:
        """Raise errors of the candidate's process as errors of this one."""
        try:
            yield
        except StudentError as error:
            raise _raised(session, error) from None
        except Overdue:
            raise RuntimeError("the kernel ran for too long and was stopped") from None
        except Refused as error:
            code = self.student.process.poll() if self.student is not None else None
            raise RuntimeError(f"{error}" + (f" (exit code {code})" if code else "")) from None


@contextmanager
def kernel(
    request: Mapping[str, Any], sandbox: str = "bubblewrap"
) -> Iterator[tuple[Any, list[Any]]]:
    """Yield (the kernel that a request names, to launch here after it has run in the sandbox;
    what a compiler refuses in its source).

    Raises what loading its file raises; OSError if there is no such file.
    """
    file, _, name = request["kernel"].rpartition(":")
    text = request["source"] if "source" in request else Path(file).read_text("utf-8")
    shown = str(Path(file).resolve()) if file else f"<{MODULE}>"
    nkisim.register_source(shown, text)
    candidate = _Candidate(request, text, shown, sandbox)
    try:
        yield (
            candidate.kernel(),
            [
                f
                for function in functions_behind(text, name)
                for f in nkisim.refusals(text, shown, function, candidate.dialect)
            ],
        )
    finally:
        candidate.stop()


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


def _raised(session: Session, error: StudentError) -> Exception:
    """Return an error of the candidate's own as Python's, at its line."""
    kind = getattr(builtins, error.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return _at(session, error, RuntimeError(f"{error.kind}: {error.text}"))
    text: Any = error.text
    if issubclass(kind, KeyError) and len(text) < 200:  # it shows its key as it is written
        with contextlib.suppress(ValueError, SyntaxError):
            text = ast.literal_eval(text)
    try:
        return _at(session, error, kind(text))
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
