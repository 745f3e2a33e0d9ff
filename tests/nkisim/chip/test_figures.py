"""Honest constants: a figure of the chip or of the compiler is a field of hw, with its source."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from nkisim.chip import hw

HOME = Path(hw.__file__).parents[1]
FILES = sorted([*(HOME / "timing").glob("*.py"), HOME / "isa" / "formulas.py"])
PAGE = Path(__file__).parents[3] / "docs" / "latency-model.md"

#: Numbers that are no facts of a chip. file -> {a piece of the line: why the number is there}
STRUCTURE = {
    "prefetch.py": {
        "1e3": "units: bytes over GB/s to us",
        "5.0": "the golden ratio",
        "2.0 * place": "from -1 to 1",
    },
    "dual_result_activation.py": {
        "k.outputs == 2": "a result, and sums of it",
        "operands[2:]": "what is read",
        "places[2:]": "what is read",
        "range(2,": "what is read",
    },
    "banks.py": {
        "-2": "a mark: an instruction that uses several tiles",
        "<< 32": "two numbers in one",
        ">> 32": "the same",
    },
    "vectorize.py": {"len(trips) < 2": "a loop has two", "range(2, min(": "two or more"},
    "compiler.py": {
        "(HBM, SBUF): 2": "a code: 1 is a load, 2 a store",
        "plain == 2": "the same code",
        "len(spec.operands) != 2": "one source, one destination",
    },
    "engines.py": {"0.5 + 0.5 * over": "the middle of what is likely"},
    "cost.py": {"1e3": "units: ns or cycles per GHz to us", "ELEMENT = 4": "bytes of an element"},
    "events.py": {
        "1e3": "units: GB/s to bytes a us",
        "== 2}": "both sides of a port",
        "2 * hw.dma_engines": "a DMA from HBM to HBM moves its bytes twice",
    },
    "schedule.py": {
        "ENGINES[:4]": "the compute engines",
        "_EARLY = 1e-6": "the same time",
        "_EARLY / 2": "half of that",
        "2 * _EARLY": "twice that",
        "2 * count + 2": "runs: each settles a meeting, or shows when it is",
    },
    "floor.py": {
        "SPLIT_PRODUCTS = 3": "terms of a product of two sums of two, but the smallest",
        "1e3": "units",
        "1e6": "units",
    },
    "critical_path.py": {
        "NEAR = 0.06": "a report's: where it tells a wait from a gap between instructions",
        "SHORT = 5e-4": "a report's: what rounds to 0.000 us is not shown",
        "MOST_STEPS = 200": "a report's: how many steps are written",
    },
    "reasons.py": {"range(6)": "six codes"},
    "regions.py": {"key[2]": "the third of a key"},
    "tensors.py": {
        "MOST_ELEMENTS = 1 << 26": "memory of nkisim itself",
        "[2]": "the pattern of (op, variant, pattern)",
    },
    "whatif.py": {
        "// 2)": "halves",
        "// 2": "halves",
        "% 2": "halves",
        "operands) < 2": "a source",
        "reshape(-1, 2)": "pairs",
    },
    "spill.py": {"1 << 60": "later than everything", "1e3": "units: us at GB/s to bytes"},
    "slices.py": {"len(spec.operands) == 2": "one source, one destination"},
    "formulas.py": {
        "itemsize == 4": "bytes of wide data",
        "PACK = 4": "values in an element of an x4 dtype",
        "2 * PACK *": "a multiply-add is two",
        "for p in srcs) < 2": "two inputs",
        "n % 2 == 0": "AWS: N even",
        "2 if spec.variant.double_row": "a double row has two rows",
        "Flops(2 *": "a multiply-add is two operations",
        "_in(spec) / 3": "a triple is three",
    },
}


def numbers(path: Path) -> list[tuple[int, str]]:
    """Return (line number, line) of each number in a file but 0 and 1."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    return [
        (node.lineno, lines[node.lineno - 1])
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
        and type(node.value) in (int, float)
        and node.value not in (0, 1)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_no_figure_hides_in_the_code(path):
    """The window of the compiler, half of PSUM and the start of GpSimd stood there untagged."""
    known = STRUCTURE.get(path.name, {})
    found = numbers(path)
    assert [
        f"{path.name}:{n}: {line.strip()}"
        for n, line in found
        if not any(piece in line for piece in known)
    ] == []
    assert [piece for piece in known if not any(piece in line for _, line in found)] == [], (
        "no such number is there any more"
    )


def shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def tag(source: hw.Source) -> str:
    return source.tag + (" *" if source.narrow else "")


def row(name: str) -> str:
    """Return a constant's row of the page: value and tag on each generation."""
    cells = [
        cell
        for core in hw.CORES
        for cell in (shown(getattr(core.timing, name)), tag(core.timing.provenance[name]))
    ]
    return f"| `{name}` | {' | '.join(cells)} |"


def test_the_page_has_every_constant_with_its_tag():
    table = re.findall(
        r"^\| `\w+` \| .*",
        PAGE.read_text(encoding="utf-8").split("\n## Constants\n")[1].split("\n##")[0],
        re.MULTILINE,
    )
    assert table == [row(f.name) for f in dataclasses.fields(hw.Timing) if f.name != "provenance"]


def test_what_rests_on_one_kernel_is_named_on_the_page():
    section = PAGE.read_text(encoding="utf-8").split("\n### Constants that rest on little\n")[1]
    named = set(re.findall(r"^\| `(\w+)`", section.split("\n## ")[0], re.MULTILINE))
    assert named == {
        name
        for core in hw.CORES
        for name, source in core.timing.provenance.items()
        if source.narrow
    }
