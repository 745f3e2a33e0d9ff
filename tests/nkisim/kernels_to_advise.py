"""Kernels of the newer dialect that lose time in one way, each with what it is after the advice.

`JOBS`: cause -> (kernel, arguments, kernel after the advice, its arguments, options of profile).
Both compute the same from the same (or from what the advice says to pass instead).
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

from nkisim.chip import dtypes
from nkisim.timing import compiler

P = 128


def zeros(*shape):
    return np.zeros(shape, np.float32)


def half(*shape):
    return np.zeros(shape, dtypes.BFLOAT16)


def sbuf(shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def out_of(shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def prefetched(ahead):
    """Return steps on tiles that take long to load (every other element), loaded so far ahead."""

    @nki.jit
    def kernel(a):
        n = a.shape[1] // 512
        out, tiles = out_of((n, P, 512), a.dtype), []

        def load(i):
            tile = sbuf((P, 512), a.dtype)
            nisa.dma_copy(dst=tile, src=a[:, i * 512 : (i + 1) * 512, 0])  # late-loads
            tiles.append(tile)

        for i in range(ahead):
            load(i)
        for i in range(n):
            if i + ahead < n:
                load(i + ahead)
            y = tiles[i]
            for _ in range(10):
                z = sbuf((P, 512), a.dtype)
                nisa.activation(dst=z, op=nl.exp, data=y)
                y = z
            nisa.dma_copy(dst=out[i], src=y)
        return out

    return kernel


def gathered(ahead):
    """Return a gather of the rows that the maxima of tiles name; maxima are so far ahead."""

    @nki.jit
    def kernel(a, table):
        n, _, f = a.shape
        width = table.shape[1]
        out, places = out_of((n, P, width), table.dtype), []

        def place(i):
            x = sbuf((P, f), a.dtype)
            nisa.dma_copy(dst=x, src=a[i])
            most = sbuf((P, 8), a.dtype)
            nisa.max8(dst=most, src=x)
            at = sbuf((P, 8), nl.uint32)
            nisa.nc_find_index8(dst=at, data=x, vals=most)
            places.append(at)

        for i in range(ahead):
            place(i)
        for i in range(n):
            if i + ahead < n:
                place(i + ahead)
            rows = sbuf((P, width), table.dtype)
            pattern = [[width, P], [1, width]]
            source = table.ap(
                pattern=pattern, offset=0, vector_offset=places[i][:, 0:1], indirect_dim=0
            )
            nisa.dma_copy(dst=rows, src=source)  # blocked-queue
            y = sbuf((P, width), table.dtype)
            nisa.activation(dst=y, op=nl.exp, data=rows)
            nisa.dma_copy(dst=out[i], src=y)
        return out

    return kernel


def pipelined(ahead):
    """Return transposes and products of tiles; the transposes are so far ahead."""

    @nki.jit
    def kernel(a, w):
        n = a.shape[0]
        out, turned = out_of((n, P, 512), a.dtype), []
        weights = sbuf((P, 512), w.dtype)
        nisa.dma_copy(dst=weights, src=w)

        def turn(i):
            x = sbuf((P, P), a.dtype)
            nisa.dma_copy(dst=x, src=a[i])
            bank = psum((P, P), a.dtype)
            nisa.nc_transpose(dst=bank, data=x)
            tile = sbuf((P, P), a.dtype)
            nisa.tensor_copy(dst=tile, src=bank)
            turned.append(tile)

        for i in range(ahead):
            turn(i)
        for i in range(n):
            if i + ahead < n:
                turn(i + ahead)
            acc = psum((P, 512), nl.float32)
            nisa.nc_matmul(dst=acc, stationary=turned[i], moving=weights)  # in-turn
            y = sbuf((P, 512), a.dtype)
            nisa.tensor_copy(dst=y, src=acc)
            nisa.dma_copy(dst=out[i], src=y)
        return out

    return kernel


def needless(loads, results):
    """Return steps on tiles; and loads, or results, that nothing reads."""

    @nki.jit
    def kernel(a, b):
        out = out_of(a.shape, a.dtype)
        for i in range(a.shape[0]):
            x = sbuf(a.shape[1:], a.dtype)
            nisa.dma_copy(dst=x, src=a[i])
            y = sbuf(a.shape[1:], a.dtype)
            nisa.activation(dst=y, op=nl.exp, data=x)
            if loads:
                other = sbuf(a.shape[1:], a.dtype)
                nisa.dma_copy(dst=other, src=b[i])  # unread-loads
            if results:
                more = sbuf(a.shape[1:], a.dtype)
                nisa.activation(dst=more, op=nl.exp, data=y)  # unread-results
                again = sbuf(a.shape[1:], a.dtype)
                nisa.activation(dst=again, op=nl.exp, data=more)
            nisa.dma_copy(dst=out[i], src=y)
        return out

    return kernel


def added(free, buffers=None):
    """Return a sum of two vectors in tiles of so many columns, in so many buffers (None: as many as
    there are tiles)."""

    @nki.jit
    def kernel(a, b):
        n = a.shape[0] // (P * free)
        out = out_of((n, P, free), a.dtype)
        x, y = (v.reshape((n, P, free)) for v in (a, b))
        own = [[sbuf((P, free), a.dtype) for _ in range(3)] for _ in range(buffers or min(n, 1))]
        for i in range(n):
            one, two, total = (
                own[i % buffers] if buffers else [sbuf((P, free), a.dtype) for _ in range(3)]
            )
            nisa.dma_copy(dst=one, src=x[i])
            nisa.dma_copy(dst=two, src=y[i])
            nisa.tensor_tensor(dst=total, data1=one, data2=two, op=nl.add)
            nisa.dma_copy(dst=out[i], src=total)
        return out

    return kernel


def products(keep, dtype=None):
    """Return a.T @ b with `a` loaded for each tile of columns, or once."""

    @nki.jit
    def kernel(a, b):
        columns = b.shape[1]
        out = out_of((P, columns), a.dtype)

        def left():
            tile = sbuf(a.shape, a.dtype)
            nisa.dma_copy(dst=tile, src=a)  # repeated-loads
            return tile

        once = left() if keep else None
        for j in range(columns // 512):
            here = once if keep else left()
            right = sbuf((P, 512), b.dtype)
            nisa.dma_copy(dst=right, src=b[:, j * 512 : (j + 1) * 512])
            acc = psum((P, 512), nl.float32)
            nisa.nc_matmul(dst=acc, stationary=here[:, 0:P], moving=right)
            done = sbuf((P, 512), a.dtype)
            nisa.tensor_copy(dst=done, src=acc)
            nisa.dma_copy(dst=out[:, j * 512 : (j + 1) * 512], src=done)
        return out

    return kernel


def two_passes(fused):
    """Return a kernel that squares and doubles, by way of HBM or not."""

    @nki.jit
    def kernel(a):
        out, between = out_of(a.shape, a.dtype), nl.ndarray(a.shape, a.dtype, buffer=nl.hbm)
        for i in range(a.shape[0]):
            x = sbuf(a.shape[1:], a.dtype)
            nisa.dma_copy(dst=x, src=a[i])
            square = sbuf(a.shape[1:], a.dtype)
            nisa.tensor_tensor(dst=square, data1=x, data2=x, op=nl.multiply)
            if fused:
                twice = sbuf(a.shape[1:], a.dtype)
                nisa.tensor_scalar(dst=twice, data=square, op0=nl.multiply, operand0=2.0)
                nisa.dma_copy(dst=out[i], src=twice)
            else:
                nisa.dma_copy(dst=between[i], src=square)
        if not fused:
            for i in range(a.shape[0]):
                back = sbuf(a.shape[1:], a.dtype)
                nisa.dma_copy(dst=back, src=between[i])  # round-trip
                twice = sbuf(a.shape[1:], a.dtype)
                nisa.tensor_scalar(dst=twice, data=back, op0=nl.multiply, operand0=2.0)
                nisa.dma_copy(dst=out[i], src=twice)
        return out

    return kernel


def functions(mixed):
    """Return exp and tanh of tiles: in turn, or all of one function first."""

    @nki.jit
    def kernel(a):
        n = a.shape[0]
        out, tiles = out_of((2, *a.shape), a.dtype), []
        for i in range(n):
            x = sbuf(a.shape[1:], a.dtype)
            nisa.dma_copy(dst=x, src=a[i])
            tiles.append(x)

        def compute(k, op, i):
            y = sbuf(a.shape[1:], a.dtype)
            nisa.activation(dst=y, op=op, data=tiles[i])  # activation-tables
            nisa.dma_copy(dst=out[k, i], src=y)

        if mixed:
            for i in range(n):
                compute(0, nl.exp, i)
                compute(1, nl.tanh, i)
        else:
            for i in range(n):
                compute(0, nl.exp, i)
            for i in range(n):
                compute(1, nl.tanh, i)
        return out

    return kernel


def summed(parts):
    """Return a chain of additions on tiles of so many partitions; the elements are the same."""

    @nki.jit
    def kernel(a):
        out, x = out_of(a.shape, a.dtype), sbuf(a.shape, a.dtype)
        nisa.dma_copy(dst=x, src=a)
        for _ in range(40):
            y = sbuf(a.shape, a.dtype)
            nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0)  # idle-lanes
            x = y
        nisa.dma_copy(dst=out, src=x)
        return out

    return kernel


def causal(skip):
    """Return exp(q @ k.T) @ v of rows that see themselves and the rows before; tiles that are all
    masked are computed as well, or not."""

    @nki.jit
    def kernel(q, k, v):
        tiles = q.shape[1] // P
        out = out_of(v.shape, v.dtype)
        keys, values = [], []
        for j in range(tiles):
            key, value = sbuf((P, P), k.dtype), sbuf((P, v.shape[1]), v.dtype)
            nisa.dma_copy(dst=key, src=k[:, j * P : (j + 1) * P])
            nisa.dma_copy(dst=value, src=v[j * P : (j + 1) * P])
            keys.append(key)
            values.append(value)
        for i in range(tiles):
            query = sbuf((P, P), q.dtype)
            nisa.dma_copy(dst=query, src=q[:, i * P : (i + 1) * P])
            acc = psum((P, v.shape[1]), nl.float32)
            last = i if skip else tiles - 1
            for j in range(last + 1):
                scores = psum((P, P), nl.float32)
                nisa.nc_matmul(dst=scores, stationary=keys[j], moving=query)  # key by query
                tile = sbuf((P, P), nl.float32)
                nisa.tensor_copy(dst=tile, src=scores)
                seen = sbuf((P, P), nl.float32)
                nisa.affine_select(  # masked-work
                    dst=seen,
                    pattern=[[1, P]],
                    offset=(i - j) * P,
                    channel_multiplier=-1,
                    on_true_tile=tile,
                    on_false_value=-1e30,
                    cmp_op=nl.greater_equal,
                )
                weight = sbuf((P, P), v.dtype)
                nisa.activation(dst=weight, op=nl.exp, data=seen)
                nisa.nc_matmul(dst=acc, stationary=weight, moving=values[j], accumulate=j > 0)
            done = sbuf((P, v.shape[1]), v.dtype)
            nisa.tensor_copy(dst=done, src=acc)
            nisa.dma_copy(dst=out[i * P : (i + 1) * P], src=done)
        return out

    return kernel


def triggered(mode, *engines):
    """Return steps on tiles whose DMAs ask for descriptors in a mode, from the engines in turn."""

    @nki.jit
    def kernel(a):
        out = out_of(a.shape, a.dtype)
        for i in range(a.shape[0]):
            x, y = sbuf(a.shape[1:], a.dtype), sbuf(a.shape[1:], a.dtype)
            one, other = (engines[(2 * i + k) % len(engines)] for k in (0, 1))
            nisa.dma_copy(dst=x, src=a[i], dge_mode=mode, engine=one)
            nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=out[i], src=y, dge_mode=mode, engine=other)
        return out

    return kernel


def summing(at_once):
    """Return the sums of exp of tiles, by two instructions each or by one."""

    @nki.jit
    def kernel(a):
        out = out_of((P, a.shape[0]), nl.float32)
        sums = sbuf((P, a.shape[0]), nl.float32)
        for i in range(a.shape[0]):
            x, y = sbuf(a.shape[1:], a.dtype), sbuf(a.shape[1:], nl.float32)
            nisa.dma_copy(dst=x, src=a[i])
            total = sums[:, i : i + 1]
            if at_once:
                nisa.activation_reduce(dst=y, op=nl.exp, data=x, reduce_op=nl.add, reduce_res=total)
            else:
                nisa.activation(dst=y, op=nl.exp, data=x)
                nisa.tensor_reduce(dst=total, op=nl.add, data=y, axis=1)  # separate-sums
        nisa.dma_copy(dst=out, src=sums)
        return out

    return kernel


def living(count):
    """Return exp of tiles; so many live at a time."""

    @nki.jit
    def kernel(a):
        n = a.shape[0]
        out = out_of(a.shape, a.dtype)
        for first in range(0, n, count):
            tiles = []
            for i in range(first, first + count):
                x = sbuf(a.shape[1:], a.dtype)
                nisa.dma_copy(dst=x, src=a[i])
                nisa.activation(dst=x, op=nl.exp, data=x)  # spills
                tiles.append(x)
            for i in range(first, first + count):
                nisa.dma_copy(dst=out[i], src=tiles[i - first])
        return out

    return kernel


def turning(once):
    """Return products of turned tiles, which are turned for each product or once."""

    @nki.jit
    def kernel(a, b):
        n = a.shape[0]
        out = out_of((P, b.shape[1]), a.dtype)
        tiles, turned = [], []
        for i in range(n):
            x = sbuf((P, P), a.dtype)
            nisa.dma_copy(dst=x, src=a[i])
            tiles.append(x)

        def turn(i):
            bank, tile = psum((P, P), a.dtype), sbuf((P, P), a.dtype)
            nisa.nc_transpose(dst=bank, data=tiles[i])  # transposes
            nisa.tensor_copy(dst=tile, src=bank)
            return tile

        if once:
            for i in range(n):
                turned.append(turn(i))
        rights = sbuf(b.shape, b.dtype)
        nisa.dma_copy(dst=rights, src=b)
        for j in range(b.shape[1] // 128):
            right = rights[:, j * 128 : (j + 1) * 128]
            acc = psum((P, 128), nl.float32)
            for i in range(n):
                tile = turned[i] if once else turn(i)
                nisa.nc_matmul(dst=acc, stationary=tile, moving=right, accumulate=i > 0)
            done = sbuf((P, 128), a.dtype)
            nisa.tensor_copy(dst=done, src=acc)
            nisa.dma_copy(dst=out[:, j * 128 : (j + 1) * 128], src=done)
        return out

    return kernel


def chains(in_turn):
    """Return a kernel of chains of products, where each product needs the sum before it.

    The chains run one after the other, or take turns (`in_turn`).
    """

    @nki.jit
    def kernel(a, w):
        n, steps = a.shape[0], 60
        out, tiles, sums = out_of(a.shape, a.dtype), [], []
        weights = sbuf((P, P), w.dtype)
        nisa.dma_copy(dst=weights, src=w)
        for i in range(n):
            x, total = sbuf(a.shape[1:], a.dtype), sbuf(a.shape[1:], nl.float32)
            nisa.dma_copy(dst=x, src=a[i])
            nisa.tensor_copy(dst=total, src=x)
            tiles.append(x)
            sums.append(total)

        def step(i):
            acc = psum((P, 512), nl.float32)
            for k in range(5):
                nisa.nc_matmul(  # cold-clock
                    dst=acc, stationary=weights, moving=tiles[i], accumulate=k > 0
                )
            nisa.tensor_tensor(dst=sums[i], data1=sums[i], data2=acc, op=nl.add)
            x = sbuf(a.shape[1:], a.dtype)
            nisa.tensor_scalar(dst=x, data=sums[i], op0=nl.multiply, operand0=1e-3)
            tiles[i] = x

        if in_turn:
            for _ in range(steps):
                for i in range(n):
                    step(i)
        else:
            for i in range(n):
                for _ in range(steps):
                    step(i)
        for i in range(n):
            nisa.dma_copy(dst=out[i], src=tiles[i])
        return out

    return kernel


def causal_rows(skip):
    """Return exp(q @ k.T) @ v as `causal` does, with a mask over whole rows; columns that are
    masked in all of a tile of rows are computed as well, or not."""

    @nki.jit
    def kernel(q, k, v):
        columns, wide = q.shape[1], v.shape[1]
        out, values = out_of(v.shape, v.dtype), []
        keys, queries = sbuf((P, columns), k.dtype), sbuf((P, columns), q.dtype)
        nisa.dma_copy(dst=keys, src=k)
        nisa.dma_copy(dst=queries, src=q)
        for j in range(columns // P):
            value = sbuf((P, wide), v.dtype)
            nisa.dma_copy(dst=value, src=v[j * P : (j + 1) * P])
            values.append(value)
        for i in range(columns // P):
            width = (i + 1) * P if skip else columns
            row = sbuf((P, width), nl.float32)
            for j in range(0, width, 512):
                n = min(512, width - j)
                scores = psum((P, n), nl.float32)
                query = queries[:, i * P : (i + 1) * P]
                nisa.nc_matmul(dst=scores, stationary=query, moving=keys[:, j : j + n])
                nisa.tensor_copy(dst=row[:, j : j + n], src=scores)
            seen, weight = sbuf((P, width), nl.float32), sbuf((P, width), v.dtype)
            nisa.affine_select(  # masked-columns
                dst=seen,
                pattern=[[-1, width]],
                offset=i * P,
                channel_multiplier=1,
                on_true_tile=row,
                on_false_value=-1e30,
                cmp_op=nl.greater_equal,
            )
            nisa.activation(dst=weight, op=nl.exp, data=seen)
            acc = psum((P, wide), nl.float32)
            for j in range(width // P):
                bank, turned = psum((P, P), v.dtype), sbuf((P, P), v.dtype)
                nisa.nc_transpose(dst=bank, data=weight[:, j * P : (j + 1) * P])
                nisa.tensor_copy(dst=turned, src=bank)
                nisa.nc_matmul(dst=acc, stationary=turned, moving=values[j], accumulate=j > 0)
            done = sbuf((P, wide), v.dtype)
            nisa.tensor_copy(dst=done, src=acc)
            nisa.dma_copy(dst=out[i * P : (i + 1) * P], src=done)
        return out

    return kernel


def squared(engine):
    """Return sums of the squares of tiles; one engine squares, the Vector Engine sums."""

    @nki.jit
    def kernel(a):
        sums, out = sbuf((P, a.shape[0]), nl.float32), out_of((P, a.shape[0]), nl.float32)
        for i in range(a.shape[0]):
            x, y = sbuf(a.shape[1:], a.dtype), sbuf(a.shape[1:], nl.float32)
            nisa.dma_copy(dst=x, src=a[i])
            if engine == "vector":
                nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.multiply)  # vector-squares
            else:
                nisa.activation(dst=y, op=nl.square, data=x)
            nisa.tensor_reduce(dst=sums[:, i : i + 1], op=nl.add, data=y, axis=1)
        nisa.dma_copy(dst=out, src=sums)
        return out

    return kernel


UNKNOWN, SYNC, SCALAR = nisa.engine.unknown, nisa.engine.sync, nisa.engine.scalar
STRICT: dict[str, Any] = {"compiler": ()}
#: without what the compiler mends by itself
ALONE: dict[str, Any] = {"compiler": compiler.DEFAULT}
VECTOR = zeros(256000)
LONG = zeros(1280000)
#: cause: (kernel, arguments, kernel after the advice, its arguments, options)
JOBS: dict[str, tuple[Any, tuple, Any, tuple, dict[str, Any]]] = {
    "late-loads": (prefetched(0), (half(P, 6144, 2),), prefetched(2), (half(P, 6144, 2),), ALONE),
    "blocked-queue": (
        gathered(0),
        (zeros(16, P, 2048), zeros(2048, 512)),
        gathered(2),
        (zeros(16, P, 2048), zeros(2048, 512)),
        {},
    ),
    "in-turn": (
        pipelined(0),
        (half(32, P, P), half(P, 512)),
        pipelined(1),
        (half(32, P, P), half(P, 512)),
        STRICT,
    ),
    "masked-work": (
        causal(False),
        (half(P, 1024), half(P, 1024), half(1024, P)),
        causal(True),
        (half(P, 1024), half(P, 1024), half(1024, P)),
        {},
    ),
    "masked-columns": (
        causal_rows(False),
        (half(P, 1024), half(P, 1024), half(1024, P)),
        causal_rows(True),
        (half(P, 1024), half(P, 1024), half(1024, P)),
        {},
    ),
    "unread-loads": (
        needless(True, False),
        (zeros(16, P, 1024), zeros(16, P, 1024)),
        needless(False, False),
        (zeros(16, P, 1024), zeros(16, P, 1024)),
        {},
    ),
    "unread-results": (
        needless(False, True),
        (half(16, P, 1024), half(16, P, 1024)),
        needless(False, False),
        (half(16, P, 1024), half(16, P, 1024)),
        {},
    ),
    "small-transfers": (added(10), (VECTOR, VECTOR), added(500), (VECTOR, VECTOR), {}),
    "single-buffer": (
        added(1000, 1),
        (LONG, LONG),
        added(1000, 4),
        (LONG, LONG),
        {"compiler": ("reorder", "engines")},
    ),
    "repeated-loads": (
        products(False),
        (half(P, 4096), half(P, 8192)),
        products(True),
        (half(P, 4096), half(P, 8192)),
        ALONE,
    ),
    "round-trip": (
        two_passes(False),
        (zeros(16, P, 2048),),
        two_passes(True),
        (zeros(16, P, 2048),),
        {},
    ),
    "activation-tables": (
        functions(True),
        (zeros(16, P, 512),),
        functions(False),
        (zeros(16, P, 512),),
        {},
    ),
    "idle-lanes": (summed(16), (zeros(16, 4096),), summed(P), (zeros(P, 512),), {}),
    "wide-data": (added(1000), (LONG, LONG), added(1000), (half(1280000), half(1280000)), {}),
    "descriptors": (
        triggered(nisa.dge_mode.unknown, UNKNOWN),
        (half(64, P, 512),),
        triggered(nisa.dge_mode.none, UNKNOWN),
        (half(64, P, 512),),
        {},
    ),
    "one-queue": (
        triggered(nisa.dge_mode.hwdge, SYNC),
        (half(64, P, 512),),
        triggered(nisa.dge_mode.hwdge, SYNC, SCALAR, SCALAR, SYNC),
        (half(64, P, 512),),
        {},
    ),
    "separate-sums": (
        summing(False),
        (half(16, P, 2048),),
        summing(True),
        (half(16, P, 2048),),
        {},
    ),
    "vector-squares": (
        squared("vector"),
        (half(16, P, 2048),),
        squared("scalar"),
        (half(16, P, 2048),),
        {},
    ),
    "spills": (living(16), (zeros(16, P, 8192),), living(2), (zeros(16, P, 8192),), {}),
    "transposes": (
        turning(False),
        (half(8, P, P), half(P, 8192)),
        turning(True),
        (half(8, P, P), half(P, 8192)),
        ALONE,
    ),
    "cold-clock": (
        chains(False),
        (half(2, P, 512), half(P, P)),
        chains(True),
        (half(2, P, 512), half(P, P)),
        {},
    ),
}


def twice(mode):
    """Return squares of tiles that two loads of the same bytes bring; who makes descriptors."""

    @nki.jit
    def kernel(a):
        out = out_of(a.shape, a.dtype)
        for i in range(a.shape[0]):
            x, y = sbuf(a.shape[1:], a.dtype), sbuf(a.shape[1:], a.dtype)
            nisa.dma_copy(dst=x, src=a[i], dge_mode=mode)
            nisa.dma_copy(dst=y, src=a[i], dge_mode=mode)
            nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.multiply)
            nisa.dma_copy(dst=out[i], src=x, dge_mode=mode)
        return out

    return kernel


def running(at_once):
    """Return the running sums of rows: an instruction for each column, or for the row."""

    @nki.jit
    def kernel(a):
        out, x = out_of(a.shape, a.dtype), sbuf(a.shape, a.dtype)
        nisa.dma_copy(dst=x, src=a)
        if at_once:
            ones = sbuf(a.shape, a.dtype)
            nisa.memset(dst=ones, value=1.0)
            y = sbuf(a.shape, a.dtype)
            nisa.tensor_tensor_scan(
                dst=y, data0=ones, data1=x, initial=0.0, op0=nl.multiply, op1=nl.add
            )
            x = y
        else:
            for i in range(1, a.shape[1]):
                now, last = x[:, i : i + 1], x[:, i - 1 : i]
                nisa.tensor_tensor(dst=now, data1=now, data2=last, op=nl.add)  # short-instructions
        nisa.dma_copy(dst=out, src=x)
        return out

    return kernel


def steps(mode):
    """Return the kernel of `descriptors`."""
    return triggered(mode, UNKNOWN)


ASKED, BEFORE = nisa.dge_mode.unknown, nisa.dge_mode.none
#: (cause, what is other about it): jobs as in JOBS, most of them small
MORE: dict[tuple[str, str], tuple[Any, tuple, Any, tuple, dict[str, Any]]] = {
    ("descriptors", "two equal loads"): (
        twice(ASKED), (half(64, P, 512),), twice(BEFORE), (half(64, P, 512),), {},
    ),
    ("descriptors", "small"): (
        steps(ASKED), (half(8, P, 256),), steps(BEFORE), (half(8, P, 256),), {},
    ),
    ("descriptors", "many"): (
        steps(ASKED), (half(256, P, 128),), steps(BEFORE), (half(256, P, 128),), {},
    ),
    ("vector-squares", "small"): (
        squared("vector"), (half(4, P, 1024),), squared("scalar"), (half(4, P, 1024),), {},
    ),
    ("round-trip", "small"): (
        two_passes(False), (zeros(4, P, 1024),), two_passes(True), (zeros(4, P, 1024),), {},
    ),
    ("activation-tables", "small"): (
        functions(True), (zeros(4, P, 256),), functions(False), (zeros(4, P, 256),), {},
    ),
    ("short-instructions", "a chain"): (
        running(False), (zeros(P, 1024),), running(True), (zeros(P, 1024),), {},
    ),
    ("masked-work", "small"): (
        causal(False), (half(P, 512),) * 2 + (half(512, P),),
        causal(True), (half(P, 512),) * 2 + (half(512, P),), {},
    ),
}  # fmt: skip
