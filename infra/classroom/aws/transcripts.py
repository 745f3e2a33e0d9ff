"""What AWS said: record each call of a command with its answer, and serve a record back.

`python -m classroom COMMAND --record FILE` appends to FILE: one line of JSON for the command, then
one for each call. What must not be given away is taken out before it is written (redact.py). The
tests serve such a file back to the commands, and hold the fake cloud to it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from . import rate_limit
from .redact import REMOVED, Redactor

VERSION = 1
LOOKS = ("Describe", "Get", "List", "Head", "Simulate", "Search")
# Differ from run to run, with the same meaning.
VOLATILE = ("ClientToken", "StartTime", "EndTime", "NextToken", "PolicyDocument", "UserData")


class Hook(Protocol):
    """Follow the clients that commands make."""

    def follow(self, client: Any, service: str, region: str) -> None:
        """Register what is to happen at each call of a client."""


_active: Hook | None = None


def follow(client: Any, service: str, region: str) -> None:
    """Let what records or replays, if anything does, follow a new client."""
    if _active:
        _active.follow(client, service, region)


@contextlib.contextmanager
def using(hook: Hook) -> Iterator[None]:
    """Record or replay while the block runs."""
    global _active
    before, _active = _active, hook
    try:
        yield
    finally:
        _active = before


class Recorder:
    """Keep what AWS answers, cleaned; names are changed at the end, when all are known."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor, self.entries = redactor, list[dict[str, Any]]()
        self._lock, self._began = threading.Lock(), rate_limit.clock()

    def follow(self, client: Any, service: str, region: str) -> None:
        """Write each call of a client down."""

        def asked(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
            context["transcript"] = dict(params)

        def answered(parsed: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
            self.call(service, region, model.name, context.get("transcript", {}), parsed)

        client.meta.events.register("before-parameter-build", asked)
        # by the shortest name: after botocore's own, which read IAM's documents
        client.meta.events.register_last("after-call", answered)

    def call(
        self, service: str, region: str, operation: str, params: Any, parsed: dict[str, Any]
    ) -> None:
        """Write one call down."""
        answer = {k: v for k, v in parsed.items() if k not in ("ResponseMetadata", "Error")}
        with self._lock:
            clean = self.redactor.clean
            for part in (params, answer):
                self.redactor.learn(part)
            entry = {
                "after": round(rate_limit.clock() - self._began, 2),
                "service": service,
                "region": region,
                "operation": operation,
                "status": parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 0),
                "parameters": clean(params),
                "answer": clean(answer),
            }
            if error := parsed.get("Error"):
                entry["error"] = clean({k: error.get(k, "") for k in ("Code", "Message")})
            self.entries.append(entry)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the commands of a transcript, each with its `calls`."""
    out: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "transcript" in entry:
            out.append({**entry, "calls": []})
        elif out:
            out[-1]["calls"].append(entry)
    return out


def revive(value: Any) -> Any:
    """Return a recorded value as botocore would: times as times."""
    if isinstance(value, dict):
        if set(value) == {"$time"}:
            return dt.datetime.fromisoformat(value["$time"])
        return {k: revive(v) for k, v in value.items()}
    return [revive(v) for v in value] if isinstance(value, list) else value


def _as_text(value: Any, key: str = "") -> Any:
    """Return an answer with its documents as the text that botocore is going to read."""
    if isinstance(value, dict) and key.endswith("Document"):
        return json.dumps(value)
    if isinstance(value, dict):
        return {k: _as_text(v, k) for k, v in value.items()}
    return [_as_text(v) for v in value] if isinstance(value, list) else value


class Replay:
    """Answer each call by the recorded one with the same parameters, or else the next of its
    kind."""

    def __init__(self, calls: list[dict[str, Any]]) -> None:
        self._calls, self._used, self._lock = calls, set[int](), threading.Lock()
        self._redactor, self.unknown = Redactor(), list[str]()

    def follow(self, client: Any, service: str, region: str) -> None:
        """Answer the calls of a client in AWS's place."""

        def asked(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
            context["transcript"] = dict(params)

        def answer(model: Any, context: dict[str, Any], **_: Any) -> Any:
            return self.answer(service, region, model.name, context.get("transcript", {}))

        client.meta.events.register("before-parameter-build", asked)
        client.meta.events.register("before-call", answer)

    def answer(self, service: str, region: str, operation: str, params: Any) -> Any:
        """Return (response, parsed answer) as botocore takes them."""
        place, wanted = (service, region, operation), same(self._redactor.clean(params))
        with self._lock:
            kind = [
                k
                for k, c in enumerate(self._calls)
                if (c["service"], c["region"], c["operation"]) == place
            ]
            alike = [k for k in kind if same(self._calls[k]["parameters"]) == wanted]
            fresh = [k for k in alike if k not in self._used]
            left = [k for k in kind if k not in self._used]
            repeats = alike[-1:] if operation.startswith(LOOKS) else []
            chosen = (fresh or repeats or left)[:1]
            if not chosen:
                self.unknown.append(" ".join(place))
                error = {"Code": "NotInTranscript", "Message": f"{' '.join(place)} {wanted}"}
                return SimpleNamespace(status_code=400, raw=None), {
                    "Error": error,
                    "ResponseMetadata": {"HTTPStatusCode": 400},
                }
            self._used.add(chosen[0])
            call = self._calls[chosen[0]]
        parsed = _as_text(revive(call["answer"]))
        for key in ("Body", "Payload"):
            if parsed.get(key) == REMOVED:
                parsed[key] = io.BytesIO(b"")
        parsed["ResponseMetadata"] = {"HTTPStatusCode": call["status"]}
        if "error" in call:
            parsed["Error"] = call["error"]
        return SimpleNamespace(status_code=call["status"], raw=None), parsed

    @property
    def unasked(self) -> list[str]:
        """Return the recorded changes that the command did not ask for this time."""
        return [
            " ".join((c["service"], c["region"], c["operation"]))
            for k, c in enumerate(self._calls)
            if k not in self._used and not c["operation"].startswith(LOOKS)
        ]


def same(params: Any) -> str:
    """Return parameters as a text that is the same for calls that mean the same."""
    if isinstance(params, dict):
        params = {k: v for k, v in params.items() if k not in VOLATILE}
    return json.dumps(params, sort_keys=True)
