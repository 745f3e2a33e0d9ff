"""Traps of the package nki: memory, time, loops on the device, two cores."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from test_nki_traps import array, refused, through

import nkisim
from nkisim import NkiError

# -- PSUM, memory, time -------------------------------------------------------------------------


def test_the_first_write_counts_place_by_place():
    """Windows that overlap add where they meet, and only there."""

    def body(x):
        t, acc = nl.load(x), nl.ndarray((4, 12), dtype=nl.float32, buffer=nl.psum)
        for start in (0, 4):
            nisa.nc_matmul(acc[:, start : start + 8], t[:, 0:4], t)
        return nl.copy(acc)

    x = array(4, 8)
    product = x[:, :4].T @ x
    want = np.zeros((4, 12), np.float32)
    want[:, :8] += product
    want[:, 4:] += product
    np.testing.assert_allclose(through(body, x), want, rtol=1e-4, atol=1e-5)


def test_a_tile_of_psum_begins_where_a_bank_does():
    refused(
        "NKI-A01",
        lambda x: nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.psum, address=(0, 16)),
        array(4, 4),
    )


def _drains(x, banks):
    """Matmuls, each copied out, into `banks` tiles of PSUM in turn."""
    t = nl.load(x)
    accs = [nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum) for _ in range(banks)]
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    res = nl.ndarray((128, 512), dtype=nl.float32)
    for i in range(32):
        for _ in range(4):
            nisa.nc_matmul(accs[i % banks], t[:, 0:128], t, accumulate=_ > 0)
        nisa.tensor_copy(res, accs[i % banks])
    nisa.dma_copy(dst=out, src=res)
    return out


def test_one_bank_makes_the_next_product_wait():
    x = array(128, 512)
    one, two = (
        nkisim.profile(nki.jit(_drains), x, n, compute=False, compiler=("engines",)).body_us
        for n in (1, 2)
    )
    assert one > 1.1 * two


# -- registers and loops ------------------------------------------------------------------------


def counted(x, count):
    n, t = nisa.register_alloc(), nl.load(x)
    nisa.register_load(n, nl.load(count))
    nl.fori_loop(0, n, lambda i: nisa.activation(t, nl.exp, t))
    nl.store(x, t)


def test_a_time_without_values_knows_how_often_a_loop_runs():
    x = np.zeros((128, 2048), np.float32)
    times = [
        nkisim.profile(
            nki.jit(counted), x.copy() if compute else x, np.array([[n]], np.int32), compute=compute
        )
        for n in (1, 9)
        for compute in (False, True)
    ]
    assert [p.instructions["activation"] for p in times] == [1, 1, 9, 9]
    assert times[0].body_us == times[1].body_us < times[2].body_us == times[3].body_us
    assert times[0].outputs is None and not x.any()


def test_registers_have_no_arithmetic_and_loop_variables_are_frozen():
    refused("NKI-N04", lambda x: nisa.register_alloc(3) + 1, array(4, 4))
    refused("NKI-L03", lambda x: list(nl.affine_range(nisa.register_alloc(3))), array(4, 4))

    def frozen(x):
        for i in nl.dynamic_range(2):
            nisa.register_move(i, 5)

    with pytest.raises(NkiError, match="NKI-N04"):
        nkisim.run(nki.jit(frozen), array(4, 4))


# -- two cores ----------------------------------------------------------------------------------


def test_exchanges_with_other_pipes_never_meet():
    @nki.jit
    def kernel(x):
        me = nl.program_id()
        t, other = nl.load(x), nl.ndarray((4, 4), dtype=nl.float32)
        nisa.sendrecv(t, other, 1 - me, 1 - me, pipe_id=me)
        return x

    with pytest.raises(NkiError, match="NKI-N10"):
        nkisim.run(kernel[2], array(4, 4))


@pytest.mark.parametrize("value, severity", [(1.0, "note"), (2.0, "warning")])
def test_cores_that_write_the_same_values_do_no_harm(value, severity):
    """A result that each of them computes, or a row at the border of their parts."""

    @nki.jit
    def kernel(x):
        me = nl.program_id()
        out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        t = nl.load(x)
        if me == 1:
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=value)
        nl.store(out[0:2, :] if me == 0 else out[1:4, :], t[0:2, :] if me == 0 else t[1:4, :])
        return out

    run = nkisim.run(kernel[2], array(4, 4))
    met = [f for f in run.findings if f.id == "NKI-L04"]
    assert [f.severity for f in met] == [severity] and "more than one core" in met[0].text


def test_shared_tensors_are_one_and_private_ones_two():
    @nki.jit
    def kernel(x):
        me = nl.program_id()
        shared = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        private = nl.ndarray((1, 4), dtype=nl.float32, buffer=nl.private_hbm)
        t = nl.full((1, 4), float(me), nl.float32)
        nl.store(private, t)
        nl.store(shared[me : me + 1, :], nl.load(private))
        return shared

    assert kernel[2](array(4, 4)).tolist() == [[0.0] * 4, [1.0] * 4]


@pytest.mark.parametrize("after", [True, False])
def test_what_a_loop_of_the_device_makes_ends_with_it(after):
    """Twins: a tile of the body that is used after the loop, and one made before it."""

    def body(x):
        kept = [nl.ndarray((4, 8), dtype=nl.float32)]

        def step(i):
            if after:
                kept[0] = nl.ndarray((4, 8), dtype=nl.float32)
            nisa.dma_copy(dst=kept[0], src=x)

        nl.fori_loop(0, 3, step)
        return nl.exp(kept[0])

    x = array(4, 8)
    if after:
        refused("NKI-L01", body, x)
    else:
        np.testing.assert_allclose(through(body, x), np.exp(x), rtol=1e-5)


def _loops(x, device):
    def step(i):
        t = nl.ndarray((128, 2048), dtype=x.dtype)
        nisa.dma_copy(dst=t, src=x)
        nisa.activation(t, nl.exp, t)
        nisa.dma_copy(dst=x, src=t)

    if device:
        nl.fori_loop(0, 8, step)
    else:
        for i in range(8):
            step(i)


def test_tiles_of_a_loop_of_the_device_are_one_allocation():
    """A Python loop is unrolled: each iteration has a tile of its own, if there is room."""
    unrolled, one = (
        nkisim.profile(nki.jit(_loops), np.zeros((128, 2048), np.float32), device, compute=False)
        for device in (False, True)
    )
    assert one.sbuf_peak_bytes == 2048 * 4 <= unrolled.sbuf_peak_bytes
    assert one.instructions == unrolled.instructions


@pytest.mark.parametrize("loop", ["fori", "while", "dynamic", "python"])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_sum_that_the_body_of_a_loop_makes_begins_anew(loop, parts):
    """A tile that a body makes is a new one each time: its first product overwrites."""

    @nki.jit
    def kernel(x, w):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        weights = nl.load(w)

        def step(i):
            at = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
            if loop == "python":
                nisa.memset(at, i)
            else:
                nisa.register_store(at, i)
            t = nl.ndarray((64, 256), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(t, x.ap([[256, 64], [1, 256]], scalar_offset=at, indirect_dim=0))
            total = nl.ndarray((64, 256), dtype=nl.float32, buffer=nl.psum)
            for k in range(parts):
                nisa.nc_matmul(
                    total,
                    weights[64 // parts * k : 64 // parts * (k + 1), :],
                    t[64 // parts * k : 64 // parts * (k + 1), :],
                )
            u = nl.ndarray((64, 256), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(u, total)
            nisa.dma_copy(out.ap([[256, 64], [1, 256]], scalar_offset=at, indirect_dim=0), u)

        if loop == "fori":
            nl.fori_loop(0, 3, step)
        elif loop == "while":
            left = nisa.register_alloc(3)

            def down(r):
                tile, one = (nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf) for _ in range(2))
                nisa.register_store(tile, r)
                nisa.tensor_scalar(one, tile, op0=nl.subtract, operand0=1)
                now = nisa.register_alloc()
                nisa.register_load(now, one)
                step(now)
                return now

            nl.while_loop(left, down)
        else:
            for i in nl.dynamic_range(3) if loop == "dynamic" else range(3):
                step(i)
        return out

    x, w = array(3, 64, 256), array(64, 64)
    run = nkisim.run(kernel, x, w)
    np.testing.assert_allclose(run.outputs, np.einsum("km,ikn->imn", w, x), rtol=1e-4, atol=1e-4)
    assert "NKI-N09" not in {f.id for f in run.findings}


def test_a_sum_that_is_made_before_a_loop_goes_on_in_it():
    def body(x):
        t, total = nl.load(x), nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
        nl.fori_loop(0, 3, lambda i: nisa.nc_matmul(total, t, t))
        out = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(out, total)
        return out

    x = array(8, 8)
    np.testing.assert_allclose(through(body, x), 3 * (x.T @ x), rtol=1e-4, atol=1e-5)


def test_what_an_iteration_before_has_left_in_a_tile_is_not_there():
    """The first iteration writes a tile, the second one reads it before it does."""

    def body(x):
        out, first = nl.ndarray((4, 8), dtype=nl.float32), [True]

        def step(i):
            t = nl.ndarray((4, 8), dtype=nl.float32)
            if first:
                first.clear()
                nisa.dma_copy(dst=t, src=x)
            nisa.tensor_copy(out, t)

        nl.fori_loop(0, 2, step)
        return out

    with pytest.raises(NkiError, match="NKI-U01"):
        through(body, array(4, 8))


def test_a_loop_of_the_device_may_be_between_meetings():
    @nki.jit
    def kernel(x):
        me = nl.program_id()
        out = nl.ndarray((2, 4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)

        def step(i):
            u = nl.exp(t)
            nisa.tensor_copy(t, u)

        nl.fori_loop(0, 2, step)
        nisa.dma_copy(dst=out[me], src=t)
        nisa.core_barrier(out, (0, 1))
        return out

    run = nkisim.run(kernel[2], array(4, 8))
    assert not run.findings
    assert nkisim.profile(kernel[2], array(4, 8), compute=False).instructions["activation"] == 4


def test_cores_create_their_shared_tensors_in_one_order():
    @nki.jit
    def kernel(x, swapped):
        shapes = [(2, 4), (3, 5)]
        if swapped and nl.program_id() == 1:
            shapes.reverse()
        made = [nl.ndarray(s, dtype=nl.float32, buffer=nl.shared_hbm) for s in shapes]
        if nl.program_id() == 0:
            for t in made:
                nl.store(t, 1.0)
        return tuple(made)

    nkisim.run(kernel[2], array(4, 4), False)
    with pytest.raises(NkiError, match="NKI-O05") as caught:
        nkisim.run(kernel[2], array(4, 4), True)
    assert "(3, 5)" in caught.value.render()
