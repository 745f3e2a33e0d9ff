"""The policies that staff need: what runs these commands, and the most that a role of ours can do.

A user who may make a role, write its policy and pass it to a service can do whatever that service
can: that is the account. So roles are made under a *permissions boundary*: IAM allows a role what
its policy and its boundary both allow. The printed policy lets roles be made and written with the
boundary only, and does not let the boundary be changed. Source: IAM user guide, "Permissions
boundaries for IAM entities", "Delegating responsibility to others using permissions boundaries".
"""

from __future__ import annotations

import json
from typing import Any

from ..aws.organisations import AGENT
from ..spec import ledger, tags

# Every action that bringing up, guarding and tearing down a class takes. doctor --policy prints it
# as a policy.
ACTIONS = {
    "ec2": [
        "Describe*",
        "GetConsoleOutput",
        "RunInstances",
        "StartInstances",
        "StopInstances",
        "TerminateInstances",
        "CreateTags",
        "DeleteTags",
        "CreateSecurityGroup",
        "AuthorizeSecurityGroupIngress",
        "RevokeSecurityGroupIngress",
        "DeleteSecurityGroup",
        "ImportKeyPair",
        "DeleteKeyPair",
        "CreateLaunchTemplate",
        "CreateLaunchTemplateVersion",
        "DeleteLaunchTemplate",
        "AllocateAddress",
        "AssociateAddress",
        "DisassociateAddress",
        "ReleaseAddress",
        "DeleteVolume",
        "DeleteSnapshot",
        "DeleteNetworkInterface",
        "CancelSpotInstanceRequests",
        "CreateCapacityReservation",
        "CancelCapacityReservation",
        "PurchaseCapacityBlock",
        "PurchaseCapacityBlockExtension",
    ],
    "iam": [
        "GetRole",
        "CreateRole",
        "DeleteRole",
        "TagRole",
        "UpdateAssumeRolePolicy",
        "GetRolePolicy",
        "PutRolePolicy",
        "DeleteRolePolicy",
        "ListRoles",
        "ListRoleTags",
        "ListRolePolicies",
        "ListAttachedRolePolicies",
        "DetachRolePolicy",
        "GetInstanceProfile",
        "CreateInstanceProfile",
        "TagInstanceProfile",
        "AddRoleToInstanceProfile",
        "RemoveRoleFromInstanceProfile",
        "DeleteInstanceProfile",
        "ListInstanceProfiles",
        "ListInstanceProfileTags",
        "PassRole",
        "PutRolePermissionsBoundary",
        "GetPolicy",
    ],
    "scheduler": [
        "GetSchedule",
        "ListSchedules",
        "CreateSchedule",
        "UpdateSchedule",
        "DeleteSchedule",
        "GetScheduleGroup",
        "ListScheduleGroups",
        "CreateScheduleGroup",
        "DeleteScheduleGroup",
        "TagResource",
        "ListTagsForResource",
    ],
    "cloudwatch": [
        "DescribeAlarms",
        "DescribeAlarmHistory",
        "PutMetricAlarm",
        "DeleteAlarms",
        "SetAlarmState",
        "GetMetricData",
        "TagResource",
        "ListTagsForResource",
    ],
    "budgets": [
        "ViewBudget",
        "ModifyBudget",
        "CreateBudgetAction",
        "DeleteBudgetAction",
        "DescribeBudgetActionsForBudget",
        "DescribeBudgetActionsForAccount",
        "ExecuteBudgetAction",
        "TagResource",
        "ListTagsForResource",
    ],
    "ssm": [
        "GetParameter",
        "GetParametersByPath",
        "PutParameter",
        "DeleteParameter",
        "AddTagsToResource",
        "DescribeAutomationExecutions",
        "GetAutomationExecution",
    ],
    "servicequotas": [
        "GetServiceQuota",
        "RequestServiceQuotaIncrease",
        "ListRequestedServiceQuotaChangeHistoryByQuota",
    ],
    "lambda": [
        "ListFunctions",
        "CreateFunction",
        "GetFunctionConfiguration",
        "UpdateFunctionCode",
        "UpdateFunctionConfiguration",
        "DeleteFunction",
        "ListTags",
        "TagResource",
        "GetPolicy",
        "AddPermission",
        "CreateFunctionUrlConfig",
        "GetFunctionUrlConfig",
        "GetFunctionConcurrency",
        "PutFunctionConcurrency",
    ],
    "s3": [
        "ListAllMyBuckets",
        "CreateBucket",
        "DeleteBucket",
        "ListBucket",
        "ListBucketVersions",
        "GetBucketLocation",
        "GetBucketTagging",
        "PutBucketTagging",
        "GetBucketVersioning",
        "PutBucketVersioning",
        "PutBucketPublicAccessBlock",
        "PutEncryptionConfiguration",
        "PutBucketPolicy",
        "PutLifecycleConfiguration",
        "GetObject",
        "GetObjectVersion",
        "PutObject",
        "DeleteObject",
        "DeleteObjectVersion",
    ],
    "pricing": ["GetProducts"],
    # By patterns, since a policy has room for 6,144 characters: of topics and rules that are named
    # as a class's, and of no others (BY_NAME).
    "sns": ["*Topic", "*TopicAttributes", "*ubscribe", "*Resource"],
    "events": ["*Rule", "*Targets", "*Resource"],
    "ses": ["GetAccount", "GetEmailIdentity"],
    "ce": ["ListCostAllocationTags"],
}


