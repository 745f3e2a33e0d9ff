"""What goes wrong with a network's kernels: the tester names what agrees with an output.

Each function computes what a kernel with that mistake would return, from the same inputs as the
function of reference.py that is its first argument, `right`.
"""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from labkit import Mistake
from labkit.mistakes import TILE, TRANSPOSES, rounded, turn_tiles

NARROW = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


# -- matmul: lhsT [K, M], rhs [K, N] ----------------------------------------------------------

def first_tile(x: np.ndarray, axis: int, width: int = TILE) -> np.ndarray | None:
    """Return x with its first tile along an axis in the place of all of them."""
    if x.shape[axis] % width:
        return None
    tile = x.take(range(width), axis)
    return np.concatenate([tile] * (x.shape[axis] // width), axis)


def on(which: int, change: Any) -> Any:
    """Return the mistake that gives the kernel a changed input; none, if it cannot be changed."""
    def output(right: Any, *inputs: Any, **kwargs: Any) -> Any:
        changed = change(inputs[which])
        if changed is None:
            return None
        return right(*inputs[:which], changed, *inputs[which + 1:], **kwargs)
    return output


def tiles_of_k(which: slice) -> Any:
    """Return the mistake that some of the tiles of 128 rows are not in the sum."""
    return lambda right, lhsT, rhs: right(lhsT[which], rhs[which])


def summed_in(dtype: Any) -> Any:
    """Return the mistake that the sum is rounded to `dtype` after each matmul of 128 rows."""
    def output(right: Any, lhsT: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        total: Any = 0.0
        for k in range(0, len(lhsT), TILE):
            total = rounded(total + right(lhsT[k:k + TILE], rhs[k:k + TILE]), dtype)
        return total
    return output


def turned_result(right: Any, lhsT: np.ndarray, rhs: np.ndarray) -> np.ndarray | None:
    """Return the product with each 128 x 128 square of it transposed."""
    return turn_tiles(right(lhsT, rhs))


MATMUL = (
    Mistake("only the last 128 rows of lhsT and rhs are in the result: the products are assigned "
            "(=), not added (+=)", tiles_of_k(slice(-TILE, None))),
    Mistake("only the first 128 rows of lhsT and rhs are in the result",
            tiles_of_k(slice(0, TILE))),
    Mistake("the last 128 rows of lhsT and rhs are not in the sum",
            tiles_of_k(slice(None, -TILE))),
    Mistake("the first 128 rows of lhsT and rhs are not in the sum: the first product was "
            "overwritten", tiles_of_k(slice(TILE, None))),
    Mistake("each tile of lhsT is transposed once too often: the Tensor Engine wants [K, M], and "
            "that is how lhsT lies in memory", on(0, turn_tiles)),
    Mistake("each 128 x 128 square of rhs is transposed", on(1, turn_tiles)),
    Mistake("each 128 x 128 square of the result is transposed: stationary and moving operand are "
            "exchanged", turned_result),
    Mistake("lhsT's first 128 rows meet all rows of rhs: the index of its tile does not move with "
            "k", on(0, lambda x: first_tile(x, 0))),
    Mistake("rhs's first 128 rows meet all rows of lhsT: the index of its tile does not move with "
            "k", on(1, lambda x: first_tile(x, 0))),
    Mistake("all rows of the result are those of the first tile of lhsT: its columns do not move "
            "with m", on(0, lambda x: first_tile(x, 1))),
    Mistake("all columns of the result are those of the first tile of rhs: its columns do not move "
            "with n", on(1, lambda x: first_tile(x, 1, min(512, x.shape[1])))),
    *(Mistake(f"the operands are rounded to {name} before they are multiplied",
              lambda right, *both, dtype=dtype: right(*(rounded(x, dtype) for x in both)))
      for name, dtype in NARROW.items()),
    *(Mistake(f"the errors are as large as those of a sum in {name}: accumulate in float32",
              summed_in(dtype), noise=True) for name, dtype in NARROW.items()),
)


# -- bias_add_act: A [rows, columns], b [1, columns] ------------------------------------------

def relu(x: np.ndarray) -> np.ndarray:
    """Return x where it is positive, else 0."""
    return np.maximum(x, 0)


def exp(x: np.ndarray, axis: int = 1) -> np.ndarray:
    """Return exp(x - max)."""
    return np.exp(x - x.max(axis=axis, keepdims=True))


def softmax(x: np.ndarray, axis: int = 1) -> np.ndarray:
    """Return exp(x) divided by its sum along an axis."""
    e = exp(x, axis)
    return e / e.sum(axis=axis, keepdims=True)


def softmax_down(x: np.ndarray) -> np.ndarray:
    """Return the softmax down the columns, of a tile of 128 rows at a time."""
    return np.concatenate([softmax(x[r:r + TILE], 0) for r in range(0, len(x), TILE)])


def on_first_rows(right: Any, A: np.ndarray, b: np.ndarray, act: str) -> Any:
    """Return the result with the bias in the first row of each tile only."""
    first = (np.arange(len(A)) % TILE == 0)[:, None]
    return right(np.where(first, A.astype(np.float64) + b, A), 0 * b, act)


def as_column(right: Any, A: np.ndarray, b: np.ndarray, act: str) -> Any:
    """Return the result with one bias for each partition instead of each column."""
    if b.shape[1] < min(TILE, len(A)):
        return None
    return right(A.astype(np.float64) + b[0, np.arange(len(A)) % TILE][:, None], 0 * b, act)


def of_sum(function: Any, only: str = "") -> Any:
    """Return the mistake that another function is applied to A + b (if act is `only`)."""
    def output(right: Any, A: np.ndarray, b: np.ndarray, act: str) -> Any:
        return function(A.astype(np.float64) + b) if only in ("", act) else None
    return output


def some_rows(worst: Any, A: np.ndarray, b: np.ndarray, **act: str) -> Any:
    """Return the inputs of the 128 rows around an element, if the matrix is large."""
    return rows_around(worst, A, b) if A.size > 1 << 20 else ((A, b), ...)


BIAS_ADD_ACT = (
    Mistake("the bias is not added", on(1, lambda b: 0 * b)),
    Mistake("the bias is subtracted, not added", on(1, lambda b: -b)),
    Mistake("only the first element of the bias is added, to all columns",
            on(1, lambda b: np.full_like(b, b[0, 0]))),
    Mistake("the bias is added as a column: one element for each row instead of each column",
            as_column),
    Mistake("the bias is added to the first row of each tile only: it lies in one partition and "
            "must be brought to all", on_first_rows),
    Mistake("the activation is missing: this is A + b", of_sum(lambda z: z)),
    Mistake("the bias is added after the activation, not before",
            lambda right, A, b, act: right(A, 0 * b, act) + b),
    Mistake("relu is computed, but softmax was asked for", of_sum(relu, "softmax")),
    Mistake("softmax is computed, but relu was asked for", of_sum(softmax, "relu")),
    Mistake("the exponentials are not divided by their sum", of_sum(exp, "softmax")),
    Mistake("the exponentials are not divided by their sum, nor is the maximum taken off",
            of_sum(np.exp, "softmax")),
    Mistake("the softmax is taken down the columns, not along the rows",
            of_sum(lambda z: softmax(z, 0), "softmax")),
    Mistake("the softmax is taken down the columns of each tile, not along the rows",
            of_sum(softmax_down, "softmax")),
)


# -- the network: X [batch, inputs], W1 [inputs, hidden], b1, W2 [hidden, classes], b2 --------

def rows_around(worst: Any, X: np.ndarray, *rest: Any) -> Any:
    """Return the inputs of the 128 rows around an element: each row is computed by itself."""
    rows = slice(worst[0] // TILE * TILE, worst[0] // TILE * TILE + TILE)
    return (X[rows], *rest), rows


def network(act: Any = relu, dtype: Any = np.float64, last: Any = softmax) -> Any:
    """Return the mistake of another activation, or of a hidden layer in another dtype."""
    def output(right: Any, *inputs: np.ndarray) -> np.ndarray:
        X, W1, b1, W2, b2 = (x.astype(np.float64) for x in inputs)
        return last(rounded(act(X @ W1 + b1), dtype) @ W2 + b2)
    return output


def scores(change: Any) -> Any:
    """Return the mistake that the class is picked by something else than the probabilities."""
    return lambda right, *inputs: change(np.array(right(*inputs).scores))


def without_largest(p: np.ndarray) -> np.ndarray:
    """Return the probabilities with each row's largest taken out."""
    p[np.arange(len(p)), p.argmax(axis=1)] = -np.inf
    return p


NETWORK = (
    Mistake("b1, the bias of the hidden layer, is not added", on(2, lambda b: 0 * b)),
    Mistake("b2, the bias of the last layer, is not added", on(4, lambda b: 0 * b)),
    Mistake("both biases are not added",
            lambda right, X, W1, b1, W2, b2: right(X, W1, 0 * b1, W2, 0 * b2)),
    Mistake("the relu of the hidden layer is missing", network(lambda z: z)),
    Mistake("the hidden layer has a softmax; it must be relu", network(softmax)),
    Mistake("each tile of X is untransposed: it must be turned before the first matmul, which "
            "contracts over its columns", on(0, turn_tiles)),
    Mistake("each tile of W1 is transposed", on(1, turn_tiles)),
    Mistake("each tile of W2 is transposed", on(3, turn_tiles)),
)

MISTAKES = {
    "transpose": TRANSPOSES,
    "matmul": MATMUL,
    "bias_add_act": BIAS_ADD_ACT,
    "forward": (
        Mistake("the softmax is missing: these are the sums of the last layer",
                network(last=lambda z: z)),
        Mistake("the exponentials are not divided by their sum", network(last=exp)),
        Mistake("relu is computed in the last layer; it must be softmax", network(last=relu)),
        Mistake("there is a relu before the softmax of the last layer",
                network(last=lambda z: softmax(relu(z)))),
        *NETWORK,
        *(Mistake(f"the errors are as large as those of a hidden layer in {name}",
                  network(dtype=dtype), noise=True) for name, dtype in NARROW.items())),
    "predict": (
        Mistake("the least probable class is picked", scores(lambda p: -p)),
        Mistake("the second most probable class is picked", scores(without_largest)),
        Mistake("the index is one too large", scores(lambda p: np.roll(p, 1, axis=1))),
        Mistake("the index is one too small", scores(lambda p: np.roll(p, -1, axis=1))),
        *NETWORK),
}
PARTS = {"bias_add_act": some_rows, "forward": rows_around, "predict": rows_around}
