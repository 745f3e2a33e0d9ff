"""nkisim.tune and `python -m nkisim tune`: what is tried, what is said of it, what is refused."""

from __future__ import annotations

import functools
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

import kernels_to_tune as kernels
import kernels_to_tune_nki as kernels_nki
import nkisim
from labkit.load import load_module
from nkisim import workers
from nkisim.cli import tune as tune_cli
from nkisim.simulation import order
from nkisim.tuning import sweep, tune, verify
from nkisim.tuning.space import Candidate, candidates

HERE = Path(__file__).parents[1]
ROOT = Path(__file__).parents[3]
KERNELS = HERE / "kernels_to_tune.py"
DATA = Path(nkisim.__file__).parent / "data"
CALIBRATION = DATA.with_name("calibration")
X = np.random.default_rng(0).standard_normal((512, 2048), dtype=np.float32)
ARG = ["--arg", "512x2048:float32", "--target", "trn2"]
WIDTHS = {"WIDTH": [128, 512, 2048]}


def run(capsys, *argv):
    """Return (exit code, stdout, stderr) of the command."""
    code = tune_cli.command([str(a) for a in argv])
    return code, *capsys.readouterr()


# -- nkisim.tune ---------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [kernels, kernels_nki], ids=["neuronxcc.nki", "nki"])
def test_wider_tiles_are_faster_and_need_more_memory_and_the_constant_is_as_before(module):
    found = nkisim.tune(module.double, X, choices=WIDTHS, target="trn2", reference=lambda x: 2 * x)
    assert [r.values["WIDTH"] for r in found.rows] == [2048, 512, 128]
    assert found.best is found.rows[0] and all(r.verdict.right for r in found.rows)
    assert [r.prediction.sbuf for r in found.rows] == sorted(
        (r.prediction.sbuf for r in found.rows), reverse=True
    )
    assert all(r.pareto for r in found.rows)
    assert module.WIDTH == 64 and found.base.candidate.values == (("WIDTH", 64),)
    assert found.base.us > found.rows[-1].prediction.us


def test_every_candidate_is_predicted_as_profile_predicts_it():
    found = nkisim.tune(kernels.double, X, choices=WIDTHS, target="trn2", best=0)
    for row in found.rows:
        kernels.WIDTH = row.values["WIDTH"]
        try:
            prof = nkisim.profile(kernels.double, X, target="trn2", compute=False)
        finally:
            kernels.WIDTH = 64
        assert (row.prediction.us, row.prediction.sbuf, row.prediction.hbm) == (
            prof.latency_us,
            prof.sbuf_peak_bytes,
            prof.hbm_read_bytes + prof.hbm_write_bytes,
        )


def test_several_processes_say_what_one_says():
    one, two = (
        nkisim.tune(
            kernels.double, X, choices={"WIDTH": [128, 192, 256, 512, 2048]}, best=0, jobs=n
        ).to_dict()
        for n in (1, 2)
    )
    assert one == two


def test_arguments_are_tuned_as_constants_are_and_variants_with_both():
    found = nkisim.tune(
        [kernels.double, kernels.double_by], X, choices={"WIDTH": [512, 2048]}, target="trn2"
    )
    assert {(r.prediction.candidate.name, r.values["WIDTH"]) for r in found.rows} == {
        (name, width) for name in ("double", "double_by") for width in (512, 2048)
    }
    wide = nkisim.tune(kernels.double_by, X, choices={"width": [512, 2048]}, target="trn2")
    assert [r.values["width"] for r in wide.rows] == [2048, 512]


def test_what_the_chip_or_the_kernel_refuses_is_a_row_with_the_reason():
    choices = {"width": [100, 512, 2048], "rows": [128, 256]}
    found = nkisim.tune(kernels.double_by, X, choices=choices, target="trn2")
    assert {p.refused.partition(" ")[0] for p in found.refused} == {"2048", "NKI-P01"}
    assert len(found.rows) == 2 and len(found.refused) == 4
    text = found.table()
    assert "refused (2): 2048 columns do not divide into tiles of 100" in text
    assert "NKI-P01" in text and "width=512, rows=256" in text


