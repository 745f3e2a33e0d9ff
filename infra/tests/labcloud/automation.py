"""Systems Manager Automation: AWS's own runbooks, run with the permissions of the role they get.

Source: Automation runbook reference, AWS-StopEC2Instance (two steps: aws:changeInstanceState to
stopped, then the same with Force), AWS-TerminateEC2Instance (one step), AWS-ReleaseElasticIP (one
call of ReleaseAddress); Systems Manager guide, "aws:changeInstanceState" (it asks
DescribeInstanceStatus until the state is there) and "Run automated operations that use targets":
tags choose resources of the runbook's target type only (documented for AWS-TerminateEC2Instance,
assumed for AWS-StopEC2Instance), so disks and cards with the same tag are left alone.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from moto.ec2.models import ec2_backends
from moto.events.models import events_backends
from moto.sns.models import sns_backends
from moto.ssm.responses import SimpleSystemManagerResponse

from . import authority, guards, questions
from .iam import Request, like
from .metrics import moment
from .world import ACCOUNT, WORLD, tags_of

STEPS = {
    "AWS-StopEC2Instance": ["stopInstances", "forceStopInstances"],
    "AWS-TerminateEC2Instance": ["terminateInstances"],
    "AWS-ReleaseElasticIP": ["releaseAddress"],
}
LOOKS = ("ec2:DescribeInstances", "ec2:DescribeInstanceStatus")


def machines(region: str) -> list[Any]:
    """Return all machines of a region, whatever their state."""
    return [i for r in ec2_backends[ACCOUNT][region].reservations.values() for i in r.instances]


def chosen(region: str, inputs: dict[str, Any]) -> list[str]:
    """Return the ids that an automation's targets name, or choose by tag."""
    targets = inputs.get("Targets") or []
    if len(targets) != 1:  # AWS: "Only one resource group or tag can be specified at a time"
        return []
    if targets[0]["Key"] == "ParameterValues":
        return list(targets[0]["Values"])
    alive = [m for m in machines(region) if m.state not in ("terminated", "shutting-down")]
    return [m.id for m in alive if chooses(inputs, m.id, tags_of(m))]


def chooses(inputs: dict[str, Any], instance: str, tags: dict[str, str]) -> bool:
    """Say whether an automation's targets choose a machine; tag values take wildcards."""
    targets = inputs.get("Targets") or []
    if len(targets) != 1:
        return False
    key, values = targets[0]["Key"], targets[0]["Values"]
    if key == "ParameterValues":
        return instance in values
    tag = tags.get(key.removeprefix("tag:"), "\0")
    return any(like(tag, v) for v in values)


def needs(document: str, region: str, resource: str) -> list[Request]:
    """Return what the steps of a runbook ask for one machine or address."""
    if document == "AWS-ReleaseElasticIP":
        arn = f"arn:aws:ec2:{region}:{ACCOUNT}:elastic-ip/{resource}"
        tags = questions.tagged(questions.ec2_tags(region, resource))
        return [Request("ec2:ReleaseAddress", arn, tags)]
    action = "Stop" if "Stop" in document else "Terminate"
    tags = questions.tagged(questions.ec2_tags(region, resource))
    arn = f"arn:aws:ec2:{region}:{ACCOUNT}:instance/{resource}"
    # the steps between are AWS's runbooks'
    return [*(Request(a) for a in LOOKS), Request(f"ec2:{action}Instances", arn, tags)]


def may_start(region: str, starter: str, inputs: dict[str, Any]) -> str:
    """Ask whether a role may start an automation; return the role that its steps run with."""
    document = inputs["DocumentName"]
    if document not in STEPS:
        raise authority.Refused(f"AutomationDefinitionNotFoundException: {document}")
    asked = questions.automation(region, document)
    runs_as = (inputs.get("Parameters") or {}).get("AutomationAssumeRole", [""])[0]
    if runs_as:
        asked.append(questions.pass_role(runs_as, "ssm.amazonaws.com"))
    authority.act(starter, region, asked)
    if runs_as:
        authority.assume(runs_as, "ssm.amazonaws.com")
    return runs_as or starter


def start(region: str, starter: str, inputs: dict[str, Any], why: str) -> str:
    """Start an automation with a role's permissions and run it to its end; return a line for the
    log. Raises Refused if it may not even start, as AWS answers the caller then."""
    return run(region, may_start(region, starter, inputs), inputs, starter, why)


