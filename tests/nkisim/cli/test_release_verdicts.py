"""What does not build, by release: each row finds its wrong kernel, each sentence has an answer."""

from __future__ import annotations

import neuronxcc.nki as beta1
import neuronxcc.nki.isa as beta1_isa
import neuronxcc.nki.language as beta1_language
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.cli import verdicts_page
from nkisim.cli.examples import examples
from nkisim.errors.rules import RULES
from nkisim.language.nki import refusals, sentences
from nkisim.language.nki.refusals import TABLE, VERDICTS
from nkisim.language.nki.sentences import BREAKING, KNOWN, SENTENCES
from nkisim.simulation import launch

X = np.linspace(0.5, 2, 128 * 64, dtype=np.float32).reshape(128, 64)
IDS = {row.id for row in VERDICTS}


def written(result, dtype=nl.float32):
    out = nl.ndarray(result.shape, dtype=dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=result)
    return out


def new(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def outcome(line, target="trn2"):
    """Return (rule, severity) of an error, or of what is found of a line that runs."""

    def kernel(x):
        return written(line(nl.load(x)))

    try:
        run = nkisim.run(nki.jit(kernel), X.copy(), target=target)
    except nkisim.NkiError as error:
        return [(error.id, "error")]
    return [(f.id, f.severity) for f in run.findings if f.id in IDS]


# -- the rows --------------------------------------------------------------------------------------


def test_each_row_finds_the_wrong_kernel_of_an_example(monkeypatch, tmp_path):
    monkeypatch.setenv("NKI_LANGUAGE", "teach")
    monkeypatch.setenv("NKISIM_TARGETS", "supported")
    met = set()
    say = refusals._say
    monkeypatch.setattr(
        refusals, "_say", lambda m, row, *rest: (met.add(row.form), say(m, row, *rest))
    )
    for e in (e for e in examples() if e.id in IDS):
        if e.dialect != "nki":
            continue
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", e.target)
        monkeypatch.setenv("NKI_LANGUAGE_VERSION", e.release)
        path = tmp_path / "wrong.py"
        path.write_text(e.source(True))
        with launch.collected_findings():
            try:
                exec(
                    compile(path.read_text(), path, "exec", dont_inherit=True),
                    {"__name__": "example", "x": np.zeros((128, 512), np.float32)},
                )
            except nkisim.NkiError as error:
                assert error.id not in IDS  # teach goes on
    elsewhere = {refusals.CHIP.form}  # test_kernels_of_nki_are_for_trn2_and_later
    assert [row.form for row in VERDICTS if row.form not in met | elsewhere] == []


def test_each_row_says_since_when_and_how_it_is_known():
    for row in VERDICTS:
        page = RULES[row.id].text
        assert row.known and row.code and row.form and row.since <= row.until
        assert "How it is known: " in page and "; NKI 0." in page
        if row.severity == "error":
            assert row.verdict == "refused by the compiler"


@pytest.mark.parametrize(
    "line",
    [
        lambda t: nl.divide(t, t),
        lambda t: nl.add(t, t[:, 0:1]),
        lambda t: nl.power(t, 2.0),
        lambda t: nl.sum(t, axis=1),
    ],
    ids=range(4),
)
def test_levels(monkeypatch, line):
    (error,) = outcome(line)
    assert error[1] == "error" and error[0] in IDS
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    assert outcome(line) == [error]
    monkeypatch.setenv("NKI_LANGUAGE", "teach")
    assert outcome(line) == [(error[0], "warning")]
    monkeypatch.setenv("NKI_LANGUAGE", "off")
    assert outcome(line) == []


@pytest.mark.parametrize(
    "release, found",
    [("0.3", [("NKI-R20", "error")]), ("0.5", [("NKI-R20", "error")]), ("0.6", []), ("0.7", [])],
)
def test_a_verdict_is_one_of_releases(monkeypatch, release, found):
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", release)
    assert outcome(lambda t: nl.copy(nl.matmul(t, t, transpose_x=True))) == found


def test_a_verdict_is_one_of_generations():
    def line(t):
        u = new(128, 64)
        nisa.tensor_scalar(u, t, nl.abs_max, 1.0)
        return u

    assert outcome(line, "trn2") == [("NKI-R33", "error")] and outcome(line, "trn3") == []


@pytest.mark.parametrize(
    "line",
    [
        lambda t: nl.multiply(t, nl.reciprocal(t)),
        lambda t: nl.add(t, 2.0),
        lambda t: nl.power(t, t),
        lambda t: nl.add(t, t[:, 0:1].broadcast(1, 64)),
        lambda t: nl.sum(t, axis=1, keepdims=True),
        lambda t: nl.sum(t.reshape((128, 8, 8)), axis=2),
        lambda t: nl.softmax(t, axis=1),
        lambda t: nl.copy(nl.matmul(t, t, transpose_x=True)),
    ],
    ids=range(8),
)
def test_what_builds_is_accepted(line):
    assert outcome(line) == []


def test_a_loop_says_it_at_its_first_call():
    """Calls that look alike are remembered where nothing was found alone."""

    def line(t):
        for _ in range(3):
            nisa.tensor_tensor(t, t, t[:, 0:1], nl.add)
        return t

    assert outcome(line) == [("NKI-R11", "error")]


@pytest.mark.parametrize(
    "line",
    [
        lambda t: beta1_language.divide(t, t),
        lambda t: beta1_language.divide(t, t[:, 0:1]),
        lambda t: t / t,
        lambda t: beta1_language.add(t, t[:, 0:1]),
        lambda t: beta1_language.power(t, 2.0),
        lambda t: beta1_language.mod(t, 2.0),
        lambda t: beta1_isa.tensor_tensor(t, t, op=np.divide),
        lambda t: beta1_language.matmul(t, t[0:64]),
    ],
    ids=range(8),
)
def test_the_older_dialect_has_these_forms(line):
    @beta1.jit
    def kernel(x):
        out = beta1_language.ndarray((128, 64), dtype=x.dtype, buffer=beta1_language.shared_hbm)
        beta1_language.store(out, beta1_language.copy(line(beta1_language.load(x))))
        return out

    found = nkisim.run(kernel, X, target="trn2").findings
    assert not IDS & {f.id for f in found}


def test_the_older_dialect_sums_to_one_column():
    @beta1.jit
    def kernel(x):
        out = beta1_language.ndarray((128, 1), dtype=x.dtype, buffer=beta1_language.shared_hbm)
        beta1_language.store(out, beta1_language.sum(beta1_language.load(x), axis=1))
        return out

    np.testing.assert_allclose(nkisim.simulate(kernel, X, target="trn2")[:, 0], X.sum(1), rtol=1e-5)


# -- the chips -------------------------------------------------------------------------------------


@nki.jit
def copied(x):
    return written(nl.load(x))


@beta1.jit
def copied_before(x):
    out = beta1_language.ndarray(x.shape, dtype=x.dtype, buffer=beta1_language.shared_hbm)
    beta1_language.store(out, beta1_language.load(x))
    return out


def test_kernels_of_nki_are_for_trn2_and_later(monkeypatch):
    monkeypatch.delenv("NKISIM_TARGETS")

    def said(kernel, target):
        run = nkisim.run(kernel, X, target=target)
        assert np.array_equal(run.outputs, X)
        return [f for f in run.findings if f.id == "NKI-R29"]

    (warning,) = said(copied, "trn1")
    assert warning.severity == "warning" and "--course none" in warning.text
    assert not said(copied, "trn2") and not said(copied_before, "trn1")
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    with pytest.raises(nkisim.NkiError, match="NKI-R29"):
        nkisim.run(copied, X, target="trn1")
    monkeypatch.delenv("NKI_LANGUAGE")
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.2")
    nkisim.run(copied, X, target="trn1")
    monkeypatch.delenv("NKI_LANGUAGE_VERSION")
    monkeypatch.setenv("NKISIM_TARGETS", "all")
    assert not IDS & {f.id for f in nkisim.run(copied, X, target="trn1").findings}


# -- hints -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, hint",
    [
        ("div", "reciprocal"),
        ("true_divide", "reciprocal"),
        ("dot", "nisa.nc_matmul"),
        ("remainder", "floor"),
        ("divid", ""),
        ("modd", ""),
    ],
)
def test_no_hint_leads_to_what_does_not_build(name, hint):
    with pytest.raises(AttributeError) as caught:
        getattr(nl, name)
    said = str(caught.value).replace(f"'{name}'", "")
    assert hint in said and not any(f"nl.{n}" in said for n in ("divide", "mod", "fmod"))


