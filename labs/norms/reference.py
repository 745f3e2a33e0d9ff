"""What the kernels must compute, in NumPy and float64."""
from __future__ import annotations

import numpy as np


def softmax(x: np.ndarray) -> np.ndarray:
    """Return the softmax of each row in float64."""
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    result: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return result


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray,
               epsilon: float = 1e-5) -> np.ndarray:
    """Return the layer norm of each row in float64."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon)
    result: np.ndarray = centred * scale * gamma.astype(np.float64) + beta.astype(np.float64)
    return result


def rms_norm(x: np.ndarray, gamma: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    """Return the RMS norm of each row in float64."""
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt((wide**2).mean(axis=1, keepdims=True) + epsilon)
    result: np.ndarray = wide * scale * gamma.astype(np.float64)
    return result


def add_rms_norm(x: np.ndarray, residual: np.ndarray, gamma: np.ndarray,
                 epsilon: float = 1e-5) -> tuple[np.ndarray, np.ndarray]:
    """Return the RMS norm of x + residual, and x + residual, in float64."""
    total = x.astype(np.float64) + residual.astype(np.float64)
    return rms_norm(total, gamma, epsilon), total
