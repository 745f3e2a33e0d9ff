"""The operands of each row: what the table is to declare, until it does."""
from __future__ import annotations

from dataclasses import dataclass

CHIP, SBUF, PSUM, HBM, HBM_SBUF = ("sbuf", "psum"), ("sbuf",), ("psum",), ("hbm",), ("hbm", "sbuf")


@dataclass(frozen=True)
class Operand:
    """One operand of an instruction (see `nkisim.isa.table`)."""

    name: str
    role: str                       # read, write, update (keeps what it does not write)
    form: str                       # tile, vector (P, 1), number or vector, tile or number, ...
    memories: tuple[str, ...] = CHIP
    dtypes: str = "any"
    optional: bool = False


@dataclass(frozen=True)
class Declared:
    """A row: its public name, operands, and the memories of the result that it returns."""

    public: str
    operands: tuple[Operand, ...]
    result: tuple[str, ...] = CHIP


def tile(name, memories=CHIP, dtypes="any", form="tile", role="read", optional=False):
    return Operand(name, role, form, memories, dtypes, optional)


def vector(name, dtypes="float32", form="number or vector", optional=False):
    return Operand(name, "read", form, CHIP, dtypes, optional)


def reduced(name="reduce_res", dtypes="float", optional=True):
    return Operand(name, "write", "vector", CHIP, dtypes, optional)


DECLARED = {
    "tensor_copy": Declared("nisa.tensor_copy", (tile("src"),)),
    "memset": Declared("nisa.memset", ()),
    "tensor_copy_predicated": Declared("nisa.tensor_copy_predicated", (
        tile("src", form="tile or number"), tile("dst", role="update"),
        tile("predicate", dtypes="uint")), ()),
    "tensor_tensor": Declared("nisa.tensor_tensor", (tile("data1"), tile("data2"))),
    "tensor_scalar": Declared("nisa.tensor_scalar", (
        tile("data"), vector("operand0"), vector("operand1", optional=True))),
    "scalar_tensor_tensor": Declared("nisa.scalar_tensor_tensor", (
        tile("data"), vector("operand0"), tile("operand1"))),
    "reciprocal": Declared("nisa.reciprocal", (tile("data"),)),
    "tensor_unary": Declared("nl.negative", (tile("x"),)),
    "tensor_reduce": Declared("nisa.tensor_reduce", (tile("data"),)),
    "tensor_scalar_reduce": Declared("nisa.tensor_scalar_reduce", (
        tile("data"), vector("operand0"), reduced(optional=False))),
    "tensor_tensor_scan": Declared("nisa.tensor_tensor_scan", (
        tile("data0"), tile("data1"), vector("initial"))),
    "tensor_scalar_cumulative": Declared("nisa.tensor_scalar_cumulative", (
        tile("src"), tile("dst", role="write"), vector("imm0"),
        vector("imm1", optional=True)), ()),
    "activation": Declared("nisa.activation", (
        tile("data"), vector("bias", "float", "vector", True), vector("scale", optional=True),
        reduced())),
    "activation_reduce": Declared("nisa.activation_reduce", (
        tile("data"), vector("bias", "float", "vector", True), vector("scale", optional=True),
        reduced(optional=False))),
    "max8": Declared("nisa.max8", (tile("src"),)),
    "nc_find_index8": Declared("nisa.nc_find_index8", (tile("data"), tile("vals"))),
    "nc_match_replace8": Declared("nisa.nc_match_replace8", (
        tile("data"), tile("vals"), tile("dst_idx", dtypes="uint32", role="write",
                                         optional=True))),
    "bn_stats": Declared("nisa.bn_stats", (tile("data"),)),
    "bn_aggr": Declared("nisa.bn_aggr", (tile("data"),)),
    "select_reduce": Declared("nisa.select_reduce", (
        tile("dst", role="write"), tile("predicate", dtypes="small int"), tile("on_true"),
        vector("on_false"), reduced()), ()),
    "range_select": Declared("nisa.range_select", (
        tile("on_true_tile", dtypes="float"), vector("bound0", form="vector"),
        vector("bound1", form="vector"), reduced())),
    "nc_stream_shuffle": Declared("nisa.nc_stream_shuffle", (
        tile("src"), tile("dst", role="update")), ()),
    "dropout": Declared("nisa.dropout", (tile("data"), vector("prob"))),
    "nc_matmul": Declared("nisa.nc_matmul", (
        tile("stationary", SBUF, "float"), tile("moving", SBUF, "float")), PSUM),
    "nc_transpose": Declared("nisa.nc_transpose", (tile("data", SBUF),), PSUM),
    "nc_transpose_dve": Declared("nisa.nc_transpose", (tile("data"),)),
    "iota": Declared("nisa.iota", (Operand("expr", "read", "index expression", ()),), SBUF),
    "affine_select": Declared("nisa.affine_select", (
        Operand("pred", "read", "index expression", ()), tile("on_true_tile", SBUF)), SBUF),
    "tensor_partition_reduce": Declared("nisa.tensor_partition_reduce", (tile("data", SBUF),),
                                        SBUF),
    "local_gather": Declared("nisa.local_gather", (
        tile("src_buffer", SBUF), tile("index", SBUF, "uint16")), SBUF),
    "gather_flattened": Declared("nl.gather_flattened", (
        tile("data", SBUF), tile("indices", SBUF, "uint32")), SBUF),
    "sequence_bounds": Declared("nisa.sequence_bounds", (
        tile("segment_ids", SBUF, "float32 or int32"),), SBUF),
    "load": Declared("nl.load", (tile("src", HBM),), SBUF),
    "store": Declared("nl.store", (
        tile("dst", HBM, role="write"), tile("value", SBUF, form="tile or number")), ()),
    "dma_copy": Declared("nisa.dma_copy", (
        tile("dst", HBM_SBUF, role="write"), tile("src", HBM_SBUF)), ()),
    "load_transpose2d": Declared("nl.load_transpose2d", (tile("src", HBM),), SBUF),
    "dma_transpose": Declared("nisa.dma_transpose", (tile("src", HBM_SBUF),), SBUF),
    "atomic_rmw": Declared("nl.atomic_rmw", (
        tile("dst", HBM, role="update"), tile("value", SBUF)), ()),
    "tensor_copy_dynamic_src": Declared("nisa.tensor_copy_dynamic_src", (
        tile("src"),)),
    "tensor_copy_dynamic_dst": Declared("nisa.tensor_copy_dynamic_dst", (
        tile("dst", role="update"), tile("src")), ()),
}

INDEX = tile("index", SBUF, "uint32")           # what an indirect access names its rows with
OFFSET = tile("offset", SBUF, "int32")
