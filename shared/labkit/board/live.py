"""The contest's live server, for a lab session: takes signed submissions, judges, shows the board.

It listens on this machine only; a reverse proxy in front of it speaks HTTPS (docs/grading.md). A
student signs time and body with a token that never travels: HMAC-SHA256 in `X-Signature`, of the
body's hash in `X-Digest`. So nothing is read of a body before it is known whose it is.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import hashlib
import json
import os
import re
import secrets
import shutil
import sqlite3
import tempfile
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

import nkisim

from ..cli import known_labs
from ..grade import memory, sandbox, staff, submissions
from ..grade.plan import Graded, digest, load_plan
from ..grade.run import Task, grade_one, keep_pages, seed_of, write_json
from ..spec import SpecError
from ..tables import read_table
from .entries import Entry, Refused, body_of, pseudonym, public_of, read_key, sign, verify
from .page import render
from .rank import tables
from .store import Replayed, Store
from .token import digest as digest_of
from .token import name_of, proves, seconds

LARGEST = 1 << 20  # bytes of a submission
SLOWEST = 60.0  # seconds that sending it may take
HEAD_S = 10.0  # seconds that a connection may be open without a request
MOST_OPEN = 1000  # connections
CLOCK = 300  # seconds that a signature is good for
MOST_WAITING = 3  # submissions of one student that wait
TRIES, PAUSE = 3, 5.0  # of judging one where it goes wrong, and seconds between them

ROOM = 16 << 20  # bytes that must be free before one more is taken or judged


def say(text: str) -> None:
    """Print a line for the staff; a closed terminal is no error, and no text steers an open one."""
    try:
        print("".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text), flush=True)
    except (OSError, ValueError):
        pass


def full() -> tuple[int, dict[str, Any]]:
    """Return the answer where nothing can be written."""
    return 503, {
        "error": "the server's disk is full, and nothing was taken: send it again in a minute",
        "retry_after": 60,
    }


def make_tokens(path: Path, roster: Path | None) -> dict[str, str]:
    """Return student -> token; those of the roster that have none get one, kept in tokens.csv."""
    tokens: dict[str, str] = {}
    if path.is_file():
        with open(path, newline="", encoding="utf-8") as file:
            tokens = {
                unicodedata.normalize("NFC", row["student"]): row["token"]
                for row in csv.DictReader(file)
            }
    if roster is not None:
        for row in read_table(roster, "student"):
            tokens.setdefault(row["student"], secrets.token_urlsafe(24))
        part = path.with_name(path.name + ".part")  # half a file would be new tokens for many
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out)
            writer.writerow(["student", "token"])
            writer.writerows(sorted(tokens.items()))
        os.replace(part, path)
    if not tokens:
        raise SpecError("no student can submit: give --roster, a CSV with a column student")
    return tokens


class Contest:
    """The lab, the queue, the signing key, and the board as it is now."""

    def __init__(
        self,
        graded: Graded,
        store: Store,
        key: Any,
        tokens: dict[str, str],
        data: Path,
        kind: str,
        seconds_between: float,
    ):
        self.graded, self.store, self.key, self.tokens = graded, store, key, tokens
        self.data, self.sandbox, self.seconds_between = data, kind, seconds_between
        self.staff_us: dict[str, float] = {}
        self.memory: int | None = None
        self.stopping = threading.Event()
        self.work = threading.Event()
        self._gate = threading.Lock()  # asking and adding are one step
        self._sent: dict[str, float] = {}  # when, by a clock that cannot be set
        self._names: dict[str, str] = {}
        for name in tokens:
            other = self._names.setdefault(unicodedata.normalize("NFC", name), name)
            if other != name:
                raise SpecError(
                    f"{ascii(other)} and {ascii(name)} are written with the same "
                    "letters: a server cannot tell them apart. Take one out of the "
                    "roster and of tokens.csv"
                )
        self._failed: Counter[int] = Counter()  # how often judging one went wrong
        self._page: tuple[float, str] = (0.0, "")
        self._drawing = threading.Lock()  # one makes the page, and all have it
        self._verified: dict[tuple[Path, int], Entry] = {}

    # -- taking --------------------------------------------------------------------------------
    def room(self) -> bool:
        """Return whether the disks of the queue and of the judges have room for one more."""
        return all(
            shutil.disk_usage(folder).free >= ROOM for folder in (self.data, tempfile.gettempdir())
        )

    def who(self, header: str, at: str, given: str, digest: str) -> str | None:
        """Return the student who has signed a request; None for others."""
        name = name_of(header)
        student = self._names.get(unicodedata.normalize("NFC", name))
        token = self.tokens[student] if student is not None else secrets.token_hex()
        return student if proves(given, token, name, at, digest) else None

    def admit(
        self, header: str, at: str, given: str, digest: str
    ) -> tuple[str, tuple[int, dict[str, Any]] | None]:
        """Return (student, None) of a request to submit; ("", answer) where it is refused."""
        if not digest:
            return "", (
                400,
                {"error": "there is no X-Digest: nox -s update brings a program that sends it"},
            )
        student = self.who(header, at, given, digest)
        if student is None:
            return "", (401, {"error": "this signature is not that of your token"})
        now, signed = time.time(), seconds(at)
        if signed is None or abs(now - signed) > CLOCK:
            here = datetime.fromtimestamp(now, timezone.utc).isoformat(timespec="seconds")
            return "", (
                401,
                {
                    "error": f"signed more than {CLOCK // 60} minutes before or after "
                    f"now, which is {here} here; is your clock right?"
                },
            )
        return student, None

    def accept(self, header: str, at: str, given: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Return (HTTP status, answer) of a submission."""
        student, refused = self.admit(header, at, given, digest_of(body))
        if refused is not None:
            return refused
        if re.fullmatch(rb"[0-9]{1,18}", body):  # what a question about a submission signs
            return 400, {"error": "a number is no submission"}
        if not self.room():
            return full()
        with self._gate:
            return self._take(student, time.time(), given, body)

    def _take(
        self, student: str, now: float, given: str, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        last, waiting = self.store.last(student)
        clock = time.monotonic()
        if student in self._sent:
            since = clock - self._sent[student]
        else:  # of before this start; a clock may be set back
            since = now - last if now >= last else self.seconds_between
        if since < self.seconds_between:
            wait = self.seconds_between - since
            return 429, {
                "error": f"wait {wait:.0f} s before the next",
                "retry_after": int(wait) + 1,
            }
        if waiting >= MOST_WAITING:
            return 429, {"error": f"{waiting} of yours wait already", "retry_after": 30}
        try:
            number = self.store.add(student, hashlib.sha256(body).hexdigest(), body, now, given)
        except Replayed:
            return 409, {"error": "this very request was sent before"}
        self._sent[student] = clock
        self.work.set()
        return 202, {"id": number, "status": f"/status/{number}"}

    # -- judging -------------------------------------------------------------------------------
    def task(self, student: str, body: bytes) -> tuple[Task | None, str]:
        """Return the task of a body (the kernels, or a .zip with them), or why it has none."""
        lab = self.graded.lab
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "s"
            folder.mkdir()
            if body[:2] == b"PK":
                (Path(scratch) / "s.zip").write_bytes(body)
                source = "s.zip"
            else:
                (folder / lab.kernels.name).write_bytes(body)
                source = "s"
            submission = submissions.take(
                {"student": student, "source": source},
                Path(scratch),
                lab.name,
                lab.handed_in,
                None,
                folder,
            )
        if submission.problem:
            return None, submission.problem
        seed = seed_of(self.data, lab.name)
        of = digest(lab.folder, nkisim.__version__, str(seed))
        return {
            "student": student,
            "name": lab.name,
            "lab": str(lab.folder.resolve()),
            "files": {n: d.decode("utf-8", "surrogateescape") for n, d in submission.files.items()},
            "kernels": lab.kernels.stem,
            "sandbox": self.sandbox,
            "seed": seed,
            "full": False,
            "submission_sha256": submission.sha256,
            "of": self.graded.points,
            "key": hashlib.sha256(f"{of}{submission.sha256}".encode()).hexdigest(),
            "staff_us": self.staff_us,
            "memory": self.memory,
            "total_s": self.graded.plan.total_s,
            "patience_s": self.graded.plan.total_s + 300,
        }, ""

    def judge_all(self) -> None:
        """Judge what waits until the server stops; run in threads. Nothing ends it but that."""
        while not self.stopping.is_set():
            try:
                taken = self.store.take() if self.room() else None
            except (sqlite3.Error, OSError) as error:
                say(f"the queue cannot be written: {error}")
                taken = None
                self.stopping.wait(PAUSE)
            if taken is None:
                self.work.clear()
                self.work.wait(0.5)
                continue
            self._judge(*taken)

    def _judge(self, number: int, student: str, body: bytes) -> None:
        """Judge one submission and keep what came out, however long that takes."""
        try:
            task, problem = self.task(student, body)
            verdict = grade_one(task) if task is not None else self._none(problem)
        except Exception as error:  # ours: the submission waits, the queue goes on
            say(f"submission {number} was not judged: {error}")
            # for want of a disk, of memory or of descriptors: it is judged when they are there
            if isinstance(error, OSError) or not self.room():
                self._surely(lambda: self.store.requeue(number))
                self.stopping.wait(PAUSE)
                return
            self._failed[number] += 1
            if self._failed[number] < TRIES:
                self._surely(lambda: self.store.requeue(number))
                self.stopping.wait(PAUSE)
                return
            # the oldest is taken first: it would be taken for ever
            verdict = self._none(
                "the grader could not judge this; tell the staff the number "
                f"{number}, or send it again"
            )
        pages = verdict.pop("pages", {})
        self._surely(lambda: keep_pages(self.data / "looks" / f"{number:06}", pages))
        self._surely(lambda: self._sign(number, student, verdict))
        self._surely(lambda: self.store.finish(number, json.dumps(verdict, sort_keys=True)))

    def _none(self, problem: str) -> dict[str, Any]:
        return {
            "points": 0.0,
            "of": self.graded.points,
            "lines": [],
            "cases": [],
            "problem": problem,
        }

    def _surely(self, write: Callable[[], object]) -> None:
        """Write to disk, again until there is room; what a stop interrupts is judged again."""
        while True:
            try:
                write()
                return
            except (sqlite3.Error, OSError) as error:
                say(f"not written, tried again: {error}")
                if self.stopping.wait(PAUSE):
                    return
            except Exception as error:  # no disk's: it would go wrong again, without end
                say(f"not written: {type(error).__name__}: {error}")
                return

    def _sign(self, number: int, student: str, verdict: dict[str, Any]) -> None:
        if not verdict["cases"]:
            return
        at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        name = "reference" if student == "reference" else pseudonym(self.key, student)
        for target, body in body_of(verdict, name, at).items():
            write_json(self.data / "entries" / f"{number:06}-{target}.json", sign(self.key, body))

    # -- showing -------------------------------------------------------------------------------
    def page(self) -> str:
        """Return the board; made at most once a second."""
        with self._drawing:
            made, text = self._page
            if time.monotonic() - made > 1 or not text:
                public = public_of(self.key)
                entries = self._entries(public)
                text = render(tables(entries), public, len(entries), [], live=self.store.counts())
                self._page = time.monotonic(), text
            return text

    def _entries(self, public: str) -> list[Entry]:
        """Return all entries; each file is verified once."""
        found: dict[tuple[Path, int], Entry] = {}
        for path in sorted((self.data / "entries").glob("*.json")):
            try:
                key = path, path.stat().st_mtime_ns
                found[key] = self._verified.get(key) or verify(json.loads(path.read_text()), public)
            except (OSError, ValueError, Refused) as error:
                say(f"{path} is left out: {error}")
        self._verified = found
        return list(found.values())

    def status(self, number: str, header: str, at: str, given: str) -> tuple[int, dict[str, Any]]:
        """Return (HTTP status, answer) about a submission, to the student whose it is."""
        student = self.who(header, at, given, digest_of(number.encode()))
        signed = seconds(at)
        fresh = signed is not None and abs(time.time() - signed) <= CLOCK
        status = self.store.status(int(number)) if re.fullmatch("[0-9]{1,18}", number) else None
        if student is None or not fresh or status is None or status["student"] != student:
            return 404, {"error": "there is no such submission of yours"}
        answer: dict[str, Any] = {
            "id": int(number),
            "state": status["state"],
            "before": status["before"],
            "sha256": status["sha"],
        }
        if status["verdict"]:
            verdict = json.loads(status["verdict"])
            answer |= {
                "points": verdict["points"],
                "of": verdict["of"],
                "problem": verdict.get("problem", ""),
                "lines": [
                    {k: line[k] for k in ("text", "points", "of", "why")}
                    for line in verdict["lines"]
                ],
            }
        return 200, answer


def application(contest: Contest, jobs: int) -> Any:
    """Return the ASGI application; its judges run while it does."""
    from contextlib import asynccontextmanager

    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect
    from starlette.responses import HTMLResponse, JSONResponse
    from starlette.routing import Route

    sending: Counter[str] = Counter()  # bodies of a student that are being read

    def safely(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Answer in words whatever goes wrong: a disk without room, a client that goes away."""

        async def endpoint(request: Any) -> Any:
            try:
                return await answer(request)
            except ClientDisconnect:
                return JSONResponse({"error": "the request was not sent to its end"}, 400)
            except (sqlite3.Error, OSError) as error:
                say(f"{request.url.path}: {error}")
                return reply(*full())
            except Exception as error:
                say(f"{request.url.path}: {type(error).__name__}: {error}")
                return JSONResponse(
                    {"error": "the server has made a mistake; nothing was taken, so send it again"},
                    500,
                )

        return endpoint

    def reply(code: int, answer: dict[str, Any]) -> Any:
        more = {"Retry-After": str(answer["retry_after"])} if "retry_after" in answer else None
        return JSONResponse(answer, code, headers=more)

    async def submit(request: Any) -> Any:
        declared = request.headers.get("content-length", "0")
        if not re.fullmatch("[0-9]{1,12}", declared) or int(declared) > LARGEST:
            return JSONResponse({"error": "larger than 1 MiB"}, 413)
        head = request.headers
        signed = (head.get("x-student", ""), head.get("x-time", ""), head.get("x-signature", ""))
        student, refused = contest.admit(*signed, head.get("x-digest", ""))
        if refused is not None:
            return reply(*refused)
        if sending[student] >= MOST_WAITING:
            return reply(429, {"error": "you are sending others already", "retry_after": 30})
        body = bytearray()

        async def read() -> None:
            async for chunk in request.stream():
                body.extend(chunk)
                if len(body) > LARGEST:
                    return

        sending[student] += 1
        try:
            await asyncio.wait_for(read(), SLOWEST)
        except asyncio.TimeoutError:  # who sends a byte a minute keeps others out
            return JSONResponse(
                {"error": f"the request took longer than {SLOWEST:g} s"},
                408,
                headers={"Connection": "close"},
            )
        finally:
            sending[student] -= 1
        if len(body) > LARGEST:
            return JSONResponse({"error": "larger than 1 MiB"}, 413)
        return reply(*await asyncio.to_thread(contest.accept, *signed, bytes(body)))

    async def status(request: Any) -> Any:
        head = request.headers
        return reply(
            *await asyncio.to_thread(
                contest.status,
                request.path_params["number"],
                head.get("x-student", ""),
                head.get("x-time", ""),
                head.get("x-signature", ""),
            )
        )

    async def board(request: Any) -> Any:
        return HTMLResponse(
            await asyncio.to_thread(contest.page),
            headers={"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"},
        )

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        threads = [threading.Thread(target=contest.judge_all, daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        yield
        contest.stopping.set()
        contest.work.set()

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/", safely(board)),
            Route("/submit", safely(submit), methods=["POST"]),
            Route("/status/{number}", safely(status)),
        ],
    )


def prompt() -> Any:
    """Return a protocol for uvicorn that closes connections without a request: those that send
    a byte a second would use up all connections and keep everyone else out."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Prompt(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect(self.cycle)

        def on_response_complete(self) -> None:
            answered = self.cycle
            super().on_response_complete()
            self._expect(answered)

        def _expect(self, last: Any) -> None:
            """End it unless another request than `last` comes, whatever is not read yet."""
            self.loop.call_later(
                HEAD_S, lambda: self.transport.abort() if self.cycle is last else None
            )

    return Prompt


def _descriptors() -> None:
    """Let this process have as many as it may: connections must not take those of the judges."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def keep_lab(data: Path, graded: Graded) -> None:
    """Record the lab of a folder's submissions; raise SpecError if they belong to another contest,
    which would be judged as this lab's."""
    path, lab = data / "lab", f"{graded.lab.name} {graded.lab.dialect}"
    known = path.read_text(encoding="utf-8").strip() if path.exists() else lab
    if known != lab:
        raise SpecError(
            f"{data} has the submissions of {known}, and this is {lab}; give each "
            "contest a folder of its own"
        )
    path.write_text(lab + "\n", encoding="utf-8")


def serve(args: argparse.Namespace) -> int:
    """Serve a contest on this machine until it is stopped."""
    try:
        import uvicorn
    except ImportError:
        raise SpecError(
            'the live server needs uvicorn: pip install "trainium-labs[grade]"'
        ) from None
    _, load = known_labs()
    kind = sandbox.choose(args.sandbox)
    key = read_key(args.key)
    args.data.mkdir(parents=True, exist_ok=True)
    os.chmod(args.data, 0o700)
    lock = FileLock(args.data / "server.lock")
    try:
        lock.acquire(timeout=0)  # ends with the process, however that ends
    except Timeout:
        raise SpecError(
            f"another live server works on {args.data}: two would judge the same "
            "submissions. Stop it, or give another --data"
        ) from None
    graded = load_plan(load([args.lab])[0].folder)
    graded = graded.speaking(args.dialect or graded.lab.dialect)
    sandbox.keep_from(kind, graded.lab.folder)
    keep_lab(args.data, graded)
    _descriptors()
    try:
        store = Store(args.data / "contest.sqlite")
    except sqlite3.Error as error:
        raise SpecError(
            f"{args.data / 'contest.sqlite'} cannot be opened: {error}. Is there room on the disk?"
        ) from None
    contest = Contest(
        graded,
        store,
        key,
        make_tokens(args.data / "tokens.csv", args.roster),
        args.data,
        kind,
        args.seconds_between,
    )
    args.jobs, contest.memory = memory.fit(
        args.jobs, graded.plan.memory_gb * memory.GIB, memory.machine()
    )
    task, _ = contest.task("staff", graded.lab.kernels.read_bytes())
    if task is not None:
        contest.staff_us = staff.times(graded, args.data / "private", task, grade_one)
    print(
        f"{args.lab}: {len(contest.tokens)} students may submit; their tokens are in "
        f"{args.data / 'tokens.csv'}.\nThe board: http://127.0.0.1:{args.port}/ (this machine "
        f"only; put a proxy with HTTPS before it). Public key: {public_of(key)}",
        flush=True,
    )
    uvicorn.run(
        application(contest, args.jobs),
        host="127.0.0.1",
        port=args.port,
        log_level="warning",
        limit_concurrency=MOST_OPEN,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=5,
        http=prompt(),
        ws="none",
    )
    return 0
