"""Bad input ends in a sentence with the user's line, never in a traceback from inside."""

from __future__ import annotations

import functools
import traceback

import ml_dtypes
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from neuronxcc import nki

import nkisim
from nkisim.errors import is_ours
from random_loops import compiled

X = np.ones((128, 64), np.float32)


def refused(kernel, *args, exception=nkisim.NkiError, **kwargs):
    """Run a kernel that must be refused; return the error, whose traceback ends with the user."""
    with pytest.raises(exception) as caught:
        nkisim.run(kernel, *args, **kwargs)
    error = caught.value
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert not is_ours(last.filename), "".join(traceback.format_exception(error))
    assert error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
    if isinstance(error, nkisim.NkiError):
        assert error.where is not None and error.where.file == __file__
        assert error.what and error.limit and error.given and error.hint
    return error


@nki.jit
def tiled(x):
    """Double x, in tiles of 128 rows: for sizes that are multiples of 128."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        nl.store(out[rows], nl.load(x[rows]) * 2)
    return out


# -- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64])
def test_64_bit_arrays(dtype):
    error = refused(tiled, np.ones((128, 4), dtype))
    assert error.id == "NKI-D01" and np.dtype(dtype).name in error.what and "astype" in error.hint


@pytest.mark.parametrize(
    "dtype", [np.complex64, "U3", object, "M8[s]", ">f4", ml_dtypes.float8_e4m3fn]
)
def test_arrays_of_other_types(dtype):
    assert refused(tiled, np.zeros((128, 4), dtype)).id in ("NKI-D02", "NKI-D01")


def test_a_size_that_is_no_multiple_of_the_tile():
    """130 rows: the last two are never stored, which is reported; 100 rows: no row is."""
    run = nkisim.run(tiled, np.ones((130, 4), np.float32))
    assert [f.id for f in run.findings] == ["NKI-O04"] and "8 of 520" in run.findings[0].text
    error = refused(tiled, np.ones((100, 4), np.float32))
    assert error.id == "NKI-O03" and error.hint.startswith("nl.store(")
    assert "smaller than a tile" in error.hint


@pytest.mark.parametrize("shape", [(0,), (0, 4), (128, 0)])
def test_size_0(shape):
    assert refused(tiled, np.ones(shape, np.float32)).id == "NKI-K04"


def test_arguments_that_do_not_fit():
    assert refused(tiled).id == "NKI-K04"
    assert refused(tiled, X, X).id == "NKI-K04"
    error = refused(tiled, X, rows=3)
    assert error.id == "NKI-K04" and "rows" in error.what and "tiled(x)" in error.limit


@pytest.mark.parametrize(
    "argument",
    [None, "x", 3, [1, 2], {"a": 1}, object(), b"x"],
    ids=["None", "str", "int", "list", "dict", "object", "bytes"],
)
def test_arguments_that_are_no_arrays(argument):
    refused(tiled, argument, exception=(nkisim.NkiError, AttributeError))


def test_an_unknown_target():
    assert "trn9" in refused(tiled, X, target="trn9").given


@pytest.mark.parametrize("thing", [None, 3, "kernel", X])
def test_a_kernel_that_is_no_function(thing):
    assert refused(thing, X).id == "NKI-K03"


class Called:
    """An object that can be called, as a kernel can; its method is a function."""

    def __call__(self, x):
        return self.copied(x)

    def copied(self, x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out


@pytest.mark.parametrize("thing", [Called(), nki.jit(Called()), functools.partial(Called())])
def test_an_object_that_can_be_called_is_no_function(thing):
    error = refused(thing, X)
    assert error.id == "NKI-K03" and "a function, plain or decorated" in error.limit
    with pytest.raises(nkisim.NkiError, match="NKI-K03"):
        nkisim.profile(thing, X)
    assert (nkisim.run(nki.jit(Called().copied), X).outputs == X).all()


@pytest.mark.parametrize("grid", [0, -1, (2, 0), "a", 1.5, (), None])
def test_grids(grid):
    with pytest.raises(nkisim.NkiError) as caught:
        tiled[grid]
    assert caught.value.id in ("NKI-K05", "NKI-K06")


# -- calls -----------------------------------------------------------------------------------------

CALLS = {
    "too few": lambda x, t: nisa.tensor_tensor(t, t),
    "too many": lambda x, t: nisa.tensor_copy(t, t, t, t),
    "misspelt keyword": lambda x, t: nisa.tensor_scalar(t, op=nl.add, operand0=1),
    "keyword only": lambda x, t: nisa.max8(t),
    "nl too few": lambda x, t: nl.add(t),
    "nl none": lambda x, t: nl.exp(),
    "load nothing": lambda x, t: nl.load(),
    "load None": lambda x, t: nl.load(None),
    "load str": lambda x, t: nl.load("x"),
    "load array": lambda x, t: nl.load(X),
    "load tile": lambda x, t: nl.load(t),
    "load list": lambda x, t: nl.load([x, x]),
    "load dtype": lambda x, t: nl.load(x, dtype="float"),
    "load dtype 3": lambda x, t: nl.load(x, dtype=3),
    "load mask": lambda x, t: nl.load(x, mask=[1]),
    "store swapped": lambda x, t: nl.store(t, x),
    "store None": lambda x, t: nl.store(x, None),
    "store str": lambda x, t: nl.store(x, "0"),
    "store array": lambda x, t: nl.store(x, X),
    "exp None": lambda x, t: nl.exp(None),
    "exp number": lambda x, t: nl.exp(3.0),
    "exp array": lambda x, t: nl.exp(X),
    "exp list": lambda x, t: nl.exp([t]),
    "exp hbm": lambda x, t: nl.exp(x),
    "add numbers": lambda x, t: nl.add(1, 2),
    "add None": lambda x, t: nl.add(t, None),
    "add str": lambda x, t: nl.add(t, "1"),
    "add array": lambda x, t: nl.add(t, X),
    "add hbm": lambda x, t: nl.add(t, x),
    "complex": lambda x, t: nl.add(t, 1j),
    "operator array": lambda x, t: t + X,
    "array operator": lambda x, t: X + t,
    "operator None": lambda x, t: t + None,
    "operator str": lambda x, t: t * "2",
    "operator list": lambda x, t: t - [1, 2],
    "operator hbm": lambda x, t: t + x,
    "hbm operator": lambda x, t: x + x,
    "hbm compare": lambda x, t: x == x,
    "in place hbm": lambda x, t: x.__iadd__(1),
    "in place array": lambda x, t: t.__iadd__(X),
    "assign None": lambda x, t: t.__setitem__(..., None),
    "assign str": lambda x, t: t.__setitem__(..., "abc"),
    "assign list": lambda x, t: t.__setitem__(..., [1, 2]),
    "assign array": lambda x, t: t.__setitem__(..., X),
    "assign hbm": lambda x, t: x.__setitem__(..., t),
    "assign number to hbm": lambda x, t: x.__setitem__(..., 0),
    "iterate": lambda x, t: list(t),
    "iterate hbm": lambda x, t: [row for row in x],
    "unpack": lambda x, t: (lambda a, b: a)(*t),
    "in": lambda x, t: 3 in t,
    "bool": lambda x, t: bool(t),
    "int": lambda x, t: int(t),
    "float": lambda x, t: float(t),
    "numpy function": lambda x, t: np.exp(t),
    "numpy array of": lambda x, t: np.asarray(t) + 1,
    "max": lambda x, t: max(t, t),
    "sum": lambda x, t: sum(t),
    "range": lambda x, t: range(t),
    "subscript str": lambda x, t: t["a"],
    "subscript float": lambda x, t: t[1.5],
    "subscript None": lambda x, t: t[None],
    "subscript bool array": lambda x, t: t[X > 0],
    "subscript list": lambda x, t: t[[1, 2]],
    "subscript too many": lambda x, t: t[0, 0, 0],
    "two ellipses": lambda x, t: t[..., ...],
    "slice float": lambda x, t: t[0:2.5],
    "slice str": lambda x, t: t["a":"b"],
    "slice step": lambda x, t: t[0:4:-1],
    "slice tile": lambda x, t: t[t:t],
    "slice empty": lambda x, t: t[:, 4:4],
    "slice beyond": lambda x, t: nl.exp(t[:, 0:65]),
    "int beyond": lambda x, t: t[:, 64],
    "hbm int beyond": lambda x, t: x[128],
    "ds float": lambda x, t: t[:, nl.ds(0, 2.5)],
    "ds None": lambda x, t: nl.ds(None, 3),
    "ds negative": lambda x, t: nl.exp(t[:, nl.ds(-3, 3)]),
    "ds negative size": lambda x, t: nl.exp(t[:, nl.ds(0, -3)]),
    "ds beyond": lambda x, t: nl.exp(t[:, nl.ds(60, 8)]),
    "arange float": lambda x, t: nl.arange(4.5),
    "arange nothing": lambda x, t: nl.arange(),
    "arange three": lambda x, t: nl.arange(0, 8, 2),
    "arange empty": lambda x, t: nl.arange(0),
    "arange tile": lambda x, t: nl.arange(t),
    "arange sliced": lambda x, t: nl.arange(8)[0:4],
    "arange without None": lambda x, t: t[nl.arange(128)],
    "arange times arange": lambda x, t: nl.arange(4)[:, None] * nl.arange(4)[None, :],
    "arange float product": lambda x, t: nl.arange(4)[:, None] * 0.5,
    "arange division": lambda x, t: nl.arange(4)[:, None] / 2,
    "arange floor division": lambda x, t: nl.arange(4)[:, None] // 2,
    "arange remainder": lambda x, t: nl.arange(4)[:, None] % 2,
    "arange shapes": lambda x, t: nl.arange(4)[:, None] + nl.arange(3)[:, None],
    "arange plus tile": lambda x, t: nl.arange(4)[:, None] + t,
    "arange less tile": lambda x, t: nl.arange(4)[:, None] < t,
    "arange less float": lambda x, t: nl.arange(4)[:, None] < 2.5,
    "mgrid int": lambda x, t: nl.mgrid[4],
    "mgrid step": lambda x, t: nl.mgrid[0:8:2, 0:4],
    "mgrid open": lambda x, t: nl.mgrid[0:, 0:4],
    "mask str": lambda x, t: nl.exp(t, mask="all"),
    "mask tile": lambda x, t: nl.exp(t, mask=t),
    "mask dims": lambda x, t: nl.exp(t, mask=nl.arange(4)[:, None, None] < 2),
    "ndarray no shape": lambda x, t: nl.ndarray(dtype=np.float32),
    "ndarray no dtype": lambda x, t: nl.ndarray((4, 4)),
    "ndarray float": lambda x, t: nl.ndarray((4.5, 4), np.float32),
    "ndarray zero": lambda x, t: nl.ndarray((0, 4), np.float32),
    "ndarray negative": lambda x, t: nl.ndarray((-1, 4), np.float32),
    "ndarray str": lambda x, t: nl.ndarray("abc", np.float32),
    "ndarray None": lambda x, t: nl.ndarray(None, np.float32),
    "ndarray empty": lambda x, t: nl.ndarray((), np.float32),
    "ndarray dtype": lambda x, t: nl.ndarray((4, 4), "flaot32"),
    "ndarray buffer": lambda x, t: nl.ndarray((4, 4), np.float32, buffer="sbuf"),
    "ndarray tile shape": lambda x, t: nl.ndarray(t, np.float32),
    "huge": lambda x, t: nl.ndarray((128, 10**12), np.float32),
    "zeros": lambda x, t: nl.zeros((4, None), np.float32),
    "full str": lambda x, t: nl.full((4, 4), "a", np.float32),
    "full None": lambda x, t: nl.full((4, 4), None, np.float32),
    "zeros_like None": lambda x, t: nl.zeros_like(None),
    "par_dim float": lambda x, t: nl.ndarray((2, nl.par_dim(4.5), 4), np.float32),
    "par_dim None": lambda x, t: nl.par_dim(None),
    "loop float": lambda x, t: list(nl.affine_range(2.5)),
    "loop nothing": lambda x, t: list(nl.affine_range()),
    "loop tile": lambda x, t: list(nl.sequential_range(t)),
    "static float": lambda x, t: list(nl.static_range(65 / 2)),
    "static nothing": lambda x, t: list(nl.static_range()),
    "step zero": lambda x, t: list(nl.affine_range(0, 4, 0)),
    "reshape size": lambda x, t: t.reshape((128, 65)),
    "reshape None": lambda x, t: t.reshape(None),
    "reshape str": lambda x, t: t.reshape("abc"),
    "reshape nothing": lambda x, t: t.reshape(),
    "reshape float": lambda x, t: t.reshape((128, 7.5, 8)),
    "broadcast": lambda x, t: t.broadcast_to((128, 128)),
    "broadcast None": lambda x, t: t.broadcast_to(None),
    "broadcast int": lambda x, t: t.broadcast_to(3),
    "nl.broadcast None": lambda x, t: nl.broadcast_to(None, shape=(4, 4)),
    "nl.broadcast no shape": lambda x, t: nl.broadcast_to(t),
    "expand": lambda x, t: t.expand_dims(7),
    "expand None": lambda x, t: t.expand_dims(None),
    "nl.expand": lambda x, t: nl.expand_dims(X, 1),
    "view": lambda x, t: t.view(np.float64),
    "view None": lambda x, t: t.view(None),
    "astype": lambda x, t: t.astype("no"),
    "astype hbm": lambda x, t: x.astype(np.float16),
    "axis None": lambda x, t: nl.sum(t),
    "axis 0": lambda x, t: nl.sum(t, axis=0),
    "axis 2": lambda x, t: nl.sum(t, axis=2),
    "axis str": lambda x, t: nl.sum(t, axis="x"),
    "axis empty": lambda x, t: nl.sum(t, axis=()),
    "mean axis": lambda x, t: nl.mean(t, None),
    "softmax axis": lambda x, t: nl.softmax(t, axis=0),
    "rms_norm": lambda x, t: nl.rms_norm(t, None, axis=1, n=64),
    "matmul shapes": lambda x, t: nl.matmul(t, t),
    "matmul None": lambda x, t: nl.matmul(t, None),
    "matmul array": lambda x, t: nisa.nc_matmul(t, X),
    "matmul tiling": lambda x, t: nisa.nc_matmul(t, t, tile_position=3, tile_size=(32, 32)),
    "transpose axes": lambda x, t: nisa.dma_transpose(x, axes=(0, 1)),
    "transpose engine": lambda x, t: nisa.nc_transpose(t, engine="fast"),
    "copy engine": lambda x, t: nisa.tensor_copy(t, engine="fast"),
    "op None": lambda x, t: nisa.tensor_tensor(t, t, op=None),
    "op str": lambda x, t: nisa.tensor_tensor(t, t, op="plus"),
    "op called": lambda x, t: nisa.tensor_reduce(max, t, axis=1),
    "op list": lambda x, t: nisa.tensor_tensor(t, t, op=[nl.add]),
    "op tile": lambda x, t: nisa.tensor_tensor(t, t, op=t),
    "activation op": lambda x, t: nisa.activation(op=nl.add, data=t),
    "activation bias": lambda x, t: nisa.activation(nl.exp, t, bias=1.0),
    "activation scale": lambda x, t: nisa.activation(nl.exp, t, scale="2"),
    "reduce_cmd": lambda x, t: nisa.activation(nl.exp, t, reduce_cmd="reset"),
    "iota": lambda x, t: nisa.iota(t, np.int32),
    "iota dtype": lambda x, t: nisa.iota(nl.arange(4)[None, :], None),
    "memset": lambda x, t: nisa.memset((4, 4), t, np.float32),
    "memset shape": lambda x, t: nisa.memset(None, 0, np.float32),
    "affine_select": lambda x, t: nisa.affine_select(True, t, 0),
    "affine_select value": lambda x, t: nisa.affine_select(nl.arange(128)[:, None] > 3, t, t),
    "shuffle": lambda x, t: nisa.nc_stream_shuffle(t, t, [0] * 31),
    "shuffle None": lambda x, t: nisa.nc_stream_shuffle(t, t, None),
    "predicated": lambda x, t: nisa.tensor_copy_predicated(src=t, dst=None, predicate=t),
    "gather": lambda x, t: nl.gather_flattened(t, t),
    "where": lambda x, t: nl.where(t > 0, "a", t),
    "where condition": lambda x, t: nl.where(True, t, t),
    "dropout": lambda x, t: nl.dropout(t, "half"),
    "rand": lambda x, t: nl.rand(None),
    "seed": lambda x, t: nl.random_seed("a"),
    "scan": lambda x, t: nisa.tensor_tensor_scan(t, t, None, np.add, np.add),
    "dma_copy None": lambda x, t: nisa.dma_copy(dst=t, src=None),
    "dma_copy positional": lambda x, t: nisa.dma_copy(t, x),
    "dma_copy sizes": lambda x, t: nisa.dma_copy(dst=t, src=x[0:64]),
    "dma_copy oob": lambda x, t: nisa.dma_copy(dst=t, src=x, oob_mode="skip"),
    "constant": lambda x, t: nl.shared_constant("abc"),
    "constant None": lambda x, t: nl.shared_constant(None),
    "identity": lambda x, t: nl.shared_identity_matrix(None),
    "program_id": lambda x, t: nl.program_id("x"),
    "num_programs": lambda x, t: nl.num_programs(5),
    "address": lambda x, t: ncc.sbuf.mod_alloc(base_addr="0"),
    "address negative": lambda x, t: ncc.sbuf.mod_alloc(base_addr=-4),
    "address missing": lambda x, t: ncc.sbuf.mod_alloc(),
    "tiles": lambda x, t: ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles="ab"),
    "alloc None": lambda x, t: nl.ndarray((4, 4), np.float32, buffer=ncc.sbuf.alloc(None)),
    "alloc short": lambda x, t: nl.ndarray(
        (4, 4), np.float32, buffer=ncc.sbuf.alloc(lambda i, p, f: 0)
    ),
    "assert_shape": lambda x, t: t.assert_shape(None),
    "spmd_dim": lambda x, t: nl.spmd_dim(2, 3),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_call_ends_in_a_sentence(call):
    def kernel(x):
        out = nl.ndarray((1, 1), np.float32, buffer=nl.shared_hbm)
        nl.store(out, 0)
        call(x, nl.load(x))
        return out

    error = refused(kernel, X, exception=(nkisim.NkiError, AttributeError, TypeError))
    assert len(str(error)) > 20


@pytest.mark.parametrize(
    "module, name, hint",
    [
        (nl, "laod", "nl.load"),
        (nl, "afine_range", "affine_range"),
        (nisa, "tensor_tenser", "tensor"),
        (nisa, "activate", "nisa.activation"),
        (ncc, "skip_middle_end", "skip_middle_end_trans"),
        (nki, "jitt", "nki.jit"),
        (nl, "flaot32", "nl.float32"),
    ],
)
def test_misspelt_names_get_a_suggestion(module, name, hint):
    def kernel(x):
        return getattr(module, name)(x)

    assert hint in str(refused(kernel, X, exception=AttributeError))


def test_names_that_are_not_modelled_say_so():
    def kernel(x):
        return nl.all_reduce(x)

    assert "not modelled" in str(refused(kernel, X, exception=AttributeError))


@pytest.mark.parametrize("name", ["T", "sum", "flatten", "transpose", "lenght", "data"])
def test_members_that_tiles_do_not_have(name):
    def kernel(x):
        return getattr(nl.load(x), name)

    assert name in str(refused(kernel, X, exception=AttributeError))


def test_calls_outside_of_a_kernel():
    for call in (
        lambda: nl.load(X),
        lambda: nl.add(X, X),
        lambda: nl.zeros((4, 4), np.float32),
        lambda: nisa.max8(src=X),
        lambda: nl.affine_range(3),
        lambda: nl.program_id(0),
    ):
        with pytest.raises(nkisim.NkiError) as caught:
            call()
        assert caught.value.id == "NKI-K01"
        assert not is_ours(traceback.extract_tb(caught.value.__traceback__)[-1].filename)


# -- any call with any arguments -------------------------------------------------------------------

NO_CALLS = "Any Tensor Index Indirect MGrid Slice DirectBuffer fail integer machine as_int".split()
NAMES = [
    (module, name)
    for module in (nisa, nl)
    for name in sorted(vars(module))
    if not name.startswith("_") and name not in NO_CALLS
    if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
]
TENSORS = "x row tile half ints psum column cube index grid mask".split()
NUMBERS = [None, 0, 1, -1, 7, 1.5, True, 2**40, float("nan"), np.int64(3)]
OTHERS = ["a", (), (4, 4), (128, 64), [1], {}, np.float32, "int8", nl.add, np.exp, X, object()]
THINGS = [*TENSORS, *NUMBERS, *OTHERS]
KEYWORDS = (
    "mask dtype engine axis op data src dst shape value bias scale "
    "reduce_op reduce_res reduce_cmd keepdims transpose_x buffer"
).split()


@settings(
    max_examples=600, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    which=st.sampled_from(NAMES),
    args=st.lists(st.sampled_from(THINGS), max_size=5),
    kwargs=st.dictionaries(st.sampled_from(KEYWORDS), st.sampled_from(THINGS), max_size=2),
)
def test_any_call_raises_nothing_but_sentences(which, args, kwargs):
    def kernel(x, row):
        out = nl.ndarray((1, 1), np.float32, buffer=nl.shared_hbm)
        nl.store(out, 0)
        tile = nl.load(x)
        made = {
            "x": x,
            "row": row,
            "tile": tile,
            "half": nl.copy(tile, dtype=np.float16),
            "ints": nl.copy(tile, dtype=np.int32),
            "column": tile[:, 0:1],
            "psum": nl.zeros((128, 64), np.float32, buffer=nl.psum),
            "cube": tile.reshape((128, 8, 8)),
            "index": nl.arange(128)[:, None],
            "grid": nl.mgrid[0:128, 0:64],
            "mask": nl.arange(128)[:, None] < 64,
        }

        def real(thing):
            return made.get(thing, thing) if isinstance(thing, str) else thing

        result = getattr(*which)(*map(real, args), **{k: real(v) for k, v in kwargs.items()})
        if hasattr(result, "settle"):
            result.settle()
        return out

    try:
        nkisim.run(kernel, X, X[:1])
    except (nkisim.NkiError, AttributeError, IndexError, TypeError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        assert not is_ours(last.filename) and str(error)
        if isinstance(error, nkisim.NkiError):
            assert error.where is not None and error.where.file == __file__


# -- arguments of instructions --------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        lambda t: nl.zeros((), dtype=nl.float32),
        lambda t: nl.full((), 1.0, dtype=nl.float32),
        lambda t: nisa.memset((), 1.0, nl.float32),
        lambda t: nl.sum(t, axis="1"),
        lambda t: ~t,
        lambda t: nl.invert(t),
        lambda t: t // 2,
        lambda t: nisa.nc_transpose(t, engine="tensor"),
        lambda t: nisa.tensor_copy(t, engine="vector"),
        lambda t: nisa.tensor_tensor(t, t, nl.add, engine="vector"),
    ],
)
@pytest.mark.parametrize("compute", [True, False])
def test_an_argument_of_another_kind(line, compute):
    @nki.jit
    def kernel(x):
        line(nl.load(x))

    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.profile(kernel, X, compute=compute)
    assert caught.value.id != "NKI-X01" and caught.value.where.file == __file__


# -- loops -----------------------------------------------------------------------------------------

RANGES = {
    "range(2.0)": "NKI-K05",
    "range(x.shape)": "NKI-K05",
    "range('2')": "NKI-K05",
    "range()": "NKI-K05",
    "range(x)": "NKI-K05",
    "range(0, 2, 0)": "NKI-L03",
    "nl.static_range(1.5)": "NKI-K05",
    "nl.static_range()": "NKI-K05",
    "nl.static_range(0, 2, 0)": "NKI-L03",
    "nl.affine_range(0, 2, 0)": "NKI-L03",
}


@pytest.mark.parametrize("given", RANGES)
def test_what_no_loop_runs_over(given):
    kernel = compiled(
        f"""
