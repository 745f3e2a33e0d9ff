"""A class as its self-service function sees it: settings, machines and their tags, hours and caps,
mails; and what schedules ask for.

Needs nothing but boto3. Everything is read from AWS at each request: nothing is kept but whether
the class has used up its budget, for five minutes.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from pathlib import Path
from typing import Any

import boto3
import botocore.config
import botocore.exceptions

SAMPLES_PER_HOUR = 60  # of CPUUtilization, in five-minute periods (documented: EC2 metrics)
# Seconds: samples are up to five minutes old, caps are looked at every fifteen.
LATE_SECONDS = 1200
QUERIES = 400  # metrics in one GetMetricData (documented: 500)
TAG = "trainium-labs:"
CLASS, OWNER, GUARD = TAG + "class", TAG + "owner", TAG + "guard"
SEAT, LINK = TAG + "core-", TAG + "link-"
ACTED, ASKS, CAP, BEFORE, HOSTKEY = (TAG + n for n in ("acted", "asks", "cap", "before", "hostkey"))
UNMAILED, REACH = TAG + "unmailed", TAG + "reach"
FAST = ("RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException")
FULL = ("InsufficientInstanceCapacity", "InsufficientHostCapacity", "VcpuLimitExceeded")


def settings() -> dict[str, Any]:
    """Return what the class's staff put into the function's environment."""
    return json.loads(os.environ["CLASS"])


def key() -> bytes:
    """Return the key that links are signed with."""
    return bytes.fromhex(os.environ["LINK_KEY"])


def now() -> dt.datetime:
    """Return the time."""
    return dt.datetime.fromtimestamp(time.time(), dt.timezone.utc)


_clients: dict[tuple[str, str], Any] = {}


def client(service: str, region: str) -> Any:
    """Return a client that asks once again at most: a student waits for the answer."""
    if (service, region) not in _clients:
        config = botocore.config.Config(
            retries={"total_max_attempts": 2, "mode": "standard"},
            connect_timeout=3,
            read_timeout=10,
            max_pool_connections=20,
        )
        _clients[service, region] = boto3.client(service, region_name=region, config=config)
    return _clients[service, region]


def code_of(error: Exception) -> str:
    """Return AWS's code of an error."""
    return getattr(error, "response", {}).get("Error", {}).get("Code", "")


def tags_of(machine: dict[str, Any]) -> dict[str, str]:
    """Return the tags of a machine."""
    return {t["Key"]: t["Value"] for t in machine.get("Tags") or []}


def seats(tags: dict[str, str]) -> list[str]:
    """Return the students of a shared machine."""
    return [v for k, v in sorted(tags.items()) if k.startswith(SEAT)]


def rate(c: dict[str, Any], machine: dict[str, Any]) -> float:
    """Return dollars an hour of a machine."""
    return c["usd_hour"].get(
        machine.get("InstanceLifecycle") or "on-demand", max(c["usd_hour"].values())
    )


def hours(c: dict[str, Any], region: str, ids: list[str]) -> dict[str, float]:
    """Return how many hours machines have run since the class began, by their CPU samples."""
    out = dict.fromkeys(ids, 0.0)
    for at in range(0, len(ids), QUERIES):
        batch = ids[at : at + QUERIES]
        queries = [
            {
                "Id": f"q{k}",
                "MetricStat": {
                    "Stat": "SampleCount",
                    "Period": 86400,
                    "Metric": {
                        "Namespace": "AWS/EC2",
                        "MetricName": "CPUUtilization",
                        "Dimensions": [{"Name": "InstanceId", "Value": i}],
                    },
                },
            }
            for k, i in enumerate(batch)
        ]
        more: dict[str, str] = {}
        while True:
            page = client("cloudwatch", region).get_metric_data(
                MetricDataQueries=queries,
                StartTime=dt.datetime.fromisoformat(c["since"]),
                EndTime=now() + dt.timedelta(minutes=5),
                **more,
            )
            for r in page["MetricDataResults"]:
                out[batch[int(r["Id"][1:])]] += sum(r["Values"]) / SAMPLES_PER_HOUR
            if not page.get("NextToken"):
                break
            more = {"NextToken": page["NextToken"]}
    return out


def cap_of(c: dict[str, Any], tags: dict[str, str]) -> float:
    """Return the cap of a machine in dollars: each who shares it brings theirs."""
    return float(tags.get(CAP) or c["cap_usd"] * max(1, len(seats(tags))))


def used_of(c: dict[str, Any], machine: dict[str, Any], ran: float) -> float:
    """Return what a machine has cost, with what its owner's former machines did."""
    return float(tags_of(machine).get(BEFORE) or 0) + ran * rate(c, machine)


def over(c: dict[str, Any], machine: dict[str, Any], ran: float) -> bool:
    """Return whether a machine must not run: AWS counts late, so it stops before the cap."""
    late = LATE_SECONDS / 3600 * rate(c, machine)
    return used_of(c, machine, ran) + late > cap_of(c, tags_of(machine))


_class_spent: dict[str, tuple[float, bool]] = {}


