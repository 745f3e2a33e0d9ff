"""Instructions that wait for products run before anything can notice that they had not."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from nkisim.lazy import async_matmul, products
from nkisim.simulation.launch import launch

P = 8
DTYPES = [np.float32, np.float16]


def whole_numbers(*shape, seed=0, dtype=np.float32):
    """Return small whole numbers: their sums are exact in any order."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def clip(x, dtype):
    """Return a tile or a sum within -40 ... 40, so that what follows stays exact as well."""
    return nisa.tensor_scalar(x, nl.minimum, 40.0, op1=nl.maximum, operand1=-40.0, dtype=dtype)


@nki.jit
def steps(a, program):
    """Run a list of (what, i, j, k) on three sums in PSUM, four tiles in SBUF and an output."""
    out = nl.ndarray((4, P, P), dtype=a.dtype, buffer=nl.shared_hbm)
    sums = nl.zeros((3, nl.par_dim(P), P), dtype=nl.float32, buffer=nl.psum)
    tiles = [nl.ndarray((P, P), dtype=a.dtype, buffer=nl.sbuf) for _ in range(4)]
    for n in nl.static_range(4):
        tiles[n][...] = nl.load(a[n])
        nl.store(out[n], value=tiles[n])
    for n in nl.static_range(3):
        sums[n] = nisa.nc_matmul(tiles[n], tiles[n + 1])
    for what, i, j, k in program:
        if what == "add":
            sums[i % 3] += nisa.nc_matmul(tiles[j], tiles[k])
        elif what == "begin":
            sums[i % 3] = nisa.nc_matmul(tiles[j], tiles[k])
        elif what == "drain":
            tiles[i][...] = clip(sums[j % 3], a.dtype)
        elif what == "merge":
            tiles[i][...] = clip(nisa.tensor_tensor(tiles[j], sums[k % 3], op=nl.add), a.dtype)
        elif what == "halves":
            tiles[i][:, 0 : P // 2] = clip(sums[j % 3, :, P // 2 : P], a.dtype)
        elif what == "part":  # the other columns of a tile that no one has written
            tile = nl.ndarray((P, P), dtype=a.dtype, buffer=nl.sbuf)
            tile[:, 2:P] = clip(sums[j % 3, :, 2:P], a.dtype)
            nl.store(out[i, :, 2:P], value=tile[:, 2:P])
            tile[:, 0:2] = nl.copy(tiles[k][:, 0:2])
            tiles[i] = tile
        elif what == "turn":
            turned = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.psum)
            turned[...] = nisa.nc_transpose(tiles[j])
            tiles[i][...] = nl.copy(turned, dtype=a.dtype)
        elif what == "write":
            tiles[i][...] = nl.multiply(tiles[j], -1.0)
        elif what == "reset":
            sums[i % 3] = nl.multiply(tiles[j], 1.0, dtype=nl.float32)
        elif what == "store":
            nl.store(out[i], value=tiles[j])
        elif what == "back":
            tiles[i][...] = nl.load(out[j])
        elif what == "act":
            tiles[i][...] = nisa.activation(nl.relu, clip(sums[j % 3], nl.float32), dtype=a.dtype)
    for n in nl.static_range(4):
        nl.store(out[n], value=nl.add(nl.load(out[n]), tiles[n]))
    return out


WHATS = [
    "add",
    "begin",
    "drain",
    "merge",
    "halves",
    "part",
    "turn",
    "write",
    "reset",
    "store",
    "back",
    "act",
]
STEP = st.tuples(st.sampled_from(WHATS), *[st.integers(0, 3)] * 3)


