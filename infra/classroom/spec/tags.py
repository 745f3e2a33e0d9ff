"""Names and tags: how a class recognises what is its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .class_file import ClassSpec

CLASS = "trainium-labs:class"
OWNER = "trainium-labs:owner"
BUDGET = "trainium-labs:budget"  # class and owner in one, for a budget filters by one tag
EXPIRES = "trainium-labs:expires"
MACHINE = "trainium-labs:machine"
# `pending(spec)` until the alarm that names the machine is read back, then `ARMED`. The `unarmed`
# schedule stops every pending machine, no matter who launched it or
# what happened to the laptop.
GUARD = "trainium-labs:guard"
ARMED = "armed"
LINK = "trainium-labs:link-"  # + student = number below which links are ended
CAP = "trainium-labs:cap"  # dollars; what the students' function goes by
BEFORE = "trainium-labs:before"  # dollars spent on former machines
HOSTKEY = "trainium-labs:hostkey"  # as the machine printed it on its console
ASKS = "trainium-labs:asks"  # when the student asked for more
ACTED = "trainium-labs:acted"  # time of the last request of the student's that did something
UNMAILED = "trainium-labs:unmailed"  # when and why the last mail to its students was refused
COPIES = "trainium-labs:copies"  # where a machine may write copies of the work: s3://...
SECTION = "trainium-labs:section"
SETTINGS = "trainium-labs:settings"  # of the bucket, as a hash
SEAT = "trainium-labs:core-"  # + two digits = student; shared machines only
NODE = "trainium-labs:cluster"  # nodes of a Slurm cluster only; its value is the class
REACH = "trainium-labs:reach"  # how a machine without a public address is reached
STAFF = "staff"


def prefix(spec: ClassSpec) -> str:
    """Return what every name starts with. Class names hold no dot, so no class is a prefix of
    another."""
    return f"trainium-labs.{spec.name}."


def function(spec: ClassSpec) -> str:
    """Return the name of the students' function: AWS takes no dot there, classes no underscore."""
    return f"trainium-labs_{spec.name}_my"


def pending(spec: ClassSpec) -> str:
    """Return the value of GUARD on a machine that nothing of its own guards yet.

    It names the class, because an automation can choose machines by one tag only (AWS refuses two:
    "Only one resource group or tag can be specified at a time").
    """
    return f"pending-{spec.name}"


def group(spec: ClassSpec) -> str:
    """Return the name of the schedule group."""
    return prefix(spec).rstrip(".")


def common(spec: ClassSpec, owner: str = STAFF) -> dict[str, str]:
    """Return the tags of everything that is made."""
    return {
        **spec.tags,  # the organisation's
        CLASS: spec.name,
        OWNER: owner,
        BUDGET: payer(spec, owner),
        EXPIRES: spec.teardown.isoformat(),
    }


def payer(spec: ClassSpec, owner: str) -> str:
    """Return the value of BUDGET: students of two classes have a budget each."""
    return f"{spec.name}.{owner}"


def as_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the form most of AWS wants."""
    return [{"Key": k, "Value": v} for k, v in tags.items()]


def spec_for(kinds: Iterable[str], tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return EC2 TagSpecifications: tagged in the same call that creates, so nothing exists
    untagged."""
    return [{"ResourceType": kind, "Tags": as_list(tags)} for kind in kinds]


def as_dict(tags: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """Return tags as a dictionary, whichever capitals the service uses."""
    return {t.get("Key", t.get("key", "")): t.get("Value", t.get("value", "")) for t in tags or []}


def ours(tags: Iterable[Mapping[str, str]] | None, name: str) -> bool:
    """Return whether a resource belongs to the class."""
    return as_dict(tags).get(CLASS) == name
