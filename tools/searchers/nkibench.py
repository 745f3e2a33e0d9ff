"""Evaluate the kernels of NKIBench (github.com/zhang677/AccelOpt) on nkisim: docs/searchers.md.

    python tools/searchers/nkibench.py --checkout AccelOpt [--only silu] [--kernel FILE] [--json]

What a task asks for is stated here, in NumPy (`TASKS`). The checkout says which tasks there are
and at which sizes, has their kernels, and lays inputs out for them; nothing of it is in this
repository. NKIBench compiles with --disable-dge, so descriptors are static. Times are predicted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import nkisim

PAGE = Path(__file__).resolve().parents[2] / "docs" / "searchers.md"
EPS = 1e-5


def softmax(x: np.ndarray) -> np.ndarray:
    """Return exp(x) of the last axis over its sum."""
    grown = np.exp(x - x.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def over_rms(x: np.ndarray, eps: float) -> np.ndarray:
    """Return rows over the root of the mean of their squares."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def silu(x: np.ndarray) -> np.ndarray:
    """Return x times its logistic function."""
    return x / (1 + np.exp(-x))


def adamw(theta: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the parameters after the first step: rate 0.01, decay 0.001, betas 0.9 and 0.999."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return theta * (1 - 1e-5) - 0.01 * m / (np.sqrt(v / 0.001) + 1e-8)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return attention of (batch, row, head, column); a head of k and v serves several of q."""
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    share = q.shape[1] // k.shape[1]
    heads = [
        softmax(q[:, h] @ k[:, h // share].swapaxes(1, 2) / np.sqrt(q.shape[-1])) @ v[:, h // share]
        for h in range(q.shape[1])
    ]
    return np.stack(heads, 1)


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Return the two halves of the rows, turned against each other by angles."""
    a, b = np.split(x, 2)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos])


def scanned(
    delta: np.ndarray, u: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray
) -> np.ndarray:
    """Return the outputs of a state-space model whose states decay by exp(delta a)."""
    state, out = np.zeros(a.shape), np.empty(delta.shape)
    for t in range(delta.shape[1]):
        d = delta[:, t, None]
        state = np.exp(d * a) * state + d * u[:, t, None] * b[:, t]
        out[:, t] = state @ c[:, t]
    return out


@dataclass(frozen=True)
class Task:
    """What an operator is: in words, shapes of its inputs by the sizes of a case, and in NumPy.

    A shape is a string of sizes; "eps" is a number. `scale`: of the normal inputs; `positive`:
    the places of the inputs that are made positive.
    """

    says: str
    shapes: tuple[str, ...]
    compute: Callable[..., np.ndarray]
    scale: float = 1.0
    positive: tuple[int, ...] = ()


TASKS = {
    "adamw": Task("one step of AdamW", ("M N",) * 4, adamw, positive=(3,)),
    "add_rmsnorm_matmul": Task(
        "the RMS normalisation of x + z, times gains, times w",
        ("M K", "K N", "eps", "M K", "K"),
        lambda x, w, eps, z, g: over_rms(x + z, eps) * g @ w,
    ),
    "bmm": Task("products of a batch", ("B M K", "B K N"), np.matmul),
    "bmm_softmax": Task(
        "softmax of products of a batch", ("B M K", "B K N"), lambda a, b: softmax(a @ b)
    ),
    "gqa_full": Task(
        "attention of grouped queries, without a mask", ("B N QH D", *["B N KH D"] * 2), attention
    ),
    "lora": Task(
        "a product, and that of two thin matrices added to the weights",
        ("M K", "K N", "K R", "R N"),
        lambda x, w, a, b: x @ w + (x @ a) @ b,
    ),
    "mamba": Task(
        "a selective scan", ("C M", "C M", "C S", "S M", "S M"), scanned, scale=0.05
    ),
    "matmul": Task("a product", ("M K", "K N"), np.matmul),
    "matmul_add_rmsnorm": Task(
        "the RMS normalisation of x w + z, times gains",
        ("M K", "K N", "eps", "M N", "N"),
        lambda x, w, eps, z, g: over_rms(x @ w + z, eps) * g,
    ),
    "rmsnorm_matmul": Task(
        "the RMS normalisation of x, times w", ("M K", "K N"), lambda x, w: over_rms(x, 0.0) @ w
    ),
    "rope_single_freq_apply": Task(
        "rotary embeddings", ("D BHN", "D/2 BHN", "D/2 BHN"), rotated
    ),
    "silu": Task("x times its logistic function", ("M N",), silu),
    "swiglu": Task(
        "a feed-forward layer with a gate",
        ("M K", "K N", "N K", "K N"),
        lambda x, up, down, gate: silu(x @ gate) * (x @ up) @ down,
    ),
    "transpose_matmul": Task(
        "the product of a transposed matrix", ("K M", "K N"), lambda a, b: a.T @ b
    ),
}  # fmt: skip


def shape_of(text: str, sizes: dict[str, int]) -> tuple[int, ...]:
    """Return the shape that a string says: "M K", "D/2 BHN"; a letter of several is a factor."""
    shape = []
    for word in text.split():
        name, _, part = word.partition("/")
        letters = [name] if name in sizes else list(name)
        shape.append(int(np.prod([sizes[n] for n in letters])) // int(part or 1))
    return tuple(shape)


def inputs_of(task: Task, sizes: dict[str, int], seed: int) -> list[Any]:
    """Return inputs of a task: normal, of float32."""
    rng = np.random.default_rng(seed)
    out: list[Any] = []
    for n, text in enumerate(task.shapes):
        if text == "eps":
            out.append(EPS)
            continue
        x = rng.standard_normal(shape_of(text, sizes), np.float32) * np.float32(task.scale)
        out.append(np.abs(x) if n in task.positive else x)
    return out


def module_of(path: Path) -> types.ModuleType:
    """Return the module in a file of the checkout."""
    spec = importlib.util.spec_from_file_location(f"nkibench_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def cases(checkout: Path, only: str) -> Iterator[tuple[str, dict[str, int], Path, Path]]:
    """Yield (operator, sizes, file of its kernel, file that lays inputs out) of each case."""
    folder = checkout / "NKIBench"
    for name, operator in json.loads((folder / "summary.json").read_text("utf-8")).items():
        for case in operator["cases"].values():
            for impl in case["impls"]:
                if only in ("", name):
                    yield name, case["values"], folder / impl["kernel"], folder / impl["task"]


def evaluate(
    name: str, sizes: dict[str, int], kernel: Path, layout: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the record of `nkisim.evaluate` for a kernel of a task."""
    task = TASKS[name]
    arrange = module_of(layout).transform_to_nki_inputs
    module = module_of(kernel)
    function = getattr(module, "kernel", None) or module.optimized_kernel
    given = inputs_of(task, sizes, 0)
    shape: list[tuple[int, ...]] = []

    def reference(*args: Any) -> np.ndarray:
        plain = [
            a if text == "eps" else np.reshape(a, shape_of(text, sizes))
            for a, text in zip(args, task.shapes)
        ]
        return task.compute(*plain).reshape(shape[0])

    args = arrange(given)
    shape.append(output_shape(function, args, options.target))
    start = time.perf_counter()
    found = nkisim.evaluate(
        function, *args, reference=reference, target=options.target, seeds=range(options.seeds),
        inputs=lambda seed: (tuple(arrange(inputs_of(task, sizes, seed + 1))), {}),
        limits={"seconds": options.seconds}, descriptors="static", fixes=False,
    )  # fmt: skip
    took = time.perf_counter() - start
    facts = {"task": name, "says": task.says, "sizes": sizes, **found.to_dict(True)}
    if not options.details:
        for key in ("tensors", "regions", "critical_path", "advice"):
            facts.pop(key, None)
    return {**facts, "seconds": round(took, 1)}


def output_shape(function: Any, args: list[Any], target: str) -> tuple[int, ...]:
    """Return the shape in which a kernel gives its result, known from a run without values."""
    from neuronxcc import nki

    shape: list[tuple[int, ...]] = []
    inner = getattr(function, "func", function)

    @nki.jit
    def noting(*given: Any) -> Any:
        out = inner(*given)
        shape.append(tuple((out[0] if isinstance(out, tuple | list) else out).shape))
        return out

    try:
        nkisim.profile(noting, *args, target=target, compute=False)
    except nkisim.NkiError:  # evaluate says what is wrong
        return (-1,)
    return shape[0]


def main() -> int:
    """Evaluate kernels and print a row of each; 0 if all are right, 1 if not, 2 without tasks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR", help="of AccelOpt")
    parser.add_argument("--only", default="", metavar="TASK")
    parser.add_argument(
        "--kernel", type=Path, metavar="FILE", help="in the place of the task's own"
    )
    parser.add_argument("--target", default="trn1")
    parser.add_argument("--seeds", type=int, default=0, help="of fresh inputs (%(default)s)")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each run (%(default)g)")
    parser.add_argument("--json", action="store_true", help="print a record a line")
    parser.add_argument("--details", action="store_true", help="with traffic, lines and advice")
    parser.add_argument("--write", action="store_true", help="a table into docs/searchers.md")
    options = parser.parse_args()
    if not (options.checkout / "NKIBench" / "summary.json").is_file():
        parser.error(f"there is no NKIBench/summary.json in {options.checkout}")
    found = []
    for name, sizes, kernel, layout in cases(options.checkout, options.only):
        if name not in TASKS:
            print(f"{name}: no statement of this task is here", file=sys.stderr)
            continue
        one = evaluate(name, sizes, options.kernel or kernel, layout, options)
        found.append(one)
        print(json.dumps(one) if options.json else line_of(one), flush=True)
    if not found:
        parser.error(f"there is no task {options.only!r}; known are {', '.join(TASKS)}")
    if options.write:
        write(found)
    return 0 if all(one["right"] for one in found) else 1


def line_of(one: dict[str, Any]) -> str:
    """Return a record in a line."""
    name, says, verdict, us, floor, times, seconds = row_of(one)
    near = f", {times} times the floor" if times else ""
    what = f"{us} us predicted" if us else (one["error"] or {}).get("what", "")
    return f"{name} ({says}): {verdict}, {what}{near} ({seconds} s)"


def row_of(one: dict[str, Any]) -> list[str]:
    """Return task, statement, verdict, predicted us, floor, times the floor, seconds."""
    took, floor = one.get("time"), (one.get("floor") or {}).get("floor_us")
    us = took["latency_us"] if took else None
    return [
        one["task"], one["says"], one["verdict"], f"{us:,.0f}" if us else "",
        f"{floor:,.0f}" if floor else "", f"{us / floor:.2f}" if us and floor else "",
        f"{one['seconds']:.0f}",
    ]  # fmt: skip


def write(found: list[dict[str, Any]]) -> None:
    """Put a table of the records into the page."""
    head = ["task", "what it computes", "verdict", "us predicted", "floor us", "times the floor",
            "seconds"]  # fmt: skip
    rows = [f"| {' | '.join(r)} |" for r in (head, ["---"] * len(head), *map(row_of, found))]
    table = "<!-- nkibench -->\n" + "\n".join(rows) + "\n<!-- /nkibench -->"
    text = PAGE.read_text("utf-8")
    text = re.sub(r"<!-- nkibench -->.*?<!-- /nkibench -->", lambda _: table, text, flags=re.S)
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
