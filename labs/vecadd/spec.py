"""The vecadd lab as data: kernels, sizes, and what each case must do."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit import (
    Case,
    Lab,
    MustFailNumerically,
    MustRaise,
    RubricLine,
    Step,
    Tensor,
)

KERNELS = {
    "naive": "vector_add_naive",
    "tiled": "vector_add_tiled",
    "stream": "vector_add_stream",
    "alloc": "vector_add_direct_allocation",
    "alloc_bad": "vector_add_direct_allocation_bad",
    "transpose": "matrix_transpose",
}
#: Which constant of the kernels a tester flag replaces, by kernel.
FREE_DIM_OF = {"stream": "FREE_DIM", "alloc": "ALLOC_FREE_DIM", "alloc_bad": "ALLOC_FREE_DIM"}
_SHORT = {"ROW_CHUNK": "rows", "FREE_DIM": "free", "ALLOC_FREE_DIM": "free"}
PARTITION_LIMIT = "err_num_partition_exceed_arch_limit"
WHY_BAD = ("All three tensors begin at SBUF address 0, so they are the same bytes. The load of b "
           "overwrites a before the addition reads it, and what is stored is b + b. On the chip "
           "the engines run side by side, so other mixtures appear as well. Give each tensor its "
           "own range of addresses: its physical tiles times their bytes per partition apart.")
WHY_NAIVE = "A vector lies along the partitions, and there are 128 of them."


def add_case(kernel: str, size: int, **more: Any) -> Case:
    """Return a case of one of the vector additions; `more` as in `Case`."""
    constants = more.get("constants", {})
    suffix = "".join(f"_{_SHORT[name]}{value}" for name, value in constants.items())
    if kernel == "alloc_bad":
        more.setdefault("expect", MustFailNumerically(WHY_BAD))
    if kernel.startswith("alloc"):
        more["hw_options"] = {"disable_allocation_opt": True}
    return Case(f"{kernel}_{size}{suffix}", KERNELS[kernel], "add",
                (Tensor((size,)), Tensor((size,))), **more)


def transpose_case(rows: int, columns: int, **more: Any) -> Case:
    """Return a case of the transpose. Values are only moved: the result must be exact.

    A tile of 128 x 128 takes two transfers, element by element 32,768; 64 leave much room.
    """
    return Case(f"transpose_{rows}x{columns}", KERNELS["transpose"], "transpose",
                (Tensor((rows, columns)),), accumulate=0,
                most_transfers=64 * -(-rows // 128) * -(-columns // 128),
                uses=("nc_transpose", "nc_matmul"), **more)


def _row_chunk(size: int, chunk: int, **more: Any) -> Case:
    return add_case("tiled", size, constants={"ROW_CHUNK": chunk}, **more)


def _free_dim(kernel: str, size: int, free: int, **more: Any) -> Case:
    return add_case(kernel, size, constants={FREE_DIM_OF[kernel]: free}, **more)


TRANSPOSES = ("transpose_128x128", "transpose_256x384", "transpose_1024x512")
_TOO_MANY = {"expect": MustRaise(PARTITION_LIMIT, WHY_NAIVE)}
_FULL: dict[str, Any] = {"fleets": ("full",)}

LAB = Lab(
    name="vecadd",
    title="Learning NKI with vector addition",
    folder=Path(__file__).parent,
    cases=(
        add_case("naive", 128),
        add_case("naive", 25600, **_TOO_MANY),
        add_case("naive", 256000, **_TOO_MANY),
        _row_chunk(128, 128),
        _row_chunk(25600, 128),
        _row_chunk(256000, 128),
        _row_chunk(25600, 256, **_TOO_MANY),
        _row_chunk(25600, 1, **_FULL),
        _free_dim("stream", 128, 1),
        _free_dim("stream", 25600, 2),
        _free_dim("stream", 25600, 200),
        _free_dim("stream", 256000, 1000),
        _free_dim("stream", 256000, 2000),
        _free_dim("alloc", 128, 1),
        _free_dim("alloc", 25600, 50),
        _free_dim("alloc", 256000, 1000),
        _free_dim("alloc_bad", 128, 1),
        _free_dim("alloc_bad", 25600, 50),
        _free_dim("alloc_bad", 256000, 1000),
        transpose_case(128, 128),
        transpose_case(256, 384),
        transpose_case(1024, 512),
        transpose_case(4096, 4096, **_FULL),
    ),
    rubric=(RubricLine("matrix_transpose", 10, TRANSPOSES),),
    steps=(Step(4, "Step 4: transpose a matrix", TRANSPOSES),),
)
