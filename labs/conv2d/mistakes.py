"""What goes wrong with convolutions: the tester names what agrees with an output.

Each function computes what a kernel with that mistake would return, from the same inputs as
`conv2d_exact` of reference.py, which is its first argument, `right`. Only a few rows of one image
are compared, so that large cases take no longer than small ones; what is not known of a row (it
would need one beyond them) is NaN.
"""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from labkit import Mistake
from labkit.mistakes import TILE, rounded, turn_tiles

ROWS = 4  # output rows that are compared
NARROW = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def rows_around(worst: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, pool_size: int = 1
                ) -> Any:
    """Return the inputs of some output rows around an element: part of one image."""
    image, row, size = worst[0], worst[2], W.shape[2]
    height = (X.shape[2] - size + 1) // pool_size
    first = max(0, min(row - 1, height - ROWS))
    end = min(height, first + ROWS)
    part = X[image:image + 1, :, first * pool_size:end * pool_size + size - 1]
    return (part, W, bias), np.s_[image:image + 1, :, first:end]


# -- other images, filters and biases ---------------------------------------------------------

def on(which: int, change: Any) -> Any:
    """Return the mistake of a changed X (0), W (1) or bias (2); none, if it cannot be changed."""
    def output(right: Any, *inputs: np.ndarray, **pool: int) -> Any:
        changed = change(inputs[which])
        if changed is None:
            return None
        return right(*inputs[:which], changed, *inputs[which + 1:], **pool)
    return output


def shift(rows: int, columns: int) -> Any:
    """Return what moves an image up and to the left; what comes in at the border is not known."""
    def moved(X: np.ndarray) -> np.ndarray:
        out = np.full_like(X, np.nan)
        to, source = ([slice(max(0, n), size + min(0, n)) for n, size in zip(by, X.shape[2:])]
                      for by in ((-rows, -columns), (rows, columns)))
        out[:, :, to[0], to[1]] = X[:, :, source[0], source[1]]
        return out
    return moved


def only_tap(i: int, j: int) -> Any:
    """Return what leaves one tap of the filters."""
    def tap(W: np.ndarray) -> np.ndarray:
        out = np.zeros_like(W)
        out[:, :, i, j] = W[:, :, i, j]
        return out
    return tap


def not_moving(axis: int) -> Any:
    """Return filters that give what a window gives that does not move along an axis."""
    def collapsed(W: np.ndarray) -> np.ndarray:
        out = np.zeros(W.shape)
        at = (slice(None),) * axis + (0,)
        out[at] = W.astype(np.float64).sum(axis=axis)
        return out
    return collapsed


