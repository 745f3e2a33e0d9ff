"""Accounts of organisations: own networks, tags and boundaries, no public addresses, no budgets;
and rules (service control policies) that say no, with a sentence that names the key to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from classroom.aws import organisations
from classroom.aws.problems import BadClass, ClassroomError
from classroom.guards import policies
from classroom.spec import class_file
from conftest import ClassFolder, Classroom, Lab
from labcloud.client import LabCloud

ACCOUNT, REGION = "123456789012", "us-east-2"
ALLOW = {"Effect": "Allow", "Action": "*", "Resource": "*"}
THEIRS = f"arn:aws:iam::{ACCOUNT}:policy/ResearchBoundary"
TAGS = {"cost-center": "4711", "owner": "cs-dept"}


def rules(cloud: LabCloud, *denials: dict[str, Any]) -> None:
    """Put service control policies over the account: the usual allow, and denials."""
    deny = [{"Effect": "Deny", "Resource": "*", **d} for d in denials]
    cloud.post("set", organisation=[{"Statement": [ALLOW, *deny]}])


def untagged(action: str, *resources: str) -> dict[str, Any]:
    """Return a denial of what is made without a tag, as organisations write it."""
    condition = {"Null": {"aws:RequestTag/cost-center": "true"}}
    return {"Action": action, "Resource": list(resources), "Condition": condition}


EC2 = "arn:aws:ec2:*:*:"
UNTAGGED = [
    untagged("ec2:RunInstances", *(f"{EC2}{k}/*" for k in ("instance", "volume"))),
    untagged("ec2:CreateSecurityGroup", EC2 + "security-group/*"),
    untagged("ec2:CreateLaunchTemplate", EC2 + "launch-template/*"),
    untagged("iam:CreateRole", "*"),
]
TYPES = {
    "Action": "ec2:RunInstances",
    "Resource": "arn:aws:ec2:*:*:instance/*",
    "Condition": {"StringNotEquals": {"ec2:InstanceType": ["inf2.xlarge", "t3.nano"]}},
}
REGIONS = {
    "Action": ["ec2:*", "scheduler:*", "cloudwatch:*", "ssm:*", "lambda:*"],
    "Condition": {"StringNotEquals": {"aws:RequestedRegion": ["us-east-1", "us-east-2"]}},
}
PUBLIC = {
    "Action": "ec2:RunInstances",
    "Resource": "arn:aws:ec2:*:*:network-interface/*",
    "Condition": {"Bool": {"ec2:AssociatePublicIpAddress": "true"}},
}
UNBOUND = {
    "Action": ["iam:CreateRole", "iam:PutRolePolicy"],
    "Condition": {"StringNotEquals": {"iam:PermissionsBoundary": THEIRS}},
}
BILLING = {"Action": "budgets:*"}


def boundary(*statements: dict[str, Any]) -> None:
    """Make the organisation's boundary."""
    text = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    boto3.client("iam").create_policy(PolicyName="ResearchBoundary", PolicyDocument=text)


def network(region: str = REGION, zones: str = "abc") -> tuple[str, list[str]]:
    """Make a network that is not the default one; return it and its subnets."""
    ec2 = boto3.client("ec2", region)
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    made = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{k}.0/24", AvailabilityZone=region + zone)
        for k, zone in enumerate(zones)
    ]
    return vpc, [m["Subnet"]["SubnetId"] for m in made]


def no_default_network(region: str = REGION) -> None:
    """Do what Control Tower does to a new account."""
    ec2 = boto3.client("ec2", region)
    default = [{"Name": "is-default", "Values": ["true"]}]
    for vpc in ec2.describe_vpcs(Filters=default)["Vpcs"]:
        inside = [{"Name": "vpc-id", "Values": [vpc["VpcId"]]}]
        for subnet in ec2.describe_subnets(Filters=inside)["Subnets"]:
            ec2.delete_subnet(SubnetId=subnet["SubnetId"])
        ec2.delete_vpc(VpcId=vpc["VpcId"])


