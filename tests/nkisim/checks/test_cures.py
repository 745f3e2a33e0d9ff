"""What is printed behind `try:` makes the wrong kernel right: it is put in the place of the line.

A row is a wrong line of a kernel, words of the message, and where the cure goes: the printed Python
itself, or, where the cure is prose, the line that a reader makes of it. The cured kernel runs, and
nothing but what belongs to an excerpt is said about it.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import nkisim
from cures_beta1 import BETA1, Row

X = np.random.default_rng(0).random((256, 512), dtype=np.float32)
HEADS = {
    "nki": "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n",
    "beta1": "from neuronxcc import nki\nimport neuronxcc.nki.isa as nisa\n"
    "import neuronxcc.nki.language as nl\n",
}
BEFORE = {
    "nki": """
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[0:128])
    u = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=u, src=x[128:256])
    nisa.dma_copy(dst=out[0:128], src=t)
    nisa.dma_copy(dst=out[128:256], src=u)
    y = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    s = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=s, value=1.0)
    p = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    q = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum)
    low, high, n, rows = 0.0, 1.0, 512, None
    shape = (128, 512)
""",
    "beta1": """
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x[0:128])
    u = nl.load(x[128:256])
    s = nl.load(x[0:128, 0:1])
    nl.store(out[0:128], t)
    nl.store(out[128:256], u)
    low, high, n, value = 0.0, 1.0, 512, 0.5
    shape = (128, 512)
