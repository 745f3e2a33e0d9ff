"""What the kernels must compute: in NumPy and float64, and with PyTorch to compare."""
from __future__ import annotations

import numpy as np


def conv2d(X: np.ndarray, W: np.ndarray, bias: np.ndarray, stride: int = 1, padding: int = 0
           ) -> np.ndarray:
    """Convolve images X [batch, in, height, width] with filters W [out, in, size, size].

    Args:
        stride: rows and columns from one window to the next.
        padding: rows and columns of zeros on each side of an image.
    Returns: float64 [batch, out, (height + 2 * padding - size) // stride + 1, (width ...) ...].
    """
    border, size = (padding, padding), W.shape[2]
    wide = np.pad(X.astype(np.float64), ((0, 0), (0, 0), border, border))
    rows = (wide.shape[2] - size) // stride + 1
    columns = (wide.shape[3] - size) // stride + 1
    out = np.zeros((len(X), len(W), rows * columns))
    for i in range(size):
        for j in range(size):
            window = wide[:, :, i:i + rows * stride:stride, j:j + columns * stride:stride]
            out += W[:, :, i, j].astype(np.float64) @ window.reshape(*X.shape[:2], -1)
    out += bias.astype(np.float64)[:, None]
    return out.reshape(len(X), len(W), rows, columns)


def conv2d_torch(X: np.ndarray, W: np.ndarray, bias: np.ndarray, stride: int = 1, padding: int = 0
                 ) -> np.ndarray:
    """Convolve with PyTorch in float32."""
    import torch
    wide = (torch.from_numpy(a.astype(np.float32)) for a in (X, W, bias))
    out: np.ndarray = torch.nn.functional.conv2d(*wide, stride=stride, padding=padding).numpy()
    return out
