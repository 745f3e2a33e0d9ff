"""Forms that published kernels use and that are easy to get wrong: each was met in the wild."""

from __future__ import annotations

import functools
import logging

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.simulation.launch import launch

RNG = np.random.default_rng(0)


def data(*shape: int) -> np.ndarray:
    return RNG.random(shape, dtype=np.float32)


def stored(tile):
    """Return an output that holds a tile."""
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def test_logging_off_exists_once_nki_is_imported():
    """Course kernels silence the compiler with logging.disable(logging.OFF)."""
    assert logging.OFF > logging.CRITICAL


def test_a_grid_object_is_a_whole_subscript():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[nl.mgrid[0:128, 0:64]])
        nl.store(out[nl.mgrid[0:128, 0:64]], tile)
        return out

    x = data(128, 64)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x)


def test_reshape_takes_its_shape_by_name():
    @nki.jit
    def kernel(x):
        return stored(nl.load(x.reshape(shape=(4, 128))))

    x = data(512)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x.reshape(4, 128))


def test_loop_reduce_takes_the_destination_in():
    @nki.jit
    def kernel(x):
        top = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            tile = nl.load(x[i])
            top[...] = nl.loop_reduce(tile, op=np.max, loop_indices=[i])
        return stored(top)

    x = data(4, 128, 8) - 2  # all negative: a zero start would show
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x.max(axis=0))


def test_the_first_product_overwrites_a_new_psum_tensor():
    """nl.ndarray in PSUM without zeros, at an address that an earlier iteration has used."""

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((3, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        stationary = nl.ndarray((128, 128), dtype=a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        moving = nl.ndarray((128, 64), dtype=b.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=512))
        result = nl.ndarray((128, 64), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=1024))
        stationary[...] = nl.load(a)
        moving[...] = nl.load(b)
        for i in nl.affine_range(3):
            acc = nl.ndarray(
                (1, nl.par_dim(128), 64), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=2)
            )
            for _ in nl.affine_range(2):
                acc[0] += nisa.nc_matmul(stationary, moving)
            result[...] = nl.copy(acc[0])
            nl.store(out[i], result)
        return out

    a, b = data(128, 128), data(128, 64)
    want = 2 * (a.T @ b)
    for got in nkisim.simulate(kernel, a, b):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("by", ["counter", "argument"])
def test_addresses_in_a_loop_body_are_those_of_its_first_trace(by):
    """The SDK traces the body once, so a Python counter in it is advanced once."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        addr = 0
        for i in nl.affine_range(x.shape[0]):
            for half in range(2):  # a Python loop is unrolled: two tiles, two addresses
                base = addr if by == "counter" else half * 65536
                tile = nl.ndarray(
                    (128, 16384), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=base)
                )
                addr += 16384 * 4
                tile[...] = nl.load(x[i])
                nl.store(out[i], tile)
        return out

    x = data(4, 128, 16384)  # 4 * 2 * 64 KiB would not fit 192 KiB
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x)


def test_an_allocation_function_may_be_a_partial():
    def bank(banks, idx, pdim_size, fdim_size):
        return banks[idx], 0, 0

    @nki.jit
    def kernel(a):
        x = nl.ndarray((128, 128), dtype=a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        y = nl.ndarray((128, 128), dtype=a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=512))
        p = nl.ndarray(
            (2, nl.par_dim(128), 128),
            dtype=nl.float32,
            buffer=ncc.psum.alloc(functools.partial(bank, banks={(0,): 3, (1,): 6})),
        )
        x[...] = nl.load(a)
        p[1] = nisa.nc_matmul(x, x)
        y[...] = nl.copy(p[1])
        return stored(y)

    a = data(128, 128)
    np.testing.assert_allclose(nkisim.simulate(kernel, a), a.T @ a, rtol=1e-5)


def test_static_cast_works_on_host_arrays():
    assert nl.static_cast(np.ones((2, 2)), nl.bfloat16).dtype == nl.bfloat16


def test_an_index_tile_may_follow_integers():
    """In HBM the first remaining dim is the partition dim, wherever it stands."""

    @nki.jit
    def kernel(x):
        i_p, i_f = nl.arange(64)[:, None], nl.arange(32)[None, :]
        rows = nisa.iota(2 * i_p, dtype=nl.int32)
        return stored(nl.load(x[1, rows, i_f]))

    x = data(2, 128, 32)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x[1, ::2])


def test_a_mask_cuts_an_indirect_load():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((40, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(64)[:, None], nl.arange(32)[None, :]
        rows = nisa.iota(i_p * 3, dtype=nl.int32)  # beyond the tensor from row 43 on
        tile = nl.load(x[rows, i_f], mask=(i_p < 40))
        nl.store(out[i_p, i_f], tile, mask=(i_p < 40))
        return out

    x = data(128, 32)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x[:120:3])


def test_one_over_a_tile_is_one_instruction():
    @nki.jit
    def kernel(x):
        return stored(1.0 / nl.load(x))

    x = data(128, 4) + 1
    run = nkisim.run(kernel, x)
    np.testing.assert_allclose(run.outputs, 1 / x, rtol=1e-6)
    assert run.instructions == {"load": 1, "reciprocal": 1, "store": 1}


def test_one_dim_marked_as_the_partition_dim():
    """nl.ndarray((nl.par_dim(128),)) has one element a partition; unmarked it is refused."""

    @nki.jit
    def kernel(x):
        column = nl.ndarray((nl.par_dim(128),), dtype=x.dtype, buffer=nl.sbuf)
        column[...] = nl.load(x)
        return stored(column)

    x = data(128)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x[:, None])


def test_numbers_of_buffers_do_not_matter_without_block_dims():
    """A course's allocator passes num_free_tiles for tensors with and without block dims."""

    @nki.jit
    def kernel(x):
        a = nl.ndarray(
            (nl.par_dim(128), 4, 8),
            dtype=x.dtype,
            buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(4,)),
        )
        b = nl.ndarray(
            (128, 8),
            dtype=x.dtype,
            buffer=ncc.sbuf.mod_alloc(base_addr=4 * 8 * 4, num_free_tiles=(1,)),
        )
        b[...] = nl.load(x)
        for i in nl.affine_range(4):
            a[:, i, :] = nl.copy(b)
        return stored(a)

    x = data(128, 8)
    run = nkisim.run(kernel, x)
    np.testing.assert_array_equal(run.outputs, np.broadcast_to(x[:, None], (128, 4, 8)))
    assert not run.findings


