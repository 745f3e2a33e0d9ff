"""The two roles of a class: what the guards may do, and what machines may do (nothing)."""

from __future__ import annotations

import json
from typing import Any

import botocore.exceptions as be

from ..aws import organisations
from ..aws.cloud import DENIED, code_of, doing
from ..aws.problems import ClassroomError
from ..spec import tags
from ..spec.run import Run
from . import policies


def guard_role(run: Run) -> str:
    """Return the name of the role that schedules and budgets act with."""
    return tags.prefix(run.spec) + "guard"


def machine_role(run: Run) -> str:
    """Return the name of the role (and profile) that machines carry."""
    return tags.prefix(run.spec) + "machine"


def roles(run: Run) -> str:
    """Make the guard role and the machines' profile; return the ARN of the guard role."""
    account, role = run.cloud.account, guard_role(run)
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {
                    "Service": [
                        "scheduler.amazonaws.com",
                        "ssm.amazonaws.com",
                        "budgets.amazonaws.com",
                    ]
                },
                "Action": "sts:AssumeRole",
                "Condition": {"StringEquals": {"aws:SourceAccount": account}},
            }
        ],
    }
    boundary = _boundary(run)
    _role(run, role, trust, guard_policy(run), boundary)
    # Without copies the machines' role holds no permission at all: a student on the machine can do
    # nothing in AWS. With them it writes and reads below the machine's own prefix.
    ec2_trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "ec2.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    _role(run, machine_role(run), ec2_trust, machine_policy(run), boundary)
    _profile(run, machine_role(run))
    return f"arn:aws:iam::{account}:role/{role}"


def exist(run: Run) -> bool:
    """Return whether the class has its guard role: the first provision makes it before it launches,
    and teardown removes it when nothing is left."""
    iam = run.cloud.client("iam")
    with doing("read the roles"):
        try:
            iam.get_role(RoleName=guard_role(run))
        except iam.exceptions.NoSuchEntityException:
            return False
    return True


def self_service_role(run: Run) -> str:
    """Return the name of the role that the students' function acts with."""
    return tags.prefix(run.spec) + "my"


def self_service(run: Run) -> str:
    """Make the role of the students' function; return its ARN."""
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "lambda.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    name = self_service_role(run)
    _role(run, name, trust, self_service_policy(run), _boundary(run))
    return f"arn:aws:iam::{run.cloud.account}:role/{name}"


def self_service_policy(run: Run) -> dict[str, Any]:
    """Return what the students' function may do: look, start what is armed, stop, write its
    tags, mail from one address."""
    document = policies.read("my", {**_words(run), "sender": run.spec.mail_from})
    if not run.spec.mail_from:
        _drop(document, "ses:SendEmail")
    return document


def guard_policy(run: Run) -> dict[str, Any]:
    """Return what the guards may do: stop, end and release what carries the class's tag, nothing
    else."""
    document = policies.read("guard", _words(run))
    if not run.spec.my:
        _drop(document, "lambda:InvokeFunction")
    return document


def machine_policy(run: Run) -> dict[str, Any] | None:
    """Return what machines may do: nothing, copy their work, be reached through Session Manager."""
    document = policies.read("machine", _words(run))
    if run.spec.work_copies != "s3":
        _drop(document, "s3:PutObject")
    if run.spec.reach != "session-manager":
        _drop(document, "ssmmessages:OpenDataChannel")
    return document if document["Statement"] else None


def _words(run: Run) -> dict[str, str]:
    return {"class": run.spec.name, "account": run.cloud.account}


def _drop(document: dict[str, Any], action: str) -> None:
    """Take the statement of an action out of a policy."""
    document["Statement"] = [s for s in document["Statement"] if action not in s["Action"]]


