"""Lambda functions, who may call them, and machines' consoles.

The fake runs no function: what a schedule calls is noted (`invoke` in the events), and a test hands
it to the function's own code, which `function_server` runs. Sources: Lambda guide, "Execution role"
(a role that Lambda cannot assume is refused when the function is made), "Control access to Lambda
function URLs" (without sign-in, both lambda:InvokeFunctionUrl and lambda:InvokeFunction must be
granted to everybody); cloud-init, "Keys to Console"; EC2 API reference, GetConsoleOutput.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import urllib.parse
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response
from moto.iam.models import iam_backends
from moto.sesv2.models import sesv2_backends

from .iam import Request
from .world import ACCOUNT, WORLD

CONSOLE_SECONDS = 60  # after a launch, until the keys are on the console (assumed)
BUFFERED_SECONDS = 3600
F, NAME = r"/20\d\d-\d\d-\d\d/functions", r"/[^/]+"
REST = [
    ("POST", F + r"/?", "CreateFunction"),
    ("GET", F + r"/?", "ListFunctions"),
    ("GET", F + NAME + r"/configuration", "GetFunctionConfiguration"),
    ("PUT", F + NAME + r"/configuration", "UpdateFunctionConfiguration"),
    ("PUT", F + NAME + r"/code", "UpdateFunctionCode"),
    ("DELETE", F + NAME, "DeleteFunction"),
    ("GET", F + NAME, "GetFunction"),
    ("POST", F + NAME + r"/policy", "AddPermission"),
    ("GET", F + NAME + r"/policy", "GetPolicy"),
    ("POST", F + NAME + r"/url", "CreateFunctionUrlConfig"),
    ("GET", F + NAME + r"/url", "GetFunctionUrlConfig"),
    ("PUT", F + NAME + r"/concurrency", "PutFunctionConcurrency"),
    ("GET", F + NAME + r"/concurrency", "GetFunctionConcurrency"),
    ("GET", r"/20\d\d-\d\d-\d\d/tags/.+", "ListTags"),
    ("POST", r"/v2/email/outbound-emails", "SendEmail"),
    ("GET", r"/v2/email/account", "GetAccount"),
    ("GET", r"/v2/email/identities/.+", "GetEmailIdentity"),
]


def asked(region: str, op: str, params: dict[str, Any]) -> list[Request]:
    """Return every question that a call of Lambda asks."""
    from .questions import pass_role, tagged

    path = params.get("path", "")
    if op == "ListFunctions":
        return [Request("lambda:ListFunctions", "*")]
    name = params.get("FunctionName") or ""
    if found := re.search(r"/functions/([^/]+)", path) or re.search(r"function:([^/]+)$", path):
        name = found[1]
    arn = f"arn:aws:lambda:{region}:{ACCOUNT}:function:{name}"
    out = [Request(f"lambda:{op}", arn)]
    if op == "CreateFunction" and params.get("Tags"):
        out.append(Request("lambda:TagResource", arn, tagged(params["Tags"], "Request")))
    if params.get("Role"):
        out.append(pass_role(params["Role"], "lambda.amazonaws.com"))
    return out


def mailed(region: str, op: str, params: dict[str, Any]) -> list[Request]:
    """Return the questions of SES: SendEmail is asked about the identity that sends."""
    if op != "SendEmail":
        name = params.get("path", "").rpartition("/")[2]
        arn = f"arn:aws:ses:{region}:{ACCOUNT}:identity/{name}"
        return [Request(f"ses:{op}", arn if op == "GetEmailIdentity" else "*")]
    sender = params.get("FromEmailAddress", "")
    arn = f"arn:aws:ses:{region}:{ACCOUNT}:identity/{sender}"
    return [Request(f"ses:{op}", arn, {"ses:FromAddress": sender})]


def refusal(service: str, op: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return why Lambda does not take a role, or None."""
    from . import authority

    if service == "ses" and op == "SendEmail" and WORLD.sandbox:
        # SES guide, "Request production access": in the sandbox to verified addresses only.
        words = "Email address is not verified. The following identities failed the check"
        return {"code": "MessageRejected", "status": 400, "message": words}
    if service != "lambda" or not params.get("Role"):
        return None
    try:
        authority.assume(params["Role"], "lambda.amazonaws.com")
    except authority.Refused:
        words = "The role defined for the function cannot be assumed by Lambda."
        return {"code": "InvalidParameterValueException", "status": 400, "message": words}
    return None


