"""What programs of others say of our policies, code and roles: each finding is mended, or explained
in policy_exceptions.yml. A line there that nothing finds any more is taken out."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from classroom.guards import policies
from conftest import INFRA
from other_tools import find, needs

EXCEPTIONS = yaml.safe_load((INFRA / "tests/policy_exceptions.yml").read_text(encoding="utf-8"))


def explained(tool: str) -> set[str]:
    """Return the findings of a tool that are explained."""
    for finding, why in EXCEPTIONS[tool].items():
        assert len(why.split()) > 5, f"{finding} needs a reason"
    return set(EXCEPTIONS[tool])


def output(tool: str, *words: str) -> str:
    """Run a tool; its exit code says only that it found something."""
    done = subprocess.run(
        [find(tool), *words],
        capture_output=True,
        text=True,
        cwd=INFRA,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture()
def documents(tmp_path: Path) -> dict[str, Path]:
    """Return every policy that people are given and that roles hold, as files."""
    words = {"class": "lab", "account": "123456789012", "sender": "course@example.edu"}
    words["boundary"] = policies.boundary_arn("*")
    out = {}
    for file in policies.FOLDER.glob("*.json"):
        out[file.stem] = tmp_path / file.name
        out[file.stem].write_text(json.dumps(policies.read(file.stem, words)))
    return out


@needs("parliament")
def test_parliament(documents: dict[str, Path]) -> None:
    """It knows each action, its resources and its condition keys."""
    python = str(Path(find("parliament")).parent / "python")
    code = (
        "import json, sys, parliament\n"
        "for path in sys.argv[1:]:\n"
        "    found = parliament.analyze_policy_string(open(path).read()).findings\n"
        "    for f in found:\n"
        "        print(path.split('/')[-1][:-5], f.issue)\n"
    )
    done = subprocess.run(
        [python, "-W", "ignore", "-c", code, *map(str, documents.values())],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == explained("parliament")


@needs("parliament")
def test_parliament_finds_an_action_that_does_not_exist(tmp_path: Path) -> None:
    document = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "ec2:StopInstance", "Resource": "*"}],
    }
    (tmp_path / "wrong.json").write_text(json.dumps(document))
    assert "Unknown action ec2:StopInstance" in output("parliament", "--directory", str(tmp_path))


@pytest.mark.full
@needs("cloudsplaining")
def test_cloudsplaining(documents: dict[str, Path]) -> None:
    """Ways to more rights, to data, and to changes without limit."""
    found = set()
    for name, path in documents.items():
        text = output("cloudsplaining", "scan-policy-file", "--input-file", str(path))
        for line in text.splitlines():
            if "Issue found" in line:
                what = line.split("Policy is capable of ")[-1].split("Issue found: ")[-1]
                found.add(f"{name} {what.replace(chr(27) + '[0m', '').strip()}")
    assert found == explained("cloudsplaining")


@needs("bandit")
def test_bandit() -> None:
    text = output("bandit", "-q", "-r", "classroom", "plugins", "-f", "json")
    results = json.loads(text)["results"]
    found = {f"{r['test_id']} {r['filename'].removeprefix('./')}" for r in results}
    assert found == explained("bandit")


@needs("checkov")
def test_checkov() -> None:
    text = output(
        "checkov",
        "-d",
        ".",
        "--framework",
        "ansible",
        "secrets",
        "--skip-path",
        "transcripts",
        "--skip-path",
        "tests",
        "--quiet",
        "--skip-download",
        "-o",
        "json",
    )
    reports = json.loads(text)
    failed = [c for r in reports for c in r["results"]["failed_checks"]]
    assert {f"{c['check_id']} {c['file_path'].lstrip('/')}" for c in failed} == explained("checkov")
