"""The vecadd tester, as a student runs it: flags, verdicts, sentences, exit codes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[2] / "labs" / "vecadd"


@pytest.fixture
def tester(tmp_path):
    """Return a function that runs a copy of the lab; `edit` replaces text in its kernels.py."""
    folder = tmp_path / "vecadd"
    shutil.copytree(LAB, folder, ignore=shutil.ignore_patterns("__pycache__", "results"))

    def run(flags: str, edit: tuple[str, str] | None = None):
        kernels = folder / "kernels.py"
        if edit:
            text = kernels.read_text("utf-8")
            assert edit[0] in text
            kernels.write_text(text.replace(*edit), "utf-8")
        done = subprocess.run(
            [sys.executable, "tester.py", *flags.split()],
            cwd=folder,
            text=True,
            capture_output=True,
            encoding="utf-8",
        )
        assert "Traceback" not in done.stdout + done.stderr
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    run.folder = folder
    return run


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "flags, says",
    [
        ("--kernel naive -n 100", "within tolerance"),
        ("--kernel tiled --size 25600 --row-chunk 128 --simulate --target trn2", "trn2 (sim)"),
        ("--kernel stream -n 25600 --profile_name x", "predicted by nkisim, not measured"),
        ("--kernel stream -n 25600 --profile x.html", "wrote x.html wrote x.pftrace"),
        ("--kernel alloc_bad -n 256000", "Why: All three tensors begin at SBUF address 0"),
        ("--kernel transpose -n 128 -m 384 --in-process", "384x128"),
    ],
)
def test_these_pass(tester, flags, says):
    code, said = tester(flags)
    assert code == 0 and says in said, said


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "code, flags, says",
    [
        (1, "--kernel tiled -n 25600 --row-chunk 256", "limit: 128 partitions"),
        (1, "--kernel naive -n 129", "NKI-P01"),
        (1, "--kernel stream -n 25600 --free-dim 7", "not a multiple of a tile, 128 * FREE_DIM"),
        (1, "--kernel transpose -n 100", "does not divide into 128 x 128 tiles"),
        (2, "--kernel zork -n 1", "invalid choice: 'zork'"),
        (2, "--kernel tiled -n 0", "must be at least 1"),
        (2, "--kernel tiled -n -5", "-5 is not a size"),
        (2, "--kernel tiled -n 1e3", "not a whole number"),
        (2, "--kernel tiled", "needs a size"),
        (2, "-n 5", "needs --kernel"),
        (2, "--kernel tiled -n 128 -m 3", "only --kernel transpose"),
        (2, "--kernel naive -n 10000000000000", "Try a smaller size"),
        (2, "--kernel naive -n 128 --backend hw", "Neuron SDK"),
        (2, "--kernel naive -n 128 --profile none/x", "could not run: cannot write none/x.html"),
        (2, "--kernel naive -n 128 --backend hw --simulate", "contradict"),
    ],
)
def test_these_end_in_a_sentence(tester, code, flags, says):
    assert (result := tester(flags))[0] == code and says in result[1], result


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "code, edit, says",
    [
        (
            2,
            ("def vector_add_naive", "def vector_add_native"),
            "no kernel named vector_add_naive; there is vector_add_native",
        ),
        (
            1,
            ("add_naive(a_vec, b_vec", "add_naive(a_vec, b_vec, c_vec"),
            "limit: vector_add_naive(a_vec, b_vec, c_vec) you gave: vector_add_naive(float32[128], "
            "float32[128]) where: ",
        ),
        (
            1,
            ("    a = nl.load(a_vec)\n    b =", "    vector_add_naive(a_vec, b_vec)\n    b ="),
            "RecursionError: maximum recursion depth exceeded",
        ),
        (2, ("def vector_add_naive(", "def vector_add_naive(("), "is not Python"),
        (1, ("value=nl.add(a, b))\n    return out", "value=nl.add(a, b))"), "naive_128 on trn1"),
        (1, ("value=nl.add(a, b))", "value=nl.add(a, a))"), "input 1 was overwritten by input 0"),
        (1, ("value=nl.add(a, b))", "value=nl.add(a, a_vec))"), "kernels.py"),
        (2, ("FREE_DIM = 2 ", "FREE = 2 "), "no constant named FREE_DIM"),
    ],
)
def test_edited_kernels_end_in_a_sentence(tester, code, edit, says):
    kernel = "stream -n 256 --free-dim 1" if "FREE" in edit[0] else "naive -n 128"
    result = tester(f"--kernel {kernel}", edit)
    assert result[0] == code and says in result[1], result


def test_the_list_of_cases_runs_none(tester):
    code, said = tester("--list")
    assert code == 0 and "Cases of vecadd" in said and "atol / rms" in said
    assert not (tester.folder / "results").exists()


def test_a_lab_without_kernels_is_a_sentence(tester):
    (tester.folder / "kernels.py").unlink()
    code, said = tester("--kernel naive -n 128 --dialect beta1")
    assert code == 2 and "invalid choice: 'beta1' (choose from" in said and "nki" in said
    (tester.folder / "kernels_nki.py").unlink()
    assert tester("--list") == tester("--kernel naive -n 128")
    assert tester("--list")[0] == 2


def test_a_repaired_bad_kernel_is_reported_since_it_should_be_wrong(tester):
    text = (LAB / "kernels.py").read_text("utf-8")
    good = text[text.index("def vector_add_direct_allocation(") :]
    good = good[: good.index("\n\n\n")].replace("allocation(", "allocation_bad(")
    kernels = tester.folder / "kernels.py"
    kernels.write_text(f"{text}\n\n@nki.jit\n{good}\n", "utf-8")
    code, said = tester("--kernel alloc_bad -n 128000")
    assert code == 1 and "meant to go wrong" in said


def test_results_say_where_they_come_from_and_hold_no_latency(tester):
    tester("--kernel naive -n 128 --seed 5")
    tester("--kernel naive -n 128 --target trn2")
    runs = json.loads((tester.folder / "results" / "results.json").read_text())["runs"]
    assert [(r["backend"], r["target"], r["seed"]) for r in runs] == [
        ("sim", "trn1", 5),
        ("sim", "trn2", 149),
    ]
    assert len(runs[0]["kernels_sha256"]) == 64 and runs[0]["nkisim"] and runs[0]["sdk"] is None
    assert [c["latency_us"] for r in runs for c in r["cases"]] == [None, None]


@pytest.mark.parametrize("flags, code", [("nonsense", 2), ("vecadd --target trn9", 2)])
def test_simulate_refuses_what_it_does_not_know(flags, code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "labkit", "simulate", *flags.split()],
        cwd=LAB.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == code and "Traceback" not in done.stderr and done.stderr


#: a right transpose that does not do what the step teaches, and what is said of it
OTHERWISE = {
    "at most 64 count": "    for r in range(rows):\n        for c in range(columns):\n"
    "            nl.store(out[c:c + 1, r:r + 1], nl.load(matrix[r:r + 1, c:c + 1]))\n",
    "without nc_transpose": "    nl.store(out, nl.load_transpose2d(matrix))\n",
}


@pytest.mark.parametrize("says", OTHERWISE)
def test_a_right_transpose_of_another_kind_is_no_pass(tester, says):
    text = (LAB / "kernels.py").read_text("utf-8")
    begin, end = text.rindex("    # BEGIN SOLUTION"), text.rindex("    # END SOLUTION")
    code, said = tester("--kernel transpose -n 128", (text[begin:end], OTHERWISE[says]))
    assert code == 1 and says in said, said