def run(region: str, role: str, inputs: dict[str, Any], starter: str, why: str) -> str:
    """Run the steps on every machine or address that the targets choose, and keep a record."""
    document, ids, done = inputs["DocumentName"], chosen(region, inputs), 0
    record: dict[str, Any] = {
        "AutomationExecutionId": str(uuid.uuid4()),
        "DocumentName": document,
        "AutomationExecutionStatus": "Success",
        "ExecutionStartTime": WORLD.now(),
        "ExecutionEndTime": WORLD.now(),
        "ExecutedBy": starter,
        "Targets": inputs.get("Targets") or [],
        "FailureMessage": "",
        "region": region,
        "resources": ids,
    }
    WORLD.executions.append(record)
    with guards.because(why):
        for one in ids:
            try:
                authority.act(role, region, needs(document, region, one))
                done += _do(document, region, one)
            except authority.Refused as refused:
                step = STEPS[document][0]
                record["AutomationExecutionStatus"] = "Failed"
                record["FailureMessage"] = f"Step {step} fails: {refused}"
    _mail(region, record)
    kind = "addresses" if "Release" in document else "machines"
    return f"{document}: {done} {kind}"


def _mail(region: str, record: dict[str, Any]) -> None:
    """Hand the end of an automation to EventBridge, whose rules mail through topics that let them.

    Source: Systems Manager guide, "Monitoring Automation with EventBridge": the event's detail has
    Definition and Status.
    """
    event = {
        "source": "aws.ssm",
        "detail-type": "EC2 Automation Execution Status-change Notification",
        "detail": {
            "Definition": record["DocumentName"],
            "Status": record["AutomationExecutionStatus"],
        },
    }
    topics = sns_backends[ACCOUNT][region]
    for rule in events_backends[ACCOUNT][region].list_rules()[0]:
        if rule.state != "ENABLED" or not rule.event_pattern.matches_event(event):
            continue
        for target in rule.targets:
            policy = json.loads(topics.get_topic(target["Arn"]).policy)
            services = [s for p in policy["Statement"] for s in p["Principal"].get("Service", [])]
            if "events.amazonaws.com" not in services or WORLD.unconfirmed:
                continue  # SNS refuses, and EventBridge says nothing
            for s in topics.list_subscriptions_by_topic(target["Arn"])[0]:
                WORLD.note("failure-mail", region=region, alarm=rule.name, to=s.endpoint)


def _do(document: str, region: str, one: str) -> int:
    ec2 = ec2_backends[ACCOUNT][region]
    if document == "AWS-ReleaseElasticIP":
        address = next((a for a in ec2.addresses if a.allocation_id == one), None)
        held = address is not None and address.instance
        if address is None or (held and address.instance.state != "terminated"):
            return 0  # AuthFailure or InvalidIPAddress.InUse: this step fails, others go on
        ec2.release_address(allocation_id=one)
        return 1
    machine = next(m for m in machines(region) if m.id == one)
    if "Stop" in document:
        if machine.state != "running":
            return 0
        machine.stop()
    elif machine.state not in ("terminated", "shutting-down"):
        machine.terminate()
    return 1


# ---- the API ----


def start_automation_execution(self: Any) -> str:
    """Start one as the caller; the server has asked already whether the caller may."""
    inputs = {k: self._get_param(k) for k in ("DocumentName", "Parameters", "Targets")}
    role = (inputs["Parameters"] or {}).get("AutomationAssumeRole", [""])[0]
    authority.assume(role, "ssm.amazonaws.com")
    run(self.region, role, inputs, "caller", "call")
    return json.dumps({"AutomationExecutionId": WORLD.executions[-1]["AutomationExecutionId"]})


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    hidden = ("region", "resources")
    return {
        k: v.timestamp() if hasattr(v, "timestamp") else v
        for k, v in record.items()
        if k not in hidden
    }


def describe_automation_executions(self: Any) -> str:
    """List executions, the newest first, with the filters that a class uses."""
    found = [r for r in WORLD.executions if r["region"] == self.region]
    for f in self._get_param("Filters") or []:
        key, values = f["Key"], f["Values"]
        if key == "DocumentNamePrefix":
            found = [r for r in found if any(r["DocumentName"].startswith(v) for v in values)]
        elif key == "StartTimeAfter":
            found = [r for r in found if r["ExecutionStartTime"] > moment(values[0])]
        elif key == "ExecutionStatus":
            found = [r for r in found if r["AutomationExecutionStatus"] in values]
        elif key == "ExecutionId":
            found = [r for r in found if r["AutomationExecutionId"] in values]
    shown = [_shown(r) for r in reversed(found)]
    return json.dumps({"AutomationExecutionMetadataList": shown[:50]})


def get_automation_execution(self: Any) -> str:
    """Return one execution."""
    wanted = self._get_param("AutomationExecutionId")
    (record,) = [r for r in WORLD.executions if r["AutomationExecutionId"] == wanted]
    return json.dumps({"AutomationExecution": _shown(record)})


def install() -> None:
    """Give moto's SSM what it lacks."""
    for f in (
        start_automation_execution,
        describe_automation_executions,
        get_automation_execution,
    ):
        setattr(SimpleSystemManagerResponse, f.__name__, f)
