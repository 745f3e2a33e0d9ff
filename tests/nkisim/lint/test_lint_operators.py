"""What lint proposes for an operator of tiles: its instruction, with the names of the line."""

from __future__ import annotations

import numpy as np
import pytest

import nkisim
from nkisim.cli import main

KERNEL = """import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    u = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.dma_copy(dst=u, src=x)
    r = {}
    nisa.dma_copy(dst=out, src=r)
    return out
"""
X = np.random.default_rng(0).random((128, 64), dtype=np.float32) + 1


@pytest.mark.parametrize(
    "operator, cure",
    [
        ("t + 2.0", "nisa.tensor_scalar(dst=, data=t, op0=nl.add, operand0=2.0)"),
        (
            "2.0 - t",
            "nisa.tensor_scalar(dst=, data=t, op0=nl.subtract, operand0=2.0, reverse0=True)",
        ),
        ("t / 4.0", "nisa.tensor_scalar(dst=, data=t, op0=nl.multiply, operand0=1 / 4.0)"),
        ("1.0 / t", "nisa.reciprocal(dst=, data=t)"),
        ("t * u", "nisa.tensor_tensor(dst=, data1=t, data2=u, op=nl.multiply)"),
    ],
)
def test_an_operator_gets_its_instruction(operator, cure, tmp_path, capsys):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(KERNEL.format(operator))
    assert main.main(["lint", str(wrong)]) == 1
    said = capsys.readouterr().out
    assert "NKI-G25" in said and f"Try: {cure}" in said
    right = tmp_path / "right.py"
    made = "nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)"
    right.write_text(KERNEL.format(f"{made}\n    {cure.replace('dst=', 'dst=r')}"))
    assert main.main(["lint", str(right)]) == 0
    names: dict = {}
    exec(compile(right.read_text(), str(right), "exec"), names)
    expected = eval(operator, {"t": X, "u": X})
    assert np.allclose(nkisim.run(names["kernel"], X, target="trn2").outputs, expected, rtol=1e-4)
