"""Published times, bytes and transfers of a matmul in the package nki, against the model."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nkisim
from nkisim.calibration import records

FILE = records.FOLDER / "measurements-nki.json"
COUNTS = {r["id"]: r for r in json.loads(FILE.read_text("utf-8"))["records"]}
WITH_TWINS = [r for r in records.load(str(FILE)) if r.twin]


def predicted(record):
    args, kwargs = records.arguments(record)
    return nkisim.profile(
        records.twin(record), *args, target=record.target, compute=False, **kwargs
    )


@pytest.fixture(scope="module")
def some():
    """Return the profiles of every fourth record: all of them take a minute."""
    return [(r, predicted(r)) for r in WITH_TWINS[::4]]


def test_a_twin_computes_a_product():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, n)).astype(np.float32) for n in (256, 1024))
    got = nkisim.simulate(records.twin(WITH_TWINS[0]), a, b, 2, 1, 2)
    np.testing.assert_allclose(got, a.T @ b, rtol=1e-3, atol=1e-3)


def test_bytes_and_transfers_are_those_of_the_profiler(some):
    """Where nothing spills: what a spill moves is the compiler's choice."""
    inside = [(COUNTS[r.id], p) for r, p in some if not p.spill_bytes]
    assert len(inside) > 10
    for counted, p in inside:
        assert p.dma_transfer_count == counted["dma_transfers"], counted["id"]
        assert p.hbm_read_bytes + p.hbm_write_bytes == counted["dma_bytes"], counted["id"]


def test_times_are_near_the_published_ones(some):
    off = [abs(p.profile_total_us / r.value_us - 1) for r, p in some]
    assert np.median(off) <= 0.08 and np.percentile(off, 90) <= 0.20


def test_what_spills_on_the_chip_spills_here():
    """Whole tiles: of the first to the transfer and the byte, of the second but one tile."""
    by_id = {r.id: r for r in WITH_TWINS}
    fits = predicted(by_id["tal-blocked-2-4-8"])
    assert fits.spill_bytes == 0
    for block, off in (("2-4-16", 0.0), ("4-4-8", 0.04)):
        p, counted = predicted(by_id[f"tal-blocked-{block}"]), COUNTS[f"tal-blocked-{block}"]
        assert p.spill_bytes > 0
        assert p.dma_transfer_count == pytest.approx(counted["dma_transfers"], rel=off)
        moved = p.hbm_read_bytes + p.hbm_write_bytes
        assert moved == pytest.approx(counted["dma_bytes"], rel=off)


def test_loads_that_are_repeated_can_be_left_out_by_name():
    """The compiler does that for some kernels: so counts of DMAs are never compared without it."""
    a, b = np.zeros((256, 512), np.float32), np.zeros((256, 2048), np.float32)
    twin = records.twin(WITH_TWINS[0])
    plain, hoisted = (
        nkisim.profile(twin, a, b, 1, 1, 1, compute=False, compiler=on)
        for on in (("reorder", "engines", "rename"), ("reorder", "engines", "rename", "hoist"))
    )
    tiles, others = a.size // (128 * 128), 8 + 16  # of a; loads of b, stores
    assert plain.dma_transfer_count == 4 * tiles + others
    assert hoisted.dma_transfer_count == tiles + others
