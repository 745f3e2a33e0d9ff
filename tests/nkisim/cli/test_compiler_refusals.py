"""What the compiler has refused of instructions that a simulator runs: with it, and without."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.language as older
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

X = np.ones((128, 64), np.float32)
HALF = X.astype(ml_dtypes.bfloat16)


def said(kernel, *args):
    found = nkisim.run(kernel, *args, target="trn2").findings
    return [
        (f.id, f.severity)
        for f in found  # inputs that give a shape, results not read
        if f.id not in ("NKI-O07", "NKI-U04")
    ]


def refused(kernel, *args):
    """Return the rule that a kernel breaks; with NKI_LANGUAGE=teach it is a warning."""
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(kernel, *args, target="trn2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NKI_LANGUAGE", "teach")
        assert (caught.value.id, "warning") in said(kernel, *args)
    return caught.value.id


def stored(tile, shape):
    out = nl.ndarray(shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def two_large_tiles(x, columns):
    a = nl.ndarray((128, 49152), dtype=nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=a[:, 0:64], value=0.0)
    nisa.tensor_copy(dst=b[:, 0:64], src=a[:, 0:64])
    return stored(b[:, 0:64], x.shape)


def test_tiles_of_one_instruction_must_fit_together_those_of_two_need_not():
    assert refused(two_large_tiles, X, 8192) == "NKI-R01"
    assert said(two_large_tiles, X, 2048) == []


@nki.jit
def two_tiles_of(x, partitions):
    a = nl.ndarray((partitions, 65536), dtype=nl.bfloat16, buffer=nl.sbuf)
    b = nl.ndarray((partitions, 65536), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.memset(dst=a[:, 0:64], value=0.0)
    nisa.tensor_copy(dst=b[:, 0:64], src=a[:, 0:64])
    return stored(b[:, 0:64], (partitions, 64))


@pytest.mark.parametrize("partitions, fit", [(32, True), (64, True), (96, False), (128, False)])
def test_tiles_of_few_partitions_lie_beside_each_other(partitions, fit):
    """As in the cross entropy of AWS's kernel library: two of 64 rows and 128 KiB each."""
    if fit:
        assert said(two_tiles_of, X, partitions) == []
    else:
        assert refused(two_tiles_of, X, partitions) == "NKI-R01"


@nki.jit
def scaled(x, wide):
    t = nl.load(x)
    by = nl.load(x[:, 0:1], dtype=nl.float32 if wide else x.dtype)
    u = nl.ndarray(t.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=u, data=t, op0=nl.multiply, operand0=by)
    return stored(u, x.shape)


def test_operand_tiles_of_tensor_scalar_are_float32():
    assert refused(scaled, HALF, False) == "NKI-R02"
    assert said(scaled, HALF, True) == []


@nki.jit
def twice_scaled(x):
    t, u = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=u, data=t, op0=nl.multiply, operand0=t[:, 0:1], op1=nl.add, operand1=t
    )
    return stored(u, x.shape)


def test_operand_tiles_of_scalar_tensor_tensor_are_of_any_dtype():
    """Its documentation says so; the code was met for tensor_scalar alone."""
    assert said(twice_scaled, HALF) == []


@nki.jit
def transposed(x, clear):
    turned = nl.ndarray((64, 128), dtype=x.dtype, buffer=nl.psum)
    if clear:
        nisa.memset(dst=turned, value=0.0)
    nisa.nc_transpose(dst=turned, data=nl.load(x))
    t = nl.ndarray((64, 128), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=t, src=turned)
    return stored(t, (64, 128))


def test_a_narrow_tile_in_psum_is_not_set():
    assert ("NKI-R03", "note") in said(transposed, HALF, True)
    assert said(transposed, HALF, False) == []


@nki.jit
def summed(x, columns):
    t = nl.ndarray((128, columns), dtype=nl.bfloat16, buffer=nl.sbuf)
    u = nl.ndarray((128, columns), dtype=nl.bfloat16, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=t, value=1.0)
    nisa.activation_reduce(dst=u, op=nl.exp, data=t, reduce_op=nl.add, reduce_res=total)
    return stored(total, (128, 1))


def test_an_activation_adds_up_so_many_elements():
    assert said(summed, X, 16385) == [("NKI-R04", "note")]
    assert said(summed, X, 16384) == []


