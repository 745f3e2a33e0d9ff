"""The traps of the package nki as one table: each has a test here, or a reason why it has none.

A trap is what people, kernels and older releases expect of it and it does not do. The numbers are
those of this table; a test that guards more than one stands in each of them.
"""

from __future__ import annotations

import ast
from functools import cache
from math import prod
from pathlib import Path

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from test_nki_traps import array, refused, through

import nkisim

HERE = Path(__file__).parents[1]
MAIN, NUMBERS, TIME, ROWS = (
    "test_nki_traps",
    "test_nki_traps_numbers",
    "test_nki_traps_time",
    "test_nki_rows",
)
OWN, CORES, DIALECT = "test_nki_traps_table", "test_nki_cores", "test_nki_dialect"

#: number: (the trap, its tests as (file, function) or the reason why it has none)
TRAPS: dict[int, tuple[str, object]] = {
    1: (
        "dge_mode has other numbers than in beta 1: names only",
        [(MAIN, "test_enums_are_members")],
    ),
    2: (
        "reduce_cmd.load_reduce is of the new dialect alone",
        [
            (MAIN, "test_enums_are_members"),
            (ROWS, "test_tensor_scalar_reduce_starts_from_a_tile_or_a_number"),
        ],
    ),
    3: (
        "t[0] on chip keeps the partition dim, in HBM it is dropped",
        [(MAIN, "test_an_index_keeps_the_partition_dim_and_drops_one_of_hbm")],
    ),
    4: (
        "t[:, 0, 5] is (P, 1)",
        [(MAIN, "test_an_index_keeps_the_partition_dim_and_drops_one_of_hbm")],
    ),
    5: ("slices are not clipped", [(MAIN, "test_a_slice_outside_is_an_error")]),
    6: (
        "the axis of tensor_reduce is the true dim",
        [(MAIN, "test_reductions_are_over_the_last_dims")],
    ),
    7: (
        "memset of integers takes an integer",
        [(MAIN, "test_a_value_of_memset_is_of_the_kind_of_dst")],
    ),
    8: (
        "the first write of a sum overwrites place by place",
        [(TIME, "test_the_first_write_counts_place_by_place")],
    ),
    9: ("accumulate=True onto nothing", [(NUMBERS, "test_a_sum_onto_nothing_is_refused")]),
    10: (
        "accumulate=True onto a memset",
        [(NUMBERS, "test_a_sum_onto_a_memset_is_undefined_on_the_chip")],
    ),
    11: (
        "accumulate=(i > 0) where the first round is skipped",
        [(NUMBERS, "test_a_branch_that_skips_the_first_product_leaves_no_sum_to_add_to")],
    ),
    12: (
        ".ap does not know the view it is called on; what offset= counts from",
        [(MAIN, "test_a_pattern_addresses_the_storage")],
    ),
    13: (
        "the partition step of .ap is that of the storage",
        [(MAIN, "test_the_first_pair_on_chip_is_the_partitions")],
    ),
    14: (
        "a scalar_offset counts in rows of the base, a vector_offset ignores the first step",
        [
            (MAIN, "test_a_scalar_offset_counts_in_rows_of_the_base"),
            (MAIN, "test_a_vector_offset_ignores_the_first_stride"),
        ],
    ),
    15: (
        "indices of a transposing gather count column by column",
        [
            (OWN, "test_indices_of_a_transposing_gather_count_column_by_column"),
            (OWN, "test_only_a_transpose_takes_columns_of_indices_and_more_than_rows"),
        ],
    ),
    16: (
        "DMA casts through float32, or not at all",
        [(MAIN, "test_a_dma_casts_through_float32_and_hardware_descriptors_do_not_cast")],
    ),
    17: (
        "32-bit integers are exact on GpSimd only",
        [
            (MAIN, "test_integers_are_exact_on_gpsimd_and_not_on_the_vector_engine"),
            (NUMBERS, "test_integers_in_psum_are_added_by_the_vector_engine"),
        ],
    ),
    18: (
        "operand tiles of tensor_scalar are float32",
        [("test_compiler_refusals", "test_operand_tiles_of_tensor_scalar_are_float32")],
    ),
    19: (
        "comparisons have the dtype of their input",
        [(MAIN, "test_comparisons_have_the_dtype_of_their_operands")],
    ),
    20: (
        "nl.shared_identity_matrix lies in SBUF",
        [
            (MAIN, "test_where_results_and_constants_lie"),
            (OWN, "test_an_identity_is_not_loaded_again"),
        ],
    ),
    21: (
        "products and transposes of nl lie in PSUM, which is not stored",
        [(MAIN, "test_where_results_and_constants_lie")],
    ),
    22: ("nl.copy of integers is exact", [(MAIN, "test_copies_of_integers_are_exact")]),
    23: ("nl.rsqrt does not read PSUM", [(NUMBERS, "test_rsqrt_does_not_read_psum")]),
    24: ("nl.var keeps its dim", [(MAIN, "test_var_keeps_its_dims")]),
    25: (
        "nl.rand after nl.random_seed may not repeat before trn3",
        [(OWN, "test_a_seed_may_not_reach_random_numbers_before_trn3")],
    ),
    26: (
        "find_index8 and match_replace8 take duplicates in opposite order",
        [(NUMBERS, "test_eight_small_values_are_found_from_the_front_and_replaced_from_the_back")],
    ),
    27: (
        "what find_index8 does not find is all ones",
        [(MAIN, "test_what_is_not_found_is_all_ones")],
    ),
    28: (
        "nonzero_with_count looks at every sixteenth partition",
        [(ROWS, "test_nonzero_with_count_serves_every_sixteenth_partition")],
    ),
    29: ("topk ascends, max8 descends", [(ROWS, "test_topk_is_ascending_and_max8_descending")]),
    30: (
        "instructions of an engine share its accumulators",
        [
            (NUMBERS, "test_instructions_of_an_engine_share_their_accumulators"),
            (OWN, "test_all_that_reduce_on_an_engine_share_its_accumulators"),
        ],
    ),
    31: (
        "reduce_res may be where the result is",
        [(NUMBERS, "test_a_sum_may_be_written_where_the_result_is")],
    ),
    32: (
        "a sine outside of its range",
        [(NUMBERS, "test_a_sine_outside_of_its_range_is_reported")],
    ),
    33: (
        "float8_e4m3fn is taken for float8_e4m3 before trn3",
        [(OWN, "test_8_bit_floats_end_where_their_dtype_says_and_are_taken_for_another")],
    ),
    34: (
        "the scale of quantize_mx is doubled since 0.5; a group of zeros has 2**-127",
        [(ROWS, "test_a_product_of_quantized_tiles")],
    ),
    35: (
        "scales lie in the first 4 rows of each quadrant",
        [
            (ROWS, "test_a_product_of_quantized_tiles"),
            (
                "test_nki_undefined",
                "test_rows_of_the_scales_that_quantize_does_not_write_stay_undefined",
            ),
        ],
    ),
    36: ("float4_e2m1fn_x4 is 2 bytes, the others 4", [(ROWS, "test_sizes_of_packed_types")]),
    37: (
        "double_row has the 2 beside the partitions",
        [(NUMBERS, "test_a_double_row_has_the_two_beside_the_partitions")],
    ),
    38: (
        "512 columns of a product before trn3",
        [(ROWS, "test_the_columns_of_a_product_by_generation")],
    ),
    39: (
        "dma_transpose writes exactly its shape; what hardware descriptors take",
        [
            (MAIN, "test_a_dma_transpose_writes_its_shape_exactly"),
            (OWN, "test_a_transpose_by_hardware_descriptors_has_its_shapes"),
        ],
    ),
    40: (
        "the third place of dma_copy is priority",
        [(MAIN, "test_the_third_place_of_dma_copy_is_priority")],
    ),
    41: (
        "range_select begins a new maximum by default",
        [(NUMBERS, "test_range_select_begins_a_new_maximum")],
    ),
    42: ("there is one axis of programs", [(MAIN, "test_there_is_one_axis_of_programs")]),
    43: (
        "AWS keeps compiled kernels: a global that changes is not seen",
        [(NUMBERS, "test_no_kernel_is_kept_from_an_earlier_call")],
    ),
    44: (
        "a call with NumPy arrays runs on the device where AWS's package answers",
        [(NUMBERS, "test_a_call_simulates_whatever_nki_simulator_says")],
    ),
    45: (
        "fresh memory: NaN and 4 in AWS's simulator, leftovers on the chip",
        [
            (TIME, "test_what_no_one_wrote_is_seen_when_it_is_used"),
            (OWN, "test_garbage_times_zero_is_garbage"),
        ],
    ),
    46: (
        "rows of padding that are reduced",
        [(NUMBERS, "test_rows_of_padding_are_seen_when_they_are_added_up")],
    ),
    47: (
        "a tile outside of the loop serialises it",
        [(NUMBERS, "test_a_tile_for_all_rounds_makes_them_wait_as_does_an_address")],
    ),
    48: (
        "one bank of PSUM makes products wait for copies",
        [(TIME, "test_one_bank_makes_the_next_product_wait")],
    ),
    49: (
        "an address switches rotation off",
        [(NUMBERS, "test_a_tile_for_all_rounds_makes_them_wait_as_does_an_address")],
    ),
    50: (
        "a repeated destination",
        [(NUMBERS, "test_a_repeated_destination_keeps_the_last_element")],
    ),
    51: ("a shape is a tuple, no list", [(MAIN, "test_a_shape_is_a_tuple")]),
    52: (
        "list.pop(0), index and count of AWS's first front end",
        "kernels run as Python here, as in releases since 0.3; those of 0.1 and 0.2 are not run",
    ),
    53: (
        "registers have no arithmetic",
        [(TIME, "test_registers_have_no_arithmetic_and_loop_variables_are_frozen")],
    ),
    54: (
        "tiles of a loop of the device are one allocation, and end with it",
        [
            (TIME, "test_what_a_loop_of_the_device_makes_ends_with_it"),
            (TIME, "test_tiles_of_a_loop_of_the_device_are_one_allocation"),
        ],
    ),
    55: (
        "cores create shared tensors in one order",
        [
            (TIME, "test_cores_create_their_shared_tensors_in_one_order"),
            (TIME, "test_shared_tensors_are_one_and_private_ones_two"),
        ],
    ),
    56: (
        "a barrier blocks one engine",
        [
            (CORES, "test_a_barrier_holds_up_its_engine_and_no_other"),
            (CORES, "test_a_barrier_orders_the_tensor_that_it_names"),
        ],
    ),
    57: ("exchanges meet by pipe_id", [(TIME, "test_exchanges_with_other_pipes_never_meet")]),
    58: (
        "a simulator that passes is no build that passes; 212,984 bytes a partition",
        [
            (OWN, "test_a_partition_of_trn2_has_212984_bytes"),
            ("test_language_limits", "test_each_construct_is_found_and_its_remedy_is_not"),
        ],
    ),
    59: (
        "the compiler may leave loads out",
        [("test_nki_published", "test_loads_that_are_repeated_can_be_left_out_by_name")],
    ),
    60: (
        "DMA inside of HBM and inside of SBUF",
        [(NUMBERS, "test_copies_inside_of_hbm_and_inside_of_sbuf")],
    ),
    61: (
        "one partition at a time: copies and reductions that no build takes",
        [(OWN, "test_work_on_one_partition_at_a_time_is_refused")],
    ),
    62: (
        "unary operators take None or 0",
        [(NUMBERS, "test_unary_operators_take_no_other_operand_than_zero")],
    ),
    63: (
        "the Scalar Engine copies since trn2",
        [(NUMBERS, "test_the_scalar_engine_copies_since_trn2")],
    ),
    64: (
        "a transpose of 16 bits goes into a PSUM tile of 16 bits",
        [(NUMBERS, "test_narrow_tiles_are_transposed_into_narrow_psum")],
    ),
    65: (
        "255 keeps a partition; partitions begin at 0, 32, 64 or 96",
        [
            (MAIN, "test_255_keeps_a_partition"),
            (OWN, "test_work_on_one_partition_at_a_time_is_refused"),
        ],
    ),
}


