"""Micro-kernels of verify_sim, one for each instruction, made from the simulator's declarations.

`python -m labkit.neuron.generate FOLDER` writes kernels.py (neuronxcc.nki), kernels_nki.py (nki)
and rows.json, which says at which sizes and on which targets each kernel runs, and which
instruction has none, with the reason. What the table cannot declare stands in SAMPLES, and what
needs more than an argument is written by hand, in micro/hand/.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import nkisim

from ..files import replace
from ..load import load_module

BY_HAND = Path(__file__).with_name("micro") / "hand"
#: Columns of a tile: of small, middle and large instructions.
SIZES = (64, 512, 2048)
FILES = {"beta1": "kernels.py", "nki": "kernels_nki.py"}
_HEAD = {
    "beta1": """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

TIMES = %TIMES%


def loaded(a):
    return nl.load(a)


def stored(t):
    out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
    nl.store(out, t)
    return out
""",
    "nki": """import nki
import nki.isa as nisa
import nki.language as nl

TIMES = %TIMES%


def loaded(a):
    t = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=a)
    return t


def stored(t):
    out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out
""",
}

TIMES = 16

#: Arguments that are no tiles, by parameter, and by "instruction.parameter" where that differs.
SAMPLES: dict[str, str] = {
    "op": "nl.add",
    "op0": "nl.add",
    "op1": "nl.add",
    "reduce_op": "nl.add",
    "axis": "1",
    "activation.op": "nl.tanh",
    "activation_reduce.op": "nl.tanh",
    "activate2.op": "nl.tanh",
    "activate2.op0": "nl.multiply",
    "comp_op0": "nl.greater_equal",
    "comp_op1": "nl.less",
    "prob": "0.0",
    "seed": "1",
    "value": "1.0",
    "imm": "0.0",
    "on_false_value": "0.0",
    "min": "0.0",
    "max": "1.0",
    "shape": "a.shape",
    "dtype": "nl.float32",
    "iota.dtype": "nl.int32",
    "shuffle_mask": "list(range(32))",
    "channel_multiplier": "1",
    "n": "8",
    "pattern": "[[1, a.shape[1]]]",
    "pred": "nl.arange(128)[:, None] >= nl.arange(a.shape[1])[None, :]",
    "expr": "nl.arange(128)[:, None] + nl.arange(a.shape[1])[None, :]",
    "srcs": "[a, a]",
}
#: Columns of operands that do not go with the tile.
WIDTHS = {"nc_matmul.stationary": "64", "bn_aggr.data": "6", "dst_scale": "a.shape[1]"}
#: (partitions, columns, dtype) of what instructions that nki alone has write: else as their input.
WRITES = {"rng": ("128", "a.shape[1]", "nl.uint32"), "iota": ("128", "a.shape[1]", "nl.int32")}
#: What these give is by chance, or what earlier kernels left: only their times are compared.
RANDOM = frozenset(("rng", "rand2", "rand_get_state", "rand_set_state", "set_rng_seed"))
REFERENCE = '"""The generated kernels have no reference: backends are held against each other."""\n'


def value(row: dict[str, Any], name: str) -> str:
    """Return the source of an argument that is no tile; raise LookupError if there is no sample."""
    for key in (f"{row['name']}.{name}", name):
        if key in SAMPLES:
            return SAMPLES[key]
    raise LookupError(f"there is no sample of its parameter {name}")


def tile(name: str, shape: str, dtype: str, filled: str, dialect: str) -> list[str]:
    """Return the lines that make a tile: `filled` is "" (not written), "a" or a number."""
    if filled == "a":
        columns = shape.strip("()").split(", ")[1]
        return [f"{name} = loaded(a{'' if columns == 'a.shape[1]' else f'[:, 0:{columns}]'})"]
    if dialect == "beta1" and filled:
        return [f"{name} = nisa.memset({shape}, {filled}, dtype={dtype})"]
    lines = [f"{name} = nl.ndarray({shape}, dtype={dtype}, buffer=nl.sbuf)"]
    return [*lines, f"nisa.memset({name}, {filled})"] if filled else lines


class _Source:
    """The lines of an instruction's kernel: its operands, the arguments of its call, its result."""

    def __init__(self, row: dict[str, Any], dialect: str, written: tuple[str, str, str] | None):
        self.row, self.dialect, self.written = row, dialect, written
        self.rows, self.columns, self.dtype = written or ("128", "a.shape[1]", "nl.float32")
        self.lines: list[str] = []
        self.arguments: dict[str, str] = {}
        self.result = ""

    def argument(self, name: str, operand: dict[str, Any] | None) -> None:
        """Add a parameter that must be given; raise LookupError if its values are unknown."""
        if operand is None and name != "dst":
            self.arguments[name] = value(self.row, name)
        elif operand is None:
            self._destination()
        elif operand["form"] == "access":
            self._access(name, operand["role"])
        elif operand["numbers"] and operand["form"] == "vector":
            self.arguments[name] = SAMPLES.get(name, "1.0")
        else:
            self._tile(name, operand)

    def _destination(self) -> None:
        self.arguments["dst"] = self.result = "dst"
        self.lines += tile("dst", f"({self.rows}, {self.columns})", self.dtype, "", self.dialect)
        if self.row["writes"] == ["psum"]:
            self.lines[-1] = self.lines[-1].replace("nl.sbuf", "nl.psum")

    def _access(self, name: str, role: str) -> None:
        self.arguments[name] = "a"
        if role != "read":
            self.lines.append("out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)")
            self.arguments[name] = self.result = "out"

    def _tile(self, name: str, operand: dict[str, Any]) -> None:
        form, role = operand["form"], operand["role"]
        if not operand["dtype"]:
            raise LookupError(f"there is no sample of the dtype of its {name}")
        width = str(
            operand["width"]
            or WIDTHS.get(f"{self.row['name']}.{name}", "1" if form == "vector" else "a.shape[1]")
        )
        self.arguments[name] = name
        if form == "offset":
            base = f"{name}_tile"
            self.lines += tile(base, f"(128, {width})", "nl.float32", "a", self.dialect)
            self.lines += tile("offset", "(128, 1)", "nl.int32", "0", self.dialect)
            self.arguments[name] = (
                f"{base}[nl.arange(128)[:, None], offset[0:1] + nl.arange({width})[None, :]]"
            )
            self.result = base if role != "read" else self.result
            return
        real = operand["dtype"] == "float32"
        filled = (
            "0.0"
            if role == "update"
            else ""
            if role == "write"
            else "a"
            if real and form != "vector"
            else "1"
        )
        self.lines += tile(name, f"(128, {width})", f"nl.{operand['dtype']}", filled, self.dialect)
        if role != "read" and (name == "dst" or not self.result and self.dialect == "nki"):
            self.result = name

    def calls(self) -> list[str]:
        """Return the loop of calls, and what stores their result."""
        returns = self.dialect == "beta1" and not self.result
        result = "result" if returns else self.result
        kept = self.written is not None and result != "out"
        given = ", ".join(f"{k}={v}" for k, v in self.arguments.items())
        lines = [
            "for i in nl.static_range(TIMES):",
            f"    {'result = ' if returns else ''}{self.row[self.dialect]}({given})",
        ]
        if kept:  # a column of each: a compiler drops results that are not read
            lines.insert(
                0, f"kept = nl.ndarray(({self.rows}, TIMES), dtype={self.dtype}, buffer=nl.sbuf)"
            )
            lines.append(
                f"    kept[:, i:i + 1] = nisa.tensor_copy({result}[:, 0:1])"
                if self.dialect == "beta1"
                else f"    nisa.tensor_copy(dst=kept[:, i:i + 1], src={result}[:, 0:1])"
            )
        if result == "out":
            return [*lines, "return out"]
        if self.row["writes"] == ["psum"] and self.dialect == "nki":  # which DMA does not read
            lines += tile("in_sbuf", f"({self.rows}, {self.columns})", self.dtype, "", self.dialect)
            lines.append(f"nisa.tensor_copy(dst=in_sbuf, src={result})")
            result = "in_sbuf"
        return [*lines, f"return stored({result})" + (", stored(kept)" if kept else "")]


