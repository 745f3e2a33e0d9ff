"""Labs with a ladder of steps, and the puzzles: right on both generations, wrong answers named."""

from __future__ import annotations

import pytest

from labkit.evaluate import FAILED
from labkit.load import load_lab

from .natural import LABS, all_right, asked, changed, declared, ladder, named, quick, right

#: lab -> how many hidden cases it has at least
HIDDEN = {"attention": 6, "convnet": 6, "moe": 10, "norms": 6, "puzzles": 5}
LAB_OF = {name: load_lab(LABS / name) for name in HIDDEN}
STEPS = [(name, step) for name in HIDDEN for step in ladder(LAB_OF[name]) if step[:4] == "step"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("name", HIDDEN)
def test_the_solutions_are_right_on_the_hidden_cases_too(name, target):
    all_right(LAB_OF[name], target, at_least=HIDDEN[name])


@pytest.mark.sample(6)
@pytest.mark.parametrize("name, step", STEPS)
def test_every_step_of_the_ladder_is_right(name, step):
    lab = LAB_OF[name]
    slow = [c for c in quick(lab) if "long" in c.name and "bfloat" in c.name]
    right(lab, ladder(lab)[step], [c for c in quick(lab) if c not in slow])


@pytest.mark.sample(20)
@pytest.mark.parametrize(
    "name, reference, mistake",
    [(name, *row) for name in HIDDEN for row in declared(name)],
    ids=lambda x: str(x)[:60],
)
def test_what_is_declared_is_named(name, reference, mistake):
    assert named(name, reference, mistake)


#: lab -> case, the solution's words, a student's, and what is said of them
NATURAL = {
    "attention": [
    ("attend_128x512x64", "stationary=load_turned(q), moving=load_turned(k)",
     "stationary=load(q), moving=load_turned(k)", "transpose so that both begin with the same K"),
    ("attend_128x512x64", "stationary=load_turned(q), moving=load_turned(k)",
     "stationary=load_turned(k), moving=load_turned(q)", "tiles of 128 columns"),
    ("attend_128x512x64", "scores = new(n, k.shape[0], nl.float32, nl.psum)",
     "scores = new(n, k.shape[0])", "buffer=nl.psum"),
    ("attend_128x256x128_bfloat16_to12", "axis=1, negate=True, keepdims=True)\n    nisa",
     "axis=1, keepdims=True)\n    nisa", "NaN"),
    ("flash_128x640x64", "BLOCK = 512", "BLOCK = 1024", "tiles of 512 columns"),
    ("flash_128x640x64", "data=sums, op0=nl.multiply, operand0=shrink",
     "data=sums, op0=nl.multiply, operand0=1.0", "the sum of the rows is not scaled"),
    ("flash_128x640x64", "data=total, op0=nl.multiply, operand0=shrink",
     "data=total, op0=nl.multiply, operand0=1.0", "the sum of the powers is not scaled"),
    ("flash_128x640x64", "values[first // P + i]", "values[i]", "by the first rows of v"),
    ("flash_128x640x64", "accumulate=i > 0", "accumulate=False", "products must add up"),
    ("flash_140x530x32", "d ** -0.5)", "1.0)", "the scores are not scaled"),
    ("causal_640x32", "hide(scores, mask, m - c - w, eye[0:n, 0:n])", "pass",
     "the tile on the diagonal needs the mask"),
    ("causal_640x32", "pattern=[[-1, P]], channel_multiplier=1,",
     "pattern=[[1, P]], channel_multiplier=-1,", "the mask is turned around"),
    ("causal_640x32", "cmp_op=nl.greater_equal", "cmp_op=nl.greater",
     "query i does not see key i"),
    ("causal_640x32", "nisa.memset(dst=mask, value=0.0)", "pass", "mask"),
    ("grouped_4of2x192x32", "h = g * (heads // groups) + i", "h = i * groups + g", "h % groups"),
    ("grouped_4of2x192x32", "load_turned(k[g]), load_rows(v[g])",
     "load_turned(k[0]), load_rows(v[0])", "the keys of the first group"),
    ("decode_4of2x640x64_at600", "op0=nl.greater, operand0=last",
     "op0=nl.greater_equal, operand0=last", "the new token does not see itself"),
    ("decode_4of2x640x64_at70_bfloat16", "operand1=HIDDEN)\n    # END",
     "operand1=0.0)\n    # END", "all rows of the caches are seen"),
    ("decode_4of2x640x64_at600", "src=load(token))", "src=load(token[0:1].broadcast(0, groups)))",
     "[1, 600,"),
    ("decode_4of2x640x64_at600", "cache.ap(row, scalar_offset=last, indirect_dim=1)",
     "cache[:, last]", "scalar_offset"),
    ("decode_4of2x640x64_at600", "indirect_dim=1), src", "indirect_dim=0), src",
     "out of bounds for axis 0"),
    ("decode_4of2x640x64_at600", "(k_cache, k), (v_cache, v)", "(k_cache, v), (v_cache, k)",
     "the new value in that of keys"),
    ],
    "convnet": [
    ("padded_1x128to128_3x3_10x12_p1", "taps = [(middle, middle)]", "taps = [(0, 0)]", "NKI-N08"),
    ("padded_1x128to128_3x3_10x12_p1", "accumulate=begun", "accumulate=True", "accumulate=(k > 0)"),
    ("padded_1x128to128_3x3_10x12_p1", "accumulate=begun", "accumulate=False",
     "terms of the sum are missing or overwritten"),
    ("padded_1x128to128_3x3_10x12_p1",
     "    while first < end and first * stride + tap - padding < 0:\n        first += 1\n", "",
     "-1:9, which is 9:9: a negative bound counts from the end"),
    ("padded_1x128to128_3x3_10x12_p1", "(end - 1) * stride + tap - padding >= length",
     "(end - 1) * stride + tap - padding > length", "11"),
    ("padded_1x128to128_3x3_10x12_p1",
     "y, x = top * stride + i - padding, left * stride + j - padding",
     "y, x = top * stride + i, left * stride + j", "elements 1 .. 10"),
    ("padded_1x128to128_3x3_10x12_p1",
     "nc_transpose(dst=bank[:, t], data=raw[:, :, first + t])",
     "tensor_copy(dst=bank[:, t], src=raw[:, :, first + t])", "the filters are not turned"),
    ("padded_1x128to128_3x3_10x12_p1", "i * size + j],", "i + j * size],",
     "the taps are exchanged"),
    ("padded_1x256to128_3x3_30x40_p1_float16", "top - row:bottom - row, left", "top:bottom, left",
     "elements 12 .. 23"),
    ("padded_1x256to128_3x3_30x40_p1_float16", "for k in range(k_tiles):\n            nisa",
     "for k in range(1):\n            nisa", "only the first 128 input channels"),
    ("padded_2x128to256_5x5_9x14_p2_bfloat16", "    return wide\n", "    return raw\n",
     "into a float32 tile first"),
    ("padded_2x128to256_5x5_9x14_p2_bfloat16", ".permute((1, 0, 2, 3)))\n    # END",
     ")\n    # END", "images and channels are mixed up"),
    ("strided_1x128to128_3x3_16x20_s2_p1", "y:y_end:stride, x:x_end:stride", "y:y_end, x:x_end",
     "result (128, 1, 15, 19)"),
    ("strided_1x128to128_3x3_16x20_s2_p1", "convolve(out, X, W, bias, stride, padding, 1)",
     "convolve(out, X, W, bias, 1, padding, 1)", "the stride is left out: neighbouring"),
    ("batched_13x128to256_3x3_7x7_p1_bfloat16",
     "in_bank = max(1, min(together, bank // (rows * columns)))", "in_bank = together",
     "tiles of 512 columns"),
    ("batched_13x128to256_3x3_7x7_p1_bfloat16", "image:image + count, y", "0:count, y",
     "every bank has the images of the first bank"),
    ("batched_13x128to256_3x3_7x7_p1_bfloat16", "column[:, m:m + 1]", "column[:, 0:1]",
     "the biases of the first 128 output channels"),
    ],
    "moe": [
    ("gather_200of300x64", "index = load(which[r:r + m * each].reshape((m, each)))",
     "index = which[r:r + m * each].reshape((m, each))", "dma_copy the indices into SBUF first"),
    ("gather_200of300x64", "src=table.vector_select(0, index[:, i:i + 1])",
     "src=table[index[:, i:i + 1]]", "t.vector_select(0, indices)"),
    ("gather_256of1000x96_bfloat16", "table.vector_select(0, index[:, i:i + 1])",
     "table.vector_select(0, index)", "one column: index[:, 0:1]"),
    ("gather_256of1000x96_bfloat16", "place = out[r:r + m * each].reshape((m, each, d))",
     "place = out[r:r + m * each].reshape((each, m, d)).permute((1, 0, 2))",
     "rows are out of order"),
    ("scatter_add_200to300x64", "nisa.dma_compute(dst=place, srcs=[tile[:, i], place], "
     "reduce_op=nl.add,\n                             oob_mode", "nisa.dma_copy(dst=place, "
     "src=tile[:, i], oob_mode", "rows are written, not added"),
    ("scatter_add_200to300x64", "reduce_op=nl.add,\n                             "
     "oob_mode=nisa.oob_mode.skip)\n    # END", "reduce_op=nl.add)\n    # END",
     "offsets 0 .. 299"),
    ("scatter_add_200to300x64", "srcs=[tile[:, i], place]", "srcs=[tile[:, i]]",
     "what is added, and dst itself"),
    ("route_200x256_4of32", "data=rows[:, b + i:d:blocks]",
     "data=rows[:, (b + i) * P:(b + i) * P + P]", "in different orders"),
    ("route_200x256_4of32", "new(bank.shape), new((m, 8))", "new(bank.shape), new((m, k))",
     "result (128, 8)"),
    ("route_200x256_4of32", "nisa.tensor_scalar(dst=share, data=powers, op0=nl.multiply, "
     "operand0=total)", "nisa.tensor_copy(dst=share, src=powers)", "not divided by their sum"),
    ("decode_2x256_2of6x128", "(source.shape[0], P, d // P, n)).select(0, number)",
     "(source.shape[0], P, d // P, n))[number]", "t.select(dim, index)"),
    ("decode_2x256_2of6x128", "source.reshape((source.shape[0], P, d // P, n)).select(0, number)",
     "source.select(0, number).reshape((P, d // P, n))", "make the other views first"),
    ("decode_2x256_2of6x128", "source.reshape((source.shape[0], P, d // P, n)).select(0, number)",
     "source.reshape((source.shape[0], d // P, P, n)).permute((0, 2, 1, 3)).select(0, number)",
     "of a matrix lie together"),
    ("decode_3x256_2of4x256_bfloat16", "stationary=matrix[:, c, b:n:n // P]",
     "stationary=matrix[:, c, b * P:b * P + P]", "b * 128 + 127 go together"),
    ("decode_2x256_2of6x128", "op=nl.silu, data=times(column", "op=nl.sigmoid, data=times(column",
     "the sigmoid is applied"),
    ("decode_2x256_2of6x128", "weights.reshape((1, n * k)).broadcast(0, P)",
     "weights.reshape((1, n * k))", "a tile of shape (128, 1)"),
    ("decode_fp8_2x256_2of4x128_bfloat16", "data=scaled(times(column, parts[0]), scale[:, 0:b])",
     "data=times(column, parts[0])", "gate is not scaled"),
    ("experts_100x256_3x40x128", "src=x.vector_select(0, number), oob_mode=nisa.oob_mode.skip)",
     "src=x.vector_select(0, number))", "offsets 0 .. 99"),
    ("experts_100x256_3x40x128", "            nisa.memset(dst=rows, value=0.0)\n", "",
     "never written"),
    ("experts_100x256_3x40x128", ".permute((1, 0))", "", "must lie along partitions"),
    ("experts_100x256_3x40x128", "nisa.tensor_scalar(dst=result[:, c:c + w], data=bank, "
     "op0=nl.multiply, operand0=share)", "nisa.tensor_copy(dst=result[:, c:c + w], src=bank)",
     "without their weights"),
    ("decode_mx_2x512_2of3x512_bfloat16", "source[:, 4 * q:4 * q + 4]", "source[:, 0:4]",
     "the exponents of the first"),
    ("decode_mx_2x512_2of3x512_bfloat16", "stationary=packs[:, c, first:first + 4 * P - 3:4],\n"
     "                stationary_scale=rows[:, c, first:first + 4 * P - 3:4]",
     "stationary=packs[:, c, b * P:b * P + P],\n"
     "                stationary_scale=rows[:, c, b * P:b * P + P]", "neighbours, 512 * b"),
    ("decode_mx_2x512_2of3x512_bfloat16", "tile.view(nl.float8_e4m3fn_x4)", "tile",
     "float8_e4m3fn_x4"),
    ],
    "norms": [
    ("softmax_128x64_to1000", "bias=largest, reduce_op=nl.add,\n     ", "reduce_op=nl.add,\n     ",
     "NaN"),
    ("softmax_128x64_to1000", "axis=1, negate=True,", "axis=1,", "NaN"),
    ("softmax_256x512", "        nisa.reciprocal(dst=total, data=total)\n", "",
     "multiply by its reciprocal"),
    ("softmax_256x512", "data=powers, op0=nl.multiply, operand0=total",
     "data=powers, op0=nl.divide, operand0=total", "nisa.reciprocal(dst, data)"),
    ("softmax_256x512", "tensor_scalar(dst=result, data=powers, op0=nl.multiply, operand0=total)",
     "tensor_tensor(dst=result, data1=powers, data2=total, op=nl.multiply)", "nisa.tensor_scalar("),
    ("layer_norm_256x512", "load(gamma.broadcast(0, P)), load(beta.broadcast(0, P))",
     "load(gamma), load(beta)", "row.broadcast(0, n)"),
    ("layer_norm_128x1024_bfloat16_at8", "new(n, 2)", "new(n, 2, x.dtype)", "float32"),
    ("layer_norm_200x600", "data=tile[:, c:c + w])", "data=tile[:, 0:w])", "outside the tolerance"),
    ("layer_norm_200x600", "data=tile[:, c:c + w])", "data=tile)", "1 .. 512"),
    ("layer_norm_256x512", "op0=nl.power, operand0=-0.5", "op0=nl.power, operand0=-1.0",
     "the root is missing"),
    ("rms_norm_256x512", "1.0 / columns", "1.0", "not divided by the number of columns"),
    ("rms_norm_256x512", "op1=nl.multiply, operand1=factor", "op1=nl.add, operand1=factor",
     "gamma is added"),
    ("rms_norm_200x77", "operand1=factor[0:n]", "operand1=factor", "factor[0:72]"),
    ("add_rms_norm_256x512", "normalise(total, factor", "normalise(load(x[r:r + n]), factor",
     "the residual is not added"),
    ("add_rms_norm_256x512", "return normed, added", "return added, normed", "are exchanged"),
    ("softmax_long_16x65536_to100", "before, largest_before = total, largest",
     "before, largest_before = None, None", "of the last chunk alone"),
    ("softmax_long_16x65536_to100", "operand0=shrink", "operand0=1.0", "the sum is not scaled"),
    ],
    "puzzles": [
    ("first_tile", "    nisa.dma_copy(dst=tile, src=x)\n    nisa.tensor_s", "    nisa.tensor_s",
     "NKI-U01"),
    ("first_tile", "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=10.0)\n"
     "    nisa.dma_copy(dst=out, src=tile)", "    nisa.tensor_scalar(out, x, nl.add, 10.0)",
     "copy it into a tile first"),
    ("first_tile", "op0=nl.add, operand0=10.0)\n    nisa", "op0=nl.multiply, operand0=10.0)\n"
     "    nisa", "x is multiplied by 10"),
    ("many_rows", "tile = load(x[row:row + P])", "tile = load(x)", "128 partitions"),
    ("many_rows", "tile = load(x[row:row + P])", "tile = load(x[0:P])",
     "every tile holds the first 128 rows"),
    ("scale_rows", "tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=column)",
     "tensor_tensor(dst=tile, data1=tile, data2=column, op=nl.multiply)", "nisa.tensor_scalar("),
    ("row_sums", "op=nl.add, data=tile, axis=1", "op=nl.maximum, data=tile, axis=1",
     "the largest element of each row"),
    ("row_sums", "axis=1, keepdims=True", "axis=0, keepdims=True", "partition dim"),
    ("edge_tile", "end = min(row + P, x.shape[0])", "end = row + P", "x[row:min(end, 300)]"),
    ("edge_tile", "for row in range(0, x.shape[0], P):\n        end",
     "for row in range(0, x.shape[0] // P * P, P):\n        end", "NaN"),
    ("transpose", "tensor_copy(dst=tile, src=turned)\n    nisa.dma_copy(dst=out, src=tile)",
     "tensor_copy(dst=tile, src=turned)\n    nisa.dma_copy(dst=out, src=turned)",
     "nisa.tensor_copy(dst=tile"),
    ("transpose", "x.shape[0]), x.dtype, nl.psum)", "x.shape[0]), x.dtype)", "buffer=nl.psum"),
    ("matmul", "stationary=load(x), moving=load(y)", "stationary=load(y), moving=load(x)",
     "gemm_stationary_fmax"),
    ("long_sums", "accumulate=k > 0", "accumulate=False", "only the last 128 rows are in the sum"),
    ("long_sums", "accumulate=k > 0", "accumulate=True", "accumulate=(k > 0)"),
    ("wide_relu", "moving=right[:, n:n + BANK]", "moving=right[:, 0:BANK]",
     "first 512 columns are repeated"),
    ("wide_relu", "nisa.activation(dst=tile[:, n:n + BANK], op=nl.relu, data=sums)",
     "nisa.tensor_copy(dst=tile[:, n:n + BANK], src=sums)", "relu is missing"),
    ("one_activation", "scale=0.5, bias=column", "bias=column", "x is not scaled"),
    ("lower_triangle", "[[-1, x.shape[1]]], channel_multiplier=1",
     "[[1, x.shape[1]]], channel_multiplier=-1", "the upper triangle is kept"),
    ("lower_triangle", "[[-1, x.shape[1]]], channel_multiplier=1",
     "[[-1, x.shape[1]]], channel_multiplier=0", "only the first column is kept"),
    ("lower_triangle", "cmp_op=nl.greater_equal", "cmp_op=nl.greater", "the diagonal is missing"),
    ("running_sum", "op0=nl.multiply, op1=nl.add", "op0=nl.add, op1=nl.multiply",
     "the two operators are exchanged"),
    ("running_sum", "initial=0.0", "initial=1.0", "the scan begins with 1"),
    ("pick_rows", "vector_offset=index", "vector_offset=which", "SBUF first"),
    ("pick_rows", "dst=tile, src=chosen", "dst=tile, src=table[0:128]", "the index is not used"),
    ],
}  # fmt: skip


@pytest.mark.sample(20)
@pytest.mark.parametrize(
    "name, case, good, wrong, says",
    [(name, *row) for name, rows in NATURAL.items() for row in rows],
    ids=lambda x: x[:30],
)
def test_a_natural_mistake_is_named(tmp_path, name, case, good, wrong, says):
    lab = LAB_OF[name]
    case = lab.case(case)
    outcome = changed(lab, case, good, wrong, tmp_path, asked(case))
    assert outcome.status == FAILED and says in outcome.detail, outcome.detail
