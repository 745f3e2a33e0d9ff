"""The live server under a class's load, on this machine only: answers, and what is lost.

    python tools/benchmarks/live_server.py [--students N] [--seconds S] [--kill] [--drain]
        [--jobs N]

Each student submits once, at a random moment of S seconds (0: all at once), while the server
judges. Prints the percentiles of the answer times. With --kill the server is killed (SIGKILL) in
the middle, while it judges, and started again; students whose request failed send it again, as
their program would. With --drain it goes on until all are judged, and says how many a minute.
"""

from __future__ import annotations

import argparse
import http.client
import random
import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "shared"), str(ROOT / "tests" / "labkit")]


def count(folder: Path, state: str) -> int:
    """Return how many submissions are in a state."""
    database = sqlite3.connect(folder / "data" / "contest.sqlite", timeout=30)
    try:
        return int(
            database.execute("SELECT count(*) FROM submissions WHERE state=?", (state,)).fetchone()[
                0
            ]
        )
    finally:
        database.close()


def drain(folder: Path, students: int) -> bool:
    """Wait until all are judged and print how many a minute; False if none is for five minutes."""
    first, begun = count(folder, "done"), time.monotonic()
    done, last = first, begun
    while done < students and time.monotonic() - last < 300:
        time.sleep(0.2)
        now = count(folder, "done")
        last, done = (time.monotonic() if now != done else last), now
    minutes = (time.monotonic() - begun) / 60
    print(
        f"{done} of {students} judged; {(done - first) / minutes:.0f} per minute"
        if done > first
        else f"{done} of {students} judged; all before the end: none per minute"
    )
    return done >= students


def main() -> int:
    """Run the load and print what came of it; 1 if a submission was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--students", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="judged at a time")
    args = parser.parse_args()
    from grading import small_lab
    from mutants import submissions
    from test_board import Server

    texts = submissions("vecadd", args.students)
    took: list[float] = []
    accepted: set[str] = set()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        small_lab(folder)
        servers = [Server(folder, list(texts), jobs=str(args.jobs))]
        rng = random.Random(1)
        moments = {s: rng.uniform(0, args.seconds) for s in texts}
        begun = time.monotonic()

        def student(name: str) -> None:
            time.sleep(max(0.0, moments[name] - (time.monotonic() - begun)))
            for _ in range(200):
                sent = time.perf_counter()
                try:
                    code, _ = servers[-1].submit(name, texts[name].encode())
                except (OSError, ValueError, http.client.HTTPException):
                    time.sleep(0.3)  # it is down
                    continue
                took.append(time.perf_counter() - sent)
                if code in (202, 409):  # 409: it was taken, and the answer was lost by the kill
                    accepted.add(name)
                return

        threads = [threading.Thread(target=student, args=(name,)) for name in texts]
        for thread in threads:
            thread.start()
        if args.kill:
            time.sleep(args.seconds / 2)
            while len(accepted) < args.students / 2 or not count(folder, "running"):
                time.sleep(0.02)
            judging = count(folder, "running")
            servers[-1].kill()
            servers.append(Server(folder, list(texts), jobs=str(args.jobs)))
            print(
                f"killed with {len(accepted)} accepted and {judging} being judged, and started "
                "again"
            )
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begun
        drained = drain(folder, len(accepted)) if args.drain else True
        servers[-1].kill()
        database = sqlite3.connect(folder / "data" / "contest.sqlite")
        stored = {s for (s,) in database.execute("SELECT student FROM submissions")}
        done = database.execute("SELECT count(*) FROM submissions WHERE state='done'").fetchone()[0]
    lost = accepted - stored
    took.sort()
    print(
        f"{len(accepted)} of {args.students} submissions accepted in {seconds:.0f} s, "
        f"{done} judged meanwhile; {len(lost)} lost"
    )
    print(
        f"answers: p50 {1e3 * took[len(took) // 2]:.0f} ms, "
        f"p99 {1e3 * took[int(0.99 * (len(took) - 1))]:.0f} ms, "
        f"slowest {1e3 * took[-1]:.0f} ms"
    )
    return 1 if lost or not drained or len(accepted) < args.students else 0


if __name__ == "__main__":
    sys.exit(main())