@cache
def functions(module: str) -> set[str]:
    [file] = HERE.rglob(f"{module}.py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_trap_has_a_test_or_a_reason():
    assert sorted(TRAPS) == list(range(1, 66))
    for number, (what, tests) in TRAPS.items():
        assert what, number
        if isinstance(tests, str):
            assert len(tests) > 40, number
            continue
        assert tests, number
        for module, name in tests:  # type: ignore[attr-defined]
            assert name.startswith("test_") and name in functions(module), (number, name)


# -- those that have no other place ---------------------------------------------------------------


def ids(run):
    return {f.id for f in run.findings}


def turned(x, rows, many=0):
    """Gather as many rows (0: one for each index) and transpose them."""
    i, n, wide = nl.load(rows), many or rows.shape[0] * rows.shape[1], x.shape[1]
    t = nl.ndarray((wide, n), dtype=x.dtype)
    nisa.dma_transpose(t, x.ap([[wide, n], [1, wide]], vector_offset=i))
    return t


def some_rows(count, *shape):
    return np.random.default_rng(1).permutation(512)[:count].astype(np.uint32).reshape(shape)


def test_indices_of_a_transposing_gather_count_column_by_column():
    x = array(512, 32).astype(ml_dtypes.bfloat16)
    one = some_rows(48, 48, 1)
    assert (through(turned, x, one) == x[one[:, 0]].T).all()
    two = some_rows(256, 128, 2)
    got = through(turned, x, two)
    assert (got == x[two.T.reshape(-1)].T).all() and (got != x[two.reshape(-1)].T).any()


@pytest.mark.parametrize("shape, many", [((64, 1), 48), ((128, 2), 144), ((128, 3), 256)])
def test_a_transposing_gather_leaves_indices_over(shape, many):
    """The documentation: `indices.T.flatten()[:src.shape[0]]`."""
    x, rows = array(512, 32).astype(ml_dtypes.bfloat16), some_rows(prod(shape), *shape)
    used = rows.T.reshape(-1)[:many]
    assert (through(lambda x, i: turned(x, i, many), x, rows) == x[used].T).all()
    wrong = rows.T.reshape(-1).copy()
    wrong[many:] = 600  # what is left over moves nothing
    wrong = wrong.reshape(shape[::-1]).T.copy()
    assert (through(lambda x, i: turned(x, i, many), x, wrong) == x[used].T).all()


@pytest.mark.parametrize("inner", [(8, 4), (1, 8, 4), (8, 1, 4)])
def test_a_transposing_gather_of_rows_that_are_cut(inner):
    x, rows = array(512, 32).astype(ml_dtypes.bfloat16), some_rows(32, 32, 1)
    axes = (2, 1, 0) if len(inner) == 2 else (3, 1, 2, 0)
    want = x[rows[:, 0]].reshape(32, *inner).transpose(axes)

    def kernel(x, i):
        t = nl.ndarray(want.shape, dtype=x.dtype)
        steps = [32, *(prod(inner[d + 1 :]) for d in range(len(inner)))]
        pattern = [*map(list, zip(steps, (32, *inner)))]
        nisa.dma_transpose(t, x.ap(pattern, vector_offset=nl.load(i)), axes=axes)
        return t

    assert (through(kernel, x, rows) == want).all()


def test_what_a_transposing_gather_does_not_take():
    x = array(512, 32).astype(ml_dtypes.bfloat16)
    refused("NKI-S03", turned, x, np.zeros((64, 1), np.int32), text="uint32")

    def four(x, i):
        t = nl.ndarray((4, 2, 4, 16), dtype=x.dtype)
        pattern = [[32, 16], [16, 2], [4, 4], [1, 4]]
        nisa.dma_transpose(t, x.ap(pattern, vector_offset=nl.load(i)))
        return t

    refused("NKI-S03", four, x, np.zeros((16, 1), np.uint32), text="one of the two dims")
    few = np.zeros((16, 1), np.uint32)
    refused("NKI-N02", lambda x, i: turned(x, i, 32), x, few, text="16 offsets for 32 rows")


def test_only_a_transpose_takes_columns_of_indices_and_more_than_rows():
    x = array(512, 32).astype(ml_dtypes.bfloat16)
    rows = np.zeros((64, 2), np.uint32)
    refused("NKI-S03", turned, x, rows, text="(128, n)")
    refused("NKI-S03", turned, array(512, 32), rows[:, :1].copy(), text="2-byte")

    def copied(x, rows):
        t = nl.ndarray((128, 32), dtype=x.dtype)
        nisa.dma_copy(t, x.ap([[32, 128], [1, 32]], vector_offset=nl.load(rows)))
        return t

    def loaded(x, rows, many=32):
        return nl.load(x.ap([[32, many], [1, 32]], vector_offset=nl.load(rows)))

    def stored(x, rows):
        t = nl.load(x[0:32])
        nl.store(x.ap([[32, 32], [1, 32]], vector_offset=nl.load(rows)), t)
        return t

    refused("NKI-N02", copied, x, rows, text="dma_transpose")
    for kernel in loaded, stored:
        refused("NKI-N02", kernel, x, rows[:16].copy(), text="several columns")
        refused("NKI-N02", kernel, x, rows[:, :1].copy(), text="indices[0:32]")
    one = some_rows(32, 32, 1)
    assert (through(loaded, x, one) == x[one[:, 0]]).all()


def test_an_identity_is_not_loaded_again():
    refused(
        "NKI-M0",
        lambda x: nl.store(x, nl.load(nl.shared_identity_matrix(4, nl.float32))),
        array(4, 4),
    )


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_a_seed_may_not_reach_random_numbers_before_trn3(target):
    def kernel(x, seeded):
        if seeded:
            nl.random_seed(nl.full((1, 1), 7, nl.uint32))
        out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.rand((4, 8), nl.float32))
        return out

    runs = [nkisim.run(nki.jit(kernel), array(4, 4), True, target=target) for _ in range(2)]
    assert (runs[0].outputs == runs[1].outputs).all()
    assert ("NKI-R10" in ids(runs[0])) == (target == "trn2")
    assert "NKI-R10" not in ids(nkisim.run(nki.jit(kernel), array(4, 4), False, target=target))


