"""Tasks in processes of their own: one that loops, dies or takes all memory costs only itself."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any

from .errors import Where, user_frame

#: processes at once, which Windows bounds (concurrent.futures says so)
MOST_JOBS = 61
#: seconds beyond its limit after which a task that cannot be interrupted is killed
GRACE = 2.0
#: seconds until a limit that was caught is raised again: at first, and at least
AGAIN, SOONEST = 0.1, 1e-4
#: what they say is said once, by their parent
QUIET = {"NKI_FINDINGS": "0", "NKI_BANNER": "0"}
#: how processes are made: a forked one has the functions of its parent, which cannot be sent
METHOD = "fork" if sys.platform == "linux" else "spawn"


@dataclass(frozen=True)
class Lost:
    """What became of a task that has no answer: `why` is "time" or "died", `text` a sentence."""

    why: str
    text: str


class TimeUp(BaseException):
    """A task takes longer than it may; `where` is the line of the user's that was at work.

    It is no Exception: a kernel that catches those cannot go on.
    """

    def __init__(self, seconds: float, where: Where | None):
        self.seconds, self.where = seconds, where
        place = f"; it was at {where}: {where.text}" if where else ""
        super().__init__(f"not finished after {seconds:g} s{place}")


def can_limit() -> bool:
    """Return whether `limited` keeps its limit here: in the main thread, on Linux and macOS."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raise TimeUp in the block after so many seconds; where that cannot be done, do nothing.

    A kernel may catch even that, or be in a `__del__`, which lets no exception out. So it is raised
    again and again, ever sooner, while a line of the user's is at work; and at the end of the
    block, if it was lost on the way.
    """
    if not seconds or not can_limit():
        yield
        return
    here, block = sys._getframe(0), sys._getframe(2)  # between them is contextlib's
    up: TimeUp | None = None
    again, over = AGAIN, False

    def ring(_: int, frame: Any) -> None:
        nonlocal up, again
        if over:  # it was on its way when the block ended
            return
        first, user = up is None, _users_in(frame, block)
        if up is None:
            at = user or user_frame(frame)
            where = Where(at.f_code.co_filename, at.f_lineno, at.f_code.co_name) if at else None
            up = TimeUp(seconds, where)
        signal.setitimer(signal.ITIMER_REAL, again)
        again = max(again / 2, SOONEST)
        if user is not None or first and frame is not here:
            raise TimeUp(seconds, up.where)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except (Exception, SystemExit):
        over = True
        if up is None:
            raise
    finally:
        over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if up is not None:
        raise up


def _users_in(frame: Any, block: Any) -> Any:
    """Return the innermost frame of the user's in a block of code, None if there is none."""
    while frame is not None and frame is not block:
        if frame.f_code.co_filename != contextlib.__file__ and user_frame(frame) is frame:
            return frame
        frame = frame.f_back
    return None


def bound_memory(limit: int | None) -> None:
    """Let this process take at most so many bytes more than it has now; Linux only."""
    if not limit or sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = now + limit if hard == resource.RLIM_INFINITY else min(hard, now + limit)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


_script = threading.Lock()


@contextmanager
def without_script() -> Iterator[None]:
    """Hide the user's script in the block: multiprocessing runs it again in each new process.

    Such a process would need what the script needs, and `if __name__ == "__main__":` in it.
    """
    with _script:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables in the block: Python and BLAS read theirs when a process starts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


class _Worker:
    """A process with a pipe, and the task that it is at."""

    def __init__(self, context: Any, job: tuple[Any, ...], plain: bool):
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, self.pipe, plain, *job), daemon=True
        )
        self.process.start()
        theirs.close()
        self.plain = plain
        self.task: int | None = None
        self.seconds: float | None = None
        self.until, self.given = 0.0, 0

    def give(self, number: int, task: Any, seconds: float | None) -> None:
        """Send a task; it has so many seconds from now."""
        self.task, self.seconds = number, seconds
        self.given += 1
        self.until = time.monotonic() + (seconds + GRACE if seconds else float("inf"))
        try:
            self.pipe.send(task)
        except OSError:  # it has died; `take` says so
            pass

    def take(self) -> Any:
        """Return the answer, or what became of the process."""
        try:
            answer = json.loads(self.pipe.recv_bytes()) if self.plain else self.pipe.recv()
        except ValueError:
            self.process.kill()
            self.process.join()
            answer = Lost("died", "what its process sent is no answer")
        except (EOFError, OSError):
            self.process.join(1)
            answer = Lost("died", f"the process that ran it {ended(self.process.exitcode)}")
            self.process.kill()  # it may have closed its pipe, and go on
            self.process.join()
        self.task = None
        return answer

    def stop(self) -> None:
        """End the process; one that has nothing to do may end in order, and free its devices."""
        if self.task is None:
            with contextlib.suppress(OSError):
                self.pipe.send(None)
            self.process.join(1)
        self.process.kill()
        self.process.join()
        self.pipe.close()


#: how Windows ends a process that crashes: NTSTATUS as an exit code
NTSTATUS = {
    0xC0000005: "access violation",
    0xC00000FD: "stack overflow",
    0xC0000017: "no memory was left; try a smaller size",
    0xC000013A: "Ctrl-C",
}


