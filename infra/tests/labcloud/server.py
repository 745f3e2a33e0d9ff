"""The HTTP server: moto behind it, faults and a call log in front, /lab/* to steer it."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import socket
import threading
import traceback
import urllib.parse
from collections.abc import Callable
from typing import Any

for _switch in (
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION",
    "MOTO_ENABLE_AMI_VALIDATION",
    "MOTO_ENABLE_KEYPAIR_VALIDATION",
):
    os.environ.setdefault(_switch, "1")
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

from moto.core import responses  # noqa: E402
from moto.ec2.models import ec2_backends  # noqa: E402
from moto.ec2.models.availability_zones_and_regions import (  # noqa: E402
    RegionsAndZonesBackend,
)
from moto.moto_api._internal.models import moto_api_backend  # noqa: E402
from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: E402
from moto.ssm.models import ssm_backends  # noqa: E402
from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: E402

from . import (  # noqa: E402
    authority,
    clock,
    functions,
    gaps,
    late,
    leftovers,
    market,
    offers,
    rates,
    states,
    storage,
    watched,
)
from .world import ACCOUNT, WORLD  # noqa: E402

REST = [
    ("POST", r"/schedules/[^/]+", "CreateSchedule"),
    ("PUT", r"/schedules/[^/]+", "UpdateSchedule"),
    ("GET", r"/schedules/[^/]+", "GetSchedule"),
    ("DELETE", r"/schedules/[^/]+", "DeleteSchedule"),
    ("GET", r"/schedules", "ListSchedules"),
    ("POST", r"/schedule-groups/[^/]+", "CreateScheduleGroup"),
    ("GET", r"/schedule-groups/[^/]+", "GetScheduleGroup"),
    ("DELETE", r"/schedule-groups/[^/]+", "DeleteScheduleGroup"),
    ("GET", r"/schedule-groups", "ListScheduleGroups"),
    ("GET", r"/tags/.+", "ListTagsForResource"),
    ("POST", r"/tags/.+", "TagResource"),
    *functions.REST,
]
ROLE_CHANGES = (
    *("CreateRole", "PutRolePolicy", "DeleteRolePolicy", "UpdateAssumeRolePolicy"),
    *("PutRolePermissionsBoundary", "DeleteRolePermissionsBoundary"),
)
SECRET = re.compile(r"UserData|Password|PrivateKey")


def identify(env: dict[str, Any], body: bytes) -> tuple[str, str, str, dict[str, Any]]:
    """Return (service, region, operation, parameters) of a request."""
    scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/", env.get("HTTP_AUTHORIZATION", ""))
    region, service = (scope[1], scope[2]) if scope else ("us-east-1", "unknown")
    if storage.is_s3(env):
        return "s3", region, *storage.identify(env)
    if env.get("CONTENT_TYPE", "").startswith("application/x-www-form"):
        form = {k: v[0] for k, v in urllib.parse.parse_qs(body.decode("utf-8", "replace")).items()}
        return service, region, form.pop("Action", "?"), form
    try:
        params = json.loads(body or b"{}")
    except ValueError:
        params = {}
    if target := env.get("HTTP_X_AMZ_TARGET"):
        return service, region, target.split(".")[-1], params
    for method, path, name in REST:
        if env["REQUEST_METHOD"] == method and re.fullmatch(path, env["PATH_INFO"]):
            query = dict(urllib.parse.parse_qsl(env.get("QUERY_STRING", "")))
            return service, region, name, {**query, **params, "path": env["PATH_INFO"]}
    return service, region, "?", params


def error(
    env: dict[str, Any], service: str, code: str, message: str
) -> tuple[bytes, list[tuple[str, str]]]:
    """Return an error body in the protocol of the service."""
    if service in ("ec2",):
        xml = (
            "<?xml"
            f' version="1.0"?><Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>lab</RequestID></Response>'
        )
        return xml.encode(), [("Content-Type", "text/xml")]
    if service == "s3":
        xml = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        return xml.encode(), [("Content-Type", "application/xml")]
    if service in ("iam", "sts", "sns"):
        xml = f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>lab</RequestId></ErrorResponse>"
        return xml.encode(), [("Content-Type", "text/xml")]
    return (
        json.dumps({"__type": code, "message": message}).encode(),
        [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", code)],
    )


def pick_fault(service: str, region: str, op: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fault that applies to this call, if any, and count it down."""
    with WORLD.lock:
        WORLD.calls += 1
        for fault in WORLD.faults:
            if (
                fault.get("op", op) != op
                or fault.get("region", region) != region
                or fault.get("service", service) != service
            ):
                continue
            if any(str(params.get(k, "")) != str(v) for k, v in fault.get("match", {}).items()):
                continue
            if fault.get("skip", 0) > 0:
                fault["skip"] -= 1
                continue
            if fault.get("times", 1) <= 0:
                continue
            fault["times"] = fault.get("times", 1) - 1
            return dict(fault)
    return None