@pytest.mark.parametrize(
    "second",
    [
        "tensor_scalar_reduce",
        "range_select",
        "select_reduce",
        "tensor_scalar_cumulative",
        "activation",
    ],
)
def test_all_that_reduce_on_an_engine_share_its_accumulators(second):
    """A sum kept by one instruction, and another one's between: the Scalar Engine has its own."""
    x = np.abs(array(4, 8)) + 1
    cmd = nisa.reduce_cmd

    def body(x):
        t, total = nl.load(x), nl.ndarray((4, 1), dtype=nl.float32)
        other, top = nl.ndarray((4, 8), dtype=nl.float32), nl.ndarray((4, 1), dtype=nl.float32)
        nisa.tensor_scalar_reduce(other, t, nl.multiply, 1.0, nl.add)
        if second == "tensor_scalar_reduce":
            nisa.tensor_scalar_reduce(other, t, nl.multiply, 0.0, nl.add, top)
        elif second == "range_select":
            low, high = (nl.full((4, 1), v, nl.float32) for v in (0.0, 8.0))
            nisa.range_select(other, t, nl.greater_equal, nl.less, low, high, reduce_res=top)
        elif second == "select_reduce":
            nisa.select_reduce(
                other,
                nl.full((4, 8), 1.0, nl.float32),
                t,
                0.0,
                reduce_res=top,
                reduce_cmd=cmd.reset_reduce,
            )
        elif second == "tensor_scalar_cumulative":
            nisa.tensor_scalar_cumulative(other, t, nl.multiply, nl.add, 0.0)
        else:
            nisa.activation(
                other, nl.copy, t, reduce_op=nl.add, reduce_res=top, reduce_cmd=cmd.reset_reduce
            )
        nisa.tensor_scalar_reduce(other, t, nl.multiply, 0.0, nl.add, total, reduce_cmd=cmd.reduce)
        return total

    kept = np.allclose(through(body, x)[:, 0], x.sum(1), rtol=1e-4)
    assert kept == (second == "activation")


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_8_bit_floats_end_where_their_dtype_says_and_are_taken_for_another(target):
    x = np.array([[300.0, -448.0, 240.0, 1.0]] * 4, np.float32)

    @nki.jit
    def kernel(x, wide):
        dtype = nl.float8_e4m3fn if wide else nl.float8_e4m3
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        t, back = nl.ndarray(x.shape, dtype=dtype), nl.ndarray(x.shape, dtype=nl.float32)
        nisa.tensor_copy(t, nl.load(x))
        nisa.tensor_copy(back, t)
        nisa.dma_copy(out, back)
        return out

    wide, narrow = (nkisim.run(kernel, x, w, target=target) for w in (True, False))
    assert wide.outputs[0].tolist() == [288.0, -448.0, 240.0, 1.0]
    assert np.isinf(narrow.outputs[0, :2]).all() and narrow.outputs[0, 2] == 240
    assert ("NKI-R08" in ids(wide)) == (target == "trn2") and "NKI-R08" not in ids(narrow)


