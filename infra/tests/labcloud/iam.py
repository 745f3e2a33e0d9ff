"""Decide what a policy allows, in the order that AWS documents.

Source: IAM user guide, "Policy evaluation logic" (an explicit deny wins; then an organisation's
policy, a permissions boundary and an identity policy must each allow), "IAM JSON policy elements:
Condition operators" and "Creating a condition with multiple keys or values". moto's own evaluator
ignores conditions, so it cannot tell whether a guard may act. Not here: session policies and
resource policies other than trust policies, for a class has none.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cache
from typing import Any

Context = Mapping[str, Any]  # condition key -> value, or list of values for multivalued keys


@dataclass(frozen=True)
class Request:
    """Hold one question: may this action be done on this resource, under these circumstances?"""

    action: str
    resource: str = "*"
    context: Context = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """Hold the answer, and which kind of policy gave it."""

    allowed: bool
    why: str  # allowed | explicitDeny | implicitDeny, and the layer


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@cache
def _pattern(text: str, ignore_case: bool) -> re.Pattern[str]:
    """Return a pattern with AWS's wildcards: * and ?, but no [...]."""
    plain = translate(text.replace("[", "[[]"))
    return re.compile(plain, re.I if ignore_case else 0)


def like(value: str, pattern: str, ignore_case: bool = False) -> bool:
    """Say whether a value fits a pattern with * and ?."""
    return bool(_pattern(pattern, ignore_case).match(value))


def _arn_like(value: str, pattern: str) -> bool:
    """Compare ARNs part by part: a * does not reach over a colon before the resource part."""
    a, b = value.split(":", 5), pattern.split(":", 5)
    return len(a) == len(b) and all(like(x, y) for x, y in zip(a, b))


def _time(value: str) -> dt.datetime:
    return dt.datetime.fromisoformat(str(value).replace("Z", "+00:00"))


# Operator -> does one value of the request fit one value of the policy?
OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda v, p: v == p,
    "StringEqualsIgnoreCase": lambda v, p: v.lower() == p.lower(),
    "StringLike": like,
    "ArnEquals": _arn_like,  # documented to behave as ArnLike
    "ArnLike": _arn_like,
    "Bool": lambda v, p: v.lower() == p.lower(),
    "NumericEquals": lambda v, p: float(v) == float(p),
    "NumericLessThan": lambda v, p: float(v) < float(p),
    "NumericLessThanEquals": lambda v, p: float(v) <= float(p),
    "NumericGreaterThan": lambda v, p: float(v) > float(p),
    "NumericGreaterThanEquals": lambda v, p: float(v) >= float(p),
    "DateLessThan": lambda v, p: _time(v) < _time(p),
    "DateGreaterThan": lambda v, p: _time(v) > _time(p),
}
NEGATED = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
    "NumericNotEquals": "NumericEquals",
}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _condition(operator: str, key: str, wanted: Any, context: Context) -> bool:
    """Evaluate one operator for one key: values are ORed, negated operators are NORed."""
    if operator == "Null":
        return (key not in context) == (_text(_list(wanted)[0]).lower() == "true")
    quantifier, _, name = operator.rpartition(":")
    if_exists = name.endswith("IfExists")
    name = name.removesuffix("IfExists")
    negated = name in NEGATED
    fits = OPERATORS[NEGATED.get(name, name)]
    policy = [_substitute(_text(p), context) for p in _list(wanted)]
    if key not in context:
        # "If the key is not in the request context, the values do not match": true for negated
        # operators and with IfExists; ForAllValues is true over nothing, ForAnyValue false.
        if quantifier:
            return quantifier == "ForAllValues" or if_exists
        return negated or if_exists
    given = [_text(v) for v in _list(context[key])]

    def one(value: str) -> bool:
        return any(fits(value, p) for p in policy) != negated

    return (all if quantifier != "ForAnyValue" else any)(one(v) for v in given)


def _substitute(text: str, context: Context) -> str:
    """Replace policy variables such as ${aws:username}."""
    return re.sub(
        r"\$\{([^}]+)\}",
        lambda m: m[1] if m[1] in "*?$" else _text(context.get(_key(m[1]), "\0")),
        text,
    )


def _lower(context: Context) -> dict[str, Any]:
    """Return the context by keys as policies are compared with: without regard to case, except what
    follows a slash (a tag's key)."""
    return {_key(k): v for k, v in context.items()}


def _key(key: str) -> str:
    head, slash, tail = key.partition("/")
    return head.lower() + slash + tail


def _fits(statement: dict[str, Any], request: Request) -> bool:
    """Say whether a statement speaks about a request."""
    if "Action" in statement:
        if not any(like(request.action, a, True) for a in _list(statement["Action"])):
            return False
    elif any(like(request.action, a, True) for a in _list(statement.get("NotAction", []))):
        return False
    context = _lower(request.context)
    resource = request.resource
    if "Resource" in statement:
        wanted = [_substitute(r, context) for r in _list(statement["Resource"])]
        if not any(like(resource, r) for r in wanted):
            return False
    elif "NotResource" in statement:
        wanted = [_substitute(r, context) for r in _list(statement["NotResource"])]
        if any(like(resource, r) for r in wanted):
            return False
    return all(
        _condition(operator, _key(key), value, context)
        for operator, keys in statement.get("Condition", {}).items()
        for key, value in keys.items()
    )


def _verdict(policies: list[dict[str, Any]], request: Request) -> str:
    """Return allowed, explicitDeny or implicitDeny for one layer of policies."""
    effects = {s["Effect"] for p in policies for s in _list(p["Statement"]) if _fits(s, request)}
    return (
        "explicitDeny" if "Deny" in effects else "allowed" if "Allow" in effects else "implicitDeny"
    )


def evaluate(
    request: Request,
    identity: list[dict[str, Any]],
    organisation: list[dict[str, Any]] | None = None,
    boundary: dict[str, Any] | None = None,
) -> Decision:
    """Evaluate in AWS's order: any explicit deny, then each layer that exists must allow."""
    layers = {
        "organisation": organisation,
        "boundary": None if boundary is None else [boundary],
        "identity": identity,
    }
    verdicts = {name: _verdict(p, request) for name, p in layers.items() if p is not None}
    for wanted in ("explicitDeny", "implicitDeny"):
        for name, verdict in verdicts.items():
            if verdict == wanted:
                return Decision(False, f"{verdict} ({name})")
    return Decision(True, "allowed")


def trusts(policy: dict[str, Any], service: str, context: Context) -> bool:
    """Say whether a role's trust policy lets a service assume the role."""
    asked = Request("sts:AssumeRole", "*", context)
    effects = {
        s["Effect"]
        for s in _list(policy["Statement"])
        if service in _list(s.get("Principal", {}).get("Service", [])) and _fits(s, asked)
    }
    return "Allow" in effects and "Deny" not in effects
