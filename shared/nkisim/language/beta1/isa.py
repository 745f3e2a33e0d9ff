"""`neuronxcc.nki.isa` (nisa): the instructions, straight from the table."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...chip import hw
from ...isa import act, dma, dve, dynamic, lower, pe, pool, search
from ...machine.context import current, machine
from . import isa_constants as constants
from .isa_constants import dge_mode, engine, nc_version, oob_mode, reduce_cmd
from .language import bfp16, fp32

tensor_engine, scalar_engine, vector_engine = engine.tensor, engine.scalar, engine.vector
gpsimd_engine, dma_engine, unknown_engine = engine.gpsimd, engine.dma, engine.unknown

dma_copy, dma_transpose = dma.dma_copy, dma.dma_transpose

nc_matmul = pe.nc_matmul

activation, activation_reduce = act.activation, act.activation_reduce

tensor_copy_predicated = dve.tensor_copy_predicated
tensor_copy_dynamic_src = dynamic.tensor_copy_dynamic_src
tensor_copy_dynamic_dst = dynamic.tensor_copy_dynamic_dst
tensor_tensor, tensor_scalar = dve.tensor_tensor, dve.tensor_scalar
scalar_tensor_tensor, reciprocal = dve.scalar_tensor_tensor, dve.reciprocal
tensor_reduce, tensor_scalar_reduce = dve.tensor_reduce, dve.tensor_scalar_reduce
tensor_tensor_scan = dve.tensor_tensor_scan

max8, nc_find_index8 = search.max8, search.nc_find_index8
nc_match_replace8, bn_stats, bn_aggr = search.nc_match_replace8, search.bn_stats, search.bn_aggr
select_reduce, range_select = search.select_reduce, search.range_select
nc_stream_shuffle = search.nc_stream_shuffle
tensor_scalar_cumulative = search.tensor_scalar_cumulative

iota, affine_select, local_gather = pool.iota, pool.affine_select, pool.local_gather
tensor_partition_reduce, sequence_bounds = pool.tensor_partition_reduce, pool.sequence_bounds
dropout = pool.dropout


def tensor_copy(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = 0,
                **kwargs: Any) -> Any:
    """Copy a tile within SBUF and PSUM, casting to `dtype` if given."""
    return dve.tensor_copy(src, mask=mask, dtype=dtype, engine=engine)


def memset(shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = 0,
           **kwargs: Any) -> Any:
    """Return an SBUF tile filled with a number."""
    return dve.memset(shape, value, dtype, mask=mask, engine=engine)


def nc_transpose(data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = 0,
                 **kwargs: Any) -> Any:
    """Transpose a tile (P, F...) to (F, P): Tensor Engine up to 128 (result in PSUM), Vector 32."""
    m = machine("nisa.nc_transpose")
    m.flush()
    return lower.transpose(m, data, engine, dtype, mask)


def get_nc_version() -> nc_version:
    """Return the generation of the NeuronCore that is simulated."""
    m = current.get()
    return nc_version((m.hw if m is not None else hw.get()).generation)


def __getattr__(name: str) -> Any:
    """Say that a name of the SDK is not modelled, or that it does not exist."""
    from .missing import missing
    raise missing("nisa", name, globals())


_ = np, constants, dge_mode, oob_mode, reduce_cmd, bfp16, fp32      # re-exported names
