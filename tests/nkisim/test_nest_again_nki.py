"""Nests that look like one that has run, in the dialect of today: sums in PSUM have a state."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import pytest

import nkisim
from labkit.load import load_module
from nkisim.launch import launch

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


TEXT = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 4, 512), dtype=x.dtype, buffer=nl.sbuf)
    s = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=t, value=0)
    nisa.memset(dst=s, value=0)
    LOOPS
            BODY
    nisa.dma_copy(dst=out, src=s)
    return out
"""


@pytest.mark.parametrize("body", [
    "nisa.tensor_copy(dst=t[:, k, :], src=t[:, k, 0:640])",
    "nisa.tensor_copy(dst=t[:, k, 256:640], src=t[:, k, 0:512])",
    "nisa.tensor_tensor(dst=s, data1=t[:, k, 256:640], data2=s, op=nl.add)",
    "nisa.bn_stats(dst=s, data=t[:, k, 0:640])",
    "nisa.iota(dst=t[:, k, 256:640], pattern=[[1, 512]], offset=0)",
    "nisa.dma_copy(dst=t[:, k, 0:512], src=x[:, 0:640])",
])
def test_a_slice_past_the_end_is_the_fault_in_a_loop_too(body, tmp_path):
    """In a loop that is replayed the shapes were looked at first: another rule for one fault."""
    def run(loops, compute):
        path = tmp_path / f"kernels{len(list(tmp_path.glob('*.py')))}.py"
        path.write_text(TEXT.replace("LOOPS", loops).replace("BODY", body))
        with pytest.raises(nkisim.NkiError) as caught:
            launch(load_module(path).kernel, (data(P, 512),), {}, compute=compute)
        return caught.value.id, str(caught.value).partition("; limit")[0]

    said = {run(loops, compute) for compute in (True, False)
            for loops in ("for k in [0]:", "for k in range(4):",
                          "for j in range(3):\n        for k in range(4):")}
    assert len(said) == 1 and said.pop()[0] == "NKI-I01"
