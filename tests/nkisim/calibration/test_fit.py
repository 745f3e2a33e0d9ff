"""`calibrate --fit`: constants that were hidden in measurements are found, and not more is claimed.

The measurements are made by the model itself with other constants: no chip has run these kernels.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.calibration import fit
from nkisim.calibration.calibrate import command
from nkisim.calibration.points import Launch
from nkisim.chip import hw

KERNELS = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

TIMES = 4

@nki.jit
def adds(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for _ in range(TIMES):
        x = nisa.tensor_tensor(x, x, op=nl.add)
    nl.store(out, x)
    return out
"""
TRUTH = {"launch_us": 12.0, "dve_latency_us": 0.3}


def records(
    folder: Path,
    truth=TRUTH,
    noise=0.0,
    target="trn2",
    cases=((4, 64), (16, 64), (40, 64), (4, 2048), (16, 2048)),
) -> Path:
    (folder / "kernels.py").write_text(KERNELS)
    sha = hashlib.sha256(KERNELS.encode()).hexdigest()
    core = hw.get(target)
    core = replace(core, timing=replace(core.timing, **truth))
    rng = np.random.default_rng(7)
    out = []
    for times, columns in cases:
        record = {
            "id": f"adds {times}x{columns}",
            "target": target,
            "metric": "nc_latency",
            "value_us": 1.0,
            "set": {"TIMES": times},
            "descriptors": "static",
            "source": {
                "repo": ".",
                "commit": "worktree",
                "path": "kernels.py",
                "function": "adds",
                "sha256": sha,
            },
            "args": [{"shape": [128, columns], "dtype": "float32"}],
        }
        path = folder / "one.json"
        path.write_text(json.dumps({"schema": 1, "records": [record]}))
        (one,) = fit.records.load(str(path))
        us = fit.prepare(one, folder).predict(core)
        out.append({**record, "value_us": us * (1 + noise * rng.standard_normal())})
    path = folder / "records.json"
    path.write_text(json.dumps({"schema": 1, "records": out}))
    return path


def test_hidden_constants_are_found(tmp_path):
    path = records(tmp_path)
    (proposal,), notes = fit.propose([str(path)], tmp_path, None, list(TRUTH))
    assert notes == [] and proposal.after_pct < 0.1 < 3 < proposal.before_pct
    found = {c["name"]: c for c in proposal.constants}
    for name, value in TRUTH.items():
        assert found[name]["proposed"] == pytest.approx(value, rel=0.01)


def test_noise_makes_intervals_that_hold_the_truth_and_are_not_empty(tmp_path):
    path = records(tmp_path, noise=0.02)
    (proposal,), _ = fit.propose([str(path)], tmp_path, None, list(TRUTH))
    for c in proposal.constants:
        assert c["low"] < TRUTH[c["name"]] < c["high"] and c["high"] / c["low"] > 1.02


def test_fewer_kernels_than_constants_are_refused_and_repeats_do_not_count(tmp_path):
    path = records(tmp_path, cases=((4, 64), (4, 64), (4, 64), (16, 64)))
    with pytest.raises(fit.Refusal, match="2 distinct measured kernels cannot determine 2"):
        fit.propose([str(path)], tmp_path, None, list(TRUTH))
    with pytest.raises(fit.Refusal, match="is no constant that can be fitted"):
        fit.propose([str(path)], tmp_path, None, ["pe_wide_passes"])


def test_what_no_kernel_depends_on_is_never_proposed(tmp_path):
    path = records(tmp_path)
    with pytest.raises(fit.Refusal, match="act_gap_us: no kernel depends on it"):
        fit.propose([str(path)], tmp_path, None, ["launch_us", "act_gap_us"])
    (proposal,), _ = fit.propose([str(path)], tmp_path, None, None)
    assert "act_gap_us" in proposal.left_out


