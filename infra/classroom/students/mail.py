"""Mails to students: whether SES sends them, and which it has refused.

A new account is in SES's sandbox: it may write to verified addresses only, a few a day, until AWS
lifts it on request. (documented: SES guide, "Request production access") The function that sends
has no log, so it writes what was refused into a tag of the student's machine.
"""

from __future__ import annotations

from typing import Any

from ..aws.cloud import DENIED, code_of, doing
from ..aws.problems import ClassroomError
from ..fleet.inventory import Machine
from ..spec import tags
from ..spec.run import Run

LIFT = (
    "Ask AWS to lift it: SES console > Account dashboard > Request production access, in the"
    " class's first region (a day)."
)


def check(run: Run) -> str:
    """Return what SES says of the class's mails; raise if they would not arrive."""
    spec, region = run.spec, run.spec.regions[0]
    ses = run.cloud.client("sesv2", region)
    with doing("ask SES about the account", region):
        account = ses.get_account()
    if not account.get("SendingEnabled", True):
        raise ClassroomError(f"{region}: AWS has paused SES for this account.", "Ask AWS why.")
    if not account.get("ProductionAccessEnabled"):
        raise ClassroomError(
            f"{region}: SES is in the sandbox, so mails reach verified addresses only.", LIFT
        )
    if not _verified(ses, spec.mail_from, region):
        raise ClassroomError(
            f"{region}: SES has not verified {spec.mail_from} or its domain.",
            "SES console > Identities > Create identity, and follow the mail that comes.",
        )
    quota = account.get("SendQuota") or {}
    return f"{quota.get('Max24HourSend', 0):g} mails a day from {spec.mail_from}"


def _verified(ses: Any, address: str, region: str) -> bool:
    """Return whether an address or its domain may send."""
    for identity in (address, address.rpartition("@")[2]):
        with doing(f"ask SES about {identity}", region):
            try:
                answer = ses.get_email_identity(EmailIdentity=identity)
            except ses.exceptions.NotFoundException:
                continue
        if answer.get("VerifiedForSendingStatus"):
            return True
    return False


def refused(run: Run, machines: list[Machine]) -> list[str]:
    """Return what to tell about mails that SES has refused."""
    if not run.spec.mail_from:
        return []
    unmailed = {m.name: m.tags.get(tags.UNMAILED, "") for m in machines}
    bad = {
        name: answer
        for name, answer in sorted(unmailed.items())
        if answer and not answer.endswith(" ok")
    }
    if not bad:
        return []
    why = sorted({answer.rpartition(" ")[2] for answer in bad.values()})
    return [
        f"Mails about {len(bad)} machines were refused ({', '.join(why)}):"
        f" {', '.join(bad)}. `doctor` says what SES lacks."
    ]


def warn(run: Run) -> None:
    """Warn at provision, when there is time to ask AWS, that mails will not arrive."""
    if not run.spec.mail_from or not run.spec.my:
        return
    try:
        check(run)
    except ClassroomError as error:
        if code_of(error.__cause__) in DENIED:
            return
        run.warn(f"Mails to students will not arrive: {error}")


__all__ = ["check", "refused", "warn"]
