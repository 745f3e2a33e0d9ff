"""What the matrix of instructions cannot multiply out: pairs of shapes, refusals, registers."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import NkiError
from nkisim.isa.table import ROWS
from nkisim.simulation.launch import launch
from oracle import tensor, vector
from oracle.common import Expected
from rowmatrix.check import out_of_reach, record

F32 = np.float32


def named(*cases):
    """Return parameters of tests; the first value of each is its id."""
    return [pytest.param(*rest, id=name) for name, *rest in cases]


def out(t):
    """Return an HBM tensor with what a tile holds."""
    h = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
    nl.store(h, t)
    return h


def filled(array):
    """Return a tile that can be written and that holds an array."""
    t = nl.ndarray(array.shape, dtype=array.dtype, buffer=nl.sbuf)
    t[...] = nl.load(array)
    return t


def numbers(shape, dtype=F32, scale=1):
    return (scale * np.arange(np.prod(shape)) % 97).reshape(shape).astype(dtype)


# -- shapes of two tiles ---------------------------------------------------------------------------

PAIRS = (
    ((4, 7, 1), (4, 7)),
    ((4, 7), (4, 7, 1)),
    ((4, 1, 7), (4, 7)),
    ((4, 7), (4, 1, 7)),
    ((4, 2, 3), (4, 6)),
    ((4, 6), (4, 2, 3)),
    ((4, 2, 3), (4, 3, 2)),
    ((4, 6, 1), (4, 2, 3)),
    ((4, 1, 6), (4, 6, 1)),
    ((4, 3, 1), (4, 1, 3)),
    ((4, 2, 3, 1), (4, 6)),
    ((4, 2, 3, 4), (4, 24)),
    ((4, 24), (4, 4, 3, 2)),
)
REPEATED = (
    ((4, 3, 1), (4, 3, 5)),
    ((4, 3, 5), (4, 5)),
    ((4, 3, 5), (4, 1)),
    ((4, 1), (4, 3, 5)),
    ((4, 3, 5), (4, 3, 1)),
    ((4, 2, 3, 4), (4, 2, 1, 4)),
)


def _id(row, pair):
    return f"{row}-" + "-".join("x".join(map(str, s)) for s in pair)


def _two_tiles(row, a, b):
    """Return the call of a row with two tiles, and what its oracle says."""
    whole = np.ones(a.shape, bool)
    if row == "tensor_tensor":
        return (lambda x, y: nisa.tensor_tensor(x, y, nl.subtract)), vector.tensor_tensor(
            a, b, "subtract", mask=whole
        )[""]
    if row == "scalar_tensor_tensor":
        kw = {"op0": "add", "operand0": 1.0, "op1": "subtract"}
        return (
            lambda x, y: nisa.scalar_tensor_tensor(
                data=x, operand1=y, op0=nl.add, operand0=1.0, op1=nl.subtract
            )
        ), vector.scalar_tensor_tensor(data=a, operand1=b, mask=whole, **kw)[""]
    return (
        lambda x, y: nisa.tensor_tensor_scan(x, y, 0.0, op0=nl.add, op1=nl.maximum)
    ), vector.tensor_tensor_scan(a, b, 0.0, "add", "maximum", mask=whole)[""]


@pytest.mark.parametrize(
    "row, shapes",
    named(
        *(
            (_id(row, pair), row, pair)
            for row in ("tensor_tensor", "scalar_tensor_tensor", "tensor_tensor_scan")
            for pair in PAIRS
        )
    ),
)
def test_two_tiles_meet_in_element_order(row, shapes):
    a, b = numbers(shapes[0]), numbers(shapes[1], scale=3)
    call, want = _two_tiles(row, a, b)
    got = nkisim.simulate(lambda x, y: out(call(nl.load(x), nl.load(y))), a, b)
    assert got.shape == shapes[0]
    assert np.array_equal(got, want.value)


@pytest.mark.parametrize("shapes", named(*((_id("repeat", pair), pair) for pair in REPEATED)))
def test_free_dims_of_size_one_repeat_where_the_numbers_differ(shapes):
    a, b = numbers(shapes[0]), numbers(shapes[1], scale=3)
    want = vector.tensor_tensor(a, b, "subtract", mask=np.ones((1,)))[""].value
    got = nkisim.simulate(
        lambda x, y: out(nisa.tensor_tensor(nl.load(x), nl.load(y), nl.subtract)), a, b
    )
    assert np.array_equal(got, want)


@pytest.mark.parametrize("shapes", named(*((_id("predicated", pair), pair) for pair in PAIRS)))
def test_a_predicate_meets_the_destination_in_element_order(shapes):
    src, predicate = numbers(shapes[0]), numbers(shapes[1]).astype(np.uint8) % 2
    before = np.full(shapes[0], -1, F32)
    want = vector.tensor_copy_predicated(
        src=src, dst=before, predicate=predicate, mask=np.ones(shapes[0], bool)
    )["dst"]

    def kernel(src, predicate, before):
        dst = filled(before)
        nisa.tensor_copy_predicated(src=nl.load(src), dst=dst, predicate=nl.load(predicate))
        return out(dst)

    got = nkisim.simulate(kernel, src, predicate, before)
    assert np.array_equal(got, np.where(want.written, want.value, before))


@pytest.mark.parametrize("shapes", named(*((_id("select", pair), pair) for pair in PAIRS)))
def test_select_reduce_meets_its_predicate_in_element_order(shapes):
    on_true, predicate = numbers(shapes[0]), numbers(shapes[1]).astype(np.uint8) % 2
    before = np.full(shapes[0], -1, F32)
    want = vector.select_reduce(
        dst=before,
        predicate=predicate,
        on_true=on_true,
        on_false=-7.0,
        mask=np.ones(shapes[0], bool),
    )["dst"]

    def kernel(on_true, predicate, before):
        dst = filled(before)
        nisa.select_reduce(
            dst=dst, predicate=nl.load(predicate), on_true=nl.load(on_true), on_false=-7.0
        )
        return out(dst)

    assert np.array_equal(nkisim.simulate(kernel, on_true, predicate, before), want.value)


@pytest.mark.parametrize(
    "shapes", [((4, 6), (4, 5)), ((4, 2, 3), (4, 4)), ((4, 6), (3, 6)), ((1, 6), (4, 6))]
)
def test_other_numbers_of_elements_are_refused(shapes):
    a, b = map(numbers, shapes)
    with pytest.raises(NkiError, match="NKI-S0"):
        nkisim.simulate(lambda x, y: out(nisa.tensor_tensor(nl.load(x), nl.load(y), nl.add)), a, b)


# -- what the documentation does not allow --------------------------------------------------------


def _on(array):
    return lambda call: (lambda x: out(call(nl.load(x))), array)


F, N, B = (_on(numbers((4, 16), d)) for d in (F32, np.int32, ml_dtypes.bfloat16))


def _range(x, **kw):
    bound = nisa.memset((4, 1), 2, dtype=kw.pop("bounds", nl.float32))
    kw = {"comp_op0": nl.greater, "comp_op1": nl.less, **kw}
    return nisa.range_select(on_true_tile=x, bound0=bound, bound1=bound, **kw)


def _dst(x, call, dtype=nl.float32, shape=None):
    dst = nl.zeros(shape or x.shape, dtype=dtype, buffer=nl.sbuf)
    call(dst)
    return dst


def _reduced(x, call, **kw):
    """Call an instruction whose sums go into a tile of one column."""
    return _dst(x, lambda d: call(reduce_res=d, **kw), shape=(4, 1))


def _sums(x, op0=nl.add, reduce_op=nl.add, **kw):
    kw = {"data": x, "op0": op0, "operand0": 1, "reduce_op": reduce_op, **kw}
    return _reduced(x, nisa.tensor_scalar_reduce, **kw)


def _psum(x):
    """Return a copy of a tile in PSUM."""
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.psum)
    t[...] = x
    return t


def _select(x, predicate=None, **kw):
    predicate = nisa.memset(x.shape, 1, nl.uint8) if predicate is None else predicate
    return _dst(
        x, lambda d: nisa.select_reduce(dst=d, predicate=predicate, on_true=x, on_false=0.0, **kw)
    )


def _predicated(x, predicate=nl.uint8, **kw):
    predicate = nisa.memset(x.shape, 1, predicate)
    return _dst(x, lambda d: nisa.tensor_copy_predicated(dst=d, predicate=predicate, src=x, **kw))


EXCLUDED = (
    ("range_select-on_false_value", F(lambda x: _range(x, on_false_value=7.0))),
    ("range_select-reduce_op", F(lambda x: _range(x, reduce_op=nl.add))),
    ("range_select-comp_op0", F(lambda x: _range(x, comp_op0=nl.add))),
    ("range_select-bound-dtype", F(lambda x: _range(x, bounds=nl.bfloat16))),
    ("range_select-int-data", N(_range)),
    ("select_reduce-predicate-dtype", F(lambda x: _select(x, x))),
    ("select_reduce-on_true-dtype", N(_select)),
    ("select_reduce-reduce_op", F(lambda x: _select(x, reduce_op=nl.add))),
    ("predicated-predicate-dtype", F(lambda x: _predicated(x, nl.float32))),
    ("predicated-predicate-int8", F(lambda x: _predicated(x, nl.int8))),
    ("predicated-src-dtype", B(_predicated)),
    ("tensor_scalar_reduce-bitvec", N(lambda x: _sums(x, nl.bitwise_and))),
    ("tensor_scalar_reduce-reduce_op", F(lambda x: _sums(x, reduce_op=nl.greater))),
    ("tensor_scalar_reduce-reverse0", F(lambda x: _sums(x, reverse0=True))),
    ("scan-bitvec", N(lambda x: nisa.tensor_tensor_scan(x, x, 0, nl.bitwise_and, nl.add))),
    ("partition_reduce-multiply", F(lambda x: nisa.tensor_partition_reduce(nl.multiply, x))),
    (
        "tensor_scalar-scalar-engine-subtract",
        F(lambda x: nisa.tensor_scalar(x, nl.subtract, 2.0, engine=nisa.scalar_engine)),
    ),
    (
        "tensor_scalar-gpsimd-add",
        F(lambda x: nisa.tensor_scalar(x, nl.add, 2.0, engine=nisa.gpsimd_engine)),
    ),
    (
        "tensor_scalar-mixed-classes",
        N(lambda x: nisa.tensor_scalar(x, nl.bitwise_and, 2, op1=nl.add, operand1=1)),
    ),
    ("tensor_scalar-bitvec-float", F(lambda x: nisa.tensor_scalar(x, nl.bitwise_and, 2))),
    (
        "tensor_tensor-gpsimd-maximum",
        F(lambda x: nisa.tensor_tensor(x, x, nl.maximum, engine=nisa.gpsimd_engine)),
    ),
    (
        "tensor_tensor-vector-power",
        F(lambda x: nisa.tensor_tensor(x, x, nl.power, engine=nisa.vector_engine)),
    ),
    (
        "tensor_tensor-bitvec-float-result",
        N(lambda x: nisa.tensor_tensor(x, x, nl.bitwise_or, dtype=nl.float32)),
    ),
    (
        "tensor_reduce-bitvec-float-result",
        N(lambda x: nisa.tensor_reduce(nl.bitwise_or, x, 1, dtype=nl.float32)),
    ),
    (
        "tensor_reduce-bitvec-negate",
        N(lambda x: nisa.tensor_reduce(nl.bitwise_or, x, 1, negate=True)),
    ),
    ("tensor_reduce-op", F(lambda x: nisa.tensor_reduce(nl.greater, x, 1))),
    ("tensor_reduce-partition", F(lambda x: nisa.tensor_reduce(nl.add, x, 0))),
    (
        "affine_select-int32",
        N(lambda x: nisa.affine_select(nl.arange(4)[:, None] >= nl.arange(16)[None, :], x, 0.0)),
    ),
    ("sequence_bounds-dtype", B(lambda x: nisa.sequence_bounds(segment_ids=x[0:1]))),
    (
        "find_index8-dtype",
        F(lambda x: nisa.nc_find_index8(data=x, vals=x[:, 0:8], dtype=nl.float32)),
    ),
    (
        "match_replace8-dst_idx",
        F(
            lambda x: _dst(
                x,
                lambda d: nisa.nc_match_replace8(data=x, vals=x[:, 0:8], imm=0.0, dst_idx=d),
                shape=(4, 8),
            )
        ),
    ),
    ("match_replace8-vals", F(lambda x: nisa.nc_match_replace8(data=x, vals=x[:, 0:7], imm=0.0))),
    ("max8-few", F(lambda x: nisa.max8(src=x[:, 0:7]))),
    ("dropout-int-result", N(lambda x: nisa.dropout(x, 0.0, dtype=nl.float32))),
    (
        "activation_reduce-reduce_op",
        F(lambda x: _reduced(x, nisa.activation_reduce, op=nl.exp, data=x, reduce_op=nl.max)),
    ),
    ("activation-bias-number", F(lambda x: nisa.activation(nl.exp, x, bias=1.0))),
    (
        "stream_shuffle-dtype",
        F(lambda x: _dst(x, lambda d: nisa.nc_stream_shuffle(x, d, [0] * 32), nl.bfloat16)),
    ),
    (
        "dma_copy-rmw-op",
        F(lambda x: _dst(x, lambda d: nisa.dma_copy(dst=d, src=x, dst_rmw_op=nl.multiply))),
    ),
    ("local_gather-index-dtype", N(lambda x: nisa.local_gather(x, x))),
)


# a dtype= that is not that of the destination
IGNORED = (
    ("select_reduce-dtype", F(lambda x: _select(x, dtype=nl.bfloat16))),
    ("predicated-dtype", F(lambda x: _predicated(x, dtype=nl.int8))),
    (
        "stream_shuffle-dtype-argument",
        F(lambda x: _dst(x, lambda d: nisa.nc_stream_shuffle(x, d, [0] * 32, dtype=nl.bfloat16))),
    ),
    (
        "cumulative-dtype",
        F(
            lambda x: _dst(
                x,
                lambda d: nisa.tensor_scalar_cumulative(
                    src=x, dst=d, op0=nl.add, op1=nl.add, imm0=0.0, dtype=nl.bfloat16
                ),
            )
        ),
    ),
)


def not_passed_over(function, array, target):
    """Run a kernel that must be refused, in words that help, or at least be remarked upon."""
    try:
        assert nkisim.run(function, array, target=target).findings, "not a word about it"
    except NkiError as refusal:
        assert refusal.id != "NKI-X01", "the error says nothing that helps"


@pytest.mark.parametrize("kernel", named(*EXCLUDED, *IGNORED))
def test_what_the_documentation_excludes_is_not_passed_over(kernel):
    not_passed_over(*kernel, "trn2")


def _to_psum(call, dtype=nl.int32):
    """Return a kernel's copy of what a call wrote straight into PSUM."""
    t = nl.ndarray((4, 16), dtype=dtype, buffer=nl.psum)
    t[...] = call()
    return nl.copy(t)


