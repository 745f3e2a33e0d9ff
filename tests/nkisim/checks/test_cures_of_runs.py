"""Cures that depend on more than one line: on the launch, on a loop, on what is returned."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest

import nkisim

from .test_cures import HEADS, X, findings, kernel_of


@pytest.mark.parametrize("dialect, launch", [("nki", "2"), ("beta1", "n")])
def test_the_index_of_a_grid_that_is_not_there_is_named(dialect, launch, tmp_path):
    """As in CUDA: nl.program_id(0) where nothing launches the kernel over a grid."""
    text = (
        f"{HEADS[dialect]}\n\n@nki.jit\ndef kernel(x):\n"
        + {
            "nki": "    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)\n"
            "    i = nl.program_id(0)\n"
            "    nisa.dma_copy(dst=out[i * 128:i * 128 + 128], src=x[i * 128:i * 128 + 128])\n",
            "beta1": "    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)\n"
            "    i = nl.program_id(0)\n"
            "    nl.store(out[i * 128:i * 128 + 128], nl.load(x[i * 128:i * 128 + 128]))\n",
        }[dialect]
        + "    return out\n"
    )
    names: dict = {}
    exec(compile(text, str(tmp_path / "kernel.py"), "exec"), names)
    (said,) = [
        f for f in nkisim.run(names["kernel"], X, target="trn2").findings if f.id == "NKI-O04"
    ]
    assert "without a grid" in said.text and f"kernel[{launch}](" in said.suggestion()
    assert not [
        f for f in nkisim.run(names["kernel"][2], X, target="trn2").findings if f.id == "NKI-O04"
    ]


def run_of(text: str, path: Path, *arrays: np.ndarray):
    """Run the function `kernel` of a file of neuronxcc.nki."""
    path.write_text(f"{HEADS['beta1']}\n\n{textwrap.dedent(text)}", encoding="utf-8")
    names: dict = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return nkisim.run(names["kernel"], *arrays, target="trn1")


def test_windows_that_move_by_one_element_are_told_to_step(tmp_path):
    text = """
        @nki.compiler.skip_middle_end_transformations
        @nki.jit
        def kernel(x):
            out = nl.ndarray((256, 64), dtype=x.dtype, buffer=nl.shared_hbm)
            for i in nl.affine_range(2):
                nl.store(out[{0}], nl.load(x[{0}]))
            return out
        """
    x = np.ones((256, 64), np.float32)
    said = run_of(text.format("i:128"), tmp_path / "wrong.py", x).findings
    for id in ("NKI-O04", "NKI-L05"):
        assert any(f.id == id and "out[i * size:(i + 1) * size]" in f.text for f in said), id
    right = run_of(text.format("i * 128:(i + 1) * 128"), tmp_path / "right.py", x).findings
    assert not {f.id for f in right} & {"NKI-O04", "NKI-L05"}


@pytest.mark.parametrize(
    "copy",
    ["nl.store(out[c, r], nl.load(x[r, c]))", "nisa.dma_copy(dst=out[c, r], src=x[r, c])"],
)
def test_one_element_is_moved_wherever_it_lies(copy, tmp_path):
    text = f"""
        @nki.jit
        def kernel(x):
            out = nl.ndarray((3, 4), dtype=x.dtype, buffer=nl.shared_hbm)
            for r in nl.affine_range(4):
                for c in nl.affine_range(3):
                    {copy}
            return out
        """
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert (run_of(text, tmp_path / "kernel.py", x).outputs == x.T).all()


def test_a_kernel_without_its_decorator_is_told_where_it_goes(tmp_path):
    text = """
        {0}
        def kernel(x):
            out = nl.ndarray((4, 4), dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.load(x))
            return out

        def call(x):
            return kernel(x)
        """
    path, names = tmp_path / "kernel.py", {}
    path.write_text(HEADS["beta1"] + textwrap.dedent(text.format("")), encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    with pytest.raises(nkisim.NkiError) as caught:
        names["call"](np.ones((4, 4), np.float32))
    assert caught.value.hint == "write @nki.jit in the line above def kernel(...)"
    x = np.ones((4, 4), np.float32)
    assert (run_of(text.format("@nki.jit"), tmp_path / "right.py", x).outputs == x).all()


def test_shared_hbm_is_no_cure_for_a_tile_that_is_not_returned(tmp_path):
    wrong = "z = nl.zeros((256, 512), dtype=x.dtype)"
    with pytest.raises(nkisim.NkiError, match="NKI-P01") as caught:
        findings(kernel_of("nki", wrong, tmp_path / "kernel.py"))
    assert caught.value.hint.endswith("reshape to (128, n // 128)")


@pytest.mark.parametrize(
    "wrong, cure", [("op=np.exp", "op=nl.exp"), ("op=nl.max", "op=nl.maximum")]
)
def test_an_operator_by_another_name_is_named(wrong, cure, tmp_path):
    """A note, since no document says what a release makes of it."""

    def notes(op):
        line = {
            "op=np.exp": "nisa.activation(dst=y, {}, data=t)",
            "op=nl.max": "nisa.tensor_tensor(dst=y, data1=t, data2=u, {})",
        }[wrong].format(op)
        kernel = kernel_of("nki", line, tmp_path / f"kernel_{op[3:5]}_{len(op)}.py")
        found = nkisim.profile(kernel, X, target="trn2").findings
        return [f.suggestion() for f in found if f.id == "NKI-R35"]

    assert notes(wrong) == [cure]
    assert notes(cure) == []


def test_a_column_is_stored_into_each_column(tmp_path):
    """AWS's page of errors has the same for assignments as right; two columns are no column."""
    body = (
        "@nki.jit\ndef kernel(x):\n"
        "    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "    nl.store(out, nl.load(x[:, 0:{}]))\n    return out\n"
    )
    x = np.arange(128 * 4, dtype=np.float32).reshape(128, 4)
    right = run_of(body.format(1), tmp_path / "one.py", x)
    assert (right.outputs == x[:, 0:1]).all()
    with pytest.raises(nkisim.NkiError, match="only dims of size 1 of the value are repeated"):
        run_of(body.format(2), tmp_path / "two.py", x)


def test_an_element_that_is_compared_with_a_number_is_said(tmp_path):
    """Python's == asks whether both are one object: silently False, where < is refused."""

    def said(condition):
        text = f"if {condition}:\n    nisa.memset(dst=t, value=1.0)"
        kernel = kernel_of("nki", text, tmp_path / f"kernel_{len(condition)}.py")
        return [f for f in nkisim.profile(kernel, X, target="trn2").findings if f.id == "NKI-N04"]

    (found,) = said("t[0:1, 0:1] == 0.5")
    assert "nl.equal(t, 0.5)" in found.text and found.where.text.startswith("if t[0:1")
    assert said("t[0:1, 0:1] != 0")
    assert not said("s == 1.0") and not said("t == None") and not said("n == 512 and t is not u")