def test_a_candidate_that_computes_something_else_is_found_without_a_reference_too():
    """Only widths from 512 on are wrong, and those are the fastest two."""
    choices = {"width": [128, 256, 512, 2048]}
    blamed = nkisim.tune(
        kernels.wrong_if_wide, X, choices=choices, target="trn2", reference=lambda x: 2 * x
    )
    assert sorted(r.values["width"] for r in blamed.wrong) == [512, 2048]
    assert blamed.best.values == {"width": 256} and "elements are wrong" in blamed.table()
    alone = nkisim.tune(kernels.wrong_if_wide, X, choices=choices, target="trn2")
    assert sorted(r.values["width"] for r in alone.wrong) == [512, 2048]
    assert alone.best.values == {"width": 256}
    assert "not what the kernel as it is computes" in alone.table()


def test_what_stores_nothing_is_refused_and_not_the_fastest():
    found = nkisim.tune(
        kernels.double_by, np.ones((128, 512), np.float32), choices={"rows": [64, 128, 256]}, jobs=1
    )  # 128 // 256 times: never
    assert [p.refused[:7] for p in found.refused] == ["NKI-O03"]
    assert {r.values["rows"] for r in found.rows} == {64, 128}
    with pytest.raises(nkisim.NkiError, match="NKI-O03"):
        nkisim.profile(kernels.double_by, np.ones((64, 512), np.float32), compute=False)


def test_nothing_is_held_against_a_result_that_is_wrong_itself():
    x = np.ones((256, 512), np.float32)
    found = nkisim.tune(kernels.double_by, x, choices={"rows": [100, 128]}, jobs=1)
    assert [(r.values["rows"], r.verdict.right) for r in found.rows] == [(100, False), (128, None)]
    assert found.best.values["rows"] == 128


def test_what_would_be_garbage_on_the_chip_is_wrong_though_the_numbers_agree():
    found = nkisim.tune(
        kernels.reads_what_no_one_wrote, X, choices={"width": [512, 2048]}, target="trn2"
    )
    assert all(r.verdict.text.endswith("NKI-U02") for r in found.rows)
    assert found.wrong == found.rows and found.best is None


def test_a_value_that_changes_nothing_and_a_constant_made_of_another_are_said():
    found = nkisim.tune(
        kernels.double, X, choices={"UNUSED": [1, 2], "WIDTH": [512, 2048]}, target="trn2", best=0
    )
    assert "UNUSED changes nothing" in found.table() and "WIDTH changes" not in found.table()
    assert "TWICE is computed from WIDTH" in found.table()


def test_what_published_pairs_do_not_tell_apart_is_marked():
    choices = {"WIDTH": [1024, 1020, 2048, 64]}
    found = nkisim.tune(kernels.double, X, choices=choices, target="trn2", best=0)
    fastest = found.rows[0].prediction
    for row in found.rows:
        assert row.tied == (row.prediction.us <= fastest.us * (1 + order.least_pct(True) / 100))
    assert not found.rows[-1].tied
    assert ("cannot tell" in found.table()) == bool(found.tied)


def test_another_kernel_must_differ_by_more_than_a_variant_does():
    def row(us, variant, error=9.0):
        candidate = Candidate(variant, f"kernel{variant}", ())
        return tune.Row(sweep.Prediction(candidate, us=us, error_pct=error))

    rows = [row(100.0, 0), row(101.0, 0), row(130.0, 0), row(131.0, 1), row(190.0, 1)]
    tune._mark(rows)
    assert [r.tied for r in rows] == [True, True, False, True, False]


def test_the_curve_is_that_of_the_published_measurements():
    trust = load_module(ROOT / "tools" / "benchmarks" / "when_to_trust.py", "when_to_trust")
    every = list(trust.pairs())
    written = json.loads((DATA / "order.json").read_text("utf-8"))
    for kind, variants in (("variants", True), ("others", False)):
        assert written[kind] == trust.curve(every, variants)
        kept = [right for d, right in ((d, r) for s, d, r in every if s == variants)
                if d >= order.least_pct(variants)]  # fmt: skip
        assert sum(kept) >= order.SURE * len(kept)


