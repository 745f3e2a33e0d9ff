"""Kernels that the tests of tuning sweep. They are imported as a student's script is."""

import os
import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

WIDTH = 64
UNUSED = 1
TWICE = 2 * WIDTH


def twice(x, **_):
    return 2 * x


def fails(x):
    raise ValueError("a reference that fails")


def body(x, width, rows=128, factor=2.0):
    height, columns = x.shape
    assert columns % width == 0, f"{columns} columns do not divide into tiles of {width}"
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(height // rows):
        for j in nl.affine_range(columns // width):
            tile = nl.load(x[i * rows : (i + 1) * rows, j * width : (j + 1) * width])
            nl.store(
                out[i * rows : (i + 1) * rows, j * width : (j + 1) * width],
                value=nl.multiply(tile, factor),
            )
    return out


@nki.jit
def double(x):
    return body(x, WIDTH)


@nki.jit
def double_by(x, width=64, rows=128):
    return body(x, width, rows)


@nki.jit
def wrong_if_wide(x, width=64):
    return body(x, width, factor=2.0 if width < 512 else 3.0)


@nki.jit
def prints(x, width=64):
    print("hello")
    return body(x, width)


@nki.jit
def skips(x, skip=0):
    """Leave out the last tiles of rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(max(1, x.shape[0] // 128 - skip)):
        tile = nl.load(x[i * 128 : (i + 1) * 128])
        nl.store(out[i * 128 : (i + 1) * 128], value=nl.multiply(tile, 2.0))
    return out


@nki.jit
def goes_wrong(x, how="well"):
    if how == "exit":
        sys.exit(3)
    if how == "die":
        os._exit(7)
    if how == "recurse":
        return goes_wrong(x, how)
    if how == "take":
        return np.ones(1 << 40)
    while how == "loop":
        pass
    return body(x, 512)


def holds_on(how):
    while how == "loop":
        try:
            while True:
                pass
        except BaseException:
            pass
    return how


@nki.jit
def with_words(x, how="add", dtype=nl.float32):
    out = nl.ndarray(x.shape, dtype=dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128])
        both = nl.add(tile, tile) if how == "add" else nl.multiply(tile, 2.0)
        nl.store(out[i * 128 : (i + 1) * 128], value=nl.copy(both, dtype=dtype))
    return out


@nki.jit
def reads_what_no_one_wrote(x, width=64):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        for j in nl.affine_range(x.shape[1] // width):
            tile = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
            tile[:, 0 : width // 2] = nl.load(
                x[i * 128 : (i + 1) * 128, j * width : j * width + width // 2]
            )
            nl.store(out[i * 128 : (i + 1) * 128, j * width : (j + 1) * width], value=tile)
    return out


@nki.jit
def product(lhs_t, rhs):
    out = nl.ndarray((lhs_t.shape[1], rhs.shape[1]), dtype=rhs.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(lhs_t.shape[0] // 128):
        acc += nisa.nc_matmul(
            nl.load(lhs_t[k * 128 : (k + 1) * 128]), nl.load(rhs[k * 128 : (k + 1) * 128])
        )
    nl.store(out, value=nisa.tensor_copy(acc))
    return out
