"""Each named condition as a twin: a kernel with the bug is refused, the same without it runs.

A twin is a function of an HBM tensor `x` (256, 512, float32) and `bad`; the line that must be
named carries `# BUG`. The names are those of the SDK's page "NKI API Errors".
"""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim

X = np.random.default_rng(0).random((256, 512), dtype=np.float32) + 0.5
TWINS = []


def twin(id, name="", target="trn1"):
    """Register a twin for the rule `id`."""

    def register(body):
        TWINS.append(pytest.param(id, name, target, body, id=body.__name__))
        return body

    return register


@pytest.mark.parametrize("id, name, target, body", TWINS)
def test_twin(id, name, target, body, breaks):
    @nki.jit
    def kernel(x, bad):
        out = nl.ndarray((1, 1), np.float32, buffer=nl.shared_hbm)
        nl.store(out, 0)
        body(x, bad)
        return out

    nkisim.run(kernel, X, False, target=target)
    breaks(kernel, X, True, id=id, name=name, target=target, body=body)


def sbuf(p=128, f=512, dtype=np.float32, value=1.0):
    return nl.full((p, f), value, dtype)


# -- partitions and sizes --------------------------------------------------------------------------


@twin("NKI-P01", "err_num_partition_exceed_arch_limit")
def load_of_256_partitions(x, bad):
    nl.load(x[0 : 256 if bad else 128])  # BUG


@twin("NKI-P01", "err_num_partition_exceed_arch_limit")
def tensor_of_129_partitions(x, bad):
    nl.ndarray((129 if bad else 128, 4), np.float32, buffer=nl.sbuf)  # BUG


@twin("NKI-P02")
def one_dim_on_chip(x, bad):
    nl.ndarray((128,) if bad else (128, 1), np.float32, buffer=nl.sbuf)  # BUG


@twin("NKI-P03", "err_failed_to_infer_tile_from_local_tensor")
def blocks_in_an_instruction(x, bad):
    t = nl.zeros((2, nl.par_dim(64), 8), np.float32)
    nl.exp(t if bad else t[1])  # BUG


@twin("NKI-P04")
def start_partition(x, bad):
    t = sbuf()
    nl.exp(t[16:48] if bad else t[32:64])  # BUG


@twin("NKI-P04")
def start_partition_of_many(x, bad):
    t = sbuf()
    nl.exp(t[32:97] if bad else t[64:128])  # BUG


@twin("NKI-P06")
def two_partition_dims(x, bad):
    nl.ndarray((nl.par_dim(4) if bad else 4, nl.par_dim(4), 4), np.float32)  # BUG


@twin("NKI-P07", "err_size_of_dimension_exceed_arch_limit")
def wide_moving(x, bad):
    nisa.nc_matmul(sbuf(128, 128), sbuf(128, 513 if bad else 512))  # BUG


@twin("NKI-P07", "err_size_of_dimension_exceed_arch_limit")
def wide_stationary(x, bad):
    nisa.nc_matmul(sbuf(128, 129 if bad else 128), sbuf(128, 512))  # BUG


@twin("NKI-P07", "err_size_of_dimension_exceed_arch_limit")
def wide_transpose(x, bad):
    nisa.nc_transpose(sbuf(64, 129 if bad else 128))  # BUG


@twin("NKI-P07", "err_size_of_dimension_exceed_arch_limit")
def wide_transpose_on_the_vector_engine(x, bad):
    nisa.nc_transpose(sbuf(32, 33 if bad else 32), engine=nisa.vector_engine)  # BUG


@twin("NKI-P08", "err_size_of_dimension_exceed_arch_limit")
def bn_stats_of_513(x, bad):
    nisa.bn_stats(sbuf(128, 513 if bad else 512))  # BUG


@twin("NKI-P08", "err_size_of_dimension_exceed_arch_limit")
def max8_of_seven(x, bad):
    nisa.max8(src=sbuf(128, 7 if bad else 8))  # BUG


@twin("NKI-S03", "err_exceed_max_supported_dimension")
def matmul_of_three_dims(x, bad):
    t = sbuf(64, 64).reshape((64, 8, 8) if bad else (64, 64))
    nl.matmul(t, sbuf(64, 64))  # BUG


@twin("NKI-S12", "err_exceed_max_supported_dimension")
def transpose_of_three_dims(x, bad):
    t = sbuf(64, 64)
    nl.transpose(t.reshape((64, 8, 8)) if bad else t)  # BUG


# -- subscripts ------------------------------------------------------------------------------------


@twin("NKI-I01", "err_tensor_access_out_of_bound")
def slice_beyond_the_tensor(x, bad):
    nl.load(x[200 : 257 if bad else 256])  # BUG


