"""A record in which nothing was found is not looked through again; every other one is."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.checks import clean
from nkisim.simulation import launch


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(clean, "_clean", {})


@pytest.fixture
def passes(monkeypatch):
    """Return the list that grows by one for each record that is looked through."""
    seen = []
    real = launch.check_loops

    def counted(m, *args):
        seen.append(m)
        return real(m, *args)

    monkeypatch.setattr(launch, "check_loops", counted)
    return seen


@nki.jit
def copy(x, rows, tiles=1):
    """Copy the first rows of x, so many times, by way of tiles that live at the same time."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        first = 32 * i if rows == 128 else 0 * i
        total, *more = [nl.load(x[first : first + 32]) for _ in range(tiles)]
        for tile in more:
            total = nl.add(total, tile)
        nl.store(out[32 * i : 32 * i + 32], value=total)
    return out


X = np.ones((128, 64), np.float32)


def ids(*args, **kwargs):
    return [f.id for f in nkisim.run(copy, *args, **kwargs).findings]


def test_other_values_are_not_looked_through_again(passes):
    for x in (X, 2 * X, X):
        run = nkisim.run(copy, x, 128)
        assert run.findings == [] and (run.outputs == x).all()
    assert len(passes) == 1


def test_what_is_found_is_found_each_time(passes):
    assert ids(X, 32) == ids(X, 32) == ids(X, 32) == ["NKI-O07"]
    assert len(passes) == 3


def test_another_record_of_the_same_kernel_is_looked_through(passes):
    """With the same number of instructions, of the same forms."""
    assert ids(X, 128) == [] and ids(X, 32) == ["NKI-O07"] and ids(X, 128) == []
    assert len(passes) == 2


def test_other_sizes_and_targets_are_other_records(passes):
    for x in (X, np.ones((128, 65), np.float32), X.astype(np.float16)):
        for target in ("trn1", "trn2"):
            assert ids(x, 128, target=target) == []
    assert len(passes) == 6


def test_what_fits_one_chip_is_looked_at_for_another():
    """A tile of 32 partitions and 40 kB each does, 32 of them do not: four lie side by side."""
    wide = np.ones((128, 10_000), np.float32)
    for target in ("trn2", "trn1", "trn2"):
        assert ids(wide, 128, 1, target=target) == []
        assert "NKI-M10" in ids(wide, 128, 32, target=target)


def test_only_so_many_are_remembered(monkeypatch, passes):
    monkeypatch.setattr(clean, "MOST", 2)
    for columns in (8, 9, 10, 10, 8):
        ids(np.ones((128, columns), np.float32), 128)
    assert len(clean._clean) == 2 and len(passes) == 4


def test_a_level_that_wants_no_checks_remembers_nothing(monkeypatch, passes):
    monkeypatch.setenv("NKISIM_CHECKS", "off")
    ids(X, 128)
    assert clean._clean == {} and passes == []
