"""`labkit neuron check|export|view`: on a machine with Neuron devices."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..history.results import sdk_version
from ..run.neuron_profiles import events, open_page, summary
from ..run.neuron_tools import NeuronError, core, devices, find, profiler


def _driver() -> str:
    if not Path("/dev/neuron0").exists():
        raise NeuronError(
            "there is no /dev/neuron0: this is no Trainium or Inferentia machine, or "
            "the driver is not loaded (sudo modprobe neuron)"
        )
    return "/dev/neuron0 is there"


def _devices() -> str:
    listed = devices()
    if not listed:
        raise NeuronError("neuron-ls sees no device; sudo modprobe neuron, or restart the machine")
    busy = sorted(
        {
            str(p.get("pid"))
            for d in listed
            for p in d.get("neuron_processes") or ()
            if isinstance(p, dict)
        }
    )
    cores = sum(int(d.get("nc_count") or 0) for d in listed)
    yours = f"; yours is core {core()}" if core() else ""
    return f"{len(listed)} devices, {cores} cores{yours}" + (
        f"; in use by process {', '.join(busy)}" if busy else ""
    )


def _compiler() -> str:
    version = sdk_version()
    if version is None:
        raise NeuronError(
            "neuronx-cc is not in this Python: activate the Neuron environment, "
            "source /opt/aws_neuronx_venv_.../bin/activate"
        )
    return f"neuronx-cc {version}"


def check() -> int:
    """Say what of a Neuron machine is in order, and what to do about the rest."""
    table = Table(box=None, pad_edge=False)
    for name in ("what", "", "found, or what to do"):
        table.add_column(name, overflow="fold")
    bad = 0
    checks: tuple[tuple[str, Callable[[], str]], ...] = (
        ("driver", _driver),
        ("devices", _devices),
        ("compiler", _compiler),
        ("profiler", lambda: f"{profiler().name} at {find(profiler().name)}"),
    )
    for name, look in checks:
        try:
            text, mark = look(), "[green]ok[/]"
        except NeuronError as error:
            text, mark, bad = str(error), "[red]no[/]", bad + 1
        table.add_row(name, mark, escape(text))
    Console().print(table)
    return 1 if bad else 0


def neuron_parser() -> argparse.ArgumentParser:
    """Return the parser of neuron."""
    parser = argparse.ArgumentParser(prog="labkit neuron", description=neuron.__doc__)
    parser.add_argument("what", choices=("check", "export", "view"))
    parser.add_argument(
        "profile",
        nargs="?",
        metavar="NAME",
        help="of NAME.neff and NAME.ntff (export writes NAME.measured.json)",
    )
    return parser


def neuron(argv: Sequence[str] | None = None) -> int:
    """Check a Neuron machine, or turn a NEFF and its NTFF into files for our page."""
    args = neuron_parser().parse_args(argv)
    if args.what == "check":
        return check()
    if not args.profile:
        raise NeuronError(f"{args.what} needs the name of a profile: NAME.neff, NAME.ntff")
    name = args.profile.removesuffix(".neff").removesuffix(".ntff")
    neff, ntff = Path(f"{name}.neff"), Path(f"{name}.ntff")
    for path in (neff, ntff):
        if not path.is_file():
            raise NeuronError(f"there is no {path}; nox -s profile makes it")
    console = Console(highlight=False)
    if args.what == "export":
        out = events(neff, ntff, Path(f"{name}.measured.json"))
        total = float(summary(neff, ntff)["total_time"]) * 1e6
        console.print(f"{out}: {total:,.1f} us, measured", soft_wrap=True)
        return 0
    host = os.environ.get("LABKIT_HOST_NAME") or f"{getpass.getuser()}@{socket.gethostname()}"
    *notes, command = open_page(neff, ntff, host)
    for line in notes:
        console.print(line, soft_wrap=True)
    words = command.split()
    return subprocess.run([find(words[0]) or words[0], *words[1:]]).returncode