READY: set[str] = set()


class App:
    """Route /lab/* to the controls and the rest to moto."""

    def __init__(self) -> None:
        self.moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, env: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        n = int(env.get("CONTENT_LENGTH") or 0)
        body = env["wsgi.input"].read(n) if n else b""
        env["wsgi.input"] = io.BytesIO(body)
        if env["PATH_INFO"].startswith("/lab/"):
            try:
                reply = control(env["PATH_INFO"][5:], json.loads(body or b"{}"))
            except Exception:
                reply = {"lab_error": traceback.format_exc()}
            answer = json.dumps(reply, default=str).encode()
            start(
                "200 OK",
                [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))],
            )
            return [answer]
        return self.aws(env, start, body)

    def aws(self, env: dict[str, Any], start: Callable[..., Any], body: bytes) -> list[bytes]:
        service, region, op, params = identify(env, body)
        found = re.search(r"Credential=([^/]+)/", env.get("HTTP_AUTHORIZATION", ""))
        key = found[1] if found else ""
        dry = str(params.get("DryRun", "")).lower() == "true"
        shown = f"DryRun:{op}" if dry else op  # in the log and for faults it is no launch
        env["HTTP_X_MOTO_ACCOUNT_ID"] = authority.caller(key)["account"]
        entry = {
            "n": WORLD.calls,
            "t": WORLD.now().isoformat(),
            "service": service,
            "region": region,
            "op": shown,
            "params": {k: v for k, v in params.items() if not SECRET.search(k)},
            "status": 0,
        }
        with WORLD.lock:
            WORLD.log.append(entry)
            if region in WORLD.regions and region not in READY:
                gaps.preload_images(
                    ec2_backends[ACCOUNT][region], ssm_backends[ACCOUNT][region], region
                )
                READY.add(region)
        if region not in WORLD.regions:
            return self.fail(
                env,
                start,
                entry,
                service,
                {"code": "AuthFailure", "status": 401, "message": "region not enabled"},
            )
        too_fast = rates.throttled(authority.caller(key)["account"], service, region, op)
        if too_fast:
            return self.fail(env, start, entry, service, too_fast)
        why = authority.refusal(key, service, region, op, params)
        if why:
            code = "UnauthorizedOperation" if service == "ec2" else "AccessDenied"
            refusal = {"code": code, "status": 403, "message": why}
            return self.fail(env, start, entry, service, refusal)
        unseen = late.refusal(service, region, op, params)
        unseen = unseen or functions.refusal(service, op, params)
        unseen = unseen or clock.refusal(service, op, params)
        if unseen:
            return self.fail(env, start, entry, service, unseen)
        own = functions.answer(service, op, region, params)
        own = offers.answer(service, op, params) if own is None else own
        if own is not None:
            if own.get("missing"):
                missing = {"code": "NotFoundException", "status": 404}
                return self.fail(env, start, entry, service, missing)
            entry["status"], payload = 200, json.dumps(own).encode()
            kind = [("Content-Type", "application/json"), ("Content-Length", str(len(payload)))]
            start("200 OK", kind)
            return [payload]
        fault = pick_fault(service, region, shown, params)
        if fault and not fault.get("after"):
            self.hang(fault, entry)
            return self.fail(env, start, entry, service, fault)
        status: list[Any] = []
        states.settle()
        late.asks(op)
        with WORLD.lock:  # the clock may be moved by another caller meanwhile
            chunks = list(self.moto(env, lambda s, h, *_: status.append((s, h))))
        if service == "iam" and op in ROLE_CHANGES and status[0][0].startswith("200"):
            authority.remember(params["RoleName"])
        if op == "CreateSchedule" and status[0][0].startswith("200"):
            clock.begin(region, params["GroupName"], params["path"].rsplit("/", 1)[1])
        if fault:
            entry["performed"] = True
            self.hang(fault, entry)
            return self.fail(env, start, entry, service, fault)
        entry["status"] = int(status[0][0].split()[0])
        if entry["status"] >= 400:
            entry["error"] = b"".join(chunks).decode("utf-8", "replace")[:300]
        start(*status[0])
        return chunks

    @staticmethod
    def hang(fault: dict[str, Any], entry: dict[str, Any]) -> None:
        """Keep the caller waiting, if the fault says so, until the test clears its faults."""
        if fault.get("hang"):
            entry["hung"] = True
            released = WORLD.released
            WORLD.hanging += 1
            released.wait(60)

    def fail(
        self,
        env: dict[str, Any],
        start: Callable[..., Any],
        entry: dict[str, Any],
        service: str,
        fault: dict[str, Any],
    ) -> list[bytes]:
        if fault.get("drop"):
            entry["status"], entry["error"] = -1, "dropped"
            env["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        code = fault.get("code", "InternalError")
        entry["status"], entry["error"] = fault.get("status", 400), code
        payload, headers = error(env, service, code, fault.get("message", code))
        if fault.get("html"):  # what a hotel's network or a proxy answers
            payload, headers = b"<!doctype html><p>Please sign in", [("Content-Type", "text/html")]
        start(f"{entry['status']} Error", [*headers, ("Content-Length", str(len(payload)))])
        return [payload]


def control(what: str, j: dict[str, Any]) -> Any:
    """Answer one /lab/ request."""
    if what == "fault":
        WORLD.faults.append(j)
    elif what == "reset":
        if not j.get(
            "soft"
        ):  # soft: the resources are gone already, only logs and faults start over
            moto_api_backend.reset()
            READY.clear()
        clock.reset()
        WORLD.reset(j.get("at"))
    elif what == "clear":
        WORLD.faults.clear()
        WORLD.released.set()
        WORLD.released, WORLD.hanging = threading.Event(), 0
    elif what == "hanging":
        return WORLD.hanging
    elif what == "log":
        return WORLD.log[j.get("since", 0) :]
    elif what == "events":
        return WORLD.events[j.get("since", 0) :]
    elif what == "advance":
        return clock.advance(j["seconds"])
    elif what == "until":  # someone waits until then; others may have waited longer already
        with WORLD.lock:
            return clock.advance(max(0.0, j["at"] - WORLD.now().timestamp()))
    elif what == "state":
        states.settle()
        found = clock.machine(j["region"], j["instance"])
        return {"state": found.state if found is not None else "unknown"}
    elif what == "now":
        return {"now": WORLD.now().isoformat(), "at": WORLD.now().timestamp()}
    elif what == "set":
        former = {key: getattr(WORLD, key) for key in j}
        for key, value in j.items():
            setattr(WORLD, key, value)
        return former
    elif what == "busy":
        WORLD.busy.setdefault(j["instance"], []).append(
            (clock._moment(j["start"]), clock._moment(j["end"]))
        )
    elif what in ("interrupt", "restore"):
        getattr(market, what)(clock.machine(j["region"], j["instance"]))
    elif what == "all_regions":
        return sorted(r.name for r in RegionsAndZonesBackend.regions if "-gov-" not in r.name)
    elif what == "pay":
        market.pay()
    elif what == "deployed":
        return functions.deployed(j["region"], j["name"])
    elif what == "permit":
        WORLD.callers[j.pop("key")] = j
    elif what == "watched":
        return watched.report()
    elif what == "hours":
        return {i: WORLD.hours(i) for i in WORLD.usage}
    elif what == "leftovers":
        return leftovers.everything()
    elif what == "stray":
        return leftovers.plant(j["region"])
    return {"ok": True}


class Quiet(WSGIRequestHandler):
    """Keep connections open, and say nothing.

    Werkzeug's own `run_wsgi` closes each, since it cannot know whether an application has read its
    request. This one has.
    """

    protocol_version = "HTTP/1.1"
    # head and body of an answer in one packet: the second of two would wait 40 ms for the
    # acknowledgement of the first
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def handle_expect_100(self) -> bool:
        """Answer a client that asks whether it may send its body."""
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def run_wsgi(self) -> None:
        """Answer one request."""
        head: list[Any] = []
        chunks = self.server.app(self.make_environ(), lambda *words: head.extend(words[:2]))
        body = b"".join(chunks)
        code, _, reason = head[0].partition(" ")
        self.send_response(int(code), reason)
        for name, value in head[1]:
            if name.lower() != "content-length":
                self.send_header(name, value)
        if self.command == "HEAD":
            body, length = b"", dict((n.lower(), v) for n, v in head[1]).get("content-length", "0")
        else:
            length = str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log(self, *_: Any) -> None:
        """Drop the access log."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Let the Date header of answers be the fake's time."""
        return super().date_time_string(timestamp or WORLD.now().timestamp())


def cache_lookups() -> None:
    """Let moto look up once what it looks up for each request: the names in its folder, the patterns
    of all services, the methods of a class. That is a fifth of its time."""
    dispatcher = DomainDispatcherApplication
    backend = functools.cache(dispatcher(create_backend_app).get_backend_for_host)
    dispatcher.get_backend_for_host = lambda _, host: backend(host)
    responses.method_names_from_class = functools.cache(responses.method_names_from_class)


def serve(port: int, at: str | None) -> None:
    """Serve on loopback until killed; print the port."""
    gaps.install()
    cache_lookups()
    WORLD.start_clock(at, ticks="LABCLOUD_STILL" not in os.environ)
    server = make_server("127.0.0.1", port, App(), threaded=True, request_handler=Quiet)
    print(server.port, flush=True)
    server.serve_forever()
