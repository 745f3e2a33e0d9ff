"""The live server under a class's load, on this machine only: answers, and what is lost.

    python benchmarks/live_server.py [--students N] [--seconds S] [--kill]

Each student submits once, at a random moment of S seconds, while the server judges. Prints the
percentiles of the answer times. With --kill the server is killed (SIGKILL) in the middle and
started again; students whose request failed send it again, as their program would.
"""
from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "shared"), str(ROOT / "tests" / "labkit")]


def main() -> int:
    """Run the load and print what came of it; 1 if a submission was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--students", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kill", action="store_true")
    args = parser.parse_args()
    from grading import small_lab
    from mutants import submissions
    from test_board import Server
    texts = submissions("vecadd", args.students)
    took: list[float] = []
    accepted: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        small_lab(folder)
        servers = [Server(folder, list(texts))]
        rng = random.Random(1)
        moments = {s: rng.uniform(0, args.seconds) for s in texts}
        begun = time.monotonic()

        def student(name: str) -> None:
            time.sleep(max(0.0, moments[name] - (time.monotonic() - begun)))
            for _ in range(200):
                sent = time.perf_counter()
                try:
                    code, answer = servers[-1].submit(name, texts[name].encode())
                except (OSError, ValueError):
                    time.sleep(0.3)             # it is down
                    continue
                took.append(time.perf_counter() - sent)
                if code == 202:
                    accepted[name] = answer["id"]
                return
        threads = [threading.Thread(target=student, args=(name,)) for name in texts]
        for thread in threads:
            thread.start()
        if args.kill:
            time.sleep(args.seconds / 2)
            before = dict(accepted)
            servers[-1].kill()
            servers.append(Server(folder, list(texts)))
            print(f"killed with {len(before)} accepted, and started again")
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begun
        servers[-1].kill()
        database = sqlite3.connect(folder / "data" / "contest.sqlite")
        stored = {s: n for n, s in database.execute("SELECT id, student FROM submissions")}
        done = database.execute("SELECT count(*) FROM submissions WHERE state='done'").fetchone()[0]
    lost = [s for s, n in accepted.items() if s not in stored]
    took.sort()
    print(f"{len(accepted)} of {args.students} submissions accepted in {seconds:.0f} s, "
          f"{done} judged meanwhile; {len(lost)} lost")
    print(f"answers: p50 {1e3 * took[len(took) // 2]:.0f} ms, "
          f"p99 {1e3 * took[int(0.99 * (len(took) - 1))]:.0f} ms, "
          f"slowest {1e3 * took[-1]:.0f} ms")
    return 1 if lost or len(accepted) < args.students else 0


if __name__ == "__main__":
    sys.exit(main())