@pytest.mark.full
def test_among_equals_the_one_that_moves_least_is_named():
    """Block sizes of a product of 2048^3 in float32, most of them as fast as the Tensor Engine."""
    records = [
        r
        for r in json.loads((CALIBRATION / "measurements-nki.json").read_text("utf-8"))["records"]
        if r.get("kwargs", {}).get("TILES_IN_BLOCK_K") == 4
    ]
    measured = {tuple(r["kwargs"].values()): r["value_us"] for r in records}
    choices = {name: sorted({r["kwargs"][name] for r in records}) for name in records[0]["kwargs"]}
    inputs = [np.zeros(a["shape"], a["dtype"]) for a in records[0]["args"]]
    twin = load_module(CALIBRATION / records[0]["twin"]["file"], "tuned_twin")
    found = nkisim.tune(
        twin.blocked_matmul, *inputs, choices=choices, target="trn2", best=0, descriptors="dge"
    )
    lean = found.moves_least(found.fastest)
    took, rest = lean.prediction, [r.prediction for r in found.rows]
    assert all(p.hbm >= took.hbm or p.us > 1.02 * rest[0].us for p in rest)
    assert f"{took.candidate} moves least" in found.table()
    best = min(measured.values())
    assert len(measured) > 12 and max(measured.values()) > 1.3 * best
    for row in (found.fastest, lean):
        assert measured[tuple(row.values.values())] < 1.05 * best


def test_what_the_model_does_not_know_is_like_what_takes_up_to_twice_as_long():
    found = nkisim.tune(kernels.double, X, choices={"WIDTH": [1, 512, 2048]}, target="trn3", best=0)
    assert found.rows[0].prediction.error_pct is None
    fastest, near, far = found.rows
    assert near.prediction.us < 2 * fastest.prediction.us < far.prediction.us
    assert near.tied and not far.tied


@pytest.mark.parametrize(
    "choices, sentence",
    [
        ({"WIDHT": [1]}, "did you mean WIDTH"),
        ({"nothing_like_it": [1]}, "constants of its file: WIDTH"),
        ({"WIDTH": []}, "there is no value to try"),
        ({"WIDTH": range(1000), "UNUSED": range(1000)}, "1,000,000 combinations"),
        ({}, "nothing to choose between"),
    ],
)
def test_choices_that_make_no_sense_are_refused_in_a_sentence(choices, sentence):
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.tune(kernels.double, X, choices=choices)
    assert caught.value.id == "NKI-K17" and sentence in caught.value.render()


def test_a_value_given_twice_is_tried_once():
    assert [c.values for c in candidates([kernels.double], {"WIDTH": [512, 512]})] == [
        (("WIDTH", 512),)
    ]


@pytest.mark.parametrize(
    "right, wrong",
    [
        (np.float32([1, 2, 3]), np.float32([1, 2, 3.1])),
        (np.int32([1, 2, 3]), np.int32([1, 2, 4])),
        (np.float32([1, np.nan, np.inf]), np.float32([1, 0, np.inf])),
        (np.float32([1, 2, 3]), np.float32([1, 2])),
        ((np.float32([1]), np.float32([2])), (np.float32([1]),)),
    ],
)
def test_results_are_compared(right, wrong):
    allowed = verify.Allowed(1e-6, 1e-6)
    assert verify.differs(right, right, allowed) == ""
    assert verify.differs(wrong, right, allowed) and verify.differs(right, wrong, allowed)


def test_the_longest_sum_is_read_from_the_record():
    lhs, rhs = np.zeros((1024, 128), np.float32), np.zeros((1024, 512), np.float32)
    got = nkisim.run(kernels.product, lhs, rhs, target="trn2")
    assert verify._longest_sum(got.trace) == 1024


# -- what goes wrong with one candidate is its own affair ------------------------------------------