def kernel(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in {given}:
        nl.store(out, value=nl.load(x))
    return out
""",
        nki,
        nl=nl,
    )
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(kernel, X)
    error = caught.value
    assert error.id == RANGES[given] and error.where.line == 4
    cures = ("//", "the host", "shape[0] here is 128")
    assert error.what.endswith("does not move") or any(cure in error.hint for cure in cures)


@pytest.mark.parametrize(
    "given, kind",
    [
        ([[1.0, 2.0]], "list"),
        (((1.0,), (2.0,)), "tuple"),
        (3.5, "float"),
        ("x", "str"),
    ],
)
@pytest.mark.parametrize("dialect", ["beta1", "nki"])
def test_a_list_in_place_of_a_tensor_is_said_by_the_name_of_the_argument(dialect, given, kind):
    """It was an AttributeError: 'list' object has no attribute 'shape'."""
    import nki as today

    @(nki if dialect == "beta1" else today).jit
    def kernel(x, y):
        out = nl.ndarray(y.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        return out

    for call in (lambda: kernel(X, given), lambda: kernel(X, y=given)):
        with pytest.raises(nkisim.NkiError) as caught:
            call()
        assert caught.value.id == "NKI-K04" and caught.value.where.function == "kernel"
        assert f"argument y of kernel is a {kind}: it has no .shape" in str(caught.value)
        assert "np.array(y" in caught.value.hint


def test_an_attribute_error_of_something_else_stays_one():
    @nki.jit
    def kernel(x, options):
        return [1.0].shape if options is None else options.shapes

    for options in (None, [1.0], "text"):
        with pytest.raises(AttributeError):
            kernel(X, options)


def test_a_tensor_of_torch_that_has_no_values_is_named():
    torch = pytest.importorskip("torch")

    @nki.jit
    def kernel(x):
        return x

    for x in (torch.ones(4, 4, device="meta"), torch.ones(4, 4).to_sparse()):
        with pytest.raises(nkisim.NkiError, match="argument x is a tensor of torch without") as c:
            kernel(x)
        assert c.value.id == "NKI-K04"


def test_a_masked_array_is_refused_where_something_is_masked():
    """Its mask was lost without a word."""
    x = np.ma.masked_array(X, mask=X == X[0, 0])
    error = refused(tiled, x)
    assert error.id == "NKI-K04" and "masked array" in error.what and "filled" in error.hint
    plain = nkisim.simulate(tiled, X)
    assert (nkisim.simulate(tiled, np.ma.masked_array(X)) == plain).all()
