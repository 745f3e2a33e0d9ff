"""Records of timing-only runs, with loops that are continued and without."""
from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

from nkisim.launch import launch

N = 20                                  # iterations of most loops here


def record(kernel, *args, replays, **kwargs):
    """Return everything that a timing-only run notes."""
    run = launch(kernel, args, kwargs, target="trn2", compute=False, replays=replays)
    t = run.trace
    return {"rows": t.rows, "starts": t.starts, "storages": t.storages.data,
            "nodes": (t.node_parent, t.node_loop, t.node_iter), "loops": (t.loop_kind, t.loop_line),
            "kinds": [k.row.name for k in t.kinds], "lines": list(map(str, t.lines)),
            "findings": list(map(str, run.findings))}


def executed(kernel, *args, **kwargs):
    """Return how many loop bodies a timing-only run executes; bodies report through BODIES."""
    BODIES.clear()
    record(kernel, *args, replays=True, **kwargs)
    return len(BODIES)


def same_record(kernel, *args, **kwargs):
    """Assert that the record does not depend on continuing loops."""
    assert record(kernel, *args, replays=True, **kwargs) == \
        record(kernel, *args, replays=False, **kwargs)


BODIES: list[int] = []


def body():
    BODIES.append(1)


def kernel_of(visit):
    """Return a kernel that calls `visit(i, x, out)` in a loop."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(N):
            body()
            visit(i, x, out)
        return out
    return kernel


def double(i, x, out):
    nl.store(out[i], nl.load(x[i]))


#: what a table says at the first, second, third and at the two last iterations is the same
SIZES = [64] * 7 + [32] * 6 + [64] * (N - 13)


def wide(n, i, x, out):
    nl.store(out[i, 0:n], nl.load(x[i, 0:n]))
