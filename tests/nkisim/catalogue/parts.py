"""The parts of the catalogue share this: how a mistake is registered, and what kernels begin with.

A mistake is a function of an HBM tensor `x` (128, 512, float32) and `bad`; the line that must be
named carries `# BUG`. Mistakes that other tests have as twins (limits, indexing, dtypes: see
test_errors_twins.py) are not repeated here: these are of people who know the limits.
"""
from __future__ import annotations

import neuronxcc.nki.language as nl
import numpy as np

MISTAKES: list[tuple[str, str, object]] = []       # id, a word that must be said, the kernel's body
GRIDS: dict[str, int] = {}                         # kernels that are launched on a grid


def mistake(id, says="", grid=0):
    """Register a mistake that the rule `id` names, in words that contain `says`."""
    def register(body):
        MISTAKES.append((id, says, body))
        if grid:
            GRIDS[body.__name__] = grid
        return body
    return register


def hbm(*shape, dtype=np.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def at(address):
    """Return a placement for ncc.sbuf.alloc: all tiles at one address."""
    def place(idx, pdim_size, fdim_size):
        return 0, address
    return place


def psum(*shape):
    return nl.zeros(shape, nl.float32, buffer=nl.psum)


def square(x, i):
    """Return a (128, 128) tile of x."""
    return nl.load(x[:, i * 128:(i + 1) * 128])
