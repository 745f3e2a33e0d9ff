"""What goes wrong with each puzzle: the tester names what agrees with an output."""
from __future__ import annotations

from typing import Any

import numpy as np

from labkit import Mistake
from labkit.mistakes import TRANSPOSES

P, BANK = 128, 512


def same_rows(right: Any, x: np.ndarray) -> np.ndarray | None:
    """Return the result if each tile is loaded from the first 128 rows."""
    return right(x[np.arange(len(x)) % P]) if len(x) > P else None


def by_column(right: Any, x: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Return x times the factors laid along a row."""
    return x.astype(np.float64) * factor[:x.shape[1], 0]


def part_of_sum(part: slice) -> Any:
    """Return the mistake that only a part of the rows is summed over."""
    return lambda right, x, y: right(x[part], y[part]) if len(x) > P else None


def repeated_bank(right: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the product with the first 512 columns in the place of all."""
    return right(x, y[:, np.arange(y.shape[1]) % BANK])


def scanned(right: Any, x: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Return the recurrence without its factor."""
    return right(x, np.ones_like(keep))


def exchanged_operators(right: Any, x: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Return y with y[i] = (keep[i] + y[i - 1]) * x[i]."""
    out, y = np.zeros(x.shape), np.zeros(len(x))
    for i in range(x.shape[1]):
        out[:, i] = y = (keep[:, i].astype(np.float64) + y) * x[:, i]
    return out


def first_column(right: Any, x: np.ndarray) -> np.ndarray:
    """Return x with zeros in all columns but the first."""
    return np.where(np.arange(x.shape[1]) == 0, x, 0)


ADD_TEN = (
    Mistake("x itself is returned: nothing is added", lambda right, x: right(x) - 10),
    Mistake("10 is added twice", lambda right, x: right(x) + 10),
    Mistake("x is multiplied by 10: the operator must be nl.add",
            lambda right, x: 10 * x.astype(np.float64)),
    Mistake("10 is subtracted: the operator must be nl.add", lambda right, x: right(x) - 20),
    Mistake("every tile holds the first 128 rows: the rows that are loaded must move with the loop",
            same_rows),
)
PRODUCT = (
    Mistake("only the first 128 rows are in the sum", part_of_sum(slice(0, P))),
    Mistake("only the last 128 rows are in the sum: each product must be added (accumulate=) to "
            "those before it, not written over them", part_of_sum(slice(-P, None))),
    Mistake("the first 128 rows are not in the sum: what the first product wrote is lost",
            part_of_sum(slice(P, None))),
)
MISTAKES = {
    "add_ten": ADD_TEN,
    "scale_rows": (
        Mistake("factor is added, not multiplied", lambda right, x, f: x.astype(np.float64) + f),
        Mistake("every row is multiplied by the first row's factor",
                lambda right, x, f: right(x, np.full_like(f, f[0, 0]))),
        Mistake("factor lies along the columns: it must have one number for each row", by_column),
        Mistake("x itself is returned", lambda right, x, f: x.astype(np.float64)),
    ),
    "row_sums": (
        Mistake("the largest element of each row is returned, not the sum",
                lambda right, x: x.max(axis=1, keepdims=True)),
        Mistake("the mean of each row is returned, not the sum", lambda right, x: right(x) / 64),
        Mistake("the first element of each row is returned", lambda right, x: x[:, :1]),
        Mistake("the sum has the wrong sign: negate= is for other uses",
                lambda right, x: -right(x)),
    ),
    "transpose": TRANSPOSES[:1],
    "matmul": (
        *PRODUCT,
        Mistake("the product is twice what it should be: something was added to it that was there "
                "before", lambda right, x, y: 2 * right(x, y)),
    ),
    "wide_relu": (
        Mistake("relu is missing: negative numbers are left",
                lambda right, x, y: x.T.astype(np.float64) @ y),
        Mistake("the first 512 columns are repeated: both y and the result must move on with the "
                "loop", repeated_bank),
        Mistake("the sign is turned before relu",
                lambda right, x, y: right(-x, y)),
    ),
    "one_activation": (
        Mistake("bias is not added", lambda right, x, b: right(x, 0 * b)),
        Mistake("x is not scaled by 0.5", lambda right, x, b: right(2 * x, b)),
        Mistake("bias is scaled as well: an activation computes op(data * scale + bias)",
                lambda right, x, b: right(x, 0.5 * b)),
        Mistake("the function is missing: this is 0.5 * x + bias",
                lambda right, x, b: 0.5 * x.astype(np.float64) + b),
        Mistake("every row gets the bias of the first row",
                lambda right, x, b: right(x, np.full_like(b, b[0, 0]))),
    ),
    "lower_triangle": (
        Mistake("the upper triangle is kept, with the diagonal: row and column are exchanged, or "
                "the comparison is turned", lambda right, x: np.triu(x)),
        Mistake("the diagonal is missing: column = row is kept as well",
                lambda right, x: np.tril(x, -1)),
        Mistake("only the first column is kept: channel_multiplier must count the rows",
                first_column),
        Mistake("nothing is kept", lambda right, x: 0 * x),
        Mistake("x itself is returned: nothing is masked", lambda right, x: x),
    ),
    "running_sum": (
        Mistake("keep is left out: this is the running sum of x", scanned),
        Mistake("x and keep are exchanged", lambda right, x, keep: right(keep, x)),
        Mistake("the sum of keep * x is returned: keep must multiply the result before",
                lambda right, x, keep: np.cumsum(x.astype(np.float64) * keep, axis=1)),
        Mistake("the two operators are exchanged: what was before is multiplied by keep, then x is "
                "added", exchanged_operators),
        Mistake("the scan begins with 1, not with 0",
                lambda right, x, keep: right(x, keep) + np.cumprod(keep, axis=1, dtype=float)),
        Mistake("the scan runs from the last column to the first",
                lambda right, x, keep: right(x[:, ::-1], keep[:, ::-1])[:, ::-1]),
    ),
    "pick_rows": (
        Mistake("the first rows of the table are returned: the index is not used",
                lambda right, table, which: table[:len(which)]),
        Mistake("the index is one too large",
                lambda right, table, which: right(table, np.minimum(which + 1, len(table) - 1))),
        Mistake("every row is the one that the first index names",
                lambda right, table, which: right(table, np.full_like(which, which[0, 0]))),
    ),
}
