"""Numbers that a traced loop's body changes: changed once, as where the body is traced once."""

from __future__ import annotations

import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim

X = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
RANGES = pytest.mark.parametrize("kind", ["affine_range", "sequential_range"])


def said(run):
    return [f for f in run.findings if f.id == "NKI-L07"]


@RANGES
@pytest.mark.parametrize("timing", [False, True])
def test_a_size_that_is_halved_in_the_body_is_halved_once(kind, timing):
    @nki.jit
    def kernel(x):
        size = x.shape[1] // 4  # 16
        out = nl.ndarray((128, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        for i in getattr(nl, kind)(4):
            t = nl.load(x[:, i * size : (i + 1) * size])
            size = size // 2  # each iteration has 16, then 8
            nl.store(out[:, i * size : (i + 1) * size], value=t[:, 0:size])
        return out

    run = nkisim.profile(kernel, X) if timing else nkisim.run(kernel, X)
    (found,) = said(run)
    assert found.severity == "note" and "size = 16" in found.text
    assert "size // 2" in found.where.text
    if not timing:
        want = np.concatenate([X[:, i * 16 : i * 16 + 8] for i in range(4)], axis=1)
        np.testing.assert_array_equal(run.outputs, want)


@RANGES
def test_a_counter_stands_still_and_a_flag_stays_up(kind):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 2), dtype=x.dtype, buffer=nl.shared_hbm)
        column, first = 0, True
        for _ in getattr(nl, kind)(2):
            for _j in nl.static_range(2):  # this one Python runs
                nl.store(out[:, column : column + 1], value=nl.load(x[:, column : column + 1]))
                column += 1
                if not first:
                    raise AssertionError("traced once: the first iteration is the only one")
            first = False
        return out

    if kind == "affine_range":  # all iterations store columns 0 and 1
        with pytest.raises(nkisim.NkiError, match="L04"):
            nkisim.run(kernel, X)
    else:
        run = nkisim.run(kernel, X)
        np.testing.assert_array_equal(run.outputs, X[:, :2])
        assert sorted(f.text.split()[2] for f in said(run)) == ["column", "first"]


def test_loops_inside_start_each_time_from_what_the_loop_around_gave():
    seen = []

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            at = i * 32
            for _ in nl.sequential_range(2):
                seen.append(int(at))
                at += 1
        nl.store(out, value=nl.load(x))
        return out

    nkisim.run(kernel, X)
    assert seen == [0, 0, 32, 32]


@pytest.mark.parametrize("kind", ["static_range", "range"])
def test_loops_that_python_runs_count(kind):
    """The twin: the SDK, too, runs these bodies each time."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        at = 0
        for _ in (range if kind == "range" else nl.static_range)(4):
            nl.store(out[:, at : at + 16], value=nl.load(x[:, at : at + 16]))
            at += 16
        return out

    run = nkisim.run(kernel, X)
    np.testing.assert_array_equal(run.outputs, X)
    assert not said(run)


def test_a_variable_that_the_body_binds_first_is_its_own_and_tiles_are_left_alone():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((128, 16), dtype=nl.float32)
        width = 0
        for i in nl.sequential_range(4):
            width = 16
            width += 0 * i
            total[...] = nl.add(total, nl.load(x[:, i * 16 : i * 16 + width]))
            nl.store(out[:, i * 16 : i * 16 + width], value=total)
        return out

    run = nkisim.run(kernel, X)
    want = np.cumsum(X.reshape(128, 4, 16), axis=1).reshape(128, 64)
    np.testing.assert_array_equal(run.outputs, want)
    assert not said(run)


def test_a_variable_that_a_closure_shares():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        width = 16

        def columns(i):
            return slice(i * width, (i + 1) * width)

        for i in nl.affine_range(4):
            t = nl.load(x[:, columns(i)])
            width = width // 2
            nl.store(out[:, columns(i)], value=t[:, 0:width])
        return out

    want = np.concatenate([X[:, i * 16 : i * 16 + 8] for i in range(4)], axis=1)
    np.testing.assert_array_equal(nkisim.run(kernel, X).outputs, want)