def test_the_list_of_operators_has_none_that_no_engine_has():
    def line(t):
        nisa.tensor_scalar(t, t, nl.exp, 2.0)
        return t

    with pytest.raises(nkisim.NkiError, match="NKI-E11") as caught:
        nkisim.run(nki.jit(lambda x: written(line(nl.load(x)))), X, target="trn2")
    assert "multiply" in caught.value.limit
    assert "divide" not in caught.value.limit and "mod" not in caught.value.limit


# -- the documents ---------------------------------------------------------------------------------


def test_each_sentence_has_a_rule_or_a_reason():
    for s in SENTENCES:
        assert s.rules or s.remark, s
        assert not set(s.rules) - RULES.keys(), s
    known = {release: n for (release, heading), n in sentences.counts().items() if heading == KNOWN}
    assert known == {"0.1": 4, "0.2": 1, "0.3": 16, "0.4": 11, "0.5": 2, "0.6": 2}
    assert sentences.counts()["0.3", BREAKING] == 17


def test_each_row_of_a_document_answers_a_sentence():
    answered = {id for s in SENTENCES for id in s.rules}
    documented = {
        row.id
        for row in TABLE
        if any(word in row.code for word in ("release notes", "API reference", "FAQ"))
    }
    assert documented - answered == set()


