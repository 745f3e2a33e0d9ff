"""What each puzzle must compute, in NumPy."""
from __future__ import annotations

import numpy as np


def add_ten(x: np.ndarray) -> np.ndarray:
    """Return x + 10 in float64."""
    return x.astype(np.float64) + 10


def scale_rows(x: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Return each row of x times its number, in float64."""
    return x.astype(np.float64) * factor


def row_sums(x: np.ndarray) -> np.ndarray:
    """Return the sum of each row as a column, in float64."""
    return x.astype(np.float64).sum(axis=1, keepdims=True)


def transpose(x: np.ndarray) -> np.ndarray:
    """Return the transposed matrix."""
    return x.T


def matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x.T @ y in float64."""
    return x.T.astype(np.float64) @ y.astype(np.float64)


def wide_relu(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return what is positive of x.T @ y, else 0, in float64."""
    return np.maximum(matmul(x, y), 0)


def one_activation(x: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return exp(0.5 * x + bias) in float64."""
    return np.exp(0.5 * x.astype(np.float64) + bias)


def lower_triangle(x: np.ndarray) -> np.ndarray:
    """Return x with zeros above the diagonal."""
    return np.tril(x)


def running_sum(x: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Return the recurrence y = keep * y + x along each row, in float64."""
    out = np.zeros(x.shape)
    y = np.zeros(x.shape[0])
    for i in range(x.shape[1]):
        y = keep[:, i].astype(np.float64) * y + x[:, i]
        out[:, i] = y
    return out


def pick_rows(table: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return the named rows of the table."""
    return table[which[:, 0]]
