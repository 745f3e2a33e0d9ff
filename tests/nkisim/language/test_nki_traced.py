"""NKI 0.7: kernels are traced with Python; scalars, and what a trace cannot ask for."""

from __future__ import annotations

import re
from pathlib import Path

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError

X = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)


def index(n):
    return np.array([[n]], np.int32)


def failed(kernel, *arrays):
    with pytest.raises(NkiError) as caught:
        nkisim.run(nki.jit(kernel), *arrays)
    return caught.value


def number(tile):
    """Return a tile's one element as the kernel computes with it."""
    t = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=tile)
    return nisa.scalar_load(t)


# -- scalars ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "compute, want",
    [
        (lambda i: i * 4 + 1, 29),
        (lambda i: 3 - i, -4),
        (lambda i: i - 9, -2),
        (lambda i: -i, -7),
        (lambda i: +i, 7),
        (lambda i: i * i, 49),
        (lambda i: 2 * i - i, 7),
        (lambda i: (i + 99_993) * (i + 99_993), 1410065408),  # 100000 * 100000 in 32 bits
        (lambda i: i + (2**31 - 1) - 6, -(2**31)),  # the largest, and one
        (lambda i: i * 0 + -(2**31) - 1, 2**31 - 1),
    ],
)
@pytest.mark.parametrize("buffer", ["sbuf", "shared_hbm"])
def test_scalars_are_computed_with_in_32_bits(compute, want, buffer):
    @nki.jit
    def kernel(x):
        t = nl.ndarray((1, 1), dtype=nl.int32, buffer=getattr(nl, buffer))
        nisa.scalar_store(t, compute(number(x)))
        out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=t)
        return out

    assert nki.simulate(kernel)(index(7)).item() == want


