"""A Slurm of one node, this one: munge, controller and node daemon, in a folder of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
#: why there is none here, "" if there can be one
WHY = next((f"{d} is not installed" for d in DAEMONS if not shutil.which(d, path=PATH)), "")
if not WHY and os.geteuid() != 0:
    WHY = "its daemons want root"

CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmdParameters=config_overrides
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=65536
PartitionName=grading Nodes=ALL Default=YES MaxTime=60 State=UP
"""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Run Slurm with a partition "grading"; give the environment that its commands need.

    The daemons are children of this process and end with it; nothing outside `folder` is written.
    """
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    host = socket.gethostname().split(".")[0]
    conf = folder / "slurm.conf"
    conf.write_text(
        CONF.format(host=host, folder=folder, ports=_free_ports(2), cpus=os.cpu_count())
    )
    env = {**os.environ, "SLURM_CONF": str(conf), "PATH": PATH}
    running: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> None:
        with open(folder / f"{command[0]}.log", "wb") as log:
            running.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))

    try:
        # --force: the folder's parents belong to the test's user and may be a group's
        start(
            "munged",
            "--foreground",
            "--force",
            f"--socket={folder}/munge.socket",
            f"--key-file={key}",
            f"--pid-file={folder}/munged.pid",
            f"--seed-file={folder}/munged.seed",
            f"--log-file={folder}/munged.log",
        )
        for _ in range(100):
            if (folder / "munge.socket").exists():
                break
            time.sleep(0.1)
        start("slurmctld", "-D")
        start("slurmd", "-D", "-N", host)
        for _ in range(300):
            done = subprocess.run(
                ["sinfo", "-h", "-o", "%T"], env=env, text=True, capture_output=True
            )
            if done.stdout.strip() == "idle":
                break
            time.sleep(0.1)
        else:
            said = "".join((folder / f"{d}.log").read_text()[-1000:] for d in DAEMONS)
            raise RuntimeError(f"Slurm does not start: {done.stdout}{done.stderr}\n{said}")
        yield env
    finally:
        for process in reversed(running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