def up_and_down(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    """Let a class live: up, unchanged at the second run, down to nothing."""
    done = classroom("provision", folder.file)
    assert done["exit_code"] == 0 and len(cloud.running()) == 2, done
    again = classroom("provision", folder.file)
    assert again["changed"] is False, again["changes"]
    assert classroom("status", folder.file)["exit_code"] == 0
    assert classroom("teardown", folder.file)["exit_code"] == 0
    assert [r for r in cloud.leftovers() if r["kind"] != "security-group"] == []


# ---- a class that fits the rules comes up, and one that does not gets a sentence ----

FITS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "tags": (UNTAGGED, {"tags": TAGS}),
    "types": ([TYPES], {"instance_type": "inf2.xlarge"}),
    "regions": ([REGIONS], {"regions": [REGION]}),
    "public addresses": ([PUBLIC], {"reach": "session-manager", "ssh_cidrs": None}),
    "boundary": ([UNBOUND], {"boundary": THEIRS}),
    "budgets": ([BILLING], {"budget": "none"}),
}
KEYS = {
    "tags": "`tags:`",
    "types": "`instance_type:`",
    "regions": "`regions:`",
    "public addresses": "`reach: session-manager`",
    "boundary": "`boundary:`",
    "budgets": "`budget: none`",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("rule", FITS)
def test_a_class_that_fits_an_organisations_rule_comes_up_and_goes(lab: Lab, rule: str) -> None:
    denials, keys = FITS[rule]
    boundary(ALLOW)
    rules(lab.cloud, *denials)
    lab.write(["alice", "bob"], **keys)
    up_and_down(lab.folder, lab.cloud, lab)


@pytest.mark.parametrize("rule", FITS)
def test_a_class_that_does_not_gets_a_sentence_that_names_the_key(lab: Lab, rule: str) -> None:
    rules(lab.cloud, *FITS[rule][0])
    if rule == "regions":
        lab.write(["alice", "bob"], regions=["us-west-2"])
    try:
        done = lab("provision")
    except ClassroomError as error:
        said = str(error)
    else:
        assert done["exit_code"] == 1, done
        said = json.dumps(done)
    assert KEYS[rule] in said and "organisation" in said, said
    assert lab.running() == []


# ---- networks ----


def test_without_a_default_network_the_class_names_its_own(lab: Lab) -> None:
    no_default_network()
    lab.write(regions=[REGION])
    with pytest.raises(ClassroomError, match=r"`subnets: \{us-east-2: \[subnet-\.\.\.\]\}`"):
        lab("provision")
    vpc, subnets = network()
    lab.write(subnets=subnets)
    assert lab("provision")["exit_code"] == 0
    ec2 = boto3.client("ec2", REGION)
    machines = [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
    assert {m["SubnetId"] for m in machines} <= set(subnets) and len(machines) == 2
    assert {m["VpcId"] for m in machines} == {vpc}
    groups = [{"Name": "group-name", "Values": ["trainium-labs.lab.ssh"]}]
    (group,) = ec2.describe_security_groups(Filters=groups)["SecurityGroups"]
    assert group["VpcId"] == vpc
    assert lab("doctor")["exit_code"] == 0


def test_a_vpc_alone_means_all_of_its_subnets(lab: Lab) -> None:
    vpc, _ = network()
    lab.write(regions=[REGION], vpc=vpc)
    assert lab("provision")["exit_code"] == 0
    assert len(lab.running()) == 2


def test_subnets_that_are_not_there_or_of_two_networks_are_refused(lab: Lab) -> None:
    _, one = network()
    lab.write(regions=[REGION], subnets=[one[0], "subnet-00000000"])
    with pytest.raises(ClassroomError, match="us-east-2 has no subnet subnet-00000000"):
        lab("provision")
    other = boto3.client("ec2", REGION).describe_subnets()["Subnets"]
    default = next(s["SubnetId"] for s in other if s["DefaultForAz"])
    lab.write(subnets=[one[0], default])
    with pytest.raises(ClassroomError, match="several networks"):
        lab("provision")
    assert lab.running() == []


# ---- tags, boundary ----


def test_all_that_is_made_carries_the_organisations_tags(lab: Lab) -> None:
    lab.write(tags=TAGS, elastic_ip=True, my="lambda", work_copies="s3")
    lab("provision")
    bare = [
        (r["kind"], r["id"])
        for r in lab.leftovers()
        if r["tags"] is not None and not TAGS.items() <= r["tags"].items()
    ]
    assert bare == []
    kinds = lab.kinds()
    assert {"instance", "volume", "role", "bucket", "budget", "function", "elastic-ip"} <= kinds


def test_machines_that_are_there_get_tags_that_were_added_later(lab: Lab) -> None:
    lab("provision")
    lab.write(tags=TAGS)
    lab("provision")
    found = [r["tags"] for r in lab.machines()]
    assert all(TAGS.items() <= t.items() for t in found) and len(found) == 2


def test_the_organisations_boundary_is_instead_of_ours(lab: Lab) -> None:
    boundary(ALLOW)
    lab.write(boundary=THEIRS)
    text = json.dumps(policies.boundary())
    iam = boto3.client("iam")
    iam.create_policy(PolicyName=policies.BOUNDARY, PolicyDocument=text)
    printed = lab("doctor", policy=True)
    assert THEIRS in printed["lines"][0] and THEIRS in printed["lines"][3]
    lab.post("set", callers={"AKIAFAKE": {"policies": [printed["policy"]]}})
    assert lab("provision")["exit_code"] == 0
    lab.post("set", callers={})
    for kind in ("guard", "machine"):
        role = iam.get_role(RoleName=f"trainium-labs.lab.{kind}")["Role"]
        assert role["PermissionsBoundary"]["PermissionsBoundaryArn"] == THEIRS


def test_a_boundary_that_the_guards_do_not_fit_in_starts_no_machine(lab: Lab) -> None:
    boundary({"Effect": "Allow", "Action": ["s3:*", "ec2:Describe*"], "Resource": "*"})
    lab.write(boundary=THEIRS)
    done = lab("provision")
    assert done["exit_code"] == 1 and "ResearchBoundary" in json.dumps(done), done
    lab.post("advance", seconds=16 * 60)
    assert lab.running() == []


# ---- without budgets ----


def test_without_budgets_schedules_and_alarms_guard_the_class(lab: Lab) -> None:
    rules(lab.cloud, BILLING)
    lab.write(budget="none", my="lambda")
    (warning,) = lab("provision")["warnings"]
    assert "nightly stop" in warning and "no budget" in warning
    looked = lab("doctor")
    assert looked["exit_code"] == 0 and "no budget" in json.dumps(looked)
    assert lab("status")["warnings"] == []
    asked = [c["op"] for c in lab.log() if c["service"] == "budgets"]
    assert asked == []
    lab.post("advance", seconds=24 * 3600)
    assert lab.running() == [], "the idle alarms and the nightly stop act"
    assert lab("teardown")["exit_code"] == 0


def test_caps_without_budgets_are_ours(folder: ClassFolder) -> None:
    found = class_file.load(folder.write(budget="none"))
    assert (found.budget.class_usd, found.budget.per_student_usd) == (100, 50)
    own = {"class_usd": 60, "per_student_usd": 30, "in_aws": False}
    assert class_file.load(folder.write(budget=own)).cap(["alice"]) == 30
    with pytest.raises(BadClass, match="`stop_each` is a budget of AWS's"):
        class_file.load(folder.write(budget={**own, "stop_each": True}))


# ---- machines without a public address ----


@pytest.mark.parametrize("reach", ["session-manager", "instance-connect"])
def test_machines_without_public_addresses_are_reached_by_id(lab: Lab, reach: str) -> None:
    nets = None if reach == "session-manager" else ["10.0.0.0/16"]
    lab.folder.staff(
        f"tim@example.edu,ta,all,{(lab.folder.path / 'staff.pub').read_text().strip()}"
    )
    lab.write(reach=reach, ssh_cidrs=nets)
    lab("provision")
    lab.post("advance", seconds=180)
    assert lab("pages")["warnings"] == []
    ec2 = boto3.client("ec2", REGION)
    (one, two) = (i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"])
    assert "PublicIpAddress" not in one and "PublicIpAddress" not in two
    groups = [{"Name": "group-name", "Values": ["trainium-labs.lab.ssh"]}]
    (group,) = ec2.describe_security_groups(Filters=groups)["SecurityGroups"]
    assert len(group["IpPermissions"]) == (0 if nets is None else 1)
    command = organisations.proxy(reach, REGION)
    pinned = (lab.folder.path / "out/lab/known_hosts").read_text()
    for m in lab("hosts")["machines"]:
        assert m["ip"] == m["id"] and m["options"]["ProxyCommand"] == command
        assert m["id"] in pinned
        page = (lab.folder.path / f"out/lab/{m['name']}.md").read_text()
        assert f"HostName {m['id']}\n" in page and f"ProxyCommand {command}\n" in page
        assert "no address on the internet" in page and "address changes" not in page
    (staff,) = (lab.folder.path / "out/lab/staff").glob("*/config")
    assert staff.read_text().count(f"ProxyCommand {command}\n") == 2


def test_the_role_of_a_private_machine_opens_sessions_and_does_nothing_else(lab: Lab) -> None:
    lab.write(reach="session-manager", ssh_cidrs=None)
    lab("provision")
    iam = boto3.client("iam")
    name = "trainium-labs.lab.machine"
    rule = iam.get_role_policy(RoleName=name, PolicyName="guard")["PolicyDocument"]["Statement"]
    (statement,) = rule
    assert all(a.startswith(("ssmmessages:", "ssm:Update")) for a in statement["Action"])
    lab.write(reach=None, ssh_cidrs=["203.0.113.0/24"])
    lab("provision")
    assert iam.list_role_policies(RoleName=name)["PolicyNames"] == []


def test_forecasts_of_private_machines_hold_no_public_addresses(lab: Lab) -> None:
    assert lab("forecast")["forecast"]["address_usd"] > 0
    lab.write(reach="session-manager", ssh_cidrs=None)
    assert lab("forecast")["forecast"]["address_usd"] == 0


# ---- class.yml ----

MISTAKES = {
    "vpc": ({"vpc": "vpc-1"}, "'vpc-1' is not the id of a vpc"),
    "subnet": ({"subnets": {REGION: ["net-1"]}}, "'net-1' is not the id of a subnet"),
    "no list": ({"subnets": "subnet-01234567"}, "is not a list of subnets"),
    "whose": ({"subnets": ["subnet-01234567"]}, "`subnets` does not say which region's"),
    "missing": ({"subnets": {REGION: ["subnet-01234567"]}}, "us-west-2 has no line"),
    "other": ({"vpc": {"eu-west-1": "vpc-01234567"}}, "not one of `regions`"),
    "number": ({"tags": {"cost-center": 4711}}, "which is not text"),
    "own tag": ({"tags": {"trainium-labs:class": "x"}}, "AWS's or the class's own"),
    "letters": ({"tags": {"a": "x;y"}}, "more than AWS's services all take"),
    "many": ({"tags": {f"t{k}": "x" for k in range(40)}}, "AWS takes 50 on a machine"),
    "boundary": ({"boundary": "ResearchBoundary"}, "is not the ARN of a managed policy"),
    "closed": ({"reach": "session-manager"}, "`ssh_cidrs` opens nothing"),
    "no network": ({"ssh_cidrs": None}, "`ssh_cidrs` is missing"),
    "address": (
        {"reach": "instance-connect", "elastic_ip": True},
        "gives machines no public address",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_these_keys_are_told(folder: ClassFolder, mistake: str) -> None:
    keys, said = MISTAKES[mistake]
    with pytest.raises(BadClass, match=said) as caught:
        class_file.load(folder.write(**keys))
    assert len(caught.value.problems) == 1, caught.value


def test_the_example_names_every_key_of_organisations() -> None:
    text = (Path(class_file.__file__).parents[2] / "examples/class.yml").read_text()
    for key in ("subnets", "vpc", "tags", "boundary", "reach"):
        assert f"# {key}:" in text, key
    assert yaml.safe_load(text)["budget"]["class_usd"]