def test_more_dims_than_an_access_pattern_are_split():
    """Interpolation kernels add tiles of seven dims; the compiler makes several instructions."""

    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        result = nl.ndarray((128, 4, 4, 4), dtype=x.dtype, buffer=nl.sbuf)
        p, i, j, k, a, b, c = nl.mgrid[0:128, 0:2, 0:2, 0:2, 0:2, 0:2, 0:2]
        result[p, 2 * i + a, 2 * j + b, 2 * k + c] = tile[p, i, j, k] + tile[p, i + a, j + b, k + c]
        return stored(result)

    x = data(128, 3, 3, 3)
    run = nkisim.run(kernel, x)
    at = np.arange(4)
    low, near = np.ix_(at // 2, at // 2, at // 2), np.ix_(*[at // 2 + at % 2] * 3)
    np.testing.assert_allclose(run.outputs, x[(slice(None), *low)] + x[(slice(None), *near)])
    assert {f.id for f in run.findings} == {"NKI-S03"}


def test_contiguous_dims_count_once():
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        result = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        result.reshape((128, 2, 2, 2, 2, 2, 2))[...] = nl.exp(tile.reshape((128, *[2] * 6)))
        return stored(result)

    assert not nkisim.run(kernel, data(128, 64)).findings


def test_a_load_and_a_store_can_skip_rows_outside_of_the_tensor():
    """Padded token lists index past the end; mode=oob_mode.skip leaves those rows alone."""

    @nki.jit
    def kernel(x, rows):
        out = nl.ndarray((96, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(64)[:, None], nl.arange(32)[None, :]
        for part in nl.affine_range(2):
            nl.store(out[part * 48 + nl.arange(48)[:, None], i_f], nl.zeros((48, 32), x.dtype))
        at = nl.load(rows)
        tile = nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.sbuf)
        tile[...] = nl.full((64, 32), 7, x.dtype)
        tile[i_p, i_f] = nl.load(x[at, i_f], mode=nisa.oob_mode.skip)
        nl.store(out[at, i_f], tile, mode=nisa.oob_mode.skip)
        return out

    x = data(80, 32)
    rows = np.arange(30, 94, dtype=np.int32)
    rows[::3] = 1000
    expected = np.zeros((96, 32), np.float32)
    inside = rows[rows < 96]
    expected[inside] = np.where((inside < 80)[:, None], x[np.minimum(inside, 79)], 7)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x, rows[:, None]), expected)


