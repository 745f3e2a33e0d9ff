"""A drawing of what a kernel reads and writes, in SVG, from the trace of its run.

One row for each source line: the tensors it reads on the left, the one it writes on the right, and
in each the elements that it touches. A line in a loop is one row; the regions of its iterations lie
in the same tensor, in two shades in turn. For kernels of a few dozen lines, as puzzles have.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from ..chip.memory import HBM
from ..trace.geometry import touched
from ..trace.trace import Pattern, Trace

WIDTH = 640  # of the drawing; a page of a notebook shows it unscaled
ROWS = 40  # source lines that are drawn; the rest is counted
REGIONS = 64  # of a line in one tensor; the rest would be under them
ELEMENTS = 1 << 22  # of an access that is looked at one by one
WIDEST, HIGHEST, LEAST = 118.0, 66.0, 7.0  # of the box of a tensor
ROW = 128  # height of a source line's row
COLORS = {
    "paper": ("#ffffff", "#14171c"),
    "box": ("#eef1f5", "#262c36"),
    "read": ("#9dc0ec", "#2f5f9e"),
    "read2": ("#6b9fdc", "#4779bb"),
    "write": ("#8cc9a4", "#2f7d51"),
    "write2": ("#5fae80", "#46996a"),
    "ink": ("#1b1f27", "#e8ebf0"),
    "dim": ("#515b6b", "#aab3c2"),
}
EDGE = ("#8a94a5", "#66707f")
#: what a row says of the engine; nothing where the compiler chooses it
ENGINES = {
    "tensor": "Tensor Engine",
    "vector": "Vector Engine",
    "scalar": "Scalar Engine",
    "gpsimd": "GpSimd Engine",
    "dma": "DMA",
}
_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)")


class Drawing:
    """A drawing: `svg` is the text of the file; notebooks show it as a picture."""

    def __init__(self, svg: str):
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass
class Line:
    """What one source line did with its operands: places by (number of the operand, storage)."""

    name: str
    engine: str
    where: Any
    outputs: int
    times: int = 0
    regions: dict[int, list[tuple[int, Pattern, int]]] = field(default_factory=dict)
    chosen: frozenset[int] = frozenset()


def lines_of(trace: Trace) -> list[Line]:
    """Return what each source line did, in the order in which they first ran."""
    ops, ins = trace.operands(), trace.instructions()
    specs = trace.operand_specs()
    memory = trace.storages.table()
    outside: list[list[int]] = [[] for _ in ins.spec]  # a helper that loads two inputs: two rows
    for instr, storage in zip(ops.instr.tolist(), ops.storage.tolist()):
        if memory.hbm[storage]:
            outside[instr].append(storage)
    lines: dict[tuple, Line] = {}
    keys = []
    for instr, (spec_id, line) in enumerate(zip(ins.spec.tolist(), ins.line.tolist())):
        spec = trace.op_specs[spec_id]
        key = line, spec.row.name, spec.engine, *outside[instr]
        keys.append(key)
        if key not in lines:
            last = len(spec.operands)
            by_index = range(last - spec.chosen, last)
            chosen = frozenset((*by_index, *(range(spec.outputs) if spec.scatters else ())))
            lines[key] = Line(
                spec.row.name, spec.engine, trace.where(line), spec.outputs, chosen=chosen
            )
        lines[key].times += 1
    for instr, number, storage, lowest, spec_id in zip(
        ops.instr.tolist(),
        ops.number.tolist(),
        ops.storage.tolist(),
        ops.lowest.tolist(),
        ops.operand_spec.tolist(),
    ):
        regions = lines[keys[instr]].regions.setdefault(number, [])
        regions.append((storage, specs[spec_id][2], lowest))
    return list(lines.values())


@dataclass(frozen=True)
class Sheet:
    """A storage as a rectangle of elements: its name, rows and columns, and bytes of each."""

    name: str
    rows: int
    columns: int
    row_bytes: int
    item: int
    shape: str

    def boxes(self, pattern: Pattern, lowest: int) -> list[tuple[int, int, int, int]]:
        """Return the rectangles (row, column, rows, columns) that an access touches.

        Where its elements form no rectangle: each run of rows with the same columns, or the
        rectangle around them if there are many.
        """
        if pattern.elements > ELEMENTS:
            return [(0, 0, self.rows, self.columns)]
        at = np.sort(touched(pattern, lowest) // self.item, axis=None)
        at = at[np.r_[True, np.diff(at) != 0]]
        row, column = np.divmod(at, max(self.row_bytes // self.item, 1))
        cuts = np.flatnonzero((np.diff(column) != 1) | (np.diff(row) != 0)) + 1
        begins, ends = np.r_[0, cuts], np.r_[cuts, len(at)] - 1
        out: list[tuple[int, int, int, int]] = []
        ended: dict[tuple[int, int, int], int] = {}  # the rectangle that ends above such a run
        for r, left, right in zip(
            row[begins].tolist(), column[begins].tolist(), column[ends].tolist()
        ):
            wide = right - left + 1
            k = ended.pop((r, left, wide), len(out))
            if k == len(out):
                out.append((r, left, 0, wide))
            y, x, h, w = out[k]
            out[k] = (y, x, h + 1, w)
            ended[r + 1, left, wide] = k
            if len(out) > REGIONS:
                top, least = int(row.min()), int(column.min())
                return [(top, least, int(row.max()) - top + 1, int(column.max()) - least + 1)]
        return out


def sheets(trace: Trace, inputs: Mapping[str, tuple[int, ...]]) -> dict[int, Sheet]:
    """Return a sheet for each storage that is touched.

    `inputs`: the names and shapes of the kernel's tensors, in the order of their storages. Of
    other tensors in HBM the rows are found from the strides of what is read and written.
    """
    ops, specs = trace.operands(), trace.operand_specs()
    patterns: dict[int, set[Pattern]] = {}
    ends: dict[int, int] = {}  # past the last byte of a partition that is touched
    for storage, spec, lowest in zip(
        ops.storage.tolist(), ops.operand_spec.tolist(), ops.lowest.tolist()
    ):
        pattern = specs[spec][2]
        patterns.setdefault(storage, set()).add(pattern)
        end = lowest % trace.storages[storage].row_bytes + pattern.span(free=True)
        ends[storage] = max(ends.get(storage, 0), end)
    given = dict(enumerate(inputs.items()))
    filled = _sources(trace, [name for name, _ in given.values()])
    by_storage = {}
    for number, seen in patterns.items():
        info = trace.storages[number]
        item = min(p.dtype.itemsize for p in seen)
        if info.memory != HBM:
            rows, row_bytes = info.nparts, info.row_bytes
        else:
            total = info.nparts * info.row_bytes
            shape = given[number][1] if number in given else ()
            if len(shape) > 1:
                row_bytes = shape[-1] * item
            else:
                strides = [abs(s) for p in seen for n, s in zip(p.shape, p.strides) if n > 1]
                row_bytes = max([s for s in strides if s < total], default=item)
                row_bytes = row_bytes if row_bytes > item and total % row_bytes == 0 else total
            rows = total // row_bytes
        where = trace.where(info.where)
        assigned = _ASSIGNED.match(linecache.getline(where.file, where.line)) if where else None
        name = given[number][0] if number in given else assigned[1] if assigned else "tile"
        if number in filled:
            name = f"{name} ({filled[number]})"
        columns = (ends[number] if info.arena else row_bytes) // item
        name = "placed tiles" if info.arena else name
        by_storage[number] = Sheet(name, rows, columns, row_bytes, item, f"{rows} x {columns}")
    return by_storage


def _sources(trace: Trace, names: Sequence[str]) -> dict[int, str]:
    """Return the input's name for each tile that its first instruction fills from one input."""
    ops, specs = trace.operands(), trace.op_specs
    kinds = trace.instructions().spec.tolist()
    sources: dict[int, str] = {}
    first: dict[int, int] = {}
    for instr, storage, write in zip(ops.instr.tolist(), ops.storage.tolist(), ops.write.tolist()):
        if write:
            first.setdefault(storage, instr)
    tiles = {instr: storage for storage, instr in first.items()}
    for instr, storage, write in zip(ops.instr.tolist(), ops.storage.tolist(), ops.write.tolist()):
        if (
            not write
            and instr in tiles
            and storage < len(names)
            and specs[kinds[instr]].engine == "dma"
        ):
            sources[tiles[instr]] = names[storage]
    return sources


