"""A rehearsal on the real account: the smallest machine goes through every guard, and what AWS
answered is written down.

A guard that exists may still be refused by AWS, silently. So once per account a t3.nano (about a
cent) is left unarmed until the schedule stops it, left idle until the alarm stops it, and torn
down. It takes about an hour, nearly all of it waiting.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..aws import rate_limit
from ..aws.cloud import doing, words_of
from ..aws.problems import ClassroomError
from ..fleet import inventory
from ..fleet.inventory import Machine, Wanted
from ..guards import audit, budgets, class_guards, roles
from ..guards.alarms import alarm_minutes
from ..machines import access, arrivals, launch, spot
from ..spec import instance_types, tags
from ..spec.class_file import ClassSpec, Idle
from ..spec.run import Run
from ..students import links
from ..teardown import removal
from ..work import copies

FILE = "class.drill.json"
IMAGE = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
POLL_SECONDS = 30
SPOT_SECONDS = 120  # in which AWS would start a machine again whose request lives
# Everything that could tell whose account it was. The order counts: long forms first.
SECRET = (
    (r"arn:aws[\w-]*:[^\s\"']+", "<arn>"),
    (r"[\w.+-]+@[\w-]+\.[\w.]+", "<address>"),
    (r"\b(i|sg|subnet|vpc|vol|eni|ami|lt|eipalloc)-[0-9a-f]{8,17}\b", r"<\1>"),
    (r"\b\d{1,3}(\.\d{1,3}){3}\b", "<ip>"),
    (r"\b\d{12}\b", "<account>"),
)


def spec_of(spec: ClassSpec) -> ClassSpec:
    """Return the class of the drill: the same account, regions and hours, one small machine."""
    small = spec.model_copy(
        update={
            "name": f"{spec.name[:18].rstrip('-')}-drill",
            "instance_type": instance_types.DRILL.name,
            "market": "on-demand",
            "mode": "per-student",
            "elastic_ip": False,
            "disk_gib": 8,
            "idle": Idle(minutes=5, grace_minutes=1),
            "budget": spec.budget.model_copy(update={"per_student_usd": 1, "class_usd": 1}),
        }
    )
    small._students = []
    return small


class Transcript:
    """Hold what was tried, what was seen, and what AWS answered."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.steps: list[dict[str, Any]] = []

    def step(self, what: str, act: Callable[[], str]) -> bool:
        """Do one step and write down how it went; return whether it went well."""
        self.run.say(what)
        started = self.run.cloud.now().isoformat(timespec="seconds")
        try:
            seen, good = act(), True
        except ClassroomError as error:
            seen, good = str(error), False
        except Exception as error:
            seen, good = words_of(error), False
        self.steps.append({"step": what, "at": started, "good": good, "seen": seen})
        return good

    @property
    def good(self) -> bool:
        """Return whether every step went well."""
        return bool(self.steps) and all(s["good"] for s in self.steps)


def _guarded(run: Run, region: str) -> str:
    role = roles.roles(run)
    class_guards.budgets(run, {})
    links.deploy(run)
    class_guards.schedules(run, region, role)
    class_guards.verify(run, region, role)
    return "role, budget and schedules exist and read back as they were written"


def _scheduler(run: Run, region: str) -> str:
    role = f"arn:aws:iam::{run.cloud.account}:role/{roles.guard_role(run)}"
    why = audit.proven(run, region, role)
    if why:
        raise ClassroomError(why, "Run `python -m classroom doctor --policy` and compare.")
    seen = audit.executions(run, region)["unarmed"]
    return f"Scheduler started {seen.status} automation as the guards' role at {seen.at}"


