"""A mail to the staff when a guard fails.

When AWS refuses a call of a schedule, EventBridge Scheduler drops it without a message, and a
function's errors send no message either. But both are counted in CloudWatch. So each region with
machines has alarms on these counters, which mail `contact` through a topic of Amazon SNS. SNS first
asks that address to confirm the subscription; this is also the test mail. An automation that starts
and may not stop its machines is counted nowhere: a rule of EventBridge mails its end. The rule sees
every automation of the region that stops machines, of other classes, too. Source: EventBridge
Scheduler guide, "Monitoring with CloudWatch"; Lambda guide, "Types of metrics"; SNS guide, "Email
notifications"; Systems Manager guide, "Monitoring Automation with EventBridge"; EventBridge guide,
"Amazon SNS permissions".
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from ..aws.cloud import Cloud, doing
from ..aws.problems import ClassroomError
from ..spec import tags
from ..spec.class_file import ClassSpec
from ..spec.run import Run
from .alarms import read_alarms
from .policies import DOCUMENTS

PENDING = "PendingConfirmation"  # instead of a subscription's ARN, until the address has agreed
COUNTERS = ("TargetErrorCount", "InvocationDroppedCount")
# A guard that is refused all the time is so four times in an hour: `unarmed` runs every 15 minutes.
# In a new class AWS's services know the role seconds late, and refuse it up to three times.
PERIOD, TOLERATED = 3600, 3.0
ENDS = ("Failed", "TimedOut")
_EVENT = "EC2 Automation Execution Status-change Notification"


def topic_arn(cloud: Cloud, name: str, region: str) -> str:
    """Return the ARN of a class's topic in a region."""
    return f"arn:aws:sns:{region}:{cloud.account}:trainium-labs_{name}_failures"


def _alarms(spec: ClassSpec, region: str, topic: str) -> dict[str, dict[str, Any]]:
    """Return the alarms of a region: name -> arguments of put_metric_alarm."""
    group = {"ScheduleGroup": tags.group(spec)}
    watched = [("AWS/Scheduler", counter, group) for counter in COUNTERS]
    if spec.my and region == spec.regions[0]:
        watched.append(("AWS/Lambda", "Errors", {"FunctionName": tags.function(spec)}))
    return {
        f"{tags.prefix(spec)}failures.{metric}": {
            "AlarmDescription": f"A guard of class {spec.name} failed: run status",
            "ActionsEnabled": True,
            "Namespace": namespace,
            "MetricName": metric,
            "Dimensions": [{"Name": k, "Value": v} for k, v in of.items()],
            "Statistic": "Sum",
            "Period": PERIOD,
            "EvaluationPeriods": 1,
            "Threshold": TOLERATED,
            "ComparisonOperator": "GreaterThanThreshold",
            "TreatMissingData": "notBreaching",
            "AlarmActions": [topic],
        }
        for namespace, metric, of in watched
    }


def rule_name(name: str) -> str:
    """Return the name of a class's rule: which automations are mailed."""
    return f"trainium-labs.{name}.failures"


def _pattern() -> str:
    """Return what the rule matches: the end of a runbook that did not stop its machines."""
    detail = {"Status": list(ENDS), "Definition": list(DOCUMENTS)}
    return json.dumps({"source": ["aws.ssm"], "detail-type": [_EVENT], "detail": detail})


def _publishers(cloud: Cloud, topic: str) -> str:
    """Return the topic's policy: this account's alarms and rules may publish."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": ["cloudwatch.amazonaws.com", "events.amazonaws.com"]},
        "Action": "sns:Publish",
        "Resource": topic,
        "Condition": {"StringEquals": {"aws:SourceAccount": cloud.account}},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def count(spec: ClassSpec) -> int:
    """Return how many alarms a class has in its first region."""
    return len(_alarms(spec, spec.regions[0], ""))


def ensure(run: Run, region: str) -> None:
    """Make topic, subscription and alarms of a region, after its guards are proven. If AWS refuses
    them, the user gets a warning: the guards work without, and `status` names what is missing."""
    topic = topic_arn(run.cloud, run.spec.name, region)
    try:
        with doing("let AWS mail when a guard fails", region):
            _topic(run, region, topic)
            have = read_alarms(run, region)
            client = run.cloud.client("cloudwatch", region)
            for name, want in _alarms(run.spec, region, topic).items():
                old = have.get(name, {})
                if any(old.get(k) != v for k, v in want.items()):
                    extra = {} if old else {"Tags": tags.as_list(tags.common(run.spec))}
                    run.do(
                        f"{region}: {'update' if old else 'create'} alarm {name}",
                        partial(client.put_metric_alarm, AlarmName=name, **want, **extra),
                    )
            _rule(run, region, topic)
    except ClassroomError as error:
        run.warn(f"No mail will be sent when a guard fails: {error}")


def read_rule(cloud: Cloud, name: str, region: str) -> dict[str, Any] | None:
    """Return a class's rule, with its topic as "target"; None if there is none."""
    client, named = cloud.client("events", region), rule_name(name)
    try:
        rule = dict(client.describe_rule(Name=named))
    except client.exceptions.ResourceNotFoundException:
        return None
    targets = client.list_targets_by_rule(Rule=named)["Targets"]
    return {**rule, "target": targets[0]["Arn"] if targets else ""}


