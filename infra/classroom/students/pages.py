"""One page for each student: how to get in, what it costs, when it stops."""

from __future__ import annotations

from pathlib import Path

from ..fleet import hostkeys
from ..fleet.inventory import Machine
from ..money import prices
from ..spec import assistants, clusters, tags
from ..spec.class_file import ClassSpec
from ..spec.run import Run
from . import links

MAIL_SHARED = "All who share the machine and the staff get mail at 50, 80 and 100 % of its budget."
STOP_SHARED = "It is shared and stops when it idles; only the staff can stop it by hand."

TEMPLATE = """# Your machine in {name}

{status}

## Get in

Put this into `~/.ssh/config` on your computer (replace the key if yours has another name):

```
Host {names}
    HostName {ip}
    User {user}
    IdentityFile {identity}
    HostKeyAlias {id}
{proxy}{forwards}
```

Then `ssh {alias}`. {profiler_note}
{host_note}{address_note}{key_note}{core_note}
## Money and time

- ${hourly:.2f} for each hour that the machine runs; your budget is ${budget:.0f}, which is
  {hours:.0f} hours. {mail_note}
- {stop_note}
- It stops by itself after {idle} idle minutes, and every night at {night} ({zone}).
- **On {end} everything is deleted, disks too.** Push your work to your own repository
  before that day.
"""


OWN = """
## Start and stop it yourself

Open your link, on a phone too: <{link}>

It starts and stops this machine, shows what you have used, and asks the staff for more. It is
yours alone: who has it can do the same. If it got out, ask the staff for another.

The page also has `my.py` for your terminal (Python 3.8 or newer; nothing to install):

```
python3 my.py start        # or: stop, status, cost, extend
python3 my.py ssh          # starts the machine if need be, and logs in
python3 my.py setup        # once: then `ssh {alias}`, scp and editors find it at any address
```

`setup` also pins the machine's key, as the machine itself printed it when it was made.
"""
STAFF = """# Machines of {name} for {who}. Copy this folder to ~/.ssh/{name}, and write
# `Include {name}/config` as the first line of ~/.ssh/config.
# Addresses change when machines stop, unless they are kept.
"""
HOST = """Host {names}
    HostName {ip}
    User ubuntu
    HostKeyAlias {id}
    UserKnownHostsFile ~/.ssh/{name}/known_hosts
    StrictHostKeyChecking accept-new
{proxy}"""
PROXY = "    ProxyCommand {command}\n"
PRIVATE = """
The machine has no address on the internet: `ssh` reaches it through AWS, by the line `ProxyCommand`
above. It takes AWS's command line (`aws`{plugin}) and that you are signed in (`aws sso login`, or
what your staff say).
"""
PLUGIN = ", with its Session Manager plugin"
PORT = 3001  # of neuron-profile (--port) and neuron-explorer (documented)


def port(core: int) -> int:
    """Return the port of a student's profiler page: on a shared machine each has another."""
    return PORT + max(0, core)


def _profiler(spec: ClassSpec, core: int) -> tuple[list[int], str]:
    """Return the ports to forward and what to say of them."""
    ui_port = port(core)
    at = f"shows the profiler in your browser at http://localhost:{ui_port}."
    if spec.profiler_kind == "neuron-profile":
        if core < 0:
            return [ui_port, 8086], f"`neuron-profile view` {at}"
        say = f"`neuron-profile view --port {ui_port}` {at} Others on the machine have other ports"
        return [ui_port, 8086], say + ", but all share one database and see each other's profiles."
    say = f"`neuron-explorer view` shows the profiler in your browser at http://localhost:{PORT}."
    if core >= 0:
        say += " The machine has these ports once: agree with who shares it."
    return [PORT, PORT + 1], say


