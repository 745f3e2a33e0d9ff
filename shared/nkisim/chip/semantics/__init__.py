"""What instructions compute: pure functions on NumPy arrays, one room per kind of instruction.

A tile is an array (P, F...): partitions first, then the free dimensions. Functions that do
arithmetic take any dtype and return float32, since the engines compute in it; the caller casts to
the destination's dtype (`dtypes.cast`). Functions that only move or choose elements keep bits and
dtype. Nothing here checks the chip's limits or knows about memories. Run them under
`np.errstate(all="ignore")`: on the chip overflow is silent.
"""

from .generate import sequence_bounds
from .inorder import fold
from .move import gather_flattened, local_gather, shuffled, stream_shuffle
from .reductions import accumulate, partition_reduce, reduce
from .scan import tensor_scalar_cumulative, tensor_tensor_scan
from .search import find_index8, match_replace8, max8
from .select import affine_select, dropout, range_select, select_reduce
from .statistics import bn_aggr, bn_stats

__all__ = [
    "accumulate",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "dropout",
    "find_index8",
    "fold",
    "gather_flattened",
    "local_gather",
    "match_replace8",
    "max8",
    "partition_reduce",
    "range_select",
    "reduce",
    "select_reduce",
    "sequence_bounds",
    "shuffled",
    "stream_shuffle",
    "tensor_scalar_cumulative",
    "tensor_tensor_scan",
]