def test_the_fastest_that_is_right_has_been_run_though_all_faster_ones_are_wrong():
    """What skips work is fast: the four candidates that skip rows are predicted first."""
    found = nkisim.tune(
        kernels.skips, X, choices={"skip": [0, 1, 2, 3, 4]}, target="trn2",
        reference=lambda x: 2 * x, best=1,
    )  # fmt: skip
    assert [r.values["skip"] for r in found.rows][-1] == 0
    assert found.best.values == found.frugal.values == {"skip": 0} and found.best.verdict.right
    assert found.fastest is not found.best and len(found.wrong) == len(found.rows) - 1
    assert "fastest that is right: skip=0" in found.table()


def test_what_was_not_run_says_so():
    found = nkisim.tune(
        kernels.double, X, choices=WIDTHS, target="trn2", reference=lambda x: 2 * x, best=1
    )
    assert [r.verdict is not None for r in found.rows] == [True, False, False]
    assert found.table().count("not run") == 2
    assert [c["right"] for c in found.to_dict()["candidates"]] == [True, None, None]
    assert [c["was_run"] for c in found.to_dict()["candidates"]] == [True, False, False]
    nothing = nkisim.tune(kernels.double, X, choices=WIDTHS, target="trn2", best=0)
    assert nothing.best is nothing.frugal is None and nothing.fastest is nothing.rows[0]
    assert "us predicted, not run" in nothing.table()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "how, reason",
    [
        ("loop", "not finished after 3 s; it was at"),
        ("exit", "it ends the program: sys.exit(3)"),
        ("die", "ended with exit code 7"),
        ("recurse", "RecursionError"),
    ],
)
def test_a_candidate_that_loops_exits_or_dies_costs_only_itself(how, reason):
    found = nkisim.tune(
        kernels.goes_wrong, X, choices={"how": [how, "well"]}, target="trn2",
        reference=lambda x: 2 * x, seconds=3 if how == "loop" else 60, jobs=1,
    )  # fmt: skip
    assert [p.candidate.values for p in found.refused] == [(("how", how),)]
    assert reason in found.refused[0].refused
    assert found.best.values == {"how": "well"} and found.best.verdict.right


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")
def test_a_candidate_that_takes_all_memory_costs_only_itself():
    found = nkisim.tune(
        kernels.goes_wrong, X, choices={"how": ["take", "well"]}, target="trn2", memory=1 << 30,
        reference=lambda x: 2 * x, jobs=1,
    )  # fmt: skip
    assert "memory" in found.refused[0].refused.lower()
    assert found.best.values == {"how": "well"}


def test_kernels_of_one_name_are_told_apart_by_file():
    found = nkisim.tune([kernels.double, kernels_nki.double], X, target="trn2", best=0)
    assert {r.prediction.candidate.name for r in found.rows} == {
        "kernels_to_tune.py:double",
        "kernels_to_tune_nki.py:double",
    }
    facts = found.to_dict()["candidates"]
    assert {Path(c["file"]).name for c in facts} == {"kernels_to_tune.py", "kernels_to_tune_nki.py"}
    assert {c["variant"] for c in facts} == {0, 1}


def test_processes_that_cannot_be_forked_load_the_script_anew(monkeypatch):
    monkeypatch.setattr(workers, "METHOD", "spawn")
    spec, sets = f"{KERNELS}:double", ("WIDTH=512,2048",)
    variants, wanted = tune_cli.load(spec, sets)
    job = tune.Job(
        variants, wanted, (X,), {}, {"target": "trn2", "descriptors": None, "compiler": None},
        functools.partial(tune_cli._load_in_process, spec, sets),
    )  # fmt: skip
    found = tune.run(job, lambda x: 2 * x, best=2, jobs=1)
    assert [r.verdict.right for r in found.rows] == [True, True]


# -- the command ---------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_what_was_asked_for(capsys, tmp_path):
    files = [tmp_path / name for name in ("t.json", "t.svg")]
    code, out, err = run(
        capsys,
        f"{KERNELS}:double",
        *ARG,
        "--set",
        "WIDTH=128,512,2048",
        "--jobs",
        2,
        "--reference",
        f"{KERNELS}:twice",
        "--json",
        files[0],
        "--svg",
        files[1],
    )
    assert code == 0, err
    assert "not measured" in out.splitlines()[0] and "fastest: WIDTH=2048" in out
    assert "as it is (WIDTH=64)" in out
    facts = json.loads(files[0].read_text("utf-8"))
    assert facts["predicted"] and len(facts["candidates"]) == 3
    assert [c["right"] for c in facts["candidates"]] == [True] * 3
    drawing = files[1].read_text("utf-8")
    ElementTree.fromstring(drawing)
    assert "predicted for trn2" in drawing and "not measured" in drawing


