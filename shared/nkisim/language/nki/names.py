"""The public names of `nki`, at release 0.7."""

from __future__ import annotations

NAMES = {
    "nki": "jit simulate",
    "nl": """
        bfloat16 bool_ float16 float32 float4_e2m1fn_x4 float8_e4m3 float8_e4m3fn float8_e4m3fn_x4
        float8_e5m2 float8_e5m2_x4 float8_e8m0fnu int16 int32 int64 int8 tfloat32
        uint16 uint32 uint64 uint8
        hbm private_hbm psum sbuf shared_hbm is_hbm is_on_chip is_psum is_sbuf
        MemoryRegion NKIObject NkiTensor tile_size average bypass prelu
        ndarray empty_like zeros zeros_like ones full rand random_seed shared_constant
        shared_identity_matrix ds expand_dims
        NkiBlockGrid NkiGrid NkiTileGrid alloc_blocks alloc_tiles blocks tiles
        load load_transpose2d store copy broadcast_to gather_flattened device_print no_reorder
        abs abs_max abs_min add all arctan bitwise_and bitwise_or bitwise_xor ceil cos divide
        dropout equal erf erf_dx exp floor fmod gelu gelu_apprx_sigmoid gelu_apprx_sigmoid_dx
        gelu_apprx_tanh gelu_dx greater greater_equal invert left_shift less less_equal log
        logical_and logical_not logical_or logical_xor matmul max maximum mean min minimum mish mod
        multiply negative not_equal power prod reciprocal relu right_shift rms_norm rsqrt sigmoid
        sign silu silu_dx sin softmax softplus sqrt square subtract sum tan tanh transpose trunc
        var where
        affine_range sequential_range static_range dynamic_range fori_loop while_loop
        num_programs program_id program_ndim""",
    "nisa": """
        activate2 activation activation_reduce affine_select bn_aggr bn_stats core_barrier
        dma_compute dma_copy dma_transpose dropout exponential iota local_gather max8 memset
        nc_find_index8 nc_match_replace8 nc_matmul nc_matmul_mx nc_n_gather nc_stream_shuffle
        nc_transpose nonzero_with_count quantize_mx rand2 rand_get_state rand_set_state
        range_select reciprocal register_alloc register_load register_move register_store rng
        scalar_load scalar_store scalar_tensor_tensor select_reduce sendrecv
        sequence_bounds set_rng_seed tensor_copy
        tensor_copy_predicated tensor_partition_reduce tensor_reduce tensor_scalar
        tensor_scalar_cumulative tensor_scalar_reduce tensor_tensor tensor_tensor_scan topk
        NkiInstruction NkiScalar NkiValidationError VirtualRegister dependency dge_mode
        dma_engine engine
        get_nc_sub_version get_nc_version gpsimd_engine matmul_perf_mode nc_version oob_mode
        reduce_cmd scalar_engine tensor_engine unknown_engine vector_engine""",
    "ncc": "AddressRotation CompileConfig SpecializationConfig",
    "nccl": """
        ReplicaGroup all_gather all_gather_v all_gather_v_prepare all_gather_v_trigger all_reduce
        all_to_all all_to_all_v all_to_all_v_prepare all_to_all_v_trigger collective_permute
        collective_permute_implicit collective_permute_implicit_current_processing_rank_id
        collective_permute_implicit_reduce rank_id reduce_scatter""",
}
