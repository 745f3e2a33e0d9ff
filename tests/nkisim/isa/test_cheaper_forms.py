"""Every form of an instruction that costs less than the plain one says why, and when it may.

The cost of an instruction is a function of its `Kind`: this walks over all rows of the table and
all parts of a kind, and finds out what makes it cheaper. A row declares each such reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from nkisim.chip import dtypes, hw, ops
from nkisim.chip.memory import HBM, PSUM, SBUF
from nkisim.errors.rules import RULES
from nkisim.isa.table import DMA, ROWS, Row
from nkisim.isa.variants import (
    PLAIN,
    Access,
    Activation,
    Fill,
    Gather,
    Matmul,
    Ops,
    Reduction,
)
from nkisim.language.nki import isa as _all_rows  # noqa: F401 (rows of this dialect alone)
from nkisim.timing.cost import transfer
from nkisim.trace.trace import OpSpec, Pattern

P, F = 128, 512
TYPES = (
    dtypes.FLOAT32,
    dtypes.BFLOAT16,
    dtypes.FLOAT16,
    dtypes.FLOAT8_E4M3,
    dtypes.TFLOAT32,
    dtypes.INT32,
    dtypes.INT16,
)
ALU = (*ops.ALU, *ops.ALU_V4)
#: what is plain comes first
FORMS: tuple[tuple[Any, ...], ...] = (
    (PLAIN,),
    tuple(Ops(a, b) for a in sorted(ALU, key="minimum".__ne__) for b in ("", "multiply")),
    tuple(Reduction(a, (1,)) for a in sorted(ALU, key="minimum".__ne__)),
    (Fill(False), Fill(True)),
    tuple(Activation(f) for f in sorted(ops.ACTIVATIONS)),
    tuple(Matmul(*flags) for flags in itertools.product((False, True), repeat=5)),
    (Gather(1, F), Gather(8, F)),
    (Access(True, run=F), Access(True, True, run=F), Access(False, False, True)),
)
OPS = (Ops("topk", "8"), Ops("topk", "256"))


class _Asked(Exception):
    """A formula looks at the form."""


class _Form:
    """A form that says when a formula looks at it."""

    def __getattr__(self, name: str) -> Any:
        raise _Asked

    def __eq__(self, other: object) -> bool:
        raise _Asked

    __hash__ = None  # type: ignore[assignment]


def tile(dtype: Any, memory: str = SBUF, step: int = 1, partitions: int = P) -> Pattern:
    item = dtype.itemsize
    return Pattern(memory, dtype, (partitions, F), (F * step * item, step * item))


def reads(row: Row) -> int:
    """Return how many tiles a row reads: as many as its formula may look at."""
    return max(2, sum(o.role == "read" for o in row.operands))


#: aspect -> its values, the plain one first; "dtype" and "memory" of each operand
def plain(row: Row, form: Any) -> dict[str, Any]:
    n = 1 + reads(row)
    return {
        "dtype": (dtypes.FLOAT32,) * n,
        "memory": (SBUF,) * n,
        "layout": 1,
        "partitions": P,
        "engine": row.engines[0],
        "outputs": 1,
        "accumulate": False,
        "masked": False,
        "inplace": False,
        "form": form,
    }


def others(row: Row) -> Iterator[dict[str, Any]]:
    """Yield what else the aspects of a kind may be, but the form, in combinations."""
    n = 1 + reads(row)
    kinds = [(t,) * n for t in TYPES]
    kinds += [
        (dtypes.FLOAT32,) * i + (t,) + (dtypes.FLOAT32,) * (n - i - 1)
        for i in range(n)
        for t in (dtypes.BFLOAT16, dtypes.FLOAT16)
    ]
    memories = list(itertools.product((SBUF, PSUM), repeat=n)) if n < 4 else [(SBUF,) * n]
    for values in itertools.product(kinds, memories, (1, 2), row.engines):
        yield dict(zip(("dtype", "memory", "layout", "engine"), values))
    for values in itertools.product(kinds, row.engines):
        yield {**dict(zip(("dtype", "engine"), values)), "partitions": P // 4}
    yield {"accumulate": True}
    yield {"masked": True}
    yield {"inplace": True}
    yield {"outputs": 2}


def cost(row: Row, core: Any, x: dict[str, Any]) -> float:
    tiles = tuple(tile(d, m, x["layout"], x["partitions"]) for d, m in zip(x["dtype"], x["memory"]))
    tiles = tiles[:1] * (x["outputs"] - 1) + tiles  # each output is a tile
    kind = OpSpec(
        row, x["engine"], tiles, x["outputs"], x["accumulate"], x["inplace"], x["form"], x["masked"]
    )
    return row.cost(kind, core, x["engine"]) / core.ghz(x["engine"])  # type: ignore[misc]


@cache
def forms_of(name: str) -> tuple[Any, ...]:
    """Return the forms that a row's formula understands: the plain one if it looks at none."""
    row = ROWS[name]
    try:
        for core in hw.CORES:
            for more in others(row):
                cost(row, core, {**plain(row, _Form()), **more})
        return (PLAIN,)
    except _Asked:
        pass
    for family in (*FORMS[1:], OPS):
        try:
            for core in hw.CORES:
                for more in others(row):
                    cost(row, core, {**plain(row, family[-1]), **more})
            return family
        except (AttributeError, ValueError):
            continue
    raise AssertionError(f"{name}: no form that its formula understands")