def test_json_to_standard_output_is_all_that_is_there(capsys):
    code, out, err = run(
        capsys, f"{KERNELS}:double", *ARG, "--set", "WIDTH=64,128", "--best", 0, "--json", "-"
    )
    assert code == 0 and len(json.loads(out)["candidates"]) == 2, err


def test_variants_are_found_by_pattern_and_words_mean_what_the_script_calls_so(capsys):
    code, out, err = run(capsys, f"{KERNELS}:double*", *ARG, "--best", 0)
    assert code == 0 and "double_by" in out and "2 candidates" in out, err
    code, out, err = run(
        capsys,
        f"{KERNELS}:with_words",
        *ARG,
        "--set",
        "how=add,multiply",
        "--set",
        "dtype=nl.float32,nl.bfloat16",
        "--best",
        0,
    )
    assert code == 0 and "4 candidates, 0 refused" in out, err


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["no.py:f", "--set", "A=1"], "there is no file no.py"),
        (["{kernels}", "--set", "A=1"], "say which function"),
        (["{kernels}:doubel", "--set", "WIDTH=1"], "did you mean 'double'?"),
        (["{kernels}:nothing_*", "--set", "WIDTH=1"], "is like nothing_*"),
        (["{kernels}:double", "--set", "WIDTH"], "is not NAME=A,B,C"),
        (["{kernels}:double", "--set", "WIDTH=12a"], "neither a Python value nor a name"),
        (["{kernels}:double", "--set", "WIDTH=,"], "there is no value to try"),
        (["{kernels}:double", "--set", "WIDTHS=1"], "did you mean WIDTH"),
        (["{kernels}:double"], "nothing to choose between"),
        (["{kernels}:double", "--set", "WIDTH=1", "--target", "tpu"], "NKI-T01"),
        (
            ["{kernels}:double", "--set", "WIDTH=64,128", "--reference", "{kernels}:fails", *ARG],
            "the reference",
        ),
        (
            ["{kernels}:double", "--set", "WIDTH=64,128", "--json", "{folder}/no/x.json", *ARG],
            "cannot be written",
        ),
    ],
)
def test_a_command_that_makes_no_sense_gets_a_sentence_and_2(capsys, tmp_path, argv, sentence):
    code, _, err = run(capsys, *[a.format(kernels=KERNELS, folder=tmp_path) for a in argv])
    assert code == 2 and sentence in err


def test_all_refused_is_1_with_the_page_of_the_first(capsys):
    code, out, err = run(capsys, f"{KERNELS}:double_by", *ARG, "--set", "rows=256,512")
    assert code == 1 and "2 refused" in out and "NKI-P01" in err and "you gave" in err


def test_a_wrong_result_is_1(capsys):
    code, out, _ = run(
        capsys,
        f"{KERNELS}:wrong_if_wide",
        *ARG,
        "--set",
        "width=128,2048",
        "--reference",
        f"{KERNELS}:twice",
    )
    assert code == 1 and "fastest that is right: width=128" in out


def test_without_matplotlib_a_plot_is_a_sentence_before_the_work(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run(
        capsys, f"{KERNELS}:double", *ARG, "--set", "WIDTH=128,512", "--svg", tmp_path / "t.svg"
    )
    assert code == 2 and "trainium-labs[plot]" in err and not out


def test_as_a_program_with_several_processes(python):
    """The processes load the script anew, and what it prints is not in the table."""
    done = python.nkisim(
        "tune",
        f"{KERNELS}:prints",
        *ARG,
        "--set",
        "width=128,256,512,1024,2048",
        "--jobs",
        "2",
        "--best",
        "0",
    )
    assert done.returncode == 0, done.stderr
    assert "5 candidates, 0 refused" in done.stdout and "hello" not in done.stdout
