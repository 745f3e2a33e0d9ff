"""What moto lacks or gets wrong and a class depends on, patched in. Import before the first
call."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import hashlib
import json
import re
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import yaml
from moto.cloudwatch.models import Alarm
from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.amis import Ami
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.elastic_block_store import Volume
from moto.ec2.models.elastic_ip_addresses import ElasticAddressBackend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.ec2.responses import EC2Response
from moto.ec2.utils import convert_tag_spec
from moto.iam.models import iam_backends
from moto.iam.responses import IamResponse
from moto.kms import models as kms
from moto.servicequotas.models import ServiceQuotasBackend
from moto.servicequotas.responses import ServiceQuotasResponse
from moto.ssm.models import Parameter

from . import authority, automation, functions, guards, late, metrics, spending, states, storage
from . import market as sales
from .iam import Request
from .world import ACCOUNT, WORLD, tags_of

# Image dates and names as AWS publishes them; deprecated ones show only when asked for.
# Newer ones name their SDK. (Neuron documentation, "Neuron DLAMI": find an image by description.)
IMAGES = [
    ("22.04", "20250918", True, ""),
    ("22.04", "20251029", True, ""),
    ("22.04", "20251112", True, ""),
    ("24.04", "20251219", True, ""),
    ("24.04", "20260406", True, "2.29.0"),
    ("24.04", "20260821", True, "2.32.0"),
    ("24.04", "20261015", False, "2.33.0"),
]
UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
LATEST = "/aws/service/neuron/dlami/multi-framework/ubuntu-24.04/latest/image_id"


def image_id(ubuntu: str, day: str, region: str) -> str:
    """Return a stable image id: they differ from region to region, as in AWS."""
    return "ami-" + hashlib.sha256(f"{ubuntu}{day}{region}".encode()).hexdigest()[:17]


def preload_images(ec2: Any, ssm: Any, region: str) -> None:
    """Put the Neuron images and their SSM parameter into a region."""
    for ubuntu, day, deprecated, sdk in IMAGES:
        iid = image_id(ubuntu, day, region)
        ami = Ami(
            ec2,
            iid,
            name=f"Deep Learning AMI Neuron (Ubuntu {ubuntu}) {day}",
            owner_id="898082745236",
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            architecture="x86_64",
            description="Neuron multi-framework image" + (f", Neuron SDK {sdk}" if sdk else ""),
            root_device_type="ebs",
            root_device_name="/dev/sda1",
            creation_date=dt.datetime.strptime(day, "%Y%m%d"),
            region_name=region,
        )
        ami.deprecated = deprecated
        ec2.amis[iid] = ami
        if not deprecated:
            for name in (LATEST, UBUNTU):
                ssm._parameters[name].append(_parameter(name, iid))


def _parameter(name: str, image: str) -> Parameter:
    return Parameter(
        account_id=ACCOUNT,
        name=name,
        value=image,
        parameter_type="String",
        description="",
        allowed_pattern=None,
        keyid=None,
        last_modified_date=0.0,
        version=1,
        data_type="aws:ec2:image",
        labels=[],
    )


# ---- EC2 ----

_describe_images = EC2Response.describe_images


def describe_images(self: Any) -> ActionResult:
    result = _describe_images(self)
    if not self._get_param("IncludeDeprecated") and not self._get_param("ImageIds", []):
        images = result.result["Images"]
        result.result["Images"] = [i for i in images if not getattr(i, "deprecated", False)]
    return result


_run_response = EC2Response.run_instances


def run_instances(self: Any) -> ActionResult:
    """Honour the client token: the same token gives the same machines, other parameters with it are
    refused."""
    token = self._get_param("ClientToken")
    same = json.dumps(
        {k: v for k, v in sorted(self.data.items()) if k not in ("ClientToken", "DryRun")},
        sort_keys=True,
        default=str,
    )
    key = (self.region, token)
    with WORLD.lock:
        if token and key in WORLD.tokens:
            known, reservation = WORLD.tokens[key]
            if known != same:
                raise EC2ClientError(
                    "IdempotentParameterMismatch",
                    "The client token was used with other parameters.",
                )
            return ActionResult(reservation)
        result = _run_response(self)
        if token:
            WORLD.tokens[key] = (same, result.result)
        return result


_run_backend = InstanceBackend.run_instances


def run_backend(
    self: Any, image_id: str, count: int, user_data: Any, security_group_names: list, **kwargs: Any
) -> Any:
    """Apply the launch template as AWS does, and refuse zones that lack the type."""
    given = copy.deepcopy({k: v for k, v in kwargs.items()})
    template = kwargs.get("launch_template")
    data = self._get_template_from_args(template).data if template else {}
    if template and kwargs.get("is_instance_type_default") and data.get("InstanceType"):
        kwargs["instance_type"], kwargs["is_instance_type_default"] = data["InstanceType"], False
    if not kwargs.get("metadata_options"):
        kwargs["metadata_options"] = data.get("MetadataOptions") or {}
    if not kwargs.get("nics"):
        kwargs["nics"] = data.get("NetworkInterfaces") or []
    subnet_id = kwargs.get("subnet_id") or next(
        (n["SubnetId"] for n in kwargs["nics"] if n.get("SubnetId")), None
    )
    zone = self.get_subnet(subnet_id).availability_zone if subnet_id else kwargs.get("placement")
    itype = kwargs.get("instance_type")
    offers = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(self.region_name, [])
    if zone and not any(o["Location"] == zone and o["InstanceType"] == itype for o in offers):
        raise EC2ClientError(
            "Unsupported", f"Your requested instance type ({itype}) is not supported in {zone}."
        )
    market = (data.get("InstanceMarketOptions") or {}).get("MarketType") or kwargs.get(
        "instance_market_options"
    )
    if market == "capacity-block":
        block = WORLD.blocks.get(
            (
                (data.get("CapacityReservationSpecification") or {}).get(
                    "CapacityReservationTarget"
                )
                or {}
            ).get("CapacityReservationId", "")
        )
        if not block or block["State"] not in ("active", "payment-pending", "scheduled"):
            raise EC2ClientError(
                "InvalidCapacityReservationId.NotFound", "There is no such capacity block."
            )
        if zone and zone != block["AvailabilityZone"]:
            # EC2 guide, "Launch instances using Capacity Blocks": same Availability Zone.
            raise EC2ClientError(
                "InvalidParameter",
                f"The Availability Zone {zone} does not match the zone of the capacity reservation"
                f" {block['AvailabilityZone']}.",
            )
        if block["AvailableInstanceCount"] < count:
            raise EC2ClientError("ReservationCapacityExceeded", "The capacity block is used up.")
        block["AvailableInstanceCount"] -= count
    if data.get("BlockDeviceMappings"):
        kwargs.setdefault(
            "block_device_mappings", data["BlockDeviceMappings"]
        )  # else moto adds an 8 GB disk that stays
    tags = kwargs.setdefault("tags", {})
    if not tags:
        # EC2 API reference, RunInstances: a parameter of the call overrides the template's. That
        # tags are added kind by kind is not documented, so a call's tags are all there is.
        for kind, more in convert_tag_spec(data.get("TagSpecifications", {})).items():
            tags[kind] = {**more, **tags.get(kind, {})}
    request_tags = dict(tags.get("spot-instances-request", {}))
    nic_tags = dict(tags.get("network-interface", {}))
    reservation = _run_backend(self, image_id, count, user_data, security_group_names, **kwargs)
    profile = (data.get("IamInstanceProfile") or {}).get("Name")
    for instance in reservation.instances:
        for nic in instance.nics.values():
            nic.add_tags(nic_tags)
        instance.lifecycle = {"spot": "spot", "capacity-block": "capacity-block"}.get(market or "")
        if profile:
            self.associate_iam_instance_profile(
                instance_id=instance.id, iam_instance_profile_name=profile
            )
        if market == "spot":
            link_role("AWSServiceRoleForEC2Spot", "spot.amazonaws.com")
            again = partial(
                run_backend, self, image_id, count, user_data, security_group_names, **given
            )
            sales.request_spot(instance, data, request_tags, again)
        WORLD.awake[instance.id] = awake(data.get("UserData", ""), itype)
        WORLD.machine_started(instance, guards.covering(instance))
        states.turn(instance, "pending")
        states.fails(instance)
    return reservation


def awake(user_data: str, instance_type: Any) -> tuple[float, float]:
    """Return (percent of the CPU, seconds) that a machine's user data computes after each boot.

    Reads the one unit of it that matters for alarms; that the unit really runs at each boot is
    tested on a booted host.
    """
    files = yaml.safe_load(base64.b64decode(str(user_data or ""))) or {}
    for file in files.get("write_files", []):
        unit = file["content"]
        command = re.search(r"seq (\d+) \| xargs .* timeout (\d+) ", unit)
        enabled = any(Path(file["path"]).name in line for line in files.get("runcmd", []))
        if command and enabled and "WantedBy=multi-user.target" in unit:
            vcpus = INSTANCE_TYPES[instance_type]["VCpuInfo"]["DefaultVCpus"]
            return 100.0 * int(command[1]) / vcpus, float(command[2])
    return 0.0, 0.0


def _state_hook(name: str) -> Any:
    original = getattr(Instance, name)

    def changed(self: Any) -> Any:
        before = self.state
        if name == "start" and before in ("terminated", "shutting-down"):
            raise EC2ClientError("IncorrectInstanceState", f"The instance {self.id} is terminated.")
        states.check(self, name)
        if name == "start":
            sales.may_start(self)
        result = original(self)
        if name == "start" and before != "running":
            for address in self.ec2_backend.addresses:
                if address.instance is self:  # an Elastic IP stays; moto hands out a new one
                    self.nics[0].public_ip = address.public_ip
            WORLD.machine_started(self, guards.covering(self))
        elif name != "start" and before in ("running", "pending"):
            WORLD.machine_stopped(self, self.state, guards.reason())
        elif name == "terminate" and before not in ("terminated", "shutting-down"):
            WORLD.note("terminated", instance=self.id, region=self.region_name, why=guards.reason())
        if self.state != before:
            sales.changed(self, name, guards.reason())
        if name == "stop" and before == "running":
            states.turn(self, "stopping")
        elif name == "start" and before == "stopped":
            states.turn(self, "pending")
            states.fails(self, started=True)
        elif name == "terminate" and before not in ("terminated", "shutting-down"):
            states.turn(self, "shutting-down")
        elif name == "terminate":
            states.put(self, before)
        return result

    return changed


_delete_group = SecurityGroupBackend.delete_security_group


def delete_security_group(self: Any, name: str | None = None, group_id: str | None = None) -> None:
    """Refuse to delete a group that a network interface uses."""
    for eni in self.enis.values():
        if group_id in {g.id for g in eni.group_set}:
            raise EC2ClientError(
                "DependencyViolation", f"resource {group_id} has a dependent object"
            )
    if states.holds(group_id or ""):
        raise EC2ClientError("DependencyViolation", f"resource {group_id} has a dependent object")
    return _delete_group(self, name, group_id)


_regions = RegionsAndZonesBackend.describe_regions


def describe_regions(self: Any, region_names: list[str] | None = None) -> list:
    return [r for r in _regions(self, region_names) if r.name in WORLD.regions]


# Amazon VPC guide, "Elastic IP address quotas": five in a region, unless AWS has granted more.
EIP_QUOTA, EIPS = "L-0263D0A3", 5.0
_allocate = ElasticAddressBackend.allocate_address


def allocate_address(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse an address beyond the account's quota."""
    if len(self.addresses) >= quota(EIP_QUOTA):
        raise EC2ClientError(
            "AddressLimitExceeded", "The maximum number of addresses has been reached."
        )
    return _allocate(self, *args, **kwargs)


