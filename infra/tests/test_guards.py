"""Guards that act, not guards that exist: roles, refusals that no one is told of, budgets that are
blind or act once, least privilege, organisations that deny regions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from classroom.aws.problems import ClassroomError
from classroom.guards import policies
from conftest import Lab, bounded

ACCOUNT = "123456789012"
TAGS = ["trainium-labs:class", "trainium-labs:budget"]


def guard_policy(change: Callable[[dict[str, Any]], None]) -> None:
    """Change the policy of the guards' role, as someone else in the account might."""
    iam = boto3.client("iam")
    policy = iam.get_role_policy(RoleName="trainium-labs.lab.guard", PolicyName="guard")
    document = policy["PolicyDocument"]
    change(document)
    iam.put_role_policy(
        RoleName="trainium-labs.lab.guard",
        PolicyName="guard",
        PolicyDocument=json.dumps(document),
    )


def definition_only(document: dict[str, Any]) -> None:
    """Allow what was thought to be enough: the automation definition."""
    for s in document["Statement"]:
        if s["Action"] == "ssm:StartAutomationExecution":
            s["Resource"] = [r for r in s["Resource"] if "automation-definition" in r]


def test_every_guard_of_a_class_would_act(lab: Lab) -> None:
    lab("provision")
    made = lab.post("now")["now"]
    lab.post("advance", seconds=16 * 60)
    events = lab.post("events")
    assert [e for e in events if e["kind"] == "schedule" and e["t"] >= made]
    assert not lab.cloud.refused(since=made)
    for event in events:
        if event["kind"] == "running":
            assert {"nightly", "teardown", "unarmed", "budget"} <= set(event["guards"])


