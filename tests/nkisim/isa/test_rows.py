"""What rows of the table promise, each with its twin: the call that was wrong, the same right.

The row matrix (test_row_matrix.py) compares values of all rows; here stand the promises that a
comparison of values does not show: records, refusals, findings.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError
from nkisim.simulation.launch import launch


def run(kernel, *shapes, target="trn2", dtype=np.float32):
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype(dtype) for s in shapes]
    return nkisim.run(kernel, *arrays, target=target), arrays


def through(op, *shapes, out=None, **more):
    """Return a kernel that loads tiles, calls `op` with them and stores the result."""

    def kernel(*xs):
        got = op(*(nl.load(x) for x in xs))
        result = nl.ndarray(got.shape, got.dtype, buffer=nl.shared_hbm)
        nl.store(result, got)
        return result

    return run(kernel, *shapes, **more)


# -- shapes of two-tile instructions ------------------------------------------------------------


def test_other_counts_are_refused():
    with pytest.raises(NkiError, match="NKI-S02"):
        through(lambda a, b: nisa.tensor_tensor(a, b, nl.add), (4, 6), (4, 5))
    with pytest.raises(NkiError, match="NKI-S04"):
        through(lambda a, b: nisa.tensor_tensor(a, b, nl.add), (4, 6), (8, 3))


def test_a_grouping_that_no_access_pattern_has_is_brought_into_order():
    def op(a, b):
        return nisa.tensor_tensor(a, b[:, :, 0:3], nl.add)  # (4, 2, 3) strided, no (4, 6)

    got, (x, y) = through(op, (4, 6), (4, 2, 5))
    np.testing.assert_allclose(got.outputs, x + y[:, :, :3].reshape(4, 6))


# -- read-modify-write --------------------------------------------------------------------------


def test_a_copy_that_adds_takes_longer():
    def copies(x, **how):
        out = nl.ndarray((128, 4096), nl.float32, buffer=nl.shared_hbm)
        t = nl.load(x)
        nisa.dma_copy(dst=out, src=t)
        nisa.dma_copy(dst=out, src=t, **how)
        return out

    x = np.zeros((128, 4096), np.float32)
    plain = nkisim.profile(copies, x, compute=False).body_us
    adding = nkisim.profile(copies, x, compute=False, dst_rmw_op=np.add).body_us
    assert adding > plain


# -- arguments ------------------------------------------------------------------------------------


def test_an_unknown_keyword_is_ignored_with_a_word():
    got, (x,) = through(lambda t: nisa.activation(nl.copy, t, sclae=2.0), (4, 6))
    np.testing.assert_allclose(got.outputs, x)
    (finding,) = [f for f in got.findings if f.severity == "warning"]
    assert finding.id == "NKI-K11" and "'sclae'" in finding.text and "'scale'" in finding.text
    got, (x,) = through(lambda t: nisa.activation(nl.copy, t, scale=2.0, name="doubled"), (4, 6))
    np.testing.assert_allclose(got.outputs, 2 * x)
    assert got.findings == []


def test_parameters_of_our_own_lowering_are_not_public():
    def op(t):
        other = nl.zeros((4, 6), nl.float32)
        nisa.tensor_copy(t, dst=other)
        return other

    got, _ = through(op, (4, 6))
    assert not got.outputs.any()
    assert [f.id for f in got.findings if f.id != "NKI-U04"] == ["NKI-K11"]  # nothing reads it


def test_a_dtype_that_the_destination_does_not_have_is_a_finding():
    def op(t, dtype):
        out = nl.zeros((4, 6), nl.float32)
        nisa.tensor_copy_predicated(
            src=t, dst=out, predicate=nl.ones((4, 6), nl.uint8), dtype=dtype
        )
        return out

    assert [f.id for f in through(lambda t: op(t, nl.bfloat16), (4, 6))[0].findings] == ["NKI-K12"]
    assert through(lambda t: op(t, nl.float32), (4, 6))[0].findings == []


def test_a_tile_position_is_checked_in_every_call():
    """An accepted matmul of the same form must not wave a wrong one through."""

    def kernel(position):
        def op(a, b):
            nisa.nc_matmul(a, b).settle()
            return nl.copy(nisa.nc_matmul(a, b, tile_position=position, tile_size=(32, 32)))

        return op

    through(kernel((32, 0)), (32, 32), (32, 64))
    with pytest.raises(NkiError, match="NKI-S08"):
        through(kernel((16, 0)), (32, 32), (32, 64))
    with pytest.raises(NkiError, match="NKI-S08"):
        through(
            lambda a, b: nl.copy(nisa.nc_matmul(a, b, tile_position=(32, 0))), (32, 32), (32, 64)
        )


def test_a_dma_is_looked_at_again_if_it_reads_with_other_strides():
    """A copy that was planned must not hide that one of the same form repeats a row."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        for rows in (x, x, x[0:1].broadcast_to((128, 8)), x):
            tile = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=rows)
            nisa.dma_copy(dst=out, src=tile)
        return out

    x = np.arange(1024, dtype=np.float32).reshape(128, 8)
    run = nkisim.run(kernel, x)
    assert [f.id for f in run.findings if f.id == "NKI-R12"] == ["NKI-R12"]
    assert (run.outputs == x).all()


