"""Results that nothing reads, registers, overlaps, infinities: what is a mistake, and what is none.

The catalogue (data/examples) has a wrong and a right kernel of each rule; here are right kernels
that look much like wrong ones, and the same findings without arithmetic.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki as beta1
from neuronxcc.nki import isa as beta1_isa
from neuronxcc.nki import language as beta1_nl

import nkisim

X = np.random.default_rng(1).random((128, 512), dtype=np.float32) + 0.5
NEW = (
    "NKI-U04",
    "NKI-U05",
    "NKI-U06",
    "NKI-U07",
    "NKI-D09",
    "NKI-D10",
    "NKI-D11",
    "NKI-I16",
    "NKI-S15",
    "NKI-I02",
    "NKI-R06",
)
ADD, BEGIN = nisa.reduce_cmd.reduce, nisa.reduce_cmd.reset_reduce


def found(kernel, *args, compute=True):
    run = nkisim.profile(kernel, *args, target="trn2", compute=compute)
    return [(f.id, f.severity) for f in run.findings if f.id in NEW]


def stored(tile):
    """Return an output that holds a tile."""
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def carry(x, tile):
    """Carry the last column on: the one of the last tile is not read, and that is right."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    init, zero = nl.ndarray((128, 1), nl.float32), nl.ndarray((128, 1), nl.float32)
    nisa.memset(dst=zero, value=0.0)
    nisa.tensor_copy(dst=init, src=zero)
    ones = nl.full((128, tile), 1.0, nl.float32)
    for i in range(512 // tile):
        t, r = nl.load(x[:, i * tile : (i + 1) * tile]), nl.ndarray((128, tile), nl.float32)
        nisa.tensor_tensor_scan(
            dst=r, data0=ones, data1=t, initial=init, op0=nl.multiply, op1=nl.add
        )
        nisa.dma_copy(dst=out[:, i * tile : (i + 1) * tile], src=r)
        nisa.tensor_copy(dst=init, src=r[:, tile - 1 : tile])
    return out


@nki.jit
def largest(x, rounds):
    """Find the 8 * rounds largest; what the last round takes out is not looked at again."""
    t, best = nl.load(x), nl.ndarray((128, 8 * rounds), nl.float32)
    for i in range(rounds):
        part = best[:, 8 * i : 8 * i + 8]
        nisa.max8(dst=part, src=t)
        nisa.nc_match_replace8(dst=t, data=t, vals=part, imm=0.0)
    return stored(best)


@nki.jit
def sums(x):
    """Use the sum of an instruction alone: its other result is written over each time."""
    t, total = nl.load(x), nl.ndarray((128, 4), nl.float32)
    unused = nl.ndarray((128, 128), nl.float32)
    for i in range(4):
        nisa.activation_reduce(
            dst=unused,
            op=nl.exp,
            data=t[:, i * 128 : (i + 1) * 128],
            reduce_op=nl.add,
            reduce_res=total[:, i : i + 1],
        )
    return stored(total)


@nki.jit
def measured(x):
    """Repeat an instruction on the same data, to measure it."""
    t, u = nl.load(x), nl.ndarray((128, 512), nl.float32)
    for _ in range(4):
        nisa.activation(dst=u, op=nl.exp, data=t)
    return stored(u)


@nki.jit
def filled(x):
    """Set a tile as a whole, then fill all of it; the last one is loaded ahead of time."""
    t = nl.ndarray((128, 512), nl.float32)
    nisa.memset(dst=t, value=0.0)
    tiles = [nl.ndarray((128, 128), nl.float32) for _ in range(2)]
    nisa.dma_copy(dst=tiles[0], src=x[:, 0:128])
    for i in range(4):
        ahead = min(i + 1, 3)
        nisa.dma_copy(dst=tiles[(i + 1) % 2], src=x[:, ahead * 128 : (ahead + 1) * 128])
        nisa.tensor_copy(dst=t[:, i * 128 : (i + 1) * 128], src=tiles[i % 2])
    return stored(t)


@pytest.mark.parametrize(
    "kernel, given",
    [
        (carry, (512,)),
        (carry, (128,)),
        (largest, (1,)),
        (largest, (3,)),
        (sums, ()),
        (measured, ()),
        (filled, ()),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
@pytest.mark.parametrize("compute", [True, False])
def test_right_kernels_that_drop_a_result(kernel, given, compute):
    assert found(kernel, X, *given, compute=compute) == []


@nki.jit
def lost(x, how):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    t, u = nl.load(x), nl.ndarray((128, 512), nl.float32)
    if how == "a chain":
        v = nl.ndarray((128, 512), nl.float32)
        nisa.activation(dst=u, op=nl.exp, data=t)
        nisa.tensor_tensor(dst=v, data1=u, data2=t, op=nl.add)
    elif how == "a sum that is not stored":
        nisa.memset(dst=u, value=0.0)
        for _ in range(3):
            nisa.tensor_tensor(dst=u, data1=u, data2=t, op=nl.add)
    elif how == "a product":
        acc = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=acc, stationary=t[:, 0:128], moving=t)
    elif how == "a store under a store":
        nisa.activation(dst=u, op=nl.exp, data=t)
        nisa.dma_copy(dst=out, src=u)
    elif how == "a result under a result":
        nisa.activation(dst=u, op=nl.exp, data=t)
        nisa.tensor_copy(dst=u, src=t)
        nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)
    elif how == "all but the last":
        for i in range(4):
            u = nl.ndarray((128, 512), nl.float32)
            nisa.tensor_scalar(dst=u, data=t, op0=nl.add, operand0=float(i))
        nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)
    nisa.dma_copy(dst=out, src=t)
    return out


