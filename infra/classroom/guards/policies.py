"""The policies that staff, students and assistants are given, and those of a class's roles.

They are the JSON files in policies/, as AWS takes them; `${class}` and other plain words are filled
in here, `${aws:userid}` and the like are IAM's own.

A user who may make a role, write its policy and pass it to a service can do whatever that service
can: that is the account. So roles are made under a *permissions boundary*: IAM allows a role what
its policy and its boundary both allow. The printed policy lets roles be made and written with the
boundary only, and does not let the boundary be changed. Source: IAM user guide, "Permissions
boundaries for IAM entities", "Delegating responsibility to others using permissions boundaries".

person: who runs these commands; its 6,144 characters are all that IAM has room for, hence patterns
for topics and rules.
- What changes or ends things in EC2, or reads a machine's console, is for what carries a class's
  tag; elsewhere for what is named as a class's. The rules of a security group have no tag of their
  own; the group itself is asked about, too. Tags are given to what is being made only: else
  anything could be called a class's.
- Of the parameter store it reads what AWS publishes, and the ledgers of classes: everything else
  there may be secret.
- RunInstances starts the machines that a class can ask for, and the drill's. A question about a
  disk or a card knows no type, and the purchase of a capacity block never does, hence `IfExists`.
  (Service Authorization Reference, EC2)
- SSH to machines without a public address; nothing else of Session Manager. An organisation's
  endpoint has no tag of a class, so the tunnel is to any, to port 22 only.
- The first alarm that stops a machine, and the first spot request, make AWS's own role.

boundary: the most that any role of ours can do, which is what guard, my and machine do, of any
class.

guard: stop, end and release what carries the class's tag. AWS asks about a runbook under both of
its names, and about the execution; with one of the three missing every schedule and the budget's
stop are refused, silently.

my, the students' function: look, start what is armed, stop, write its tags, mail from one address.

machine: copy students' work below the machine's own prefix, where nothing is deleted; open a
session with Session Manager.

student, who signs in to the account (IAM users, or Identity Center with an attribute), for an
account that forbids Lambda: the machine whose owner is their tag `trainium-labs:owner`, by EC2
Instance Connect, or by Session Manager where the account has Default Host Management Configuration
(the machines' own role may not). It knows no caps.

assistant: sees the class (`status`, `report`, `cost`), stops and starts machines, changes and
deletes nothing else, and reads neither consoles, students' work nor the key of their links.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ..spec import tags

FOLDER = Path(__file__).with_suffix("")
BOUNDARY = "trainium-labs.boundary"  # a managed policy that the account's owner makes once
DOCUMENTS = ("AWS-StopEC2Instance", "AWS-TerminateEC2Instance", "AWS-ReleaseElasticIP")


def read(kind: str, words: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a policy of the folder with its words filled in."""
    text = (FOLDER / f"{kind}.json").read_text(encoding="utf-8")
    return json.loads(re.sub(r"\$\{(\w+)\}", lambda m: json.dumps((words or {})[m[1]])[1:-1], text))


def policy(theirs: str = "") -> dict[str, Any]:
    """Return the policy that a user of these commands needs. It makes roles with the boundary only:
    ours, or that of an organisation by its ARN."""
    return read("person", {"boundary": theirs or boundary_arn("*")})


def boundary_arn(account: str) -> str:
    """Return the ARN of the permissions boundary in an account."""
    return f"arn:aws:iam::{account}:policy/{BOUNDARY}"


def boundary() -> dict[str, Any]:
    """Return the most that any role of ours can do: what guards and functions of classes do."""
    return read("boundary")


def student(name: str) -> dict[str, Any]:
    """Return the policy of students who sign in to the account."""
    return read("student", {"class": name})


def assistant(name: str, sections: list[str]) -> dict[str, Any]:
    """Return the policy of an assistant of some sections (all, without any)."""
    document = read("assistant", {"class": name})
    for statement in document["Statement"]:
        if sections and "Condition" in statement:
            has = statement["Condition"]["StringEquals"]
            has[f"aws:ResourceTag/{tags.SECTION}"] = sections
    return document


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
