"""A catalogue of kernels with one bug each, and the same kernels without.

A mistake is a function of an HBM tensor `x` (128, 512, float32) and `bad`; the line that must be
named carries `# BUG`. Mistakes that other tests have as twins (limits, indexing, dtypes: see
test_errors_twins.py) are not repeated here: these are of people who know the limits.
"""
from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

MISTAKES: list[tuple[str, str, object]] = []       # id, a word that must be said, the kernel's body


def mistake(id, says=""):
    """Register a mistake that the rule `id` names, in words that contain `says`."""
    def register(body):
        MISTAKES.append((id, says, body))
        return body
    return register


def hbm(*shape, dtype=np.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def at(address):
    """Return a placement for ncc.sbuf.alloc: all tiles at one address."""
    def place(idx, pdim_size, fdim_size):
        return 0, address
    return place


def psum(*shape):
    return nl.zeros(shape, nl.float32, buffer=nl.psum)


def square(x, i):
    """Return a (128, 128) tile of x."""
    return nl.load(x[:, i * 128:(i + 1) * 128])


# -- broken promises of loops ----------------------------------------------------------------------

@mistake("NKI-L02", "running sum")
def a_running_sum_in_psum(x, bad):
    out, acc = hbm(4, 128, 128), psum(128, 128)
    for i in nl.affine_range(4):
        if not bad:
            acc = psum(128, 128)
        acc += nl.matmul(square(x, i), square(x, i), transpose_x=True)
        nl.store(out[i], nl.copy(acc))                                          # BUG
    return out


@mistake("NKI-L02", "running sum")
def a_running_sum_in_sbuf(x, bad):
    out, acc = hbm(4, 128, 128), nl.zeros((128, 128), nl.float32)
    for i in nl.sequential_range(4) if not bad else nl.affine_range(4):
        acc += square(x, i)
        nl.store(out[i], acc)                                                   # BUG
    return out


@mistake("NKI-L02", "create the accumulator inside the loop")
def an_accumulator_that_outlives_its_loop(x, bad):
    out, acc = hbm(2, 128, 128), psum(128, 128)
    for j in nl.affine_range(2):
        if not bad:
            acc = psum(128, 128)
        for i in nl.affine_range(4):
            acc += nl.matmul(square(x, i), square(x, j), transpose_x=True)
        nl.store(out[j], nl.copy(acc))                                          # BUG
    return out


@mistake("NKI-L10", "that was read already")
def an_accumulator_that_outlives_an_unrolled_loop(x, bad):
    out, acc = hbm(2, 128, 128), psum(128, 128)
    for j in nl.static_range(2):
        if not bad:
            acc = psum(128, 128)
        for i in nl.affine_range(4):
            acc += nl.matmul(square(x, i), square(x, j), transpose_x=True)      # BUG
        nl.store(out[j], nl.copy(acc))
    return out


@mistake("NKI-L02", "`+=`|+= for a sum")
def a_sum_by_assignment(x, bad):
    out, acc = hbm(128, 128), nl.zeros((128, 128), nl.float32)
    for i in nl.affine_range(4):
        if bad:
            acc[...] = nl.add(acc, square(x, i))                                # BUG
        else:
            acc += square(x, i)
    nl.store(out, acc)
    return out


@mistake("NKI-L05", "+= adds")
def products_that_overwrite_each_other(x, bad):
    out, acc = hbm(128, 128), psum(128, 128)
    for i in nl.affine_range(4):
        if bad:
            acc[...] = nl.matmul(square(x, i), square(x, i), transpose_x=True)  # BUG
        else:
            acc += nl.matmul(square(x, i), square(x, i), transpose_x=True)
    nl.store(out, nl.copy(acc))
    return out


@mistake("NKI-L05", "create the tile inside the loop")
def a_tile_that_iterations_share(x, bad):
    out, tile = hbm(128, 512), nl.ndarray((128, 128), np.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        if not bad:
            tile = nl.ndarray((128, 128), np.float32, buffer=nl.sbuf)
        tile[...] = nl.load(x[:, i * 128:(i + 1) * 128])                        # BUG
        nl.store(out[:, i * 128:(i + 1) * 128], nl.multiply(tile, 2.0))
    return out


@mistake("NKI-L04", "does not depend on the loop variable")
def a_store_that_does_not_move(x, bad):
    out = hbm(128, 512)
    for i in nl.affine_range(4):
        at = 0 if bad else i
        nl.store(out[:, at * 128:(at + 1) * 128], square(x, i))                 # BUG
    return out


@mistake("NKI-L04", "overlap")
def stores_that_overlap_in_part(x, bad):
    step = 64 if bad else 128
    out = hbm(128, step * 3 + 128)
    for i in nl.affine_range(4):
        nl.store(out[:, i * step:i * step + 128], square(x, i))                 # BUG
    return out


@mistake("NKI-L02", "by another|another one")
def a_neighbour_of_another_iteration(x, bad):
    out, tile = hbm(128, 512), nl.ndarray((128, 513), np.float32, buffer=nl.sbuf)
    tile[:, 0:1] = 0.0
    for i in nl.affine_range(4) if bad else nl.sequential_range(4):
        tile[:, i * 128 + 1:(i + 1) * 128 + 1] = nl.multiply(square(x, i), 2.0)
        nl.store(out[:, i * 128:(i + 1) * 128], tile[:, i * 128:(i + 1) * 128])     # BUG
    return out


@mistake("NKI-L05", "does not use nl.program_id|every instance")
def instances_that_do_the_same(x, bad):
    out = hbm(2, 128, 512)
    i = 0 if bad else nl.program_id(0)
    nl.store(out[i], nl.load(x))                                                # BUG
    return out


a_grid = {"instances_that_do_the_same": 2}


# -- memory that nobody has written ----------------------------------------------------------------

@mistake("NKI-U02", "[0:128, 256:512]")
def half_a_tile_is_never_loaded(x, bad):
    out, tile = hbm(128, 512), nl.ndarray((128, 512), np.float32, buffer=nl.sbuf)
    n = 256 if bad else 512
    tile[:, 0:n] = nl.load(x[:, 0:n])
    nl.store(out, nl.multiply(tile, 2.0))                                       # BUG
    return out


@mistake("NKI-U02", "never written")
def a_sum_over_rows_that_were_never_loaded(x, bad):
    out, tile = hbm(128, 128), nl.ndarray((128, 128), np.float32, buffer=nl.sbuf)
    rows = 100 if bad else 128
    tile[0:rows, :] = nl.load(x[0:rows, 0:128])
    product = nl.matmul(tile, square(x, 1), transpose_x=True)                   # BUG
    nl.store(out, nl.copy(product))
    return out


@mistake("NKI-O04", "never stored")
def the_last_rows_are_not_stored(x, bad):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)           # BUG
    for i in nl.affine_range(3 if bad else 4):
        nl.store(out[i * 32:(i + 1) * 32], nl.load(x[i * 32:(i + 1) * 32]))
    return out


@mistake("NKI-O03", "never written")
def an_output_is_forgotten(x, bad):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)           # BUG
    tile = nl.load(x)
    if not bad:
        nl.store(out, tile)
    return out