def rows_by_scalar(x, i):
    """Two rows by a number that is computed from another one: .ap and .select."""
    out = nl.ndarray((2, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    at = number(i) * 2 + 1
    t = nl.ndarray((1, 16), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x.ap([[16, 1], [1, 16]], scalar_offset=at))
    nisa.dma_copy(dst=out[0:1], src=t)
    nisa.dma_copy(dst=t, src=x.select(0, at - 1).reshape((1, 16)))
    nisa.dma_copy(dst=out[1:2], src=t)
    return out


def test_scalars_are_offsets():
    np.testing.assert_array_equal(nki.simulate(rows_by_scalar)(X, index(2)), X[[5, 4]])
    p = nkisim.profile(nki.jit(rows_by_scalar), X, index(2), compute=False)
    assert p.instructions["dma_copy"] == 5 and p.body_us > 0


def looped(x, count):
    """A loop whose bound is an expression and whose variable is computed with."""
    n = number(count)
    out = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((1, 16), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=out, src=x)

    def body(i):
        assert type(i).__name__ == "NkiScalar"
        nisa.dma_copy(dst=t, src=x.ap([[16, 1], [1, 16]], scalar_offset=i))
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out.ap([[16, 1], [1, 16]], scalar_offset=7 - i), src=t)

    nl.fori_loop(1, n * 2 + 1, body, 2)
    return out


def test_scalars_are_bounds_and_loops_give_them():
    want = X.copy()
    for i in range(1, 5, 2):
        want[7 - i] = 2 * X[i]
    np.testing.assert_array_equal(nki.simulate(looped)(X, index(2)), want)
    times = [nkisim.profile(nki.jit(looped), X, index(n), compute=False) for n in (1, 3)]
    assert [p.instructions["tensor_scalar"] for p in times] == [1, 3]
    assert times[0].body_us < times[1].body_us


def test_a_loop_bounded_by_a_register_gives_registers():
    """0.7: the variable is a scalar unless a bound is a register; 0.6 has registers alone."""

    def kinds(x, low, high):
        seen = []
        nl.fori_loop(low, high, lambda i: seen.append(type(i).__name__))
        return set(seen)

    def kernel(x):
        found.append(kinds(x, 0, 2) | kinds(x, 0, nisa.register_alloc(2)))
        nl.store(x, 0.0)

    found = []
    nkisim.run(nki.jit(kernel), X.copy())
    assert found == [{"NkiScalar", "VirtualRegister"}]


def test_the_variable_of_a_loop_is_a_register_before(monkeypatch):
    seen = []

    def kernel(x):
        nl.fori_loop(0, 2, lambda i: seen.append(type(i).__name__))
        nl.store(x, 0.0)

    for version, frontend in (("0.6", ""), ("0.6", "tracer"), ("0.7", "custom")):
        with monkeypatch.context() as m:
            m.setenv("NKI_LANGUAGE_VERSION", version)
            m.setenv("NKI_COMPILER_FRONTEND", frontend)
            nkisim.run(nki.jit(kernel), X.copy())
    assert len(seen) == 6 and set(seen) == {"VirtualRegister"}


def test_0_6_traces_when_it_is_asked_to(monkeypatch):
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.6")
    monkeypatch.setenv("NKI_COMPILER_FRONTEND", "tracer")
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    assert failed(counted, X, index(3)).id == "NKI-G29"


def test_a_kernel_of_0_6_that_stores_the_variable_goes_on_running():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
        r = nisa.register_alloc()

        def body(i):
            nisa.register_move(r, i)
            nisa.register_store(out, r)
            nisa.register_store(out, i)

        nl.fori_loop(0, 3, body)
        return out

    run = nkisim.run(kernel, X)
    assert run.outputs.item() == 2
    assert ("NKI-N07", "note") in {(f.id, f.severity) for f in run.findings}


REFUSED = [
    ("NKI-N12", lambda s: s // 2, "no operator //"),
    ("NKI-N12", lambda s: 7 % s, "no operator %"),
    ("NKI-N12", lambda s: s / 2, "no operator /"),
    ("NKI-N12", lambda s: s + 1.5, "no integer of its width"),
    ("NKI-N12", lambda s: s * True, "no integer of its width"),
    ("NKI-N12", lambda s: s + 2**31, "no integer of its width"),
    ("NKI-N12", lambda s: s + nisa.register_alloc(1), "no integer of its width"),
    ("NKI-N12", lambda s: (s < 3) + 1, "result of a comparison"),
    ("NKI-N12", lambda s: nl.fori_loop(0, s == 3, print), "result of a comparison"),
    ("NKI-G28", lambda s: 1 if s else 2, "a scalar decides"),
    ("NKI-G28", lambda s: min(s, 3), "a scalar decides"),
    ("NKI-L03", lambda s: nl.affine_range(s), "ends at a scalar"),
    ("NKI-L03", lambda s: nl.while_loop(s, print), "without a register"),
    ("NKI-N02", lambda s: nl.ds(s, 2), "number that the kernel computes"),
    ("NKI-N07", lambda s: nisa.scalar_store(nl.ndarray((1, 1), nl.int32, nl.sbuf), 5), "a scalar"),
    ("NKI-N12", lambda s: nisa.scalar_store(nl.ndarray((1, 1), nl.uint32, nl.sbuf), s), "int32"),
    ("NKI-N12", lambda s: nisa.scalar_load(nl.ndarray((1, 1), nl.float32, nl.sbuf)), "int64"),
    ("NKI-S09", lambda s: nisa.scalar_load(nl.ndarray((1, 2), nl.int32, nl.sbuf)), "one element"),
    ("NKI-U01", lambda s: nisa.scalar_load(nl.ndarray((1, 1), nl.int32, nl.sbuf)), "before"),
    (
        "NKI-U01",
        lambda s: nisa.register_load(nisa.register_alloc(), nl.ndarray((1, 1), nl.int32, nl.sbuf)),
        "before",
    ),
]


@pytest.mark.parametrize("id, use, says", REFUSED)
def test_what_a_scalar_is_not(id, use, says):
    def kernel(x):
        use(number(x))
        nl.store(x, 0)

    error = failed(kernel, index(3))
    assert (error.id, says in error.render()) == (id, True), error.render()


def test_a_scalar_is_no_number_of_python():
    def kernel(x):
        range(number(x))

    assert "a scalar is no Python number" in failed(kernel, index(3)).render()


def test_scalars_need_tracing(monkeypatch):
    def kernel(x):
        nisa.scalar_store(x, number(x) + 1)

    monkeypatch.setenv("NKI_COMPILER_FRONTEND", "custom")
    error = failed(kernel, index(3))
    assert error.id == "NKI-N12" and "without tracing" in error.what
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.6")
    monkeypatch.setenv("NKI_COMPILER_FRONTEND", "tracer")
    assert failed(kernel, index(3)).what == "nisa.scalar_load came with NKI 0.7"


# -- what 0.7 removed ----------------------------------------------------------------------------


def counted(x, count):
    n = nisa.register_alloc()
    nisa.register_load(n, nl.load(count))
    t = nl.load(x)
    for _ in nl.dynamic_range(n):
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, t)
    return out


def while_one(x, count):
    n = nisa.register_alloc()
    left = nl.load(count)
    nisa.register_load(n, left)
    t = nl.load(x)
    while n:
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
        nisa.register_load(n, left)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, t)
    return out


