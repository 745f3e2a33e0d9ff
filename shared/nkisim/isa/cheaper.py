"""What makes an instruction cheaper, and when it may: declared by its row, walked by a test.

A form that costs less than the plain one (float32 in SBUF, contiguous) has a reason: a dtype, a
memory, a keyword. A row names each reason, says when it holds, and where that is documented. Some
hold by what the operands are, which the formula looks at. What a kernel merely claims is held to
a rule, which refuses the claim where it is wrong.
"""

from __future__ import annotations

from typing import NamedTuple

_ISA = "Neuron SDK 2.26 API reference: nisa"
_ARCH2 = "Neuron SDK 2.32, Trainium2 Architecture Guide"
_ARCH3 = "Neuron SDK 2.32, Trainium3 Architecture Guide"


class Cheaper(NamedTuple):
    """A reason for which an instruction costs less.

    `by`: what is different: "dtype", "memory", "engine", or a part of the row's variant; `when`:
    the condition; `source`: where it is documented or measured; `rule`: the id of the rule that
    holds a kernel to it, "" where the operands themselves say so; `dtypes`: those that make it
    cheaper, if it is by them.
    """

    by: str
    when: str
    source: str
    rule: str = ""
    dtypes: tuple[str, ...] = ()


_BF16 = ("bfloat16",)
_FLOAT16 = ("bfloat16", "float16")
_NARROW = ("bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn")
#: elements that are moved, whatever they hold
_MOVED = (*_NARROW, "int16", "uint16", "int8", "uint8")
#: which engines can run it is documented, and their clocks; what operators an engine has, NKI-E13
ENGINE = Cheaper(
    "engine",
    "it is one of the engines that are documented for the instruction",
    "Neuron SDK 2.26 and 2.32 API reference: engine=, and the clocks of the architecture guides",
    "NKI-E13",
)
FAST_COPY = Cheaper(
    "dtype",
    "NeuronCore-v3 and newer, on the Vector Engine: all tiles are bfloat16 or float16; 4 "
    "times the rate if they are contiguous in SBUF, twice if they are strided there, or contiguous "
    "and one of two lies in PSUM. On v4 the Scalar Engine moves 16 bits twice as fast",
    f"{_ARCH2}: Vector Engine Performance Mode; {_ARCH3}",
    dtypes=_FLOAT16,
)
ZEROS = (
    Cheaper(
        "dtype",
        "zeros of bfloat16 or float16, on the Vector Engine",
        f"{_ISA}.memset",
        dtypes=_FLOAT16,
    ),
    Cheaper("zero", "the value is 0", f"{_ISA}.memset"),
)
TWO_INPUTS = (
    Cheaper(
        "dtype",
        "NeuronCore-v3 and newer, on the Vector Engine: all tiles are bfloat16 or "
        "float16 and contiguous, both inputs in SBUF; before, inputs of bfloat16 that are "
        "added, subtracted or multiplied",
        f"{_ARCH2}; {_ISA}.tensor_tensor",
        dtypes=_FLOAT16,
    ),
    Cheaper(
        "first",
        "before NeuronCore-v3: add, subtract or multiply of bfloat16",
        f"{_ISA}.tensor_tensor",
    ),
    Cheaper(
        "memory",
        "one of the inputs lies in PSUM: SBUF is read once",
        f"{_ISA}.tensor_tensor",
        "NKI-M07",
    ),
    ENGINE,
)
SCALAR_TWO_INPUTS = tuple(
    Cheaper(
        by,
        "subtract, then multiply, of bfloat16 with an even number of elements",
        f"{_ISA}.scalar_tensor_tensor",
        dtypes=_BF16,
    )
    for by in ("dtype", "first", "second")
)
REDUCTION = tuple(
    Cheaper(by, "a sum or maximum of bfloat16 into bfloat16", f"{_ISA}.tensor_reduce", dtypes=_BF16)
    for by in ("dtype", "op")
)
PRODUCT = (
    Cheaper(
        "dtype",
        "floats of 8 or 16 bits: one pass in place of four",
        f"{_ISA}.nc_matmul",
        "NKI-D05",
        _NARROW,
    ),
    Cheaper(
        "double_row",
        "NeuronCore-v3 and newer: both operands are 8-bit floats of shape (K, 2, columns)",
        f"{_ARCH2}: Double FP8 Matmul Performance",
        "NKI-E14",
    ),
    Cheaper(
        "transposes",
        "NeuronCore-v3 and newer: the moving operand is a permutation",
        f"{_ARCH2}: Built-in Transpose Support",
        "NKI-E15",
    ),
)
TRANSPOSITION = (
    Cheaper("dtype", "elements of 8 or 16 bits: one pass", f"{_ISA}.nc_transpose", dtypes=_MOVED),
    Cheaper(
        "partitions",
        "as many columns of the identity move as the tile has partitions",
        f"{_ISA}.nc_transpose: max(P, min(64, F))",
    ),
)
ONES = (
    Cheaper(
        "dtype",
        "floats of 8 or 16 bits: one pass in place of four",
        f"{_ISA}.nc_matmul",
        "NKI-D05",
        _MOVED,
    ),
)
ACROSS = (
    Cheaper(
        "partitions",
        "each core of GpSimd passes over its own partitions",
        "assumed: the documents give no formula",
    ),
)
#: DMAs cost by bytes and descriptors (timing/cost.py): fewer bytes are fewer
FEWER_BYTES = (
    Cheaper(
        "dtype", "both sides have smaller elements; a cast moves the larger ones", f"{_ARCH2}: DMA"
    ),
)