# ---- Service quotas ----


DEFAULTS = {EIP_QUOTA: EIPS, states.GP3_QUOTA: states.GP3_TIB}


def quota(code: str) -> float:
    """Return the value of a quota: what a test has granted, else AWS's default, else plenty."""
    plenty = WORLD.quotas.get("*", 5000.0)
    return WORLD.quotas.get(code, DEFAULTS.get(code, plenty))


def get_service_quota(self: Any, service_code: str, quota_code: str) -> dict[str, Any]:
    value = quota(quota_code)
    return {
        "ServiceCode": service_code,
        "QuotaCode": quota_code,
        "QuotaName": quota_code,
        "Value": value,
        "Adjustable": True,
    }


def request_service_quota_increase(self: Any) -> str:
    request = {k: self._get_param(k) for k in ("ServiceCode", "QuotaCode", "DesiredValue")}
    WORLD.quota_requests.append({**request, "region": self.region})
    return json.dumps(
        {"RequestedQuota": {"Id": str(len(WORLD.quota_requests)), "Status": "PENDING", **request}}
    )


def list_requested_service_quota_change_history_by_quota(self: Any) -> str:
    code = self._get_param("QuotaCode")
    requests = [
        {**r, "Status": "PENDING"}
        for r in WORLD.quota_requests
        if r["QuotaCode"] == code and r["region"] == self.region
    ]
    return json.dumps(
        {"RequestedQuotas": [{k: v for k, v in r.items() if k != "region"} for r in requests]}
    )


