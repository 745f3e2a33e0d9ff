"""Grading a class: verdicts, points, late days, reports; the same bytes however it was run."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nkisim
from grading import ROOT, SOLVED, files, hand_in, needs_sandbox, run, same_secret, small_lab
from labkit import SpecError, make_inputs
from labkit.grade import sandbox, submissions
from labkit.grade.facade import Facade
from labkit.grade.judge import Bench
from labkit.grade.plan import LatePolicy, load_plan
from labkit.grade.report import cell, markdown
from labkit.grade.similarity import pairs
from labkit.load import load_lab, load_module
from mutants import submissions as mutant_submissions
from same_values import same_values

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

STUBBED = "def matrix_transpose(m):\n    raise NotImplementedError('step 4 is not written yet')\n"


@pytest.fixture
def vecadd(tmp_path, monkeypatch):
    """Make vecadd with a small plan the lab that is graded."""
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    return tmp_path


@pytest.mark.parametrize("name", sorted(p.parent.name for p in ROOT.glob("labs/*/spec.py")))
def test_a_handout_says_how_many_points_there_are(name):
    text = (ROOT / "labs" / name / "README.md").read_text("utf-8")
    graded = text.split("## How it is graded")[1].split("\n## ")[0]
    assert f"{load_plan(ROOT / 'labs' / name).points:g} points" in graded


# -- the facade over a pipe ------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("file", ["kernels", "kernels_nki"])
@pytest.mark.parametrize("name", ["vecadd", "ffnn", "conv2d"])
def test_a_kernel_over_the_pipe_is_the_kernel(name, file):
    """Outputs, latency, findings and counts are those of a run in one process."""
    lab = load_lab(ROOT / "labs" / name)
    module = load_module(lab.folder / f"{file}.py", f"direct_{name}_{file}")
    graded = load_plan(lab.folder)
    bench = Bench(
        {"submission": str(lab.folder), "sandbox": "none", "kernels": file, "seed": 3},
        graded,
        Facade(),
    )
    cases = {
        c.kernel: c
        for c in lab.cases
        if "quick" in c.fleets
        and type(c.expect).__name__ != "MustRaise"
        and all(t.shape[0] <= 26000 and t.shape[-1] <= 2000 for t in c.inputs)
    }
    try:
        for case in cases.values():
            reply = bench.run(case, "trn2")
            assert "error" not in reply, (case.name, reply)
            for key, value in case.constants.items():
                setattr(module, key, value)
            direct = nkisim.profile(
                getattr(module, case.kernel),
                *make_inputs(case, 3),
                target="trn2",
                **case.kwargs,
                **case.kernel_kwargs,
            )
            assert reply["latency"]["p50"] == direct.latency_us
            assert same_values(reply["outputs"], direct.outputs)
            assert [f["id"] for f in reply["findings"]] == [f.id for f in direct.findings]
            assert reply["stats"]["instructions"] == dict(direct.instructions)
    finally:
        bench.stop()


READ = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def matrix_transpose(matrix):
    tile = nl.ndarray((1, 4), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=matrix[0:1, 0:4].view(nl.int32))
    register = nisa.register_alloc()
    nisa.register_load(register, tile[0:1, 0:1])
    found = []
    for read in READS:
        try:
            found.append(read(register))
        except Exception as e:
            pass
    raise ValueError(f"found {[f for f in found if f is not NotImplemented]}")
"""


READS = (
    "bool",
    "int",
    "float",
    "lambda r: r.value",
    "lambda r: r == 0",
    "repr",
    "len",
    "lambda r: r.state",
    "lambda r: r._value",
    "lambda r: bool(r < 5)",
)


def what_a_kernel_reads(tmp_path, text, read):
    """Return what a kernel says that it has found by one way of reading, or how that ended it."""
    (tmp_path / "kernels_nki.py").write_text(text.replace("READS", f"({read},)"))
    bench = Bench(
        {"submission": str(tmp_path), "sandbox": "none", "kernels": "kernels_nki", "seed": 3},
        load_plan(ROOT / "labs" / "vecadd"),
        Facade(),
    )
    try:
        return bench.run(bench.graded.lab.case("transpose_128x128"), "trn2")["error"]["text"]
    finally:
        bench.stop()


