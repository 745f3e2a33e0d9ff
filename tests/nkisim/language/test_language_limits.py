"""What a compiler of NKI refuses in the source of a kernel is said before the kernel runs."""

from __future__ import annotations

import sys
import textwrap

import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim
from nkisim.cli import main
from nkisim.lint import level, program
from nkisim.lint.constructs import BETA1, CONSTRUCTS, NKI, VERSIONS

X = np.ones((128, 16), np.float32)

HEAD = """
import math
from enum import Enum
import numpy as np
{root}
@nki.jit
"""
ROOTS = {
    NKI: "import nki\nimport nki.isa as nisa\nimport nki.language as nl",
    BETA1: "import neuronxcc.nki as nki\nimport neuronxcc.nki.isa as nisa\n"
    "import neuronxcc.nki.language as nl",
}


def found(
    body: str, dialect: str = NKI, version: str = VERSIONS[-1], signature: str = "kernel(x, n=2)"
) -> list[str]:
    """Return "severity key" of what is said of a kernel with this body."""
    text = (
        HEAD.format(root=ROOTS[dialect])
        + f"def {signature}:\n"
        + textwrap.indent(textwrap.dedent(body).strip(), "    ")
        + "\n"
    )
    keys = {row.id: key for key, row in CONSTRUCTS.items()}  # one row an id
    return [
        f"{f.severity} {keys[f.id]}"
        for f in level.scan(program.of_text(text, "kernel.py"), version)
    ]


TILES = "a = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)\n"

# (key, with it, its twin without it): each construct of the new dialect
NEW = [
    ("try", "try:\n  pass\nexcept ValueError:\n  pass", "if n:\n  pass"),
    ("raise", "raise ValueError(n)", "assert n, f'{n}'"),
    ("with", "with open('f') as f:\n  pass", "with nl.no_reorder():\n  pass"),
    ("import", "import math", "pass"),
    ("global", "global counter\ncounter = 1", "counter = 1"),
    ("delete", "b = 1\ndel b", "b = 1"),
    ("loop_else", "for i in range(n):\n  pass\nelse:\n  pass", "for i in range(n):\n  pass"),
    ("loop_target", "for a, b in ((1, 2),):\n  pass", "for p in ((1, 2),):\n  a, b = p"),
    ("async", "yield x", "return x"),
    ("lambda", "f = lambda v: v", "f = math.sqrt"),
    ("comprehension", "s = [i for i in range(n)]", "s = []\nfor i in range(n):\n  s.append(i)"),
    (
        "tile_comprehension",
        "l = [nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf) for i in range(n)]",
        "l = []\nfor i in range(n):\n"
        "  l.append(nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf))",
    ),
    ("reflection", "print(repr(n))", "print(f'{n!r}')"),
    ("walrus", "if (m := n):\n  pass", "m = n\nif m:\n  pass"),
    ("format_spec", "s = f'{n:.2f}'", "s = f'{n}'"),
    ("starred", "f = max(*x.shape)", "f = max(x.shape[0], x.shape[1])"),
    ("starred", "f = dict(**n)", "f = dict(a=n)"),
    ("identity", "b = n is True", "b = n is None or n is not None or n == True"),
    ("matmul_operator", "c = x @ x", "c = 2 * n"),
    ("builtin", "c = sorted(x.shape)", "c = len(x.shape) + max(1, n)"),
    ("numpy_call", "c = np.ones(3)", "c = nl.shared_constant(np.ones(3))\nd = np.float32"),
    ("math_function", "c = math.sin(n)", "c = math.sqrt(n) * math.pi"),
    ("shape_is_list", "b = x.shape == [128, 64]", "b = x.shape == (128, 64)"),
    ("string_keys", "d = {1: 2}", "d = {'1': 2}"),
    ("operator", TILES + "b = a + 1.0", TILES + "b = a.shape[0] + 1\nc = nl.add(a, 1.0)"),
    ("operator", TILES + "a += x", TILES + "a = 1\na += 1"),
    ("operator", TILES + "b = a > 0", TILES + "b = a is not None and a.shape[0] > 0"),
    ("assign_item", TILES + "a[0:1] = n", "b = [1]\nb[0] = n"),
    ("tile_condition", TILES + "if a:\n  pass", TILES + "if a is None:\n  pass"),
    (
        "register_condition",
        "r = nisa.register_alloc(1)\nwhile r:\n  pass",
        "r = 1\nwhile r > 3:\n  pass",
    ),
    (
        "register_condition",
        "r = nisa.register_alloc(1)\nif r and n:\n  pass",
        "r = nisa.register_alloc(1)\nif n:\n  nl.fori_loop(0, r, math.sqrt)",
    ),
    (
        "register_condition",
        "s = nisa.scalar_load(x)\nif s > 3:\n  pass",
        "s = nisa.scalar_load(x)\ns = s * 3\nif n > 3:\n  pass",
    ),
    (
        "register_condition",
        "s = nisa.scalar_load(x)\nfor i in range(s):\n  pass",
        "s = nisa.scalar_load(x)\nnl.fori_loop(0, s, math.sqrt)",
    ),
    (
        "dynamic_exit",
        "for i in nl.dynamic_range(4):\n  if n:\n    break",
        "for i in range(4):\n  if n:\n    break",
    ),
    ("old_range", "for i in nl.affine_range(4):\n  pass", "for i in range(4):\n  pass"),
    ("string_buffer", "a = nl.ndarray((128, 4), nl.float32, buffer='sbuf')", TILES),
    (
        "integer_enum",
        "nisa.dma_copy(dst=x, src=x, dge_mode=2)",
        "nisa.dma_copy(dst=x, src=x, dge_mode=nisa.dge_mode.hwdge, priority=2)",
    ),
]


