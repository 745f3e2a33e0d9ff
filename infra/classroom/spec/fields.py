"""The values that class.yml takes: each check returns the value, or says what to write instead."""

from __future__ import annotations

import difflib
import ipaddress
import re
from typing import Any
from zoneinfo import available_timezones

from pydantic_core import PydanticCustomError

from . import instance_types
from . import roster as rosters
from . import sdk as sdks


def refusal(what: str, remedy: str) -> PydanticCustomError:
    """Return the error for a value: what is wrong and what to write."""
    return PydanticCustomError("classroom", "{what}", {"what": what, "remedy": remedy})


def name(value: str) -> str:
    """Check the name of a class."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{1,22}[a-z0-9]", value):
        raise refusal(
            f"The class name {value!r} does not fit into AWS names.",
            "Use 3 to 24 of a-z, 0-9 and -, starting with a letter.",
        )
    return value


def account(value: Any) -> str:
    """Check an account number; YAML may have read it as a number."""
    text = str(value)
    if text and not re.fullmatch(r"\d{12}", text):
        raise refusal(
            f"{text!r} is not the number of an AWS account.",
            'Write its 12 digits in quotes, such as "123456789012".',
        )
    return text


def email(value: str) -> str:
    """Check an e-mail address."""
    if not rosters.EMAIL.fullmatch(value):
        raise refusal(
            f"{value!r} is not an e-mail address.",
            "Budget alerts need one, such as staff@example.edu.",
        )
    return value


def optional_email(value: str) -> str:
    """Check an e-mail address that may be left out."""
    return email(value) if value else value


def region(value: str) -> str:
    """Check the form of a region name."""
    if not re.fullmatch(r"(us|eu|ap|sa|ca|me|af|il|mx)(-gov)?-[a-z]+-\d", value):
        raise refusal(f"{value!r} is not the name of an AWS region.", "Write it like us-east-2.")
    return value


def course(value: Any) -> Any:
    """Check that there are machines for a course."""
    if value == "trn3" or str(value).startswith("trn3."):
        raise refusal(
            "There is no Trainium 3 machine for a class: AWS documents Trn3 as UltraServers, "
            "without the size and price of a single instance.",
            "Write `course: trn2`: kernels of import nki are the same, and students add "
            "`--target trn3` for what is predicted on Trainium 3.",
        )
    return value


def machine(value: str) -> str:
    """Check that an instance type is supported."""
    course(value)
    if value not in instance_types.TYPES:
        near = difflib.get_close_matches(value, instance_types.TYPES, 1)
        raise refusal(
            f"The instance type {value!r} is not supported.",
            f"Did you mean {near[0]}?"
            if near
            else "Use one of " + ", ".join(instance_types.TYPES) + ".",
        )
    return value


def sdk(value: Any) -> str:
    """Check an SDK pin; return the release."""
    if isinstance(value, float):
        raise refusal(
            f"The SDK pin {value} is a number, so 2.30 would read as 2.3.",
            f'Quote it: sdk: "{value}".',
        )
    try:
        version = sdks.normal(str(value))
    except ValueError:
        raise refusal(
            f"The SDK pin {value!r} is not a version (and `latest` is a surprise, not a pin).",
            'Write it as in sdk: "2.26.1".',
        ) from None
    if version not in sdks.RELEASES:
        raise refusal(
            f"There is no SDK {version} in the table of releases.",
            f"Known: {', '.join(sorted(sdks.RELEASES, key=sdks.parse))}; newer ones are added in"
            " classroom/spec/sdk.py.",
        )
    return version


def cidr(value: str) -> str:
    """Check a network; return it in its usual form."""
    try:
        net = ipaddress.ip_network(value, strict=True)
    except ValueError as error:
        raise refusal(
            f"{value!r} is not a network: {error}.",
            "Write it as 203.0.113.0/24, one address as 203.0.113.7/32.",
        ) from None
    return str(net)


def clock(value: Any) -> str:
    """Check a time of day."""
    if isinstance(value, int):  # YAML 1.1 reads 23:30 without quotes as minutes
        raise refusal(
            "The time is not quoted, so YAML reads it as a number.", 'Write it as "23:30".'
        )
    match = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)", str(value))
    if not match:
        raise refusal(f"{value!r} is not a time of day.", 'Write it as "23:30" (24 hours).')
    return str(value)


def zone(value: str) -> str:
    """Check the name of a time zone."""
    if value not in available_timezones():
        near = difflib.get_close_matches(value, sorted(available_timezones()), 1)
        raise refusal(
            f"{value!r} is not a time zone.",
            f"Did you mean {near[0]}?" if near else "Write it as America/New_York.",
        )
    return value


def repository(value: str) -> str:
    """Check the address of the lab repository."""
    if not re.fullmatch(r"(https://|ssh://git@|git@)[^\s@]+", value):
        raise refusal(
            "The lab repository is not an https:// or git@ address (one with a password in it is"
            " refused).",
            "Write it as https://github.com/course/labs.git, a private one as"
            " git@github.com:course/labs.git: configure reads that with your own key.",
        )
    return value


def commit(value: Any) -> str:
    """Check a full commit id."""
    if not re.fullmatch(r"[0-9a-f]{40}", str(value)):
        raise refusal(
            f"The lab commit {str(value)[:40]!r} is not a full commit id.",
            "Write all 40 hex digits (quoted), from `git rev-parse HEAD`: a branch name moves"
            " during the course.",
        )
    return str(value)


IDS = {"vpc": "vpc-0123456789abcdef0", "subnet": "subnet-0123456789abcdef0"}


def _id(kind: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(rf"{kind}-[0-9a-f]{{8,17}}", value):
        raise refusal(f"{value!r} is not the id of a {kind}.", f"Write it like {IDS[kind]}.")
    return value


def vpc(value: Any) -> dict[str, str]:
    """Check `vpc`: an id, or one for each region. Returns region -> id; region "" is any."""
    given = value if isinstance(value, dict) else {"": value}
    return {region(r) if r else r: _id("vpc", v) for r, v in given.items()}


def subnets(value: Any) -> dict[str, list[str]]:
    """Check `subnets`: a list of ids, or one for each region. Returns region -> ids; region "" is
    any."""
    given = value if isinstance(value, dict) else {"": value}
    for ids in given.values():
        if not isinstance(ids, list) or not ids:
            raise refusal(f"{ids!r} is not a list of subnets.", f"Write it like [{IDS['subnet']}].")
    return {region(r) if r else r: [_id("subnet", s) for s in ids] for r, ids in given.items()}


def tags(value: Any) -> dict[str, str]:
    """Check `tags`: what the tags of EC2, IAM, S3 and Budgets all take."""
    if not isinstance(value, dict):
        raise refusal(f"{value!r} holds no tags.", 'Write them as {cost-center: "4711"}.')
    out = {}
    for key, word in value.items():
        if not isinstance(word, str):
            raise refusal(
                f"The value of the tag {key!r} is {word!r}, which is not text.",
                f'Quote it: {key}: "{word}".',
            )
        for text, most in ((str(key), 128), (word, 256)):
            if len(text) > most or not re.fullmatch(r"[\w .:/=+@-]*", text):
                raise refusal(
                    f"The tag {key!r}: {word!r} is more than AWS's services all take.",
                    "Use letters, digits, spaces and _ . : / = + - @; 128 for a key, 256 for a"
                    " value.",
                )
        if not str(key) or str(key).lower().startswith(("aws:", "trainium-labs:")) or key == "Name":
            raise refusal(f"The tag {key!r} is AWS's or the class's own.", "Remove it.")
        out[str(key)] = word
    return out


def boundary(value: str) -> str:
    """Check the ARN of a permissions boundary."""
    if value and not re.fullmatch(r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]+", value):
        raise refusal(
            f"{value!r} is not the ARN of a managed policy.",
            "Write it like arn:aws:iam::123456789012:policy/ResearchBoundary.",
        )
    return value
