"""The live server where things go wrong: a full disk, a second server, clocks, names, headers."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import threading
import time

import pytest

from grading import ROOT, SOLVED, small_lab
from labkit import SpecError
from labkit.board import live
from labkit.board.entries import make_key, read_key
from labkit.board.store import Store
from labkit.board.token import digest, headers, name_header, name_of, signature
from labkit.grade.plan import load_plan
from test_board import Server

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

VERDICT = {"points": 10.0, "of": 10.0, "lines": [], "cases": []}
STUDENTS = {"ann": "t1", "王伟": "t2", "Zoë": "t3", "Ωmega 7": "t4", "UTF-8''x": "t5"}


@pytest.fixture
def contest(tmp_path, monkeypatch):
    """Make a contest whose judge takes no time."""
    monkeypatch.setattr(live, "PAUSE", 0.02)
    monkeypatch.setattr(live, "grade_one", lambda task: dict(VERDICT))
    make_key(tmp_path / "host.key")
    (tmp_path / "data").mkdir()
    return live.Contest(
        load_plan(ROOT / "labs" / "vecadd"),
        Store(tmp_path / "data" / "contest.sqlite"),
        read_key(tmp_path / "host.key"),
        dict(STUDENTS),
        tmp_path / "data",
        "none",
        0.0,
    )


def send(contest, student, body=b"x = 1\n", at=None):
    at = str(int(time.time())) if at is None else at
    return contest.accept(
        name_header(student), at, signature(contest.tokens[student], student, at, body), body
    )


def judging(contest):
    thread = threading.Thread(target=contest.judge_all)
    thread.start()
    return thread


def until(what):
    for _ in range(500):
        if what():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


# -- a full disk -----------------------------------------------------------------------------------


def pages(contest, more):
    """Let the database have its pages and `more`, as a full disk would."""
    (count,) = contest.store._db.execute("PRAGMA page_count").fetchone()
    contest.store._db.execute(f"PRAGMA max_page_count={count + more}")


def test_a_full_disk_loses_nothing_and_judging_goes_on_by_itself(contest, monkeypatch):
    import random

    noise = [random.Random(n).randbytes(20_000).hex().encode() for n in range(2)]
    assert send(contest, "ann", noise[0])[0] == 202
    pages(contest, 0)
    application = live.application(contest, 1)
    found = asked(application, "Zoë", contest.tokens["Zoë"], noise[1])
    assert found[0] == 503 and b"disk is full, and nothing was taken" in found[1]
    assert contest.store.counts() == {"waiting": 1, "running": 0, "done": 0}
    big = dict(VERDICT, lines=[{"text": "x" * 50_000, "points": 1, "of": 1, "why": ""}])
    monkeypatch.setattr(live, "grade_one", lambda task: dict(big))
    thread = judging(contest)
    try:
        until(lambda: contest.store.counts()["running"] == 1)
        time.sleep(0.3)  # its verdict cannot be written
        assert contest.store.counts()["done"] == 0 and thread.is_alive()
        pages(contest, 10_000)
        until(lambda: contest.store.counts()["done"] == 1)  # without a restart
        assert send(contest, "Zoë", noise[1])[0] == 202
        until(lambda: contest.store.counts()["done"] == 2)
        assert json.loads(contest.store.status(1)["verdict"])["points"] == 10
    finally:
        contest.stopping.set()
        thread.join()


def asked(application, student, token, body):
    """Return (status, body) of a submission to the ASGI application itself."""
    import asyncio

    at = str(int(time.time()))
    given = {
        "X-Student": name_header(student),
        "X-Time": at,
        "X-Digest": digest(body),
        "X-Signature": signature(token, student, at, body),
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def reply(message):
        sent.append(message)

    asyncio.run(
        application(
            {
                "type": "http",
                "method": "POST",
                "path": "/submit",
                "query_string": b"",
                "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in given.items()],
            },
            receive,
            reply,
        )
    )
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent)


def test_without_room_nothing_is_taken_or_begun(contest, monkeypatch):
    assert send(contest, "ann")[0] == 202
    monkeypatch.setattr(live, "ROOM", 1 << 60)
    assert send(contest, "Zoë") == live.full() and live.full()[0] == 503
    thread = judging(contest)
    try:
        time.sleep(0.3)
        assert contest.store.counts() == {"waiting": 1, "running": 0, "done": 0}
        monkeypatch.setattr(live, "ROOM", 0)
        until(lambda: contest.store.counts()["done"] == 1)
    finally:
        contest.stopping.set()
        thread.join()


@pytest.mark.full
def test_a_judge_without_a_disk_is_no_verdict(contest, monkeypatch):
    """It would be the fourth try that gives nought points."""
    tries = []

    def judge(task):
        tries.append(1)
        if len(tries) < 6:
            monkeypatch.setattr(live, "ROOM", 1 << 60)
            threading.Timer(0.05, lambda: monkeypatch.setattr(live, "ROOM", 0)).start()
            raise OSError(28, "No space left on device")
        return dict(VERDICT)

    monkeypatch.setattr(live, "grade_one", judge)
    send(contest, "ann")
    thread = judging(contest)
    try:
        until(lambda: contest.store.counts()["done"] == 1)
    finally:
        contest.stopping.set()
        thread.join()
    assert len(tries) == 6 and json.loads(contest.store.status(1)["verdict"])["points"] == 10


def test_an_entry_that_cannot_be_written_is_written_later(contest, monkeypatch):
    case = {"case": "a", "target": "trn2", "status": "passed", "latency_us": 2.0, "hidden": False}
    monkeypatch.setattr(
        live,
        "grade_one",
        lambda task: {
            **VERDICT,
            "cases": [case],
            "lab": "vecadd",
            "latency_kind": "predicted",
            "backend": "sim",
            "nkisim": "1",
        },
    )
    (contest.data / "entries").write_text("in the way")  # no folder can be made
    send(contest, "ann")
    thread = judging(contest)
    try:
        time.sleep(0.3)
        assert contest.store.counts()["running"] == 1
        (contest.data / "entries").unlink()
        until(lambda: contest.store.counts()["done"] == 1)
    finally:
        contest.stopping.set()
        thread.join()
    assert len(list((contest.data / "entries").glob("*.json"))) == 1
    (contest.data / "entries" / "broken.json").write_text("{")
    assert "1 verified" in contest.page()


# -- clocks ----------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_does_not_make_students_wait(contest, monkeypatch):
    contest.seconds_between = 30.0
    now = time.time()
    contest.store.add("ann", "sha", b"x", now + 3600, "of the hour that comes again")
    assert send(contest, "ann")[0] == 202  # of before this start
    monkeypatch.setattr(live.time, "time", lambda: now - 7200)
    code, answer = send(contest, "ann", b"x = 2\n", at=str(int(now - 7200)))
    assert code == 429 and answer["retry_after"] <= 31  # the pause is the pause
    code, answer = send(contest, "ann", b"x = 2\n", at=str(int(now)))
    assert code == 401 and "which is 20" in answer["error"]  # the server says what it reads


# -- names and headers -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDENTS)
def test_names_of_any_script_travel(name):
    carried = headers("token", name, b"x")
    for value in carried.values():
        value.encode("ascii")
    assert name_of(carried["X-Student"]) == name
    assert carried["X-Signature"] == signature("token", name, carried["X-Time"], b"x")


def test_plain_names_travel_as_before_and_letters_in_either_form(contest):
    assert name_header("ann") == "ann" and name_header("Zoe L. 7") == "Zoe L. 7"
    for sent in ("Zoë", "Zoe\u0308"):  # as the roster has it, and as macOS writes it
        at = str(int(time.time()))
        code, _ = contest.accept(
            name_header(sent), at, signature("t3", sent, at, sent.encode()), sent.encode()
        )
        assert code == 202
    at = str(int(time.time()))  # a client of before sends Latin-1 as it is
    assert contest.accept("Zoë", at, signature("t3", "Zoë", at, b"y"), b"y")[0] == 202


GARBAGE = ["", "²", "١٢", "é", "-1", "1e9", "9" * 5000, "UTF-8''%FF%FE", "UTF-8''%", "\x00", "0x10"]


@pytest.mark.parametrize("header", ["student", "at", "given"])
@pytest.mark.parametrize("text", GARBAGE)
def test_malformed_headers_are_refused_in_words(contest, header, text):
    at = str(int(time.time()))
    good = {"student": "ann", "at": at, "given": signature("t1", "ann", at, b"x")}
    code, answer = contest.accept(
        **{{"student": "header"}.get(k, k): v for k, v in {**good, header: text}.items()}, body=b"x"
    )
    assert code == 401 and answer["error"]
    assert contest.status(text, "ann", at, signature("t1", "ann", at, text.encode()))[0] == 404
    assert contest.store.counts()["waiting"] == 0


def test_an_answer_that_breaks_off_is_a_sentence_for_the_student(monkeypatch):
    """As where the server is killed between the head of its answer and the body."""
    from labkit.submit import send as module

    def breaks(*args, **kwargs):
        raise http.client.IncompleteRead(b"", 31)

    monkeypatch.setattr(module.urllib.request, "urlopen", breaks)
    with pytest.raises(SpecError, match="cannot be reached: IncompleteRead"):
        module.ask("https://host/submit", "ann", "token", b"x", b"x")


def raw(port, text):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(text)
        return connection.recv(4096)


@pytest.mark.full
def test_a_server_answers_garbage_and_a_second_one_does_not_start(tmp_path, capfd):
    small_lab(tmp_path)
    server = Server(tmp_path, ["ann", "王伟"])
    try:
        for text in (
            b"POST /submit HTTP/1.1\r\nHost: x\r\nContent-Length: \xb2\r\n\r\n",
            b"POST /submit HTTP/1.1\r\nHost: x\r\nX-Time: \xb2\r\nX-Signature: \xe9\r\n"
            b"X-Student: \xff\xfe\r\nContent-Length: 1\r\n\r\nx",
            b"GET /status/" + b"9" * 6000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /status/99999999999999999999 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x00\xff garbage\r\n\r\n",
        ):
            assert b" 500 " not in raw(server.port, text)
        with socket.create_connection(("127.0.0.1", server.port)) as gone:
            gone.sendall(b"POST /submit HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\nx")
        body = SOLVED.encode()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("POST", "/submit", body, headers(server.tokens["王伟"], "王伟", body))
        answer = connection.getresponse()
        assert answer.status == 202
        number = json.loads(answer.read())["id"]
        for _ in range(600):
            connection.request(
                "GET",
                f"/status/{number}",
                headers=headers(server.tokens["王伟"], "王伟", str(number).encode()),
            )
            found = json.loads(connection.getresponse().read())
            if found["state"] == "done":
                break
            time.sleep(0.05)
        assert found["points"] == 10
        from labkit.board.cli import leaderboard

        with pytest.raises(SpecError, match="another live server works on"):
            leaderboard(
                [
                    "live",
                    "--lab",
                    "vecadd",
                    "--key",
                    str(tmp_path / "live.key"),
                    "--data",
                    str(tmp_path / "data"),
                    "--sandbox",
                    "none",
                    "--port",
                    "1",
                ]
            )
    finally:
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    said = capfd.readouterr()
    assert "Traceback" not in said.err + said.out
    again = Server(tmp_path, [])  # a killed one leaves no lock
    again.kill()


@pytest.mark.full
def test_many_at_once_and_a_kill_lose_nothing(tmp_path):
    """The load of tools/benchmarks/live_server.py, with a class of twelve."""
    import subprocess
    import sys

    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tools" / "benchmarks" / "live_server.py"),
            "--students",
            "12",
            "--seconds",
            "0",
            "--kill",
            "--drain",
            "--jobs",
            "2",
        ],
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 of 12 submissions accepted" in done.stdout and "0 lost" in done.stdout
    assert "12 of 12 judged" in done.stdout and " per minute" in done.stdout
    # a judge that is being started when the server is killed finds no one to say what it is to do
    orphans = done.stderr.count("\nEOFError: Ran out of input\n")
    assert done.stderr.count("Traceback") == orphans, done.stderr


# -- students who are not polite -------------------------------------------------------------------


def test_a_verdict_that_cannot_be_signed_does_not_end_judging(contest, monkeypatch):
    nan = {
        "case": "c",
        "target": "trn2",
        "status": "passed",
        "latency_us": float("nan"),
        "hidden": False,
    }
    strange = {
        **VERDICT,
        "lab": "vecadd",
        "latency_kind": "predicted",
        "backend": "sim",
        "nkisim": "0",
        "cases": [nan],
    }
    replies = [strange, dict(VERDICT)]
    monkeypatch.setattr(live, "grade_one", lambda task: replies.pop(0))
    assert send(contest, "ann", b"x = 1\n")[0] == send(contest, "ann", b"x = 2\n")[0] == 202
    thread = judging(contest)
    until(lambda: contest.store.counts()["done"] == 2)
    contest.stopping.set()
    thread.join()


def test_a_question_about_a_submission_is_not_a_submission(contest):
    """What is signed for one cannot be sent as the other."""
    assert send(contest, "ann", b"7")[0] == 400
    assert contest.store.counts()["waiting"] == 0


def test_two_names_of_the_same_letters_are_an_error(contest):
    with pytest.raises(SpecError, match="same letters"):
        live.Contest(
            contest.graded,
            contest.store,
            contest.key,
            {"Zo\u00eb": "t1", "Zoe\u0308": "t2"},
            contest.data,
            "none",
            0.0,
        )


def test_one_reader_makes_the_page_for_all(contest, monkeypatch):
    made = []

    def render(*args, **more):
        made.append(1)
        time.sleep(0.1)
        return "page"

    monkeypatch.setattr(live, "render", render)
    readers = [threading.Thread(target=contest.page) for _ in range(8)]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join()
    assert len(made) == 1


def test_a_body_that_does_not_come_is_not_waited_for(contest, monkeypatch):
    monkeypatch.setattr(live, "SLOWEST", 0.05)
    sent = []

    async def answer(message):
        sent.append(message)

    async def never():
        await asyncio.sleep(30)

    first = [{"type": "http.request", "body": b"x", "more_body": True}]
    signed = headers(contest.tokens["ann"], "ann", b"x and more")
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/submit",
        "query_string": b"",
        "headers": [(k.lower().encode(), v.encode()) for k, v in signed.items()],
    }
    asyncio.run(
        live.application(contest, 0)(
            scope, lambda: asyncio.sleep(0, first.pop()) if first else never(), answer
        )
    )
    assert sent[0]["status"] == 408


@pytest.mark.parametrize(
    "drop, code", [("X-Digest", 400), ("X-Signature", 401), ("X-Student", 401), ("X-Time", 401)]
)
def test_a_body_is_not_read_before_it_is_known_whose_it_is(contest, drop, code):
    """A thousand strangers who send a byte a minute would be all that the server has room for."""
    sent = []

    async def answer(message):
        sent.append(message)

    async def never():
        raise AssertionError("it was read")

    signed = headers(contest.tokens["ann"], "ann", b"x")
    del signed[drop]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/submit",
        "query_string": b"",
        "headers": [(k.lower().encode(), v.encode()) for k, v in signed.items()],
    }
    asyncio.run(live.application(contest, 0)(scope, never, answer))
    assert sent[0]["status"] == code


def test_a_student_sends_a_few_bodies_at_a_time_and_the_one_that_was_signed(contest, monkeypatch):
    monkeypatch.setattr(live, "SLOWEST", 0.3)
    sent = []
    body = b"x and more"
    signed = headers(contest.tokens["ann"], "ann", body)
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/submit",
        "query_string": b"",
        "headers": [(k.lower().encode(), v.encode()) for k, v in signed.items()],
    }

    async def request(application, text=b""):
        async def answer(message):
            sent.append(message)

        async def read():
            if not text:
                await asyncio.sleep(30)
            return {"type": "http.request", "body": text, "more_body": False}

        await application(scope, read, answer)

    async def many():
        application = live.application(contest, 0)
        await asyncio.gather(*(request(application) for _ in range(5)))
        await request(application, b"another")
        await request(application, body)

    asyncio.run(many())
    assert [m["status"] for m in sent if "status" in m] == [429, 429, 408, 408, 408, 401, 202]


def test_two_of_a_student_are_not_judged_together(contest):
    """They could tell each other what a hidden case is, through the load of the machine."""
    for body in (b"x = 1\n", b"x = 2\n"):
        assert send(contest, "ann", body)[0] == 202
    assert send(contest, "Zoë")[0] == 202
    assert contest.store.take()[:2] == (1, "ann")
    assert contest.store.take()[:2] == (3, "Zoë")
    assert contest.store.take() is None
    contest.store.finish(1, json.dumps(VERDICT))
    assert contest.store.take()[:2] == (2, "ann")


def test_a_machine_without_descriptors_or_memory_is_no_verdict(contest, monkeypatch):
    monkeypatch.setattr(live, "PAUSE", 0.01)
    tries = []

    def judge(task):
        tries.append(1)
        if len(tries) < 6:
            raise OSError(24, "Too many open files")
        return dict(VERDICT)

    monkeypatch.setattr(live, "grade_one", judge)
    send(contest, "ann")
    thread = judging(contest)
    try:
        until(lambda: contest.store.counts()["done"] == 1)
    finally:
        contest.stopping.set()
        thread.join()
    assert json.loads(contest.store.status(1)["verdict"])["points"] == 10


def test_what_staff_read_does_not_steer_their_terminal(capsys):
    live.say("/status/\x1b[2J\x9b1m\r\u202e: broken\nnext")
    assert capsys.readouterr().out == "/status/\ufffd[2J\ufffd1m\ufffd\ufffd: broken\nnext\n"


def test_a_verdict_is_of_the_lab_as_it_is(contest, monkeypatch):
    """A lab that is mended between two sessions was judged by the outputs of before."""
    found = []
    contest.graded = load_plan(small_lab(contest.data) / "vecadd")
    for text in ("", "# mended\n"):
        reference = contest.graded.lab.folder / "reference.py"
        reference.write_text(reference.read_text("utf-8") + text)
        found.append(contest.task("ann", b"x = 1\n")[0])
    assert found[0]["key"] != found[1]["key"]
    monkeypatch.setattr(live.nkisim, "__version__", "next")
    assert contest.task("ann", b"x = 1\n")[0]["key"] != found[1]["key"]


def test_a_folder_of_another_contest_is_not_taken(contest, tmp_path):
    live.keep_lab(contest.data, contest.graded)
    live.keep_lab(contest.data, contest.graded)
    with pytest.raises(SpecError, match="has the submissions of vecadd beta1, and this is vecadd"):
        live.keep_lab(contest.data, contest.graded.speaking("nki"))
