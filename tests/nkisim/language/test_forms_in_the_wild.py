"""More forms of published kernels, and the sentences that their authors would have needed."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import nki as today
import nki.isa as todays_isa
import nki.language as todays_nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError


def data(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


# -- neuronxcc.nki ------------------------------------------------------------------------------


def test_dims_of_one_element_can_be_left_out_beside_an_index_tile():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows = nisa.iota(nl.arange(8)[:, None], dtype=np.uint32)
        back = nl.subtract(7, rows, dtype=np.uint32)
        nl.store(out[0, back], value=nl.load(x[1, rows]))
        nl.store(out[1, back], value=nl.load(x[0, rows]))
        return out

    x = data(2, 8, 1)
    assert (nkisim.simulate(kernel, x) == x[::-1, ::-1]).all()


def test_a_column_of_indices_is_an_index_tile():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((8, 2), dtype=x.dtype, buffer=nl.shared_hbm)
        rows = nisa.iota(nl.arange(8)[:, None] + 8 * nl.arange(2)[None, :], dtype=np.uint32)
        for i in nl.affine_range(2):
            nl.store(out[:, i], value=nl.load(x[0, rows[:, i].as_tile()]))
        return out

    x = data(1, 16, 1)
    assert (nkisim.simulate(kernel, x) == x.reshape(2, 8).T).all()


def test_other_dims_cannot_be_left_out_beside_an_index_tile():
    @nki.jit
    def kernel(x):
        rows = nisa.iota(nl.arange(8)[:, None], dtype=np.uint32)
        return nl.load(x[rows])

    with pytest.raises(NkiError, match="NKI-I11"):
        nkisim.simulate(kernel, data(8, 4))


@pytest.mark.parametrize(
    "note", [nt.mutable_tensor, nt.tensor[nt.mutable], "nt.tensor[nt.mutable]", "nt.mutable_tensor"]
)
def test_each_spelling_of_a_parameter_that_is_written(note):
    def kernel(x):
        nl.store(x, nl.add(nl.load(x), 1.0))
        return x

    kernel.__annotations__["x"] = note
    assert (nkisim.simulate(nki.jit(kernel), data(4, 4)) == data(4, 4) + 1).all()


@pytest.mark.parametrize("note", [nt.tensor, nt.tensor[nt.immutable], "nt.tensor[nt.immutable]"])
def test_other_parameters_are_read_only(note):
    def kernel(x):
        nl.store(x, nl.add(nl.load(x), 1.0))
        return x

    kernel.__annotations__["x"] = note
    with pytest.raises(NkiError, match="NKI-O01"):
        nkisim.simulate(nki.jit(kernel), data(4, 4))


@pytest.mark.parametrize("make", [nki.jit(kernel_return=False), nki.trace])
def test_kernels_of_the_older_style_write_into_their_parameters(make):
    def kernel(x, out):
        nl.store(out, nl.add(nl.load(x), 1.0))

    out = data(4, 4)
    assert nkisim.simulate(make(kernel), data(4, 4), out) is None
    assert (out == data(4, 4) + 1).all()


def hint_of(body) -> str:
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, body(nl.load(x), nl.arange(4)[:, None], nl.arange(4)[None, :]))
        return out

    with pytest.raises(NkiError) as caught:
        nkisim.simulate(kernel, data(4, 4))
    return caught.value.render()


def test_a_mask_as_a_condition_is_sent_to_affine_select():
    text = hint_of(lambda x, p, f: nl.where(p >= f, x, x))
    assert "nisa.affine_select" in text and "nisa.iota" not in text
    assert "nisa.iota" in hint_of(lambda x, p, f: nl.add(x, f))


def test_a_mask_has_no_subscripts():
    assert "new axes to the indices" in hint_of(lambda x, p, f: (p < 3)[:, None])


def test_an_index_expression_is_no_tile():
    text = hint_of(lambda x, p, f: nl.load(x[p, p.T]))
    assert "an index expression has no .T" in text and "nl.arange(n)[None, :]" in text
    assert not hasattr(nl.arange(4), "T")


@pytest.mark.parametrize(
    "module, name, meant",
    [
        (nisa, "tensor_load", "nl.load"),
        (nisa, "tensor_store", "nl.store"),
        (nl, "full_like", "nl.full"),
        (todays_isa, "tensor_load", "nisa.dma_copy"),
    ],
)
def test_names_that_people_and_models_make_up(module, name, meant):
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert f"Write {meant}(" in str(caught.value)


@pytest.mark.parametrize("module", ["kernels", "_private_kernels", "_pre_prod_kernels"])
def test_kernels_of_aws_are_no_misspelt_names_of_the_language(module):
    with pytest.raises(ImportError) as caught:
        __import__(f"neuronxcc.nki.{module}.attention")
    assert "Did you mean" not in str(caught.value) and "nki-samples" in str(caught.value)


@pytest.mark.parametrize("module", [nt, today.typing])
def test_a_missing_name_of_typing_is_told_with_the_public_name(module):
    with pytest.raises(AttributeError) as caught:
        module.tensr  # noqa: B018
    assert "nkisim" not in str(caught.value) and "nt.tensor" in str(caught.value)


def test_only_names_of_nki_are_proposed():
    with pytest.raises(AttributeError) as caught:
        nki.as_kernal  # noqa: B018
    assert "as_kernel" not in str(caught.value)
    with pytest.raises(AttributeError, match=r"nki\.benchmark"):
        nki.benchmrk  # noqa: B018


def test_a_wrong_call_is_answered_with_the_names_of_the_parameters():
    @nki.jit
    def kernel(first: nl.ndarray, second: nl.ndarray = None) -> nl.ndarray:
        return first

    with pytest.raises(NkiError) as caught:
        nkisim.simulate(kernel)
    assert "kernel(first, second=None)" in caught.value.render()


# -- nki ----------------------------------------------------------------------------------------


def copy(x):
    out = todays_nl.ndarray(x.shape, dtype=x.dtype, buffer=todays_nl.shared_hbm)
    todays_isa.dma_copy(dst=out, src=x)
    return out


def test_the_target_of_a_kernel_of_the_first_releases(monkeypatch):
    """An argument of nki.jit until 0.2; later releases raise, which NKI-G37 says."""
    for name in ("trn2", "trn3"):
        kernel = today.jit(platform_target=name)(copy)
        assert nkisim.profile(kernel, data(4, 4)).hw.name == name
        assert (nkisim.simulate(kernel, data(4, 4)) == data(4, 4)).all()
    with pytest.raises(NkiError, match="NKI-T01"):
        today.jit(copy, platform_target="trn9")
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.2")
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    today.jit(copy, platform_target="trn2")
    monkeypatch.delenv("NKI_LANGUAGE_VERSION")
    with pytest.raises(NkiError, match="NKI-G37"):
        today.jit(copy, platform_target="trn2")


def test_a_range_as_a_subscript_is_a_slice():
    @today.jit
    def kernel(x):
        out = todays_nl.ndarray((3, 2), dtype=x.dtype, buffer=todays_nl.shared_hbm)
        rows, columns = todays_nl.affine_range(1, 4), todays_nl.affine_range(0, 4, 2)
        todays_nl.store(out, value=todays_nl.load(x[rows, columns]))
        return out

    assert (nkisim.simulate(kernel, data(4, 4)) == data(4, 4)[1:4, 0:4:2]).all()


def test_a_grid_can_be_an_argument_of_jit():
    def kernel(x):
        out = todays_nl.ndarray((2, 4), dtype=x.dtype, buffer=todays_nl.shared_hbm)
        me = todays_nl.program_id(0)
        todays_isa.dma_copy(dst=out[me : me + 1], src=x[me : me + 1])
        return out

    assert (today.jit(kernel, grid=[2])(data(2, 4)) == data(2, 4)).all()
    assert (today.jit(grid=2)(kernel)(data(2, 4)) == data(2, 4)).all()


def test_numbers_of_members_are_what_the_release_says_of_them(monkeypatch):
    """0.1 and 0.2 took them, and so do libraries that were written then."""
    none = 3  # not in the call: the source alone does not show it

    def kernel(x):
        out = todays_nl.ndarray(x.shape, dtype=x.dtype, buffer=todays_nl.shared_hbm)
        todays_isa.dma_copy(dst=out, src=x, dge_mode=none)
        return out

    x = data(4, 4)
    run = nkisim.run(today.jit(kernel), x, target="trn2")
    assert (run.outputs == x).all()
    said = [f for f in run.findings if f.severity == "warning"]
    assert [f.id for f in said] == ["NKI-G36"] and "dge_mode=none" in said[0].where.text
    assert "Try: dge_mode=nisa.dge_mode.none" in said[0].text
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.2")
    assert not [
        f
        for f in nkisim.run(today.jit(kernel), x, target="trn2").findings
        if f.severity == "warning"
    ]
    monkeypatch.undo()
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    with pytest.raises(NkiError, match="NKI-G36"):
        nkisim.run(today.jit(kernel), x, target="trn2")


def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


def test_launchers_of_launchers_launch_the_kernel_once(capsys, tmp_path, monkeypatch):
    """A script benchmarks a kernel that its author has decorated with nki.benchmark already."""
    monkeypatch.chdir(tmp_path)  # nki.profile writes files
    x = data(128, 64)
    for launcher in (nki.benchmark, nki.profile, nki.baremetal):
        for inside in (nki.benchmark, nki.baremetal, nki.jit):
            twice, once = launcher(inside(doubled)), launcher(doubled)
            capsys.readouterr()
            got = twice(x)
            shown = capsys.readouterr().out
            assert shown == (once(x), capsys.readouterr().out)[1]
            if launcher is nki.baremetal:
                np.testing.assert_array_equal(got, 2 * x)
            else:
                us = [
                    f.benchmark_result.nc_latency.get_latency_percentile(99) for f in (twice, once)
                ]
                assert us[0] == us[1]
    np.testing.assert_array_equal(nki.jit(nki.benchmark(doubled))(x), 2 * x)
    assert nkisim.profile(nki.benchmark(nki.benchmark(doubled)), x).latency_us > 0


@pytest.mark.parametrize("launcher", [nki.benchmark, nki.baremetal, nki.profile])
def test_a_launcher_inside_of_a_kernel_is_a_part_of_it(launcher, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    helper = launcher(doubled)

    @nki.jit
    def kernel(x):
        return helper(x)

    x = data(128, 64)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), 2 * x)


# -- loops that end when the chip says so ---------------------------------------------------------

STEPS = np.array([[3], [0], [2]], np.int32)


@nki.jit(experimental_flags="experimental-native-scalar-support")
def as_often_as_said(x, steps):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(3):
        t = nl.load(x[i])
        times = nl.load(steps[i : i + 1])
        for _ in range(nt.scalar(times)):
            t[...] = nl.add(t, 1.0)
        nl.store(out[i], t)
    return out


@nki.jit(experimental_flags="experimental-native-scalar-support")
def until_nothing_is_left(x, steps):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(3):
        t = nl.load(x[i])
        left = nl.load(steps)
        while nt.scalar(left[i, 0]):
            t[...] = nl.add(t, 1.0)
            left[...] = nl.subtract(left, 1)
        nl.store(out[i], t)
    return out


@pytest.mark.parametrize("kernel", [as_often_as_said, until_nothing_is_left])
def test_a_loop_runs_as_often_as_a_tile_says(kernel):
    """Paged attention in public samples: `range(scalar(steps))`; it was a TypeError of Python's."""
    x = data(3, 8, 16)
    assert (nkisim.simulate(kernel, x, STEPS) == x + STEPS[:, :, None]).all()
    with_values, without = (nkisim.profile(kernel, x, STEPS, compute=c) for c in (True, False))
    assert with_values.instructions == without.instructions
    assert with_values.latency_us == without.latency_us


