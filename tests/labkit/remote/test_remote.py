"""`--host NAME` over real SSH to a throwaway host: what comes home, and what may go wrong."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from labkit.remote.agent.runs import describe


def jobs(desk) -> list[Path]:
    folder = desk.host.home / ".trainium-labs" / "jobs"
    return sorted(p for p in folder.glob("*") if not p.name.startswith("."))


def wait_for(what, seconds: float = 120.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def supervisor(desk) -> int:
    """Return the process that holds a run: its program's parent.

    On a slow machine a second supervisor may have been started; it ends when it sees the first.
    """
    wait_for(lambda: any(".pyz" not in x for x in desk.host.left()))
    program = next(x for x in desk.host.left() if ".pyz" not in x).split()[0]
    status = Path("/proc", program, "status").read_text("utf-8")
    return int(next(x for x in status.splitlines() if x.startswith("PPid:")).split()[1])


def test_results_files_output_and_exit_code_come_home(desk):
    done = desk.run("--runs", "2", "--megabytes", "1", "--code", "1", "--say", "here")
    assert done.returncode == 1, done.stderr
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=desk.repo, capture_output=True, text=True
    ).stdout
    assert done.stdout.split() == ["here", head[:7], "run", "0", "run", "1"]
    assert desk.ids() == ["here0", "here1"]
    assert (desk.repo / "profiles" / "large.ntff").stat().st_size == 1 << 20
    assert "2 runs into results" in done.stderr and "minutes on chip" in done.stderr
    assert jobs(desk) == []  # forgotten there, now that it is here


def test_what_changed_is_sent_and_what_is_ignored_is_not(desk):
    (desk.repo / "token.secret").write_text("not for anybody")
    desk.run("--say", "one")
    objects = desk.host.home / ".trainium-labs" / "objects"
    before = {p for p in objects.rglob("*") if p.is_file()}
    assert all(p.read_text() != "not for anybody" for p in before)
    (desk.repo / "new.py").write_text("print('new')\n")
    desk.run("--say", "two")
    after = {p for p in objects.rglob("*") if p.is_file()}
    assert [p.read_text() for p in after - before] == ["print('new')\n"]


@pytest.mark.full
def test_the_same_command_picks_up_a_run_that_was_left(desk):
    first = desk.popen("--runs", "3", "--pause", "0.5", "--say", "a")
    wait_for(lambda: jobs(desk) and (jobs(desk)[0] / "began.json").exists())
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=150)
    assert first.returncode == 2 and "goes on" in err and "attach" in err
    done = desk.run("--runs", "3", "--pause", "0.5", "--say", "a")
    assert done.returncode == 0 and "picking up" in done.stderr
    assert done.stdout.split()[-6:] == ["run", "0", "run", "1", "run", "2"]
    assert desk.ids() == ["a0", "a1", "a2"]


@pytest.mark.full
def test_a_run_that_ended_while_we_were_away_is_not_run_again(desk):
    first = desk.popen("--say", "b", "--pause", "0.3")
    wait_for(lambda: jobs(desk))
    first.kill()
    first.communicate()
    wait_for(lambda: (jobs(desk)[0] / "done.json").exists())
    listed = desk.remote("list")
    assert "ended, to be fetched" in listed.stdout
    done = desk.run("--say", "b", "--pause", "0.3")
    assert "which has ended" in done.stderr and desk.ids() == ["b0"]


def test_another_command_fetches_what_ended_and_then_runs(desk):
    first = desk.popen("--say", "c", "--pause", "0.3")
    wait_for(lambda: jobs(desk))
    first.kill()
    first.communicate()
    wait_for(lambda: (jobs(desk)[0] / "done.json").exists())
    done = desk.run("--say", "d")
    assert "has ended while you were away" in done.stderr
    assert desk.ids() == ["c0", "d0"]


@pytest.mark.full
def test_output_goes_on_through_a_cut_connection(desk):
    process = desk.popen("--runs", "12", "--pause", "0.2", "--say", "e")
    wait_for(lambda: jobs(desk) and b"run 2" in (jobs(desk)[0] / "log").read_bytes())
    desk.host.cut()
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0 and "trying again" in err
    assert out.split()[2:] == [w for n in range(12) for w in ("run", str(n))]
    assert desk.ids() == [f"e{n}" for n in range(12)]


@pytest.mark.full
def test_a_large_profile_is_resumed_where_it_broke_off(desk):
    size = 60
    process = desk.popen("--megabytes", str(size), "--say", "f")
    incoming = desk.repo / ".git" / "trainium-labs" / "incoming"
    part = wait_for(
        lambda: [p for p in incoming.rglob("*") if p.is_file() and p.stat().st_size > 1 << 20]
    )[0]
    process.kill()
    process.communicate()
    for pid in desk.host.connections():
        os.kill(pid, signal.SIGKILL)
    desk.host.cut()
    had = part.stat().st_size if part.exists() else 0
    served = (jobs(desk) or [None])[0]
    assert served is not None and had > 1 << 20
    want = hashlib.sha256((served / "tree/profiles/large.ntff").read_bytes()).hexdigest()
    again, least = desk.popen("--megabytes", str(size), "--say", "f"), had
    while again.poll() is None:  # it never begins from 0 again
        try:
            least = min(least, part.stat().st_size)
        except FileNotFoundError:  # moved to its place
            break
    _, err = again.communicate(timeout=150)
    assert again.returncode == 0 and "picking up" in err and least == had
    got = hashlib.sha256((desk.repo / "profiles/large.ntff").read_bytes()).hexdigest()
    assert got == want and desk.ids() == ["f0"]


@pytest.mark.full
def test_two_runs_of_one_student_follow_each_other(desk):
    one = desk.popen("--say", "g", "--hang")
    wait_for(lambda: jobs(desk) and b"run 0" in (jobs(desk)[0] / "log").read_bytes())
    first = jobs(desk)[0].name
    two = desk.popen("--say", "h")
    wait_for(lambda: any(b"waiting: another run" in (p / "log").read_bytes() for p in jobs(desk)))
    assert desk.remote("stop", first).returncode == 0
    _, err = one.communicate(timeout=150)
    assert one.returncode == 2, err
    out, err = two.communicate(timeout=150)
    assert two.returncode == 0 and "still goes on there" in err
    assert sorted(desk.ids()) == ["g0", "h0"]


def test_a_run_that_was_fetched_while_someone_waited_for_its_end_has_ended(tmp_path):
    run = describe(tmp_path / "gone")
    assert (run["state"], run["done"], run["key"]) == ("ended", None, None)


@pytest.mark.full
def test_a_kernel_that_hangs_is_ended_and_what_was_finished_is_kept(desk):
    done = desk.run("--hang", "--runs", "2", "--say", "i", "--run-limit", "0.02")
    assert done.returncode == 2
    assert "time limit" in done.stderr and "--run-limit" in done.stderr
    assert desk.ids() == ["i0", "i1"] and "interrupted" in done.stdout
    assert desk.run("--say", "j").returncode == 0  # the queue is free


def test_a_killed_run_is_told_its_results_fetched_and_nothing_of_it_left(desk):
    process = desk.popen("--hang", "--runs", "2", "--say", "k")
    wait_for(lambda: jobs(desk) and b"run 1" in (jobs(desk)[0] / "log").read_bytes())
    os.kill(supervisor(desk), signal.SIGKILL)
    out, err = process.communicate(timeout=150)
    assert process.returncode == 2 and "was killed on the other machine" in err
    assert desk.ids() == ["k0", "k1"] and desk.host.left() == []


@pytest.mark.full
def test_a_restart_of_the_machine_is_told(desk):
    process = desk.popen("--hang", "--say", "l")
    wait_for(lambda: jobs(desk) and b"run 0" in (jobs(desk)[0] / "log").read_bytes())
    process.kill()
    process.communicate()
    pid, began = supervisor(desk), jobs(desk)[0] / "began.json"
    began.write_text(json.dumps({**json.loads(began.read_text()), "boot": "an earlier one"}))
    desk.host.kill_left()
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    done = desk.run("--say", "m")
    assert "was restarted or stopped while the run went on" in done.stderr
    assert desk.ids() == ["l0", "m0"]


@pytest.mark.full
def test_list_stop_attach_clean(desk):
    process = desk.popen("--hang", "--say", "n")
    wait_for(lambda: jobs(desk) and b"run 0" in (jobs(desk)[0] / "log").read_bytes())
    process.kill()
    process.communicate()
    assert "running" in desk.remote("list").stdout
    refused = desk.remote("clean")
    assert refused.returncode == 1 and "--stop ends it" in refused.stderr
    stopped = desk.remote("stop")
    assert stopped.returncode == 0 and "was stopped" in stopped.stderr and desk.ids() == ["n0"]
    assert "none" in desk.remote("list").stdout
    assert desk.remote("clean").returncode == 0
    assert not (desk.host.home / ".trainium-labs").exists()
    assert "0 runs fit" in desk.remote("attach").stderr


@pytest.mark.full
def test_a_tracked_file_is_not_replaced(desk):
    (desk.repo / "profiles").mkdir()
    (desk.repo / "job.py").write_text(
        (desk.repo / "job.py")
        .read_text()
        .replace("raise SystemExit", "open('new.txt', 'w').write('theirs')\nraise SystemExit")
    )
    process = desk.popen("--pause", "0.5")
    wait_for(lambda: jobs(desk))
    process.kill()
    process.communicate()
    wait_for(lambda: (jobs(desk)[0] / "done.json").exists())
    (desk.repo / "other.txt").write_text("x")
    (desk.repo / "new.txt").write_text("mine")  # made while the run went on
    desk.run("--say", "o")
    assert (desk.repo / "new.txt").read_text() == "mine"
    assert [p.read_text() for p in desk.repo.glob("results/remote/*/new.txt")] == ["theirs"]


def test_a_measured_profile_is_put_above_the_predicted_one(tmp_path):
    """The measured one is made by hand; no chip has run it."""
    import numpy as np

    import nkisim
    from labkit.load import load_module
    from labkit.remote.front import pages

    root = Path(__file__).parents[3]
    kernels = load_module(root / "labs" / "vecadd" / "kernels.py", "kernels")
    prof = nkisim.profile(kernels.vector_add_naive, *[np.ones(128, np.float32)] * 2, target="trn1")
    prof.save_html(tmp_path / "case.html")
    events = [{"timestamp": 1000, "duration": 200, "label": "Vector", "opcode": "TENSOR_TENSOR"}]
    for name in ("case", "other"):
        (tmp_path / f"{name}.measured.json").write_text(
            json.dumps({"summary": [{"total_time": 2e-5}], "instruction": events})
        )
    lines = pages(["case.measured.json", "other.measured.json", "case.neff"], tmp_path)
    assert lines[0] == "measured above predicted: case.both.html" and "nox -s profile" in lines[1]
    assert "measured on a NeuronCore" in (tmp_path / "case.both.html").read_text()


@pytest.mark.full
def test_several_hosts_are_a_table_and_all_results_come_home(desk, tmp_path):
    from local_host import LocalHost

    other = LocalHost(tmp_path, "chop")
    try:
        desk.config.write_text(desk.config.read_text() + other.config)
        done = desk.run("--say", "p", host="chip,chop,nowhere.invalid")
        rows = {line.split()[0]: line for line in done.stderr.splitlines() if line.strip()}
        assert "passed" in rows["chip"] and "passed" in rows["chop"]
        assert "could not run" in rows["nowhere.invalid"] and "neither the SSH" in done.stderr
        assert done.returncode == 2 and desk.ids() == ["p0", "p0"]
        runs = json.loads((desk.repo / "results/results.json").read_text())["runs"]
        assert {r["remote"]["host"] for r in runs} == {"chip", "chop"}
    finally:
        other.stop()
