"""Traps of the package nki: what people expect of it and it does not do, each as it is."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import nki.typing as nt
import numpy as np
import pytest

import nkisim
from nkisim import NkiError

RNG = np.random.default_rng(0)


def array(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def through(body, *arrays, target="trn2"):
    """Run `body(*HBM tensors)`, which returns a tile in SBUF; return its elements."""

    def kernel(*xs):
        t = body(*xs)
        out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=t)
        return out

    return nkisim.run(nki.jit(kernel), *arrays, target=target).outputs


def refused(id, body, *arrays, target="trn2", text=""):
    with pytest.raises(NkiError, match=id) as caught:
        through(body, *arrays, target=target)
    assert text in caught.value.render()


# -- subscripts ---------------------------------------------------------------------------------


def shapes_of(body, *arrays):
    seen = []

    def kernel(x):
        seen.extend(body(x))
        nl.store(x, 0.0)

    nkisim.run(nki.jit(kernel), *arrays)
    return seen


def test_an_index_keeps_the_partition_dim_and_drops_one_of_hbm():
    def body(x):
        t = nl.ndarray((128, 64, 32), dtype=nl.float32)
        return [
            t[0].shape,
            t[:, 0, 10].shape,
            t[0, 0, 10].shape,
            t[-1].shape,
            x[0].shape,
            x[0, 0].shape,
            t[..., 3].shape,
            t[:, 4:20:4, nl.ds(8, 8)].shape,
        ]

    assert shapes_of(body, array(8, 6)) == [
        (1, 64, 32),
        (128, 1),
        (1, 1),
        (1, 64, 32),
        (6,),
        (1,),
        (128, 64),
        (128, 4, 8),
    ]


@pytest.mark.parametrize("key", [np.s_[0:129], np.s_[:, 60:70], np.s_[200], np.s_[7:5]])
def test_a_slice_outside_is_an_error(key):
    refused("NKI-I01", lambda x: nl.ndarray((128, 64), dtype=nl.float32)[key], array(4, 4))


def test_a_view_without_elements_can_be_made_and_not_used():
    """A core with nothing to do slices its part, and leaves its loop out."""
    assert shapes_of(lambda x: [x[3:3].shape, x[:, nl.ds(2, 0)].shape], array(8, 6)) == [
        (0, 6),
        (8, 0),
    ]
    refused("NKI-I01", lambda x: nl.load(x[3:3]), array(8, 6))
    refused("NKI-I01", lambda x: nisa.dma_copy(nl.load(x), x[3:3]), array(8, 6))


def test_a_shape_is_a_tuple():
    assert shapes_of(lambda x: [x.shape == (8, 6), x.shape == [8, 6]], array(8, 6)) == [True, False]


def test_views_change_no_partition():
    def views(x):
        t = nl.ndarray((64, 24), dtype=nl.float32)
        u = nl.ndarray((64, 4, 6), dtype=nl.float32)
        return [
            t.reshape((64, 4, 6)).shape,
            t.reshape_dim(1, (4, -1)).shape,
            u.flatten_dims(1, 2).shape,
            u.permute((0, 2, 1)).shape,
            u.expand_dim(1).broadcast(1, 5).shape,
            u.select(1, 2).shape,
            t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4}).shape,
            u.slice(2, 1, 5, 2).shape,
            u.permute((0, 2, 1)).is_contiguous(),
            t.get_pattern(),
            t.view(nl.uint8).shape,
        ]

    assert shapes_of(views, array(8, 6)) == [
        (64, 4, 6),
        (64, 4, 6),
        (64, 24),
        (64, 6, 4),
        (64, 5, 4, 6),
        (64, 6),
        (64, 6, 4),
        (64, 4, 2),
        False,
        [[24, 64], [1, 24]],
        (64, 96),
    ]
    for bad in (
        lambda t: t.reshape((32, 48)),
        lambda t: t.permute((1, 0)),
        lambda t: t.expand_dim(0),
    ):
        refused(
            "NKI-S07", lambda x, bad=bad: bad(nl.ndarray((64, 24), dtype=nl.float32)), array(4, 4)
        )


def test_a_write_through_a_view_is_seen_by_all():
    def body(x):
        t = nl.load(x)
        nisa.memset(t.reshape((4, 2, 3)).select(1, 1), 7.0)
        return t

    x = array(4, 6)
    got = through(body, x)
    assert (got[:, 3:] == 7).all() and (got[:, :3] == x[:, :3]).all()


# -- access patterns ----------------------------------------------------------------------------


def test_a_pattern_addresses_the_storage():
    def body(x):
        t = nl.load(x)  # (8, 12)
        return t[:, 2:12].ap([[12, 8], [3, 4]], offset=-2)  # added to the view's own 2

    x = array(8, 12)
    assert (through(body, x) == x[:, ::3]).all()


def test_the_first_pair_on_chip_is_the_partitions():
    refused("NKI-N03", lambda x: nl.load(x)[:, 0:4].ap([[4, 8], [1, 4]]), array(8, 12))
    refused("NKI-I01", lambda x: nl.load(x).ap([[12, 8], [5, 4]]), array(8, 12))


def test_a_pattern_that_leaves_its_tensor_is_an_error_where_it_is_used():
    """Kernels make the views of a last group before they ask whether there is one."""

    def body(x, use):
        t = nl.load(x)
        for k in range(3):
            part = t.ap([[12, 8], [1, 6]], offset=6 * k)
            assert part.shape == (8, 6)
            if k < 2 or use:
                nisa.tensor_scalar(part, part, nl.multiply, 2.0)
        return t

    x = array(8, 12)
    assert (through(lambda x: body(x, False), x) == 2 * x).all()
    refused("NKI-I01", lambda x: body(x, True), x)


def test_a_scalar_offset_counts_in_rows_of_the_base():
    index = np.array([[3]], np.int32)

    def rows(x, index):
        t = nl.ndarray((1, 4), dtype=nl.float32)
        nisa.dma_copy(dst=t, src=x.ap([[1, 1], [1, 4]], scalar_offset=nl.load(index)))
        return t

    def columns(x, index):
        t, res = nl.load(x), nl.ndarray((8, 1), dtype=nl.float32)
        nisa.tensor_copy(
            dst=res, src=t.ap([[12, 8], [1, 1]], scalar_offset=nl.load(index), indirect_dim=1)
        )
        return res

    x = array(8, 12)
    assert (through(rows, x, index) == x[3:4, :4]).all()
    assert (through(columns, x, index) == x[:, 3:4]).all()
    assert (through(lambda x, i: _selected(x, i), x, index) == x[3]).all()
    with pytest.raises((NkiError, IndexError)):
        through(rows, x, np.array([[9]], np.int32))


def _selected(x, index):
    t = nl.ndarray((1, 12), dtype=nl.float32)
    nisa.dma_copy(dst=t, src=x.select(0, nl.load(index)))
    return t


def test_a_vector_offset_ignores_the_first_stride():
    rows = np.array([[5], [0], [2]], np.int32)

    def body(x, rows):
        t = nl.ndarray((3, 12), dtype=nl.float32)
        nisa.dma_copy(dst=t, src=x.ap([[999, 3], [1, 12]], vector_offset=nl.load(rows)))
        return t

    x = array(8, 12)
    assert (through(body, x, rows) == x[[5, 0, 2]]).all()


@pytest.mark.parametrize("flat", [False, True])
def test_a_tensor_that_is_reshaped_whole_is_the_base_of_its_patterns(flat):
    """Twins: an offset counts rows of the tensor that `.ap` is called on, reshaped or not."""
    at = np.array([[17], [40], [3]], np.int32)

    def body(x, at):
        h = x.reshape((96,)) if flat else x
        t = nl.ndarray((3, 1), dtype=nl.float32)
        rows = nl.load(at)
        if not flat:
            nisa.tensor_scalar(rows, rows, nl.right_shift, 3)
        nisa.dma_copy(dst=t, src=h.ap([[1, 3], [1, 1]], vector_offset=rows, indirect_dim=0))
        return t

    x = array(8, 12)
    want = x.reshape(-1)[at] if flat else x[at[:, 0] >> 3, 0:1]
    assert (through(body, x, at) == want).all()


# -- arguments and enums ------------------------------------------------------------------------


def test_enums_are_members():
    assert (nisa.dge_mode.hwdge.value, nisa.dge_mode.none.value) == (2, 3)
    assert nisa.reduce_cmd.load_reduce.value == 4
    assert nisa.nc_version.gen2 < nisa.nc_version.gen3 <= nisa.nc_version.gen4
    for call in (lambda t: nisa.dma_copy(t, t, dge_mode=7), lambda t: nisa.tensor_copy(t, t, "x")):
        refused("NKI-N01", lambda x, call=call: call(nl.load(x)), array(4, 4))


def test_a_number_for_a_member_is_said_and_means_the_member(monkeypatch):
    def kernel(x, mode):
        t = nl.load(x)
        nisa.dma_copy(x, t, dge_mode=mode)
        return x

    assert not nkisim.run(nki.jit(kernel), array(4, 4), nisa.dge_mode.hwdge).findings
    (found,) = nkisim.run(nki.jit(kernel), array(4, 4), 2).findings
    assert (found.id, found.severity) == ("NKI-G36", "warning")
    assert "dge_mode=2" in found.text
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    refused("NKI-G36", lambda x: nisa.dma_copy(x, nl.load(x), dge_mode=2), array(4, 4))


def test_the_name_of_a_member_as_a_string_is_said_and_means_the_member():
    def kernel(x, mode):
        nisa.dma_copy(x, nl.load(x), dge_mode=mode)
        return x

    (found,) = nkisim.run(nki.jit(kernel), array(4, 4), "hwdge").findings
    assert found.id == "NKI-G36" and "Try: dge_mode=nisa.dge_mode.hwdge" in found.text
    refused("NKI-N01", lambda x: nisa.dma_copy(x, nl.load(x), dge_mode="fast"), array(4, 4))


def test_the_truth_of_a_tensor_is_that_it_is_there():
    @nki.jit
    def kernel(x, bias=None):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        if bias:
            nisa.tensor_tensor(t, t, nl.load(bias), nl.add)
        if t:
            nisa.dma_copy(out, t)
        return out

    x = array(4, 4)
    run = nkisim.run(kernel, x, np.zeros((4, 4), np.float32))
    assert (run.outputs == x).all()
    assert [f.severity for f in run.findings if f.id == "NKI-I15"] == ["note", "note"]
    assert "NKI-G27" in [f.id for f in run.findings]  # a tile, by its name: data was meant


def test_the_third_place_of_dma_copy_is_priority():
    refused(
        "NKI-N01",
        lambda x: nisa.dma_copy(nl.load(x), x, nisa.oob_mode.skip),
        array(4, 4),
        text="since 0.4",
    )


def test_a_value_of_memset_is_of_the_kind_of_dst():
    """A float that is a whole number can mean nothing else, and is said."""

    def body(x, value):
        t = nl.ndarray((4, 4), dtype=nl.int32)
        nisa.memset(t, value)
        return t

    refused("NKI-N07", lambda x: body(x, 0.5), array(4, 4))
    refused("NKI-N07", lambda x: body(x, float("inf")), array(4, 4))
    assert (through(lambda x: body(x, 3.0), array(4, 4)) == 3).all()


def test_unary_operators_take_no_operand():
    x = np.abs(array(4, 8)) + 1

    def body(x):
        t = nl.load(x)
        nisa.tensor_scalar(t, t, nl.rsqrt, None, op1=nl.multiply, operand1=2.0)
        return t

    np.testing.assert_allclose(through(body, x), 2 / np.sqrt(x), rtol=1e-5)


def test_reductions_are_over_the_last_dims():
    def body(x, axis):
        t = nl.load(x)
        dst = nl.ndarray((4, 6), dtype=nl.float32)
        nisa.tensor_reduce(dst, nl.add, t, axis)
        return dst

    x = array(4, 5, 6)
    refused("NKI-S10", lambda x: body(x, 1), x)
    y = array(4, 6, 5)
    np.testing.assert_allclose(through(lambda x: body(x, 2), y), y.sum(2), rtol=1e-5)


def test_there_is_one_axis_of_programs():
    def kernel(x):
        assert (nl.program_id(), nl.num_programs(), nl.program_ndim()) == (0, 1, 0)
        return nl.program_id(1)

    with pytest.raises(NkiError, match="NKI-K06"):
        nkisim.run(nki.jit(kernel), array(4, 4))


def test_an_annotation_checks_a_shape():
    def kernel(x: nt.tensor[8, 4]):
        nl.store(x, 0.0)

    kernel.__annotations__["x"] = nt.tensor[8, 4]
    nkisim.run(nki.jit(kernel), array(8, 4))
    with pytest.raises(NkiError, match="NKI-S05"):
        nkisim.run(nki.jit(kernel), array(4, 4))


# -- dtypes and numbers -------------------------------------------------------------------------


def test_integers_are_exact_on_gpsimd_and_not_on_the_vector_engine():
    a = np.full((4, 4), 2**24 + 1, np.int32)

    def add(engine):
        def body(x):
            t = nl.load(x)
            nisa.tensor_tensor(t, t, nl.load(x), nl.add, engine=engine)
            return t

        return through(body, a)

    assert (add(nisa.engine.unknown) == 2 * a).all()
    assert (add(nisa.engine.vector) != 2 * a).any()


def test_a_dma_casts_through_float32_and_hardware_descriptors_do_not_cast():
    x = np.full((4, 4), 2**24 + 1, np.int32)

    def body(x, **how):
        t = nl.ndarray((4, 4), dtype=nl.uint32)
        nisa.dma_copy(dst=t, src=x, **how)
        return t

    assert (through(body, x) == 2**24).all()
    refused("NKI-D05", lambda x: body(x, dge_mode=nisa.dge_mode.hwdge), x)
    assert (through(nl.load, x) == x).all()


def test_comparisons_have_the_dtype_of_their_operands():
    x = array(4, 8)

    def body(x):
        t = nl.greater(nl.load(x), 0.0)
        assert t.dtype == nl.float32 == "float32"
        return t

    assert (through(body, x) == (x > 0)).all()


def test_where_results_and_constants_lie():
    def body(x):
        t = nl.load(x)
        product, turned = nl.matmul(t, t, transpose_x=True), nl.transpose(t)
        assert (product.buffer, turned.buffer) == (nl.psum, nl.psum)
        eye = nl.shared_identity_matrix(4, dtype=nl.float32)
        assert eye.buffer == nl.sbuf and nl.copy(product).buffer == nl.sbuf
        return eye

    assert (through(body, array(4, 4)) == np.eye(4)).all()
    refused("NKI-M01", lambda x: nl.store(x, nl.transpose(nl.load(x))), array(4, 4))
    refused("NKI-M01", lambda x: nisa.dma_copy(x, nl.transpose(nl.load(x))), array(4, 4))


def test_copies_of_integers_are_exact():
    x = np.full((4, 4), 2**24 + 1, np.int32)
    assert (through(lambda x: nl.copy(nl.load(x)), x) == x).all()


def test_var_keeps_its_dims():
    x = array(4, 8)
    got = through(lambda x: nl.var(nl.load(x), 1, keepdims=False), x)
    np.testing.assert_allclose(got, x.var(1, keepdims=True), rtol=1e-4)


def test_what_is_not_found_is_all_ones():
    def body(x, dtype):
        t, idx = nl.load(x), nl.ndarray((4, 8), dtype=dtype)
        vals = nl.full((4, 8), 99.0, nl.float32)
        nisa.nc_find_index8(idx, t, vals)
        return idx

    assert (through(lambda x: body(x, nl.uint32), array(4, 16)) == 0xFFFFFFFF).all()
    assert (through(lambda x: body(x, nl.uint16), array(4, 16)) == 0xFFFF).all()


def test_255_keeps_a_partition():
    def body(x):
        t, dst = nl.load(x), nl.full((32, 4), 5.0, nl.float32)
        nisa.nc_stream_shuffle(dst, t, [1] + [255] * 31)
        return dst

    x = array(32, 4)
    got = through(body, x)
    assert (got[0] == x[1]).all() and (got[1:] == 5).all()


def test_a_dma_transpose_writes_its_shape_exactly():
    def body(x, shape):
        t = nl.ndarray(shape, dtype=nl.float32)
        nisa.dma_transpose(t, x)
        return t

    x = array(16, 8)
    assert (through(lambda x: body(x, (8, 16)), x) == x.T).all()
    refused("NKI-S01", lambda x: body(x, (8, 16, 1)), x)