def _called(run: Run, region: str) -> str:
    """Wait until a schedule has called the students' function, as CloudWatch counts it."""
    name, start = tags.function(run.spec), rate_limit.clock()
    metric = {
        "Namespace": "AWS/Lambda",
        "MetricName": "Invocations",
        "Dimensions": [{"Name": "FunctionName", "Value": name}],
    }
    query = {"Id": "m", "MetricStat": {"Stat": "Sum", "Period": 60, "Metric": metric}}
    while True:
        end = run.cloud.now() + dt.timedelta(hours=1)  # what happens while we wait counts, too
        with doing("read how often the function was called", region):
            counted = run.cloud.client("cloudwatch", region).get_metric_data(
                MetricDataQueries=[query], StartTime=end - dt.timedelta(hours=3), EndTime=end
            )["MetricDataResults"]
        calls = int(sum(v for r in counted for v in r["Values"]))
        waited = (rate_limit.clock() - start) / 60
        if calls:
            return f"called {calls} times after {waited:.0f} minutes"
        if waited > class_guards.CAPS_MINUTES + 10:
            raise ClassroomError(f"No call of {name} was counted in {waited:.0f} minutes.")
        rate_limit.sleep(POLL_SECONDS)


def _bucket(run: Run, region: str) -> str:
    """Make the bucket for copies, write one object, read it back."""
    copies.ensure(run)
    place = copies.folder(run)
    assert place is not None
    with doing(f"write to the bucket {place.bucket}", region):
        place.s3.put_object(**place.own, Key="drill/probe", Body=b"drill")
        body = place.s3.get_object(**place.own, Key="drill/probe")["Body"].read()
    if body != b"drill":
        raise ClassroomError(f"{place.bucket} gave back something else than was written.")
    return "the bucket keeps what is written to it"


def _spot(run: Run, region: str) -> str:
    """Start a spot machine, look whether its request carries our tags, end it for good."""
    m = _launch(run, region, "drill-spot")
    request = [r for r in spot.read(run, region) if r.get("InstanceId") == m.id]
    launch.retire(run, [m], unused=True)
    rate_limit.sleep(SPOT_SECONDS)
    with doing("look for machines that AWS started again", region):
        replacements = [
            machine for machine in inventory.read(run, region) if machine.name == m.name
        ]
    if replacements:
        raise ClassroomError("AWS has started it again: its request was not cancelled.")
    kept = "carries" if request else "does not carry"
    return f"its request {kept} the class's tags; nothing came back in {SPOT_SECONDS} seconds"


def _launch(run: Run, region: str, name: str = "drill") -> Machine:
    with doing("look up a small image", region):
        image = run.cloud.client("ssm", region).get_parameter(Name=IMAGE)["Parameter"]["Value"]
    net = access.network(run, region)
    access.key_pair(run, region)
    template = access.launch_template(run, net, image)
    (result,) = launch.launch(run, net, template, [Wanted(name, {}, name)])
    if result.machine is None:
        raise ClassroomError(f"The small machine did not start: {result.reason}.")
    failed = arrivals.settle(run, region, [result.machine])
    if failed:
        raise ClassroomError(f"The small machine ended: {failed[name]}.")
    return result.machine


def _stopped(run: Run, m: Machine, minutes: float) -> str:
    """Wait until something stops a machine; return after how many minutes."""
    start = rate_limit.clock()
    while True:
        with doing("look at the machine", m.region):
            state = launch.states(run.cloud, m.region, [m.id]).get(m.id, "gone")
        waited = (rate_limit.clock() - start) / 60
        if state in ("stopping", "stopped"):
            return f"stopped after {waited:.0f} minutes"
        if waited > minutes:
            raise ClassroomError(f"It is still {state} after {waited:.0f} minutes.")
        rate_limit.sleep(POLL_SECONDS)


def _armed(run: Run, m: Machine) -> str:
    launch.wait(run, m.region, [m.id], {"stopped"})
    bad = launch.arm(run, m.region, [m])
    if bad:
        raise ClassroomError("The idle alarm could not be made or read back.")
    failed = launch.start(run, m.region, [m])
    if failed:
        raise ClassroomError(f"It did not start again: {failed}.")
    return "the alarm is there, the machine is tagged armed and runs again"