@pytest.mark.parametrize(
    "shape, dtype, ok",
    [
        ((16, 128), ml_dtypes.bfloat16, True),
        ((16, 64), ml_dtypes.bfloat16, True),
        ((4, 8, 16), ml_dtypes.bfloat16, True),
        ((32, 128), ml_dtypes.bfloat16, False),
        ((16, 128), np.float32, False),
        ((16, 8, 128), ml_dtypes.bfloat16, True),
        ((3, 16, 16), ml_dtypes.bfloat16, False),
    ],
)
def test_a_transpose_by_hardware_descriptors_has_its_shapes(shape, dtype, ok):
    def body(x):
        t = nl.ndarray(shape[::-1], dtype=x.dtype)
        nisa.dma_transpose(t, x, dge_mode=nisa.dge_mode.hwdge)
        return t

    x = np.ones(shape, dtype)
    if ok:
        assert (through(body, x) == 1).all()
    else:
        refused("NKI-S03", body, x, text="hwdge")


def test_garbage_times_zero_is_garbage():
    def kernel(x, filled):
        t = nl.ndarray((4, 8), dtype=nl.float32)
        if filled:
            nisa.memset(t, 5.0)
        nisa.dma_copy(dst=t[:, 0:4], src=x)
        nisa.tensor_scalar(t, t, nl.multiply, 0.0)
        out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, t)
        return out

    assert "NKI-U02" in ids(nkisim.run(nki.jit(kernel), array(4, 4), False))
    assert "NKI-U02" not in ids(nkisim.run(nki.jit(kernel), array(4, 4), True))


