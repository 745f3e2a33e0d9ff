"""What AWS's documents of NKI 0.1 to 0.7 say does not work, sentence by sentence, and our answer.

A sentence stands here in our words, in the order of its document. `rules` are the rules that say it
of a kernel (`python -m nkisim explain ID`); where there is none, `remark` says why.
"""

from __future__ import annotations

from typing import NamedTuple

KNOWN, BREAKING, GONE, REFERENCE = (
    "known issues",
    "breaking changes",
    "removed or deprecated",
    "reference and guides",
)


class Sentence(NamedTuple):
    """A sentence: its release and heading, what it says, and our answer."""

    release: str
    heading: str
    says: str
    rules: tuple[str, ...] = ()
    remark: str = ""


def _s(release: str, heading: str, *rows: tuple[str, str] | tuple[str, str, str]) -> list[Sentence]:
    """Return sentences of rows (what it says, ids of rules with blanks between, remark)."""
    return [Sentence(release, heading, row[0], tuple(row[1].split()), *row[2:]) for row in rows]


_HOST = "about programs of the host: nothing of it is in a kernel"
_COLLECTIVES = "collectives are not modelled"
_AS_DOCUMENTED = "a kernel that does so runs as the release has it"

SENTENCES: tuple[Sentence, ...] = (
    *_s(
        "0.1",
        KNOWN,
        ("nc_matmul has is_moving_zero, which means is_moving_onezero", "NKI-G43"),
        (
            "instructions are not held to their documented forms",
            "",
            "the rules of later releases are held in all",
        ),
        ("there are no collectives", "NKI-X02", _COLLECTIVES),
        ("there are no nki.benchmark and nki.profile", "", "an error that names nkisim.profile"),
    ),
    *_s("0.2", KNOWN, ("range_select takes no notice of on_false_value and reduce_cmd", "NKI-E12")),
    *_s(
        "0.2",
        BREAKING,
        ("nc_matmul has no psumAccumulateFlag", "NKI-N01"),
        ("is_moving_zero is is_moving_onezero", "NKI-G43"),
        ("nki.tensor is nki.meta.tensor", "", "both are there"),
    ),
    *_s(
        "0.3",
        KNOWN,
        ("nl.divide is not supported: no division in hardware", "NKI-R16"),
        ("nl.mod and nl.fmod fail when they are compiled", "NKI-R17"),
        ("nl.power takes no number as its exponent", "NKI-R18"),
        ("functions of two tiles do not broadcast", "NKI-R11"),
        ("nl.softmax and nl.rms_norm fail on hardware (first text of SDK 2.29 alone)", "NKI-R23"),
        ("nl.random_seed takes a (1, 1) tile, no number", "NKI-S09"),
        ("before trn3 nl.random_seed may not reach nl.rand", "NKI-R10"),
        ("nl.matmul without transpose_x=True fails", "NKI-R19"),
        ("nl.store does not take a tile in PSUM", "NKI-M01"),
        (
            "nl.copy goes through float32",
            "",
            "copies of integers keep their bits here, as since 0.6",
        ),
        ("nl.copy does not copy from one memory to another", "NKI-R20"),
        (
            "the variable of dynamic_range is no offset of an access pattern",
            "",
            "it is a register here, as since 0.4",
        ),
        ("both cores of LNC 2 have the same control flow", "NKI-N10"),
        ("kernels are kept by their arguments: a global that changes is not seen", "NKI-G05"),
        (
            "the compiler's rotation of addresses cannot be turned off",
            "",
            "it changes no value, and times allow for it",
        ),
        ("all_to_all_v: has_rdispls has no effect on some machines", "NKI-X02", _COLLECTIVES),
    ),
    *_s(
        "0.3",
        BREAKING,
        ("kernels of 0.2 and 0.3 do not go into one model", "", _HOST),
        ("dma_copy does not read PSUM", "NKI-M01"),
        ("dma_copy with hwdge does not cast", "NKI-D05"),
        ("dma_copy has no dst_rmw_op and no unique_indices", "NKI-G43"),
        ("dma_compute has reduce_op before scales", "NKI-G43"),
        ("memset: the value is of the kind of dst", "NKI-N07"),
        ("sendrecv has dma_engine, no use_gpsimd_dma", "NKI-G43"),
        ("affine_select has offset as a keyword at its end", "NKI-G43"),
        ("register_move has src, no imm", "NKI-G43"),
        (
            "collective_permute_implicit_current_processing_rank_id has no num_channels",
            "NKI-X02",
            _COLLECTIVES,
        ),
        ("outputs lie in shared_hbm", "NKI-R07"),
        ("no integers for members of enums", "NKI-G36"),
        ("no strings for buffers", "NKI-G35"),
        ("no * in the signature of a kernel", "NKI-G32"),
        ("no is and is not", "NKI-G17"),
        ("no lists as arguments of a kernel", "NKI-G34"),
        ("tensor_reduce counts axes as the tensor has them", "NKI-S10"),
    ),
    *_s(
        "0.3",
        GONE,
        ("tensor_copy_dynamic_src and _dst will go", "NKI-G43"),
        ("nki.jit(platform_target=) is an error", "NKI-G37"),
        ("nki.jit(mode=) is not looked at", "", "nor is it here"),
    ),
    *_s(
        "0.4",
        KNOWN,
        ("loops of dynamic_range in each other that carry a value do not compile", "NKI-G29"),
        ("AWS's simulator has limits of its own", "", "its page is the last one of this table"),
        ("nl.divide is not supported", "NKI-R16"),
        ("nl.fmod and nl.mod are not supported", "NKI-R17"),
        ("nl.power takes no number as its exponent", "NKI-R18"),
        ("functions of two tiles do not broadcast", "NKI-R11"),
        ("nl.random_seed takes a tile", "NKI-S09"),
        ("before trn3 nl.random_seed may not reach nl.rand", "NKI-R10"),
        ("nl.matmul without transpose_x=True fails", "NKI-R19"),
        (
            "nl.copy goes through float32",
            "",
            "copies of integers keep their bits here, as since 0.6",
        ),
        ("nl.copy does not copy from one memory to another", "NKI-R20"),
    ),
    *_s(
        "0.4",
        BREAKING,
        ("dma_transpose: dst has the rank and shape of the transposed src", "NKI-S01"),
        ("neuronxcc.nki in a kernel is a compile error", "NKI-K20"),
    ),
    *_s(
        "0.4",
        GONE,
        ("tensor_copy_dynamic_src and _dst are gone", "NKI-G43"),
        ("tile_size.total_available_sbuf_size is deprecated", "", _AS_DOCUMENTED),
        ("abs_max and abs_min are of trn3", "NKI-R33"),
        ("activate2 is of trn3", "NKI-E03"),
        ("square and relu as operators are of trn3", "NKI-R24"),
        ("float8_e4m3fn as an operand of nc_matmul is of trn3", "NKI-R08"),
        ("float8_e4m3 and float8_e4m3fn do not go into one product", "NKI-R09"),
        ("the variable of dynamic_range is not written", "NKI-N04"),
        ("sendrecv needs two cores", "NKI-N10"),
    ),
    *_s(
        "0.5",
        KNOWN,
        ("reinterpret_cast and vector_select do not go together", "NKI-N02"),
        ("the known issues of 0.4 are carried on", "NKI-R11 NKI-R16 NKI-R17 NKI-R18 NKI-R19"),
    ),
    *_s(
        "0.5",
        GONE,
        ("a grid that is not the LNC degree will be an error", "NKI-K18"),
        ("nl.rsqrt does not read PSUM", "NKI-M01"),
        ("reshape keeps the number of elements", "NKI-S07"),
        ("accumulate=True onto PSUM that nothing wrote is undefined", "NKI-N08"),
    ),
    *_s(
        "0.6",
        KNOWN,
        (
            "local_gather takes no notice of num_elem_per_idx unless dst has the product's size",
            "NKI-S01",
        ),
        ("the known issues of 0.5 are carried on", "NKI-R11 NKI-R16 NKI-R17 NKI-R18 NKI-R19"),
    ),
    *_s(
        "0.6",
        GONE,
        ("loops over dynamic_range and `while register:` are deprecated", "NKI-G28 NKI-G29"),
        ("operands of more than 128 partitions are an error", "NKI-P01"),
    ),
    *_s(
        "0.7",
        GONE,
        ("`while register:` and dynamic_range are gone", "NKI-G28 NKI-G29"),
        ("depends_on without kind= is deprecated", "NKI-N06"),
        ("what a loop's body changes in Python it changes once", "NKI-G41"),
        (
            "kernel and compiler have the same LNC degree, which is checked (migration guide)",
            "NKI-K18",
        ),
        (
            "== of classes of a kernel's own is Python's (announcement of 16 October 2026)",
            "",
            "as in Python here",
        ),
        ("NkiScalar will take the place of VirtualRegister (migration guide)", "", _AS_DOCUMENTED),
        (
            "its known issues could not be read for this table",
            "",
            "searched on 23 November 2026: the notes of 0.7 (Neuron 2.33.0 and 2.33.1) could be "
            "read up to their new features, the repository aws-neuron-sdk up to 2.32.0. The rows "
            "of 0.6 are held to be those of 0.7",
        ),
    ),
    *_s(
        "0.6",
        REFERENCE,
        (
            "NKI supports trn2 and trn3 (FAQ); 0.3 is not supported on trn1 and inf2 (notes of NxD "
            "Inference 2.29)",
            "NKI-R29",
        ),
        ("no logical_not among the operators (table of operators)", "NKI-R34"),
        (
            "no arithmetic shift to the right (table of operators)",
            "",
            "nl.right_shift is the logical one, here too",
        ),
        ("operators are functions of nl by the names of the table", "NKI-R35"),
        ("tensor_tensor: the tiles have the same number of elements", "NKI-R11"),
        ("tensor_tensor: two operands in PSUM", "NKI-M07"),
        ("tensor_tensor: no PSUM with nl.power", "NKI-M01"),
        ("tensor_tensor takes binary operators", "NKI-R22"),
        ("tensor_scalar: operand tiles are float32", "NKI-R02"),
        ("tensor_scalar_reduce: reverse0 is not supported yet", "NKI-R30"),
        ("scalar_tensor_tensor: no operators on bits", "NKI-R32"),
        ("tensor_scalar_reduce: no operators on bits", "NKI-E05"),
        ("tensor_scalar_cumulative: no 32-bit integers", "NKI-D05"),
        ("transposes, gathers and dropout: dst has the dtype of their source", "NKI-R36"),
        ("dropout: prob is float32 for integers, else a float", "NKI-R37"),
        ("tensor_copy: no Scalar Engine on NeuronCore-v2", "NKI-E01"),
        ("tensor_copy: as many elements on both sides", "NKI-R11"),
        ("dma_copy: as many elements on both sides", "NKI-R11"),
        ("dma_compute: indices of rows that are added to are unique", "NKI-R31"),
        ("tensor_reduce: the last free dims, and never the partition dim", "NKI-S10"),
        ("GpSimd does not reach PSUM", "NKI-E02"),
        ("bn_stats: up to 512 elements", "NKI-P08"),
        ("nc_matmul: sizes of its operands", "NKI-P07"),
        ("nc_matmul: no performance modes on NeuronCore-v2", "NKI-E03"),
        ("nc_matmul: no sum onto what a memset wrote, before trn3", "NKI-N09"),
        ("nc_matmul: a sum onto nothing is undefined", "NKI-N08"),
        ("range_select: the bounds are tiles", "NKI-R14"),
        ("range_select: on_false_value is the least float32", "NKI-E12"),
        ("activation: the bias has one element a partition", "NKI-E08"),
        ("activation: functions have ranges", "NKI-E07"),
        ("vector_select selects rows of HBM", "NKI-N02"),
        ("views keep the partition dim of tiles where it is", "NKI-S07"),
        ("tensors in SBUF and PSUM have two dims at least", "NKI-P02 NKI-R21"),
        ("nl.ndarray does not initialize memory", "NKI-U01 NKI-U02"),
        ("loops of the chip do not stand in nl.no_reorder", "NKI-R15"),
        ("an edge does not lead out of a loop of the chip", "NKI-N11"),
        ("shared_constant: packed dtypes are not tested on hardware", "", "taken, without a word"),
        ("the simulator takes all of Python, the compiler before 0.7 a subset", "NKI-G01"),
        ("the simulator knows no capacity and no memory that is shared", "NKI-A05 NKI-R01"),
        ("collectives are not in AWS's simulator", "NKI-X02", _COLLECTIVES),
    ),
)


def counts() -> dict[tuple[str, str], int]:
    """Return how many sentences each document has."""
    counted: dict[tuple[str, str], int] = {}
    for s in SENTENCES:
        counted[s.release, s.heading] = counted.get((s.release, s.heading), 0) + 1
    return counted
