"""The contest: signatures, ranks, the page, and the live server, killed in the middle."""

from __future__ import annotations

import csv
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from grading import ROOT, SOLVED, hand_in, run, small_lab
from labkit import SpecError
from labkit.board.cli import leaderboard
from labkit.board.entries import Refused, make_key, pseudonym, read_key, sign, verify
from labkit.board.page import render, show
from labkit.board.rank import blocks, sparkline, tables
from labkit.board.token import digest, signature
from labkit.submit.pack import submit as submit_command

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

BODY = {
    "name": "ann",
    "lab": "conv2d",
    "kind": "predicted",
    "backend": "sim",
    "version": "nkisim 0.1.0",
    "target": "trn2",
    "at": "2026-05-01T10:00:00",
    "times_us": {"a": 10.0, "b": 40.0},
}


@pytest.fixture
def key(tmp_path):
    make_key(tmp_path / "host.key")
    return read_key(tmp_path / "host.key")


def entry(key, **more):
    document = sign(key, {**BODY, **more})
    return verify(document, document["public_key"])


def test_a_key_is_its_owners_and_is_never_replaced(tmp_path, key):
    assert (tmp_path / "host.key").stat().st_mode & 0o077 == 0
    with pytest.raises(SpecError, match="there already"):
        make_key(tmp_path / "host.key")
    os.chmod(tmp_path / "host.key", 0o644)
    with pytest.raises(SpecError, match="can be read by others"):
        read_key(tmp_path / "host.key")


def changed(**more):
    def change(document):
        document["entry"].update(more)

    return change


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda d: None, None),
        (changed(name="bob"), "changed after"),
        (changed(kind="measured"), "changed after"),
        (changed(times_us={"a": 1.0, "b": 1.0}), "changed after"),
        (changed(extra=1), "changed after"),
        (lambda d: d.update(signature="00" * 64), "changed after"),
        (lambda d: d.update(signature="xx"), "not a signed entry"),
        (lambda d: d.update(public_key="11" * 32), "another host"),
        (lambda d: d.pop("entry"), "not a signed entry"),
    ],
)
def test_what_was_changed_or_is_foreign_is_refused(key, change, says):
    document = sign(key, BODY)
    public = document["public_key"]
    change(document)
    if says is None:
        assert verify(document, public).times == BODY["times_us"]
    else:
        with pytest.raises(Refused, match=says):
            verify(document, public)


@pytest.mark.parametrize("times", [{}, {"a": 0}, {"a": -1}, {"a": "x"}, {"a": None}])
def test_times_that_are_none_are_refused_though_signed(key, times):
    document = sign(key, {**BODY, "times_us": times})
    with pytest.raises(Refused, match="not an entry"):
        verify(document, document["public_key"])


def test_ranks_are_geometric_means_with_ties(key):
    of = {"reference": (10, 40), "ann": (5, 20), "bob": (20, 5), "cy": (10, 41), "dee": (2.5, 40)}
    (table,) = tables(
        [entry(key, name=n, times_us={"a": float(a), "b": float(b)}) for n, (a, b) in of.items()]
        + [entry(key, name="eve", times_us={"a": 1.0})]
    )
    assert [(s.rank, s.name, s.speed) for s in table.standings] == [
        (1, "ann", 2.0),
        (1, "bob", 2.0),
        (1, "dee", 2.0),
        (4, "reference", 1.0),
        (5, "cy", 0.9877),
    ]
    assert table.left_out == ("eve: not all cases are right and timed",)


def test_predicted_and_measured_are_never_ranked_together(key):
    rows = [
        entry(key, name="reference"),
        entry(key, name="ann"),
        entry(key, name="reference", kind="measured", backend="hw", version="2.21"),
        entry(key, name="bob", kind="measured", backend="hw", version="2.21"),
        entry(key, name="cy", kind="measured", backend="hw", version="2.20"),
    ]
    found = tables(rows)
    assert [(t.kind, t.version, {s.name for s in t.standings}) for t in found] == [
        ("measured", "2.20", set()),
        ("measured", "2.21", {"reference", "bob"}),
        ("predicted", "nkisim 0.1.0", {"reference", "ann"}),
    ]
    assert "no entry of the reference" in found[0].left_out[0]


