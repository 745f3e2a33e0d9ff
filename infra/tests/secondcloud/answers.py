"""What ministack lacks, answered in its place: one entry a call, with the reason.

README.md shows this table; test_secondcloud.py compares the two, and fails when an answer is no
longer asked for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

REGIONS = ("us-east-1", "us-east-2", "us-west-2")
IMAGE = ("ami-0second0000000001", "Deep Learning AMI Neuron (Ubuntu 22.04) 20251120")
ZONES = "abc"
PRICE = "1.1100000000"  # not AWS's, so that a test can tell that it was read


Memory = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Call:
    """Hold what a request asks for, and what earlier ones left: automations, budget actions."""

    service: str
    region: str
    op: str
    params: dict[str, Any]
    memory: Memory = field(default_factory=dict)

    def kept(self, kind: str) -> list[dict[str, Any]]:
        """Return what earlier requests left of a kind; what is added to it stays."""
        return self.memory.setdefault(kind, [])


@dataclass(frozen=True)
class Reply:
    """Hold an answer in place of the emulator's."""

    body: bytes
    kind: str = "text/xml"
    status: int = 200


@dataclass(frozen=True)
class Answer:
    """Hold one answer: what is answered, why, and how; a reply of None passes the call on."""

    what: str
    reason: str
    reply: Callable[[Call], Reply | None]


def _json(value: Any) -> Reply:
    return Reply(json.dumps(value).encode(), "application/x-amz-json-1.1")


def _ec2(op: str, inner: str) -> Reply:
    xml = f'<{op}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{inner}</{op}Response>'
    return Reply(xml.encode())


def _regions(call: Call) -> Reply:
    items = "".join(
        f"<item><regionName>{r}</regionName><regionEndpoint>ec2.{r}.amazonaws.com"
        "</regionEndpoint><optInStatus>opt-in-not-required</optInStatus></item>"
        for r in REGIONS
    )
    return _ec2(call.op, f"<regionInfo>{items}</regionInfo>")


def _images(call: Call) -> Reply | None:
    asked = [str(v) for k, v in call.params.items() if k.startswith(("Filter", "ImageId"))]
    if not any(
        v.startswith("Deep Learning AMI Neuron (Ubuntu 22.04)") or v == IMAGE[0] for v in asked
    ):
        return None
    item = (
        f"<item><imageId>{IMAGE[0]}</imageId><name>{IMAGE[1]}</name>"
        "<imageState>available</imageState><rootDeviceName>/dev/sda1</rootDeviceName>"
        "<architecture>x86_64</architecture><creationDate>2025-11-20T00:00:00.000Z"
        "</creationDate></item>"
    )
    return _ec2(call.op, f"<imagesSet>{item}</imagesSet>")


def _offerings(call: Call) -> Reply:
    kind = call.params.get("Filter.1.Value.1", "trn1.2xlarge")
    items = "".join(
        f"<item><instanceType>{kind}</instanceType><locationType>availability-zone"
        f"</locationType><location>{call.region}{zone}</location></item>"
        for zone in ZONES
    )
    return _ec2(call.op, f"<instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>")


def _dry_run(call: Call) -> Reply | None:
    if call.params.get("DryRun", "").lower() != "true":
        return None
    xml = (
        "<Response><Errors><Error><Code>DryRunOperation</Code><Message>Request would have"
        " succeeded, but DryRun flag is set.</Message></Error></Errors></Response>"
    )
    return Reply(xml.encode(), status=412)


def _quota(call: Call) -> Reply:
    code = call.params.get("QuotaCode", "")
    return _json({"Quota": {"ServiceCode": "ec2", "QuotaCode": code, "Value": 64.0}})