def kernel(row: dict[str, Any], dialect: str, written: tuple[str, str, str] | None) -> list[str]:
    """Return the source of an instruction's kernel: it TIMES times, and what it gives, stored.

    `written`: partitions, columns and dtype of its result. Raises LookupError where a parameter
    has neither a declaration nor a sample.
    """
    operands = {o["name"]: o for o in row["operands"]}
    source = _Source(row, dialect, written)
    for name, needed in row["parameters"][dialect].items():
        if needed:
            source.argument(name, operands.get(name))
    return [
        "@nki.jit",
        f"def {row['name']}(a):",
        f'    """{row[dialect]}, many times."""',
        *(f"    {line}" for line in (*source.lines, *source.calls())),
    ]


def head(dialect: str) -> str:
    """Return what a file of kernels begins with."""
    return (
        '# ruff: noqa\n"""One instruction, TIMES times. '
        'Written by `python -m labkit.neuron.generate`."""\n'
        "from __future__ import annotations\n\n" + _HEAD[dialect].replace("%TIMES%", str(TIMES))
    )


def compiled(source: str, name: str, dialect: str) -> Any:
    """Return the kernel of a source."""
    text = head(dialect) + "\n\n" + source + "\n"
    file = f"micro-{dialect}-{name}"
    nkisim.register_source(file, text)
    space: dict[str, Any] = {"__name__": "micro"}
    exec(compile(text, file, "exec"), space)
    return space[name]


