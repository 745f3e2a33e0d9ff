"""Inventory of a class: hosts from the roster, addresses from the aws_ec2 plugin."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

DOCUMENTATION = """
name: classroom
short_description: Hosts of a trainium-labs class
description:
  - Adds a host for each machine of the class named by the extra variable C(class), and asks the
    amazon.aws.aws_ec2 inventory for their addresses once the class has been provisioned.
options:
  plugin:
    description: Must be C(classroom), or its full name where it was installed as a collection.
    required: true
    choices: [classroom, trainium_labs.infra.classroom]
"""

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ansible.errors import AnsibleError  # noqa: E402
from ansible.plugins.inventory import BaseInventoryPlugin  # noqa: E402
from ansible.plugins.loader import inventory_loader  # noqa: E402
from ansible.utils.vars import load_extra_vars  # noqa: E402

PLACEHOLDER = "class-without-machines"


class InventoryModule(BaseInventoryPlugin):
    """Read the class; never stop a teardown because class.yml has a mistake."""

    NAME = "classroom"

    def verify_file(self, path: str) -> bool:
        """Accept files that end in classroom.yml."""
        return super().verify_file(path) and path.endswith("classroom.yml")

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        for group in ("students", "machines", "stopped"):
            inventory.add_group(group)
        # A play without hosts ends green and does nothing; with this host our action says what is
        # wrong.
        named = load_extra_vars(loader).get("class")
        if not named:
            self._placeholder(inventory)
            return
        from classroom.aws.problems import ClassroomError
        from classroom.cli import commands
        from classroom.spec import class_file

        file = commands.class_path(str(named))
        try:
            loaded = class_file.load(file, ended_ok=True)
        except ClassroomError as error:
            self._placeholder(inventory)
            inventory.set_variable("students", "classroom_error", str(error))
            return
        facts = self._facts(loaded, file)
        for key, value in facts.items():
            inventory.set_variable("students", key, value)
            inventory.set_variable("machines", key, value)
        if loaded.mode == "per-student":
            for student in loaded.students:
                inventory.add_host(student.id, group="students")
        # AWS knows, also on a second laptop
        self._addresses(inventory, loader, loaded, facts["classroom_keys"])
        for name in list(inventory.get_groups_dict().get("students", [])):
            inventory.set_variable(name, "ansible_python_interpreter", "/usr/bin/python3")
        if not inventory.get_groups_dict().get("students"):
            self._placeholder(inventory)
        if loaded.mode == "shared":
            for (
                student
            ) in loaded.students:  # so that --limit takes a student before there is a machine
                inventory.add_group(student.id)
                if not inventory.get_groups_dict().get(student.id):
                    self._placeholder(inventory)
                    inventory.add_host(PLACEHOLDER, group=student.id)

    @staticmethod
    def _placeholder(inventory: Any) -> None:
        inventory.add_host(PLACEHOLDER, group="students")

    @staticmethod
    def _facts(loaded: Any, file: Path) -> dict[str, Any]:
        from classroom.machines import firstboot
        from classroom.spec import sdk

        keys = {}
        for student in loaded.students:
            generated = loaded.out / "keys" / f"{student.id}.pub"
            keys[student.id] = student.public_key or (
                generated.read_text(encoding="utf-8").strip() if generated.exists() else ""
            )
        settings = loaded.model_dump(
            mode="json",
            include={
                "name",
                "mode",
                "sdk",
                "influx_org",
                "influx_bucket",
                "idle",
                "stop_nightly",
                "time_zone",
                "budget",
                "lab",
                "save_work",
                "cluster",
                "work_copies",
                "market",
            },
        )
        return {
            "classroom_file": str(file),
            "classroom_out": str(loaded.out),
            "classroom_keys": keys,
            "classroom_staff_key": loaded.staff_public_key,
            "classroom": {
                **settings,
                "teardown": str(loaded.teardown),
                "region": loaded.regions[0],
                "profiler": loaded.profiler_kind,
                "sdk_tools": sdk.tools_of(loaded.sdk),
                "devices": loaded.machine.devices,
                "cores_per_device": loaded.machine.cores_per_device,
                "awake_processes": firstboot.awake_processes(loaded),
            },
        }

    @staticmethod
    def _regions(loaded: Any) -> list[str]:
        """Return the class's regions, and those in which it was seen: one that was taken out of
        class.yml may still hold machines."""
        try:
            ledger = json.loads((loaded.out / "ledger.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            ledger = {}
        return sorted({*loaded.regions, *(entry["region"] for entry in ledger.values())})

    def _addresses(self, inventory: Any, loader: Any, loaded: Any, keys: dict[str, str]) -> None:
        """Let amazon.aws.aws_ec2 find the machines: it knows paging, retries and credentials."""
        from classroom.aws import organisations
        from classroom.fleet import hostkeys
        from classroom.spec import assistants, clusters

        config = loaded.out / "aws_ec2.yml"
        config.parent.mkdir(parents=True, exist_ok=True)
        import yaml

        config.write_text(
            yaml.safe_dump(
                {
                    "plugin": "amazon.aws.aws_ec2",
                    "regions": self._regions(loaded),
                    "hostnames": ["tag:trainium-labs:machine"],
                    "filters": {
                        "tag:trainium-labs:class": loaded.name,
                        "instance-state-name": ["running", "stopped", "pending", "stopping"],
                    },
                    "compose": {
                        "ansible_host": "instance_id"
                        if loaded.private
                        else "public_ip_address | default('')",
                        "ansible_user": "'ubuntu'",
                    },
                }
            ),
            encoding="utf-8",
        )
        plugin = inventory_loader.get("amazon.aws.aws_ec2")
        before = set(inventory.hosts)
        try:
            plugin.parse(inventory, loader, str(config), cache=False)
        except (AnsibleError, ImportError) as error:
            # Going on would configure no machine and say that all is well.
            raise AnsibleError(
                f"The machines of {loaded.name} could not be listed:"
                f" {str(error).splitlines()[0]} Run this again, or `python -m classroom doctor`."
            ) from error
        nodes: list[dict[str, str]] = []
        for name in sorted(inventory.hosts):
            host = inventory.hosts[name]
            tags = host.vars.get("tags") or {}
            if "trainium-labs:machine" not in tags or (name in before and name == PLACEHOLDER):
                continue
            inventory.add_host(name, group="students")
            state = (host.vars.get("state") or {}).get("name")
            region = (host.vars.get("placement") or {}).get("region", "")
            proxy = organisations.proxy(tags.get("trainium-labs:reach", ""), region)
            if state == "running" and (proxy or host.vars.get("public_ip_address")):
                inventory.add_host(name, group="machines")
            elif state == "stopped":
                inventory.add_host(name, group="stopped")
            inventory.set_variable(name, "classroom_copies", tags.get("trainium-labs:copies", ""))
            seats = [
                {"student": v, "core": int(k[-2:]), "user": v}
                for k, v in sorted(tags.items())
                if k.startswith("trainium-labs:core-")
            ]
            for seat in seats:
                inventory.add_group(seat["student"])
                inventory.add_host(name, group=seat["student"])
            if loaded.cluster:  # everybody works everywhere, under one number
                seats = [
                    {"student": s.id, "user": s.id, "core": -1, "uid": clusters.uid(s.id)}
                    for s in loaded.students
                ]
                nodes.append({"name": name, "address": host.vars.get("private_ip_address", "")})
                inventory.set_variable(name, "classroom_head", name == clusters.HEAD)
            seats = seats or [
                {"student": tags.get("trainium-labs:owner", name), "core": -1, "user": "ubuntu"}
            ]
            inventory.set_variable(name, "classroom_seats", seats)
            # keys that open the account ubuntu already
            have = [loaded.staff_public_key]
            have += [keys.get(s["student"], "") for s in seats if s["user"] == "ubuntu"]
            names = [s["student"] for s in seats]
            inventory.set_variable(
                name, "classroom_assistants", assistants.of_machine(loaded, names, have)
            )
            known = hostkeys.options(loaded.out, host.vars.get("instance_id", name), proxy)
            words = " ".join(f"-o {shlex.quote(f'{k}={v}')}" for k, v in known.items())
            inventory.set_variable(name, "ansible_ssh_common_args", words)
            inventory.set_variable(name, "tags", None)  # the name is reserved in Ansible
        for group in ("students", "machines"):
            inventory.set_variable(group, "classroom_nodes", nodes)
