"""Undefined elements: read and dropped they are no one's business, in an output they are a bug."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim

X = np.random.default_rng(0).standard_normal((128, 16)).astype(np.float32)


def hbm(*shape, dtype=np.float32, buffer=nl.shared_hbm):
    return nl.ndarray(shape, dtype, buffer=buffer)


def half(x, upto, dtype=np.float32):
    """Return a tile of 16 columns; the first `upto` are loaded."""
    t = nl.ndarray((128, 16), dtype)
    t[:, 0:upto] = nl.load(x[:, 0:upto])
    return t


def clean(kernel, *args):
    run = nkisim.run(kernel, *args)
    found = [f for f in run.findings if f.id not in ("NKI-O07", "NKI-U04")]
    assert not found, str(found[0])
    return run.outputs


def undefined(kernel, *args):
    """Run a kernel whose output depends on what nothing has written; return the finding."""
    run = nkisim.run(kernel, *args)
    (finding,) = run.findings
    assert (finding.id, finding.severity) == ("NKI-U02", "error")
    return finding


# -- what is reported ------------------------------------------------------------------------------


@nki.jit
def copied(x, upto):
    out = hbm(128, 16)
    t = half(x, upto)
    u = nl.multiply(t, 2.0)  # read here
    nl.store(out, u)
    return out


def test_half_a_tile_that_reaches_an_output():
    np.testing.assert_array_equal(clean(copied, X, 16), 2 * X)
    finding = undefined(copied, X, 6)
    assert "1,280 of 2,048 elements of an output" in finding.text
    assert finding.text.count("[0:128, 6:16]") == 2  # of the output, and of what is read
    assert finding.where.text.endswith("# read here")
    assert finding.other.text.startswith("t = nl.ndarray((128, 16)")
    assert f"created at {finding.other}" in finding.text


def test_each_read_has_a_finding_of_its_own():
    @nki.jit
    def kernel(x):
        out = hbm(2, 128, 16)
        nl.store(out[0], nl.copy(half(x, 4)))
        nl.store(out[1], half(x, 12))
        return out

    findings = nkisim.run(kernel, X).findings
    assert [f.id for f in findings] == ["NKI-U02", "NKI-U02"]
    assert "[0:1, 0:128, 4:16]" in findings[0].text and "[1:2, 0:128, 12:16]" in findings[1].text


def test_elements_that_form_no_box():
    @nki.jit
    def kernel(x):
        out = hbm(128, 16)
        t = nl.ndarray((128, 16), np.float32)
        t[:, 4:8] = nl.load(x[:, 4:8])
        nl.store(out, t)
        return out

    assert "a part of [0:128, 0:16] (1,536 elements)" in undefined(kernel, X).text


def test_an_output_that_is_stored_in_part():
    @nki.jit
    def kernel(x, upto):
        out = hbm(128, 16)
        nl.store(out[0:upto], nl.load(x[0:upto]))
        return out

    clean(kernel, X, 128)
    (finding,) = nkisim.run(kernel, X, 100).findings
    assert (finding.id, finding.severity) == ("NKI-O04", "error")
    assert "448 of 2,048" in finding.text and "[100:128, 0:16]" in finding.text
    assert finding.where.text.startswith("return nl.ndarray(shape")


def test_a_parameter_that_is_written_with_garbage():
    """The old style of outputs: what was defined is so no longer."""

    @nki.jit(mode="trace")
    def kernel(x, out, upto):
        nl.store(out, half(x, upto))

    for upto, ids in ((16, []), (8, ["NKI-U02"])):
        assert [f.id for f in nkisim.run(kernel, X, np.zeros_like(X), upto).findings] == ids


# -- what is dropped is legal ----------------------------------------------------------------------


@nki.jit
def rms_norm(x, w, store_all):
    """AWS's tutorial: the last tile is loaded and stored by a mask, and computed on as a whole."""
    rows, columns = x.shape
    out = hbm(-(-rows // 128) * 128 if store_all else rows, columns)
    p, f = nl.arange(128)[:, None], nl.arange(columns)[None, :]
    weight = nl.load(w.reshape((1, columns))[nl.arange(1)[:, None], f])
    for i in nl.affine_range(-(-rows // 128)):
        inside = i * 128 + p < rows
        t = nl.load(x[i * 128 + p, f], mask=inside)
        mean = nl.sum(nl.square(t), axis=[1]) / columns
        t = t * nl.rsqrt(mean) * weight.broadcast_to((128, columns))
        if store_all:
            nl.store(out[i * 128 + p, f], t)
        else:
            nl.store(out[i * 128 + p, f], t, mask=inside)
    return out


def test_masked_load_and_masked_store():
    x, w = np.concatenate([X, X[:72]]), X[0]
    want = x / np.sqrt((x * x).mean(1, keepdims=True)) * w
    np.testing.assert_allclose(clean(rms_norm, x, w, False), want, rtol=1e-4)
    assert "[200:256, 0:16]" in undefined(rms_norm, x, w, True).text


def test_a_mask_that_selects_nothing_of_a_tile():
    """One instance too many: all of its loads and stores are cut away."""

    @nki.jit
    def kernel(x):
        out = hbm(100, 16)
        p, f = nl.mgrid[0:128, 0:16]
        for i in nl.affine_range(2):
            t = nl.load(x[i * 128 + p, f], mask=i * 128 + p < 100)
            nl.store(out[i * 128 + p, f], nl.exp(t), mask=i * 128 + p < 100)
        return out

    np.testing.assert_allclose(clean(kernel, X[:100]), np.exp(X[:100]), rtol=1e-5)


def test_a_mask_that_is_no_box_beyond_the_edge():
    """Stored beyond the end of an output that is not complete yet, but for the mask."""

    @nki.jit
    def kernel(x):
        out = hbm(200, 16)
        p, f = nl.mgrid[0:128, 0:16]
        for i in nl.affine_range(2):
            inside = (i * 128 + p) * 16 + f < 3200
            t = nl.load(x[i * 128 + p, f], mask=inside)
            nl.store(out[i * 128 + p, f], nl.exp(t), mask=inside)
        return out

    x = np.concatenate([X, X[:72]])
    np.testing.assert_allclose(clean(kernel, x), np.exp(x), rtol=1e-5)


def test_garbage_that_is_stored_over():
    @nki.jit
    def kernel(x, last):
        out = hbm(128, 16)
        nl.store(out, half(x, 8))
        if last:
            nl.store(out[:, 8:16], nl.load(x[:, 8:16]))
        return out

    np.testing.assert_array_equal(clean(kernel, X, True), X)
    undefined(kernel, X, False)


def test_what_was_defined_is_overwritten_by_garbage():
    @nki.jit
    def kernel(x, upto, through_hbm):
        out, scratch = hbm(128, 16), hbm(128, 16, buffer=nl.private_hbm)
        t = nl.zeros((128, 16), np.float32)
        t[...] = nl.copy(half(x, upto))
        if through_hbm:
            nl.store(scratch, t)
            t = nl.load(scratch)
        nl.store(out[:, 0:8], t[:, 0:8])
        nl.store(out[:, 8:16], t[:, 8:16])
        return out

    for through_hbm in (False, True):
        np.testing.assert_array_equal(clean(kernel, X, 16, through_hbm), X)
        finding = undefined(kernel, X, 8, through_hbm)
        assert "t[...] = nl.copy" in finding.where.text and "[0:128, 8:16]" in finding.text


# -- instructions that mix elements ----------------------------------------------------------------


@pytest.mark.parametrize("op", [nl.max, nl.min, nl.sum, nl.prod])
def test_reductions(op):
    """A row with one garbage element is garbage; other rows are not."""

    @nki.jit
    def kernel(x, upto, rows):
        out = hbm(128, 1)
        t = nl.zeros((128, 16), np.float32)
        t[0:64] = nl.copy(half(x, upto)[0:64])
        nl.store(out[0:rows], op(t, axis=1, keepdims=True)[0:rows])
        nl.store(out[rows:128], 0) if rows < 128 else None
        return out

    clean(kernel, X, 16, 128)
    assert "64 of 128 elements" in undefined(kernel, X, 12, 128).text


@nki.jit
def product(a, b, k, n, square):
    """Contract k of 128 rows and n of 16 columns of what is multiplied."""
    out = hbm(128, 16)
    left, right = nl.ndarray((128, 128), np.float32), nl.ndarray((128, 16), np.float32)
    left[0:k] = nl.load(a[0:k])
    right[0:k, 0:n] = nl.load(b[0:k, 0:n])
    acc = nl.zeros((128, 16), np.float32, buffer=nl.psum)
    for _ in nl.affine_range(2):
        acc += nisa.nc_matmul(left if square else left[0:k], right if square else right[0:k])
    nl.store(out, nl.copy(acc))
    return out


def test_products():
    a = np.random.default_rng(1).standard_normal((128, 128)).astype(np.float32)
    np.testing.assert_allclose(
        clean(product, a, X, 64, 16, False), 2 * a[:64].T @ X[:64], rtol=1e-3, atol=1e-3
    )
    assert "2,048 of 2,048" in undefined(product, a, X, 64, 16, True).text
    assert "[0:128, 12:16]" in undefined(product, a, X, 128, 12, False).text


def test_transposes_and_scans():
    @nki.jit
    def kernel(x, upto):
        out = hbm(2, 16, 128)
        t = half(x, upto)
        nl.store(out[0], nl.copy(nisa.nc_transpose(t)))
        scan = nisa.tensor_tensor_scan(t, t, initial=0, op0=np.multiply, op1=np.add)
        nl.store(out[1], nl.copy(nisa.nc_transpose(scan)))
        return out

    clean(kernel, X, 16)
    findings = nkisim.run(kernel, X, 10).findings
    assert [f.id for f in findings] == ["NKI-U02"] * 2
    assert "[0:1, 10:16, 0:128]" in findings[0].text
    assert "[1:2, 10:16, 0:128]" in findings[1].text


@nki.jit
def chosen(x, upto, bound):
    """Take what is loaded below a bound, zeros above."""
    out = hbm(3, 128, 16)
    t, (p, f) = half(x, upto), nl.mgrid[0:128, 0:16]
    nl.store(out[0], nisa.affine_select(pred=f < bound, on_true_tile=t, on_false_value=0.0))
    small = nl.less(nisa.iota(f + 0 * p, np.float32), float(bound))
    nl.store(out[1], nl.where(small, t, 0.0))
    u = nl.zeros((128, 16), np.float32)
    nisa.tensor_copy_predicated(src=t, dst=u, predicate=small)
    nl.store(out[2], u)
    return out


def test_selections_drop_what_they_do_not_take():
    want = np.where(np.arange(16) < 8, X, 0)
    np.testing.assert_array_equal(clean(chosen, X, 8, 8), np.stack([want] * 3))
    findings = nkisim.run(chosen, X, 8, 9).findings
    assert [f.id for f in findings] == ["NKI-U02"] * 3
    assert "[0:1, 0:128, 8:9]" in findings[0].text


def test_a_destination_that_is_not_written_everywhere():
    """A predicated copy leaves the rest of its destination as it was: perhaps never written."""

    @nki.jit
    def kernel(x, first):
        out, (p, f) = hbm(128, 16), nl.mgrid[0:128, 0:16]
        small = nl.less(nisa.iota(f + 0 * p, np.float32), 4.0)
        t = nl.ndarray((128, 16), np.float32)
        if first:
            t[...] = 0
        nisa.tensor_copy_predicated(src=nl.load(x), dst=t, predicate=small)
        nl.store(out, t)
        return out

    np.testing.assert_array_equal(clean(kernel, X, True), np.where(np.arange(16) < 4, X, 0))
    assert "[0:128, 4:16]" in undefined(kernel, X, False).text


def test_trying_out_leaves_no_trace():
    """Random numbers, reduction registers and operands are as without undefined elements."""

    @nki.jit
    def kernel(x, upto):
        out, total = hbm(2, 128, 16), nl.ndarray((128, 1), np.float32)
        t = half(x, upto)
        nisa.activation_reduce(np.exp, t[:, 0:4], reduce_op=np.add, reduce_res=total)
        nl.dropout(t, rate=0.5)
        nisa.activation(np.square, t, reduce_op=np.add, reduce_cmd=nisa.reduce_cmd.reduce)
        nl.store(out[0, :, 0:4], nl.dropout(t[:, 0:4], rate=0.5))
        nl.store(out[1, :, 0:4], nl.multiply(t[:, 0:4], total))
        nl.store(out[:, :, 4:16], 0)
        return out

    np.testing.assert_array_equal(clean(kernel, X, 8), clean(kernel, X, 16))


def test_rows_that_are_scattered():
    @nki.jit
    def kernel(x, rows, upto):
        out, f = hbm(128, 16), nl.arange(16)[None, :]
        nl.store(out[nl.load(rows), f], half(x, upto))
        return out

    rows = np.random.default_rng(0).permutation(128).astype(np.int32)[:, None]
    np.testing.assert_array_equal(clean(kernel, X, rows, 16)[rows[:, 0]], X)
    assert "[0:128, 9:16]" in undefined(kernel, X, rows, 9).text


@nki.jit
def added(x, rows, first, chosen):
    """Add to rows of an output whose first ones were set."""
    out, f = hbm(128, 16), nl.arange(16)[None, :]
    nl.store(out[0:first], 0)
    if chosen:
        nl.atomic_rmw(out[nl.load(rows), f], value=nl.load(x), op=np.add)
    else:
        nisa.dma_copy(dst=out, src=nl.load(x), dst_rmw_op=np.add)
    return out


@pytest.mark.parametrize("chosen", [True, False])
def test_what_is_added_to_garbage_is_garbage(chosen):
    rows = np.arange(128, dtype=np.int32)[::-1, None].copy()
    np.testing.assert_array_equal(clean(added, X, rows, 128, chosen), X[::-1] if chosen else X)
    finding = undefined(added, X, rows, 96, chosen)
    assert finding.text.count("[96:128, 0:16]") == 2 and "out, f = hbm" not in finding.where.text


# -- against an oracle -----------------------------------------------------------------------------

part = st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(1, 4))
steps = st.lists(
    st.tuples(st.sampled_from(["load", "copy", "add", "max", "clear"]), part),
    min_size=1,
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_undefined_elements_are_followed_exactly(program):
    garbage = np.ones((4, 16), bool)

    @nki.jit
    def kernel(x):
        out = hbm(4, 16)
        t = nl.ndarray((4, 16), np.float32)
        t[:, 0:1] = 0
        garbage[:] = True
        garbage[:, 0:1] = False
        for what, (a, b, n) in program:
            to, of = slice(a, a + n), slice(b, b + n)
            if what == "load":
                t[0:2, to] = nl.load(x[0:2, to])
                garbage[0:2, to] = False
            elif what == "clear":
                t[:, to] = 0
                garbage[:, to] = False
            elif what == "copy":
                t[:, to] = nl.copy(nl.copy(t[:, of]))
                garbage[:, to] = garbage[:, of].copy()
            elif what == "add":
                t[:, to] = nl.add(t[:, to], t[:, of])
                garbage[:, to] |= garbage[:, of].copy()
            else:
                t[:, a : a + 1] = nl.max(t[:, of], axis=1, keepdims=True)
                garbage[:, a] = garbage[:, of].any(1)
        nl.store(out, t)
        return out

    run = nkisim.run(kernel, X[:4])
    found = [f for f in run.findings if f.id != "NKI-U04"]
    said = sum(int(f.text.split()[0]) for f in found)
    assert {f.id for f in found} <= {"NKI-U02"} and said == garbage.sum()
