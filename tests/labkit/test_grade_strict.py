"""The judge is strict: nothing in a submission turns off, downgrades or hides what is found."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest

import redteam
from grading import ROOT, SOLVED, hand_in, needs_sandbox, run, small_lab
from labkit.evaluate import PASSED, Outcome
from labkit.grade.judge import record
from labkit.grade.plan import load_plan

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows"),
    needs_sandbox,
]

#: each iteration stores what the one before has loaded: right only if they run in order
RACE = """
t = nl.ndarray((nl.par_dim(128), 32), dtype=matrix.dtype, buffer=nl.sbuf)
t[...] = nl.load(matrix[0:128, 0:32])
blocks = matrix.shape[1] // 32
for c in nl.affine_range(blocks - 1):
    nl.store(out[c * 32:c * 32 + 32, 0:128], nisa.nc_transpose(t))SAID
    t[...] = nl.load(matrix[0:128, c * 32 + 32:c * 32 + 64])SAID
nl.store(out[blocks * 32 - 32:blocks * 32, 0:128], nisa.nc_transpose(t))
return out
"""
#: the directive of the lab's kernels, which lets affine_range keep the order of its iterations
KEEPS = "@nki.compiler.skip_middle_end_transformations\n"
IGNORED = "  # nkisim: ignore[NKI-L05, NKI-L02] looked at"

#: a transpose by DMA, which a compiler has refused for 4-byte data
REFUSED = """
for c in nl.affine_range(matrix.shape[1] // 128):
    for r in nl.affine_range(rows // 128):
        t = nisa.dma_transpose(matrix[r * 128:r * 128 + 128, c * 128:c * 128 + 128])
        nl.store(out[c * 128:c * 128 + 128, r * 128:r * 128 + 128], t)
return out
"""
#: the same work with what the source alone shows to be refused: a while loop
WHILE = """
n = 0
while n < rows // 128:
    n += 1
for c in nl.affine_range(matrix.shape[1] // 128):
    t = nl.load(matrix[0:128, c * 128:c * 128 + 128])
    nl.store(out[c * 128:c * 128 + 128, 0:128], nisa.nc_transpose(t))
return out
"""
#: which rule ends a hidden case is chosen by its shape
CHOSEN = """
if matrix.shape[1] == 128:
    for c in nl.affine_range(1):
        for r in nl.affine_range(1):
            nl.store(out, nisa.nc_transpose(nl.load(matrix)))
    return out
if matrix.shape[1] == 256:
    nl.load(matrix[0:200, 0:200])
nl.load(matrix[0:128, 0:100000])
"""
#: how wrong it is is chosen by its shape
WRONG = (
    CHOSEN.split("if matrix.shape[1] == 256")[0]
    + """
t = nl.zeros((128, 128), dtype=matrix.dtype)
for c in nl.affine_range(2):
    nl.store(out[c * 128:c * 128 + 128, 0:128], t)
return out
"""
)


def racing(said):
    """Return kernels whose transpose races, without the directive that would order it."""
    return redteam.body(RACE.replace("SAID", said)).replace(KEEPS, "")


def judged(tmp_path, monkeypatch, **texts):
    """Grade kernels of vecadd and return verdicts by name."""
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    folder = hand_in(tmp_path / "subs", **texts)
    assert run(folder, tmp_path / "out") == 0
    return {
        p.stem: json.loads(p.read_text()) for p in (tmp_path / "out" / "verdicts").glob("*.json")
    }


@pytest.mark.full
def test_comments_settings_and_decorators_change_no_verdict(tmp_path, monkeypatch):
    for name, value in (("NKISIM_CHECKS", "off"), ("NKI_LANGUAGE", "off"), ("NKISIM_SHUFFLE", "3")):
        monkeypatch.setenv(name, value)
    found = judged(
        tmp_path,
        monkeypatch,
        said=racing(""),
        ignored=racing(IGNORED),
        settings=racing(IGNORED).replace(
            "import numpy",
            "import os\nos.environ['NKISIM_CHECKS'] = 'off'\n"
            "os.environ['NKI_LANGUAGE'] = 'off'\nimport numpy",
            1,
        ),
        zz_honest=SOLVED,
    )
    assert found["zz_honest"]["points"] == 10
    for name in ("ignored", "settings", "said"):
        assert found[name]["points"] == found["said"]["points"] < 10, name
        assert "NKI-L05" in json.dumps(found[name]), name


def test_what_the_compiler_refuses_fails_the_case(tmp_path, monkeypatch):
    found = judged(tmp_path, monkeypatch, refused=redteam.body(REFUSED), source=redteam.body(WHILE))
    for name, id in (("refused", "NKI-R13"), ("source", "NKI-L09")):
        assert found[name]["points"] == 0
        case = found[name]["cases"][0]
        assert id in case["text"] and "refuse" in case["text"], case["text"]


def test_a_hidden_case_tells_that_it_fails_and_no_more(tmp_path, monkeypatch):
    found = judged(tmp_path, monkeypatch, chosen=redteam.body(CHOSEN), wrong=redteam.body(WRONG))
    for name, staff in (("chosen", "NKI-P01"), ("wrong", "elements")):
        (line,) = (x for x in found[name]["lines"] if not x["points"])
        (case,) = (c for c in found[name]["cases"] if c["hidden"])
        assert staff in case["staff"]  # in the staff's verdict, and in no page
        assert not any(c.isdigit() for c in line["why"] + case["text"] + case["detail"])
        assert not case["findings"]
        for page in (tmp_path / "out" / "reports").glob(f"{name}.*"):
            assert "NKI-" not in page.read_text() and "elements" not in page.read_text()


def test_a_hidden_case_keeps_the_threshold_to_itself():
    """It is a time, and says how large the case is."""
    case = dataclasses.replace(
        load_plan(ROOT / "labs" / "conv2d").lab.cases[0], threshold_us={"trn2": 12.5}
    )
    outcome = Outcome(case, "trn2", PASSED, "right")
    assert record(outcome, False, True)["threshold_us"] == 12.5
    assert record(outcome, True, True)["threshold_us"] is None
