"""What goes wrong with softmax and norms: the tester names what agrees with an output."""
from __future__ import annotations

from typing import Any

import numpy as np

from labkit import Mistake

CHUNK = 2048


def wide(x: np.ndarray) -> np.ndarray:
    """Return x in float64."""
    return x.astype(np.float64)


def mean(x: np.ndarray) -> np.ndarray:
    """Return the mean of each row as a column, in float64."""
    result: np.ndarray = wide(x).mean(axis=1, keepdims=True)
    return result


def power_of(x: np.ndarray) -> np.ndarray:
    """Return exp(x - the row's maximum)."""
    result: np.ndarray = np.exp(wide(x) - wide(x).max(axis=1, keepdims=True))
    return result


def by_chunk(right: Any, x: np.ndarray) -> np.ndarray | None:
    """Return the softmax of each chunk by itself."""
    if x.shape[1] <= CHUNK or x.shape[1] % CHUNK:
        return None
    return right(x.reshape(-1, CHUNK)).reshape(x.shape)


def never_shrunk(right: Any, x: np.ndarray) -> np.ndarray | None:
    """Return the online softmax whose sum is never scaled to a new maximum."""
    if x.shape[1] <= CHUNK or x.shape[1] % CHUNK:
        return None
    chunks = wide(x).reshape(len(x), -1, CHUNK)
    largest = np.maximum.accumulate(chunks.max(axis=2), axis=1)
    total = np.exp(chunks - largest[:, :, None]).sum(axis=(1, 2))
    return power_of(x) / total[:, None]


def last_chunk(right: Any, x: np.ndarray) -> np.ndarray | None:
    """Return the exponentials over the maximum and the sum of the last chunk alone."""
    if x.shape[1] <= CHUNK:
        return None
    last = wide(x)[:, -(x.shape[1] % CHUNK or CHUNK):]
    largest = last.max(axis=1, keepdims=True)
    return np.exp(wide(x) - largest) / np.exp(last - largest).sum(axis=1, keepdims=True)