@pytest.mark.sample(5)
@pytest.mark.parametrize("read", READS)
def test_a_register_does_not_carry_data_out(tmp_path, read):
    said = what_a_kernel_reads(tmp_path, READ, read)
    assert "found [" in said or said.startswith("NKI-"), said
    assert not re.findall(r"\d{5,}|True|False|Virtual", said), said


TODAY = '''
import nki
import nki.isa as nisa
import nki.language as nl
from nki.compiler import AddressRotation, CompileConfig


@nki.jit(compile_config=CompileConfig(address_rotation=AddressRotation.DISABLE))
def matrix_transpose(matrix):
    """By tiles; the last row of tiles in a loop of the device."""
    rows, columns = matrix.shape
    out = nl.ndarray((columns, rows), dtype=matrix.dtype, buffer=nl.shared_hbm)
    src, dst = nl.tiles(matrix, tile_shape=(64, 64)), nl.tiles(out, tile_shape=(64, 64))
    here = nl.alloc_tiles(tile_shape=(64, 64), element_shape=matrix.shape, buffer=nl.sbuf,
                          dtype=matrix.dtype)
    number = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(number, 1)
    assert src.shape == (rows // 64, columns // 64) and src[0, :].element_shape == (64, columns)

    def tile(i, j):
        nisa.dma_copy(dst=here[i, j].data, src=src[i, j].data)
        t = nl.ndarray((64, 64), dtype=matrix.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=t, data=here[i, j].data)
        nisa.tensor_copy(dst=here[i, j].data, src=t)
        nisa.dma_copy(dst=dst[j, i].data.data, src=here[i, j].data)

    for i in range(src.shape[0]):
        for j in range(src.shape[1]):
            tile(i, j)

    def again(k):
        at = [[columns, 1], [1, columns]]
        t = nl.ndarray((1, columns), dtype=matrix.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=matrix.ap(at, scalar_offset=k * 2 - k))
    nl.fori_loop(0, nisa.scalar_load(number) + 1, again)
    return out
'''


def test_names_of_nki_0_7_are_graded(tmp_path):
    (tmp_path / "kernels_nki.py").write_text(TODAY)
    bench = Bench(
        {"submission": str(tmp_path), "sandbox": "none", "kernels": "kernels_nki", "seed": 3},
        load_plan(ROOT / "labs" / "vecadd"),
        Facade(),
    )
    try:
        case = bench.graded.lab.case("transpose_128x128")
        reply = bench.run(case, "trn2")
    finally:
        bench.stop()
    assert "error" not in reply, reply
    assert np.array_equal(reply["outputs"], make_inputs(case, 3)[0].T)


@pytest.mark.sample(5)
@pytest.mark.parametrize("read", READS)
def test_a_scalar_does_not_carry_data_out(tmp_path, read):
    text = READ.replace("    register = nisa.register_alloc()\n", "").replace(
        "nisa.register_load(register, tile[0:1, 0:1])", "register = nisa.scalar_load(tile[:, 0:1])"
    )
    said = what_a_kernel_reads(tmp_path, text, read)
    assert "found [" in said or said.startswith("NKI-"), said
    assert not re.findall(r"\d{5,}|True|False", said), said


def bench_of(tmp_path, text, name="vecadd"):
    """Return a bench for one kernels.py."""
    (tmp_path / "kernels.py").write_text(text)
    graded = load_plan(ROOT / "labs" / name)
    return Bench(
        {"submission": str(tmp_path), "sandbox": "none", "kernels": "kernels", "seed": 3},
        graded,
        Facade(),
    ), graded


