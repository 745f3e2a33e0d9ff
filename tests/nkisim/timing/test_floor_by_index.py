"""The floor counts what run-time indices have chosen: each byte once, and only what is known."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.machine.chosen_bytes import ChosenBytes
from nkisim.report.summary import summary

P, COLUMNS = 128, 512
ROW = COLUMNS * 4
TABLE = np.ones((4096, COLUMNS), np.float32)
INDICES = P * 4


def column(h):
    t = nl.ndarray((P, 1), dtype=h.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=h)
    return t


@nki.jit
def gathered(table, which):
    """Return the rows that `which` names, of tiles of 128."""
    out = nl.ndarray((which.shape[0], COLUMNS), dtype=table.dtype, buffer=nl.shared_hbm)
    for r in range(0, which.shape[0], P):
        tile = nl.ndarray((P, COLUMNS), dtype=table.dtype, buffer=nl.sbuf)
        rows = table.vector_select(0, column(which[r : r + P]))
        nisa.dma_copy(dst=tile, src=rows, oob_mode=nisa.oob_mode.skip)
        nisa.dma_copy(dst=out[r : r + P], src=tile)
    return out


@nki.jit
def summed(table, which):
    """Return the sum of tiles of 128 rows that `which` names."""
    out = nl.ndarray((P, COLUMNS), dtype=table.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((P, COLUMNS), dtype=table.dtype, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for r in range(0, which.shape[0], P):
        tile = nl.ndarray((P, COLUMNS), dtype=table.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=table.vector_select(0, column(which[r : r + P])))
        nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def added(table, rows, which, reads_first=False):
    """Add rows to those of the table that `which` names."""
    tile = nl.ndarray((P, COLUMNS), dtype=rows.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=rows)
    if reads_first:
        first = nl.ndarray((P, COLUMNS), dtype=rows.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=first, src=table[0:P])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=first, op=nl.add)
    place = table.vector_select(0, column(which))
    nisa.dma_compute(dst=place, srcs=[tile, place], reduce_op=nl.add)
    return table


@nki.jit
def one_of(matrices, number):
    """Return the matrix [128, 512] that `number` names."""
    out = nl.ndarray(matrices.shape[1:], dtype=matrices.dtype, buffer=nl.shared_hbm)
    at = nl.ndarray((1, 1), dtype=number.dtype, buffer=nl.sbuf)
    tile = nl.ndarray(matrices.shape[1:], dtype=matrices.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=at, src=number)
    nisa.dma_copy(dst=tile, src=matrices.select(0, at))
    nisa.dma_copy(dst=out, src=tile)
    return out


def rows(n, different):
    return (np.arange(n, dtype=np.int32) % different)[:, None] * 3


def floor_of(kernel, *args, compute=True, **kwargs):
    args = [a.copy() for a in args]
    prof = nkisim.profile(kernel, *args, target="trn2", compute=compute, **kwargs)
    assert prof.floor_us <= prof.latency_us
    return prof.floor()


@pytest.mark.parametrize("different", [1, 100, 256])
def test_a_row_that_is_chosen_twice_has_to_come_once(different):
    floor = floor_of(gathered, TABLE, rows(2 * P, different))
    assert floor["least_read_bytes"] == different * ROW + 2 * INDICES
    assert floor["least_write_bytes"] == 2 * P * ROW and floor["unknown_bytes"] == 0


def test_a_row_that_is_left_out_does_not_come():
    which = rows(P, P)
    which[:28] = len(TABLE)
    floor = floor_of(gathered, TABLE, which)
    assert floor["least_read_bytes"] == 100 * ROW + INDICES


def test_rows_that_are_added_to_come_and_go():
    values = TABLE[:P]
    floor = floor_of(added, TABLE, values, rows(P, P))
    assert floor["least_read_bytes"] == 2 * P * ROW + INDICES
    assert floor["least_write_bytes"] == P * ROW


def test_what_an_index_and_a_slice_both_read_counts_once():
    """Rows 0, 3 ... 381 by index, rows 0 to 127 by a slice: 43 are the same."""
    floor = floor_of(added, TABLE, TABLE[:P], rows(P, P), reads_first=True)
    assert floor["least_read_bytes"] == (P + P + P - 43) * ROW + INDICES


def test_one_matrix_of_many_is_one_matrix():
    matrices = TABLE.reshape(32, P, COLUMNS)
    prof = nkisim.profile(one_of, matrices, np.full((1, 1), 7, np.int32), target="trn2")
    (row,) = (r for r in prof.tensors() if r["name"] == "matrices")
    assert row["read_bytes"] == row["distinct_read_bytes"] == P * ROW and row["repeat"] == 1.0
    floor = prof.floor()
    assert floor["least_read_bytes"] == P * ROW + 4
    assert floor["floor_us"] == pytest.approx(
        nkisim.least_us("trn2", P * ROW + 4, P * ROW, moved=True), rel=0.01
    )


def test_a_run_without_values_says_what_it_leaves_out():
    args = TABLE, rows(8 * P, 900)
    known, unknown = (floor_of(summed, *args, compute=c) for c in (True, False))
    assert unknown["unknown_bytes"] == 8 * P * ROW and known["unknown_bytes"] == 0
    assert unknown["floor_us"] < known["floor_us"] < unknown["with_unknown_us"]
    assert known["with_unknown_us"] == known["floor_us"]
    said = {
        c: summary(nkisim.profile(summed, *args, target="trn2", compute=c)) for c in (True, False)
    }
    assert "leaves out 2,097,152 bytes" in said[False] and "leaves out" not in said[True]


def test_bytes_seen_as_two_dtypes_are_the_same_bytes():
    chosen = ChosenBytes()
    chosen.mark(1, 64, 4, np.array([0, 3]), write=False)
    chosen.mark(1, 64, 2, np.array([7, 8]), write=False)  # bytes 14, 15 (known) and 16, 17
    found = chosen.of(1, False)
    assert found.item == 1 and np.flatnonzero(found.touched).tolist() == [
        *range(4),
        *range(12, 18),
    ]
    assert chosen.of(1, True) is None and chosen.of(2, False) is None