def test_a_profile_writes_a_file_for_each_execution_it_records(tmp_path):
    """Scripts look for profile_exec_10.ntff when they ask for every tenth execution."""

    @nki.profile(
        working_directory=str(tmp_path),
        save_neff_name="k.neff",
        save_trace_name="k.ntff",
        num_execs=20,
        profile_nth=10,
    )
    def kernel(x):
        return stored(nl.load(x))

    kernel(data(128, 8))
    names = {p.name for p in tmp_path.iterdir()}
    assert {"k.neff", "k_exec_10.ntff", "k_exec_20.ntff"} <= names
    assert len(list((tmp_path / "json_reports").iterdir())) == 2


def test_a_mask_as_a_subscript_cuts_the_operand():
    """MoE kernels write tile[i_p, i_f][i_f < n] for the last, partial tile of a weight."""

    @nki.jit
    def kernel(w, x):
        out = nl.ndarray((100, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        weights, tile = nl.load(w), nl.load(x)
        i_k, i_m = nl.arange(128)[:, None], nl.arange(128)[None, :]
        for m in nl.affine_range(1):
            product = nisa.nc_matmul(weights[i_k, i_m][m * 128 + i_m < 100][m < 1], tile)
            nl.store(out, nl.copy(product))
        return out

    w, x = data(128, 128), data(128, 64)
    np.testing.assert_allclose(nkisim.simulate(kernel, w, x), w[:, :100].T @ x, rtol=1e-5)


def test_iterations_may_scatter_into_one_tensor():
    """Which rows an index tile selects is data: a promise that iterations differ is believed."""

    @nki.jit
    def kernel(x, rows):
        out = nl.ndarray((256, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(128)[:, None], nl.arange(32)[None, :]
        at = nl.load(rows)
        for i in nl.affine_range(2):
            nl.store(out[at[i_p, i], i_f], nl.load(x[i]))
        return out

    x, order = data(2, 128, 32), RNG.permutation(256).astype(np.int32)
    expected = np.empty((256, 32), np.float32)
    expected[order] = x.reshape(256, 32)
    run = nkisim.run(kernel, x, np.ascontiguousarray(order.reshape(2, 128).T))
    np.testing.assert_array_equal(run.outputs, expected)
    assert not run.findings


def test_instances_that_all_do_the_same_are_a_warning():
    """A grid on a kernel that never asks for its place repeats the work; the result is right."""

    @nki.jit
    def kernel(x):
        return stored(nl.load(x))

    x = data(128, 8)
    run = nkisim.run(kernel[4], x)
    np.testing.assert_array_equal(run.outputs, x)
    assert [f.id for f in run.findings] == ["NKI-L05"]


def test_a_mask_that_holds_everywhere_cuts_nothing():
    """A matmul's mask may be over an operand's columns, fewer than those of the result."""

    @nki.jit
    def kernel(w, x):
        weights, tile = nl.load(w), nl.load(x)
        i_k, i_m = nl.arange(128)[:, None], nl.arange(64)[None, :]
        product = nl.zeros((64, 256), dtype=nl.float32, buffer=nl.psum)
        product += nisa.nc_matmul(weights[i_k, i_m], tile, mask=(i_m < 64))
        return stored(nl.copy(product))

    w, x = data(128, 64), data(128, 256)
    np.testing.assert_allclose(nkisim.simulate(kernel, w, x), w.T @ x, rtol=1e-5)


def test_quotients_and_remainders_of_indices_that_are_affine():
    """Flattened positions are taken apart again: i // width, i % width within one row."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 16, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, row, column = (
            nl.arange(128)[:, None, None],
            nl.arange(16)[None, :, None],
            nl.arange(8)[None, None, :],
        )
        flat = row * 8 + column
        tile = nl.load(x[i_p, flat])
        nl.store(out[i_p, flat // 8, (7 - flat % 8) % 8], tile)
        return out

    x = data(128, 128)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x.reshape(128, 16, 8)[:, :, ::-1])


@pytest.mark.parametrize(
    "broken", [lambda i: i // 8, lambda i: i % 8, lambda i: i // 0, lambda i: i % -8]
)
def test_quotients_and_remainders_that_are_not_affine_are_refused(broken):
    with pytest.raises(nkisim.NkiError, match="NKI-I05"):
        broken(nl.arange(16)[None, :])


def test_a_copy_may_start_where_data_says():
    """nisa.tensor_copy_dynamic_src: one offset for all partitions, as a subscript or plus one."""

    @nki.jit
    def kernel(x, offsets):
        out = nl.ndarray((2, 128, 3, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        tile, at = nl.load(x), nl.load(offsets)
        i_p, i_f = nl.arange(128)[:, None, None], nl.arange(4)[None, None, :]
        for form in nl.static_range(2):
            picked = nl.ndarray((128, 3, 4), dtype=x.dtype, buffer=nl.sbuf)
            for k in nl.affine_range(3):
                row = at[0, k] if form == 0 else at[0, k] + nl.arange(1)[None, :, None]
                picked[i_p, k, i_f] = nisa.tensor_copy_dynamic_src(tile[i_p, row, i_f])
            nl.store(out[form], picked)
        return out

    x, offsets = data(128, 16, 4), np.array([[5, 0, 15]], np.int32)
    run = nkisim.run(kernel, x, offsets)
    np.testing.assert_array_equal(run.outputs, np.stack([x[:, offsets[0]]] * 2))
    assert run.instructions["tensor_copy_dynamic_src"] == 6
    with pytest.raises(IndexError):
        nkisim.run(kernel, x, offsets + 1)


def test_a_copy_may_end_where_data_says():
    @nki.jit
    def kernel(x, offsets):
        tile, at, result = nl.load(x), nl.load(offsets), nl.zeros((128, 16), x.dtype)
        i_p, i_f = nl.arange(128)[:, None], nl.arange(4)[None, :]
        for k in nl.affine_range(2):
            nisa.tensor_copy_dynamic_dst(
                dst=result[i_p, at[0, k] + i_f], src=tile[i_p, 4 * k + i_f]
            )
        return stored(result)

    x, expected = data(128, 8), np.zeros((128, 16), np.float32)
    expected[:, 9:13], expected[:, 2:6] = x[:, :4], x[:, 4:]
    out = nkisim.simulate(kernel, x, np.array([[9, 2]], np.int32))
    np.testing.assert_array_equal(out, expected)


def test_rows_that_no_index_chose_were_never_written():
    @nki.jit
    def kernel(x, rows):
        out = nl.ndarray((128, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        i_f = nl.arange(32)[None, :]
        nl.store(out[nl.load(rows), i_f], nl.load(x))
        return out

    x, rows = data(64, 32), np.arange(0, 128, 2, dtype=np.int32)[:, None]
    run = nkisim.run(kernel, x, rows)
    np.testing.assert_array_equal(run.outputs[::2], x)
    assert np.isnan(run.outputs[1::2]).all()
    assert [(f.id, f.severity) for f in run.findings] == [("NKI-O04", "note")]


def reduction(loop, over_blocks=False):
    """Return a kernel that takes maxima with loop_reduce; blocks: into columns of one tile."""

    @nki.jit
    def kernel(x):
        top = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(2 if over_blocks else 1):
            at = slice(4 * k, 4 * k + 4) if over_blocks else slice(0, 8)
            for i in loop():
                tile = nl.load(x[i, :, at])
                top[:, at] = nl.loop_reduce(tile, op=np.max, loop_indices=[i])
        return stored(top)

    return kernel


@nki.jit
def reduction_into_zeros(x):
    top = nl.zeros((128, 8), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(12):
        top[...] = nl.loop_reduce(nl.load(x[i]), op=np.max, loop_indices=[i])
    return stored(top)


@nki.jit
def reduction_into_free_zeros(x):
    """Zeros in PSUM cost nothing until someone reads them."""
    top = nl.zeros((128, 8), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(12):
        top[...] = nl.loop_reduce(nl.load(x[i]), op=np.max, loop_indices=[i])
    return stored(nl.copy(top))


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (reduction(lambda: nl.affine_range(12)), lambda x: x.max(axis=0)),
        (reduction(lambda: nl.affine_range(3, 12)), lambda x: x[3:].max(axis=0)),
        (reduction(lambda: nl.affine_range(11, -1, -1)), lambda x: x.max(axis=0)),
        (reduction(lambda: nl.affine_range(12), True), lambda x: x.max(axis=0)),
        (reduction_into_zeros, lambda x: np.maximum(x.max(axis=0), 0)),
        (reduction_into_free_zeros, lambda x: np.maximum(x.max(axis=0), 0)),
    ],
    ids=["loop", "from 3", "downwards", "columns", "zeros", "free zeros"],
)
def test_loop_reduce_issues_the_same_with_and_without_data(kernel, expected):
    """A destination that nothing has written is set; any other takes part."""
    x = data(12, 128, 8) - 2
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), expected(x))
    computed = launch(kernel, (x,), {}).trace
    for every in (False, True):
        timed = launch(kernel, (x,), {}, compute=False, every_iteration=every).trace
        assert (timed.rows, timed.storages.data) == (computed.rows, computed.storages.data)
        assert timed.op_specs == computed.op_specs
