"""The dialect of today, `import nki`: a kernel written with a dst runs on the same machine."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError

RNG = np.random.default_rng(0)


def array(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@nki.jit
def add(a, b):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, rows, 128):
        r1 = min(rows, r0 + 128)
        x = nl.ndarray((r1 - r0, columns), dtype=a.dtype, buffer=nl.sbuf)
        y = nl.ndarray((r1 - r0, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[r0:r1, :])
        nisa.dma_copy(dst=y, src=b[r0:r1, :])
        nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
        nisa.dma_copy(dst=out[r0:r1, :], src=x)
    return out


@nki.jit
def matmul(lhs_t, rhs):
    (depth, rows), columns = lhs_t.shape, rhs.shape[1]
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m0 in range(0, rows, 128):
        for n0 in range(0, columns, 512):
            acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in range(0, depth, 128):
                lhs = nl.load(lhs_t[k : k + 128, m0 : m0 + 128])
                nisa.nc_matmul(
                    dst=acc, stationary=lhs, moving=nl.load(rhs[k : k + 128, nl.ds(n0, 512)])
                )
            res = nl.ndarray((128, 512), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=res, src=acc)
            nl.store(out[m0 : m0 + 128, n0 : n0 + 512], res)
    return out


def test_an_elementwise_kernel_with_a_ragged_edge():
    a, b = array(300, 512), array(300, 512)
    assert (nki.simulate(add)(a, b) == a + b).all()
    assert (add(a, b) == a + b).all()  # called directly, it is simulated as well
    assert nkisim.run(add, a, b).findings == []


def test_a_tiled_matmul_sums_over_its_loop():
    lhs, rhs = array(256, 256), array(256, 1024)
    got = nkisim.run(matmul, lhs, rhs)
    np.testing.assert_allclose(got.outputs, lhs.T @ rhs, rtol=1e-3, atol=1e-3)
    assert got.findings == [] and got.target == "trn2"
    assert got.hbm_read_bytes == 2 * lhs.nbytes + 2 * rhs.nbytes


def test_times_do_not_depend_on_values():
    lhs, rhs = array(256, 128), array(256, 512)
    profiles = [nkisim.profile(matmul, lhs, rhs, compute=compute) for compute in (True, False)]
    assert profiles[0].latency_us == profiles[1].latency_us > 0


def test_the_source_of_a_kernel_can_be_asked_for():
    """Generators of kernels compare what they wrote with what was written by hand."""
    assert inspect.getsource(add).startswith("@nki.jit\ndef add(a, b):")


def test_a_plain_function_is_known_by_what_it_uses():
    def plain(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.exp(nl.load(x)))
        return out

    x = array(4, 8)
    np.testing.assert_allclose(nkisim.simulate(plain, x), np.exp(x), rtol=1e-5)
    np.testing.assert_allclose(nki.simulate(plain)(x), np.exp(x), rtol=1e-5)


def test_an_input_that_is_written_is_changed_in_place():
    @nki.jit
    def double(x):
        t = nl.load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=x, src=t)
        return x

    x = array(8, 4)
    before = x.copy()
    got = double(x)
    assert (got == 2 * before).all() and (x == got).all() and got is not x


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda t: nisa.tensor_copy(dst=t, src=t, dtype="float"), "since 0.1"),
        (lambda t: nisa.tensor_tensor(t, t, t, oop=nl.add), "'op'"),
        (lambda t: nisa.tensor_copy(t, t, engine=9), "no member of nisa.engine"),
        (lambda t: nisa.dma_copy(t, t, dst_rmw_op="add"), "dma_compute"),
        (lambda t: nisa.reciprocal(t), "not given data"),
    ],
)
def test_arguments_are_those_of_the_signature(call, text):
    def kernel(x):
        call(nl.load(x))

    with pytest.raises(NkiError, match="NKI-N01") as caught:
        nkisim.simulate(kernel, array(4, 4))
    assert text in caught.value.render()


@pytest.mark.parametrize(
    "name, text", [("arange", "neuronxcc.nki has it"), ("exq", "Did you mean")]
)
def test_a_name_that_is_not_there_says_why(name, text):
    with pytest.raises(AttributeError, match=text):
        getattr(nl, name)


def test_a_launcher_of_the_old_dialect_says_what_there_is():
    with pytest.raises(NotImplementedError, match="simulate"):
        nki.benchmark  # noqa: B018


def sums(first, *, zeros=False):
    def kernel(x):
        t = nl.load(x)
        acc = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
        if zeros:
            nisa.memset(acc, 0.0)
        nisa.nc_matmul(acc, t, t, accumulate=first)
        nisa.nc_matmul(acc, t, t, accumulate=True)
        res = nl.ndarray((4, 4), dtype=nl.float32)
        nisa.tensor_copy(res, acc)
        out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, res)
        return out

    return kernel


@pytest.mark.parametrize("first", [None, False])
def test_the_first_write_of_a_sum_overwrites(first):
    x = array(4, 4)
    got = nkisim.run(sums(first), x)
    np.testing.assert_allclose(got.outputs, 2 * x.T @ x, rtol=1e-4, atol=1e-5)
    assert got.findings == []


def test_a_sum_onto_nothing_is_refused_and_onto_zeros_reported():
    with pytest.raises(NkiError, match="NKI-N08"):
        nkisim.run(sums(True), array(4, 4))
    x = array(4, 4)
    got = nkisim.run(sums(True, zeros=True), x, target="trn2")
    np.testing.assert_allclose(got.outputs, 2 * x.T @ x, rtol=1e-4, atol=1e-5)
    assert {(f.id, f.severity) for f in got.findings} >= {("NKI-N09", "warning")}
    assert nkisim.run(sums(True, zeros=True), x, target="trn3").findings == []


# -- two cores ----------------------------------------------------------------------------------


@nki.jit
def swap(x):
    """Each core loads its half, sends it to the other and stores what it got."""
    me = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    half = x.shape[0] // 2
    mine = nl.load(x[nl.ds(me * half, half), :])
    other = nl.ndarray(mine.shape, dtype=x.dtype)
    nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nl.store(out[nl.ds(me * half, half), :], other)
    return out


@nki.jit
def through_hbm(x, barrier):
    """Core 0 stores, core 1 reads that after a barrier."""
    me = nl.program_id(0)
    between = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if me == 1 and barrier == "late":
        nisa.core_barrier(between, (0, 1))
    if me == 0:
        nl.store(between, nl.exp(nl.load(x)))
    if barrier == "both" or me == 0 and barrier == "late":
        nisa.core_barrier(between, (0, 1))
    if me == 1:
        nl.store(out, nl.load(between))
    return out


def test_two_cores_exchange_tiles():
    x = array(64, 32)
    got = nki.simulate(swap[2])(x)
    assert (got == np.concatenate([x[32:], x[:32]])).all()


def test_a_core_reads_what_the_other_has_stored():
    x = array(64, 32)
    for barrier in ("both", "late"):
        np.testing.assert_allclose(through_hbm[2](x, barrier), np.exp(x), rtol=1e-5)


def test_a_wait_that_no_one_answers_is_seen():
    @nki.jit
    def alone(x):
        if nl.program_id(0) == 0:
            nisa.core_barrier(x, (0, 1))
        return x

    with pytest.raises(NkiError, match="NKI-N10"):
        nkisim.run(alone[2], array(4, 4))


def test_a_grid_is_one_or_two_cores():
    with pytest.raises(NkiError, match="NKI-K06"):
        swap[4]
    with pytest.raises(NkiError, match="NKI-K06"):
        swap[2, 2]


@nki.jit
def halves(x):
    """Each core adds up its half of the rows."""
    n, me = nl.num_programs(), nl.program_id(0)
    rows = x.shape[0] // n
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r0 in range(me * rows, (me + 1) * rows, 128):
        t = nl.load(x[r0 : r0 + 128, :])
        for _ in range(8):
            nisa.activation(t, nl.exp, t)
        nl.store(out[r0 : r0 + 128, :], t)
    return out


def test_two_cores_share_the_work_and_the_time():
    x = array(2048, 2048)
    one, two = (nkisim.profile(k, x, compute=False) for k in (halves, halves[2]))
    assert one.hbm_read_bytes == two.hbm_read_bytes == x.nbytes
    assert one.dma_transfer_count == two.dma_transfer_count and (one.cores, two.cores) == (1, 2)
    assert 0.4 < two.body_us / one.body_us < 0.65


def test_waiting_for_the_other_core_takes_time():
    x = array(64, 2048)
    plain, waits = (nkisim.profile(through_hbm[2], x, b, compute=False) for b in ("no", "both"))
    assert plain.waiting_us == 0 and waits.body_us > plain.body_us


# -- classes ---------------------------------------------------------------------------------------


def test_what_a_class_body_assigns_is_a_field():
    @dataclass
    class Sizes(nl.NKIObject):
        rows = None
        columns: int = 4

        def size(self):
            return self.rows * self.columns

    @dataclass
    class Named(Sizes):
        name = "x"

    @dataclass
    class Late(nl.NKIObject):
        first: int
        second: int

    assert Late(second=2) == Late(None, 2)
    assert Sizes(rows=2).size() == 8 and Sizes(3, 5).size() == 15
    named = Named(2, name="y")
    assert (named.rows, named.columns, named.name, Named.name) == (2, 4, "y", "x")


def test_an_object_takes_its_fields_without_a_dataclass():
    class Point(nl.NKIObject):
        x: int = 1
        y: bool

    class Named(Point):
        name = "p"

    assert (Point().x, Point().y, Point(5).x, Point(y=2).y) == (1, None, 5, 2)
    assert (Named(7, name="q").x, Named(7).name) == (7, "p")
    for call in (lambda: Point(1, 2, 3), lambda: Point(1, x=2), lambda: Point(z=1)):
        with pytest.raises(TypeError, match="Point"):
            call()
