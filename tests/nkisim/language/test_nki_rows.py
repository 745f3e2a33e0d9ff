"""What the matrix of rows (test_nki_row_matrix.py) does not show of instructions of nki."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError

RNG = np.random.default_rng(0)
BF16 = ml_dtypes.bfloat16


def array(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def run(body, *arrays, shape=None, dtype=nl.float32, target="trn2", more=()):
    """Run `body(dst, *tiles, *more)` on loaded arrays; return dst."""

    def kernel(*xs):
        tiles = [nl.load(x) for x in xs]
        dst = nl.ndarray(shape or tiles[0].shape, dtype=dtype)
        extra = [nl.ndarray(s, dtype=d) for s, d in more]
        body(dst, *tiles, *extra)
        outs = []
        for t in (dst, *extra):
            out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=t)
            outs.append(out)
        return tuple(outs)

    got = nkisim.run(nki.jit(kernel), *arrays, target=target).outputs
    return got if more else got[0]


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2", "int8", "uint16", "int32"])
def test_a_bias_is_of_any_dtype_but_tfloat32(dtype):
    x, bias = array(32, 40), RNG.integers(1, 9, (32, 1)).astype(np.float32)

    def add(d, x, b):
        narrow = nl.ndarray(b.shape, dtype=dtype)
        nisa.tensor_copy(narrow, b)
        nisa.activation(d, nl.copy, x, bias=narrow)
        total = nl.ndarray(b.shape, dtype=nl.float32)
        nisa.activation_reduce(d, nl.copy, x, nl.add, total, bias=narrow)

    assert (run(add, x, bias) == x + bias).all()
    with pytest.raises(NkiError, match="NKI-E08"):
        run(lambda d, x: nisa.activation(d, nl.copy, x, bias=nl.ndarray((32, 1), nl.tfloat32)), x)


def test_tensor_scalar_reduce_takes_operators_of_one_operand():
    x = array(32, 40)
    for none in (None, 0, 0.0):
        got, total = run(
            lambda d, x, r, none=none: nisa.tensor_scalar_reduce(d, x, nl.abs, none, nl.minimum, r),
            x,
            more=[((32, 1), nl.float32)],
        )
        np.testing.assert_array_equal(got, np.abs(x))
        np.testing.assert_array_equal(total, np.abs(x).min(1, keepdims=True))
    with pytest.raises(NkiError, match="NKI-E05"):
        run(lambda d, x: nisa.tensor_scalar_reduce(d, x, nl.abs, 2.0, nl.minimum), x)


def test_partitions_are_added_or_averaged_and_not_multiplied():
    with pytest.raises(NkiError, match="average"):
        run(
            lambda d, x: nisa.tensor_partition_reduce(d, nl.multiply, x),
            array(32, 40),
            shape=(1, 40),
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda t, m, p: nisa.exponential(t, t),
        lambda t, m, p: nisa.nc_matmul_mx(p, m, m, t, t),
        lambda t, m, p: nisa.quantize_mx(m, t, t),
    ],
)
def test_what_trn3_brought_is_not_on_trn2(call):
    def body(d, x):
        packed = nl.ndarray((32, 10), dtype=nl.float8_e4m3fn_x4)
        call(x, packed, nl.ndarray((10, 10), dtype=nl.float32, buffer=nl.psum))

    with pytest.raises(NkiError, match="NKI-E03"):
        run(body, array(32, 40), target="trn2")


def test_the_derivative_of_gelu_by_a_sigmoid():
    x, e = array(32, 40), 1e-4
    wide = x.astype(np.float64)
    slope = [z / (1 + np.exp(-1.702 * z)) for z in (wide + e, wide - e)]
    for body in (
        lambda d, x: nisa.activation(d, nl.gelu_apprx_sigmoid_dx, x),
        lambda d, x: nisa.tensor_copy(d, nl.gelu_apprx_sigmoid_dx(x)),
    ):
        np.testing.assert_allclose(run(body, x), (slope[0] - slope[1]) / (2 * e), atol=1e-5)


@pytest.mark.parametrize(
    "n, dtype, target, error",
    [
        (512, nl.float32, "trn2", ""),
        (513, nl.float32, "trn2", "NKI-P07"),
        (4096, nl.float32, "trn3", ""),
        (8192, nl.bfloat16, "trn3", ""),
        (8192, nl.float32, "trn3", "NKI-M04"),
    ],
)
def test_the_columns_of_a_product_by_generation(n, dtype, target, error):
    def body(d, a, b):
        acc = nl.ndarray((16, n), dtype=dtype, buffer=nl.psum)
        nisa.nc_matmul(acc, a, b)
        nisa.tensor_copy(d, acc)

    a, b = array(32, 16), array(32, n)
    if error:
        with pytest.raises(NkiError, match=error):
            run(body, a, b, shape=(16, n), target=target)
        return
    np.testing.assert_allclose(
        run(body, a, b, shape=(16, n), target=target),
        a.T @ b,
        **({"rtol": 1e-2, "atol": 0.1} if dtype == nl.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}),
    )


def test_match_replace_walks_its_values_backwards():
    """The example of the documentation."""
    data = np.array([[1, 2, 3, 4] + [8] * 7], np.float32)
    vals = np.array([[3] + [8] * 7], np.float32)
    _, index = run(
        lambda d, x, v, i: nisa.nc_match_replace8(d, x, v, 0.0, i),
        data,
        vals,
        more=[((1, 8), nl.uint32)],
    )
    assert index[0].tolist() == [2, 10, 9, 8, 7, 6, 5, 4]


def test_dma_compute_adds_rows_that_an_index_chooses():
    @nki.jit
    def kernel(a, rows, table):
        place = table.vector_select(0, nl.load(rows))
        nisa.dma_compute(place, [nl.load(a), place], nl.add)
        return table

    a, table, rows = array(4, 8), array(16, 8), np.array([[3], [0], [12], [7]], np.int32)
    want = table.copy()
    want[rows[:, 0]] += a
    np.testing.assert_allclose(kernel(a, rows, table), want, rtol=1e-6)


def test_random_bits_fill_the_dtype_and_repeat():
    def body(d, seed):
        nisa.set_rng_seed(seed)
        nisa.rng(d)

    seed = np.array([[7]], np.uint32)
    one, two = (run(body, seed, shape=(128, 64), dtype=nl.uint16) for _ in range(2))
    assert (one == two).all() and 20000 < one.mean() < 45000


# -- microscaling -----------------------------------------------------------------------------


@pytest.mark.parametrize("filled", [True, False])
def test_packed_tiles_are_defined_by_what_writes_them(filled):
    """Twins: a tile that quantize_mx fills from a loaded one, and from one that is half loaded."""

    @nki.jit
    def kernel(x):
        t = nl.ndarray(x.shape, dtype=nl.bfloat16)
        part = slice(0, 64 if filled else 32)
        nisa.tensor_copy(t[:, part], nl.load(x)[:, part])
        pack = nl.ndarray((32, 16), dtype=nl.float8_e4m3fn_x4)
        scale = nl.ndarray((32, 16), dtype=nl.uint8)
        nisa.memset(scale, 0)
        nisa.quantize_mx(pack, t, scale)
        acc = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(acc, pack, pack, scale, scale)
        out = nl.ndarray((16, 16), dtype=nl.float32)
        nisa.tensor_copy(out, acc)
        res = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(res, out)
        return res

    found = [
        f
        for f in nkisim.run(kernel, array(32, 64), target="trn3").findings
        if f.severity == "error"
    ]
    assert [f.id for f in found] == ([] if filled else ["NKI-U02"])
    if not filled:
        assert found[0].text.startswith("192 of 256 elements")  # all but 8 x 8


def test_sizes_of_packed_types():
    def kernel(x):
        t = nl.ndarray((32, 8), dtype=nl.float8_e4m3fn_x4)
        f = nl.ndarray((32, 8), dtype=nl.float4_e2m1fn_x4)
        assert t.view(nl.uint8).shape == (32, 32) and f.view(nl.uint8).shape == (32, 16)
        assert t.dtype == "float8_e4m3fn_x4"
        nisa.memset(t, 0)
        with pytest.raises(NkiError, match="NKI-N07"):
            nisa.memset(t, 1)
        nl.store(x, 1.0)

    nkisim.run(nki.jit(kernel), array(4, 4), target="trn3")


def test_the_old_dialect_keeps_to_its_dtypes():
    def kernel(x):
        return old_nl.ndarray((4, 4), "float8_e4m3fn", buffer=old_nl.shared_hbm)

    with pytest.raises(NkiError, match="NKI-D02"):
        nkisim.run(kernel, array(4, 4))


@pytest.mark.parametrize("op, fn", [(nl.square, np.square), (nl.relu, lambda x: np.maximum(x, 0))])
def test_operators_of_one_operand_that_0_4_added(monkeypatch, op, fn):
    @nki.jit
    def kernel(x):
        t, total = nl.load(x), nl.ndarray((32, 1), nl.float32)
        nisa.tensor_scalar(t, t, op, None, op1=nl.add, operand1=1.0)
        nisa.tensor_scalar_reduce(t, t, op, 0, nl.add, total)
        out = nl.ndarray((32, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    x = array(32, 40)
    for target in ("trn3", "trn2"):  # the table of operators names no generation
        run = nkisim.run(kernel, x, target=target)
        np.testing.assert_allclose(run.outputs[:, 0], fn(fn(x) + 1).sum(1), rtol=1e-4)
        assert {f.severity for f in run.findings if f.id == "NKI-R24"} == (
            {"note"} if target == "trn2" else set()
        )
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.3")
    with pytest.raises(NkiError, match="NKI-E11"):
        nkisim.simulate(kernel, x, target="trn2")


def test_the_greater_and_the_smaller_magnitude_keep_their_signs():
    """A tie is the second operand's, as in the reference of nl.abs_max."""
    x, y = np.float32([[-5, 5, 1, -1, 3]]), np.float32([[3, -3, -1, 1, -4]])
    greater, smaller = np.float32([[-5, 5, -1, 1, -4]]), np.float32([[3, -3, -1, 1, 3]])

    @nki.jit
    def kernel(x, y):
        a, b = nl.load(x), nl.load(y)
        t = nl.ndarray(x.shape, nl.float32)
        last = nl.ndarray((1, 1), nl.float32)
        nisa.tensor_tensor(t, a, b, nl.abs_max)
        nisa.activate2(
            t,
            nl.copy,
            t,
            0.0,
            0.0,
            nl.bypass,
            nl.bypass,
            reduce_op=nl.abs_max,
            reduce_res=last,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        outs = [
            nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)
            for shape in (x.shape, x.shape, x.shape, (1, 1))
        ]
        for out, value in zip(outs, (nl.abs_max(a, b), nl.abs_min(a, b), t, last)):
            nl.store(out, value)
        return tuple(outs)

    got = nkisim.simulate(kernel, x, y, target="trn3")
    for one, want in zip(got, (greater, smaller, greater, np.float32([[5]]))):
        np.testing.assert_array_equal(one, want)
