"""The live server's memory: submissions and their verdicts in SQLite; what it has answered, it has.

A submission is committed to disk before the answer goes out. What was being judged when the server
died is queued again when it starts.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

_TABLES = """
CREATE TABLE IF NOT EXISTS submissions (
    id INTEGER PRIMARY KEY, student TEXT NOT NULL, sha TEXT NOT NULL, body BLOB NOT NULL,
    received REAL NOT NULL, state TEXT NOT NULL DEFAULT 'waiting', verdict TEXT);
CREATE INDEX IF NOT EXISTS by_student ON submissions (student, received);
CREATE INDEX IF NOT EXISTS by_state ON submissions (state, id);
CREATE TABLE IF NOT EXISTS signatures (signature TEXT PRIMARY KEY, at REAL NOT NULL);
"""


class Replayed(Exception):
    """A request that was sent before."""


class Store:
    """The queue; safe for many threads of one process."""

    def __init__(self, path: Path):
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.executescript(_TABLES)
        self._db.execute("UPDATE submissions SET state='waiting' WHERE state='running'")

    def add(self, student: str, sha: str, body: bytes, now: float, signature: str) -> int:
        """Keep a submission and return its number; raise Replayed for a signature seen before."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.execute("INSERT INTO signatures VALUES (?, ?)", (signature, now))
                self._db.execute("DELETE FROM signatures WHERE at < ?", (now - 3600,))
                number = self._db.execute(
                    "INSERT INTO submissions (student, sha, body, received) VALUES (?, ?, ?, ?)",
                    (student, sha, body, now),
                ).lastrowid
                self._db.execute("COMMIT")
            except sqlite3.IntegrityError:
                self._undo()
                raise Replayed from None
            except BaseException:
                self._undo()
                raise
        assert number is not None
        return number

    def _undo(self) -> None:
        if self._db.in_transaction:  # a full disk has ended it already
            self._db.execute("ROLLBACK")

    def last(self, student: str) -> tuple[float, int]:
        """Return when a student's last submission came (0: never), and how many of theirs wait."""
        with self._lock:
            when, waiting = self._db.execute(
                "SELECT max(received), total(state != 'done') FROM submissions WHERE student = ?",
                (student,),
            ).fetchone()
        return when or 0.0, int(waiting)

    def take(self) -> tuple[int, str, bytes] | None:
        """Return the oldest submission that waits, and note that it is being judged.

        At most one per student at a time: two that run together could see each other, and slow
        submissions would occupy every judge.
        """
        with self._lock:
            row = self._db.execute(
                "UPDATE submissions SET state='running' WHERE id = (SELECT id FROM submissions "
                "WHERE state='waiting' AND student NOT IN (SELECT student FROM submissions WHERE "
                "state='running') ORDER BY id LIMIT 1) RETURNING id, student, body"
            ).fetchone()
        return row

    def finish(self, number: int, verdict: str) -> None:
        """Keep a verdict."""
        with self._lock:
            self._db.execute(
                "UPDATE submissions SET state='done', verdict=? WHERE id=?", (verdict, number)
            )

    def requeue(self, number: int) -> None:
        """Let a submission wait again: judging it failed by no fault of its own."""
        with self._lock:
            self._db.execute("UPDATE submissions SET state='waiting' WHERE id=?", (number,))

    def status(self, number: int) -> dict[str, Any] | None:
        """Return what became of a submission, and how many are before it."""
        with self._lock:
            row = self._db.execute(
                "SELECT student, state, verdict, sha FROM submissions WHERE id=?", (number,)
            ).fetchone()
            if row is None:
                return None
            before = self._db.execute(
                "SELECT count(*) FROM submissions WHERE state != 'done' AND id < ?", (number,)
            ).fetchone()[0]
        return {
            "student": row[0],
            "state": row[1],
            "verdict": row[2],
            "sha": row[3],
            "before": before if row[1] == "waiting" else 0,
        }

    def counts(self) -> dict[str, int]:
        """Return how many wait, are being judged, and are done."""
        with self._lock:
            by_state = dict(
                self._db.execute("SELECT state, count(*) FROM submissions GROUP BY state")
            )
        return {state: by_state.get(state, 0) for state in ("waiting", "running", "done")}

    def verdicts(self) -> list[tuple[int, str, float, str]]:
        """Return (number, student, received, verdict) of all that are done."""
        with self._lock:
            return self._db.execute(
                "SELECT id, student, received, verdict FROM submissions WHERE "
                "state='done' ORDER BY id"
            ).fetchall()
