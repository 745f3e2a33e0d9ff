"""The fake decides as AWS documents it: examples of the IAM user guide as a table."""

from __future__ import annotations

from typing import Any

import pytest

from labcloud.iam import Request, evaluate, trusts

ALL = {"Effect": "Allow", "Action": "*", "Resource": "*"}
MFA = {"Bool": {"aws:MultiFactorAuthPresent": "true"}}
EU = {"StringNotEquals": {"aws:RequestedRegion": ["eu-central-1", "eu-west-1"]}}
OWN = {"StringEquals": {"aws:ResourceTag/Owner": "${aws:username}"}}


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    """Return a policy of statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    """Return a statement that allows."""
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def deny(action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    """Return a statement that denies."""
    return {"Effect": "Deny", "Action": action, "Resource": resource, **more}


STOP, ARN = "ec2:StopInstances", "arn:aws:ec2:us-east-1:123456789012:instance/i-1"
# (what the guide says, statements, action, resource, context, verdict)
EXAMPLES: list[tuple[str, list[dict], str, str, dict[str, Any], str]] = [
    ("by default, all requests are denied", [], STOP, ARN, {}, "implicitDeny"),
    ("an explicit allow overrides it", [allow(STOP)], STOP, ARN, {}, "allowed"),
    ("an explicit deny overrides any allow", [ALL, deny("ec2:*")], STOP, ARN, {}, "explicitDeny"),
    ("actions ignore case", [allow("EC2:stopinstances")], STOP, ARN, {}, "allowed"),
    ("? is one character", [allow("ec2:Stop?nstances")], STOP, ARN, {}, "allowed"),
    ("resources do not ignore case", [allow(STOP, ARN.upper())], STOP, ARN, {}, "implicitDeny"),
    ("brackets are no wildcard", [allow(STOP, ARN[:-1] + "[1]")], STOP, ARN, {}, "implicitDeny"),
    (
        "NotAction matches everything else",
        [{"Effect": "Deny", "NotAction": "iam:*", "Resource": "*"}, ALL],
        STOP,
        ARN,
        {},
        "explicitDeny",
    ),
    (
        "NotResource matches everything else",
        [{"Effect": "Allow", "Action": "*", "NotResource": ARN}],
        STOP,
        ARN,
        {},
        "implicitDeny",
    ),
    (
        "deny by region: there",
        [ALL, deny("*", Condition=EU)],
        STOP,
        ARN,
        {"aws:RequestedRegion": "eu-west-1"},
        "allowed",
    ),
    (
        "deny by region: elsewhere",
        [ALL, deny("*", Condition=EU)],
        STOP,
        ARN,
        {"aws:RequestedRegion": "us-east-1"},
        "explicitDeny",
    ),
    ("a missing key does not match", [allow("*", Condition=MFA)], STOP, ARN, {}, "implicitDeny"),
    (
        "a missing key matches a negated operator",
        [ALL, deny("*", Condition=EU)],
        STOP,
        ARN,
        {},
        "explicitDeny",
    ),
    (
        "IfExists: a missing key matches",
        [ALL, deny("*", Condition={"BoolIfExists": {"aws:MultiFactorAuthPresent": "false"}})],
        STOP,
        ARN,
        {},
        "explicitDeny",
    ),
    (
        "IfExists: a present key is compared",
        [ALL, deny("*", Condition={"BoolIfExists": {"aws:MultiFactorAuthPresent": "false"}})],
        STOP,
        ARN,
        {"aws:MultiFactorAuthPresent": True},
        "allowed",
    ),
    (
        "Null true: the key must be missing",
        [ALL, deny("*", Condition={"Null": {"aws:TokenIssueTime": "true"}})],
        STOP,
        ARN,
        {},
        "explicitDeny",
    ),
    (
        "Null false: the key must be there",
        [ALL, deny("*", Condition={"Null": {"aws:TokenIssueTime": "false"}})],
        STOP,
        ARN,
        {},
        "allowed",
    ),
    (
        "several values of a key are ORed",
        [allow("*", Condition={"StringEquals": {"aws:ResourceTag/a": ["x", "y"]}})],
        STOP,
        ARN,
        {"aws:ResourceTag/a": "y"},
        "allowed",
    ),
    (
        "several keys of an operator are ANDed",
        [
            allow(
                "*",
                Condition={"StringEquals": {"aws:ResourceTag/a": "x", "aws:ResourceTag/b": "y"}},
            )
        ],
        STOP,
        ARN,
        {"aws:ResourceTag/a": "x"},
        "implicitDeny",
    ),
    (
        "several operators are ANDed",
        [allow("*", Condition={**MFA, "StringEquals": {"aws:ResourceTag/a": "x"}})],
        STOP,
        ARN,
        {"aws:ResourceTag/a": "x"},
        "implicitDeny",
    ),
    (
        "the key's name ignores case, the tag's does not",
        [allow("*", Condition={"StringEquals": {"AWS:resourceTAG/a": "x"}})],
        STOP,
        ARN,
        {"aws:ResourceTag/a": "x"},
        "allowed",
    ),
    (
        "the tag's name counts",
        [allow("*", Condition={"StringEquals": {"aws:ResourceTag/A": "x"}})],
        STOP,
        ARN,
        {"aws:ResourceTag/a": "x"},
        "implicitDeny",
    ),
    (
        "StringEquals knows no wildcard",
        [allow("*", Condition={"StringEquals": {"aws:ResourceTag/a": "x*"}})],
        STOP,
        ARN,
        {"aws:ResourceTag/a": "xy"},
        "implicitDeny",
    ),
    (
        "StringLike does",
        [allow("*", Condition={"StringLike": {"aws:ResourceTag/a": "x*"}})],
        STOP,
        ARN,
        {"aws:ResourceTag/a": "xy"},
        "allowed",
    ),
    (
        "a policy variable is replaced: own",
        [allow("ec2:*", Condition=OWN)],
        STOP,
        ARN,
        {"aws:username": "ann", "aws:ResourceTag/Owner": "ann"},
        "allowed",
    ),
    (
        "a policy variable is replaced: another's",
        [allow("ec2:*", Condition=OWN)],
        STOP,
        ARN,
        {"aws:username": "ann", "aws:ResourceTag/Owner": "bob"},
        "implicitDeny",
    ),
    (
        "a variable without a value matches nothing",
        [allow("ec2:*", Condition=OWN)],
        STOP,
        ARN,
        {"aws:ResourceTag/Owner": "bob"},
        "implicitDeny",
    ),
    (
        "ForAllValues: each value must be in the list",
        [allow("*", Condition={"ForAllValues:StringEquals": {"aws:TagKeys": ["a", "b"]}})],
        STOP,
        ARN,
        {"aws:TagKeys": ["a", "c"]},
        "implicitDeny",
    ),
    (
        "ForAllValues is true without a key",
        [allow("*", Condition={"ForAllValues:StringEquals": {"aws:TagKeys": ["a"]}})],
        STOP,
        ARN,
        {},
        "allowed",
    ),
    (
        "ForAnyValue: one value is enough",
        [allow("*", Condition={"ForAnyValue:StringEquals": {"aws:TagKeys": ["a"]}})],
        STOP,
        ARN,
        {"aws:TagKeys": ["a", "c"]},
        "allowed",
    ),
    (
        "ForAnyValue is false without a key",
        [allow("*", Condition={"ForAnyValue:StringEquals": {"aws:TagKeys": ["a"]}})],
        STOP,
        ARN,
        {},
        "implicitDeny",
    ),
    (
        "PassRole to one service only",
        [allow("iam:PassRole", Condition={"StringEquals": {"iam:PassedToService": "x"}})],
        "iam:PassRole",
        "arn:aws:iam::1:role/r",
        {"iam:PassedToService": "ec2.amazonaws.com"},
        "implicitDeny",
    ),
    (
        "an ARN's parts are compared one by one",
        [allow("*", Condition={"ArnLike": {"aws:SourceArn": "arn:aws:ec2:*:i-1"}})],
        STOP,
        ARN,
        {"aws:SourceArn": ARN},
        "implicitDeny",
    ),
    (
        "numbers",
        [allow("*", Condition={"NumericLessThan": {"aws:MultiFactorAuthAge": "300"}})],
        STOP,
        ARN,
        {"aws:MultiFactorAuthAge": 299},
        "allowed",
    ),
    (
        "dates",
        [allow("*", Condition={"DateLessThan": {"aws:CurrentTime": "2027-01-01T00:00:00Z"}})],
        STOP,
        ARN,
        {"aws:CurrentTime": "2026-11-21T12:00:00Z"},
        "allowed",
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_the_examples_of_the_guide(example: tuple) -> None:
    _, statements, action, resource, context, verdict = example
    found = evaluate(Request(action, resource, context), [policy(*statements)])
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
