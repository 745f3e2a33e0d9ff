"""What a submission might keep, read or use up; each attempt stands beside one that is honest."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import redteam
from grading import ROOT, SOLVED, hand_in, needs_sandbox, run, small_lab
from labkit.grade import sandbox, submissions
from labkit.grade.confine import MACHINES, REFUSED, program
from labkit.grade.facade import Facade
from labkit.grade.judge import Bench, plain, stuck_at
from labkit.grade.plan import load_plan
from labkit.grade.rpc_server import Overdue, Session
from labkit.inputs import make_inputs
from labkit.spec import SpecError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")
TILES = """
for c in nl.affine_range(columns // 128):
    for r in nl.affine_range(rows // 128):
        b = nl.load(matrix[r * 128:(r + 1) * 128, c * 128:(c + 1) * 128])
        nl.store(out[c * 128:(c + 1) * 128, r * 128:(r + 1) * 128], value=nisa.nc_transpose(b))
"""


@pytest.fixture()
def bench(tmp_path):
    """Return a function that makes a bench of one kernels.py; all are stopped at the end."""
    made = []

    def make(text, seed=3):
        (tmp_path / "kernels.py").write_text(text)
        made.append(
            Bench(
                {
                    "submission": str(tmp_path),
                    "sandbox": "none",
                    "kernels": "kernels",
                    "seed": seed,
                },
                load_plan(ROOT / "labs" / "vecadd"),
                Facade(),
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.stop()


# -- what a run leaves to the next -----------------------------------------------------------------


def test_what_one_launch_has_computed_is_no_output_of_the_next(bench):
    """The same case on another chip has the same inputs."""
    kept = redteam.body("if KEPT:\n    return KEPT[0]" + TILES + "KEPT.append(out)\nreturn out")
    submission = bench(
        kept.replace("import neuronxcc.nki as nki\n", "import neuronxcc.nki as nki\nKEPT = []\n", 1)
    )
    case = submission.graded.lab.case("transpose_128x128")
    assert "error" not in submission.run(case, "trn2")
    assert "of another run" in submission.run(case, "trn3")["error"]["text"]


def test_an_index_may_be_kept(bench):
    submission = bench(
        redteam.body(
            "KEPT.append(nl.arange(4))"
            + TILES.replace("b = nl", "i = KEPT[0][None, :]\n        b = nl")
            + "return out"
        ).replace("import neuronxcc.nki as nki\n", "import neuronxcc.nki as nki\nKEPT = []\n", 1)
    )
    case = submission.graded.lab.case("transpose_128x128")
    for target in ("trn2", "trn3"):
        reply = submission.run(case, target)
        assert np.array_equal(reply["outputs"], make_inputs(case, 3)[0].T), reply


# -- what a kernel may learn -----------------------------------------------------------------------

READ = """
import numpy as np, re
bits = nl.load(matrix[0:128, 0:128]).view(nl.int32)
few = nl.ndarray((8, 1), dtype=nl.float32, buffer=nl.shared_hbm)
nl.store(few, nl.load(matrix[0:8, 0:1]))
found = np.zeros((128, 128), np.int32)
for k in range(3):
    try:
        nl.store(out[0:1, 0:1], nl.load(few[bits[0:1, k:k+1], nl.arange(1)[None, :]]))
    except IndexError as error:
        found[0, k] = int(re.search("index ([0-9]+)", str(error))[1])
"""


def test_errors_that_a_kernel_catches_do_not_tell_it_the_inputs(bench):
    """An index that comes from data is said by an error, but only once the kernel is over."""
    submission = bench(redteam.body(READ + "return out"))
    reply = submission.run(submission.graded.lab.case("transpose_128x128"), "trn2")
    assert "out of bounds" in reply["error"]["text"]
    submission = bench(redteam.body(READ + "raise ValueError(f'found {found}')"))
    case = submission.graded.lab.case("transpose_128x128")
    assert submission.run(case, "trn2")["error"]["text"].startswith("ValueError: found [[0 0 0")


def test_questions_that_python_asks_may_be_answered_by_an_error(bench):
    submission = bench(
        redteam.body(
            "assert not hasattr(matrix, 'T_T')\ntry:\n    len(1)\n"
            "except TypeError:\n    pass" + TILES + "return out"
        )
    )
    case = submission.graded.lab.case("transpose_128x128")
    assert "error" not in submission.run(case, "trn2")


COUNTS = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def matrix_transpose(matrix):
    out = nl.ndarray(matrix.shape, dtype=matrix.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((1, 128), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=matrix[0:1, 0:128].view(nl.int32))
    nisa.tensor_scalar(dst=t, data=t, op0=nl.bitwise_and, operand0=1)
    for k in range(NUMBER):
        LOOP
    return out
"""
ALL = "    nisa.dma_copy(dst=out, src=matrix)\n    return out"


@pytest.mark.parametrize(
    "loop",
    [
        "nl.fori_loop(0, nisa.scalar_load(t[0:1, 0:1]), lambda i: None)",
        "for _ in nl.dynamic_range(0, nisa.scalar_load(t[0:1, 0:1])): pass",
    ],
)
def test_how_often_loops_of_the_chip_run_is_told_a_few_times_only(tmp_path, monkeypatch, loop):
    from labkit.grade import rpc_server

    monkeypatch.setattr(rpc_server, "MOST_LOOPS", 20)
    graded = load_plan(ROOT / "labs" / "vecadd").speaking("nki")
    for number, more, says in (
        (15, loop, ""),
        (30, loop, "more than 20 loops"),
        (30, "nl.fori_loop(0, 2, lambda i: None)", ""),
    ):
        (tmp_path / "kernels_nki.py").write_text(
            COUNTS.replace("    return out", ALL)
            .replace("NUMBER", str(number))
            .replace("LOOP", more)
        )
        submission = Bench(
            {"submission": str(tmp_path), "sandbox": "none", "kernels": "kernels_nki", "seed": 3},
            graded,
            Facade(),
        )
        try:
            reply = submission.run(graded.lab.case("transpose_128x128"), "trn2")
        finally:
            submission.stop()
        assert says in reply["error"]["text"] if says else "error" not in reply, reply


def test_a_tile_is_no_number_of_python(bench):
    """nt.scalar makes one of it; with all numbers NumPy could do the kernel's work."""
    submission = bench(
        redteam.body(
            "import neuronxcc.nki.typing as nt\n"
            "value = nt.scalar(nl.load(matrix[0:1, 0:1]))" + TILES + "return out"
        )
    )
    reply = submission.run(submission.graded.lab.case("transpose_128x128"), "trn2")
    assert "scalar" in reply["error"]["text"], reply


ASKING = (
    TILES
    + """
t = nl.load(matrix[0:128, 0:128])
n = nl.ndarray((128, 128), dtype=nl.int32, buffer=nl.sbuf)
n[...] = t.view(nl.int32)
for x in (matrix, t, n, t + t, t > 0.5, nl.max(t, axis=[1]), nl.exp(t * 1000.0), n[0:1, 0:1]):
    for ask in (repr, len, lambda x: x.shape, lambda x: x.dtype, lambda x: x.size):
        try:
            ask(x)
        except (TypeError, AttributeError):
            pass
return out
"""
)


def test_what_a_kernel_is_told_does_not_depend_on_values(bench, monkeypatch):
    messages, send = [], Session.send
    monkeypatch.setattr(
        Session,
        "send",
        lambda self, value: (messages.append(json.dumps(value)), send(self, value))[1],
    )
    heard = []
    for seed in (3, 4):
        submission = bench(redteam.body(ASKING), seed)
        reply = submission.run(submission.graded.lab.case("transpose_128x128"), "trn2")
        assert "error" not in reply, reply
        heard.append(list(messages))
        messages.clear()
    assert heard[0] == heard[1] and len(heard[0]) > 50


def test_an_alarm_is_not_an_error_of_the_kernel():
    """The simulator catches errors here and there, and would go on without end."""
    Bench._limit_time(0.05)
    try:
        with pytest.raises(Overdue):
            try:
                while True:
                    pass
            except Exception:
                pytest.fail("the simulator went on")
    finally:
        Bench._limit_time(0)


@needs_sandbox
def test_a_kernel_does_not_say_the_shapes_of_hidden_cases(tmp_path, monkeypatch):
    """Right kernels have their prints shown, those of the cases that everybody has."""
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    says = "print('SAW', rows, columns, SEEN)\nSEEN.append(columns)"
    text = redteam.body(says + TILES + "return out").replace(
        "import neuronxcc.nki as nki\n", "import neuronxcc.nki as nki\nSEEN = []\n", 1
    )
    subs = hand_in(
        tmp_path / "subs",
        ann=text,
        bob=text.replace(
            "SEEN.append(columns)",
            (
                "SEEN.append(columns)\n    if 256 in SEEN and columns == 128:\n"
                "        raise ValueError(SEEN)"
            ),
        ),
    )
    assert run(subs, tmp_path / "out") == 0
    for student in ("ann", "bob"):
        verdict = json.loads((tmp_path / "out/verdicts" / f"{student}.json").read_text())
        assert verdict["points"] == 10 and verdict["printed"].startswith("SAW 128 128 []\n")
        assert "256" not in verdict["printed"]
        assert "SAW 128" in (tmp_path / "out/reports" / f"{student}.html").read_text()


def test_a_verdict_has_no_text_that_steers_a_terminal_or_is_no_text():
    said = plain({"a": ["x\x1b[2J\udc80\u202ey\n", ("z\x07",), 1.5, None]})
    assert said == {"a": ["x [2J  y\n", ["z "], 1.5, None]}
    assert len(plain("x" * 100_000)) < 5100  # of a name that an error quotes
    json.dumps(said, ensure_ascii=False).encode()


# -- what a process may use up ---------------------------------------------------------------------

TRY = """
import ctypes, fcntl, os, sys
sys.path.insert(0, {folder!r})
from confine import confine
confine({{}})
c = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"
IO_SETUP = (206 if x86 else 0, 60000, ctypes.byref(ctypes.c_void_p()))
SYNC = (162 if x86 else 81,)
def tried(call):
    try:
        got = call()
    except OSError as error:
        return error.errno
    return ctypes.get_errno() if got == -1 else 0
there = open({there!r})
os.close(os.dup(there.fileno()))
fcntl.fcntl(there, fcntl.F_GETFL)
print([tried(call) for call in (
    lambda: c.shmget(0, ctypes.c_size_t(1 << 20), 0o1600), lambda: c.semget(0, 9, 0o1600),
    lambda: c.msgget(0, 0o1600), os.fork, lambda: os.kill(os.getppid(), 0),
    lambda: os.mkdir({new!r}), lambda: os.symlink("x", {new!r}), lambda: open({new!r}, "w"),
    lambda: fcntl.flock(there, fcntl.LOCK_EX), lambda: fcntl.lockf(there, fcntl.LOCK_SH),
    lambda: fcntl.fcntl(there, fcntl.F_GETLK, b"\\0" * 32),
    lambda: fcntl.fcntl(there, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    lambda: fcntl.fcntl(there, fcntl.F_NOTIFY, 1),
    lambda: c.syscall(*IO_SETUP), lambda: c.syscall(*SYNC),
    lambda: os.memfd_create("x"), lambda: os.execv("/bin/true", ["true"]))])
print(open({there!r}).read(), flush=True)
"""


@pytest.mark.skipif(not sandbox.filters(), reason="this kernel filters no system calls")
def test_the_filter_refuses_what_no_limit_counts(tmp_path):
    (tmp_path / "there").write_text("read")
    code = TRY.format(
        folder=str(Path(sandbox.__file__).parent),
        new=str(tmp_path / "new"),
        there=str(tmp_path / "there"),
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
    assert done.stdout.splitlines() == [str([1] * 17), "read"], done.stderr


def test_the_filter_is_one_for_each_machine():
    for machine in MACHINES:
        code = program(machine)
        assert len(code) % 8 == 0 and len(code) // 8 < 256  # jumps are a byte
    assert program("sparc") == b"" and all(any(both) for both in REFUSED.values())
    assert len({n[0] for n in REFUSED.values()} - {None}) == sum(
        n[0] is not None for n in REFUSED.values()
    )


def test_a_submission_that_waits_to_be_judged_is_no_one_elses_to_read(tmp_path):
    (tmp_path / "kernels.py").write_text("x = 1")
    student = sandbox.Student(tmp_path, "none")
    try:
        assert stat.S_IMODE(student.folder.stat().st_mode) & 0o077 == 0
    finally:
        student.stop()
    assert not student.folder.exists()


def test_another_user_must_not_be_able_to_read_the_lab(tmp_path):
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if not folder.stat().st_mode & 1:
            pytest.skip("this test's folder is no one else's")
    with pytest.raises(SpecError, match="chmod -R go-rwx"):
        sandbox.keep_from("user", tmp_path)
    sandbox.keep_from("bubblewrap", tmp_path)
    tmp_path.chmod(0o700)
    sandbox.keep_from("user", tmp_path)


def test_source_that_crashes_python_is_a_flag(monkeypatch):
    from labkit.grade import rules

    def read(files):
        return rules.read_source(files, "kernels.py", ["f"], "beta1")[0]

    assert read({"kernels.py": "import os\n"}) == [
        {"file": "kernels.py", "line": 1, "what": "imports os"}
    ]
    deep = "x" + ".a" * 300_000  # Python 3.10 ends with a segmentation fault
    assert [f["what"] for f in read({"kernels.py": deep})] in ([], ["is what Python cannot read"])
    monkeypatch.setattr(rules.sys, "executable", "/bin/false")
    assert read({"kernels.py": "x"})[0]["what"] == "is what Python cannot read"
    monkeypatch.undo()
    monkeypatch.setattr(rules, "SLOWEST", 0.01)  # and so is what takes minutes
    assert read({"kernels.py": "x"})[0]["what"] == "is what Python cannot read"


# -- what is handed in -----------------------------------------------------------------------------


def broken_zip():
    """Return a zip whose compressed bytes are noise."""
    data = bytearray(redteam.zipped({"kernels.py": SOLVED.encode()}))
    data[60:160] = bytes(range(100))
    return bytes(data)


def long_names(size):
    """Return a .tar.gz of few bytes whose member's name is said to be as long as `size`."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb") as file:
        info = tarfile.TarInfo("././@LongLink")
        info.type, info.size = tarfile.GNUTYPE_LONGNAME, size
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(size >> 20):
            file.write(b"\0" * (1 << 20))
        file.write(tarfile.TarInfo("kernels.py").tobuf() + b"\0" * 1024)
    return out.getvalue()


def named_at_length(files, size):
    """Return a .tar of empty files, each with a name of so many bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as file:
        for _ in range(files):
            file.addfile(tarfile.TarInfo("k" * size))
    return out.getvalue()


def pax_of_digits(size):
    """Return a .tar whose file has a head of digits, in which tarfile looks for numbers."""
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, size
    return (
        info.tobuf(tarfile.USTAR_FORMAT)
        + b"1" * size
        + tarfile.TarInfo("kernels.py").tobuf()
        + b"\0" * 1024
    )


@pytest.mark.parametrize(
    "name, data, says",
    [
        ("ann.zip", broken_zip, "cannot be read"),
        ("ann.tar.gz", lambda: long_names(80 << 20), "more than 50 MiB"),
        ("ann.tar.gz", lambda: long_names(8 << 20), "more than 16 KiB about one of its files"),
        ("ann.tar", lambda: pax_of_digits(512 << 10), "more than 16 KiB about one of its files"),
        ("ann.tar", lambda: named_at_length(200, 10 << 10), "1024 KiB about all"),
        ("ann.tar.gz", lambda: gzip.compress(b"x" * 5000)[:60] + b"\0" * 50, "cannot be read"),
    ],
)
def test_an_archive_that_no_library_can_read_is_the_students_problem(tmp_path, name, data, says):
    (tmp_path / name).write_bytes(data())
    (row,) = submissions.find(tmp_path).values()
    found = submissions.take(row, tmp_path, "vecadd", ["kernels.py"], None, tmp_path)
    assert says in found.problem and not found.files


def test_a_tar_is_read(tmp_path):
    for name, mode in (("ann.tar", "w"), ("bob.tar.gz", "w:gz"), ("carol.tgz", "w:gz")):
        with tarfile.open(tmp_path / name, mode) as tar:
            info = tarfile.TarInfo("labs/vecadd/kernels.py")
            info.size = len(SOLVED.encode())
            tar.addfile(info, io.BytesIO(SOLVED.encode()))
    for row in submissions.find(tmp_path).values():
        found = submissions.take(row, tmp_path, "vecadd", ["kernels.py"], None, tmp_path)
        assert found.files == {"kernels.py": SOLVED.encode()}, found.problem


@pytest.mark.full
def test_a_name_that_is_no_text_has_a_report(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    for name in (b"zo\xeb", "li\u202eza".encode()):
        folder = os.path.join(os.fsencode(tmp_path / "subs"), name)
        os.makedirs(folder)
        Path(os.fsdecode(folder), "kernels.py").write_text("x = 1\n")
    assert run(tmp_path / "subs", tmp_path / "out", "--sandbox", "none") == 0
    text = (tmp_path / "out" / "grades.csv").read_text("utf-8")
    assert "zo\ufffd," in text and "li\ufffdza," in text


def test_who_hands_in_twice_is_asked_about(tmp_path):
    subs = hand_in(tmp_path / "subs", ann=SOLVED)
    with zipfile.ZipFile(subs / "ann.zip", "w") as archive:
        archive.writestr("kernels.py", SOLVED)
    with pytest.raises(SpecError, match="ann is there twice: ann and ann.zip"):
        submissions.find(subs)
    (subs / "submissions.csv").write_text("student,source\nann,ann.zip\n")
    assert submissions.find(subs)["ann"]["source"] == "ann.zip"


# -- the table -------------------------------------------------------------------------------------

TABLE = "student,source,submitted_at\nann,ann,2026-05-01T10:00:00Z\nZoë,zoe,\n"


@pytest.mark.parametrize(
    "data",
    [
        TABLE.encode(),
        TABLE.encode("utf-8-sig"),
        TABLE.replace(",", ";").encode(),
        TABLE.replace(",", "\t").encode("utf-16"),
        TABLE.replace("\n", "\r\n").encode(),
        TABLE.replace("student", " Student ").replace("ann,", " ann ,").encode() + b"\n,,\n",
    ],
)
def test_tables_of_spreadsheets_are_read(tmp_path, data):
    (tmp_path / "submissions.csv").write_bytes(data)
    rows = submissions.find(tmp_path)
    assert set(rows) == {"ann", "Zoë"} and rows["ann"]["source"] == "ann"
    assert rows["ann"]["submitted_at"] == "2026-05-01T10:00:00Z"


@pytest.mark.parametrize(
    "data, says",
    [
        (TABLE.encode("latin-1"), "line 3: not UTF-8"),
        (b"name,source\nann,ann\n", "must have the column student"),
        (b"student,source\nann,a\nann,b\n", "row 3: ann is there twice"),
        (b"student,source\nann,a,b,c\n", "row 2: 4 values in 2 columns"),
        (b"student,source\n,a\n", "row 2: no student"),
        (b"student,submitted_at\nann,yesterday\n", "ann: 'yesterday' is not a time"),
    ],
)
def test_tables_that_cannot_be_meant_are_an_error_of_the_staffs(tmp_path, data, says):
    (tmp_path / "submissions.csv").write_bytes(data)
    with pytest.raises(SpecError, match=re.escape(says)):
        submissions.find(tmp_path)


# -- a class -------------------------------------------------------------------------------------


def test_grades_are_the_owners_only_and_one_folder_is_one_lab(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    subs = hand_in(tmp_path / "subs", ann="x = 1\n")
    assert run(subs, tmp_path / "out", "--sandbox", "none") == 0
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
    with pytest.raises(SpecError, match="has the verdicts of vecadd in beta1"):
        run(subs, tmp_path / "out", "--sandbox", "none", "--dialect", "nki")


def test_one_whose_judge_fails_does_not_keep_a_class_from_its_grades(tmp_path, monkeypatch):
    from labkit.grade import run as module

    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    subs = hand_in(tmp_path / "subs", ann="x = 1\n", bob="x = 2\n", carol="x = 3\n")
    judge = module.grade_one

    def fails(task):
        if task["student"] == "bob":
            raise module.Killed("the judge was killed three times")
        return judge(task)

    monkeypatch.setattr(module, "grade_one", fails)
    with pytest.raises(SpecError, match="not judged, and in no gradebook: bob. .*three times"):
        run(subs, tmp_path / "out", "--sandbox", "none")
    text = (tmp_path / "out" / "grades.csv").read_text()
    assert "ann," in text and "carol," in text and "bob," not in text
    monkeypatch.setattr(module, "grade_one", judge)
    assert run(subs, tmp_path / "out", "--sandbox", "none") == 0
    assert "bob," in (tmp_path / "out" / "grades.csv").read_text()


@pytest.mark.full
def test_all_who_are_alike_are_in_the_table_though_the_page_shows_some(tmp_path, monkeypatch):
    from labkit.grade import report

    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    monkeypatch.setattr(report, "SHOWN", 2)
    own = "\n".join(f"def f{i}(a, b):\n    return [a[{i}:], b] + a * {i}\n" for i in range(20))
    subs = hand_in(tmp_path / "subs", **{f"s{i}": own for i in range(4)})
    assert run(subs, tmp_path / "out", "--sandbox", "none") == 0
    assert len((tmp_path / "out" / "similar.csv").read_text().splitlines()) == 1 + 6
    page = (tmp_path / "out" / "summary.html").read_text()
    assert page.count("100&nbsp;%</td>") == 2 and "4 more in similar.csv" in page


def test_data_types_of_import_nki_are_named_and_compared(tmp_path):
    """They are texts of a class of ours, which were left out: nl.float32 did not exist."""
    import nki.language as nl

    named = {k for k in dir(nl) if isinstance(getattr(nl, k), str) and not k.startswith("_")}
    names = Facade().describe()[0]["nki.language"]
    assert "float32" in named and named <= set(names)
    assert names["bfloat16"][::2] == ["value", "bfloat16"]
    graded = load_plan(ROOT / "labs" / "vecadd").speaking("nki")
    (tmp_path / "kernels_nki.py").write_text(
        COUNTS[: COUNTS.index("    t = nl.ndarray")]
        + """
    assert matrix.dtype == nl.float32 and matrix.dtype in ("float32",)
    t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    assert t.dtype == nl.float32 != nl.bfloat16
"""
        + ALL
    )
    submission = Bench(
        {"submission": str(tmp_path), "sandbox": "none", "kernels": "kernels_nki", "seed": 3},
        graded,
        Facade(),
    )
    try:
        reply = submission.run(graded.lab.case("transpose_128x128"), "trn2")
    finally:
        submission.stop()
    assert "error" not in reply, reply


def test_an_error_in_one_case_ends_no_other(bench):
    submission = bench(redteam.body("if rows > 128:\n    nl.load(matrix)\n" + TILES + "return out"))
    for rows, ends in ((128, ""), (256, "NKI-P01"), (128, "")):
        case = next(
            c
            for c in submission.graded.lab.cases
            if c.kernel == "matrix_transpose" and c.inputs[0].shape[0] == rows
        )
        reply = submission.run(case, "trn2")
        assert reply["error"]["id"] == ends if ends else "error" not in reply, reply


# -- one long call ---------------------------------------------------------------------------------

#: a reduction over 2^42 repetitions of one element: hours of one call of NumPy, if it were not
#: refused, as the labs of these tests do not
ENDLESS = """
t = nl.load(matrix[0:128, 0:1])
if matrix.shape[1] == 128:
    nisa.tensor_reduce(nl.max, t.broadcast_to((128, 1 << 42)), axis=[1])
"""


def unlimited_lab(folder):
    """Return the folder of a lab with which operands of engines have any number of elements."""
    labs = small_lab(folder)
    spec = labs / "vecadd" / "spec.py"
    undone = "\nfrom nkisim.machine import limits\n\nlimits.check_count = lambda *_: None\n"
    spec.write_text(spec.read_text("utf-8") + undone, "utf-8")
    return labs


@pytest.mark.full
def test_a_call_of_numpy_that_does_not_end_costs_its_case_alone(tmp_path):
    """The alarm of a case cannot interrupt it: then the process of the judge ends, and says why."""
    folder = hand_in(tmp_path / "subs", eve=redteam.body(ENDLESS + TILES + "return out")) / "eve"
    job = {
        "lab": str(unlimited_lab(tmp_path) / "vecadd"),
        "kernels": "kernels",
        "sandbox": "none",
        "seed": 3,
        "staff_us": {},
        "key": "",
        "submission": str(folder),
        "submission_sha256": "",
    }
    program = (
        "import json, os, sys; from labkit.grade import judge; "
        "judge.SPARE_S, judge.GRACE_S = 0, 1; out = os.dup(1); "
        "said = judge.begin()(json.load(sys.stdin)); os.write(out, json.dumps(said).encode())"
    )
    for code, stuck in ((1, []), (0, [["transpose_128x128", "trn1"]])):
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps({**job, "stuck": stuck}),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, (done.stderr, done.stdout[:3000])
        assert stuck_at(job) == ["transpose_128x128", "trn1"]
    text = {case["case"]: case["text"] for case in json.loads(done.stdout)["cases"]}
    assert "ran for too long" in text["transpose_128x128"]
    assert text["transpose_128x256"] == "right"


def test_after_two_calls_that_do_not_end_no_more_are_waited_for(tmp_path):
    folder = hand_in(tmp_path / "subs", eve=redteam.body(TILES + "return out")) / "eve"
    job = {"submission": str(folder), "kernels": "kernels", "sandbox": "none", "seed": 3}
    names = ["naive_128", "transpose_128x128", "transpose_256x384"]
    job["stuck"] = [[name, "trn1"] for name in names[:2]]
    graded = load_plan(ROOT / "labs" / "vecadd")
    bench = Bench(job, graded, Facade())
    try:
        replies = [bench.run(graded.lab.case(name), "trn1") for name in names]
    finally:
        bench.stop()
    said = [reply["error"]["text"] for reply in replies]
    assert all("ran for too long" in text for text in said[:2]) and "used up" in said[2]


@pytest.mark.full
def test_the_rest_of_a_submission_is_judged_without_a_case_that_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LABS", str(unlimited_lab(tmp_path)))
    folder = hand_in(tmp_path / "subs", eve=redteam.body(ENDLESS + TILES + "return out"))
    assert run(folder, tmp_path / "out") == 0
    verdict = json.loads((tmp_path / "out/verdicts/eve.json").read_text())
    assert (verdict["points"], verdict["of"]) == (6, 10)
