"""Every command with its options: the one table behind the command line, the playbooks' action and
its documentation (`python -m classroom.cli.options` prints the latter's options and the README's
table)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True)
class Option:
    """Describe one option: a flag, or text when `text` says what kind of."""

    name: str
    help: str
    text: str = ""  # placeholder on the command line; "" means a flag

    @property
    def flag(self) -> str:
        """Return how the command line spells it."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Command:
    """Describe one command; `asks` means that it wants a yes unless --yes is given, `playbook`
    which playbook runs it, if any does. Options stand behind `preview`s, too, which ignore them.
    `by_the_clock`: it is refused where this computer's clock is wrong; so is `doctor --drill`."""

    help: str
    options: tuple[Option, ...] = ()
    asks: bool = False
    playbook: str = ""
    preview: bool = False
    by_the_clock: bool = False


DISCARD = Option(
    "discard_work",
    "give up the work of these students (or of the whole class, by its name): their machines are"
    " ended without an archive",
    "NAMES",
)
CHANGES = Option(
    "confirm_changes",
    "apply an earlier end, a lower cap or other regions than the account has",
)
COMMANDS: dict[str, Command] = {
    "init": Command(
        "ask what a class needs and write class.yml",
        (Option("answers", "take the answers from this YAML file", "FILE"),),
    ),
    "roster": Command(
        "merge an export of Canvas or Gradescope into roster.csv",
        (
            Option("source", "the exported CSV file", "FILE"),
            Option("mail_domain", "of logins that are no mail addresses", "DOMAIN"),
            Option("remove_dropped", "remove who is not in the export"),
        ),
    ),
    "check": Command("read class.yml and the roster, say every mistake", preview=True),
    "forecast": Command("what the class will cost", preview=True),
    "prices": Command(
        "the price table: each figure with its source and age",
        (Option("refresh", "read AWS's public price list, write prices.yml next to class.yml"),),
    ),
    "provision": Command(
        "bring the class up",
        (
            Option("confirm_removals", "terminate the machines of many removed students"),
            CHANGES,
            DISCARD,
        ),
        asks=True,
        playbook="provision",
        by_the_clock=True,
    ),
    "start": Command(
        "start machines",
        (
            Option("over_budget", "start although the budget is used up"),
            Option("elsewhere", "where a zone is full: a new machine in another, with the work"),
        ),
        playbook="start",
        by_the_clock=True,
    ),
    "stop": Command("stop machines", playbook="stop"),
    "status": Command("machines, guards, hours and dollars by student", playbook="status"),
    "hosts": Command("how to reach the machines, for programs (with `--json`)"),
    "cost": Command("the same, with the forecast"),
    "report": Command("spend against plan by week: CSV, a page, and the staff's page"),
    "reserve": Command(
        "keep capacity for a deadline week (it bills from now on)",
        (Option("cancel", "give it up"),),
        asks=True,
    ),
    "extend": Command(
        "apply a later teardown date or another budget",
        (CHANGES,),
        playbook="extend",
        by_the_clock=True,
    ),
    "save_work": Command("fetch the students' work to out/<class>/work", playbook="save_work"),
    "restore": Command(
        "bring a student's work back from the class's bucket, next to what is there",
        (Option("as_of", "as it was at the end of this day, or at this time", "DATE"),),
    ),
    "teardown": Command(
        "fetch the work, remove everything and prove it",
        (
            Option("dry_run", "list, remove nothing"),
            Option("regions", "only these (the proof then covers only these)", "REGIONS"),
            Option("name", "name of a class whose class.yml is lost", "NAME"),
            Option("keep_copies", "leave the bucket with the copies; it empties itself later"),
            DISCARD,
        ),
        asks=True,
        playbook="teardown",
    ),
    "doctor": Command(
        "say whether the class can come up, why not, and what it will cost",
        (
            Option("policy", "print the IAM policy that these commands need"),
            Option("assistant", "with --policy: that of assistants of these sections", "SECTIONS"),
            Option("request_quota", "ask AWS for the vCPUs, disks, addresses the class needs"),
            Option("drill", "take a t3.nano through every guard for real: an hour, about a cent"),
            Option("submit_transcript", "write the drill's transcript without ids and names"),
        ),
    ),
    "keys": Command(
        "make the students' keys",
        (Option("rotate", "replace those that were generated"),),
        playbook="rotate_keys",
    ),
    "pages": Command("write the students' pages"),
    "links": Command(
        "write pages with the students' links to their own machine",
        (
            Option("revoke", "end the links so far; the pages hold new ones"),
            Option("sign_in", "print a policy for students who sign in to AWS instead"),
        ),
    ),
}
OPTIONS: dict[str, Option] = {o.name: o for c in COMMANDS.values() for o in c.options}


def refused(command: str, given: Mapping[str, Any]) -> list[str]:
    """Return the options that were given (and not left empty) to a command that has none such."""
    entry = COMMANDS[command]
    if entry.preview:
        return []
    taken = {o.name for o in entry.options}
    return sorted(name for name, value in given.items() if value and name not in taken)


def documentation() -> dict[str, Any]:
    """Return the options of the Ansible module, as its DOCUMENTATION must state them."""
    out: dict[str, Any] = {
        "command": {
            "description": "What to do.",
            "required": True,
            "type": "str",
            "choices": list(COMMANDS),
        },
        "class_file": {
            "description": "Path of class.yml or of its folder.",
            "required": True,
            "type": "str",
        },
        "students": {
            "description": "Students to limit the command to; empty means all.",
            "type": "list",
            "elements": "str",
            "default": [],
        },
    }
    for name, option in OPTIONS.items():
        takers = ", ".join(f"C({c})" for c, entry in COMMANDS.items() if option in entry.options)
        out[name] = {
            "description": f"For {takers}: {option.help}.",
            "type": "str" if option.text else "bool",
            "default": "" if option.text else False,
        }
    return out


def table() -> str:
    """Return the commands as a table for the README."""
    rows = ["| command | what | options | playbook |", "| --- | --- | --- | --- |"]
    for name, entry in COMMANDS.items():
        options = " ".join(f"`{o.flag}{' ' + o.text if o.text else ''}`" for o in entry.options)
        options += " `--yes`" if entry.asks else ""
        playbook = f"`{entry.playbook}.yml`" if entry.playbook else ""
        spelled = name.replace("_", "-")
        rows.append(f"| `{spelled}` | {entry.help} | {options.strip()} | {playbook} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(yaml.safe_dump({"options": documentation()}, sort_keys=False, width=90))
    print(table())