def _boundary(run: Run) -> str | None:
    """Return the ARN of the permissions boundary, if the account's owner has made it: a user with
    the printed policy can make roles under it only, and an administrator needs none. That of
    class.yml is instead of it, for IAM takes one for a role."""
    if run.spec.boundary:
        return run.spec.boundary
    iam, arn = run.cloud.client("iam"), policies.boundary_arn(run.cloud.account)
    with doing("read the permissions boundary"):
        try:
            return iam.get_policy(PolicyArn=arn)["Policy"]["Arn"]
        except be.ClientError as error:
            if code_of(error) not in (*DENIED, "NoSuchEntity"):
                raise
    return None


def _role(
    run: Run,
    name: str,
    trust: dict[str, Any],
    policy: dict[str, Any] | None,
    boundary: str | None,
) -> None:
    iam = run.cloud.client("iam")
    bound = {"PermissionsBoundary": boundary} if boundary else {}
    with doing("read the roles"):
        try:
            role = iam.get_role(RoleName=name)["Role"]
        except iam.exceptions.NoSuchEntityException:
            role = None
    with doing(f"create the role {name}"):
        if role is None:

            def create() -> None:
                try:
                    iam.create_role(
                        RoleName=name,
                        AssumeRolePolicyDocument=json.dumps(trust),
                        Tags=tags.as_list(tags.common(run.spec)),
                        Description="trainium-labs",
                        MaxSessionDuration=3600,
                        **bound,
                    )
                except iam.exceptions.EntityAlreadyExistsException:
                    pass
                except be.ClientError as error:
                    ruled = organisations.explained(str(error), "")
                    if code_of(error) not in DENIED or boundary or ruled:
                        raise
                    raise ClassroomError(
                        f"You may not create the role {name}. With the printed policy, roles are"
                        f" made under the permissions boundary {policies.BOUNDARY}, which this"
                        " account does not have (or you may not see it).",
                        "Ask the account's owner to make it once: `python -m classroom doctor"
                        " --policy` prints it.",
                    ) from error

            run.do(f"create role {name}", create)
        elif not tags.ours(role.get("Tags"), run.spec.name):
            raise ClassroomError(
                f"A role {name} exists that is not tagged as this class's.", "Rename or delete it."
            )
        if role and boundary and boundary != _bounded(role):
            run.do(
                f"put role {name} under the permissions boundary",
                lambda: iam.put_role_permissions_boundary(
                    RoleName=name, PermissionsBoundary=boundary
                ),
            )
        if role and role["AssumeRolePolicyDocument"] != trust:
            run.do(
                f"repair who may use role {name}",
                lambda: iam.update_assume_role_policy(
                    RoleName=name, PolicyDocument=json.dumps(trust)
                ),
            )
        if policy is None:
            if role is not None and iam.list_role_policies(RoleName=name)["PolicyNames"]:
                run.do(
                    f"take the policy of role {name} away",
                    lambda: iam.delete_role_policy(RoleName=name, PolicyName="guard"),
                )
            return
        try:
            have = (
                None
                if role is None
                else iam.get_role_policy(RoleName=name, PolicyName="guard")["PolicyDocument"]
            )
        except iam.exceptions.NoSuchEntityException:
            have = None
        if have != policy:
            run.do(
                f"set the policy of role {name}",
                lambda: iam.put_role_policy(
                    RoleName=name, PolicyName="guard", PolicyDocument=json.dumps(policy)
                ),
            )


def _bounded(role: dict[str, Any]) -> str:
    return (role.get("PermissionsBoundary") or {}).get("PermissionsBoundaryArn", "")


def _profile(run: Run, name: str) -> None:
    iam = run.cloud.client("iam")
    with doing(f"create the instance profile {name}"):
        try:
            profile = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
        except iam.exceptions.NoSuchEntityException:
            profile = None
        if profile is None:

            def create() -> None:
                try:
                    iam.create_instance_profile(
                        InstanceProfileName=name, Tags=tags.as_list(tags.common(run.spec))
                    )
                except iam.exceptions.EntityAlreadyExistsException:
                    pass

            run.do(f"create instance profile {name}", create)
        if not profile or not profile["Roles"]:

            def fill() -> None:
                try:
                    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
                except iam.exceptions.LimitExceededException:
                    pass

            run.do(f"put the role into instance profile {name}", fill)