def _iota():
    return nisa.iota(nl.arange(4)[:, None] + nl.arange(16)[None, :], nl.int32)


def _below(x):
    return nisa.affine_select(nl.arange(4)[:, None] < nl.arange(16)[None, :], x, 0.0)


ON_GPSIMD = (
    ("tensor_tensor-int32-psum", N(lambda x: nisa.tensor_tensor(_psum(x), x, nl.add))),
    ("tensor_tensor-int32-to", N(lambda x: _to_psum(lambda: nisa.tensor_tensor(x, x, nl.add)))),
    ("tensor_tensor-power-psum", F(lambda x: nisa.tensor_tensor(_psum(x), x, nl.power))),
    ("iota-to-psum", N(lambda x: _to_psum(lambda: _iota()))),
    ("affine_select-to-psum", F(lambda x: _to_psum(lambda: _below(x), nl.float32))),
    ("affine_select-from-psum", F(lambda x: _below(_psum(x)))),
)


@pytest.mark.parametrize("kernel", named(*ON_GPSIMD))
def test_gpsimd_never_touches_psum(kernel):
    """Refused, done by another engine, or with a copy between."""
    function, array = kernel
    try:
        assert not list(out_of_reach(nkisim.run(function, array).trace))
    except NkiError as refusal:
        assert refusal.id != "NKI-X01"


