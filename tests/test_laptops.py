"""Windows and macOS, as far as another system can show them: encodings, line ends, paths."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nkisim.cli import main

ROOT = Path(__file__).parents[1]
LAB = ROOT / "labs" / "vecadd"
KERNEL = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def same(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))  # x \u2192 out
    return out


if __name__ == "__main__":
    nki.simulate_kernel(same, np.zeros((ROWS, 4), np.float32))
"""
#: what a pipe or a file is on Windows in Western Europe and America
CP1252 = {
    "PYTHONUTF8": "0",
    "PYTHONIOENCODING": "cp1252:strict",
    "PYTHONPATH": str(ROOT / "shared"),
}


def run(*argv, cwd, **env):
    """Run Python, and return exit code, standard output and errors as bytes."""
    done = subprocess.run(
        [sys.executable, *map(str, argv)],
        cwd=cwd,
        capture_output=True,
        env={**os.environ, **CP1252, "NKI_BANNER": "0", **env},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def kernel(tmp_path):
    """Write a script that runs a kernel with too many rows; its source has an arrow."""
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL.replace("ROWS", "256"), encoding="utf-8")
    return path


# -- what an 8-bit encoding lacks ----------------------------------------------------------------


def test_a_check_shows_a_line_with_what_the_output_cannot(kernel):
    code, out, err = run("-m", "nkisim", "check", kernel, cwd=kernel.parent)
    assert (code, err) == (1, b"") and b"nl.store(out, nl.load(x))  # x ? out" in out


def test_a_tester_shows_a_line_with_what_the_output_cannot(tmp_path):
    lab = tmp_path / "vecadd"
    shutil.copytree(LAB, lab)
    text = (lab / "kernels.py").read_text("utf-8")
    head, name, body = text.partition("def vector_add_naive")
    args, quotes, rest = body.partition('"""\n')
    (lab / "kernels.py").write_text(
        f"{head}{name}{args}{quotes}    nl.lod(1)   # 1 \u2192 tile\n{rest}", encoding="utf-8"
    )
    code, out, err = run("tester.py", "--kernel", "naive", "-n", "128", cwd=lab)
    assert code == 1 and b"nl.lod(1)   # 1 ? tile" in out and b"Traceback" not in err


def test_a_kernel_is_migrated_to_standard_output_in_utf_8(kernel):
    kernel.write_text(KERNEL.partition("\n\nif __name__")[0], encoding="utf-8")
    code, out, err = run(
        "-m",
        "nkisim",
        "migrate",
        f"{kernel}:same",
        "--arg",
        "128x4:float32",
        "-o",
        "-",
        cwd=kernel.parent,
    )
    assert code == 0 and "# x \u2192 out" in out.decode("utf-8")


def test_a_kernel_that_prints_what_the_locale_lacks_is_tuned(kernel):
    text = KERNEL.replace("np\n", "np\nROWS = 1\n", 1)
    text = text.replace("    out", "    print('\u2192')\n    out", 1)
    kernel.write_text(text, encoding="utf-8")
    code, out, err = run(
        "-m",
        "nkisim",
        "tune",
        f"{kernel}:same",
        "--set",
        "ROWS=1,2",
        "--arg",
        "128x4:float32",
        cwd=kernel.parent,
        LC_ALL="C",
        PYTHONCOERCECLOCALE="0",
    )
    assert code == 0 and b"2 candidates, 0 refused" in out, (out, err)


def test_the_history_is_drawn_with_other_characters_in_an_8_bit_encoding():
    from labkit.history.commands import BARS, PLAIN, sparkline

    assert PLAIN.isascii() and len(PLAIN) == len(BARS)
    assert sparkline([1, 8], PLAIN) == "_#"


# -- what editors there write --------------------------------------------------------------------


