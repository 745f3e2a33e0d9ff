"""What the micro-kernels compute, in NumPy and fp64."""

from __future__ import annotations

import numpy as np

TIMES = 16


def same(a: np.ndarray) -> np.ndarray:
    """Return the input: copies, maxima with itself, pairs of reciprocals and transposes."""
    return a.astype(np.float64)


def add_ones(a: np.ndarray) -> np.ndarray:
    """Return a + TIMES."""
    return a.astype(np.float64) + TIMES


def sums(a: np.ndarray) -> np.ndarray:
    """Return the sum of each row, TIMES times."""
    return np.repeat(a.astype(np.float64).sum(1, keepdims=True), TIMES, 1)


def tanh(a: np.ndarray) -> np.ndarray:
    """Return tanh, TIMES times over."""
    x = a.astype(np.float64)
    for _ in range(TIMES):
        x = np.tanh(x)
    return x


def product(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return TIMES products."""
    return TIMES * (w.astype(np.float64).T @ x.astype(np.float64))
