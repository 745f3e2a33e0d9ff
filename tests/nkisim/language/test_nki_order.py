"""What a kernel asks for about the order of instructions: with_schedule, depends_on, no_reorder."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError

X = np.ones((128, 2048), np.float32)


@nki.jit
def two_engines(x, how=""):
    """Work on the Scalar and on the Vector Engine that could go on beside each other."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t, u = nl.load(x), nl.load(x)
    for i in range(8):
        if how == "block":
            with nl.no_reorder():
                nisa.activation(t, nl.exp, t)
                nisa.tensor_scalar(u, u, nl.add, 1.0)
                nisa.activation(t, nl.exp, t)
            continue
        first = nisa.activation(t, nl.exp, t, name=f"act{i}")
        nisa.activation(t, nl.exp, t, name=f"more{i}")
        second = nisa.tensor_scalar(u, u, nl.add, 1.0, name=f"add{i}")
        if how == "handles":
            second.depends_on(first)
    nisa.tensor_tensor(t, t, u, nl.add)
    nisa.dma_copy(dst=out, src=t)
    return out


EDGES = [(f"add{i}", [f"act{i}", f"more{i}"]) for i in range(8)] + [
    (f"act{i}", [f"add{i - 1}"]) for i in range(1, 8)
]


def body(kernel, *args):
    return nkisim.profile(kernel, X, *args, compute=False).body_us


def test_edges_take_time_and_change_no_result():
    free, edges = body(two_engines), body(two_engines.with_schedule(EDGES))
    assert edges > 1.2 * free
    assert body(two_engines, "block") > 1.2 * free
    assert free <= body(two_engines, "handles") < edges
    one = nki.simulate(two_engines)(X)
    assert (nki.simulate(two_engines.with_schedule(EDGES))(X) == one).all()
    assert (two_engines(X, "block") == one).all()


def test_an_edge_that_is_there_by_the_data_costs_nothing():
    assert body(two_engines.with_schedule([("act1", "act0")])) == body(two_engines)


@pytest.mark.parametrize("edges", [[("add0", "nothing")], [("nothing", "act0")]])
def test_a_name_that_no_instruction_has_is_an_error(edges):
    with pytest.raises(NkiError, match="NKI-N11") as caught:
        two_engines.with_schedule(edges)(X)
    said = caught.value.render()
    assert "'nothing'" in said and "act0" in said and ".with_schedule(edges)" in said


@pytest.mark.parametrize(
    "edges",
    [
        "add0",
        [("add0",)],
        [("add0", "act0", "act1")],
        [("add0", 3)],
        [("add0", ["act0", None])],
        7,
        [("add0", {"act0": 1}, 2)],
    ],
)
def test_what_is_no_list_of_pairs_is_an_error(edges):
    with pytest.raises(NkiError, match="NKI-N11") as caught:
        two_engines.with_schedule(edges)
    assert '("consumer", "producer")' in caught.value.render()
    assert caught.value.where.file == __file__


def test_an_edge_backwards_is_noted():
    run = nkisim.run(two_engines.with_schedule([("act0", "add7")]), X)
    assert ("NKI-N11", "note") in {(f.id, f.severity) for f in run.findings}


def test_a_handle_depends_on_handles():
    @nki.jit
    def kernel(x):
        t = nl.load(x)
        nisa.activation(t, nl.exp, t).depends_on("load")
        nl.store(x, t)

    with pytest.raises(NkiError, match="NKI-N11"):
        nkisim.run(kernel, X.copy())


def linked(x, kind):
    """An addition on the Vector Engine after an activation that it does not need."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t, u = nl.load(x), nl.load(x)
    first = nisa.activation(t, nl.exp, t)
    second = nisa.tensor_scalar(u, u, nl.add, 1.0)
    if kind is not None:
        second.depends_on(first, kind=kind)
    nisa.tensor_tensor(t, t, u, nl.add)
    nisa.dma_copy(dst=out, src=t)
    return out


def test_a_dependency_is_of_a_kind():
    """At run time it waits; for the scheduler alone it orders the issue, and engines overlap."""
    kernel = nki.jit(linked)
    free, run, issue = (
        body(kernel, k) for k in (None, nisa.dependency.runtime, nisa.dependency.schedule)
    )
    assert free == issue < run


def test_a_dependency_without_a_kind_is_deprecated(monkeypatch):
    said = [f for f in nkisim.run(two_engines, X, "handles").findings if f.id == "NKI-N06"]
    assert [f.severity for f in said] == ["note"] and "nisa.dependency.runtime" in said[0].text
    with pytest.raises(NkiError, match="NKI-N11.*kind is no member"):
        nkisim.run(nki.jit(linked), X, "runtime")
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.6")
    with pytest.raises(NkiError, match="NKI-N11.*came with NKI 0.7"):
        nkisim.run(nki.jit(linked), X, nisa.dependency.runtime)
    assert "NKI-N06" not in {f.id for f in nkisim.run(two_engines, X, "handles").findings}


def looped(x, where):
    t, u = nl.load(x), nl.load(x)
    kept = [nisa.activation(t, nl.exp, t)]

    def step(i):
        one = nisa.tensor_scalar(u, u, nl.add, 1.0)
        two = nisa.tensor_scalar(u, u, nl.add, 1.0)
        if where == "inside":
            two.depends_on(one, kind=nisa.dependency.runtime)
        if where == "into":
            one.depends_on(kept[0], kind=nisa.dependency.runtime)
        kept.append(two)

    nl.fori_loop(0, 3, step)
    last = nisa.tensor_tensor(t, t, u, nl.add)
    if where == "out":
        last.depends_on(kept[1], kind=nisa.dependency.runtime)
    nl.store(x, t)


@pytest.mark.parametrize("where", ["inside", "into"])
def test_an_edge_in_a_loop_of_the_device(where):
    assert nkisim.run(nki.jit(looped), X.copy(), where)


def test_an_edge_out_of_a_loop_of_the_device_is_an_error():
    with pytest.raises(NkiError, match="NKI-N11.*out of a loop"):
        nkisim.run(nki.jit(looped), X.copy(), "out")


def test_both_cores_have_their_edges():
    @nki.jit
    def kernel(x):
        me = nl.program_id()
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        t, u = nl.load(x), nl.load(x)
        nisa.activation(t, nl.exp, t, name="act")
        nisa.tensor_scalar(u, u, nl.add, 1.0, name="add")
        nisa.tensor_tensor(t, t, u, nl.add)
        nisa.dma_copy(dst=out[me], src=t)
        return out

    free, edges = (
        nkisim.profile(k, X, compute=False)
        for k in (kernel[2], kernel.with_schedule([("add", "act")])[2])
    )
    assert edges.body_us > free.body_us and edges.waiting_us == 0
