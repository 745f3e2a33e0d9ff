"""The table of the chip: complete, consistent, and reachable by every name that users know."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import nkisim
from nkisim.chip import hw, trn2
from nkisim.chip.facts import documented, like, make_core
from nkisim.errors import NkiError

HOME = Path(nkisim.__file__).parent


#: fields that are no facts of the chip
NAMES = {"name", "generation", "aliases", "calibrated", "timing", "provenance"}


def facts(table: hw.NeuronCore | hw.Timing) -> set[str]:
    """Return the fields that state a figure or a feature."""
    return {f.name for f in dataclasses.fields(table)} - NAMES


@pytest.mark.parametrize("core", hw.CORES, ids=lambda c: c.name)
class TestEveryCore:
    def test_every_fact_names_its_source_and_nothing_else_does(self, core):
        for table in (core, core.timing):
            assert facts(table) == set(table.provenance)
            for name, source in table.provenance.items():
                assert source.text.strip(), name
                assert source.tag in ("documented", "fitted", "assumed"), name

    def test_memory_sizes_agree_with_each_other(self, core):
        assert core.psum_bytes == 16 * hw.KIB
        assert core.psum_total_bytes == 2 * hw.MIB
        assert core.psum_fmax * 4 == core.psum_bank_bytes
        assert core.sbuf_bytes - core.sbuf_usable_bytes in (16 * hw.KIB, 16 * hw.KIB + 8)
        assert core.sbuf_total_bytes == 128 * core.sbuf_bytes

    def test_peak_is_what_clock_and_array_give(self, core):
        # One moving column a cycle over a 128 x 128 array; fp32 takes four passes.
        dense = 2 * core.pmax**2 * core.pe_ghz / 1e3
        assert core.peak_tflops["bfloat16"] == pytest.approx(dense, rel=0.01)
        assert core.peak_tflops["float32"] == pytest.approx(dense / 4, rel=0.03)

    def test_numbers_cannot_be_changed_by_accident(self, core):
        with pytest.raises(dataclasses.FrozenInstanceError):
            core.pmax = 256


@pytest.mark.parametrize("table", [hw.NeuronCore, hw.Timing])
def test_a_new_generation_inherits_nothing_in_silence(table):
    assert [
        f.name
        for f in dataclasses.fields(table)
        if f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
    ] == []


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda facts, timing: facts.pop("hwdge"), "hwdge"),
        (lambda facts, timing: timing.pop("hop_us"), "hop_us"),
        (lambda facts, timing: facts.update(warp_size=documented(32, "?")), "warp_size"),
    ],
)
def test_a_core_takes_all_its_facts_and_no_others(change, said):
    facts, timing = like(trn2.FACTS, "trn2"), like(trn2.TIMING, "trn2")
    core = make_core("x", 9, (), calibrated=False, facts=facts, timing=timing)
    assert core.timing.hop_us == hw.TRN2.timing.hop_us
    assert {s.tag for s in (*core.provenance.values(), *core.timing.provenance.values())} == {
        "assumed"
    }  # what was taken over is a guess
    change(facts, timing)
    with pytest.raises(TypeError, match=said):
        make_core("x", 9, (), calibrated=False, facts=facts, timing=timing)


def test_no_one_asks_for_the_number_of_a_generation():
    """What differs between generations is a feature with a name; the number is for people."""
    asked = [
        f"{path.relative_to(HOME)}:{number}"
        for path in HOME.rglob("*.py")
        if path.parent.name != "chip"  # which has the table
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"\.generation\b", line)
    ]
    assert asked == []


def test_known_sizes():
    assert hw.TRN1.sbuf_total_bytes == 24 * hw.MIB
    assert hw.TRN2.sbuf_total_bytes == 28 * hw.MIB
    assert hw.TRN3.sbuf_total_bytes == 32 * hw.MIB
    assert hw.TRN1.hbm_gbps_per_core == 410.0


@pytest.mark.parametrize(
    "name, core",
    [
        ("trn1", hw.TRN1),
        ("inf2", hw.TRN1),
        ("gen2", hw.TRN1),
        ("trn2", hw.TRN2),
        ("gen3", hw.TRN2),
        ("trn3", hw.TRN3),
        ("gen4", hw.TRN3),
        ("trn3pre", hw.TRN3),
        ("TRN2", hw.TRN2),
        (" Gen3 ", hw.TRN2),
    ],
)
def test_get_by_name(name, core, monkeypatch):
    monkeypatch.setenv(hw.TARGET_VARIABLE, "trn3")  # the argument wins over the environment
    assert hw.get(name) is core


@pytest.mark.parametrize("value, core", [(None, hw.TRN1), ("", hw.TRN1), ("gen3", hw.TRN2)])
def test_get_from_environment(value, core, monkeypatch):
    monkeypatch.delenv(hw.TARGET_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(hw.TARGET_VARIABLE, value)
    assert hw.get() is core


@pytest.mark.parametrize("bad", ["trn9", "", "cuda", 2])
def test_unknown_target_lists_the_targets(bad):
    with pytest.raises(NkiError) as caught:
        hw.get(bad)
    assert caught.value.id == "NKI-T01"
    assert "trn2" in caught.value.limit and repr(bad) in caught.value.given


def test_unknown_target_in_environment_names_the_variable(monkeypatch):
    monkeypatch.setenv(hw.TARGET_VARIABLE, "h100")
    with pytest.raises(NkiError) as caught:
        hw.get()
    assert hw.TARGET_VARIABLE in caught.value.given
