"""The fake decides as AWS documents it: examples of the IAM user guide as a table."""

from __future__ import annotations

from typing import Any

import pytest

from labcloud.iam import Request, evaluate, trusts

ALL = {"Effect": "Allow", "Action": "*", "Resource": "*"}


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    """Return a policy of statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    """Return a statement that allows."""
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def deny(action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    """Return a statement that denies."""
    return {"Effect": "Deny", "Action": action, "Resource": resource, **more}


def when(operator: str, key: str, value: Any) -> dict[str, Any]:
    """Return a statement that allows everything under a condition."""
    return allow("*", Condition={operator: {key: value}})


def unless(operator: str, key: str, value: Any) -> list[dict[str, Any]]:
    """Return statements that allow everything, and deny it under a condition."""
    return [ALL, deny("*", Condition={operator: {key: value}})]


STOP, ARN = "ec2:StopInstances", "arn:aws:ec2:us-east-1:123456789012:instance/i-1"
REGION, EU = "aws:RequestedRegion", ["eu-central-1", "eu-west-1"]
MFA, TOKEN, AGE = "aws:MultiFactorAuthPresent", "aws:TokenIssueTime", "aws:MultiFactorAuthAge"
TAG, KEYS, NOW = "aws:ResourceTag/a", "aws:TagKeys", "aws:CurrentTime"
OWNER, NAME = "aws:ResourceTag/Owner", "aws:username"
OWN = [when("StringEquals", OWNER, "${aws:username}")]
TWO_KEYS = {"StringEquals": {TAG: "x", "aws:ResourceTag/b": "y"}}
TWO_OPERATORS = {"Bool": {MFA: "true"}, "StringEquals": {TAG: "x"}}
ALL_OF, ANY_OF = "ForAllValues:StringEquals", "ForAnyValue:StringEquals"
# what the guide says: statements, context, verdict; of a call that stops a machine
EXAMPLES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "by default, all requests are denied": ([], {}, "implicitDeny"),
    "an explicit allow overrides it": ([allow(STOP)], {}, "allowed"),
    "an explicit deny overrides any allow": ([ALL, deny("ec2:*")], {}, "explicitDeny"),
    "actions ignore case": ([allow("EC2:stopinstances")], {}, "allowed"),
    "? is one character": ([allow("ec2:Stop?nstances")], {}, "allowed"),
    "resources do not ignore case": ([allow(STOP, ARN.upper())], {}, "implicitDeny"),
    "brackets are no wildcard": ([allow(STOP, ARN[:-1] + "[1]")], {}, "implicitDeny"),
    "NotAction matches everything else": (
        [{"Effect": "Deny", "NotAction": "iam:*", "Resource": "*"}, ALL],
        {},
        "explicitDeny",
    ),
    "NotResource matches everything else": (
        [{"Effect": "Allow", "Action": "*", "NotResource": ARN}],
        {},
        "implicitDeny",
    ),
    "deny by region: there": (
        unless("StringNotEquals", REGION, EU),
        {REGION: "eu-west-1"},
        "allowed",
    ),
    "deny by region: elsewhere": (
        unless("StringNotEquals", REGION, EU),
        {REGION: "us-east-1"},
        "explicitDeny",
    ),
    "a missing key does not match": ([when("Bool", MFA, "true")], {}, "implicitDeny"),
    "a missing key matches a negated operator": (
        unless("StringNotEquals", REGION, EU),
        {},
        "explicitDeny",
    ),
    "IfExists: a missing key matches": (unless("BoolIfExists", MFA, "false"), {}, "explicitDeny"),
    "IfExists: a present key is compared": (
        unless("BoolIfExists", MFA, "false"),
        {MFA: True},
        "allowed",
    ),
    "Null true: the key must be missing": (unless("Null", TOKEN, "true"), {}, "explicitDeny"),
    "Null false: the key must be there": (unless("Null", TOKEN, "false"), {}, "allowed"),
    "several values of a key are ORed": (
        [when("StringEquals", TAG, ["x", "y"])],
        {TAG: "y"},
        "allowed",
    ),
    "several keys of an operator are ANDed": (
        [allow("*", Condition=TWO_KEYS)],
        {TAG: "x"},
        "implicitDeny",
    ),
    "several operators are ANDed": (
        [allow("*", Condition=TWO_OPERATORS)],
        {TAG: "x"},
        "implicitDeny",
    ),
    "the key's name ignores case, the tag's does not": (
        [when("StringEquals", "AWS:resourceTAG/a", "x")],
        {TAG: "x"},
        "allowed",
    ),
    "the tag's name counts": (
        [when("StringEquals", "aws:ResourceTag/A", "x")],
        {TAG: "x"},
        "implicitDeny",
    ),
    "StringEquals knows no wildcard": (
        [when("StringEquals", TAG, "x*")],
        {TAG: "xy"},
        "implicitDeny",
    ),
    "StringLike does": ([when("StringLike", TAG, "x*")], {TAG: "xy"}, "allowed"),
    "a policy variable is replaced: own": (OWN, {NAME: "ann", OWNER: "ann"}, "allowed"),
    "a policy variable is replaced: another's": (OWN, {NAME: "ann", OWNER: "bob"}, "implicitDeny"),
    "a variable without a value matches nothing": (OWN, {OWNER: "bob"}, "implicitDeny"),
    "ForAllValues: each value must be in the list": (
        [when(ALL_OF, KEYS, ["a", "b"])],
        {KEYS: ["a", "c"]},
        "implicitDeny",
    ),
    "ForAllValues is true without a key": ([when(ALL_OF, KEYS, ["a"])], {}, "allowed"),
    "ForAnyValue: one value is enough": (
        [when(ANY_OF, KEYS, ["a"])],
        {KEYS: ["a", "c"]},
        "allowed",
    ),
    "ForAnyValue is false without a key": ([when(ANY_OF, KEYS, ["a"])], {}, "implicitDeny"),
    "a role is passed to one service only": (
        [when("StringEquals", "iam:PassedToService", "x")],
        {"iam:PassedToService": "ec2.amazonaws.com"},
        "implicitDeny",
    ),
    "an ARN's parts are compared one by one": (
        [when("ArnLike", "aws:SourceArn", "arn:aws:ec2:*:i-1")],
        {"aws:SourceArn": ARN},
        "implicitDeny",
    ),
    "numbers": ([when("NumericLessThan", AGE, "300")], {AGE: 299}, "allowed"),
    "dates": (
        [when("DateLessThan", NOW, "2027-01-01T00:00:00Z")],
        {NOW: "2026-11-21T12:00:00Z"},
        "allowed",
    ),
}


@pytest.mark.parametrize("said", EXAMPLES)
def test_the_examples_of_the_guide(said: str) -> None:
    statements, context, verdict = EXAMPLES[said]
    found = evaluate(Request(STOP, ARN, context), [policy(*statements)])
    assert found.why.split(" ")[0] == verdict and found.allowed == (verdict == "allowed")


@pytest.mark.parametrize(
    ("organisation", "boundary", "identity", "why"),
    [
        ([ALL], [ALL], [ALL], "allowed"),
        (None, None, [ALL], "allowed"),
        ([], [ALL], [ALL], "implicitDeny (organisation)"),
        ([ALL], [allow("s3:*")], [ALL], "implicitDeny (boundary)"),
        ([ALL], [ALL], [], "implicitDeny (identity)"),
        ([ALL, deny("ec2:*")], [ALL], [ALL], "explicitDeny (organisation)"),
        ([], [ALL], [deny(STOP)], "explicitDeny (identity)"),  # a deny is found wherever it is
    ],
)
def test_every_layer_must_allow_and_one_deny_is_enough(
    organisation: list | None, boundary: list | None, identity: list, why: str
) -> None:
    found = evaluate(
        Request(STOP, ARN),
        [policy(*identity)],
        None if organisation is None else [policy(*organisation)],
        None if boundary is None else policy(*boundary),
    )
    assert found.why == why


def test_a_service_takes_a_role_only_where_the_role_trusts_it() -> None:
    trust = policy(
        {
            "Effect": "Allow",
            "Principal": {"Service": ["scheduler.amazonaws.com"]},
            "Action": "sts:AssumeRole",
            "Condition": {"StringEquals": {"aws:SourceAccount": "1"}},
        }
    )
    assert trusts(trust, "scheduler.amazonaws.com", {"aws:SourceAccount": "1"})
    assert not trusts(trust, "scheduler.amazonaws.com", {"aws:SourceAccount": "2"})
    assert not trusts(trust, "ssm.amazonaws.com", {"aws:SourceAccount": "1"})
