"""The roles say what they take: defaults, argument specs, READMEs and playbooks agree, and a wrong
argument is refused before anything is changed."""

from __future__ import annotations

import json
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
from role_tables import NAMES, ROLES, spec

ROOT = INFRA.parent


def read(path: Path) -> Any:
    """Return a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def environ(tmp: Path, **more: str) -> dict[str, str]:
    """Return the environment of an Ansible command in a test."""
    return {
        **os.environ,
        "ANSIBLE_LOCAL_TEMP": str(tmp / "ansible"),
        **more,
    }


@pytest.mark.parametrize("role", NAMES)
def test_defaults_and_argument_specs_agree(role: str) -> None:
    options = spec(role)["options"]
    required = {name for name, option in options.items() if option.get("required")}
    assert read(ROLES / role / "defaults/main.yml") == {
        name: option["default"] for name, option in options.items() if name not in required
    }
    for name, option in options.items():
        assert name.startswith(f"{role}_") and option["description"].endswith("."), name
        assert ("elements" in option) == (option["type"] == "list"), name
    assert (
        spec(role)["short_description"]
        == read(ROLES / role / "meta/main.yml")["galaxy_info"]["description"]
    )


@pytest.mark.parametrize("role", NAMES)
def test_a_role_uses_no_variable_that_its_argument_specs_do_not_name(role: str) -> None:
    texts = [
        p.read_text(encoding="utf-8")
        for part in ("tasks", "handlers", "templates")
        for p in sorted((ROLES / role / part).glob("*"))
    ]
    text = "\n".join(texts)
    used = set(re.findall(rf"\b{role}_\w+", text))
    # made in the role: `name:` under vars and set_fact, register and loop_var
    made = set(re.findall(rf"(?:^\s*|register: |loop_var: )({role}_\w+)(?::|$)", text, re.M))
    facts = {"neuron_venv_path"}  # which another role makes
    assert used - made - facts <= set(spec(role)["options"]), used - made - facts
    assert set(spec(role)["options"]) <= used, "an option that nothing reads"


@pytest.mark.parametrize("role", NAMES)
def test_the_readme_shows_the_variables_an_example_and_the_platforms(role: str) -> None:
    text = role_tables.readme(role).read_text(encoding="utf-8")
    (found,) = role_tables.PLACE.findall(text)
    assert found == role_tables.table(role), "run python infra/tests/role_tables.py"
    (play,) = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    example = dict(play["roles"][0])
    assert example.pop("role") == role and set(example) <= set(spec(role)["options"])
    for platform in read(ROLES / role / "meta/main.yml")["galaxy_info"]["platforms"]:
        assert platform["name"] in text and all(v in text for v in platform["versions"])


def uses() -> list[tuple[str, dict[str, Any]]]:
    """Return every use of a role in our playbooks: its name and its arguments."""
    plays = [p for f in sorted((INFRA / "playbooks").glob("*.yml")) for p in read(f)]
    return [(dict(r).pop("role"), dict(r)) for p in plays for r in p.get("roles", [])]


def test_the_playbooks_give_roles_only_what_they_take_and_all_that_they_need() -> None:
    assert {role for role, _ in uses()} == set(NAMES)
    for role, given in uses():
        options = spec(role)["options"]
        assert set(given) - {"role", "when", "vars", "tags"} <= set(options), role
        assert {n for n, o in options.items() if o.get("required")} <= set(given), role


def test_what_can_fail_late_takes_neither_the_guard_nor_the_accounts_away() -> None:
    """Each play goes on with the hosts that the plays before it did not lose."""
    *configuring, last = read(INFRA / "playbooks/configure.yml")
    assert last["hosts"] == "stopped" and "roles" not in last, "it only says what was left out"
    plays = [[r["role"] for r in p["roles"]] for p in configuring]
    assert plays[0] == ["idle_guard"] and plays[2][0] == "student_account"
    assert plays[1] == ["cluster_home"], "homes are made where everybody sees them"
    assert plays[-1] == ["influxdb"], "what is downloaded comes last"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "cluster_home": ({"cluster_home_here": "perhaps"}, "cluster_home_here"),
    "idle_guard": ({"idle_guard_minutes": "soon"}, "idle_guard_minutes"),
    "influxdb": ({"influxdb_users": {"alice": 1}}, "influxdb_users"),
    "lab_workspace": ({"lab_workspace_repository": "x"}, "arguments: lab_workspace_commit"),
    "motd": ({"motd_lines": {"a": 1}}, "motd_lines"),
    "neuron_venv": ({"neuron_venv_check_driver": "perhaps"}, "neuron_venv_check_driver"),
    "slurm_base": ({"slurm_base_nodes": [{"name": "node-01"}]}, "required arguments: address"),
    "slurm_controller": ({"slurm_controller_core_hours": "many"}, "slurm_controller_core_hours"),
    "slurm_node": ({"slurm_node_devices": "all"}, "slurm_node_devices"),
    "work_copies": ({"work_copies_spot": "perhaps"}, "work_copies_spot"),
    "student_account": (
        {"student_account_seats": [{"student": "alice", "core": 0}]},
        "required arguments: user",
    ),
}
MEANT: dict[str, tuple[dict[str, Any], str]] = {  # right types, wrong meaning
    "idle_guard": ({"idle_guard_stop_nightly": 1410}, 'Write it as "23:30", in quotes'),
    "work_copies": ({"work_copies_place": "bucket"}, "not of the form s3://BUCKET/PREFIX"),
    "influxdb": ({"influxdb_bind": "0.0.0.0:8086"}, "not an address and port of this machine"),
    "lab_workspace": (
        {"lab_workspace_repository": "x", "lab_workspace_commit": "main"},
        "not a full commit id",
    ),
    "slurm_base": (
        {"slurm_base_nodes": [{"name": "node-02", "address": "10.0.0.5"}]},
        "is not among the nodes",
    ),
}


def test_a_wrong_argument_is_refused_with_a_sentence_before_anything_changes(
    tmp_path: Path,
) -> None:
    """Every case in one run: each role is rescued, and what it said is kept."""
    assert set(WRONG) == set(NAMES)
    cases = [*WRONG.items(), *MEANT.items()]
    answers = tmp_path / "answers.json"
    new = "{'msg': ansible_failed_result.msg, 'task': ansible_failed_task.name}"
    tasks: list[dict[str, Any]] = [
        {
            "block": [{"ansible.builtin.include_role": {"name": role}, "vars": arguments}],
            "rescue": [{"ansible.builtin.set_fact": {"said": f"{{{{ said + [{new}] }}}}"}}],
        }
        for role, (arguments, _) in cases
    ]
    kept = {"content": "{{ said | to_json }}", "dest": str(answers), "mode": "0600"}
    tasks.append({"ansible.builtin.copy": kept, "check_mode": False})
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable, "said": []},
        "tasks": tasks,
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", "-c", "local", "--check", tmp_path / "play.yml"],
        env=environ(tmp_path, ANSIBLE_ROLES_PATH=str(ROLES)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answers.exists(), done.stdout + done.stderr
    said = json.loads(answers.read_text())
    assert len(said) == len(cases), done.stdout
    for answer, (role, (_, words)) in zip(said, cases, strict=True):
        assert words in answer["msg"], (role, answer)
        assert "Validating arguments" in answer["task"] or "Refuse" in answer["task"], answer
    recap = re.search(r"localhost\s+: ok=\d+\s+changed=(\d+)", done.stdout)
    assert recap and recap[1] == "1", "nothing but the answers is written"