@pytest.mark.parametrize(
    "row", named(*((f"memories-{r.name}", r) for r in ROWS.values() if r.engines == ("gpsimd",)))
)
def test_rows_of_gpsimd_declare_no_psum(row):
    """ "GpSimd instructions cannot touch PSUM"; an operand that is copied first may lie there."""
    assert row.writes == ("sbuf",)
    assert all(
        "psum" not in o.memories or o.copied for o in row.operands if o.name not in row.hidden
    )


def test_the_scalar_engine_has_no_arithmetic_before_trn2():
    function, array = F(lambda x: nisa.tensor_scalar(x, nl.add, 2.0, engine=nisa.scalar_engine))
    assert not nkisim.run(function, array, target="trn2").findings
    not_passed_over(function, array, "trn1")


# -- masks ---------------------------------------------------------------------------------------


def test_a_mask_may_leave_out_the_first_partitions():
    def kernel(x, v, before):
        i_p = nl.arange(64)[:, None, None]
        t, dst = nl.load(x), filled(before)
        dst[...] = nisa.tensor_scalar(t, nl.add, nl.load(v), mask=i_p >= 32)
        return out(dst)

    x, v = numbers((64, 2, 3)), numbers((64, 1), scale=5)
    got = nkisim.simulate(kernel, x, v, np.zeros_like(x))
    assert np.array_equal(got[32:], (x + v[:, :, None])[32:]) and not got[:32].any()


