"""Step 1 of the transpose: the instruction made for it, one tile of 128 x 128 at a time.

`nl.load_transpose2d` loads and transposes in one call, and the store has 512 bytes (float32) per
partition. Right, and slow: a transposing DMA moves single elements, far below the bandwidth of
HBM. kernels_nki.py lets the Tensor Engine turn the tiles instead, which has nothing else to do
here, and loads and stores blocks of 1024 x 1024, 4 KiB per partition.
"""
from __future__ import annotations

import nki
import nki.language as nl

P = 128


@nki.jit
def nki_transpose(in_tensor):
    """Transpose a 2-D tensor [rows, cols]; both must be multiples of 128."""
    rows, cols = in_tensor.shape
    out_tensor = nl.ndarray((cols, rows), dtype=in_tensor.dtype, buffer=nl.shared_hbm)
    for r in range(rows // P):
        for c in range(cols // P):
            turned = nl.load_transpose2d(in_tensor[r * P:(r + 1) * P, c * P:(c + 1) * P])
            nl.store(out_tensor[c * P:(c + 1) * P, r * P:(r + 1) * P], turned)
    return out_tensor
