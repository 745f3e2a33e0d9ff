"""What goes wrong, said so that the reader knows what to do next."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from . import organisations


@dataclass(frozen=True)
class Problem:
    """Hold one mistake: where it is, what is wrong, what to write instead."""

    file: str
    line: int
    what: str
    remedy: str

    def __str__(self) -> str:
        """Return one sentence an editor can jump to."""
        return f"{self.file}:{self.line}: {self.what} {self.remedy}"


class ClassroomError(Exception):
    """Stop with a sentence and a remedy; `exit_code` 1 means failed, 2 means could not run."""

    def __init__(self, what: str, remedy: str = "", *, exit_code: int = 2) -> None:
        super().__init__(f"{what} {remedy}".strip())
        self.what, self.remedy, self.exit_code = what, remedy, exit_code


class BadClass(ClassroomError):
    """Report every mistake of class.yml and roster.csv at once."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(problems, key=lambda p: (p.file, p.line))
        n = len(self.problems)
        head = (
            f"{n} mistake{'s' if n != 1 else ''} in the description of the class; nothing was done."
        )
        super().__init__("\n".join([head, *map(str, self.problems)]))


# AWS error code -> (what it means, what to do). One home; docs and tests read it too.
AWS_ERRORS: dict[str, tuple[str, str]] = {
    "ExpiredToken": (
        "Your AWS credentials have expired.",
        "Sign in again (`aws sso login` or new keys from the portal) and rerun.",
    ),
    "ExpiredTokenException": (
        "Your AWS credentials have expired.",
        "Sign in again (`aws sso login` or new keys from the portal) and rerun.",
    ),
    "RequestExpired": (
        "AWS says the request is too old: expired credentials or a wrong clock.",
        "Sign in again and check this computer's date and time.",
    ),
    "AuthFailure": (
        "AWS does not know these credentials, or the region is not enabled for the account.",
        "Run `aws sts get-caller-identity`; enable opt-in regions under Account > AWS Regions.",
    ),
    "InvalidClientTokenId": (
        "AWS does not know this access key.",
        "Run `aws configure` or `aws sso login`, then `python -m classroom doctor`.",
    ),
    "UnrecognizedClientException": (
        "AWS does not know this access key, or the region is not enabled.",
        "Run `aws configure`; enable opt-in regions under Account > AWS Regions.",
    ),
    "SignatureDoesNotMatch": (
        "The secret key does not belong to the access key.",
        "Copy both keys again with `aws configure`.",
    ),
    "OptInRequired": (
        "This region or service is not enabled for the account.",
        (
            "Enable the region under Account > AWS Regions (takes minutes), or remove it from"
            " `regions`."
        ),
    ),
    "UnauthorizedOperation": (
        "The AWS user lacks a permission.",
        (
            "Ask the account's owner to attach the policy that `python -m classroom doctor"
            " --policy` prints."
        ),
    ),
    "AccessDenied": (
        "The AWS user lacks a permission.",
        (
            "Ask the account's owner to attach the policy that `python -m classroom doctor"
            " --policy` prints."
        ),
    ),
    "AccessDeniedException": (
        "The AWS user lacks a permission.",
        (
            "Ask the account's owner to attach the policy that `python -m classroom doctor"
            " --policy` prints."
        ),
    ),
    "VcpuLimitExceeded": (
        "The account's vCPU quota for this family is used up (new accounts have 0).",
        (
            "Request an increase: `python -m classroom doctor --request-quota`; it takes hours to"
            " days."
        ),
    ),
    "PendingVerification": (
        (
            "AWS is still validating the account for this region (usually under 5 minutes, at most"
            " 4 hours)."
        ),
        "Wait for the e-mail and run provision again; what exists is kept.",
    ),
    "InsufficientInstanceCapacity": (
        "AWS has no free machine of this type in that zone just now.",
        "Run provision again later; other zones and regions in `regions` are tried by themselves.",
    ),
    "Unsupported": (
        "This zone does not offer the instance type.",
        "Other zones are tried; else change `regions`.",
    ),
    "InvalidInstanceType.NotFound": (
        "This region does not offer the instance type.",
        (
            "Change `regions`, or `instance_type`; `python -m classroom doctor` lists where it is"
            " offered."
        ),
    ),
    "MaxSpotInstanceCountExceeded": (
        "The account's spot quota for this family is used up.",
        (
            "Request an increase: `python -m classroom doctor --request-quota`, or use `market:"
            " on-demand`."
        ),
    ),
    "IncorrectSpotRequestState": (
        "AWS has taken this spot machine back, and only AWS can start it again.",
        "It does so by itself once it can; `status` shows it.",
    ),
    "SpotMaxPriceTooLow": (
        "Spot costs more than on-demand here just now.",
        "Use `market: on-demand`.",
    ),
    "AddressLimitExceeded": (
        "The account has no free Elastic IP (5 per region by default).",
        "Set `elastic_ip: false`, or request an increase of quota L-0263D0A3.",
    ),
    "MessageRejected": (
        "SES does not send this mail: it is in the sandbox, or the sender is not verified.",
        "Ask for production access in the SES console; `doctor` says what SES lacks.",
    ),
    "RequestLimitExceeded": (
        "AWS asks to slow down, even after retries.",
        "Run the same command again in a minute.",
    ),
    "ThrottlingException": (
        "AWS asks to slow down, even after retries.",
        "Run the same command again in a minute.",
    ),
    "Throttling": (
        "AWS asks to slow down, even after retries.",
        "Run the same command again in a minute.",
    ),
    "IdempotentParameterMismatch": (
        "The class changed while an earlier launch was still unanswered.",
        "Wait a minute and run provision again: it looks at what exists first.",
    ),
    "InternalError": (
        "AWS had an internal error, even after retries.",
        "Run the same command again; it continues where it stopped.",
    ),
    "InternalFailure": (
        "AWS had an internal error, even after retries.",
        "Run the same command again; it continues where it stopped.",
    ),
    "ServiceUnavailable": (
        "AWS is not answering properly.",
        "Run the same command again; it continues where it stopped.",
    ),
}