def test_dialects_have_tables_of_their_own_unless_the_course_ranks_them_together(key, capsys):
    rows = [
        entry(key, name=who, dialect=dialect)
        for dialect in ("beta1", "nki")
        for who in ("reference", "ann" if dialect == "beta1" else "bob")
    ]
    old = entry(key, name="cy")  # of before entries said it
    assert [(t.dialect, {s.name for s in t.standings}) for t in tables([*rows, old])] == [
        ("beta1", {"reference", "ann", "cy"}),
        ("nki", {"reference", "bob"}),
    ]
    (one,) = tables([*rows, old], together=True)
    assert {s.name: s.best.dialect for s in one.standings if s.name != "reference"} == {
        "ann": "beta1",
        "bob": "nki",
        "cy": "beta1",
    }
    show(Console(width=160), tables(rows), [])
    text = capsys.readouterr().out
    assert "conv2d (neuronxcc.nki) on trn2" in text and "conv2d (nki) on trn2" in text
    page = render([one], "00" * 32, 5, [])
    assert "<h2>conv2d on trn2" in page and '<td class="name">neuronxcc.nki</td>' in page
    with pytest.raises(Refused, match="not an entry"):
        entry(key, dialect="cuda")


def test_the_best_entry_counts_and_all_are_shown(key):
    rows = [entry(key, name="reference")] + [
        entry(key, name="ann", at=f"2026-05-0{d}", times_us={"a": us, "b": us})
        for d, us in ((1, 80.0), (3, 40.0), (2, 10.0))
    ]
    best = tables(rows)[0].standings[0]
    assert (best.name, best.entries, best.speed) == ("ann", 3, 2.0)
    assert best.history == (0.25, 2.0, 0.5) and blocks(best.history) == "▁█▂"
    assert len(sparkline(best.history).split()) == 3


def test_pseudonyms_need_the_key(tmp_path, key):
    make_key(tmp_path / "other.key")
    names = {pseudonym(key, s) for s in ("ann", "bob")}
    assert len(names) == 2 and pseudonym(read_key(tmp_path / "other.key"), "ann") not in names


def test_from_verdicts_to_the_page(tmp_path, monkeypatch, capsys, key):
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    subs = hand_in(tmp_path / "subs", staff=SOLVED, ann=SOLVED + "# 1\n", eve="x = 1\n")
    run(subs, tmp_path / "out", "--sandbox", "none")
    make = [
        "sign",
        str(tmp_path / "out/verdicts"),
        "--key",
        str(tmp_path / "host.key"),
        "--out",
        str(tmp_path / "entries"),
        "--reference",
        "staff",
    ]
    leaderboard(make)
    public = capsys.readouterr().out.split()[-1]
    leaderboard(make)
    assert "0 new entries" in capsys.readouterr().out
    names = sorted(p.name for p in (tmp_path / "entries").glob("*"))
    assert len(names) == 2 and names[1].startswith("reference-vecadd-trn1-")
    page = [
        "page",
        str(tmp_path / "entries"),
        "--public-key",
        public,
        "--out",
        str(tmp_path / "board.html"),
    ]
    assert leaderboard(page) == 0
    first = (tmp_path / "board.html").read_bytes()
    assert leaderboard(page) == 0 and (tmp_path / "board.html").read_bytes() == first
    assert b"kernel-" in first and b"ann" not in first and b"Predicted by a model" in first
    assert b"://" not in first
    (tmp_path / "entries" / "forged.json").write_text(
        (tmp_path / "entries" / names[0]).read_text().replace("kernel-", "<b>best-")
    )
    assert leaderboard(page) == 1
    text = (tmp_path / "board.html").read_text()
    assert "changed after it was signed" in text and "<b>best" not in text
    assert "refused forged.json" in capsys.readouterr().out


