"""Kernels that the tests of `evaluate` judge: one that is right, and what goes wrong with it."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

COLUMNS = 128


def double_of(x, **_):
    return 2 * x


def triple_of(x, **_):
    return 3 * x


def sum_of(a, b):
    return a + b


def product_of(a, b, **_):
    return a.astype(np.float64).T @ b


def fails(x):
    raise KeyError("a reference that fails")


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, COLUMNS), dtype=x.dtype, buffer=nl.sbuf)
    for i in range(x.shape[1] // COLUMNS):
        nisa.dma_copy(dst=tile, src=x[:, i * COLUMNS : (i + 1) * COLUMNS])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[:, i * COLUMNS : (i + 1) * COLUMNS], src=tile)
    return out


@nki.jit
def triple(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(0, a.shape[1], COLUMNS):
        x = nl.ndarray((128, COLUMNS), dtype=a.dtype, buffer=nl.sbuf)
        y = nl.ndarray((128, COLUMNS), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[:, i : i + COLUMNS])
        nisa.dma_copy(dst=y, src=b[:, i : i + COLUMNS])
        nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
        nisa.dma_copy(dst=out[:, i : i + COLUMNS], src=x)
    return out


@nki.jit
def right_for_ones(x):
    """Right where all of x is one: 2 = 1 + 1, whatever x is."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def half(x):
    """Store the first half of the columns."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, COLUMNS), dtype=x.dtype, buffer=nl.sbuf)
    for i in range(x.shape[1] // COLUMNS - 1):
        nisa.dma_copy(dst=tile, src=x[:, i * COLUMNS : (i + 1) * COLUMNS])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[:, i * COLUMNS : (i + 1) * COLUMNS], src=tile)
    return out


@nki.jit
def misspelt(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scaler(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def product(a, b):
    """Multiply into SBUF, where the Tensor Engine cannot write."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    total = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_matmul(dst=total, stationary=left, moving=right)
    done = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=done, src=total)
    nisa.dma_copy(dst=out, src=done)
    return out


@nki.jit
def too_tall(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((256, 128), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def loops(x):
    while True:
        pass


@nki.jit
def loops_and_catches_exceptions(x):
    while True:
        try:
            sum(range(1000))
        except Exception:
            pass


@nki.jit
def loops_and_catches_all(x):
    while True:
        try:
            for i in range(100):
                sum(range(i))
        except BaseException:
            pass


@nki.jit
def loops_and_catches_all_twice(x):
    while True:
        try:
            try:
                while True:
                    double_of(x.shape[0])
            except BaseException:
                sum(range(10))
        except:  # noqa: E722
            continue


class LoopsAtItsEnd:
    def __del__(self):
        while True:
            pass


@nki.jit
def loops_in_del(x):
    while True:
        LoopsAtItsEnd()


@nki.jit
def catches_all_and_returns(x):
    try:
        while True:
            pass
    except BaseException:
        return double.func(x)


@nki.jit
def catches_all_and_exits(x):
    try:
        while True:
            pass
    except BaseException:
        raise SystemExit(0) from None


@nki.jit
def dies(x):
    import os

    os._exit(9)


@nki.jit
def raises(x):
    return {}["nothing"]


def softmax_of(a, b, **_):
    x = a.astype(np.float64).T @ b
    grown = np.exp(x - x.max(1, keepdims=True))
    return grown / grown.sum(1, keepdims=True)


@nki.jit
def softmax_of_products(a, b, times=1.0):
    """Return the softmax of the rows of a.T @ b, `times` as much."""
    rows, columns = a.shape[1], b.shape[1]
    out = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    left, right = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for x in (a, b))
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    x = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(0, columns, 512):
        acc = nl.ndarray((rows, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=acc, stationary=left, moving=right[:, i : i + 512])
        nisa.tensor_copy(dst=x[:, i : i + 512], src=acc)
    least = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=least, op=nl.maximum, data=x, axis=1, negate=True)
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=x, op=nl.exp, data=x, bias=least)
    nisa.tensor_reduce(dst=total, op=nl.add, data=x, axis=1)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(
        dst=x, data=x, op0=nl.multiply, operand0=total, op1=nl.multiply, operand1=times
    )
    nisa.dma_copy(dst=out, src=x)
    return out


def turned_of(a, b):
    return a * b - a * a * 0.5


@nki.jit
def turned(a, b):
    """Written as in NumPy; tiles have no operators."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    n = a.shape[1]
    half = n // 2 + 0
    for i in range(2):
        at = slice(i * half, i * half + half)
        x = nl.load(a[:, at])
        cos = nl.load(b[:, at])
        nl.store(out[:, at], x * cos - x * x * 0.5)
    return out
