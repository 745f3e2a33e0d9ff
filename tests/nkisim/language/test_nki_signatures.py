"""Every public function of the package nki 0.6: parameters, their order, defaults, strictness.

`nki_signatures.txt` has one function a line; facts of the reference of NKI 0.6.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import nki
import nki.collectives as nccl
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError
from nkisim.language.nki import versions

MODULES = {"nki": nki, "nisa": nisa, "nl": nl}
TABLE = dict(
    line.rstrip(")").split("(", 1)
    for line in (Path(__file__).parents[1] / "nki_signatures.txt")
    .read_text(encoding="utf-8")
    .splitlines()
)
#: functions that ask or launch: they need no kernel, or take anything
FREE = {"nki.jit", "nki.simulate", "nisa.get_nc_version", "nisa.get_nc_sub_version"}
#: functions of the simulator that its modules show: what the shim calls, and a constructor
OURS = {"cpu_simulate", "wrap"}
CALLS = sorted(set(TABLE) - FREE)


def function(api):
    module, name = api.split(".")
    return getattr(MODULES[module], name)


def shown(p):
    """Return a parameter as the table writes it."""
    star = "**" if p.kind is p.VAR_KEYWORD else ""
    if p.default is p.empty:
        return star + p.name
    text = repr(p.default)
    for before, after in (
        ("nl.", ""),
        ("<MemoryRegion.", ""),
        (">", ""),
        ("MemoryRegion.", ""),
        ("'", "" if text != "''" else "'"),
        (repr(float(np.finfo(np.float32).min)), "FP32_MIN"),
    ):
        text = text.replace(before, after)
    return f"{p.name}={text}"


@pytest.mark.parametrize("api", sorted(TABLE))
def test_parameters_their_order_and_defaults(api):
    assert ", ".join(map(shown, inspect.signature(function(api)).parameters.values())) == TABLE[api]


def test_the_table_has_all_public_functions():
    """What is public and in no line of the table is a type, a constant or an operator's name."""
    for name, module in MODULES.items():
        for attr in module.__all__ if hasattr(module, "__all__") else dir(module):
            x = getattr(module, attr)
            if (
                inspect.isfunction(x)
                and not attr.startswith("_")
                and attr not in OURS
                and x.__module__.startswith("nkisim.language.nki")
            ):
                assert f"{name}.{attr}" in TABLE, attr


def raised(call):
    """Return the error of a call in a kernel."""

    def kernel(x):
        call()
        nl.store(x, 0.0)

    with pytest.raises(NkiError) as caught:
        nkisim.run(nki.jit(kernel), np.zeros((4, 4), np.float32))
    return caught.value


@pytest.mark.parametrize("api", CALLS)
def test_keywords_are_strict(api):
    error = raised(lambda: function(api)(no_such_argument=1))
    assert error.id == "NKI-N01" and "no_such_argument" in error.render()
    assert f"{api}(" in error.render()  # the signature is shown
    assert Path(error.where.file).name == Path(__file__).name


@pytest.mark.parametrize("api", CALLS)
def test_there_are_so_many_places_and_not_more(api):
    count = len(inspect.signature(function(api)).parameters)
    error = raised(lambda: function(api)(*[None] * (count + 1)))
    assert error.id == "NKI-N01" and f"at most {count}" in error.render()


@pytest.mark.parametrize("api", CALLS)
def test_what_is_required_is_asked_for(api):
    required = [
        p.name for p in inspect.signature(function(api)).parameters.values() if p.default is p.empty
    ]
    if required:
        error = raised(function(api))
        assert error.id == "NKI-N01" and required[0] in error.render()


@pytest.mark.parametrize("api, argument", sorted(versions._ARGUMENTS))
def test_an_argument_of_another_release_says_since_when(api, argument):
    error = raised(lambda: function(api or "nisa.tensor_copy")(**{argument: 1}))
    said = error.render()
    assert error.id == "NKI-N01" and versions._ARGUMENTS[api, argument] in said
    assert "since 0." in said or "gone" in said or "use " in said


@pytest.mark.parametrize(
    "module, name",
    [(m, n) for m in ("nl", "nisa", "nccl", "nki") for n in versions.NOT_MODELLED[m]],
)
def test_what_exists_and_is_not_modelled_says_so_with_its_page(module, name):
    with pytest.raises(AttributeError, match=rf"exists in NKI and is not modelled .*\.{name}$"):
        getattr({**MODULES, "nccl": nccl}[module], name)


@pytest.mark.parametrize("module, name", sorted(versions._GONE))
def test_what_is_gone_says_so(module, name):
    with pytest.raises(AttributeError, match="neuronxcc.nki has it, this dialect not"):
        getattr(MODULES[module], name)


@pytest.mark.parametrize("name", versions._LAUNCHERS)
def test_launchers_of_beta_1_say_what_there_is(name):
    with pytest.raises(NotImplementedError, match="nki.simulate"):
        getattr(nki, name)


def test_views_have_the_signatures_of_the_reference():
    methods = {
        "ap": "pattern, offset=None, scalar_offset=None, vector_offset=None, "
        "indirect_dim=0, dtype=None",
        "slice": "dim, start, end, step=1",
        "select": "dim, index",
        "vector_select": "dim, vector_offset",
        "expand_dim": "dim",
        "broadcast": "dim, size",
        "permute": "dims",
        "view": "dtype",
        "reshape_dim": "dim, shape",
        "flatten_dims": "start_dim, end_dim",
        "indirect": "index, num_elem=None",
        "squeeze_dim": "dim",
    }
    tensor = nl.NkiTensor
    for name, want in methods.items():
        got = list(inspect.signature(getattr(tensor, name)).parameters.values())[1:]
        assert ", ".join(map(shown, got)) == want, name
