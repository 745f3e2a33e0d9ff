"""Nests that look like one that has run, in the dialect of today: sums in PSUM have a state."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import pytest

from .nesting import P, data, same
from .nesting import taken as taken

ROWS, WIDTH = 16, 24


def inputs():
    return data(P, ROWS, WIDTH), data(P, ROWS, P)


def kernel_of(body, count=6):
    @nki.jit
    def kernel(x, w):
        out = nl.ndarray((count, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        left = nl.ndarray((P, ROWS, P), dtype=w.dtype, buffer=nl.sbuf)
        right = nl.ndarray((P, ROWS, WIDTH), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=w)
        nisa.dma_copy(dst=right, src=x)
        acc = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.psum)
        for t in range(count):
            acc = body(acc, left, right, t)
            tile = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=acc)
            nisa.dma_copy(dst=out[t], src=tile)
        return out
    return kernel


def new_sum(acc, left, right, t):
    acc = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.psum)
    for k in range(4):
        nisa.nc_matmul(dst=acc, stationary=left[:, t + k, :], moving=right[:, k, t:t + 8])
    return acc


def first_overwrites(acc, left, right, t):
    for k in range(4):
        nisa.nc_matmul(dst=acc, stationary=left[:, t + k, :], moving=right[:, k, t:t + 8],
                       accumulate=k > 0)
    return acc


def onto_what_was_read(acc, left, right, t):
    for k in range(4):
        nisa.nc_matmul(dst=acc, stationary=left[:, t + k, :], moving=right[:, k, t:t + 8])
    return acc


def onto_a_memset(acc, left, right, t):
    acc = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.psum)
    if t > 2:
        nisa.memset(dst=acc, value=0.0)
    for k in range(4):
        nisa.nc_matmul(dst=acc, stationary=left[:, t + k, :], moving=right[:, k, t:t + 8])
    return acc


@pytest.mark.parametrize("body, least", [(new_sum, 5), (first_overwrites, 0),
                                         (onto_what_was_read, 0), (onto_a_memset, 2)],
                         ids=lambda x: getattr(x, "__name__", ""))
def test_nests_of_todays_dialect_are_as_ever(monkeypatch, taken, body, least):
    same(monkeypatch, kernel_of(body), *inputs())
    assert len(taken) >= least


def test_that_a_sum_has_been_read_is_noted(monkeypatch):
    """The first nest reads what no product has written, the second one a sum that goes on."""
    @nki.jit
    def kernel(x, w):
        out = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        left = nl.ndarray((P, P), dtype=w.dtype, buffer=nl.sbuf)
        row = nl.ndarray((P, 4, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=w[:, 0])
        acc = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.psum)
        for n in [4, 4]:
            for k in range(n):
                nisa.tensor_copy(dst=row[:, k], src=acc)
            nisa.nc_matmul(dst=acc, stationary=left, moving=row[:, 0])
        nisa.tensor_copy(dst=row[:, 0], src=acc)
        nisa.dma_copy(dst=out, src=row[:, 0])
        return out
    found = same(monkeypatch, kernel, *inputs())
    assert any("NKI-R06" in f for f in found["findings"])
