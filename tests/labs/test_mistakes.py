"""A mistake of a kernel is named: what the labs declare in mistakes.py, and what they don't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labkit import AnyArgmax, compare, make_inputs
from labkit.evaluate import FAILED, PASSED, References, evaluate, judge
from labkit.inputs import dtype_of
from labkit.load import load_lab, load_module
from labkit.mistakes import Mistakes
from labkit.starter.export import lab_files

LABS = Path(__file__).parents[2] / "labs"
LOADED = {name: load_lab(LABS / name) for name in ("vecadd", "ffnn", "conv2d")}
CONV = load_module(LABS / "conv2d" / "spec.py", "conv2d_spec_of_mistakes").conv_case
FFNN = load_module(LABS / "ffnn" / "spec.py", "ffnn_spec_of_mistakes")

#: By reference function: a case whose output tells its mistakes apart.
CASES = {
    "vecadd": {
        "add": LOADED["vecadd"].case("tiled_25600_rows128"),
        "transpose": LOADED["vecadd"].case("transpose_128x128"),
        "tiles": load_module(LABS / "vecadd" / "spec.py").transpose_case(256, 256),
    },
    "ffnn": {
        "transpose": FFNN.transpose_case(256, 256),
        "matmul": FFNN.matmul_case("tiled", 384, 256, 1024),
        "relu": FFNN.bias_case("relu", 256, 512),
        "softmax": FFNN.bias_case("softmax", 256, 512),
        "forward": LOADED["ffnn"].case("forward_small"),
        "predict": LOADED["ffnn"].case("predict_small_tiled"),
    },
    "conv2d": {
        "conv": CONV("conv", 2, 256, 256, 3, 8, 10),
        "square": CONV("square", 1, 256, 256, 3, 7, 7),
        "pool": CONV("pool", 2, 128, 256, 2, 9, 11, "float16", pool=2),
    },
}
DECLARED = [
    (lab, reference, mistake)
    for lab in LOADED
    for reference, known in Mistakes.load(LABS / lab).of.items()
    for mistake in known
]


def verdict(lab: str, case, outputs: tuple) -> object:
    """Return the judgement of outputs as those of a kernel."""
    references = References(load_module(LABS / lab / "reference.py"), LOADED[lab].seed)
    return judge(case, "trn2", {"outputs": outputs}, references.of(case), references)


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "lab, reference, mistake",
    [pytest.param(*row, id=f"{row[0]}-{row[1]}-{row[2].says[:60]}") for row in DECLARED],
)
def test_what_is_declared_is_named(lab, reference, mistake):
    """The output of each mistake, of the whole case and in its dtype, gets that sentence."""
    named = 0
    for case in (c for c in CASES[lab].values() if c.reference == reference):
        right = getattr(load_module(LABS / lab / "reference.py"), reference)
        with np.errstate(all="ignore"):
            wrong = mistake.output(right, *make_inputs(case, LOADED[lab].seed), **case.kwargs)
        if wrong is None:  # not possible with these inputs
            continue
        if case.output_dtype == "int32":
            scores = wrong.scores if isinstance(wrong, AnyArgmax) else wrong
            wrong = scores.argmax(axis=1)
        wrong = np.nan_to_num(wrong).astype(dtype_of(case.dtype_of_output()))
        outcome = verdict(lab, case, (wrong,))
        if outcome.status == FAILED:  # else it gives what is right with these inputs
            assert mistake.says in outcome.detail, outcome.detail
            named += 1
    assert named, "in none of the cases can this mistake be seen"


ROW_OF = """

def row_of(bias, rows, columns):
    out = nl.ndarray((P, rows, columns), dtype=bias.dtype, buffer=nl.sbuf)
    for r in nl.affine_range(rows):
        out[:, r] = nl.broadcast_to(nl.load(bias.reshape((1, bias.shape[0]))[:, 0:columns]),
                                    shape=(P, columns))
    return out