@settings(deadline=None, max_examples=200)
@given(
    program=st.lists(STEP, max_size=24),
    dtype=st.sampled_from(DTYPES),
    most=st.sampled_from([2, 1024]),
    threads=st.sampled_from(["1", "3"]),
)
def test_any_program_gives_the_bytes_of_one_instruction_after_the_other(
    program, dtype, most, threads
):
    a = whole_numbers(4, P, P, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(async_matmul.VARIABLE, threads)
        patch.setattr(products, "MAX_HELD", most)
        patch.setattr(products, "MAX_PRODUCTS", most + 1)
        waited = launch(steps, (a, program), {}, target="trn2", compute=True)
        patch.setattr(products, "MAX_PRODUCTS", 1)  # each is computed when it is issued
        patch.setattr("nkisim.lazy.deferred_instructions.may_wait", lambda *args: False)
        at_once = launch(steps, (a, program), {}, target="trn2", compute=True)
    assert waited.outputs.tobytes() == at_once.outputs.tobytes()
    assert list(map(str, waited.findings)) == list(map(str, at_once.findings))


@nki.jit
def tiles_of_a_product(a, b):
    """Each tile of a.T @ b in a bank of its own, drained and stored before the next begins."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    left = nl.load(a.reshape((2, 64, a.shape[1])).reshape((128, a.shape[1])))
    right = nl.load(b)
    for m in nl.static_range(a.shape[1] // 32):
        acc = nl.zeros((32, b.shape[1]), dtype=nl.float32, buffer=nl.psum)
        for k in nl.static_range(2):
            acc += nisa.nc_matmul(
                left[64 * k : 64 * k + 64, 32 * m : 32 * m + 32], right[64 * k : 64 * k + 64]
            )
        nl.store(out[32 * m : 32 * m + 32], value=nl.copy(acc, dtype=out.dtype))
    return out


@nki.jit
def rows_of_a_product(a, b):
    """The tiles of a.T @ b are drained into one tile on chip, and each is stored from there."""
    out = nl.ndarray((4, 32, b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    result = nl.ndarray((32, 4, b.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    for m in nl.static_range(4):
        acc = nl.zeros((32, b.shape[1]), dtype=nl.float32, buffer=nl.psum)
        acc += nisa.nc_matmul(left[:, 32 * m : 32 * m + 32], right)
        result[:, m] = nl.copy(acc, dtype=out.dtype)
        nl.store(out[m], value=result[:, m])
    return out


@pytest.mark.parametrize("kernel", [rows_of_a_product, tiles_of_a_product])
def test_tiles_with_the_same_moving_operand_are_one_product(monkeypatch, kernel):
    """Of several products one call of BLAS; the store of a part reads nothing that is missing."""
    calls, real = [], np.matmul

    def counted(a, b, out=None):
        calls.append((a.shape, b.shape))
        return real(a, b, out=out)

    monkeypatch.setattr(np, "matmul", counted)
    a, b = whole_numbers(128, 128), whole_numbers(128, 96, seed=1)
    got = nkisim.simulate(kernel, a, b)
    assert calls == [((128, 128), (128, 96))]
    np.testing.assert_array_equal(got.reshape(128, 96), a.T @ b)


@nki.jit
def convolution(x, w):
    """A sum of shifted windows for each of six images, from two slots of memory in turn."""
    out = nl.ndarray((6, 2, 64, 40), dtype=x.dtype, buffer=nl.shared_hbm)
    slots = nl.ndarray((64, 2, 44), dtype=x.dtype, buffer=nl.sbuf)
    weights = nl.load(w)
    for image in nl.static_range(6):
        slots[:, image % 2] = nl.load(x[image])
        for m in nl.static_range(2):
            acc = nl.zeros((64, 40), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(5):
                acc += nisa.nc_matmul(
                    weights[:, k, m * 64 : m * 64 + 64], slots[:, image % 2, k : k + 40]
                )
            nl.store(out[image, m], value=nisa.activation(nl.relu, acc, dtype=out.dtype))
    return out


@nki.jit
def two_layers(x, w):
    """relu(x.T @ w) in HBM, and from there a product of it and its own first columns."""
    rows, cols = x.shape[1], w.shape[1]
    hidden = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.hbm)
    out = nl.ndarray((cols, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    left, right = nl.load(x), nl.load(w)
    for m in nl.static_range(rows // 32):
        acc = nl.zeros((32, cols), dtype=nl.float32, buffer=nl.psum)
        acc += nisa.nc_matmul(left[:, m * 32 : m * 32 + 32], right)
        nl.store(hidden[m * 32 : m * 32 + 32], value=nisa.activation(nl.relu, acc, dtype=x.dtype))
    total = nl.zeros((cols, cols), dtype=nl.float32, buffer=nl.psum)
    for m in nl.affine_range(rows // 32):
        tile = nl.load(hidden[m * 32 : m * 32 + 32])
        total += nisa.nc_matmul(tile, tile)
    nl.store(out, value=nl.copy(total, dtype=out.dtype))
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kernel, shapes",
    [
        (convolution, ((6, 64, 44), (64, 5, 128))),
        (two_layers, ((32, 128), (32, 48))),
        (tiles_of_a_product, ((128, 128), (128, 96))),
    ],
    ids=["convolution", "layers", "tiles"],
)
def test_products_beside_the_kernel_give_the_same_bytes(monkeypatch, kernel, shapes, dtype):
    inputs = [whole_numbers(*s, seed=i, dtype=dtype) for i, s in enumerate(shapes)]
    outputs = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv(async_matmul.VARIABLE, threads)
        outputs.append([nkisim.simulate(kernel, *inputs).tobytes() for _ in range(3)])
    assert len({x for some in outputs for x in some}) == 1


def test_threads_compute_products_only_where_there_are_several(monkeypatch):
    """The number asked for is the number used, the kernel's own thread among them; afterwards
    everything is as it was before."""
    seen, begun, real = [], threading.Event(), async_matmul.multiply
    own = threading.current_thread().name

    def seen_by(product):
        seen.append(threading.current_thread().name)
        assert seen[-1] != own or begun.wait(60)  # there are others to compute
        begun.set()
        return real(product)

    for module in (async_matmul, products):
        monkeypatch.setattr(module, "multiply", seen_by)
    monkeypatch.delenv(async_matmul.VARIABLE, raising=False)
    interval, blas = sys.getswitchinterval(), async_matmul.threads()
    inputs = whole_numbers(6, 64, 44), whole_numbers(64, 5, 128, seed=1)
    monkeypatch.setenv(async_matmul.VARIABLE, "2")
    nkisim.simulate(convolution, *inputs)
    assert {"nkisim_0"} <= set(seen) <= {"nkisim_0", own}
    seen.clear()
    monkeypatch.setenv(async_matmul.VARIABLE, "1")
    nkisim.simulate(convolution, *inputs)
    assert set(seen) == {own}
    monkeypatch.delenv(async_matmul.VARIABLE)
    assert (sys.getswitchinterval(), async_matmul.threads()) == (interval, blas)


@nki.jit
def overwritten(x, w):
    """Products of parts of a tile that do not lie in a row; then the tile is loaded anew."""
    out = nl.ndarray((2, 64, 40), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, weights = nl.ndarray((64, 2, 44), dtype=x.dtype, buffer=nl.sbuf), nl.load(w)
    for k in range(2):
        tile[:, k] = nl.load(x[k])
    one = nl.zeros((64, 40), dtype=nl.float32, buffer=nl.psum)
    other = nl.zeros((64, 40), dtype=nl.float32, buffer=nl.psum)
    for k in (0, 3, 1):
        one += nisa.nc_matmul(weights[:, k, 0:64], tile[:, k % 2, k : k + 40])
    other += nisa.nc_matmul(weights[:, 4, 0:64], tile[:, 0, 2:42])
    for k in range(2):
        tile[:, k] = nl.load(x[k + 2])
    nl.store(out[0], value=nl.copy(one))
    nl.store(out[1], value=nl.copy(other))
    return out


@pytest.mark.parametrize("most", [3, 1024], ids=["on their way by then", "sent on their way by it"])
def test_a_tile_that_is_overwritten_while_its_products_are_on_their_way(monkeypatch, most):
    """A thread reads no operand before the kernel waits for it: what would that find there?"""
    waits, real, real_wait = threading.Event(), async_matmul.multiply, async_matmul.MatmulPool.wait
    kept, real_keep = [], products.keep_apart

    def late(product):
        assert threading.current_thread().name != "nkisim_0" or waits.wait(60)
        return real(product)

    def wait(flying, one):
        waits.set()
        return real_wait(flying, one)

    def keep_apart(storage, used, groups):
        groups = list(groups)
        real_keep(storage, used, groups)
        kept.append(
            not any(
                np.shares_memory(a, flat)
                for flat in storage.buffers()
                for g in groups
                for some in g.operands
                for a in some
            )
        )

    inputs = whole_numbers(4, 64, 44), whole_numbers(64, 5, 128, seed=1)
    monkeypatch.setattr(products, "MAX_PRODUCTS", most)
    monkeypatch.setenv(async_matmul.VARIABLE, "1")
    want = nkisim.simulate(overwritten, *inputs)
    for module in (async_matmul, products):
        monkeypatch.setattr(module, "multiply", late)
    monkeypatch.setattr(async_matmul.MatmulPool, "wait", wait)
    monkeypatch.setattr(products, "keep_apart", keep_apart)
    monkeypatch.setenv(async_matmul.VARIABLE, "2")
    assert nkisim.simulate(overwritten, *inputs).tobytes() == want.tobytes()
    assert kept and all(kept)


@pytest.mark.parametrize("asked", ["many", "0", "-2", "1.5"])
def test_a_number_of_threads_that_is_none(monkeypatch, asked):
    monkeypatch.setenv(async_matmul.VARIABLE, asked)
    with pytest.raises(nkisim.NkiError, match=f"NKI-K15.*NKISIM_THREADS={asked}") as caught:
        nkisim.simulate(convolution, whole_numbers(6, 64, 44), whole_numbers(64, 5, 128))
    assert "NKISIM_THREADS=2" in caught.value.hint and "SHUFFLE" not in str(caught.value)


def test_two_kernels_at_the_same_time_leave_everything_as_it_was(monkeypatch):
    """Each in a thread; the one that ends last began first, or not."""
    monkeypatch.setenv(async_matmul.VARIABLE, "2")
    before = sys.getswitchinterval(), async_matmul._threads(async_matmul._blas())
    inputs = whole_numbers(6, 64, 44), whole_numbers(64, 5, 128, seed=1)
    alone = nkisim.simulate(convolution, *inputs)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: nkisim.simulate(convolution, *inputs), range(12)))
    assert all(x.tobytes() == alone.tobytes() for x in found)
    assert before == (sys.getswitchinterval(), async_matmul._threads(async_matmul._blas()))


def test_an_error_in_the_kernel_leaves_nothing_behind(monkeypatch):
    """A kernel that fails while products are on their way; the next one is as if alone."""

    @nki.jit
    def fails(x, w):
        convolution.func(x, w)
        raise ValueError("no")

    monkeypatch.setenv(async_matmul.VARIABLE, "2")
    inputs = whole_numbers(6, 64, 44), whole_numbers(64, 5, 128, seed=1)
    with pytest.raises(ValueError, match="no"):
        nkisim.simulate(fails, *inputs)
    monkeypatch.setenv(async_matmul.VARIABLE, "1")
    alone = nkisim.simulate(convolution, *inputs)
    monkeypatch.setenv(async_matmul.VARIABLE, "2")
    assert nkisim.simulate(convolution, *inputs).tobytes() == alone.tobytes()


@pytest.mark.parametrize("before", [True, False])
def test_a_bias_that_changes_while_a_drain_waits(before):
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
        left, right = nl.load(a), nl.load(b)
        bias = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        bias[...] = 1
        acc = nl.zeros((P, P), dtype=nl.float32, buffer=nl.psum)
        acc += nisa.nc_matmul(left, right)
        if before:
            bias[...] = 5
        result = nisa.tensor_scalar(acc, nl.add, bias)
        if not before:
            bias[...] = 5
        nl.store(out, value=result)
        return out

    a, b = whole_numbers(P, P), whole_numbers(P, P, seed=1)
    np.testing.assert_array_equal(nkisim.simulate(kernel, a, b), a.T @ b + (5 if before else 1))


def test_a_function_outside_of_its_range_is_said_for_the_line_that_waited():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.shared_hbm)
        left, right = nl.load(a), nl.load(b)
        acc = nl.zeros((P, P), dtype=nl.float32, buffer=nl.psum)
        acc += nisa.nc_matmul(left, right)
        root = nisa.activation(nl.sqrt, acc)
        nl.store(out, value=root)
        return out

    a = np.eye(P, dtype=np.float32)
    found = [
        f
        for f in launch(
            kernel, (a, -np.ones((P, P), np.float32)), {}, target="trn2", compute=True
        ).findings
        if f.id == "NKI-E07"
    ]
    assert len(found) == 1
    assert "root = nisa.activation" in open(__file__).read().splitlines()[found[0].where.line - 1]
