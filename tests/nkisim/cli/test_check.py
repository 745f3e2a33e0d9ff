"""`python -m nkisim check`: findings of a script, for people, programs and CI."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys

import numpy as np
import pytest
from neuronxcc import nki
from neuronxcc.nki import language as nl

import nkisim
from labkit.load import load_module
from nkisim.cli import kernel_arguments

SCRIPT = """
import sys
import numpy as np
from neuronxcc import nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        t = nl.load(x[:, i * 128:(i + 1) * 128])
        acc[...] = nl.matmul(t, t, transpose_x=True)    # COMMENT
    nl.store(out, nl.copy(acc))
    return out

print("script says", *sys.argv[1:])
for _ in range(2):
    kernel(np.ones((128, 512), np.float32))
"""
BREAKS = (
    SCRIPT
    + """
@nki.jit
def worse(x):
    return np.exp(nl.load(x))
worse(np.ones((128, 512), np.float32))
"""
)


@pytest.fixture
def check(tmp_path):
    def run(text, *options, arguments=()):
        path = tmp_path / "kernel.py"
        path.write_text(text)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(
            [sys.executable, "-m", "nkisim", "check", *options, str(path), *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=env,
        )

    return run


def test_findings_are_grouped_with_place_and_page_and_the_script_runs_as_it_is(check):
    done = check(SCRIPT, arguments=("a", "--json"))
    assert done.returncode == 0  # a warning
    assert done.stdout.startswith("script says a --json")
    assert done.stdout.count("NKI-L05  Iterations share a tile") == 1
    assert "kernel.py:13, in kernel: acc[...] = nl.matmul" in done.stdout
    assert "explain NKI-L05" in done.stdout and "2 kernel runs: 1 warning" in done.stdout


@pytest.mark.parametrize("level, code", [("teach", 0), ("strict", 1), ("off", 0)])
def test_levels_say_what_fails(check, level, code):
    assert check(SCRIPT, "--level", level).returncode == code


def test_a_rule_that_is_broken_comes_first_and_fails(check):
    done = check(BREAKS)
    assert done.returncode == 1
    assert done.stdout.index("NKI-K14") < done.stdout.index("NKI-L05")
    assert "try: nl.exp(t)" in done.stdout and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "comment, said",
    [
        ("nkisim: ignore[NKI-L05] only the last is meant", False),
        ("nkisim: ignore[NKI-L04, NKI-L05] only the last is meant", False),
        ("nkisim: ignore[NKI-L05]", True),
        ("nkisim: ignore[NKI-L02] another rule", True),
    ],
)
def test_a_comment_with_a_reason_turns_a_finding_off(check, comment, said):
    done = check(SCRIPT.replace("COMMENT", comment))
    assert ("NKI-L05  Iterations" in done.stdout) == said
    assert ("a reason belongs" in done.stdout) == comment.endswith("]")


def test_json_annotations_and_sarif_say_the_same(check, tmp_path):
    done = check(BREAKS, "--json", "--sarif", "out.sarif")
    found = json.loads(done.stdout)["findings"]
    assert "script says" in done.stderr
    assert [f["id"] for f in found] == ["NKI-K14", "NKI-L05"]
    assert found[0]["places"][0]["line"] == 23 and found[0]["try"].startswith("nl.exp(t)")
    log = json.loads((tmp_path / "out.sarif").read_text())
    (run,) = log["runs"]
    assert log["version"] == "2.1.0" and run["tool"]["driver"]["name"] == "nkisim"
    assert [(r["ruleId"], r["level"]) for r in run["results"]] == [
        ("NKI-K14", "error"),
        ("NKI-L05", "warning"),
    ]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "kernel.py"}, "region": {"startLine": 23}}
    assert {r["id"] for r in run["tool"]["driver"]["rules"]} == {"NKI-K14", "NKI-L05"}
    lines = check(BREAKS, "--github").stdout.splitlines()
    assert any(
        line.startswith("::error file=kernel.py,line=23,title=NKI-K14::np.exp is called")
        for line in lines
    )


def test_what_cannot_be_checked_is_a_sentence(check, tmp_path):
    done = check("x = 1\n")
    assert done.returncode == 2 and done.stdout.strip() == "0 kernel runs: nothing was checked"
    assert "tester.py --level teach" in done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "nkisim", "check", "absent.py"],
        text=True,
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 2 and "there is no file absent.py" in done.stderr
    done = check(SCRIPT, "--sarif", "no/such/folder.sarif")
    assert done.returncode == 2 and "NKI-L05  Iterations" in done.stdout  # nothing is lost
    assert "no/such/folder.sarif cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    done = check("import sys\nsys.exit(3)\n")
    assert done.returncode == 1
    done = check("1 / 0\n")
    assert done.returncode == 1 and "ZeroDivisionError" in done.stderr


def test_the_library_returns_findings_and_broken_rules_alike():
    @nki.jit
    def kernel(x, bad):
        out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nl.store(out, t.sum(axis=1) if bad else nl.sum(t, axis=1))
        return out

    x = np.ones((128, 8), np.float32)
    assert nkisim.check(kernel, x, False) == []
    (found,) = nkisim.check(kernel, x, True)
    assert (found.id, found.severity) == ("NKI-K14", "error") and "nl.sum" in found.hint


_KERNEL = """import math
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def k(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    {}
    nisa.dma_copy(dst=out, src=x)
    return out
"""


@pytest.mark.parametrize("load", [load_module, lambda path: kernel_arguments._import(str(path))])
def test_an_edit_of_the_same_second_and_size_is_seen(tmp_path, monkeypatch, load):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "edited_kernels.py"
    for value in (128, 512):
        file.write_text(f"TILE = {value}\n")
        os.utime(file, (10**9, 10**9))
        assert load(file).TILE == value
        py_compile.compile(str(file))  # as an import of it would


@pytest.mark.parametrize(
    "mistake, cure, right",
    [
        ("nisa.dma_copy(x, out)", "nisa.dma_copy(dst=out, src=tile)", "nisa.dma_copy(out, x)"),
        ("x = math.exp(x)", "nl.exp(t) makes the instruction", "x = nl.exp(x)"),
        ("nl.zeroes((1, 1))", "it failed before a kernel ended", "nl.zeros((1, 1), nl.int32)"),
    ],
)  # fmt: skip
def test_what_beginners_write_is_answered_with_what_they_meant(tmp_path, mistake, cure, right):
    for line, code in ((mistake, 1), (right, 0)):
        (tmp_path / "kernels.py").write_text(_KERNEL.format(line))
        done = subprocess.run(
            [sys.executable, "-m", "nkisim", "check", "kernels.py:k", "--arg", "128x8:float32"],
            cwd=tmp_path,
            text=True,
            capture_output=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert (cure in done.stdout) == bool(code)