def test_no_machine_is_started_while_no_guard_has_acted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role as it once was: schedules exist, are enabled, and AWS refuses each of them."""
    from classroom.guards import roles

    good = roles.guard_policy

    def old(run: Any) -> dict[str, Any]:
        document = good(run)
        definition_only(document)
        return document

    monkeypatch.setattr(roles, "guard_policy", old)
    done = lab("provision")
    assert done["exit_code"] == 1 and "AWS refused" in done["warnings"][0], done["warnings"]
    assert lab.machines() == []
    monkeypatch.setattr(roles, "guard_policy", good)
    lab.post("advance", seconds=1)
    assert lab("provision")["exit_code"] == 0, "it is tried at once"
    assert len(lab.running()) == 2
    tags = [r["tags"] for r in lab.machines()]
    assert [t["trainium-labs:guard"] for t in tags] == ["armed"] * 2


def test_status_tells_what_aws_answered_the_guards(lab: Lab) -> None:
    lab("provision")
    lab.post("set", cost_tags=TAGS)
    lab.post("advance", seconds=16 * 60)
    status = lab("status")
    assert status["problems"] == [] and status["budget"]["visible"] is True
    last = {g["guard"]: g for g in status["guards"]}
    assert last["unarmed"]["status"] == "Success" and last["unarmed"]["at"]
    assert "0 refused" in last["scheduler"]["answer"]

    def no_stop(document: dict[str, Any]) -> None:
        document["Statement"][0]["Action"] = ["ec2:TerminateInstances"]

    guard_policy(no_stop)
    lab.busy()
    lab.post("advance", seconds=20 * 3600)  # past 23:30 in New York
    problems = lab("status")["problems"]
    assert any("nightly in us-east-2 did not act: Failed" in p for p in problems), problems
    guard_policy(definition_only)
    lab.post("advance", seconds=1800)
    problems = lab("status")["problems"]
    assert any("scheduler in us-east-2 did not act: refused" in p for p in problems), problems


def test_status_tells_what_the_alarms_did(lab: Lab) -> None:
    lab("provision")
    lab.post("set", cost_tags=TAGS)

    def told() -> tuple[dict[str, Any], list[str]]:
        status = lab("status")
        return next(g for g in status["guards"] if g["guard"] == "idle alarms"), status["problems"]

    assert told()[0]["at"] is None and "none acted" in told()[0]["status"] and told()[1] == []
    lab.post("advance", seconds=50 * 60)
    seen, problems = told()
    assert lab.running() == [] and problems == []
    assert seen["status"] == "Success" and "ec2:stop" in seen["answer"] and seen["at"]
    # Someone deletes the role that CloudWatch acts with: the alarm fires, and nothing stops.
    boto3.client("iam").delete_role(RoleName="AWSServiceRoleForCloudWatchEvents")
    lab("start")
    lab.post("advance", seconds=50 * 60)
    seen, problems = told()
    assert len(lab.running()) == 2 and seen["status"] == "2 of 4 failed"
    assert any("idle alarms in us-east-2 did not act: 2 of 4 failed" in p for p in problems)


def test_status_counts_unguarded_minutes(lab: Lab) -> None:
    lab("provision")
    (alice, _bob) = [r["id"] for r in lab.machines()]
    boto3.client("ec2", "us-east-2").create_tags(
        Resources=[alice], Tags=[{"Key": "trainium-labs:guard", "Value": "odd"}]
    )
    lab.post("advance", seconds=600)
    status = lab("status")
    (minutes,) = status["unguarded_minutes"].values()
    assert 10 <= minutes < 12 and "minutes unguarded" in status["problems"][0]


# ---- budgets ----


def test_a_budget_without_active_tags_is_blind_and_status_says_so(lab: Lab) -> None:
    lab("provision")
    status = lab("status")
    assert any("Budgets are blind" in p for p in status["problems"])
    lab.post("set", denied=["ce:ListCostAllocationTags"])
    status = lab("status")
    assert any("ask the owner of the bill" in p for p in status["problems"])


def test_a_class_over_budget_is_not_started_again_until_the_budget_is_raised(lab: Lab) -> None:
    lab.write(["alice", "bob"], budget={"per_student_usd": 15, "class_usd": 30})
    lab("provision")
    lab.post("set", cost_tags=TAGS)
    lab.busy()
    for _ in range(3):
        lab.post("advance", seconds=16 * 3600)
        if not lab.running():
            break
    assert not lab.running()
    if not [e for e in lab.post("events") if e["kind"] == "budget-stop"]:
        lab("start", over_budget=True)
        lab.post("advance", seconds=12 * 3600)
    assert [e for e in lab.post("events") if e["kind"] == "budget-stop"]
    with pytest.raises(ClassroomError, match=r"has used \$\d+\.\d\d of its \$30.00"):
        lab("start")
    assert not lab.running()
    lab.write(budget={"per_student_usd": 100, "class_usd": 200})
    lab("provision")
    actions = boto3.client("budgets", "us-east-1").describe_budget_actions_for_budget(
        AccountId=ACCOUNT, BudgetName="trainium-labs.lab.class"
    )["Actions"]
    assert {a["Status"] for a in actions} == {"STANDBY"}, "it may act again"
    lab("start")
    assert len(lab.running()) == 2


def test_a_budget_that_could_not_stop_the_class_is_told(lab: Lab) -> None:
    lab.write(["alice", "bob"], stop_nightly="23:30")
    lab.write(budget={"per_student_usd": 10, "class_usd": 10})
    lab("provision")
    lab.post("set", cost_tags=TAGS)
    lab.busy()
    assert lab("status")["problems"] == []
    guard_policy(definition_only)
    lab.post("advance", seconds=12.5 * 3600)
    problems = lab("status")["problems"]
    assert any("was to stop the machines and could not (EXECUTION_FAILURE)" in p for p in problems)


def test_a_budget_has_the_dollars_of_class_yml_to_the_cent(lab: Lab) -> None:
    """Six digits are not enough for a class, and AWS takes no 1e+06."""
    lab.write(["alice"], budget={"per_student_usd": 9876.54, "class_usd": 12345.67})
    lab("provision")
    found = boto3.client("budgets", "us-east-1").describe_budgets(AccountId=ACCOUNT)["Budgets"]
    amounts = {b["BudgetName"].split(".")[-1]: b["BudgetLimit"]["Amount"] for b in found}
    assert amounts == {"class": "12345.67", "account": "12345.67", "alice": "9876.54"}
    again = lab("provision")
    assert not [c for c in again["changes"] if "budget" in c], again["changes"]


def test_one_student_over_budget_does_not_stop_the_others(lab: Lab) -> None:
    lab.write(["alice", "bob"], budget={"per_student_usd": 5, "class_usd": 10})
    lab("provision")
    lab("stop", limit=["bob"])
    lab.busy()
    lab.post("advance", seconds=5 * 3600)
    lab("stop")
    done = lab("start")
    assert done["exit_code"] == 1 and len(lab.running()) == 1
    assert any("alice" in line and "Raise budget.per_student_usd" in line for line in done["lines"])


def test_a_student_over_budget_is_stopped_by_aws_if_the_class_asks_for_it(lab: Lab) -> None:
    money = {"per_student_usd": 10, "class_usd": 20}
    lab.write(["alice", "bob"])
    lab.write(budget={**money, "stop_each": True})
    lab("provision")
    lab.post("set", cost_tags=TAGS)
    lab.busy()
    lab("stop", limit=["bob"])
    lab.post("advance", seconds=12.5 * 3600)  # alice has used $16; Budgets looks now and then
    stops = [e["budget"] for e in lab.post("events") if e["kind"] == "budget-stop"]
    assert stops == ["trainium-labs.lab.owner.alice"] and lab.running() == []
    lab("start", limit=["bob"])
    lab.post("advance", seconds=3600)
    assert len(lab.running()) == 1, "no one else is stopped"
    mark = len(lab.log())
    lab.write(budget={**money, "stop_each": False})
    lab("provision")
    assert lab.writes(mark).count("DeleteBudgetAction") == 2
    found = boto3.client("budgets", "us-east-1").describe_budget_actions_for_account(
        AccountId=ACCOUNT
    )["Actions"]
    assert {a["BudgetName"] for a in found} == {"trainium-labs.lab.class"}


def test_a_budget_is_one_period_and_one_students_in_one_class(lab: Lab) -> None:
    lab("provision")
    lab.write(name="other")
    (lab.folder.path / "class.lock.yml").unlink()
    lab("provision")
    found = boto3.client("budgets", "us-east-1").describe_budgets(AccountId=ACCOUNT)["Budgets"]
    assert {b["TimeUnit"] for b in found} == {"CUSTOM"}
    filters = [b["CostFilters"]["TagKeyValue"][0] for b in found if b["CostFilters"]]
    assert len(set(filters)) == len(filters) == 6
    assert "user:trainium-labs:budget$lab.alice" in filters


def test_a_changed_address_reaches_the_budgets(lab: Lab) -> None:
    lab("provision")
    lab.write(contact="new@example.edu")
    lab("provision")
    client = boto3.client("budgets", "us-east-1")
    for name, people in (("class", set()), ("owner.alice", {"alice@example.edu"})):
        place = {"AccountId": ACCOUNT, "BudgetName": f"trainium-labs.lab.{name}"}
        for n in client.describe_notifications_for_budget(**place)["Notifications"]:
            mails = client.describe_subscribers_for_notification(**place, Notification=n)
            found = {s["Address"] for s in mails["Subscribers"]}
            assert found == {"new@example.edu"} | people
    mark = len(lab.log())
    lab("provision")
    assert lab.writes(mark) == []


def test_students_of_a_shared_machine_get_the_mail_that_their_page_promises(lab: Lab) -> None:
    lab.write(["alice", "bob"], mode="shared")
    lab("provision")
    client = boto3.client("budgets", "us-east-1")
    place = {"AccountId": ACCOUNT, "BudgetName": "trainium-labs.lab.owner.node-01"}
    (first, *_) = client.describe_notifications_for_budget(**place)["Notifications"]
    mails = client.describe_subscribers_for_notification(**place, Notification=first)
    addresses = {s["Address"] for s in mails["Subscribers"]}
    assert addresses == {"alice@example.edu", "bob@example.edu", "staff@example.edu"}


# ---- who may ----


def test_a_policy_for_names_of_ours_is_not_refused_beforehand(lab: Lab) -> None:
    """The simulator denies what it is asked about "*"; EC2's own dry run decides."""
    simulate = {"Effect": "Allow", "Action": "iam:SimulatePrincipalPolicy", "Resource": "*"}
    mfa = {"Bool": {"aws:MultiFactorAuthPresent": "true"}}
    rules = policies.policy()
    rules["Statement"] = [
        {**s, "Condition": {**s.get("Condition", {}), **mfa}} for s in rules["Statement"]
    ] + [simulate]
    bounded(lab.cloud, rules, mfa=True)
    done = lab("provision")
    assert done["exit_code"] == 0
    lab.post("set", mfa=False)
    lab.write(["alice", "bob", "carol"])
    with pytest.raises(ClassroomError, match="lacks a permission"):
        lab("provision")