def test_a_kernel_that_has_changed_is_left_out_and_said(tmp_path, capsys):
    path = records(tmp_path)
    (tmp_path / "kernels.py").write_text(KERNELS + "\n")
    assert command(["--fit", str(path), "--sources", str(tmp_path)]) == 2
    assert "has changed since it was measured" in capsys.readouterr().err


def test_the_command_line_writes_the_proposal_and_changes_nothing_else(tmp_path, capsys):
    path, out = records(tmp_path), tmp_path / "proposal.json"
    assert (
        command(
            [
                "--fit",
                str(path),
                "--sources",
                str(tmp_path),
                "--constants",
                "launch_us,dve_latency_us",
                "--write",
                str(out),
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert "95 % interval" in text and "differs" in text
    (saved,) = json.loads(out.read_text())
    assert saved["kind"] == "proposal" and len(saved["points"]) == 5
    assert hw.get("trn2").timing.launch_us != TRUTH["launch_us"]


@pytest.mark.parametrize(
    "freedom, t", [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042)]
)
def test_students_t(freedom, t):
    assert fit.quantile(freedom) == pytest.approx(t, rel=0.02)


def in_families(path: Path, change) -> None:
    """Put each record of a file into a family of its own, and change them by its number."""
    data = json.loads(path.read_text())
    for n, record in enumerate(data["records"]):
        record["family"], record["variant"] = f"f{n}", "only"
        record["value_us"] = change(n, record["value_us"])
    path.write_text(json.dumps(data))


def test_a_family_does_not_decide_on_the_constants_that_predict_it(tmp_path, capsys):
    path, out = records(tmp_path), tmp_path / "proposal.json"
    in_families(path, lambda n, us: us + 4 * (n == 0))  # only one has a longer launch
    where = ["--sources", str(tmp_path)]
    assert command(["--fit", str(path), *where, "--write", str(out)]) == 0
    (saved,) = json.loads(out.read_text())
    folds = {name: values["launch_us"] for name, values in saved["folds"].items()}
    assert folds.keys() == {f"f{n}" for n in range(5)}
    assert folds["f0"] < min(folds[f"f{n}"] for n in range(1, 5))
    capsys.readouterr()
    assert command(["--measurements", str(path), *where, "--across", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    for r in said["records"]:  # the run itself, no slope of it
        longer = saved["folds"][r["family"]]["launch_us"] - hw.get("trn2").timing.launch_us
        assert r["across_us"] != r["predicted_us"]
        if set(saved["folds"][r["family"]]) == {"launch_us"}:
            assert r["across_us"] == pytest.approx(r["predicted_us"] + longer)
    assert said["across"]["records"] == 5


def test_the_times_of_late_loads_can_be_fitted():
    """They decide who waits for whom, before the run: that has to be found anew as well."""

    def sums(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(16):
            x = nl.load(a[i])
            for _ in range(8):
                x = nl.add(x, x)
            nl.store(out[i], x)
        return out

    core = hw.get("trn2")
    launch = Launch.of(
        nkisim.profile(sums, np.zeros((16, 128, 512), np.float32), target="trn2", compute=False)
    )
    times = [
        launch.body_us(replace(core, timing=replace(core.timing, compiler_load_us=us)))
        for us in (0.01, core.timing.compiler_load_us, 20.0)
    ]
    assert times[0] > times[1] > times[2], times
    assert {"compiler_load_us", "compiler_load_gbps"} <= set(fit.candidates(core.timing))


def test_what_is_no_proposal_is_refused(tmp_path, capsys):
    path = records(tmp_path)
    unknown = '[{"target": "trn2", "constants": [], "folds": {"f": {"x": 1}}}]'
    for text in ("{", "[1]", "[]", unknown):
        (tmp_path / "p.json").write_text(text)
        code = command(
            [
                "--measurements",
                str(path),
                "--sources",
                str(tmp_path),
                "--across",
                str(tmp_path / "p.json"),
            ]
        )
        assert code == (0 if text == "[]" else 2), text
        assert text == "[]" or "is no proposal of --fit --write" in capsys.readouterr().err