def _products(call: Call) -> Reply:
    wanted = {f["Field"]: f["Value"] for f in call.params["Filters"]}
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": PRICE}}
    terms = {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": dimension}}}}
    item = {"product": {"attributes": wanted}, "serviceCode": "AmazonEC2", "terms": terms}
    return _json({"FormatVersion": "aws_v1", "PriceList": [json.dumps(item)]})


def _schedule(call: Call) -> None:
    """Keep the automation that a schedule asks for, as if it had run; the emulator makes the
    schedule."""
    target = call.params.get("Target", {})
    if target.get("Arn", "").endswith("ssm:startAutomationExecution"):
        wanted = json.loads(target["Input"])
        call.kept("automations").append(
            {
                "region": call.region,
                "AutomationExecutionId": f"second-{len(call.kept('automations')):04d}",
                "AutomationExecutionStatus": "Success",
                "DocumentName": wanted["DocumentName"],
                "ExecutionStartTime": time.time(),
                "Targets": wanted.get("Targets", []),
            }
        )


def _automations(call: Call) -> Reply:
    found = [a for a in call.kept("automations") if a["region"] == call.region]
    return _json({"AutomationExecutionMetadataList": found})


def _new_action(call: Call) -> Reply:
    number = f"00000000-0000-0000-0000-{len(call.kept('actions')):012d}"
    kept = ("BudgetName", "NotificationType", "ActionType", "ActionThreshold", "Definition")
    also = ("ExecutionRoleArn", "ApprovalModel", "Subscribers")
    action = {k: call.params[k] for k in (*kept, *also)}
    call.kept("actions").append({**action, "ActionId": number, "Status": "STANDBY"})
    answer = {k: call.params[k] for k in ("AccountId", "BudgetName")}
    return _json({**answer, "ActionId": number})


def _actions(call: Call) -> Reply:
    name = call.params.get("BudgetName")
    return _json({"Actions": [a for a in call.kept("actions") if name in (None, a["BudgetName"])]})


def _gone(call: Call) -> None:
    """Forget a budget's actions with the budget, as AWS does."""
    kept = call.kept("actions")
    kept[:] = [a for a in kept if a["BudgetName"] != call.params["BudgetName"]]


EC2, BUDGETS = "ec2", "budgets"
ANSWERS: dict[tuple[str, str], Answer] = {
    (EC2, "DescribeRegions"): Answer(
        f"{len(REGIONS)} regions",
        "it names 31, and one process answers for all: a teardown would take ten times as long",
        _regions,
    ),
    (EC2, "DescribeImages"): Answer(
        "one Neuron image, where one is asked for by name or id",
        "it has no public images, and starts a container from one that is registered",
        _images,
    ),
    (EC2, "DescribeInstanceTypeOfferings"): Answer(
        "the type, in three zones", "it lacks the call", _offerings
    ),
    (EC2, "RunInstances"): Answer(
        "`DryRunOperation`, where `DryRun` is true", "it launches the machine", _dry_run
    ),
    ("servicequotas", "GetServiceQuota"): Answer("64 vCPUs", "it lacks the service", _quota),
    ("pricing", "GetProducts"): Answer(
        f"${float(PRICE):g} an hour for the type asked for", "it lacks the service", _products
    ),
    ("ce", "ListCostAllocationTags"): Answer(
        "no tags", "it lacks the service", lambda _: _json({"CostAllocationTags": []})
    ),
    (BUDGETS, "CreateBudgetAction"): Answer(
        "an id; the action is kept", "it lacks budget actions", _new_action
    ),
    (BUDGETS, "DescribeBudgetActionsForAccount"): Answer(
        "the actions that were made", "it lacks budget actions", _actions
    ),
    (BUDGETS, "DescribeBudgetActionsForBudget"): Answer(
        "the actions that were made", "it lacks budget actions", _actions
    ),
    (BUDGETS, "DeleteBudget"): Answer(
        "passed on; the budget's actions are forgotten", "it lacks budget actions", _gone
    ),
    ("scheduler", "POST /schedules"): Answer(
        "passed on; the automation that the schedule asks for is kept",
        "its schedules start no automations",
        _schedule,
    ),
    ("ssm", "DescribeAutomationExecutions"): Answer(
        "one success for each schedule that was made", "it lacks the call", _automations
    ),
}