def test_no_service_linked_role_is_a_sentence_before_machines_are_unguarded(lab: Lab) -> None:
    rules = policies.policy()
    rules["Statement"] = rules["Statement"][:-1]
    bounded(lab.cloud, rules)
    done = lab("provision")
    assert done["exit_code"] == 1 and "not armed" in done["lines"][0]
    lab.post("advance", seconds=31 * 60)
    assert lab.running() == [], "AWS stops what could not be armed"


def test_a_machine_made_by_hand_beside_the_class_is_seen_by_the_account_s_budget(lab: Lab) -> None:
    lab("provision")
    lab("stop")
    ec2 = boto3.client("ec2", "us-west-2")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    ec2.run_instances(ImageId=image, InstanceType="trn1.32xlarge", MinCount=1, MaxCount=1)
    lab.post("advance", seconds=16 * 3600)
    mails = [e["budget"] for e in lab.post("events") if e["kind"] == "budget-mail"]
    assert set(mails) == {"trainium-labs.lab.account"}, "no tag, no other budget"
    seen = lab("status")
    assert seen["exit_code"] == 1 and any("All of the account" in p for p in seen["problems"])
    lab.write(budget={**lab.folder.data["budget"], "account_usd": 0})
    lab("provision")
    names = {r["id"] for r in lab.leftovers() if r["kind"] == "budget"}
    assert "trainium-labs.lab.account" not in names and "trainium-labs.lab.class" in names
