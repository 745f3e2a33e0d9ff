"""float16 from and to float32, with the bits that NumPy's casts give, several times as fast.

NumPy converts one element at a time. Here a block that fits a cache of the CPU goes through
integer operations, which NumPy does for many elements at once. Infinities and NaN, and what becomes
one, are left to NumPy, and so are small arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SMALL = 1 << 12  # elements that are not worth it
_BLOCK = 1 << 15  # elements of a block: 128 KB in float32
_SHIFT = 13  # mantissa bits that float16 lacks
_MOVE = 127 - 15  # difference of the exponents' biases
_TOO_LARGE = 0x477FE000  # bits of 65504, the largest float16, in float32
_SUBNORMAL = (_MOVE + 1) << 23  # bits of 2 ** -14: below, a float16 has fewer bits
_FEW = 64  # one of so many elements: those are left to NumPy
_HALF = 0x3F000000  # bits of 0.5; the last one is worth 2 ** -24
_SMALLEST = np.array([1], np.int32).view(np.float32)


def widen(src: np.ndarray, out: np.ndarray) -> None:
    """Do `out[...] = src` of float16 into float32, of the same shape."""
    if src.size < SMALL or not (_SMALLEST * np.float32(2.0**_MOVE))[0]:
        np.copyto(out, src)  # or a library has told the CPU to drop subnormal numbers
    else:
        _in_blocks(_widen, src, out, np.empty(_room(src), np.int32))


def narrow(src: np.ndarray, out: np.ndarray) -> None:
    """Do `out[...] = src` of float32 into float16, of the same shape: to nearest, ties to even."""
    if src.size < SMALL:
        np.copyto(out, src, casting="unsafe")
    else:
        _in_blocks(_narrow, src, out, np.empty(2 * _room(src), np.int32))


def _room(a: np.ndarray) -> int:
    return min(a.size, _BLOCK)


def _in_blocks(convert: Callable, src: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    if src.size <= _BLOCK:
        convert(src, out, scratch)
    elif len(src) == 1:
        _in_blocks(convert, src[0], out[0], scratch)
    else:
        step = max(1, _BLOCK * len(src) // src.size)
        for i in range(0, len(src), step):
            _in_blocks(convert, src[i : i + step], out[i : i + step], scratch)


def _widen(src: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    bits = scratch[: src.size].reshape(src.shape)
    np.copyto(bits, src.view(np.int16))  # the sign is repeated in the upper half
    np.left_shift(bits, _SHIFT, out=bits)
    np.bitwise_and(bits, ~0x70001FFF, out=bits)
    np.multiply(bits.view(np.float32), np.float32(2.0**_MOVE), out=out)
    if out.max() >= 65536 or out.min() <= -65536:
        np.copyto(out, src)


def _narrow(src: np.ndarray, out: np.ndarray, scratch: np.ndarray) -> None:
    bits = src.view(np.int32)
    size, other = scratch[: src.size].reshape(src.shape), scratch[-src.size :].reshape(src.shape)
    np.bitwise_and(bits, 0x7FFFFFFF, out=size)
    if size.max() >= _TOO_LARGE:
        np.copyto(out, src, casting="unsafe")
        return
    few = size < _SUBNORMAL
    count = np.count_nonzero(few)
    np.right_shift(size, _SHIFT, out=other)  # half of the last bit up, or a bit less if it is 0
    np.bitwise_and(other, 1, out=other)
    other += size
    other += (1 << _SHIFT - 1) - 1 - (_MOVE << 23)
    np.right_shift(other, _SHIFT, out=other)
    if count > src.size // _FEW:  # the sum has the bits, and is rounded as wanted
        values = size.view(np.float32)
        values += np.float32(0.5)
        size -= _HALF
        np.copyto(other, size, where=few)
    np.right_shift(bits, 16, out=size)
    np.bitwise_and(size, -0x8000, out=size)  # the sign
    np.bitwise_or(other, size, out=other)
    np.copyto(out.view(np.int16), other, casting="unsafe")
    if 0 < count <= src.size // _FEW:
        np.copyto(out, src, casting="unsafe", where=few)


__all__ = ["narrow", "widen"]