@pytest.mark.full
def test_who_has_left_or_lost_a_grade_is_said(tmp_path, monkeypatch, capsys, key):
    """Entries and verdicts of before stay; no one would look for them."""
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    subs = hand_in(tmp_path / "subs", staff=SOLVED, ann=SOLVED + "# 1\n", bob="x = 1\n")
    make = [
        "sign",
        str(tmp_path / "out/verdicts"),
        "--key",
        str(tmp_path / "host.key"),
        "--out",
        str(tmp_path / "entries"),
        "--reference",
        "staff",
    ]
    run(subs, tmp_path / "out", "--sandbox", "none")
    leaderboard(make)
    said = capsys.readouterr().out
    assert "still in" not in said and "earlier runs" not in said
    hand_in(subs, ann="x = 1\n")
    shutil.rmtree(subs / "bob")
    run(subs, tmp_path / "out", "--sandbox", "none")
    leaderboard(make)
    said = capsys.readouterr().out
    assert "from earlier runs, and not submitted now: bob" in said
    (name,) = (p.name for p in (tmp_path / "entries").glob("kernel-*"))
    assert "of earlier verdicts on who has none now: " + name in said


def test_what_cannot_be_signed_or_verified_is_said(tmp_path, key):
    host = ["--key", str(tmp_path / "host.key"), "--out", str(tmp_path / "e")]
    with pytest.raises(SpecError, match="has no verdicts"):
        leaderboard(["sign", str(tmp_path / "none"), *host])
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "ann.json").write_text("{}")
    with pytest.raises(SpecError, match="no verdict on 'staff'"):
        leaderboard(["sign", str(tmp_path / "v"), *host, "--reference", "staff"])
    with pytest.raises(SpecError, match="64 hexadecimal digits"):
        leaderboard(["page", str(tmp_path / "v"), "--public-key", "zz"])
    (tmp_path / "times.json").write_text('{"kind": "measured"}')
    with pytest.raises(SpecError, match="no execution_times.json"):
        leaderboard(["sign", str(tmp_path / "times.json"), *host, "--name", "ann"])


def test_measured_times_of_a_chip_are_signed(tmp_path, key, capsys):
    (tmp_path / "times.json").write_text(
        json.dumps(
            {
                "lab": "conv2d",
                "kind": "measured",
                "backend": "hw",
                "sdk": "2.21.1",
                "nkisim": None,
                "target": "trn2",
                "execution_times_us": {"a": 12.5},
            }
        )
    )
    leaderboard(
        [
            "sign",
            str(tmp_path / "times.json"),
            "--key",
            str(tmp_path / "host.key"),
            "--out",
            str(tmp_path / "e"),
            "--name",
            "reference",
        ]
    )
    (path,) = (tmp_path / "e").glob("*.json")
    document = json.loads(path.read_text())
    entry = verify(document, document["public_key"])
    assert (entry.kind, entry.version, entry.times) == ("measured", "2.21.1", {"a": 12.5})


# -- the live server -------------------------------------------------------------------------------