# ---- IAM ----


def simulate_principal_policy(self: Any) -> ActionResult:
    """Evaluate the caller's policies for the resources and keys that are given.

    Source: IAM API reference, SimulatePrincipalPolicy: without ResourceArns each action is asked
    about "*", which a policy for some resources only does not allow.
    """
    entries = self._get_param("ContextEntries", [])
    keys = {e["ContextKeyName"]: e["ContextKeyValues"] for e in entries}
    policies = authority.caller(self.get_access_key())["policies"]
    results = []
    for action in self._get_param("ActionNames", []):
        for resource in self._get_param("ResourceArns", []) or ["*"]:
            asked = Request(action, resource, keys)
            decision = authority.decide(asked, "us-east-1", policies)
            results.append(
                {
                    "EvalActionName": action,
                    "EvalResourceName": resource,
                    "EvalDecision": decision.why.split(" ")[0],
                }
            )
    return ActionResult({"IsTruncated": False, "EvaluationResults": results})


# ---- CloudWatch ----

_alarm_init = Alarm.__init__
_put_alarm = CloudWatchResponse.put_metric_alarm


def put_metric_alarm(self: Any) -> Any:
    """Make the service-linked role of EC2 actions with the first alarm that needs it."""
    answer = _put_alarm(self)
    alarms = self.cloudwatch_backend.alarms.values()
    if any(":ec2:" in action for a in alarms for action in a.alarm_actions):
        link_role("AWSServiceRoleForCloudWatchEvents", "events.amazonaws.com")
    return answer


