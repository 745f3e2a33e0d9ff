"""labkit evaluate: kernels of strangers are evaluated in the grader's sandbox."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import nkisim
from grading import ROOT, needs_sandbox
from labkit.grade import sandbox, untrusted
from labkit.grade.plan import load_plan
from labkit.inputs import make_inputs
from labkit.load import load_module
from labkit.spec import SpecError
from nkisim.cli import requests

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
        ("def double(x):", "def double(x, rows):", "refused", 9),
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


@pytest.mark.full
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


def asked(source, **more):
    """Return the answers to a request by this process: (with the candidate's, without it)."""
    request = {
        "kernel": ":double", "source": source, "args": ["128x64:float32"], "target": "trn2",
        "reference": ":twice", "reference_source": REFERENCE, "fixes": False, "seeds": [1, 2],
    }  # fmt: skip
    inside = partial(untrusted.kernel, sandbox="none")
    return requests.answer({**request, **more}, inside), requests.answer({**request, **more})


#: kernels that would know what another launch was, or what is in memory, and their honest twins
KNOWS = {
    "counts its launches": (
        "    SEEN.append(1)\n    SCALE = 2.0 if len(SEEN) == 1 else 3.0\n",
        "    SCALE = 2.0\n",
    ),
    "knows that it was told of memory": (
        "    assert not SEEN\n"
        "    t, r = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf), nisa.register_alloc()\n"
        "    nisa.memset(t, 1)\n    nisa.register_load(r, t)\n    SEEN.append(1)\n"
        "    nl.fori_loop(0, r, lambda i: None)\n    SCALE = 2.0\n",
        "    SCALE = 2.0\n",
    ),
}


@pytest.mark.parametrize("how", KNOWS)
def test_a_launch_cannot_be_told_from_another(how):
    """One run of the process serves all launches; who reads numbers has a process for each."""
    attack, honest = (
        asked(HEAD + "SEEN = []\n" + DOUBLE.replace("    out =", text + "    out =", 1))
        for text in KNOWS[how]
    )
    assert [answer["verdict"] for answer in honest] == ["right", "right"]
    assert attack[0]["verdict"] == "right", attack[0]["error"] or attack[0]["ladder"]
    assert attack[1]["verdict"] != "right"  # outside of the sandbox it knows


def test_nothing_is_computed_before_the_kernel_has_returned(monkeypatch):
    """So no clock tells what is in memory: what it prints of a tile is printed afterwards."""
    said, record = [], nkisim.record

    def recorded(*args, **kwargs):
        run = record(*args, **kwargs)
        said.append(("recorded", run.outputs))
        return run

    monkeypatch.setattr(nkisim, "record", recorded)
    monkeypatch.setattr("builtins.print", lambda *args, **_: said.append(("printed", args)))
    text = "    nl.device_print('tile', tile)\n    return out"
    answer, _ = asked(HEAD + DOUBLE.replace("    return out", text), seeds=[])
    assert answer["verdict"] == "right", answer["error"]
    assert said[0] == ("recorded", None) and [what for what, _ in said].count("recorded") == 1
    assert ("printed" in [what for what, _ in said]) and said[1][0] == "printed"


@pytest.mark.parametrize(
    "old, new",
    [
        ("(x.shape, dtype=x.dtype, buffer=nl.sbuf)", "((256, 64), dtype=x.dtype, buffer=nl.sbuf)"),
        ("nisa.tensor_scalar", "nisa.tensor_scaler"),
        ("    return out", "    1 / 0"),
        ("    return out", "    {}['scale']"),
        ("    return out", "    {}[(1, 'scale')]"),
        ("    return out", "    assert x.shape[0] == 3, 'three'\n    return out"),
        ("    return out", "    t = nl.ndarray((64, 4), dtype=x.dtype, buffer=nl.sbuf)\n"
         "    nisa.dma_copy(dst=out[0:64, 0:4], src=t)\n    nisa.nc_matmul(tile)"),
        ("dst=tile, src=x)", "dst=tile, src=x[0:128, 0:65])"),
        ("SCALE)", "x)"),
        ("def double(x)", "def double(x, rows)"),
        ("def double(x)", "def double()"),
        ("def double(x)", "def double(*, x)"),
        ("def double(x)", "def double(x, /, *more, scale, other=2, **rest)"),
    ],
)  # fmt: skip
def test_an_error_is_that_of_a_run_without_a_sandbox(old, new):
    """With its line, and with what was found before it."""
    inside, outside = (
        json.loads(re.sub("<(candidate|source [0-9a-f]+)>", "FILE", json.dumps(answer)))
        for answer in asked(HEAD + DOUBLE.replace(old, new))
    )
    assert outside["verdict"] != "right"
    for key in ("verdict", "error", "findings"):
        assert inside[key] == outside[key]


def test_an_error_that_a_kernel_catches_ends_it():
    wide = "nisa.dma_copy(dst=tile, src=x[0:128, 0:65])"
    text = f"    try:\n        {wide}\n    except Exception:\n        pass\n    return out"
    answer, _ = asked(HEAD + DOUBLE.replace("    return out", text))
    assert "caught this error and went on; it ends at its first one" in answer["error"]["what"]
    assert answer["error"]["where"]["line"] == 16


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "lab, dialect",
    [("conv2d", "beta1"), ("vecadd", "nki"), ("ffnn", "beta1"), ("vecadd", "beta1"),
     ("ffnn", "nki"), ("conv2d", "nki"), ("puzzles", "nki"), ("norms", "nki"), ("moe", "nki")],
)  # fmt: skip
def test_the_labs_kernels_are_evaluated_alike(lab, dialect):
    graded = load_plan(ROOT / "labs" / lab).speaking(dialect)
    file = graded.lab.folder / ("kernels_nki.py" if dialect == "nki" else "kernels.py")
    module, seen = load_module(file), set()
    for case, target in graded.runs:
        if case.kernel in seen or case.expect is not None and "Must" in type(case.expect).__name__:
            continue
        seen.add(case.kernel)
        inputs, keywords = make_inputs(case, 3), {**case.kwargs, **case.kernel_kwargs}
        request = {
            "kernel": f"{file}:{case.kernel}", "args": list(inputs), "kwargs": keywords,
            "set": case.constants,
        }  # fmt: skip
        for name, value in case.constants.items():
            setattr(module, name, value)
        with untrusted.kernel(request, "none") as (inside, _):
            one, other = (
                nkisim.evaluate(kernel, *inputs, target=target, fixes=False, **keywords)
                for kernel in (inside, getattr(module, case.kernel))
            )
        assert (one.verdict, one.latency_us) == (other.verdict, other.latency_us), case.name
        for output, judged in zip(np.atleast_1d(one.outputs), np.atleast_1d(other.outputs)):
            assert output.tobytes() == judged.tobytes(), case.name


def test_where_there_is_no_sandbox_nothing_is_run(monkeypatch):
    monkeypatch.setattr(sandbox, "probe", lambda: "bubblewrap (bwrap) is not installed")
    with pytest.raises(SpecError, match="not run without one"):
        untrusted.evaluate([f"{Path(__file__)}:none"])
