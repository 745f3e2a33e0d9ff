"""Lint reads expressions of as many terms, and files of as many functions, as Python runs."""

from __future__ import annotations

import numpy as np
import pytest

import nkisim
from nkisim.checks.finding import Finding
from nkisim.cli import main
from nkisim.cli.kernel_arguments import functions

HEADS = {
    "beta1": "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n",
    "nki": "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n",
}
BODIES = {
    "beta1": "    nl.store(out, nl.load(x))\n",
    "nki": "    nisa.dma_copy(dst=out, src=x)\n",
}
TERMS = 1500


def text(dialect: str, line: str) -> str:
    """Return a file with a kernel that has this line."""
    return (
        f"{HEADS[dialect]}\n\n@nki.jit\ndef kernel(x):\n    a, b = 1, 2\n    {line}\n"
        "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
        f"{BODIES[dialect]}    return out\n"
    )


def refused(dialect: str, line: str) -> list[Finding]:
    return nkisim.refusals(text(dialect, line), f"{dialect}.py", "kernel", dialect)


@pytest.mark.parametrize("dialect", HEADS)
def test_a_sum_of_many_terms_is_read_like_a_short_one(dialect):
    many = " + ".join(["a", "b"] * (TERMS // 2))
    assert refused(dialect, f"c = {many}") == refused(dialect, "c = a + b") == []
    wrong = {"beta1": "while a < {}: a += 1", "nki": "yield {}"}[dialect]
    ids = [[f.id for f in refused(dialect, wrong.format(n))] for n in ("b", many)]
    assert ids[0] and ids[0] == ids[1]


@pytest.mark.parametrize("dialect", HEADS)
def test_a_kernel_with_a_long_sum_runs(dialect, tmp_path):
    (tmp_path / "kernels.py").write_text(text(dialect, f"c = {' + '.join('a' * TERMS)}"))
    kernel = functions(str(tmp_path / "kernels.py"))[0].kernel
    x = np.ones((128, 4), np.float32)
    run = nkisim.run(kernel, x, target="trn2")
    assert (run.outputs == x).all() and not run.findings


def test_what_is_too_deep_for_python_is_said_in_a_sentence(tmp_path, capsys):
    """Its parser raises MemoryError, however much memory there is."""
    file = tmp_path / "kernels.py"
    file.write_text(text("nki", f"c = {'-' * 8000}1"))
    assert main.main(["lint", str(file)]) == 2
    assert "kernels.py, line 1, is not Python: it is nested too deeply" in capsys.readouterr().err


@pytest.mark.full
def test_a_kernel_that_calls_thousands_of_functions_is_read_once(tmp_path):
    """In minutes, if each function were looked for in the whole file."""
    calls = "; ".join(f"f{i}(x)" for i in range(16_001))
    helpers = "".join(f"def f{i}(x):\n    return x\n" for i in range(16_000))
    file = tmp_path / "kernels.py"
    file.write_text(f"{text('nki', calls)}\n\n{helpers}def f16000(x):\n    global y\n")
    kernel = functions(str(file))[0].kernel
    run = nkisim.run(kernel, np.ones((128, 4), np.float32), target="trn2")
    assert [f.where.line for f in run.findings] == [helpers.count("\n") + 16]  # `global`