SET_THE_CLOCK = "Let this computer set its date and time by itself, then run the command again."
#: "Signature expired: 20261121T114000Z is now earlier than 20261121T114500Z (20261121T120000Z - 15
#: min.)": the time of the request, then AWS's; also "not yet current", with "later than" and "+".
_OTHER_TIME = re.compile(r"(?:expired|not yet current): (\w+Z).*\((\w+Z) [+-]")


def wrong_clock(message: str) -> tuple[str, str] | None:
    """Return what a refused signature says of this computer's clock, None if it says nothing."""
    match = _OTHER_TIME.search(message)
    if not match:
        return None
    here, there = (dt.datetime.strptime(text, "%Y%m%dT%H%M%SZ") for text in match.groups())
    minutes = round(abs(here - there).total_seconds() / 60)
    side = "ahead of" if here > there else "behind"
    return f"This computer's clock is {minutes} minutes {side} AWS's.", SET_THE_CLOCK


def meaning(code: str, message: str, region: str = "") -> tuple[str, str]:
    """Return what an AWS error means and what to do; unknown codes keep AWS's own words."""
    if code == "SignatureDoesNotMatch" and (clock := wrong_clock(message)):
        return clock
    return organisations.explained(message, region) or AWS_ERRORS.get(
        code,
        (
            f"AWS answered {code}: {message}".rstrip(".") + ".",
            "Run `python -m classroom doctor`; rerunning is safe.",
        ),
    )


def explain(code: str, message: str, doing: str, region: str = "") -> ClassroomError:
    """Turn an AWS error code into a sentence."""
    where = f" in {region}" if region else ""
    problem, remedy = meaning(code, message, region)
    return ClassroomError(f"Could not {doing}{where}: {problem}", remedy)
