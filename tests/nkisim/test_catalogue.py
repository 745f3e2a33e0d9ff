"""Each mistake of the catalogue is named, with its line; the kernel without it is clean."""
from __future__ import annotations

import inspect

import numpy as np
import pytest
from neuronxcc import nki

import catalogue
import nkisim

X = np.random.default_rng(0).random((128, 512), dtype=np.float32) + 0.5
CASES = [pytest.param(*m, id=m[2].__name__) for m in catalogue.MISTAKES]


def launched(body, bad):
    grid = catalogue.GRIDS.get(body.__name__)
    kernel = nki.jit(body)
    return kernel[grid] if grid else kernel


def test_the_catalogue_is_large_and_each_mistake_in_it_has_a_line():
    assert len(CASES) >= 60
    for _, _, body in catalogue.MISTAKES:
        assert inspect.getsource(body).count("# BUG") == 1


@pytest.mark.parametrize("id, says, body", CASES)
def test_a_mistake_is_named(id, says, body):
    try:
        found = nkisim.check(launched(body, True), X, True, target="trn2")
    except AttributeError as error:             # a name that is not there
        assert id == "AttributeError" and says in str(error)
        return
    named = [f for f in found if f.id in id.split("|")]
    assert named, f"{id} is not among {[(f.id, f.text) for f in found]}"
    text = " ".join(f"{f.text} {f.hint}" for f in named)
    assert not says or any(word in text for word in says.split("|")), text
    places = [p.text for f in named for p in (f.where, f.other) if p is not None]
    assert any("# BUG" in text for text in places), places
    if id != "NKI-L07":                         # a note: the kernel may mean it
        assert named[0].severity in ("error", "warning")


@pytest.mark.parametrize("id, says, body", CASES)
def test_the_same_without_the_mistake_is_clean(id, says, body):
    found = nkisim.check(launched(body, False), X, False, target="trn2")
    assert [f for f in found if f.severity != "note"] == []
