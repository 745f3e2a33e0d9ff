"""Every instruction x mask x dtype x rank x memory, computed and timing-only, against oracles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from nkisim.isa.operands import READ, VECTOR
from nkisim.isa.table import ROWS
from nkisim.language.nki import isa as _all_rows  # noqa: F401 (rows of this dialect alone)
from oracle.common import FP32, I32
from rowmatrix import masks
from rowmatrix.check import check
from rowmatrix.other_specs import DMA, DYNAMIC, GPSIMD, PRODUCTS
from rowmatrix.spec import Spec, members
from rowmatrix.trial import Trial
from rowmatrix.vector_specs import ELEMENTWISE, SCALAR, SHUFFLES, WITH_RESULTS

SPECS = (*ELEMENTWISE, *WITH_RESULTS, SHUFFLES, *SCALAR, *PRODUCTS, *GPSIMD, *DMA, *DYNAMIC)
ELSEWHERE = {
    "rand",
    "random_seed",
    "partition_broadcast",  # in test_row_arguments.py
    "indirect_gather",
    "indirect_scatter",
}  # in test_nki_indirect.py
FEW = ("none", "partition", "free", "both")  # masks for dtypes other than the usual one


def dtypes_of(spec: Spec) -> tuple[np.dtype, ...]:
    """Return the dtypes that the tiles of a spec may have, the usual one first."""
    reads = [o for o in spec.operands if o.role == READ and o.takes is not VECTOR]
    found = spec.dtypes or members(reads[0].dtypes if reads else "any")
    return tuple(d for d in found if any(s.fits(d) for s in spec.samples))


def groups() -> Iterator[tuple[str, tuple[Spec, ...], str, np.dtype, str]]:
    """Yield (row, specs, mask, dtype, rank): every mask and rank with the usual dtype, and four
    masks with the others, whose rank goes round."""
    found: dict[tuple, list] = {}
    for spec in SPECS:
        ranks = list(spec.grids)
        for d, dtype in enumerate(dtypes_of(spec)):
            for m, mask in enumerate(spec.masks):
                for r, rank in enumerate(ranks):
                    turn = d and (r - d - m) % len(ranks)
                    if (
                        turn
                        or d
                        and mask not in FEW
                        or masks.of(
                            mask, spec.domain(spec.grids[rank]) or (1, 1), spec.step, spec.low
                        )
                        is None
                    ):
                        continue
                    found.setdefault((spec.name, mask, dtype, rank), []).append(spec)
    return iter(
        (row, tuple(specs), mask, dtype, rank) for (row, mask, dtype, rank), specs in found.items()
    )


def trials(spec: Spec, mask: str, dtype: np.dtype, rank: str) -> Iterator[Trial]:
    """Yield the trials of one cell: all samples for two dtypes in 2-D, else two of them."""
    samples = [s for s in spec.samples if s.fits(dtype)]
    grid = spec.grids[rank]
    case = masks.of(mask, spec.domain(grid) or (1, 1), spec.step, spec.low)
    start = sum(map(ord, mask + rank + dtype.name))
    whole = rank == "2d" and dtype in (FP32, I32) and mask in FEW
    for k in range(len(samples) if whole else min(2, len(samples))):
        yield Trial(spec, samples[(start + k) % len(samples)], grid, case, dtype, start + k)


def cells() -> Iterator:
    for row, specs, mask, dtype, rank in groups():
        name = f"{row}-{mask}-{dtype.name}-{rank}"
        yield pytest.param(specs, mask, dtype, rank, id=name)


@pytest.mark.sample(1100)
@pytest.mark.parametrize("specs, mask, dtype, rank", list(cells()))
def test_row(specs, mask, dtype, rank):
    wrong = []
    for spec in specs:
        for trial in trials(spec, mask, dtype, rank):
            if said := check(trial):
                wrong.append(f"{trial}\n  {said}")
    assert not wrong, "\n".join(wrong)


def test_every_row_of_the_table_is_tried():
    newer = {
        name
        for name, row in ROWS.items()  # test_nki_row_matrix.py
        if row.nki and not row.public
    }
    assert {spec.row for spec in SPECS} | ELSEWHERE | newer == set(ROWS)
