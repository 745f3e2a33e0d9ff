"""float32 copies of 8- and 16-bit storages: a matmul converts an operand once, not per use."""

from __future__ import annotations

import numpy as np

from ..chip import dtypes
from ..machine.tensor import Tensor


def refresh_shadow(t: Tensor) -> None:
    """Bring the float32 copy of a storage up to date where `t` was written."""
    shadow = t.storage.shadow  # type: ignore[union-attr]
    name = t.dtype.num
    if shadow is None or name not in shadow:
        t.storage.shadow = None  # type: ignore[union-attr]
        return
    dtypes.widened(t.np, shadow_view(t, shadow[name]))


def shadow_view(t: Tensor, flat: np.ndarray) -> np.ndarray:
    """Return the view of a float32 copy that corresponds to `t`."""
    item = t.dtype.itemsize
    return np.ndarray(
        t.shape, np.float32, flat, t.offset // item * 4, tuple(s // item * 4 for s in t.strides)
    )


def as_f32(t: Tensor) -> np.ndarray:
    """Return a tile's elements as float32, converting 8- and 16-bit storages once, not per use."""
    st = t.storage
    assert st is not None
    if t.dtype.itemsize == 4 or not st.arena and dtypes.storage(t.dtype).itemsize == 4:
        return t.np
    if st.arena:
        return t.np.astype(np.float32)
    name = t.dtype.num
    if st.shadow is None or name not in st.shadow:
        st.shadow = {name: dtypes.as_float32(st.data.view(t.dtype))}
    return shadow_view(t, st.shadow[name])
