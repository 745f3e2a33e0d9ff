"""Random programs with run-time addresses, registers, loops, random numbers and two cores."""

from __future__ import annotations

import pytest

import program_steps
from program_kernels import DOES
from program_steps import CUTS, MEANS, expected
from random_programs import Counts, Maker, differs, random_program

SEEDS = 48


def test_random_programs_are_as_numpy_says_and_their_mistakes_are_caught(request):
    counts = Counts()
    for seed in range(SEEDS * (10 if request.config.getoption("--full") else 1)):
        counts.add(seed)
    assert not counts.wrong, str(counts)
    assert sum(counts.caught.values()) > 0.8 * sum(counts.made.values())


def test_the_seeds_reach_every_kind_of_step():
    reached = {s.kind for k in range(300) for s in random_program(k)[0].steps}
    assert reached == set(DOES) and set(DOES) - set(MEANS) == {"exchange", "meet"}


@pytest.mark.parametrize("kind", ["gather", "gather turned", "count", "columns gathered", "loop"])
def test_a_wrong_value_would_be_found(kind, monkeypatch):
    """NumPy that does something else stands for a simulator that does."""
    means = MEANS[kind]
    seed = next(k for k in range(500) if kind in {s.kind for s in random_program(k)[0].steps})
    program, x = random_program(seed)
    assert not differs(program, x, expected(program, x))

    def off(t, *args):
        means(t, *args)
        t += 1

    monkeypatch.setitem(program_steps.MEANS, kind, off)
    assert "elements" in differs(program, x, expected(program, x))


def test_the_seeds_reach_every_way_to_transpose_rows_and_to_loop_over_dynamic_range():
    steps = [(p, s) for p in (random_program(k)[0] for k in range(300)) for s in p.steps]
    turned = {(p.dialect, s.form) for p, s in steps if s.kind == "gather turned"}
    assert turned == {("nki", form) for form in CUTS} | {("beta1", "2-d"), ("beta1", "3-d")}
    loops = {(p.release, s.form) for p, s in steps if s.form.startswith("dynamic")}
    forms = ("dynamic", "dynamic, one", "dynamic, both")
    assert loops == {(release, form) for release in ("0.6", "0.7") for form in forms}


def test_a_seed_makes_one_program():
    assert Maker(5).program() == Maker(5).program() != Maker(6).program()