def _filled(value, dtype, *shape):
    t = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.memset(t, value)
    return t


def _product(t):
    p = new(64, 64, buffer=nl.psum)
    nisa.nc_matmul(p, t, t)
    return p


#: rules of the documents' sentences that are no rows: a line that breaks each
LINES = {
    "NKI-M07": lambda t: nisa.tensor_tensor(new(64, 64), p := _product(t), p, op=nl.add),
    "NKI-E02": lambda t: nisa.tensor_copy(new(64, 64), _product(t), engine=nisa.engine.gpsimd),
    "NKI-E05": lambda t: nisa.tensor_scalar_reduce(
        i := _filled(1, nl.int32, 128, 64), i, nl.bitwise_and, 1, nl.add, new(128, 1)
    ),
    "NKI-D05": lambda t: nisa.dma_copy(
        new(128, 64, dtype=nl.bfloat16), t, dge_mode=nisa.dge_mode.hwdge
    ),
    "NKI-E03": lambda t: nisa.exponential(new(128, 64), t),
    "NKI-N08": lambda t: nisa.nc_matmul(new(64, 64, buffer=nl.psum), t, t, accumulate=True),
    "NKI-S10": lambda t: nisa.tensor_reduce(new(1, 64), nl.add, t, axis=0),
    "NKI-M01": lambda t: nl.rsqrt(_product(t)),
    "NKI-N07": lambda t: nisa.memset(new(128, 64, dtype=nl.int32), 0.5),
    "NKI-P01": lambda t: new(256, 64),
    "NKI-P02": lambda t: new(128),
    "NKI-E08": lambda t: nisa.activation(new(128, 64), nl.exp, t, bias=t),
    "NKI-E12": lambda t: nisa.range_select(
        new(128, 64),
        t,
        nl.greater_equal,
        nl.less,
        b := _filled(0.0, nl.float32, 128, 1),
        b,
        on_false_value=0.0,
    ),
    "NKI-S09": lambda t: nl.random_seed(42),
    "NKI-N02": lambda t: t.vector_select(0, t),
    "NKI-S07": lambda t: t.permute((1, 0)),
    "NKI-N01": lambda t: nisa.nc_matmul(new(64, 64, buffer=nl.psum), t, t, psumAccumulateFlag=1),
    "NKI-S01": lambda t: nisa.local_gather(
        new(128, 64), t, _filled(0, nl.uint16, 128, 4), num_valid_indices=32
    ),
}


@pytest.mark.parametrize("id", LINES)
def test_what_documents_refuse_is_refused(id):
    def line(t):
        LINES[id](t)
        return t

    assert outcome(line) == [(id, "error")]


def test_every_form_is_on_the_page():
    text = verdicts_page.markdown()
    assert [row.form for row in VERDICTS if f"| `{row.form}` |" not in text] == []