def answer(service: str, op: str, region: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Answer what moto's SES lacks: the account, and whether an identity may send."""
    if service != "ses" or op not in ("GetAccount", "GetEmailIdentity"):
        return None
    if op == "GetAccount":
        quota = {"Max24HourSend": 200.0 if WORLD.sandbox else 50000.0, "MaxSendRate": 1.0}
        return {
            "ProductionAccessEnabled": not WORLD.sandbox,
            "SendingEnabled": True,
            "SendQuota": quota,
        }
    name = urllib.parse.unquote(params["path"].rpartition("/")[2])
    if name not in sesv2_backends[ACCOUNT][region].core_backend.email_identities:
        return {"missing": True}
    return {"IdentityType": "EMAIL_ADDRESS", "VerifiedForSendingStatus": True}


def invoke(region: str, role: str, arn: str, payload: str) -> str:
    """Note a call of a schedule, if its role may call; raise Refused."""
    from . import authority

    authority.act(role, region, [Request("lambda:InvokeFunction", arn)])
    name = arn.rsplit(":", 1)[1]
    if name not in {f.function_name for f in functions(region)}:
        raise authority.Refused(f"ResourceNotFoundException: {arn}")
    WORLD.note("invoke", region=region, function=name, payload=json.loads(payload))
    if WORLD.failing_functions:  # counted for the function: Scheduler has done its part
        failed = {"t": WORLD.now(), "region": region, "group": name, "error": "Unhandled"}
        WORLD.invocations.append(failed)
    return f"invoked {name}"


def functions(region: str) -> list[Any]:
    """Return the functions of a region."""
    return list(lambda_backends[ACCOUNT][region]._lambdas.all())


def deployed(region: str, name: str) -> dict[str, Any]:
    """Return what runs a function: its archive, environment, and what its role may do."""
    from . import authority

    function = next(f for f in functions(region) if f.function_name == name)
    iam = iam_backends[ACCOUNT]["aws"]
    role = next(r for r in iam.roles.values() if r.arn == function.role)
    policy = function.policy.get_policy()["Policy"] if function.policy.statements else {}
    return {
        "zip": base64.b64encode(function.code_bytes).decode(),
        "environment": function.environment_vars,
        "handler": function.handler,
        "policies": [json.loads(text) for text in role.policies.values()],
        "boundary": authority.boundary(role.permissions_boundary_arn),
        "concurrency": function.reserved_concurrency,
        "open": sorted(
            s["Action"]
            for s in policy.get("Statement", [])
            if "*" in json.dumps(s.get("Principal"))
        ),
    }


def host_key(instance: str) -> str:
    """Return the host key that a machine of the fake has: made from its id."""
    raw = hashlib.sha256(instance.encode()).digest()
    blob = b"".join(struct.pack(">I", len(p)) + p for p in (b"ssh-ed25519", raw))
    return "ssh-ed25519 " + base64.b64encode(blob).decode()


def get_console_output(self: Any) -> ActionResult:
    """Answer with what cloud-init prints at the first boot, once it has.

    Source: EC2 API reference, GetConsoleOutput: without `Latest` the answer is buffered, from
    around the last change of state. That it is there an hour later is assumed.
    """
    iid = self._get_param("InstanceId")
    self.ec2_backend.get_instance(iid)
    intervals = WORLD.usage.get(iid) or []
    ran = (WORLD.now() - intervals[0][0]).total_seconds() if intervals else 0
    text = ""
    kept = ran >= CONSOLE_SECONDS if self._get_param("Latest") else ran >= BUFFERED_SECONDS
    if kept and len(intervals) == 1:  # a later boot overwrites it
        text = (
            "[   12.3] cloud-init[999]: Generating public/private ed25519 key pair.\r\n"
            "-----BEGIN SSH HOST KEY KEYS-----\r\n"
            f"ecdsa-sha2-nistp256 AAAA= root@ip\r\n{host_key(iid)} root@ip-172-31-0-7\r\n"
            "-----END SSH HOST KEY KEYS-----\r\n"
        )
    return ActionResult(
        {
            "InstanceId": iid,
            "Output": base64.b64encode(text.encode()).decode(),
            "Timestamp": WORLD.now(),
        }
    )


def install() -> None:
    """Patch moto's classes."""
    EC2Response.get_console_output = get_console_output
