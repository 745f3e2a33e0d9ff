"""Improve a kernel by what `evaluate` says, and nothing else: its fixes, then its advice.

    python tools/searchers/improve.py FILE:KERNEL --arg 256000:float32 --reference FILE:FUNCTION

A program in the place of a language model. It applies the first fix until the kernel is right;
then, where advice names lines, it tries what the remedy asks for (rewrites.py), and other values
of the constants of the file that the line's function uses. It keeps what is right and predicted
faster, until the time is within --near of the floor or nothing helps. Nothing here knows a
kernel. Times are predicted, not measured.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nkisim.agents.environment import KernelEnv
from nkisim.evaluation.edits import apply_dict

sys.path.insert(0, str(Path(__file__).resolve().parent))
from rewrites import rewrites

#: what a constant is multiplied by
FACTORS = (2, 4, 10, 2.5, 0.5, 0.2)
#: what is faster by less is no gain: the model is not that exact
GAIN = 0.005


def function_at(tree: ast.Module, line: int) -> ast.AST:
    """Return the function that a line is in, else the whole file."""
    inside = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and n.lineno <= line <= (n.end_lineno or 0)
    ]
    return inside[-1] if inside else tree


def constants(source: str, line: int) -> Iterator[ast.Assign]:
    """Yield the assignments of numbers at the top of a file that a line's function uses."""
    tree = ast.parse(source)
    used = {n.id for n in ast.walk(function_at(tree, line)) if isinstance(n, ast.Name)}
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in used
            and isinstance(node.value, ast.Constant)
            and type(node.value.value) is int
        ):
            yield node


def moves(seen: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (what it is, source) of the edits that advice leads to, by the advice's order."""
    source, tried = seen["source"], set()
    for advice in seen["advice"]:
        lines = [
            int(place.split(":")[-1].split(",")[0])
            for place in (advice["where"] or ":0", *advice["also"])
        ]
        for what, new in rewrites(source, advice["cause"], lines):
            yield f"{advice['cause']}: {what}", new
        for node in constants(source, lines[0]):
            name, value = node.targets[0].id, node.value.value
            for factor in FACTORS:
                new = int(value * factor)
                if new < 1 or (name, new) in tried:
                    continue
                tried.add((name, new))
                edit = {
                    "start": {"line": node.value.lineno, "column": node.value.col_offset},
                    "end": {"line": node.value.end_lineno, "column": node.value.end_col_offset},
                    "text": str(new),
                }
                yield f"{advice['cause']}: {name} = {new}", apply_dict(source, [edit])


def improve(env: KernelEnv, steps: int = 12) -> list[tuple[str, dict[str, Any]]]:
    """Return (what was done, observation) of each step that was kept, the first as it was."""
    seen, _ = env.reset()
    kept = [("as it is", seen)]
    while len(kept) <= steps and not env.near_floor(seen):
        fixes = [fix for f in seen["findings"] for fix in f["fixes"]] if not seen["right"] else []
        if fixes:
            text, found = fixes[0]["title"], env.step({"edits": fixes[0]["edits"]})[0]
        elif seen["right"]:
            text, found = best_move(env, seen)
        else:
            break
        if not found["right"] or text == "":
            break
        seen = found
        kept.append((text, seen))
    return kept


def best_move(env: KernelEnv, seen: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the fastest of the edits that advice leads to, "" if none is right and faster."""
    best, what = seen, ""
    enough = seen["time"]["latency_us"] * (1 - GAIN)
    task = env.state["task"]
    env.state["task"] = {**task, "fixes": False}  # a value that is refused is not mended
    for text, source in moves(seen):
        found = env.step({"source": source})[0]
        if not found["right"] or found["time"]["defer"]:
            continue
        us = found["time"]["latency_us"]
        if us < enough and us < best["time"]["latency_us"]:
            best, what = found, text
    env.state["source"], env.state["task"] = best["source"], task
    return what, best


def main() -> int:
    """Improve a kernel; print the steps; 0 if it is right and near its floor, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernel", metavar="FILE:KERNEL")
    parser.add_argument("--arg", action="append", default=[], metavar="SHAPE:DTYPE")
    parser.add_argument("--reference", required=True, metavar="FILE:FUNCTION")
    parser.add_argument("--target", default="trn2")
    parser.add_argument("--near", type=float, default=1.1, help="times the floor (%(default)s)")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--write", metavar="FILE", help="write the improved text there")
    options = parser.parse_args()
    file = options.kernel.rpartition(":")[0]
    task = {
        "kernel": options.kernel, "source": Path(file).read_text("utf-8"), "args": options.arg,
        "reference": options.reference, "target": options.target,
    }  # fmt: skip
    env = KernelEnv(task, near=options.near)
    try:
        kept = improve(env, options.steps)
    finally:
        env.close()
    for text, seen in kept:
        time, floor = seen.get("time"), (seen.get("floor") or {}).get("floor_us")
        us = f"{time['latency_us']:,.1f} us predicted" if seen["right"] else seen["verdict"]
        print(f"{us:<26}{text}" + (f" (floor {floor:,.1f})" if floor and seen["right"] else ""))
    if options.write:
        Path(options.write).write_text(kept[-1][1]["source"], "utf-8")
    return 0 if env.near_floor(kept[-1][1]) else 1


if __name__ == "__main__":
    sys.exit(main())
