"""Where the simulator does not do what the documentation says, with the reason.

Names are those of the tests: "row-mask-dtype-rank" in test_row_matrix.py, with `*` for any, and
the ids of test_row_arguments.py. A test that is named here must fail: one that passes has been
mended, and its name goes.
"""
from __future__ import annotations

import fnmatch

import pytest

MATRIX: dict[str, str] = {
    "a mask with comparisons on a run-time indexed destination is refused":
        """
        atomic_rmw-both-*-* atomic_rmw-free-*-* atomic_rmw-partition-*-* store.rows-both-*-*
        store.rows-free-*-* store.rows-partition-*-* tensor_copy_dynamic_dst-both-*-*
        tensor_copy_dynamic_dst-free-*-* tensor_copy_dynamic_dst-partition-*-*
        tensor_copy_dynamic_dst-slanted-*-*""",
    "a mask that leaves a range of the flattened free dims is refused, and called no box":
        """
        nc_transpose-both-*-3d1 nc_transpose-free-*-3d1 nc_transpose-free_first-*-*
        nc_transpose_dve-both-*-3d1 nc_transpose_dve-free-*-3d1 nc_transpose_dve-free_first-*-*""",
    "a mask on free dims and a reduction are refused, even where no position changes":
        """
        range_select-free-*-2d range_select-free-*-3d1 range_select-free_first-*-3d""",
}

ARGUMENTS: dict[str, str] = {
    "GpSimd reads or writes PSUM":
        """
        affine_select-from-psum affine_select-to-psum iota-to-psum memories-affine_select
        memories-gather_flattened memories-iota memories-local_gather memories-sequence_bounds
        memories-tensor_partition_reduce tensor_tensor-int32-psum tensor_tensor-int32-to-psum
        tensor_tensor-power-psum""",
    "an engine that cannot do it is taken without a word":
        """
        tensor_scalar-gpsimd-add tensor_scalar-scalar-engine-subtract
        tensor_scalar-scalar-engine-trn1 tensor_tensor-gpsimd-maximum
        tensor_tensor-vector-power""",
    "a dtype that the documentation excludes passes without a word":
        """
        affine_select-int32 dropout-int-result find_index8-dtype match_replace8-dst_idx
        predicated-predicate-dtype predicated-predicate-int8 predicated-src-dtype
        select_reduce-on_true-dtype select_reduce-predicate-dtype sequence_bounds-dtype""",
    "an argument is taken and never read":
        """
        tensor_reduce-bitvec-negate""",
}


def marks_of(name: str) -> list:
    """Return the marks of a test: that it must fail, if it is a known disagreement."""
    for known in (MATRIX, ARGUMENTS):
        for reason, names in known.items():
            if any(fnmatch.fnmatch(name, pattern) for pattern in names.split()):
                return [pytest.mark.xfail(strict=True, reason=reason)]
    return []
