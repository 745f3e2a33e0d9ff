"""The page of coverage says what the simulator does."""

from __future__ import annotations

import inspect
import json
import re
import types

import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.cli import coverage, coverage_nki
from nkisim.isa.table import ROWS

ALL = list(coverage.names())


def test_each_cheaper_form_has_its_condition_rule_and_source_on_the_page():
    text = coverage.markdown()
    lines = text[text.index("## Forms that cost less") :].split("\n## ")[0].splitlines()
    for row in ROWS.values():
        for reason in row.cheaper:
            assert any(
                f"`{row.name}`" in line
                and f"| {reason.by}" in line
                and reason.when in line
                and reason.source in line
                and f"| {reason.rule or 'the operands'} |" in line
                for line in lines
            ), (row.name, reason)


def test_every_name_is_listed_once():
    assert len(ALL) == len(set(ALL))
    assert set(coverage.PROBES) <= {f"{m}.{n}" for m, n in ALL}
    assert set(coverage.ACCEPTED) <= {f"{m}.{n}" for m, n in ALL}


@pytest.mark.parametrize(
    "module, name", [p for p in ALL if coverage.status(*p)[0] == coverage.MISSING]
)
def test_what_is_missing_says_so(module, name):
    with pytest.raises(AttributeError, match="not modelled"):
        getattr(coverage.MODULES[module], name)


@pytest.mark.parametrize("row", [r for r in ROWS.values() if r.public], ids=lambda r: r.name)
def test_a_row_is_what_kernels_call(row):
    """The facade is the table: a public row has its function there, with its signature."""
    module, _, name = row.public.partition(".")
    function = getattr(coverage.MODULES[module], name)
    assert function.row is row and name == row.name
    assert not set(row.hidden) & set(inspect.signature(function).parameters)
    assert (module, name) in ALL
    assert coverage.lowering(row.public) == [(row.name, row.engines)]


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda r: r.name)
def test_a_row_declares_parameters_that_exist(row):
    parameters = set(inspect.signature(row.plan).parameters)
    declared = [o.name for o in row.operands]
    assert set(declared) <= parameters and len(set(declared)) == len(declared)
    assert {o.like for o in row.operands} - {""} <= set(declared)
    assert {*row.promotes, *row.hidden, *(row.one_psum or ())} <= parameters
    assert set(row.writes) <= {"hbm", "sbuf", "psum"} and row.default in ("", "any")


def test_every_row_names_its_source():
    for row in ROWS.values():
        assert row.source.startswith(("Neuron SDK 2.2", "Neuron SDK 2.3")) and row.doc.strip(), row


def test_the_command_prints_the_page(capsys):
    assert coverage.command([]) == 0
    assert capsys.readouterr().out == coverage.markdown()


def test_a_probe_runs_what_it_says():
    assert coverage.lowering("nl.divide") == [
        ("reciprocal", ("vector",)),
        ("tensor_tensor", ("vector", "gpsimd")),
    ]
    assert coverage.lowering("nl.arange") == []

    def viewed(x):
        out = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out.reshape((2, 2)).reshape((4, 1)), 1.0)
        return out.reshape((4,))

    assert nkisim.run(viewed, np.ones(4, np.float32)).instructions == {"store": 1}


def test_the_table_is_there_for_other_tools(capsys):
    assert coverage.command(["--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows == nkisim.rows() and [r["name"] for r in rows] == sorted(ROWS)
    vals = {o["name"]: o for r in rows if r["name"] == "nc_find_index8" for o in r["operands"]}
    assert vals["vals"]["width"] == 8 and vals["data"]["width"] is None
    assert next(r for r in rows if r["name"] == "range_select")["targets"] != []


@pytest.mark.parametrize("which", [coverage, coverage_nki], ids=["neuronxcc.nki", "nki"])
def test_only_names_of_nki_are_suggested(which):
    """Modules of the dialects hold what is not in the reference: INSTRUCTIONS, TABLE ..."""
    documented = set(which.names()) | {
        tuple(api.partition("(")[0].split("."))
        for row in ROWS.values()
        for api in (row.public, row.nki)
        if api
    }
    for module in ("nl", "nisa", "ncc"):
        facade = which.MODULES[module]
        for name in [n for n in vars(facade) if not n.startswith("_")]:
            with pytest.raises(AttributeError) as caught:
                getattr(facade, f"{name}z")
            said = re.findall(rf"\b{module}\.(\w+)", str(caught.value).partition("mean")[2])
            assert [n for n in said if (module, n) not in documented] == []
    with pytest.raises(AttributeError, match=r"nisa\.dma_copy"):
        _ = which.MODULES["nisa"].dmacopy


@pytest.mark.parametrize("which", [coverage, coverage_nki], ids=["neuronxcc.nki", "nki"])
def test_what_a_dialect_imports_for_itself_is_no_name_of_it(which):
    """A kernel that says nl.machine or nisa.dma means something else: it gets a sentence."""
    for module in ("nl", "nisa"):
        facade, ours = which.MODULES[module], "nkisim."
        public = {n for m, n in which.names() if m == module}
        for name, value in vars(facade).items():
            if not name.startswith("_") and isinstance(value, types.ModuleType):
                served = (*public, "constants", "dtypes")  # the latter once it is imported
                assert name in served or not value.__name__.startswith(ours), name
        for name in ("machine", "dma", "Machine", "current"):
            with pytest.raises(AttributeError, match=f"has no '{name}'"):
                getattr(facade, name)
