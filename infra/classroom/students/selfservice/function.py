"""A student's own access: start, stop and see one machine, by a signed link.

This folder is the code of an AWS Lambda function behind a function URL. It needs boto3, which
Lambda brings, and Jinja2, which is in the archive. It keeps nothing: who may do what is in the link
and in the tags of the machine. The URL asks for no AWS sign-in (students have none), so everything
here rests on the link's signature: an HMAC-SHA256 over class, region, machine, student, number and
expiry.

- A GET changes nothing: mail programs and chats open links to preview them.
- A POST needs a ticket, which a GET hands out: signed, ten minutes old at most, and newer than the
  last one that did something (tag `trainium-labs:acted`), so a recorded POST does nothing again.
- A link ends at its expiry, with its machine, and when its number is below the tag
  `trainium-labs:link-<student>`.
- A machine does not start if no guard would stop it (tag `trainium-labs:guard`), or if its student
  has used up the cap. A schedule calls with {"do": "caps"} and stops those who reach it meanwhile.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import json
import random
import time
import urllib.parse
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import botocore.exceptions

from . import page
from .aws import (
    ACTED,
    ASKS,
    CLASS,
    FAST,
    FULL,
    GUARD,
    HOSTKEY,
    LINK,
    OWNER,
    REACH,
    cap_of,
    caps,
    class_is_over,
    client,
    code_of,
    hours,
    key,
    now,
    over,
    rate,
    seats,
    send,
    settings,
    tags_of,
    used_of,
    warn,
)

TICKET_SECONDS = 600
STARTS_A_SECOND = 1.5  # AWS refills 2 for an account and region (documented); we stay below


# ---- links ----


def sign(key: bytes, *parts: object) -> str:
    """Return the signature of some values, 128 bits in base64 for addresses."""
    text = "\n".join(map(str, parts)).encode()
    return base64.urlsafe_b64encode(hmac.digest(key, text, hashlib.sha256)[:16]).decode()[:22]


def link_mac(key: bytes, name: str, q: dict[str, str]) -> str:
    """Return the signature that a link to a machine of class `name` must carry."""
    return sign(key, "link", name, *(q.get(k, "") for k in "rsine"))


def query(
    key: bytes, name: str, region: str, instance: str, student: str, number: int, expires: int
) -> str:
    """Return the query string of a student's link: `expires` in seconds since 1970."""
    q = {"s": student, "r": region, "i": instance, "n": str(number), "e": str(expires)}
    return urllib.parse.urlencode({**q, "k": link_mac(key, name, q)})


class Answer(Exception):
    """End a request with a status, a sentence, and when to come back, in seconds."""

    def __init__(self, status: int, text: str, retry: float = 0) -> None:
        super().__init__(text)
        self.status, self.text, self.retry = status, text, retry


# ---- one request ----


def admit(c: dict[str, Any], q: dict[str, str]) -> None:
    """Check the link itself; raise Answer."""
    if not hmac.compare_digest(link_mac(key(), c["name"], q).encode(), q.get("k", "").encode()):
        raise Answer(403, "This link is not valid. Copy it whole from your page, or ask the staff.")
    if time.time() > int(q["e"]):
        day = dt.datetime.fromtimestamp(int(q["e"]), dt.timezone.utc).date()
        raise Answer(403, f"This link ended on {day}. Ask the staff for a new one.")


def find(c: dict[str, Any], q: dict[str, str]) -> dict[str, Any]:
    """Return the machine of a link; raise Answer when it is gone, not theirs, or revoked."""
    try:
        reservations = client("ec2", q["r"]).describe_instances(InstanceIds=[q["i"]])[
            "Reservations"
        ]
        machine = reservations[0]["Instances"][0] if reservations else None
    except botocore.exceptions.ClientError as error:
        if "NotFound" not in code_of(error):
            raise
        machine = None
    if machine is None or machine["State"]["Name"] in ("terminated", "shutting-down"):
        raise Answer(410, "The machine of this link is gone. Ask the staff for your new page.")
    tags = tags_of(machine)
    if tags.get(CLASS) != c["name"] or q["s"] not in (seats(tags) or [tags.get(OWNER, "")]):
        raise Answer(403, "The machine of this link is not yours any more. Ask the staff.")
    if int(q["n"]) < int(tags.get(LINK + q["s"]) or 0):
        raise Answer(403, "The staff have ended this link. Ask them for the new one.")
    return machine


def ticket(q: dict[str, str], at: int) -> str:
    """Return what a POST must bring: made now (milliseconds), for this link only."""
    return f"{at}.{sign(key(), 'ticket', q['k'], at)}"


