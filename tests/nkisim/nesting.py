"""Kernels with nests of loops, run with nests and without: nothing may tell the difference."""
from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.launch import launch
from nkisim.machine import nest, nestagain, nestonce

P = 128


def data(*shape, dtype=np.float32):
    return (np.random.default_rng(len(shape)).random(shape) - 0.5).astype(dtype)


def run(kernel, *args, compute=True, **kwargs):
    """Return everything that a run notes: record, findings, and outputs as bytes."""
    try:
        got = launch(kernel, args, kwargs, target="trn2", compute=compute)
    except Exception as exc:
        return type(exc), str(exc)
    t = got.trace
    outputs = got.outputs if isinstance(got.outputs, tuple) else (got.outputs,)
    return {"rows": t.rows, "starts": t.starts, "storages": t.storages.data,
            "nodes": (t.node_parent, t.node_loop, t.node_iter), "loops": (t.loop_kind, t.loop_line),
            "kinds": [(k.row.name, k.operands, k.accumulate) for k in t.kinds],
            "lines": list(map(str, t.lines)), "findings": list(map(str, got.findings)),
            "open": got.machine.loop_open,
            "outputs": [o.tobytes() for o in outputs] if compute else None}


def same(monkeypatch, kernel, *args, **kwargs):
    """Assert that nests make no difference, with arithmetic and without; return the outcome."""
    for compute in (True, False):
        monkeypatch.delenv(nest.VARIABLE, raising=False)
        once = run(kernel, *args, compute=compute, **kwargs)
        monkeypatch.setenv(nest.VARIABLE, "0")
        assert once == run(kernel, *args, compute=compute, **kwargs)
    return once


def same_record(monkeypatch, kernel, *args):
    """Assert that nests make no difference to a run without values."""
    monkeypatch.delenv(nest.VARIABLE, raising=False)
    once = run(kernel, *args, compute=False)
    monkeypatch.setenv(nest.VARIABLE, "0")
    assert once == run(kernel, *args, compute=False)


def count(monkeypatch):
    """Return a list to which each nest is added that has run once, with values and without."""
    nests = []
    go_on, end = nest.Nest.go_on, nestonce.Once.end

    def ended(self):
        end(self)
        if self.fits and self not in nests:
            nests.append(self)
    monkeypatch.setattr(nest.Nest, "go_on", lambda self: (nests.append(self), go_on(self)))
    monkeypatch.setattr(nestonce.Once, "end", ended)
    return nests


@pytest.fixture
def taken(monkeypatch):
    """Count the nests of which the record was taken from an earlier one."""
    nests = []
    append = nestagain.Again.append

    def counted(self, m, look):
        done = append(self, m, look)
        if done:
            nests.append(look)
        return done
    monkeypatch.setattr(nestagain.Again, "append", counted)
    return nests


def kernel_with(body):
    """Return a kernel around a nest: body(acc, left, right) accumulates."""
    @nki.jit
    def kernel(x, w):
        out = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        left, right = nl.load(w), nl.load(x)
        acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
        body(acc, left, right)
        nl.store(out, value=nl.copy(acc))
        return out
    return kernel
