"""What a class needs of the account's quotas in a region: vCPUs, disks, addresses.

What others in the account use counts against them too. Sources: Service Quotas console, services
"Amazon EC2" and "Amazon EBS" (codes and units documented, the defaults are the account's).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import botocore.exceptions as be

from ..aws.cloud import DENIED, code_of, doing
from ..aws.problems import ClassroomError
from ..spec import instance_types, tags
from ..spec.run import Run
from . import forecast

DISKS = ("ebs", "L-7A658B76", "Storage for gp3 volumes", "TiB")
ADDRESSES = ("ec2", "L-0263D0A3", "EC2-VPC Elastic IPs", "addresses")
GIB_PER_TIB = 1024
COUNTED = ["pending", "running", "stopping"]  # states whose vCPUs count (documented)


@dataclass(frozen=True)
class Need:
    """Hold one quota of a region, what others use of it, and what the class needs."""

    region: str
    service: str
    code: str
    name: str
    unit: str
    others: float
    needed: float
    quota: float | None = None  # None: it could not be read

    @property
    def enough(self) -> bool:
        """Return whether the whole class fits; a quota that cannot be read does not say no."""
        return self.quota is None or self.others + self.needed <= self.quota

    @property
    def sentence(self) -> str:
        """Return one sentence about it."""
        used = f", {self.others:.4g} of it used by others" if self.others else ""
        if self.quota is None:
            return f"{self.name} ({self.code}) could not be read"
        return (
            f"{self.name} ({self.code}): {self.quota:g} {self.unit}{used}; the class needs"
            f" {self.needed:.4g}"
        )

    @property
    def wish(self) -> float:
        """Return the value to ask AWS for: it takes whole numbers."""
        return float(-int(-(self.others + self.needed) // 1))

    @property
    def command(self) -> str:
        """Return the command that asks AWS for enough."""
        return (
            f"aws service-quotas request-service-quota-increase --region {self.region}"
            f" --service-code {self.service} --quota-code {self.code}"
            f" --desired-value {self.wish:g}"
        )


def read(run: Run, region: str, service: str, code: str) -> float | None:
    """Return the value of a quota, or None (and a warning) when it may not be read."""
    with doing(f"read the quota {code}", region):
        try:
            return float(
                run.cloud.client("service-quotas", region).get_service_quota(
                    ServiceCode=service, QuotaCode=code
                )["Quota"]["Value"]
            )
        except be.ClientError as error:
            if code_of(error) not in (*DENIED, "NoSuchResourceException"):
                raise
            run.warn(
                f"{region}: the quota {code} could not be read ({code_of(error)}); going on"
                " without the check."
            )
            return None


def _ours(run: Run, thing: dict[str, Any]) -> bool:
    return tags.ours(thing.get("Tags"), run.spec.name)


def vcpus_of_others(run: Run, region: str) -> int:
    """Return the vCPUs that machines of others take of the class's quota."""
    family = run.spec.machine.family[:3]
    spot = run.spec.market == "spot"
    try:
        found = run.cloud.pages(
            "ec2",
            region,
            "describe_instances",
            "Reservations",
            Filters=[{"Name": "instance-state-name", "Values": COUNTED}],
        )
    except be.ClientError as error:
        if code_of(error) not in DENIED:
            raise
        run.warn(f"{region}: machines of others could not be counted against the vCPU quota.")
        return 0
    return sum(
        _vcpus(i)
        for r in found
        for i in r["Instances"]
        if i["InstanceType"].startswith(family)
        and not _ours(run, i)
        and (i.get("InstanceLifecycle") or "") == ("spot" if spot else "")
    )


def _vcpus(instance: dict[str, Any]) -> int:
    options = instance.get("CpuOptions") or {}
    known = instance_types.TYPES.get(instance["InstanceType"])
    counted = options.get("CoreCount", 0) * options.get("ThreadsPerCore", 1)
    return known.vcpus if known else counted


def _gib_of_others(run: Run, region: str) -> float:
    with doing("list the disks", region):
        found = run.cloud.pages(
            "ec2",
            region,
            "describe_volumes",
            "Volumes",
            Filters=[{"Name": "volume-type", "Values": ["gp3"]}],
        )
    return sum(v["Size"] for v in found if not _ours(run, v))


def _addresses_of_others(run: Run, region: str) -> int:
    with doing("list the Elastic IPs", region):
        found = run.cloud.ec2(region).describe_addresses()["Addresses"]
    return sum(not _ours(run, a) for a in found)


def disks(run: Run, region: str, count: int) -> Need:
    """Return the disk quota that `count` machines need in a region."""
    others, needed = _gib_of_others(run, region), count * run.spec.disk_gib
    return _need(run, region, DISKS, others / GIB_PER_TIB, needed / GIB_PER_TIB)


def needs(run: Run, region: str) -> list[Need]:
    """Return what the whole class needs in a region, quota by quota."""
    spec, count = run.spec, forecast.count(run.spec)
    out = []
    vcpus = instance_types.quota_for(spec.machine, spec.market)
    if vcpus:
        others = vcpus_of_others(run, region)
        out.append(_need(run, region, ("ec2", *vcpus, "vCPUs"), others, count * spec.machine.vcpus))
    out.append(disks(run, region, count))
    if spec.elastic_ip:
        out.append(_need(run, region, ADDRESSES, _addresses_of_others(run, region), count))
    return out


def _need(
    run: Run, region: str, what: tuple[str, str, str, str], others: float, needed: float
) -> Need:
    service, code, name, unit = what
    quota = read(run, region, service, code)
    return Need(region, service, code, name, unit, others, needed, quota)


def check(run: Run, need: Need, request: bool) -> str:
    """Return what a quota has; ask AWS for more if `request`, else raise when it is too small."""
    if need.enough:
        return need.sentence
    if not request:
        raise ClassroomError(f"{need.sentence}.", f"Ask for more: {need.command}")
    with doing(f"ask for more of {need.name}", need.region):
        client = run.cloud.client("service-quotas", need.region)
        open_ones = client.list_requested_service_quota_change_history_by_quota(
            ServiceCode=need.service, QuotaCode=need.code
        )["RequestedQuotas"]
        if any(
            q["Status"] in ("PENDING", "CASE_OPENED") and q["DesiredValue"] >= need.wish
            for q in open_ones
        ):
            return f"{need.sentence}; an increase is already asked for"
        run.do(
            f"{need.region}: ask AWS for {need.wish:g} {need.unit} ({need.code})",
            lambda: client.request_service_quota_increase(
                ServiceCode=need.service, QuotaCode=need.code, DesiredValue=need.wish
            ),
        )
    return f"{need.sentence}; {need.wish:g} asked for, which takes hours to days"
