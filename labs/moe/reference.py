"""What the kernels must compute, in NumPy and float64."""
from __future__ import annotations

import numpy as np

from labkit import AnyArgmax


def gather(table: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return the rows of the table that `which` [n, 1] names."""
    return table[which[:, 0]]


def scatter_add(table: np.ndarray, rows: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return the table with each row added where `which` [n, 1] says, in float64."""
    out = table.astype(np.float64)
    real = which[:, 0] < len(table)
    np.add.at(out, which[real, 0], rows[real].astype(np.float64))
    return out


def route(x: np.ndarray, router: np.ndarray, k: int,
          scores: str = "softmax") -> tuple[np.ndarray, AnyArgmax]:
    """Return the weights [n, k] and the numbers [n, k] of the k best experts, the best first.

    A number is right at its place if its expert is as good as the one that belongs there, within
    the tolerance of sums in float32: two that are nearly equal may change places.
    """
    logits = x.astype(np.float64) @ router.astype(np.float64)
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(logits, chosen, axis=1)
    powers = np.exp(best - best[:, :1]) if scores == "softmax" else 1 / (1 + np.exp(-best))
    off = np.abs(logits[:, None, :] - best[:, :, None])
    return powers / powers.sum(axis=1, keepdims=True), AnyArgmax(-off, accumulate=x.shape[1])


def network(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Return silu(x gate) * (x up) times down in float64."""
    wide_x, wide_gate, wide_up, wide_down = (a.astype(np.float64) for a in (x, gate, up, down))
    opened = wide_x @ wide_gate
    result: np.ndarray = opened / (1 + np.exp(-opened)) * (wide_x @ wide_up) @ wide_down
    return result


def decode(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray, chosen: np.ndarray,
           weights: np.ndarray) -> np.ndarray:
    """Return the mixture of each token's own experts in float64."""
    out = np.zeros(x.shape)
    for t, j in np.ndindex(*chosen.shape):
        e = chosen[t, j]
        out[t] += float(weights[t, j]) * network(x[t], gate[e], up[e], down[e])
    return out


def decode_fp8(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
               scales: np.ndarray, chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mixture for matrices whose columns have scales: see the kernel for their order."""
    b, matrices = gate.shape[2] // 128, []
    for matrix, part in ((gate, scales[..., :b]), (up, scales[..., b:2 * b]),
                         (down, scales[..., 2 * b:])):
        factor = part.reshape(len(scales), 1, -1).astype(np.float64)
        matrices.append(matrix.astype(np.float64) * factor)
    return decode(x, matrices[0], matrices[1], matrices[2], chosen, weights)


def experts(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
            tokens: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mixture of many tokens, given as the list of each expert, in float64."""
    out = np.zeros(x.shape)
    for e, row in enumerate(tokens):
        real = row < len(x)
        share = weights[e, real, None].astype(np.float64)
        out[row[real]] += share * network(x[row[real]], gate[e], up[e], down[e])
    return out


def opened(packs: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return a matrix [d, n] in float64: packs [d / 4, n, 4] and exponents [16, d / 512, n]."""
    exponents = np.repeat(scale.astype(int), 8, axis=0).swapaxes(0, 1).reshape(packs.shape[:2])
    values = packs.astype(np.float64) * np.ldexp(1.0, exponents - 127)[..., None]
    return values.swapaxes(1, 2).reshape(-1, packs.shape[1])


def quantized(x: np.ndarray) -> np.ndarray:
    """Return a vector as MXFP8 keeps it: 32 neighbours share a power of two, in float64."""
    import ml_dtypes

    groups = x.astype(ml_dtypes.bfloat16).astype(np.float64).reshape(-1, 32)
    exponents = np.frexp(np.abs(groups).max(axis=1, keepdims=True))[1] - 1
    factor = np.ldexp(1.0, exponents - 7)
    small = (groups / factor).astype(ml_dtypes.float8_e4m3fn)
    return (small.astype(np.float64) * factor).reshape(x.shape)


def decode_mx(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
              scales: np.ndarray, chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mixture for MXFP8: tokens and what is between the layers are rounded to it."""
    d, h = x.shape[1], gate.shape[2]
    wide = d // 512 * h
    out = np.zeros(x.shape)
    for t, j in np.ndindex(*chosen.shape):
        e = chosen[t, j]
        first = opened(gate[e], scales[e, :, :wide].reshape(16, -1, h))
        second = opened(up[e], scales[e, :, wide:2 * wide].reshape(16, -1, h))
        last = opened(down[e], scales[e, :, 2 * wide:].reshape(16, -1, d))
        inside = quantized(x[t]) @ first
        hidden = quantized(inside / (1 + np.exp(-inside)) * (quantized(x[t]) @ second))
        out[t] += float(weights[t, j]) * (hidden @ last)
    return out