def trial(func: Any, row: dict[str, Any]) -> tuple[dict[str, list[int]], dict[int, Any], str]:
    """Run a kernel at each size on each target: (sizes by target, results by size, refusal)."""
    runs: dict[str, list[int]] = {}
    results: dict[int, Any] = {}
    refusal = ""
    for target in row["targets"]:
        for n in SIZES:
            try:
                run = nkisim.run(func, np.ones((128, n), np.float32), target=target)
                wrong = [f for f in run.findings if f.severity == "error"]
                if wrong:
                    raise LookupError(wrong[0].text)
                outputs = run.outputs
                results[n] = outputs[0] if isinstance(outputs, tuple) else outputs
                runs.setdefault(target, []).append(n)
            except Exception as error:  # whatever it is, it is the reason
                refusal = refusal or " ".join(str(error).split())[:160]
    return runs, results, refusal


def shape_of(results: dict[int, Any]) -> tuple[str, str, str] | None:
    """Return partitions, columns and dtype of a result as source; None if they follow no rule."""

    def rule(axis: int) -> str:
        sizes = {n: np.asarray(r).shape[axis] for n, r in results.items()}
        if all(size == n for n, size in sizes.items()) and axis:
            return "a.shape[1]"
        return str(next(iter(sizes.values()))) if len(set(sizes.values())) == 1 else ""

    results = {n: np.asarray(r).reshape(len(r), -1) for n, r in results.items()}
    dtype = np.asarray(next(iter(results.values()))).dtype.name
    return (rule(0), rule(1), f"nl.{dtype}") if rule(0) and rule(1) else None


def lines_of(facts: dict[str, Any]) -> str:
    """Return JSON with a line for each kernel."""
    cases = ",\n".join(json.dumps(case) for case in facts["cases"])
    return f'{{"cases": [\n{cases}\n],\n"missing": {json.dumps(facts["missing"], indent=1)}}}\n'


def generate() -> dict[str, str]:
    """Return the text of each file by its name."""
    parts: dict[str, list[str]] = {dialect: [head(dialect)] for dialect in FILES}
    cases: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    by_hand = {dialect: load_module(BY_HAND / FILES[dialect]) for dialect in FILES}
    for row in nkisim.rows():
        written = WRITES.get(row["name"])
        for dialect in FILES:
            public = row[dialect]
            if not public:
                continue
            name = f"{dialect} {public}"
            try:
                if written_by_hand := getattr(by_hand[dialect], row["name"], None):
                    runs, _, refusal = trial(written_by_hand, row)
                    if not runs:
                        raise LookupError(refusal)
                    cases.append(
                        {
                            "kernel": row["name"],
                            "dialect": dialect,
                            "sizes": runs,
                            "folder": BY_HAND.name,
                        }
                    )
                    continue
                source = "\n".join(kernel(row, dialect, written))
                runs, results, refusal = trial(compiled(source, row["name"], dialect), row)
                if not runs:
                    raise LookupError(refusal)
                if written is None and (written := shape_of(results)):
                    more = "\n".join(kernel(row, dialect, written))
                    again, _, _ = trial(compiled(more, row["name"], dialect), row)
                    if again == runs:  # a result of more dims has no such columns
                        source = more
            except LookupError as error:
                missing[name] = str(error.args[0])
                continue
            parts[dialect].append("\n\n" + source + "\n")
            cases.append(
                {"kernel": row["name"], "dialect": dialect, "sizes": runs, "folder": "rows"}
            )
    facts: dict[str, Any] = {"cases": cases, "missing": missing}
    return {
        **{FILES[d]: "".join(text) for d, text in parts.items()},
        "reference.py": REFERENCE,
        "rows.json": lines_of(facts),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the kernels, and what there is to know of them, into a folder."""
    parser = argparse.ArgumentParser(prog="labkit.neuron.generate", description=main.__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args(argv).folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in generate().items():
        new = folder / f"{name}.{os.getpid()}.tmp"  # another run may read them meanwhile
        new.write_text(text, encoding="utf-8", newline="\n")
        replace(new, folder / name)
    facts = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    for name, why in facts["missing"].items():
        print(f"{name}: {why}")
    print(f"{len(facts['cases'])} kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