SERVICES = ("ec2", "scheduler", "ssm", "budgets", "lambda")  # what the class's roles are passed to
LINKED = ("events.amazonaws.com", "spot.amazonaws.com")  # alarms that stop, spot requests
EVERYWHERE = ("ListRoles", "ListInstanceProfiles")  # IAM knows these without a resource only
BOUNDARY = "trainium-labs.boundary"  # a managed policy that the account's owner makes once
BOUND = ("CreateRole", "PutRolePolicy", "PutRolePermissionsBoundary")  # with the boundary only
# What changes or ends things in EC2, or reads a machine's console: those that carry a class's tag
# only.
OURS_ONLY = (
    "GetConsoleOutput",
    "StartInstances",
    "StopInstances",
    "TerminateInstances",
    "DeleteTags",
    "AuthorizeSecurityGroupIngress",
    "RevokeSecurityGroupIngress",
    "DeleteSecurityGroup",
    "DeleteKeyPair",
    "CreateLaunchTemplateVersion",
    "DeleteLaunchTemplate",
    "ReleaseAddress",
    "DeleteVolume",
    "DeleteSnapshot",
    "DeleteNetworkInterface",
    "CancelSpotInstanceRequests",
    "CancelCapacityReservation",
)
# What changes or ends things elsewhere: those whose name says that they are a class's. Of the
# parameter store only what AWS publishes, and the ledgers of classes: everything else there may be
# secret.
LEDGER = f"arn:aws:ssm:*:*:parameter{ledger.ROOT}"
BY_NAME: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "scheduler": (
        (
            "CreateSchedule",
            "UpdateSchedule",
            "DeleteSchedule",
            "CreateScheduleGroup",
            "DeleteScheduleGroup",
            "TagResource",
        ),
        [f"arn:aws:scheduler:*:*:{k}/trainium-labs.*" for k in ("schedule", "schedule-group")],
    ),
    "cloudwatch": (
        ("PutMetricAlarm", "DeleteAlarms", "SetAlarmState", "TagResource"),
        ["arn:aws:cloudwatch:*:*:alarm:trainium-labs.*"],
    ),
    "budgets": (
        (
            "ModifyBudget",
            "CreateBudgetAction",
            "DeleteBudgetAction",
            "ExecuteBudgetAction",
            "TagResource",
        ),
        ["arn:aws:budgets::*:budget/trainium-labs.*"],
    ),
    "lambda": (
        tuple(a for a in ACTIONS["lambda"] if a != "ListFunctions"),
        ["arn:aws:lambda:*:*:function:trainium-labs_*"],
    ),
    "s3": (
        tuple(a for a in ACTIONS["s3"] if a != "ListAllMyBuckets"),
        ["arn:aws:s3:::trainium-labs--*"],
    ),
    "sns": (tuple(ACTIONS["sns"]), ["arn:aws:sns:*:*:trainium-labs_*"]),
    "events": (tuple(ACTIONS["events"]), ["arn:aws:events:*:*:rule/trainium-labs.*"]),
    "ssm": (
        (
            "GetParameter",
            "GetParametersByPath",
            "PutParameter",
            "DeleteParameter",
            "AddTagsToResource",
        ),
        ["arn:aws:ssm:*::parameter/aws/service/*", LEDGER, f"{LEDGER}/*"],
    ),
}
OURS = {"Null": {f"aws:ResourceTag/{tags.CLASS}": "false"}}
# What RunInstances may start: the machines that a class can ask for, and the drill's. A question
# about a disk or a card knows no type, and the purchase of a capacity block never does. (Service
# Authorization Reference, EC2)
TYPES = {"StringLikeIfExists": {"ec2:InstanceType": ["trn*", "inf*", "t3.nano"]}}
DOCUMENTS = ("AWS-StopEC2Instance", "AWS-TerminateEC2Instance", "AWS-ReleaseElasticIP")
MACHINES = "arn:aws:ec2:*:*:instance/*"
SSH_DOCUMENT = "arn:aws:ssm:*:*:document/AWS-StartSSHSession"
# Through an organisation's endpoint, which has no tag of a class, to port 22 only.
TUNNEL: tuple[str, str, dict[str, Any]] = (
    "ec2-instance-connect:OpenTunnel",
    "arn:aws:ec2:*:*:instance-connect-endpoint/*",
    {"NumericEquals": {"ec2-instance-connect:remotePort": "22"}},
)
LOOKS = [
    "ec2:DescribeInstances",
    "ec2:DescribeInstanceStatus",
    "ec2:DescribeAddresses",
    "tag:GetResources",
    "ssm:GetAutomationExecution",
]


