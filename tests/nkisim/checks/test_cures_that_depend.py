"""Cures that depend on more than the line: on the launch, on what is returned, on an operand."""

from __future__ import annotations

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
