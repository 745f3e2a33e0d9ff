"""Errors and hints speak the words of the kernel's dialect: no name that it does not have.

All pages of rules and all texts in the source that go with an error are read. What stands in
language/beta1 or language/nki is for that dialect; elsewhere `nki_hint=` is for kernels of `import
nki`, and `hint=` for both if there is no `nki_hint=`. A rule is one of the dialects that have an
example of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nkisim
from nkisim.cli.examples import examples
from nkisim.errors.rules import RULES
from nkisim.language.beta1 import names as beta1_names
from nkisim.language.nki import names as nki_names
from nkisim.language.nki.refusals import VERDICTS
from nkisim.language.unknown_names import TABLE

ROOT = Path(__file__).resolve().parents[3] / "shared" / "nkisim"
BETA1, NKI = "beta1", "nki"
NAMES = {BETA1: beta1_names.NAMES, NKI: nki_names.NAMES}
#: a text says itself for which dialect it is
SAYS = {BETA1: re.compile(r"import nki\b|package nki"), NKI: re.compile(r"neuronxcc")}
#: rule -> dialects that have an example of it
SHOWN = {e.id: {other.dialect for other in examples() if other.id == e.id} for e in examples()}
#: files for one dialect alone: index expressions are of neuronxcc.nki
ROOMS = {
    BETA1: ("language/beta1/", "indexing/index.py"),
    NKI: ("language/nki/", "lint/nki.py", "isa/nki_instructions.py"),
}
NAME = re.compile(r"\b(nl|nisa)\.([a-z]\w*)")


def foreign(text: str, dialect: str) -> set[str]:
    """Return the names of a text that the other dialect has and this one has not."""
    other = BETA1 if dialect == NKI else NKI
    return {
        f"{module}.{name}"
        for module, name in NAME.findall(text)
        if name in NAMES[other][module].split() and name not in NAMES[dialect][module].split()
    }


def texts(node: ast.AST) -> Iterator[str]:
    """Return the constant texts of an expression, pieces of one string put together."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(v.value if isinstance(v, ast.Constant) else "..." for v in node.values)
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def said() -> Iterator[tuple[str, str, str]]:
    """Return (place, dialect, text) of the hints of all calls of fail and NkiError."""
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).as_posix()
        own = next((d for d, rooms in ROOMS.items() if room.startswith(rooms)), "")
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(call, ast.Call) or getattr(
                call.func, "id", getattr(call.func, "attr", "")
            ) not in ("fail", "NkiError"):
                continue
            given = {k.arg: k.value for k in call.keywords if k.arg in ("hint", "nki_hint")}
            rule = next(texts(call.args[0]), "") if call.args else ""
            for key, value in given.items():
                dialects = (
                    {own}
                    if own
                    else {NKI}
                    if key == "nki_hint"
                    else {BETA1}
                    if "nki_hint" in given
                    else {BETA1, NKI}
                )
                for text in texts(value):
                    for dialect in dialects & SHOWN.get(rule, dialects):
                        yield f"{room}:{value.lineno}", dialect, text


def rules() -> Iterator[tuple[str, str, str]]:
    """Return (id, dialect, hint) of all rules that have an example in the dialect."""
    for rule in RULES.values():
        for dialect, hint in ((BETA1, rule.hint), (NKI, rule.nki_hint or rule.hint)):
            if dialect in SHOWN.get(rule.id, ()):
                yield rule.id, dialect, hint


def invented() -> Iterator[tuple[str, str, str]]:
    """Return (name, dialect, answer) of the names that people invent."""
    for name, answers in TABLE.items():
        for dialect, answer in zip((BETA1, NKI), answers):
            yield name, dialect, answer


def verdicts() -> Iterator[tuple[str, str, str]]:
    """Return (id, dialect, remedy) of the forms that do not build, which are of nki."""
    for row in VERDICTS:
        yield row.id, NKI, row.remedy


@pytest.mark.parametrize("source", [said, rules, invented, verdicts])
def test_hints_have_the_names_of_their_dialect(source):
    wrong = [
        (place, dialect, sorted(names), text)
        for place, dialect, text in source()
        if (names := foreign(text, dialect)) and not SAYS[dialect].search(text)
    ]
    assert wrong == []


def test_names_of_one_dialect_are_told_apart():
    assert foreign("nl.mgrid[0:128], nl.par_dim(128), nl.static_cast(t)", NKI) == {
        "nl.mgrid",
        "nl.par_dim",
        "nl.static_cast",
    }
    assert foreign("nl.fori_loop(0, n, body), nisa.register_move(r, 1)", BETA1) == {
        "nl.fori_loop",
        "nisa.register_move",
    }
    assert foreign("nl.add(x, y), nisa.tensor_copy(dst=t, src=u)", NKI) == set()
    assert len(list(said())) > 300 and len(list(rules())) > 200


def test_a_row_that_has_two_names_is_called_as_the_kernel_calls_it():
    import neuronxcc.nki as beta1
    import neuronxcc.nki.language as beta1_nl
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @beta1.jit
    def older(x):
        at = beta1_nl.full(x.shape, 600.0, dtype=beta1_nl.uint32)
        out = beta1_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta1_nl.shared_hbm)
        beta1_nl.store(out, beta1_nl.gather_flattened(beta1_nl.load(x), at))
        return out

    @nki.jit
    def newer(x):
        at, t = nl.full(x.shape, 600, nl.uint32), nl.ndarray(x.shape, x.dtype)
        nisa.nc_n_gather(dst=t, data=nl.load(x), indices=at)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=t)
        return out

    for kernel, name in ((older, "nl.gather_flattened"), (newer, "nisa.nc_n_gather")):
        found = nkisim.run(kernel, np.ones((128, 64), np.float32)).findings
        assert any(f.id == "NKI-I02" and f" {name} " in f.text for f in found), found
