"""What was just made is not seen at once.

Source: EC2 developer guide, "Eventual consistency in the Amazon EC2 API": a describe call may not
show a resource that a call before it created, and a call may not find one that it names; IAM user
guide, "Changes that I make are not always immediately visible". For a few virtual seconds; the
answer of the creating call itself has it. Not here: tags that come late, and deleted things that
are still shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_block_store import EBSBackend
from moto.ec2.models.elastic_ip_addresses import ElasticAddressBackend
from moto.ec2.models.elastic_network_interfaces import NetworkInterfaceBackend
from moto.ec2.models.instances import InstanceBackend
from moto.ec2.models.key_pairs import KeyPairBackend
from moto.ec2.models.launch_templates import LaunchTemplateBackend
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.iam.models import IAMBackend

from .world import ACCOUNT, WORLD

_asking = threading.local()
# IAM's calls that read one thing -> the parameter that names it, and what it is
IAM_READS = {
    "GetRole": ("RoleName", "role"),
    "GetRolePolicy": ("RoleName", "role"),
    "GetInstanceProfile": ("InstanceProfileName", "profile"),
}


def born(resource: str) -> None:
    """Remember when something was made."""
    WORLD.born[resource] = WORLD.now().timestamp()


def seen(resource: str) -> bool:
    """Say whether everybody sees it already."""
    made = WORLD.born.get(resource)
    late = WORLD.late_seconds
    if resource.startswith("i-"):
        late = max(late, WORLD.machines_late_seconds)
    return made is None or WORLD.now().timestamp() - made >= late


def asks(op: str) -> None:
    """Remember which call this thread answers: moto uses its own listings for other calls too."""
    _asking.listing = op.startswith(("Describe", "List"))


def _no(code: str, name: str, status: int = 400) -> dict[str, Any]:
    return {"code": code, "status": status, "message": f"{name} does not exist"}


def refusal(service: str, region: str, op: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the error of a call that names what is not seen yet, or None."""
    if service == "iam" and op in IAM_READS:
        parameter, kind = IAM_READS[op]
        name = f"{kind}/{params.get(parameter)}"
        return None if seen(name) else _no("NoSuchEntity", name, 404)
    if service != "ec2" or op not in ("RunInstances", "DescribeLaunchTemplateVersions"):
        return None
    ec2 = ec2_backends[ACCOUNT][region]
    name = params.get("LaunchTemplate.LaunchTemplateName") or params.get("LaunchTemplateName")
    template = next((t for t in ec2.launch_templates.values() if t.name == name), None)
    if template is None:
        return None
    if not seen(template.id):
        return _no("InvalidLaunchTemplateName.NotFoundException", str(name))
    if op != "RunInstances":
        return None
    data = template.versions[-1].data
    key = ec2.key_pairs.get(data.get("KeyName", ""))
    if key and not seen(key.id):
        return _no("InvalidKeyPair.NotFound", key.key_name)
    for group in [v for k, v in params.items() if ".SecurityGroupId." in k]:
        if not seen(group):
            return _no("InvalidGroup.NotFound", group)
    profile = (data.get("IamInstanceProfile") or {}).get("Name")
    if profile and not seen(f"profile/{profile}"):
        return _no("InvalidParameterValue", f"Invalid IAM Instance Profile name: {profile}")
    return None


def _hide(backend: type, name: str, identify: Callable[[Any], str], always: bool = False) -> None:
    original = getattr(backend, name)

    def listing(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        if not always and not getattr(_asking, "listing", False):
            return found
        if isinstance(found, tuple):  # with a marker for the next page
            return ([r for r in found[0] if seen(identify(r))], *found[1:])
        return [r for r in found if seen(identify(r))]

    setattr(backend, name, listing)


def _mark(backend: type, name: str, identify: Callable[[Any], str]) -> None:
    original = getattr(backend, name)

    def create(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(self, *args, **kwargs)
        born(identify(made))
        return made

    setattr(backend, name, create)


def _id(resource: Any) -> str:
    return resource.id


def install() -> None:
    """Patch moto's listings."""
    _hide(InstanceBackend, "describe_instances", lambda r: r.instances[0].id, always=True)
    _hide(ElasticAddressBackend, "describe_addresses", lambda a: a.allocation_id, always=True)
    _hide(SecurityGroupBackend, "describe_security_groups", _id, always=True)
    _hide(LaunchTemplateBackend, "describe_launch_templates", _id)
    _hide(KeyPairBackend, "describe_key_pairs", _id)
    _hide(EBSBackend, "describe_volumes", _id)
    _hide(NetworkInterfaceBackend, "describe_network_interfaces", _id)
    _hide(IAMBackend, "list_roles", lambda r: f"role/{r.name}")
    _mark(InstanceBackend, "run_instances", lambda r: r.instances[0].id)
    _mark(ElasticAddressBackend, "allocate_address", lambda a: a.allocation_id)
    _mark(SecurityGroupBackend, "create_security_group", _id)
    _mark(LaunchTemplateBackend, "create_launch_template", _id)
    _mark(KeyPairBackend, "import_key_pair", _id)
    _mark(EBSBackend, "create_volume", _id)
    _mark(NetworkInterfaceBackend, "create_network_interface", _id)
    _mark(IAMBackend, "create_role", lambda r: f"role/{r.name}")
    _mark(IAMBackend, "create_instance_profile", lambda p: f"profile/{p.name}")
