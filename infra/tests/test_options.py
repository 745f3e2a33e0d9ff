"""The command line, the playbooks' action, its documentation and the README speak of the same
commands and options: those of the one table."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from classroom.aws.problems import ClassroomError
from classroom.cli import commands, main, options
from classroom.cli.options import COMMANDS, OPTIONS
from conftest import INFRA, ClassFolder

OWN = {"command", "class_file", "students"}
PLAYBOOKS = sorted((INFRA / "playbooks").glob("*.yml"))


def test_the_module_documents_the_table() -> None:
    text = (INFRA / "plugins/modules/trainium_class.py").read_text(encoding="utf-8")
    documented = yaml.safe_load(text.split('r"""')[1].split('"""')[0])["options"]
    assert documented == options.documentation(), "python -m classroom.cli.options prints it"


def test_the_readme_shows_the_table() -> None:
    text = (INFRA / "README.md").read_text(encoding="utf-8")
    assert options.table() in text, "python -m classroom.cli.options prints it"


def test_the_command_line_takes_the_table() -> None:
    (sub,) = (a for a in main.parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert set(sub.choices) == {name.replace("_", "-") for name in COMMANDS}
    for name, known in COMMANDS.items():
        taken = {a.dest for a in sub.choices[name.replace("_", "-")]._actions}
        own = {"help", "class_file", "limit", "check", "json", "record"}
        own |= {"yes"} if known.asks else set()
        assert taken == own | {o.name for o in known.options}


def tasks(node: Any) -> list[dict[str, Any]]:
    """Return every task of a playbook that runs a command."""
    if isinstance(node, list):
        return [t for n in node for t in tasks(n)]
    if not isinstance(node, dict):
        return []
    here = [node] if "classroom_command" in node.get("vars", {}) else []
    return here + [t for key in ("tasks", "block") for t in tasks(node.get(key, []))]


@pytest.mark.parametrize("path", PLAYBOOKS, ids=[p.stem for p in PLAYBOOKS])
def test_each_playbook_runs_the_command_that_names_it(path: Path) -> None:
    found = tasks(yaml.safe_load(path.read_text(encoding="utf-8")))
    run = {t["vars"]["classroom_command"] for t in found}
    named = {name for name, known in COMMANDS.items() if known.playbook == path.stem}
    assert {r for r in run if not COMMANDS[r].preview} == named


def test_the_playbooks_pass_every_option_that_one_of_their_commands_has() -> None:
    (task,) = yaml.safe_load((INFRA / "playbooks/tasks/command.yml").read_text(encoding="utf-8"))
    wanted = {o.name for known in COMMANDS.values() if known.playbook for o in known.options}
    assert set(task["trainium_class"]) - OWN == wanted
    action = (INFRA / "plugins/action/trainium_class.py").read_text(encoding="utf-8")
    assert not [n for n in OPTIONS if re.search(rf"\b{n}\b", action)], "it knows none by name"


def test_every_command_of_the_table_is_there(folder: ClassFolder) -> None:
    assert set(commands._COMMANDS) | {"check", "teardown", "init", "roster"} == set(COMMANDS)


def test_an_option_of_another_command_is_refused_before_anything_is_done(
    folder: ClassFolder,
) -> None:
    for name in ("provision", "start", "save_work"):
        with pytest.raises(ClassroomError, match=f"{name} has no option dry_run"):
            commands.run(name, str(folder.file), dry_run=True)
    with pytest.raises(ClassroomError, match="teardown has no option over_budget, rotate"):
        commands.run("teardown", str(folder.file), over_budget=True, rotate=True, name="")
    assert options.refused("forecast", {"dry_run": True}) == [], "previews pass them over"
    assert options.refused("start", {"dry_run": False, "name": ""}) == []
    with pytest.raises(ClassroomError, match="no command 'provisoin'. Use init, "):
        commands.run("provisoin", str(folder.file))