@twin("NKI-I01", "err_tensor_access_out_of_bound")
def arange_beyond_the_tensor(x, bad):
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    nl.load(x[p + (192 if bad else 128), f])  # BUG


@twin("NKI-I01", "err_tensor_access_out_of_bound")
def partial_tile_without_a_mask(x, bad):
    p, f = nl.mgrid[0:128, 0:512]
    mask = None if bad else p + 192 < 256
    nl.load(x[p + 192, f], mask=mask)  # BUG


@twin("NKI-I04", "err_cannot_assign_to_index")
def assignment_to_an_index(x, bad):
    i = nl.arange(128)[:, None] if bad else sbuf()
    i[...] = 0  # BUG


@twin("NKI-I07", "err_unsupported_expression_in_mask")
def mask_of_data(x, bad):
    t = nl.load(x[0:128])
    p, f = nl.mgrid[0:128, 0:512]
    nl.exp(t, mask=t > 0 if bad else (p < 64) & (f < 9))  # BUG


@twin("NKI-I08", "err_ambiguous_tensor_truth_value")
def tensor_in_if(x, bad):
    t = nl.load(x[0:128])
    if t if bad else t.shape:  # BUG
        nl.exp(t)


@twin("NKI-I08", "err_ambiguous_tensor_truth_value")
def tensor_in_not(x, bad):
    t = nl.load(x[0:128])
    return not (t if bad else t.shape)  # BUG


@twin("NKI-I08", "err_ambiguous_tensor_truth_value")
def comparison_of_data_in_if(x, bad):
    t = nl.load(x[0:128])
    if t > 0 if bad else t.shape[0] > 0:  # BUG
        nl.exp(t)


@twin("NKI-I08", "err_ambiguous_tensor_truth_value")
def tensor_in_while(x, bad):
    t = nl.load(x[0:128])
    while t if bad else None:  # BUG
        nl.exp(t)


@twin("NKI-I08", "err_control_flow_condition_depending_on_arange")
def arange_in_if(x, bad):
    i = nl.arange(128)[:, None]
    if i < 64 if bad else 1 < 64:  # BUG
        nl.load(x[0:128])


@twin("NKI-I08", "err_control_flow_condition_depending_on_arange")
def mask_in_not(x, bad):
    p, f = nl.mgrid[0:128, 0:512]
    nl.load(x[p, f], mask=not f < 9 if bad else f >= 9)  # BUG


@twin("NKI-I09", "err_1d_arange_not_supported")
def arange_without_none(x, bad):
    p = nl.arange(128)
    nl.load(x[p if bad else p[:, None], 0])  # BUG


@twin("NKI-I10", "err_unsupported_mixing_basic_advanced_tensor_indexing")
def slice_and_arange(x, bad):
    f = slice(0, 512) if bad else nl.arange(512)[None, :]
    nl.load(x[nl.arange(128)[:, None], f])  # BUG


@twin("NKI-I12", "err_indirect_indices_free_dim")
def index_tile_on_the_free_dim(x, bad):
    idx = nl.zeros((128, 1), np.int32)
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    nl.load(x[p, idx] if bad else x[idx, f])  # BUG


@twin("NKI-I13", "err_indirect_indices_are_not_supported_with_nki_api")
def index_tile_in_load_transpose2d(x, bad):
    idx = nl.zeros((64, 1), np.int32)
    f = nl.arange(64)[None, :]
    nl.load_transpose2d(x[idx, f] if bad else x[0:64, 0:64])  # BUG


# -- shapes ----------------------------------------------------------------------------------------


@twin("NKI-S01", "err_store_dst_shape_smaller_than_other_shape")
def assignment_to_a_smaller_tile(x, bad):
    t = nl.ndarray((128, 256 if bad else 512), np.float32)
    t[...] = nl.load(x[0:128])  # BUG


@twin("NKI-S01", "err_store_dst_shape_smaller_than_other_shape")
def store_to_a_smaller_access(x, bad):
    h = nl.ndarray((128, 512), np.float32, buffer=nl.private_hbm)
    nl.store(h[0:64] if bad else h, nl.load(x[0:128]))  # BUG


@twin("NKI-S02")
def different_free_sizes(x, bad):
    nisa.tensor_tensor(sbuf(), sbuf(f=256 if bad else 512), nl.add)  # BUG


@twin("NKI-S02")
def different_contraction_sizes(x, bad):
    nisa.nc_matmul(sbuf(64 if bad else 128, 128), sbuf(128, 512))  # BUG


@twin("NKI-S04", "err_num_partition_mismatch")
def different_partitions(x, bad):
    nisa.tensor_tensor(sbuf(64 if bad else 128), sbuf(), nl.add)  # BUG


@twin("NKI-S05", "err_annotation_shape_mismatch")
def promised_shape(x, bad):
    nl.load(x[0:128]).assert_shape((128, 256 if bad else 512))  # BUG


