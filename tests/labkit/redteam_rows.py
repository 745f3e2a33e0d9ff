"""Attacks on the cheaper forms of the instruction table: one at least for each that a row declares.

A cheaper form is one that costs less than the plain one, by a dtype, an engine, a memory or a mode
(`nkisim/isa/cheaper.py`). Each attack claims it for work that it does not do.
"""

from __future__ import annotations

from redteam_time import Attack


def _both(task: str, tries: str, beta1: str, nki: str, **more: object) -> dict[str, Attack]:
    return {
        f"{dialect}": Attack(dialect, task, tries, body, **more)  # type: ignore[arg-type]
        for dialect, body in (("beta1", beta1), ("nki", nki))
        if body
    }


_PAIRS: dict[str, dict[str, Attack]] = {
    # -- Vector, Scalar and GpSimd Engines -------------------------------------------------------
    "copy_in_pairs": _both(
        "copy",
        "copy float32 as twice as many bfloat16, in the fast mode of 16 bits",
        "t = nl.load(x)\nnl.store(out, nl.copy(t.view(nl.bfloat16)).view(nl.float32))",
        "t, u = load(x), tile(x.shape, x.dtype)\n"
        "nisa.tensor_copy(dst=u.view(nl.bfloat16), src=t.view(nl.bfloat16))\n"
        "nisa.dma_copy(dst=out, src=u)",
        forms=(("tensor_copy", "dtype"),),
    ),
    "copy_rounded": _both(
        "copy",
        "copy half of the bits",
        "nl.store(out, nl.copy(nl.load(x), dtype=nl.bfloat16))",
        "t, u = load(x), tile(x.shape, nl.bfloat16)\nnisa.tensor_copy(dst=u, src=t)\n"
        "nisa.dma_copy(dst=out, src=u)",
        says="elements",
        forms=(("tensor_copy", "dtype"),),
    ),
    "copy_on_tensor_engine": _both(
        "copy",
        "copy on an engine that has no such instruction",
        "nl.store(out, nisa.tensor_copy(nl.load(x), engine=nisa.tensor_engine))",
        "t, u = load(x), tile(x.shape, x.dtype)\n"
        "nisa.tensor_copy(dst=u, src=t, engine=nisa.engine.tensor)\nnisa.dma_copy(dst=out, src=u)",
        says="NKI-E",
        forms=(("tensor_copy", "engine"),),
    ),
    "zeros_in_pairs": _both(
        "zeros",
        "write zeros of 16 bits, and read them as float32",
        "nl.store(out, nisa.memset((128, 4096), 0.0, nl.bfloat16).view(nl.float32))",
        "t = tile(x.shape, x.dtype)\nnisa.memset(t.view(nl.bfloat16), 0.0)\n"
        "nisa.dma_copy(dst=out, src=t)",
        forms=(("memset", "dtype"), ("memset", "zero")),
    ),
    "zeros_on_sync": _both(
        "zeros",
        "write zeros on an engine that has no such instruction",
        "nl.store(out, nisa.memset((128, 2048), 0.0, x.dtype, engine=nisa.tensor_engine))",
        "t = tile(x.shape, x.dtype)\nnisa.memset(t, 0.0, engine=nisa.engine.sync)\n"
        "nisa.dma_copy(dst=out, src=t)",
        says="NKI-E",
        forms=(("memset", "engine"),),
    ),
    "constant_as_zero": _both(
        "zeros",
        "write zeros in one element only, and repeat it by a view",
        "t = nisa.memset((128, 1), 0.0, x.dtype)\nnl.store(out, t.broadcast_to((128, 2048)))",
        "t = tile((128, 1), x.dtype)\nnisa.memset(t, 0.0)\n"
        "nisa.dma_copy(dst=out, src=t.broadcast(1, 2048))",
    ),
    "add_rounded": _both(
        "add",
        "add in the rate of bfloat16",
        "nl.store(out, nl.add(nl.copy(nl.load(x), dtype=nl.bfloat16), "
        "nl.copy(nl.load(y), dtype=nl.bfloat16), dtype=nl.float32))",
        "t, u, w = load(x), load(y), tile(x.shape, nl.bfloat16)\nv = tile(x.shape, nl.bfloat16)\n"
        "nisa.tensor_copy(dst=v, src=t)\nnisa.tensor_copy(dst=w, src=u)\n"
        "nisa.tensor_tensor(dst=t, data1=v, data2=w, op=nl.add)\nnisa.dma_copy(dst=out, src=t)",
        says="elements",
        forms=(("tensor_tensor", "dtype"),),
    ),
    "add_in_pairs": _both(
        "add16",
        "add two bfloat16 as one int32",
        "t = nl.add(nl.load(x).view(nl.int32), nl.load(y).view(nl.int32))\n"
        "nl.store(out, t.view(nl.bfloat16))",
        "t, u = load(x), load(y)\nv = t.view(nl.int32)\n"
        "nisa.tensor_tensor(dst=v, data1=v, data2=u.view(nl.int32), op=nl.add)\n"
        "nisa.dma_copy(dst=out, src=t)",
        says="elements",
        forms=(("tensor_tensor", "dtype"),),
    ),
    "add_as_halves": _both(
        "add",
        "add the halves of float32 as bfloat16 (trn1: its rate is by the operator)",
        "t = nl.add(nl.load(x).view(nl.bfloat16), nl.load(y).view(nl.bfloat16))\n"
        "nl.store(out, t.view(nl.float32))",
        "",
        says="elements",
        target="trn1",
        forms=(("tensor_tensor", "first"), ("tensor_tensor", "dtype")),
    ),
    "add_from_psum": _both(
        "add",
        "have one input in PSUM, where a DMA cannot put it",
        "t = tile(x.shape, x.dtype, nl.psum)\nnisa.dma_copy(dst=t, src=x)\n"
        "nl.store(out, nl.add(t, nl.load(y)))",
        "",
        says="NKI-M01",
        target="trn1",
        forms=(("tensor_tensor", "memory"),),
    ),
    "add_on_scalar_engine": _both(
        "add",
        "add on an engine that has no such instruction",
        "nl.store(out, nisa.tensor_tensor(nl.load(x), nl.load(y), nl.add, "
        "engine=nisa.scalar_engine))",
        "t, u = load(x), load(y)\nnisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add, "
        "engine=nisa.engine.scalar)\nnisa.dma_copy(dst=out, src=t)",
        says="NKI-E",
        forms=(("tensor_tensor", "engine"),),
    ),
    "thrice_as_halves": _both(
        "thrice",
        "multiply the halves of float32, in the rate of 16 bits",
        "t = nisa.tensor_scalar(nl.load(x).view(nl.bfloat16), nl.multiply, 3.0,"
        " dtype=nl.bfloat16)\nnl.store(out, t.view(nl.float32))",
        "t = load(x)\nv = t.view(nl.bfloat16)\n"
        "nisa.tensor_scalar(dst=v, data=v, op0=nl.multiply, operand0=3.0)\n"
        "nisa.dma_copy(dst=out, src=t)",
        says="elements",
        forms=(("tensor_scalar", "dtype"),),
    ),
    "most_on_scalar_engine": _both(
        "thrice",
        "ask a faster engine for an operator that it does not have",
        "t = nl.load(x)\n"
        + 3 * ("t[...] = nisa.tensor_scalar(t, nl.maximum, 0.0, engine=nisa.scalar_engine)\n")
        + "nl.store(out, nisa.tensor_scalar(t, nl.multiply, 3.0))",
        "t = load(x)\n"
        + 3
        * (
            "nisa.tensor_scalar(dst=t, data=t, op0=nl.maximum, operand0=0.0, "
            "engine=nisa.engine.scalar)\n"
        )
        + "nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=3.0)\n"
        "nisa.dma_copy(dst=out, src=t)",
        forms=(("tensor_scalar", "engine"),),
    ),
    "combine_rounded": _both(
        "combine",
        "subtract and multiply in the rate of bfloat16",
        "nl.store(out, nisa.scalar_tensor_tensor(data=nl.copy(nl.load(x), dtype=nl.bfloat16), "
        "op0=nl.subtract, operand0=2.0, op1=nl.multiply, "
        "operand1=nl.copy(nl.load(y), dtype=nl.bfloat16), dtype=nl.float32))",
        "t, u = load(x), load(y)\nv, w = tile(x.shape, nl.bfloat16), tile(x.shape, nl.bfloat16)\n"
        "nisa.tensor_copy(dst=v, src=t)\nnisa.tensor_copy(dst=w, src=u)\n"
        "nisa.scalar_tensor_tensor(dst=t, data=v, op0=nl.subtract, operand0=2.0, "
        "op1=nl.multiply, operand1=w)\nnisa.dma_copy(dst=out, src=t)",
        says="elements",
        forms=tuple(("scalar_tensor_tensor", by) for by in ("dtype", "first", "second")),
    ),
    "negate_in_pairs": _both(
        "negate",
        "turn the sign of the halves of float32, in the rate of 16 bits",
        "nl.store(out, nl.negative(nl.load(x).view(nl.bfloat16)).view(nl.float32))",
        "",
        says="elements",
        forms=(("tensor_unary", "dtype"),),
    ),
    "total_rounded": _both(
        "total",
        "sum in the rate of bfloat16",
        "t = nl.copy(nl.load(x), dtype=nl.bfloat16)\n"
        "nl.store(out, nisa.tensor_reduce(nl.add, t, axis=1, keepdims=True))",
        "t, u = tile(x.shape, nl.bfloat16), tile((128, 1), nl.bfloat16)\n"
        "nisa.tensor_copy(dst=t, src=load(x))\n"
        "nisa.tensor_reduce(dst=u, op=nl.add, data=t, axis=1)\nnisa.dma_copy(dst=out, src=u)",
        says="elements",
        forms=(("tensor_reduce", "dtype"), ("tensor_reduce", "op")),
    ),
    "most_of_halves": _both(
        "most",
        "find the maximum of the upper halves only",
        "t = nl.load(x).view(nl.bfloat16)[0:128, 1:4096:2]\n"
        "nl.store(out, nisa.tensor_reduce(nl.maximum, t, axis=1, keepdims=True))",
        "t, u = load(x).view(nl.bfloat16), tile((128, 1), nl.bfloat16)\n"
        "nisa.tensor_reduce(dst=u, op=nl.maximum, data=t[:, 1:4096:2], axis=1)\n"
        "nisa.dma_copy(dst=out, src=u)",
        says="elements",
        forms=(("tensor_reduce", "dtype"), ("tensor_reduce", "op")),
    ),
    "across_few_partitions": _both(
        "across",
        "sum over a quarter of the partitions, and say that it was all",
        "t = nl.load(x)\nnl.store(out, nisa.tensor_partition_reduce(nl.add, t[0:32]))",
        "t, u = load(x), tile((1, 512), x.dtype)\n"
        "nisa.tensor_partition_reduce(dst=u, op=nl.add, data=t[0:32])\n"
        "nisa.dma_copy(dst=out, src=u)",
        says="elements",
        forms=(("tensor_partition_reduce", "partitions"),),
    ),
    "across_reshaped": _both(
        "across",
        "make 128 partitions one by a view, where nothing moves",
        "t = nl.load(x).reshape((1, 128, 512))\n"
        "nl.store(out, nisa.tensor_reduce(nl.add, t, axis=1))",
        "t, u = load(x).reshape((1, 128, 512)), tile((1, 512), x.dtype)\n"
        "nisa.tensor_reduce(dst=u, op=nl.add, data=t, axis=1)\nnisa.dma_copy(dst=out, src=u)",
        says="NKI-",
        forms=(("tensor_partition_reduce", "partitions"),),
    ),
    "random_on_tensor_engine": {
        "nki": Attack(
            "nki",
            "copy",
            "draw numbers on an engine that has no generator",
            "t, u = load(x), tile(x.shape, nl.uint32)\nnisa.rng(u, engine=nisa.engine.tensor)\n"
            "nisa.dma_copy(dst=out, src=t)",
            says="NKI-E",
            forms=(("rng", "engine"),),
        )
    },
    # -- Tensor Engine ---------------------------------------------------------------------------
    "double_row_of_float32": _both(
        "product",
        "multiply float32 in the mode of 8 bits",
        "nl.store(out, nl.copy(nisa.nc_matmul(nl.load(x), nl.load(y), perf_mode='double_row')))",
        "s, t, p = load(x), load(y), tile(y.shape, nl.float32, nl.psum)\n"
        "nisa.nc_matmul(dst=p, stationary=s, moving=t, "
        "perf_mode=nisa.matmul_perf_mode.double_row)\n"
        "nisa.tensor_copy(dst=t, src=p)\nnisa.dma_copy(dst=out, src=t)",
        says="NKI-E14",
        hole=2,
        forms=(("nc_matmul", "double_row"),),
    ),
    "double_pixel": _both(
        "product",
        "name a mode with `double` in it that AWS gives no rate for",
        "nl.store(out, nl.copy(nisa.nc_matmul(nl.load(x), nl.load(y), perf_mode='double_pixel')))",
        "",
        says="NKI-E14",
        hole=2,
        forms=(("nc_matmul", "double_row"),),
    ),
    "double_row_of_views": _both(
        "product",
        "call float32 four fp8, and multiply these in two rows",
        "s = nl.load(x).view(nl.float8_e4m3).reshape((128, 2, 256))\n"
        "t = nl.load(y).view(nl.float8_e4m3).reshape((128, 2, 1024))\n"
        "nl.store(out, nl.copy(nisa.nc_matmul(s[0:128, 0:2, 0:128], t[0:128, 0:2, 0:512], "
        "perf_mode='double_row')))",
        "s = load(x).view(nl.float8_e4m3).reshape((128, 2, 256))\n"
        "t, p = load(y), tile(y.shape, nl.float32, nl.psum)\n"
        "u = t.view(nl.float8_e4m3).reshape((128, 2, 1024))\n"
        "nisa.nc_matmul(dst=p, stationary=s[:, :, 0:128], moving=u[:, :, 0:512], "
        "perf_mode=nisa.matmul_perf_mode.double_row)\n"
        "nisa.tensor_copy(dst=t, src=p)\nnisa.dma_copy(dst=out, src=t)",
        says="elements",
        forms=(("nc_matmul", "double_row"), ("nc_matmul", "dtype")),
    ),
    "product_in_transpose_mode": _both(
        "product",
        "multiply in the mode that passes elements on",
        "nl.store(out, nl.copy(nisa.nc_matmul(nl.load(x), nl.load(y), is_transpose=True)))",
        "s, t, p = load(x), load(y), tile(y.shape, nl.float32, nl.psum)\n"
        "nisa.nc_matmul(dst=p, stationary=s, moving=t, is_transpose=True)\n"
        "nisa.tensor_copy(dst=t, src=p)\nnisa.dma_copy(dst=out, src=t)",
        says="NKI-E15",
        hole=3,
        forms=(("nc_matmul", "transposes"),),
    ),
    "transpose_mode_once_checked": _both(
        "product",
        "show a permutation in the first iteration, and multiply in the others",
        "s, t = nl.load(x), nl.load(y)\nr = tile((128, 512), x.dtype)\n"
        "m = tile((128, 512), x.dtype)\nm[...] = nl.zeros((128, 512), dtype=x.dtype)\n"
        "for i in nl.sequential_range(4):\n"
        "    r[...] = nl.copy(nisa.nc_matmul(s, m, is_transpose=True))\n"
        "    m[...] = nl.copy(t)\nnl.store(out, r)",
        "s, t, r = load(x), load(y), tile(y.shape, x.dtype)\nm = tile(y.shape, x.dtype)\n"
        "nisa.memset(m, 0.0)\nfor i in range(4):\n"
        "    p = tile(y.shape, nl.float32, nl.psum)\n"
        "    nisa.nc_matmul(dst=p, stationary=s, moving=m, is_transpose=True)\n"
        "    nisa.tensor_copy(dst=r, src=p)\n    nisa.tensor_copy(dst=m, src=t)\n"
        "nisa.dma_copy(dst=out, src=r)",
        says="NKI-E15",
        hole=3,
        forms=(("nc_matmul", "transposes"),),
    ),
    "product_rounded": _both(
        "product",
        "multiply in the one pass of bfloat16",
        "s, t = (nl.copy(nl.load(a), dtype=nl.bfloat16) for a in (x, y))\n"
        "nl.store(out, nl.copy(nisa.nc_matmul(s, t)))",
        "s, t = tile(x.shape, nl.bfloat16), tile(y.shape, nl.bfloat16)\n"
        "nisa.tensor_copy(dst=s, src=load(x))\nnisa.tensor_copy(dst=t, src=load(y))\n"
        "u, p = tile(y.shape, y.dtype), tile(y.shape, nl.float32, nl.psum)\n"
        "nisa.nc_matmul(dst=p, stationary=s, moving=t)\nnisa.tensor_copy(dst=u, src=p)\n"
        "nisa.dma_copy(dst=out, src=u)",
        says="elements",
        forms=(("nc_matmul", "dtype"),),
    ),
    "product_half_rounded": _both(
        "product",
        "let the moving operand alone be bfloat16",
        "nl.store(out, nl.copy(nisa.nc_matmul(nl.load(x), "
        "nl.copy(nl.load(y), dtype=nl.bfloat16))))",
        "s, t, p = load(x), tile(y.shape, nl.bfloat16), tile(y.shape, nl.float32, nl.psum)\n"
        "nisa.tensor_copy(dst=t, src=load(y))\nnisa.nc_matmul(dst=p, stationary=s, moving=t)\n"
        "u = tile(y.shape, y.dtype)\nnisa.tensor_copy(dst=u, src=p)\n"
        "nisa.dma_copy(dst=out, src=u)",
        says="NKI-D05",
        forms=(("nc_matmul", "dtype"),),
    ),
    "promised_ones": _both(
        "product",
        "promise zeros and ones where there are none",
        "nl.store(out, nl.copy(nisa.nc_matmul(nl.load(x), nl.load(y), is_moving_onezero=True)))",
        "s, t, p = load(x), load(y), tile(y.shape, nl.float32, nl.psum)\n"
        "nisa.nc_matmul(dst=p, stationary=s, moving=t, is_moving_onezero=True)\n"
        "nisa.tensor_copy(dst=t, src=p)\nnisa.dma_copy(dst=out, src=t)",
        says="NKI-D09",
    ),
    "turn_rounded": _both(
        "turn",
        "transpose half of the bits, in one pass",
        "t = nl.copy(nl.load(x), dtype=nl.bfloat16)\nnl.store(out, nisa.nc_transpose(t))",
        "t, p = tile(x.shape, nl.bfloat16), tile(x.shape, nl.bfloat16, nl.psum)\n"
        "u = tile(x.shape, x.dtype)\nnisa.tensor_copy(dst=t, src=load(x))\n"
        "nisa.nc_transpose(dst=p, data=t)\n"
        "nisa.tensor_copy(dst=u, src=p)\nnisa.dma_copy(dst=out, src=u)",
        says="elements",
        forms=(("nc_transpose", "dtype"),),
    ),
    "turn_in_halves": _both(
        "turn",
        "transpose the halves of float32 one after the other, in one pass each",
        "t = nl.load(x).view(nl.bfloat16)\nu = tile((128, 256), nl.bfloat16)\n"
        "for h in nl.static_range(2):\n"
        "    u[0:128, h:256:2] = nl.copy(nisa.nc_transpose(t[0:128, h:256:2]))\n"
        "nl.store(out, u.view(nl.float32))",
        "t, u = load(x).view(nl.bfloat16), tile((128, 256), nl.bfloat16)\n"
        "for h in range(2):\n    p = tile((128, 128), nl.bfloat16, nl.psum)\n"
        "    nisa.nc_transpose(dst=p, data=t[:, h:256:2])\n"
        "    nisa.tensor_copy(dst=u[:, h:256:2], src=p)\n"
        "nisa.dma_copy(dst=out, src=u.view(nl.float32))",
        forms=(("nc_transpose", "dtype"),),
    ),
    "turn_as_integers": _both(
        "turn",
        "transpose float32 as int32",
        "p = nisa.nc_transpose(nl.load(x).view(nl.int32))\n"
        "nl.store(out, nl.copy(p, dtype=nl.int32).view(nl.float32))",
        "",
        forms=(("nc_transpose", "dtype"),),
    ),
    "turn_few_partitions": _both(
        "turn",
        "transpose in strips of a quarter of the partitions",
        "t = nl.load(x)\nu = tile((128, 128), x.dtype)\nfor q in nl.static_range(4):\n"
        "    u[0:128, q * 32:q * 32 + 32] = nisa.nc_transpose(t[q * 32:q * 32 + 32, 0:128])\n"
        "nl.store(out, u)",
        "t, u = load(x), tile(x.shape, x.dtype)\nfor q in range(4):\n"
        "    p = tile((128, 32), x.dtype, nl.psum)\n"
        "    nisa.nc_transpose(dst=p, data=t[q * 32:q * 32 + 32])\n"
        "    nisa.tensor_copy(dst=u[:, q * 32:q * 32 + 32], src=p)\n"
        "nisa.dma_copy(dst=out, src=u)",
        forms=(("nc_transpose", "partitions"),),
    ),
    "spread_rounded": _both(
        "spread",
        "repeat a row by a product of ones in 16 bits",
        "t = nl.copy(nl.load(x), dtype=nl.bfloat16)\nnl.store(out, nl.broadcast_to(t, (128, 512)))",
        "",
        says="elements",
        forms=(("partition_broadcast", "dtype"),),
    ),
    # -- DMA -------------------------------------------------------------------------------------
    "load_rounded": _both(
        "copy",
        "load half of the bits",
        "nl.store(out, nl.load(x, dtype=nl.bfloat16))",
        "t = tile(x.shape, nl.bfloat16)\nnisa.dma_copy(dst=t, src=x)\n"
        "nisa.dma_copy(dst=out, src=t)",
        says="elements",
        forms=(("load", "dtype"), ("dma_copy", "dtype"), ("store", "dtype")),
    ),
    "load_rounded_anyway": _both(
        "zeros",
        "load float32 as 16 bits, where the values do not matter",
        "t = nl.load(x, dtype=nl.bfloat16)\n"
        "nl.store(out, nisa.tensor_scalar(t, nl.multiply, 0.0, dtype=nl.float32))",
        "t, u = tile(x.shape, nl.bfloat16), tile(x.shape, x.dtype)\n"
        "nisa.dma_copy(dst=t, src=x)\n"
        "nisa.tensor_scalar(dst=u, data=t, op0=nl.multiply, operand0=0.0)\n"
        "nisa.dma_copy(dst=out, src=u)",
        forms=(("load", "dtype"), ("dma_copy", "dtype")),
    ),
    "store_in_pairs": _both(
        "zeros",
        "store float32 as four int8",
        "t = nisa.memset((128, 2048), 0.0, x.dtype)\nnl.store(out.view(nl.int8), t.view(nl.int8))",
        "t = tile(x.shape, x.dtype)\nnisa.memset(t, 0.0)\n"
        "nisa.dma_copy(dst=out.view(nl.int8), src=t.view(nl.int8))",
        forms=(("store", "dtype"), ("dma_copy", "dtype")),
    ),
    "turn_by_load_rounded": _both(
        "turn",
        "transpose half of the bits by a DMA",
        "nl.store(out, nl.load_transpose2d(x, dtype=nl.bfloat16))",
        "",
        says="elements",
        forms=(("load_transpose2d", "dtype"),),
    ),
    "turn_by_dma": _both(
        "turn",
        "transpose by a DMA, which a compiler refuses for 4 bytes",
        "nl.store(out, nisa.dma_transpose(x))",
        "",
        says="NKI-R13",
        hole=11,
        forms=(("dma_transpose", "dtype"),),
    ),
    "turn_wide_by_dma": _both(
        "turn",
        "transpose 4 bytes by a DMA at the rate of 2",
        "",
        "t = tile(x.shape, x.dtype)\nnisa.dma_transpose(dst=t, src=x)\n"
        "nisa.dma_copy(dst=out, src=t)",
        forms=(("dma_transpose", "dtype"),),
    ),
    "turn_wide_by_dma_in_between": _both(
        "turn",
        "the same, with a dim of one element between rows and columns",
        "",
        "t = tile((128, 1, 128), x.dtype)\n"
        "nisa.dma_transpose(dst=t, src=x.reshape((128, 1, 128)))\n"
        "nisa.dma_copy(dst=out, src=t.reshape((128, 128)))",
        forms=(("dma_transpose", "dtype"),),
    ),
    "turn_by_dma_in_halves": _both(
        "turn",
        "transpose the halves by a DMA that takes 2 bytes",
        "v = x.view(nl.bfloat16).reshape((128, 128, 2))\nu = tile((128, 256), nl.bfloat16)\n"
        "for h in nl.static_range(2):\n"
        "    u[0:128, h:256:2] = nisa.dma_transpose(v[0:128, 0:128, h])\n"
        "nl.store(out, u.view(nl.float32))",
        "v = x.view(nl.bfloat16).reshape((128, 128, 2))\nu = tile((128, 256), nl.bfloat16)\n"
        "for h in range(2):\n    t = tile((128, 128), nl.bfloat16)\n"
        "    nisa.dma_transpose(dst=t, src=v[:, :, h])\n"
        "    nisa.tensor_copy(dst=u[:, h:256:2], src=t)\n"
        "nisa.dma_copy(dst=out, src=u.view(nl.float32))",
        forms=(("dma_transpose", "dtype"),),
    ),
    "sum_in_hbm_rounded": _both(
        "add",
        "add where it is stored, in 16 bits",
        "o = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)\n"
        "i = nl.arange(128)[:, None]\nj = nl.arange(2048)[None, :]\nnl.store(o, nl.load(x))\n"
        "n = nl.copy(nisa.iota(i + 0 * nl.arange(1)[None, :], dtype=nl.int32))\n"
        "nl.atomic_rmw(o[n, j], nl.load(y, dtype=nl.bfloat16), op=np.add)\nreturn o",
        "",
        says="must be float32",
        forms=(("atomic_rmw", "dtype"),),
    ),
    "sum_by_dma_rounded": {
        "nki": Attack(
            "nki",
            "add",
            "add in the DMA engines, in 16 bits",
            "t = tile(x.shape, nl.bfloat16)\n"
            "nisa.dma_compute(dst=t, srcs=[x, y], reduce_op=nl.add)\n"
            "nisa.dma_copy(dst=out, src=t)",
            says="elements",
            forms=(("dma_compute", "dtype"),),
        )
    },
    # -- starts that are data, two cores ---------------------------------------------------------
    "dynamic_source_on_tensor_engine": _both(
        "copy",
        "copy from a start that is data, on an engine without that",
        "t, z = nl.load(x), nl.zeros((1, 1), dtype=nl.uint32)\n"
        "i, j = nl.arange(128)[:, None], nl.arange(2048)[None, :]\n"
        "nl.store(out, nisa.tensor_copy_dynamic_src(t[i, z[0, 0] + j], "
        "engine=nisa.tensor_engine))",
        "",
        says="NKI-E",
        forms=(("tensor_copy_dynamic_src", "engine"),),
    ),
    "dynamic_destination_on_tensor_engine": _both(
        "copy",
        "copy to a start that is data, on an engine without that",
        "t, z = nl.load(x), nl.zeros((1, 1), dtype=nl.uint32)\nu = tile(x.shape, x.dtype)\n"
        "i, j = nl.arange(128)[:, None], nl.arange(2048)[None, :]\n"
        "nisa.tensor_copy_dynamic_dst(dst=u[i, z[0, 0] + j], src=t, engine=nisa.tensor_engine)\n"
        "nl.store(out, u)",
        "",
        says="NKI-E",
        forms=(("tensor_copy_dynamic_dst", "engine"),),
    ),
    "sent_by_no_core": {
        "nki": Attack(
            "nki",
            "copy",
            "receive from the other core, where there is one",
            "t, u = load(x), tile(x.shape, x.dtype)\nnisa.sendrecv(src=t.view(nl.int8), "
            "dst=u.view(nl.int8), send_to_rank=0, recv_from_rank=0, pipe_id=0)\n"
            "nisa.dma_copy(dst=out, src=u)",
            says="NKI-",
            forms=(("sendrecv", "dtype"),),
        )
    },
    "barrier_of_no_engine": {
        "nki": Attack(
            "nki",
            "copy",
            "wait for the other core, where there is one, on an engine that is idle",
            "nisa.dma_copy(dst=out, src=load(x))\n"
            "nisa.core_barrier(out, (0, 1), engine=nisa.engine.sync)",
            "nisa.dma_copy(dst=out, src=load(x))",
            forms=(("core_barrier", "engine"),),
        )
    },
}
ATTACKS: dict[str, Attack] = {
    f"{name}_{dialect}": attack for name, pair in _PAIRS.items() for dialect, attack in pair.items()
}
