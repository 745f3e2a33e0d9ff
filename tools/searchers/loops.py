"""Three loops of published kernel agents around `evaluate`, with a model that you give.

    python tools/searchers/loops.py STYLE FILE:KERNEL --arg 128x4096:float32 \\
        --reference FILE:FUNCTION --model FILE:NAME

STYLE is `beam` (as Autocomp does: a plan for each kernel of a beam, several kernels of each plan,
the fastest go on), `memory` (as AccelOpt does: a planner, an executor, and a memory of what made
kernels faster or slower) or `tools` (as tool-using agents do: the model asks for `evaluate` or
`explain` until it says that it is done).

A model is a function of a prompt that returns text: FILE:NAME names one, or a list of answers
that are given one after the other, which needs no key. Where a kernel is asked for, an answer is
either a whole file, or lines `old -> new`, each a replacement. Times are predicted, not measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nkisim.agents.environment import KernelEnv
from nkisim.cli.main import pages_of

Model = Callable[[str], str]
Seen = dict[str, Any]


class Replay:
    """A model that gives answers which were written down, one after the other."""

    def __init__(self, answers: Iterable[str]):
        self.answers = iter(answers)

    def __call__(self, prompt: str) -> str:
        """Return the next answer; "" when there are no more."""
        return next(self.answers, "")


def edited(source: str, answer: str) -> str:
    """Return the text that an answer makes of a source: a file, or replacements in the source."""
    if "@nki.jit" in answer:
        return answer
    for line in answer.splitlines():
        old, arrow, new = line.partition(" -> ")
        if arrow:
            source = source.replace(old.strip(), new.strip())
    return source


def said(seen: Seen) -> str:
    """Return what a prompt says about a kernel: verdict, error, time, floor, findings, advice."""
    lines = [f"verdict: {seen['verdict']}"]
    if seen.get("error"):
        lines.append(f"error: {seen['error']['what']}; try: {seen['error']['hint']}")
    if seen["right"]:
        floor = seen["floor"]["floor_us"]
        lines.append(f"{seen['time']['latency_us']:.1f} us predicted, floor {floor:.1f} us")
        lines += [f"advice: {a['sentence']}" for a in seen["advice"]]
    lines += [f"{f['severity']}: {f['text']}" for f in seen.get("findings", ())]
    return "\n".join(lines)


def us(seen: Seen) -> float:
    """Return the predicted time of a kernel that is right, else infinity: what is sorted by."""
    counts = seen["right"] and not seen["time"]["defer"]
    return float(seen["time"]["latency_us"]) if counts else float("inf")


def look(env: KernelEnv, source: str) -> Seen:
    """Return the answer about a text, and print a line."""
    seen = env.step({"source": source})[0]
    time = f"{us(seen):,.1f} us predicted" if us(seen) < float("inf") else seen["verdict"]
    print(f"  {time}", flush=True)
    return seen


def beam(env: KernelEnv, model: Model, rounds: int = 3, width: int = 2, each: int = 2) -> Seen:
    """Keep the `width` fastest kernels; of each, ask for a plan and `each` kernels of it."""
    kept = [env.reset()[0]]
    for n in range(rounds):
        print(f"round {n + 1}")
        found = list(kept)
        for seen in kept:
            plan = model(f"Plan one change of this kernel.\n{said(seen)}\n{seen['source']}")
            for _ in range(each if plan else 0):
                text = model(f"Do it: {plan}\n{seen['source']}")
                if text:
                    found.append(look(env, edited(seen["source"], text)))
        kept = sorted(found, key=us)[:width]
        if env.near_floor(kept[0]):
            break
    return kept[0]


def memory(env: KernelEnv, model: Model, rounds: int = 3, each: int = 1) -> Seen:
    """Plan with what was learnt, carry out, and remember what it brought."""
    best, learnt = env.reset()[0], list[str]()
    for n in range(rounds):
        print(f"round {n + 1}, {len(learnt)} remembered")
        told = "\n".join(learnt)
        plan = model(f"Learnt so far:\n{told}\nPlan a change.\n{said(best)}\n{best['source']}")
        for _ in range(each if plan else 0):
            text = model(f"Carry out this plan: {plan}\n{best['source']}")
            seen = look(env, edited(best["source"], text))
            learnt.append(f"{plan}: {us(best):.1f} -> {us(seen):.1f} us ({seen['verdict']})")
            best = min(best, seen, key=us)
        if env.near_floor(best):
            break
    return best


def tools(env: KernelEnv, model: Model, turns: int = 12) -> Seen:
    """Let the model choose: `evaluate` and an answer below it, `explain ID`, or `done`."""
    best = seen = env.reset()[0]
    told = said(seen)
    for _ in range(turns):
        what, _, rest = model(f"{told}\n{seen['source']}").strip().partition("\n")
        if what.startswith("explain "):
            told = "\n".join(pages_of(what.split()[1])) or "there is no such page"
            print(f"  explain {what.split()[1]}")
        elif what == "evaluate":
            seen = look(env, edited(seen["source"], rest))
            told, best = said(seen), min(best, seen, key=us)
        else:
            break
    return best


STYLES: dict[str, Callable[[KernelEnv, Model], Seen]] = {
    "beam": beam,
    "memory": memory,
    "tools": tools,
}


def model_of(name: str) -> Model:
    """Return the model that FILE:NAME is: a function, or a list of answers to replay."""
    file, _, attribute = name.rpartition(":")
    space: dict[str, Any] = {"__name__": "model"}
    exec(compile(Path(file).read_text("utf-8"), file, "exec"), space)
    found = space[attribute]
    return found if callable(found) else Replay(found)


def main() -> int:
    """Run a loop; print each kernel's time; 0 if the best is right and near its floor, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("style", choices=STYLES)
    parser.add_argument("kernel", metavar="FILE:KERNEL")
    parser.add_argument("--arg", action="append", default=[], metavar="SHAPE:DTYPE")
    parser.add_argument("--reference", required=True, metavar="FILE:FUNCTION")
    parser.add_argument("--model", required=True, metavar="FILE:NAME")
    parser.add_argument("--target", default="trn2")
    parser.add_argument("--near", type=float, default=1.1, help="times the floor (%(default)s)")
    options = parser.parse_args()
    task = {
        "kernel": options.kernel,
        "source": Path(options.kernel.rpartition(":")[0]).read_text("utf-8"),
        "args": options.arg,
        "reference": options.reference,
        "target": options.target,
    }
    env = KernelEnv(task, near=options.near)
    try:
        best = STYLES[options.style](env, model_of(options.model))
    finally:
        env.close()
    print(said(best))
    return 0 if env.near_floor(best) else 1


if __name__ == "__main__":
    sys.exit(main())