@twin("NKI-S09")
def vector_operand(x, bad):
    nisa.tensor_scalar(sbuf(), nl.add, sbuf(f=2 if bad else 1))  # BUG


@twin("NKI-S10")
def reduction_of_partitions(x, bad):
    nisa.tensor_reduce(nl.add, sbuf(), axis=0 if bad else 1)  # BUG


@twin("NKI-S13", target="trn1")
def shuffle_mask(x, bad):
    a, b = sbuf(32), sbuf(32)
    nisa.nc_stream_shuffle(a, b, [32 if bad else 31] * 32)  # BUG


# -- dtypes, engines, operators --------------------------------------------------------------------


@twin("NKI-D01")
def float64(x, bad):
    nl.ndarray((128, 4), np.float64 if bad else np.float32)  # BUG


@twin("NKI-D02")
def complex64(x, bad):
    nl.ndarray((128, 4), np.complex64 if bad else np.float32)  # BUG


@twin("NKI-D05")
def integer_matmul(x, bad):
    nisa.nc_matmul(sbuf(128, 128), sbuf(dtype=np.int32 if bad else np.float32))  # BUG


@twin("NKI-D05")
def float32_with_bfloat16(x, bad):
    a = sbuf(128, 128, nl.bfloat16)
    nisa.nc_matmul(a, sbuf(dtype=np.float32 if bad else nl.bfloat16))  # BUG


@twin("NKI-D06")
def bits_of_a_float(x, bad):
    a = sbuf(dtype=np.float32 if bad else np.int32)
    nisa.tensor_scalar(a, nl.bitwise_and, 1)  # BUG


@twin("NKI-E01")
def engine_that_does_not_copy(x, bad):
    nisa.tensor_copy(sbuf(), engine=nisa.tensor_engine if bad else nisa.scalar_engine)  # BUG


@twin("NKI-E02", "err_unsupported_memory")
def gpsimd_and_psum(x, bad):
    t = nl.zeros((128, 512), np.float32, buffer=nl.psum if bad else nl.sbuf)
    nisa.tensor_copy(t, engine=nisa.gpsimd_engine)  # BUG


@twin("NKI-E03")
def hardware_descriptors_on_trn1(x, bad):
    t = nl.ndarray((128, 512), np.float32)
    mode = nisa.dge_mode.hwdge if bad else nisa.dge_mode.swdge
    nisa.dma_copy(dst=t, src=x[0:128], dge_mode=mode)  # BUG


@twin("NKI-E04")
def multiplying_dma(x, bad):
    h = nl.ndarray((128, 512), np.float32, buffer=nl.private_hbm)
    nl.store(h, 1)
    nisa.dma_copy(dst=h, src=sbuf(), dst_rmw_op=np.multiply if bad else np.add)  # BUG


@twin("NKI-E05")
def mixed_operator_classes(x, bad):
    t = sbuf(dtype=np.int32)
    op = nl.add if bad else nl.bitwise_or
    nisa.tensor_scalar(t, nl.bitwise_and, 1, op1=op, operand1=2)  # BUG


@twin("NKI-E06")
def reduction_by_comparison(x, bad):
    nisa.tensor_reduce(nl.greater if bad else nl.max, sbuf(), axis=1)  # BUG


@twin("NKI-E08", "err_activation_bias_invalid_type")
def integer_bias(x, bad):
    nisa.activation(nl.exp, sbuf(), bias=sbuf(f=1, dtype=np.int32 if bad else np.float32))  # BUG


@twin("NKI-E09", "err_activation_scale_scalar_or_vector")
def matrix_as_scale(x, bad):
    nisa.activation(nl.exp, sbuf(), scale=sbuf(f=128 if bad else 1))  # BUG


@twin("NKI-E10", "err_activation_scale_invalid_type")
def half_scale(x, bad):
    nisa.activation(nl.exp, sbuf(), scale=sbuf(f=1, dtype=np.float16 if bad else np.float32))  # BUG


@twin("NKI-E11")
def unknown_operator(x, bad):
    nisa.tensor_tensor(sbuf(), sbuf(), np.sort if bad else np.add)  # BUG


# -- memories --------------------------------------------------------------------------------------


@twin("NKI-M01", "err_unsupported_memory")
def hbm_in_a_compute_instruction(x, bad):
    nl.exp(x[0:128] if bad else nl.load(x[0:128]))  # BUG


@twin("NKI-M01", "err_unsupported_memory")
def transpose_of_a_psum_tile_on_the_tensor_engine(x, bad):
    t = nl.zeros((128, 128), np.float32, buffer=nl.psum if bad else nl.sbuf)
    nisa.nc_transpose(t, engine=nisa.tensor_engine)  # BUG


