"""The loop of docs/agents.md on the labs' jobs and two public ones: how near the floor?

    python tools/benchmarks/agent_loop.py [--only NAME] [--write]

`tools/searchers/improve.py` starts with naive kernels, some of them wrong, and follows fixes and
advice alone.
Times of kernels are predicted, not measured; those of the loop are wall time of this machine.
`--write` puts the table into docs/agents.md.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from nkisim.agents.environment import KernelEnv
from nkisim.cli.serve import Desk

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "searchers"))
from improve import improve  # noqa: E402

PAGE = ROOT / "docs" / "agents.md"
LABS, TASKS = ROOT / "labs", ROOT / "tools" / "searchers" / "tasks.py"
#: what is improved -> (file, kernel, arguments, reference)
JOBS = {
    "vecadd: add": (LABS / "vecadd" / "kernels_nki.py", "vector_add_stream",
                    ["128000:float32", "128000:float32"], f"{LABS}/vecadd/reference.py:add"),
    "ffnn: product": (TASKS, "matmul", ["1024x1024:bfloat16", "1024x1024:bfloat16"],
                      f"{LABS}/ffnn/reference.py:matmul"),
    "ffnn: smaller product": (TASKS, "matmul", ["512x512:bfloat16", "512x1024:bfloat16"],
                              f"{LABS}/ffnn/reference.py:matmul"),
    "conv2d: 4 images": (TASKS, "conv2d",
                         ["4x128x66x66:float32", "128x128x3x3:float32", "128:float32"],
                         f"{LABS}/conv2d/reference.py:conv2d_exact"),
    "conv2d: small image": (TASKS, "conv2d",
                            ["1x128x34x34:float32", "128x128x3x3:float32", "128:float32"],
                            f"{LABS}/conv2d/reference.py:conv2d_exact"),
    "SiLU": (TASKS, "silu", ["256x2048:float32"], f"{TASKS}:silu_of"),
    "RMS normalisation": (TASKS, "rms_norm", ["512x2048:float32"], f"{TASKS}:rms_norm_of"),
    "RMS, fewer rows": (TASKS, "rms_norm", ["256x2048:float32"], f"{TASKS}:rms_norm_of"),
}  # fmt: skip
HEAD = ("job", "at first", "steps", "evaluations", "seconds", "first right us", "last us",
        "floor us", "times the floor", "advice left")  # fmt: skip


def row(name: str, desk: Desk) -> list[str]:
    """Improve one kernel; return its row of the table."""
    file, kernel, args, reference = JOBS[name]
    task = {
        "kernel": f"{file}:{kernel}", "source": file.read_text("utf-8"), "args": args,
        "reference": reference, "target": "trn2",
    }  # fmt: skip
    env = KernelEnv(task, desk)
    start = time.perf_counter()
    kept = improve(env)
    took = time.perf_counter() - start
    for what, seen in kept:
        us = seen["time"]["latency_us"] if seen["right"] else float("nan")
        print(f"  {us:10,.1f} us  {what}", flush=True)
    first = next((seen for _, seen in kept if seen["right"]), None)
    last = kept[-1][1]
    if first is None:
        return [name, kept[0][1]["verdict"], f"{len(kept) - 1}", "", f"{took:.0f}", *[""] * 5]
    us, floor = last["time"]["latency_us"], last["floor"]["floor_us"]
    left = ", ".join(dict.fromkeys(a["cause"] for a in last["advice"]))
    return [
        name, kept[0][1]["verdict"], f"{len(kept) - 1}", f"{env.state['step'] + 1}", f"{took:.0f}",
        f"{first['time']['latency_us']:,.1f}", f"{us:,.1f}", f"{floor:,.1f}", f"{us / floor:.2f}",
        left or "none",
    ]  # fmt: skip


def main() -> int:
    """Improve all kernels, print the table, write it if asked; 1 if one did not become right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="jobs whose names have this in them")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = []
    with Desk(1, seconds=60) as desk:
        for name in JOBS:
            if options.only in name:
                print(name, flush=True)
                rows.append(row(name, desk))
                write(rows, options.write)
    return 1 if any(not r[6] for r in rows) else 0


def write(rows: list[list[str]], page: bool) -> None:
    """Print the table of what is done; put it into the page if asked."""
    lines = [f"| {' | '.join(r)} |" for r in (HEAD, ["---"] * len(HEAD), *rows)]
    print("\n".join(lines))
    if page:
        table = "<!-- loop -->\n" + "\n".join(lines) + "\n<!-- /loop -->"
        text = PAGE.read_text("utf-8")
        text = re.sub(r"<!-- loop -->.*?<!-- /loop -->", lambda _: table, text, flags=re.S)
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