@mistake("NKI-U03", "never set")
def a_sum_that_begins_with_nothing(x, bad):
    out = hbm(128, 128)
    acc = (nl.ndarray if bad else nl.zeros)((128, 128), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        acc += nl.matmul(square(x, i), square(x, i), transpose_x=True)          # BUG
    nl.store(out, nl.copy(acc))
    return out


@mistake("NKI-U01|NKI-U02", "written")
def a_sum_in_sbuf_that_begins_with_nothing(x, bad):
    out, acc = hbm(128, 128), nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
    if not bad:
        acc[...] = 0.0
    for i in nl.affine_range(4):
        acc += square(x, i)                                                     # BUG
    nl.store(out, acc)
    return out


# -- memories --------------------------------------------------------------------------------------

@mistake("NKI-M10", "SBUF")
def more_tiles_than_sbuf_holds(x, bad):
    n = 16384 if bad else 4096
    out = hbm(128, n)
    tiles = [nl.full((128, n), float(i), nl.float32) for i in range(4)]
    total = tiles[0]
    for tile in [*tiles, *tiles]:
        total = nl.add(total, tile)                                             # BUG
    nl.store(out, total)
    return out


@mistake("NKI-M10", "16 banks")
def more_sums_than_psum_has_banks(x, bad):
    n = 16 if bad else 8
    out, tile = hbm(n, 128, 512), nl.load(x)
    sums = nl.zeros((n, nl.par_dim(128), 512), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(n):
        sums[i] = nl.matmul(tile[:, 0:128], tile, transpose_x=True)             # BUG
    for i in nl.affine_range(n):
        nl.store(out[i], nl.copy(sums[i]))
    return out


@mistake("NKI-D08", "integer")
def an_integer_accumulator(x, bad):
    out = hbm(128, 128)
    acc = nl.zeros((128, 128), nl.int32 if bad else nl.float32, buffer=nl.psum)
    acc += nl.matmul(square(x, 0), square(x, 1), transpose_x=True)              # BUG
    nl.store(out, nl.copy(acc))
    return out


@mistake("NKI-M01", "HBM")
def arithmetic_on_hbm(x, bad):
    out = hbm(128, 512)
    nl.store(out, nl.add(x if bad else nl.load(x), 1.0))                        # BUG
    return out


@mistake("NKI-M03", "")
def hbm_is_assigned(x, bad):
    out, tile = hbm(128, 512), nl.load(x)
    if bad:
        out[:, :] = tile                                                        # BUG
    else:
        nl.store(out, tile)
    return out


@mistake("NKI-O01", "")
def an_input_is_overwritten(x, bad):
    out, tile = hbm(128, 512), nl.load(x)
    nl.store(out, tile)
    nl.store(x if bad else out, nl.multiply(tile, 2.0))                         # BUG
    return out


# -- shapes ----------------------------------------------------------------------------------------

@mistake("NKI-S01", "nl.par_dim(128)")
def a_block_dim_without_par_dim(x, bad):
    out = hbm(4, 128, 128)
    tiles = nl.ndarray((4, 128 if bad else nl.par_dim(128), 128), np.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tiles[i] = square(x, i)                                                 # BUG
        nl.store(out[i], tiles[i])
    return out


@mistake("NKI-S02", "contraction")
def contraction_dims_that_differ(x, bad):
    out, left = hbm(128, 128), nl.load(x[0:64 if bad else 128, 0:128])
    product = nl.matmul(left, square(x, 1), transpose_x=True)                   # BUG
    nl.store(out, nl.copy(product))
    return out


@mistake("NKI-S04", "slice the one")
def rows_that_differ(x, bad):
    out = hbm(128, 128)
    nl.store(out, nl.add(square(x, 0), nl.load(x[0:64 if bad else 128, 0:128])))    # BUG
    return out


@mistake("NKI-S02|NKI-S01", "")
def columns_that_differ(x, bad):
    out = hbm(128, 128)
    nl.store(out, nl.add(square(x, 0), nl.load(x[:, 0:64 if bad else 128])))    # BUG
    return out


@mistake("NKI-S01", "")
def a_tile_of_another_shape_is_stored(x, bad):
    out = hbm(128, 128)
    nl.store(out, nl.load(x) if bad else square(x, 0))                          # BUG
    return out


@mistake("NKI-S10", "partition")
def a_reduction_over_partitions(x, bad):
    out, total = hbm(128, 1), nl.sum(nl.load(x), axis=0 if bad else 1)          # BUG
    nl.store(out, total)
    return out


@mistake("NKI-S10", "nl.maximum(a, b)")
def the_greater_of_two_by_max(x, bad):
    out, a, b = hbm(128, 128), square(x, 0), square(x, 1)
    nl.store(out, nl.max(a, b) if bad else nl.maximum(a, b))                    # BUG
    return out


@mistake("NKI-P01", "256 partitions")
def a_tile_of_256_rows(x, bad):
    out = hbm(256, 4)
    for i in nl.affine_range(1 if bad else 2):
        n = 256 if bad else 128
        nl.store(out[i * n:(i + 1) * n], nl.full((n, 4), 1.0, np.float32))      # BUG
    return out


@mistake("NKI-P07", "")
def too_wide_for_a_matmul(x, bad):
    out, tile = hbm(128, 512), nl.load(x)
    moving = nl.full((128, 1024), 1.0, np.float32)
    product = nisa.nc_matmul(tile[:, 0:128], moving if bad else moving[:, 0:512])   # BUG
    nl.store(out, nl.copy(product))
    return out


@mistake("NKI-I01", "")
def an_index_past_the_end(x, bad):
    out = hbm(128, 128)
    at = 512 if bad else 384
    nl.store(out, nl.load(x[:, at:at + 128]))                                   # BUG
    return out


@mistake("NKI-S06", "")
def a_size_of_zero(x, bad):
    n = 64 // 128 if bad else 128 // 64
    tile = nl.full((128, n), 1.0, np.float32)                                   # BUG
    out = hbm(128, 2)
    nl.store(out, tile)
    return out


# -- habits of NumPy and PyTorch -------------------------------------------------------------------

@mistake("NKI-K14", "nl.add")
def np_add(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, np.add(t, t) if bad else nl.add(t, t))                        # BUG
    return out


@mistake("NKI-K14", "nl.exp")
def np_exp(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, np.exp(t) if bad else nl.exp(t))                              # BUG
    return out


@mistake("NKI-K14", "nl.sum")
def np_sum(x, bad):
    out, t = hbm(128, 1), square(x, 0)
    nl.store(out, np.sum(t, axis=1) if bad else nl.sum(t, axis=1))              # BUG
    return out


@mistake("NKI-K14", "nl.max(t, axis=1)")
def a_method_of_numpy(x, bad):
    out, t = hbm(128, 1), square(x, 0)
    nl.store(out, t.max(axis=1) if bad else nl.max(t, axis=1))                  # BUG
    return out


@mistake("NKI-K14", "nl.transpose")
def a_transpose_of_numpy(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, t.T if bad else nl.transpose(t))                              # BUG
    return out


@mistake("NKI-K14", "nl.copy(t, dtype")
def a_cast_of_pytorch(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, t.to(nl.bfloat16) if bad else nl.copy(t, dtype=nl.bfloat16))  # BUG
    return out


@mistake("NKI-K14", "nl.matmul")
def an_operator_of_numpy(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, t @ t if bad else nl.copy(nl.matmul(t, t)))                   # BUG
    return out


@mistake("NKI-K14", "values")
def a_value_of_a_tile(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, nl.multiply(t, float(t[0, 0]) if bad else t[:, 0:1]))         # BUG
    return out


@mistake("NKI-K14", "values")
def an_array_of_a_tile(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, np.array(t) if bad else t)                                    # BUG
    return out


@mistake("NKI-I08", "truth")
def a_condition_on_data(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    if bad and t[0:1, 0:1]:                                                     # BUG
        t = nl.add(t, 1.0)
    nl.store(out, t)
    return out


@mistake("NKI-I08", "looped")
def a_loop_over_a_tile(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    for row in t if bad else ():                                                # BUG
        nl.store(out, row)
    nl.store(out, t)
    return out


# -- names and arguments ---------------------------------------------------------------------------

@mistake("AttributeError", "nl.add")
def a_name_that_nl_does_not_have(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, nl.plus(t, t) if bad else nl.add(t, t))                       # BUG
    return out


@mistake("NKI-X01", "'values' (did you mean 'value'?)")
def a_keyword_of_another_name(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    if bad:
        nl.store(out, values=t)                                                 # BUG
    else:
        nl.store(out, value=t)
    return out


@mistake("NKI-K11", "did you mean 'mask'")
def a_keyword_that_is_ignored(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    if bad:
        nl.store(out, t, masc=None)                                             # BUG
    else:
        nl.store(out, t, mask=None)
    return out


@mistake("NKI-I14", "&")
def masks_joined_by_and(x, bad):
    i_p, i_f = nl.arange(128)[:, None], nl.arange(128)[None, :]
    out = hbm(128, 128)
    nl.store(out, nl.full((128, 128), 0.0, np.float32))
    mask = (i_p < 64 and i_f < 32) if bad else (i_p < 64) & (i_f < 32)          # BUG
    nl.store(out[i_p, i_f], square(x, 0), mask=mask)
    return out


@mistake("NKI-S14", "//")
def a_size_that_is_a_float(x, bad):
    out = hbm(128, 128)
    n = 256 / 2 if bad else 256 // 2
    nl.store(out, nl.full((128, n), 1.0, np.float32))                           # BUG
    return out


@mistake("NKI-E11", "")
def an_operator_that_is_called(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, nisa.activation("exp_" if bad else nl.exp, t))                # BUG
    return out


@mistake("NKI-E10|NKI-E09", "")
def a_scale_of_another_dtype(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    scale = nl.full((128, 1), 2.0, nl.bfloat16 if bad else nl.float32)
    nl.store(out, nisa.activation(nl.exp, t, scale=scale))                      # BUG
    return out


@mistake("NKI-M07", "")
def both_operands_in_psum(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    a, b = nl.matmul(t, t), nl.matmul(t, t, transpose_x=True)
    nl.store(out, nisa.tensor_tensor(a, b if bad else nl.copy(b), nl.add))      # BUG
    return out


@mistake("NKI-L01", "loop")
def a_tile_that_is_used_after_its_loop(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    for i in nl.affine_range(4):
        u = square(x, i)
    nl.store(out, u if bad else t)                                              # BUG
    return out


@mistake("NKI-I10", "")
def a_slice_and_an_index_expression(x, bad):
    i_p = nl.arange(128)[:, None]
    out = hbm(128, 128)
    tile = nl.load(x[i_p, 0:128] if bad else x[i_p, nl.arange(128)[None, :]])   # BUG
    nl.store(out, tile)
    return out


@mistake("NKI-I09", "")
def an_index_without_its_axis(x, bad):
    i_f = nl.arange(128)
    out = hbm(128, 128)
    tile = nl.load(x[nl.arange(128)[:, None], i_f if bad else i_f[None, :]])    # BUG
    nl.store(out, tile)
    return out


@mistake("NKI-L07", "count = 0")
def a_counter_in_a_traced_loop(x, bad):
    out, count = hbm(4, 128, 128), 0
    for i in nl.static_range(4) if not bad else nl.sequential_range(4):
        nl.store(out[count], square(x, i))
        count += 1                                                              # BUG
    return out


# -- kernels and direct allocation -----------------------------------------------------------------

@mistake("NKI-O02", "sbuf")                                                     # BUG
def a_tile_is_returned(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, t)
    return t if bad else out


@mistake("NKI-A05", "overwritten")
def two_tiles_at_one_address(x, bad):
    out = hbm(128, 128)
    a = nl.ndarray((128, 128), np.float32, buffer=ncc.sbuf.alloc(at(0)))
    b = nl.ndarray((128, 128), np.float32, buffer=ncc.sbuf.alloc(at(0 if bad else 512)))
    c = nl.ndarray((128, 128), np.float32, buffer=ncc.sbuf.alloc(at(1024)))
    a[...] = nl.load(x[:, 0:128])
    b[...] = nl.load(x[:, 128:256])
    c[...] = nisa.tensor_tensor(a, b, nl.add)                                   # BUG
    nl.store(out, c)
    return out


@mistake("NKI-A02|NKI-A01", "")
def an_address_that_is_not_aligned(x, bad):
    out = hbm(128, 128)
    place = ncc.sbuf.alloc(at(3 if bad else 4))
    a = nl.ndarray((128, 128), np.float32, buffer=place)                        # BUG
    a[...] = nl.load(x[:, 0:128])
    nl.store(out, a)
    return out


@mistake("NKI-S02|NKI-S01|NKI-P07|NKI-S04", "")
def a_matmul_without_transpose_x(x, bad):
    out, left, right = hbm(128, 128), nl.load(x[0:64, 0:128]), nl.load(x[0:64, 0:128])
    product = nl.matmul(left, right, transpose_x=not bad)                       # BUG
    nl.store(out, nl.copy(product))
    return out


@mistake("NKI-D05", "narrower")
def operands_of_different_widths(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    moving = nl.copy(t, dtype=nl.bfloat16 if bad else nl.float32)
    product = nisa.nc_matmul(t, moving)                                         # BUG
    nl.store(out, nl.copy(product))
    return out


@mistake("NKI-M06", "one bank")
def a_matmul_across_two_banks(x, bad):
    out, t = hbm(128, 512), nl.load(x)
    sums = nl.zeros((128, 1024), nl.float32, buffer=nl.psum)
    start = 256 if bad else 0
    sums[:, start:start + 512] += nisa.nc_matmul(t[:, 0:128], t)                # BUG
    nl.store(out, nl.copy(sums[:, start:start + 512]))
    return out
