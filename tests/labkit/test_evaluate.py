"""The evaluator on a small lab: each kind of kernel that a student may hand in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labkit import Case, Lab, MustFailNumerically, MustRaise, RubricLine, SpecError, Tensor
from labkit.evaluate import FAILED, NOT_RUN, PASSED, evaluate, exit_code, score
from labkit.inputs import make_inputs
from labkit.run.backends import SHUFFLE

HEAD = """
import os, time
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
FACTOR = 1.0
"""
GOOD = """
@nki.jit
def k(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.multiply(nl.load(a), FACTOR))
    return out
"""


def lab(folder: Path, kernels: str, *cases: Case) -> Lab:
    """Write a lab whose kernel must return its input."""
    (folder / "kernels.py").write_text(HEAD + kernels)
    (folder / "reference.py").write_text("def same(a):\n    return a\n")
    return Lab("small", "A small lab", folder, cases or (case(),))


def case(**more) -> Case:
    """Return a case of kernel k on a 128 x 4 input."""
    return Case(
        **{"name": "c", "kernel": "k", "reference": "same", "inputs": (Tensor((128, 4)),), **more}
    )


def outcome(folder: Path, kernels: str, one: Case | None = None, **options):
    """Run one case and return its outcome."""
    one = one or case()
    (result,) = evaluate(lab(folder, kernels, one), [(one, "trn1")], **options)
    return result


def test_a_right_kernel_passes_with_its_counts(tmp_path):
    result = outcome(tmp_path, GOOD)
    assert result.status == PASSED and result.stats["dma_transfers"] == 2
    assert result.stats["hbm_read_bytes"] == 128 * 4 * 4
    assert result.latency is None


TWO = """
@nki.jit
def k(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.load(a))
    other = nl.ndarray(a.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    nl.store(other, value=nl.copy(nl.load(a), dtype=nl.int32))
    return out, other
"""


@pytest.mark.parametrize(
    "dtypes, said",
    [(("float32", "int32"), ""), ("float32", "the output is int32; it must be float32"),
     (("int32", "int32"), "the output is float32; it must be int32")],
)  # fmt: skip
def test_each_output_may_have_a_dtype_of_its_own(tmp_path, dtypes, said):
    """As weights and numbers of a top-k have."""
    one = case(output_dtype=dtypes, inputs=(Tensor((128, 4), low=3.0, high=3.0),))
    made = lab(tmp_path, TWO, one)
    (tmp_path / "reference.py").write_text(
        "import numpy as np\ndef same(a):\n    return a, a.astype(np.int32)\n"
    )
    (result,) = evaluate(made, [(one, "trn1")])
    assert result.status == (FAILED if said else PASSED) and said in result.detail


def test_a_wrong_kernel_fails_with_a_report(tmp_path):
    result = outcome(tmp_path, GOOD, case(constants={"FACTOR": 2.0}))
    assert result.status == FAILED and "worst element" in result.detail
    assert result.comparisons[0].guess.kind == "scaled"


def test_constants_last_for_one_case(tmp_path):
    cases = case(name="a", constants={"FACTOR": 2.0}), case(name="b")
    small = lab(tmp_path, GOOD, *cases)
    assert [o.status for o in evaluate(small, [(c, "trn2") for c in cases])] == [FAILED, PASSED]


@pytest.mark.parametrize(
    "body, status, says",
    [
        ("def k(a:\n  pass", NOT_RUN, "not Python"),
        ("def other(a): pass", NOT_RUN, "no kernel named k"),
        (GOOD.replace("    return out\n", ""), FAILED, ""),
        (GOOD.replace("dtype=a.dtype", "dtype=nl.float16"), FAILED, "must be float32"),
        (
            GOOD.replace(
                "    out =", "    assert a.shape[0] == 3, 'three rows, please'\n    out ="
            ),
            FAILED,
            "refuses this input: three rows, please",
        ),
        (GOOD.replace("    out =", "    1 / 0\n    out ="), FAILED, "ZeroDivisionError"),
        (GOOD.replace("    out =", "    os._exit(0)\n    out ="), FAILED, "without an answer"),
        (
            GOOD.replace("    out =", "    raise SystemExit(0)\n    out ="),
            FAILED,
            "ends the program",
        ),
    ],
)
def test_what_students_hand_in_gets_a_sentence(tmp_path, body, status, says):
    result = outcome(tmp_path, body)
    assert result.status == status and says in result.text
    assert "Traceback" not in result.detail + result.printed
    assert result.text and exit_code([result]) == (1 if status == FAILED else 2)


def test_a_kernel_that_is_written_for_some_arguments_is_judged_for_these(tmp_path):
    """What a kernel that is not written should return is not asked for: it may take long."""
    sizes = {"first": 4, "wide": 8, "right": 16, "again": 32}
    cases = [case(name=n, inputs=(Tensor((128, w)),)) for n, w in sizes.items()]
    stub = "    if a.shape[1] != 16:\n        raise NotImplementedError('write k')\n"
    made = lab(tmp_path, GOOD.replace("    out =", stub + "    out ="), *cases)
    asked = tmp_path / "asked"
    (tmp_path / "reference.py").write_text(
        f"def same(a):\n    open({str(asked)!r}, 'a').write(f'{{a.shape[1]}} ')\n    return a\n"
    )
    by_name = {o.case.name: o for o in evaluate(made, [(c, "trn1") for c in cases])}
    assert [n for n, o in by_name.items() if o.unwritten] == ["first", "wide", "again"]
    outcomes = [*by_name.values()]
    assert (exit_code(outcomes), exit_code(outcomes, finished=False)) == (1, 0)
    assert by_name["right"].status == PASSED
    assert asked.read_text().split() == ["16"]


def test_a_file_of_another_encoding_is_named_with_what_to_do(tmp_path):
    small = lab(tmp_path, GOOD)
    small.kernels.write_text(HEAD + GOOD, "utf-16")
    (result,) = evaluate(small, [(case(), "trn1")])
    assert result.status == NOT_RUN and "kernels.py is not Python" in result.detail
    assert "save it as UTF-8" in result.detail


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("which, says", [("SIGKILL", "no memory was left"), ("SIGSEGV", "SIGSEGV")])
def test_a_kernel_that_is_killed_says_by_what(tmp_path, which, says):
    result = outcome(
        tmp_path,
        GOOD.replace(
            "    out =", f"    import signal; os.kill(os.getpid(), signal.{which})\n    out ="
        ),
    )
    assert result.status == FAILED and says in result.text


def test_inputs_that_cannot_fit_are_refused_before_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.inputs.machine_memory", lambda: 8 << 10)
    small = lab(tmp_path, GOOD)
    assert next(evaluate(small, [(case(), "trn1")])).status == PASSED
    with pytest.raises(SpecError, match="Try a smaller size"):
        next(evaluate(small, [(case(inputs=(Tensor((128, 5)),)), "trn1")]))


def test_a_profile_that_cannot_be_written_is_no_fault_of_the_kernel(tmp_path):
    small = lab(tmp_path, GOOD)
    (result,) = evaluate(small, [(case(), "trn1")], profile=str(tmp_path / "none" / "x"))
    assert result.status == NOT_RUN and "cannot write" in result.text and "x.html" in result.text


def test_a_crash_and_a_hang_cost_only_their_own_case(tmp_path):
    first = "    out ="
    kernels = (
        GOOD
        + GOOD.replace("def k", "def crash").replace(first, f"    os._exit(3)\n{first}")
        + GOOD.replace("def k", "def hang").replace(first, f"    time.sleep(60)\n{first}")
    )
    cases = (
        case(name="1", kernel="crash"),
        case(name="2"),
        case(name="3", kernel="hang", timeout_s=2.0),
        case(name="4"),
    )
    results = list(evaluate(lab(tmp_path, kernels, *cases), [(c, "trn1") for c in cases]))
    assert [r.status for r in results] == [FAILED, PASSED, FAILED, PASSED]
    assert "more than 2 s" in results[2].text


def test_what_a_kernel_prints_is_kept_and_is_no_answer(tmp_path):
    result = outcome(tmp_path, GOOD.replace("    out =", "    print('{\"id\": 0}')\n    out ="))
    assert result.status == PASSED and result.printed == '{"id": 0}'


def test_expected_failures_pass_only_if_they_happen(tmp_path):
    wrong, right = MustFailNumerically("on purpose"), {"FACTOR": 2.0}
    assert outcome(tmp_path, GOOD, case(expect=wrong, constants=right)).status == PASSED
    assert outcome(tmp_path, GOOD, case(expect=wrong)).status == FAILED
    limit = MustRaise("err_num_partition_exceed_arch_limit")
    big = (Tensor((256, 4)),)
    assert outcome(tmp_path, GOOD, case(expect=limit, inputs=big)).status == PASSED
    assert outcome(tmp_path, GOOD, case(expect=limit)).status == FAILED
    assert outcome(tmp_path, GOOD, case(expect=MustRaise("err_x"), inputs=big)).status == FAILED
    assert outcome(tmp_path, GOOD, case(expect=wrong, inputs=big)).status == FAILED


SHARED_ADDRESS = """
import neuronxcc.nki.compiler as ncc
@nki.jit
def k(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x, y = (nl.ndarray((128, 4), a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=at))
            for at in (0, APART))
    x[...] = nl.load(a)
    y[...] = nl.load(a)
    nl.store(out, x)
    return out
"""


NEIGHBOUR = """
@nki.jit
def k(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros(a.shape, a.dtype)
    tile[:, 0:1] = nl.load(a[:, 0:1])
    for i in nl.affine_range(4):
        if i < 3:
            tile[:, i + 1:i + 2] = nl.load(a[:, i + 1:i + 2])
        nl.store(out[:, i:i + 1], tile[:, i:i + 1])         # COMMENT
    return out
"""


@pytest.mark.parametrize("in_process", [False, True])
def test_a_result_that_depends_on_the_order_of_iterations_fails(tmp_path, in_process):
    result = outcome(tmp_path, NEIGHBOUR, in_process=in_process)
    assert result.status == FAILED and "with iterations in another order" in result.text
    assert "NKISIM_SHUFFLE=1" in result.text and "here iteration 1 after 0" in result.text
    assert "kernels.py:" in result.detail and result.comparisons[0].wrong
    assert SHUFFLE not in os.environ


ONE_TILE = """
@nki.jit
def k(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 1), a.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tile[...] = nl.load(a[:, i:i + 1])
        nl.store(out[:, i:i + 1], tile)
    return out
"""


def test_a_tile_that_iterations_share_fails_where_a_store_comes_late(tmp_path):
    """In any order of iterations the result is right; not if a DMA takes its time."""
    result = outcome(tmp_path, ONE_TILE)
    assert result.status == FAILED and "DMAs that take longer" in result.text
    assert "NKI-L05" in result.text and "here iteration 1 after 0" in result.text
    inside = ONE_TILE.replace("tile[...] =", "tile =")
    assert outcome(tmp_path, inside).status == PASSED


CHOSEN = """
import neuronxcc.nki.isa as nisa
@nki.jit
def k(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows = nisa.iota(nl.arange(128)[:, None], dtype=nl.int32)
    for i in nl.affine_range(2):
        nl.store(out[rows, nl.arange(4)[None, :]], nl.multiply(nl.load(a), VALUE))
    return out
"""


def test_rows_that_are_chosen_at_run_time_may_be_the_same_ones(tmp_path):
    """No finding can say so; the case is run in another order all the same."""
    result = outcome(tmp_path, CHOSEN.replace("VALUE", "i"))
    assert result.status == FAILED and "choose the same" in result.text
    assert outcome(tmp_path, CHOSEN.replace("VALUE", "1.0")).status == PASSED


def test_an_error_of_another_order_is_told(tmp_path):
    body = NEIGHBOUR.replace(
        "tile = nl.zeros(a.shape, a.dtype)", "tile = nl.ndarray((4, nl.par_dim(128), 1), a.dtype)"
    )
    body = body.replace("tile[:, 0:1]", "tile[0]").replace("tile[:, i + 1:i + 2]", "tile[i + 1]")
    result = outcome(tmp_path, body.replace("tile[:, i:i + 1]", "tile[i]"))
    assert result.status == FAILED and "another order" in result.text


def test_loops_that_keep_the_order_pass_and_so_does_what_someone_has_looked_at(tmp_path):
    for body in (
        NEIGHBOUR.replace("affine", "sequential"),
        NEIGHBOUR.replace("COMMENT", "nkisim: ignore[NKI-L02] shown on purpose"),
    ):
        result = outcome(tmp_path, body)
        assert result.status == PASSED, result.text


def test_a_sum_by_assignment_is_a_warning_and_passes_in_any_order(tmp_path):
    body = """
@nki.jit
def k(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros(a.shape, a.dtype)
    for i in nl.affine_range(4):
        acc[...] = nl.add(acc, nl.multiply(nl.load(a), 0.25))
    nl.store(out, acc)
    return out
"""
    result = outcome(tmp_path, body)
    assert result.status == PASSED and "NKI-L02" in {f["id"] for f in result.findings}


def test_at_the_level_strict_a_warning_fails_a_case_that_is_not_meant_to_be_wrong(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("NKISIM_CHECKS", "strict")
    result = outcome(tmp_path, NEIGHBOUR)
    assert result.status == FAILED and result.error["id"] == "NKI-L02"
    assert outcome(tmp_path, GOOD).status == PASSED
    wrong = NEIGHBOUR.replace("return out", "nl.store(out[:, 0:1], 7.0)\n    return out")
    assert outcome(tmp_path, wrong, case(expect=MustFailNumerically("on purpose"))).status == PASSED


def test_a_right_result_by_luck_fails(tmp_path):
    """Two tiles at one address that happen to hold the same: an error among the findings."""
    apart, same = (SHARED_ADDRESS.replace("APART", str(at)) for at in (16, 0))
    assert outcome(tmp_path, apart).status == PASSED
    result = outcome(tmp_path, same)
    assert result.status == FAILED and "by luck: NKI-A05" in result.text
    assert "kernels.py:15" in result.detail
    assert outcome(tmp_path, same, case(expect=MustFailNumerically("luck"))).status == FAILED


@pytest.mark.parametrize("backend", ["sdk-sim", "hw"])
def test_without_the_sdk_its_backends_say_so(tmp_path, backend):
    result = outcome(tmp_path, GOOD, backend=backend)
    assert result.status == NOT_RUN and "Neuron SDK" in result.detail


def test_inputs_depend_on_the_seed_and_not_on_the_name():
    one, two = make_inputs(case(), 1)[0], make_inputs(case(name="other"), 1)[0]
    assert (one == two).all() and (one != make_inputs(case(), 2)[0]).any()
    assert make_inputs(case(inputs=(Tensor((2,), "bfloat16"),)), 1)[0].dtype.name == "bfloat16"


def test_points_need_a_right_result_and_speed_needs_a_latency(tmp_path):
    small = Lab(
        "small",
        "",
        tmp_path,
        (case(threshold_us={"trn1": 10.0}),),
        rubric=(RubricLine("right", 4, ("c",)), RubricLine("fast", 6, ("c",), speed=True)),
    )
    lab(tmp_path, GOOD)
    (done,) = evaluate(small, [(small.cases[0], "trn1")])
    assert done.latency_kind == "predicted"  # simulated, so it says so
    done.latency = None
    assert [points for _, points, _ in score(small, [done])] == [4, None]
    done.latency = {"p50": 9.0, "p99": 11.0}
    assert [points for _, points, _ in score(small, [done])] == [4, 6]
    done.latency = {"p50": 10.5, "p99": 11.0}
    assert [points for _, points, _ in score(small, [done])] == [4, 0]
    done.status = FAILED
    assert [points for _, points, _ in score(small, [done])] == [0, 0]


def test_specs_are_checked():
    with pytest.raises(SpecError, match="at least 1"):
        Tensor((0,))
    with pytest.raises(SpecError, match="two cases"):
        Lab("x", "", Path(), (case(), case()))
    with pytest.raises(SpecError, match="Did you mean"):
        Lab("x", "", Path(), (case(name="tiled_128"),)).case("tiled_182")


WHILE = """
@nki.jit
def k(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    n = 0
    while n < 1:
        n += 1
    nl.store(out, value=nl.load(a))  # nkisim: ignore[NKI-L09] the grader does not heed it
    return out
"""


@pytest.mark.parametrize("level", ["", "teach", "strict", "off"])
def test_what_the_compiler_refuses_in_the_source_fails_as_it_does_in_the_grader(
    tmp_path, monkeypatch, level
):
    monkeypatch.setenv("NKISIM_CHECKS", level)
    result = outcome(tmp_path, WHILE)
    (found,) = [f for f in result.findings if f["id"] == "NKI-L09"]
    assert "kernels.py:11" in found["where"] and "static_range" in found["text"]
    if level == "off":
        assert result.status == PASSED and found["severity"] == "warning"
        assert found["text"].endswith("(the grader refuses this)")
    else:
        assert result.status == FAILED and found["severity"] == "error"
        assert result.text == f"AWS's compiler refuses this kernel: NKI-L09 {found['text']}"


def test_deep_source_is_read_as_the_grader_reads_it(tmp_path):
    deep = f"SUM = {' + '.join(['1'] * 1500)}\n"
    assert outcome(tmp_path, deep + GOOD).status == PASSED
    assert "NKI-L09" in outcome(tmp_path, deep + WHILE).text
    inside = f"    n = {' + '.join(['1'] * 1500)}\n    out ="
    assert outcome(tmp_path, GOOD.replace("    out =", inside)).status == PASSED
    assert "NKI-L09" in outcome(tmp_path, WHILE.replace("    out =", inside)).text