@pytest.mark.parametrize(
    "kernel, id, instead",
    [(counted, "NKI-G29", "nl.fori_loop("), (while_one, "NKI-G28", "nl.while_loop(")],
)
def test_loops_that_0_7_removed_run_as_before_and_say_what_there_is(
    kernel, id, instead, monkeypatch
):
    run = nkisim.run(nki.jit(kernel), X, index(3))
    np.testing.assert_array_equal(run.outputs, 8 * X)
    said = next(f for f in run.findings if f.id == id)
    assert said.severity == "warning" and instead in said.text
    assert "NKI_COMPILER_FRONTEND=custom" in said.text
    for name, value in (
        ("NKI_LANGUAGE_VERSION", "0.6"),
        ("NKI_COMPILER_FRONTEND", "custom"),
        ("NKI_COMPILER_FRONTEND", "parser"),
    ):
        with monkeypatch.context() as m:
            m.setenv(name, value)
            run = nkisim.run(nki.jit(kernel), X, index(3))
            np.testing.assert_array_equal(run.outputs, 8 * X)
            assert (id, "note") in {(f.id, f.severity) for f in run.findings}
            assert {f.severity for f in run.findings} == {"note"}
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    error = failed(kernel, X, index(3))
    assert error.id == id and instead in error.hint


# -- bodies that are traced once -------------------------------------------------------------------


def switched(x, by_python):
    """The last of three iterations doubles, if Python counts them."""
    t, count = nl.load(x), [0]

    def body(i):
        count[0] += 1
        nisa.reciprocal(dst=t, data=t)
        if by_python and count[0] == 3:
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nl.fori_loop(0, 2, lambda k: nisa.reciprocal(dst=t, data=t))

    nl.fori_loop(0, 3, body)
    nl.store(x, t)


def test_iterations_that_differ_by_python_are_found(monkeypatch):
    said = [f for f in nkisim.run(nki.jit(switched), X + 1, True).findings if f.id == "NKI-L12"]
    assert len(said) == 1 and said[0].severity == "warning"
    assert said[0].where.text.startswith("nisa.tensor_scalar(")
    assert "NKI-L12" not in {f.id for f in nkisim.run(nki.jit(switched), X + 1, False).findings}
    monkeypatch.setenv("NKI_COMPILER_FRONTEND", "custom")
    assert "NKI-L12" not in {f.id for f in nkisim.run(nki.jit(switched), X + 1, True).findings}


def test_loops_in_loops_that_run_another_number_of_times_do_not_differ():
    def kernel(x):
        t = nl.load(x)
        nl.fori_loop(
            0, 3, lambda i: nl.fori_loop(0, i + 1, lambda k: nisa.reciprocal(dst=t, data=t))
        )
        nl.store(x, t)
        return x

    run = nkisim.run(nki.jit(kernel), X + 1)
    assert (
        run.findings == []
        and nkisim.profile(nki.jit(kernel), X + 1).instructions["reciprocal"] == 6
    )


# -- all of Python -------------------------------------------------------------------------------


class Sizes(nl.NKIObject):
    rows: int = 8

    def tiles(self, width):
        yield from range(0, width, self.rows)


class Halves(Sizes):
    def tiles(self, width):
        yield from (i // 2 * 2 for i in super().tiles(width))


def test_generators_and_inheritance_run_without_a_word(monkeypatch):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i, start in enumerate(sorted(Halves().tiles(16))):
            try:
                nl.store(out[:, start : start + 8], nl.load(x[:, start : start + 8]))
            finally:
                assert i < 2
        return out

    run = nkisim.run(kernel, X)
    np.testing.assert_array_equal(run.outputs, X)
    assert run.findings == []
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.6")
    assert {"NKI-G01", "NKI-G19"} <= {f.id for f in nkisim.run(kernel, X).findings}


def test_the_kernel_of_the_page_about_the_dialect_computes_what_it_says():
    text = (Path(__file__).parents[3] / "docs" / "nki-dialect.md").read_text(encoding="utf-8")
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", text, re.S) if "def scaled" in b)
    space = {"nki": nki, "nl": nl, "nisa": nisa}
    exec(compile(block, "nki-dialect.md", "exec"), space)
    x = np.arange(200 * 300, dtype=np.float32).reshape(200, 300)
    want = x.copy()
    want[:6] *= 3
    run = nkisim.run(space["scaled"], x, index(3))
    np.testing.assert_array_equal(run.outputs, want)
    assert not [f for f in run.findings if f.severity != "note"]
