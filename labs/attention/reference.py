"""What the kernels must compute, in NumPy and float64."""
from __future__ import annotations

import numpy as np


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    """Return softmax(q k^T / sqrt(d)) v in float64, for q [n, d], k and v [m, d]."""
    wide_q, wide_k, wide_v = (x.astype(np.float64) for x in (q, k, v))
    scores = wide_q @ wide_k.T / np.sqrt(q.shape[1])
    if causal:
        scores[np.triu(np.ones(scores.shape, bool), 1)] = -np.inf
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: np.ndarray = powers / powers.sum(axis=1, keepdims=True) @ wide_v
    return result


def causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the attention in which query i sees keys 0 to i."""
    return attention(q, k, v, causal=True)


def grouped_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the causal attention of q [heads, n, d], with k and v [groups, n, d]."""
    each = len(q) // len(k)
    return np.stack([causal_attention(x, k[h // each], v[h // each]) for h, x in enumerate(q)])


def decode(q: np.ndarray, k: np.ndarray, v: np.ndarray, k_cache: np.ndarray, v_cache: np.ndarray,
           length: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one token's attention [heads, d], and the caches with its key and value."""
    tokens, each = int(length[0, 0]), len(q) // len(k)
    keys, values = k_cache.astype(np.float64), v_cache.astype(np.float64)
    keys[:, tokens], values[:, tokens] = k, v
    out = [attention(q[h:h + 1], keys[h // each, :tokens + 1], values[h // each, :tokens + 1])[0]
           for h in range(len(q))]
    return np.stack(out), keys, values
