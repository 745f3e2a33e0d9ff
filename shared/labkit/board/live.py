"""The contest's live server, for a lab session: takes signed submissions, judges, shows the board.

It listens on this machine only; a reverse proxy in front of it speaks HTTPS (docs/grading.md). A
student signs time and body with a token that never travels: HMAC-SHA256 in `X-Signature`.
"""
from __future__ import annotations

import argparse
import asyncio
import csv
import hashlib
import hmac
import json
import os
import secrets
import tempfile
import threading
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..cli import known_labs
from ..grade import intake, sandbox
from ..grade.plan import Graded, digest, load_plan
from ..grade.run import Task, grade_one, seed_of, write_json
from ..spec import SpecError
from ..tables import read_table
from .entries import body_of, pseudonym, public_of, read_key, sign, verify
from .page import render
from .rank import tables
from .store import Replayed, Store
from .token import signature

LARGEST = 1 << 20           # bytes of a submission
CLOCK = 300                 # seconds that a signature is good for
MOST_WAITING = 3            # submissions of one student that wait
TRIES, PAUSE = 3, 5.0       # of judging one where it goes wrong, and seconds between them


def make_tokens(path: Path, roster: Path | None) -> dict[str, str]:
    """Return student -> token; those of the roster that have none get one, kept in tokens.csv."""
    tokens: dict[str, str] = {}
    if path.is_file():
        with open(path, newline="", encoding="utf-8") as file:
            tokens = {row["student"]: row["token"] for row in csv.DictReader(file)}
    if roster is not None:
        for row in read_table(roster, "student"):
            tokens.setdefault(row["student"], secrets.token_urlsafe(24))
        part = path.with_name(path.name + ".part")      # half a file would be new tokens for many
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out)
            writer.writerow(["student", "token"])
            writer.writerows(sorted(tokens.items()))
        os.replace(part, path)
    if not tokens:
        raise SpecError("nobody can submit: give --roster, a CSV with a column student")
    return tokens


