"""Names of hosts: the SSH configuration's, and the class's (`auto`, `all`, a student's name).

The class is known by `python -m classroom`, which needs the extra `infra` and AWS credentials. It
starts and stops machines with all their guards; nothing here touches a guard.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from .ssh import Host, RemoteError
from .tree import Tree

CLASS = "LABKIT_CLASS"


def remember(tree: Tree, host: Host) -> None:
    """Keep a host's name, so that `labkit remote list` knows where to ask."""
    hosts = {h.name: h for h in remembered(tree)}
    if hosts.get(host.name) == Host(host.name, host.options):
        return
    hosts[host.name] = host
    tree.notes.mkdir(parents=True, exist_ok=True)
    part = tree.notes / f"hosts.{os.getpid()}.part"
    part.write_text(
        json.dumps([{"name": h.name, "options": list(h.options)} for h in hosts.values()])
    )
    os.replace(part, tree.notes / "hosts.json")


def remembered(tree: Tree) -> list[Host]:
    """Return the hosts that were used from this working tree."""
    try:
        return [
            Host(h["name"], tuple(h["options"]))
            for h in json.loads((tree.notes / "hosts.json").read_text())
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def resolve(
    name: str, args: argparse.Namespace, tree: Tree, err: Console
) -> tuple[list[Host], Callable[[bool], None]]:
    """Return the hosts of a name, and what to do afterwards: stop what was started.

    The function that cleans up takes whether a run is still going on there.
    """
    if not name or name.startswith("-"):
        raise RemoteError("--host needs a name")
    room = Class(args.class_file, args.student, tree, err)
    # without a class file, `cluster` is a name of the SSH configuration, as on the student's page
    known_to_class = ("auto", "all", *(["cluster"] if room.file.is_file() else []))
    if name not in known_to_class:
        if args.keep:
            raise RemoteError("--keep is for --host auto: other hosts are never stopped")
        hosts = {h.name: h for h in remembered(tree)}
        names = [n.strip() for n in name.split(",") if n.strip()]
        return [hosts.get(n, Host(n)) for n in dict.fromkeys(names)], lambda left: None
    room.needed()
    if name == "cluster":
        return [room.login()], lambda left: None
    return room.own_machine(args.keep) if name == "auto" else (room.all(), lambda left: None)


class Class:
    """The machines of a class, by its own program."""

    def __init__(self, file: Path | None, student: str | None, tree: Tree, err: Console):
        self.file = Path(file or os.environ.get(CLASS) or "class.yml")
        self.tree, self.err = tree, err
        self.student = student or os.environ.get("LABKIT_STUDENT") or getpass.getuser()

    def needed(self) -> None:
        """Raise RemoteError if there is no class file."""
        if not self.file.is_file():
            raise RemoteError(
                f"there is no class file {self.file}: --class FILE or the variable "
                f"{CLASS} names it. To use a host of your SSH configuration, give "
                "its name to --host."
            )

    def ask(self, command: str, *more: str) -> dict[str, Any]:
        """Call `python -m classroom COMMAND`; raise RemoteError with its sentence."""
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(self.tree.root / "infra"), os.environ.get("PYTHONPATH", "")])
            ),
        }
        done = subprocess.run(
            [sys.executable, "-m", "classroom", command, str(self.file), "--json", *more],
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if "No module named" in done.stderr:
            raise RemoteError(
                'the class\'s program is not installed: run  python -m pip install -e ".[infra]"'
            )
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            last = " ".join(done.stderr.split()) or "it said nothing"
            raise RemoteError(f"classroom {command}: {last}") from None
        for problem in answer.get("problems", []):
            self.err.print(f"[yellow]{escape(str(problem))}[/]", soft_wrap=True)
        return answer

    def machines(self, *limit: str) -> list[dict[str, Any]]:
        """Return the machines as dictionaries: name, id, state, ip, students, user, usd_hour."""
        return self.ask("hosts", *limit)["machines"]

    def host(self, machine: dict[str, Any]) -> Host:
        """Return how to reach a machine of the class."""
        accounts = [s for s in machine["ssh"] if s["student"] == self.student] or machine["ssh"]
        options = [
            word
            for k, v in {
                "HostName": machine["ip"],
                "User": accounts[0]["user"],
                **machine["options"],
            }.items()
            for word in ("-o", f"{k}={v}")
        ]
        return Host(
            machine["name"], tuple(options), machine["usd_hour"], machine.get("price_note", "")
        )

    def login(self) -> Host:
        """Return the login node of the class's cluster, as this student."""
        nodes = sorted((m for m in self.machines() if m.get("cluster")), key=lambda m: m["name"])
        if not nodes:
            raise RemoteError("the class has no cluster (`mode: cluster` in its class.yml)")
        if nodes[0]["state"] != "running" or not nodes[0]["ip"]:
            raise RemoteError(
                f"the cluster's first node is {nodes[0]['state']}: the staff start "
                "it with  classroom start"
            )
        if self.student not in [s["student"] for s in nodes[0]["ssh"]]:
            raise RemoteError(
                f"{self.student} has no account on the cluster; --student NAME says "
                "who you are in the roster (staff: --student staff)"
            )
        return self.host(nodes[0])

    def all(self) -> list[Host]:
        """Return the running machines of the class."""
        up = [m for m in self.machines() if m["state"] == "running" and m["ip"]]
        if not up:
            raise RemoteError("no machine of the class is running: classroom start does it")
        return [self.host(m) for m in up]

    def own_machine(self, keep: bool) -> tuple[list[Host], Callable[[bool], None]]:
        """Return the student's own machine, started if need be, and how to stop it again.

        That we started it is noted, so that a later call stops it if this one is cut.
        """
        limit = ("--limit", self.student)
        found = self.machines(*limit)
        if len(found) != 1:
            raise RemoteError(
                f"the class has {len(found)} machines for {self.student}; --student "
                "NAME says who you are in the roster"
            )
        note = self.tree.notes / f"started-{found[0]['id']}"
        if found[0]["state"] in ("stopped", "stopping"):
            self.tree.notes.mkdir(parents=True, exist_ok=True)
            note.touch()
            self.err.print(f"[dim]starting {escape(found[0]['name'])}[/]")
            answer = self.ask("start", *limit)
            if answer.get("exit_code"):
                raise RemoteError(f"the machine was not started: {answer.get('summary')}")
            found = self.machines(*limit)
        if found[0]["state"] != "running" or not found[0]["ip"]:
            raise RemoteError(f"your machine is {found[0]['state']}; try again in a minute")

        def after(left: bool) -> None:
            if left and note.exists():
                self.err.print(
                    "Your machine is left on, as the run goes on there. The same command"
                    " stops it after the run; otherwise its guards do.",
                    soft_wrap=True,
                )
            elif keep:
                note.unlink(missing_ok=True)
            elif note.exists() and len(found[0]["students"]) == 1:
                self.err.print(f"[dim]stopping {escape(found[0]['name'])} (--keep leaves it on)[/]")
                self.ask("stop", *limit)
                note.unlink(missing_ok=True)

        return [self.host(found[0])], after
