"""Who may do what: callers by their key, and services that act with a role.

Source: IAM user guide, "Policy evaluation logic"; for services, "Granting a user permissions to
pass a role to an AWS service" and "The confused deputy problem" (aws:SourceAccount); IAM user
guide, "Changes that I make are not always immediately visible": a service that acts with a role
knows a new role, its trust and its policies some seconds later (`propagation`; how many is
assumed).
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from moto.iam.models import iam_backends

from . import questions
from .iam import Decision, Request, evaluate, trusts
from .world import ACCOUNT, WORLD

ADMIN = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
# Organisations guide, "Tasks and entities not restricted by SCPs": service-linked roles.
GLOBAL_SERVICES = ("iam", "sts", "budgets", "pricing", "ce")


def caller(key: str) -> dict[str, Any]:
    """Return who has an access key: {"account", "policies", "boundary"}; a key that no test named
    is an administrator's."""
    who = {"account": ACCOUNT, "policies": [ADMIN], **WORLD.callers.get(key, {})}
    if WORLD.denied:
        denied = {"Effect": "Deny", "Action": WORLD.denied, "Resource": "*"}
        who["policies"] = [*who["policies"], {"Statement": [denied]}]
    return who


def circumstances(region: str, principal: str = "") -> dict[str, Any]:
    """Return the global condition keys of a call."""
    return {
        "aws:RequestedRegion": region,
        "aws:PrincipalAccount": ACCOUNT,
        "aws:PrincipalArn": principal,
        "aws:MultiFactorAuthPresent": WORLD.mfa,
        "aws:SecureTransport": True,
    }


def decide(
    request: Request,
    region: str,
    policies: list[dict[str, Any]],
    boundary: dict[str, Any] | None = None,
) -> Decision:
    """Decide one question for an identity of the account."""
    full = Request(request.action, request.resource, {**circumstances(region), **request.context})
    return evaluate(full, policies, WORLD.organisation, boundary)


def refusal(key: str, service: str, region: str, op: str, params: dict[str, Any]) -> str:
    """Return why a call is refused, or ""."""
    who = caller(key)
    where = "us-east-1" if service in GLOBAL_SERVICES else region
    for request in questions.asked(service, region, op, params):
        keys = {**who.get("keys", {}), **request.context}
        keyed = Request(request.action, request.resource, keys)
        decision = decide(keyed, where, who["policies"], who.get("boundary"))
        if not decision.allowed:
            kind = "explicit deny" if "explicit" in decision.why else "implicit deny"
            layer = "service control policy" if "organ" in decision.why else "identity-based policy"
            return (
                f"User is not authorized to perform: {request.action} on resource:"
                f" {request.resource} with an {kind} in a {layer}"
            )
    return ""


class Refused(Exception):
    """A service may not act with the role that it was given."""


@cache
def _parsed(text: str) -> dict[str, Any]:
    return json.loads(text)


def boundary(arn: str | None) -> dict[str, Any] | None:
    """Return the default version of a managed policy that bounds a role."""
    if not arn:
        return None
    versions = iam_backends[ACCOUNT]["aws"].get_policy(arn).versions
    return _parsed(next(v.document for v in versions if v.is_default))


def _role(arn: str) -> Any:
    return next((r for r in iam_backends[ACCOUNT]["aws"].roles.values() if r.arn == arn), None)


def remember(name: str) -> None:
    """Write down what a role is after a change; a call of IAM that changes roles ends with it."""
    role = next((r for r in iam_backends[ACCOUNT]["aws"].roles.values() if r.name == name), None)
    if role is not None:
        now = {
            "trust": role.assume_role_policy_document,
            "policies": [*role.policies.values()],
            "boundary": role.permissions_boundary_arn,
        }
        WORLD.roles.setdefault(role.arn, []).append((WORLD.now().timestamp(), now))


def known(arn: str, seconds: float) -> dict[str, Any]:
    """Return a role as services saw it, that long ago; raise Refused if they did not know it."""
    role, versions = _role(arn), WORLD.roles.get(arn, [])
    if role is None:
        raise Refused(f"the role {arn} does not exist")
    if not versions:
        remember(role.name)
        return WORLD.roles[arn].pop()[1]
    old = [r for t, r in versions if t + seconds <= WORLD.now().timestamp()]
    if not old:
        raise Refused(f"AccessDenied: the role {arn} is not known yet")
    return old[-1]


def _policies(arn: str) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return the policies of a role, and its permissions boundary."""
    role = known(arn, WORLD.policy_seconds)
    inline = [_parsed(text) for text in role["policies"]]
    attached = [_parsed(p.document) for p in _role(arn).managed_policies.values()]
    return inline + attached, boundary(role["boundary"])


def assume(arn: str, service: str) -> None:
    """Let a service take a role, if the role's trust policy says so."""
    trust = known(arn, WORLD.trust_seconds)["trust"]
    trust = json.loads(trust) if isinstance(trust, str) else trust
    if not trusts(trust, service, {"aws:SourceAccount": ACCOUNT}):
        raise Refused(f"{service} cannot assume {arn}")


def act(arn: str, region: str, requests: list[Request]) -> None:
    """Ask whether a role may do all of it; raise Refused at the first thing that it may not."""
    policies, limit = _policies(arn)
    for request in requests:
        decision = decide(request, region, policies, limit)
        if not decision.allowed:
            raise Refused(
                f"AccessDenied: {arn} is not authorized to perform {request.action} on"
                f" {request.resource} ({decision.why})"
            )
