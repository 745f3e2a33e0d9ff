"""Every command with its options: the one table behind the command line, the playbooks' action and
its documentation."""

from __future__ import annotations

from dataclasses import dataclass


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
    """Describe one command; `asks` means that it wants a yes unless --yes is given."""

    help: str
    options: tuple[Option, ...] = ()
    asks: bool = False


DISCARD = Option(
    "discard_work",
    "give up the work of these students (or of the whole class, by its name): their machines are"
    " ended without an archive",
    "NAMES",
)
COMMANDS: dict[str, Command] = {
    "check": Command("read class.yml and the roster, say every mistake"),
    "forecast": Command("what the class will cost"),
    "provision": Command(
        "bring the class up",
        (
            Option("confirm_removals", "terminate the machines of many removed students"),
            DISCARD,
        ),
        asks=True,
    ),
    "start": Command(
        "start machines", (Option("over_budget", "start although the budget is used up"),)
    ),
    "stop": Command("stop machines"),
    "status": Command("machines, guards, hours and dollars by student"),
    "cost": Command("the same, with the forecast"),
    "extend": Command("apply a later teardown date or another budget"),
    "save_work": Command("fetch the students' work to out/<class>/work"),
    "teardown": Command(
        "fetch the work, remove everything and prove it",
        (
            Option("dry_run", "list, remove nothing"),
            Option("regions", "only these (the proof then covers only these)", "REGIONS"),
            Option("name", "name of a class whose class.yml is lost", "NAME"),
            DISCARD,
        ),
        asks=True,
    ),
    "doctor": Command(
        "say why it does not work",
        (
            Option("policy", "print the IAM policy that these commands need"),
            Option("request_quota", "ask AWS for the vCPUs that the class needs"),
            Option("drill", "take a t3.nano through every guard for real: an hour, about a cent"),
            Option("submit_transcript", "write the drill's transcript without ids and names"),
        ),
    ),
    "keys": Command(
        "make the students' keys", (Option("rotate", "replace those that were generated"),)
    ),
    "pages": Command("write the students' pages"),
}
OPTIONS: dict[str, Option] = {o.name: o for c in COMMANDS.values() for o in c.options}
