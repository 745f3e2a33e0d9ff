"""Python that honest kernels are written in: what it does in the tester it does in the grader."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import nkisim
from grading import ROOT
from labkit.evaluate import FAILED, NOT_RUN, PASSED, References, evaluate, judge
from labkit.grade.facade import Facade
from labkit.grade.judge import Bench
from labkit.grade.plan import load_plan
from labkit.inputs import make_inputs
from labkit.load import load_module
from test_grade_alike import HEADS, JIT, loaded

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

#: rules by name: (dialect, lines of the file, lines of a function that is given a tile)
RIGHT = {
    "classes of the language are classes": (
        "kernels_nki",
        """
        import dataclasses, typing

        @dataclasses.dataclass
        class Sizes(nl.NKIObject):
            rows = 1
            tile: nl.NkiTensor | None = None

        @functools.singledispatch
        def kind(x):
            return "other"

        @kind.register(nl.NkiTensor)
        def _(x: typing.Optional[nl.NkiTensor]):
            return "tensor"
        """,
        """
        assert kind(t) == "tensor" and kind(3) == "other" and type(t) is nl.NkiTensor
        assert Sizes(rows=128, tile=t).tile is t and Sizes().rows == 1
        match t:
            case nl.NkiTensor(shape=(128, n)):
                print(n, type(t).__name__)
            case _:
                raise TypeError
        """,
    ),
    "enums of import nki are enums": (
        "kernels_nki",
        "BY_ENGINE = {nisa.engine.vector: 1, nisa.engine.scalar: 2}",
        """
        print(nisa.engine.vector, [e.name for e in nisa.engine], nl.sbuf, t.buffer, t.buffer.name)
        assert BY_ENGINE[nisa.vector_engine] == 1 and nisa.vector_engine is nisa.engine.vector
        assert isinstance(nisa.dge_mode.none, nisa.dge_mode) and t.buffer is nl.sbuf
        """,
    ),
    "enums of neuronxcc.nki are numbers": (
        "kernels",
        "",
        """
        assert nisa.vector_engine == nisa.engine.vector == 5 and nisa.engine["vector"].value == 5
        print(nisa.get_nc_version() >= nisa.nc_version.gen2, repr(nisa.engine.vector), nl.sbuf)
        """,
    ),
    "what was made when the file was read lasts": (
        "kernels",
        """
        P, X = nl.arange(128)[:, None], nl.arange(64)[None, :]
        GRID, PART, WIDE = nl.mgrid[0:128, 0:64], nl.par_dim(128), nl.ds(0, 64)
        LEAST = nl.finfo(nl.float32).min
        """,
        """
        for tile in (t[P, X], t[GRID], t[GRID.p, GRID.x], t[:, WIDE]):
            nl.copy(tile)
        nl.full((PART, 1), LEAST, dtype=nl.float32)
        """,
    ),
    "a slice is a slice": (
        "kernels_nki",
        "HALF = nl.ds(0, 64)",
        "assert isinstance(HALF, slice) and t[:, HALF].shape == t[:, nl.ds(64, 64)].shape",
    ),
    "an attribute that is missing can be asked for": (
        "kernels_nki",
        "",
        """
        assert not any(hasattr(t, name) for name in ("T", "astype", "foo", "copy"))
        assert getattr(t, "foo", 7) == 7 and t.reinterpret_cast(nl.int32).dtype == nl.int32
        try:
            t.foo
        except AttributeError as error:
            print(error)
        """,
    ),
    "an attribute that is missing can be asked for in neuronxcc.nki": (
        "kernels",
        "",
        'assert not any(hasattr(t, name) for name in ("T", "foo", "copy", "buffer"))',
    ),
    "a copy is the tile": (
        "kernels",
        "import dataclasses\n\n@dataclasses.dataclass\nclass Pair:\n    one: object",
        """
        for tile in (copy.copy(t), *copy.deepcopy([t, t]), dataclasses.astuple(Pair(t))[0]):
            nl.copy(tile)
        nl.copy(t)
        """,
    ),
    "a deep copy is the tile": (
        "kernels_nki",
        "",
        "assert copy.deepcopy([t])[0].shape == t.shape and copy.copy(t).shape == t.shape",
    ),
    "texts": ("kernels", "print(nki.jit(turned))", "print(t, [t], f'{t} {t.dtype}')"),
    "texts of import nki": ("kernels_nki", "", "print(t, [t], f'{t} {t.dtype}', nl.psum)"),
    "a number is traced in a for statement alone": (
        "kernels",
        "",
        """
        count = seen = other = 0
        for k, i in enumerate(nl.affine_range(3)):
            count += 1
        listed = [seen := seen + i for i in nl.affine_range(3)]
        for i in nl.affine_range(3):
            if i == 0:
                first = 5
            other += 1
        print(count, listed, first, other)
        """,
    ),
    "loops of import nki are ranges": (
        "kernels_nki",
        "",
        """
        r = nl.affine_range(1, 7, 2)
        assert isinstance(r, range) and isinstance(nl.sequential_range(2), range)
        print(r, len(r), r.start, r.stop, r.step, list(r))
        """,
    ),
    "loops of neuronxcc.nki are no ranges": (
        "kernels",
        "",
        "assert not isinstance(nl.affine_range(2), range)",
    ),
    "where the elements of a tile lie": (
        "kernels",
        "",
        "print(t.strides, t.offset, t[0:3, 1:5].strides, t[0:3, 1:5].offset)",
    ),
    "modules below the language": (
        "kernels_nki",
        """
        import nki.collectives
        import nki.isa.constants as constants
        from nki.language.dtypes import bfloat16
        """,
        "assert bfloat16 == nl.bfloat16 and constants.engine is nisa.engine",
    ),
}
#: what the tester refuses, by its rule or its error
WRONG = {
    "a hint is the simulator's": ("kernels", "", "t.T", "NKI-K14"),
    "a hint of import nki": ("kernels_nki", "", "t.astype(nl.bfloat16)", "NKI-K14"),
    "a tile has no attributes of its own": ("kernels", "", "t.tag = 3", "AttributeError"),
    "a method that is missing": ("kernels_nki", "", "t.foo()", "AttributeError"),
}


def written(folder: Path, file: str, head: str, lines: str, result: str = "%s") -> Path:
    """Write a transpose whose tile is given to `lines`."""
    text = "\n".join(line[8:] if head[:1] == "\n" else line for line in head.splitlines())
    body = "\n".join(line if lines[:1] == "\n" else " " * 8 + line for line in lines.splitlines())
    path = folder / f"{file}.py"
    path.write_text(
        f"{HEADS[file]}\n\n{text}\n\n{JIT}    def more(t):\n{body}\n\n"
        f"    return {result % 'turned(matrix, more)'}\n"
    )
    return path


def bench_of(folder: Path, file: str):
    """Return a judge of a file, and the case."""
    lab = load_plan(ROOT / "labs" / "vecadd").speaking("nki" if file == "kernels_nki" else "beta1")
    job = {"submission": str(folder), "sandbox": "none", "kernels": file, "seed": 3}
    return Bench(job, lab, Facade()), lab.lab.case("transpose_128x128")


@pytest.mark.parametrize("what", RIGHT)
def test_what_the_tester_accepts(tmp_path: Path, capsys, what: str) -> None:
    path = written(tmp_path, *RIGHT[what])
    bench, case = bench_of(tmp_path, path.stem)
    reply = bench.run(case, "trn2")
    bench.stop()
    assert "error" not in reply, reply
    capsys.readouterr()
    module = loaded(path)
    run = nkisim.profile(module.matrix_transpose, *make_inputs(case, 3), target="trn2")
    assert reply["latency"]["p50"] == float(run.latency_us)
    np.testing.assert_array_equal(run.outputs[0], reply["outputs"][0])
    assert bench.printed == capsys.readouterr().out


@pytest.mark.parametrize("what", WRONG)
def test_what_the_tester_refuses(tmp_path: Path, what: str) -> None:
    *parts, rule = WRONG[what]
    path = written(tmp_path, *parts)
    bench, case = bench_of(tmp_path, path.stem)
    error = bench.run(case, "trn2")["error"]
    bench.stop()
    with pytest.raises(Exception) as here:
        nkisim.run(loaded(path).matrix_transpose, *make_inputs(case, 3), target="trn2")
    assert rule == getattr(here.value, "id", type(here.value).__name__)
    assert rule in error["text"], error


@pytest.mark.parametrize("result", ["[%s]", "(%s,)", "%s"])
def test_a_result_may_be_a_list(tmp_path: Path, result: str) -> None:
    path = written(tmp_path, "kernels_nki", "", "pass", result)
    said = both(path)
    assert said[0] == said[1] == "passed"


@pytest.mark.parametrize("text", ["", "def matrix_transposed(): pass"])
def test_a_file_without_the_kernel_could_not_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(text)
    said = both(path)
    assert said[0] == said[1] == NOT_RUN


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "text",
    [
        "import no_such_module",
        "raise ValueError('no')",
        "assert False",
        "assert False, 'why'",
        "import sys; sys.exit()",
        "raise SystemExit(3)",
        "def f(:",
        "x = [1, 2",
        "raise NotImplementedError('step 1 is not written yet')",
        "import neuronxcc.nki.language as nl\nnl.load(3)",
    ],
)
def test_a_file_that_does_not_load_could_not_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(f"\n{text}\n")
    said = both(path)
    assert said[0] == said[1] == NOT_RUN


#: what is launched by the kernel's name, after the head: a lab names it
LAUNCHED = {
    "a function that calls a kernel": """
