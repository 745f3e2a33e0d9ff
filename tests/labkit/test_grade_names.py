"""What a graded kernel may name: all that NKI has, also what a module makes when it is asked."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from grading import ROOT
from labkit.evaluate import evaluate
from labkit.grade.facade import Facade
from labkit.grade.judge import Bench
from labkit.grade.plan import load_plan

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

#: what a kernel names, in each dialect; a name may be made by the module when it is asked for
NAMED = {
    "kernels": """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
from neuronxcc.nki.language import hbm


def made(shape, dtype, buffer):
    return nl.ndarray((nl.par_dim(shape[0]), *shape[1:]), dtype=dtype, buffer=buffer)
""",
    "kernels_nki": """
import nki
import nki.isa as nisa
import nki.language as nl
from nki.language import hbm


def made(shape, dtype, buffer):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)
""",
}
KERNEL = """

@nki.jit
def matrix_transpose(matrix):
    out = nl.ndarray((128, 128), dtype=matrix.dtype, buffer=nl.shared_hbm)
    for name in DTYPES:
        dtype = getattr(nl, name)
        assert made((128, 4), dtype, nl.sbuf).dtype == dtype, name
    for memory in (nl.hbm, hbm, nl.private_hbm, nl.shared_hbm, nl.sbuf, nl.psum):
        made((128, 4), nl.float32, memory)
    for module in (nl, nisa):
        assert not any(hasattr(module, name) for name in ("nope", "np", "machine", "os", "jit"))
    return matrix_transpose_into(matrix, out)
"""
_DTYPES = [
    "int8",
    "int16",
    "int32",
    "uint8",
    "uint16",
    "uint32",
    "float16",
    "bfloat16",
    "float32",
    "tfloat32",
    "float8_e4m3",
    "float8_e5m2",
]
_NEWER = [
    "float8_e4m3fn",
    "float8_e8m0fnu",
    "float8_e4m3fn_x4",
    "float8_e5m2_x4",
    "float4_e2m1fn_x4",
]


@pytest.mark.parametrize(
    "file, dtypes, turned",
    [
        ("kernels", _DTYPES, "nl.store(out, nisa.nc_transpose(nl.load(x)))"),
        (
            "kernels_nki",
            _DTYPES + _NEWER,
            "t, p = made((128, 128), x.dtype, nl.sbuf), made((128, 128), x.dtype, nl.psum)\n"
            "    nisa.dma_copy(dst=t, src=x)\n    nisa.nc_transpose(dst=p, data=t)\n"
            "    nisa.tensor_copy(dst=t, src=p)\n    nisa.dma_copy(dst=out, src=t)",
        ),
    ],
)
def test_a_kernel_may_name_all_dtypes_and_memories(tmp_path, file, dtypes, turned):
    """`nl.hbm` of import nki is made when it is asked for; the stand-ins did not have it."""
    into = f"\n\ndef matrix_transpose_into(x, out):\n    {turned}\n    return out\n"
    (tmp_path / f"{file}.py").write_text(
        NAMED[file] + KERNEL.replace("DTYPES", repr(dtypes)) + into
    )
    lab = load_plan(ROOT / "labs" / "vecadd")
    submission = Bench(
        {"submission": str(tmp_path), "sandbox": "none", "kernels": file, "seed": 3},
        lab if file == "kernels" else lab.speaking("nki"),
        Facade(),
    )
    try:
        reply = submission.run(lab.lab.case("transpose_128x128"), "trn2")
    finally:
        submission.stop()
    assert "error" not in reply, reply


HEAD = {"kernels": "import neuronxcc.nki as nki\n", "kernels_nki": "import nki\n"}


def said(folder: Path, file: str, text: str) -> list[dict[str, Any]]:
    """Return the errors of the judge and of the tester for a file."""
    (folder / f"{file}.py").write_text(HEAD[file] + text)
    shutil.copy(ROOT / "labs" / "vecadd" / "reference.py", folder)
    plan = load_plan(ROOT / "labs" / "vecadd")
    plan = plan if file == "kernels" else plan.speaking("nki")
    case = plan.lab.case("transpose_128x128")
    job = {"submission": str(folder), "sandbox": "none", "kernels": file, "seed": 3}
    submission = Bench(job, plan, Facade())
    try:
        reply = submission.run(case, "trn2")
    finally:
        submission.stop()
    (outcome,) = evaluate(dataclasses.replace(plan.lab, folder=folder), [(case, "trn2")])
    errors = reply.get("error") or {}, outcome.error or {}
    return [{"id": "", "name": "", **error} for error in errors]


KERNEL_OF_NOTHING = "\n\n@nki.jit\ndef matrix_transpose(x):\n    return x\n"


@pytest.mark.sample(5)
@pytest.mark.parametrize("file", HEAD)
@pytest.mark.parametrize(
    "line, says",
    [
        ("from NKI.language import lod", "Did you mean nl.load"),
        ("from NKI import nope", "The simulator has no NKI.nope"),
        ("import NKI.nope.more", "The simulator has no NKI.nope"),
        ("import NKI.language as nl\nnl.lod", "Did you mean nl.load"),
        ("import nki_nope", "No module named"),
    ],
)
def test_a_name_that_there_is_not_is_said_with_one_text(tmp_path, file, line, says):
    package = HEAD[file].split()[1]
    judge, tester = said(tmp_path, file, line.replace("NKI", package) + KERNEL_OF_NOTHING)
    assert says.replace("NKI", package) in judge["text"] and "in <module>" in judge["text"]
    assert judge == tester


@pytest.mark.parametrize("file", HEAD)
def test_a_file_may_do_without_a_name_that_there_is_not(tmp_path, file):
    package = HEAD[file].split()[1]
    text = f"try:\n    from {package}.language import lod\nexcept ImportError:\n    lod = None\n"
    judge, tester = said(tmp_path, file, text + "assert lod is None" + KERNEL_OF_NOTHING)
    assert judge["id"] == tester["id"] == "NKI-O08"


@pytest.mark.parametrize("file", HEAD)
@pytest.mark.parametrize("made", ["K()", "nki.jit(K())"])
def test_an_object_that_can_be_called_is_no_kernel(tmp_path, file, made):
    text = (
        f"class K:\n    def __call__(self, x):\n        return x\n\n\nmatrix_transpose = {made}\n"
    )
    judge, tester = said(tmp_path, file, text)
    assert "an object as matrix_transpose; a kernel is a function" in judge["text"]
    assert judge == tester