"""
TWO, POOL = CONV("two", 1, 256, 256, 3, 12, 10), CONV("pool", 1, 128, 128, 3, 12, 12, pool=2)
TALL = CONV("tall", 1, 128, 128, 3, 50, 34, "float16")
MATMUL, RELU = CASES["ffnn"]["matmul"], CASES["ffnn"]["relu"]
SOFTMAX, FORWARD, PREDICT = (CASES["ffnn"][k] for k in ("softmax", "forward", "predict"))
ADD, TURN = CASES["vecadd"]["add"], CASES["vecadd"]["transpose"]
ADDED = (
    "z = nisa.tensor_tensor(nl.load(A[r:r + n, c:c + w]), bias[0:n], op=nl.add,\n"
    "                                   dtype=nl.float32)"
)
KERNEL_MISTAKES = [
    ("vecadd", ADD, "nl.add(a, b)", "nl.subtract(a, b)", "second vector is subtracted"),
    ("vecadd", ADD, "nl.add(a, b)", "nl.multiply(a, b)", "multiplied, not added"),
    ("vecadd", ADD, "value=nl.add(a, b)", "value=a", "the second is never added"),
    ("vecadd", ADD, "b[...] = nl.load(b_vec", "b[...] = nl.load(a_vec", "input 1 was overwritten"),
    ("vecadd", TURN, "nisa.nc_transpose(", "nl.copy(", "inside no tile is transposed"),
    (
        "vecadd",
        replace(TURN, inputs=LOADED["ffnn"].case("transpose_128x128").inputs),
        "= nisa.nc_transpose(",
        "= nl.copy(",
        "not transposed",
    ),
    (
        "ffnn",
        CASES["ffnn"]["transpose"],
        "nisa.nc_transpose(tile[:, first + r, c * P:(c + 1) * P])",
        "nisa.tensor_copy(tile[:, first + r, c * P:(c + 1) * P])",
        "inside no tile is transposed",
    ),
    (
        "ffnn",
        MATMUL,
        "acc += nisa.nc_matmul(left, right)",
        "acc[...] = nisa.nc_matmul(left, right)",
        "assigned (=), not added (+=)",
    ),
    (
        "ffnn",
        MATMUL,
        "for k in nl.affine_range(K // P):\n                left = nl.load(lhsT[k",
        "for k in nl.affine_range(K // P - 1):\n                left = nl.load(lhsT[k",
        "the last 128 rows of lhsT and rhs are not in the sum",
    ),
    (
        "ffnn",
        MATMUL,
        "left = nl.load(lhsT[k * P:(k + 1) * P, m * P:(m + 1) * P])",
        "left = nl.load(lhsT[0:P, m * P:(m + 1) * P])",
        "lhsT's first 128 rows meet all",
    ),
    (
        "ffnn",
        MATMUL,
        "left = nl.load(lhsT[k * P:(k + 1) * P, m * P:(m + 1) * P])",
        "left = nl.copy(nisa.nc_transpose(nl.load(lhsT[k * P:(k + 1) * P, m * P:(m + 1) * P])))",
        "transposed once too often",
    ),
    (
        "ffnn",
        MATMUL,
        "acc = nl.zeros((P, width), dtype=nl.float32, buffer=nl.psum)\n            "
        "for k in nl.affine_range(K // P):\n"
        "                left = nl.load(lhsT[k * P:(k + 1) * P, m ",
        "acc = nl.zeros((P, width), dtype=nl.float16, buffer=nl.sbuf)\n            "
        "for k in nl.sequential_range(K // P):\n                "
        "left = nl.load(lhsT[k * P:(k + 1) * P, m ",
        "as large as those of a sum in float16",
    ),
    (
        "ffnn",
        MATMUL,
        "    for m in nl.affine_range(M // P):\n        for n in nl.affine_range(N // "
        "width):\n            acc = nl.zeros((P, width), dtype=nl.float32, buffer=nl.psum)",
        "    acc = nl.zeros((P, width), dtype=nl.float32, buffer=nl.psum)\n"
        "    for m in nl.sequential_range(M // P):\n"
        "        for n in nl.sequential_range(N // width):",
        "the accumulator must be made, or zeroed, for each tile anew",
    ),
    ("ffnn", RELU, "bias[0:n], op=nl.add", "bias[0:n], op=nl.subtract", "the bias is subtracted"),
    (
        "ffnn",
        RELU,
        "nisa.activation(nl.relu, z, dtype=A.dtype)",
        "nl.copy(z, dtype=A.dtype)",
        "the activation is missing",
    ),
    ("ffnn", RELU, ADDED, "z = nl.load(A[r:r + n, c:c + w])", "the bias is not added"),
    (
        "ffnn",
        RELU,
        "bias[0:n], op=nl.add",
        "nl.broadcast_to(nl.load(b[0, 0:n]), shape=(n, w)), op=nl.add",
        "the bias is added as a column",
    ),
    (
        "ffnn",
        SOFTMAX,
        "nisa.tensor_scalar(e, nl.multiply, nisa.reciprocal(total),\n"
        "                                                  dtype=A.dtype)",
        "nl.copy(e, dtype=A.dtype)",
        "not divided by their sum",
    ),
    ("ffnn", SOFTMAX, 'if act == "relu":', 'if act != "relu":', "relu is computed, but softmax"),
    ("ffnn", FORWARD, ADDED, "z = nl.load(A[r:r + n, c:c + w])", "both biases are not added"),
    (
        "ffnn",
        FORWARD,
        "nisa.activation(nl.relu, z, dtype=A.dtype)",
        "nl.copy(z, dtype=A.dtype)",
        "the relu of the hidden layer is missing",
    ),
    (
        "ffnn",
        PREDICT,
        "nisa.activation(nl.relu, z, dtype=A.dtype)",
        "nl.copy(z, dtype=A.dtype)",
        "the relu of the hidden layer is missing",
    ),
    ("ffnn", PREDICT, "places[:, 0:1]", "places[:, 1:2]", "second most probable class"),
    ("conv2d", TWO, "i * size + j]", "taps - 1 - (i * size + j)]", "the filter is flipped"),
    ("conv2d", TWO, "i * size + j]", "(size - 1 - i) * size + j]", "the filter is upside down"),
    ("conv2d", TWO, "i * size + j]", "j * size + i]", "the taps are exchanged"),
    ("conv2d", TWO, "i * size + j]", "0]", "all pixels meet the first tap"),
    (
        "conv2d",
        TWO,
        "nisa.nc_transpose(w_raw[:, m % 2, k, :, first + t])",
        "nisa.tensor_copy(w_raw[:, m % 2, k, :, first + t])",
        "the filters are not transposed",
    ),
    ("conv2d", TWO, "slot, k, r + i:r + i + n_r", "slot, k, r:r + n_r", "does not move down"),
    ("conv2d", TWO, "c + j:c + j + n_c", "c:c + n_c", "does not move right"),
    (
        "conv2d",
        TWO,
        "def load_rows(X, x_sb, slot, image, row, col, lo, hi, cols):",
        "def load_rows(X, x_sb, slot, image, row, col, lo, hi, cols):\n"
        "    load_right(X, x_sb, slot, image, row, col, lo, hi, cols)\n"
        "    for k in nl.affine_range(X.shape[1] // P):\n"
        "        nisa.dma_copy(dst=x_sb[:, slot, k, lo:hi, 1:cols],\n"
        "                      src=X[image, k * P:(k + 1) * P, row + lo:row + hi, col:col "
        "+ cols - 1])"
        "\n\n\ndef load_right(X, x_sb, slot, image, row, col, lo, hi, cols):",
        "one column too far left",
    ),
    ("conv2d", TWO, "acc += nisa.nc_matmul", "acc[...] = nisa.nc_matmul", "only the last product"),
    ("conv2d", TWO, "x_sb[:, slot, k, r", "x_sb[:, slot, 0, r", "meet the first 128 of the image"),
    ("conv2d", TWO, "w_sb[:, m, k, i", "w_sb[:, 0, k, i", "first 128 output channels are used"),
    (
        "conv2d",
        TWO,
        "nisa.tensor_scalar(acc, nl.add, bias,",
        "nisa.tensor_scalar(acc, nl.add, 0.0,",
        "the bias is not added",
    ),
    (
        "conv2d",
        TWO,
        "bias_sb[:, m:m + 1], o_sb",
        "bias_sb[:, 0:1], o_sb",
        "biases of the first 128 output channels",
    ),
    (
        "conv2d",
        TWO,
        "drain(acc, bias_sb[:, m:m + 1],",
        "drain(acc, row_of(bias, n_r, n_c),",
        "to the columns of the image, as a row",
        ("nisa.tensor_scalar(acc, nl.add, bias,", "nl.add(acc, bias,"),
    ),
    (
        "conv2d",
        TWO,
        "acc = nl.zeros((P, n_r, n_c), dtype=nl.float32, buffer=nl.psum)",
        "acc = nl.zeros((P, n_r, n_c), dtype=nl.float16, buffer=nl.sbuf)",
        "as large as those of a sum in float16",
    ),
    (
        "conv2d",
        TALL,
        "acc = nl.zeros(",
        "if t == 0:\n                        acc = nl.zeros(",
        "the accumulator must be made",
    ),
    (
        "conv2d",
        POOL,
        "nisa.tensor_reduce(nl.max,",
        "nisa.tensor_reduce(nl.min,",
        "the smallest element of each square",
    ),
    (
        "conv2d",
        POOL,
        "nisa.tensor_reduce(nl.max,",
        "nisa.tensor_reduce(nl.add,",
        "the sum of each square",
    ),
    ("conv2d", POOL, "pool * i_r + i_y", "pool * i_r + 0 * i_y", "only the first row"),
]


#: The same in the newer dialect, where a mistake is made in another way.
NEWER = [
    ("vecadd", ADD, "data2=b, op=nl.add", "data2=b, op=nl.subtract", "vector is subtracted"),
    (
        "vecadd",
        TURN,
        "nisa.nc_transpose(dst=of_psum, data=block",
        "nisa.tensor_copy(dst=of_psum, src=block",
        "not transposed",
    ),
    (
        "ffnn",
        MATMUL,
        "moving=right, accumulate=k > 0",
        "moving=right, accumulate=False",
        "assigned (=), not added (+=)",
    ),
    (
        "ffnn",
        RELU,
        "data2=bias[0:n], op=nl.add",
        "data2=bias[0:n], op=nl.subtract",
        "the bias is subtracted",
    ),
    ("conv2d", TWO, "i * size + j]", "taps - 1 - (i * size + j)]", "the filter is flipped"),
    ("conv2d", TWO, "i * size + j]", "j * size + i]", "the taps are exchanged"),
    ("conv2d", TWO, "accumulate=k + i + j > 0", "accumulate=False", "only the last product"),
    (
        "conv2d",
        TWO,
        "data=acc, op0=nl.add, operand0=bias",
        "data=acc, op0=nl.add, operand0=0.0",
        "the bias is not added",
    ),
    ("conv2d", TWO, "slot, k, r + i:r + i + n_r", "slot, k, r:r + n_r", "does not move down"),
]


def judged(lab: str, case, source: str, folder: Path):
    """Run a case on the kernels with this source."""
    dialect = "beta1" if "import neuronxcc" in source else "nki"
    (folder / "kernels.py").write_text(source, encoding="utf-8")
    return next(
        evaluate(
            LOADED[lab].speaking(dialect),
            [(case, "trn2")],
            in_process=True,
            kernels=folder / "kernels.py",
        )
    )


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    "lab, case, right, wrong, says, more",
    [
        pytest.param(*(*row, ())[:6], id=f"{row[0]}-{row[1].name}-{row[4]}")
        for row in KERNEL_MISTAKES
    ],
)
def test_a_mistake_in_a_kernel_is_named(tmp_path, lab, case, right, wrong, says, more):
    source = (LABS / lab / "kernels.py").read_text(encoding="utf-8")
    assert right in source
    source = source.replace(right, wrong).replace(*(more or ("", ""))) + ROW_OF
    outcome = judged(lab, case, source, tmp_path)
    assert outcome.status == FAILED and outcome.comparisons, outcome.detail
    assert "looks like" in outcome.detail and says in outcome.detail, outcome.detail


@pytest.mark.parametrize(
    "lab, case, right, wrong, says",
    [pytest.param(*row, id=f"{row[0]}-{row[1].name}-{row[4]}") for row in NEWER],
)
def test_a_mistake_in_the_newer_dialect_is_named(tmp_path, lab, case, right, wrong, says):
    source = (LABS / lab / "kernels_nki.py").read_text(encoding="utf-8")
    assert right in source
    outcome = judged(lab, case, source.replace(right, wrong), tmp_path)
    assert outcome.status == FAILED and outcome.comparisons, outcome.detail
    assert says in outcome.detail, outcome.detail


@pytest.mark.parametrize(
    "lab, file", [(lab, f) for lab in LOADED for f in ("kernels", "kernels_nki")]
)
def test_right_kernels_are_told_nothing(tmp_path, lab, file):
    """The twins without a mistake: all the cases above, of the files as they are."""
    source = (LABS / lab / f"{file}.py").read_text(encoding="utf-8")
    cases = {row[1].name: row[1] for row in KERNEL_MISTAKES if row[0] == lab}
    for case in cases.values():
        outcome = judged(lab, case, source, tmp_path)
        assert outcome.status == PASSED, outcome.detail
        assert not outcome.detail and not outcome.comparisons[0].guess


def test_where_two_agree_both_are_said():
    """With an image whose columns are alike, flipped is the same as upside down."""
    case = CONV("one", 1, 128, 128, 2, 9, 9)
    right = load_module(LABS / "conv2d" / "reference.py").conv2d_exact
    X, W, bias = make_inputs(case, LOADED["conv2d"].seed)
    X[...] = X[:, :, :, :1]
    known = Mistakes.load(LABS / "conv2d").alternatives(
        case.reference, right, (X, W, bias), {}, 0, (0, 0, 1, 1)
    )
    wrong = right(X, W[:, :, ::-1], bias).astype(np.float32)
    said = compare(
        right(X, W, bias), wrong, accumulate=case.accumulate, alternatives=known
    ).guess.text
    assert "the filter is flipped" in said and ", or the filter is upside down" in said
    assert "mirrored" not in said


@pytest.mark.sample(2)
@pytest.mark.parametrize("lab, key", [(lab, key) for lab, cases in CASES.items() for key in cases])
def test_what_is_wrong_in_another_way_gets_no_name(lab, key):
    """Noise, a stranger's inputs, holes: outputs that no declared mistake gives."""
    case = CASES[lab][key]
    known = {m.says for m in Mistakes.load(LABS / lab).of[case.reference]}
    references = References(load_module(LABS / lab / "reference.py"), LOADED[lab].seed)
    (expected,) = references.of(case)
    rng = np.random.default_rng(3)
    if isinstance(expected, AnyArgmax):
        best = expected.scores.argmax(axis=1).astype(np.int32)
        outputs = [rng.permutation(best), np.where(rng.random(best.size) < 0.1, 0, best)]
    else:
        right = np.asarray(expected, np.float64)
        size = np.sqrt((right**2).mean())
        holes = rng.random(right.shape) < 0.01
        outputs = [
            right + size * rng.standard_normal(right.shape),
            right + size,
            np.where(holes, 3 * size, right),
            0 * right,
            rng.permutation(right.ravel()).reshape(right.shape),
        ]
    for output in outputs:
        output = output.astype(dtype_of(case.dtype_of_output()))
        outcome = verdict(lab, case, (output,))
        assert outcome.status == FAILED
        assert not [says for says in known if says in outcome.detail], outcome.detail


@pytest.mark.parametrize("lab", LOADED)
def test_students_have_the_mistakes(lab):
    assert "mistakes.py" in dict(lab_files(LABS / lab, "beta1"))
