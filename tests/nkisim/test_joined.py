"""Loops of which a part becomes one instruction: drains of PSUM, sums that begin at zero."""
from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import pytest

import nkisim
from nkisim.timing import compiler

from .model_kernels import ones


def predict(kernel, *args, **kwargs):
    return nkisim.profile(kernel, *args, compute=False, **{"target": "trn2", **kwargs})


def shapes(prof, name):
    return [k.operands[0].shape for k, *_ in prof.trace if k.row.name == name]


def turned(tiles, columns=128):
    """Return a kernel that transposes tiles one by one into one wide tile."""
    @nki.jit
    def kernel(a):
        out = nl.ndarray((128, tiles * 128), dtype=a.dtype, buffer=nl.shared_hbm)
        pack = nl.ndarray((columns, tiles * 128), dtype=a.dtype, buffer=nl.sbuf)
        x = nl.load(a)
        for i in nl.affine_range(tiles):
            pack[:, 128 * i:128 * (i + 1)] = nl.copy(
                nisa.nc_transpose(x[:, columns * i:columns * (i + 1)]))
        nl.store(out[0:columns], pack)
        return out
    return kernel, ones(128, columns * tiles)


@pytest.mark.parametrize("tiles, drains", [(4, 1), (8, 2), (32, 8), (5, 5), (6, 2)])
def test_tiles_of_psum_that_a_bank_holds_are_read_at_once(tiles, drains):
    kernel, x = turned(tiles)
    found = shapes(predict(kernel, x), "tensor_copy")
    assert len(found) == drains and {s[1] for s in found if len(s) > 2} <= {tiles // drains}
    assert len(shapes(predict(kernel, x), "nc_transpose")) == tiles
    assert len(shapes(predict(kernel, x, compiler=compiler.DEFAULT), "tensor_copy")) == tiles


def test_tiles_of_sbuf_are_not_joined_in_part():
    """A bank of PSUM is what several tiles are put into; SBUF has none."""
    @nki.jit
    def doubled(a):
        out = nl.ndarray((128, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.ndarray((128, 1024), dtype=a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(8):
            at = slice(128 * i, 128 * (i + 1))
            y[:, at] = nisa.tensor_tensor(x[:, at], x[:, at], nl.add)
        nl.store(out, y)
        return out
    assert len(shapes(predict(doubled, ones(128, 1024)), "tensor_tensor")) == 8


def test_a_loop_that_also_adds_up_what_it_drains_stays_as_it_is():
    @nki.jit
    def product(a):
        out = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        acc = nl.zeros((128, 128), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(8):
            part = x[:, 128 * i:128 * (i + 1)]
            acc += nisa.nc_matmul(nl.copy(nisa.nc_transpose(part)), part)
        nl.store(out, nl.copy(acc))
        return out
    assert len(shapes(predict(product, ones(128, 1024)), "tensor_copy")) == 9


def test_a_sum_that_its_first_part_makes_zero_does_not_keep_a_loop():
    @nki.jit
    def columns(a):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        acc = nl.zeros((nl.par_dim(128), 64), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(64):
            acc[:, i:i + 1] += nisa.tensor_reduce(nl.add, x[:, 4 * i:4 * i + 4], axis=1,
                                                  keepdims=True)
        nl.store(out, nl.copy(acc))
        return out
    prof = predict(columns, ones(128, 256))
    assert shapes(prof, "tensor_reduce") == shapes(prof, "tensor_tensor") == [(128, 64, 1)]
    names = [k.row.name for k, *_ in prof.trace]
    assert names.index("memset") < names.index("tensor_tensor")