def ended(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in [*signal.Signals] else f"signal {-code}"
        memory = ", most often because no memory was left; try a smaller size"
        return f"was killed ({name}{memory if name == 'SIGKILL' else ''})"
    if code is not None and code >= 0xC0000000:
        return f"ended with 0x{code:X}" + (f" ({NTSTATUS[code]})" if code in NTSTATUS else "")
    return "closed its pipe" if code is None else f"ended with exit code {code}"


def _end_with_parent() -> None:
    """End this process when its parent does, however that ends, in the midst of a task too."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work(
    pipe: Connection,
    theirs: Connection,
    plain: bool,
    begin: Callable[..., Callable[[Any], Any]],
    args: tuple[Any, ...],
    memory: int | None,
    environment: Mapping[str, str],
) -> None:
    """Answer tasks until there is none."""
    theirs.close()
    _end_with_parent()
    os.environ.update(environment)  # a fork server has that of its start
    signal.signal(signal.SIGINT, lambda *_: None)  # the parent ends it; what a task runs hears it
    answer = begin(*args)
    bound_memory(memory)
    while (task := pipe.recv()) is not None:
        try:
            out = answer(task)
        except MemoryError:
            if plain:
                raise
            out = Lost("died", "it needs more memory than a candidate may have")
        pipe.send_bytes(json.dumps(out).encode()) if plain else pipe.send(out)


class Workers:
    """Processes that answer tasks: `begin(*args)` in each returns the function that answers.

    `jobs`: how many at once; `seconds`: how long a task may take, or what says it of a task;
    `memory`: bytes that each may take; `recycle`: tasks after which a process is replaced. One that
    dies or is killed is replaced as well, and its task is Lost. `script=False`: tasks name nothing
    of the user's script, and new processes do not run it (see `without_script`). `plain=True`:
    answers are what JSON can hold, and are read as that, never unpickled: for code of strangers.
    `environment`: variables that are set for the processes.
    """

    def __init__(
        self,
        begin: Callable[..., Callable[[Any], Any]],
        args: tuple[Any, ...] = (),
        *,
        jobs: int | None = None,
        seconds: float | Callable[[Any], float | None] | None = None,
        memory: int | None = None,
        method: str | None = None,
        recycle: int | None = None,
        script: bool = True,
        plain: bool = False,
        environment: Mapping[str, str] = QUIET,
    ):
        self.jobs = max(1, min(jobs or os.cpu_count() or 1, MOST_JOBS))
        self.seconds = seconds if callable(seconds) else lambda _: seconds
        self.recycle, self._plain, self._job = recycle, plain, (begin, args, memory, environment)
        self._environment = environment
        self._context = multiprocessing.get_context(method or METHOD)
        self._all: list[_Worker] = []
        self._script = script

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        for worker in self._all:
            worker.stop()
        self._all.clear()

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the answer to each task, in their order; Lost where there is none."""
        done, first = dict[int, Any](), 0
        for number, answer in self.as_completed(tasks, lambda: len(done) < 4 * self.jobs):
            done[number] = answer
            while first in done:
                yield done.pop(first)
                first += 1

    def as_completed(
        self, tasks: Iterable[Any], may_begin: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[int, Any]]:
        """Yield (which task, its answer) as they come; Lost where there is none."""
        waiting, more = enumerate(tasks), True
        try:
            while True:
                while more and may_begin() and (worker := self._free()):
                    number, task = next(waiting, (-1, None))
                    more = number >= 0
                    if more:
                        worker.give(number, task, self.seconds(task))
                if not any(w.task is not None for w in self._all):
                    return
                yield from self._landed()
        finally:  # who asks no more wants no answers either
            for worker in [w for w in self._all if w.task is not None]:
                self._drop(worker)

    def ask(self, task: Any) -> Any:
        """Return the answer to one task."""
        return next(self.map([task]))

    def _free(self) -> _Worker | None:
        """Return a process that has nothing to do; a new one if there may be more."""
        for worker in [*self._all]:
            if worker.task is None and worker.given == self.recycle:
                self._drop(worker)
            elif worker.task is None:
                return worker
        if len(self._all) < self.jobs:
            script = nullcontext() if self._script else without_script()
            # a daemon, such as a worker of a cluster, may have no processes; these end with it
            multiprocessing.current_process().daemon = False
            with script, _environment(self._environment):
                self._all.append(_Worker(self._context, self._job, self._plain))
            return self._all[-1]
        return None

    def _landed(self) -> Iterator[tuple[int, Any]]:
        """Yield (task, answer) of what is ready now; wait for the first."""
        busy = {w.pipe: w for w in self._all if w.task is not None}
        if not busy:
            return
        left = min(w.until for w in busy.values()) - time.monotonic()
        ready = wait(list(busy), None if left == float("inf") else max(0.0, left))
        for pipe in ready:
            worker = busy[pipe]  # type: ignore[index]
            number = worker.task
            assert number is not None
            answer = worker.take()
            if isinstance(answer, Lost) and not worker.process.is_alive():
                self._drop(worker)
            yield number, answer
        late = [w for w in busy.values() if w.task is not None and time.monotonic() > w.until]
        for worker in late:
            assert worker.task is not None
            yield worker.task, Lost("time", f"not finished after {worker.seconds:g} s")
            self._drop(worker)

    def _drop(self, worker: _Worker) -> None:
        worker.stop()
        self._all.remove(worker)