def first_group(axis: int) -> Any:
    """Return what puts the first 128 channels in the place of all of them."""
    def repeated(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x.take(range(TILE), axis)] * (x.shape[axis] // TILE), axis)
    return repeated


def groups(which: slice) -> Any:
    """Return the mistake that some groups of input channels are not in the sum."""
    def output(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, **pool: int) -> Any:
        return right(X[:, which], W[:, which], bias, **pool) if X.shape[1] > TILE else None
    return output


def last_product(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, **pool: int) -> Any:
    """Return what the last matmul alone gives."""
    return right(X[:, -TILE:], only_tap(-1, -1)(W[:, -TILE:]), bias, **pool)


def channels_exchanged(W: np.ndarray) -> np.ndarray | None:
    """Return filters whose input and output channels are exchanged."""
    return W.swapaxes(0, 1) if W.shape[0] == W.shape[1] > TILE else None


def bias_times(count: Any) -> Any:
    """Return the mistake of a bias that is added as often as `count` says of the filters."""
    def output(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, **pool: int) -> Any:
        return right(X, W, count(W) * bias.astype(np.float64), **pool) if count(W) > 1 else None
    return output


def bias_as_row(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, **pool: int) -> Any:
    """Return the result with a bias for each column of the image instead of each channel."""
    out = right(X, W, 0 * bias, **pool)
    return out + bias[:out.shape[3]] if out.shape[3] <= len(bias) else None


# -- other pooling and less precision ---------------------------------------------------------

def pooled(function: Any) -> Any:
    """Return the mistake of another pooling: of squares [..., rows, y, columns, x]."""
    def output(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, pool_size: int = 1
               ) -> Any:
        return in_squares(right(X, W, bias), pool_size, function) if pool_size > 1 else None
    return output


def sum_then_bias(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, pool_size: int = 1
                  ) -> Any:
    """Return the sum of each square, to which the bias is added once."""
    if pool_size == 1:
        return None
    sums = in_squares(right(X, W, 0 * bias), pool_size, lambda squares: squares.sum(axis=(3, 5)))
    return sums + bias.astype(np.float64)[:, None, None]


def in_squares(out: np.ndarray, pool: int, function: Any) -> np.ndarray:
    """Apply a function to the squares of an unpooled result."""
    height, width = out.shape[2] // pool, out.shape[3] // pool
    return function(out.reshape(*out.shape[:2], height, pool, width, pool))


def largest(squares: np.ndarray) -> np.ndarray:
    """Return the maximum of each square."""
    return squares.max(axis=(3, 5))


def summed_in(dtype: Any) -> Any:
    """Return the mistake that the sum is rounded to `dtype` after each matmul."""
    def output(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, pool_size: int = 1
               ) -> Any:
        size = W.shape[2]
        height, width = X.shape[2] - size + 1, X.shape[3] - size + 1
        total: Any = 0.0
        for k in range(0, X.shape[1], TILE):
            for i in range(size):
                for j in range(size):
                    product = right(X[:, k:k + TILE, i:i + height, j:j + width],
                                    W[:, k:k + TILE, i:i + 1, j:j + 1], 0 * bias)
                    total = rounded(total + product, dtype)
        return in_squares(total + bias.astype(np.float64)[:, None, None], pool_size, largest)
    return output


def operands_in(dtype: Any) -> Any:
    """Return the mistake that images and filters are rounded to `dtype` first."""
    return lambda right, X, W, bias, **pool: right(rounded(X, dtype), rounded(W, dtype), bias,
                                                   **pool)


MISTAKES = {"conv2d_exact": (
    Mistake("the filter is flipped: tap (i, j) must meet the pixel i rows down and j columns to "
            "the right", on(1, lambda W: W[:, :, ::-1, ::-1])),
    Mistake("the filter is upside down: its rows are in the opposite order",
            on(1, lambda W: W[:, :, ::-1])),
    Mistake("the filter is mirrored: its columns are in the opposite order",
            on(1, lambda W: W[:, :, :, ::-1])),
    Mistake("the taps are exchanged: W[:, :, j, i] is used where W[:, :, i, j] belongs",
            on(1, lambda W: W.swapaxes(2, 3))),
    Mistake("all pixels meet the first tap: the filter's index does not move with i and j",
            on(1, lambda W: np.broadcast_to(W[:, :, :1, :1], W.shape))),
    Mistake("the filters are not transposed: each tile W[out, in] must be turned, since both "
            "operands need input channels on partitions", on(1, turn_tiles)),
    Mistake("input and output channels of W are exchanged", on(1, channels_exchanged)),
    Mistake("the window of the image is one row too low", on(0, shift(1, 0))),
    Mistake("the window of the image is one row too high", on(0, shift(-1, 0))),
    Mistake("the window of the image is one column too far right", on(0, shift(0, 1))),
    Mistake("the window of the image is one column too far left", on(0, shift(0, -1))),
    Mistake("the window of the image does not move down with the filter's row i",
            on(1, not_moving(2))),
    Mistake("the window of the image does not move right with the filter's column j",
            on(1, not_moving(3))),
    Mistake("only the last product is in the result: they are assigned (=), not added (+=)",
            last_product),
    Mistake("no product is in the result, which is the bias alone: what the matmuls give is not "
            "added up", on(1, np.zeros_like)),
    Mistake("only the last tap of the filter is in the result", on(1, only_tap(-1, -1))),
    Mistake("only the first tap of the filter is in the result", on(1, only_tap(0, 0))),
    Mistake("only the first 128 input channels are in the sum", groups(slice(0, TILE))),
    Mistake("only the last 128 input channels are in the sum", groups(slice(-TILE, None))),
    Mistake("the last 128 input channels are not in the sum", groups(slice(None, -TILE))),
    Mistake("the filters of all input channels meet the first 128 of the image",
            on(0, first_group(1))),
    Mistake("the filters for the first 128 input channels are used for all of them",
            on(1, first_group(1))),
    Mistake("the filters of the first 128 output channels are used for all of them",
            on(1, first_group(0))),
    Mistake("the bias is not added", on(2, lambda bias: 0 * bias)),
    Mistake("the bias is subtracted, not added", on(2, lambda bias: -bias)),
    Mistake("the bias is added to the columns of the image, as a row: it belongs to the output "
            "channels, one number for each partition", bias_as_row),
    Mistake("the first bias is added to all output channels",
            on(2, lambda bias: np.full_like(bias, bias[0]))),
    Mistake("the biases of the first 128 output channels are used for all of them",
            on(2, first_group(0))),
    Mistake("the bias is added with each product: it belongs behind the loops over the taps and "
            "input channels", bias_times(lambda W: W[0, ::TILE].size)),
    Mistake("the bias is added once for each 128 input channels",
            bias_times(lambda W: W.shape[1] // TILE)),
    Mistake("the mean of each square is taken, not its maximum",
            pooled(lambda squares: squares.mean(axis=(3, 5)))),
    Mistake("the first element of each square is taken, not its maximum",
            pooled(lambda squares: squares[:, :, :, 0, :, 0])),
    Mistake("the smallest element of each square is taken, not the largest",
            pooled(lambda squares: squares.min(axis=(3, 5)))),
    Mistake("the sum of each square is taken, not its maximum",
            pooled(lambda squares: squares.sum(axis=(3, 5)))),
    Mistake("the sum of each square is taken, not its maximum", sum_then_bias),
    Mistake("only the first row of each square is in its maximum",
            pooled(lambda squares: squares[:, :, :, 0].max(axis=4))),
    Mistake("only the first column of each square is in its maximum",
            pooled(lambda squares: squares[..., 0].max(axis=3))),
    *(Mistake(f"images and filters are rounded to {name} before they are multiplied",
              operands_in(dtype)) for name, dtype in NARROW.items()),
    *(Mistake(f"the errors are as large as those of a sum in {name}: accumulate in float32",
              summed_in(dtype), noise=True) for name, dtype in NARROW.items()),
)}
PARTS = {"conv2d_exact": rows_around}
