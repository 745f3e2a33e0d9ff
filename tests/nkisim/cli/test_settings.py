"""One door: every command takes kernels, courses, JSON and time limits in the same way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nkisim
from nkisim.cli import main
from nkisim.cli.document import Parser
from nkisim.cli.words import near
from nkisim.lint.constructs import NEWEST

KERNELS = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    y = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    nisa.dma_copy(dst=y, src=b)
    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
    nisa.dma_copy(dst=out, src=x)
    return out

@nki.jit
def half(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    nisa.dma_copy(dst=out[0:64], src=x[0:64])
    return out

@nki.jit
def refused(a):
    return nl.ndarray((256, 64), dtype=a.dtype, buffer=nl.sbuf)

@nki.jit
def endless(a):
    i = 0
    while True:
        i += 1
    return a
"""
BETA1 = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def copy(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out
"""
ARG = ["--arg", "128x64:float32"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Go to a folder with a file of kernels in each dialect, without settings."""
    for name in ("NKI_COURSE", "NKISIM_TARGETS", "NEURON_PLATFORM_TARGET_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    nkisim.course._of_folder.cache_clear()
    (tmp_path / "lib.py").write_text(KERNELS)
    (tmp_path / "old.py").write_text(BETA1)
    return tmp_path


def said(capsys, *argv: str):
    """Return (exit code, JSON object) of a command."""
    code = main.main([*argv, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_code"] == code and answer["schema"] == f"nkisim.{argv[0]}/1"
    assert answer["command"] == argv[0] and answer["nkisim"] == nkisim.__version__
    return code, answer


# -- what each command takes ---------------------------------------------------------------------

KERNEL = {"--arg", "--kwarg", "--target", "--course", "--release", "--level", "--timeout", "--json"}
RUN = KERNEL | {"--set", "--watch"}
#: every command, with the options that are the same everywhere
TAKES = {
    **dict.fromkeys(("run", "check", "profile", "tune", "evaluate"), RUN),
    "migrate": KERNEL,
    **dict.fromkeys(("view", "doctor", "explain", "coverage", "enable", "disable"), {"--json"}),
    "lint": {"--json", "--release"},
    "compare": {"--json", "--timeout"},
    "calibrate": {"--json", "--target"},
    **dict.fromkeys(("serve", "mcp"), {"--timeout"}),  # whose answers are JSON
    "completion": set(),  # whose answer is a program of the shell
}


@pytest.mark.parametrize("name", main.COMMANDS)
def test_options_are_the_same_everywhere(name):
    parser = nkisim.completion.parser_of("nkisim", main.COMMANDS[name][0])
    flags = {flag for action in parser._actions for flag in action.option_strings}
    assert flags & RUN == TAKES[name]
    if "--json" in TAKES[name] and name not in ("compare", "calibrate"):  # a file; of maintainers
        assert isinstance(parser, Parser)  # which answers a wrong call in JSON


# -- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "check", "profile"])
@pytest.mark.parametrize("kernel, code", [("add", 0), ("refused", 1), ("nothing", 2)])
def test_every_command_takes_file_and_kernel_and_answers_in_json(
    folder, capsys, command, kernel, code
):
    args = ARG * 2 if kernel == "add" else ARG
    got, answer = said(capsys, command, f"lib.py:{kernel}", *args)
    assert got == code
    if code == 2:
        assert "no function nothing" in answer["error"]["what"]
        assert "mean" not in answer["error"]["what"]  # annotations is not near
    if code == 1 and command == "check":  # what it looks for
        assert answer["findings"][0]["id"] == "NKI-P01" and answer["error"] is None
    elif code == 1:
        assert answer["error"]["id"] == "NKI-P01" and answer["error"]["where"]["line"] == 27
    if code == 0:
        assert answer["error"] is None


@pytest.mark.parametrize("command", ["run", "check", "profile"])
@pytest.mark.parametrize(
    "flags, kernel, why",
    [
        (["--target", "trn2"], "lib.py:add", "(trn2: --target)"),
        (["--target", "trn2", "--course", "trn2"], "lib.py:add", "(trn2: --target)"),
        (
            ["--target", "trn2", "--course", "trn1"],
            "lib.py:add",
            "(trn2: --target, instead of the course trn1 (--course))",
        ),
        (
            ["--target", "trn3", "--course", "trn2"],
            "lib.py:add",
            "(trn3: --target, instead of the course trn2 (--course))",
        ),
        (
            ["--target", "trn1", "--course", "trn2"],
            "old.py:copy",
            "(trn1: --target, instead of the course trn2 (--course))",
        ),
        ([], "lib.py:add", "(trn2: the default for kernels of nki)"),
    ],
)
def test_an_explicit_target_decides_and_says_so(
    folder, capsys, monkeypatch, command, flags, kernel, why
):
    monkeypatch.setattr("nkisim.simulation.banner._announced", False)
    monkeypatch.delenv("NKI_BANNER", raising=False)
    assert main.main([command, *flags, kernel, *ARG * (1 + kernel.endswith("add"))]) == 0
    assert why in capsys.readouterr().err


def test_an_output_that_is_not_written_fails_run_and_check_alike(folder, capsys):
    for command in ("run", "check"):
        code, answer = said(capsys, command, "lib.py:half", *ARG)
        assert code == 1 and "NKI-O04" in [f["id"] for f in answer["findings"]]
    (folder / "script.py").write_text(
        "import numpy as np, lib\nlib.half(np.zeros((128, 64), np.float32))\n"
    )
    done = shell(folder, "run", "script.py")
    assert done.returncode == 1 and "NKI-O04" in done.stderr


def test_arguments_come_from_files_as_well(folder, capsys):
    np.save("a.npy", np.ones((128, 8), np.float32))
    code, answer = said(capsys, "run", "lib.py:add", "--arg", "a.npy", "--kwarg", "b=a.npy")
    assert code == 0 and answer["outputs"] == [{"shape": [128, 8], "dtype": "float32"}]
    code, answer = said(capsys, "run", "lib.py:add", "--arg", "b.npy")
    assert code == 2 and "b.npy: there is no such file" in answer["error"]["what"]


def shell(folder, *argv: str, **env: str):
    """Run nkisim in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "nkisim", *argv],
        text=True,
        capture_output=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
    )


@pytest.mark.parametrize("command", ["run", "check", "lint", "migrate"])
def test_a_file_that_is_no_python_is_exit_code_2(folder, command):
    (folder / "bad.py").write_text("def f(:\n")
    done = shell(folder, command, "bad.py")
    assert done.returncode == 2 and "invalid syntax" in done.stderr


def test_flags_after_a_script_are_said(folder):
    (folder / "script.py").write_text("import sys; print(sys.argv[1:])\n")
    done = shell(folder, "check", "script.py", "--json")
    assert done.returncode == 2 and "['--json']" in done.stdout
    assert "--json after script.py goes to the script" in done.stderr


@pytest.mark.parametrize("command", ["run", "check", "profile"])
def test_flags_after_a_script_that_takes_none_are_obeyed(folder, command):
    call = "\nimport numpy as np\nadd(*[np.ones((128, 64), np.float32)] * 2)\n"
    (folder / "plain.py").write_text(KERNELS + call)
    done = shell(folder, command, "plain.py", "--json", "--target", "trn3")
    answer = json.loads(done.stdout)
    assert done.returncode == answer["exit_code"] == 0 and answer["command"] == command
    assert "trn3" in done.stderr and "goes to the script" not in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("command", ["run", "check", "profile"])
def test_a_loop_without_end_is_stopped_and_its_line_named(folder, command):
    done = shell(folder, command, "lib.py:endless", *ARG, "--timeout", "4", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 1 and answer["error"]["kind"] == "time"
    assert answer["error"]["where"]["line"] in (32, 33)
    assert "stopped after 4 s" in done.stderr and "--timeout" in done.stderr


@pytest.mark.full
def test_a_script_may_take_its_time_between_kernels(folder):
    (folder / "script.py").write_text("import time; time.sleep(1.5)\n")
    assert shell(folder, "run", "--timeout", "0.5", "script.py").returncode == 0


def test_modules_of_python_are_not_taken_from_the_folder(folder):
    (folder / "ast.py").write_text("raise SystemExit('the wrong ast')\n")
    assert shell(folder, "check", "lib.py:add", *ARG, *ARG).returncode == 0


def test_what_is_not_installed_is_a_sentence():
    """-S: a Python without any packages, as that of a checkout may be; doctor works there."""
    shared = str(Path(nkisim.__file__).parents[1])
    run = (
        f"import runpy, sys; sys.path.insert(0, {shared!r}); sys.argv = ['nkisim', 'run', 'k.py']; "
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", run + "runpy.run_module('nkisim', run_name='__main__')"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stderr.startswith("could not run: nkisim needs numpy and")


# -- the course ----------------------------------------------------------------------------------


def target_of(capsys, file: str, *more: str) -> str:
    code, answer = said(capsys, "profile", file, *ARG * (1 + file.startswith("lib")), *more)
    return answer["profile"]["target"] if code == 0 else answer["error"]["id"]


def test_a_kernels_dialect_decides_where_nothing_else_does(folder, capsys):
    assert target_of(capsys, "lib.py:add") == "trn2"
    assert target_of(capsys, "old.py:copy") == "trn1"


@pytest.mark.parametrize("course, new, old", [("trn1", "NKI-T03", "trn1"), ("trn2", "trn2",
                                              "NKI-T03"), ("trn3", "trn3", "NKI-T03")])  # fmt: skip
def test_a_course_decides_by_flag_variable_and_file(folder, capsys, monkeypatch, course, new, old):
    assert target_of(capsys, "lib.py:add", "--course", course) == new
    assert target_of(capsys, "old.py:copy", "--course", course) == old
    assert "NKI_COURSE" not in os.environ  # a command's settings end with it
    monkeypatch.setenv("NKI_COURSE", course)
    assert target_of(capsys, "lib.py:add") == new
    monkeypatch.delenv("NKI_COURSE")
    (folder / "pyproject.toml").write_text(f'[tool.nkisim]\ncourse = "{course}"\n')
    nkisim.course._of_folder.cache_clear()
    assert target_of(capsys, "old.py:copy") == old
    assert nkisim.course.chosen().why.endswith("pyproject.toml")


def test_an_error_says_who_chose_the_course(folder, capsys):
    _, answer = said(capsys, "check", "lib.py:add", *ARG, *ARG, "--course", "trn1")
    assert answer["error"]["given"] == "course trn1, chosen by --course"


def test_what_aws_does_not_run_is_a_warning_and_none_insists(folder, capsys):
    _, answer = said(capsys, "check", "lib.py:add", *ARG, *ARG, "--target", "trn1")
    assert [f["id"] for f in answer["findings"]] == ["NKI-R29"]
    _, answer = said(
        capsys, "check", "lib.py:add", *ARG, *ARG, "--target", "trn1", "--course", "none"
    )
    assert answer["findings"] == []
    assert target_of(capsys, "lib.py:add", "--target", "trn1", "--course", "none") == "trn1"
    assert not nkisim.course.runs("nki", "trn1") and nkisim.course.runs("beta1", "trn2")


@pytest.mark.parametrize(
    "text, sentence",
    [('course = "trn9"', "no course 'trn9'"), ('target = "trn2"', "has no key 'target'")],
)
def test_a_wrong_course_is_a_sentence(folder, capsys, text, sentence):
    (folder / "pyproject.toml").write_text(f"[tool.nkisim]\n{text}\n")
    nkisim.course._of_folder.cache_clear()
    code, answer = said(capsys, "check", "lib.py:add", *ARG, *ARG)
    assert code == 2 and sentence in answer["error"]["what"]


def test_rows_of_courses_hang_together():
    for course in nkisim.course.COURSES.values():
        assert course.target in nkisim.TARGETS
        assert nkisim.course.runs(course.dialect, course.target)
        assert course.release == (NEWEST if course.dialect == "nki" else "")


def test_the_banner_says_who_chose_the_generation(folder):
    done = shell(folder, "run", "lib.py:add", *ARG, *ARG, NKI_COURSE="trn3", NKI_BANNER="1")
    assert "(trn3: course trn3, NKI_COURSE)" in done.stderr


def test_old_names_of_flags_still_work(folder, capsys):
    for flags in (["--checks", "strict"], ["--language", "teach"], ["--language-version", "0.6"]):
        assert main.main(["run", *flags, "lib.py:add", *ARG, *ARG]) == 0
    capsys.readouterr()


# -- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word, known, meant",
    [
        ("nothing", ["annotations"], ""),
        ("nofile", ["24_if_tile"], ""),
        ("stroe", ["load", "store"], "store"),
        ("conv", ["conv2d_naive"], "conv2d_naive"),
    ],
)
def test_only_what_is_near_is_suggested(word, known, meant):
    assert near(word, known) == meant


@pytest.mark.parametrize("name", ["lint", "explain", "doctor", "coverage"])
def test_commands_about_no_run_answer_in_json_as_well(folder, capsys, name):
    argv = {"lint": ["lib.py"], "explain": ["NKI-P01"]}.get(name, [])
    code, answer = said(capsys, name, *argv)
    assert code in (0, 1) and answer["error"] is None


def test_a_wrong_call_answers_in_json_as_well(folder, capsys):
    with pytest.raises(SystemExit) as stop:
        main.main(["profile", "--no-such-flag", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert stop.value.code == answer["exit_code"] == 2 and answer["error"]["kind"] == "command"