@pytest.mark.parametrize("shape, id", [((2, 1), "NKI-S09"), ((1, 1), "NKI-U01")])
def test_a_bound_is_one_element_that_was_written(shape, id):
    @nki.jit
    def kernel(x):
        for _ in range(nt.scalar(nl.ndarray(shape, dtype=nl.int32, buffer=nl.sbuf))):
            pass
        return x

    with pytest.raises(NkiError) as error:
        nkisim.simulate(kernel, data(8, 16))
    assert error.value.id == id


@pytest.mark.parametrize("at", [0, 2, 3])
def test_one_index_of_a_tile_chooses_in_any_dim_of_hbm(at):
    """`masks[i_p, step[0, 0], i_f]` in the same kernels: as `masks[:, step[0, 0], :]` does."""

    @nki.jit
    def kernel(x, at):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(8)[:, None], nl.arange(16)[None, :]
        nl.store(out, 0.0)
        step = nl.load(at)
        nl.store(out[i_p, step[0, 0], i_f], nl.load(x[i_p, step[0, 0], i_f]))
        return out

    x = data(8, 4, 16)
    want = np.zeros_like(x)
    want[:, at] = x[:, at]
    assert (nkisim.simulate(kernel, x, np.array([[at]], np.int32)) == want).all()


def test_one_index_of_a_tile_stays_in_its_dim():
    @nki.jit
    def kernel(x, at):
        i_p, i_f = nl.arange(8)[:, None], nl.arange(16)[None, :]
        out = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
        step = nl.load(at)
        nl.store(out, nl.load(x[i_p, step[0, 0], i_f]))
        return out

    with pytest.raises(IndexError, match="NKI-I02|out of bounds"):
        nkisim.simulate(kernel, data(8, 4, 16), np.array([[4]], np.int32))