@pytest.mark.parametrize(
    "how",
    [
        "a chain",
        "a sum that is not stored",
        "a product",
        "a store under a store",
        "a result under a result",
        "all but the last",
    ],
)
@pytest.mark.parametrize("compute", [True, False])
def test_lost_results(how, compute):
    assert found(lost, X, how, compute=compute) == [("NKI-U04", "warning")]


@beta1.jit
def shifted(x, how):
    out = beta1_nl.ndarray(x.shape, x.dtype, buffer=beta1_nl.shared_hbm)
    t = beta1_nl.load(x)
    if how == "a value":  # what is assigned is a value, whatever it is made of
        t[:, 1:512] = beta1_nl.multiply(t[:, 0:511], 0.5)
    elif how == "in place":
        t[...] = beta1_nl.multiply(t, 0.5)
    elif how == "interleaved":
        beta1_isa.dma_copy(dst=t[0:64], src=t[64:128])
    else:
        beta1_isa.dma_copy(dst=t[1:128], src=t[0:127])
    beta1_nl.store(out, t)
    return out


@pytest.mark.parametrize(
    "how, says",
    [("a value", []), ("in place", []), ("interleaved", []), ("rows", [("NKI-U06", "warning")])],
)
def test_overlaps_of_beta1(how, says):
    assert found(shifted, X, how) == says


@nki.jit
def in_registers(x, commands, one=True):
    t, r = nl.load(x), nl.ndarray((128, 2), nl.float32)
    u = nl.ndarray((128, 512), nl.float32)
    nisa.memset(dst=r, value=0.0)
    nisa.activation_reduce(dst=u, op=nl.exp, data=t, reduce_op=nl.add, reduce_res=r[:, 0:1])
    for i, cmd in enumerate(commands):
        last = one and i == len(commands) - 1
        nisa.activation(
            dst=u,
            op=nl.square,
            data=t,
            reduce_op=nl.add,
            reduce_cmd=cmd,
            reduce_res=r[:, 1:2] if last else None,
        )
        nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)
    return stored(r)


@pytest.mark.parametrize(
    "commands, one, says",
    [
        ((BEGIN, ADD), True, []),
        ((ADD,), True, [("NKI-U05", "warning")]),  # to another sum
        ((BEGIN, nisa.reduce_cmd.idle, ADD), True, []),  # the Scalar Engine leaves it
        ((BEGIN, BEGIN), True, [("NKI-U05", "warning")]),  # the first one is lost
        ((BEGIN, ADD), False, [("NKI-U05", "warning")]),
    ],
)  # none reads it
@pytest.mark.parametrize("compute", [True, False])
def test_sums_in_the_registers_of_the_scalar_engine(commands, one, says, compute):
    assert found(in_registers, X, commands, one, compute=compute) == says


@nki.jit
def spread(x, rows):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    t, at, zero = nl.load(x), nl.ndarray((128, 1), nl.int32), nl.full(x.shape, 0.0, nl.float32)
    nisa.dma_copy(dst=out, src=zero)
    nisa.dma_copy(dst=at, src=rows)
    nisa.dma_copy(dst=out.vector_select(0, at), src=t)
    return out


