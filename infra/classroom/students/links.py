"""Students in charge of their own machine: the function behind their links, made, kept and removed.

`my: lambda` in class.yml asks for it; without that line nothing is opened. One AWS Lambda
function a class, in its first region, with a function URL. The URL takes requests from everywhere
(students have no AWS sign-in), so each carries a signed link; see selfservice/function.py. The key
that signs is made here and lives in the function's environment only: AWS keeps it encrypted, and a
computer of the staff that is lost takes no link with it.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import io
import json
import secrets
import zipfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import botocore.exceptions as be

from ..aws import rate_limit
from ..aws.cloud import DENIED, code_of, doing, each, when_assumable
from ..aws.problems import ClassroomError
from ..fleet.inventory import Machine
from ..guards import budgets, roles
from ..money import cost, prices
from ..spec import tags
from ..spec.class_file import ClassSpec
from ..spec.run import Run
from .selfservice import function as served

FILES = ("__init__.py", "aws.py", "function.py", "page.py", "page.html", "my.py")
PACKAGES = ("jinja2", "markupsafe")  # what page.py imports and Lambda does not bring
PEOPLE = "people.json"
CONCURRENT = 10  # runs at once: what a stranger who calls without end can cost stays small
RUNTIME, MEMORY, SECONDS = "python3.12", 256, 120
PERMISSIONS: tuple[tuple[str, dict[str, Any]], ...] = (  # a URL without sign-in takes both
    ("lambda:InvokeFunctionUrl", {"FunctionUrlAuthType": "NONE"}),
    ("lambda:InvokeFunction", {"InvokedViaFunctionUrl": True}),
)


@dataclass(frozen=True)
class LinkSigner:
    """Hold what signs links: the address and the key of the class's function."""

    name: str
    url: str
    key: bytes

    def link(self, m: Machine, student: str, expires: dt.datetime) -> str:
        """Return a student's link to a machine; `expires` with a time zone."""
        number = int(m.tags.get(tags.LINK + student) or 0)
        at = int(expires.timestamp())
        return f"{self.url}?" + served.query(
            self.key, self.name, m.region, m.id, student, number, at
        )


def expiry(spec: ClassSpec) -> dt.datetime:
    """Return when links end: a day after the class does, to look at the last figures."""
    return spec.teardown_at + dt.timedelta(days=1)


# ---- the function ----


def archive(run: Run) -> bytes:
    """Return the function's code as a zip; the same files always give the same bytes."""
    folder, spec = Path(__file__).parent / "selfservice", run.spec
    files = {f"selfservice/{n}": (folder / n).read_bytes() for n in FILES}
    if spec.mail_from:  # addresses leave the roster only where mail is to be sent
        people = {s.id: s.email for s in spec.students}
        files[f"selfservice/{PEOPLE}"] = json.dumps(people, sort_keys=True).encode()
    for package in PACKAGES:
        files.update(sources(package))
    files.update(zone_data(spec.time_zone))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in sorted(files.items()):
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            z.writestr(info, data)
    return out.getvalue()


def sources(package: str) -> dict[str, bytes]:
    """Return the Python files of an installed package without folders; they run anywhere."""
    files = [f for f in resources.files(package).iterdir() if f.name.endswith(".py")]
    return {f"{package}/{f.name}": f.read_bytes() for f in files}


def zone_data(zone: str) -> dict[str, bytes]:
    """Return the files of package tzdata that the class's time zone takes: Lambda's image may have
    no zones of its own."""
    parts = ["tzdata", "zoneinfo", *zone.split("/")]
    files = {"/".join([*parts[:k], "__init__.py"]): b"" for k in range(1, len(parts))}
    files["/".join(parts)] = resources.files("tzdata").joinpath(*parts[1:]).read_bytes()
    return files


