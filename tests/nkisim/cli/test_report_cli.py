"""`python -m nkisim profile` and `python -m nkisim view`: what is written, said and returned."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nkisim.cli import profile, view
from nkisim.report import load

KERNELS = Path(__file__).parents[1].joinpath("kernels_for_reports.py")
ADD = ["--arg", "2x128x512:float32", "--arg", "2,128,512:fp32", "--target", "trn2"]


def run(command, capsys, *argv):
    """Return (exit code, stdout, stderr)."""
    code = command([str(a) for a in argv])
    return code, *capsys.readouterr()


def test_profile_prints_the_summary_and_writes_what_was_asked_for(capsys, tmp_path):
    files = [tmp_path / name for name in ("p.html", "p.json", "p.pftrace")]
    code, out, err = run(
        profile.command,
        capsys,
        f"{KERNELS}:add",
        *ADD,
        "--html",
        files[0],
        "--json",
        files[1],
        "--perfetto",
        files[2],
        "--metrics",
    )
    assert code == 0, err
    assert "dma_transfer_count" in out and "not measured" in out.splitlines()[0]
    assert all(f.stat().st_size > 500 for f in files)


def test_json_to_standard_output_is_all_that_is_there(capsys):
    code, out, err = run(profile.command, capsys, f"{KERNELS}:add", *ADD, "--json", "-")
    head = json.loads(out)["head"]
    assert code == 0 and head["metrics"]["nc_latency"] > 0 and not Path("-").exists()
    _, text, _ = run(profile.command, capsys, f"{KERNELS}:add", *ADD)
    first = text.splitlines()[0]
    assert first.startswith(f"add: {head['metrics']['nc_latency'] * 1e6:,.1f} us, predicted by")


def test_leaving_out_the_arithmetic_changes_no_prediction(capsys):
    _, full, _ = run(profile.command, capsys, f"{KERNELS}:add", *ADD)
    _, fast, _ = run(profile.command, capsys, f"{KERNELS}:add", *ADD, "--no-compute")
    assert full == fast


@pytest.mark.parametrize("option", ["--kwarg=times=3", "--set=REPEAT=3"])
def test_named_arguments_and_constants_reach_the_kernel(capsys, option):
    code, out, err = run(
        profile.command, capsys, f"{KERNELS}:repeat", "--arg", "128x8:bf16", option, "--metrics"
    )
    assert code == 0, err
    counts = [
        int(line.split()[1])
        for line in out.splitlines()
        if re.search("(vector|scalar)_engine_instruction_count", line)
    ]
    assert sum(counts) == 3


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["no.py:add"], "there is no file no.py"),
        (["{kernels}"], "the script calls no kernel. Profile one of its kernels, as in"),
        (["{kernels}:ad"], "did you mean 'add'?"),
        (["{kernels}:nl"], "not a function"),
        (["{kernels}:add", "--arg", "2x128x512"], "neither SHAPE:DTYPE"),
        (["{kernels}:add", "--arg", "0x128:float32"], "no input for a kernel"),
        (["{kernels}:add", "--arg", "9999999x99999:float32"], "try a smaller size"),
        (["{kernels}:add", "--arg", "2x128:float99"], "NKI-D02"),
        (["{kernels}:add", "--arg", "2x128:float64"], "NKI-D01"),
        (["{kernels}:add", "--target", "tpu"], "NKI-T01"),
        (["{kernels}:add"], "--arg SHAPE:DTYPE"),
        (["{kernels}:add", "--kwarg", "3"], "not NAME=VALUE"),
        (["{kernels}:add", "--set", "REPEET=3"], "did you mean 'REPEAT'?"),
        (
            ["{kernels}:repeat", "--arg", "128x8:float32", "--html", "{folder}/no/x.html"],
            "cannot be written",
        ),
    ],
)
def test_a_command_that_makes_no_sense_gets_a_sentence_and_2(capsys, tmp_path, argv, sentence):
    argv = [a.format(kernels=KERNELS, folder=tmp_path) for a in argv]
    code, out, err = run(profile.command, capsys, *argv)
    assert code == 2 and sentence in err and "Traceback" not in err


def test_a_broken_rule_is_told_with_the_line_and_1(capsys):
    code, _, err = run(
        profile.command, capsys, f"{KERNELS}:breaks_a_rule", "--arg", "128x8:float32"
    )
    assert code == 1 and "NKI-" in err and "nl.zeros((256, 8)" in err


def test_a_script_that_cannot_be_imported_is_told_with_its_own_lines(capsys, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("import neuronxcc.nki\nx = 1 / 0\n")
    code, _, err = run(profile.command, capsys, f"{script}:add")
    assert code == 2 and "x = 1 / 0" in err and "fails when it is imported" in err


def test_what_a_script_does_as_main_is_not_done(capsys, tmp_path):
    script = tmp_path / "with_main.py"
    script.write_text(KERNELS.read_text("utf-8") + "\nif __name__ == '__main__':\n    1 / 0\n")
    assert run(profile.command, capsys, f"{script}:add", *ADD)[0] == 0


@pytest.fixture
def saved(capsys, tmp_path):
    paths = tmp_path / "a.json", tmp_path / "b.html"
    code, _, err = run(
        profile.command, capsys, f"{KERNELS}:add", *ADD, "--json", paths[0], "--html", paths[1]
    )
    assert code == 0, err
    return paths


@pytest.fixture
def opened(monkeypatch):
    """Return the list of addresses that the browser would have been sent to."""
    seen = []
    monkeypatch.setattr("webbrowser.open", lambda url: seen.append(url) or True)
    return seen


def test_view_makes_a_page_of_a_saved_profile_and_opens_it(capsys, saved, opened):
    code, out, _ = run(view.command, capsys, saved[0])
    page = Path(out.strip())
    assert code == 0 and page.is_file() and opened == [page.as_uri()]
    assert load(page).head["kernel"] == "add"
    shutil.rmtree(page.parent)


def test_view_opens_a_page_where_it_is(capsys, saved, opened):
    before = saved[1].read_bytes()
    code, out, _ = run(view.command, capsys, saved[1], "--no-open")
    assert (code, Path(out.strip()), opened) == (0, saved[1].resolve(), [])
    assert saved[1].read_bytes() == before


def test_view_puts_two_profiles_on_one_page(capsys, saved, tmp_path):
    both = tmp_path / "both.html"
    code, _, _ = run(
        view.command, capsys, saved[0], "--compare", saved[1], "--html", both, "--no-open"
    )
    assert code == 0 and 'id="compare"' in both.read_text("utf-8")


def test_view_prints_the_summary_without_a_browser(capsys, saved, opened):
    code, out, _ = run(view.command, capsys, saved[0], "--summary")
    assert code == 0 and "bound " in out and "total_time" not in out and opened == []
    code, out, _ = run(view.command, capsys, saved[0], "--metrics")
    assert code == 0 and "total_time" in out and opened == []


def test_view_refuses_what_is_no_profile(capsys, tmp_path):
    (tmp_path / "x.json").write_text("{}")
    code, _, err = run(view.command, capsys, tmp_path / "x.json")
    assert code == 2 and "not a profile" in err


def test_view_does_not_write_a_page_over_the_profile(capsys, saved):
    before = saved[0].read_bytes()
    code, _, err = run(view.command, capsys, saved[0], "--html", saved[0], "--no-open")
    assert code == 2 and "is the profile itself" in err and saved[0].read_bytes() == before


def test_a_wrong_name_of_a_kernel_is_answered_with_kernels_alone(capsys, tmp_path):
    code, _, err = run(profile.command, capsys, f"{KERNELS}:annotation", *ADD)
    assert code == 2 and "'annotations'" not in err and "Kernels in it: " in err
    code, _, err = run(profile.command, capsys, f"{KERNELS}:addd", *ADD)
    assert code == 2 and "did you mean 'add'?" in err
    plain = tmp_path / "plain.py"
    plain.write_text("from math import sqrt\n\ndef adder(x):\n    return x\n", encoding="utf-8")
    for name, guess in (("sqr", False), ("ader", True)):
        code, _, err = run(profile.command, capsys, f"{plain}:{name}", *ADD)
        assert code == 2 and ("did you mean" in err) == guess, err


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["ast", "random", "inspect", "dataclasses"])
def test_a_module_of_the_user_is_not_taken_for_pythons(tmp_path, name):
    tmp_path.joinpath(f"{name}.py").write_text("raise SystemExit('mine')\n", encoding="utf-8")
    kernel = tmp_path / "sub" / "kernel.py"
    kernel.parent.mkdir()
    kernel.write_text(KERNELS.read_text("utf-8"), encoding="utf-8")
    for words in (["explain", "NKI-P01"], ["profile", "sub/kernel.py:add", *ADD]):
        done = subprocess.run(
            [sys.executable, "-m", "nkisim", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_options_after_the_script_are_the_scripts_and_that_is_said(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:])\n", encoding="utf-8")
    run_it = [sys.executable, "-m", "nkisim", "run"]
    late = subprocess.run(
        [*run_it, script, "--target", "trn2"], capture_output=True, text=True, check=True
    )
    assert "['--target', 'trn2']" in late.stdout
    assert "--target after" in late.stderr and "before" in late.stderr
    early = subprocess.run(
        [*run_it, "--target", "trn2", script, "--size", "3"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not early.stderr
