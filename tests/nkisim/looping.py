"""Kernels with loops, recorded from first iterations and from all, must be the same."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

from nkisim.loops import run as loops
from nkisim.simulation.launch import launch
from same_values import Outputs

P = 128
N = 20  # iterations of many loops here


def data(*shape, dtype=np.float32):
    return (np.random.default_rng(len(shape)).random(shape) - 0.5).astype(dtype)


def record(kernel, *args, every_iteration, compute=False, **kwargs):
    """Return everything that a run notes: record, findings, and outputs."""
    got = launch(
        kernel, args, kwargs, target="trn2", compute=compute, every_iteration=every_iteration
    )
    t = got.trace
    outputs = got.outputs if isinstance(got.outputs, tuple) else (got.outputs,)
    return {
        "rows": t.rows,
        "starts": t.starts,
        "storages": t.storages.data,
        "nodes": (t.node_parent, t.node_loop, t.node_iter),
        "loops": (t.loop_kind, t.loop_line),
        "kinds": [(k.row.name, k.operands, k.accumulate) for k in t.op_specs],
        "lines": list(map(str, t.lines)),
        "findings": list(map(str, got.findings)),
        "open": got.machine.loops.open,
        "outputs": Outputs(outputs) if compute else None,
    }


def outcome(kernel, *args, **kwargs):
    """Return what a run notes, or its error."""
    try:
        return record(kernel, *args, **kwargs)
    except Exception as exc:
        return type(exc), str(exc)


def same_record(kernel, *args, **kwargs):
    """Assert that a run without values notes the same as one that executes every iteration."""
    once = record(kernel, *args, every_iteration=False, **kwargs)
    assert once == record(kernel, *args, every_iteration=True, **kwargs)


def same(kernel, *args, computes=(True, False), **kwargs):
    """Assert that runs note the same as those that execute every iteration, errors included, with
    values and without; return the outcome without."""
    for compute in computes:
        once, every = (
            outcome(kernel, *args, compute=compute, every_iteration=every, **kwargs)
            for every in (False, True)
        )
        assert once == every
    return once


def count(monkeypatch):
    """Return a list; a loop is added to it if all its iterations followed from the first."""
    done = []
    leave = loops.Extrapolation.leave

    def left(self):
        fits = leave(self)
        if self.fits and not self.stack and self not in done:
            done.append(self)
        return fits

    monkeypatch.setattr(loops.Extrapolation, "leave", left)
    return done


def kernel_with(body):
    """Return a kernel around a loop: body(acc, left, right) accumulates."""

    @nki.jit
    def kernel(x, w):
        out = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        left, right = nl.load(w), nl.load(x)
        acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
        body(acc, left, right)
        nl.store(out, value=nl.copy(acc))
        return out

    return kernel


def kernel_of(visit):
    """Return a kernel that calls `visit(i, x, out)` in a loop."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(N):
            visit(i, x, out)
        return out

    return kernel


def double(i, x, out):
    nl.store(out[i], nl.load(x[i]))


#: what a table says at the first, second, third and at the two last iterations is the same
SIZES = [64] * 7 + [32] * 6 + [64] * (N - 13)


def wide(n, i, x, out):
    nl.store(out[i, 0:n], nl.load(x[i, 0:n]))