class Contest:
    """The lab, the queue, the signing key, and the board as it is now."""

    def __init__(self, graded: Graded, store: Store, key: Any, tokens: dict[str, str], data: Path,
                 kind: str, seconds_between: float):
        self.graded, self.store, self.key, self.tokens = graded, store, key, tokens
        self.data, self.sandbox, self.seconds_between = data, kind, seconds_between
        self.stopping = threading.Event()
        self.work = threading.Event()
        self._failed: Counter[int] = Counter()      # how often judging one went wrong
        self._page: tuple[float, str] = (0.0, "")

    # -- taking --------------------------------------------------------------------------------
    def accept(self, student: str, at: str, given: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """Return (HTTP status, answer) of a submission."""
        token = self.tokens.get(student)
        expected = signature(token or secrets.token_hex(), student, at, body)
        if not hmac.compare_digest(expected, given) or token is None:
            return 401, {"error": "this signature is not that of your token"}
        now = time.time()
        if not at.isdigit() or abs(now - int(at)) > CLOCK:
            return 401, {"error": f"signed more than {CLOCK // 60} minutes ago; is your clock "
                                  "right?"}
        last, waiting = self.store.last(student)
        if now - last < self.seconds_between:
            wait = self.seconds_between - (now - last)
            return 429, {"error": f"wait {wait:.0f} s before the next",
                         "retry_after": int(wait) + 1}
        if waiting >= MOST_WAITING:
            return 429, {"error": f"{waiting} of yours wait already", "retry_after": 30}
        try:
            number = self.store.add(student, hashlib.sha256(body).hexdigest(), body, now, given)
        except Replayed:
            return 409, {"error": "this very request was sent before"}
        self.work.set()
        return 202, {"id": number, "status": f"/status/{number}"}

    # -- judging -------------------------------------------------------------------------------
    def task(self, student: str, body: bytes) -> tuple[Task | None, str]:
        """Return the task of a body (the kernels, or a .zip with them), or why there is none."""
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
            found = intake.take({"student": student, "source": source}, Path(scratch), lab.name,
                                lab.handed_in, None, folder)
        if found.problem:
            return None, found.problem
        seed = seed_of(self.data, lab.name)
        key = digest(lab.folder, str(seed), found.sha256)
        return {"student": student, "name": lab.name, "lab": str(lab.folder.resolve()),
                "files": {n: d.decode("utf-8", "surrogateescape") for n, d in found.files.items()},
                "kernels": lab.kernels.stem, "sandbox": self.sandbox, "seed": seed,
                "full": False, "submission_sha256": found.sha256, "of": self.graded.points,
                "key": key, "references": str((self.data / "private" / "references").resolve()),
                "patience_s": self.graded.plan.total_s + 300}, ""

    def judge_all(self) -> None:
        """Judge what waits until the server stops; run in threads."""
        while not self.stopping.is_set():
            taken = self.store.take()
            if taken is None:
                self.work.clear()
                self.work.wait(0.5)
                continue
            number, student, body = taken
            try:
                task, problem = self.task(student, body)
                verdict = grade_one(task) if task is not None else {
                    "points": 0.0, "of": self.graded.points, "lines": [], "cases": [],
                    "problem": problem}
                self.store.finish(number, json.dumps(verdict, sort_keys=True))
                self._sign(number, student, verdict)
            except Exception as error:          # ours: the submission waits, the queue goes on
                print(f"submission {number} was not judged: {error}", flush=True)
                self._failed[number] += 1
                if self._failed[number] < TRIES:
                    self.store.again(number)
                else:               # the oldest is taken first: it would be taken for ever
                    self.store.finish(number, json.dumps({
                        "points": 0.0, "of": self.graded.points, "lines": [], "cases": [],
                        "problem": "the grader could not judge this; tell the staff the number "
                                   f"{number}, or send it again"}))
                self.stopping.wait(PAUSE)

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
        made, text = self._page
        if time.monotonic() - made > 1 or not text:
            public = public_of(self.key)
            entries = [verify(json.loads(p.read_text()), public)
                       for p in sorted((self.data / "entries").glob("*.json"))]
            text = render(tables(entries), public, len(entries), [], live=self.store.counts())
            self._page = time.monotonic(), text
        return text

    def status(self, number: int, student: str, at: str, given: str) -> tuple[int, dict[str, Any]]:
        """Return (HTTP status, answer) about a submission, to the student whose it is."""
        token = self.tokens.get(student)
        expected = signature(token or secrets.token_hex(), student, at, str(number).encode())
        fresh = at.isdigit() and abs(time.time() - int(at)) <= CLOCK
        found = self.store.status(number)
        if not hmac.compare_digest(expected, given) or not fresh or found is None \
                or found["student"] != student:
            return 404, {"error": "there is no such submission of yours"}
        answer: dict[str, Any] = {"id": number, "state": found["state"], "before": found["before"],
                                  "sha256": found["sha"]}
        if found["verdict"]:
            verdict = json.loads(found["verdict"])
            answer |= {"points": verdict["points"], "of": verdict["of"],
                       "problem": verdict.get("problem", ""),
                       "lines": [{k: line[k] for k in ("text", "points", "of", "why")}
                                 for line in verdict["lines"]]}
        return 200, answer


def application(contest: Contest, jobs: int) -> Any:
    """Return the ASGI application; its judges run while it does."""
    from contextlib import asynccontextmanager

    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, JSONResponse
    from starlette.routing import Route

    async def submit(request: Any) -> Any:
        declared = request.headers.get("content-length", "0")
        if not declared.isdigit() or int(declared) > LARGEST:
            return JSONResponse({"error": "larger than 1 MiB"}, 413)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST:
                return JSONResponse({"error": "larger than 1 MiB"}, 413)
        head = request.headers
        code, answer = await asyncio.to_thread(
            contest.accept, head.get("x-student", ""), head.get("x-time", ""),
            head.get("x-signature", ""), bytes(body))
        more = {"Retry-After": str(answer["retry_after"])} if "retry_after" in answer else None
        return JSONResponse(answer, code, headers=more)

    async def status(request: Any) -> Any:
        head = request.headers
        code, answer = await asyncio.to_thread(
            contest.status, request.path_params["number"], head.get("x-student", ""),
            head.get("x-time", ""), head.get("x-signature", ""))
        return JSONResponse(answer, code)

    async def board(request: Any) -> Any:
        return HTMLResponse(await asyncio.to_thread(contest.page), headers={
            "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"})

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        threads = [threading.Thread(target=contest.judge_all, daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        yield
        contest.stopping.set()
        contest.work.set()

    return Starlette(lifespan=lifespan, routes=[
        Route("/", board), Route("/submit", submit, methods=["POST"]),
        Route("/status/{number:int}", status)])


def serve(args: argparse.Namespace) -> int:
    """Serve a contest on this machine until it is stopped."""
    try:
        import uvicorn
    except ImportError:
        raise SpecError('the live server needs uvicorn: pip install "trainium-labs[grade]"'
                        ) from None
    _, load = known_labs()
    kind = sandbox.choose(args.sandbox)
    key = read_key(args.key)
    args.data.mkdir(parents=True, exist_ok=True)
    os.chmod(args.data, 0o700)
    graded = load_plan(load([args.lab])[0].folder).speaking(args.dialect)
    sandbox.keep_from(kind, graded.lab.folder)
    contest = Contest(graded,
                      Store(args.data / "contest.sqlite"),
                      key, make_tokens(args.data / "tokens.csv", args.roster), args.data, kind,
                      args.seconds_between)
    print(f"{args.lab}: {len(contest.tokens)} students may submit; their tokens are in "
          f"{args.data / 'tokens.csv'}.\nThe board: http://127.0.0.1:{args.port}/ (this machine "
          f"only; put a proxy with HTTPS before it). Public key: {public_of(key)}", flush=True)
    uvicorn.run(application(contest, args.jobs), host="127.0.0.1", port=args.port,
                log_level="warning", limit_concurrency=1000, timeout_keep_alive=5)
    return 0