def punched(q: dict[str, str], given: str, tags: dict[str, str]) -> int:
    """Check a ticket and return its time; raise Answer."""
    text, _, mac = given.partition(".")
    at = int(text) if text.isdigit() and len(text) < 15 else 0
    if not hmac.compare_digest(sign(key(), "ticket", q["k"], at).encode(), mac.encode()):
        raise Answer(403, "This request was not made by your page. Open the link again.")
    if time.time() - at / 1000 > TICKET_SECONDS:
        raise Answer(409, "This page is more than ten minutes old. Open the link again.")
    if at <= int(tags.get(ACTED) or 0):
        raise Answer(409, "This has been done already. Open the link again.")
    return at


def wait_answer(c: dict[str, Any], what: str) -> Answer:
    """Return the answer for a request that must wait; the waits are spread over the class."""
    wait = 3 + random.random() * max(10, c["machines"] / STARTS_A_SECOND)
    at = (now() + dt.timedelta(seconds=wait)).astimezone(ZoneInfo(c["zone"]))
    return Answer(
        202,
        f"AWS lets a class {what} only so many machines a second, and others are before you."
        f" You are asked for again by yourself at {at:%H:%M:%S}: leave this open.",
        wait,
    )


def start(c: dict[str, Any], q: dict[str, str], machine: dict[str, Any]) -> str:
    """Start a machine, if nothing forbids it; return what to say."""
    tags, state = tags_of(machine), machine["State"]["Name"]
    if state in ("running", "pending"):
        return "It runs already."
    if now() >= dt.datetime.fromisoformat(c["end"]):
        raise Answer(403, "The class is over.")
    if tags.get(GUARD) != "armed":
        raise Answer(409, "Nothing would stop this machine when it idles. Ask the staff.")
    ran = hours(c, q["r"], [q["i"]])[q["i"]]
    if over(c, machine, ran):
        used, most = used_of(c, machine, ran), cap_of(c, tags)
        raise Answer(
            403,
            f"${used:.2f} of your ${most:.2f} are used, so it does not start: ask for more"
            " below. Your files stay.",
        )
    if class_is_over(c):
        raise Answer(403, "The class has used up its budget. Ask the staff.")
    if state == "stopping":
        raise Answer(202, "It is still stopping, and is started after that.", 15)
    try:
        client("ec2", q["r"]).start_instances(InstanceIds=[q["i"]])
    except botocore.exceptions.ClientError as error:
        code = code_of(error)
        if code == "IncorrectInstanceState":
            raise Answer(202, "It is still stopping, and is started after that.", 15) from error
        if code == "IncorrectSpotRequestState":
            raise Answer(503, "AWS has taken this spot machine and starts it itself.") from error
        if code in FULL:
            raise Answer(
                503,
                "AWS has no free machine in this zone just now. It is tried again in ten"
                " minutes; the staff can give you one in another zone, with your saved work.",
                600,
            ) from error
        if code in FAST:
            raise wait_answer(c, "start") from error
        raise
    return "It starts; you can log in within a minute or two."


def stop(c: dict[str, Any], q: dict[str, str], machine: dict[str, Any]) -> str:
    """Stop a machine of one's own; return what to say."""
    if seats(tags_of(machine)):
        raise Answer(403, "Others work on this machine: only the staff can stop it.")
    if machine["State"]["Name"] in ("stopped", "stopping"):
        return "It is stopped already."
    try:
        client("ec2", q["r"]).stop_instances(InstanceIds=[q["i"]])
    except botocore.exceptions.ClientError as error:
        if code_of(error) == "IncorrectInstanceState":
            raise Answer(202, "It is still starting, and is stopped after that.", 15) from error
        raise
    return "It stops; your files stay."


def mark(q: dict[str, str], key_: str, value: str) -> None:
    """Write a tag of the machine."""
    client("ec2", q["r"]).create_tags(Resources=[q["i"]], Tags=[{"Key": key_, "Value": value}])


def extend(c: dict[str, Any], q: dict[str, str], machine: dict[str, Any]) -> str:
    """Ask the staff for more; return what to say."""
    mark(q, ASKS, now().isoformat(timespec="minutes"))
    send(
        c,
        q["r"],
        [
            (
                machine,
                c["contact"],
                f"{q['s']} asks for more",
                f"{q['s']} of {c['name']} asks for a larger budget. To grant it, write a larger"
                f" number under budget.extra_usd in class.yml and run extend --limit {q['s']}.",
            )
        ],
    )
    return "The staff see your wish on their page. They decide."


ACTIONS = {"start": start, "stop": stop, "extend": extend}