def settings(run: Run) -> dict[str, Any]:
    """Return what the function must know of the class."""
    spec = run.spec
    return {
        "name": spec.name,
        "account": run.cloud.account,
        "regions": spec.regions,
        "budget": budgets.class_budget_name(run) if spec.budget.in_aws else "",
        "cap_usd": spec.budget.per_student_usd,
        "usd_hour": {
            market: prices.hourly(spec, market) for market in sorted({"on-demand", spec.market})
        },
        "zone": spec.time_zone,
        "night": spec.stop_nightly,
        "end": spec.teardown_at.isoformat(),
        # earlier than any machine of it; CloudWatch keeps counts for 15 months
        "since": (spec.teardown_at - dt.timedelta(days=400)).isoformat(),
        "machines": len(spec.students),
        "contact": spec.contact,
        "mail_from": spec.mail_from,
    }


def _state(run: Run) -> dict[str, Any] | None:
    client = run.cloud.client("lambda", run.spec.regions[0])
    try:
        configuration = client.get_function_configuration(FunctionName=tags.function(run.spec))
    except client.exceptions.ResourceNotFoundException:
        return None
    arn = configuration["FunctionArn"]
    if client.list_tags(Resource=arn)["Tags"].get(tags.CLASS) != run.spec.name:
        raise ClassroomError(
            f"A function {tags.function(run.spec)} exists that is not tagged as this class's.",
            "Rename or delete it.",
        )
    return configuration


def _ready(run: Run) -> bool:
    state = _state(run) or {}
    return state.get("State", "Active") == "Active" and (
        state.get("LastUpdateStatus", "Successful") == "Successful"
    )


def deploy(run: Run) -> None:
    """Make the function as class.yml and the code here say, or remove it if class.yml does not ask
    for it. Sends what differs only."""
    spec, region = run.spec, run.spec.regions[0]
    client, name = run.cloud.client("lambda", region), tags.function(spec)
    if spec.my != "lambda":
        try:
            state = _state(run)
        except be.ClientError as error:
            if code_of(error) in DENIED:  # this account could never have made one
                return
            raise
        if state is not None:
            run.do(
                f"{region}: delete function {name}",
                lambda: client.delete_function(FunctionName=name),
            )
        return
    with doing("make the students' function", region):
        role = roles.self_service(run)
        state, code = _state(run), archive(run)
        old = (state or {}).get("Environment", {}).get("Variables", {})
        environment = {
            "CLASS": json.dumps(settings(run), sort_keys=True),
            "LINK_KEY": old.get("LINK_KEY") or secrets.token_hex(32),
        }
        configured: dict[str, Any] = {
            "Role": role,
            "Handler": "selfservice.function.handler",
            "Runtime": RUNTIME,
            "Timeout": SECONDS,
            "MemorySize": MEMORY,
            "Environment": {"Variables": environment},
        }
        if state is None:
            run.do(
                f"{region}: create function {name}",
                lambda: when_assumable(
                    lambda: client.create_function(
                        FunctionName=name,
                        Code={"ZipFile": code},
                        Description=f"trainium-labs {spec.name}: the students' links",
                        Tags=tags.common(spec),
                        **configured,
                    )
                ),
            )
        else:
            sha = base64.b64encode(hashlib.sha256(code).digest()).decode()
            if state["CodeSha256"] != sha:
                run.do(
                    f"{region}: update the code of function {name}",
                    lambda: client.update_function_code(FunctionName=name, ZipFile=code),
                )
                rate_limit.wait_until_found(lambda: run.check or _ready(run))
            if any(state.get(k) != v for k, v in configured.items()):
                run.do(
                    f"{region}: update function {name}",
                    lambda: client.update_function_configuration(FunctionName=name, **configured),
                )
        if not run.check:
            rate_limit.wait_until_found(lambda: _ready(run))
            _open(run, client, name)


