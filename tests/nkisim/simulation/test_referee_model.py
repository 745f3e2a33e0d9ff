"""Kernels that got a time for work that no chip does: each is refused, or priced as that work.

Each has a twin, the same kernel done right, which stays as it is.
"""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import nki as new
import nki.isa as isa
import nki.language as nkl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim
from nkisim.chip import hw
from nkisim.errors import NkiError

X = np.random.default_rng(0).random((256, 128), dtype=np.float32)


def refused(kernel, *args, rule, **how):
    """Run a kernel, with and without arithmetic; each must end with the rule. Return the error."""
    with pytest.raises(NkiError) as broken:
        nkisim.run(kernel, *args, **how)
    assert broken.value.id == rule
    with pytest.raises(NkiError) as profiled:
        nkisim.profile(kernel, *args, compute=False, **how)
    assert profiled.value.id == rule
    return broken.value


# -- outputs are whole tensors that the run wrote --------------------------------------------------


def returns_beta1(what):
    """Return a kernel that copies its input, and returns `what(x, copy)`."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // 128):
            nl.store(out[i * 128 : (i + 1) * 128], nl.load(x[i * 128 : (i + 1) * 128]))
        return what(x, out)

    return kernel


def returns_nki(what):
    """Return a kernel that copies its input, and returns `what(x, copy)`."""

    @new.jit
    def kernel(x):
        out = nkl.ndarray(x.shape, dtype=x.dtype, buffer=nkl.shared_hbm)
        isa.dma_copy(dst=out, src=x)
        return what(x, out)

    return kernel


def swapped(t):
    rows, columns = t.shape
    return t[nl.arange(rows)[None, :], nl.arange(columns)[:, None]]


@pytest.mark.parametrize(
    "what",
    [
        lambda x, out: x,
        lambda x, out: swapped(x),
        lambda x, out: swapped(out),
        lambda x, out: x.reshape((128, 256)),
        lambda x, out: out[0:128],
        lambda x, out: (out, out[0]),
        lambda x, out: out[:, 0:64],
        lambda x, out: nl.shared_constant(np.ones((4, 4), np.float32)),
        lambda x, out: {"y": x},
    ],
    ids=[
        "input",
        "swapped_input",
        "swapped_copy",
        "reshaped_input",
        "rows",
        "one_of_two",
        "columns",
        "constant",
        "in_a_dict",
    ],
)
def test_a_view_is_no_output_in_beta_1(what):
    error = refused(returns_beta1(what), X, rule="NKI-O08")
    assert "nl.store" in error.hint


@pytest.mark.parametrize(
    "what",
    [
        lambda x, out: x,
        lambda x, out: x.permute((1, 0)),
        lambda x, out: out.permute((1, 0)),
        lambda x, out: x.reshape((128, 256)),
        lambda x, out: out[0:128],
        lambda x, out: out.ap(pattern=[[1, 128], [128, 256]]),
        lambda x, out: nkl.shared_constant(np.ones((4, 4), np.float32)),
    ],
    ids=["input", "swapped_input", "swapped_copy", "reshaped_input", "rows", "pattern", "constant"],
)
def test_a_view_is_no_output_in_nki(what):
    error = refused(returns_nki(what), X, rule="NKI-O08")
    assert "nisa.dma_copy" in error.hint


@pytest.mark.parametrize(
    "kernel",
    [
        returns_beta1(lambda x, out: out),
        returns_beta1(lambda x, out: out.reshape((128, 256))),
        returns_nki(lambda x, out: out),
        returns_nki(lambda x, out: out.reshape((128, 256))),
        returns_nki(lambda x, out: out.reshape((1, 256, 128))),
    ],
)
def test_an_output_may_have_another_shape(kernel):
    got = nkisim.run(kernel, X)
    assert not [f for f in got.findings if f.severity != "note"]
    np.testing.assert_array_equal(got.outputs.reshape(X.shape), X)


def test_an_argument_that_is_written_is_an_output():
    @new.jit
    def appended(cache, x):
        isa.dma_copy(dst=cache[0:128], src=x)
        return cache.reshape((1, 256, 128))

    got = nkisim.run(appended, X.copy(), X[128:])
    np.testing.assert_array_equal(got.outputs[0], np.vstack([X[128:], X[128:]]))
    assert nkisim.profile(appended, X.copy(), X[128:], compute=False).latency_us > 0


# -- modes of the Tensor Engine --------------------------------------------------------------------

E4, E5, BF16 = ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2, ml_dtypes.bfloat16


def product_beta1(**mode):
    """Return a kernel that multiplies two operands, with what `mode` says."""

    @nki.jit
    def kernel(x, y):
        s, t = nl.load(x), nl.load(y)
        result = nl.copy(nisa.nc_matmul(s, t, **mode))
        out = nl.ndarray(result.shape, dtype=result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    return kernel


def product_nki(**mode):
    """Return a kernel that multiplies two operands, with what `mode` says."""

    @new.jit
    def kernel(x, y):
        s, t = nkl.load(x), nkl.load(y)
        acc = nkl.ndarray((s.shape[-1], t.shape[-1]), dtype=nkl.float32, buffer=nkl.psum)
        isa.nc_matmul(acc, s, t, **mode)
        out = nkl.ndarray(acc.shape, dtype=acc.dtype, buffer=nkl.shared_hbm)
        isa.dma_copy(dst=out, src=nkl.copy(acc))
        return out

    return kernel


PRODUCTS = {"beta1": product_beta1, "nki": product_nki}


@pytest.mark.parametrize("dialect", PRODUCTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
@pytest.mark.parametrize("shape", [(128, 128), (128, 2, 64)])
def test_a_fast_mode_takes_fp8(dialect, dtype, shape):
    x = np.ones(shape, dtype)
    refused(PRODUCTS[dialect](perf_mode="double_row"), x, x, rule="NKI-E14", target="trn2")


@pytest.mark.parametrize("dialect", PRODUCTS)
@pytest.mark.parametrize("shape", [(128, 128), (128, 64, 2), (128, 1, 128), (128, 2, 2, 32)])
def test_a_fast_mode_has_two_rows_beside_the_partitions(dialect, shape):
    x = np.ones(shape, E4)
    refused(PRODUCTS[dialect](perf_mode="double_row"), x, x, rule="NKI-E14", target="trn2")


@pytest.mark.parametrize(
    "mode",
    [
        "double",
        "double_pixel",
        "double_col",
        "double_column",
        "DOUBLE_ROW",
        "double_row_sw_interleave",
        2,
    ],
)
def test_a_fast_mode_is_one_that_is_documented(mode):
    x = np.ones((128, 2, 64), E4)
    refused(product_beta1(perf_mode=mode), x, x, rule="NKI-E14", target="trn2")


@pytest.mark.parametrize("dialect", PRODUCTS)
@pytest.mark.parametrize(
    "more", [dict(is_transpose=True), dict(tile_position=(0, 0), tile_size=(128, 64))]
)
def test_a_fast_mode_is_alone(dialect, more):
    x = np.ones((128, 2, 64), E4)
    refused(PRODUCTS[dialect](perf_mode="double_row", **more), x, x, rule="NKI-E14", target="trn2")


@pytest.mark.parametrize("dialect", PRODUCTS)
def test_fp8_in_two_rows_is_multiplied_twice_as_fast(dialect):
    x, y = np.ones((128, 2, 64), E4), np.ones((128, 2, 256), E5)
    got = nkisim.run(PRODUCTS[dialect](perf_mode="double_row"), x, y, target="trn2")
    assert {f.id for f in got.findings} <= {"NKI-G36"} and (got.outputs == 256).all()
    refused(PRODUCTS[dialect](perf_mode="double_row"), x, y, rule="NKI-E03", target="trn1")


@pytest.mark.parametrize("dialect", PRODUCTS)
def test_transpose_mode_takes_an_identity(dialect):
    x, eye = X[:128], np.eye(128, dtype=np.float32)
    kernel = PRODUCTS[dialect](is_transpose=True)
    for moving, expected in ((eye, x.T), (eye[:, ::-1].copy(), x.T[:, ::-1])):
        got = nkisim.run(kernel, x, moving, target="trn2")
        assert not [f for f in got.findings if f.severity != "note"]
        np.testing.assert_array_equal(got.outputs, expected)
    for moving in (x, 2 * eye, np.ones_like(eye), -eye):
        found = nkisim.run(kernel, x, moving, target="trn2").findings
        assert ("NKI-E15", "error") in [(f.id, f.severity) for f in found]


def test_transpose_mode_adds_nothing():
    @nki.jit
    def summed(x, y):
        s, t = nl.load(x), nl.load(y)
        acc = nl.zeros((128, 128), dtype=nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(2):
            acc += nisa.nc_matmul(s, t, is_transpose=True)
        out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(acc))
        return out

    x, eye = X[:128], np.eye(128, dtype=np.float32)
    refused(summed, x, eye, rule="NKI-E15", target="trn2")
    np.testing.assert_array_equal(nkisim.run(summed, x, eye, target="trn1").outputs, 2 * x.T)


@pytest.mark.parametrize("dialect", PRODUCTS)
def test_what_transposes_takes_one_time_with_and_without_values(dialect):
    x, eye = X[:128], np.eye(128, dtype=np.float32)
    plain = nkisim.profile(PRODUCTS[dialect](), x, eye, target="trn2")
    fast, blind = (
        nkisim.profile(PRODUCTS[dialect](is_transpose=True), x, eye, target="trn2", compute=compute)
        for compute in (True, False)
    )
    assert fast.latency_us == blind.latency_us < plain.latency_us


# -- transfers by index move as large pieces as lie side by side -----------------------------------


def columns_beta1(load, to):
    """Return a kernel that transposes by `load(x, c)` and puts tiles to `to(out, c)`."""

    @nki.jit
    def kernel(x):
        rows, columns = x.shape
        out = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
        zero = nl.zeros((128, 1), dtype=nl.int32)
        for c in nl.affine_range(columns // 128):
            load_one, store_one = load(x, zero, c), to(out, zero, c)
            nl.store(store_one, nl.load(load_one))
        return out

    return kernel


def _turned(x, zero, c):
    return x[nl.arange(x.shape[0])[None, :], c * 128 + nl.arange(128)[:, None]]


def _turned_by_index(x, zero, c):
    rows, columns = x.shape
    i_p = nl.arange(128)[:, None]
    return x.reshape((1, rows, columns))[zero[i_p, 0], nl.arange(rows)[None, :], c * 128 + i_p]


def _straight(x, zero, c):
    return x[c * 128 + nl.arange(128)[:, None], nl.arange(x.shape[1])[None, :]]


def _straight_by_index(x, zero, c):
    rows, columns = x.shape
    return x.reshape((1, rows, columns))[
        zero[nl.arange(128)[:, None], 0],
        c * 128 + nl.arange(128)[:, None],
        nl.arange(columns)[None, :],
    ]


def latency(kernel, *args, **how):
    return nkisim.profile(kernel, *args, **how).latency_us


WIDE = np.random.default_rng(1).random((512, 512), dtype=np.float32)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_an_index_makes_no_element_wise_transfer_cheaper(target):
    loads = [columns_beta1(load, _straight) for load in (_turned, _turned_by_index)]
    stores = [columns_beta1(_straight, to) for to in (_turned, _turned_by_index)]
    for plain, by_index in (loads, stores):
        np.testing.assert_array_equal(nkisim.run(by_index, WIDE).outputs, WIDE.T)
        assert latency(by_index, WIDE, target=target) > 0.98 * latency(plain, WIDE, target=target)


def test_rows_by_index_cost_what_rows_cost():
    """And what GpSimd takes to make their descriptors."""
    plain, by_index = (columns_beta1(load, _straight) for load in (_straight, _straight_by_index))
    timing, loads, rows = hw.TRN2.timing, len(WIDE) // 128, 128
    made = loads * (timing.swdge_issue_us + rows * timing.swdge_row_us)
    assert latency(by_index, WIDE, target="trn2") < 1.1 * latency(plain, WIDE, target="trn2") + made


def moved_nki(src, dst, memory="sbuf"):
    """Return a kernel that moves `src(x, zero)` to `dst(out, zero)`, by way of SBUF or not."""

    @new.jit
    def kernel(x):
        out = nkl.ndarray(x.shape, dtype=x.dtype, buffer=nkl.shared_hbm)
        zero = nkl.ndarray((128, 1), dtype=nkl.int32, buffer=nkl.sbuf)
        isa.memset(zero, 0)
        if memory == "hbm":
            isa.dma_copy(dst=dst(out, zero), src=src(x, zero))
            return out
        tile = nkl.ndarray(x.shape, dtype=x.dtype, buffer=nkl.sbuf)
        isa.dma_copy(dst=tile, src=src(x, zero))
        isa.dma_copy(dst=dst(out, zero), src=tile)
        return out

    return kernel


SQUARE = np.random.default_rng(2).random((128, 128), dtype=np.float32)
PATTERN = [[1, 128], [128, 128]]  # the columns of SQUARE


def _whole(t, zero):
    return t


@pytest.mark.parametrize("memory", ["sbuf", "hbm"])
@pytest.mark.parametrize("side", ["src", "dst"])
def test_a_pattern_with_an_offset_costs_what_the_pattern_costs(side, memory):
    def shifted(t, zero):
        return t.ap(pattern=PATTERN, scalar_offset=zero[0:1, 0:1], indirect_dim=0)

    def plain(t, zero):
        return t.ap(pattern=PATTERN)

    times = []
    for view in (plain, shifted):
        both = (view, _whole) if side == "src" else (_whole, view)
        kernel = moved_nki(*both, memory=memory)
        np.testing.assert_array_equal(nkisim.run(kernel, SQUARE).outputs, SQUARE.T)
        times.append(latency(kernel, SQUARE))
    assert times[1] > 0.98 * times[0]


def test_a_pattern_with_an_offset_for_each_row_costs_its_elements():
    def by_row(t, zero):
        return t.ap(pattern=PATTERN, vector_offset=zero, indirect_dim=0)

    def row(t, zero):
        return t.ap(pattern=[[128, 128], [1, 128]], vector_offset=zero, indirect_dim=0)

    assert latency(moved_nki(by_row, _whole), SQUARE) > 5 + latency(moved_nki(row, _whole), SQUARE)


# -- DMA that transposes, or adds ------------------------------------------------------------------


def test_a_transpose_of_4_bytes_by_dma_is_refused_in_beta_1():
    @nki.jit
    def turned(x):
        out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nisa.dma_transpose(x[0:128]))
        return out

    refused(turned, X, rule="NKI-R13")
    half = X.astype(np.float16)
    np.testing.assert_array_equal(nkisim.run(turned, half).outputs, half[:128].T)
    dreamt = nki.jit(turned.func, mode="simulation")  # no compiler is asked
    assert [f.severity for f in nkisim.run(dreamt, X).findings if f.id == "NKI-R13"] == ["note"]


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_a_dma_that_transposes_is_no_faster_than_one_that_copies(dtype):
    def kernel(turns):
        @new.jit
        def moved(x):
            t = nkl.ndarray((128, 2048), dtype=x.dtype, buffer=nkl.sbuf)
            if turns:
                isa.dma_transpose(dst=t, src=x.reshape((2048, 128)))
            else:
                isa.dma_copy(dst=t, src=x)
            out = nkl.ndarray(t.shape, dtype=t.dtype, buffer=nkl.shared_hbm)
            isa.dma_copy(dst=out, src=t)
            return out

        return moved

    x = np.ones((128, 2048), dtype)
    assert latency(kernel(True), x) >= latency(kernel(False), x)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_dma_that_transposes_moves_elements_that_lie_apart_one_by_one(target):
    def kernel(source, result):
        @nki.jit
        def turned(x):
            view = x.view(nl.float16).reshape((128, 128, 2))
            pairs = nl.ndarray((128, 256), dtype=nl.float16, buffer=nl.sbuf)
            for half in nl.static_range(2):
                src = (
                    view[0:128, 0:128, half]
                    if source
                    else view.reshape((128, 256))[0:128, half * 128 : half * 128 + 128]
                )
                to = slice(half, 256, 2) if result else slice(half * 128, half * 128 + 128)
                pairs[0:128, to] = nisa.dma_transpose(src)
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, pairs.view(nl.float32))
            return out

        return turned

    np.testing.assert_array_equal(nkisim.run(kernel(True, True), SQUARE).outputs, SQUARE.T)
    rows = latency(kernel(False, False), SQUARE, target=target)
    for source, result in ((True, True), (True, False)):
        assert latency(kernel(source, result), SQUARE, target=target) > rows + 4


def test_a_sum_of_sources_reads_each_of_them():
    @new.jit
    def added(x, many):
        t = nkl.ndarray((128, 2048), dtype=x.dtype, buffer=nkl.sbuf)
        isa.dma_compute(dst=t, srcs=[x] * many, reduce_op=nkl.add)
        out = nkl.ndarray(t.shape, dtype=t.dtype, buffer=nkl.shared_hbm)
        isa.dma_copy(dst=out, src=t)
        return out

    x = np.ones((128, 2048), np.float32)
    one, four, sixteen = (latency(added, x, n) for n in (1, 4, 16))
    assert sixteen - one > 4 * (four - one) > 0


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_view_as_integers_is_transposed_no_faster(target):
    def kernel(viewed):
        @nki.jit
        def turned(x):
            out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
            tile = nl.load(x)
            for _ in nl.static_range(8):
                part = tile.view(nl.int32) if viewed else tile
                tile = nl.copy(nisa.nc_transpose(part), dtype=part.dtype)
                tile = tile.view(nl.float32) if viewed else tile
            nl.store(out, tile)
            return out

        return turned

    plain, viewed = (latency(kernel(v), SQUARE, target=target) for v in (False, True))
    assert viewed >= 0.999 * plain


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_value_that_a_dma_repeats_is_moved_element_by_element(target):
    def stored(value):
        @nki.jit
        def kernel(x):
            out = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, value(nl.load(x[:, 0:1])))
            return out

        return kernel

    def loaded(view):
        @nki.jit
        def kernel(x):
            out = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.shared_hbm)
            tile = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=view(x))
            nl.store(out, tile)
            return out

        return kernel

    i_p, i_f = nl.arange(128)[:, None], nl.arange(2048)[None, :]
    for one, each in (
        (stored(lambda t: t), stored(lambda t: t[i_p, 0 * i_f])),
        (loaded(lambda x: x[:, 0:1]), loaded(lambda x: x[i_p, 0 * i_f])),
    ):
        np.testing.assert_array_equal(nkisim.run(one, SQUARE).outputs[:, 7], SQUARE[:, 0])
        assert latency(one, SQUARE, target=target) == latency(each, SQUARE, target=target)


def test_a_kernel_that_writes_nothing_has_no_time():
    @nki.jit
    def returned(x: nt.mutable_tensor):
        return x

    refused(returned, X.copy(), rule="NKI-O03")

    @nki.jit
    def written(x: nt.mutable_tensor):
        nl.store(x[0:128], nl.load(x[128:256]))
        return x

    np.testing.assert_array_equal(nkisim.run(written, X.copy()).outputs[0:128], X[128:])


def test_an_engine_without_the_operator_gains_no_time():
    def kernel(engine):
        @new.jit
        def clamped(x):
            tile = nkl.load(x)
            for _ in range(16):
                isa.tensor_scalar(tile, tile, op0=nkl.maximum, operand0=0.0, engine=engine)
                isa.tensor_scalar(
                    tile, tile, op0=nkl.minimum, operand0=9.0, engine=isa.engine.vector
                )
            out = nkl.ndarray(x.shape, dtype=x.dtype, buffer=nkl.shared_hbm)
            isa.dma_copy(dst=out, src=tile)
            return out

        return clamped

    wide = np.ones((128, 4096), np.float32)
    vector = latency(kernel(isa.engine.vector), wide)
    for engine in (isa.engine.scalar, isa.engine.gpsimd):
        run = nkisim.run(kernel(engine), wide)
        assert "NKI-E13" in {f.id for f in run.findings}
        assert latency(kernel(engine), wide) == vector


@pytest.mark.parametrize("columns", [64, 512, 2048])
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_a_tile_of_more_partitions_takes_no_less_time(target, columns):
    """A DMA engine serves 8 partitions: that of the 33rd takes nothing off those of the others."""

    @new.jit
    def kernel(x):
        out = nkl.ndarray(x.shape, dtype=x.dtype, buffer=nkl.shared_hbm)
        t = nkl.ndarray(x.shape, dtype=x.dtype, buffer=nkl.sbuf)
        isa.dma_copy(dst=t, src=x)
        isa.dma_copy(dst=out, src=t)
        return out

    sizes = (31, 32, 33, 63, 64, 65, 127, 128)
    times = [
        nkisim.profile(
            kernel, np.zeros((rows, columns), np.float32), target=target, compute=False
        ).latency_us
        for rows in sizes
    ]
    assert times == sorted(times)