def test_rows_that_are_the_same_may_meet():
    rows = (np.arange(128, dtype=np.int32) // 2)[:, None]
    assert found(spread, np.ascontiguousarray(X[rows[:, 0]]), rows) == []
    assert found(spread, X, rows) == [("NKI-I16", "warning")]


@nki.jit
def masked(x):
    """Add minus infinity where a mask is, and let exp make zeros of it."""
    t, low = nl.load(x), nl.full(x.shape, -np.inf, nl.float32)
    huge, h = nl.ndarray(x.shape, nl.float32), nl.ndarray(x.shape, nl.float16)
    nisa.tensor_tensor(dst=low, data1=low, data2=t, op=nl.add)
    nisa.tensor_scalar(
        dst=huge, data=t, op0=nl.multiply, operand0=-3e38, op1=nl.multiply, operand1=100.0
    )
    nisa.tensor_scalar(dst=h, data=t, op0=nl.multiply, operand0=-1e9)
    for mask in (low, huge, h):
        e = nl.ndarray(x.shape, nl.float32)
        nisa.activation(dst=e, op=nl.exp, data=mask)
        nisa.tensor_tensor(dst=t, data1=t, data2=e, op=nl.add)
    return stored(t)


def test_infinities_of_masks_are_no_mistake():
    assert found(masked, X) == []


@nki.jit
def counted(first, steps):
    t = nl.load(first)
    for _ in range(steps):
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1)
    return stored(t)


def test_integers_that_float32_has():
    assert found(counted, np.full((128, 4), (1 << 24) - 3, np.int32), 3) == []
    assert found(counted, np.full((128, 4), (1 << 24) - 3, np.int32), 4) == [("NKI-D10", "warning")]


def test_a_tile_of_another_launch_is_an_error_without_arithmetic_as_well():
    kept = []

    @beta1.jit
    def kernel(x):
        out = beta1_nl.ndarray(x.shape, x.dtype, buffer=beta1_nl.shared_hbm)
        kept.append(beta1_nl.load(x))
        beta1_nl.store(out, kept[0][0:128])
        return out

    nkisim.profile(kernel, X)
    for compute in (True, False):
        with pytest.raises(nkisim.NkiError) as caught:
            nkisim.profile(kernel, X, compute=compute)
        assert caught.value.id == "NKI-K19" and "kept[0]" in caught.value.where.text


@pytest.mark.parametrize("compute", [True, False])
def test_one_element_is_copied_to_a_tile_of_one(compute):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(x.shape[0]):
            t = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=x[i])
            nisa.dma_copy(dst=out[i], src=t)
        return out

    assert (
        nkisim.profile(
            kernel, np.zeros((4, 1), np.float32), target="trn2", compute=compute
        ).findings
        == []
    )


@nki.jit
def filled(x, dtype, low):
    """Put the most negative number of float32 where no bound lets x through."""
    t, u = nl.load(x), nl.ndarray(x.shape, dtype)
    first, last = nl.full((128, 1), 0.0, nl.float32), nl.full((128, 1), 64.0, nl.float32)
    nisa.range_select(
        dst=u,
        on_true_tile=t,
        comp_op0=nl.greater_equal,
        comp_op1=nl.less,
        bound0=first,
        bound1=last,
        on_false_value=low,
    )
    return stored(u)


@nki.jit
def grown(x, dtype):
    t, u = nl.load(x), nl.ndarray(x.shape, dtype)
    nisa.activation(dst=u, op=nl.exp, data=t, scale=100.0)
    return stored(u)


def test_infinities_that_a_reference_has_as_well():
    """exp(100) is infinite in float32; in float16 exp(20) is, and the most negative number."""
    low = float(np.finfo(np.float32).min)
    assert found(filled, X, nl.float32, low) == []
    assert found(filled, X, nl.float16, low) == [("NKI-U07", "note")]
    assert found(grown, X, nl.float32) == [("NKI-U07", "note")]
    assert found(grown, X / 5, nl.float16) == [("NKI-U07", "warning")]


@nki.jit
def running(x):
    """Go on with a sum that dst shows itself."""
    t, u = nl.load(x), nl.ndarray(x.shape, x.dtype)
    for part, command in ((slice(0, 256), BEGIN), (slice(256, 512), ADD)):
        nisa.tensor_scalar_cumulative(
            dst=u[:, part],
            src=t[:, part],
            op0=nl.multiply,
            op1=nl.add,
            imm0=1.0,
            reduce_cmd=command,
        )
    return stored(u)


