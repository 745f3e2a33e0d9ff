"""class.lock.yml: what a class is bound to, so that another laptop and another day mean the same
one: the account, and the machine image of each region. And out/, which is private to its user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ..aws.problems import ClassroomError

NAME = "class.lock.yml"
HEAD = (
    "# Written by provision: the account, and the machine image of each region. Commit it; delete a"
    " line to\n# look up again.\n"
)


def read(folder: Path) -> dict[str, Any]:
    """Return what is locked; {} when nothing is."""
    try:
        locked = yaml.safe_load((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return locked if isinstance(locked, dict) else {}


def write(folder: Path, **changes: Any) -> None:
    """Lock some values; the others stay."""
    data = {**read(folder), **changes}
    part = folder / f"{NAME}.part"  # half a file would be read as none, and bind to no account
    part.write_text(HEAD + yaml.safe_dump(data, sort_keys=True), encoding="utf-8")
    part.replace(folder / NAME)


def close_folder(folder: Path) -> None:
    """Keep what is written for a class from other users of this computer and out of git: students'
    links and work, and whose they are. `class.lock.yml` is committed, so the folder is a
    repository somewhere, and perhaps not ours, whose .gitignore knows."""
    out = folder / "out"
    try:
        out.mkdir(parents=True, exist_ok=True)
        out.chmod(out.stat().st_mode & ~0o007)
    except OSError:  # another user's; writing there will report it
        return
    ignore = out / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def check_name(folder: Path, name: str) -> None:
    """Refuse to go on with a class that was renamed: what carries the old name would be orphaned,
    with its guards."""
    recorded = str(read(folder).get("name") or "")
    if recorded and recorded != name:
        raise ClassroomError(
            f"class.yml says {name}, but this class was brought up as {recorded}, and a class"
            " cannot be renamed.",
            "Write the old name again, or end it first: python -m classroom teardown --name"
            f" {recorded}",
        )


def forget_name(folder: Path, name: str) -> None:
    """Let another class use the folder, when this one has been ended."""
    if read(folder).get("name") == name:
        write(folder, name="")


def check_account(folder: Path, account: str, wanted: str = "") -> None:
    """Refuse to work in an account that is not the class's: `account:` of class.yml, else the one
    in which it was provisioned."""
    expected = wanted or str(read(folder).get("account") or "")
    if expected and expected != account:
        raise ClassroomError(
            f"These credentials belong to account {account}, but the class lives in {expected}.",
            "Choose the other profile (AWS_PROFILE). If the class has really moved, tear it down"
            " there first, then change `account` in class.yml or class.lock.yml.",
        )
