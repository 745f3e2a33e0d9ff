"""Find AWS's programs and call them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..spec import SpecError

TOOLS = Path("/opt/aws/neuron/bin")  # where the package aws-neuronx-tools puts them
LIMIT_S = 600.0


class NeuronError(SpecError):
    """A Neuron program is absent or has failed; the text is a sentence with a remedy."""


def find(name: str) -> str | None:
    """Return the path of a Neuron program, None if it is not here."""
    return shutil.which(name) or shutil.which(name, path=str(TOOLS))


def call(*words: str, limit_s: float = LIMIT_S, cwd: Path | None = None) -> str:
    """Run a Neuron program and return what it printed; raise NeuronError if it fails."""
    path = find(words[0])
    if path is None:
        raise NeuronError(
            f"{words[0]} is not on this machine: it is part of the package "
            f"aws-neuronx-tools, which puts it into {TOOLS}"
        )
    try:
        done = subprocess.run(
            [path, *words[1:]],
            capture_output=True,
            text=True,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
            cwd=cwd,
        )
    except subprocess.TimeoutExpired:
        raise NeuronError(
            f"{words[0]} {words[1] if len(words) > 1 else ''} did not end within {limit_s:.0f} s"
        ) from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
        raise NeuronError(f"{words[0]} failed ({done.returncode}); it said: {lines[-1][:300]}")
    return done.stdout


@dataclass(frozen=True)
class Profiler:
    """The profiler of a machine: neuron-explorer where it is there, else neuron-profile."""

    name: str

    @property
    def ports(self) -> tuple[int, ...]:
        """Return what its page needs: page and InfluxDB, or page and API (documented)."""
        return (3001, 8086) if self.name == "neuron-profile" else (3001, 3002)

    def tunnel(self, host: str) -> str:
        """Return the command that makes the page visible at home."""
        return "ssh " + " ".join(f"-L {p}:localhost:{p}" for p in self.ports) + f" {host}"


def profiler() -> Profiler:
    """Return the installed profiler; raise NeuronError if there is none."""
    name = next((n for n in ("neuron-explorer", "neuron-profile") if find(n)), None)
    if name is None:
        raise NeuronError(
            "there is neither neuron-explorer nor neuron-profile here: install the "
            "package aws-neuronx-tools, or use a Neuron machine image"
        )
    return Profiler(name)


def devices() -> list[dict[str, Any]]:
    """Return the Neuron devices as neuron-ls lists them; raise NeuronError if it cannot.

    Up to SDK 2.33 it prints a list with --json-output; from 2.34 on, --output-format json prints an
    object with more in it, among which is a list of devices (announced; not seen).
    """
    try:
        text = call("neuron-ls", "--json-output", limit_s=30)
    except NeuronError as error:
        if "failed" not in str(error):
            raise
        text = call("neuron-ls", "--output-format", "json", limit_s=30)
    try:
        listed = json.loads(text)
    except ValueError:
        raise NeuronError(
            "neuron-ls does not answer in JSON; is the driver loaded (lsmod | grep neuron)?"
        ) from None
    if isinstance(listed, dict):
        lists = [v for v in listed.values() if isinstance(v, list)]
        listed = max(lists, key=len, default=[])
    return [one for one in listed if isinstance(one, dict)]


def core() -> str:
    """Return the NeuronCore that this user's programs use, as AWS's runtime takes it."""
    return os.environ.get("NEURON_RT_VISIBLE_CORES", "")