def test_a_partition_of_trn2_has_212984_bytes():
    def body(x, elements):
        t = nl.ndarray((4, elements), dtype=nl.uint8)
        for begin in range(0, elements, 65_536):  # as many as an instruction takes
            nisa.memset(t[:, begin : min(begin + 65_536, elements)], 1)
        return t[:, 0:4]

    x = array(4, 4)
    assert (through(lambda x: body(x, 212_984), x) == 1).all()
    refused("NKI-M04", lambda x: body(x, 212_985), x)


@pytest.mark.parametrize("what", ["copy", "reduction"])
def test_work_on_one_partition_at_a_time_is_refused(what):
    """Twins: a row after the other, and all of them at once."""

    def body(x, rows):
        t, out = nl.load(x), nl.ndarray((16, 8), dtype=nl.float32)
        sums = nl.ndarray((16, 1), dtype=nl.float32)
        for r in range(0, 16, rows):
            if what == "copy":
                nisa.tensor_copy(out[r : r + rows], t[r : r + rows])
            else:
                nisa.tensor_reduce(sums[r : r + rows], nl.add, t[r : r + rows], 1)
        return out if what == "copy" else sums

    x = array(16, 8)
    want = x if what == "copy" else x.sum(1, keepdims=True)
    np.testing.assert_allclose(through(lambda x: body(x, 16), x), want, rtol=1e-5)
    refused("NKI-P04", lambda x: body(x, 1), x)
