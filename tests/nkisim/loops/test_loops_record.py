"""A timing-only run executes loops once; its record is the one of all iterations."""

from __future__ import annotations

import json

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import pytest

import model_kernels as kernels
from looping import N, count, double, kernel_of, record, same_record, wide
from model_kernels import ones
from nkisim import NkiError


@nki.jit
def rows(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 8):
        nl.store(out[8 * i : 8 * i + 8], nl.load(x[8 * i : 8 * i + 8]) * 2.0)
    return out


@nki.jit
def nested(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.sequential_range(x.shape[0] // 8):
        total = nl.zeros((8, 16), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(x.shape[1] // 16):
            i_p, i_f = nl.mgrid[0:8, 0:16]
            total += nl.load(x[8 * i + i_p, 16 * j + i_f], mask=16 * j + i_f < x.shape[1] - 8)
        for j in nl.affine_range(x.shape[1] // 16):
            nl.store(out[nl.ds(i * 8, 8), 16 * j : 16 * (j + 1)], total)
    return out


@pytest.mark.parametrize("kernel, shape", [(rows, (8 * N, 4)), (kernel_of(double), (N, 64))])
def test_a_loop_runs_once(monkeypatch, kernel, shape):
    done = count(monkeypatch)
    same_record(kernel, ones(*shape))
    assert len(done) == 1


def test_loops_in_loops_with_a_mask_give_the_same_record():
    same_record(nested, ones(8 * N, 16 * N))


@pytest.mark.parametrize("rows_of_x", [8 * N - 4, 8 * (N - 1) - 4, 60])
def test_an_error_in_any_iteration_is_the_error_of_the_whole_run(rows_of_x):
    @nki.jit
    def leaves(x):
        out = nl.ndarray((8 * N, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(N):
            nl.store(out[8 * i : 8 * i + 8], nl.load(x[8 * i : 8 * i + 8]))
        return out

    with pytest.raises(NkiError, match="NKI-I01") as whole:
        record(leaves, ones(rows_of_x, 4), every_iteration=True)
    with pytest.raises(NkiError) as continued:
        record(leaves, ones(rows_of_x, 4), every_iteration=False)
    assert str(continued.value) == str(whole.value)


def failing_at(place, error=ZeroDivisionError):
    """Return a kernel that prints and then fails: before, in or after a loop of N iterations."""

    @nki.jit
    def kernel(x):
        print("begins")
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        if place == "before":
            raise error("before")
        for i in nl.affine_range(N):
            nl.store(out[i], nl.load(x[i]))
            if place == "in":
                raise error("in the first iteration")
            raise error("after")

    return kernel


@pytest.mark.parametrize("place", ["before", "in", "after"])
def test_a_kernel_that_fails_runs_once(place, capsys):
    with pytest.raises(ZeroDivisionError, match=place):
        record(failing_at(place), ones(128, 64), every_iteration=False)
    assert capsys.readouterr().out == "begins\n"


def test_a_kernel_that_breaks_a_rule_runs_once(capsys):
    @nki.jit
    def kernel(x):
        print("begins")
        out = nl.ndarray((N, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(N):
            nl.store(out[i + 1], nl.load(x[i]))  # leaves `out` in the last iteration
        return out

    with pytest.raises(NkiError, match="NKI-I01"):
        record(kernel, ones(128, 64), every_iteration=False)
    assert capsys.readouterr().out == "begins\n"


def test_c_code_that_takes_nothing_but_ints_gets_them():
    """array("q") would take anything with an __index__; json does not."""

    def visit(i, x, out):
        wide(64 if json.dumps(i) != "7" else 32, i, x, out)

    same_record(kernel_of(visit), ones(128, 64))


def test_kernels_with_the_structures_of_the_model():
    same_record(kernels.add(100), ones(128 * 2000), ones(128 * 2000))
    same_record(kernels.add_in_place_of(2, 10), ones(128 * 200), ones(128 * 200))
    same_record(kernels.transpose, ones(1024, 256))