@twin("NKI-M01", "err_unsupported_memory")
def dma_to_psum(x, bad):
    t = nl.ndarray((128, 512), np.float32, buffer=nl.psum if bad else nl.sbuf)
    nisa.dma_copy(dst=t, src=x[0:128, 0:512])  # BUG


@twin("NKI-M03", "err_unsupported_memory")
def assignment_to_hbm(x, bad):
    t = nl.ndarray((128, 512), np.float32, buffer=nl.private_hbm if bad else nl.sbuf)
    t[...] = nl.load(x[0:128])  # BUG


@twin("NKI-M04")
def tile_larger_than_a_partition(x, bad):
    nl.ndarray((128, 50_000 if bad else 40_000), np.float32, buffer=nl.sbuf)  # BUG


@twin("NKI-M04")
def tile_larger_than_psum(x, bad):
    nl.ndarray((128, 4097 if bad else 4096), np.float32, buffer=nl.psum)  # BUG


@twin("NKI-M06")
def matmul_across_banks(x, bad):
    psum = nl.zeros((128, 1024), np.float32, buffer=nl.psum)
    lo = 256 if bad else 512
    psum[:, lo : lo + 512] = nisa.nc_matmul(sbuf(128, 128), sbuf())  # BUG


@twin("NKI-M07")
def both_operands_in_psum(x, bad):
    a = nl.zeros((128, 512), np.float32, buffer=nl.psum)
    b = nl.zeros((128, 512), np.float32, buffer=nl.psum if bad else nl.sbuf)
    nisa.tensor_tensor(a, b, nl.add)  # BUG


@twin("NKI-M08", "err_hbm_tensor_with_init_value_not_supported")
def zeros_in_hbm(x, bad):
    nl.zeros((128, 4), np.float32, buffer=nl.hbm if bad else nl.sbuf)  # BUG


# -- loops, launches, outputs ----------------------------------------------------------------------


@twin("NKI-O01", "err_cannot_update_immutable_parameter")
def store_to_an_input(x, bad):
    h = nl.ndarray(x.shape, np.float32, buffer=nl.private_hbm)
    nl.store((x if bad else h)[0:128], nl.load(x[0:128]))  # BUG


@twin("NKI-O05", "err_shared_hbm_must_in_kernel_level")
def shared_hbm_in_a_loop(x, bad):
    for _ in nl.affine_range(2):
        nl.ndarray((4, 4), np.float32, buffer=nl.shared_hbm if bad else nl.private_hbm)  # BUG


# -- direct allocation -----------------------------------------------------------------------------


def direct(*shape, base=0, dtype=np.float32, **kwargs):
    return nl.ndarray(shape, dtype, buffer=ncc.sbuf.mod_alloc(base_addr=base, **kwargs))


@twin("NKI-A01")
def address_beyond_the_partition(x, bad):
    buffer = ncc.sbuf.mod_alloc(base_addr=196_000 if bad else 170_000)
    nl.ndarray((128, 512), np.float32, buffer=buffer)  # BUG


@twin("NKI-A02")
def unaligned_address(x, bad):
    nl.ndarray((128, 4), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=6 if bad else 8))  # BUG


@twin("NKI-A03")
def one_number_a_block_dim(x, bad):
    tiles = (2, 2) if bad else (2,)
    where = ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=tiles)
    nl.ndarray((4, nl.par_dim(128), 8), np.float32, buffer=where)  # BUG


@twin("NKI-A04")
def blocks_without_an_index(x, bad):
    t = nl.ndarray(
        (4, nl.par_dim(128), 8),
        np.float32,
        buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)),
    )
    t[...] if bad else t[0]  # BUG


@twin("NKI-A07", "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel")
def transpose_in_an_allocated_kernel(x, bad):
    t = direct(128, 128)
    p = nl.ndarray((128, 128), np.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
    t[...] = nl.load(x[0:128, 0:128])
    p[...] = nisa.nc_transpose(t) if bad else nisa.nc_matmul(t, t)  # BUG


@twin("NKI-A08", "err_bias_tensor_must_be_specified_in_allocation")
def activation_without_bias(x, bad):
    t, zero = direct(128, 512), direct(128, 1, base=4096)
    zero[...] = 0
    t[...] = nl.load(x[0:128])
    t[...] = nisa.activation(nl.exp, t, bias=None if bad else zero)  # BUG


@twin("NKI-A09", "err_tensor_creation_on_scratchpad_with_init_value_not_supported")
def zeros_at_an_address(x, bad):
    where = ncc.sbuf.mod_alloc(base_addr=0) if bad else nl.sbuf
    nl.zeros((128, 512), np.float32, buffer=where)  # BUG


@twin("NKI-U01")
def read_of_unwritten_memory(x, bad):
    t = nl.ndarray((128, 512), np.float32) if bad else sbuf()
    nl.exp(t)  # BUG