def _budget_stop(run: Run, m: Machine) -> str:
    role = f"arn:aws:iam::{run.cloud.account}:role/{roles.guard_role(run)}"
    budgets.stop_actions(run, role, {budgets.class_budget_name(run): {m.region: [m.id]}})
    client, name = run.cloud.client("budgets"), budgets.class_budget_name(run)
    with doing("read the budget's stop action"):
        actions = client.describe_budget_actions_for_budget(
            AccountId=run.cloud.account, BudgetName=name
        )["Actions"]
    visible, words = audit.cost_tags(run)
    return f"stop action {[a['Status'] for a in actions]}; {words}"


def _ended(run: Run) -> str:
    report = removal.teardown(run.cloud, run.spec.name, say=run.say)
    if not report.clean:
        raise ClassroomError(report.summary())
    return report.summary()


def drill(run: Run) -> Transcript:
    """Try every guard with one small machine, and always remove it."""
    small = Run(spec_of(run.spec), run.cloud, say=run.say)
    region, out = run.spec.regions[0], Transcript(run)
    box: list[Machine] = []

    def start() -> str:
        box.append(_launch(small, region))
        return f"{box[0].type} runs in {box[0].zone}"

    try:
        good = out.step("guards are made and read back", lambda: _guarded(small, region))
        good = good and out.step(
            "a schedule starts an automation with the role", lambda: _scheduler(small, region)
        )
        if good and out.step("a t3.nano starts, unarmed", start):
            (m,) = box
            limit = class_guards.UNARMED_MINUTES + 5
            out.step("the schedule stops what is not armed", lambda: _stopped(small, m, limit))
            out.step("the budget may stop it", lambda: _budget_stop(small, m))
            if out.step("the idle alarm is armed", lambda: _armed(small, m)):
                minutes = alarm_minutes(small.spec.idle) + 25
                out.step("the idle alarm stops it", lambda: _stopped(small, m, minutes))
            _try_extras(run, small, region, out)
    finally:
        out.step("everything is removed and read back", lambda: _ended(small))
    return out


def _try_extras(run: Run, small: Run, region: str, out: Transcript) -> None:
    """Try what else class.yml asks for: the function, the bucket, spot machines."""
    if run.spec.my:
        step = "a schedule calls the students' function"
        out.step(step, lambda: _called(small, run.spec.regions[0]))
    if run.spec.work_copies:
        out.step("the bucket for copies is made and read back", lambda: _bucket(small, region))
    if run.spec.market == "spot":
        spec = small.spec.model_copy(update={"market": "spot"})
        spec._students = []
        other = Run(spec, run.cloud, say=run.say)
        out.step("a spot machine starts and stays ended", lambda: _spot(other, region))


def write(run: Run, found: Transcript) -> Path:
    """Keep the transcript next to class.lock.yml."""
    path = run.spec.folder / FILE
    data = {
        "account": run.cloud.account,
        "region": run.spec.regions[0],
        "at": run.cloud.now().isoformat(timespec="seconds"),
        "good": found.good,
        "steps": found.steps,
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


def done_in(folder: Path, account: str) -> bool:
    """Return whether a drill that went well in this account is on record here."""
    try:
        data = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(data.get("good")) and data.get("account") == account


def without_names(text: str, *names: str) -> str:
    """Return a transcript's text without account numbers, ARNs, ids, addresses and names."""
    for pattern, word in SECRET:
        text = re.sub(pattern, word, text)
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = text.replace(name, "<name>")
    return text


def submit(run: Run) -> Path:
    """Write the transcript of the last drill in a form that may be given away."""
    source = run.spec.folder / FILE
    if not source.exists():
        raise ClassroomError("There is no transcript here.", "Run `doctor --drill` first.")
    data = json.loads(source.read_text(encoding="utf-8"))
    small = spec_of(run.spec).name
    names = (small, run.spec.name, run.spec.contact, *(s.id for s in run.spec.students))
    text = without_names(json.dumps({**data, "account": "<account>"}, indent=1), *names)
    path = run.spec.folder / "drill-transcript.json"
    path.write_text(text + "\n", encoding="utf-8")
    return path


__all__ = ["done_in", "drill", "submit", "without_names", "write"]