def test_a_running_sum_is_read_where_it_is_written():
    assert found(running, X) == []


@nki.jit
def regrouped(x, how):
    """Compute on a tensor as if it had another shape; store the result as it was, or not."""
    out = nl.ndarray((64, 128), x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x.reshape((128, 64)))
    nisa.activation(dst=t, op=nl.exp, data=t)
    if how == "stored alike":
        nisa.dma_copy(dst=out.reshape((128, 64)), src=t)
        return out
    other = nl.ndarray((128, 64), x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=other, src=t)
    return other.reshape((64, 128)) if how == "turned back" else other


@pytest.mark.parametrize(
    "shape, says", [((32, 256), False), ((128, 64), True), ((64, 2, 64), False)]
)
def test_a_reshape_to_other_sizes_is_none_that_exchanges_them(shape, says):
    @nki.jit
    def kernel(x):
        t = nl.load(x.reshape(shape))
        nisa.activation(dst=t, op=nl.exp, data=t)
        return stored(t)

    assert found(kernel, X[:64, :128].copy()) == ([("NKI-S15", "note")] if says else [])


@pytest.mark.parametrize("how", ["stored alike", "turned back", "kept"])
@pytest.mark.parametrize("compute", [True, False])
def test_a_reshape_that_exchanges_two_sizes_is_a_note_where_it_is_kept(how, compute):
    x = X[:64, :128].copy()
    says = found(regrouped, x, how, compute=compute)
    assert says == ([("NKI-S15", "note")] if how == "kept" else [])


def test_a_helper_that_loads_slices_and_one_is_not_used():
    def load(source):
        t = nl.ndarray(source.shape, nl.float32)
        nisa.dma_copy(dst=t, src=source)
        return t

    @nki.jit
    def kernel(x, used):
        a, b = load(x[:, 0:256]), load(x[:, 256:512])
        nisa.tensor_tensor(dst=a, data1=a, data2=b if used else a, op=nl.add)
        return stored(a)

    assert found(kernel, X, True) == []
    assert found(kernel, X, False) == [("NKI-U04", "note")]


@pytest.mark.parametrize("rows, count, says", [(64, 2, False), (96, 2, True), (32, 5, False)])
@pytest.mark.parametrize("more", [0, 1])
def test_tiles_of_few_partitions_lie_beside_each_other(rows, count, more, says):
    """Tiles of 128 KiB a partition: two of 64 partitions fit side by side, of 96 they do not."""

    @nki.jit
    def kernel(x):
        tiles = [nl.full((rows, 32768), 1.0, nl.float32) for _ in range(count + 2 * more)]
        t = nl.ndarray((rows, 512), nl.float32)
        nisa.dma_copy(dst=t, src=x[0:rows])
        for tile in tiles:
            nisa.tensor_tensor(dst=t, data1=t, data2=tile[:, 0:512], op=nl.add)
        return stored(t)

    ids = [f.id for f in nkisim.run(kernel, X, target="trn2").findings]
    assert ("NKI-M10" in ids) == (says or more > 0)


@pytest.mark.parametrize("other", [True, False])
def test_a_load_that_is_not_used_is_a_warning_where_its_tensor_is_lost(other):
    """Another tensor: an operand was forgotten. The same one: it is only loaded twice."""

    @beta1.jit
    def kernel(x, y):
        out = beta1_nl.ndarray(x.shape, x.dtype, buffer=beta1_nl.shared_hbm)
        t = beta1_nl.load(x)
        beta1_nl.load(y if other else x)
        beta1_nl.store(out, beta1_nl.exp(t))
        return out

    assert found(kernel, X, X.copy()) == [("NKI-U04", "warning" if other else "note")]


@pytest.mark.parametrize("adds", [True, False])
def test_dma_compute_adds_to_what_is_among_its_sources(adds):
    """Twins: with one source it is a copy, whatever AWS's text for coding agents calls it."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        t = nl.load(x)
        nisa.dma_compute(dst=out, srcs=[out, t] if adds else [t], reduce_op=nl.add)
        return out

    run = nkisim.run(kernel, X)
    assert np.allclose(run.outputs, (1 + adds) * X)
    cures = [f.suggestion() for f in run.findings if f.id == "NKI-U04"]
    assert not cures if adds else "put dst among the sources" in cures[0]