def size(sheet: Sheet, most: Sequence[int]) -> tuple[float, float]:
    """Return width and height of a tensor's box; `most`: the largest rows and columns drawn.

    Sizes are roots, so that a column of one element and a row of thousands are both seen.
    """
    high = max(LEAST, HIGHEST * (sheet.rows / most[0]) ** 0.5)
    wide = max(LEAST, WIDEST * (sheet.columns / most[1]) ** 0.5)
    return wide, high


def _style() -> str:
    def rules(which: int) -> str:
        fills = "".join(f".{name}{{fill:{pair[which]}}}" for name, pair in COLORS.items())
        return f"{fills}.edge{{stroke:{EDGE[which]}}}"

    return (
        'text{font:12px system-ui,"DejaVu Sans",sans-serif}.small{font-size:11px}'
        ".code{font:11px ui-monospace,monospace}.bold{font-weight:600}"
        f"{rules(0)}@media(prefers-color-scheme:dark){{{rules(1)}}}"
    )


def draw(
    trace: Trace, inputs: Mapping[str, tuple[int, ...]], title: str, code: bool = True
) -> Drawing:
    """Return the drawing of a run; `inputs` as for `sheets`, `code`: with the source lines."""
    lines = lines_of(trace)
    drawn, known = lines[:ROWS], sheets(trace, inputs)
    most = (
        max((s.rows for s in known.values()), default=1),
        max((s.columns for s in known.values()), default=1),
    )
    parts: list[str] = []
    for k, line in enumerate(drawn):
        parts += _row(line, known, most, 34 + k * ROW, code)
    height = 34 + len(drawn) * ROW + 22
    rest = f"; {len(lines) - ROWS} more lines are not drawn" if len(lines) > ROWS else ""
    legend = f"blue: read; green: written; two shades: iterations of a loop in turn{rest}"
    parts.append(f'<text x="12" y="{height - 10}" class="dim small">{escape(legend)}</text>')
    about = "; ".join(
        f"{line.name} reads {', '.join(_names(line, known, False)) or 'nothing'} "
        f"and writes {', '.join(_names(line, known, True)) or 'nothing'}"
        for line in drawn
    )
    return Drawing(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">\n<title>{escape(title)}</title>\n'
        f"<desc>{escape(about)}</desc>\n<style>{_style()}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" rx="6" class="paper"/>\n'
        f'<text x="12" y="22" class="ink bold">{escape(title)}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _names(line: Line, known: Mapping[int, Sheet], written: bool) -> list[str]:
    """Return the names of the tensors that a line reads or writes."""
    numbers = [n for n in line.regions if (n < line.outputs) == written]
    return [known[line.regions[n][0][0]].name for n in numbers]


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _row(
    line: Line, known: Mapping[int, Sheet], most: Sequence[int], top: float, code: bool
) -> list[str]:
    """Draw one source line: its tensors, the arrow, and with `code` the line itself."""
    where = line.where
    notes = [ENGINES.get(line.engine, ""), f"{line.times} times" if line.times > 1 else ""]
    about = ", ".join(filter(None, notes))
    source = ""
    if where and code:
        source = f"line {where.line}: {linecache.getline(where.file, where.line).strip()}"
    parts = [
        f'<line x1="12" x2="{WIDTH - 12}" y1="{top + 1}" y2="{top + 1}" class="edge"/>',
        f'<text x="12" y="{top + 18}" class="ink bold">{escape(line.name)}'
        f'<tspan class="dim small" font-weight="400"> {about}</tspan></text>',
        f'<text x="236" y="{top + 18}" class="dim code">{escape(_short(source))}</text>',
    ]
    reads = [n for n in sorted(line.regions) if n >= line.outputs]
    writes = [n for n in sorted(line.regions) if n < line.outputs]
    step = min(150.0, 430.0 / max(len(reads), 1))
    for k, n in enumerate(reads):
        parts += _tensor(line, n, known, most, 20 + step * k, top + 28, "read")
    parts.append(
        f'<path d="M452 {top + 58}h28m-7 -5l7 5l-7 5" class="edge" fill="none" stroke-width="1.5"/>'
    )
    for k, n in enumerate(writes[:2]):
        parts += _tensor(line, n, known, most, 496 + 75 * k, top + 28, "write")
    return parts


def _tensor(
    line: Line,
    number: int,
    known: Mapping[int, Sheet],
    most: Sequence[int],
    x: float,
    y: float,
    kind: str,
) -> list[str]:
    """Draw an operand of a line: the tensor, and in it what its iterations touch."""
    regions = line.regions[number]
    first = regions[0][0]
    sheet = known[first]
    wide, high = size(sheet, most)
    many = len({storage for storage, _, _ in regions})
    behind = [
        f'<rect x="{x + d:g}" y="{y + d:g}" width="{wide:.4g}" height="{high:.4g}" '
        'class="box edge"/>'
        for d in ((4, 2) if many > 1 else ())
    ]
    parts = [
        *behind,
        f'<rect x="{x:g}" y="{y:g}" width="{wide:.4g}" height="{high:.4g}" class="box edge"/>',
    ]
    places = [(pattern, lowest) for storage, pattern, lowest in regions if storage == first]
    for k, (pattern, lowest) in enumerate(dict.fromkeys(places[:REGIONS])):
        shade = kind + "2" * (k % 2)
        whole = " of rows that an index chooses" if number in line.chosen else ""
        for row, column, rows, columns in sheet.boxes(pattern, lowest):
            tip = f"rows {row} to {row + rows - 1}, columns {column} to {column + columns - 1}"
            parts.append(
                f'<rect x="{x + wide * column / sheet.columns:.5g}" '
                f'y="{y + high * row / sheet.rows:.5g}" '
                f'width="{max(wide * columns / sheet.columns, 0.6):.4g}" '
                f'height="{max(high * rows / sheet.rows, 0.6):.4g}" class="{shade}"'
                + (' opacity="0.45"' if whole else "")
                + f"><title>{tip}{whole}</title></rect>"
            )
    memory = {"hbm": "HBM", "sbuf": "SBUF", "psum": "PSUM"}[regions[0][1].memory]
    more = f", {many} tiles" if many > 1 else ""
    parts += [
        f'<text x="{x:g}" y="{y + high + 14:.5g}" class="ink small">{escape(sheet.name)}'
        f'<tspan class="dim"> {memory}{more}</tspan></text>',
    ]
    parts.append(f'<text x="{x:g}" y="{y + high + 27:.5g}" class="dim small">{sheet.shape}</text>')
    return parts
