"""Where the simulator does not do what the documentation says, with the reason.

Names are those of the tests: "row-mask-dtype-rank" in test_row_matrix.py, with `*` for any, and
the ids of test_row_arguments.py. A test that is named here must fail: one that passes has been
mended, and its name goes.
"""
from __future__ import annotations

import fnmatch

import pytest

MATRIX: dict[str, str] = {
    "a mask that leaves a range of the flattened free dims is refused":
        """
        nc_transpose-both-*-3d1 nc_transpose-free-*-3d1 nc_transpose-free_first-*-*
        nc_transpose_dve-both-*-3d1 nc_transpose_dve-free-*-3d1 nc_transpose_dve-free_first-*-*""",
    "a mask on free dims and a reduction are refused, even where no position changes":
        """
        range_select-free-*-2d range_select-free-*-3d1 range_select-free_first-*-3d""",
    "a sum of 32-bit integers that is asked of the Vector Engine is refused as GpSimd's":
        """
        tensor_tensor-both-int32-2d tensor_tensor-free-int32-2d tensor_tensor-none-uint32-3d""",
}

ARGUMENTS: dict[str, str] = {
    "an engine that cannot do it is taken without a word":
        """
        tensor_scalar-gpsimd-add tensor_scalar-scalar-engine-subtract
        tensor_scalar-scalar-engine-trn1 tensor_tensor-gpsimd-maximum
        tensor_tensor-vector-power""",
    "a dtype that the documentation excludes passes without a word":
        """
        dropout-int-result find_index8-dtype predicated-src-dtype""",
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