def facts(c: dict[str, Any], q: dict[str, str], machine: dict[str, Any]) -> dict[str, Any]:
    """Return what a student may know of their machine."""
    tags, region = tags_of(machine), q["r"]
    ran = hours(c, region, [q["i"]])[q["i"]]
    used, most, per_hour = used_of(c, machine, ran), cap_of(c, tags), rate(c, machine)
    shared = seats(tags)
    return {
        "class": c["name"],
        "student": q["s"],
        "machine": q["i"],
        "state": machine["State"]["Name"],
        "address": machine.get("PublicIpAddress") or (q["i"] if REACH in tags else ""),
        "reach": tags.get(REACH, ""),
        "region": region,
        "user": q["s"] if shared else "ubuntu",
        "alias": f"{c['name']}-{q['s']}",
        "host_key": tags.get(HOSTKEY, ""),
        "hours": round(ran, 2),
        "used_usd": round(used, 2),
        "cap_usd": most,
        "usd_hour": per_hour,
        "hours_left": round(max(0.0, (most - used) / per_hour), 1),
        "stops_nightly": f"{c['night']} ({c['zone']})",
        "ends": c["end"][:10],
        "shared_with": [s for s in shared if s != q["s"]],
        "asked": tags.get(ASKS, ""),
    }


def serve(method: str, q: dict[str, str], form: dict[str, str]) -> dict[str, Any]:
    """Answer one request; return status, text, seconds until a retry, facts and the next ticket."""
    c, shown, text, status, retry = settings(), None, "", 200, 0.0
    try:
        admit(c, q)
        try:
            machine = find(c, q)
            if method == "POST":
                do = ACTIONS.get(form.get("do", ""))
                if do is None:
                    raise Answer(400, "Say what to do: start, stop or extend.")
                at = punched(q, form.get("t", ""), tags_of(machine))
                text = do(c, q, machine)
                mark(q, ACTED, str(at))
                machine = find(c, q)
            elif method != "GET":
                raise Answer(405, "Use the page.")
            shown = facts(c, q, machine)
        except botocore.exceptions.ClientError as error:
            if code_of(error) not in FAST:
                raise Answer(
                    502,
                    f"AWS did not do it ({code_of(error)}). Try again in a minute; if it"
                    " stays, tell the staff.",
                    60,
                ) from error
            if not text:
                raise wait_answer(c, "ask about") from error
        except botocore.exceptions.BotoCoreError as error:
            raise Answer(504, "AWS did not answer. Try again in a minute.", 60) from error
    except Answer as answer:
        status, text, retry = answer.status, answer.text, answer.retry
    made = ticket(q, int(time.time() * 1000)) if _signed(c, q) else ""
    return {
        "status": status,
        "text": text,
        "retry": round(retry, 1),
        "facts": shown,
        "ticket": made,
        "do": form.get("do", ""),
    }


def _signed(c: dict[str, Any], q: dict[str, str]) -> bool:
    return hmac.compare_digest(link_mac(key(), c["name"], q).encode(), q.get("k", "").encode())


# ---- HTTP ----


def respond(event: dict[str, Any]) -> dict[str, Any]:
    """Turn an event of a function URL (payload format 2.0) into an answer."""
    http = event["requestContext"]["http"]
    method = "GET" if http["method"] == "HEAD" else http["method"]
    q = {k: v for k, v in (event.get("queryStringParameters") or {}).items() if len(v) < 200}
    headers = {k.lower(): v for k, v in (event.get("headers") or {}).items()}
    body = event.get("body") or ""
    if event.get("isBase64Encoded"):
        body = base64.b64decode(body).decode("utf-8", "replace")
    form = dict(urllib.parse.parse_qsl(body[:2000]))
    program = q.pop("get", "") == "my.py"
    c = settings()
    base = {
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
    if program and _signed(c, q) and method == "GET":
        host = event["requestContext"].get("domainName", "")
        link = f"https://{host}/?{urllib.parse.urlencode(q)}"
        text = Path(__file__).with_name("my.py").read_text(encoding="utf-8")
        return {
            "statusCode": 200,
            "headers": {**base, "Content-Type": "text/x-python"},
            "body": text.replace('LINK = ""', f"LINK = {link!r}", 1),
        }
    a = serve(method, q, form)
    if a["retry"]:
        base["Retry-After"] = str(int(a["retry"]) + 1)
    if "application/json" in headers.get("accept", ""):
        return {
            "statusCode": a["status"],
            "headers": {**base, "Content-Type": "application/json"},
            "body": json.dumps(a),
        }
    text, policy = page.page(c, q, a)
    return {
        "statusCode": a["status"],
        "body": text,
        "headers": {
            **base,
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": policy,
        },
    }


def handler(event: dict[str, Any], context: Any = None) -> dict[str, Any]:
    """Answer a request, or do what a schedule asks for."""
    if "requestContext" in event:
        return respond(event)
    c = settings()
    if event.get("do") == "caps":
        return caps(c)
    if event.get("do") == "warn":
        return warn(c, event["what"])
    raise ValueError(f"nothing to do for {event!r}")
