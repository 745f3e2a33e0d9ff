"""One page for each student: how to get in, what it costs, when it stops."""

from __future__ import annotations

from . import cost
from .fleet import Machine
from .run import Run

TEMPLATE = """# Your machine in {name}

{status}

## Get in

Put this into `~/.ssh/config` on your computer (replace the key if yours has another name):

```
Host {alias}
    HostName {ip}
    User {user}
    IdentityFile {identity}
    LocalForward 3001 localhost:3001
    LocalForward 8086 localhost:8086
```

Then `ssh {alias}`. The forwards show the profiler in your browser at http://localhost:3001.
{address_note}{key_note}{core_note}
## Money and time

- ${hourly:.2f} for each hour that the machine runs; your budget is ${budget:.0f}, which is
  {hours:.0f} hours. You and the staff get mail at 50, 80 and 100 %.
- Stop it when you are done: `sudo poweroff` (your files stay).
- It stops by itself after {idle} idle minutes, and every night at {night} ({zone}).
- **On {end} everything is deleted, disks too.** Push your work to your own repository
  before that day.
"""


def write(run: Run, machines: list[Machine], public_keys: dict[str, str]) -> list[str]:
    """Write out/<class>/<student>.md; return the names of the files that changed."""
    spec, changed = run.spec, []
    given = {s.id for s in spec.students if s.public_key}
    spec.out.mkdir(parents=True, exist_ok=True)
    for m in machines:
        for core, student in sorted(m.seats.items()) or [
            (-1, m.tags.get("trainium-labs:owner", m.name))
        ]:
            alias = f"{spec.name}-{student}"
            text = TEMPLATE.format(
                name=spec.name,
                alias=alias,
                ip=m.ip or "(no address while it is stopped)",
                user=student if core >= 0 else "ubuntu",
                identity="~/.ssh/id_ed25519" if student in given else f"~/.ssh/{alias}",
                status=f"{m.type} in {m.zone}, {m.state}.",
                hourly=cost.hourly(spec, m.market),
                budget=spec.budget.per_student_usd,
                hours=spec.budget.per_student_usd / cost.hourly(spec, m.market),
                idle=spec.idle.minutes,
                night=spec.stop_nightly,
                zone=spec.time_zone,
                end=spec.teardown.isoformat(),
                address_note=(
                    ""
                    if spec.elastic_ip
                    else (
                        "The address changes at every start: ask the staff for a fresh page, or"
                        " read it in the EC2 console.\n"
                    )
                ),
                key_note=(
                    ""
                    if student in given
                    else (
                        f"The staff give you the private key; save it as `~/.ssh/{alias}` and run"
                        f" `chmod 600 ~/.ssh/{alias}`.\n"
                    )
                ),
                core_note=(
                    f"You share the machine; NeuronCore {core} is yours"
                    f" (`NEURON_RT_VISIBLE_CORES={core}` is set for you).\n"
                    if core >= 0
                    else ""
                ),
            )
            path = spec.out / f"{student}.md"
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                if not run.check:
                    path.write_text(text, encoding="utf-8")
                changed.append(path.name)
    return changed


__all__ = ["write"]
