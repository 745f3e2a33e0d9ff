"""What can be wrong with another machine, one sentence with a remedy each; and kills anywhere."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labkit.remote import client, merge
from labkit.remote.client import Job, choose_python
from labkit.remote.cost import hourly, sentence
from labkit.remote.ssh import Host, RemoteError


def said(done) -> str:
    assert done.returncode == 2, done.stdout + done.stderr
    text = " ".join(done.stderr.split())
    assert text.startswith("could not run:") and len(text) < 420, text
    return text


def test_an_unknown_host(desk):
    assert "~/.ssh/config" in said(desk.run(host="nowhere.invalid"))


def test_a_host_that_does_not_answer(desk):
    desk.host.stop()
    assert "Try again in a minute" in said(desk.run())


def test_a_wrong_key(desk):
    (desk.config.parent / "authorized-chip").write_text("")
    assert "does not accept your key" in said(desk.run())


def test_a_changed_host_key(desk):
    kind, blob = desk.host.key.with_suffix(".pub").read_text().split()[:2]
    desk.host.known.write_text(f"[127.0.0.1]:{desk.host.port} {kind} {blob}\n")
    assert "ssh-keygen -R" in said(desk.run())


def test_a_host_that_was_never_seen(desk):
    desk.host.known.write_text("")
    assert "once and compare the key" in said(desk.run())


def test_no_git(desk):
    import shutil

    shutil.rmtree(desk.repo / ".git")
    assert "git init" in said(desk.run())


def test_no_device(desk):
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from labkit.cli import guarded; "
            "sys.exit(guarded(None, sys.argv[1:], ('job.py',)))",
            "--host",
            "chip",
        ],
        cwd=desk.repo,
        env=desk.env,
        capture_output=True,
        text=True,
    )
    assert "no Neuron device" in said(done) and "--backend sim" in said(done)


FACTS = {"neuron": True, "venvs": []}
OLD = {"path": "/opt/a", "python": "/opt/a/bin/python", "neuronx-cc": "2.21.1", "nki": None}
BOTH = {**OLD, "python": "/opt/b/bin/python", "nki": "0.2.0"}
NEW = {**OLD, "python": "/opt/c/bin/python", "neuronx-cc": "2.25", "nki": "0.4.0"}


@pytest.mark.parametrize(
    "venvs, dialect, expected",
    [
        ([OLD], "neuronxcc.nki", "/opt/a/bin/python"),
        ([BOTH], "neuronxcc.nki", "/opt/b/bin/python"),
        ([NEW, OLD], "neuronxcc.nki", "/opt/a/bin/python"),
        ([OLD, NEW], "nki", "/opt/c/bin/python"),
        ([NEW, OLD], "", "/opt/a/bin/python"),
        ([NEW], "", "/opt/c/bin/python"),
        ([NEW], "neuronxcc.nki", "too new"),
        ([OLD], "nki", "came with SDK 2.27"),
        ([], "nki", "no Neuron environment"),
    ],
)
def test_the_environment_of_the_dialect(venvs, dialect, expected):
    job = Job((), ".", Path("r"), "hw", dialect)
    facts = {**FACTS, "venvs": venvs}
    if expected.startswith("/"):
        assert choose_python(facts, job, "chip") == expected
    else:
        with pytest.raises(RemoteError, match=expected):
            choose_python(facts, job, "chip")


def test_environments_are_known_by_what_is_in_them(tmp_path):
    from labkit.remote.agent.machine import venvs

    site = tmp_path / "aws_neuronx_venv_x" / "lib" / "python3.10" / "site-packages"
    for folder in (
        "neuronxcc/nki",
        "neuronx_cc-2.21.18209.0+043b1bf7.dist-info",
        "nki",
        "nki-0.0.1.dist-info",
    ):  # the last is PyPI's placeholder
        (site / folder).mkdir(parents=True)
    python = tmp_path / "aws_neuronx_venv_x" / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    (found,) = venvs([str(tmp_path / "aws_neuronx_venv_*")])
    assert found["neuronx-cc"].startswith("2.21") and found["nki"] is None


@pytest.mark.full
def test_another_students_core(desk):
    locks = desk.repo.parent / "locks"
    locks.mkdir()
    file = open(locks / "trainium-labs-core-1", "w+")
    file.write("bob since 10:02 UTC")
    file.flush()
    fcntl.flock(file, fcntl.LOCK_EX)
    desk.env.update(TRAINIUM_LABS_LOCKS=str(locks), NEURON_RT_VISIBLE_CORES="1")
    driver = (
        "import sys; from pathlib import Path; from labkit.remote import client, front; "
        "from labkit.remote.tree import read_tree; from rich.console import Console; "
        "client.choose_python = lambda *a: sys.executable; "
        "sys.exit(front.one(front.hosts.Host('chip'), client.Job(('job.py',), '.', "
        "Path('results/results.json')), read_tree(Path.cwd()), Console(stderr=True)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", driver], cwd=desk.repo, env=desk.env, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "NeuronCore 1 is in use by bob since 10:02 UTC" in " ".join(done.stdout.split())
    fcntl.flock(file, fcntl.LOCK_UN)
    done = subprocess.run(
        [sys.executable, "-c", driver], cwd=desk.repo, env=desk.env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="needs root (mounts a tmpfs)")
def test_a_full_disk(desk):
    home = desk.host.home / ".trainium-labs"
    home.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(home)]).returncode:
        pytest.skip("may not mount here")
    try:
        (desk.repo / "large.bin").write_bytes(os.urandom(6 << 20))
        assert "disk of chip is full" in said(desk.run())
        (desk.repo / "large.bin").unlink()
        done = desk.run("--megabytes", "20", "--runs", "2", "--say", "q")  # full in the middle
        assert done.returncode == 1 and "No space left" in done.stdout
        assert desk.ids() == ["q0", "q1"]
    finally:
        subprocess.run(["umount", "-l", str(home)])


def test_a_clock_that_is_wrong_is_mentioned(monkeypatch):
    said_ = []
    run = client.Run.__new__(client.Run)
    run.host, run.say = Host("chip"), said_.append
    run.link = type(
        "Link", (), {"call": lambda *a, **k: {"facts": {"time": time.time() + 3600}, "jobs": []}}
    )()
    run.state()
    assert said_ == ["the clock of chip is 3600 s ahead; the times in its results are its own"]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../b", ".git/config", "C:\\x", ""])
def test_names_that_lead_out_of_the_tree_are_refused(name):
    with pytest.raises(RemoteError, match="leads out"):
        merge.safe(name)


def test_minutes_and_dollars(tmp_path, monkeypatch):
    monkeypatch.delenv("LABKIT_HOURLY_USD", raising=False)
    prices = tmp_path / "infra" / "classroom" / "prices.yml"
    prices.parent.mkdir(parents=True)
    prices.write_text("as_of: 2026-01-02\non_demand_hour:\n  trn1.2xlarge: 1.25\n")
    assert hourly(Host("h"), "trn1.2xlarge", tmp_path) == (1.25, "price table of 2026-01-02")
    assert hourly(Host("h"), "", tmp_path)[0] is None
    text = sentence(Host("h"), {"machine": "trn1.2xlarge", "uptime_s": 7200}, 1800, tmp_path)
    assert "30.0 minutes" in text and "$0.62 at $1.25" in text and "2.0 hours, $2.50" in text
    monkeypatch.setenv("LABKIT_HOURLY_USD", "4")
    assert hourly(Host("h", (), 9.0), "", tmp_path)[0] == 4


def test_a_terminal_gets_a_terminal(desk):
    """The program there sees a terminal of our size, so progress bars move here."""
    (desk.repo / "job.py").write_text(
        "import os, sys\nprint(sys.stdout.isatty(), os.get_terminal_size().columns)\n"
    )
    ours, theirs = pty.openpty()
    process = desk_popen_on(desk, theirs)
    os.close(theirs)
    out = b""
    while b"\n" not in out.partition(b"True")[2]:  # a line may come in parts
        out += os.read(ours, 1000)
    assert b"True 200" in out
    process.wait(timeout=150)


def desk_popen_on(desk, fd: int) -> subprocess.Popen:
    from local_host import DRIVER

    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, "--host", "chip", "--backend", "sim"],
        cwd=desk.repo,
        env=desk.env,
        stdin=subprocess.DEVNULL,
        stdout=fd,
        stderr=subprocess.DEVNULL,
    )


#: 20 of each were run by hand; the suite takes a few. TRAINIUM_LABS_SEED draws other points.
KILLS = int(os.environ.get("TRAINIUM_LABS_KILLS", "4"))


@pytest.mark.full
@pytest.mark.parametrize("side", ["here", "there"])
def test_kills_at_random_points_lose_and_double_nothing(desk, side):
    """Here: the program and its ssh. There: all that a connection or a run has started."""
    rng = random.Random(f"{side} {os.environ.get('TRAINIUM_LABS_SEED', '')}")
    for number in range(KILLS):
        flags = ("--runs", "4", "--pause", "0.15", "--megabytes", "3", "--say", f"r{number}-")
        process = desk.popen(*flags, start_new_session=True)
        time.sleep(rng.uniform(0.05, 2.0))
        if side == "here":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            desk.host.kill_left()
            desk.host.cut()
        process.communicate(timeout=150)
        for _ in range(4):
            ids = [x for x in desk.ids() if x.startswith(f"r{number}-")]
            if {f"r{number}-{n}" for n in range(4)} <= set(ids):
                break
            done = desk.run(*flags)
            assert "Traceback" not in done.stderr
        assert {f"r{number}-{n}" for n in range(4)} <= set(ids), (number, done.stderr)
    runs = json.loads((desk.repo / "results" / "results.json").read_text())["runs"]
    assert len({r["id"] for r in runs}) == len(runs)
    if side == "here":  # nothing ended there, so nothing was computed twice
        assert sorted(desk.ids()) == sorted(f"r{n}-{k}" for n in range(KILLS) for k in range(4))
    cleaned = desk.remote("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert not (desk.host.home / ".trainium-labs").exists() and desk.host.left() == []