def policy(theirs: str = "") -> dict[str, Any]:
    """Return the policy that a user of these commands needs. It changes and ends what is named
    trainium-labs.* or, in EC2, what carries a class's tag; roles with the boundary only: ours, or
    that of an organisation by its ARN."""
    names = ("role", "instance-profile")
    class_roles = [f"arn:aws:iam::*:{kind}/trainium-labs.*" for kind in names]
    scoped = {"ec2:CreateTags", *(f"ec2:{a}" for a in OURS_ONLY)}
    typed = {"ec2:RunInstances"}
    rest = {f"{s}:{a}" for s, actions in ACTIONS.items() if s != "iam" for a in actions}
    named = {s: [f"{s}:{a}" for a in actions] for s, (actions, _) in BY_NAME.items()}
    alone = (*EVERYWHERE, *BOUND, "PassRole", "GetPolicy")
    iam = [f"iam:{a}" for a in ACTIONS["iam"] if a not in alone]
    boundary = theirs or boundary_arn("*")
    passed = {"StringEquals": {"iam:PassedToService": [f"{s}.amazonaws.com" for s in SERVICES]}}
    linked = {"StringEquals": {"iam:AWSServiceName": list(LINKED)}}
    aws = "arn:aws:iam::*:role/aws-service-role/*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            _allow(
                sorted(rest - scoped - typed - {a for group in named.values() for a in group})
                + [f"iam:{a}" for a in EVERYWHERE],
                "*",
            ),
            *(_allow(actions, BY_NAME[s][1]) for s, actions in named.items()),
            _allow(sorted(scoped), "*", OURS),
            _allow(sorted(typed), "*", TYPES),
            # SSH to machines without a public address; nothing else of Session Manager.
            _allow("ssm:StartSession", MACHINES, OURS),
            _allow("ssm:StartSession", SSH_DOCUMENT),
            _allow(*TUNNEL),
            # The rules of a group have no tag of their own; the group itself is asked about, too.
            _allow(
                ["ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress"],
                "arn:aws:ec2:*:*:security-group-rule/*",
            ),
            # Tags are given to what is being made; else anything could be called a class's.
            _allow("ec2:CreateTags", "*", {"Null": {"ec2:CreateAction": "false"}}),
            _allow(sorted(iam), class_roles),
            _allow(
                [f"iam:{a}" for a in BOUND],
                class_roles[0],
                {"StringLike": {"iam:PermissionsBoundary": boundary}},
            ),
            _allow("iam:GetPolicy", boundary),
            _allow("iam:PassRole", class_roles[0], passed),
            # The first alarm that stops a machine, and the first spot request, make AWS's own role.
            _allow("iam:CreateServiceLinkedRole", aws, linked),
        ],
    }


