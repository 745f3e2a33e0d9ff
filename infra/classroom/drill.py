"""A rehearsal on the real account: the smallest machine goes through every guard, and what AWS
answered is written down.

A guard that exists may still be refused by AWS, silently. So once per account a t3.nano (about a
cent) is left unarmed until the schedule stops it, left idle until the alarm stops it, and torn
down. It takes about an hour, nearly all of it waiting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import access, budgets, guards, launch, machines, pace, roles, teardown, watch
from .alarms import alarm_minutes
from .cloud import doing, words_of
from .fleet import Machine, Wanted
from .problems import ClassroomError
from .run import Run
from .spec import ClassSpec, Idle

FILE = "class.drill.json"
IMAGE = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
POLL_SECONDS = 30
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
            "instance_type": machines.DRILL.name,
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
        """Say whether every step went well."""
        return bool(self.steps) and all(s["good"] for s in self.steps)


def _guarded(run: Run, region: str) -> str:
    role = roles.roles(run)
    guards.budgets(run, {})
    guards.schedules(run, region, role)
    guards.verify(run, region, role)
    return "role, budget and schedules exist and read back as they were written"


def _scheduler(run: Run, region: str) -> str:
    why = watch.proven(run, region)
    if why:
        raise ClassroomError(why, "Run `python -m classroom doctor --policy` and compare.")
    seen = watch.executions(run, region)["unarmed"]
    return f"Scheduler started {seen.status} automation as the guards' role at {seen.at}"


def _launch(run: Run, region: str) -> Machine:
    with doing("look up a small image", region):
        image = run.cloud.client("ssm", region).get_parameter(Name=IMAGE)["Parameter"]["Value"]
    net = access.network(run, region)
    access.key_pair(run, region)
    template = access.launch_template(run, net, image)
    (result,) = launch.launch(run, net, template, [Wanted("drill", {}, "drill")])
    if result.machine is None:
        raise ClassroomError(f"The small machine did not start: {result.reason}.")
    launch.wait(run, region, [result.machine.id], {"running"})
    return result.machine


def _stopped(run: Run, m: Machine, minutes: float) -> str:
    """Wait until something stops a machine; return after how many minutes."""
    start = pace.clock()
    while True:
        with doing("look at the machine", m.region):
            state = launch.states(run.cloud, m.region, [m.id]).get(m.id, "gone")
        waited = (pace.clock() - start) / 60
        if state in ("stopping", "stopped"):
            return f"stopped after {waited:.0f} minutes"
        if waited > minutes:
            raise ClassroomError(f"It is still {state} after {waited:.0f} minutes.")
        pace.sleep(POLL_SECONDS)


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
        found = client.describe_budget_actions_for_budget(
            AccountId=run.cloud.account, BudgetName=name
        )["Actions"]
    visible, words = watch.cost_tags(run)
    return f"stop action {[a['Status'] for a in found]}; {words}"


def _ended(run: Run) -> str:
    report = teardown.teardown(run.cloud, run.spec.name, say=run.say)
    if not report.clean:
        raise ClassroomError(report.summary())
    return report.summary()


def drill(run: Run) -> Transcript:
    """Go through every guard with one small machine, and remove it whatever happens."""
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
            limit = guards.UNARMED_MINUTES + 5
            out.step("the schedule stops what is not armed", lambda: _stopped(small, m, limit))
            out.step("the budget may stop it", lambda: _budget_stop(small, m))
            if out.step("the idle alarm is armed", lambda: _armed(small, m)):
                minutes = alarm_minutes(small.spec.idle) + 25
                out.step("the idle alarm stops it", lambda: _stopped(small, m, minutes))
    finally:
        out.step("everything is removed and read back", lambda: _ended(small))
    return out


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
    """Say whether a drill that went well in this account is on record here."""
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
