"""nkisim.evaluate: the ladder of verdicts, time and its error, fixes, and what a program reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import neuronxcc.nki as nki1
import neuronxcc.nki.language as nl1
import numpy as np
import pytest

import kernels_to_evaluate as kernels
import nkisim
from nkisim import workers
from nkisim.checks.finding import Finding
from nkisim.cli import requests
from nkisim.cli.evaluate import command
from nkisim.evaluation import evaluate as evaluation
from nkisim.evaluation.edits import Edit, apply, apply_dict
from nkisim.evaluation.evaluate import doubted
from nkisim.evaluation.ladder import FAILED, STEPS

HERE = Path(__file__).parents[1]
KERNELS = HERE / "kernels_to_evaluate.py"
X = np.random.default_rng(0).standard_normal((128, 256), dtype=np.float32)
PAGE = Path(__file__).resolve().parents[3] / "docs" / "evaluate.md"


def steps(found):
    return {name: step.passed for name, step in found.ladder.steps.items()}


def test_a_right_kernel_passes_all_steps_and_has_a_time_with_its_error():
    found = nkisim.evaluate(kernels.double, X, reference=kernels.double_of)
    assert found.verdict == "right" and found.right is True
    assert set(steps(found).values()) == {True} and not found.findings
    assert found.latency_us == nkisim.profile(kernels.double, X).latency_us
    low, high = found.band_us
    assert low < found.latency_us < high and not found.defer
    assert found.to_dict()["floor"]["floor_us"] < found.latency_us


def test_without_a_reference_nothing_says_that_it_is_right():
    found = nkisim.evaluate(kernels.triple, X)
    assert found.verdict == "runs" and found.right is None
    assert steps(found)["right"] is None


@pytest.mark.parametrize(
    "name, verdict, step",
    [
        ("triple", "wrong", "right"),
        ("half", "wrong", "defined"),
        ("misspelt", "refused", "accepted"),
        ("too_tall", "refused", "accepted"),
        ("raises", "fails", "runs"),
        ("loops", "fails", "runs"),
    ],
)
def test_a_wrong_kernel_fails_at_its_step(name, verdict, step):
    found = nkisim.evaluate(
        getattr(kernels, name), X, reference=kernels.double_of, limits={"seconds": 1}
    )
    assert (found.verdict, found.right, steps(found)[step]) == (verdict, False, False)
    facts = found.to_dict()
    assert facts["right"] is False and json.dumps(facts)


def test_a_kernel_that_loops_says_at_which_line():
    found = nkisim.evaluate(kernels.loops, X, limits={"seconds": 0.5})
    assert "kernels_to_evaluate.py" in found.to_dict()["error"]["where"]["file"]


SWALLOW = [
    "loops_and_catches_exceptions",
    "loops_and_catches_all",
    "loops_and_catches_all_twice",
    "loops_in_del",
    "catches_all_and_returns",
    "catches_all_and_exits",
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SWALLOW)
def test_a_kernel_that_catches_its_limit_is_ended_all_the_same(monkeypatch, name):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # of __del__
    found = nkisim.evaluate(getattr(kernels, name), X, limits={"seconds": 0.5}, fixes=False)
    facts = found.to_dict()
    assert (found.verdict, facts["error"]["kind"]) == ("fails", "time")
    assert "not finished after 0.5 s" in facts["error"]["what"]
    assert facts["error"]["where"]["file"].endswith("kernels_to_evaluate.py")
    after = nkisim.evaluate(kernels.double, X, reference=kernels.double_of, limits={"seconds": 9})
    assert after.verdict == "right"  # nothing of it is left


def test_an_exception_within_the_limit_is_that_exception():
    found = nkisim.evaluate(kernels.raises, X, limits={"seconds": 9}, fixes=False)
    assert found.to_dict()["error"]["kind"] == "python"


def test_where_no_signal_can_keep_a_limit_the_answer_says_so(monkeypatch):
    """As on Windows: no setitimer, and no module resource."""
    monkeypatch.setitem(sys.modules, "resource", None)
    with monkeypatch.context() as there:
        there.setattr(workers.sys, "platform", "win32")
        workers.bound_memory(1 << 30)
    monkeypatch.delattr(workers.signal, "setitimer")
    found = nkisim.evaluate(
        kernels.double, X, reference=kernels.double_of, limits={"seconds": 9}, fixes=False
    )
    assert found.verdict == "right" and "limit of 9 s" in found.ladder["runs"].text
    assert "--isolated" in found.ladder["runs"].text


def test_where_the_limit_is_kept_the_answer_is_silent():
    found = nkisim.evaluate(kernels.double, X, limits={"seconds": 9}, fixes=False)
    assert found.ladder["runs"].text == ""


@pytest.mark.parametrize("times, verdict", [(1.0, "right"), (1.0002, "wrong")])
def test_exp_may_make_more_of_a_rounding_of_its_argument(times, verdict):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, n)).astype(np.float32) for n in (128, 2048))
    found = nkisim.evaluate(
        kernels.softmax_of_products, 2 * a, b, reference=kernels.softmax_of, times=times,
        fixes=False,
    )  # fmt: skip
    assert found.verdict == verdict, found.ladder["right"].text


def test_fresh_inputs_find_what_is_right_by_accident():
    ones = np.ones((128, 256), np.float32)
    found = nkisim.evaluate(kernels.right_for_ones, ones, reference=kernels.double_of)
    assert found.verdict == "wrong" and "seed 1" in found.ladder["right"].text
    alone = nkisim.evaluate(
        kernels.right_for_ones, ones, reference=kernels.double_of, seeds=(), fixes=False
    )
    assert alone.verdict == "right"


@nki1.jit
def carries(x, independent=True):
    """Sum rows in a tile that all iterations share: hardware may run them in any order."""
    out = nl1.ndarray((128, 1), dtype=x.dtype, buffer=nl1.shared_hbm)
    total = nl1.zeros((128, 1), dtype=x.dtype, buffer=nl1.sbuf)
    for i in nl1.affine_range(4) if independent else nl1.sequential_range(4):
        total[...] = nl1.subtract(nl1.load(x[:, i : i + 1]), total)
    nl1.store(out, value=total)
    return out


def test_what_depends_on_the_order_of_iterations_is_found():
    def reference(x, **_):
        return (x[:, 3] - (x[:, 2] - (x[:, 1] - x[:, 0])))[:, None]

    bad = nkisim.evaluate(carries, X, reference=reference)
    assert bad.verdict == "order_dependent"
    good = nkisim.evaluate(carries, X, reference=reference, independent=False)
    assert good.verdict == "right"


def test_what_a_reference_raises_is_raised():
    with pytest.raises(KeyError, match="a reference that fails"):
        nkisim.evaluate(kernels.double, X, reference=kernels.fails)


def test_an_unknown_target_or_release_is_refused():
    for wrong in ({"target": "tpu"}, {"release": "99"}):
        with pytest.raises(nkisim.NkiError):
            nkisim.evaluate(kernels.double, X, **wrong)


def test_an_order_is_told_where_the_error_of_the_model_allows_it(monkeypatch):
    x = np.zeros((128, 4096), np.float32)
    slow = nkisim.evaluate(kernels.double, x)
    monkeypatch.setattr(kernels, "COLUMNS", 1024)
    fast = nkisim.evaluate(kernels.double, x)
    assert fast.faster_than(slow) is True and slow.faster_than(fast) is False
    assert slow.faster_than(slow) is None
    unknown = nkisim.evaluate(kernels.double, x, target="trn3")
    assert unknown.defer and unknown.band_us is None
    assert unknown.faster_than(slow) is fast.faster_than(unknown) is None
    assert unknown.to_dict()["time"]["defer"] is True


# -- fixes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, args, reference",
    [
        ("misspelt", (X,), kernels.double_of),
        ("half", (X,), kernels.double_of),
        ("product", (X[:, :128], X), kernels.product_of),
    ],
)
def test_a_fix_mends_the_kernel_when_it_is_applied(name, args, reference, tmp_path):
    found = nkisim.evaluate(getattr(kernels, name), *args, reference=reference)
    fix = next(fix for f in found.to_dict()["findings"] for fix in f["fixes"])
    new = tmp_path / "mended.py"
    new.write_text(apply_dict(KERNELS.read_text("utf-8"), fix["edits"]), "utf-8")
    mended = requests._module(str(new), new.read_text("utf-8"), True)
    again = nkisim.evaluate(getattr(mended, name), *args, reference=reference)
    assert again.verdict == "right"
    assert doubted(again.findings) <= doubted(found.findings)


def test_operators_of_a_kernel_become_functions_all_at_once(tmp_path):
    found = nkisim.evaluate(kernels.turned, X, X, reference=kernels.turned_of)
    assert found.verdict == "refused"
    [fix] = next(f["fixes"] for f in found.to_dict()["findings"] if f["fixes"])
    text = apply_dict(KERNELS.read_text("utf-8"), fix["edits"])
    assert "nl.subtract(nl.multiply(x, cos), nl.multiply(nl.multiply(x, x), 0.5))" in text
    assert "half = n // 2 + 0" in text  # numbers keep their operators


def test_an_edit_that_brings_a_warning_or_a_doubt_is_no_fix(monkeypatch):
    mends = nkisim.evaluate(kernels.misspelt, X, reference=kernels.double_of)
    assert mends.fixes
    doubt = Finding("NKI-R26", "note", "doubted")
    complete = evaluation._Evaluating.evaluate

    def doubting(self, kernel=None):
        out = complete(self, kernel)
        out.findings += [doubt] if kernel is not None else []
        return out

    monkeypatch.setattr(evaluation._Evaluating, "evaluate", doubting)
    assert not nkisim.evaluate(kernels.misspelt, X, reference=kernels.double_of).fixes


@pytest.mark.parametrize("name", ["triple", "too_tall", "raises"])
def test_where_nothing_mechanical_mends_it_there_is_no_fix(name):
    found = nkisim.evaluate(getattr(kernels, name), X, reference=kernels.double_of)
    assert found.fixes == {}


def test_edits_count_characters_and_may_span_lines():
    text = "é = f(a,\n  b)\nx = 1\n"
    edits = [Edit("", 1, 6, 2, 3, "c"), Edit("", 3, 4, 3, 5, "22")]
    assert apply(text, edits) == "é = f(c)\nx = 22\n"


def test_lines_end_where_pythons_parser_ends_them():
    text = "# page breaks, \f and others: \v \x1c \x85 \u2028\n" + KERNELS.read_text("utf-8")
    asked = {"kernel": ":misspelt", "args": ["128x512:float32"], "reference": ":double_of"}
    first = requests.answer({**asked, "source": text, "reference_source": text})
    finding = first["findings"][0]
    assert "tensor_scaler" in first["error"]["where"]["source"]
    mended = apply_dict(text, finding["fixes"][0]["edits"])
    again = requests.answer({**asked, "source": mended, "reference_source": text})
    assert again["verdict"] == "right"


# -- the record ------------------------------------------------------------------------------------


def paths(value, at=""):
    """Return the names of all fields, with [] for what a list holds."""
    if isinstance(value, dict):
        return {p for k, v in value.items() for p in {f"{at}{k}", *paths(v, f"{at}{k}.")}}
    if isinstance(value, list):
        return {p for v in value for p in paths(v, f"{at.rstrip('.')}[].")}
    return set()


def record():
    return requests.answer(
        {
            "id": "a",
            "kernel": f"{KERNELS}:misspelt",
            "args": ["128x256:float32"],
            "reference": f"{KERNELS}:double_of",
            "target": "trn2",
        }
    )


def test_the_answer_is_the_same_each_time():
    assert json.dumps(record()) == json.dumps(record())


def test_a_fix_is_for_the_text_that_was_asked_about_whatever_was_asked_before():
    """A worker has loaded other texts under the file's name, the last one this one again."""
    request = {
        "kernel": f"{KERNELS}:misspelt",
        "source": KERNELS.read_text("utf-8"),
        "args": ["128x256:float32"],
        "reference": f"{KERNELS}:double_of",
        "target": "trn2",
    }
    first = requests.answer(request)
    [fix] = first["findings"][0]["fixes"]
    shifted = "\n\n# a longer head\n" + apply_dict(request["source"], fix["edits"])
    assert requests.answer({**request, "source": shifted})["right"]
    again = requests.answer({**request, "args": ["128x512:float32"]})
    assert again["findings"][0]["fixes"] == first["findings"][0]["fixes"]