def link_role(name: str, service: str) -> None:
    """Make a service-linked role, once."""
    iam = iam_backends[ACCOUNT]["aws"]
    if not any(r.name == name for r in iam.roles.values()):
        trust = {"Statement": [{"Effect": "Allow", "Principal": {"Service": service}}]}
        path = f"/aws-service-role/{service}/"
        iam.create_role(name, json.dumps(trust), path, None, "", [], "3600")


def alarm_init(self: Any, *args: Any, **kwargs: Any) -> None:
    _alarm_init(self, *args, **kwargs)
    self.state_value = "INSUFFICIENT_DATA"


_volume_init = Volume.__init__


def volume_init(self: Any, *args: Any, **kwargs: Any) -> None:
    """Answer with an empty snapshot id, as AWS does; modules of amazon.aws count on the key."""
    _volume_init(self, *args, **kwargs)
    self.snapshot_id = self.snapshot_id or ""


def install() -> None:
    """Patch moto's classes."""
    # A second zone with the type, so that a block's zone is one of several.
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"]["ap-southeast-4"]
    offered += [
        {**o, "Location": "ap-southeast-4b"}
        for o in offered
        if (o["InstanceType"], o["Location"]) == ("trn2.3xlarge", "ap-southeast-4c")
    ]
    EC2Response.describe_images, EC2Response.run_instances = describe_images, run_instances
    for f in sales.RESPONSES:
        setattr(EC2Response, f.__name__, f)
    InstanceBackend.run_instances = run_backend
    for name in ("start", "stop", "terminate"):
        setattr(Instance, name, _state_hook(name))
    SecurityGroupBackend.delete_security_group = delete_security_group
    RegionsAndZonesBackend.describe_regions = describe_regions
    ElasticAddressBackend.allocate_address = allocate_address
    spending.install()
    ServiceQuotasBackend.get_service_quota = get_service_quota
    ServiceQuotasResponse.request_service_quota_increase = request_service_quota_increase
    ServiceQuotasResponse.list_requested_service_quota_change_history_by_quota = (
        list_requested_service_quota_change_history_by_quota
    )
    CloudWatchResponse.put_metric_alarm = put_metric_alarm
    IamResponse.simulate_principal_policy = simulate_principal_policy
    Alarm.__init__ = alarm_init
    Volume.__init__ = volume_init
    # a new RSA key for each class that encrypts its disks is a tenth of a second; no test reads it
    kms.generate_private_key = lru_cache(kms.generate_private_key)
    metrics.install()
    functions.install()
    storage.install()
    automation.install()
    late.install()
    states.install()


__all__ = ["EmptyResult", "image_id", "install", "preload_images", "tags_of"]
