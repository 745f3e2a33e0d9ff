"""A Slurm cluster for tests: booted hosts with Debian's Slurm, and stand-ins for Neuron devices.

Real: systemd, SSH, PAM, accounts, munge, MariaDB, slurmdbd, slurmctld, slurmd, cgroup v2 and the
kernel's device programs. Stand-ins: the Neuron devices are virtual terminals under other names
(files of character devices that open, and that jobs do not need); the nodes share /home by a folder
that both have, in the place of NFS; each has a port of its own, because they share one network.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import cluster_grading
import hosts
from test_hosts import Setting

PACKAGES = (
    "libpam-systemd,slurmctld,slurmd,slurmdbd,slurm-client,munge,mariadb-server,libpam-slurm-adopt,"
    "bubblewrap"
)
DEVICES = 4  # stand-in devices of a node, of one NeuronCore each
TERMINALS = 40  # the first of /dev/ttyN that stands in
# Of the Neuron environment, as far as a run looks for it.
NEEDED = (
    "neuronxcc/nki/__init__.py",
    "neuronx_cc-2.21.0.dist-info/METADATA",
)
HERE = Path(__file__).resolve().parent

TRY = """
import os, sys
for number in map(int, sys.argv[1:] or range(DEVICES)):
    try:
        os.close(os.open(f"/dev/neuron{number}", os.O_RDWR | os.O_NOCTTY))
        print(number, end=" ", flush=True)
    except OSError as error:
        assert error.errno in (1, 13), error
print()
""".replace("DEVICES", str(DEVICES))


def hybrid() -> bool:
    """Say whether the kernel has hierarchies of cgroup v1 besides v2."""
    return len(Path("/proc/self/cgroup").read_text().splitlines()) > 1


def why_not() -> str:
    """Return why there can be no cluster here, or an empty string."""
    if found := hosts.why_not():
        return found
    return "needs gcc, for this kernel still has cgroup v1" if hybrid() and not _gcc() else ""


def _gcc() -> str | None:
    return shutil.which("gcc")


class Cluster(Setting):
    """Hold the image and the nodes."""

    def __init__(self, work: Path) -> None:
        homes = work / "homes"
        options = f"--capability=CAP_BPF,CAP_PERFMON --system-call-filter=bpf --bind={homes}:/home"
        super().__init__(work, hosts.Image(work, PACKAGES), options)
        shutil.copytree(self.root / "home", homes, copy_function=shutil.copy2)
        user = next(
            line.split(":")
            for line in (self.root / "etc/passwd").read_text().splitlines()
            if line.startswith("ubuntu:")
        )
        subprocess.run(["chown", "-R", f"{user[2]}:{user[3]}", homes / "ubuntu"], check=True)
        self._slurm()

    def _slurm(self) -> None:
        """Let slurmd start where the kernel still has cgroup v1, and put a program into the
        image."""
        hosts.write(self.root / "usr/local/bin/try-devices", TRY, 0o644)
        for unit in ("slurmctld", "slurmdbd", "mariadb"):  # only where the role says so
            for link in (self.root / "etc/systemd/system").glob(f"*.wants/{unit}.service"):
                link.unlink()
        venv = self.root / "opt/aws_neuronx_venv_pytorch_2_8"
        (site,) = venv.glob("lib/python3*/site-packages")
        for name in NEEDED:
            hosts.write(site / name, "# a stand-in for tests\n")
        cluster_grading.prepare(self.root)
        if hybrid():
            library = self.root / "usr/local/lib/hide-cgroup-v1.so"
            source = HERE / "hide_cgroup_v1.c"
            words = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
            subprocess.run(words, check=True)
            hosts.write(
                self.root / "etc/systemd/system/slurmd.service.d/00-test.conf",
                "[Service]\nEnvironment=LD_PRELOAD=/usr/local/lib/hide-cgroup-v1.so\n",
            )

    def boot(self, addresses: dict[str, str]) -> None:
        """Boot the nodes with cgroup v2 alone, and make the stand-in devices."""
        import os

        os.environ["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] = "1"
        try:
            super().boot(addresses)
        finally:
            del os.environ["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"]
        for name in addresses:
            self.devices(name)

    def devices(self, name: str) -> None:
        """Make the stand-in devices of a node, open as the driver's are."""
        first = TERMINALS + DEVICES * sorted(self.hosts).index(name)
        # Sandboxes mount a /proc of their own, which the kernel grants only who sees a whole one,
        # and forbid themselves more namespaces there, where systemd-nspawn lets no one write.
        self.hosts[name].ssh(
            "sudo mkdir -p /run/proc && sudo mount -t proc proc /run/proc"
            " && sudo mount --bind /run/proc/sys/user /proc/sys/user"
        )
        for number in range(DEVICES):
            self.hosts[name].ssh(f"sudo mknod -m 666 /dev/neuron{number} c 4 {first + number}")

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes as slurm_base takes them."""
        ports = {name: 6901 + k for k, name in enumerate(sorted(self.hosts))}
        return [
            {"name": name, "address": host.ip, "port": ports[name]}
            for name, host in sorted(self.hosts.items())
        ]