def normed(x: np.ndarray, variance: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the centred rows over the root of a variance."""
    return (wide(x) - mean(x)) / np.sqrt(variance + epsilon)


def variance(x: np.ndarray) -> np.ndarray:
    """Return the variance of each row as a column."""
    result: np.ndarray = wide(x).var(axis=1, keepdims=True)
    return result


def in_float32(right: Any, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray,
               epsilon: float) -> np.ndarray:
    """Return the layer norm with the variance as a difference of two large numbers in float32."""
    squares = (x.astype(np.float32)**2).mean(axis=1, keepdims=True, dtype=np.float32)
    rough = squares - mean(x).astype(np.float32)**2
    return normed(x, rough, epsilon) * wide(gamma) + wide(beta)


def rounded_mean(right: Any, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray,
                 epsilon: float) -> np.ndarray | None:
    """Return the layer norm with a mean and a variance that are rounded to the dtype of x."""
    if x.dtype == np.float32:
        return None
    rough = wide(variance(x).astype(x.dtype)) + epsilon
    return (wide(x) - wide(mean(x).astype(x.dtype))) / np.sqrt(rough) * wide(gamma) + wide(beta)


def first_part(right: Any, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray,
               epsilon: float) -> np.ndarray | None:
    """Return the layer norm with mean and variance of the first 512 columns."""
    part = x[:, :512]
    if part.shape == x.shape:
        return None
    return (wide(x) - mean(part)) / np.sqrt(variance(part) + epsilon) * wide(gamma) + wide(beta)


def exchanged(right: Any, *inputs: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the two results in the wrong order."""
    norm, total = right(*inputs, epsilon)
    return total, norm


def scaled(change: Any) -> Any:
    """Return the mistake of another RMS norm: change(x, gamma, epsilon)."""
    return lambda right, x, gamma, epsilon: change(wide(x), wide(gamma), epsilon)


def of_sum(change: Any) -> Any:
    """Return the mistake of another RMS norm of x + residual."""
    def output(right: Any, x: np.ndarray, residual: np.ndarray, gamma: np.ndarray,
               epsilon: float) -> tuple[np.ndarray, np.ndarray]:
        total = wide(x) + wide(residual)
        return change(total, wide(gamma), epsilon), total
    return output


def rms(x: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the root of the mean square of each row, as a column."""
    result: np.ndarray = np.sqrt((wide(x)**2).mean(axis=1, keepdims=True) + epsilon)
    return result


RMS = (
    ("gamma is left out", lambda x, g, e: x / rms(x, e)),
    ("gamma is added, not multiplied", lambda x, g, e: x / rms(x, e) + g),
    ("the sum of the squares is not divided by the number of columns",
     lambda x, g, e: x / np.sqrt((x**2).sum(axis=1, keepdims=True) + e) * g),
    ("the root is missing: x is divided by the mean square", lambda x, g, e: x / rms(x, e)**2 * g),
    ("x is multiplied by the root, not divided by it", lambda x, g, e: x * rms(x, e) * g),
    ("the mean is subtracted: that is a layer norm", lambda x, g, e: normed(x, variance(x), e) * g),
)
MISTAKES = {
    "softmax": (
        Mistake("the exponentials are not divided by their sum", lambda right, x: power_of(x)),
        Mistake("the exponentials are not divided by their sum, nor is the maximum taken off",
                lambda right, x: np.exp(wide(x))),
        Mistake("the softmax is taken of each chunk by itself: the sum and the maximum must be "
                "those of the whole row", by_chunk),
        Mistake("the sum is not scaled when the maximum grows: what was added up before must be "
                "multiplied by exp(old maximum - new maximum)", never_shrunk),
        Mistake("the maximum and the sum are those of the last chunk alone: both must go on from "
                "chunk to chunk", last_chunk),
        Mistake("the exponentials are multiplied by their sum: divide by it, that is, multiply by "
                "its reciprocal",
                lambda right, x: power_of(x) * power_of(x).sum(axis=1, keepdims=True)),
        Mistake("the softmax is taken down the columns, not along the rows",
                lambda right, x: right(x.T).T),
    ),
    "layer_norm": (
        Mistake("gamma is left out",
                lambda right, x, g, b, epsilon: right(x, g * 0 + 1, b, epsilon)),
        Mistake("beta is left out", lambda right, x, g, b, epsilon: right(x, g, 0 * b, epsilon)),
        Mistake("gamma and beta are exchanged",
                lambda right, x, g, b, epsilon: right(x, b, g, epsilon)),
        Mistake("gamma and beta are both left out",
                lambda right, x, g, b, epsilon: right(x, g * 0 + 1, 0 * b, epsilon)),
        Mistake("the mean is not subtracted",
                lambda right, x, g, b, epsilon:
                wide(x) / np.sqrt(variance(x) + epsilon) * wide(g) + wide(b)),
        Mistake("the mean is added, not subtracted",
                lambda right, x, g, b, epsilon:
                (wide(x) + mean(x)) / np.sqrt(variance(x) + epsilon) * wide(g) + wide(b)),
        Mistake("the root is missing: the rows are divided by their variance",
                lambda right, x, g, b, epsilon:
                (wide(x) - mean(x)) / (variance(x) + epsilon) * wide(g) + wide(b)),
        Mistake("the mean square takes the place of the variance: subtract the mean first",
                lambda right, x, g, b, epsilon:
                (wide(x) - mean(x)) / rms(x, epsilon) * wide(g) + wide(b)),
        Mistake("beta is added before gamma multiplies",
                lambda right, x, g, b, epsilon:
                (normed(x, variance(x), epsilon) + wide(b)) * wide(g)),
        Mistake("mean and variance are rounded to the dtype of the data: keep them in float32",
                rounded_mean),
        Mistake("the statistics are those of the first 512 columns alone", first_part),
        Mistake("the variance is the mean of the squares less the square of the mean, and of two "
                "large numbers little is left: take the mean off first, or use nisa.bn_stats",
                in_float32, noise=True),
    ),
    "rms_norm": tuple(Mistake(says, scaled(change)) for says, change in RMS),
    "add_rms_norm": (
        *(Mistake(says, of_sum(change)) for says, change in RMS),
        Mistake("the two results are exchanged: the norm comes first", exchanged),
        Mistake("the residual is not added",
                lambda right, x, r, g, epsilon: right(x, 0 * r, g, epsilon)),
        Mistake("the residual alone is normed",
                lambda right, x, r, g, epsilon: right(0 * x, r, g, epsilon)),
    ),
}