@pytest.mark.parametrize("key, bug, without", NEW)
def test_each_construct_is_found_and_its_remedy_is_not(key, bug, without):
    versions = VERSIONS if key != "list_method" else ("0.1",)
    said = {s.split()[1] for v in versions for s in found(bug, version=v)}
    assert key in said
    assert [s for v in versions for s in found(without, version=v)] == []


def test_a_class_has_a_base_that_the_guide_names():
    text = (
        HEAD.format(root=ROOTS[NKI]).removesuffix("@nki.jit\n")
        + """
class Plain:
    x: int = 1
class Colour(Enum):
    RED = 1
@nki.jit
def kernel(x):
    return Plain(), Colour(1)
"""
    )
    said = level.scan(program.of_text(text, "kernel.py"), "0.6")
    assert [(f.id, f.text.partition(":")[0]) for f in said] == [("NKI-G38", "class Plain")]
    assert level.scan(program.of_text(text, "kernel.py"), "0.7") == []
    assert level.scan(program.of_text(text, "kernel.py"), "0.2") == []


def test_signatures_are_looked_at():
    for version, severity in (("0.6", "warning"), ("0.7", "note")):
        assert found("pass", signature="kernel(x, *, n=1)", version=version) == [
            f"{severity} keyword_only"
        ]
        assert found("pass", signature="kernel(x, n=[1, 1])", version=version) == [
            f"{severity} list_argument"
        ]
    assert found("pass", signature="kernel(x, *n)", version="0.6") == ["note varargs"]
    assert found("pass", signature="kernel(x, n=(1, 1), m=None)") == []


#: Python that 0.7 runs and earlier releases refuse or do not list
OF_PYTHON = [
    "try",
    "raise",
    "with",
    "import",
    "delete",
    "loop_else",
    "loop_target",
    "match",
    "lambda",
    "comprehension",
    "tile_comprehension",
    "walrus",
    "format_spec",
    "starred",
    "identity",
    "matmul_operator",
    "builtin",
    "reflection",
    "numpy_call",
    "math_function",
    "string_keys",
    "varargs",
    "plain_class",
    "generator",
    "subclass",
    "nested_function",
]


def test_tracing_takes_all_of_python():
    """Since 0.7 Python itself runs what is no instruction; what asks for data stays refused."""
    for key in OF_PYTHON:
        assert CONSTRUCTS[key].verdict("0.7") == "accepted", key
    for key in (
        "operator",
        "tile_condition",
        "register_condition",
        "dynamic_range",
        "integer_enum",
        "string_buffer",
        "jit_target",
    ):
        assert CONSTRUCTS[key].verdict("0.7") == "refused", key
    assert {
        key
        for key, row in CONSTRUCTS.items()
        if row.verdict("0.6") != "accepted" == row.verdict("0.7")
    } == set(OF_PYTHON) - {"nested_function"}


MODULE = """
import nki
import nki.isa as nisa
import nki.language as nl
from dataclasses import dataclass
class Base(nl.NKIObject):
    n: int = 1
class Plain(Base):
    m: int = 2
@dataclass
class Compared(nl.NKIObject):
    n: int = 1
def tiles(n):
    yield from range(n)
@nki.jit
def kernel(x):
    for i in tiles(2):
        pass
    a, b, c, d = Base(), Base(), Compared(), Compared()
    a = Base()
    b = Base()
    c = Compared()
    d = Compared()
    p = Plain()
    seen = []
    count = 0
    def body(i):
        nonlocal count
        here = []
        here.append(i)
        seen.append(i)
    nl.fori_loop(0, 4, body)
    return a == b, c == d, a.n == b.n
"""


