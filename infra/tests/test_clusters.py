"""A class that shares a cluster, as far as the cloud and the files are concerned: what class.yml
must say, guarded nodes, who logs in where, archives. The cluster itself is in test_cluster.py."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from typing import Any

import boto3
import pytest

from classroom.aws.problems import BadClass, ClassroomError
from classroom.spec import class_file, clusters, instance_types
from conftest import ClassFolder, Classroom
from labcloud.client import LabCloud

HERE = Path(__file__).parent
SIZE = {"nodes": 2, "core_hours_per_student": 20}


@pytest.fixture()
def shared(folder: ClassFolder) -> ClassFolder:
    """Return a class of six with a cluster of two nodes."""
    folder.write(
        ["ada", "bea", "cleo", "dora", "edda", "fred"],
        mode="cluster",
        cluster=SIZE,
        sdk="2.29.0",
        regions=["us-east-2"],
    )
    return folder


def problems(file: Path) -> list[str]:
    """Return what is wrong with a class, as text."""
    try:
        class_file.load(file)
    except BadClass as bad:
        return [str(p) for p in bad.problems]
    return []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"cluster": None}, "Nothing says how many nodes"),
        ({"mode": "shared"}, "`cluster` is for `mode: cluster` only"),
        ({"regions": ["us-east-2", "us-west-2"]}, "2 regions are named"),
        ({"sdk": "2.26.1"}, "does not know cgroup v2"),
        ({"work_copies": "s3"}, "could read the others' copies"),
        ({"my": "lambda"}, "a cluster has none"),
        ({"cluster": {"nodes": 0}}, "the least is 1"),
        ({"cluster": {"nodes": 2, "core_hours": 3}}, "Did you mean `core_hours_per_student`"),
    ],
)
def test_what_class_yml_must_say(shared: ClassFolder, changes: dict[str, Any], words: str) -> None:
    if "cluster" in changes and changes["cluster"] is None:
        del shared.data["cluster"]
        changes = {}
    shared.write(**changes)
    found = problems(shared.file)
    assert (not found) if not words else (len(found) == 1 and words in found[0]), found


def test_numbers_of_students_stay_and_do_not_meet_those_of_the_system(shared: ClassFolder) -> None:
    found = {s.id: clusters.uid(s.id) for s in class_file.load(shared.file).students}
    assert found["ada"] == 1_952_690_398, "another number would take everybody's files away"
    assert len(set(found.values())) == 6
    assert all(1_900_000_000 <= n < 2_100_000_000 < 2**31 for n in found.values())


def test_every_machine_has_whole_devices() -> None:
    for machine in instance_types.TYPES.values():
        assert machine.devices * machine.cores_per_device == machine.cores, machine


def test_the_nodes_are_guarded_as_other_machines_are(
    shared: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    done = classroom("provision", shared.file)
    assert done["exit_code"] == 0, done
    again = classroom("provision", shared.file)
    assert not again["changes"] and not [w for w in again["warnings"] if "opened" in w], again
    rows = cloud.machines()
    assert {r["tags"]["trainium-labs:machine"] for r in rows} == {"node-01", "node-02"}
    assert {r["tags"]["trainium-labs:guard"] for r in rows} == {"armed"}
    alarms = boto3.client("cloudwatch", region_name="us-east-2").describe_alarms()["MetricAlarms"]
    idle = {a["AlarmName"] for a in alarms if a["AlarmName"].endswith(".idle")}
    assert idle == {f"trainium-labs.lab.node-0{n}.idle" for n in (1, 2)}
    names = boto3.client("budgets", region_name="us-east-1").describe_budgets(
        AccountId=boto3.client("sts", region_name="us-east-2").get_caller_identity()["Account"]
    )["Budgets"]
    limits = {b["BudgetName"].split(".")[-1]: float(b["BudgetLimit"]["Amount"]) for b in names}
    assert limits["node-01"] == limits["node-02"] == 50 * 6 / 2, limits
    # The nodes reach each other; from outside there is SSH for the campus and nothing else.
    ec2 = boto3.client("ec2", region_name="us-east-2")
    (group,) = ec2.describe_security_groups(
        Filters=[{"Name": "group-name", "Values": ["trainium-labs.lab.ssh"]}]
    )["SecurityGroups"]
    inside = [p for p in group["IpPermissions"] if p["UserIdGroupPairs"]]
    outside = [p for p in group["IpPermissions"] if p["IpRanges"] or p.get("Ipv6Ranges")]
    assert [p["UserIdGroupPairs"][0]["GroupId"] for p in inside] == [group["GroupId"]]
    assert [(p["FromPort"], p["ToPort"]) for p in outside] == [(22, 22)]
    mark = len(cloud.log())
    again = classroom("provision", shared.file)
    assert again["exit_code"] == 0 and cloud.writes(mark) == []
    # Someone leaves, someone comes: no machine does.
    shared.write(["ada", "bea", "gina"])
    mark = len(cloud.log())
    classroom("provision", shared.file, confirm_changes=True)
    assert not {"RunInstances", "TerminateInstances"} & set(cloud.writes(mark))
    with pytest.raises(ClassroomError, match="have no owner"):
        classroom("stop", shared.file, limit=["ada"])
    assert "sbatch --gpus=1" in (shared.path / "out/lab/gina.md").read_text()


def test_everybody_logs_in_under_a_name_of_their_own(
    shared: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", shared.file)
    head = classroom("hosts", shared.file)["machines"][0]
    assert head["name"] == "node-01" and head["cluster"] is True
    assert {"student": "bea", "user": "bea"} in head["ssh"]
    assert {"student": "staff", "user": "ubuntu"} in head["ssh"]


def test_a_cluster_is_not_ended_before_all_homes_are_saved(
    shared: ClassFolder,
    cloud: LabCloud,
    classroom: Classroom,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    classroom("provision", shared.file)
    disks = tmp_path / "disks"
    monkeypatch.setenv("LAB_DISKS", str(disks))
    monkeypatch.setenv("CLASSROOM_SSH", f"{sys.executable} {HERE / 'fake_ssh.py'}")
    for m in cloud.machines():
        (disks / m["id"] / "home/ubuntu").mkdir(parents=True)
        (disks / m["id"] / "region").write_text(m["region"])
        if m["tags"]["trainium-labs:machine"] == "node-01":
            for student in ("ada", "bea", "who-has-left"):
                labs = disks / m["id"] / "home" / student / "labs"
                labs.mkdir(parents=True)
                (labs / "kernel.py").write_text(student)
    (disks / "faults").write_text("refused " * 4)
    with pytest.raises(ClassroomError, match="nothing was deleted"):
        classroom("teardown", shared.file, discard_work="")
    assert cloud.kinds() >= {"instance"}
    (disks / "faults").unlink()
    down = classroom("teardown", shared.file, discard_work="")
    assert down["exit_code"] == 0 and cloud.leftovers() == []
    with tarfile.open(shared.path / "out/lab/work/node-01.tar.gz") as archive:
        names = archive.getnames()
    assert {f"{s}/labs/kernel.py" for s in ("ada", "bea", "who-has-left")} <= set(names)
    with tarfile.open(shared.path / "out/lab/work/node-02.tar.gz") as archive:
        assert archive.getnames() == []
