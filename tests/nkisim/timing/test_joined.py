"""Loops whose parts become one instruction: drains of PSUM, sums that begin at zero."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import pytest

import nkisim
from model_kernels import ones
from nkisim.timing import compiler


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
            pack[:, 128 * i : 128 * (i + 1)] = nl.copy(
                nisa.nc_transpose(x[:, columns * i : columns * (i + 1)])
            )
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
            part = x[:, 128 * i : 128 * (i + 1)]
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
            acc[:, i : i + 1] += nisa.tensor_reduce(
                nl.add, x[:, 4 * i : 4 * i + 4], axis=1, keepdims=True
            )
        nl.store(out, nl.copy(acc))
        return out

    prof = predict(columns, ones(128, 256))
    assert shapes(prof, "tensor_reduce") == shapes(prof, "tensor_tensor") == [(128, 64, 1)]
    names = [k.row.name for k, *_ in prof.trace]
    assert names.index("memset") < names.index("tensor_tensor")


@nki.jit
def softmax_of_rows(a):
    """Four tiles of rows, each in two chunks: maxima, exponentials, sums, quotients."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        x, e = nl.load(a[i]), nl.ndarray((128, 1024), dtype=a.dtype, buffer=nl.sbuf)
        most = nl.ndarray((128, 2), dtype=a.dtype, buffer=nl.sbuf)
        for j in nl.affine_range(2):
            most[:, j] = nisa.tensor_reduce(nl.max, x[:, 512 * j : 512 * (j + 1)], axis=1)
        less = nisa.tensor_reduce(nl.max, most, axis=1, negate=True)
        for j in nl.affine_range(2):
            at = slice(512 * j, 512 * (j + 1))
            e[:, at] = nisa.activation(nl.exp, x[:, at], bias=less)
        nl.store(
            out[i],
            nisa.tensor_scalar(
                e, nl.multiply, nisa.reciprocal(nisa.tensor_reduce(nl.add, e, axis=1))
            ),
        )
    return out


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_fill_of_what_was_read_before_stays_where_it_is(target):
    """In front of the loop it would be what the readers wait for, not what computed the tile."""

    def chain(fills):
        @nki.jit
        def kernel(a):
            out = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
            t, other = nl.load(a), nl.zeros((128, 512), a.dtype)
            small = nl.zeros((128, 2, 8), a.dtype)
            for _ in range(6):
                for _ in range(7):
                    t = nisa.tensor_scalar(t, nl.add, 1.0)
                y = nl.ndarray((nl.par_dim(128), 2, 512), dtype=a.dtype, buffer=nl.sbuf)
                z = nl.ndarray((nl.par_dim(128), 2, 8), dtype=a.dtype, buffer=nl.sbuf)
                both = [t, other]
                for i in nl.affine_range(2):
                    y[:, i] = nisa.tensor_scalar(both[i], nl.add, 1.0)
                    z[:, i] = nisa.tensor_scalar(small[:, i], nl.add, 1.0)
                    if i == 0 and fills:
                        t[...] = nisa.memset((128, 512), 0.0, a.dtype)
                t = y[:, 0]
            nl.store(out, t)
            return out

        return kernel

    x = ones(128, 512)
    with_fills, without = (predict(chain(f), x, target=target).latency_us for f in (True, False))
    assert with_fills > 0.99 * without


def test_what_is_small_in_a_loop_around_others_is_one_and_parts_its_phases():
    """No exponential of any tile begins before the maxima of all tiles are there."""
    prof = predict(softmax_of_rows, ones(4, 128, 1024))
    loose = predict(softmax_of_rows, ones(4, 128, 1024), compiler=compiler.DEFAULT)
    assert shapes(prof, "reciprocal") == [(128, 4, 1)] and len(shapes(loose, "reciprocal")) == 4
    for p, apart in (prof, True), (loose, False):
        names = [k.row.name for k, *_ in p.trace]
        wide = [
            i
            for i, (k, *_) in enumerate(p.trace)
            if k.row.name == "tensor_reduce" and k.operands[1].elements == 128 * 512
        ]
        ends = max(p.schedule.end[i] for i in wide)
        begin = p.schedule.start[names.index("activation")]
        assert len(wide) == 8 and (begin > ends) == apart
    assert len(shapes(prof, "activation")) == len(shapes(loose, "activation")) == 8


def test_a_loop_around_others_whose_tiles_are_many_stays_as_it_is():
    """Its tiles would take more than half of SBUF at once."""

    @nki.jit
    def wide(a):
        out = nl.ndarray((16, 128, 1), dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(16):
            x = nl.load(a[i])
            most = nl.ndarray((128, 2), dtype=a.dtype, buffer=nl.sbuf)
            for j in nl.affine_range(2):
                most[:, j] = nisa.tensor_reduce(nl.max, x[:, 2048 * j : 2048 * (j + 1)], axis=1)
            nl.store(out[i], nisa.tensor_reduce(nl.max, most, axis=1))
        return out

    found = shapes(predict(wide, ones(16, 128, 4096)), "tensor_reduce")
    assert len(found) > 16 and {s[0] for s in found} == {128}