@pytest.mark.parametrize(
    "line, says",
    [
        ("    t = nl.load(matrix[0:129, 0:8])", "NKI-P01"),
        ("    t = nl.lod(matrix[0:128])", "lod"),
        ("    t = 1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_errors_name_the_students_line(tmp_path, line, says):
    text = SOLVED.replace("    # BEGIN SOLUTION step=4", line + "\n    #")
    number = text.splitlines().index(line) + 1
    bench, graded = bench_of(tmp_path, text)
    try:
        reply = bench.run(graded.lab.case("transpose_256x384"), "trn2")
    finally:
        bench.stop()
    assert says in reply["error"]["text"] and f"kernels.py:{number}" in reply["error"]["text"]
    assert line.strip() in reply["error"]["text"]


def test_functions_of_the_kernel_may_choose_addresses(tmp_path):
    text = SOLVED.replace(
        "ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(ALLOC_TILES,))",
        "ncc.sbuf.alloc(lambda i, p, f: (0, (i[0] % ALLOC_TILES) * f))",
        1,
    )
    assert text != SOLVED
    bench, graded = bench_of(tmp_path, text)
    try:
        reply = bench.run(graded.lab.case("alloc_25600_free50"), "trn2")
    finally:
        bench.stop()
    assert "error" not in reply


# -- a class -------------------------------------------------------------------------------------


@needs_sandbox
def test_a_small_class(vecadd, capsys):
    subs = hand_in(vecadd / "subs", ann=SOLVED, bob=STUBBED, cy="def f(:\n")
    (subs / "dee").mkdir()
    (subs / "submissions.csv").write_text(
        "student,source,submitted_at\nann,ann,2026-05-02T00:30:00Z\nbob,bob,2026-05-01T10:00:00Z\n"
        "\"=cmd|' /C calc'!A0\",,\n"
    )
    assert run(subs, vecadd / "out", "--deadline", "2026-05-01T23:59:00Z") == 0
    with open(vecadd / "out" / "grades.csv", newline="") as file:
        rows = {r["student"]: r for r in csv.DictReader(file)}
    assert rows["ann"]["points"] == "9" and rows["ann"]["before_late"] == "10"
    assert rows["ann"]["late"] == "1 day late: 10 % less"
    assert rows["bob"]["points"] == "0" and rows["dee"]["problem"].startswith(
        "kernels.py is missing"
    )
    assert not any("calc" in name for name in rows)  # of no folder: mistyped, or not there
    assert "'=cmd|' /C calc'!A0,nothing was handed in" in (vecadd / "out" / "apart.csv").read_text()
    report = (vecadd / "out/reports/cy.md").read_text()
    assert "not Python" in report and "kernels.py:1" in report
    page = (vecadd / "out/reports/ann.html").read_text()
    assert "predicted by the simulator, not measured" in page and "128x256" not in page
    assert "step 4 is not written yet" in (vecadd / "out/reports/bob.html").read_text()
    canvas = (vecadd / "out/canvas.csv").read_text().splitlines()
    assert canvas[0] == "Student,ID,SIS User ID,SIS Login ID,Section,vecadd"
    assert canvas[1] == "    Points Possible,,,,,10" and "ann,,,ann,,9" in canvas
    assert (vecadd / "out/private/secret").stat().st_mode & 0o077 == 0


@pytest.mark.full
def test_submissions_in_a_relative_folder_are_found(vecadd, monkeypatch):
    """The folder is given from where one stands; a row of the table is relative to the folder."""
    hand_in(vecadd / "subs", ann=SOLVED, bob=SOLVED)
    (vecadd / "subs" / "submissions.csv").write_text("student,source\nbob,bob\n")
    monkeypatch.chdir(vecadd)
    assert run(Path("subs"), Path("out"), "--sandbox", "none") == 0
    with open("out/grades.csv", newline="") as file:
        assert {r["student"]: r["points"] for r in csv.DictReader(file)} == {
            "ann": "10",
            "bob": "10",
        }


MISSING = """
import sys
from importlib import abc


class Gone(abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {gone!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Gone())
sys.argv = ["labkit", *{argv!r}]
from labkit.__main__ import main
sys.exit(main())
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "gone, says",
    [
        ("jinja2", 'reports need Jinja: pip install "trainium-labs[grade]"'),
        ("filelock", 'labkit needs filelock: pip install "trainium-labs[labs]"'),
        ("rich", 'labkit needs rich: pip install "trainium-labs[labs]"'),
        ("distributed", '--scheduler needs Dask: pip install "trainium-labs[grade]"'),
        ("dask_jobqueue", 'needs dask-jobqueue: pip install "trainium-labs[grade]"'),
    ],
)
def test_a_sentence_where_a_package_is_missing(vecadd, gone, says):
    subs = hand_in(vecadd / "subs", ann=SOLVED)
    code = MISSING.format(
        gone=[gone],
        argv=[
            "grade",
            str(subs),
            "--lab",
            "vecadd",
            "--out",
            str(vecadd / "out"),
            "--sandbox",
            "none",
            *(["--scheduler", "slurm"] if gone.startswith(("dist", "dask")) else []),
        ],
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "shared")},
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert says in " ".join(done.stderr.split())
    assert not list(vecadd.glob("out/verdicts/*"))  # it was said before anything was judged


@pytest.mark.full
@needs_sandbox
def test_the_same_bytes_again_resumed_and_for_one_student(vecadd):
    subs = hand_in(vecadd / "subs", **{s: t for s, t in mutant_submissions("vecadd", 6).items()})
    one, two = vecadd / "one", vecadd / "two"
    assert run(subs, one) == 0
    same_secret(one, two)
    code = (
        "import sys; from labkit.grade.run import grade; "
        f"grade([{str(subs)!r}, '--lab', 'vecadd', '--out', {str(two)!r}, '--jobs', '1'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "shared")}
    )
    while not len(list((two / "verdicts").glob("*.json"))) >= 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)  # in the middle
    process.wait()
    assert not (two / "grades.csv").exists()
    assert run(subs, two) == 0
    assert files(one) == files(two)
    before = files(two)
    assert run(subs, two, "--student", "student003", "--again") == 0
    assert files(two) == before


@needs_sandbox
@pytest.mark.full
@pytest.mark.parametrize("count", [5, 24])
def test_a_cluster_that_loses_a_worker_gives_the_same(vecadd, count):
    distributed = pytest.importorskip("distributed")
    subs = hand_in(vecadd / "subs", **mutant_submissions("vecadd", count))
    one, two = vecadd / "one", vecadd / "two"
    assert run(subs, one) == 0
    same_secret(one, two)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        (str(ROOT / "shared"), os.environ.get("PYTHONPATH", ""))
    )
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        killed = []

        def kill():
            while not list((two / "verdicts").glob("*.json")):
                time.sleep(0.02)
            pid = next(iter(cluster.workers.values())).pid
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

        import threading

        thread = threading.Thread(target=kill)
        thread.start()
        assert run(subs, two, "--scheduler", cluster.scheduler_address) == 0
        thread.join()
    assert killed and files(one) == files(two)


def test_strangers_code_is_not_run_without_a_sandbox(vecadd, monkeypatch):
    monkeypatch.setattr(sandbox, "probe", lambda: "bubblewrap (bwrap) is not installed")
    subs = hand_in(vecadd / "subs", ann=SOLVED)
    with pytest.raises(SpecError, match="not run without one"):
        run(subs, vecadd / "out")
    assert not (vecadd / "out").exists()
    assert run(subs, vecadd / "out", "--sandbox", "none") == 0


def test_a_judge_that_is_killed_is_no_verdict(vecadd, monkeypatch):
    from labkit.grade import run as module

    calls = []

    def judge(task):
        calls.append(task["student"])
        if len(calls) < 3:
            raise module.Killed("signal 9")
        return {"points": 1}

    monkeypatch.setattr(module, "_judge", judge)
    assert module.grade_one({"student": "ann"}) == {"points": 1} and len(calls) == 3


# -- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hours, share", [(-1, 1), (0, 1), (1, 0.9), (24, 0.9), (25, 0.8), (72, 0.7), (73, 0)]
)
def test_late_days(hours, share):
    from datetime import timedelta

    deadline = submissions.parse_time("2026-05-01T23:59:00-07:00")
    late = LatePolicy(deadline, 0.1, 3)
    assert late.share(deadline + timedelta(hours=hours))[0] == pytest.approx(share)
    assert late.share(None)[0] == 1


def git(folder, *args, **env):
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *args],
        check=True,
        capture_output=True,
        env={**os.environ, **env},
    )


def test_a_repository_is_read_at_a_commit_before_the_deadline(tmp_path):
    repo = tmp_path / "repo"
    (repo / "labs/vecadd").mkdir(parents=True)
    git(tmp_path, "init", "-q", "repo")
    hook = repo / ".git/hooks/post-checkout"
    hook.write_text("#!/bin/sh\ntouch " + str(tmp_path / "hooked"))
    hook.chmod(0o755)
    for day, text in ((1, "early"), (9, "late")):
        (repo / "labs/vecadd/kernels.py").write_text(text)
        git(repo, "add", "-A")
        date = f"2026-05-0{day}T12:00:00Z"
        git(repo, "commit", "-qm", text, GIT_COMMITTER_DATE=date, GIT_AUTHOR_DATE=date)
    row = {"student": "ann", "source": f"file://{repo}"}
    deadline = submissions.parse_time("2026-05-05T00:00:00Z")
    for limit, text in ((deadline, b"early"), (None, b"late")):
        (tmp_path / text.decode()).mkdir()
        found = submissions.take(
            row,
            tmp_path,
            "vecadd",
            ["kernels.py"],
            limit,
            tmp_path / text.decode(),
            submissions.Sources(local=True),
        )
        assert found.files == {"kernels.py": text}, found.problem
    for bad in ("--upload-pack=touch x", "ext::sh -c touch% x"):
        found = submissions.take(
            {"student": "eve", "source": bad + "://x"},
            tmp_path,
            "vecadd",
            ["kernels.py"],
            None,
            tmp_path,
        )
        assert found.problem and not found.files
    assert not (tmp_path / "hooked").exists()


def test_alike_submissions_are_found_and_others_not():
    given = load_plan(ROOT / "labs/vecadd") and SOLVED.split("def matrix_transpose")[0]
    renamed = SOLVED.replace("strip", "row_of_tiles").replace("block", "b").replace("tile", "t128")
    other = (
        given
        + "def matrix_transpose(m):\n"
        + "".join(
            f"    x{i} = [m[{i}] for k in range(9) if k < {i} and not k == {i + 1}]\n"
            for i in range(20)
        )
    )
    found = pairs({"ann": SOLVED, "bob": renamed, "cy": other}, given)
    assert [(a, b) for _, a, b in found] == [("ann", "bob")] and found[0][0] > 0.8


def test_copies_are_alike_however_short_they_are_but_not_what_was_given():
    given = "def add(a, b):\n    return nl.add(nl.load(a), nl.load(b))\n"
    short = given + "def turn(m):\n    for i in range(m.shape[0] // 128):\n        nl.store(i, m)\n"
    crlf = short.replace("\n", "\r\n")
    found = pairs({"ann": short, "bob": crlf, "cy": given, "di": given}, given)
    assert found == [(1.0, "ann", "bob")]


def test_names_are_harmless_as_files_cells_and_markdown():
    assert submissions.safe_id("ann-1") == "ann-1"
    for name in ("../x", "<b>eve", "a/b", "", "x" * 99, ".hidden", "ann\n"):
        made = submissions.safe_id(name)
        assert "/" not in made and "<" not in made and not made.startswith(".") and made != name
    assert cell("=1+1") == "'=1+1" and cell("") == "" and cell(-3.50) == "-3.5"
    assert markdown("<b>[x](y)`\n#") == r"\<b\>\[x\]\(y\)\` \#"


def test_a_verdict_says_what_it_was_made_from(vecadd):
    subs = hand_in(vecadd / "subs", ann=SOLVED)
    assert run(subs, vecadd / "out", "--sandbox", "none") == 0
    verdict = json.loads((vecadd / "out/verdicts/ann.json").read_text())
    assert verdict["latency_kind"] == "predicted" and verdict["backend"] == "sim"
    assert [c["hidden"] for c in verdict["cases"]] == [False, True]
    assert verdict["points"] == verdict["of"] == 10