@pytest.mark.sample(6)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["crlf", "bom+crlf"])
@pytest.mark.parametrize(
    "command",
    [
        ("run",),
        ("check",),
        ("lint",),
        ("profile", ":same", "--arg", "128x4:float32"),
        ("tune", ":same", "--set", "ROWS=1,2", "--arg", "128x4:float32"),
        ("migrate", ":same", "--arg", "128x4:float32", "-o", "-"),
    ],
    ids=lambda c: c[0],
)
def test_a_kernel_of_a_windows_editor_is_a_kernel(mark, command, tmp_path):
    text = KERNEL.replace("np\n", "np\nROWS = 128\n", 1)
    if command[0] == "migrate":  # what else calls kernels is for people to decide
        text = text.partition("\n\nif __name__")[0]
    path = tmp_path / "kernel.py"
    path.write_bytes(mark + text.replace("\n", "\r\n").encode())
    name, *more = command
    place = f"{path}{more.pop(0)}" if more and more[0][0] == ":" else path
    code, out, err = run("-m", "nkisim", name, place, *more, cwd=tmp_path)
    assert (code, b"Error" in err) == (0, False), (out, err)


# -- names of files ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["profile", "tune", "migrate"])
@pytest.mark.parametrize("name", [r"C:\labs\kernels.py", r"C:kernels.py", "C:/labs/kernels.py"])
def test_the_colon_of_a_drive_is_not_that_of_a_function(command, name, tmp_path, capsys):
    code = main.main([command, name, *(["--set", "A=1"] if command == "tune" else [])])
    assert code == 2 and f"there is no file {name} (" in capsys.readouterr().err


@pytest.mark.parametrize("inside", [True, False])
def test_a_folder_with_blanks_and_umlauts_is_an_address_in_sarif(inside, kernel, tmp_path):
    folder = tmp_path / "J\u00fcrgen's labs"
    folder.mkdir()
    path = kernel.rename(folder / "kernel.py")
    code, out, err = run(
        "-m",
        "nkisim",
        "check",
        "--sarif",
        tmp_path / "out.sarif",
        path,
        cwd=tmp_path if inside else ROOT,
    )
    (place,) = {
        r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for r in json.loads((tmp_path / "out.sarif").read_text("utf-8"))["runs"][0]["results"]
    }
    assert place == ("J%C3%BCrgen%27s%20labs/kernel.py" if inside else path.resolve().as_uri())


def test_paths_of_the_other_machine_are_parted_by_colons_on_windows_too(monkeypatch):
    from labkit.remote import client

    monkeypatch.setattr(client.os, "pathsep", ";")
    monkeypatch.setenv("LABKIT_REMOTE_VENVS", "/opt/a:/opt/b_*")
    assert client.patterns() == ["/opt/a", "/opt/b_*"]


def test_every_file_of_the_repository_can_be_made_on_windows_and_macos():
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True)
    if done.returncode:
        pytest.skip("not a git working tree")
    names = done.stdout.decode().strip("\0").split("\0")
    parts = {part for name in names for part in name.split("/")}
    device = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.I)
    assert [p for p in parts if {*p} & {*'<>:"|?*\\'} or p[-1] in ". " or device.fullmatch(p)] == []
    assert len({name.lower() for name in names}) == len(names)  # they know no case
    assert max(map(len, names)) < 160  # of 260, for the folder of the repository too


# -- what ends a process, and what a machine has --------------------------------------------------


@pytest.mark.parametrize(
    "code, says",
    [(3, "exit code 3"), (0xC0000005, "0xC0000005 (access violation)"), (0xC0000409, "0xC0000409")],
)
def test_a_crash_of_windows_is_said_in_its_words(code, says):
    from nkisim.workers import ended

    assert ended(code) == f"ended with {says}"


def test_the_memory_of_this_machine_is_known():
    from labkit.inputs import machine_memory

    assert machine_memory() > 256 << 20


@pytest.mark.parametrize("windows", [True, False])
def test_a_file_that_someone_reads_is_replaced_when_he_is_done(windows, tmp_path, monkeypatch):
    from labkit import files

    new, old = tmp_path / "new", tmp_path / "old"
    new.write_text("new")
    refused = iter((True, True, False))

    def replace(source, target, replace=os.replace):
        if next(refused):
            raise PermissionError(13, "Access is denied")
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", replace)
    monkeypatch.setattr(files, "WINDOWS", windows)
    if windows:
        files.replace(new, old)
        assert old.read_text() == "new"
    else:
        with pytest.raises(PermissionError):
            files.replace(new, old)


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_colours_are_for_terminals_that_show_them(variable, monkeypatch):
    from nkisim.cli import check

    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(check, "_shows_colours", lambda: True)
    assert ("\033" in check._coloured("error")) == (not variable)
    monkeypatch.setattr(check, "_shows_colours", lambda: False)  # a console of long ago
    assert check._coloured("error") == "error"
