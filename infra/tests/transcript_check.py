"""Hold the fake cloud to a transcript: ask it what AWS was asked, and compare what both answer.

The ids in a transcript are not those of the fake, so each pair of answers is read side by side, and
what stands at the same place in both is taken for the same thing from then on.
`python transcript_check.py FILE` prints the differences, for FILE's list of known ones.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import boto3  # noqa: E402
from botocore.exceptions import ClientError, ParamValidationError  # noqa: E402

from classroom.aws import transcripts  # noqa: E402
from classroom.aws.redact import REMOVED, TOKENS  # noqa: E402
from labcloud.client import LabCloud  # noqa: E402

FREE = {  # maps whose keys are data
    "Tags",
    "Variables",
    "CostFilters",
    "Condition",
    "StringEquals",
    "PolicyDocument",
    "Metadata",
    "AssumeRolePolicyDocument",
    "Document",
    "Environment",
}
# What was made for a transcript in the place of an id: such values may stand for others here.
MADE = re.compile(r"\b0{8,}|-0{6,}|^198\.51\.|^AROA0|^token\d")
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH" + "A" * 42


class Held:
    """Hold the fake's side: what recorded values are in it, and the differences so far."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.differences: set[str] = set()
        self.shapes: dict[str, tuple[set[str], set[str]]] = {}  # call -> what is there, and here
        self.asked = 0

    def learn(self, recorded: Any, answered: Any) -> None:
        """Read two answers side by side."""
        if isinstance(recorded, dict) and isinstance(answered, dict):
            for key in sorted(recorded.keys() & answered.keys()):
                self.learn(recorded[key], answered[key])
        elif isinstance(recorded, list) and isinstance(answered, list):
            for one, other in zip(recorded, answered):
                self.learn(one, other)
        elif isinstance(recorded, str) and isinstance(answered, str) and recorded != answered:
            if MADE.search(recorded):
                self.there.setdefault(recorded, answered)

    def put(self, value: Any, key: str = "") -> Any:
        """Return recorded parameters in the fake's ids."""
        if isinstance(value, dict):
            return {k: self.put(v, k) for k, v in value.items() if v != REMOVED or k in NEEDED}
        if isinstance(value, list):
            return [self.put(v) for v in value]
        if value == REMOVED:
            return NEEDED[key]
        if not isinstance(value, str):
            return value
        if value in self.there:
            return self.there[value]
        for old in sorted(self.there, key=len, reverse=True):
            if len(old) >= 12 and old in value:
                value = value.replace(old, self.there[old])
        return value

    def ask(self, call: dict[str, Any], lab: LabCloud) -> None:
        """Ask the fake one recorded call and compare."""
        what = f"{call['service']} {call['operation']}"
        client = boto3.client(call["service"], call["region"])
        params = self.put(transcripts.revive(call["parameters"]))
        try:
            parsed, code = _answer(client, call["operation"], params)
            if code and "error" not in call:  # it sees late what was just made, and roles later
                lab.post("advance", seconds=15)
                parsed, code = _answer(client, call["operation"], params)
        except ParamValidationError as error:  # what was removed is missing
            self.differences.add(f"{what}: not asked ({str(error).splitlines()[1][:60]})")
            return
        self.asked += 1
        wanted = call.get("error", {}).get("Code", "")
        if wanted != code:
            self.differences.add(f"{what}: {wanted or 'success'} there, {code or 'success'} here")
            return
        answer = {k: v for k, v in parsed.items() if k not in ("ResponseMetadata", "Error")}
        recorded = transcripts.revive(call["answer"])
        self.learn(recorded, answer)
        there, here = self.shapes.setdefault(what, (set(), set()))
        there |= shape(recorded)
        here |= shape(answer)

    def result(self) -> list[str]:
        """Return the differences; of a call, in all its answers together, since a listing may
        be empty once."""
        found = set(self.differences)
        for what, (there, here) in self.shapes.items():
            if there and here:
                found |= {f"{what} {p}: there only" for p in there - here}
                found |= {f"{what} {p}: here only" for p in here - there}
            elif there or here:
                found.add(f"{what}: empty {'here' if there else 'there'}")
        return sorted(found)


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("selfservice/function.py", "def handler(event, context):\n    return {}\n")
    return out.getvalue()


ZIP = _zip()


def _answer(client: Any, operation: str, params: Any) -> tuple[dict[str, Any], str]:
    """Return the fake's answer and error code."""
    names = client.meta.method_to_api_mapping
    method = next(m for m, api in names.items() if api == operation)
    try:
        return getattr(client, method)(**params), ""
    except ClientError as error:
        return error.response, error.response["Error"]["Code"]


# what is removed from a transcript and must be given nevertheless
NEEDED: dict[str, Any] = {
    "PublicKeyMaterial": PUBLIC_KEY.encode(),
    "UserData": "",
    "ZipFile": ZIP,
    "Environment": {"Variables": {"WHAT": "removed"}},
}


def shape(value: Any, at: str = "") -> set[str]:
    """Return the paths in an answer with the type at each; of a list, those of all its items."""
    name = at.rsplit(".", 1)[-1].removesuffix("[]")
    if isinstance(value, dict) and name not in FREE:
        parts = [shape(v, f"{at}.{k}".lstrip(".")) for k, v in value.items() if not TOKENS.match(k)]
        return set().union(*parts) if parts else set()
    if isinstance(value, list):
        return set().union(*(shape(v, f"{at}[]") for v in value)) if value else set()
    if value in (None, "", REMOVED) or not isinstance(value, (dict, str, int, float)):
        return {at} if value not in (None, "") else set()
    return {at}


def differences(path: Path) -> tuple[list[str], int]:
    """Return how the fake differs from a transcript, and how many calls it was asked."""
    import os

    sections = transcripts.read(path)
    with LabCloud(sections[0]["at"][:19], ticks=False) as lab:  # each call at its own moment
        before = dict(os.environ)
        os.environ.update(lab.environ)
        try:
            held = Held()
            for section in sections:
                began = dt.datetime.fromisoformat(section["at"]).timestamp()
                for call in section["calls"]:
                    if began + call["after"] > lab.post("now")["at"]:
                        lab.post("until", at=began + call["after"])
                    held.ask(call, lab)
        finally:
            os.environ.clear()
            os.environ.update(before)
    return held.result(), held.asked


if __name__ == "__main__":
    found, asked = differences(Path(sys.argv[1]))
    print("".join(f"{line}\n" for line in found), end="")
    print(json.dumps({"asked": asked}), file=sys.stderr)
