"""What the tester says of a kernel the grader says, too: verdict, values and predicted time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import both_ways
from grading import ROOT
from labkit.inputs import make_inputs
from labkit.load import discover, load_lab, load_module
from labkit.spec import Case, Lab
from nkisim.cli.examples import Example, examples

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

#: examples of rules that the grader takes otherwise, and why; docs/grading.md says the first
OTHERWISE = {
    "a try statement": "a kernel ends at its first error, even if it catches it",
    "an async function that is not reached": "an input that is not used is noted",
    "a buffer by name that is not reached": "an input that is not used is noted",
    "a dtype of NumPy": "an input that is not used is noted, where no warning is in the source",
    "a while loop of a register": "the source is refused anyway",
    "masks joined by and": "both refuse it, by another rule",
    "a kernel in a kernel that asks for something else": "options of inner kernels are not sent",
    "a shape that the signature promises": "the inputs are the lab's",
}


@pytest.mark.sample(12)
@pytest.mark.parametrize("wrong", [True, False], ids=["wrong", "right"])
@pytest.mark.parametrize("example", examples(), ids=lambda e: f"{e.id} {e.dialect} {e.title}")
def test_examples_of_rules(
    example: Example, wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", example.target)
    text, file = example.source(wrong), tmp_path / "kernel.py"
    file.write_text(text)
    names = {"x": np.linspace(0.0, 60.0, 128 * 512, dtype=np.float32).reshape(128, 512)}
    with both_ways.tried(example.title) as differences:
        try:
            exec(compile(text, str(file), "exec"), names)
        except Exception:  # most are wrong: how, is compared
            pass
    assert bool(differences) <= (example.title in OTHERWISE), differences


def cases() -> Iterator[tuple[Lab, Case, str]]:
    """Yield the quick cases of all labs, in their dialects and generations."""
    for name in discover(ROOT / "labs"):
        lab = load_lab(ROOT / "labs" / name)
        for spoken in map(lab.speaking, lab.dialects):
            for target in ("trn1", "trn2"):
                for case in spoken.fleet("quick", target):
                    yield spoken, case, target


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "lab, case, target", list(cases()), ids=lambda v: getattr(v, "label", getattr(v, "name", v))
)
def test_kernels_of_the_labs(lab: Lab, case: Case, target: str) -> None:
    module = load_module(lab.kernels)
    for name, value in case.constants.items():
        setattr(module, name, value)
    kernel = both_ways.launching.as_kernel(getattr(module, case.kernel))
    inputs = make_inputs(case, lab.seed)
    assert both_ways.difference(kernel, inputs, {**case.kwargs, **case.kernel_kwargs}, target) == ""


@pytest.mark.full
@pytest.mark.parametrize(
    "folder", sorted({p.parent.name for p in (ROOT / "tests" / "nkisim").glob("*/test_*.py")})
)
def test_kernels_of_the_simulators_tests(folder: str, tmp_path: Path) -> None:
    """Each kernel that these tests launch, and conformance's rows among them, both ways."""
    log = tmp_path / "differences"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "both_ways", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"tests/nkisim/{folder}", "--quick", "3"],
        cwd=ROOT,
        env={**os.environ, "BOTH_WAYS_LOG": str(log)},
        capture_output=True,
        text=True,
    )
    tried = re.search(r"^(\d+) launches tried both ways", done.stdout, re.M)
    assert tried and int(tried[1]) > 0, done.stdout + done.stderr
    found = re.findall("^tests/.*", log.read_text(), re.M) if log.exists() else []
    known = re.compile("|".join(both_ways.OTHERWISE))
    assert [line for line in found if not known.search(line)] == []
