"""Where the simulator does not do what the documentation says, with the reason.

Names are those of the tests: "row-mask-dtype-rank" in test_row_matrix.py, with `*` for any, and
the ids of test_row_arguments.py. A test that is named here must fail: one that passes has been
mended, and its name goes.
"""
from __future__ import annotations

import fnmatch

import pytest

# the scratch tile that a mask without a box is computed in holds whatever was there
UNSTABLE = "what is neither predicated nor shuffled is garbage under a mask that is no box"

MATRIX: dict[str, str] = {
    "a (P, 1) operand of a tile of more than two dims is cut along the wrong dims by a mask":
        """
        activation.vectors-both-*-3d activation.vectors-both-*-3d1 activation.vectors-both-*-4d
        activation.vectors-free-*-3d activation.vectors-free-*-3d1 activation.vectors-free-*-4d
        activation.vectors-free_first-*-* activation.vectors-free_middle-*-*
        activation.vectors-partition-*-3d activation.vectors-partition-*-3d1
        activation.vectors-partition-*-4d dropout-*-bfloat16-3d1 dropout-*-float16-4d
        dropout-*-float8_e5m2-3d1 dropout-both-*-3d1 dropout-both-*-4d dropout-free-*-3d
        dropout-free-*-3d1 dropout-free-float32-4d dropout-free_first-*-4d
        dropout-partition-*-3d dropout.int-both-*-3d dropout.int-both-*-3d1
        dropout.int-both-*-4d dropout.int-free-*-3d dropout.int-free-*-3d1
        dropout.int-free-*-4d dropout.int-free_first-*-* dropout.int-free_middle-*-*
        dropout.int-partition-*-3d dropout.int-partition-*-4d scalar_tensor_tensor-both-*-3d
        scalar_tensor_tensor-both-*-3d1 scalar_tensor_tensor-both-*-4d
        scalar_tensor_tensor-free-*-3d scalar_tensor_tensor-free-*-3d1
        scalar_tensor_tensor-free-*-4d scalar_tensor_tensor-free_first-*-*
        scalar_tensor_tensor-free_middle-*-* scalar_tensor_tensor-partition-*-3d
        scalar_tensor_tensor-partition-*-3d1 scalar_tensor_tensor-partition-*-4d
        select_reduce-*-int8-4d select_reduce-both-*-3d select_reduce-both-*-3d1
        select_reduce-both-float32-4d select_reduce-free-*-3d select_reduce-free-bfloat16-*
        select_reduce-free-uint8-* select_reduce-free_first-*-* select_reduce-free_middle-*-*
        select_reduce-partition-*-3d1 select_reduce-partition-float32-4d
        tensor_tensor_scan-both-*-3d tensor_tensor_scan-both-*-3d1 tensor_tensor_scan-both-*-4d
        tensor_tensor_scan-free-*-3d tensor_tensor_scan-free-*-3d1 tensor_tensor_scan-free-*-4d
        tensor_tensor_scan-free_first-*-* tensor_tensor_scan-free_middle-*-*
        tensor_tensor_scan-partition-*-3d tensor_tensor_scan-partition-*-3d1
        tensor_tensor_scan-partition-*-4d""",
    "reduce_res is written, or cannot be written, where the mask leaves no work (or its (P, "
    "1) operands are cut wrongly)":
        """
        activation.reduce-both-*-* activation.reduce-free-*-3d activation.reduce-free-*-3d1
        activation.reduce-free-*-4d activation.reduce-free_first-*-*
        activation.reduce-free_middle-*-* activation.reduce-partition-*-*
        activation_reduce-both-*-* activation_reduce-free-*-3d activation_reduce-free-*-3d1
        activation_reduce-free-*-4d activation_reduce-free_first-*-*
        activation_reduce-free_middle-*-* activation_reduce-partition-*-*
        range_select-*-bfloat16-3d1 range_select-*-bfloat16-4d range_select-*-float16-4d
        range_select-*-float8_e4m3-3d range_select-*-float8_e5m2-3d range_select-both-*-3d
        range_select-both-*-4d range_select-both-float32-2d range_select-free-*-3d
        range_select-free-*-4d range_select-free-float8_e5m2-* range_select-free_first-*-*
        range_select-free_middle-*-* range_select-partition-float32-*
        select_reduce.reduce-both-*-* select_reduce.reduce-free-*-3d
        select_reduce.reduce-free-*-3d1 select_reduce.reduce-free-*-4d
        select_reduce.reduce-free_first-*-* select_reduce.reduce-free_middle-*-*
        select_reduce.reduce-partition-*-* tensor_scalar_reduce-both-*-*
        tensor_scalar_reduce-free-*-3d tensor_scalar_reduce-free-*-3d1
        tensor_scalar_reduce-free-*-4d tensor_scalar_reduce-free_first-*-*
        tensor_scalar_reduce-free_middle-*-* tensor_scalar_reduce-partition-*-*""",
    "nc_transpose of more than two dims cannot have a mask":
        """
        nc_transpose-both-*-3d1 nc_transpose-free-*-3d1 nc_transpose-free_first-*-*
        nc_transpose-partition-*-3d nc_transpose-partition-*-3d1 nc_transpose-partition-*-4d
        nc_transpose_dve-both-*-3d1 nc_transpose_dve-free-*-3d1 nc_transpose_dve-free_first-*-*
        nc_transpose_dve-partition-*-3d nc_transpose_dve-partition-*-3d1
        nc_transpose_dve-partition-*-4d""",
    "gather_flattened does not cut its data to the partitions of the mask":
        """
        gather_flattened-both-*-* gather_flattened-partition-*-*""",
    "the mask of nc_stream_shuffle cuts src, but it is over dst":
        """
        nc_stream_shuffle-both-*-2d nc_stream_shuffle-both-*-3d1 nc_stream_shuffle-both-*-4d
        nc_stream_shuffle-partition-*-2d nc_stream_shuffle-partition-*-3d1
        nc_stream_shuffle-partition-*-4d""",
    "the mask is never read":
        """
        dma_transpose-both-*-* dma_transpose-false-*-* dma_transpose-free-*-*
        dma_transpose-free_first-*-* dma_transpose-free_middle-*-* dma_transpose-partition-*-*
        dma_transpose-true-*-* tensor_scalar_cumulative-both-*-*
        tensor_scalar_cumulative-false-*-* tensor_scalar_cumulative-free-*-*
        tensor_scalar_cumulative-free_first-*-* tensor_scalar_cumulative-free_middle-*-*
        tensor_scalar_cumulative-partition-*-* tensor_scalar_cumulative-true-*-*""",
    "a mask on an indirect access is refused, even True or False":
        """
        atomic_rmw-both-*-* atomic_rmw-false-*-* atomic_rmw-free-*-* atomic_rmw-partition-*-*
        atomic_rmw-true-*-* store.rows-both-*-* store.rows-false-*-* store.rows-free-*-*
        store.rows-partition-*-* store.rows-true-*-* tensor_copy_dynamic_dst-both-*-*
        tensor_copy_dynamic_dst-false-*-* tensor_copy_dynamic_dst-free-*-*
        tensor_copy_dynamic_dst-partition-*-* tensor_copy_dynamic_dst-slanted-*-*
        tensor_copy_dynamic_dst-true-*-*""",
    "affine_select refuses an equality, which is one comparison":
        """
        affine_select-*-*-3d1""",
    UNSTABLE: "tensor_copy_predicated-slanted-* nc_stream_shuffle-slanted-*",
}

