"""A slow, obviously right NumPy reading of the API reference, for each instruction."""
from __future__ import annotations

from . import dma, gpsimd, scalar, tensor, vector
from .common import Expected, cast

ORACLES = {name: getattr(module, name) for module, names in (
    (vector, """tensor_copy memset tensor_copy_predicated tensor_tensor tensor_scalar
        scalar_tensor_tensor reciprocal tensor_reduce tensor_scalar_reduce tensor_tensor_scan
        tensor_scalar_cumulative max8 nc_find_index8 nc_match_replace8 bn_stats bn_aggr
        select_reduce range_select nc_stream_shuffle dropout"""),
    (scalar, "activation activation_reduce"),
    (tensor, "nc_matmul nc_transpose"),
    (gpsimd, """iota affine_select tensor_partition_reduce local_gather gather_flattened
        sequence_bounds"""),
    (dma, """load store dma_copy load_transpose2d dma_transpose tensor_copy_dynamic_src
        tensor_copy_dynamic_dst"""),
) for name in names.split()}

__all__ = ["ORACLES", "Expected", "cast", "dma", "gpsimd", "scalar", "tensor", "vector"]