""",
}
#: findings that belong to kernels which are an excerpt: inputs and tiles that nothing uses
EXCERPT = {"NKI-O07", "NKI-U04"}


NKI = (
    # places beyond the end, slices that are empty, rows that are to be repeated
    Row(
        "nisa.dma_copy(dst=t, src=x[256:384])",
        "NKI-I01",
        "how far does the loop go",
        "nisa.dma_copy(dst=t, src=x[128:256])",
    ),
    Row(
        "nisa.dma_copy(dst=t, src=x[128:128])",
        "NKI-I01",
        "from start to start + size",
        "nisa.dma_copy(dst=t, src=x[128:256])",
    ),
    Row(
        "nisa.dma_copy(dst=y, src=x[0:1].reshape((128, 512)))",
        "NKI-S06",
        "row.broadcast(0, 128)",
        "nisa.dma_copy(dst=y, src=x[0:1].broadcast(0, 128))",
    ),
    Row(
        "out = nl.zeros((256, 512), dtype=x.dtype)",
        "NKI-P01",
        "buffer=nl.shared_hbm",
        "z = nl.zeros((128, 512), dtype=x.dtype)",
    ),
    Row("nisa.tensor_copy(dst=t, src=y)", "NKI-U01", "exchanged", "nisa.tensor_copy(dst=y, src=t)"),
    # copies of another size
    Row("nisa.dma_copy(dst=t, src=x[0:64])", "NKI-S01", "the shape of the source: "),
    Row("nisa.dma_copy(dst=t, src=x[0:128, 0:256])", "NKI-S01", "the shape of the source: "),
    Row(
        "nisa.dma_copy(dst=t[0:64], src=x[0:128])",
        "NKI-S01",
        "the shape of the source: ",
        "nisa.dma_copy(dst=t, src=x[0:128])",
    ),
    Row("nisa.dma_copy(dst=t, src=x)", "NKI-S01", "src=x[0:128] (a loop moves the others"),
    Row("nisa.dma_copy(dst=out, src=t)", "NKI-S01", "dst=out[0:128]"),
    Row("nisa.tensor_copy(dst=y, src=t[:, 0:256])", "NKI-S01", "the shape of the source: "),
    # dst of another shape than the result
    Row(
        "nisa.tensor_reduce(dst=y, op=nl.add, data=t, axis=1)", "NKI-S01", "y = nl.ndarray((128, 1)"
    ),
    Row("nisa.activation(dst=s, op=nl.exp, data=t)", "NKI-S01", "s = nl.ndarray((128, 512)"),
    Row(
        "nisa.tensor_scalar(dst=s, data=t, op0=nl.add, operand0=1.0)",
        "NKI-S01",
        "s = nl.ndarray((128, 512)",
    ),
    # a window that moves: more of dst would take what is no part of it
    Row(
        "for j in range(2):\n        nisa.tensor_copy(dst=y[:, 0:510], src=t[:, j:512])",
        "NKI-S01",
        "src=t[:, j:j + 510]",
        "for j in range(2):\n        nisa.tensor_copy(dst=y[:, 0:510], src=t[:, j:j + 510])",
    ),
    Row(
        "for j in range(2):\n        "
        "nisa.tensor_scalar(dst=y[:, 0:510], data=t[0:128, 2 * j:n], op0=nl.add, operand0=1.0)",
        "NKI-S01",
        "data=t[0:128, 2 * j:2 * j + 510]",
        "for j in range(2):\n        "
        "nisa.tensor_scalar(dst=y[:, 0:510], data=t[:, j:j + 510], op0=nl.add, operand0=1.0)",
    ),
    Row(
        "nisa.tensor_scalar(dst=y[:, 0:510], data=t, op0=nl.add, operand0=1.0)",
        "NKI-S01",
        "or where a window moves: data=t[:, j:j + 510]",
        "nisa.tensor_scalar(dst=y[:, 0:510], data=t[:, 2:2 + 510], op0=nl.add, operand0=1.0)",
    ),
    Row(
        "nisa.nc_matmul(dst=q, stationary=t[:, 0:128], moving=u)",
        "NKI-S01",
        "q = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)",
    ),
    Row(
        "nisa.nc_matmul(dst=q, stationary=t[:, 0:64], moving=u[:, 0:128])",
        "NKI-S01",
        "stationary and moving are exchanged",
    ),
    # operators
    Row("z = t + 1.0", "NKI-N04", "operand0=1.0"),
    Row("t += 1.0", "NKI-N04", "nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)"),
    Row("z = t + u", "NKI-N04", "data1=t, data2=u, op=nl.add"),
    Row("t += u", "NKI-N04", "nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)"),
    Row("z = 1.0 - t", "NKI-N04", "operand0=1.0, reverse0=True"),
    Row("z = t * s", "NKI-N04", "op0=nl.multiply, operand0=s"),
    Row(
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u)\nz = p + s",
        "NKI-N04",
        "nisa.tensor_scalar(dst=z, data=p, op0=nl.add, operand0=s)",
    ),
    Row(
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u)\n"
        "p += nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u)",
        "NKI-N04",
        "the first write to a place of PSUM overwrites, later ones add",
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u)\n"
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u)",
    ),
    Row(
        "w = nl.ndarray((128,), dtype=x.dtype, buffer=nl.shared_hbm)\nnisa.dma_copy(dst=w, src=t)",
        "NKI-S01",
        "src=t[:, 0]",
    ),
    Row(
        "z = x.T",
        "NKI-K14",
        "load a tile first, and work on it: nisa.nc_transpose(dst=p, data=t)",
        "nisa.nc_transpose(dst=p[:, 0:128], data=t[:, 0:128])",
    ),
    Row("z = s * t", "NKI-N04", "op0=nl.multiply, operand0=s"),
    Row("z = t / 2.0", "NKI-N04", "operand0=1.0 / 2.0"),
    Row("z = 2.0 / t", "NKI-N04", "nisa.reciprocal"),
    Row("z = t / u", "NKI-N04", "nisa.reciprocal"),
    Row("z = t ** 2", "NKI-N04", "data1=t, data2=t, op=nl.multiply"),
    Row("z = t ** 0.5", "NKI-N04", "op=nl.sqrt"),
    Row("z = t ** 3", "NKI-N04", "op0=nl.power, operand0=3"),
    Row(
        "z = -t",
        "NKI-N04",
        "op0=nl.multiply, operand0=-1.0",
        "nisa.tensor_scalar(y, data=t, op0=nl.multiply, operand0=-1.0)",
    ),
    Row("z = abs(t)", "NKI-N04", "op=nl.abs", "z = nl.abs(t)"),
    Row("z = t > 0", "NKI-N04", "nl.greater(t, 0)", "z = nl.greater(t, 0)"),
    Row("z = max(t, u)", "NKI-N04", "nl.maximum(t, u)", "z = nl.maximum(t, u)"),
    Row("if t > 0:\n    pass", "NKI-N04", "nl.where", "z = nl.where(nl.greater(t, 0.0), t, u)"),
    # the wrong memory
    Row(
        "nisa.activation(dst=out[0:128], op=nl.exp, data=t)",
        "NKI-M01",
        "nisa.dma_copy(dst=out[0:128], src=result)",
    ),
    Row(
        "nisa.tensor_tensor(dst=out[0:128], data1=t, data2=u, op=nl.add)",
        "NKI-M01",
        "nisa.dma_copy(dst=out[0:128], src=result)",
    ),
    Row(
        "nisa.tensor_copy(dst=out[0:128], src=t)", "NKI-M01", "nisa.dma_copy(dst=out[0:128], src=t)"
    ),
    Row(
        "nisa.nc_matmul(dst=out[0:128], stationary=t[:, 0:128], moving=u)",
        "NKI-M01",
        "nisa.tensor_copy(dst=tile, src=result)",
    ),
    Row("nisa.nc_matmul(dst=y, stationary=t[:, 0:128], moving=u)", "NKI-M01", "buffer=nl.psum"),
    Row(
        "nisa.activation(dst=y, op=nl.exp, data=x[0:128])",
        "NKI-M01",
        "nisa.dma_copy(dst=tile, src=x[0:128])",
    ),
    Row(
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u)\n"
        "nisa.dma_copy(dst=out[0:128], src=p)",
        "NKI-M01",
        "nisa.tensor_copy(dst=tile, src=p)",
    ),
    Row("nisa.dma_copy(dst=p, src=x[0:128])", "NKI-M01", "nisa.tensor_copy(dst=p, src=tile)"),
    Row("nisa.tensor_copy(dst=y, src=x[0:128])", "NKI-M01", "nisa.dma_copy(dst=y, src=x[0:128])"),
    Row(
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=x[0:128])",
        "NKI-M01",
        "nisa.dma_copy(dst=tile, src=x[0:128])",
    ),
    Row(
        "return t",
        "NKI-O02",
        "out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm); "
        "nisa.dma_copy(dst=out, src=t); return out",
    ),
    Row(
        "z = nl.ndarray((128, 512), dtype=x.dtype)\nreturn z",
        "NKI-O02",
        "nl.ndarray without buffer= is a tile: buffer=nl.shared_hbm",
        "z = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "nisa.dma_copy(dst=z, src=t)\nreturn z",
    ),
    # loops over what is no list, sums that nothing begins, sizes of nothing
    Row(
        "for row in t:\n    nisa.memset(dst=row, value=0.0)",
        "NKI-I08",
        "leave the loop out",
        "nisa.memset(dst=t, value=0.0)",
    ),
    Row(
        "for row in x:\n    nisa.dma_copy(dst=t, src=row)",
        "NKI-I08",
        "for i in range(0, t.shape[0], 128)",
        "for i in range(0, x.shape[0], 128):\n    nisa.dma_copy(dst=t, src=x[i:i + 128])",
    ),
    Row(
        "z = [row for row in t]",
        "NKI-I08",
        "leave the loop out",
        "nisa.memset(dst=t, value=0.0)",
    ),
    # a row where a number for each partition is meant; a subscript that takes a dim away
    Row(
        "nisa.activation(dst=y, op=nl.exp, data=t, bias=t[0:1])",
        "NKI-E08",
        "nisa.dma_copy(dst=t, src=row.broadcast(0, 128))",
        "nisa.dma_copy(dst=y, src=x[0:1].broadcast(0, 128))\n"
        "nisa.tensor_tensor(dst=y, data1=t, data2=y, op=nl.add)",
    ),
    Row(
        "nisa.dma_copy(dst=t, src=x[0])",
        "NKI-S01",
        "src=x[0:128] as many as the tile has",
        "nisa.dma_copy(dst=t, src=x[0:128])",
    ),
    Row(
        "row = x.reshape((131072,))\nnisa.dma_copy(dst=t, src=row)",
        "NKI-S01",
        "src=row.reshape((1, 131072)) is one row",
        "row = x.reshape((131072,)).reshape((1, 131072))\n"
        "nisa.dma_copy(dst=t[0:1], src=row[:, 0:512])",
    ),
    # sums whose tile is new in each turn, last tiles that are partial
    Row(
        "for k in range(2):\n"
        "    z = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)\n"
        "    nisa.nc_matmul(dst=z, stationary=t[:, 0:128], moving=u, accumulate=k > 0)",
        "NKI-N08",
        "one tile for the whole sum, made before its loop",
        "z = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)\n"
        "for k in range(2):\n"
        "    nisa.nc_matmul(dst=z, stationary=t[:, 0:128], moving=u, accumulate=k > 0)",
    ),
    Row(
        "for k in range(2):\n"
        "    nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u, accumulate=True)",
        "NKI-N08",
        "then leave accumulate out",
        "for k in range(2):\n    nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u)",
    ),
    Row(
        "r = 192\nnisa.dma_copy(dst=y[0:64], src=x[r:r + 128])",
        "NKI-I01",
        "x[i:min(i + 128, 256)]",
        "r = 192\nnisa.dma_copy(dst=y[0:64], src=x[r:min(r + 128, 256)])",
    ),
    Row(
        "r = 192\nz = nl.ndarray((64, 512), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.dma_copy(dst=z, src=x[r:r + 128])",
        "NKI-I01",
        "x[r:min(r + 128, 256)]",
        "r = 192\nz = nl.ndarray((64, 512), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.dma_copy(dst=z, src=x[r:min(r + 128, 256)])",
    ),
    Row(
        "r = 384\nz = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.tensor_copy(dst=z, src=t[:, r:r + 256])",
        "NKI-I01",
        "t[:, r:min(r + 256, 512)]",
        "r = 384\nz = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.tensor_copy(dst=z, src=t[:, r:min(r + 256, 512)])",
    ),
    Row(
        "nisa.tensor_copy(dst=y, src=t[:, ::-1])",
        "NKI-I03",
        "on the host",
        "nisa.tensor_copy(dst=y, src=t)",
    ),
    Row("rows, columns = t", "NKI-I08", "t.shape", "rows, columns = t.shape"),
    Row(
        "nisa.tensor_tensor(dst=y, data1=y, data2=t, op=nl.add)",
        "NKI-U01",
        "nisa.memset(y, 0.0) before the loop",
        "nisa.memset(y, 0.0)\nnisa.tensor_tensor(dst=y, data1=y, data2=t, op=nl.add)",
    ),
    Row(
        "z = nl.ndarray((x.shape[0] - 256, 512), dtype=x.dtype, buffer=nl.sbuf)",
        "NKI-S06",
        "a loop with one turn too many, range((n + 127) // 128)",
        "z = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)",
    ),
    Row(
        "nisa.tensor_reduce(dst=s, op=nl.add, data=t, axis=0)",
        "NKI-S10",
        "axis=1 reduces each row",
        "nisa.tensor_reduce(dst=s, op=nl.add, data=t, axis=1)",
    ),
    Row(
        "nisa.dma_copy(dst=out[1:2 * 128], src=t)",
        "NKI-S01",
        "from start to start + size",
        "nisa.dma_copy(dst=out[128:128 + 128], src=t)",
    ),
    Row(
        "nisa.tensor_tensor(y, t, u)",
        "NKI-N01",
        "op=nl.add",
        "nisa.tensor_tensor(y, t, u, op=nl.add)",
    ),
    Row(
        "nisa.tensor_tensor(dst=t, data1=t, data2=s, op=nl.subtract)",
        "NKI-R11",
        "nisa.tensor_scalar(dst=t, data=t, op0=nl.subtract, operand0=s), or s.broadcast(1, 512)",
    ),
    Row(
        "nisa.tensor_tensor(dst=y, data1=s, data2=t, op=nl.subtract)",
        "NKI-R11",
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.subtract, operand0=s, reverse0=True), or",
    ),
    # partitions and shapes
    Row(
        "nisa.dma_copy(dst=t, src=x[0:1])",
        "NKI-R11",
        "row.broadcast(0, 128)",
        "nisa.dma_copy(dst=t, src=x[0:1].broadcast(0, 128))",
    ),
    Row(
        "nisa.tensor_tensor(dst=y, data1=t, data2=u[0:1], op=nl.add)",
        "NKI-S04",
        "nisa.dma_copy(dst=t, src=row.broadcast(0, 128))",
        "nisa.dma_copy(dst=u, src=x[0:1].broadcast(0, 128))\n"
        "nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.add)",
    ),
    Row(
        "nisa.tensor_tensor(dst=y[0:64], data1=t, data2=u[0:64], op=nl.add)",
        "NKI-S04",
        "slice data1 to the partitions of the other: t[0:64]",
        "nisa.tensor_tensor(dst=y[0:64], data1=t[0:64], data2=u[0:64], op=nl.add)",
    ),
    Row(
        "v = nl.ndarray((2, 64, 64), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.memset(dst=v, value=0.0)\n"
        "w = nl.ndarray((3, 64, 64), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.memset(dst=w, value=0.0)\n"
        "nisa.tensor_tensor(dst=v, data1=v, data2=w, op=nl.add)",
        "NKI-S04",
        "the first dim of a tile is its partitions",
        "v = nl.ndarray((64, 2, 64), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.memset(dst=v, value=0.0)\n"
        "w = nl.ndarray((64, 3, 64), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.memset(dst=w, value=0.0)\n"
        "nisa.tensor_tensor(dst=v, data1=v, data2=w[:, 0:2], op=nl.add)",
    ),
    Row(
        "v = nl.ndarray((2, 64, 64), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.memset(dst=v, value=0.0)\n"
        "nisa.tensor_tensor(dst=y[0:64, 0:64], data1=v, data2=t[0:64, 0:64], op=nl.add)",
        "NKI-S04",
        "make v of shape (64, 2, 64), with what is counted behind them, and take one of the 2: "
        "data1=v[:, 0]",
        "v = nl.ndarray((64, 2, 64), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.memset(dst=v, value=0.0)\n"
        "nisa.tensor_tensor(dst=y[0:64, 0:64], data1=v[:, 0], data2=t[0:64, 0:64], op=nl.add)",
    ),
    Row(
        "nisa.tensor_tensor(dst=y[0:64, 0:32], data1=t[0:64, 0:32], data2=u, op=nl.add)",
        "NKI-S04",
        "slice both to the same number of partitions and of elements in each",
        "nisa.tensor_tensor(dst=y[0:64, 0:32], data1=t[0:64, 0:32], data2=u[0:64, 0:32], "
        "op=nl.add)",
    ),
    Row(
        "nisa.tensor_tensor(dst=s.broadcast(1, 64), data1=t, data2=u[:, 0:64], op=nl.add)",
        "NKI-S02",
        "slice both to the same tile: data1=t[:, 0:64]",
        "nisa.tensor_tensor(dst=y[:, 0:64], data1=t[:, 0:64], data2=u[:, 0:64], op=nl.add)",
    ),
    Row(
        "nisa.nc_matmul(dst=p, stationary=t[0:64, 0:128], moving=u)",
        "NKI-S02",
        "the same K: 64",
        "nisa.nc_matmul(dst=p, stationary=t[0:64, 0:128], moving=u[0:64])",
    ),
    Row(
        "z = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.sbuf)",
        "NKI-P01",
        "128 rows",
        "z = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)",
    ),
    Row(
        "z = nl.ndarray((128,), dtype=nl.float32, buffer=nl.sbuf)",
        "NKI-P02",
        "(128, 1)",
        "z = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)",
    ),
    Row(
        "z = t[:, 0:1024]\nnisa.tensor_copy(dst=y, src=z)",
        "NKI-I01",
        "t[:, 0:512]; otherwise",
        "z = t[:, 0:512]\nnisa.tensor_copy(dst=y, src=z)",
    ),
    Row(
        "z = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf, address=(0, 999000))",
        "NKI-A01",
        "a lower address=",
        "z = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)",
    ),
    Row(
        "z = nl.ndarray((128, 512), dtype=nl.float16, buffer=nl.psum)\n"
        "nisa.nc_matmul(dst=z, stationary=t[:, 0:128], moving=u)",
        "NKI-D05",
        "dtype=nl.float32",
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u)",
    ),
    Row(
        "h = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)\n"
        "nisa.memset(dst=h, value=1.0)\nnisa.nc_matmul(dst=p, stationary=h, moving=u)",
        "NKI-D05",
        "nisa.tensor_copy into a tile of the other dtype",
        "h = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.sbuf)\n"
        "nisa.memset(dst=h, value=1.0)\nnisa.tensor_copy(dst=y[:, 0:128], src=h)\n"
        "nisa.nc_matmul(dst=p, stationary=y[:, 0:128], moving=u)",
    ),
    Row(
        "nisa.tensor_copy(dst=t, src=y)",
        "NKI-U01",
        "nisa.memset(y, 0.0)",
        "nisa.memset(y, 0.0)\nnisa.tensor_copy(dst=t, src=y)",
    ),
    # numbers, data types, memories, arrays of the host
    Row(
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply, operand0=nl.float32(-1.0))",
        "NKI-K14",
        "write the number alone: -1.0",
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply, operand0=-1.0)",
    ),
    Row(
        "nisa.tensor_tensor(dst=y, data1=t, data2=1.0, op=nl.add)",
        "NKI-M02",
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.add, operand0=1.0)",
    ),
    Row(
        "z = nl.ndarray((128, 512), dtype='fp32', buffer=nl.sbuf)",
        "NKI-D02",
        "dtype=nl.float32",
        "z = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)",
    ),
    Row(
        "z = nl.ndarray((128, 512), dtype=float, buffer=nl.sbuf)",
        "NKI-D01",
        "dtype=nl.float32",
        "z = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)",
    ),
    Row(
        "z = nl.ndarray(128, 512, dtype=nl.float32)",
        "NKI-N01",
        "one tuple: (128, 512)",
        "z = nl.ndarray((128, 512), dtype=nl.float32)",
    ),
    Row("z = nl.sbuf((128, 512))", "NKI-M05", "buffer=nl.sbuf"),
    Row(
        "nisa.tensor_copy(dst=y, src=np.zeros((128, 512), np.float32))",
        "NKI-M02",
        "nisa.memset(dst=t, value=0.0)",
    ),
    Row("z = nl.sqrt(2.0)", "NKI-M02", "math.sqrt(2.0)", "z = 2.0 ** 0.5"),
    # arguments
    Row(
        "nisa.tensor_scalar(dst=y, data=t, op=nl.add, operand=1.0)",
        "NKI-N01",
        "its name is op0",
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.add, operand0=1.0)",
    ),
    Row(
        "nisa.tensor_tensor(dst=y, src0=t, data2=u, op=nl.add)",
        "NKI-N01",
        "its name is data1",
        "nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.add)",
    ),
    Row(
        "nisa.memset(dst=y, val=0.0)",
        "NKI-N01",
        "its name is value",
        "nisa.memset(dst=y, value=0.0)",
    ),
    Row(
        "nisa.nc_matmul(dst=p, lhs=t[:, 0:128], moving=u)",
        "NKI-N01",
        "its name is stationary",
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u)",
    ),
    Row(
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u, transpose_x=True)",
        "NKI-N01",
        "nothing is transposed",
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=u)",
    ),
    Row(
        "nisa.tensor_reduce(dst=s, op=nl.add, data=t)",
        "NKI-N01",
        "axis=1",
        "nisa.tensor_reduce(dst=s, op=nl.add, data=t, axis=1)",
    ),
    Row("z = nl.exp(t, out=y)", "NKI-N01", "nisa.activation(dst=y, op=nl.exp, data=t)"),
    Row(
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.exp, operand0=1.0)",
        "NKI-E11",
        "nisa.activation(dst=y, op=nl.exp, data=t)",
    ),
    Row(
        "nisa.activation(dst=y, op=nl.add, data=t)",
        "NKI-E11",
        "an operator of two: nisa.tensor",
        "nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.add)",
    ),
    Row(
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply(2.0), operand0=2.0)",
        "NKI-N01",
        "op0=nl.multiply",
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply, operand0=2.0)",
    ),
    # Python and NumPy on tiles
    Row("z = np.add(t, u)", "NKI-K14", "nl.add(t, u)", "z = nl.add(t, u)"),
    Row("z = np.exp(t)", "NKI-K14", "nl.exp(t)", "z = nl.exp(t)"),
    Row(
        "z = np.max(t)",
        "NKI-K14",
        "nl.max(t, axis=1, keepdims=True)",
        "z = nl.max(t, axis=1, keepdims=True)",
    ),
    Row("z = t.sum(axis=1)", "NKI-K14", "nl.sum(t, axis=1, keepdims=True)"),
    Row(
        "z = t.T",
        "NKI-K14",
        "nisa.nc_transpose(dst=p, data=t)",
        "nisa.nc_transpose(dst=p[:, 0:128], data=t[:, 0:128])",
    ),
    Row("z = t.to(nl.bfloat16)", "NKI-K14", "nisa.tensor_copy(dst, t)", "nisa.tensor_copy(y, t)"),
    Row(
        "z = t.view(128, 4, 128)",
        "NKI-K14",
        "t.reshape((128, 4, 128))",
        "z = t.reshape((128, 4, 128))",
    ),
    Row("z = f'{t:.2f}'", "NKI-K14", "nl.device_print", "nl.device_print('t', t)"),
    Row("z = float(t[0, 0])", "NKI-K14", "nl.device_print", "nl.device_print('t', t)"),
    Row(
        "for i in range(t):\n    pass",
        "NKI-K05",
        "range(t.shape[0])",
        "for i in range(t.shape[0]):\n    pass",
    ),
    Row(
        "for i in range(x.shape[0] / 128):\n    pass",
        "NKI-K05",
        "//",
        "for i in range(x.shape[0] // 128):\n    pass",
    ),
)
ROWS = [
    pytest.param(dialect, row, id=f"{dialect}: {row.wrong.splitlines()[0][:60]}")
    for dialect, rows in (("nki", NKI), ("beta1", BETA1))
    for row in rows
]


def kernel_of(dialect: str, body: str, path: Path):
    """Return the kernel with this body, from a file, as users' kernels are."""
    path.write_text(
        f"{HEADS[dialect]}import numpy as np\n\n\n@nki.jit\ndef kernel(x):"
        f"{BEFORE[dialect]}{textwrap.indent(body, '    ')}\n    return out\n",
        encoding="utf-8",
    )
    names: dict = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return names["kernel"]


