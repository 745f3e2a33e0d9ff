"""What the record says of a tile's having been written: rightly, and each row looked at once."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.trace import written


@nki.jit
def largest(a):
    """Return the largest of each row of tiles, taken in two halves of the columns."""
    tiles, _, columns = a.shape
    out = nl.ndarray((tiles, nl.par_dim(128), 1), dtype=a.dtype, buffer=nl.shared_hbm)
    most = nl.ndarray((tiles, nl.par_dim(128), 1), dtype=a.dtype, buffer=nl.sbuf)
    for half in nl.affine_range(2):
        for i in nl.affine_range(tiles):
            at = half * (columns // 2) + nl.arange(columns // 2)[None, :]
            x = nl.load(a[i, nl.arange(128)[:, None], at])
            found = nisa.tensor_reduce(nl.max, data=x, axis=[1])
            most[i] = nl.loop_reduce(found, op=np.max, loop_indices=[half], dtype=a.dtype)
    for i in nl.affine_range(tiles):
        nl.store(out[i], most[i])
    return out


def test_the_first_value_of_each_tile_is_taken_as_it_is():
    a = np.random.default_rng(0).standard_normal((6, 128, 8)).astype(np.float32) - 9
    assert (nkisim.run(largest, a).outputs == a.max(2, keepdims=True)).all()
    prof = nkisim.profile(largest, a, compute=False, compiler=())
    assert prof.instructions["tensor_tensor"] == 6  # the second halves


@pytest.mark.parametrize("compute", [True, False])
def test_an_instruction_is_looked_at_as_often_in_a_long_kernel_as_in_a_short_one(
    monkeypatch, compute
):
    looked, place = [], written.operand_at
    monkeypatch.setattr(written, "operand_at", lambda *at: looked.append(at) or place(*at))
    often = []
    for tiles in (10, 80):
        looked.clear()
        prof = nkisim.profile(largest, np.zeros((tiles, 128, 8), np.float32), compute=compute)
        often.append(len(looked) / len(prof.trace))
    assert 0 < often[1] < 1.5 * often[0]


def test_parts_of_a_tile_that_share_a_byte_with_what_was_written():
    class Storage:
        id, node = 3, 0

    class Spec:
        outputs = 1

    def pattern(shape, strides):
        return written.Pattern("sbuf", np.dtype(np.float32), shape, strides)

    trace = written.Trace()
    spec = Spec()
    spec.operands = (pattern((4, 8), (64, 4)),)  # bytes 0 to 31 of each 64
    trace.op_specs.append(spec)
    trace.starts.append(0)
    trace.rows.extend((0, 0, 0, 3, 0))

    def tile(shape, strides, offset, id=3):
        got = type("Tile", (), {"memory": "sbuf", "dtype": np.dtype(np.float32)})()
        got.shape, got.strides, got.offset = shape, strides, offset
        got.storage = type("Made", (Storage,), {"id": id})
        return got

    assert written.written(trace, tile((4, 8), (64, 4), 0))
    assert written.written(trace, tile((4, 2), (64, 4), 28))
    assert not written.written(trace, tile((4, 8), (64, 4), 32))
    assert not written.written(trace, tile((4, 8), (64, 4), 0, id=2))
    trace.starts.append(5)
    trace.rows.extend((0, 0, 0, 3, 32))  # another write, after the first question
    assert written.written(trace, tile((4, 8), (64, 4), 32))