@nki.jit
def triangle(x, dims):
    t = nl.load(x)
    u = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    shape, pattern = ((128, 4, 4, 4), [[1, 4]] * 3) if dims == 4 else ((128, 8, 8), [[1, 8]] * 2)
    nisa.affine_select(
        dst=u.reshape(shape),
        pattern=pattern,
        channel_multiplier=1,
        on_true_tile=t.reshape(shape),
        on_false_value=0.0,
        cmp_op=nl.greater_equal,
    )
    return stored(u, x.shape)


def test_affine_select_writes_up_to_three_dims():
    assert ("NKI-R05", "note") in said(triangle, X, 4)
    assert "NKI-R05" not in {id for id, _ in said(triangle, X, 3)}


@nki.jit
def partial_sums(x, read, onto):
    t = nl.load(x)
    total = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
    u = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=u, value=0.0)
    nisa.nc_matmul(dst=total, stationary=t, moving=t, accumulate=False)
    if read or not onto:
        nisa.tensor_copy(dst=u, src=total)
    nisa.nc_matmul(dst=total, stationary=t, moving=t, accumulate=onto)
    nisa.tensor_tensor(dst=u, data1=u, data2=total, op=nl.add)
    return stored(u, (64, 64))


@pytest.mark.parametrize(
    "read, onto, found",
    [(True, True, [("NKI-R06", "warning")]), (False, True, []), (True, False, [])],
)
def test_a_sum_is_read_when_it_is_complete(read, onto, found):
    assert said(partial_sums, X, read, onto) == found


@nki.jit
def banks(x):
    """Two sums in one tensor, a bank each: one is drained while the other goes on."""
    t = nl.load(x)
    both = nl.ndarray((64, 2, 512), dtype=nl.float32, buffer=nl.psum)
    u = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
    for k in range(2):
        nisa.nc_matmul(dst=both[:, 0, 0:64], stationary=t, moving=t, accumulate=k > 0)
        nisa.nc_matmul(dst=both[:, 1, 0:64], stationary=t, moving=t, accumulate=k > 0)
    nisa.tensor_copy(dst=u, src=both[:, 0, 0:64])
    nisa.nc_matmul(dst=both[:, 1, 0:64], stationary=t, moving=t, accumulate=True)
    nisa.tensor_tensor(dst=u, data1=u, data2=both[:, 1, 0:64], op=nl.add)
    return stored(u, (64, 64))


def test_sums_beside_each_other_in_one_tensor_are_two():
    assert said(banks, X) == []


@nki.jit
def one_bank(x, how):
    """Two sums in one bank: of two tiles that lie there in turn, or of one tile."""
    t = nl.load(x)
    u = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=u, value=0.0)
    made = 2 if how == "made before" else 1
    totals = [
        nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum, address=(0, 2048))
        for _ in range(made)
    ]
    for i in range(2):
        total = totals[i % made]
        if how == "made in turn":
            total = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum, address=(0, 2048))
        nisa.nc_matmul(dst=total, stationary=t, moving=t)
        nisa.nc_matmul(dst=total, stationary=t, moving=t)
        nisa.tensor_tensor(dst=u, data1=u, data2=total, op=nl.add)
    return stored(u, (64, 64))


@pytest.mark.parametrize(
    "how, found",
    [("made in turn", []), ("made before", []), ("one tile", [("NKI-R06", "warning")])],
)
def test_a_tile_at_the_address_of_another_begins_a_sum(how, found):
    assert said(one_bank, X, how) == found


def test_strict_makes_no_errors_of_notes_and_off_is_silent(monkeypatch):
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(scaled, HALF, False, target="trn2")
    assert caught.value.id == "NKI-R02" and "operand0=by" in caught.value.given
    assert ("NKI-R05", "note") in said(triangle, X, 4)
    monkeypatch.setenv("NKI_LANGUAGE", "off")
    assert said(scaled, HALF, False) == []


@nki.jit
def output_in(x, buffer):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer)
    nisa.dma_copy(dst=out, src=x)
    return out


@nki.jit
def its_own_input(x):
    t = nl.load(x)
    nl.store(x, nl.add(t, t))
    return x


def test_outputs_lie_in_shared_hbm(monkeypatch):
    assert refused(output_in, X, nl.hbm) == "NKI-R07"
    assert said(output_in, X, nl.shared_hbm) == []
    assert said(its_own_input, X.copy()) == []
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.3")
    assert refused(output_in, X, nl.hbm) == "NKI-R07"
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.2")
    assert "NKI-R07" not in {id for id, _ in said(output_in, X, nl.hbm)}


# -- the first mistakes of someone who comes from the older dialect -------------------------------


@nki.jit
def without_dst(x):
    t = nl.load(x)
    nisa.tensor_scalar(t, nl.multiply, 2.0)