def boundary_arn(account: str) -> str:
    """Return the ARN of the permissions boundary in an account."""
    return f"arn:aws:iam::{account}:policy/{BOUNDARY}"


def boundary() -> dict[str, Any]:
    """Return the most that any role of ours can do: what guards and functions of classes do."""
    role = "arn:aws:iam::*:role/trainium-labs.*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            *guarding(OURS, "*", role, "trainium-labs.*", "trainium-labs_*"),
            *serving(OURS, "*", "trainium-labs.", "*"),
            *copying("*", "trainium-labs--*"),
            *sessions(),
        ],
    }


def student(name: str) -> dict[str, Any]:
    """Return the policy of students who sign in to the account (IAM users, or Identity Center with
    an attribute), for an account that forbids Lambda: the machine whose owner is their tag
    `trainium-labs:owner`, by EC2 Instance Connect, or by Session Manager where the account has
    Default Host Management Configuration (the machines' own role may not). It knows no caps."""
    of_student = {
        f"aws:ResourceTag/{tags.CLASS}": name,
        f"aws:ResourceTag/{tags.OWNER}": f"${{aws:PrincipalTag/{tags.OWNER}}}",
    }
    armed = {**of_student, f"aws:ResourceTag/{tags.GUARD}": tags.ARMED}
    machine = "arn:aws:ec2:*:*:instance/*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            _allow("ec2:DescribeInstances", "*"),
            _allow("ec2:StartInstances", machine, {"StringEquals": armed}),
            _allow(
                ["ec2:StopInstances", "ec2-instance-connect:SendSSHPublicKey", "ssm:StartSession"],
                machine,
                {"StringEquals": of_student},
            ),
            _allow("ssm:StartSession", SSH_DOCUMENT),
            _allow(*TUNNEL),
            _allow(
                ["ssm:TerminateSession", "ssm:ResumeSession"],
                "arn:aws:ssm:*:*:session/${aws:userid}-*",
            ),
        ],
    }


READS = ("Describe", "Get", "List", "View")
# What reads more than a class's state: consoles, the key of links, students' work
SECRETS = {
    "ec2": ("GetConsoleOutput",),
    "lambda": ("GetFunctionConfiguration",),
    "s3": ("GetObject", "GetObjectVersion"),
}


def assistant(name: str, sections: list[str]) -> dict[str, Any]:
    """Return the policy of a teaching assistant: sees the class (`status`, `report`, `cost`), stops
    and starts the machines of some sections (all, without any), changes and deletes nothing else,
    and reads neither students' work nor the key of their links."""
    reads = [
        f"{s}:{a}"
        for s, actions in ACTIONS.items()
        for a in actions
        if a.startswith(READS) and a not in SECRETS.get(s, ()) and s != "ssm"
    ]
    of_class: dict[str, Any] = {f"aws:ResourceTag/{tags.CLASS}": name}
    if sections:
        of_class[f"aws:ResourceTag/{tags.SECTION}"] = sections
    armed = {**of_class, f"aws:ResourceTag/{tags.GUARD}": tags.ARMED}
    machine = "arn:aws:ec2:*:*:instance/*"
    return {
        "Version": "2012-10-17",
        "Statement": [
            _allow([*reads, "ssm:DescribeAutomationExecutions"], "*"),
            _allow("ssm:GetParametersByPath", f"{LEDGER}/{name}"),
            _allow("ec2:StopInstances", machine, {"StringEquals": of_class}),
            _allow("ec2:StartInstances", machine, {"StringEquals": armed}),
        ],
    }


