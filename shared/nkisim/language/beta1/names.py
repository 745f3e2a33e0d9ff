"""The public names of `neuronxcc.nki`: those of the API reference of Neuron SDK 2.26, its last."""

from __future__ import annotations

NAMES = {
    "nki": "FrameworkKernel baremetal benchmark jit profile simulate_kernel tensor trace",
    "nl": """
        bfloat16 bfp16 bool_ float16 float32 float8_e4m3 float8_e5m2 fp32 int16 int32 int8 tfloat32
        uint16 uint32 uint8
        hbm private_hbm psum sbuf shared_hbm
        ndarray empty_like zeros zeros_like ones full rand random_seed shared_constant
        shared_identity_matrix
        arange ds expand_dims mgrid par_dim
        load load_transpose2d store atomic_rmw copy broadcast_to gather_flattened static_cast
        abs add all all_reduce arctan bitwise_and bitwise_or bitwise_xor ceil cos divide dropout
        equal erf erf_dx exp floor fmod gelu gelu_apprx_sigmoid gelu_apprx_tanh gelu_dx greater
        greater_equal invert left_shift less less_equal log logical_and logical_not logical_or
        logical_xor loop_reduce matmul max maximum mean min minimum mish mod multiply negative
        not_equal power prod reciprocal relu right_shift rms_norm rsqrt sigmoid sign silu silu_dx
        sin softmax softplus sqrt square subtract sum tan tanh transpose trunc var where
        affine_range sequential_range static_range
        device_print finfo gemm_grid gemm_stationary_grid nc num_programs program_id program_ndim
        spmd_dim tile_size""",
    "nisa": """
        activation activation_reduce affine_select bn_aggr bn_stats builtin_custom_op dma_copy
        dma_transpose dropout iota local_gather max8 memset nc_find_index8 nc_match_replace8
        nc_matmul nc_stream_shuffle nc_transpose range_select reciprocal scalar_tensor_tensor
        select_reduce sequence_bounds tensor_copy tensor_copy_dynamic_dst tensor_copy_dynamic_src
        tensor_copy_predicated tensor_partition_reduce tensor_reduce tensor_scalar
        tensor_scalar_reduce tensor_tensor tensor_tensor_scan
        dge_mode dma_engine engine fp32 get_nc_version gpsimd_engine nc_version oob_mode reduce_cmd
        scalar_engine tensor_engine unknown_engine vector_engine""",
    "ncc": """allocation_scope enable_stack_allocator force_auto_alloc multi_buffer no_reorder psum
        sbuf skip_middle_end_transformations""",
}