inner = nki.jit(turned)

def matrix_transpose(matrix):
    return inner(matrix)
""",
    "a plain function": "\ndef matrix_transpose(matrix):\n    return turned(matrix)\n",
    "a partial": "\nmatrix_transpose = nki.jit(functools.partial(turned, more=lambda t: None))\n",
    "a method": """
class Kernels:
    def turned(self, matrix):
        return turned(matrix)

matrix_transpose = nki.jit(Kernels().turned)
""",
}
#: kernels with other parameters than they are called with
DOES_NOT_FIT = {
    "an argument more": "\n@nki.jit\ndef matrix_transpose(matrix, n):\n    return turned(matrix)\n",
    "an argument less": "\n@nki.jit\ndef matrix_transpose():\n    return turned(None)\n",
    "what decorators hide": """
def shown(f):
    @functools.wraps(f)
    def call(*args, **kw):
        return f(*args, **kw)
    return call

@nki.jit
@shown
@shown
def matrix_transpose(matrix, rows):
    return turned(matrix)
""",
}
OBJECT = "\nclass Turned:\n    def __call__(self, x):\n        return turned(x)\n\n"


@pytest.mark.sample(7)
@pytest.mark.parametrize("file", HEADS)
@pytest.mark.parametrize("what", [*LAUNCHED, *DOES_NOT_FIT])
def test_what_may_be_launched(tmp_path: Path, file: str, what: str) -> None:
    path = tmp_path / f"{file}.py"
    path.write_text(HEADS[file] + {**LAUNCHED, **DOES_NOT_FIT}[what])
    said = both(path)
    assert said[0] == said[1] == (PASSED if what in LAUNCHED else FAILED)


def test_what_the_compiler_refuses_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "kernels_nki.py"
    refused = "    if not matrix.shape:\n        tile = nl.load(matrix)\n        tile + 1.0\n"
    kernel = f"@nki.jit\ndef matrix_transpose(matrix):\n{refused}    return turned(matrix)\n"
    path.write_text(f"{HEADS['kernels_nki']}\n{kernel}")
    assert both(path) == [FAILED, FAILED]


@pytest.mark.parametrize("file", HEADS)
@pytest.mark.parametrize("made", ["Turned()", "nki.jit(Turned())"])
def test_an_object_is_no_kernel(tmp_path: Path, file: str, made: str) -> None:
    path = tmp_path / f"{file}.py"
    path.write_text(f"{HEADS[file]}{OBJECT}matrix_transpose = {made}\n")
    said = both(path)
    assert said[0] == said[1] == NOT_RUN


def both(path: Path) -> list[str]:
    """Return the status that the tester gives a file's transpose, and the judge's."""
    bench, case = bench_of(path.parent, path.stem)
    lab = bench.graded.lab
    bench.read_source([(case, "trn2")])
    reply = bench.run(case, "trn2")
    bench.stop()
    references = References(load_module(lab.folder / "reference.py"), 3)
    expected = () if "error" in reply else references.of(case)
    tester = next(iter(evaluate(lab, [(case, "trn2")], seed=3, kernels=path)))
    judged = judge(case, "trn2", reply, expected, references)
    assert tester.text == judged.text
    one, other = ([f["id"] for f in side.findings] for side in (tester, judged))
    assert sorted(one) == sorted(other)
    return [tester.status, judged.status]
