"""Which questions AWS asks IAM about a call: actions, resources and condition keys.

Source: Service Authorization Reference, the tables "Actions defined by ..." of EC2, IAM,
EventBridge Scheduler, CloudWatch, Budgets and Systems Manager. A call may ask several questions,
and every one must be allowed: tags on creation ask for CreateTags or TagResource, and a role that
is handed to a service asks for iam:PassRole.
"""

from __future__ import annotations

import json
import re
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends

from . import functions, storage
from .iam import Request
from .world import ACCOUNT, WORLD

# Signing name -> prefix of the actions.
PREFIX = {"monitoring": "cloudwatch"}
RENAMED = {
    "budgets:DescribeBudgets": "ViewBudget",
    "budgets:DescribeBudget": "ViewBudget",
    "budgets:DescribeNotificationsForBudget": "ViewBudget",
    "budgets:DescribeSubscribersForNotification": "ViewBudget",
    "budgets:CreateBudget": "ModifyBudget",
    "budgets:UpdateBudget": "ModifyBudget",
    "budgets:DeleteBudget": "ModifyBudget",
    "budgets:CreateSubscriber": "ModifyBudget",
    "budgets:DeleteSubscriber": "ModifyBudget",
    "budgets:UpdateSubscriber": "ModifyBudget",
}
# EC2 parameter -> kind of the resource that it names. (Resource types of the EC2 table.)
EC2_IDS = {
    "InstanceId": "instance",
    "GroupId": "security-group",
    "KeyName": "key-pair",
    "AllocationId": "elastic-ip",
    "VolumeId": "volume",
    "SnapshotId": "snapshot",
    "NetworkInterfaceId": "network-interface",
    "SpotInstanceRequestId": "spot-instances-request",
    "CapacityReservationId": "capacity-reservation",
    "LaunchTemplateId": "launch-template",
    "LaunchTemplateName": "launch-template",
}
EC2_NEW = {
    "CreateSecurityGroup": "security-group",
    "ImportKeyPair": "key-pair",
    "CreateLaunchTemplate": "launch-template",
    "AllocateAddress": "elastic-ip",
    "PurchaseCapacityBlock": "capacity-reservation",
    "CreateCapacityReservation": "capacity-reservation",
}
KINDS = {  # the beginning of an id says what it is
    "i": "instance",
    "vol": "volume",
    "eni": "network-interface",
    "sg": "security-group",
    "eipalloc": "elastic-ip",
    "lt": "launch-template",
    "key": "key-pair",
    "snap": "snapshot",
    "sir": "spot-instances-request",
    "cr": "capacity-reservation",
}


def ec2_tags(region: str, resource: str) -> dict[str, str]:
    """Return the tags of an EC2 resource by its id, or by the name that calls know it by."""
    ec2 = ec2_backends[ACCOUNT][region]
    if request := WORLD.spot.get(resource) or WORLD.blocks.get(resource):
        return {t["Key"]: t["Value"] for t in request["Tags"]}
    named = [k.id for k in ec2.key_pairs.values() if k.key_name == resource]
    named += [t.id for t in ec2.launch_templates.values() if t.name == resource]
    return dict(ec2.tags.get((named or [resource])[0], {}))


def tagged(tags: dict[str, str], kind: str = "Resource") -> dict[str, Any]:
    """Return the condition keys that tags give."""
    keys: dict[str, Any] = {f"aws:{kind}Tag/{k}": v for k, v in tags.items()}
    if kind == "Request":
        keys["aws:TagKeys"] = list(tags)
    return keys


def _pairs(params: dict[str, Any]) -> dict[str, str]:
    """Return the tags that a call carries, whichever way its protocol writes them."""
    out: dict[str, str] = {}
    for key, value in params.items():
        if match := re.fullmatch(r"(.*Tags?\.(?:member\.)?\d+)\.Key", key):
            out[value] = str(params.get(f"{match[1]}.Value", ""))
    for name in ("Tags", "ResourceTags"):
        if isinstance(params.get(name), list):
            out.update({t["Key"]: t.get("Value", "") for t in params[name]})
    return out