def printed(theirs: str = "") -> dict[str, Any]:
    """Return both policies as `doctor --policy` shows them; `theirs`: `boundary:` of class.yml."""
    person, most = policy(theirs), boundary()
    first = (
        f"1. The account's owner makes this managed policy once, named {BOUNDARY}: no role that"
        " the commands make can ever do more."
    )
    if theirs:
        first = (
            f"1. The roles are made under your organisation's boundary {theirs}, which must allow"
            " at least this (IAM takes one boundary for a role, so it is instead of ours)."
        )
    attach = (
        "2. And attaches this policy to the users who run the commands. It makes roles under the"
        " boundary only."
    )
    return {
        "lines": [first, json.dumps(most, indent=1), attach, json.dumps(person, indent=1)],
        "policy": person,
        "boundary": most,
    }


def guarding(
    of_class: dict[str, Any], account: str, role: str, alarms: str, function: str = ""
) -> list[dict[str, Any]]:
    """Return the statements that guards need: stop, end and release what fits the condition
    `of_class`, set alarms of that name, start AWS's documents with that role, call the class's
    function if it has one; nothing else."""
    called = f"arn:aws:lambda:*:{account}:function:{function}"
    return [
        *([_allow("lambda:InvokeFunction", called)] if function else []),
        _allow(
            ["ec2:StopInstances", "ec2:TerminateInstances", "ec2:ReleaseAddress"], "*", of_class
        ),
        _allow(LOOKS, "*"),
        _allow("cloudwatch:SetAlarmState", f"arn:aws:cloudwatch:*:{account}:alarm:{alarms}"),
        # AWS asks about the runbook under both of its names, and about the execution; with one
        # of the three missing every schedule and the budget's stop are refused, silently.
        _allow(
            "ssm:StartAutomationExecution",
            [
                *(f"arn:aws:ssm:*:*:automation-definition/{d}:*" for d in DOCUMENTS),
                *(f"arn:aws:ssm:*:*:document/{d}" for d in DOCUMENTS),
                f"arn:aws:ssm:*:{account}:automation-execution/*",
            ],
        ),
        _allow(
            "iam:PassRole", role, {"StringEquals": {"iam:PassedToService": "ssm.amazonaws.com"}}
        ),
    ]


def serving(
    of_class: dict[str, Any], account: str, prefix: str, sender: str
) -> list[dict[str, Any]]:
    """Return the statements that the students' function needs; `of_class` says which machines."""
    armed = {f"aws:ResourceTag/{tags.GUARD}": tags.ARMED}
    written = {"ForAllValues:StringEquals": {"aws:TagKeys": [tags.ACTED, tags.ASKS, tags.UNMAILED]}}
    both = {**of_class, "StringEquals": {**of_class.get("StringEquals", {}), **armed}}
    out = [
        _allow(["ec2:DescribeInstances", "cloudwatch:GetMetricData"], "*"),
        _allow("ec2:StartInstances", "*", both),
        _allow("ec2:StopInstances", "*", of_class),
        _allow("ec2:CreateTags", f"arn:aws:ec2:*:{account}:instance/*", {**of_class, **written}),
        _allow("budgets:ViewBudget", f"arn:aws:budgets::{account}:budget/{prefix}*"),
    ]
    if sender:
        from_ = {"StringLike": {"ses:FromAddress": sender}}
        out.append(_allow("ses:SendEmail", f"arn:aws:ses:*:{account}:identity/*", from_))
    return out


def copying(account: str, bucket: str) -> list[dict[str, Any]]:
    """Return the statement of machines that copy their students' work: below their own prefix,
    and nothing is deleted."""
    folder = f"arn:aws:s3:::{bucket}/machines/${{aws:userid}}/*"
    same = {"StringEquals": {"s3:ResourceAccount": account}} if account != "*" else None
    return [_allow(["s3:PutObject", "s3:GetObject"], folder, same)]


def sessions() -> list[dict[str, Any]]:
    """Return the statement of machines that are reached through Session Manager: what their agent
    needs to open a session, and nothing else of Systems Manager."""
    return [_allow(AGENT, "*")]


def _allow(action: list[str] | str, resource: list[str] | str, condition: Any = None) -> dict:
    statement = {"Effect": "Allow", "Action": action, "Resource": resource}
    return {**statement, "Condition": condition} if condition else statement
