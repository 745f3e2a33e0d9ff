"""What the environment and decorators say of a kernel since 0.7: LNC degree, compiler options."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from nki.compiler import AddressRotation, CompileConfig, SpecializationConfig

import nkisim
from nkisim import NkiError

X = np.ones((4, 8), np.float32)
LNC = "NEURON_LOGICAL_NC_CONFIG"


@nki.jit
def cores(x):
    out = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(t, float(nl.num_programs()))
    for i in range(2 // nl.num_programs()):
        at = nl.program_id() + i
        nisa.dma_copy(dst=out[at : at + 1], src=t)
    return out


@pytest.mark.parametrize(
    "degree, kernel, want",
    [
        (None, cores, 1),
        (None, cores[2], 2),
        ("1", cores, 1),
        ("2", cores, 2),
        ("2", cores[2], 2),
        ("1", cores[1], 1),
    ],
)
def test_the_environment_says_on_how_many_cores_a_kernel_runs(degree, kernel, want, monkeypatch):
    if degree is not None:
        monkeypatch.setenv(LNC, degree)
    assert nki.simulate(kernel)(X).tolist() == [[want], [want]]
    assert nkisim.run(kernel, X).outputs[0] == kernel(X)[1] == want


def test_another_degree_than_that_of_a_graph_is_said(monkeypatch):
    """There is no graph here: kernels that were launched so before 0.7 run."""
    for degree, kernel in (("2", cores[1]), ("1", cores[2])):
        monkeypatch.setenv(LNC, degree)
        monkeypatch.delenv("NKI_LANGUAGE", raising=False)
        run = nkisim.run(kernel, X)
        assert run.outputs[0] == kernel.lnc
        said = next(f for f in run.findings if f.id == "NKI-K18")
        assert said.severity == "warning" and f"{LNC}={kernel.lnc}" in said.text
        monkeypatch.setenv("NKI_LANGUAGE", "strict")
        with pytest.raises(NkiError, match="NKI-K18") as caught:
            kernel(X)
        said = caught.value.render()
        assert "NCC_EVRF066" in said and f"{LNC}={kernel.lnc}" in said
    monkeypatch.setenv(LNC, "3")
    with pytest.raises(NkiError, match="NKI-K18.*neither 1 nor 2"):
        cores(X)


def test_before_0_7_brackets_alone_say_it(monkeypatch):
    monkeypatch.setenv(LNC, "2")
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.6")
    assert cores(X)[0] == 1 and cores[2](X)[0] == 2


# -- options of the compiler ---------------------------------------------------------------------


def twice(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    nl.store(out, t)
    return out


def test_options_change_nothing_here():
    kernel = nki.jit(
        compile_config=CompileConfig(
            address_rotation=AddressRotation.DISABLE, dead_code_elim=True, nki_alloc_fallback=False
        ),
        specialization_config=SpecializationConfig(allow_nested_config_override=True),
    )(twice)
    np.testing.assert_array_equal(kernel(X), 2 * X)
    assert nkisim.profile(kernel, X).body_us == nkisim.profile(nki.jit(twice), X).body_us


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: CompileConfig(dead_code_elim="yes"), "dead_code_elim is no bool"),
        (lambda: CompileConfig(address_rotation="AUTO"), "address_rotation is no AddressRotation"),
        (lambda: nki.jit(twice, compile_config={}), "compile_config is no CompileConfig"),
        (lambda: nki.jit(specialization_config=CompileConfig())(twice), "no SpecializationConfig"),
    ],
)
def test_options_are_what_they_say(make, says):
    with pytest.raises(NkiError, match=f"NKI-N14.*{says}"):
        make()
    with pytest.raises(TypeError, match="no_such_option"):
        CompileConfig(no_such_option=True)


INNER = nki.jit(twice, compile_config=CompileConfig(dead_code_elim=True))


def test_an_inner_kernel_goes_by_the_options_of_the_outer_one():
    def outer(x):
        return INNER(x)

    same = nki.jit(outer, compile_config=CompileConfig(dead_code_elim=True))
    assert not [f for f in nkisim.run(same, X).findings if f.id == "NKI-N14"]
    with pytest.raises(NkiError, match="NKI-N14.*another compile_config"):
        nki.jit(outer)(X)
    lets = nki.jit(
        outer, specialization_config=SpecializationConfig(allow_nested_config_override=True)
    )
    run = nkisim.run(lets, X)
    np.testing.assert_array_equal(run.outputs, 2 * X)
    assert [f.severity for f in run.findings if f.id == "NKI-N14"] == ["warning"]
