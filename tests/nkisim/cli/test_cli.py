"""`python -m nkisim`: usage, unknown commands, explain."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from nkisim import __version__, errors
from nkisim.chip import hw
from nkisim.cli import main

RULES = {
    "NKI-P01": SimpleNamespace(
        title="Too many partitions", name="", text="A tile has 128 partitions.\n"
    ),
    "NKI-B02": SimpleNamespace(title="Wrong buffer", name="", text="HBM is not a compute operand."),
}


@pytest.fixture
def rules(monkeypatch):
    """Two rules, whatever the registry holds."""
    main.all_rules()  # other tables add theirs when they are imported
    monkeypatch.setattr("nkisim.errors.rules.RULES", RULES)


def test_no_command_shows_the_commands(capsys):
    assert main.main([]) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in main.COMMANDS)


def test_help_and_version(capsys):
    assert main.main(["--help"]) == 0
    assert "doctor" in capsys.readouterr().out
    assert main.main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_an_unknown_command_suggests_one(capsys):
    assert main.main(["dcotor"]) == 2
    assert "no command 'dcotor'; did you mean 'doctor'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_row_of_the_table_leads_to_a_command_with_help(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main.main([name, "--help"])
    assert stop.value.code == 0
    assert f"usage: nkisim {name}" in capsys.readouterr().out


def test_an_unknown_option_is_exit_code_2(capsys):
    with pytest.raises(SystemExit) as stop:
        main.main(["doctor", "--nonsense"])
    assert stop.value.code == 2
    assert "--nonsense" in capsys.readouterr().err


def test_explain_prints_a_page(rules, capsys):
    assert main.main(["explain", "nki-p01"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("NKI-P01: Too many partitions\n\nA tile has 128 partitions.\n")
    assert "With import neuronxcc.nki, - is wrong and + right" in said


def test_a_page_has_the_figures_of_each_target_from_hw(capsys):
    """They were written into the page, so a new generation, or trn3, was not in it."""
    for id in errors.RULES:
        assert main.main(["explain", id]) == 0
    said = capsys.readouterr().out
    text = [line for line in said.splitlines() if not line.startswith((" ", "+", "-"))]
    assert "{" not in "".join(text)  # kernels may have f-strings
    for core in hw.CORES:
        assert f"{hw.size(core.sbuf_usable_bytes)} on {core.name}" in said


@pytest.mark.parametrize("course, calls", [("", 2), ("trn1", 1), ("trn2", 1)])
def test_explain_prints_how_a_function_is_called(course, calls, monkeypatch, capsys):
    if course:
        monkeypatch.setenv("NKI_COURSE", course)
    assert main.main(["explain", "nisa.nc_transpose"]) == 0
    said = capsys.readouterr().out
    assert said.count("nisa.nc_transpose(") == calls and "Transpose a tile" in said
    assert ("import nki:" in said) == (course != "trn1")
    assert main.main(["explain", "nc_transposed"]) == 2


def test_explain_without_an_id_lists_them(rules, capsys):
    assert main.main(["explain"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "NKI-B02  Wrong buffer",
        "NKI-P01  Too many partitions",
    ]


def test_explain_suggests_the_id_that_was_meant(rules, capsys):
    assert main.main(["explain", "NKI-PO1"]) == 2
    said = capsys.readouterr()
    assert "did you mean 'NKI-P01'?" in said.err and said.out == ""


@pytest.mark.parametrize(
    "written",
    [
        "P01",
        "p1",
        "NKIP01",
        "NKI-P1",
        "nki_p_01",
        " NKI P01 ",
        "err_num_partition_exceed_arch_limit",
    ],
)
def test_explain_takes_an_id_as_people_write_it_and_the_name_of_the_sdk(capsys, written):
    assert main.main(["explain", written]) == 0
    assert capsys.readouterr().out.startswith("NKI-P01: ")


def test_explain_shows_several_pages(capsys):
    assert main.main(["explain", "P01", "M04"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("NKI-P01: ") and "\nNKI-M04: " in said
    assert main.main(["explain", "P01", "zork"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "written, says",
    [
        ("NKI-P99", "there is no rule or function 'NKI-P99'; Partitions: NKI-P01 to NKI-P"),
        ("NKI-Z01", "there is no rule or function 'NKI-Z01'\n"),
        ("", "there is no rule or function ''\n"),
        ("err_num_partition_exceeds_limit", "did you mean 'err_num_partition_exceed_arch_limit'?"),
        ("psum", "about that:\n  NKI-"),
        ("(", "there is no rule or function '('"),
        ("nc_matmull", "there is no rule or function 'nc_matmull'; did you mean 'nc_matmul'?"),
    ],
)
def test_explain_says_what_else_there_is(capsys, written, says):
    assert main.main(["explain", written]) == 2
    said = capsys.readouterr()
    assert says in said.err and said.out == ""


@pytest.mark.parametrize("command", ["explain", "doctor"])
def test_a_reader_that_has_seen_enough_causes_no_traceback(python, command):
    done = python.run(
        "-c",
        f"""if True:
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-m", "nkisim", "{command}"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        child.stdout.close()
        print(repr(child.stderr.read()), child.wait())
    """,
    )
    assert done.stdout == "'' 2\n", done.stdout


def test_the_module_can_be_run(python):
    done = python.nkisim("--version")
    assert (done.returncode, done.stdout) == (0, f"nkisim {__version__}\n")


def test_calibrate_says_where_it_is_if_the_wheel_left_it_out(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "nkisim.calibration.calibrate", None)
    assert main.main(["calibrate"]) == 2
    assert "clone the repository" in capsys.readouterr().err