@nki.jit
def of_both(x):
    import neuronxcc.nki.language as old

    return old.load(x)


def test_who_forgets_the_destination_is_told_where_it_goes():
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(without_dst, X)
    assert "nisa.tensor_scalar(dst=..., data=..., ...)" in caught.value.hint


def test_who_mixes_the_dialects_is_told_so():
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(of_both, X)
    assert "mixes two dialects" in caught.value.hint


def either(x, new):
    """Bring x on chip, for kernels of both dialects."""
    return nl.load(x) if new else older.load(x)


@nki.jit
def by_a_helper(x, new):
    return stored(either(x, new), x.shape)


def test_a_function_that_a_kernel_calls_may_have_both_dialects():
    nkisim.run(by_a_helper, X, True)
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(by_a_helper, X, False)
    assert "mixes two dialects" in caught.value.hint


@nki.jit
def with_operator(x, activation, op):
    t, u = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    if activation:
        nisa.activation(dst=u, data=t, op=op)
    else:
        nisa.tensor_scalar(dst=u, data=t, op0=op, operand0=None)
    return stored(u, x.shape)


@nki.jit
def with_function(x, name):
    return stored(getattr(nl, name)(nl.load(x)), x.shape)


@pytest.mark.parametrize("activation", [False, True])
@pytest.mark.parametrize("name", ["negative", "floor", "ceil", "trunc", "cos", "tan"])
def test_a_function_that_is_no_operator_leads_to_a_call_that_runs(name, activation):
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(with_operator, X, activation, getattr(nl, name))
    assert caught.value.id == "NKI-E11" and f"nl.{name}(t)" in caught.value.hint
    nkisim.run(with_function, X, name)


@nki.jit
def printed(x):
    t = nl.load(x)
    print(t, f"{t}")
    return stored(t, x.shape)


def test_a_tile_that_is_printed_says_how_to_see_its_values(capsys):
    nkisim.run(printed, X)
    assert capsys.readouterr().out == (
        "NkiTensor(shape=(128, 64), dtype=float32, buffer=sbuf): nl.device_print('t', t) shows the "
        "values NkiTensor(shape=(128, 64), dtype=float32, buffer=sbuf)\n"
    )


def rows(x, name):
    """Copy x in four parts; `name` of the copy with a number."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(4):
        t = nl.ndarray((32, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[i * 32 : i * 32 + 32], name=name(i))
        nisa.dma_copy(dst=out[i * 32 : i * 32 + 32], src=t)
    return out


@nki.jit
def one_name_in_a_loop(x):
    return rows(x, lambda i: "load")


@nki.jit
def names_with_an_index(x):
    return rows(x, lambda i: f"load_{i}")


@nki.jit
def no_names(x):
    return rows(x, lambda i: None)


@nki.jit
def one_name_on_two_lines(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=t, src=x, name="copy")
    nisa.dma_copy(dst=out, src=t, name="copy")
    return out


@nki.jit
def one_name_in_a_body(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    def body(i):
        t = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        at = [[x.shape[1], 1], [1, x.shape[1]]]
        nisa.dma_copy(dst=t, src=x.ap(at, scalar_offset=i), name="load")
        nisa.dma_copy(dst=out.ap(at, scalar_offset=i), src=t, name="store")

    nl.fori_loop(0, x.shape[0], body)
    return out


@nki.jit
def a_name_of_each_core(x):
    me = nl.program_id(0)
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x, name="load")
    nisa.dma_copy(dst=out[me], src=t, name="store")
    return out


@pytest.mark.parametrize("kernel", [one_name_in_a_loop, one_name_on_two_lines])
def test_a_second_instruction_of_one_name_is_said(kernel, monkeypatch):
    """One team has met "duplicate op name": a warning, and an error if asked for."""
    assert said(kernel, X) == [("NKI-R39", "warning")]
    for release, known in (("0.5", False), ("0.6", True)):
        monkeypatch.setenv("NKI_LANGUAGE_VERSION", release)
        assert (("NKI-R39", "warning") in said(kernel, X)) is known
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    with pytest.raises(nkisim.NkiError, match="NKI-R39.*another instruction has the name"):
        nkisim.run(kernel, X)


@pytest.mark.parametrize(
    "kernel", [names_with_an_index, no_names, one_name_in_a_body, a_name_of_each_core[2]]
)
def test_names_of_one_instruction_each_are_right(kernel):
    """A body of the chip is one set of instructions, and each core has a program of its own."""
    assert said(kernel, X) == []