ARGUMENTS: dict[str, str] = {
    "two tiles of other shapes meet by broadcasting, or not at all, instead of in element order":
        """
        predicated-4x1x6-4x6x1 predicated-4x2x3-4x3x2 predicated-4x3x1-4x1x3
        predicated-4x6x1-4x2x3 scalar_tensor_tensor-4x1x6-4x6x1
        scalar_tensor_tensor-4x24-4x4x3x2 scalar_tensor_tensor-4x2x3-4x3x2
        scalar_tensor_tensor-4x3x1-4x1x3 scalar_tensor_tensor-4x6-4x2x3
        scalar_tensor_tensor-4x6x1-4x2x3 scalar_tensor_tensor-4x7-4x1x7
        scalar_tensor_tensor-4x7-4x7x1 scalar_tensor_tensor-4x7x1-4x7 select-4x1x6-4x6x1
        select-4x1x7-4x7 select-4x24-4x4x3x2 select-4x2x3-4x3x2 select-4x2x3-4x6
        select-4x2x3x1-4x6 select-4x2x3x4-4x24 select-4x3x1-4x1x3 select-4x6-4x2x3
        select-4x6x1-4x2x3 select-4x7-4x1x7 select-4x7-4x7x1 select-4x7x1-4x7
        tensor_tensor-4x1x6-4x6x1 tensor_tensor-4x24-4x4x3x2 tensor_tensor-4x2x3-4x3x2
        tensor_tensor-4x3x1-4x1x3 tensor_tensor-4x6-4x2x3 tensor_tensor-4x6x1-4x2x3
        tensor_tensor-4x7-4x1x7 tensor_tensor-4x7-4x7x1 tensor_tensor-4x7x1-4x7
        tensor_tensor_scan-4x1x6-4x6x1 tensor_tensor_scan-4x24-4x4x3x2
        tensor_tensor_scan-4x2x3-4x3x2 tensor_tensor_scan-4x3x1-4x1x3
        tensor_tensor_scan-4x6-4x2x3 tensor_tensor_scan-4x6x1-4x2x3
        tensor_tensor_scan-4x7-4x1x7 tensor_tensor_scan-4x7-4x7x1 tensor_tensor_scan-4x7x1-4x7""",
    "an argument is taken and never read":
        """
        cumulative-dtype predicated-dtype random_seed-mask range_select-on_false_value
        range_select-reduce_op select_reduce-dtype stream_shuffle-dtype-argument
        tensor_reduce-bitvec-negate""",
    "the record of a copy that adds is that of a plain copy":
        """
        dma_copy-rmw-affine dma_copy-rmw-record""",
    "affine_select refuses an equality, which is one comparison":
        """
        affine_select-equal""",
    "an engine that cannot do it is taken":
        """
        tensor_scalar-gpsimd-add tensor_scalar-scalar-engine-subtract
        tensor_scalar-scalar-engine-trn1 tensor_tensor-gpsimd-maximum
        tensor_tensor-vector-power""",
    "an operator or dtype that the documentation excludes passes, or fails without a word of help":
        """
        affine_select-int32 dropout-int-result find_index8-dtype match_replace8-dst_idx
        partition_reduce-multiply predicated-predicate-dtype predicated-predicate-int8
        predicated-src-dtype range_select-bound-dtype range_select-comp_op0
        range_select-int-data scan-bitvec select_reduce-on_true-dtype
        select_reduce-predicate-dtype sequence_bounds-dtype tensor_reduce-bitvec-float-result
        tensor_scalar_reduce-bitvec tensor_tensor-bitvec-float-result""",
}


def marks_of(name: str) -> list:
    """Return the marks of a test: that it must fail, if it is a known disagreement."""
    for known in (MATRIX, ARGUMENTS):
        for reason, names in known.items():
            if any(fnmatch.fnmatch(name, pattern) for pattern in names.split()):
                return [pytest.mark.xfail(strict=reason != UNSTABLE, reason=reason)]
    return []
