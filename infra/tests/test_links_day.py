"""What students' links do in a class's days: caps, mails, my.py, three hundred at once, other
accounts.
"""

from __future__ import annotations

import heapq
import json
import random
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest

from classroom.spec import tags
from classroom.students.selfservice import aws
from conftest import CLASSES, Lab, bounded
from labcloud.client import LabCloud
from link_class import REGION, Class, act, ask


def spend(cloud: LabCloud, hours: float) -> None:
    """Let machines run busily for some hours."""
    for i in cloud.running():
        cloud.post(
            "busy", instance=i, start=cloud.post("now")["now"], end="2027-12-31T00:00:00+00:00"
        )
    cloud.post("advance", seconds=hours * 3600)


def test_the_cap_stops_one_machine_and_the_staff_can_raise_it(lab: Lab) -> None:
    """$3 buy two hours; alice has $2 more. No one runs over their cap, nor starts over it."""
    lab.write(
        ["alice", "bob"],
        my="lambda",
        stop_nightly="06:00",
        idle={"minutes": 120},
        budget={"per_student_usd": 3, "class_usd": 10, "extra_usd": {"alice": 2}},
    )
    made = Class(lab.folder, lab.cloud, lab)
    with made.server:
        ids = lab.running()
        for i in ids:
            lab.post(
                "busy", instance=i, start=lab.post("now")["now"], end="2027-12-31T00:00:00+00:00"
            )
        made.server.pass_time(150)
        assert (made.state("alice"), made.state("bob")) == ("running", "stopped")
        for student, facts in ((s, ask(made.links[s])["facts"]) for s in ("alice", "bob")):
            assert facts["used_usd"] <= facts["cap_usd"], student
        refused = act(made.links["bob"], "start")
        assert refused["status"] == 403 and "of your $3.00 are used" in refused["text"]
        assert "staff see your wish" in act(made.links["bob"], "extend")["text"]
        assert ask(made.links["bob"])["facts"]["asked"]
        lab.write(
            budget={"per_student_usd": 3, "class_usd": 20, "extra_usd": {"bob": 4, "alice": 2}}
        )
        lab("extend")
        assert not ask(made.links["bob"])["facts"]["asked"], "the wish is granted"
        assert act(made.links["bob"], "start")["status"] == 200
        made.server.pass_time(120)
        assert made.state("alice") == "stopped"
        for student in ("alice", "bob"):
            facts = ask(made.links[student])["facts"]
            assert facts["used_usd"] <= facts["cap_usd"], student
        events = [e for e in lab.post("events") if e["kind"] == "schedule"]
        assert any("invoked" in e["did"] for e in events if e["name"] == "caps")
        assert not lab.cloud.refused(since=made.provisioned)


def test_what_a_former_machine_cost_counts_against_the_cap(lab: Lab) -> None:
    lab.write(
        ["alice"], my="lambda", stop_nightly="06:00", budget={"per_student_usd": 3, "class_usd": 6}
    )
    made = Class(lab.folder, lab.cloud, lab)
    with made.server:
        spend(lab.cloud, 1)
        boto3.client("ec2", REGION).terminate_instances(InstanceIds=lab.running())
        lab.settle()
        done = lab("provision")
        assert done["exit_code"] == 0, done
        answer = ask(made.read()["alice"])
        facts = answer["facts"]
        assert facts, (answer, made.read(), lab.running(), done)
        assert 1.2 < facts["used_usd"] < 1.8