def kinds(value, at=""):
    """Return (name of a field, kind of its value) of all fields; numbers are one kind."""
    if isinstance(value, dict):
        return {p for k, v in value.items() for p in kinds(v, f"{at}.{k}")}
    if isinstance(value, list):
        return {p for v in value for p in kinds(v, f"{at}[]")} | {(at, "list")}
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {(at, "number" if number else type(value).__name__)}


BEFORE = json.loads((Path(__file__).parents[2] / "before" / "evaluate.json").read_text("utf-8"))


@pytest.mark.parametrize("said", BEFORE, ids=[x["request"]["id"] for x in BEFORE])
def test_requests_and_answers_of_an_older_release_hold(said):
    """tests/before/evaluate.json was written by commit f82f81ec, the first with `evaluate`: a
    program of then sends its requests and finds what it reads. Fields are only added."""
    before, now = said["answer"], requests.answer(said["request"])
    for name in ("schema", "command", "exit_code", "id", "verdict", "right", "target"):
        assert now.get(name) == before.get(name), name
    assert now.get("ladder") == before.get("ladder") or before["verdict"] == "does_not_parse"
    assert [f["id"] for f in now.get("findings", ())] == [
        f["id"] for f in before.get("findings", ())
    ]
    lists = ("advice", "regions", "critical_path")  # what is in them depends on the model
    fields = {k for k in kinds(before) if not k[0].startswith(tuple(f".{x}" for x in lists))}
    assert fields <= kinds(now)


