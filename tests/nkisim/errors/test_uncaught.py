"""An error that no one catches: in a script, in a notebook, in what prints exceptions."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import traceback

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim import NkiError

SCRIPT = """
import nkisim
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

def helper(a):
    return nl.load(a)

@nki.jit
def k(a):
    return helper(WHAT)

k(np.zeros((256, 4), np.float32))
"""
SLOTS = ("limit:", "you gave:", "where:", "try:", "more:")


def frames(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.strip().startswith("File ")]


def test_python_shows_all_slots_and_the_users_frames(python):
    python.script("s.py", SCRIPT.replace("WHAT", "a"))
    done = python.run("s.py")
    assert done.returncode == 1 and done.stderr.count("NKI-P01") == 2  # and in its last line
    assert all(done.stderr.count(slot) == 1 for slot in SLOTS), done.stderr
    assert len(frames(done.stderr)) == 3 and all("s.py" in f for f in frames(done.stderr))


@pytest.mark.parametrize(
    "what, said",
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("nl.shared_hmb", "nl has no 'shared_hmb'. Did you mean nl.shared_hbm?"),
    ],
)
def test_other_errors_show_the_users_frames_too(python, what, said):
    python.script("s.py", SCRIPT.replace("WHAT", what))
    done = python.run("s.py")
    assert done.returncode == 1 and done.stderr.splitlines()[-1].endswith(said), done.stderr
    assert len(frames(done.stderr)) == 2 and all("s.py" in f for f in frames(done.stderr))
    assert done.stderr.count("Did you mean") == said.count("Did you mean")


def test_a_programs_own_hook_is_left_alone(python):
    python.script(
        "s.py",
        "import sys\nsys.excepthook = lambda *e: print('mine', e[0].__name__)\n"
        + SCRIPT.replace("WHAT", "a"),
    )
    assert python.run("s.py").stdout == "mine NkiError\n"


def test_a_notebook_shows_all_slots_and_the_users_frames(tmp_path, shared):
    pytest.importorskip("IPython")
    code = textwrap.dedent(f"""
        from IPython.core.interactiveshell import InteractiveShell
        cell = {SCRIPT.replace("WHAT", "a")!r}
        shell = InteractiveShell.instance()
        shell.run_cell(cell)
        print("second"); shell.run_cell("k(np.zeros((256, 4), np.float32))")
        """)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(shared), "IPYTHONDIR": str(tmp_path)},
    )
    for said in done.stdout.split("second"):
        assert all(said.count(slot) == 1 for slot in SLOTS), said + done.stderr
        assert len(frames(said)) == 3 and not [f for f in frames(said) if "nkisim" in f]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")
def test_whatever_prints_an_exception_has_the_remedy():
    @nki.jit
    def kernel(a):
        return nl.load(a)

    with pytest.raises(NkiError) as caught:
        kernel(np.zeros((256, 4), np.float32))
    said = "".join(traceback.format_exception_only(caught.value))
    assert "try: loop over chunks" in said and "python -m nkisim explain NKI-P01" in said


def test_run_takes_a_target(python):
    python.script(
        "s.py",
        "import os, sys, neuronxcc.nki.isa as nisa\nprint(nisa.get_nc_version(), sys.argv[1:])\n",
    )
    said = python.nkisim("run", "--target", "trn2", "s.py", "--target", "x")
    assert said.stdout.split() == ["3", "['--target',", "'x']"], said.stderr
    refused = python.nkisim("run", "--target", "trn9", "s.py")
    assert refused.returncode == 2 and "NKI-T01" in refused.stderr and not refused.stdout