def test_mails_go_out_before_the_night_and_before_the_end(lab: Lab) -> None:
    lab.write(["alice", "bob"], my="lambda", mail_from="labs@example.edu", teardown="2026-11-30")
    boto3.client("sesv2", REGION).create_email_identity(EmailIdentity="labs@example.edu")
    made = Class(lab.folder, lab.cloud, lab)
    with made.server:
        lab("stop", limit=["bob"])
        assert made.server.invoke({"do": "warn", "what": "night"}) == {"mails": 1, "sent": 1}
        assert made.server.invoke({"do": "warn", "what": "end"}) == {"mails": 2, "sent": 2}
        made.server.pass_time(36 * 60)
        called = [e["payload"] for e in lab.post("events") if e["kind"] == "invoke"]
        assert called.count({"do": "warn", "what": "night"}) in (1, 2)
        names = {
            s["Name"]
            for s in boto3.client("scheduler", REGION).list_schedules(
                GroupName="trainium-labs.lab"
            )["Schedules"]
        }
        assert {"mail-end-7", "mail-end-3", "mail-end-1"} <= names
    assert "alice@example.edu" not in json.dumps(
        lab.post("deployed", region=REGION, name="trainium-labs_lab_my")["environment"]
    )


@pytest.fixture()
def home(tmp_path: Path) -> Path:
    """Return a home folder."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_my_py_works_on_a_students_computer(made: Class, home: Path) -> None:
    with urllib.request.urlopen(made.links["alice"] + "&get=my.py") as answer:
        text = answer.read().decode()
    assert text.count("LINK = 'https://127.0.0.1") == 1, "the link is in it"
    program = home / "my.py"
    program.write_text(text.replace("LINK = 'https://127", "LINK = 'http://127"))

    def my(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, str(program), *words],
            capture_output=True,
            text=True,
            env={"HOME": str(home), "PATH": "/nowhere"},
            timeout=120,
        )
        made.cloud.settle()
        return done

    assert my("dance").returncode == 2 and "python my.py start |" in my().stderr
    assert (my("start").returncode, made.state("alice")) == (0, "running")
    shown = my("status").stdout
    assert "(running)" in shown and "of $50.00" in shown
    cost = my("cost").stdout  # five minutes of the cloud's may end between two of these
    assert cost in (shown, my("status").stdout)
    assert my("setup").returncode == 0 and my("setup").returncode == 0
    config = (home / ".ssh/config").read_text()
    assert config.count("Host lab-alice") == 1 and "StrictHostKeyChecking yes" in config
    facts = ask(made.links["alice"])["facts"]
    known = (home / ".ssh/known_hosts.lab-alice").read_text()
    assert known == f"{facts['machine']} {facts['host_key']}\n"
    assert my("extend").returncode == 0
    assert (my("stop").returncode, made.state("alice")) == (0, "stopped")
    program.write_text(program.read_text().replace("&k=", "&k=x"))
    done = my("start")
    assert done.returncode == 1 and "not valid" in done.stderr and "Traceback" not in done.stderr
    made.server.process.kill()
    made.server.process.wait()
    done = my("status")
    assert done.returncode == 1 and "could not be reached" in done.stderr


@pytest.mark.parametrize("students", CLASSES)
def test_a_class_presses_start_within_a_minute(lab: Lab, students: int) -> None:
    """Under AWS's rates: all are started or told when, and are started then; who is over the cap
    is not, and the answers come in time."""
    lab.write(students, my="lambda")
    made = Class(lab.folder, lab.cloud, lab)
    lab("stop")
    rich = boto3.client("ec2", REGION)
    machines = {r["tags"][tags.OWNER]: r["id"] for r in lab.machines()}
    broke = sorted(machines)[::10]
    for student in broke:  # these have used up what they have
        rich.create_tags(
            Resources=[machines[student]], Tags=[{"Key": tags.BEFORE, "Value": "49.90"}]
        )
    lab.settle()
    begin, dice = lab.post("now")["at"], random.Random(1)
    queue = [(begin + dice.random() * 60, s) for s in made.links]
    heapq.heapify(queue)
    answers: dict[str, int] = {}
    refused, took, lock = set(), [], threading.Lock()

    def press(student: str) -> None:
        first = time.perf_counter()
        page = ask(made.links[student])
        second = time.perf_counter()
        answer = page
        if page["ticket"] and page["facts"]:
            answer = ask(made.links[student], {"do": "start", "t": page["ticket"]})
        third = time.perf_counter()
        with lock:
            took.extend([second - first, third - second])
            if answer["status"] == 429:
                heapq.heappush(queue, (lab.post("now")["at"] + 3, student))
            elif answer["retry"]:
                assert answer["status"] in (200, 202) and "at " in answer["text"], answer
                answers[student] = answers.get(student, 0) + 1
                heapq.heappush(queue, (lab.post("now")["at"] + answer["retry"], student))
            elif answer["status"] == 403:
                assert "are used" in answer["text"]
                refused.add(student)
            else:
                assert answer["status"] == 200, answer

    with made.server, ThreadPoolExecutor(8) as pool:
        while queue and lab.post("now")["at"] < begin + 3600:
            now = max(queue[0][0], lab.post("now")["at"])
            lab.post("until", at=now)
            batch = [
                heapq.heappop(queue)[1]
                for _ in range(min(8, len(queue)))
                if queue and queue[0][0] <= now + 0.5
            ]
            list(pool.map(press, batch))
        last = lab.post("now")["at"]
    lab.settle()
    running = set(lab.running())
    assert refused == set(broke) and not {machines[s] for s in broke} & running
    assert running == {i for s, i in machines.items() if s not in broke}
    took.sort()
    p99 = took[int(len(took) * 0.99)]
    starts = [c for c in lab.log() if c["op"] == "StartInstances" and c["status"] == 200]
    print(
        f"{len(took)} answers, p99 {p99:.2f} s, slowest {took[-1]:.2f} s; {len(answers)} were told"
        f" when, {max(answers.values(), default=0)} times at most; all started after"
        f" {(last - begin) / 60:.1f} virtual minutes in {len(starts)} calls"
    )


def test_where_lambda_is_forbidden_students_sign_in_and_reach_their_own_machine_only(
    lab: Lab,
) -> None:
    lab("provision")
    lab("stop")
    policy = lab("links", sign_in=True)["policy"]
    ids = {r["tags"][tags.OWNER]: r["id"] for r in lab.machines()}
    alice = {"aws:PrincipalTag/trainium-labs:owner": "alice"}
    lab.post("permit", key="AKIAFAKE", policies=[policy], keys=alice)
    ec2 = boto3.client("ec2", REGION)
    ec2.start_instances(InstanceIds=[ids["alice"]])
    lab.settle()
    ec2.stop_instances(InstanceIds=[ids["alice"]])
    for call in ("start_instances", "stop_instances", "terminate_instances"):
        with pytest.raises(Exception, match="UnauthorizedOperation"):
            getattr(ec2, call)(InstanceIds=[ids["bob"]])
    lab.post("permit", key="AKIAFAKE", policies=[policy], keys={})
    with pytest.raises(Exception, match="UnauthorizedOperation"):
        ec2.start_instances(InstanceIds=[ids["alice"]])


def test_names_of_tags_are_the_same_on_both_sides() -> None:
    for name in (
        "CLASS",
        "OWNER",
        "GUARD",
        "SEAT",
        "LINK",
        "CAP",
        "BEFORE",
        "HOSTKEY",
        "ASKS",
        "ACTED",
    ):
        assert getattr(aws, name) == getattr(tags, name)


def test_who_has_the_printed_policy_can_make_and_remove_it_all(lab: Lab) -> None:
    bounded(lab.cloud)
    lab.write(["alice"], my="lambda", mail_from="labs@example.edu")
    made = Class(lab.folder, lab.cloud, lab)
    with made.server:
        assert act(made.links["alice"], "stop")["status"] == 200
        made.cloud.settle()
        assert act(made.links["alice"], "start")["status"] == 200
    for name in ("somebody-elses", "trainium-labs_x"):
        with pytest.raises(Exception, match="AccessDenied|not authorized"):
            boto3.client("lambda", REGION).create_function(
                FunctionName=name,
                Role="arn:aws:iam::123456789012:role/admin",
                Code={"ZipFile": b"x"},
                Runtime="python3.12",
                Handler="x.y",
            )
    lab("teardown")
    assert lab.leftovers() == []