def test_a_mask_of_a_loop_variable_and_an_index_cuts_the_last_tile():
    """The usual use of masks: 3 tiles of 4 rows over a tensor of 10."""

    def kernel(x):
        result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray((10, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f, i_1 = nl.arange(4)[:, None], nl.arange(6)[None, :], nl.arange(1)[None, :]
        for i in nl.affine_range(3):
            inside = i * 4 + i_p < 10
            sums = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.sbuf)
            t = nl.load(x[i * 4 + i_p, i_f], mask=inside)
            t = nisa.activation(
                nl.square,
                t,
                reduce_op=nl.add,
                reduce_res=sums,
                mask=inside,
                reduce_cmd=nisa.reduce_cmd.reset_reduce,
            )
            nl.store(result[i * 4 + i_p, i_f], t, mask=inside)
            nl.store(total[i * 4 + i_p, i_1], sums, mask=inside)
        return result, total

    x = numbers((10, 6)) / 4
    run = nkisim.run(kernel, x)
    assert not run.findings
    assert np.array_equal(run.outputs[0], x * x)
    assert np.array_equal(run.outputs[1], (x * x).sum(axis=1, keepdims=True))
    assert record(launch(kernel, (x,), {}, compute=False).trace) == record(run.trace)


def test_a_predicate_may_be_an_equality():
    x = numbers((4, 6)) + 1
    got = nkisim.simulate(
        lambda x: out(
            nisa.affine_select(nl.arange(4)[:, None] == nl.arange(6)[None, :], nl.load(x), 0.0)
        ),
        x,
    )
    assert np.array_equal(got, np.where(np.arange(4)[:, None] == np.arange(6), x, 0))


def test_a_mask_that_selects_nothing_does_not_seed():
    def kernel(mask):
        nl.random_seed(3, mask=nl.arange(1)[:, None] < (1 if mask else 0))
        return out(nl.rand((4, 5)))

    assert "random_seed" not in nkisim.run(kernel, False).instructions
    assert "random_seed" in nkisim.run(kernel, True).instructions


@pytest.mark.parametrize("cut", ["contraction", "columns", "both"])
def test_masks_of_the_operands_of_a_matmul(cut):
    k = 5 if cut != "columns" else 8
    m, n = (4, 9) if cut != "contraction" else (6, 10)

    def kernel(s, v):
        i_p, i_m, i_n = nl.arange(8)[:, None], nl.arange(6)[None, :], nl.arange(10)[None, :]
        left, right = nl.load(s)[i_p, i_m], nl.load(v)[i_p, i_n]
        left, right = left[(i_p < k) & (i_m < m)], right[(i_p < k) & (i_n < n)]
        return out(nl.copy(nisa.nc_matmul(left, right)))

    s, v = numbers((8, 6)), numbers((8, 10), scale=7)
    want = tensor.nc_matmul(s[:k, :m], v[:k, :n], mask=np.ones((m, n), bool))[""].value
    assert np.array_equal(nkisim.simulate(kernel, s, v), want)


# -- registers, random numbers, accumulation -----------------------------------------------------


def test_activations_add_up_in_the_registers_until_they_are_read():
    """Also "idle does not use the accumulators", and that a reset is zero."""
    cmd = nisa.reduce_cmd

    def kernel(x):
        t, first, second = nl.load(x), *(nl.ndarray((4, 1), dtype=nl.float32) for _ in range(2))
        out(nisa.activation(nl.square, t, reduce_op=nl.add, reduce_cmd=cmd.reset_reduce))
        out(nisa.activation(nl.copy, t))
        out(nisa.activation(nl.relu, t, reduce_op=nl.add, reduce_cmd=cmd.reduce, reduce_res=first))
        out(nisa.activation(nl.copy, t, reduce_op=nl.add, reduce_cmd=cmd.reset, reduce_res=second))
        return out(first), out(second)

    x = numbers((4, 3, 2)) - 8
    first, second = nkisim.simulate(kernel, x)
    want = np.square(x).sum(axis=(1, 2)) + np.maximum(x, 0).sum(axis=(1, 2))
    assert np.array_equal(first[:, 0], want) and not second.any()


def test_selections_keep_their_maximum_in_the_registers():
    """range_select and select_reduce share the registers of the Vector Engine."""
    cmd = nisa.reduce_cmd

    def kernel(x, predicate):
        t, top = nl.load(x), nl.ndarray((4, 1), dtype=nl.float32)
        low, high = nisa.memset((4, 1), 0, nl.float32), nisa.memset((4, 1), 2, nl.float32)
        out(
            nisa.range_select(
                on_true_tile=t,
                comp_op0=nl.greater_equal,
                comp_op1=nl.less,
                bound0=low,
                bound1=high,
                reduce_cmd=cmd.reset_reduce,
            )
        )
        dst = nl.ndarray((4, 6), dtype=nl.float32)
        nisa.select_reduce(
            dst=dst,
            predicate=nl.load(predicate),
            on_true=t,
            on_false=-99.0,
            reduce_cmd=cmd.reduce,
            reduce_res=top,
        )
        return out(top)

    x = np.random.default_rng(1).permutation(24).reshape(4, 6).astype(F32)
    predicate = np.array([[0, 0, 0, 1, 0, 0]] * 4, np.uint8)
    got = nkisim.simulate(kernel, x, predicate, target="trn2")
    assert np.array_equal(got[:, 0], np.maximum(x[:, :2].max(axis=1), x[:, 3]))


def test_random_numbers_lie_in_their_interval_and_follow_the_seed():
    def kernel(seed):
        nl.random_seed(seed)
        return out(nl.rand((64, 40)))

    a, b, c = (nkisim.simulate(kernel, seed) for seed in (7, 7, 8))
    assert a.dtype == F32 and (a >= 0).all() and (a < 1).all()
    assert 0.4 < a.mean() < 0.6 and np.array_equal(a, b) and not np.array_equal(a, c)


@pytest.mark.parametrize("rate, low, high", [(0.25, 0.7, 0.8), (0.0, 1, 1), (1.0, 0, 0)])
@pytest.mark.parametrize("drop", [nisa.dropout, nl.dropout])
def test_dropout_drops_about_as_many_as_it_was_told(drop, rate, low, high):
    """What it keeps is as it was: frameworks divide by 1 - rate."""
    x = np.ones((128, 64), F32)
    got = nkisim.simulate(lambda x: out(drop(nl.load(x), rate)), x)
    assert set(np.unique(got)) <= {0, 1} and low <= got.mean() <= high


def test_a_row_is_repeated_over_partitions():
    x = numbers((1, 3, 4))
    got = nkisim.simulate(lambda x: out(nl.broadcast_to(nl.load(x), shape=(6, 3, 4))), x)
    want: Expected = tensor.broadcast_to(x, shape=(6, 3, 4), mask=np.ones((6, 3, 4), bool))[""]
    assert np.array_equal(got, want.value)


def test_a_store_from_psum_is_a_copy_and_a_store():
    """ "From 2.26 an extra copy is inserted": DMA does not read PSUM."""
    x = numbers((4, 6))
    run = nkisim.run(lambda x: out(_psum(nl.load(x))), x)
    assert np.array_equal(run.outputs, x) and run.instructions["tensor_copy"] == 2


def test_a_copy_that_adds_reads_its_destination():
    def kernel(x, op):
        dst = filled(x)
        nisa.dma_copy(dst=dst, src=x, dst_rmw_op=op)
        return out(dst)

    x = numbers((4, 6))
    plain, adding = nkisim.run(kernel, x, None), nkisim.run(kernel, x, np.add)
    assert np.array_equal(adding.outputs, 2 * x)
    assert record(plain.trace) != record(adding.trace)


def _into_hbm(x, **how):
    """Copy three times into one place, in a loop whose order is free."""
    dst = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(dst, 0.0)
    for _ in nl.affine_range(3):
        nisa.dma_copy(dst=dst, src=nl.load(x), **how)
    return dst


def test_copies_that_add_may_overlap():
    x = numbers((4, 6))
    run = nkisim.run(_into_hbm, x, dst_rmw_op=np.add)
    assert np.array_equal(run.outputs, 3 * x)
    assert not [f for f in run.findings if f.severity != "note"]
    spec = next(k for k in run.trace.op_specs if k.adds)
    assert spec.read_bytes == spec.write_bytes == x.nbytes
    with pytest.raises(NkiError, match="NKI-L04"):
        nkisim.run(_into_hbm, x)
