"""What the modules that kernels import show: public names, and nothing that we import for us."""

from __future__ import annotations

import importlib
import inspect
import pickle

import pytest

import nkisim  # noqa: F401 (serves both dialects)

MODULES = {
    "neuronxcc.nki.language": "load",
    "neuronxcc.nki.isa": "activation",
    "neuronxcc.nki.compiler": "multi_buffer",
    "neuronxcc.nki.typing": "tensor",
    "neuronxcc.nki.isa.constants": "engine",
    "neuronxcc.nki.language.constants": "sizeinbytes",
    "nki.language": "load",
    "nki.isa": "activation",
    "nki.isa.constants": "engine",
    "nki.language.dtypes": "bfloat16",
    "nki.collectives": "ReplicaGroup",
}
#: what our modules import for their own use
OURS = ("machine", "dtypes", "fail", "np", "Any", "annotations", "dma", "lower", "INSTRUCTIONS")


@pytest.fixture(params=MODULES)
def module(request):
    return importlib.import_module(request.param)


def test_dir_and_star_show_public_names_alone(module):
    shown = dir(module)
    assert MODULES[module_name(module)] in shown
    assert not [n for n in shown if n.startswith("_")]
    star: dict[str, object] = {}
    exec(f"from {module_name(module)} import *", star)
    assert set(module.__all__) == {n for n in star if n != "__builtins__"}
    assert set(module.__all__) <= set(shown)


def module_name(module):
    """Return the name that a kernel imports it by."""
    return next(n for n in MODULES if importlib.import_module(n) is module)


def test_what_we_import_is_no_name_of_theirs(module):
    hidden = {*OURS, "_dma", "_machine"} - set(dir(module))  # nki.language.dtypes is a module
    assert [name for name in hidden if hasattr(module, name)] == []


def test_a_misspelt_name_is_answered_with_a_suggestion():
    import neuronxcc.nki.language as beta1
    import nki.language as nl

    for language in (beta1, nl):
        with pytest.raises(AttributeError, match=r"Did you mean nl\.affine_range"):
            language.affine_rang  # noqa: B018


def test_a_name_can_be_replaced_and_is_one_object(monkeypatch):
    import nki
    import nki.language as nl

    assert nl is nki.language is importlib.import_module("nkisim.language.nki.language")
    assert nl.load is nki.language.load
    monkeypatch.setattr(nl, "load", 5)
    assert nki.language.load == 5


def test_modules_can_be_inspected():
    import neuronxcc.nki.language as nl

    assert "nl" in nl.__doc__
    assert inspect.getsource(nl).startswith('"""`neuronxcc.nki.language`')
    assert "Create a tensor" in inspect.getdoc(nl.ndarray)
    assert pickle.loads(pickle.dumps(nl.fp32)) is nl.fp32