def class_is_over(c: dict[str, Any]) -> bool:
    """Return whether the class has used up its budget, as AWS counts it (some hours late)."""
    if not c["budget"]:  # an account without budgets: each student's cap is all there is
        return False
    at, is_over = _class_spent.get(c["name"], (0.0, False))
    if time.time() - at < 300:
        return is_over
    try:
        b = client("budgets", "us-east-1").describe_budget(
            AccountId=c["account"], BudgetName=c["budget"]
        )["Budget"]
        spent = float(b.get("CalculatedSpend", {}).get("ActualSpend", {}).get("Amount", 0))
        is_over = spent >= float(b["BudgetLimit"]["Amount"])
    except botocore.exceptions.ClientError as error:
        if code_of(error) not in FAST:
            raise
    _class_spent[c["name"]] = (time.time(), is_over)
    return is_over


# ---- what schedules ask for ----


def machines(c: dict[str, Any], region: str, states: list[str]) -> list[dict[str, Any]]:
    """Return the class's machines of a region that are in some states."""
    pages = (
        client("ec2", region)
        .get_paginator("describe_instances")
        .paginate(
            Filters=[
                {"Name": f"tag:{CLASS}", "Values": [c["name"]]},
                {"Name": "instance-state-name", "Values": states},
            ]
        )
    )
    return [i for page in pages for r in page["Reservations"] for i in r["Instances"]]


def caps(c: dict[str, Any]) -> dict[str, Any]:
    """Stop every machine whose student has used up the cap."""
    stopped: list[str] = []
    for region in c["regions"]:
        running = {m["InstanceId"]: m for m in machines(c, region, ["running"])}
        ran = hours(c, region, list(running))
        ids = [i for i, m in running.items() if over(c, m, ran[i])]
        for k in range(0, len(ids), 100):
            client("ec2", region).stop_instances(InstanceIds=ids[k : k + 100])
        stopped += ids
        people = [(i, running[i]) for i in ids]
        send(
            c,
            region,
            [
                (
                    m,
                    to,
                    f"{c['name']}: your machine was stopped",
                    f"Your machine of {c['name']} has used ${used_of(c, m, ran[i]):.2f} of"
                    f" ${cap_of(c, tags_of(m)):.2f}, so it was stopped. Your files stay."
                    " On your page you can ask for more.",
                )
                for i, m in people
                for to in addresses(tags_of(m))
            ],
        )
    return {"stopped": stopped}


def warn(c: dict[str, Any], what: str) -> dict[str, Any]:
    """Write to students before the nightly stop, or before the end of the class."""
    states = ["running"] if what == "night" else ["running", "stopped", "stopping", "pending"]
    text = {
        "night": f"Your machine stops at {c['night']} ({c['zone']}), in half an hour. Save your"
        " work; files stay.",
        "end": f"On {c['end'][:10]} everything of {c['name']} is deleted, disks too. Push your work"
        " to your own repository before that day.",
    }[what]
    subject = f"{c['name']}: your machine {'stops soon' if what == 'night' else 'will be deleted'}"
    count = sent = 0
    for region in c["regions"]:
        warned = machines(c, region, states)
        mails = [(m, to, subject, text) for m in warned for to in addresses(tags_of(m))]
        count, sent = count + len(mails), sent + send(c, region, mails)
    return {"mails": count, "sent": sent}


def addresses(tags: dict[str, str]) -> list[str]:
    """Return the mail addresses of a machine's students; none where the class sends no mail."""
    file = Path(__file__).with_name("people.json")
    people = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return [people[s] for s in seats(tags) or [tags.get(OWNER, "")] if s in people]


def send(c: dict[str, Any], region: str, mails: list[tuple[dict[str, Any], str, str, str]]) -> int:
    """Send mails about machines of a region through SES, as fast as the account may; return how
    many went out. A refused mail becomes a tag of the machine, since there is no log."""
    sent = 0
    messages: dict[str, tuple[dict[str, Any], str]] = {}
    for machine, to, subject, text in mails if c.get("mail_from") else ():
        try:
            client("sesv2", c["regions"][0]).send_email(
                FromEmailAddress=c["mail_from"],
                Destination={"ToAddresses": [to]},
                Content={
                    "Simple": {"Subject": {"Data": subject}, "Body": {"Text": {"Data": text}}}
                },
            )
            sent += 1
            messages.setdefault(machine["InstanceId"], (machine, "ok"))
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
            messages[machine["InstanceId"]] = (machine, code_of(error) or type(error).__name__)
        time.sleep(c.get("mail_seconds", 0.1))
    for machine, word in messages.values():
        before = tags_of(machine).get(UNMAILED, "")
        if word != (before.rpartition(" ")[2] or "ok"):
            note(region, machine["InstanceId"], f"{now():%Y-%m-%dT%H:%MZ} {word}")
    return sent


def note(region: str, machine: str, value: str) -> None:
    """Write what became of a machine's mails into its tag; without the permission (a boundary that
    is older than this tag) it is only printed."""
    try:
        client("ec2", region).create_tags(
            Resources=[machine], Tags=[{"Key": UNMAILED, "Value": value}]
        )
    except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
        print(f"not noted: {value} ({code_of(error) or type(error).__name__})")
