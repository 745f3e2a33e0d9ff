"""What machines need before they can start: image, network, staff key, roles, launch template."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ..aws.cloud import code_of, doing
from ..aws.problems import ClassroomError
from ..guards import roles
from ..spec import lock, sdk, tags
from ..spec.run import Run
from . import firewall, firstboot


@dataclass(frozen=True)
class Network:
    """Hold where machines of a region can go: (zone, subnet) pairs that offer the type, and the
    security group."""

    region: str
    vpc: str
    subnets: tuple[tuple[str, str], ...]
    group: str


# ---- image ----


def image(run: Run, region: str) -> str:
    """Return the image id of the SDK pin: from class.lock.yml, else looked up and locked."""
    locked = lock.read(run.spec.folder)
    images = locked.get("images") or {} if locked.get("sdk") == run.spec.sdk else {}
    if region in images:
        return images[region]["id"]
    newest = find_image(run, region)
    images[region] = {"id": newest["ImageId"], "name": newest["Name"]}
    if not run.check:
        lock.write(run.spec.folder, sdk=run.spec.sdk, images=images)
    return newest["ImageId"]


def find_image(run: Run, region: str) -> dict[str, Any]:
    """Look up the image of the SDK pin by what its description says, else by its date."""
    query = sdk.image_query(run.spec.sdk)
    with doing(f"look up the Neuron image of SDK {query.sdk}", region):
        images = run.cloud.pages(
            "ec2",
            region,
            "describe_images",
            "Images",
            Owners=[sdk.NEURON_IMAGE_OWNER],
            Filters=[{"Name": "name", "Values": [query.pattern]}],
            IncludeDeprecated=True,
        )
    picked = sdk.pick_image(images, query)
    if not picked:
        window = f"{query.since} to {query.until}" if query.until else f"since {query.since}"
        raise ClassroomError(
            f"{region} has no Neuron image of SDK {query.sdk} ({query.pattern!r}, dated {window}).",
            "Pin another SDK, or share an image of your own and put its id into class.lock.yml.",
        )
    return picked


# ---- network ----


def network(run: Run, region: str) -> Network:
    """Find the subnets whose zone offers the type: those of class.yml, else the default VPC's; make
    the security group."""
    spec = run.spec
    with doing("read the network", region):
        offered = {
            o["Location"]
            for o in run.cloud.pages(
                "ec2",
                region,
                "describe_instance_type_offerings",
                "InstanceTypeOfferings",
                LocationType="availability-zone",
                Filters=[{"Name": "instance-type", "Values": [spec.instance_type]}],
            )
        }
        subnets = _subnets(run, region)
    vpc = subnets[0]["VpcId"]
    pairs = tuple(
        sorted(
            (s["AvailabilityZone"], s["SubnetId"])
            for s in subnets
            if s["AvailabilityZone"] in offered
        )
    )
    return Network(region, vpc, pairs, firewall.ensure(run, region, vpc) if pairs else "")


def _subnets(run: Run, region: str) -> list[dict[str, Any]]:
    """Return the subnets that machines may use, at least one, all of one VPC."""
    spec = run.spec
    vpc = spec.vpc.get(region) or spec.vpc.get("")
    chosen = spec.subnets.get(region) or spec.subnets.get("")
    filters = [{"Name": "subnet-id", "Values": chosen}] if chosen else []
    if vpc:
        filters.append({"Name": "vpc-id", "Values": [vpc]})
    if not filters:
        filters = [{"Name": "vpc-id", "Values": [_default_vpc(run, region)]}]
        filters.append({"Name": "default-for-az", "Values": ["true"]})
    subnets = run.cloud.pages("ec2", region, "describe_subnets", "Subnets", Filters=filters)
    missing = sorted(set(chosen or ()) - {s["SubnetId"] for s in subnets})
    if missing or not subnets:
        problem = f"no subnet {', '.join(missing)}" if missing else "no subnets"
        raise ClassroomError(
            f"{region} has {problem}{f' in {vpc}' if vpc else ''}.",
            "Correct `subnets` and `vpc` in class.yml; `aws ec2 describe-subnets --region"
            f" {region}` lists what this account sees.",
        )
    if len(vpcs := sorted({s["VpcId"] for s in subnets})) > 1:
        raise ClassroomError(
            f"The subnets of {region} lie in several networks: {', '.join(vpcs)}.",
            "Name those of one in `subnets`: the class has one security group in a region.",
        )
    return subnets


def _default_vpc(run: Run, region: str) -> str:
    vpcs = run.cloud.ec2(region).describe_vpcs(
        Filters=[{"Name": "is-default", "Values": ["true"]}]
    )["Vpcs"]
    if not vpcs:
        raise ClassroomError(
            f"{region} has no default network (organisations remove it).",
            f"Name your own in class.yml, `subnets: {{{region}: [subnet-...]}}` or `vpc: vpc-...`;"
            f" in an account of your own run `aws ec2 create-default-vpc --region {region}` once.",
        )
    return vpcs[0]["VpcId"]


# ---- staff key ----


def key_pair(run: Run, region: str) -> str:
    """Import the staff's public key; a changed key replaces the old one. Students' keys never
    become key pairs."""
    ec2, name = run.cloud.ec2(region), tags.prefix(run.spec) + "staff"
    with doing("read the key pairs", region):
        key_pairs = [
            k
            for k in ec2.describe_key_pairs(IncludePublicKey=True)["KeyPairs"]
            if k["KeyName"] == name
        ]
    wanted = run.spec.staff_public_key
    if key_pairs and key_pairs[0].get("PublicKey", "").split()[:2] == wanted.split()[:2]:
        return name

    def replace() -> None:
        if key_pairs:
            ec2.delete_key_pair(KeyName=name)
        try:
            ec2.import_key_pair(
                KeyName=name,
                PublicKeyMaterial=(wanted + "\n").encode(),
                TagSpecifications=tags.spec_for(["key-pair"], tags.common(run.spec)),
            )
        except Exception as error:
            if code_of(error) != "InvalidKeyPair.Duplicate":
                raise

    with doing("import the staff key", region):
        run.do(f"{region}: {'replace' if key_pairs else 'import'} staff key", replace)
    return name


# ---- launch template ----


def launch_template(run: Run, net: Network, ami: str, block: str | None = None) -> tuple[str, str]:
    """Make the template (new version only when something differs); return (name, version)."""
    ec2, name = run.cloud.ec2(net.region), tags.prefix(run.spec) + "machine"
    data = template_data(run, net, ami, block)
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]
    with doing("read the launch template", net.region):
        versions = []
        templates = ec2.describe_launch_templates(
            Filters=[{"Name": "launch-template-name", "Values": [name]}]
        )["LaunchTemplates"]
        if templates:
            if not tags.ours(templates[0].get("Tags"), run.spec.name):
                raise ClassroomError(
                    f"{net.region} has a launch template {name} that is not this class's.",
                    "Rename or delete it.",
                )
            versions = ec2.describe_launch_template_versions(
                LaunchTemplateName=name, Versions=["$Latest"]
            )["LaunchTemplateVersions"]
    if versions and versions[0].get("VersionDescription") == digest:
        return name, str(versions[0]["VersionNumber"])
    with doing("write the launch template", net.region):
        if not templates:

            def create() -> dict[str, Any]:
                try:
                    return ec2.create_launch_template(
                        LaunchTemplateName=name,
                        VersionDescription=digest,
                        LaunchTemplateData=data,
                        ClientToken=digest,
                        TagSpecifications=tags.spec_for(["launch-template"], tags.common(run.spec)),
                    )["LaunchTemplate"]
                except Exception as error:
                    if "AlreadyExists" not in code_of(error):
                        raise
                    return {"LatestVersionNumber": 1}

            made = run.do(f"{net.region}: create launch template", create)
            return name, str((made or {"LatestVersionNumber": 1})["LatestVersionNumber"])
        made = run.do(
            f"{net.region}: new version of the launch template",
            lambda: ec2.create_launch_template_version(
                LaunchTemplateName=name, VersionDescription=digest, LaunchTemplateData=data
            )["LaunchTemplateVersion"],
        )
        return name, str((made or {"VersionNumber": "$Latest"})["VersionNumber"])


def template_data(run: Run, net: Network, ami: str, block: str | None) -> dict[str, Any]:
    """Return the template's content: IMDSv2 only, encrypted disk, tags on machine, disk and network
    card."""
    spec = run.spec
    data: dict[str, Any] = {
        "ImageId": ami,
        "InstanceType": spec.instance_type,
        "KeyName": tags.prefix(spec) + "staff",
        "IamInstanceProfile": {"Name": roles.machine_role(run)},
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/sda1",
                "Ebs": {
                    "VolumeSize": spec.disk_gib,
                    "VolumeType": "gp3",
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "MetadataOptions": {
            "HttpTokens": "required",
            "HttpEndpoint": "enabled",
            "HttpPutResponseHopLimit": 1,
        },
        "InstanceInitiatedShutdownBehavior": "stop",
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "Groups": [net.group],
                "AssociatePublicIpAddress": not spec.private,
                "DeleteOnTermination": True,
            }
        ],
        "UserData": base64.b64encode(firstboot.script(spec).encode()).decode(),
        "TagSpecifications": [
            *tags.spec_for(["instance"], {**tags.common(spec), tags.GUARD: tags.pending(spec)}),
            *tags.spec_for(["volume", "network-interface"], tags.common(spec)),
        ],
    }
    if spec.market == "spot":
        # Only a persistent request can be stopped at night; it ends an hour before the final
        # teardown, or it would relaunch what that ends.
        end = spec.teardown_at.astimezone(dt.timezone.utc) - dt.timedelta(hours=1)
        until = end.strftime("%Y-%m-%dT%H:%M:%SZ")
        data["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {
                "SpotInstanceType": "persistent",
                "InstanceInterruptionBehavior": "stop",
                "ValidUntil": until,
            },
        }
        data["TagSpecifications"] += tags.spec_for(["spot-instances-request"], tags.common(spec))
    if block:
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
        data["CapacityReservationSpecification"] = {
            "CapacityReservationTarget": {"CapacityReservationId": block}
        }
    return data
