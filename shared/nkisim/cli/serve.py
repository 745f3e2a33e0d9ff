"""`python -m nkisim serve`: evaluate kernels for a program, a JSON object a line in and out.

Answers come in the order of the requests. Each request is done in a process that is there already;
one that loops, takes all memory or dies costs only itself, and is replaced. Answers are kept by the
content of the request and of its files.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TextIO

from nkisim.cli import requests
from nkisim.workers import Lost, Workers

SECONDS = 30.0  # that a request may take
MEMORY = 4 << 30  # bytes that its process may take
RECYCLED = 2000  # requests after which a process is replaced: what kernels leave behind is bounded
KEPT, KEPT_BYTES = 10_000, 256 << 20  # answers, and bytes of them
AHEAD = 256  # requests that are taken before their answers are

_EXAMPLE = """example:
  echo '{"id": 1, "kernel": "kernels.py:add", "args": ["128x512:float32", "128x512:float32"],
         "reference": "reference.py:add"}' | python -m nkisim serve

A request is one line; what it and its answer may hold is in docs/evaluate.md. Exit codes: 0 the
input ended, 2 it could not run."""


def begin(loader: str = "") -> Callable[[dict[str, Any]], bytes]:
    """Return what answers requests in a process, as a line of JSON."""
    import nkisim.evaluation.evaluate  # noqa: F401 (once, before the first request)

    load = requests.loader_of(loader) if loader else None
    return lambda request: json.dumps(requests.answer(request, load)).encode()


class Desk:
    """Answers requests, `jobs` at once; `with Desk() as desk: desk.ask({...})`.

    `seconds`, `memory`: how long a request may take, and how many bytes (Linux). `loader`:
    "MODULE:FUNCTION" that loads kernels in place of this package (requests.Loader).
    """

    def __init__(
        self,
        jobs: int | None = None,
        seconds: float | None = SECONDS,
        memory: int | None = MEMORY,
        loader: str = "",
    ):
        self.jobs = jobs or os.cpu_count() or 1
        self.seconds = seconds
        method = "forkserver" if sys.platform == "linux" else "spawn"
        self._idle: queue.SimpleQueue[Workers] = queue.SimpleQueue()
        self._all = [
            Workers(
                begin,
                (loader,),
                jobs=1,
                seconds=seconds,
                memory=memory,
                method=method,
                recycle=RECYCLED,
                script=False,
            )
            for _ in range(self.jobs)
        ]
        for worker in self._all:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(self.jobs, thread_name_prefix="nkisim-desk")
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self.hits = 0

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; requests that have not begun are dropped."""
        self._threads.shutdown(cancel_futures=True)
        for worker in self._all:
            worker.close()

    def submit(self, request: dict[str, Any]) -> Future[dict[str, Any]]:
        """Return what will be the answer to a request."""
        return self._threads.submit(self._do, request)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        return self.submit(request).result()

    def ask_all(self, many: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the answers to requests, in their order."""
        waiting: OrderedDict[int, Future[dict[str, Any]]] = OrderedDict()
        for n, request in enumerate(many):
            waiting[n] = self.submit(request)
            while waiting and (len(waiting) > AHEAD or next(iter(waiting.values())).done()):
                yield waiting.popitem(last=False)[1].result()
        for future in waiting.values():
            yield future.result()

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            requests.check(request)
        except requests.BadRequest as problem:
            return requests.failed(request if isinstance(request, dict) else {}, str(problem))
        key = requests.key_of(request)
        with self._lock:
            line = self._kept.get(key)
            self.hits += line is not None
        if line is None:
            line = self._ask(request)
            if isinstance(line, Lost):
                return requests.lost(request, line)
            self._keep(key, line)
        out: dict[str, Any] = json.loads(line)
        out.pop("id", None)
        return {**out, "id": request["id"]} if "id" in request else out

    def _ask(self, request: dict[str, Any]) -> Any:
        worker = self._idle.get()
        if self.seconds:  # the soft limit says the line; the process is killed if that fails
            seconds = min(self.seconds, request.get("seconds", self.seconds))
            request = {**request, "seconds": seconds}
        try:
            return worker.ask(request)
        finally:
            self._idle.put(worker)

    def _keep(self, key: str, line: bytes) -> None:
        with self._lock:
            self._kept[key] = line
            self._bytes += len(line)
            while len(self._kept) > KEPT or self._bytes > KEPT_BYTES:
                self._bytes -= len(self._kept.popitem(last=False)[1])


def converse(desk: Desk, lines: Iterable[str], out: TextIO) -> None:
    """Answer each line, in order, until they end or nothing listens any more."""
    answers: queue.Queue[Future[dict[str, Any]] | None] = queue.Queue(AHEAD)

    def write() -> None:
        while (future := answers.get()) is not None:
            try:
                out.write(json.dumps(future.result()) + "\n")
                out.flush()
            except (OSError, ValueError):  # it has gone; take what it still says
                continue

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    for line in lines:
        if line.strip():
            answers.put(_taken(desk, line))
    answers.put(None)
    writer.join()


def _taken(desk: Desk, line: str) -> Future[dict[str, Any]]:
    try:
        return desk.submit(json.loads(line))
    except ValueError as error:
        done: Future[dict[str, Any]] = Future()
        done.set_result(requests.failed({}, f"the line is no JSON: {error}"))
        return done


def listen(desk: Desk, path: str) -> None:
    """Answer everyone who connects to a socket in the file system that only its owner may use."""
    with socket.socket(socket.AF_UNIX) as door:
        before = os.umask(0o177)
        try:
            door.bind(path)
        finally:
            os.umask(before)
        door.listen()
        print(f"nkisim serve: listening on {path}", file=sys.stderr, flush=True)
        try:
            while True:
                theirs, _ = door.accept()
                threading.Thread(target=_one, args=(desk, theirs), daemon=True).start()
        finally:
            os.unlink(path)


def _one(desk: Desk, theirs: socket.socket) -> None:
    with theirs, theirs.makefile("r", encoding="utf-8") as lines:
        with theirs.makefile("w", encoding="utf-8") as out:
            converse(desk, lines, out)


def parser() -> argparse.ArgumentParser:
    """Return the parser of serve."""
    parser = argparse.ArgumentParser(
        prog="nkisim serve",
        description="Evaluate kernels for a program: requests and answers are lines of JSON.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--socket", metavar="PATH", help="listen there, not on standard input")
    add_worker_arguments(parser)
    return parser


def command(argv: list[str]) -> int:
    """Serve until the input ends, or for ever on a socket."""
    options = parser().parse_args(argv)
    if options.socket and not hasattr(socket, "AF_UNIX"):
        print("nkisim serve: there are no local sockets on this system", file=sys.stderr)
        return 2
    out, sys.stdout = sys.stdout, sys.stderr  # answers alone go there
    with desk_of(options) as desk:
        try:
            if options.socket:
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
                listen(desk, options.socket)
            else:
                converse(desk, sys.stdin, out)
        except OSError as error:
            print(f"nkisim serve: {options.socket}: {error.strerror}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
        finally:
            sys.stdout = out
    return 0


def add_worker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say how many processes there are, and what they may take."""
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    parser.add_argument(
        "--timeout", type=float, default=SECONDS, metavar="S",
        help="seconds that a kernel may take (default: %(default)s; 0: as long as it does)",
    )  # fmt: skip
    parser.add_argument(
        "--memory", type=float, default=MEMORY / 2**30, metavar="GB",
        help="memory that a kernel may take (Linux; default: %(default)s; 0: what there is)",
    )  # fmt: skip
    parser.add_argument(
        "--loader", default="", metavar="MODULE:FUNCTION",
        help="what loads kernels; labkit evaluate and labkit serve have one with a sandbox",
    )  # fmt: skip


def desk_of(options: argparse.Namespace) -> Desk:
    """Return the desk that a command's arguments ask for."""
    memory = int(options.memory * 2**30) or None
    if options.loader:
        requests.loader_of(options.loader)
    return Desk(options.jobs, options.timeout or None, memory, options.loader)
