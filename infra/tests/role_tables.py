"""The variables' tables in the roles' READMEs, made from meta/argument_specs.yml.

`python infra/tests/role_tables.py` writes them; test_roles.py says when one is out of date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parents[1] / "roles"
NAMES = sorted(p.name for p in ROLES.iterdir() if p.is_dir())
PLACE = re.compile(r"(?<=<!-- variables -->\n).*?(?=<!-- /variables -->)", re.S)


def spec(role: str) -> dict[str, Any]:
    """Return what the role says of itself and of its arguments."""
    text = (ROLES / role / "meta/argument_specs.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["argument_specs"]["main"]


def _rows(options: dict[str, Any], prefix: str = "") -> list[str]:
    rows = []
    for name, option in options.items():
        kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
        default = "**required**" if option.get("required") else f"`{json.dumps(option['default'])}`"
        rows.append(f"| `{prefix}{name}` | {kind} | {default} | {option['description']} |")
        rows += _rows(option.get("options", {}), f"{prefix}{name}[].")
    return rows


def table(role: str) -> str:
    """Return the table of a role's variables."""
    head = ["| variable | type | default | what |", "| --- | --- | --- | --- |"]
    return "\n".join(head + _rows(spec(role)["options"])) + "\n"


def readme(role: str) -> Path:
    """Return the path of a role's README."""
    return ROLES / role / "README.md"


def main() -> None:
    """Write all tables."""
    for role in NAMES:
        path = readme(role)
        text = PLACE.sub(lambda _, role=role: table(role), path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