def test_copies_of_one_form_are_told_apart_by_what_they_do():
    """One adds to what is there, the other one does not; a number is stored between tiles."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 128, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(3):
            tile = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x)
            nisa.dma_copy(dst=tile, src=x, **({"dst_rmw_op": np.add} if i == 1 else {}))
            nl.store(out[i], tile if i < 2 else 5.0)
        return out

    x = np.arange(1024, dtype=np.float32).reshape(128, 8)
    assert (nkisim.run(kernel, x).outputs == np.stack([x, 2 * x, 0 * x + 5])).all()


# -- masks ---------------------------------------------------------------------------------------


def test_a_mask_over_loop_variables_acts_on_every_row():
    def kernel(x):
        out = nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm)
        t = nl.load(x, dtype=nl.bfloat16)
        turned = nl.zeros((4, 4), nl.bfloat16)
        for i in nl.static_range(2):
            turned[...] = nisa.dma_transpose(t, mask=i < 0)
        nl.store(out, turned)
        return out

    got, _ = run(kernel, (4, 4))
    assert not got.outputs.any() and "dma_transpose" not in got.instructions


def test_a_predicated_copy_under_a_mask_keeps_what_was_there():
    def kernel(x):
        out = nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm)
        i_p, i_f = nl.mgrid[0:4, 0:4]
        t = nl.full((4, 4), 9.0, nl.float32)
        nisa.tensor_copy_predicated(
            src=nl.load(x), dst=t, predicate=nl.zeros((4, 4), nl.uint8), mask=(i_p + i_f < 5)
        )
        nl.store(out, t)
        return out

    assert (run(kernel, (4, 4))[0].outputs == 9.0).all()


def test_masks_select_what_a_scatter_writes():
    def kernel(x, at):
        out = nl.ndarray((8, 4), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, 0.0)
        i_p, i_f = nl.mgrid[0:4, 0:4]
        rows = nl.load(at)
        nl.store(
            out[rows[nl.arange(4)[:, None], 0], nl.arange(4)[None, :]],
            nl.load(x),
            mask=(i_p < 3) & (i_f < 2),
        )
        return out

    x = np.arange(16, dtype=np.float32).reshape(4, 4) + 1
    at = np.array([[5], [1], [7], [0]], np.int32)
    want = np.zeros((8, 4), np.float32)
    want[at[:3, 0], :2] = x[:3, :2]
    assert (nkisim.simulate(kernel, x, at) == want).all()


# -- memories --------------------------------------------------------------------------------------


def test_gpsimd_touches_no_psum():
    def kernel(x):
        out = nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm)
        p = nl.ndarray((4, 4), nl.float32, buffer=nl.psum)
        p[...] = nisa.iota(nl.arange(4)[:, None] + nl.arange(4)[None, :], nl.float32)
        i_p, i_f = nl.arange(4)[:, None], nl.arange(4)[None, :]
        nl.store(out, nisa.affine_select(i_p >= i_f, p, 0.0))
        return out

    got, _ = run(kernel, (4, 4))
    assert (got.outputs == np.tril(np.add.outer(np.arange(4), np.arange(4)))).all()
    assert not any(
        p.memory == "psum" for k in got.trace.op_specs if k.engine == "gpsimd" for p in k.operands
    )
    assert got.instructions["tensor_copy"] == 2  # into PSUM, and out of it again


def test_exact_integers_in_psum_are_refused():
    def op(where):
        def call(t):
            a = nl.full((4, 4), 3, nl.int32, buffer=where)
            return nisa.tensor_tensor(a, nl.full((4, 4), 4, nl.int32), nl.add)

        return call

    assert (through(op(nl.sbuf), (4, 4))[0].outputs == 7).all()
    with pytest.raises(NkiError, match="NKI-E02"):
        through(op(nl.psum), (4, 4))


def test_a_copy_by_dma_out_of_psum_is_two_steps_with_a_note():
    def kernel(x):
        out = nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm)
        p = nl.ndarray((4, 4), nl.float32, buffer=nl.psum)
        p[...] = nl.copy(nl.load(x))
        nisa.dma_copy(dst=out, src=p)
        return out

    got, (x,) = run(kernel, (4, 4))
    assert (got.outputs == x).all()
    assert [(f.id, f.severity) for f in got.findings] == [("NKI-M09", "note")]


def test_what_a_mask_leaves_out_copies_no_operand():
    """The copy that a matmul needs of an operand in PSUM is left out with the matmul."""

    def kernel(x, last):
        out = nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm)
        p = nl.ndarray((4, 4), nl.float32, buffer=nl.psum)  # never written
        acc = nl.zeros((4, 4), nl.float32, buffer=nl.psum)
        t = nl.load(x)
        for i in nl.static_range(2):
            acc += nisa.nc_matmul(p, t, mask=i > last)
        acc += nisa.nc_matmul(t, t)
        nl.store(out, nl.copy(acc))
        return out

    x = np.eye(4, dtype=np.float32)
    got = nkisim.run(kernel, x, 1)
    assert (got.outputs == x).all() and got.instructions["nc_matmul"] == 1
    with pytest.raises(NkiError, match="NKI-U01"):
        nkisim.run(kernel, x, 0)


def test_dtypes_that_are_not_documented_are_noted():
    def op(dtype):
        def call(t):
            out = nl.zeros((4, 6), nl.float32)
            nisa.tensor_copy_predicated(src=t, dst=out, predicate=nl.ones((4, 6), dtype))
            return out

        return call

    assert through(op(nl.uint8), (4, 6))[0].findings == []
    (note,) = through(op(nl.float32), (4, 6))[0].findings
    assert (note.id, note.severity) == ("NKI-D07", "note")


# -- calls that look alike -----------------------------------------------------------------------


def test_alike_calls_differ_where_their_arguments_do():
    """A remembered plan must not be taken for a call with another number, operator or dtype."""

    def kernel(x):
        t = nl.load(x)
        values = [
            nisa.tensor_scalar(t, op, v, dtype=d)
            for op in (nl.add, nl.multiply)
            for v in (1, 1.0, 2)
            for d in (nl.float32, nl.float16)
        ]
        out = nl.ndarray((len(values), 4, 6), nl.float32, buffer=nl.shared_hbm)
        for k, v in enumerate(values):
            nl.store(out[k], nl.copy(v, dtype=nl.float32))
        return out

    got, (x,) = run(kernel, (4, 6))
    want = [
        x + v if op == "add" else x * v
        for op in ("add", "multiply")
        for v in (1, 1, 2)
        for _ in range(2)
    ]
    np.testing.assert_allclose(got.outputs, np.array(want), atol=2e-3)


def test_a_remembered_plan_still_checks_its_operands():
    def kernel(x):
        out = nl.ndarray((4, 6), nl.float32, buffer=nl.shared_hbm)
        for _i in nl.affine_range(2):
            t = nl.load(x)
            u = nisa.tensor_scalar(t, nl.add, 1.0)
        u = nisa.tensor_scalar(t, nl.add, 1.0)  # t's loop has ended
        nl.store(out, u)
        return out

    with pytest.raises(NkiError, match="NKI-L01"):
        run(kernel, (4, 6))


def test_timing_only_records_the_same():
    def kernel(x):
        t = nl.load(x)
        out = nl.ndarray((4, 6), nl.float32, buffer=nl.shared_hbm)
        for _i in nl.static_range(4):
            t[...] = nisa.tensor_scalar(t, nl.add, 1.0)
        nl.store(out, t)
        return out

    x = np.zeros((4, 6), np.float32)
    a, b = (launch(kernel, (x,), {}, compute=c).trace for c in (True, False))
    assert list(a.rows) == list(b.rows)
