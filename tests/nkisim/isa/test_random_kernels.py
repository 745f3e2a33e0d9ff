"""Random kernels against the oracles, and the same kernels with one mistake in each."""

from __future__ import annotations

from pathlib import Path

import pytest

import random_chains
from nkisim.isa.table import ROWS
from random_kernels import NOT_HERE, Counts, random_kernel, rows_without_kernels, wrong

SEEDS, PARTS = 240, 6


@pytest.fixture(scope="module")
def every(request):
    return 10 if request.config.getoption("--full") else 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_kernels_are_as_the_oracle_says_and_their_mistakes_are_caught(part, every):
    counts = Counts()
    for seed in range(part * SEEDS * every // PARTS, (part + 1) * SEEDS * every // PARTS):
        counts.add(seed)
    assert not counts.wrong and not counts.survived, str(counts)
    assert sum(counts.caught.values()) > sum(counts.made.values()) / 2


def test_random_chains_are_as_numpy_says_and_their_mistakes_are_caught(every):
    counts, wrong = random_chains.count(range(20 * every))
    assert not wrong
    made = {k.partition(": ")[2]: n for k, n in counts.items() if k.startswith("made")}
    assert len(made) == 4 and all(counts[f"caught: {k}"] == n for k, n in made.items())


def test_all_rows_have_kernels_or_a_reason():
    assert rows_without_kernels() == set(NOT_HERE)


@pytest.mark.parametrize("row", NOT_HERE)
def test_a_row_without_kernels_has_a_test_elsewhere(row):
    """The test is there, and its file calls the row, or the function that it stands for."""
    file, _, test = NOT_HERE[row][1].partition("::")
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    called = {
        "partition_broadcast": "broadcast_to",
        "indirect_gather": ".indirect(",
        "indirect_scatter": ".indirect(",
    }
    assert f"def {test}(" in text and called.get(row, row) in text


def test_the_seeds_reach_every_row():
    reached = {random_kernel(seed).row for seed in range(2500)}
    assert reached == set(ROWS) - set(NOT_HERE)


def test_a_wrong_value_would_be_found(monkeypatch):
    """The simulator with one instruction that does something else."""
    seed = next(s for s in range(500) if random_kernel(s).row == "tensor_reduce")
    assert not wrong(random_kernel(seed))
    row, run = ROWS["tensor_reduce"], ROWS["tensor_reduce"].run

    def off(m, ins, dst):
        run(m, ins, dst)
        dst.np[...] += 1

    object.__setattr__(row, "run", off)
    try:
        assert wrong(random_kernel(seed))
    finally:
        object.__setattr__(row, "run", run)