def test_every_field_is_documented():
    page = PAGE.read_text("utf-8")
    found = nkisim.evaluate(kernels.double, X, reference=kernels.double_of).to_dict()
    fields = {*record(), *found, *found["time"], *record()["error"], *record()["findings"][0]}
    assert [f for f in sorted(fields) if f"`{f}`" not in page] == []
    assert [v for v in (*STEPS, *FAILED.values(), *requests.KEYS) if f"`{v}`" not in page] == []


# -- the command -----------------------------------------------------------------------------------


def run(capsys, *argv):
    code = command([str(a) for a in argv])
    return code, *capsys.readouterr()


CALL = ["--arg", "128x256:float32", "--reference", f"{KERNELS}:double_of", "--target", "trn2"]


def test_the_command_says_it_in_text_and_in_json(capsys):
    code, out, _ = run(capsys, f"{KERNELS}:double", *CALL)
    assert code == 0 and ":double: right" in out and "not measured" in out and "floor" in out
    code, out, _ = run(capsys, f"{KERNELS}:double", *CALL, "--json")
    facts = json.loads(out)
    assert code == 0 and facts["verdict"] == "right" and facts["command"] == "evaluate"


def test_a_refusal_is_json_as_well(capsys, tmp_path):
    code, out, _ = run(capsys, f"{KERNELS}:too_tall", *CALL, "--json")
    facts = json.loads(out)
    assert code == facts["exit_code"] == 1 and facts["error"]["id"] == "NKI-P01"
    assert facts["error"]["where"]["line"] and facts["error"]["limit"] and facts["error"]["hint"]
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    code, out, _ = run(capsys, f"{broken}:f", "--json")
    assert code == 1 and json.loads(out)["verdict"] == "does_not_parse"
    code, out, _ = run(capsys, f"{tmp_path}/none.py:f", "--json")
    assert code == 2 and "cannot be read" in json.loads(out)["error"]["what"]


