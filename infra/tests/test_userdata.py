"""The user data of machines is what cloud-init reads: its own schema says so."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
from pathlib import Path

import pytest

from classroom.machines import firstboot
from classroom.spec import class_file as specs
from conftest import START, ClassFolder

pytestmark = pytest.mark.skipif(
    not shutil.which("cloud-init"),
    reason="cloud-init is not installed (Debian's and Ubuntu's package cloud-init)",
)


def schema(text: str, folder: Path) -> tuple[int, str]:
    """Return exit code and words of `cloud-init schema`."""
    path = folder / "user-data"
    path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["cloud-init", "schema", "--config-file", str(path)], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def script(folder: ClassFolder) -> str:
    """Return the user data of the class's machines."""
    return firstboot.script(specs.load(folder.file, dt.datetime.fromisoformat(START + "+00:00")))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stop_nightly": "00:05", "time_zone": "Asia/Kolkata"},
        {"mode": "shared", "instance_type": "trn1.32xlarge", "idle": {"minutes": 60}},
    ],
    ids=["usual", "midnight", "shared"],
)
def test_cloud_init_takes_the_user_data(folder: ClassFolder, changes: dict[str, object]) -> None:
    folder.write(**changes)
    code, words = schema(script(folder), folder.path)
    assert code == 0 and "Valid" in words, words
    assert "deprecated" not in words.lower(), words


def test_cloud_init_refuses_what_it_would_pass_over(folder: ClassFolder) -> None:
    """The same user data with mistakes that a reader may miss."""
    good = script(folder)
    for right, wrong in (("  - path: ", "  - paths: "), ("runcmd:\n  - ", "runcmd:\n  a: ")):
        assert right in good
        code, words = schema(good.replace(right, wrong, 1), folder.path)
        assert code == 1, words