def test_what_tracing_changes_is_said_by_release():
    def said(version):
        return [
            (
                f.severity,
                {row.id: key for key, row in CONSTRUCTS.items()}[f.id],
                f.text.partition(":")[0],
            )
            for f in level.scan(program.of_text(MODULE, "kernel.py"), version)
        ]

    assert said("0.7") == [
        ("note", "body_state", "nonlocal count in body"),
        ("note", "body_state", "seen.append() in body"),
        ("note", "class_equality", "`a == b`"),
    ]
    assert {key for _, key, _ in said("0.6")} == {"generator", "subclass", "starred"} - {"starred"}


def test_the_front_end_says_whose_language_is_held(monkeypatch):
    """NKI_COMPILER_FRONTEND, AWS's variable, picks it; 0.6 has both, earlier releases one."""

    def asked(version, frontend):
        monkeypatch.setenv("NKI_LANGUAGE_VERSION", version)
        monkeypatch.setenv("NKI_COMPILER_FRONTEND", frontend)
        return level.traced(), level.requested()[1]

    assert asked("", "") == (True, "0.7")
    assert asked("0.7", "custom") == asked("", "parser") == (False, "0.6")
    assert asked("0.6", "") == (False, "0.6") and asked("0.6", "tracer") == (True, "0.7")
    assert asked("0.5", "tracer") == (False, "0.5")
    with pytest.raises(nkisim.NkiError, match="NKI-G00.*NKI_COMPILER_FRONTEND=ast"):
        asked("", "ast")


def test_a_verdict_is_that_of_the_version_that_is_asked_about():
    assert found("b = n is True", version="0.2") == ["note identity"]
    assert found("b = n is True", version="0.3") == ["warning identity"]
    comprehension = "s = [i for i in range(n)]"
    assert found(comprehension, version="0.2") == ["warning comprehension"]
    assert found(comprehension, version="0.6") == ["note comprehension"]
    inner = "def body(i):\n  pass\nnl.fori_loop(0, 4, body)"
    assert found(inner, version="0.2") == ["warning nested_function"]
    assert found(inner, version="0.6") == []
    assert found("l = []\nl.count(1)", version="0.1") == ["note list_method"]
    assert found("l = []\nl.count(1)", version="0.6") == []
    for body in ("import math", "print(repr(n))", "l = [nl.load(x) for i in range(n)]"):
        for version in VERSIONS:  # refused by builds of 0.6, traced since 0.7
            said = [s.split()[0] for s in found(body, version=version)]
            assert said == (["warning"] if version < "0.7" else []), (body, version)


OLD = [
    (
        "condition_on_index",
        "for i in nl.affine_range(4):\n  f = 1.0 if i > 0 else 2.0",
        "for i in nl.affine_range(4):\n  if i > 0 and n:\n    pass",
    ),
    (
        "builtin_on_index",
        "for i in nl.sequential_range(4):\n  end = min(i * 128 + 128, n)",
        "for i in nl.static_range(4):\n  end = min(i * 128 + 128, n)",
    ),
    (
        "counter",
        "c = 0\nfor i in nl.affine_range(4):\n  c += 2",
        "c = 0\nfor i in nl.static_range(4):\n  c += 2",
    ),
    (
        "counter",
        "c = 0\nfor i in nl.affine_range(4):\n  c = c + 2",
        "acc = nl.zeros((128, 1), nl.float32)\nfor i in nl.affine_range(4):\n"
        "  acc += nl.load(x)\n  e = i * 2\n  e += 1",
    ),
    (
        "out_of_scope",
        "for i in nl.affine_range(4):\n  t = nl.load(x)\nnl.store(x, t)",
        "t = nl.ndarray((128, 4), nl.float32)\nfor i in nl.affine_range(4):\n"
        "  t[...] = nl.load(x)\n  u = nl.load(x)\nu = nl.load(x)\nnl.store(x, t)\nnl.store(x, u)",
    ),
    (
        "out_of_block",
        "for i in range(4):\n  if i:\n    t = nl.load(x)\n  else:\n    t = nl.copy(x)\n"
        "nl.store(x, t)",
        "t = nl.ndarray((128, 4), nl.float32)\nfor i in range(4):\n"
        "  t[...] = nl.load(x)\nif n:\n  u = nl.load(x)\n  nl.store(x, u)\nelse:\n"
        "  u = nl.copy(x)\n"
        "  nl.store(x, u)\nnl.store(x, t)",
    ),
    (
        "out_of_block",
        "if n:\n  t = nl.load(x)\nnl.store(x, t)",
        "t = nl.load(x)\nif n:\n  t = nl.copy(t)\nnl.store(x, t)",
    ),
    ("old_while", "i = 0\nwhile i < n:\n  i += 1", "for i in nl.static_range(n):\n  pass"),
    (
        "old_tile_condition",
        "t = nl.load(x)\nif t > 0:\n  pass",
        "t = nl.load(x)\nif t is not None and t.shape[0] > 0:\n  pass",
    ),
]


