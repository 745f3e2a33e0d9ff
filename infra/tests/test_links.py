"""Students' links: who may come in, what a request may do, and what is left of it all.

The function runs as it was deployed, from its archive, behind a real HTTP server, with its role's
permissions under the strict fake.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest

from classroom.aws.cloud import Cloud
from classroom.spec import class_file as specs
from classroom.spec import tags
from classroom.spec.run import Run
from classroom.students import links
from classroom.students.selfservice import function
from conftest import ClassFolder, Lab
from labcloud.client import LabCloud
from link_class import REGION, Class, act, ask, changed


def test_nothing_opens_unless_the_staff_ask(lab: Lab) -> None:
    lab("provision")
    assert not [r for r in lab.leftovers() if r["kind"] == "function"]
    assert "link" not in (lab.folder.path / "out/lab/alice.md").read_text()
    lab.write(my="lambda")
    lab("provision")
    (found,) = [r for r in lab.leftovers() if r["kind"] == "function"]
    assert found["id"] == "trainium-labs_lab_my" and found["tags"][tags.CLASS] == "lab"
    assert lab("provision")["changed"] is False
    lab.write(my="")
    lab("provision")
    assert not [r for r in lab.leftovers() if r["kind"] == "function"]
    names = boto3.client("scheduler", REGION).list_schedules(GroupName="trainium-labs.lab")
    assert "caps" not in {s["Name"] for s in names["Schedules"]}
    lab("teardown")
    assert lab.leftovers() == []


def test_a_student_starts_looks_and_stops(made: Class) -> None:
    assert made.server.open == ["lambda:InvokeFunction", "lambda:InvokeFunctionUrl"]
    assert made.state("alice") == "stopped"
    answer = act(made.links["alice"], "start")
    assert (answer["status"], answer["retry"]) == (200, 0) and "starts" in answer["text"]
    made.cloud.settle()
    facts = ask(made.links["alice"])["facts"]
    assert facts["state"] == "running" and facts["address"] and facts["cap_usd"] == 50
    assert facts["alias"] == "lab-alice" and facts["user"] == "ubuntu"
    assert made.state("bob") == "stopped"
    assert "runs already" in act(made.links["alice"], "start")["text"]
    assert "stops" in act(made.links["alice"], "stop")["text"]
    made.cloud.settle()
    assert made.state("alice") == "stopped"
    made.classroom("teardown", made.folder.file)
    assert made.cloud.leftovers() == []


def test_a_look_changes_nothing(made: Class) -> None:
    mark = len(made.cloud.log())
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        link = made.links["alice"] + "&do=start"
        if method == "HEAD":
            urllib.request.urlopen(urllib.request.Request(link, method="HEAD")).close()
        else:
            ask(link, method=method)
    assert made.cloud.writes(mark) == [] and made.state("alice") == "stopped"


def test_wrong_forged_foreign_and_expired_links_are_refused(made: Class, tmp_path: Path) -> None:
    mark, link = len(made.cloud.log()), made.links["alice"]
    query = dict(urllib.parse.parse_qsl(link.partition("?")[2]))
    other = dict(urllib.parse.parse_qsl(made.links["bob"].partition("?")[2]))
    wrong = [
        link.partition("?")[0],
        changed(link, s="bob"),
        changed(link, i=other["i"]),
        changed(link, r="us-west-2"),
        changed(link, e=str(int(query["e"]) + 1)),
        changed(link, n="1"),
        changed(link, k=other["k"]),
        changed(link, k=query["k"][:-2] + "zz"),
        changed(link, k=query["k"][:5]),
        changed(link, k="é" * 22),
        changed(link, e="tomorrow"),
        changed(link, s="alice'><script>alert(1)</script>"),
    ]
    for name in ("lab", "other"):  # a key of one's own, and another class's function
        forged = function.query(b"x" * 32, name, REGION, query["i"], "alice", 0, int(query["e"]))
        wrong.append(made.server.url + "?" + forged)
    for bad in wrong:
        answer = ask(bad)
        assert answer["status"] == 403 and "not valid" in answer["text"], bad
        assert answer["facts"] is None and answer["ticket"] == ""
        assert ask(bad, {"do": "start", "t": "1.x"})["status"] == 403
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(bad + "&get=my.py")
    assert made.cloud.log()[mark:] == [], "AWS was not even asked"


@pytest.fixture()
def ends_soon(folder: ClassFolder, cloud: LabCloud) -> dt.date:
    """Let the class end the day after tomorrow; return that day."""
    now = dt.datetime.fromtimestamp(cloud.post("now")["at"], dt.timezone.utc)
    folder.data["teardown"] = (now.date() + dt.timedelta(days=2)).isoformat()
    return now.date() + dt.timedelta(days=2)


def test_a_link_ends_a_day_after_its_class(ends_soon: dt.date, made: Class) -> None:
    link = made.links["alice"]
    assert ask(link)["status"] == 200
    made.cloud.post("advance", seconds=4 * 24 * 3600)
    answer, end = ask(link), ends_soon + dt.timedelta(days=1)
    assert answer["status"] == 403 and f"ended on {end}" in answer["text"]


def test_links_of_two_classes_do_not_open_each_other(made: Class, tmp_path: Path) -> None:
    other = ClassFolder(tmp_path / "other") if (tmp_path / "other").mkdir() is None else None
    assert other is not None
    other.write(["alice"], name="second", my="lambda")
    second = Class(other, made.cloud, made.classroom)
    with second.server:
        swapped = made.server.url + "?" + second.links["alice"].partition("?")[2]
        assert ask(swapped)["status"] == 403
        assert ask(second.links["alice"])["status"] == 200
        # with the first class's own key a link to the second's machine opens nothing either
        run = Run(specs.load(made.folder.file), Cloud())
        signer = links.signer(run)
        assert signer is not None
        q = dict(urllib.parse.parse_qsl(second.links["alice"].partition("?")[2]))
        signed = function.query(signer.key, "lab", REGION, q["i"], "alice", 0, int(q["e"]))
        answer = act(made.server.url + "?" + signed, "stop")
        assert answer["status"] == 403 and "not yours" in answer["text"]


def test_a_recorded_request_does_nothing_again(made: Class) -> None:
    link = made.links["alice"]
    form = {"do": "start", "t": ask(link)["ticket"]}
    older = {"do": "stop", "t": ask(link)["ticket"]}
    assert ask(link, form)["status"] == 200
    made.cloud.settle()
    again = ask(link, form)
    assert again["status"] == 409 and "done already" in again["text"]
    newest = {"do": "stop", "t": ask(link)["ticket"]}
    assert ask(link, newest)["status"] == 200
    made.cloud.settle()
    mark = len(made.cloud.log())
    with ThreadPoolExecutor(8) as pool:  # the recorded start, many times at once
        answers = list(pool.map(lambda _: ask(link, form), range(40)))
    assert {a["status"] for a in answers} <= {409, 429} and made.state("alice") == "stopped"
    assert ask(link, older)["status"] == 409, "what was handed out before what was done"
    for ticket in ("", "0.x", "99999999999999999999.x", form["t"] + "x", "١.x"):
        assert ask(link, {"do": "start", "t": ticket})["status"] == 403
    bobs = ask(made.links["bob"])["ticket"]
    assert ask(link, {"do": "start", "t": bobs})["status"] == 403
    old = ask(link)["ticket"]
    made.cloud.post("advance", seconds=601)
    assert "ten minutes old" in ask(link, {"do": "start", "t": old})["text"]
    assert made.cloud.writes(mark) == [] and made.state("alice") == "stopped"


def test_a_revoked_link_is_ended_at_once_and_the_new_one_works(made: Class) -> None:
    old = made.links["alice"]
    done = made.classroom("links", made.folder.file, limit=["alice"], revoke=True)
    assert done["ended"] == ["alice"]
    answer = ask(old)
    assert answer["status"] == 403 and "ended this link" in answer["text"]
    assert act(old, "start")["status"] == 403
    new = made.read()
    assert new["alice"] != old and ask(new["alice"])["status"] == 200
    assert new["bob"] == made.links["bob"] and ask(new["bob"])["status"] == 200


def test_a_link_ends_with_its_machine(made: Class) -> None:
    made.classroom("teardown", made.folder.file, limit=["alice"], discard_work="alice")
    made.cloud.settle()
    answer = ask(made.links["alice"])
    assert answer["status"] == 410 and "new page" in answer["text"]


def test_the_pages_key_survives_a_lost_laptop_and_never_reaches_a_log(made: Class) -> None:
    before = made.links
    for file in (made.folder.path / "out/lab").glob("*"):
        if file.is_file():
            file.unlink()
    assert made.read() == before
    run = Run(specs.load(made.folder.file), Cloud())
    signer = links.signer(run)
    assert signer is not None
    texts = [
        p.read_text()
        for p in made.folder.path.rglob("*")
        if p.is_file() and p.suffix in (".md", ".json", ".yml")
    ]
    assert not any(signer.key.hex() in t for t in texts)


def test_a_machine_that_nothing_would_stop_is_not_started(made: Class) -> None:
    ec2 = boto3.client("ec2", REGION)
    (machine,) = [
        r["id"]
        for r in made.cloud.leftovers()
        if r["kind"] == "instance" and r["tags"][tags.OWNER] == "alice"
    ]
    ec2.create_tags(Resources=[machine], Tags=[{"Key": tags.GUARD, "Value": "pending-lab"}])
    made.cloud.settle()
    answer = act(made.links["alice"], "start")
    assert answer["status"] == 409 and "Nothing would stop" in answer["text"]
    # and if the function itself were wrong, IAM would refuse
    made.cloud.post("set", callers={})
    found = made.cloud.post("deployed", region=REGION, name="trainium-labs_lab_my")
    made.cloud.post("permit", key="AKIAFAKE", policies=found["policies"], boundary=None)
    for call in ("start_instances", "terminate_instances"):
        with pytest.raises(Exception, match="UnauthorizedOperation"):
            getattr(ec2, call)(InstanceIds=[machine])
    with pytest.raises(Exception, match="UnauthorizedOperation"):
        ec2.create_tags(Resources=[machine], Tags=[{"Key": tags.GUARD, "Value": "armed"}])
    with pytest.raises(Exception, match="UnauthorizedOperation"):
        ec2.create_tags(Resources=[machine], Tags=[{"Key": tags.CAP, "Value": "1000"}])


def test_no_capacity_and_a_machine_on_its_way_are_told(made: Class) -> None:
    link = made.links["alice"]
    made.cloud.fault("StartInstances", code="InsufficientInstanceCapacity", status=500, times=5)
    answer = act(link, "start")
    assert (answer["status"], answer["retry"]) == (503, 600) and "another zone" in answer["text"]
    made.cloud.post("clear")
    made.cloud.fault("StartInstances", code="IncorrectInstanceState", status=400, times=1)
    assert act(link, "start")["retry"] == 15
    made.cloud.fault("DescribeInstances", code="InternalError", status=500, times=9)
    assert "AWS did not do it (InternalError)" in ask(link)["text"]
    made.cloud.post("clear")
    assert act(link, "start")["status"] == 200


def test_only_the_staff_stop_a_shared_machine(lab: Lab) -> None:
    lab.write(["alice", "bob"], my="lambda", mode="shared")
    made = Class(lab.folder, lab.cloud, lab)
    with made.server:
        facts = ask(made.links["bob"])["facts"]
        assert facts["user"] == "bob" and facts["shared_with"] == ["alice"]
        assert facts["cap_usd"] == 100
        answer = act(made.links["bob"], "stop")
        assert answer["status"] == 403 and "only the staff" in answer["text"]
        lab("links", limit=["bob"], revoke=True)
        assert ask(made.links["bob"])["status"] == 403
        assert ask(made.links["alice"])["status"] == 200, "her link to the same machine stays"


def test_the_host_key_is_the_one_that_the_machine_printed(made: Class) -> None:
    facts = ask(made.links["alice"])["facts"]
    wanted = hashlib.sha256(facts["machine"].encode()).digest()
    assert base64.b64decode(facts["host_key"].split()[1]).endswith(wanted)
    known = (made.folder.path / "out/lab/known_hosts").read_text()
    assert f"{facts['machine']} {facts['host_key']}" in known
    # someone else has answered before
    path = made.folder.path / "out/lab/known_hosts"
    path.write_text(known.replace(facts["host_key"], "ssh-ed25519 AAAAC3other"))
    warnings = made.classroom("pages", made.folder.file)["warnings"]
    assert any("alice" in w and "another host key" in w for w in warnings)