def test_the_first_fix_is_written(capsys, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(KERNELS.read_text("utf-8"), "utf-8")
    call = [f"{file}:misspelt", "--arg", "128x256:float32", "--reference", f"{file}:double_of"]
    code, out, _ = run(capsys, *call, "--fix")
    assert code == 1 and "fix: nisa.tensor_scaler -> nisa.tensor_scalar" in out
    code, out, _ = run(capsys, *call)
    assert code == 0 and ": right" in out


@pytest.mark.parametrize(
    "request_, sentence",
    [
        ({}, "FILE:KERNEL"),
        ({"kernel": "a:b", "colour": 1}, "a request has no 'colour'"),
        ({"kernel": 3}, "kernel is int"),
        ({"kernel": f"{KERNELS}:nothing"}, "there is no function 'nothing'"),
        ({"kernel": f"{KERNELS}:double", "args": ["0x3:float32"]}, "no input"),
        ({"kernel": f"{KERNELS}:double", "args": ["128x128:float33"]}, ""),
        ({"kernel": f"{KERNELS}:double", "target": "tpu"}, ""),
        (
            {
                "kernel": f"{KERNELS}:double",
                "args": ["128x256:float32"],
                "reference": f"{KERNELS}:fails",
            },
            "the reference fails",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_answered_with_2(request_, sentence):
    out = requests.answer(request_)
    assert out["exit_code"] == 2 and sentence in out["error"]["what"]