@pytest.mark.parametrize("key, bug, without", OLD)
def test_each_limit_of_loops_that_are_traced_once_is_found(key, bug, without):
    assert [s.split()[1] for s in found(bug, BETA1)] == [key]
    assert found(without, BETA1) == []


def test_what_is_right_in_one_dialect_is_not_measured_by_the_other():
    assert found("t = nl.load(x)\nu = t + t\nt[...] = u", BETA1) == []
    assert found("while n < 4:\n  n += 1", NKI) == []


# -- at a launch -----------------------------------------------------------------------------------


def helper(t):
    while t is None:
        pass
    return t


@nki.jit
def counting(x):
    out = nl.ndarray((4, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    scale = 2.0
    for i in nl.affine_range(4):
        nl.store(out[i], value=nl.multiply(helper(nl.load(x)), scale))
        scale = scale + 1
    return out


@nki.jit
def with_min(x):
    out = nl.ndarray((4, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[min(i, 3)], value=nl.load(x))  # a symbol
    return out


def test_findings_are_there_with_the_line_before_anything_runs():
    run = nkisim.run(with_min, X)
    (said,) = run.findings
    assert (said.id, said.severity) == ("NKI-L08", "warning")
    assert not said.refused, "public solutions of courses have it, and no document refuses it"
    assert said.where.text.endswith("# a symbol") and said.where.function == "with_min"
    assert run.outputs.shape == (4, 128, 16)


def test_what_the_run_finds_as_well_is_said_once():
    assert [f.id for f in nkisim.run(counting, X).findings] == ["NKI-L07"]


def test_strict_refuses_before_the_run_and_off_says_nothing(monkeypatch):
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(with_min, X)
    assert caught.value.id == "NKI-L08" and caught.value.where.text.endswith("# a symbol")
    assert "static_range" in caught.value.render()
    nkisim.run(counting, X)  # notes are no errors
    monkeypatch.setenv("NKI_LANGUAGE", "off")
    assert [f for f in nkisim.run(with_min, X).findings if f.id == "NKI-L08"] == []
    monkeypatch.setenv("NKI_LANGUAGE", "loud")
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(with_min, X)
    assert caught.value.id == "NKI-G00" and "refuse, teach, strict, off" in caught.value.render()


def test_functions_that_a_kernel_calls_belong_to_it_also_in_other_files(tmp_path, monkeypatch):
    (tmp_path / "helpers_of_this_test.py").write_text(
        "import neuronxcc.nki.language as nl\n"
        "def rows(x):\n"
        "    for i in nl.affine_range(2):\n"
        "        n = max(i, 1)\n"
        "    return nl.load(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import helpers_of_this_test as helpers

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=helpers.rows(x))
        return out

    findings = nkisim.run(kernel, X).findings
    assert [(f.id, f.where.line) for f in findings] == [("NKI-L08", 4)]
    del sys.modules["helpers_of_this_test"]


# -- the command -----------------------------------------------------------------------------------


def test_the_command_reads_files_and_says_how_many(tmp_path, capsys):
    bad = tmp_path / "bad.py"
    bad.write_text(
        "import nki\nimport nki.language as nl\n@nki.jit\ndef kernel(x):\n"
        "    t = nl.load(x)\n    s = [1 for i in range(2)]\n    return t * 2\n"
    )
    assert main.main(["lint", str(bad)]) == 1
    said = capsys.readouterr().out
    assert "NKI-G25" in said and f"{bad}:7, in kernel: return t * 2" in said
    assert "1 file, 1 kernel: 1 refused, 0 notes" in said
    assert main.main(["lint", "--language-version", "0.6", str(bad)]) == 1
    assert "1 refused, 1 note (--notes shows them)" in capsys.readouterr().out
    assert main.main(["lint", "--notes", "--language-version", "0.1", str(tmp_path)]) == 1
    assert "2 refused, 0 notes" in capsys.readouterr().out

    bad.write_text(
        "import nki\nimport nki.language as nl\n@nki.jit\ndef kernel(x):\n    return nl.load(x)\n"
    )
    assert main.main(["lint", str(bad)]) == 0
    capsys.readouterr()
    bad.write_text("def f(:\n")
    assert main.main(["lint", str(bad)]) == 2
    said = capsys.readouterr()
    assert "bad.py, line 1, is not Python: invalid syntax" in said.err and said.out == ""
    assert main.main(["lint", str(tmp_path / "nothing.py")]) == 2
    said = capsys.readouterr()
    assert "there is no file" in said.err and said.out == ""
    bad.write_bytes("# Größe\nimport nki\n".encode("latin-1"))
    assert main.main(["lint", str(bad)]) == 2
    assert "bad.py is not Python: its text is not UTF-8" in capsys.readouterr().err
    bad.write_text("x = 1\n")
    assert main.main(["lint", str(bad)]) == 2
    assert "there is no kernel" in capsys.readouterr().err
