"""Kernels that the tests of the report profile. They are imported as a student's script is."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

# What a source file can hold must not become markup: </script><img src=x onerror=alert(1)> & "

REPEAT = 1


@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(a.shape[0]):
        a_tile = nl.load(a[i])
        b_tile = nl.load(b[i])
        total = nl.add(a_tile, b_tile)
        nl.store(out[i], value=total)
    return out


@nki.jit
def matmul(lhs_t, rhs):
    k_size, m_size = lhs_t.shape
    _, n_size = rhs.shape
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // 128):
        for n in nl.affine_range(n_size // 512):
            acc = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                left = nl.load(lhs_t[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128])
                right = nl.load(rhs[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
                acc += nisa.nc_matmul(left, right)
            tile = nisa.tensor_copy(acc, dtype=out.dtype)
            nl.store(out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], value=tile)
    return out


@nki.jit
def transpose(a):
    out = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nisa.nc_transpose(nl.load(a)))
    return out


@nki.jit
def repeat(a, times=0):
    """Work on one tile, `times` or REPEAT times: many instructions, little data."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    for _ in nl.sequential_range(times or REPEAT):
        tile[...] = nl.add(tile, 1.0)
    nl.store(out, value=tile)
    return out


@nki.jit
def nothing(a):
    return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)


@nki.jit
def reads_nothing(a):
    """Store a tile whose second half was never written."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    tile[0:64] = nl.load(a[0:64])
    nl.store(out, value=tile)
    return out


@nki.jit
def breaks_a_rule(a):
    return nl.zeros((256, 8), dtype=a.dtype, buffer=nl.sbuf)


@nki.jit
def spoilt(a):
    """Take a root of numbers below zero, and go on with it."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.add(nl.load(a), 0.5)
    root = nisa.activation(op=nl.sqrt, data=tile)
    nl.store(out, value=nl.multiply(root, 2.0))
    return out
