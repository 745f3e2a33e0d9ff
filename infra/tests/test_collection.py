"""The folder is a collection, too: built and installed without a network, its playbooks, roles and
plugins are found by their full names. What it depends on is pinned."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from conftest import INFRA, ClassFolder
from labcloud.client import LabCloud
from role_tables import NAMES
from test_roles import environ

NAME = "trainium_labs.infra"


def run(words: list[str], env: dict[str, str], cwd: Path) -> str:
    """Run a command that must succeed; return what it printed."""
    done = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the collection from a copy as git has it, install it; return the collections' path."""
    tmp = tmp_path_factory.mktemp("collection")
    source, place = tmp / "infra", tmp / "collections"
    unwanted = shutil.ignore_patterns("__pycache__", "*_cache", ".hypothesis", "out")
    shutil.copytree(INFRA, source, ignore=unwanted)
    galaxy, env = ["ansible-galaxy", "collection"], environ(tmp)
    run([*galaxy, "build", str(source), "--output-path", str(tmp)], env, tmp)
    (built,) = tmp.glob("*.tar.gz")
    options = ["--offline", "--no-deps", "--collections-path", str(place)]
    run([*galaxy, "install", str(built), *options], env, tmp)
    return place


def test_it_holds_what_a_user_needs_and_no_tests(installed: Path) -> None:
    root = installed / "ansible_collections/trainium_labs/infra"
    assert {p.name for p in (root / "roles").iterdir()} == set(NAMES)
    assert (root / "classroom/money/prices.yml").exists() and (root / "examples/class.yml").exists()
    for name in ("tests", ".ansible-lint", "classroom/__pycache__"):
        assert not (root / name).exists(), name
    for kind, plugin in (("action", "trainium_class"), ("inventory", "classroom")):
        assert (root / f"plugins/{kind}/{plugin}.py").exists()


def test_its_roles_and_modules_document_themselves(installed: Path, tmp_path: Path) -> None:
    env = environ(tmp_path, ANSIBLE_COLLECTIONS_PATH=str(installed))
    roles = [f"{NAME}.{role}" for role in NAMES]
    shown = json.loads(run(["ansible-doc", "-t", "role", "--json", *roles], env, tmp_path))
    assert set(shown) == set(roles)
    module = run(["ansible-doc", f"{NAME}.trainium_class"], env, tmp_path)
    assert "discard_work" in module and "EXAMPLES" in module


@pytest.mark.full
def test_its_playbooks_run_by_name_from_anywhere(
    installed: Path, folder: ClassFolder, cloud: LabCloud, tmp_path: Path
) -> None:
    folder.write(["alice"])
    (tmp_path / "my.classroom.yml").write_text(f"plugin: {NAME}.classroom\n")
    env = environ(
        tmp_path,
        ANSIBLE_COLLECTIONS_PATH=str(installed),
        CLASSROOM_NOW=cloud.post("now")["now"],
        **cloud.environ,
    )
    env.pop("ANSIBLE_CONFIG", None)
    play = ["ansible-playbook", "-i", "my.classroom.yml", "-e", f"class={folder.file}"]
    out = run([*play, f"{NAME}.provision", "-e", "yes=true"], env, tmp_path)
    assert "1 machines, 1 new" in out and len(cloud.running()) == 1
    out = run([*play, f"{NAME}.stop"], env, tmp_path)
    assert "1 of 1 machines are stopped" in out
    out = run([*play, f"{NAME}.configure"], env, tmp_path)
    assert "idle_guard" not in out, "no one runs; the roles were found all the same"


def test_what_is_installed_here_is_what_is_pinned() -> None:
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", (INFRA / "requirements.txt").read_text(), re.M))
    assert set(pinned) == {"ansible", "ansible-core"}
    for name, version in pinned.items():
        assert importlib.metadata.version(name) == version, f"the tests ran with another {name}"


def test_the_collections_that_ansible_brings_are_the_ones_named() -> None:
    import ansible_collections

    (place,) = ansible_collections.__path__
    named = yaml.safe_load((INFRA / "requirements.yml").read_text())["collections"]
    for collection in named:
        manifest = Path(place, *collection["name"].split("."), "MANIFEST.json")
        found = json.loads(manifest.read_text())["collection_info"]["version"]
        assert found == collection["version"], collection["name"]
    depends = yaml.safe_load((INFRA / "galaxy.yml").read_text())["dependencies"]
    assert set(depends) == {c["name"] for c in named}
    used = set()
    for file in [*INFRA.glob("roles/*/tasks/*.yml"), *INFRA.glob("playbooks/**/*.yml")]:
        used |= set(re.findall(r"\b(\w+\.\w+)\.\w+(?::| \|)", file.read_text()))
    assert (used & set(depends)) | {"community.general"} == set(depends)