def _is_right(rule: dict[str, Any] | None, topic: str) -> bool:
    return (
        rule is not None
        and rule["target"] == topic
        and rule["State"] == "ENABLED"
        and json.loads(rule["EventPattern"]) == json.loads(_pattern())
    )


def _rule(run: Run, region: str, topic: str) -> None:
    rule = read_rule(run.cloud, run.spec.name, region)
    if _is_right(rule, topic):
        return
    client, name = run.cloud.client("events", region), rule_name(run.spec.name)
    label = {} if rule else {"Tags": tags.as_list(tags.common(run.spec))}

    def make() -> None:
        client.put_rule(Name=name, EventPattern=_pattern(), State="ENABLED", **label)
        client.put_targets(Rule=name, Targets=[{"Id": "mail", "Arn": topic}])

    run.do(f"{region}: {'update' if rule else 'create'} rule {name}", make)


def remove_rule(cloud: Cloud, name: str, region: str) -> None:
    """Delete a rule by its name, its targets first, as EventBridge demands."""
    client = cloud.client("events", region)
    if ids := [t["Id"] for t in client.list_targets_by_rule(Rule=name)["Targets"]]:
        client.remove_targets(Rule=name, Ids=ids)
    client.delete_rule(Name=name)


def _topic(run: Run, region: str, topic: str) -> None:
    client, contact = run.cloud.client("sns", region), run.spec.contact
    name = topic.rsplit(":", 1)[1]
    have: dict[str, str] = {}
    policy = _publishers(run.cloud, topic)
    if exists(run.cloud, topic, region):
        have = _subscribers(run, topic, region)
        now = client.get_topic_attributes(TopicArn=topic)["Attributes"].get("Policy", "{}")
        if json.loads(now) != json.loads(policy):
            given = {"AttributeName": "Policy", "AttributeValue": policy}
            allow = partial(client.set_topic_attributes, TopicArn=topic, **given)
            run.do(f"{region}: say who may publish to {name}", allow)
    else:
        label = tags.as_list(tags.common(run.spec))
        make = partial(client.create_topic, Name=name, Tags=label, Attributes={"Policy": policy})
        run.do(f"{region}: create topic {name}", make)
    if have.get(contact, PENDING) == PENDING:  # SNS sends its question again
        ask = partial(client.subscribe, TopicArn=topic, Protocol="email", Endpoint=contact)
        if contact not in have:
            run.do(f"{region}: ask {contact} to confirm mails about guards", ask)
        elif not run.check:
            ask()
        if not run.check and _subscribers(run, topic, region).get(contact, PENDING) == PENDING:
            run.warn(_unconfirmed(contact, region))
    for address, arn in have.items():
        if address != contact and arn != PENDING:  # SNS drops an unconfirmed one itself
            run.do(
                f"{region}: no more mails about guards to {address}",
                partial(client.unsubscribe, SubscriptionArn=arn),
            )


def exists(cloud: Cloud, topic: str, region: str) -> bool:
    """Return whether a topic exists."""
    client = cloud.client("sns", region)
    try:
        client.get_topic_attributes(TopicArn=topic)
    except client.exceptions.NotFoundException:
        return False
    return True


def _subscribers(run: Run, topic: str, region: str) -> dict[str, str]:
    """Return address -> ARN of its subscription, or PENDING."""
    subscriptions = run.cloud.pages(
        "sns", region, "list_subscriptions_by_topic", "Subscriptions", TopicArn=topic
    )
    return {s["Endpoint"]: s["SubscriptionArn"] for s in subscriptions}


def _unconfirmed(contact: str, region: str) -> str:
    return (
        f'{region}: AWS has sent {contact} a mail, "AWS Notification - Subscription Confirmation".'
        " Follow the link in it; until then, no mail is sent when a guard fails. If it has not"
        " arrived, check `contact` in class.yml and run provision, which sends it again."
    )


def problems(run: Run, region: str) -> list[str]:
    """Return why no mail would be sent if a guard in this region failed; [] if one would be."""
    topic = topic_arn(run.cloud, run.spec.name, region)
    with doing("read who gets mails about guards that fail", region):
        if not exists(run.cloud, topic, region):
            return [f"{region}: no mail is set up for guards that fail: run provision again."]
        have = _subscribers(run, topic, region)
        missing = set(_alarms(run.spec, region, topic)) - set(read_alarms(run, region))
        if not _is_right(read_rule(run.cloud, run.spec.name, region), topic):
            missing.add(f"rule {rule_name(run.spec.name)}")
    out = []
    if have.get(run.spec.contact, PENDING) == PENDING:
        out.append(_unconfirmed(run.spec.contact, region))
    if missing:
        named = ", ".join(sorted(missing))
        out.append(f"{region}: alarms or rules are missing ({named}): run provision.")
    return out
