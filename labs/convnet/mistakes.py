"""What goes wrong with padding, strides and batches: the tester names what agrees with an output.

Each function computes what a kernel with that mistake would return, from the same inputs as
`conv2d` of reference.py, which is its first argument, `right`.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from labkit import Mistake
from labkit.mistakes import TILE, turn_tiles

BANK = 512  # float32 numbers of a bank of PSUM in each partition


def on(which: int, change: Any) -> Any:
    """Return the mistake of a changed X (0), W (1) or bias (2); none, if it cannot be changed."""
    def output(right: Any, *inputs: np.ndarray, **more: int) -> Any:
        changed = change(inputs[which])
        if changed is None:
            return None
        return right(*inputs[:which], changed, *inputs[which + 1:], **more)
    return output


def bordered(mode: str, before: int, after: int) -> Any:
    """Return the mistake of another border: `before` and `after` times the padding, of a mode."""
    def output(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, stride: int = 1,
               padding: int = 0) -> Any:
        if not padding:
            return None
        border = (before * padding, after * padding)
        wide = np.pad(X.astype(np.float64), ((0, 0), (0, 0), border, border), mode=mode)
        return right(wide, W, bias, stride=stride)
    return output


def strides(down: bool, across: bool) -> Any:
    """Return the mistake that the stride is left out of an axis: the first outputs of stride 1."""
    def output(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, stride: int = 1,
               padding: int = 0) -> Any:
        if stride == 1:
            return None
        rows, columns = right(X, W, bias, stride=stride, padding=padding).shape[2:]
        every = right(X, W, bias, padding=padding)
        every = every[:, :, ::stride if down else 1, ::stride if across else 1]
        return every[:, :, :rows, :columns]
    return output


def bias_at_the_border(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray,
                       stride: int = 1, padding: int = 0) -> Any:
    """Return a result with the bias alone where a window is not inside of the image."""
    if not padding:
        return None
    out, size = right(X, W, bias, stride=stride, padding=padding), W.shape[2]
    for axis in (2, 3):
        first = np.arange(out.shape[axis]) * stride - padding
        beyond = (first < 0) | (first + size > X.shape[axis])
        np.moveaxis(out, axis, 0)[beyond] = bias[None, None, :, None]
    return out


def taps(*kept: tuple[int, int]) -> Any:
    """Return what leaves some taps of the filters; (0, 0) is the middle one."""
    def change(W: np.ndarray) -> Any:
        middle = W.shape[2] // 2
        if not middle:
            return None
        out = np.zeros_like(W)
        for i, j in kept:
            out[:, :, middle + i, middle + j] = W[:, :, middle + i, middle + j]
        return out
    return change


def without_middle(W: np.ndarray) -> Any:
    """Return filters without their middle tap."""
    return W - taps((0, 0))(W) if W.shape[2] > 1 else None


def last_product(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, **more: int) -> Any:
    """Return what the last matmul of each bank alone gives, where the last tap is the last."""
    last = np.zeros_like(W)
    last[:, -TILE:, -1, -1] = W[:, -TILE:, -1, -1]
    return right(X, last, bias, **more)


def first_group(axis: int) -> Any:
    """Return what puts the first 128 channels in the place of all of them."""
    def repeated(x: np.ndarray) -> Any:
        if x.shape[axis] == TILE:
            return None
        return np.concatenate([x.take(range(TILE), axis)] * (x.shape[axis] // TILE), axis)
    return repeated


def group(which: slice) -> Any:
    """Return the mistake that only some groups of input channels are in the sum."""
    def output(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, **more: int) -> Any:
        return right(X[:, which], W[:, which], bias, **more) if X.shape[1] > TILE else None
    return output


def image_for_all(which: int) -> Any:
    """Return the mistake that one image is computed in the place of all of them."""
    return on(0, lambda X: np.repeat(X[which:][:1], len(X), 0) if len(X) > 1 else None)


def first_bank_again(right: Any, X: np.ndarray, W: np.ndarray, bias: np.ndarray, stride: int = 1,
                     padding: int = 0) -> Any:
    """Return the results of the first bank of images in all banks."""
    out = right(X, W, bias, stride=stride, padding=padding)
    together = BANK // (out.shape[2] * out.shape[3])
    return out[np.arange(len(X)) % together] if 0 < together < len(X) else None


def as_they_lie(X: np.ndarray) -> Any:
    """Return images that are loaded [image, channel] into a tile [channel, image]."""
    if len(X) == 1:
        return None
    groups = X.reshape(len(X), -1, TILE, *X.shape[2:])
    mixed = [groups[:, k].reshape(TILE, len(X), *X.shape[2:]) for k in range(groups.shape[1])]
    return np.concatenate(mixed).swapaxes(0, 1)


MISTAKES = {"conv2d": (
    Mistake("the window is not moved by the padding: output 0 begins at row 0 of the image, not "
            "at row -padding", bordered("constant", 0, 2)),
    Mistake("the window is moved by twice the padding", bordered("constant", 2, 0)),
    Mistake("the border repeats the pixels at the edge: it must be zeros",
            bordered("edge", 1, 1)),
    Mistake("outputs whose window is not inside of the image have the bias alone: the taps that "
            "meet the image belong to them", bias_at_the_border),
    Mistake("the stride is left out: neighbouring windows begin one row and one column apart",
            strides(False, False)),
    Mistake("the stride is left out of the columns", strides(True, False)),
    Mistake("the stride is left out of the rows", strides(False, True)),
    Mistake("only the middle tap of the filter is in the result: the products of the others must "
            "be added", on(1, taps((0, 0)))),
    Mistake("the middle tap of the filter is not in the result", on(1, without_middle)),
    Mistake("only the last product is in the result: the products must add up "
            "(accumulate=True after the first)", last_product),
    Mistake("the filter is flipped: tap (i, j) must meet the pixel i rows down and j columns to "
            "the right", on(1, lambda W: W[:, :, ::-1, ::-1] if W.shape[2] > 1 else None)),
    Mistake("the taps are exchanged: W[:, :, j, i] is used where W[:, :, i, j] belongs",
            on(1, lambda W: W.swapaxes(2, 3) if W.shape[2] > 1 else None)),
    Mistake("the filters are not turned: both operands of a product need input channels in the "
            "partitions", on(1, turn_tiles)),
    Mistake("only the first 128 input channels are in the sum", group(slice(0, TILE))),
    Mistake("only the last 128 input channels are in the sum", group(slice(-TILE, None))),
    Mistake("the filters of the first 128 output channels are used for all of them",
            on(1, first_group(0))),
    Mistake("the bias is not added", on(2, lambda bias: 0 * bias)),
    Mistake("the biases of the first 128 output channels are used for all of them",
            on(2, first_group(0))),
    Mistake("images and channels are mixed up: the images lie in HBM image by image, and the tile "
            "has the channels in front (permute)", on(0, as_they_lie)),
    Mistake("every bank has the images of the first bank", first_bank_again),
    Mistake("all images have the result of the first one", image_for_all(0)),
    Mistake("all images have the result of the last one", image_for_all(-1)),
)}