def _open(run: Run, client: Any, name: str) -> None:
    """Give the function its address, and a bound on how much of it can run at once."""
    region = run.spec.regions[0]
    try:
        client.get_function_url_config(FunctionName=name)
    except client.exceptions.ResourceNotFoundException:
        run.do(
            f"{region}: open function {name} to signed links",
            lambda: client.create_function_url_config(FunctionName=name, AuthType="NONE"),
        )
    try:
        policy = json.loads(client.get_policy(FunctionName=name)["Policy"])
    except client.exceptions.ResourceNotFoundException:
        policy = {"Statement": []}
    have = {s["Sid"] for s in policy["Statement"]}
    for action, more in PERMISSIONS:
        sid = action.replace(":", "-")
        if sid not in have:
            client.add_permission(
                FunctionName=name, StatementId=sid, Action=action, Principal="*", **more
            )
    if client.get_function_concurrency(FunctionName=name).get("ReservedConcurrentExecutions"):
        return
    try:
        client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=CONCURRENT)
    except be.ClientError as error:
        if code_of(error) != "InvalidParameterValueException":
            raise
        run.warn(  # a new account may run ten in all, and AWS lets none of them be reserved
            f"{region}: the account is too new to bound how much of the students' function runs at"
            " once; it may run ten at a time in all, which bounds it too."
        )


def signer(run: Run) -> LinkSigner | None:
    """Return what signs the class's links, or None where it has none."""
    if run.spec.my != "lambda":
        return None
    client, name = run.cloud.client("lambda", run.spec.regions[0]), tags.function(run.spec)
    with doing("read the students' function", run.spec.regions[0]):
        state = _state(run)
        if state is None:
            return None
        try:
            url = client.get_function_url_config(FunctionName=name)["FunctionUrl"]
        except client.exceptions.ResourceNotFoundException:
            return None
    key = state.get("Environment", {}).get("Variables", {}).get("LINK_KEY", "")
    return LinkSigner(run.spec.name, url, bytes.fromhex(key)) if key else None


# ---- what machines' tags tell the function ----


def settle(run: Run, machines: list[Machine]) -> None:
    """Write what the function reads into the machines' tags: caps, and what owners spent on former
    machines."""
    if run.spec.my != "lambda":
        return
    spent, now = cost.by_instance(run), {m.id for m in machines}
    former: dict[str, float] = {}
    for iid, entry in spent.items():
        if iid not in now:
            former[entry["machine"]] = former.get(entry["machine"], 0.0) + entry["usd"]

    def one(m: Machine) -> None:
        want = {tags.CAP: f"{run.spec.cap(m.students):g}"}
        if former.get(m.name, 0.0) >= 0.005:
            want[tags.BEFORE] = f"{former[m.name]:.2f}"
        granted = tags.ASKS in m.tags and float(m.tags.get(tags.CAP) or 0) < float(want[tags.CAP])
        write(run, m, want)
        if granted and not run.check:
            run.cloud.ec2(m.region).delete_tags(Resources=[m.id], Tags=[{"Key": tags.ASKS}])
            del m.tags[tags.ASKS]

    for m, _, error in each(one, [m for m in machines if m.id]):
        if error:
            run.warn(f"The cap of {m.name} was not written: {error}")


def write(run: Run, m: Machine, want: dict[str, str]) -> None:
    """Write tags that differ."""
    changed = {k: v for k, v in want.items() if m.tags.get(k) != v}
    if not changed:
        return
    with doing(f"tag {m.name}", m.region):
        run.do(
            f"{m.region}: tag {m.name}: {', '.join(sorted(changed))}",
            lambda: run.cloud.ec2(m.region).create_tags(
                Resources=[m.id], Tags=tags.as_list(changed)
            ),
        )
    if not run.check:
        m.tags.update(changed)


def revoke(run: Run, machines: list[Machine]) -> list[str]:
    """End the links of the students within --limit; return their names. New links have the next
    number."""
    ended = []
    for m in machines:
        people = [s for s in m.students if run.wants(m.name, s)]
        write(run, m, {tags.LINK + s: str(int(m.tags.get(tags.LINK + s) or 0) + 1) for s in people})
        ended += people
    return ended