def _tags_by_kind(params: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return kind -> tags of a call's TagSpecifications: a rule that demands a tag asks it of each
    kind of resource (Service Authorization Reference, EC2: aws:RequestTag by resource type)."""
    out: dict[str, dict[str, str]] = {}
    for key, kind in params.items():
        if match := re.fullmatch(r"(TagSpecifications?\.\d+)\.ResourceType", key):
            pairs = {k: v for k, v in params.items() if k.startswith(match[1] + ".")}
            out.setdefault(kind, {}).update(_pairs(pairs))
    return out


def _public(params: dict[str, Any]) -> bool:
    """Say whether a launch asks for a public address; a default subnet gives one by itself."""
    said = next((v for k, v in params.items() if k.endswith(".AssociatePublicIpAddress")), "true")
    return str(said).lower() == "true"


def _ec2(region: str, op: str, params: dict[str, Any]) -> list[Request]:
    if op.startswith("Describe"):
        return [Request(f"ec2:{op}", "*", {"ec2:Region": region})]

    def arn(kind: str, name: str) -> str:
        return f"arn:aws:ec2:{region}:{ACCOUNT}:{kind}/{name}"

    named: list[tuple[str, str]] = []
    for key, value in params.items():
        base = key.split(".")[0]
        if base in EC2_IDS and key.count(".") <= 1:
            named.append((EC2_IDS[base], value))
        elif base == "ResourceId":
            named.append((KINDS.get(value.split("-")[0], "instance"), value))
    if op in EC2_NEW:
        named = [(EC2_NEW[op], params.get("KeyName") or "*")]
    if op == "RunInstances":
        named = [(k, "*") for k in ("instance", "volume", "network-interface", "launch-template")]
        named += [("subnet", "*"), ("security-group", "*"), ("key-pair", "*"), ("image", "*")]
    new = _pairs(params) if any(k.startswith("TagSpec") for k in params) else {}
    by_kind = _tags_by_kind(params)
    out = []
    for kind, name in named or [("*", "*")]:
        keys = {"ec2:Region": region, **tagged(ec2_tags(region, name))}
        if op in ("CreateTags", "DeleteTags"):
            keys |= tagged(_pairs(params), "Request")
        elif name == "*" and by_kind.get(kind):
            keys |= tagged(by_kind[kind], "Request")
        if op == "RunInstances" and kind == "network-interface":
            keys["ec2:AssociatePublicIpAddress"] = _public(params)
        if op == "RunInstances" and kind == "instance":
            template = _template(region, params)
            keys["ec2:InstanceType"] = params.get("InstanceType") or template.get(
                "InstanceType", "m1.small"
            )
        out.append(Request(f"ec2:{op}", "*" if kind == "*" else arn(kind, name), keys))
    if new:
        keys = {"ec2:CreateAction": op, "ec2:Region": region, **tagged(new, "Request")}
        out += [Request("ec2:CreateTags", arn(kind, "*"), keys) for kind in sorted(by_kind)]
    if op.endswith("SecurityGroupIngress"):
        out.append(Request(f"ec2:{op}", arn("security-group-rule", "*"), {"ec2:Region": region}))
    if op == "RunInstances":
        out += _launching(region, params)
    return out


def _template(region: str, params: dict[str, Any]) -> dict[str, Any]:
    name = params.get("LaunchTemplate.LaunchTemplateName")
    for template in ec2_backends[ACCOUNT][region].launch_templates.values():
        if template.name == name:
            version = params.get("LaunchTemplate.Version", "$Default")
            try:
                return template.get_version(version).data
            except Exception:
                return {}
    return {}


def _launching(region: str, params: dict[str, Any]) -> list[Request]:
    """Return what RunInstances asks besides: the machines' role, and the role of spot."""
    out, data = [], _template(region, params)
    profile = (data.get("IamInstanceProfile") or {}).get("Name")
    if profile:
        out.append(pass_role(f"arn:aws:iam::{ACCOUNT}:role/{profile}", "ec2.amazonaws.com"))
    if (data.get("InstanceMarketOptions") or {}).get("MarketType") == "spot":
        out += linked_role("AWSServiceRoleForEC2Spot", "spot.amazonaws.com")
    return out


def pass_role(role: str, service: str) -> Request:
    """Return the question whether a role may be handed to a service."""
    return Request("iam:PassRole", role, {"iam:PassedToService": service})


def linked_role(name: str, service: str) -> list[Request]:
    """Return the question that the first use of a service-linked role asks; [] once it is there."""
    iam = iam_backends[ACCOUNT]["aws"]
    if any(r.name == name for r in iam.roles.values()):
        return []
    arn = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{service}/{name}"
    return [Request("iam:CreateServiceLinkedRole", arn, {"iam:AWSServiceName": service})]


def _iam(op: str, params: dict[str, Any]) -> list[Request]:
    kind, name = (
        ("instance-profile", params["InstanceProfileName"])
        if "InstanceProfileName" in params
        else ("role", params.get("RoleName", "*"))
    )
    arn = f"arn:aws:iam::{ACCOUNT}:{kind}/{name}" if name != "*" else "*"
    keys = tagged(_pairs(params), "Request") if op.startswith(("Create", "Tag")) else {}
    if "PolicyArn" in params and op in ("GetPolicy", "CreatePolicyVersion", "DeletePolicy"):
        arn = params["PolicyArn"]
    bound = _bound(op, params)
    out = [Request(f"iam:{op}", arn, {**keys, **bound})]
    if op in ("CreateRole", "CreateInstanceProfile") and keys:
        tag = "iam:TagRole" if kind == "role" else "iam:TagInstanceProfile"
        out.append(Request(tag, arn, keys))
    if op == "AddRoleToInstanceProfile":
        role = f"arn:aws:iam::{ACCOUNT}:role/{params.get('RoleName')}"
        out.append(pass_role(role, "ec2.amazonaws.com"))
    return out


def _bound(op: str, params: dict[str, Any]) -> dict[str, str]:
    """Return the condition key iam:PermissionsBoundary of a call: the boundary that it sets, or
    that the role has. (Service Authorization Reference, IAM: the actions that know the key.)"""
    if op in ("CreateRole", "PutRolePermissionsBoundary"):
        limit = params.get("PermissionsBoundary")
    elif op in (
        "PutRolePolicy",
        "AttachRolePolicy",
        "DeleteRolePolicy",
        "DetachRolePolicy",
        "DeleteRolePermissionsBoundary",
    ):
        roles = iam_backends[ACCOUNT]["aws"].roles.values()
        limit = next(
            (r.permissions_boundary_arn for r in roles if r.name == params.get("RoleName")), None
        )
    else:
        limit = None
    return {"iam:PermissionsBoundary": limit} if limit else {}


def _scheduler(region: str, op: str, params: dict[str, Any]) -> list[Request]:
    base = f"arn:aws:scheduler:{region}:{ACCOUNT}"
    name = params.get("path", "").rsplit("/", 1)[-1]
    group = params.get("GroupName") or params.get("groupName") or "default"
    if op.startswith("List") and op != "ListTagsForResource":
        return [Request(f"scheduler:{op}", f"{base}:*/*")]
    of_group = "Group" in op or "Tag" in op
    arn = f"{base}:schedule-group/{name}" if of_group else f"{base}:schedule/{group}/{name}"
    out = [Request(f"scheduler:{op}", arn)]
    if op == "CreateScheduleGroup" and params.get("Tags"):
        out.append(Request("scheduler:TagResource", arn, tagged(_pairs(params), "Request")))
    if op in ("CreateSchedule", "UpdateSchedule"):
        out.append(pass_role(params["Target"]["RoleArn"], "scheduler.amazonaws.com"))
    return out


def _cloudwatch(region: str, op: str, params: dict[str, Any]) -> list[Request]:
    base = f"arn:aws:cloudwatch:{region}:{ACCOUNT}:alarm:"
    names = [v for k, v in params.items() if re.match(r"AlarmNames?(\.|$)", k)]
    flat = [n for v in names for n in (v if isinstance(v, list) else [v])]
    if op in ("GetMetricData", "DescribeAlarms", "DescribeAlarmHistory"):
        return [Request(f"cloudwatch:{op}", "*")]
    if params.get("ResourceARN"):
        return [Request(f"cloudwatch:{op}", params["ResourceARN"])]
    out = [Request(f"cloudwatch:{op}", base + n) for n in flat or ["*"]]
    if op == "PutMetricAlarm":
        old = cloudwatch_backends[ACCOUNT][region].alarms
        if _pairs(params) and flat and flat[0] not in old:
            keys = tagged(_pairs(params), "Request")
            out.append(Request("cloudwatch:TagResource", base + flat[0], keys))
        if "ec2:stop" in json.dumps(params):
            # CloudWatch guide, "Create alarms to stop ... an EC2 instance": the first such alarm
            # needs the role AWSServiceRoleForCloudWatchEvents.
            out += linked_role("AWSServiceRoleForCloudWatchEvents", "events.amazonaws.com")
    return out


def _budgets(op: str, params: dict[str, Any]) -> list[Request]:
    name = params.get("BudgetName") or (params.get("Budget") or params.get("NewBudget") or {}).get(
        "BudgetName", "*"
    )
    arn = params.get("ResourceARN") or f"arn:aws:budgets::{ACCOUNT}:budget/{name}"
    action = RENAMED.get(f"budgets:{op}", op)
    if "BudgetAction" in op:
        arn += "/action/" + params.get("ActionId", "*")
    out = [Request(f"budgets:{action}", arn)]
    if params.get("ResourceTags"):
        out.append(Request("budgets:TagResource", arn, tagged(_pairs(params), "Request")))
    if op in ("CreateBudgetAction", "UpdateBudgetAction") and "ExecutionRoleArn" in params:
        out.append(pass_role(params["ExecutionRoleArn"], "budgets.amazonaws.com"))
    return out


def automation(region: str, document: str) -> list[Request]:
    """Return what StartAutomationExecution asks: the runbook under both of its names, and the
    execution.

    Source: Systems Manager guide, "Identity-based policy examples", and the managed policy
    AWSBudgetsActions_RolePolicyForResourceAdministrationWithSSM: definition, document, execution.
    """
    base = f"arn:aws:ssm:{region}"
    names = (
        f"{base}::automation-definition/{document}:$DEFAULT",
        f"{base}::document/{document}",
        f"{base}:{ACCOUNT}:automation-execution/*",
    )
    return [Request("ssm:StartAutomationExecution", name) for name in names]


def _ssm(region: str, op: str, params: dict[str, Any]) -> list[Request]:
    if op == "StartAutomationExecution":
        out = automation(region, params["DocumentName"])
        for role in (params.get("Parameters") or {}).get("AutomationAssumeRole", []):
            out.append(pass_role(role, "ssm.amazonaws.com"))
        return out
    if op == "GetParameter":
        return [Request("ssm:GetParameter", f"arn:aws:ssm:{region}::parameter{params['Name']}")]
    if "Parameter" in op:
        named = params.get("Name") or params["Path"]
        arn = f"arn:aws:ssm:{region}:{ACCOUNT}:parameter{named}"
        tagged = [Request("ssm:AddTagsToResource", arn)] if params.get("Tags") else []
        return [Request(f"ssm:{op}", arn), *tagged]
    return [Request(f"ssm:{op}", f"arn:aws:ssm:{region}:{ACCOUNT}:automation-execution/*")]


def _sns(region: str, op: str, params: dict[str, Any]) -> list[Request]:
    name = params.get("TopicArn") or params.get("ResourceArn") or params.get("SubscriptionArn")
    topic = ":".join((name or f"arn:aws:sns:{region}:{ACCOUNT}:{params['Name']}").split(":")[:6])
    tagged = (
        [Request("sns:TagResource", topic)] if any(k.startswith("Tags.") for k in params) else []
    )
    return [Request(f"sns:{op}", topic), *tagged]


def _events(region: str, op: str, params: dict[str, Any]) -> list[Request]:
    name = params.get("Name") or params.get("Rule") or params["ResourceARN"].split("/")[-1]
    rule = f"arn:aws:events:{region}:{ACCOUNT}:rule/{name}"
    tagged = [Request("events:TagResource", rule)] if params.get("Tags") else []
    return [Request(f"events:{op}", rule), *tagged]


def asked(service: str, region: str, op: str, params: dict[str, Any]) -> list[Request]:
    """Return every question that a call asks."""
    if service == "sts":
        return []  # GetCallerIdentity needs no permission
    rooms = {
        "ec2": lambda: _ec2(region, op, params),
        "iam": lambda: _iam(op, params),
        "scheduler": lambda: _scheduler(region, op, params),
        "monitoring": lambda: _cloudwatch(region, op, params),
        "budgets": lambda: _budgets(op, params),
        "ssm": lambda: _ssm(region, op, params),
        "events": lambda: _events(region, op, params),
        "sns": lambda: _sns(region, op, params),
        "lambda": lambda: functions.asked(region, op, params),
        "s3": lambda: storage.asked(op, params),
        "ses": lambda: functions.mailed(region, op, params),
    }
    if service in rooms:
        return rooms[service]()
    return [Request(f"{PREFIX.get(service, service)}:{op}", "*")]