def _shared(spec: ClassSpec, core: int, others: dict[int, str]) -> str:
    """Return what a student of a shared machine must know."""
    size = spec.machine.cores_per_device
    near = [s for k, s in sorted(others.items()) if k // size == core // size]
    with_whom = f" with {', '.join(s for _, s in sorted(others.items()))}" if others else ""
    text = (
        f"You share the machine{with_whom}; NeuronCore {core} is yours"
        f" (`NEURON_RT_VISIBLE_CORES={core}` is set for you). You have no `sudo`."
        f" It is one of {size} cores of the device `/dev/neuron{core // size}`, which only its"
        " students can open."
    )
    if near:
        text += (
            f" Between you and {', '.join(near)}, who have the other cores of that device, there"
            " is an agreement, not a wall: who sets another core takes it, and can read what is in"
            " the device's memory."
        )
    return text + "\n"


def _note(spec: ClassSpec, m: Machine, core: int, student: str) -> str:
    if m.clustered:
        return _cluster(spec)
    return _shared(spec, core, {k: s for k, s in m.seats.items() if s != student})


def _cluster(spec: ClassSpec) -> str:
    """Return what a student of a cluster must know."""
    assert spec.cluster is not None
    each, c = spec.machine.cores_per_device, spec.cluster
    return f"""
## Run something

This machine is where you log in; what computes goes into the queue of the class's {c.nodes} nodes.
A device is a chip of {each} NeuronCores, and it is the least that a job can have. No one else opens
yours, and you cannot open theirs. Without `--gpus` a job has CPUs only. (Slurm closes devices for
kinds that it knows, so to it a Neuron device is a `gpu`.)

- now, here: `srun -p interactive --gpus=1 --pty bash` (up to {c.interactive_minutes} minutes)
- later, by itself: `sbatch --gpus=1 job.sh` (up to {c.batch_minutes} minutes); then `squeue --me`
- from your own computer: `nox -s benchmark -- vecadd --host cluster`
- `cluster-hours` shows what you have used of your {c.core_hours_per_student:g} core-hours.

You have {c.devices_per_student} device(s) at a time at most; who has used less goes first. A job of
`sbatch` whose node stops starts again from its beginning, so let long ones write files as they go.
"""


def _host_note(keys: list[str]) -> str:
    """Return how to know the machine by its key."""
    if not keys:
        return "At the first login `ssh` shows the machine's key and asks: say yes once.\n"
    named = " or ".join(keys)
    return f"At the first login `ssh` asks about the machine's key. It must be {named}.\n"


def write(run: Run, machines: list[Machine], public_keys: dict[str, str]) -> list[str]:
    """Write out/<class>/<student>.md; return the names of the files that changed."""
    spec, changed = run.spec, []
    signer = links.signer(run) if machines else None
    spec.out.mkdir(parents=True, exist_ok=True)
    for m in machines:
        seats = sorted(m.seats.items()) or [(-1, m.tags.get("trainium-labs:owner", m.name))]
        if m.clustered:  # all students log in to the first node
            seats = [(-1, s.id) for s in spec.students if m.name == clusters.HEAD]
        for core, student in seats:
            text = _page(run, m, core, student) + _personal_link(run, signer, m, student)
            path = spec.out / f"{student}.md"
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                if not run.check:
                    path.write_text(text, encoding="utf-8")
                changed.append(path.name)
    return changed


def write_staff(run: Run, machines: list[Machine]) -> list[str]:
    """Write out/<class>/staff/<assistant>/, SSH settings and host keys of the machines that an
    assistant gets into; `machines` are all of the class. Return the names of the files that
    changed; files without an owner are removed."""
    spec, changed = run.spec, []
    top = spec.out / "staff"
    wanted: dict[Path, str] = {}
    for a in spec.assistants:
        reachable = [m for m in machines if m.id and assistants.gets_into(spec, a, m.students)]
        if not a.public_key or not reachable:
            continue
        blocks = [STAFF.format(name=spec.name, who=a.id)]
        for m in sorted(reachable, key=lambda m: m.name):
            names = f"{spec.name}-{m.name}" + (" cluster" if m.name == clusters.HEAD else "")
            ip = m.ip or "address-unknown-while-it-is-stopped"
            proxy = PROXY.format(command=m.proxy) if m.proxy else ""
            blocks.append(HOST.format(names=names, ip=ip, id=m.id, name=spec.name, proxy=proxy))
        wanted[top / a.id / "config"] = "\n".join(blocks)
        wanted[top / a.id / "known_hosts"] = hostkeys.lines(spec.out, [m.id for m in reachable])
    for path in sorted(set(top.glob("*/*")) - set(wanted)):
        if not run.check:
            path.unlink()
        changed.append(f"staff/{path.parent.name}/{path.name}")
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            if not run.check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            changed.append(f"staff/{path.parent.name}/{path.name}")
    return changed


def _personal_link(run: Run, signer: links.LinkSigner | None, m: Machine, student: str) -> str:
    """Return what a page says of the student's own link."""
    if signer is None or m.clustered:  # no single student stops a shared machine
        return ""
    return OWN.format(
        link=signer.link(m, student, links.expiry(run.spec)), alias=f"{run.spec.name}-{student}"
    )


def _mail_note(spec: ClassSpec, alone: bool) -> str:
    if not spec.budget.in_aws:
        return "At the end of it `start` refuses."
    return "You and the staff get mail at 50, 80 and 100 %." if alone else MAIL_SHARED


def _private(m: Machine) -> str:
    """Return how a machine without a public address is reached."""
    through = m.tags.get(tags.REACH) == "session-manager"
    return PRIVATE.format(plugin=PLUGIN if through else "")


def _page(run: Run, m: Machine, core: int, student: str) -> str:
    spec, alone = run.spec, core < 0 and not m.clustered
    alias = f"{spec.name}-{student}"
    given = any(s.id == student and s.public_key for s in spec.students)
    ports, profiler_note = _profiler(spec, core)
    changing = (
        "The address changes at every start: ask the staff for a fresh page, or read it in the EC2"
        " console.\n"
    )
    private = (
        f"The staff give you the private key; save it as `~/.ssh/{alias}` and run"
        f" `chmod 600 ~/.ssh/{alias}`.\n"
    )
    return TEMPLATE.format(
        name=spec.name,
        alias=alias,
        names=f"{alias} cluster" if m.clustered else alias,
        ip=m.ip or "(no address while it is stopped)",
        id=m.id,
        user="ubuntu" if alone else student,
        identity="~/.ssh/id_ed25519" if given else f"~/.ssh/{alias}",
        forwards="\n".join(f"    LocalForward {p} localhost:{p}" for p in ports),
        profiler_note=profiler_note,
        host_note=_host_note(hostkeys.fingerprints(spec.out, m.id)),
        status=f"{m.type} in {m.zone}, {m.state}.",
        hourly=prices.hourly(spec, m.market),
        budget=spec.cap([student]),
        hours=spec.cap([student]) / prices.hourly(spec, m.market),
        mail_note=_mail_note(spec, alone),
        proxy=PROXY.format(command=m.proxy) if m.proxy else "",
        stop_note="Stop it when you are done: `sudo poweroff` (your files stay)."
        if alone
        else STOP_SHARED,
        idle=spec.idle.minutes,
        night=spec.stop_nightly,
        zone=spec.time_zone,
        end=spec.teardown.isoformat(),
        address_note=_private(m) if m.proxy else "" if spec.elastic_ip else changing,
        key_note="" if given else private,
        core_note="" if alone else _note(spec, m, core, student),
    )


__all__ = ["write", "write_staff"]