def parts(x: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the aspects of a kind, and the parts of its form in place of that."""
    for aspect, value in x.items():
        if aspect != "form":
            yield aspect, value
        else:
            yield from ((f"form.{field}", v) for field, v in zip(value._fields, value))


def reverted(x: dict[str, Any], aspect: str, value: Any) -> dict[str, Any]:
    if not aspect.startswith("form."):
        return {**x, aspect: value}
    return {**x, "form": x["form"]._replace(**{aspect[5:]: value})}


@cache
def reasons(name: str) -> frozenset[tuple[str, str]]:
    """Return what makes a row cheaper than its plain form on any of the chips.

    Of dtypes with the names of those that do, for other reasons with "".
    """
    row, found = ROWS[name], set()
    family = forms_of(name)
    base = plain(row, family[0])
    for core in hw.CORES:
        if row.needs and not getattr(core, row.needs):
            continue
        least = cost(row, core, base)
        for more in others(row):
            for form in family:
                x = {**base, **more, "form": form}
                if cost(row, core, x) >= least:
                    continue
                changed = [(a, v) for (a, ours), (_, v) in zip(parts(x), parts(base)) if ours != v]
                for aspect, value in changed[::-1]:  # leave out what does not matter
                    if cost(row, core, y := reverted(x, aspect, value)) < least:
                        x = y
                for (aspect, ours), (_, v) in zip(parts(x), parts(base)):
                    if aspect == "dtype":
                        found.update((aspect, dtypes.name(t)) for t, u in zip(ours, v) if t != u)
                    elif ours != v:
                        found.add((aspect.removeprefix("form."), ""))
    return frozenset(found)


ENGINES = [name for name, row in ROWS.items() if row.cost is not None and DMA not in row.engines]


@pytest.mark.sample(25)
@pytest.mark.parametrize("name", ENGINES)
def test_a_cheaper_form_has_a_rule(name):
    cheaper = ROWS[name].cheaper
    declared, found = {c.by for c in cheaper}, {by for by, _ in reasons(name)}
    assert found <= declared, f"{name} is cheaper by {found - declared}, and nothing says when"
    assert declared <= found, f"{name} declares {declared - found}, which makes nothing cheaper"
    narrow = {t for by, t in reasons(name) if by == "dtype"}
    may = {t for c in cheaper if c.by == "dtype" for t in c.dtypes}
    allowed = {o.dtypes for o in ROWS[name].operands}
    if allowed == {"float"}:  # its operands are held to that
        narrow = {t for t in narrow if "float" in t}
    assert narrow <= may, f"{name} is cheaper for {narrow - may}, and nothing says why"


def test_each_rule_has_a_sentence_and_a_source():
    rules = [c for row in ROWS.values() for c in row.cheaper]
    assert rules
    for c in rules:
        assert c.when and c.source and (not c.rule or c.rule in RULES), c


# -- DMAs cost by bytes and by pieces --------------------------------------------------------------

MOVES = [name for name, row in ROWS.items() if DMA in row.engines]
COPIES = [name for name in MOVES if not ROWS[name].transposes]
INDEX = Pattern(SBUF, dtypes.INT32, (P, 1), (4, 4))


def laid(memory: str, dtype: Any, turned: bool) -> Pattern:
    """Return a pattern of (P, F): rows that are contiguous, or elements that lie apart."""
    item = dtype.itemsize
    if turned:  # on chip, the elements of a partition have gaps
        return Pattern(
            memory, dtype, (P, F), (item, P * item) if memory is HBM else (2 * F * item, 2 * item)
        )
    return Pattern(memory, dtype, (P, F), (F * item, item))


def us(row: Row, core: Any, tiles: tuple[Pattern, ...], form: Any = PLAIN) -> float:
    return transfer(OpSpec(row, DMA, tiles, 1, False, False, form), core).us


def moves() -> Iterator[tuple[Pattern, Pattern, int]]:
    """Yield destination, source, and how many elements lie side by side in HBM."""
    for to, of in ((SBUF, HBM), (HBM, SBUF), (HBM, HBM)):
        for t, s in itertools.product((False, True), repeat=2):
            dst, src = (laid(m, dtypes.FLOAT32, turned) for m, turned in ((to, t), (of, s)))
            yield dst, src, 1 if t or s else F


@pytest.mark.parametrize("core", hw.CORES, ids=lambda c: c.name)
@pytest.mark.parametrize("name", COPIES)
def test_a_dma_is_not_cheaper_by_an_index_a_sum_or_a_mask(name, core):
    row = ROWS[name]
    for dst, src, run in moves():
        plain_us = us(row, core, (dst, src))
        gather = us(row, core, (dst, INDEX), Access(True, run=run))
        scatter = us(row, core, (dst, src, INDEX), Access(True, True, run=run))
        adds = us(row, core, (dst, src, dst), Access(False, False, True))
        both = us(row, core, (dst, src, src))
        kind = OpSpec(row, DMA, (dst, src), 1, False, False, PLAIN)
        masked = transfer(replace(kind, masked=True), core).us
        for said, time in (
            ("gather", gather),
            ("scatter", scatter),
            ("adds", adds),
            ("two sources", both),
            ("masked", masked),
        ):
            assert time >= 0.98 * plain_us, f"{said}: {dst}, {src}"


@pytest.mark.parametrize("core", hw.CORES, ids=lambda c: c.name)
@pytest.mark.parametrize("name", COPIES)
def test_a_cast_of_a_dma_moves_the_larger_elements(name, core):
    row = ROWS[name]
    for dst, src, _ in moves():
        plain_us = us(row, core, (dst, src))
        for t, s in ((dtypes.BFLOAT16, src.dtype), (dst.dtype, dtypes.BFLOAT16)):
            narrow = tuple(
                replace(
                    p, dtype=d, strides=tuple(n // p.dtype.itemsize * d.itemsize for n in p.strides)
                )
                for p, d in ((dst, t), (src, s))
            )
            assert us(row, core, narrow) >= 0.98 * plain_us
    assert {c.by for c in row.cheaper} == {"dtype"}


@pytest.mark.parametrize("core", hw.CORES, ids=lambda c: c.name)
@pytest.mark.parametrize("name", sorted(set(MOVES) - set(COPIES)))
@pytest.mark.parametrize("dtype", [dtypes.FLOAT32, dtypes.BFLOAT16, dtypes.UINT8])
def test_a_dma_that_transposes_is_not_cheaper_than_a_copy(name, core, dtype):
    item = dtype.itemsize
    for of in (HBM, SBUF):
        src = Pattern(of, dtype, (128, 128), (128 * item, item))
        dst = Pattern(SBUF, dtype, (128, 128), (128 * item, item))
        assert us(ROWS[name], core, (dst, src)) >= 0.98 * us(ROWS["dma_copy"], core, (dst, src))
