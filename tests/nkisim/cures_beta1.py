"""Wrong lines of kernels of neuronxcc.nki, what is said of them, and their cures."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A wrong line, the id and words of what is said, and the right line where it is prose."""

    wrong: str
    id: str
    words: str
    right: str = ""


_STACK = "v = nl.zeros((2, 64, 64), dtype=x.dtype, buffer=nl.sbuf)\n"
_BEHIND = "v = nl.zeros((64, 2, 64), dtype=x.dtype, buffer=nl.sbuf)\n"
BETA1 = (
    Row(
        "z = nl.load(x[256:384])",
        "NKI-I01",
        "how far does the loop go",
        "z = nl.load(x[128:256])",
    ),
    Row(
        f"{_STACK}nl.store(out[0:64, 0:64], nisa.tensor_tensor(v, t[0:64, 0:64], op=np.add))",
        "NKI-S04",
        "of shape (64, 2, 64), with what is counted behind them, and take one of the 2",
        f"{_BEHIND}nl.store(out[0:64, 0:64], "
        "nisa.tensor_tensor(v[:, 0], t[0:64, 0:64], op=np.add))",
    ),
    Row(
        f"{_STACK}nl.store(out[0:64, 0:64], nl.add(v, t[0:64, 0:64]))",
        "NKI-S04",
        "of shape (64, 2, 64), with what is counted behind them, and take one of the 2",
        f"{_BEHIND}nl.store(out[0:64, 0:64], nl.add(v[:, 0], t[0:64, 0:64]))",
    ),
    Row("nl.store(out, t)", "NKI-S01", "dst=out[0:128]"),
    Row("nl.store(out[0:64], t)", "NKI-S01", "value=t[0:64]"),
    Row(
        "w = nl.ndarray((128,), dtype=x.dtype, buffer=nl.shared_hbm)\nnl.store(w, t)",
        "NKI-S01",
        "value=t[:, 0]",
    ),
    Row(
        "for k in nl.affine_range(2):\n    a = nisa.nc_matmul(t[:, 0:128], u)\nz = nl.copy(a)",
        "NKI-L01",
        "a tile for the sum before the loop",
        "a = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)\n"
        "for k in nl.affine_range(2):\n    a += nisa.nc_matmul(t[:, 0:128], u)\nz = nl.copy(a)",
    ),
    Row(
        "z = nisa.nc_find_index8(data=t, vals=nisa.max8(src=t)[:, 0:1])",
        "NKI-P08",
        "a tile of 8: vals is what nisa.max8 gives",
        "z = nisa.nc_find_index8(data=t, vals=nisa.max8(src=t))",
    ),
    Row(
        "nl.store(out[0:128], t[0:64])",
        "NKI-S01",
        "a destination of the shape of the tile",
        "nl.store(out[0:64], t[0:64])",
    ),
    Row("t[...] = nl.load(x[0:64])", "NKI-S01", "t = nl.ndarray((64, 512), dtype=nl.float32)"),
    Row(
        "t[...] = nl.load(x[0:64])",
        "NKI-S01",
        "a part of it: t[0:64] = ...",
        "t[0:64] = nl.load(x[0:64])",
    ),
    Row(
        "out[0:128] = t",
        "NKI-M03",
        "nl.store(out[0:128], value=t)",
    ),
    Row("out[0, 3] = x[0, 1]", "NKI-M03", "nl.store(out[0, 3], value=nl.load(x[0, 1]))"),
    Row(
        "z = nl.exp(x[0:128])", "NKI-M01", "tile = nl.load(x[...])", "z = nl.exp(nl.load(x[0:128]))"
    ),
    Row(
        "z = nl.exp(x)", "NKI-M01", "nl.load(x[0:128]), in a loop", "z = nl.exp(nl.load(x[0:128]))"
    ),
    Row(
        "z = nisa.activation(op=nl.exp, data=x[0:128])",
        "NKI-M01",
        "tile = nl.load(x[0:128])",
        "z = nisa.activation(op=nl.exp, data=nl.load(x[0:128]))",
    ),
    Row("z = t @ u", "NKI-K14", "nisa.nc_matmul", "z = nisa.nc_matmul(t[:, 0:128], u)"),
    Row(
        "z = nisa.tensor_tensor(t, 1.0, op=nl.add)",
        "NKI-M02",
        "nisa.tensor_scalar(data=t, op0=nl.add, operand0=1.0)",
    ),
    Row("nl.load(x[0:128], t)", "NKI-X01", "the result is assigned: t[...] = nl.load(x[0:128])"),
    Row(
        "nl.load(x[0:128], out[0:128])",
        "NKI-X01",
        "which is stored: t = nl.load(x[0:128]); nl.store(out[0:128], t)",
    ),
    Row(
        "z = nisa.tensor_scalar(t, op0='add', operand0=1.0)",
        "NKI-E11",
        "the function itself, not called: op0=nl.add",
        "z = nisa.tensor_scalar(t, op0=nl.add, operand0=1.0)",
    ),
    Row(
        "z = nisa.activation('exp', t)",
        "NKI-E11",
        "the function itself, not called: op=nl.exp",
        "z = nisa.activation(nl.exp, t)",
    ),
    Row("z = max(t, u)", "NKI-I08", "nl.maximum(t, u)", "z = nl.maximum(t, u)"),
    Row("if t > 0:\n    pass", "NKI-I08", "nl.where", "z = nl.where(t > 0, t, u)"),
    Row("z = np.add(t, u)", "NKI-K14", "nl.add(t, u)", "z = nl.add(t, u)"),
    Row(
        "z = np.max(t)",
        "NKI-K14",
        "nl.max(t, axis=1, keepdims=True)",
        "z = nl.max(t, axis=1, keepdims=True)",
    ),
    Row(
        "z = t + np.zeros((128, 512), np.float32)",
        "NKI-M02",
        "nl.full((128, 512), 0.0, dtype=nl.float32)",
        "z = t + nl.full((128, 512), 0.0, dtype=nl.float32)",
    ),
    Row("z = t.sum(axis=1)", "NKI-K14", "nl.sum(t, axis=1, keepdims=True)"),
    Row("z = t.T", "NKI-K14", "nl.transpose(t)", "z = nl.transpose(t[:, 0:128])"),
    Row(
        "z = x.T",
        "NKI-K14",
        "load a tile first, and work on it: nl.transpose(t)",
        "z = nl.transpose(t[:, 0:128])",
    ),
    Row("z = f'{t:.2f}'", "NKI-K14", "nl.device_print", "nl.device_print('t', t)"),
    Row(
        "for i in nl.affine_range(t):\n    pass",
        "NKI-K05",
        "nl.affine_range(t.shape[0])",
        "for i in nl.affine_range(t.shape[0]):\n    pass",
    ),
    Row(
        "for i in nl.affine_range(x.shape[0] / 100):\n    pass",
        "NKI-K05",
        "//",
        "for i in nl.affine_range(x.shape[0] // 100):\n    pass",
    ),
    Row(
        "z = nl.zeros(128, 512, dtype=nl.float32)",
        "NKI-X01",
        "one tuple: (128, 512)",
        "z = nl.zeros((128, 512), dtype=nl.float32)",
    ),
    Row(
        "z = nl.zeros((128, 512), dtype='fp32')",
        "NKI-D02",
        "dtype=nl.float32",
        "z = nl.zeros((128, 512), dtype=nl.float32)",
    ),
    Row(
        "z = nl.zeros((128, 512), dtype=float)",
        "NKI-D01",
        "dtype=nl.float32",
        "z = nl.zeros((128, 512), dtype=nl.float32)",
    ),
    Row("z = nl.sbuf((128, 512))", "NKI-M05", "buffer=nl.sbuf"),
    Row("z = nl.mgrid(128, 512)", "NKI-K14", "nl.mgrid[0:128, 0:512]"),
    Row("z = nisa.activation(nl.add, t)", "NKI-E11", "nl.add(a, b)", "z = nl.add(t, u)"),
    Row("z = nisa.tensor_scalar(t, nl.exp, 1.0)", "NKI-E11", "nisa.activation(nl.exp, t)"),
    Row("z = nl.softmax(t)", "NKI-X01", "axis=1", "z = nl.softmax(t, axis=1)"),
    Row("z = nl.mean(t, dim=1)", "NKI-X01", "axis=1", "z = nl.mean(t, axis=1)"),
    Row("z = nl.copy(t, nl.bfloat16)", "NKI-X01", "dtype=...", "z = nl.copy(t, dtype=nl.bfloat16)"),
    Row(
        "nisa.dma_copy(out[0:128], x[0:128])",
        "NKI-X01",
        "nisa.dma_copy(dst=..., src=...)",
        "nisa.dma_copy(dst=out[0:128], src=x[0:128])",
    ),
    Row(
        "nisa.memset(dst=t, value=0.0)",
        "NKI-X01",
        "t = nisa.memset(shape, value, dtype=",
        "z = nisa.memset((128, 512), 0.0, dtype=nl.float32)",
    ),
    Row("z = nl.sqrt(2.0)", "NKI-M02", "math.sqrt(2.0)", "z = 2.0 ** 0.5"),
    Row("z = nl.max(t, u)", "NKI-S10", "nl.maximum(a, b)", "z = nl.maximum(t, u)"),
    Row("z = nl.sum(t)", "NKI-S10", "nl.sum(x, axis=1)", "z = nl.sum(t, axis=1)"),
    Row("nl.store(x[0:128], t)", "NKI-O01", "create the output", "nl.store(out[0:128], t)"),
    Row(
        "z = nl.ndarray((128,), dtype=nl.float32)",
        "NKI-P02",
        "(128, 1)",
        "z = nl.ndarray((128, 1), dtype=nl.float32)",
    ),
    # written as in `import nki`: the tile of the result first
    Row(
        "p = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)\n"
        "nisa.nc_matmul(p, t[:, 0:128], u)",
        "NKI-X01",
        "the result is assigned: p[...] = nisa.nc_matmul(t[:, 0:128], u)",
        "p = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)\n"
        "p[...] = nisa.nc_matmul(t[:, 0:128], u)",
    ),
    Row(
        "nisa.tensor_tensor(t, t, u, op=nl.add)",
        "NKI-X01",
        "the result is assigned: t[...] = nisa.tensor_tensor(t, u, op=nl.add)",
        "t[...] = nisa.tensor_tensor(t, u, op=nl.add)",
    ),
    Row(
        "nisa.nc_transpose(t[:, 0:128], u[:, 0:128])",
        "NKI-X01",
        "the result is assigned: t[:, 0:128] = nisa.nc_transpose(u[:, 0:128])",
        "t[:, 0:128] = nisa.nc_transpose(u[:, 0:128])",
    ),
    Row(
        "a = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nl.load(dst=a, src=x[0:128])\nz = nl.exp(a)",
        "NKI-U01",
        "the result is assigned: t[...] = nl.load(...) (line",
        "a = nl.load(x[0:128])\nz = nl.exp(a)",
    ),
    Row("nl.store(t, out[0:128])", "NKI-M01", "nl.store(out[0:128], t)"),
    Row(
        "o = nl.ndarray((128, 512), dtype=x.dtype)\nnl.store(o, t)",
        "NKI-M01",
        "o = nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)",
        "o = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)\nnl.store(o, t)",
    ),
    # rows and vectors
    Row(
        "z = nl.add(t[:, 0:64], nl.load(x.reshape((256 * 512,))[0:64]))",
        "NKI-S04",
        "nl.load(x.reshape((1, 64)))",
        "z = nl.add(t[:, 0:64], nl.load(x.reshape((256 * 512,))[0:64].reshape((1, 64))))",
    ),
    Row(
        "z = t[:, 0:64] + nl.load(x.reshape((256 * 512,))[0:64])",
        "NKI-S04",
        "nl.load(x.reshape((1, 64))), and write nl.add(x, y) for the operator",
        "z = nl.add(t[:, 0:64], nl.load(x.reshape((256 * 512,))[0:64].reshape((1, 64))))",
    ),
    Row(
        "z = nisa.tensor_scalar(t, np.add, nl.load(x[0:1]))",
        "NKI-S09",
        "nl.add(tile, x)",
        "z = nl.add(t, nl.load(x[0:1]))",
    ),
    Row(
        "z = nisa.activation(nl.relu, t, bias=nl.load(x[0:1]))",
        "NKI-E08",
        "nl.add(tile, x)",
        "z = nisa.activation(nl.relu, nl.add(t, nl.load(x[0:1])))",
    ),
    Row(
        "z = nl.broadcast_to(nl.load(x[0, 0:64]), shape=(128, 64))",
        "NKI-S02",
        "nl.load(x.reshape((1, 64)))",
        "z = nl.broadcast_to(nl.load(x[0, 0:64].reshape((1, 64))), shape=(128, 64))",
    ),
    Row(
        "for i in nl.affine_range(4):\n    z = nl.load(x[i])",
        "NKI-P01",
        "a row stays one with x[i:i + 1]",
        "for i in nl.affine_range(4):\n    z = nl.load(x[i:i + 1])",
    ),
    # windows and masks
    Row(
        "z = nl.add(t[:, 0:500], u)",
        "NKI-S02",
        "slice both to the same tile: u[:, 0:500]",
        "z = nl.add(t[:, 0:500], u[:, 0:500])",
    ),
    Row(
        "z = nl.add(t[:, 0:500], u[:, 4:500])",
        "NKI-S02",
        "[:, j:j + n]",
        "z = nl.add(t[:, 0:500], u[:, 4:4 + 500])",
    ),
    Row(
        "for i in nl.affine_range(3):\n    z = nl.load(x[i * 100:(i + 1) * 100])",
        "NKI-I01",
        "mask=(start + nl.arange(100)[:, None] < 256)",
        "for i in nl.affine_range(3):\n    z = nl.load(x[i * 100:(i + 1) * 100], "
        "mask=(i * 100 + nl.arange(100)[:, None] < 256))",
    ),
    Row(
        "for i in nl.affine_range(3):\n"
        "    z = nl.load(x[i * 100:(i + 1) * 100], mask=(nl.arange(100)[:, None] < 256))",
        "NKI-I01",
        "a mask compares all of the index",
        "for i in nl.affine_range(3):\n    z = nl.load(x[i * 100:(i + 1) * 100], "
        "mask=(i * 100 + nl.arange(100)[:, None] < 256))",
    ),
    Row(
        "z = nl.load(x[128:128])",
        "NKI-I01",
        "start:start + size",
        "z = nl.load(x[128:128 + 128])",
    ),
    Row(
        "i, j = np.arange(128)[:, None], np.arange(512)[None, :]\nz = nl.load(x[i, j])",
        "NKI-I03",
        "nl.arange in the place of np.arange",
        "i, j = nl.arange(128)[:, None], nl.arange(512)[None, :]\nz = nl.load(x[i, j])",
    ),
    Row(
        "z = nl.load(x[nl.arange(128)[:, None]])",
        "NKI-I10",
        "nl.arange(n)[None, :] for dimension 1",
        "z = nl.load(x[nl.arange(128)[:, None], nl.arange(512)[None, :]])",
    ),
    Row(
        "t[t < 0] = 0.0",
        "NKI-I11",
        "t[...] = nl.where(condition, 0.0, t)",
        "t[...] = nl.where(t < 0, 0.0, t)",
    ),
    Row(
        "z = nl.copy(t[nl.arange(128)[None, :], nl.arange(64)[:, None]])",
        "NKI-P03",
        "nl.transpose(t)",
        "z = nl.transpose(t[:, 0:64])",
    ),
    Row("z = nl.sum(t, axis=0)", "NKI-S10", "axis=1", "z = nl.sum(t, axis=1)"),
    Row(
        "nl.store(out[0:128, 0:64], nl.transpose(t[:, 0:64]))",
        "NKI-S01",
        "one of the two is transposed: nl.transpose(t) turns a tile",
        "nl.store(out[0:128, 0:64], t[:, 0:64])",
    ),
    Row(
        "nl.store(out[0, 0], x[0, 0])",
        "NKI-M01",
        "tile = nl.load(x[...])",
        "nl.store(out[0, 0], nl.load(x[0, 0]))",
    ),
    Row(
        "for i in nl.affine_range(2):\n    nl.store(out[0:128], nl.load(x[i * 128:(i + 1) * 128]))",
        "NKI-L04",
        "a sum is made on chip and stored once",
        "acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.sbuf)\n"
        "for i in nl.affine_range(2):\n    acc += nl.load(x[i * 128:(i + 1) * 128])\n"
        "nl.store(out[0:128], acc)",
    ),
    Row("z = nl.load(x)", "NKI-P01", "128 rows", "z = nl.load(x[0:128])"),
)
