"""Commands of a class's daily life: links, saved work, rosters, reports. Each takes a run
and its options and returns tables, lines, summary, exit code, as those in commands.py."""

from __future__ import annotations

import json
from typing import Any

from . import keys, links, pages, policies, provision
from .problems import ClassroomError
from .run import Run

Result = dict[str, Any]


def links_(r: Run, options: Result) -> Result:
    """End links and write pages with new ones; or only write the pages; or print the policy that
    serves students where there is no function."""
    if options.get("sign_in"):
        most = policies.student(r.spec.name)
        return {"lines": [json.dumps(most, indent=1)], "policy": most}
    if r.spec.my != "lambda":
        raise ClassroomError(
            f"Students of {r.spec.name} have no links.", "Write `my: lambda` and run provision."
        )
    existing, _plan = provision.survey(r)
    chosen = [m for m in existing if r.wants(m.name, *m.students)]
    ended = links.revoke(r, chosen) if options.get("revoke") else []
    wrote = pages.write(r, chosen, keys.ensure(r))
    return {
        "ended": ended,
        "lines": [f"{student}: the old link is ended" for student in ended],
        "summary": f"{len(wrote)} pages written to {r.spec.out}",
    }
