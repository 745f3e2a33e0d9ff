"""Drift: where the account and class.yml differ. A stale or mistyped file must not end a class,
lower its caps or leave machines behind without a question."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from ..aws.cloud import GLOBAL, aware, doing
from ..aws.problems import ClassroomError
from ..spec.ledger import Ledger
from ..spec.run import Run
from . import class_guards
from .budgets import class_budget_name

FLAG = "`-e confirm_changes=yes` (or --confirm-changes)"


@dataclass(frozen=True)
class Difference:
    """Hold one thing that class.yml and the account say differently. `harms`: to apply it may end
    or stop machines, or leave some behind."""

    what: str
    here: str
    there: str
    harms: bool

    def __str__(self) -> str:
        """Say what class.yml says and what stands in the account."""
        return f"{self.what}: {self.here} in class.yml, {self.there} in the account"


def differences(run: Run, known: Ledger, lived: set[str]) -> list[Difference]:
    """Return what differs: the end (as the schedules have it), the caps (as the budget has the
    class's), and the regions. What the account does not have is no difference. `lived`: regions
    with machines."""
    spec, out = run.spec, []
    end = spec.teardown_at
    for region in sorted(lived):
        in_aws = _end(run, region)
        if in_aws and abs(in_aws - end) > dt.timedelta(minutes=1):
            here, in_aws = end.astimezone(end.tzinfo), in_aws.astimezone(end.tzinfo)
            words = f"{here:%Y-%m-%d %H:%M}", f"{in_aws:%Y-%m-%d %H:%M}"
            out.append(Difference(f"the end of the class ({region})", *words, here < in_aws))
    caps = {"class": (spec.budget.class_usd, _cap(run) or known.settings.get("class_usd"))}
    caps["student"] = spec.budget.per_student_usd, known.settings.get("per_student_usd")
    for whose, (usd, stands) in caps.items():
        if stands is not None and abs(usd - stands) >= 0.01:
            words = f"${usd:,.2f}", f"${stands:,.2f}"
            out.append(Difference(f"the cap of the {whose}", *words, usd < stands))
    listed = known.settings.get("regions")
    if listed and set(listed) != set(spec.regions):
        words = ", ".join(spec.regions), ", ".join(listed)
        out.append(Difference("the regions", *words, bool(lived - set(spec.regions))))
    return out


def check(run: Run, known: Ledger, lived: set[str], confirmed: bool) -> None:
    """Refuse to apply what harms, and to launch while machines may run in a region that is not
    enabled any more, unless the staff say that it is meant."""
    if confirmed:
        return
    harm = [d for d in differences(run, known, lived) if d.harms]
    if harm:
        by, at = known.settings.get("by"), known.settings.get("at")
        raise ClassroomError(
            f"class.yml asks for less than the account has: {'; '.join(map(str, harm))}"
            + (f". The account has it from {by}, {at} UTC" if by else "")
            + ". Nothing was done.",
            f"If class.yml is right, say so: {FLAG}. If not, correct it, or take the newer file.",
        )
    if closed := disabled(run, known):
        raise ClassroomError(
            f"{' '.join(closed.values())} Nothing was launched: it would be a second machine.",
            "Enable the region again (Account > AWS Regions) and run the same command; if nothing"
            f" of the class is left there, say so: {FLAG}.",
        )


def disabled(run: Run, known: Ledger) -> dict[str, str]:
    """Return a sentence for each region that the class has used and that is not enabled now."""
    return closed_regions(known, run.cloud.regions())


def closed_regions(known: Ledger, enabled: Iterable[str]) -> dict[str, str]:
    """Return a sentence for each region of the ledger that is not among the enabled ones."""
    out = {}
    for region in sorted(known.regions - set(enabled)):
        names = sorted({known.machines[i]["machine"] for i in known.ids(region)})
        whom = f"the machines of {', '.join(names)}" if names else "machines of the class"
        out[region] = (
            f"{region} is not enabled for this account any more, so {whom} there cannot be seen,"
            " and what runs there bills on."
        )
    return out


def _end(run: Run, region: str) -> dt.datetime | None:
    """Return when the class ends by its schedule in a region."""
    schedule = class_guards.read_schedules(run, region).get("teardown")
    return aware(schedule["StartDate"]) + class_guards.BEFORE_END if schedule else None


def _cap(run: Run) -> float | None:
    """Return the dollars of the class's budget in AWS."""
    if not run.spec.budget.in_aws:
        return None
    client = run.cloud.client("budgets", GLOBAL)
    with doing("read the class's budget"):
        try:
            answer = client.describe_budget(
                AccountId=run.cloud.account, BudgetName=class_budget_name(run)
            )
        except client.exceptions.NotFoundException:
            return None
    return float(answer["Budget"]["BudgetLimit"]["Amount"])
