"""A view that leaves its tensor is an error when it is accessed, not before; computed or not."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronxcc import nki

import nkisim
from nkisim.simulation.launch import launch

X = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)


def run(body, x=X, compute=True):
    """Return what `body(x, out)` leaves in an output of the shape of its result."""

    @nki.jit
    def kernel(x):
        value = body(x)
        out = nl.ndarray(value.shape, dtype=value.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=value)
        return out

    return launch(kernel, (x,), {}, compute=compute).outputs


def refused(body, x=X):
    """Check that a body is refused for its bounds, with and without the arithmetic."""
    errors = []
    for compute in (True, False):
        with pytest.raises(nkisim.NkiError) as caught:
            run(body, x, compute)
        assert caught.value.id == "NKI-I01", caught.value
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    return errors[0]


@pytest.mark.parametrize("compute", [True, False])
def test_a_part_of_a_view_past_the_end_may_lie_inside(compute):
    """A window of 17 columns at column 0 of 16, used in windows of 14: none reaches the end."""

    def body(x):
        t = nl.load(x)
        window = t[:, 0:17]
        out = nl.ndarray((128, 14), dtype=np.float32, buffer=nl.sbuf)
        out[...] = nl.add(window[:, 0:14], window[:, 2:16])
        return out

    got = run(body, compute=compute)
    if compute:
        np.testing.assert_array_equal(got, X[:, 0:14] + X[:, 2:16])


def test_the_same_part_one_further_is_refused():
    said = refused(lambda x: nl.copy(nl.load(x)[:, 2:19][:, 1:15]))
    assert "elements 3 .. 16" in said and "0 .. 15" in said


def test_the_view_itself_is_refused():
    refused(lambda x: nl.copy(nl.load(x)[:, 0:17]))
    refused(lambda x: nl.load(x[:, 0:17]))


def test_writes_past_the_end_are_refused_and_inside_are_not():
    def write(lo, hi):
        def body(x):
            t = nl.load(x)
            t[:, 8:24][:, lo:hi] = 0.0
            return t

        return body

    want = X.copy()
    want[:, 10:16] = 0
    np.testing.assert_array_equal(run(write(2, 8)), want)
    refused(write(2, 9))


@pytest.mark.parametrize(
    "name, view",
    {
        "reshape that adds dims": lambda v: v.reshape((128, 1, 17, 1)),
        "reshape that splits": lambda v: v.reshape((128, 17)),
        "expand_dims": lambda v: v.expand_dims(1),
        "view of the same size": lambda v: v.view(nl.int32),
        "view of another size": lambda v: v.view(nl.bfloat16),
        "broadcast_to": lambda v: v.expand_dims(1).broadcast_to((128, 3, 17)),
        "an ellipsis": lambda v: v[...],
        "an index": lambda v: v[nl.arange(128)[:, None], nl.arange(17)[None, :]],
    }.items(),
)
def test_no_view_of_a_view_forgets_where_it_leaves(name, view):
    refused(lambda x: nl.copy(view(nl.load(x)[:, 0:17])))


@pytest.mark.parametrize(
    "name, view",
    {
        "reshape that adds dims": lambda v: v.reshape((128, 1, 18))[:, :, 0:16],
        "reshape that splits": lambda v: v.reshape((128, 9, 2))[:, 0:8, :],
        "expand_dims": lambda v: v.expand_dims(1)[:, 0, 0:16],
        "view of the same size": lambda v: v.view(nl.int32)[:, 0:16],
        "broadcast_to": lambda v: v.expand_dims(1).broadcast_to((128, 3, 18))[:, :, 0:16],
        "an index": lambda v: v[nl.arange(128)[:, None], 1 + nl.arange(15)[None, :]],
        "an int": lambda v: v[:, 15],
        "nl.ds": lambda v: v[:, nl.ds(3, 13)],
        "a step": lambda v: v[:, 0:16:3],
    }.items(),
)
def test_views_of_views_may_come_back_inside(name, view):
    run(lambda x: nl.copy(view(nl.load(x)[:, 0:18])))


def test_a_reshape_that_hides_where_the_view_ends_counts_as_an_access():
    refused(lambda x: nl.copy(nl.load(x).reshape((128, 4, 4))[:, 0:5].reshape((128, 20))))


def test_a_mask_cuts_what_a_view_of_a_view_leaves():
    def body(x):
        t = nl.load(x)
        i_p, i_f = nl.arange(128)[:, None], nl.arange(8)[None, :]
        out = nl.zeros((128, 8), np.float32)
        out[i_p, i_f] = nl.copy(t[:, 4:24][:, 6:14][i_p, i_f], mask=i_f < 6)
        return out

    want = np.zeros((128, 8), np.float32)
    want[:, :6] = X[:, 10:16]
    np.testing.assert_array_equal(run(body), want)


def test_outputs_end_inside():
    @nki.jit
    def kernel(x, rows):
        out = nl.ndarray((128, 16), dtype=np.float32, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x))
        return out[0:rows]

    for rows, rule in ((100, "NKI-O08"), (129, "NKI-I01")):  # an output is a whole tensor
        with pytest.raises(nkisim.NkiError) as caught:
            nkisim.run(kernel, X, rows)
        assert caught.value.id == rule


def test_printing_a_view_past_the_end_is_an_access():
    def body(x):
        t = nl.load(x)
        nl.device_print("v", t[:, 0:17])
        return t

    with pytest.raises(nkisim.NkiError) as caught:
        run(body)
    assert caught.value.id == "NKI-I01"


def test_an_index_tile_selects_from_inside():
    def body(x):
        idx = nisa.iota(nl.arange(4)[:, None], dtype=nl.int32)
        return nl.load(x[100:132][idx[nl.arange(4)[:, None], 0], nl.arange(16)[None, :]])

    refused(body)


SLICES = st.tuples(st.integers(0, 20), st.integers(1, 12), st.integers(1, 3))


@settings(max_examples=80, deadline=None)
@given(st.lists(SLICES, min_size=1, max_size=4))
def test_chains_of_slices_are_refused_exactly_if_they_reach_beyond(chain):
    """The oracle is the list of the columns that a view shows, None for what is not there."""
    columns, taken = list(range(16)), []
    for start, length, step in chain:
        start %= len(columns)
        taken.append(slice(start, start + length * step, step))
        columns = (columns + [None] * 60)[taken[-1]]

    def body(x):
        v = nl.load(x)
        for s in taken:
            v = v[:, s]
        return nl.copy(v)

    if None in columns:
        refused(body)
    else:
        np.testing.assert_array_equal(run(body), X[:, columns])
