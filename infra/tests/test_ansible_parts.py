"""Parts of the playbooks, as people who know Ansible run them: tags, and no AWS for the syntax."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import role_tables
from conftest import INFRA
from role_tables import NAMES, ROLES

PLAYBOOKS = sorted((INFRA / "playbooks").glob("*.yml"))


def test_ansible_lint_finds_nothing() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-lint", "--offline", "-c", ".ansible-lint"],
        cwd=INFRA,
        env={**os.environ, "ANSIBLE_CONFIG": str(INFRA.parent / "ansible.cfg")},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def ansible(tmp: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook with no AWS to ask."""
    environ = {
        **os.environ,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "ANSIBLE_LOCAL_TEMP": str(tmp / "ansible"),
        "ANSIBLE_ROLES_PATH": str(ROLES),
    }
    return subprocess.run(
        ["ansible-playbook", *words],
        # our ansible.cfg, at the top, knows no other inventory than the class's
        cwd=tmp if "-i" in words else INFRA.parent,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_syntax_of_every_playbook_is_checked_without_aws(tmp_path: Path) -> None:
    done = ansible(tmp_path, "--syntax-check", *map(str, PLAYBOOKS))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_roles_example_is_a_play(tmp_path: Path) -> None:
    plays: list[Any] = []
    for role in NAMES:
        text = role_tables.readme(role).read_text(encoding="utf-8")
        plays += yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    (tmp_path / "all.yml").write_text(yaml.safe_dump(plays))
    done = ansible(tmp_path, "-i", "localhost,", "--list-tasks", str(tmp_path / "all.yml"))
    assert done.returncode == 0, done.stdout + done.stderr
    for role in NAMES:
        assert f"{role} : " in done.stdout, role


@pytest.mark.sample(4)
@pytest.mark.parametrize("role", NAMES)
def test_a_tag_runs_its_role_and_no_other(tmp_path: Path, role: str) -> None:
    done = ansible(tmp_path, str(INFRA / "playbooks/configure.yml"), "--tags", role, "--list-tasks")
    assert done.returncode == 0, done.stderr
    # its arguments are validated always
    found = set(re.findall(r"^ +(\w+) : (?!Validating arguments)", done.stdout, re.M))
    assert found == {role} | ({"neuron_venv"} if role == "lab_workspace" else set())


def test_what_a_role_includes_runs_with_its_tag(tmp_path: Path) -> None:
    """Roles include tasks while they run; half a role would end green."""
    tasks = tmp_path / "roles/x/tasks"
    tasks.mkdir(parents=True)
    (tasks / "inner.yml").write_text('- {name: Inner, ansible.builtin.debug: {msg: "it ran"}}\n')
    (tasks / "main.yml").write_text("- {name: In, ansible.builtin.include_tasks: inner.yml}\n")
    play = [{"hosts": "localhost", "gather_facts": False, "roles": [{"role": "x", "tags": ["x"]}]}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    for tag in ("x", "other"):
        done = ansible(
            tmp_path, "-i", "localhost,", "-c", "local", "--tags", tag, str(tmp_path / "play.yml")
        )
        assert done.returncode == 0, done.stderr
        assert ("it ran" in done.stdout) == (tag == "x")


def test_what_a_play_includes_before_its_roles_runs_with_their_tag() -> None:
    """Tags of an include of a play are not passed on: `apply` does that."""
    plays = yaml.safe_load((INFRA / "playbooks/configure.yml").read_text(encoding="utf-8"))
    found = [(p, t) for p in plays for t in p.get("pre_tasks", [])]
    assert len(found) == 2
    for play, task in found:
        assert task["tags"][0] in [r["role"] for r in play["roles"]]
        assert task["ansible.builtin.include_tasks"]["apply"] == {"tags": ["always"]}
