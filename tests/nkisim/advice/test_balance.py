"""Instructions that leave their engine open: shared out between DVE and ACT one by one."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

import nkisim
from model_kernels import ones


def predict(kernel, *args, **kwargs):
    return nkisim.profile(kernel, *args, compute=False, **{"target": "trn2", **kwargs})


def engines(prof, name):
    return [k.engine for k, *_ in prof.trace if k.row.name == name]


@nki.jit
def copies(a):
    """Sixteen copies of a kind, and nothing else to do."""
    out = nl.ndarray((16, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(16):
        nl.store(out[i], nl.copy(nl.load(a)))
    return out


@nki.jit
def beside_sums(a):
    """The same, but the Vector Engine has to add up each copy as well."""
    out = nl.ndarray((16, 128, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(16):
        nl.store(out[i], nisa.tensor_reduce(nl.add, nl.copy(nl.load(a)), axis=1))
    return out


def test_copies_of_one_kind_are_shared_by_what_they_take():
    prof = predict(copies, ones(128, 512))
    found = engines(prof, "tensor_copy")
    busy = prof.schedule.busy
    assert 5 < found.count("vector") < 11 and found.count("scalar") == 16 - found.count("vector")
    assert abs(busy["vector"] - busy["scalar"]) < 0.7  # one of them at most


def test_what_an_engine_has_to_do_anyway_counts():
    found = engines(predict(beside_sums, ones(128, 512)), "tensor_copy")
    assert found.count("scalar") > 14


def test_where_products_are_slow_both_engines_take_turns():
    """A copy is done before the next product is: whoever has been idle for longer has it."""

    @nki.jit
    def drained(a, b):
        out = nl.ndarray((8, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        for i in nl.affine_range(8):
            nl.store(out[i], nl.copy(nisa.nc_matmul(x, y)))
        return out

    found = engines(predict(drained, ones(128, 128), ones(128, 512)), "tensor_copy")
    assert set(found[::2]) | set(found[1::2]) == {"vector", "scalar"}
    assert len(set(found[::2])) == len(set(found[1::2])) == 1


def test_without_the_option_all_go_to_the_engine_that_is_named_first():
    prof = predict(copies, ones(128, 512), compiler=("reorder",))
    assert set(engines(prof, "tensor_copy")) == {"vector"}


def test_an_engine_that_is_asked_for_is_kept():
    @nki.jit
    def asked(a):
        out = nl.ndarray((8, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(8):
            t = nl.load(a)
            nl.store(out[i], nisa.tensor_copy(t, engine=nisa.vector_engine))
        return out

    assert set(engines(predict(asked, ones(128, 512)), "tensor_copy")) == {"vector"}
