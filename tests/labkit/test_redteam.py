"""Hostile submissions: none gains a point, none harms the grader, the next is graded as always."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

import redteam
from grading import SOLVED, hand_in, needs_sandbox, run, small_lab

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

#: one of each kind, of those that end soon: the machine, the judge, answers, pages, archives
SAMPLE = [
    *("fork_in_kernel", "write_outside", "forged_reply", "host_answer"),
    *("pickle", "html", "zip_bomb"),
]
MARK = Path("/tmp/labkit-was-here")


def judge_all(names, tmp_path, monkeypatch):
    """Grade hostile submissions and an honest one; return verdicts by name and what called home."""
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    heard = []
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.2)
    port = server.getsockname()[1]
    done = threading.Event()

    def listen():
        while not done.is_set():
            try:
                heard.append(server.accept()[0])
            except OSError:
                continue

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        folder = hand_in(
            tmp_path / "subs",
            zz_honest=SOLVED,
            **{
                n: redteam.KERNELS[n][1].replace("PORT", str(port))
                for n in names
                if n in redteam.KERNELS
            },
        )
        archives = redteam.archives()
        for name in names:
            if name in archives:
                (folder / f"{name}{archives[name][1]}").write_bytes(archives[name][2])
        assert run(folder, tmp_path / "out") == 0
    finally:
        done.set()
        thread.join()
        server.close()
    found = (tmp_path / "out" / "verdicts").glob("*.json")
    return {p.stem: json.loads(p.read_text()) for p in found}, heard


def hold(names, tmp_path, monkeypatch):
    """Judge all and hold them to what must be."""
    scratch = tmp_path / "scratch"  # other tests stage their submissions meanwhile
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    verdicts, heard = judge_all(names, tmp_path, monkeypatch)
    assert set(verdicts) == {*names, "zz_honest"}
    assert {n: v["points"] for n, v in verdicts.items() if v["points"]} == {"zz_honest": 10}
    assert heard == [] and not MARK.exists()
    assert not os.listdir(scratch)
    for page in (tmp_path / "out" / "reports").glob("*.html"):
        assert "<script" not in page.read_text("utf-8")
    for page in (tmp_path / "out" / "reports").glob("*.md"):
        assert "\n<script" not in page.read_text("utf-8")
    # what a kernel raises or prints about hidden cases is in no one's report
    for verdict in verdicts.values():
        for case in verdict["cases"]:
            assert not case["hidden"] or "STOLEN" not in json.dumps(case)
        assert "STOLEN" not in verdict["printed"]


def test_there_are_at_least_thirty():
    assert len(redteam.KERNELS) + len(redteam.archives()) >= 60
    assert set(SAMPLE) <= {*redteam.KERNELS, *redteam.archives()}


@needs_sandbox
def test_a_sample_of_hostile_submissions(tmp_path, monkeypatch):
    hold(SAMPLE, tmp_path, monkeypatch)


@needs_sandbox
@pytest.mark.full
def test_all_hostile_submissions(tmp_path, monkeypatch):
    hold([*redteam.KERNELS, *redteam.archives()], tmp_path, monkeypatch)
