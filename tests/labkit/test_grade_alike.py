"""What the tester runs the judge runs: the same values and the same time, for each way in which an
honest kernel was once punished."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

import nkisim
from grading import ROOT
from labkit.grade.facade import Facade
from labkit.grade.judge import Bench
from labkit.grade.plan import load_plan
from labkit.inputs import make_inputs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

HEADS = {
    "kernels": """
import copy, functools
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def turned(x, more=lambda t: None):
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    more(t)
    nl.store(out, nisa.nc_transpose(t))
    return out
""",
    "kernels_nki": """
import copy, functools
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl


def column(t):
    return nl.ndarray((t.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)


def turned(x, more=lambda t: None):
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
    p = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.psum)
    nisa.dma_copy(dst=t, src=x, name="load")
    more(t)
    nisa.nc_transpose(dst=p, data=t)
    nisa.tensor_copy(dst=t, src=p, name="copy")
    nisa.dma_copy(dst=out, src=t)
    return out
""",
}
JIT = "\n@nki.jit\ndef matrix_transpose(matrix):\n"
#: kernels by what they do: (dialect, text after the head)
HONEST = {
    "a reduction by np.max": (
        "kernels_nki",
        JIT
        + "    return turned(matrix, lambda t:"
        + " nisa.tensor_reduce(dst=column(t), op=np.max, data=t, axis=1))\n",
    ),
    "a reduction by np.sum": (
        "kernels",
        JIT + "    return turned(matrix, lambda t: nisa.tensor_reduce(np.sum, t, axis=[1]))\n",
    ),
    "an activation by np.copy": (
        "kernels",
        JIT + "    return turned(matrix, lambda t: nisa.activation(np.copy, t))\n",
    ),
    "with nl.no_reorder": (
        "kernels_nki",
        JIT + "    with nl.no_reorder():\n        return turned(matrix)\n",
    ),
    "a schedule": (
        "kernels_nki",
        JIT
        + "    return turned(matrix)\n\n\n"
        + 'matrix_transpose = matrix_transpose.with_schedule([("copy", "load")])\n',
    ),
    "isinstance of a tensor": (
        "kernels_nki",
        JIT
        + "    assert isinstance(matrix, nl.NkiTensor) and not isinstance(3, nl.NkiTensor)\n"
        + "    return turned(matrix)\n",
    ),
    "the version's number": (
        "kernels_nki",
        JIT + "    assert nisa.get_nc_version().value > 0\n    return turned(matrix)\n",
    ),
    "a copy of a tile": (
        "kernels",
        JIT + "    return turned(matrix, lambda t: copy.copy(t).shape)\n",
    ),
    "keywords of a partial": (
        "kernels",
        "\n\ndef body(matrix, more=None):\n    return turned(matrix, more)\n\n\n"
        + "matrix_transpose = nki.jit(functools.partial(body, more=lambda t: nl.exp(t)))\n",
    ),
    "an argument that it may write": (
        "kernels",
        JIT.replace("(matrix)", "(matrix: nt.mutable_tensor)").replace(
            "\n@", "\nimport neuronxcc.nki.typing as nt\n\n\n@", 1
        )
        + "    t = nisa.nc_transpose(nl.load(matrix))\n"
        + "    nl.store(matrix, t)\n    return matrix\n",
    ),
    "a result in the place of the argument": (
        "kernels_nki",
        JIT
        + "    out, s = turned(matrix), nl.ndarray((128, 64), matrix.dtype, buffer=nl.sbuf)\n"
        + "    for i in nl.affine_range(2):\n"
        + "        nisa.dma_copy(dst=s, src=out[:, i * 64 : i * 64 + 64])\n"
        + "        nisa.dma_copy(dst=matrix[:, i * 64 : i * 64 + 64], src=s)\n"
        + "    return matrix\n",
    ),
    "a sum in any order": (
        "kernels",
        JIT
        + "    def sums(t):\n"
        + "        acc, s = (nl.zeros((128, 128), nl.float32) for _ in range(2))\n"
        + "        for i in nl.affine_range(4):\n"
        + "            s[...] = nl.multiply(t, 2.0)\n"
        + "            acc += s\n"
        + "        return acc\n\n"
        + "    return turned(matrix, sums)\n",
    ),
    "a size that each iteration halves, as if it were the first": (
        "kernels",
        JIT
        + "    out = nl.ndarray((128, 128), dtype=matrix.dtype, buffer=nl.shared_hbm)\n"
        + "    t, d = nl.copy(nisa.nc_transpose(nl.load(matrix))), 128\n"
        + "    for i in nl.affine_range(2):\n"
        + "        d = d // 2\n"
        + "        nl.store(out[:, i * 64 : i * 64 + d], t[:, i * 64 : i * 64 + d])\n"
        + "    return out\n",
    ),
    "addresses by a partial": (
        "kernels",
        "\nimport neuronxcc.nki.compiler as ncc\n\n\n"
        + "def bank(banks, idx, pdim_size, fdim_size):\n    return banks[0], 0, 0\n\n"
        + JIT
        + "    x = nl.ndarray((128, 128), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))\n"
        + "    out = nl.ndarray((128, 128), dtype=matrix.dtype, buffer=nl.shared_hbm)\n"
        + "    where = ncc.psum.alloc(functools.partial(bank, banks=[3]))\n"
        + "    p = nl.ndarray((128, 128), nl.float32, buffer=where)\n"
        + "    x[...] = nl.load(matrix)\n"
        + "    p[...] = nisa.nc_matmul(x, x)\n"
        + "    y = nl.ndarray((128, 128), nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=512))\n"
        + "    y[...] = nl.copy(p)\n"
        + "    nl.store(out, y)\n"
        + "    return out\n",
    ),
    "a member of an enum by its name": (
        "kernels",
        JIT + "    return turned(matrix, lambda t: nisa.engine['vector'])\n",
    ),
    "isinstance of a grid": (
        "kernels_nki",
        JIT
        + "    assert isinstance(nl.tiles(matrix, tile_shape=(128, 128)), nl.NkiGrid)\n"
        + "    return turned(matrix)\n",
    ),
    "an instruction that waits for another": (
        "kernels_nki",
        JIT
        + "    def waits(t):\n"
        + "        first = nisa.memset(column(t), 0.0)\n"
        + "        nisa.memset(column(t), 1.0).depends_on(first, kind=nisa.dependency.runtime)\n\n"
        + "    return turned(matrix, waits)\n",
    ),
    "a list as result": ("kernels", JIT + "    return [turned(matrix)]\n"),
}


def judged(folder: Path, file: str):
    """Return the judge's reply to a file's transpose, and the case."""
    lab = load_plan(ROOT / "labs" / "vecadd")
    lab = lab if file == "kernels" else lab.speaking("nki")
    case = lab.lab.case("transpose_128x128")
    job = {"submission": str(folder), "sandbox": "none", "kernels": file, "seed": 3}
    bench = Bench(job, lab, Facade())
    try:
        return bench.run(case, "trn2"), case
    finally:
        bench.stop()


def loaded(path: Path):
    """Return a file as a module, as the tester imports it."""
    found = importlib.util.spec_from_file_location(path.parent.name, path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.sample(9)
@pytest.mark.parametrize("what", HONEST)
def test_an_honest_kernel_has_the_same_values_and_time_in_both(tmp_path: Path, what: str) -> None:
    file, text = HONEST[what]
    path = tmp_path / f"{file}.py"
    path.write_text(HEADS[file] + text)
    reply, case = judged(tmp_path, file)
    assert "error" not in reply, reply
    module = loaded(path)
    inputs = make_inputs(case, 3)
    run = nkisim.profile(module.matrix_transpose, *inputs, target="trn2")
    assert reply["latency"]["p50"] == float(run.latency_us)
    for expected, output in zip(run.outputs, reply["outputs"], strict=True):
        np.testing.assert_array_equal(output, expected)
    again = reply["shuffled"]  # in another order, where that can matter
    assert again is None or not isinstance(again, str), again


@pytest.mark.parametrize(
    "file, edges, rule",
    [("kernels_nki", "[3]", "NKI-N11"), ("kernels_nki", '[("copy", "nothing")]', "NKI-N11")],
)
def test_a_schedule_that_is_none_is_refused_in_both(
    tmp_path: Path, file: str, edges: str, rule: str
) -> None:
    text = JIT + "    return turned(matrix)\n\n\n"
    path = tmp_path / f"{file}.py"
    path.write_text(HEADS[file] + text + f"scheduled = matrix_transpose.with_schedule({edges})\n")
    with pytest.raises(nkisim.NkiError, match=rule) as here:
        module = loaded(path)
        nkisim.run(module.scheduled, np.zeros((128, 128), np.float32), target="trn2")
    path.write_text(path.read_text().replace("scheduled =", "matrix_transpose ="))
    reply, _ = judged(tmp_path, file)
    assert reply["error"]["id"] == rule, (reply, str(here.value))


@pytest.mark.parametrize("what", ["np.median", "np.load"])
def test_a_function_of_numpy_that_is_no_operator_is_named_and_never_called(
    tmp_path: Path, what: str
) -> None:
    text = JIT + f"    return turned(matrix, lambda t: nisa.tensor_reduce({what}, t, axis=[1]))\n"
    (tmp_path / "kernels.py").write_text(HEADS["kernels"] + text)
    reply, _ = judged(tmp_path, "kernels")
    assert reply["error"]["id"] == "NKI-E11" and what[3:] in reply["error"]["text"], reply
