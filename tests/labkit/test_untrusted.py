"""labkit evaluate: kernels of strangers are evaluated in the grader's sandbox."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grading import needs_sandbox
from labkit.grade import sandbox, untrusted
from labkit.spec import SpecError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")
HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n"
DOUBLE = """
SCALE = 2.0


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=SCALE)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
REFERENCE = "def twice(x):\n    return 2 * x\n"
#: what a stranger puts in front of a kernel that is right; what the honest twin has there is ""
ATTACKS = {
    "reads_a_file": 'print(open("{secret}").read())\n',
    "writes_the_reference": 'open("{reference}", "w").write("def twice(x): return x")\n',
    "starts_a_program": 'import os\nos.system("touch {secret}.new") and print(1 / 0)\n',
    "connects": "import socket\nsocket.socket()\n",
    "asks_the_simulator": "import nkisim\n",
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "reference.py").write_text(REFERENCE, "utf-8")
    (tmp_path / "secret.txt").write_text("the secret", "utf-8")
    os.chmod(tmp_path / "secret.txt", 0o644)
    return tmp_path


def evaluated(folder, source, *more, command="evaluate"):
    """Return (exit code, answer) of a command in a process of its own."""
    file = folder / "kernels.py"
    file.write_text(source, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "labkit", command, f"{file}:double", "--arg", "128x64:float32",
         "--reference", f"{folder / 'reference.py'}:twice", "--target", "trn2", "--json", *more],
        text=True, capture_output=True,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@needs_sandbox
def test_a_kernel_gets_the_answer_that_it_gets_outside(folder):
    code, inside = evaluated(folder, HEAD + DOUBLE, "--no-fixes")
    done = subprocess.run(
        [sys.executable, "-m", "nkisim", "evaluate", f"{folder / 'kernels.py'}:double", "--arg",
         "128x64:float32", "--reference", f"{folder / 'reference.py'}:twice", "--target", "trn2",
         "--json", "--no-fixes"],
        text=True, capture_output=True,
    )  # fmt: skip
    assert (code, inside["verdict"]) == (0, "right")
    assert inside == json.loads(done.stdout)


@pytest.mark.sample(2)
@needs_sandbox
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_reaches_for_the_machine_is_stopped(folder, attack):
    names = {"secret": folder / "secret.txt", "reference": folder / "reference.py"}
    code, answer = evaluated(folder, HEAD + ATTACKS[attack].format(**names) + DOUBLE)
    assert (code, answer["verdict"], answer["right"]) == (1, "fails", False)
    assert answer["error"]["where"]["file"] == str(folder / "kernels.py")
    assert answer["error"]["where"]["line"] in (4, 5)
    assert "the secret" not in json.dumps(answer)
    assert (folder / "reference.py").read_text("utf-8") == REFERENCE
    assert not (folder / "secret.txt.new").exists()


@pytest.mark.sample(3)
@needs_sandbox
@pytest.mark.parametrize(
    "old, new, verdict, line",
    [
        ("operand0=SCALE", "operand0=3.0", "wrong", None),
        ("(x.shape, dtype=x.dtype, buffer=nl.sbuf)", "((256, 64), dtype=x.dtype, buffer=nl.sbuf)",
         "refused", 11),
        ("    return out", "    raise KeyError('no')", "fails", 15),
        ("    return out", "    exit(0)", "fails", 15),
        ("    return out", "    while True: pass", "fails", None),
        ("def double(x):", "def double(x:", "does_not_parse", 9),
        ("nisa.tensor_scalar", "nisa.tensor_scaler", "refused", 13),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(folder, old, new, verdict, line):
    limit = ("--timeout", "4") if "while True" in new else ()  # a busy machine is slow, not wrong
    code, answer = evaluated(folder, HEAD + DOUBLE.replace(old, new), *limit)
    assert (code, answer["verdict"]) == (1, verdict)
    if line:
        where = answer["error"]["where"]
        assert (where["file"], where["line"]) == (str(folder / "kernels.py"), line)


@needs_sandbox
def test_constants_are_set_and_what_the_compiler_refuses_is_said(folder):
    code, answer = evaluated(folder, HEAD + DOUBLE, "--set", "SCALE=3.0")
    assert (code, answer["verdict"]) == (1, "wrong")
    generator = HEAD + DOUBLE.replace("    return out", "    yield out")
    code, answer = evaluated(folder, generator)
    assert (code, answer["verdict"]) == (1, "lint")


@needs_sandbox
def test_requests_are_served_in_order(folder):
    asked = [
        {"id": n, "kernel": ":double", "source": source, "args": ["128x64:float32"],
         "reference": ":twice", "reference_source": REFERENCE, "target": "trn2", "details": False}
        for n, source in enumerate((HEAD + DOUBLE, HEAD + "open('x', 'w')" + DOUBLE))
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "labkit", "serve", "--sandbox", "--jobs", "1"], text=True,
        capture_output=True, input="".join(json.dumps(r) + "\n" for r in asked),
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(a["id"], a["verdict"]) for a in answers] == [(0, "right"), (1, "fails")]


def test_where_there_is_no_sandbox_nothing_is_run(monkeypatch):
    monkeypatch.setattr(sandbox, "probe", lambda: "bubblewrap (bwrap) is not installed")
    with pytest.raises(SpecError, match="not run without one"):
        untrusted.evaluate([f"{Path(__file__)}:none"])
