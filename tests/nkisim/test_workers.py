"""Tasks in processes of their own: their order, their ends, and what their parent reads of them."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import time
from multiprocessing.connection import Connection

import pytest

import kernels_to_tune as kernels
from nkisim.workers import Workers


def test_answers_come_in_the_order_of_the_tasks_or_as_they_are_there():
    with Workers(lambda: lambda n: (time.sleep(0.5 * (n == 0)), n)[1], jobs=3) as many:
        assert list(many.map(range(9))) == list(range(9))
        landed = [answer for _, answer in many.as_completed(range(9))]
        assert sorted(landed) == list(range(9)) and landed[0] != 0
        assert many.ask(4) == 4


def test_a_task_that_catches_everything_is_killed():
    with Workers(lambda: kernels.holds_on, jobs=1, seconds=0.2) as one:
        lost, *rest = one.map(["loop", "well"])
        assert (lost.why, rest) == ("time", ["well"])


@pytest.mark.full
def test_a_task_has_the_time_that_it_is_given():
    with Workers(lambda: kernels.holds_on, jobs=1, seconds={"loop": 0.2}.get) as one:
        assert one.ask("loop").text == "not finished after 0.2 s"
        assert one.ask("well") == "well"


class Evil:
    """An answer that runs code where it is unpickled."""

    def __reduce__(self):
        return os.putenv, ("A", "b")


def _pipe() -> Connection:
    """Return this process's end of the pipe, as a kernel can find it."""
    return next(c for c in gc.get_objects() if isinstance(c, Connection) and not c.closed)


@pytest.mark.parametrize("sent", [pickle.dumps(Evil()), b"{", b"\xff"])
def test_what_a_stranger_sends_is_read_as_json_and_never_unpickled(sent):
    def answer(task):
        if task == "evil":
            _pipe().send_bytes(sent)
            time.sleep(60)
        return {"task": task}

    with Workers(lambda: answer, jobs=1, plain=True, seconds=60) as one:
        assert one.ask("evil").text == "what its process sent is no answer"
        assert one.ask("good") == {"task": "good"}


def test_a_task_that_closes_its_pipe_costs_only_itself():
    def answer(task):
        if task == "closes":
            _pipe().close()
            time.sleep(60)
        return task

    with Workers(lambda: answer, jobs=1, seconds=60) as one:
        lost, *rest = one.map(["closes", "well", "well"])
        assert (lost.text, rest) == ("the process that ran it closed its pipe", ["well", "well"])


def test_processes_have_their_variables_and_their_parent_keeps_its_own(monkeypatch):
    monkeypatch.setenv("NKI_BANNER", "1")
    with Workers(lambda: os.environ.get, jobs=1, environment={"NKI_BANNER": "0"}) as one:
        assert one.ask("NKI_BANNER") == "0"
    assert os.environ["NKI_BANNER"] == "1"


def _ask_in_a_daemon(queue) -> None:
    with Workers(lambda: lambda n: n + 1, jobs=1) as one:
        queue.put(one.ask(1))


def test_a_daemon_may_have_them_as_a_worker_of_a_cluster_does():
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=_ask_in_a_daemon, args=(queue,), daemon=True)
    process.start()
    process.join()
    assert process.exitcode == 0 and queue.get() == 2