def statements(hint: str, wrong: str) -> list[str]:
    """Return what can be put in the place of a line, of what is printed behind `try:`."""
    code = re.sub(r"^[A-Za-z][^:()=]*(?:\([^)]*\)[^:()=]*)?: (?=\w)", "", hint)
    code = re.split(r", or |; or |; kernels of | makes the | \(a loop|, for positive", code)[0]
    *before, last = wrong.splitlines()
    if re.fullmatch(r"(dst|src|value)=\S.*", code):  # an argument of the call
        name = code.partition("=")[0]
        changed = re.sub(rf"\b{name}=[^,)]*(\[[^]]*\])?", code, last)
        if changed == last:  # given by place
            given = re.findall(r"\w+(?:\[[^]]*\])?", last.partition("(")[2])
            changed = last.replace(
                given[name != "dst"] + (")" if name != "dst" else ","),
                code.partition("=")[2] + (")" if name != "dst" else ","),
            )
        return [*before, changed]
    if (
        re.match(r"\w+ = nl\.ndarray\(", code) and ";" not in code and not re.match(r"z = ", last)
    ):  # the tile, and the line as it is
        return [*before, code, last]
    return [*before, *code.split("; ")]


def findings(kernel) -> set[str]:
    prof = nkisim.profile(kernel, X, target="trn2")
    return {f.id for f in prof.findings if f.severity != "note"} - EXCERPT


@pytest.mark.parametrize("dialect, row", ROWS)
def test_the_cure_makes_the_kernel_right(dialect, row, tmp_path):
    with pytest.raises(nkisim.NkiError) as caught:
        findings(kernel_of(dialect, row.wrong, tmp_path / "wrong_kernel.py"))
    error = caught.value
    assert error.id == row.id, error.render()
    assert row.words in error.hint, error.render()
    assert error.where.text in (*map(str.strip, row.wrong.splitlines()), "def kernel(x):")
    if dialect == "nki":
        assert not re.search(
            r"nl\.(load|store)\b|base_addr|num_free_tiles|nl\.par_dim|mask=", error.hint
        ), "words of neuronxcc.nki"
    else:
        assert not re.search(r"\bdst=(?!out|\.\.\.)", error.hint), "words of the package nki"
    cured = row.right or "\n".join(statements(error.hint, row.wrong))
    assert findings(kernel_of(dialect, cured, tmp_path / "cured_kernel.py")) == set(), cured