class Server:
    """The server in a process of its own, on a free port."""

    def __init__(self, folder: Path, students: list[str], **more: str):
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        if not (folder / "roster.csv").exists():
            (folder / "roster.csv").write_text("student\n" + "\n".join(students) + "\n")
            make_key(folder / "live.key")
        command = [
            "live",
            "--lab",
            "vecadd",
            "--key",
            str(folder / "live.key"),
            "--data",
            str(folder / "data"),
            "--roster",
            str(folder / "roster.csv"),
            "--port",
            str(self.port),
            "--sandbox",
            "none",
            "--dialect",
            more.get("dialect", "beta1"),
            "--jobs",
            more.get("jobs", "1"),
            "--seconds-between",
            more.get("between", "0"),
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "labkit", "leaderboard", *command],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "shared"),
                "LABKIT_LABS": str(folder / "labs"),
                "TMPDIR": str(folder),  # what is killed leaves files
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        while "Public key" not in (line := self.process.stdout.readline()):
            assert line, "the server did not start"
        for _ in range(200):
            try:
                self.get("/")
                break
            except OSError:
                time.sleep(0.05)
        with open(folder / "data" / "tokens.csv", newline="") as file:
            self.tokens = {r["student"]: r["token"] for r in csv.DictReader(file)}

    def ask(self, method, path, body=b"", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def get(self, path, headers=None):
        return self.ask("GET", path, b"", headers)

    def headers(self, student, body, at=None, token=None):
        at = str(int(time.time())) if at is None else at
        token = self.tokens.get(student, "") if token is None else token
        return {
            "X-Student": student,
            "X-Time": at,
            "X-Digest": digest(body),
            "X-Signature": signature(token, student, at, body),
        }

    def submit(self, student, body, **more):
        code, answer = self.ask("POST", "/submit", body, self.headers(student, body, **more))
        return code, json.loads(answer)

    def status(self, student, number):
        body = str(number).encode()
        code, answer = self.get(f"/status/{number}", self.headers(student, body))
        return code, json.loads(answer)

    def wait(self, student, number):
        for _ in range(1200):
            code, answer = self.status(student, number)
            assert code == 200
            if answer["state"] == "done":
                return answer
            time.sleep(0.05)
        raise AssertionError("it was never judged")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def folder(tmp_path):
    small_lab(tmp_path)
    return tmp_path


def test_the_live_server(folder):
    server = Server(folder, ["reference", "ann", "bob"], between="0")
    try:
        assert server.get("/")[0] == 200 and b"no entries yet" in server.get("/")[1]
        code, answer = server.submit("reference", SOLVED.encode())
        assert code == 202
        assert server.wait("reference", answer["id"])["points"] == 10
        _, submission = server.submit("ann", (SOLVED + "# mine\n").encode())
        server.wait("ann", submission["id"])
        time.sleep(1.2)
        page = server.get("/")[1].decode()
        assert "kernel-" in page and "ann" not in page and "2 verified" in page
        # what is not theirs, not signed, too old, too large, or sent twice
        assert server.status("bob", submission["id"])[0] == 404
        assert server.submit("ann", b"x", token="wrong")[0] == 401
        assert server.submit("eve", b"x", token="")[0] == 401
        assert server.submit("ann", b"x", at=str(int(time.time()) - 900))[0] == 401
        assert server.submit("ann", b"x", at="-5")[0] == 401
        assert server.ask("POST", "/submit", b"x" * (1 << 21))[0] == 413
        head = server.headers("bob", b"def f(:\n")
        assert server.ask("POST", "/submit", b"def f(:\n", head)[0] == 202
        assert server.ask("POST", "/submit", b"def f(:\n", head)[0] == 409
        assert server.get("/etc/passwd")[0] == 404
        assert server.get("/status/999", server.headers("ann", b"999"))[0] == 404
    finally:
        server.kill()


@pytest.mark.full
def test_students_send_with_the_command_that_packs(folder, monkeypatch, capsys):
    server = Server(folder, ["ann"], between="0")
    monkeypatch.setenv("LABKIT_LABS", str(folder / "labs"))
    monkeypatch.chdir(folder)
    (folder / "labs/vecadd/writeup.md").write_text("# Done\n")
    (folder / "token").write_text(server.tokens["ann"] + "\n")
    send = ["vecadd", "--no-check", "--student", "ann", "--token-file", "token", "--to"]
    try:
        assert submit_command([*send, f"http://127.0.0.1:{server.port}"]) == 0
        assert "10 of 10 points" in capsys.readouterr().out
        with pytest.raises(SpecError, match="https only"):
            submit_command([*send, "http://example.com"])
        (folder / "token").write_text("wrong")
        with pytest.raises(SpecError, match="not that of your token"):
            submit_command([*send, f"http://127.0.0.1:{server.port}"])
    finally:
        server.kill()


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("caddy"), reason="needs caddy (apt-get install caddy)")
def test_students_send_through_the_proxy_of_the_handbook(folder, monkeypatch, capsys):
    """A real Caddy with its own certificate: refused by who does not know it, else as before."""
    server = Server(folder, ["ann"], between="0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = (ROOT / "docs" / "grading.md").read_text(encoding="utf-8")
    site = text.split("```caddy\n")[1].split("```")[0].replace("HOST", f"https://localhost:{port}")
    (folder / "Caddyfile").write_text(
        "{\n admin off\n auto_https disable_redirects\n skip_install_trust\n}\n"
        + site.replace(":8000", f":{server.port}").replace("}", "\ttls internal\n}")
    )
    proxy = subprocess.Popen(
        ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"],
        env={**os.environ, "XDG_DATA_HOME": str(folder), "HOME": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    monkeypatch.setenv("LABKIT_LABS", str(folder / "labs"))
    monkeypatch.chdir(folder)
    (folder / "labs/vecadd/writeup.md").write_text("# Done\n")
    (folder / "token").write_text(server.tokens["ann"] + "\n")
    send = [
        "vecadd",
        "--no-check",
        "--student",
        "ann",
        "--token-file",
        "token",
        "--to",
        f"https://localhost:{port}",
    ]
    root = folder / "caddy/pki/authorities/local/root.crt"
    try:
        for _ in range(200):  # it answers before it has made its certificate
            with suppress(OSError):
                ssl.get_server_certificate(("localhost", port))
                break
            time.sleep(0.05)
        with pytest.raises(SpecError, match="cannot be reached.*CERTIFICATE_VERIFY_FAILED"):
            submit_command(send)
        monkeypatch.setenv("SSL_CERT_FILE", str(root))
        # since Python 3.12 a process reads the certificates once
        monkeypatch.setattr("urllib.request._opener", None)
        assert submit_command(send) == 0
        assert "10 of 10 points" in capsys.readouterr().out
        (folder / "token").write_text("wrong")
        with pytest.raises(SpecError, match="not that of your token"):
            submit_command(send)
    finally:
        proxy.kill()
        proxy.wait()
        server.kill()


def test_a_student_cannot_flood_it(folder):
    server = Server(folder, ["ann"], between="60")
    try:
        assert server.submit("ann", b"x = 1\n")[0] == 202
        code, answer = server.submit("ann", b"x = 2\n")
        assert code == 429 and answer["retry_after"] > 50
    finally:
        server.kill()


@pytest.mark.full
def test_nothing_is_lost_when_it_is_killed(folder):
    students = [f"s{i}" for i in range(6)]
    server = Server(folder, students, jobs="2")
    accepted = {}
    for student in students:
        code, answer = server.submit(student, (SOLVED + f"# {student}\n").encode())
        assert code == 202
        accepted[student] = answer["id"]
    time.sleep(random.Random(7).random())
    server.kill()  # some wait, some are being judged
    server = Server(folder, students, jobs="2")
    try:
        for student, number in accepted.items():
            assert server.wait(student, number)["points"] == 10
    finally:
        server.kill()


def test_one_that_cannot_be_judged_does_not_stop_the_queue(tmp_path, key, monkeypatch):
    """Such as one whose judge runs out of the machine's memory, each time."""
    from labkit.board import live
    from labkit.board.store import Store
    from labkit.grade.plan import load_plan

    monkeypatch.setattr(live, "PAUSE", 0.0)

    def judge(task):
        if b"bad" in task["files"]["kernels.py"].encode():
            raise RuntimeError("killed three times")
        contest.stopping.set()
        return {"points": 10.0, "of": 10.0, "lines": [], "cases": []}

    monkeypatch.setattr(live, "grade_one", judge)
    store = Store(tmp_path / "contest.sqlite")
    contest = live.Contest(
        load_plan(ROOT / "labs" / "vecadd"), store, key, {}, tmp_path, "none", 0.0
    )
    for n, text in enumerate((b"bad = 1\n", b"good = 1\n")):
        store.add("ann", str(n), text, float(n), str(n))
    contest.judge_all()
    bad, good = (json.loads(store.status(n)["verdict"]) for n in (1, 2))
    assert good["points"] == 10 and "tell the staff the number 1" in bad["problem"]


@pytest.mark.full
def test_a_server_of_the_other_dialect(tmp_path):
    small_lab(tmp_path)
    server = Server(tmp_path, ["ann"], dialect="nki")
    try:
        text = (ROOT / "labs" / "vecadd" / "kernels_nki.py").read_bytes()
        code, answer = server.submit("ann", text)
        assert code == 202
        for _ in range(600):
            _, state = server.status("ann", answer["id"])
            if "points" in state:
                break
            time.sleep(0.05)
        assert state["points"] == state["of"] == 10 and state["problem"] == ""
    finally:
        server.process.kill()
        server.process.wait()
