"""Every call of a class with all its parts: killed before it, killed after AWS did it, refused, or
its answer lost. Whatever it was, one teardown later nothing bills."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.httpsession import URLLib3Session

from classroom.aws.problems import ClassroomError
from conftest import START, ClassFolder, Classroom, Lab
from labcloud.client import LabCloud

ALL = {
    "elastic_ip": True,
    "my": "lambda",
    "work_copies": "s3",
    "reservations": [{"begins": "2026-11-21", "ends": "2026-11-23", "max_usd": 400}],
}
LATER = "2027-01-20"
#: how a run ends: at the process's end nothing runs any more, after a fault the run goes on
ENDS: dict[str, dict[str, Any]] = {
    "killed before": {},
    "killed after": {},
    "refused": {"code": "AccessDenied", "status": 403, "times": 1},
    "answer lost": {"drop": True, "after": True, "times": 2},
    "signed out": {"code": "ExpiredToken", "status": 403, "times": 1_000_000},  # from then on
}
# Every so many calls of a class and of a teardown are tried (without, with --full); primes, so that
# no rhythm of theirs hides one. To try each takes hours: set EVERY = 1 for that.
EVERY = None
OF_CLASS, OF_TEARDOWN = (211, 31), (113, 23)

pytestmark = pytest.mark.timeout(900)  # a class comes up and goes as often as calls are tried


class Killed(BaseException):
    """The process is gone: no handler of ours has a say."""


class Line:
    """Count the calls that leave this process, and cut the line at one of them."""

    def __init__(self, at: int, after: bool) -> None:
        self.at, self.after, self.calls, self.dead = at, after, 0, False
        self._lock = threading.Lock()

    def send(self, session: Any, request: Any) -> Any:
        with self._lock:
            number = self.calls
            self.calls += 1
            faulty = number == self.at
            if self.dead or (faulty and not self.after):
                self.dead = True
                raise Killed
            if faulty:  # others that are on their way still arrive
                self.dead = True
        answer = SEND(session, request)
        if faulty:
            raise Killed
        return answer


SEND = URLLib3Session.send


@contextmanager
def line(monkeypatch: pytest.MonkeyPatch, at: int = -1, after: bool = False) -> Iterator[Line]:
    """Let all calls of this block go over a line that is cut at call `at`."""
    cut = Line(at, after)
    with monkeypatch.context() as patch:
        patch.setattr(URLLib3Session, "send", lambda self, request: cut.send(self, request))
        yield cut


def live(classroom: Classroom, folder: ClassFolder) -> None:
    """Bring a class up, keep capacity, and let it last longer."""
    folder.write(["alice", "bob"], teardown="2027-01-15", **ALL)
    classroom("provision", folder.file, confirm_changes=True)  # a try before this one may say later
    classroom("reserve", folder.file)
    folder.write(teardown=LATER)
    classroom("extend", folder.file)
    folder.write(["alice"])
    classroom("provision", folder.file, confirm_removals=True, confirm_changes=True)


def fresh(cloud: LabCloud, folder: ClassFolder) -> None:
    """Start over; what was there is gone already."""
    cloud.post("reset", at=START, soft=True)
    cloud.post("set", regions=["us-east-1", "us-east-2", "us-west-2"])
    (folder.path / "class.lock.yml").unlink(missing_ok=True)


def attempt(
    how: str, number: int, cloud: LabCloud, patch: pytest.MonkeyPatch, what: Callable[[], Any]
) -> bool:
    """Do something that is cut at a call; return whether it came to that call."""
    if ENDS[how]:
        before = len(cloud.log())
        cloud.fault(skip=number, **ENDS[how])
        try:
            what()
        except ClassroomError as error:
            assert str(error), how
        made = len(cloud.log()) - before
        cloud.post("clear")
        return made > number
    with line(patch, number, how == "killed after") as cut:
        try:
            what()
        except Killed:
            pass
    return cut.dead


def calls(full: bool, how: str, steps: tuple[int, int]) -> Iterator[int]:
    """Yield which calls are tried."""
    step = EVERY or steps[full]
    return itertools.count(list(ENDS).index(how) * 12 % step, step)


def end(classroom: Classroom, folder: ClassFolder, cloud: LabCloud, what: str) -> None:
    """Tear down once; nothing may be left."""
    done = classroom("teardown", folder.file)
    never = "nothing here says that it ever did" in done["summary"]  # nothing was made at all
    left = cloud.leftovers()
    assert left == [], (what, left, done["lines"])
    assert done["exit_code"] == 0 or never, (what, done["summary"], done["lines"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ENDS)
def test_after_any_call_of_a_class_one_teardown_leaves_nothing(
    lab: Lab, how: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    full, tried = request.config.getoption("--full"), 0
    for number in calls(full, how, OF_CLASS):
        what = f"{how}, call {number}"
        fresh(lab.cloud, lab.folder)
        came = attempt(how, number, lab.cloud, monkeypatch, lambda: live(lab, lab.folder))
        if not came:
            break
        tried += 1
        if number % 2:  # or first the same again
            live(lab, lab.folder)
        end(lab, lab.folder, lab.cloud, what)
    assert tried >= (3 if full else 2), tried


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ENDS)
def test_after_any_call_of_a_teardown_another_leaves_nothing(
    lab: Lab, how: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    full, tried = request.config.getoption("--full"), 0
    for number in calls(full, how, OF_TEARDOWN):
        what = f"{how}, call {number} of the teardown"
        fresh(lab.cloud, lab.folder)
        live(lab, lab.folder)
        came = attempt(how, number, lab.cloud, monkeypatch, lambda: lab("teardown"))
        if not came:
            assert lab.leftovers() == []
            break
        tried += 1
        end(lab, lab.folder, lab.cloud, what)
    assert tried >= (2 if full else 1), tried
