"""Random chains of two to four instructions in both dialects, against plain NumPy.

Each instruction takes what the one before wrote, and may take a tile of earlier. Values are small
integers in float32, so every step is exact, and results are compared bit by bit.

    python tests/nkisim/random_chains.py --seeds 1000

prints how many chains and forms were tried, how many differ from the oracle, and how many of the
same chains with one mistake were caught: refused, found, or of other values.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nkisim

SHAPE = (32, 32)

import neuronxcc.nki as old  # noqa: E402
import neuronxcc.nki.isa as old_isa  # noqa: E402
import neuronxcc.nki.language as old_nl  # noqa: E402
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

BINARY: dict[str, Callable] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
UNARY: dict[str, Callable] = {
    "relu": lambda a: np.maximum(a, 0),
    "square": np.square,
    "abs": np.abs,
    "copy": lambda a: a,
}
REDUCED = {"add": np.sum, "maximum": np.max, "minimum": np.min}
LARGEST = 1 << 22  # float32 holds every sum of two such numbers


class Step(NamedTuple):
    """An instruction: it takes tile `of`, and `other` or a number; 0 is the input, k is step k."""

    kind: str  # scalar, column, tensor, unary, reduce, transpose, product
    op: str
    of: int
    other: int = 0
    number: float = 0.0


def expected(x: np.ndarray, steps: list[Step]) -> np.ndarray | None:
    """Return the last tile in double precision, None if float32 would not have it exactly."""
    tiles = [x.astype(np.float64)]
    for s in steps:
        a, b = tiles[s.of], tiles[s.other]
        if s.kind == "scalar":
            y = BINARY[s.op](a, s.number)
        elif s.kind == "column":
            y = BINARY[s.op](a, REDUCED["maximum"](b, axis=1, keepdims=True))
        elif s.kind == "tensor":
            y = BINARY[s.op](a, b)
        elif s.kind == "unary":
            y = UNARY[s.op](a)
        elif s.kind == "reduce":
            y = np.broadcast_to(REDUCED[s.op](a, axis=1, keepdims=True), SHAPE)
        else:
            y = a.T if s.kind == "transpose" else a.T @ b
        if np.abs(y).max() >= LARGEST or np.abs(a).max() * SHAPE[0] >= LARGEST:
            return None
        tiles.append(y)
    return tiles[-1].astype(np.float32)


def newer(steps: list[Step]) -> Any:
    """Return the chain as a kernel of nki."""

    def tile(shape: tuple = SHAPE, buffer: Any = None) -> Any:
        return nl.ndarray(shape, dtype=nl.float32, buffer=buffer or nl.sbuf)

    def step(s: Step, tiles: list, y: Any) -> None:
        a, b, column = tiles[s.of], tiles[s.other], tile((SHAPE[0], 1))
        op = getattr(nl, s.op, None)
        if s.kind == "scalar":
            nisa.tensor_scalar(dst=y, data=a, op0=op, operand0=s.number)
        elif s.kind == "column":
            nisa.tensor_reduce(dst=column, op=nl.maximum, data=b, axis=1, keepdims=True)
            nisa.tensor_scalar(dst=y, data=a, op0=op, operand0=column)
        elif s.kind == "tensor":
            nisa.tensor_tensor(dst=y, data1=a, data2=b, op=op)
        elif s.kind == "unary":
            nisa.activation(dst=y, op=op, data=a)
        elif s.kind == "reduce":
            nisa.tensor_reduce(dst=column, op=op, data=a, axis=1, keepdims=True)
            nisa.memset(dst=y, value=0.0)
            nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=column)
        else:
            p = tile(buffer=nl.psum)
            if s.kind == "transpose":
                nisa.nc_transpose(dst=p, data=a)
            else:
                nisa.nc_matmul(dst=p, stationary=a, moving=b)
            nisa.tensor_copy(dst=y, src=p)

    @nki.jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        tiles = [tile()]
        nisa.dma_copy(dst=tiles[0], src=x)
        for s in steps:
            tiles.append(tile())
            step(s, tiles, tiles[-1])
        nisa.dma_copy(dst=out, src=tiles[-1])
        return out

    return kernel


def older(steps: list[Step]) -> Any:
    """Return the chain as a kernel of neuronxcc.nki."""

    def step(s: Step, a: Any, b: Any) -> Any:
        op = getattr(old_nl, s.op, None)
        if s.kind == "scalar":
            return old_isa.tensor_scalar(a, op, s.number)
        if s.kind == "column":
            return old_isa.tensor_scalar(a, op, old_nl.max(b, axis=1, keepdims=True))
        if s.kind == "tensor":
            return old_isa.tensor_tensor(a, b, op)
        if s.kind == "unary":
            return old_isa.activation(op, a)
        if s.kind == "reduce":
            column = old_isa.tensor_reduce(op, a, axis=(1,), keepdims=True)
            return old_nl.broadcast_to(column, shape=SHAPE)
        return old_nl.copy(
            old_isa.nc_transpose(a) if s.kind == "transpose" else old_isa.nc_matmul(a, b)
        )

    @old.jit
    def kernel(x: Any) -> Any:
        out = old_nl.ndarray(x.shape, dtype=x.dtype, buffer=old_nl.shared_hbm)
        tiles = [old_nl.load(x)]
        for s in steps:
            tiles.append(step(s, tiles[s.of], tiles[s.other]))
        old_nl.store(out, tiles[-1])
        return out

    return kernel


def random_chain(seed: int) -> tuple[np.ndarray, list[Step]]:
    """Return the input and the steps of a seed."""
    rng = np.random.default_rng([11, seed])
    x = rng.integers(-4, 5, SHAPE).astype(np.float32)
    steps: list[Step] = []
    length = int(rng.integers(2, 5))
    for _ in range(100):  # of large values few steps are exact: a shorter chain
        if len(steps) == length:
            break
        kind = str(
            rng.choice(["scalar", "column", "tensor", "unary", "reduce", "transpose", "product"])
        )
        names = list(UNARY if kind == "unary" else REDUCED if kind == "reduce" else BINARY)
        more = [
            *steps,
            Step(
                kind,
                str(rng.choice(names)) if kind not in ("transpose", "product") else "",
                len(steps),
                int(rng.integers(len(steps) + 1)),
                float(rng.integers(-3, 4)),
            ),
        ]
        if expected(x, more) is not None:
            steps = more
    return x, steps


def mistakes(steps: list[Step]) -> dict[str, list[Step]]:
    """Return the chain with one mistake each."""
    k = len(steps) - 1
    if k < 1:
        return {}
    last = steps[k]
    out = {
        "a step left out": [*steps[: k - 1], last._replace(of=k - 1, other=min(last.other, k - 1))],
        "an older tile read": [*steps[:k], last._replace(of=k - 1)],
    }
    if last.kind in ("scalar", "column", "tensor"):
        names = list(BINARY)
        out["another operator"] = [
            *steps[:k],
            last._replace(op=names[(names.index(last.op) + 1) % len(names)]),
        ]
    if last.kind in ("tensor", "product"):
        out["operands exchanged"] = [*steps[:k], last._replace(of=last.other, other=last.of)]
    return out


def run(dialect: str, x: np.ndarray, steps: list[Step]) -> tuple[np.ndarray, bool]:
    """Return what a chain gives, and whether a warning or an error is found in it."""
    got = nkisim.run((newer if dialect == "nki" else older)(steps), x, target="trn2")
    return got.outputs, any(f.severity != "note" for f in got.findings)


def count(seeds: range) -> tuple[Counter, list[str]]:
    """Return counts of chains, forms and mistakes of each kind, and what is wrong."""
    counts: Counter = Counter()
    forms, wrong = set(), []
    for seed in seeds:
        x, steps = random_chain(seed)
        want = expected(x, steps)
        for dialect in ("beta1", "nki"):
            counts["chains"] += 1
            forms.add((dialect, *(s[:4] for s in steps)))
            got, found = run(dialect, x, steps)
            if not np.array_equal(got, want):
                wrong.append(f"seed {seed}, {dialect}: {steps}")
        for name, changed in mistakes(steps).items():
            other = expected(x, changed)
            if other is None or np.array_equal(other, want):
                continue  # it means the same, or float32 has not every integer
            counts[f"made: {name}"] += 1
            got, found = run("nki", x, changed)
            counts[f"caught: {name}"] += found or not np.array_equal(got, want)
            if not np.array_equal(got, other):
                wrong.append(f"seed {seed}, {name}: {changed}")
    counts["forms"] = len(forms)
    return counts, wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    counts, wrong = count(range(parser.parse_args().seeds))
    print(*wrong, sep="\n", end="\n" * bool(wrong))
    print(f"{counts['chains']} chains of {counts['forms']} forms; {len(wrong)} differ")
    for name in sorted(k.partition(": ")[2] for k in counts if k.startswith("made")):
        print(f"  {name}: {counts[f'caught: {name}']} of {counts[f'made: {name}']} caught")
