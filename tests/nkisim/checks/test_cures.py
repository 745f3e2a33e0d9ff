"""What is printed behind `try:` makes the wrong kernel right: it is put in the place of the line.

A row of cures.txt is a wrong line of a kernel (`-`), the rule and words of the message, and the
cure: the printed Python itself, or, where that is prose, the line that a reader makes of it (`+`).
The cured kernel runs, and nothing but what belongs to an excerpt is said about it.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import nkisim

CURES = Path(__file__).with_name("cures.txt")
X = np.random.default_rng(0).random((256, 512), dtype=np.float32)
HEADS = {
    "nki": "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n",
    "beta1": "from neuronxcc import nki\nimport neuronxcc.nki.isa as nisa\n"
    "import neuronxcc.nki.language as nl\n",
}
BEFORE = {
    "nki": """
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[0:128])
    u = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=u, src=x[128:256])
    nisa.dma_copy(dst=out[0:128], src=t)
    nisa.dma_copy(dst=out[128:256], src=u)
    y = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    s = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=s, value=1.0)
    p = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    q = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum)
    low, high, n, rows = 0.0, 1.0, 512, None
    shape = (128, 512)
""",
    "beta1": """
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x[0:128])
    u = nl.load(x[128:256])
    s = nl.load(x[0:128, 0:1])
    nl.store(out[0:128], t)
    nl.store(out[128:256], u)
    low, high, n, value = 0.0, 1.0, 512, 0.5
    shape = (128, 512)
""",
}
#: findings that belong to kernels which are an excerpt: inputs and tiles that nothing uses
EXCERPT = {"NKI-O07", "NKI-U04"}


class Row(NamedTuple):
    """A wrong line, the rule and words of what is said, and the right line where it is prose."""

    id: str
    dialect: str
    words: str
    wrong: str
    right: str


def rows():
    """Return the rows of cures.txt: `-` is wrong, `+` is right, blank is in both."""
    for block in re.split(r"^== ", CURES.read_text(encoding="utf-8"), flags=re.M)[1:]:
        heading, *lines = [line for line in block.splitlines() if not line.startswith("#")]
        wrong, right = ("\n".join(t[2:] for t in lines if t[0] in " " + m) for m in "-+")
        cured = any(line[0] == "+" for line in lines)
        yield Row(*heading.split(" ", 2), wrong, right if cured else "")


ROWS = [pytest.param(row, id=f"{row.dialect}: {row.wrong.splitlines()[0][:60]}") for row in rows()]


def kernel_of(dialect: str, body: str, path: Path):
    """Return the kernel with this body, from a file, as users' kernels are."""
    path.write_text(
        f"{HEADS[dialect]}import numpy as np\n\n\n@nki.jit\ndef kernel(x):"
        f"{BEFORE[dialect]}{textwrap.indent(body, '    ')}\n    return out\n",
        encoding="utf-8",
    )
    names: dict = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return names["kernel"]


def statements(hint: str, wrong: str) -> list[str]:
    """Return what can be put in the place of a line, of what is printed behind `try:`."""
    code = re.sub(r"^[A-Za-z][^:()=]*(?:\([^)]*\)[^:()=]*)?: (?=\w)", "", hint)
    code = re.split(r", or |; or |; kernels of | makes the | \(a loop|, for positive", code)[0]
    *before, last = wrong.splitlines()
    if re.fullmatch(r"(dst|src|value)=\S.*", code):  # an argument of the call
        name = code.partition("=")[0]
        changed = re.sub(rf"\b{name}=[^,)]*(\[[^]]*\])?", code, last)
        if changed == last:  # given by place
            given = re.findall(r"\w+(?:\[[^]]*\])?", last.partition("(")[2])
            changed = last.replace(
                given[name != "dst"] + (")" if name != "dst" else ","),
                code.partition("=")[2] + (")" if name != "dst" else ","),
            )
        return [*before, changed]
    if (
        re.match(r"\w+ = nl\.ndarray\(", code) and ";" not in code and not re.match(r"z = ", last)
    ):  # the tile, and the line as it is
        return [*before, code, last]
    return [*before, *code.split("; ")]


def findings(kernel) -> set[str]:
    prof = nkisim.profile(kernel, X, target="trn2")
    return {f.id for f in prof.findings if f.severity != "note"} - EXCERPT


@pytest.mark.parametrize("row", ROWS)
def test_the_cure_makes_the_kernel_right(row, tmp_path):
    with pytest.raises(nkisim.NkiError) as caught:
        findings(kernel_of(row.dialect, row.wrong, tmp_path / "wrong_kernel.py"))
    error = caught.value
    assert error.id == row.id, error.render()
    assert row.words in error.hint, error.render()
    assert error.where.text in (*map(str.strip, row.wrong.splitlines()), "def kernel(x):")
    if row.dialect == "nki":
        assert not re.search(
            r"nl\.(load|store)\b|base_addr|num_free_tiles|nl\.par_dim|mask=", error.hint
        ), "words of neuronxcc.nki"
    else:
        assert not re.search(r"\bdst=(?!out|\.\.\.)", error.hint), "words of the package nki"
    cured = row.right or "\n".join(statements(error.hint, row.wrong))
    assert findings(kernel_of(row.dialect, cured, tmp_path / "cured_kernel.py")) == set(), cured
