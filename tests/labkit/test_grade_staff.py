"""What staff cannot lose: penalties that a command forgets, hours, memory, the gradebook."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import time

import pytest

from grading import ROOT, SOLVED, hand_in, run, small_lab
from labkit import SpecError
from labkit.grade import memory, submissions
from labkit.grade.plan import load_plan
from labkit.grade.run import seed_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")
DUE = "2026-05-01T23:59:00Z"


@pytest.fixture
def vecadd(tmp_path, monkeypatch):
    """Make vecadd with a small plan the lab that is graded."""
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    return tmp_path


def points(out):
    with open(out / "grades.csv", newline="") as file:
        return {r["student"]: float(r["points"]) for r in csv.DictReader(file)}


def grade(folder, *more):
    return run(folder / "subs", folder / "out", "--sandbox", "none", *more)


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_deadline_stays_until_it_is_changed_on_purpose(vecadd, capsys):
    subs = hand_in(vecadd / "subs", alice=SOLVED, bob=SOLVED + "# 1\n")
    (subs / "submissions.csv").write_text(
        "student,source,submitted_at\nalice,alice,2026-05-02T00:30:00Z\n"
        "bob,bob,2026-05-01T10:00:00Z\n"
    )
    grade(vecadd, "--deadline", DUE)
    assert points(vecadd / "out") == {"alice": 9, "bob": 10}
    capsys.readouterr()
    grade(vecadd)  # the command without it
    assert points(vecadd / "out") == {"alice": 9, "bob": 10}
    assert "the deadline 2026-05-01T23:59:00+00:00" in capsys.readouterr().out
    grade(vecadd, "--student", "bob", "--again")
    assert points(vecadd / "out") == {"alice": 9, "bob": 10}
    for other in (
        ["--deadline", "none"],
        ["--late-per-day", "0.5"],
        ["--deadline", "2026-05-03T00:00:00Z"],
    ):
        with pytest.raises(SpecError, match="1 grade would change: alice 9 -> ") as error:
            grade(vecadd, *other)
        assert "bob" not in str(error.value) and "--change-deadline" in str(error.value)
        assert points(vecadd / "out") == {"alice": 9, "bob": 10}
    grade(vecadd, "--deadline", "2026-05-01T22:00:00Z")  # no grade changes
    grade(vecadd, "--deadline", "none", "--change-deadline")
    assert points(vecadd / "out") == {"alice": 10, "bob": 10}
    assert "alice 9 -> 10" in capsys.readouterr().out
    (vecadd / "out" / "policy.json").write_text("{")
    with pytest.raises(SpecError, match="policy.json cannot be read"):
        grade(vecadd)


def test_a_time_without_a_zone_shows_what_it_may_mean(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        with pytest.raises(SpecError) as error:
            submissions.parse_time("2026-05-02 06:30:00")
        for part in (
            "2026-05-02T06:30:00+00:00",
            "PDT",
            "2026-05-02T06:30:00-07:00",
            "2026-05-02T13:30:00+00:00",
        ):
            assert part in str(error.value)
        (tmp_path / "submissions.csv").write_text(
            "student,submitted_at\nann,2026-05-02 06:30:00\nbob,2026-05-02 06:30\n"
        )
        with pytest.raises(SpecError, match=r"(?s)ann: '2026-05-02 06:30:00'.*in 1 more row"):
            submissions.find(tmp_path)
        with pytest.raises(SpecError, match="says no zone"):
            run(tmp_path, tmp_path / "out", "--deadline", "2026-05-02T06:30:00")
    finally:
        monkeypatch.undo()
        time.tzset()


# -- where submissions come from -------------------------------------------------------------------


def taken(folder, source, sources=None):
    return submissions.take(
        {"student": "eve", "source": source},
        folder,
        "vecadd",
        ["kernels.py"],
        None,
        folder,
        sources,
    )


@pytest.mark.parametrize(
    "source",
    [
        "file:///etc",
        "http://github.com/a/b",
        "https://evil.example/a/b.git",
        "git://github.com/a/b",
        "ssh://git@github.com/course/private.git",
        "git@github.com:course/private.git",
        "https://github.com.evil.example/a/b",
        "https://github.com@evil.example/a/b",
        "https://github.com:8080/a/b",
        "https://evil.example\\@github.com/a",
        "ext::sh -c id://x",
        "--upload-pack=id://x",
        "https://u:p@github.com/a/b",
        "https://github.com/../../x",
        "ssh://-oProxyCommand=id/x",
        "../secret",
        "/etc",
        "ann/../../secret",
        "link/kernels",
        "repository.git",
    ],
)
def test_sources_that_are_not_asked(tmp_path, monkeypatch, source):
    def ran(*args, **kwargs):
        raise AssertionError("git was run")

    monkeypatch.setattr(submissions.subprocess, "run", ran)
    hand_in(tmp_path, secret=SOLVED)
    folder = hand_in(tmp_path / "subs", ann=SOLVED)
    (folder / "link").symlink_to(tmp_path)
    hand_in(tmp_path / "kernels", x=SOLVED)
    hand_in(folder, **{"repository.git": SOLVED})
    found = taken(folder, source)
    assert found.problem and not found.files
    assert (
        "not an address that is graded" in found.problem
        or "not in the folder of submissions" in found.problem
    )


def test_an_address_does_not_steer_a_terminal(tmp_path):
    """The gradebook and the reports say it."""
    folder = hand_in(tmp_path / "subs", ann=SOLVED)
    said = taken(folder, "https://x/\x1b[2J\x9b\u202e\n=1").problem
    assert "not an address that is graded" in said and said.isprintable()


def test_staff_say_where_else_submissions_may_be(tmp_path, monkeypatch):
    hand_in(tmp_path, other=SOLVED)
    folder = hand_in(tmp_path / "subs", ann=SOLVED)
    here = submissions.Sources(local=True)
    for source in ("../other", str(tmp_path / "other")):
        assert taken(folder, source, here).files == {"kernels.py": SOLVED.encode()}
    asked = []

    def ran(command, **kwargs):
        asked.append((command[-2], kwargs["env"]["GIT_ALLOW_PROTOCOL"]))
        return subprocess.CompletedProcess(command, 1, b"", b"no network in this test")

    monkeypatch.setattr(submissions.subprocess, "run", ran)
    ours = submissions.Sources(("git.school.edu", "github.com/our-course"))
    good = [
        "https://git.school.edu/ann/lab.git",
        "git@git.school.edu:ann/lab.git",
        "ssh://git@github.com/our-course/ann",
        "https://github.com/Our-Course/ann.git",
    ]
    for source in good:
        assert "no network" in taken(folder, source, ours).problem
    assert asked == [(source, "https:ssh") for source in good]
    for source in (
        "https://github.com/eve/lab",
        "https://gitlab.com/eve/lab",
        "git@github.com:our-course-eve/x",
    ):
        assert "git.school.edu, github.com/our-course" in taken(folder, source, ours).problem
    assert "no network" in taken(folder, "https://github.com/ann/lab").problem


FAKE = """#!/bin/sh
env > {said}
exit 1
"""


def test_git_is_not_given_what_opens_the_staffs_repositories(tmp_path, monkeypatch):
    """HOME has .netrc, and terminals of editors a helper that knows the staff's password."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(FAKE.format(said=tmp_path / "said"))
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    secrets = {
        "HOME": "/staff",
        "GIT_ASKPASS": "/x",
        "SSH_ASKPASS": "/x",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "credential.helper",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    folder = hand_in(tmp_path / "subs", ann=SOLVED)
    assert "git" in taken(folder, "https://github.com/staff/private").problem
    said = dict(
        line.split("=", 1) for line in (tmp_path / "said").read_text().splitlines() if "=" in line
    )
    assert not any(said.get(name) == value for name, value in secrets.items()), said
    assert said["PATH"] and said["GIT_TERMINAL_PROMPT"] == "0"


def git(folder, *args, given=""):
    return subprocess.run(
        ["git", "-C", str(folder), *args], check=True, text=True, input=given, capture_output=True
    ).stdout.strip()


def test_a_repository_that_lists_itself_without_end_is_refused(tmp_path, monkeypatch):
    """Eleven objects whose list of files would have 10,000,000,000 lines."""
    repo = hand_in(tmp_path / "subs", ann=SOLVED) / "bomb.git"
    git(tmp_path, "init", "-q", "--bare", str(repo))
    what, id = "100644 blob", git(repo, "hash-object", "-w", "--stdin", given="x")
    for _ in range(10):
        id = git(repo, "mktree", given="".join(f"{what} {id}\td{i}\n" for i in range(10)))
        what = "040000 tree"
    commit = git(repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit-tree", id, "-m", "x")
    git(repo, "update-ref", "HEAD", commit)
    (tmp_path / "scratch").mkdir()
    found = submissions.take(
        {"student": "eve", "source": repo.as_uri()},
        tmp_path / "subs",
        "vecadd",
        ["kernels.py"],
        None,
        tmp_path / "scratch",
        submissions.Sources(local=True),
    )
    assert "more than 8 MiB to say" in found.problem and not found.files


def test_a_repository_is_cloned_up_to_a_size(tmp_path, monkeypatch):
    monkeypatch.setattr(submissions, "MOST_CLONED", 1 << 20)
    hand_in(tmp_path / "subs", ann=SOLVED)
    git(tmp_path, "init", "-q", "big")
    (tmp_path / "big/kernels.py").write_bytes(os.urandom(3 << 20))
    git(tmp_path / "big", "add", "-A")
    git(tmp_path / "big", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    (tmp_path / "scratch").mkdir()
    found = submissions.take(
        {"student": "eve", "source": (tmp_path / "big").as_uri()},
        tmp_path / "subs",
        "vecadd",
        ["kernels.py"],
        None,
        tmp_path / "scratch",
        submissions.Sources(local=True),
    )
    assert found.problem.startswith("git") and "MiB" not in found.problem, found.problem
    left = sum(p.stat().st_size for p in (tmp_path / "scratch").rglob("*") if p.is_file())
    assert left < 2 << 20


# -- memory ----------------------------------------------------------------------------------------


def test_judges_fit_into_the_machine():
    gib = memory.GIB
    cores = os.cpu_count() or 1
    assert memory.fit(None, 4 * gib, 16 * gib) == (min(cores, 2), 4 * gib)
    assert memory.fit(None, 4 * gib, 1024 * gib) == (cores, 4 * gib)
    assert memory.fit(None, 4 * gib, 4 * gib)[0] == 1
    jobs, each = memory.fit(4, 4 * gib, 24 * gib)
    assert jobs == 4 and jobs * (each + memory.LIMITS["AS"]) <= 24 * gib
    with pytest.raises(SpecError, match="--jobs 64 judges do not fit into 16 GB"):
        memory.fit(64, 4 * gib, 16 * gib)


def test_a_container_has_the_memory_of_its_cgroup(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    whole = memory.machine()
    (tmp_path / "memory.max").write_text(f"{2 * memory.GIB}\n")
    assert memory.machine() == 2 * memory.GIB
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.machine() == whole


BOMB = """
big = nl.ndarray((128, 1 << 22), dtype=nl.float32, buffer=nl.shared_hbm)
for c in nl.affine_range(matrix.shape[1] // 128):
    nl.store(big[0:128, c * 128:c * 128 + 128], nl.load(matrix[0:128, c * 128:c * 128 + 128]))
nl.store(big[0:128, (1 << 22) - 128:1 << 22], nl.load(matrix[0:128, 0:128]))
nl.store(out, nl.load(matrix))
return out
"""


def test_a_judge_is_held_to_its_memory(vecadd, monkeypatch):
    import redteam
    from labkit.grade import run as module

    tasks = {}

    def judge(task):
        tasks[task["student"]] = dict(task)
        return judges({**task, "memory": memory.GIB * 3 // 2})

    judges = module.grade_one
    monkeypatch.setattr(module, "grade_one", judge)
    hand_in(vecadd / "subs", eve=redteam.body(BOMB), zz=SOLVED)
    grade(vecadd)
    found = json.loads((vecadd / "out/verdicts/eve.json").read_text())
    assert "more memory than there is" in found["cases"][0]["text"], found["cases"][0]["text"]
    assert points(vecadd / "out") == {"eve": 0, "zz": 10}
    plan = load_plan(ROOT / "labs" / "vecadd").plan
    assert tasks["eve"]["memory"] <= plan.memory_gb * memory.GIB == 4 * memory.GIB


# -- the gradebook ---------------------------------------------------------------------------------


@pytest.mark.full
def test_staff_and_mistyped_names_are_apart(vecadd, capsys):
    subs = hand_in(vecadd / "subs", staff=SOLVED, ann=SOLVED + "# 1\n", bob=SOLVED + "# 2\n")
    (subs / "submissions.csv").write_text(
        "student,submitted_at\nann,2026-05-01T10:00:00Z\nbbo,2026-05-01T10:00:00Z\n"
    )
    grade(vecadd)
    out = vecadd / "out"
    assert points(out) == {"ann": 10, "bob": 10}
    said = " ".join(capsys.readouterr().out.split())
    assert "In NO gradebook: bbo (nothing was handed in under this name" in said
    assert "staff (staff)" in said
    for name in ("canvas.csv", "grades.csv"):
        assert "staff" not in (out / name).read_text() and "bbo" not in (out / name).read_text()
    assert "staff,staff,10" in (out / "apart.csv").read_text()
    assert "In no gradebook" in (out / "summary.html").read_text()
    (vecadd / "roster.csv").write_text("student\nann\nbbo\n")
    grade(vecadd, "--roster", str(vecadd / "roster.csv"))
    assert points(out) == {"ann": 10, "bbo": 0}  # who is in the class stands there
    assert "bob (not in the roster)" in " ".join(capsys.readouterr().out.split())
    grade(vecadd)  # the roster is kept
    assert points(out) == {"ann": 10, "bbo": 0}


@pytest.mark.full
def test_a_name_is_the_same_however_its_letters_are_written(vecadd, capsys):
    """macOS writes \u00eb in two pieces: a folder without a lateness, and a row without work."""
    subs = hand_in(vecadd / "subs", **{"Zoe\u0308": SOLVED})
    (subs / "submissions.csv").write_text(
        "student,submitted_at\nZo\u00eb,2026-05-02T10:00:00Z\n", encoding="utf-8"
    )
    (vecadd / "roster.csv").write_text("student\nZoe\u0308\n", encoding="utf-8")
    grade(
        vecadd, "--deadline", DUE, "--roster", str(vecadd / "roster.csv"), "--student", "Zoe\u0308"
    )
    assert points(vecadd / "out") == {"Zo\u00eb": 9}
    hand_in(subs, **{"Zo\u00eb": SOLVED})
    if len(list(subs.iterdir())) > 2:  # not on macOS
        with pytest.raises(SpecError, match="is there twice"):
            submissions.find(subs)


def test_names_that_differ_by_capitals_do_not_share_files(vecadd, monkeypatch):
    """On macOS one would have the verdict of the other."""
    monkeypatch.setattr("labkit.grade.staff.times", lambda *args: {})
    hand_in(vecadd / "subs", ann=SOLVED)
    (vecadd / "subs" / "submissions.csv").write_text("student,source\nAnn,ann\n")
    with pytest.raises(SpecError, match="'Ann' and 'ann' would have the same files"):
        grade(vecadd)


def test_the_seed_has_128_bits(tmp_path):
    assert max(seed_of(tmp_path / str(i), "vecadd").bit_length() for i in range(8)) > 120


def test_vecadd_is_graded_on_more_than_1024_rows():
    """A kernel that ignores what is beyond the largest shown shape loses points."""
    graded = load_plan(ROOT / "labs" / "vecadd")
    assert any(min(case.inputs[0].shape) > 1024 for case, _ in graded.runs)
