"""The magic %%nki and what notebooks show of findings and tiles, in IPython's own shell."""

from __future__ import annotations

import re

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.notebook import CellResult, MagicError, described, parse

SETUP = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
x = np.arange(128 * 4, dtype=np.float32).reshape(128, 4)
"""
ADD = """
@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.load(b)))
    return out
"""
UNWRITTEN = """
@nki.jit
def unwritten(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 4), dtype=a.dtype, buffer=nl.sbuf)
    tile[:, 0:2] = nl.load(a[:, 0:2])
    nl.store(out, tile)     # < 2 columns of garbage
    return out
"""


@pytest.fixture(scope="module")
def shell():
    pytest.importorskip("IPython")
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "nkisim.notebook")
    assert shell.run_cell(SETUP).success
    yield shell
    InteractiveShell.clear_instance()


def test_a_cell_defines_a_kernel_and_runs_it(shell):
    shown = shell.run_cell_magic("nki", "x, x --target trn2", ADD)
    assert isinstance(shown, CellResult)
    assert (shown.outputs == 2 * shell.user_ns["x"]).all()
    html = shown._repr_html_()
    assert "predicted, not measured" in html and "on trn2" in html and "<iframe" in html
    assert "float32 [128, 4]" in html and "No findings" in html
    assert "predicted, not measured" in repr(shown)


def test_a_finding_shows_the_line_of_the_cell(shell):
    shown = shell.run_cell_magic("nki", "x", UNWRITTEN)
    assert [f.id for f in shown.findings] == ["NKI-U02"]
    html = shown.findings[0]._repr_html_()
    marked = re.search(r"^&gt;.*$", html, re.M)
    assert marked and "&lt; 2 columns of garbage" in marked[0]  # as text, not as markup
    cell = f"%%nki x\n{UNWRITTEN}".splitlines()
    assert "columns of garbage" in cell[shown.findings[0].where.line - 1]
    assert "explain NKI-U02" in html and html in shown._repr_html_()
    assert "<pre style='font-family: monospace'>" in html  # notebooks show <pre> as text


def test_a_tile_that_a_kernel_of_the_newer_dialect_displays_is_no_finding(shell, capsys):
    shown = shell.run_cell_magic(
        "nki",
        "x",
        """
import nki
import nki.isa as nisa
import nki.language as nl
from IPython.display import display

@nki.jit
def look(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    display(tile)
    nisa.dma_copy(dst=out, src=tile)
    return out
""",
    )
    assert shown.findings == [] and "sbuf" in capsys.readouterr().out
    assert shell.run_cell(SETUP).success  # the names of the dialect that others use here


def test_a_kernel_that_breaks_a_rule_ends_in_the_rule(shell, capsys):
    cell = ADD.replace("nl.load(a)", "nl.load(a.reshape((256, 2)))")
    result = shell.run_cell(f"%%nki x, x\n{cell}")
    assert isinstance(result.error_in_exec, nkisim.NkiError)
    assert result.error_in_exec.id == "NKI-P01"
    said = capsys.readouterr().out
    assert "128 partitions" in said
    assert "interactiveshell.py" not in said and "run_cell_magic" not in said  # the user's alone
    assert re.search(r"where: +Cell In\[\d+\]:6, in add", said), said


def test_a_cell_with_an_error_of_its_own_shows_that_alone(shell, capsys):
    result = shell.run_cell("%%nki x\n1 / 0")
    assert result.result is None
    assert "ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line, cell, says",
    [
        ("x", "y = 1", "defines no kernel"),
        ("x --kernel nobody", "y = 1", "no kernel named nobody"),
        ("x --loud", ADD, "'--loud'"),
        ("x --target", ADD, "--target"),
    ],
)
def test_what_cannot_be_used_is_said(shell, line, cell, says):
    result = shell.run_cell(f"%%nki {line}\n{cell}")
    assert isinstance(result.error_in_exec, MagicError) and says in str(result.error_in_exec)


def test_a_kernel_of_another_cell_is_named(shell):
    assert shell.run_cell(ADD).success
    assert shell.run_cell_magic("nki", "x, 2 * x --kernel add", "y = 1").outputs[1, 0] == 12


@pytest.mark.parametrize(
    "line, expected",
    [
        ("", ("", None, None)),
        ("a, b[0]", ("a, b[0]", None, None)),
        ("f(1, 2) --target trn2 --kernel k", ("f(1, 2)", "trn2", "k")),
    ],
)
def test_the_first_line(line, expected):
    arguments, options = parse(line)
    assert (arguments, options.target, options.kernel) == expected


def test_outputs_are_described():
    assert described((np.arange(2), np.arange(100.0))) == [
        ("output 0", "int64 [2]: 0 1"),
        ("output 1", "float64 [100]: 0 1 2 ... 97 98 99"),
    ]
    assert described(None) == [("output 0", "None")]


def test_a_tile_shows_what_it_is_and_what_it_holds():
    shown = []

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        shown.append(tile._repr_html_())
        nl.store(out, nisa.tensor_scalar(tile, nl.multiply, 2.0))
        return out

    x = np.full((128, 8), 3.0, np.float32)
    x[0, 0] = np.nan
    assert np.array_equal(nkisim.simulate(kernel, x), 2 * x, equal_nan=True)
    assert "<b>sbuf</b> float32 [128, 8], 128 partitions of 32 bytes" in shown[0]
    assert "<th>max</th><td>3</td>" in shown[0] and "<th>nan</th><td>1</td>" in shown[0]
    assert shown[0].count("<rect") == 16 * 8 and "#c23f35" in shown[0]
