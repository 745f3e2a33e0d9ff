"""Attacks on time that are not about one instruction: what is returned, in which order things
happen, what runs at all, where data lies, and what a kernel may know.
"""

from __future__ import annotations

from redteam_time import HONEST, Attack

_CHAIN = "t[...] = nisa.tensor_scalar(t, nl.add, 1.0)"
_STORED = "nisa.dma_copy(dst=out, src=t)"
#: a kernel of import nki that only moves x to out
_MOVED = "t = load(x)\n" + _STORED


def _pair(
    task: str, tries: str, beta1: str, nki: str, says: str = "", **more: object
) -> dict[str, Attack]:
    """Return an attack in each dialect; `honest` of both, if there is one, is (beta1, nki)."""
    honest = dict(zip(("beta1", "nki"), more.pop("honest", ("", ""))))  # type: ignore[call-overload]
    return {
        dialect: Attack(dialect, task, tries, body, honest=honest[dialect], says=says, **more)  # type: ignore[arg-type]
        for dialect, body in (("beta1", beta1), ("nki", nki))
        if body
    }


_PAIRS: dict[str, dict[str, Attack]] = {
    # -- outputs ---------------------------------------------------------------------------------
    "swapped_input": _pair(
        "swap",
        "return a view of the input, and let the host turn it",
        "return x[nl.arange(512)[None, :], nl.arange(512)[:, None]]",
        "return x.permute((1, 0))",
        "NKI-O08",
        hole=1,
    ),
    "swapped_copy": _pair(
        "swap",
        "copy in HBM, and return a turned view of the copy",
        "nisa.dma_copy(dst=out, src=x)\n"
        "return out[nl.arange(512)[None, :], nl.arange(512)[:, None]]",
        "nisa.dma_copy(dst=out, src=x)\nreturn out.permute((1, 0))",
        "NKI-O08",
        hole=1,
    ),
    "pattern_of_a_copy": _pair(
        "swap",
        "return a copy by an access pattern that turns it",
        "",
        "nisa.dma_copy(dst=out, src=x)\nreturn out.ap(pattern=[[1, 512], [512, 512]])",
        "NKI-O08",
        hole=1,
    ),
    "constant": _pair(
        "zeros",
        "return a constant, for which nothing runs",
        "return nl.shared_constant(np.zeros((128, 2048), np.float32))",
        "return nl.shared_constant(np.zeros((128, 2048), np.float32))",
        "NKI-O08",
        hole=17,
    ),
    "input_written_by_nothing": _pair(
        "copy", "return the input where it should be copied", "return x", "return x", "NKI-O08"
    ),
    "input_as_reshaped": _pair(
        "copy",
        "return the input by another shape",
        "return x.reshape((2048, 128)).reshape((128, 2048))",
        "return x.reshape((2048, 128)).reshape((128, 2048))",
        "NKI-O08",
    ),
    "fast_mode_beside_gpsimd": _pair(
        "add16",
        "let GpSimd do a part of the work while the Vector Engine uses the bus that both share",
        "t, u, s = nl.load(x), nl.load(y), tile(x.shape, x.dtype)\n"
        "for engine, at in ((nisa.vector_engine, slice(0, 1408)), "
        "(nisa.gpsimd_engine, slice(1408, 2048))):\n"
        "    s[:, at] = nisa.tensor_tensor(t[:, at], u[:, at], nl.add, engine=engine)\n"
        "nl.store(out, s)",
        "t, u = load(x), load(y)\n"
        "for engine, at in ((nisa.engine.vector, slice(0, 1408)), "
        "(nisa.engine.gpsimd, slice(1408, 2048))):\n"
        "    nisa.tensor_tensor(dst=t[:, at], data1=t[:, at], data2=u[:, at], op=nl.add, "
        "engine=engine)\n" + _STORED,
    ),
    "endless_reduction": _pair(
        "most",
        "keep the judge in one call of NumPy for hours: reduce 2^42 repetitions of an element",
        "t = nl.load(x)[:, 0:1].broadcast_to((128, 1 << 42))\n"
        "nl.store(out, nisa.tensor_reduce(nl.maximum, t, axis=1, keepdims=True))",
        "t, u = load(x), tile((128, 1), x.dtype)\n"
        "nisa.tensor_reduce(dst=u, op=nl.maximum, axis=(1, 2), "
        "data=t.ap(pattern=[[2048, 128], [0, 1 << 42], [1, 1]]))\n"
        "nisa.dma_copy(dst=out, src=u)",
        "NKI-P08",
    ),
    "endless_copy": _pair(
        "copy",
        "the same with a DMA that copies an element to one place 2^42 times",
        "i_p, i_f = nl.arange(128)[:, None], 0 * nl.arange(1 << 42)[None, :]\n"
        "nisa.dma_copy(dst=out[i_p, i_f], src=x[i_p, i_f])",
        "again = [[2048, 128], [0, 1 << 42]]\n"
        "nisa.dma_copy(dst=out.ap(pattern=again), src=x.ap(pattern=again))",
        "NKI-P08",
    ),
    "written_once_of_many": _pair(
        "zeros",
        "write a part, and count on memory that is zero",
        "nl.store(out[0:1], nl.zeros((1, 2048), dtype=x.dtype))",
        "t = tile((1, 2048), x.dtype)\nnisa.memset(t, 0.0)\nnisa.dma_copy(dst=out[0:1], src=t)",
        "elements",
    ),
    "sbuf_returned": _pair(
        "copy",
        "return a tile on chip, and save the way back",
        "return nl.load(x)",
        "return load(x)",
        "NKI-O",
    ),
    # -- indices ---------------------------------------------------------------------------------
    "gather_on_a_dummy_axis": _pair(
        "swap",
        "turn by a DMA whose index tile is zero, so that each row counts as one piece",
        "z = nl.zeros((128, 1), dtype=nl.int32)\np = nl.arange(128)[:, None]\n"
        "v = x.reshape((1, 512, 512))\nfor c in nl.affine_range(4):\n"
        "    nl.store(out[c * 128:c * 128 + 128], "
        "nl.load(v[z[p, 0], nl.arange(512)[None, :], c * 128 + p]))",
        "z = tile((1, 1), nl.int32)\nnisa.memset(z, 0)\nfor c in range(4):\n"
        "    t = tile((128, 512), x.dtype)\n"
        "    nisa.dma_copy(dst=t, src=x.ap(pattern=[[1, 128], [512, 512]], offset=c * 128, "
        "scalar_offset=z, indirect_dim=0))\n"
        "    nisa.dma_copy(dst=out[c * 128:c * 128 + 128], src=t)",
        hole=4,
    ),
    "scatter_on_a_dummy_axis": _pair(
        "swap",
        "the same where it is stored",
        "z = nl.zeros((128, 1), dtype=nl.int32)\np = nl.arange(128)[:, None]\n"
        "v = out.reshape((1, 512, 512))\nfor r in nl.affine_range(4):\n"
        "    nl.store(v[z[p, 0], nl.arange(512)[None, :], r * 128 + p], "
        "nl.load(x[r * 128:r * 128 + 128]))",
        "z = tile((1, 1), nl.int32)\nnisa.memset(z, 0)\nfor r in range(4):\n"
        "    t = load(x[r * 128:r * 128 + 128])\n"
        "    nisa.dma_copy(dst=out.ap(pattern=[[1, 128], [512, 512]], offset=r * 128, "
        "scalar_offset=z, indirect_dim=0), src=t)",
        hole=4,
    ),
    "element_wise": _pair(
        "swap",
        "let the DMA turn element by element",
        "nisa.dma_copy(dst=out, src=x[nl.arange(512)[None, :], nl.arange(512)[:, None]])",
        "nisa.dma_copy(dst=out, src=x.permute((1, 0)))",
    ),
    "added_by_dma": _pair(
        "sums",
        "let the DMA engines add on the way, as if they only copied",
        "",
        "nisa.dma_compute(dst=out, srcs=[x[i * 128:i * 128 + 128] for i in range(8)], "
        "reduce_op=nl.add)",
    ),
    "many_dma_queues": _pair(
        "swap",
        "split it into element-wise DMAs of one column each",
        "for c in nl.affine_range(512):\n"
        "    i, j = c + nl.arange(1)[:, None], nl.arange(512)[None, :]\n"
        "    nisa.dma_copy(dst=out[i, j], src=x[j, i])",
        "for c in range(512):\n    nisa.dma_copy(dst=out[c:c + 1].reshape((512, 1)), "
        "src=x[:, c:c + 1])",
    ),
    "turn_by_dma_of_halves": _pair(
        "swap",
        "let DMAs transpose the halves of float32, each on its own",
        "v = x.view(nl.bfloat16).reshape((512, 512, 2))\nfor c in nl.affine_range(4):\n"
        "    u = tile((128, 1024), nl.bfloat16)\n    for h in nl.static_range(2):\n"
        "        u[0:128, h:1024:2] = nisa.dma_transpose("
        "v[0:512, c * 128:c * 128 + 128, h])\n"
        "    nl.store(out[c * 128:c * 128 + 128], u.view(nl.float32))",
        "v = x.view(nl.bfloat16).reshape((512, 512, 2))\nfor c in range(4):\n"
        "    u = tile((128, 1024), nl.bfloat16)\n    for h in range(2):\n"
        "        nisa.dma_transpose(dst=u[:, h:1024:2], src=v[:, c * 128:c * 128 + 128, h])\n"
        "    nisa.dma_copy(dst=out[c * 128:c * 128 + 128], src=u.view(nl.float32))",
    ),
    # -- order -----------------------------------------------------------------------------------
    "chain_said_to_be_independent": _pair(
        "later",
        "call dependent iterations independent, so that they become one",
        "t = nl.load(x)\nfor i in nl.affine_range(64):\n    " + _CHAIN + "\nnl.store(out, t)",
        "",
    ),
    "chain_with_a_comment": _pair(
        "later",
        "the same, with a comment that turns the finding off",
        "t = nl.load(x)\nfor i in nl.affine_range(64):\n    "
        + _CHAIN
        + "  # nkisim: ignore[NKI-L05, NKI-L02, NKI-L01] looked at\nnl.store(out, t)",
        "",
        hole=5,
    ),
    "chain_kept_in_order": _pair(
        "later",
        "the same, with the directive that keeps their order",
        "t = nl.load(x)\nfor i in nl.affine_range(64):\n    " + _CHAIN + "\nnl.store(out, t)",
        "",
        above="@nki.compiler.skip_middle_end_transformations",
    ),
    "chain_of_new_tiles": _pair(
        "later",
        "hide the chain behind tiles of their own",
        "t = [nl.load(x)]\nfor i in nl.static_range(64):\n"
        "    t.append(nisa.tensor_scalar(t[-1], nl.add, 1.0))\nnl.store(out, t[-1])",
        "t = load(x)\nfor i in range(64):\n    u = tile(x.shape, x.dtype)\n"
        "    nisa.tensor_scalar(dst=u, data=t, op0=nl.add, operand0=1.0)\n    t = u\n" + _STORED,
    ),
    "chain_through_views": _pair(
        "later",
        "write by one view and read by another",
        "t = nl.load(x)\nu = t.reshape((128, 2, 256))\nfor i in nl.sequential_range(32):\n"
        "    " + _CHAIN + "\n    u[...] = nisa.tensor_scalar(u, nl.add, 1.0)\nnl.store(out, t)",
        "t = load(x)\nu = t.reshape((128, 2, 256))\nfor i in range(32):\n"
        "    for v in (t, u):\n"
        "        nisa.tensor_scalar(dst=v, data=v, op0=nl.add, operand0=1.0)\n" + _STORED,
    ),
    "chain_at_one_address": _pair(
        "later",
        "have the chain in two tiles that are the same bytes",
        "",
        "t, u = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(0, 0)) "
        "for _ in range(2))\nnisa.dma_copy(dst=t, src=x)\nfor i in range(32):\n"
        "    for v, w in ((t, u), (u, t)):\n"
        "        nisa.tensor_scalar(dst=w, data=v, op0=nl.add, operand0=1.0)\n" + _STORED,
    ),
    "chain_on_turns": _pair(
        "later",
        "take turns between engines, as if each had its own copy",
        "t = nl.load(x)\nfor i in nl.sequential_range(32):\n"
        "    t[...] = nisa.tensor_scalar(t, nl.add, 1.0, engine=nisa.vector_engine)\n"
        "    t[...] = nisa.tensor_scalar(t, nl.add, 1.0, engine=nisa.gpsimd_engine)\n"
        "nl.store(out, t)",
        "t = load(x)\nfor i in range(32):\n    for e in (nisa.engine.vector, nisa.engine.gpsimd):\n"
        "        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0, engine=e)\n" + _STORED,
    ),
    "scratch_in_hbm": _pair(
        "copy",
        "write the output, and read it back before that has ended",
        "nl.store(out, nl.load(x))\nnl.store(out, nl.load(out))",
        _MOVED + "\n" + "nisa.dma_copy(dst=t, src=out)\n" + _STORED,
        honest=("nl.store(out, nl.load(x))", _MOVED),
    ),
    "input_as_scratch": _pair(
        "later",
        "put what is in between into the input",
        "",
        "t = load(x)\nnisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=63.0)\n"
        "nisa.dma_copy(dst=x, src=t)\nnisa.dma_copy(dst=t, src=x)\n"
        "nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)\n" + _STORED,
        honest=(
            "",
            "t = load(x)\nfor n in (63.0, 1.0):\n"
            "    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=n)\n" + _STORED,
        ),
    ),
    "input_written": _pair(
        "later",
        "write the input, which is none of the kernel's",
        "nl.store(x, nisa.tensor_scalar(nl.load(x), nl.add, 64.0))\nnl.store(out, nl.load(x))",
        "",
        "NKI-O01",
    ),
    "stored_before_it_is_there": _pair(
        "copy",
        "store a tile, and load it afterwards",
        "t = tile(x.shape, x.dtype)\nnl.store(out, t)\nt[...] = nl.load(x)",
        "t = tile(x.shape, x.dtype)\n" + _STORED + "\nnisa.dma_copy(dst=t, src=x)",
        "NKI-",
    ),
    "sums_in_one_bank": _pair(
        "sums",
        "add up where the iterations are called independent",
        "t = nl.zeros((128, 512), dtype=x.dtype)\nfor i in nl.affine_range(8):\n"
        "    t[...] = nl.add(t, nl.load(x[i * 128:i * 128 + 128]))\nnl.store(out, t)",
        "",
    ),
    "sums_of_the_last": _pair(
        "sums",
        "load all, and keep the last only",
        "for i in nl.affine_range(8):\n    nl.store(out, nl.load(x[i * 128:i * 128 + 128]))",
        "for i in range(8):\n    nisa.dma_copy(dst=out, src=load(x[i * 128:i * 128 + 128]))",
        "elements",
    ),
    # -- what runs at all ------------------------------------------------------------------------
    "loop_of_no_iteration": _pair(
        "copy",
        "have the work in a loop that runs zero times",
        "for i in nl.affine_range(0):\n    nl.store(out, nl.load(x))",
        "for i in range(0):\n    " + _STORED.replace("src=t", "src=load(x)"),
        "NKI-",
    ),
    "loop_of_the_chip_of_no_iteration": _pair(
        "copy",
        "have the work in a loop of the chip that runs zero times",
        "",
        "z = tile((1, 1), nl.int32)\nnisa.memset(z, 0)\nn = nisa.scalar_load(z)\n"
        "nl.fori_loop(0, n, lambda i: nisa.dma_copy(dst=out, src=load(x)))",
        "NKI-O03",
        hole=16,
    ),
    "loop_of_the_chip_as_a_branch": _pair(
        "copy",
        "ask the chip for free whether there is work to do",
        "",
        "z = tile((1, 1), nl.int32)\nnisa.memset(z, 1)\nn = nisa.scalar_load(z)\n"
        "nl.fori_loop(0, n, lambda i: nisa.dma_copy(dst=out, src=load(x)))",
        honest=("", _MOVED),
        hole=16,
    ),
    "masked_away": _pair(
        "copy",
        "mask all of the work out",
        "i, j = nl.arange(128)[:, None], nl.arange(2048)[None, :]\n"
        "nl.store(out[i, j], nl.load(x[i, j], mask=(i < 0)), mask=(i < 0))",
        "",
        "NKI-",
    ),
    "masked_in_parts": _pair(
        "thrice",
        "do the work in masked halves, and hope that masks cost nothing",
        "i, j = nl.arange(128)[:, None], nl.arange(2048)[None, :]\nt = nl.load(x)\n"
        "u = tile(x.shape, x.dtype)\n"
        "u[i, j] = nisa.tensor_scalar(t[i, j], nl.multiply, 3.0, mask=(i < 64))\n"
        "u[i, j] = nisa.tensor_scalar(t[i, j], nl.multiply, 3.0, mask=(i >= 64))\n"
        "nl.store(out, u)",
        "",
    ),
    "masked_to_one_column": _pair(
        "thrice",
        "say with a mask of columns that little is moved, in many pieces",
        "i, j = nl.arange(128)[:, None], nl.arange(2048)[None, :]\nt = nl.load(x)\n"
        "u = nisa.tensor_scalar(t, nl.multiply, 3.0)\nfor q in nl.affine_range(4):\n"
        "    nl.store(out[i, j], u[i, j], mask=(j >= q * 512) & (j < q * 512 + 512))",
        "",
    ),
    "unused_in_between": _pair(
        "later",
        "use what is computed by a view only, so that it looks unused",
        "t = nl.load(x)\nv = t.view(nl.int32).reshape((128, 4, 128))\n"
        "for i in nl.sequential_range(64):\n    "
        + _CHAIN
        + "\nnl.store(out, v.reshape((128, 512)).view(nl.float32))",
        "t = load(x)\nv = t.view(nl.int32).reshape((128, 4, 128))\nfor i in range(64):\n"
        "    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)\n"
        "nisa.dma_copy(dst=out, src=v.reshape((128, 512)).view(nl.float32))",
    ),
    "once_for_all": _pair(
        "sums",
        "load inside of the loop what only seems not to depend on it",
        "t = nl.load(x[0:128])\nz = nl.zeros((128, 1), dtype=nl.int32)\n"
        "p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]\n"
        "for i in nl.sequential_range(7):\n"
        "    t[...] = nl.add(t, nl.load(x[128 + i * 128 + p, f]))\nnl.store(out, t)",
        "t, u = load(x[0:128]), tile((128, 512), x.dtype)\nfor i in range(1, 8):\n"
        "    nisa.dma_copy(dst=u, src=x[i * 128:i * 128 + 128])\n"
        "    nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)\n" + _STORED,
    ),
    "other_numbers_in_a_loop": _pair(
        "thrice",
        "multiply a tile by other numbers in a loop, as if it were one product",
        "t = nl.load(x)\nfor o in nl.affine_range(1):\n    for k in nl.static_range(16):\n"
        "        u = nisa.tensor_scalar(t, nl.multiply, 3.0 * 2 ** k)\n"
        "        v = nisa.tensor_scalar(u, nl.multiply, 0.5 ** k)\n"
        "        nl.store(out[:, k * 128:k * 128 + 128], v[:, k * 128:k * 128 + 128])",
        "",
        honest=(
            "t = nl.load(x)\nfor k in range(16):\n"
            "    u = nisa.tensor_scalar(t, nl.multiply, 3.0 * 2 ** k)\n"
            "    v = nisa.tensor_scalar(u, nl.multiply, 0.5 ** k)\n"
            "    nl.store(out[:, k * 128:k * 128 + 128], v[:, k * 128:k * 128 + 128])",
            "",
        ),
    ),
    "other_numbers_by_turns": _pair(
        "thrice",
        "let Python count the iterations of a loop, and do in some what others do too",
        "t, n = nl.load(x), []\nfor i in nl.affine_range(16):\n    k = len(n) % 4\n"
        "    n.append(k)\n    u = nisa.tensor_scalar(t, nl.multiply, 3.0 * 2 ** k)\n"
        "    v = nisa.tensor_scalar(u, nl.multiply, 0.5 ** k)\n"
        "    nl.store(out[:, i * 128:i * 128 + 128], v[:, i * 128:i * 128 + 128])",
        "",
        honest=(
            "t = nl.load(x)\nfor i in nl.static_range(16):\n    k = i % 4\n"
            "    u = nisa.tensor_scalar(t, nl.multiply, 3.0 * 2 ** k)\n"
            "    v = nisa.tensor_scalar(u, nl.multiply, 0.5 ** k)\n"
            "    nl.store(out[:, i * 128:i * 128 + 128], v[:, i * 128:i * 128 + 128])",
            "",
        ),
    ),
    "nested_kernel": _pair(
        "copy",
        "do the work in a kernel within the kernel",
        "KERNEL_inner(x, out)",
        "KERNEL_inner(x, out)",
        "",
        above="@nki.jit\ndef KERNEL_inner(x, out):\n    nl.store(out, nl.load(x))\n",
        honest=("nl.store(out, nl.load(x))", "nl.store(out, nl.load(x))"),
    ),
    # -- where data lies -------------------------------------------------------------------------
    "partitions_by_a_view": _pair(
        "copy",
        "make one partition 128 by a view, and copy on all lanes",
        "t = nl.load(x.reshape((1, 262144))).reshape((128, 2048))\nnl.store(out, nl.copy(t))",
        "t = load(x.reshape((1, 262144))).reshape((128, 2048))\n" + _STORED,
        "NKI-",
    ),
    "few_partitions": _pair(
        "copy",
        "move through 16 partitions, as if more lanes were free",
        "nl.store(out.reshape((16, 16384)), nl.copy(nl.load(x.reshape((16, 16384)))))",
        "t, u = load(x.reshape((16, 16384))), tile((16, 16384), x.dtype)\n"
        "nisa.tensor_copy(dst=u, src=t)\nnisa.dma_copy(dst=out.reshape((16, 16384)), src=u)",
    ),
    "across_by_a_pattern": _pair(
        "turn",
        "read SBUF across its partitions, as if an engine could",
        "t = nl.load(x)\ni, j = nl.arange(128)[:, None], nl.arange(128)[None, :]\n"
        "nl.store(out, nl.copy(t[j, i]))",
        "t, u = load(x), tile(x.shape, x.dtype)\n"
        "nisa.tensor_copy(dst=u, src=t.ap(pattern=[[1, 128], [128, 128]]))\n"
        "nisa.dma_copy(dst=out, src=u)",
        "NKI-",
    ),
    "across_by_a_permutation": _pair(
        "turn",
        "read SBUF with its axes permuted",
        "",
        "t, u = load(x), tile(x.shape, x.dtype)\n"
        "nisa.tensor_copy(dst=u, src=t.permute((1, 0)))\nnisa.dma_copy(dst=out, src=u)",
        "NKI-",
    ),
    "stored_by_a_permutation": _pair(
        "turn",
        "store SBUF with its axes permuted",
        "t = nl.load(x)\ni, j = nl.arange(128)[:, None], nl.arange(128)[None, :]\n"
        "nl.store(out[j, i], t[i, j])",
        "t = load(x)\nnisa.dma_copy(dst=out.permute((1, 0)), src=t)",
    ),
    "one_partition_read_by_all": _pair(
        "spread",
        "read one partition from 128 lanes by a stride of zero",
        "t = nl.load(x)\ni, j = nl.arange(128)[:, None], nl.arange(512)[None, :]\n"
        "nl.store(out, nl.copy(t[0 * i, j]))",
        "t, u = load(x), tile((128, 512), x.dtype)\n"
        "nisa.tensor_copy(dst=u, src=t.ap(pattern=[[0, 128], [1, 512]]))\n"
        "nisa.dma_copy(dst=out, src=u)",
        "NKI-",
    ),
    "one_partition_multiplied_by_all": _pair(
        "spread",
        "let an operand of one partition meet one of 128",
        "t = nl.load(x)\nu = nl.zeros((128, 512), dtype=x.dtype)\n"
        "nl.store(out, nisa.tensor_tensor(u, t, nl.add))",
        "t, u = load(x), tile((128, 512), x.dtype)\nnisa.memset(u, 0.0)\n"
        "nisa.tensor_tensor(dst=u, data1=u, data2=t, op=nl.add)\n"
        "nisa.dma_copy(dst=out, src=u)",
        "NKI-",
    ),
    "one_row_loaded_128_times": _pair(
        "spread",
        "load one row by a stride of zero, and count its bytes once",
        "i, j = nl.arange(128)[:, None], nl.arange(512)[None, :]\n"
        "t = nl.load(x[0 * i, j])\nnl.store(out, t)",
        "t = tile((128, 512), x.dtype)\n"
        "nisa.dma_copy(dst=t, src=x.ap(pattern=[[0, 128], [1, 512]]))\n" + _STORED,
        honest=(
            "nl.store(out, nl.load(x.broadcast_to((128, 512))))",
            "t = tile((128, 512), x.dtype)\n"
            "nisa.dma_copy(dst=t, src=x.broadcast(0, 128))\n" + _STORED,
        ),
    ),
    "dims_of_the_partitions": _pair(
        "across",
        "fold half of the partitions into the free dim by a view",
        "t = nl.load(x).reshape((64, 1024))\nu = nl.add(t[0:64, 0:512], t[0:64, 512:1024])\n"
        "nl.store(out, nisa.tensor_partition_reduce(nl.add, u))",
        "t, v = load(x).reshape((64, 1024)), tile((1, 512), x.dtype)\n"
        "nisa.tensor_tensor(dst=t[:, 0:512], data1=t[:, 0:512], data2=t[:, 512:1024], op=nl.add)\n"
        "nisa.tensor_partition_reduce(dst=v, op=nl.add, data=t[:, 0:512])\n"
        "nisa.dma_copy(dst=out, src=v)",
        "NKI-",
    ),
    "more_than_sbuf": _pair(
        "copy",
        "keep more tiles than SBUF holds, and spill nothing",
        "t = [nl.load(x) for _ in nl.static_range(40)]\nu = nl.copy(t[0])\n"
        "for v in t[1:]:\n    u = nl.maximum(u, v)\nnl.store(out, u)",
        "t = [load(x) for _ in range(40)]\nu = tile(x.shape, x.dtype)\n"
        "nisa.tensor_copy(dst=u, src=t[0])\nfor v in t[1:]:\n"
        "    nisa.tensor_tensor(dst=u, data1=u, data2=v, op=nl.maximum)\n"
        "nisa.dma_copy(dst=out, src=u)",
    ),
    "wider_than_a_partition": _pair(
        "copy",
        "have a tile that is wider than a partition",
        "t = nl.load(x.reshape((1, 262144)))\nnl.store(out.reshape((1, 262144)), nl.copy(t))",
        "t = load(x.reshape((1, 262144)))\nnisa.dma_copy(dst=out.reshape((1, 262144)), src=t)",
        "NKI-",
    ),
    "more_than_psum": _pair(
        "product",
        "keep more products than PSUM has banks",
        "s, t = nl.load(x), nl.load(y)\np = [nisa.nc_matmul(s, t) for _ in nl.static_range(12)]\n"
        "u = nl.copy(p[0])\nfor v in p[1:]:\n    u = nl.maximum(u, v)\nnl.store(out, u)",
        "s, t = load(x), load(y)\np = [tile(y.shape, nl.float32, nl.psum) for _ in range(12)]\n"
        "for v in p:\n    nisa.nc_matmul(dst=v, stationary=s, moving=t)\n"
        "nisa.tensor_copy(dst=t, src=p[0])\nfor v in p[1:]:\n"
        "    nisa.tensor_tensor(dst=t, data1=t, data2=v, op=nl.maximum)\n" + _STORED,
    ),
    "small_products_side_by_side": _pair(
        "product",
        "do quarters of a product on tiles of the array, as if each had it alone",
        "s, t = nl.load(x), nl.load(y)\nu = tile(y.shape, y.dtype)\n"
        "for q in nl.static_range(4):\n    p = nisa.nc_matmul(s[0:128, q * 32:q * 32 + 32], t, "
        "tile_position=(0, q * 32), tile_size=(128, 32))\n"
        "    u[q * 32:q * 32 + 32, 0:512] = nl.copy(p)\nnl.store(out, u)",
        "s, t, p = load(x), load(y), tile(y.shape, nl.float32, nl.psum)\nfor q in range(4):\n"
        "    nisa.nc_matmul(dst=p[q * 32:q * 32 + 32], stationary=s[:, q * 32:q * 32 + 32], "
        "moving=t, tile_position=(0, q * 32), tile_size=(128, 32))\n"
        "nisa.tensor_copy(dst=t, src=p)\n" + _STORED,
    ),
    "two_cores": _pair(
        "swap",
        "have two cores do it",
        "",
        HONEST["nki"]["swap"],
        "asks for 2 cores",
        below="\n\nKERNEL = KERNEL[2]",
    ),
    "two_programs": _pair(
        "swap",
        "have two programs do what each could do half of",
        HONEST["beta1"]["swap"],
        "",
        below="\n\nKERNEL = KERNEL[2]",
    ),
    "many_programs": _pair(
        "copy",
        "start a program for each quarter, as if there were four cores",
        "q = nl.program_id(0) * 32\n"
        "nl.store(out[q + nl.arange(32)[:, None], nl.arange(2048)[None, :]], "
        "nl.load(x[q + nl.arange(32)[:, None], nl.arange(2048)[None, :]]))",
        "",
        below="\n\nKERNEL = KERNEL[4]",
        honest=("nl.store(out, nl.load(x))", ""),
    ),
    # -- what a kernel may know ------------------------------------------------------------------
    "other_chip": _pair(
        "product",
        "ask to be compiled for a newer chip",
        HONEST["beta1"]["product"],
        "",
        above="import functools\n_jit, nki.jit = nki.jit, "
        "functools.partial(nki.jit, platform_target='trn3')",
        below="nki.jit = _jit",
    ),
    "simulation_mode": _pair(
        "turn",
        "ask for a mode in which no compiler refuses anything",
        "nl.store(out, nisa.dma_transpose(x))",
        "",
        "NKI-R13",
        hole=11,
        above="import functools\n_jit, nki.jit = nki.jit, "
        "functools.partial(nki.jit, mode='simulation')",
        below="nki.jit = _jit",
    ),
    "settings": _pair(
        "later",
        "turn checks off in the environment",
        "t = nl.load(x)\nfor i in nl.affine_range(64):\n    " + _CHAIN + "\nnl.store(out, t)",
        "",
        hole=5,
        above="import os\nos.environ.update(NKISIM_CHECKS='off', "
        "NKI_LANGUAGE='off', NKISIM_SHUFFLE='0')",
    ),
    "read_a_value": _pair(
        "zeros",
        "look at the input while the kernel is built, and skip what is not needed",
        "if float(x[0, 0]) > 0:\n    nl.store(out, nl.zeros((128, 2048), dtype=x.dtype))",
        "if float(x[0, 0]) > 0:\n    t = tile(x.shape, x.dtype)\n    nisa.memset(t, 0.0)\n"
        "    " + _STORED,
        "float",
    ),
    "read_all_values": _pair(
        "copy",
        "copy the input while the kernel is built, as a constant",
        "nl.store(out, nl.load(nl.shared_constant(np.array([[v for v in r] for r in x]))))",
        "",
        "NKI-I08",
    ),
    "read_an_array": _pair(
        "copy",
        "make an array of the input while the kernel is built, as a constant",
        "",
        "nisa.dma_copy(dst=out, src=load(nl.shared_constant(np.asarray(x))))",
        "NKI-K14",
    ),
    "values_by_registers": _pair(
        "copy",
        "take the input out by registers, one value after the other",
        "",
        "t = load(x)\nv = t.view(nl.int32)\nfor i in range(40):\n"
        "    n = nisa.scalar_load(v[0:1, i:i + 1])\n    [0] * n\n" + _STORED,
        "NKI-N12",
        hole=16,
    ),
    "kept_output": _pair(
        "copy",
        "keep the output of the run before",
        "if KERNEL_KEPT:\n    return KERNEL_KEPT[0]\nnl.store(out, nl.load(x))\n"
        "KERNEL_KEPT.append(out)\nreturn out",
        "if KERNEL_KEPT:\n    return KERNEL_KEPT[0]\n"
        + _MOVED
        + "\nKERNEL_KEPT.append(out)\nreturn out",
        above="KERNEL_KEPT = []",
        honest=("nl.store(out, nl.load(x))", _MOVED),
    ),
    "kept_count": _pair(
        "copy",
        "do the work in the first run only",
        "if not KERNEL_KEPT:\n    nl.store(out, nl.load(x))\nKERNEL_KEPT.append(1)",
        "if not KERNEL_KEPT:\n    " + _MOVED.replace("\n", "\n    ") + "\nKERNEL_KEPT.append(1)",
        above="KERNEL_KEPT = []",
        honest=("nl.store(out, nl.load(x))", _MOVED),
    ),
    "kept_file": _pair(
        "copy",
        "leave word to the next process that the work is done",
        "try:\n    open('/tmp/labkit-was-here')\nexcept OSError:\n    nl.store(out, nl.load(x))\n"
        "    try:\n        open('/tmp/labkit-was-here', 'w').close()\n    except OSError:\n"
        "        pass",
        "",
        honest=("nl.store(out, nl.load(x))", ""),
    ),
}
ATTACKS: dict[str, Attack] = {
    f"{name}_{dialect}": attack for name, pair in _PAIRS.items() for dialect, attack in pair.items()
}
