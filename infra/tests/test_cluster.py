"""A Slurm cluster from class.yml and the roster, for real: six students, two nodes, eight stand-in
cores (see cluster.py for what stands in)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import cluster
import cluster_grading
import hosts
from cluster import DEVICES, Cluster
from conftest import INFRA, ClassFolder, to_the_real_time
from labcloud.client import LabCloud
from test_hosts import SLURM, bring_up, changed, new_key, play, run_examples, variables

ROOT = INFRA.parent
STUDENTS = ["ada", "bea", "cleo", "dora", "edda", "fred"]
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(cluster.why_not()), reason=cluster.why_not()),
]


def stand_ins(nodes: Cluster) -> dict[str, Any]:
    """Return what Slurm's roles are told of booted hosts."""
    return {
        "slurm_base_nodes": nodes.nodes,
        "slurm_base_devices": DEVICES,
        "slurm_base_cpus": 2 * DEVICES,
        "slurm_base_memory_mib": 4096,
        "slurm_node_devices": DEVICES,
        "slurm_node_cores_per_device": 1,
        "slurm_controller_cores_per_device": 1,
        # the kernel's other controllers may belong to cgroup v1 here
        "slurm_node_constrain": False,
        "slurm_node_awake_processes": 0,
    }


class Lab:
    """Hold the running cluster, the students' keys and what the playbooks need."""

    def __init__(
        self, folder: ClassFolder, nodes: Cluster, keys: dict[str, Path], cloud: LabCloud
    ) -> None:
        self.folder, self.nodes, self.keys = folder, nodes, keys
        self.cloud = cloud  # the fixture of that name begins anew for each test; the nodes stay
        self.head, self.other = (nodes.hosts[n] for n in ("node-01", "node-02"))

    def options(self) -> list[str]:
        """Return the -e options: what stands in, and a quick guard that stops no one."""
        more = {
            **stand_ins(self.nodes),
            "cluster_home_server": "",
            "neuron_venv_tools_release": "2.26",
            "idle_guard_minutes": 600,
        }
        return [*variables(self.nodes), "-e", json.dumps(more)]

    def run(self, student: str, command: str, check: bool = True, host: str = "head") -> str:
        """Run a command as a student, logged in to a node."""
        at: hosts.Host = getattr(self, host)
        return at.ssh(command, user=student, key=self.keys[student], check=check)

    def submit(
        self,
        student: str,
        script: str,
        *options: str,
        check: bool = True,
        sbatch: str = "/usr/bin/sbatch",
    ) -> str:
        """Hand a script to sbatch, Slurm's own unless told; return the job's id, or what was
        said."""
        text = f"#!/bin/bash\n{script}\n".replace("'", "'\\''")
        words = f"{sbatch} --parsable {' '.join(options)} 2>&1"
        return self.run(student, f"printf %s '{text}' | {words}", check=check)

    def until(self, what: Callable[[], bool], seconds: float = 60, jobs: str = "") -> None:
        """Wait for something; tell what became of `jobs` if it does not come."""
        end = time.monotonic() + seconds
        queries = "squeue -l; sinfo -R; sudo journalctl -u slurmctld -o cat | tail -n 40"
        if jobs:
            queries += f"; sudo sacct --duplicates --parsable2 --jobs={jobs}"
            queries += " --format=JobID,User,State,ExitCode,NodeList,Start,End"
        while not what():
            assert time.monotonic() < end, self.head.ssh(queries)
            time.sleep(0.5)

    def state(self, job: str) -> str:
        """Return a job's state, as the controller or the accounting knows it."""
        words = f"squeue --noheader --states=all --jobs={job} --format=%T 2>/dev/null"
        return self.head.ssh(words, check=False) or self.head.ssh(
            f"sudo sacct --noheader --parsable2 --allocations --jobs={job} --format=State"
        )

    def ended(self, *jobs: str, seconds: float = 60) -> None:
        """Wait until jobs have ended well."""
        done = "COMPLETED"
        self.until(lambda: all(self.state(j) == done for j in jobs), seconds, ",".join(jobs))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Prepare the image once."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def kept() -> dict[str, Lab]:
    """Hold the cluster that the first test makes for those after it."""
    return {}


@pytest.fixture()
def lab(kept: dict[str, Lab]) -> Lab:
    """Return the cluster that the first test has made."""
    if "lab" not in kept:
        pytest.skip("needs the cluster of the first test")
    return kept["lab"]


def test_a_cluster_from_class_yml_and_the_roster_twice(
    folder: ClassFolder, cloud: LabCloud, nodes: Cluster, kept: dict[str, Lab], tmp_path: Path
) -> None:
    to_the_real_time(cloud, folder)
    keys: dict[str, Path] = {}
    for student in STUDENTS:
        keys[student], folder.keys[student] = new_key(tmp_path, student)
    size = {"nodes": 2, "core_hours_per_student": 20, "devices_per_student": 2}
    bring_up(
        folder,
        cloud,
        nodes,
        STUDENTS,
        mode="cluster",
        cluster=size,
        sdk="2.29.0",
        regions=["us-east-2"],
    )
    lab = Lab(folder, nodes, keys, cloud)
    code, output = play("configure", folder, cloud, nodes.key, *lab.options())
    assert code == 0, output
    code, output = play("configure", folder, cloud, nodes.key, *lab.options())
    assert code == 0 and changed(output) == {"node-01": 0, "node-02": 0}, output
    kept["lab"] = lab
    key = lab.head.ssh("sudo cat /etc/munge/munge.key")
    assert len(key) == 128 and lab.other.ssh("sudo cat /etc/munge/munge.key") == key
    assert key not in output and "mysql" not in lab.head.ssh("sudo ss -Hltnp")
    for student in STUDENTS:
        assert lab.head.ssh(f"id -u {student}") == lab.other.ssh(f"id -u {student}")
    lab.until(lambda: lab.head.ssh("sinfo -h -o '%D %T'") == "2 idle")
    page = (folder.path / "out/lab/ada.md").read_text()
    assert "sbatch --gpus=1" in page and f"HostName {lab.head.ip}" in page and "User ada" in page


def test_no_one_opens_anothers_core(lab: Lab) -> None:
    """Eight jobs on eight cores at once: each opens its own and no other."""
    jobs = {}
    for k in range(2 * DEVICES):
        student = STUDENTS[k % len(STUDENTS)]
        script = f"python3 /usr/local/bin/try-devices > job-{k}\nhostname >> job-{k}\n"
        script += f'echo "$NEURON_RT_VISIBLE_CORES" >> job-{k}\ntouch ready-{k}; sleep 12'
        jobs[lab.submit(student, script, "--gpus=1")] = (student, k)
    lab.ended(*jobs)
    seen = []
    for student, k in jobs.values():
        opened, node, cores = lab.run(student, f"cat job-{k}").splitlines()
        assert opened.split() == [cores], "one device, and the variable names it"
        seen.append((node, cores))
    assert sorted(seen) == sorted(
        (n, str(c)) for n in ("node-01", "node-02") for c in range(DEVICES)
    ), "all eight ran at the same time, none on another's core"
    # Two cores of one student, in one job; and a job without any.
    assert len(lab.run("ada", "srun --gpus=2 python3 /usr/local/bin/try-devices").split()) == 2
    assert lab.run("ada", "srun python3 /usr/local/bin/try-devices") == ""
    # Outside of a job, on both nodes: nothing.
    assert lab.run("ada", "python3 /usr/local/bin/try-devices") == ""
    for host in (lab.head, lab.other):
        assert set(host.ssh("stat -c %a:%U /dev/neuron?").split()) == {"600:root"}


HOSTILE = r"""
import os, subprocess, sys

def tried(name, *before):
    words = [*before, sys.executable, "/usr/local/bin/try-devices"]
    done = subprocess.run(words, capture_output=True, text=True)
    print(name, done.stdout.split(), done.stderr[-200:], flush=True)

tried("plainly")
# A login leaves a manager of services, which starts what it is asked to outside of the job.
tried("user-manager", "systemd-run", "--user", "--pipe", "--wait", "--quiet")
for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS",
             "NEURON_RT_VISIBLE_CORES"):
    os.environ[name] = "0,1,2,3"
tried("env")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        tried("double-fork")
        os.execvp("sleep", ["sleep", "400"])
    os._exit(0)
os.wait()
for path in ("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/user.slice/cgroup.procs"):
    try:
        open(path, "w").write(str(os.getpid()))
        print("moved", path)
    except OSError:
        pass
tried("after-moving")
for number in range(4):
    try:
        device = os.stat(f"/dev/neuron{number}").st_rdev
        os.mknod(f"/tmp/mine{number}", 0o20666, device)
        print("made", number)
    except PermissionError:
        pass
job, user = os.environ["SLURM_JOB_ID"], os.environ["USER"]
for command in (
    "sudo -n true",
    f"setfacl -m u:{os.getuid()}:rw /dev/neuron0",
    "chmod 666 /dev/neuron0",
    "unshare -r chmod 666 /dev/neuron1",
    "scontrol update nodename=node-01 gres=gpu:neuron:0",
    f"scontrol update jobid={job} gres=gpu:4",
    f"sacctmgr -i modify user {user} set GrpTRESMins=gres/gpu=-1",
    "ssh -oBatchMode=yes -oStrictHostKeyChecking=no node-02 true",
):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if subprocess.run(command, shell=True, **quiet).returncode == 0:
        print("could", command)
tried("in-the-end")
"""


def test_a_hostile_job_gets_its_own_core_and_nothing_else(lab: Lab) -> None:
    victim = lab.submit("bea", "sleep 25", "--gpus=1", "--nodelist=node-01")
    lab.until(lambda: lab.state(victim) == "RUNNING")
    lab.run("ada", f"cat > hostile.py <<'EOF'\n{HOSTILE}\nEOF")
    job = lab.submit("ada", "python3 hostile.py > told 2>&1", "--gpus=1", "--nodelist=node-01")
    lab.ended(job)
    lines = lab.run("ada", "cat told").splitlines()
    ways = dict(re.match(r"(\S+) (\[.*?\])", line).groups() for line in lines if "['" in line)
    outside = next(line for line in lines if line.startswith("user-manager "))
    assert outside.startswith(f"user-manager {ways['plainly']}") or "[]" in outside, lines
    ways.pop("user-manager", None)
    assert set(ways) == {"plainly", "env", "double-fork", "after-moving", "in-the-end"}, lines
    assert not [line for line in lines if line.startswith(("could ", "moved ", "made "))], lines
    assert set(ways.values()) < {f"['{n}']" for n in range(DEVICES)}, lines
    assert len(set(ways.values())) == 1, lines
    # The job's end is the end of what it left behind.
    lab.until(lambda: not lab.head.ssh("pgrep -u ada -x sleep", check=False), 30)
    lab.head.ssh(f"sudo scancel {victim}")


# A login that asks a job for its open device, and keeps it.
KEEP = """
import array, os, socket, sys, time
if sys.argv[1] == "give":
    s = socket.socket(socket.AF_UNIX)
    s.connect("/tmp/pass-ada")
    name = "/dev/neuron" + os.environ["NEURON_RT_VISIBLE_CORES"]
    device = os.open(name, os.O_RDWR | os.O_NOCTTY)
    s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [device]))])
else:
    s = socket.socket(socket.AF_UNIX)
    s.bind("/tmp/pass-ada")
    s.listen()
    c, _ = s.accept()
    fds = c.recvmsg(1, 64)[1]
    open("kept", "w").write(str(len(fds)))
    time.sleep(600)
"""


def test_a_device_that_was_passed_out_of_a_job_is_free_for_the_next(lab: Lab) -> None:
    lab.run("ada", f"cat > keep.py <<'EOF'\n{KEEP}\nEOF")
    lab.run("ada", "rm -f kept; setsid python3 keep.py take > taken 2>&1 < /dev/null & sleep 1")
    job = lab.submit("ada", "python3 keep.py give; sleep 2", "--gpus=1", "--nodelist=node-01")
    lab.ended(job)
    assert lab.run("ada", "cat kept") == "1", "the login had the open device"
    lab.until(lambda: not lab.head.ssh("pgrep -f 'keep.py take'", check=False), 20)
    assert lab.head.ssh("sinfo -h -o '%D %T'") == "2 idle"


def test_a_login_to_a_node_is_only_for_who_has_a_job_there_and_inside_of_it(lab: Lab) -> None:
    assert lab.run("cleo", "echo in", host="other", check=False) == ""
    job = lab.submit("cleo", "sleep 60", "--gpus=1", "--nodelist=node-02")
    lab.until(lambda: lab.state(job) == "RUNNING")
    opened = lab.run(
        "cleo", "cat /proc/self/cgroup; python3 /usr/local/bin/try-devices", host="other"
    )
    assert f"job_{job}" in opened and len(opened.splitlines()[-1].split()) == 1, opened
    assert lab.run("dora", "echo in", host="other", check=False) == "", "not her job"
    lab.run("cleo", "setsid sleep 500 > /dev/null 2>&1 < /dev/null &", host="other")
    lab.head.ssh(f"sudo scancel {job}")
    lab.until(lambda: not lab.other.ssh("pgrep -u cleo -x sleep", check=False), 30)


def test_limits_hold_and_the_words_say_which(lab: Lab) -> None:
    said = lab.submit("dora", "true", "--gpus=3", check=False)
    assert "QOSMaxGRESPerUser" in said or "violates accounting/QOS policy" in said, said
    said = lab.submit("dora", "true", "--partition=grading", check=False)
    assert "Invalid account" in said or "not permitted" in said, said
    said = lab.submit("dora", "true", "--time=3:00:00", check=False)
    assert "time limit" in said.lower(), said
    # Two devices at a time, whatever is asked for in how many jobs.
    jobs = [lab.submit("dora", "sleep 6", "--gpus=1") for _ in range(3)]
    lab.until(lambda: sorted(map(lab.state, jobs)) == ["PENDING", "RUNNING", "RUNNING"], 20)
    # One interactive job at a time.
    script = "srun --partition=interactive --time=1 sleep 5 & sleep 1; "
    script += "squeue --me --partition=interactive --noheader --format=%T; wait"
    assert lab.run("edda", script) == "RUNNING"
    lab.ended(*jobs)
    # Core-hours: what would not fit does not start; what was used is shown.
    lab.head.ssh(
        'sudo sed -i \'s/"core_hours": 20.0/"core_hours": 0.5/\''
        " /etc/trainium-labs/accounts.json && sudo trainium-accounts --apply"
    )
    fits = lab.submit("edda", "true", "--gpus=1", "--time=10")
    said = lab.submit("edda", "true", "--gpus=1", "--time=60", check=False)
    assert "AssocGrp" in said or "violates accounting/QOS policy" in said, said
    lab.ended(fits)
    assert re.match(r"edda +0\.\d\d of 0\.5 core-hours", lab.run("edda", "cluster-hours"))
    lab.head.ssh(
        'sudo sed -i \'s/"core_hours": 0.5/"core_hours": 20.0/\''
        " /etc/trainium-labs/accounts.json && sudo trainium-accounts --apply"
    )
    assert lab.head.ssh("sudo trainium-accounts --apply") == "", "nothing to change"
    assert "nobody" not in lab.head.ssh("sudo runuser -u nobody -- srun hostname 2>&1; true")


def test_the_grading_queue_has_whole_nodes_and_goes_first(lab: Lab) -> None:
    filler = [lab.submit(s, "sleep 8", "--gpus=2") for s in STUDENTS[:4]]
    lab.until(lambda: [lab.state(j) for j in filler] == ["RUNNING"] * 4, 30)
    waiting = lab.submit("edda", "sleep 1; date +%s%N > edda-began", "--gpus=2")
    grade = lab.head.ssh(
        "printf '#!/bin/sh\\ndate +%%s%%N > graded; squeue -h -w $(hostname -s) -t R > neighbours;"
        " sleep 3' | sbatch --parsable --partition=grading --account=staff"
    )
    lab.ended(grade, waiting, *filler)
    assert len(lab.head.ssh("cat neighbours").splitlines()) == 1, "alone on its node"


def test_fair_share_lets_go_first_who_has_used_less(lab: Lab) -> None:
    lab.head.ssh("sudo scontrol update nodename=node-02 state=drain reason=test")
    block = [lab.submit(s, "sleep 25", "--gpus=2") for s in ("ada", "bea")]
    lab.until(lambda: [lab.state(j) for j in block] == ["RUNNING"] * 2, 30)
    much = lab.submit("dora", "date +%s%N > began", "--gpus=2")  # has used most in this file
    little = lab.submit("fred", "date +%s%N > began", "--gpus=2")
    rank = "sprio --noheader --format='%u %F' | sort -k2 -n | tail -1"
    lab.until(lambda: "fred" in lab.head.ssh(rank, check=False), 75)
    lab.ended(much, little, *block)
    lab.head.ssh("sudo scontrol update nodename=node-02 state=resume")


def test_a_node_that_leaves_gives_its_jobs_back(lab: Lab) -> None:
    script = "echo $(hostname -s) >> ran; [ $(wc -l < ran) -gt 1 ] || sleep 300"
    lab.run("fred", "rm -f ran")
    lab.head.ssh("sudo scontrol update nodename=node-01 state=drain reason=test")
    job = lab.submit("fred", script, "--gpus=1")
    lab.until(lambda: lab.state(job) == "RUNNING")
    lab.head.ssh("sudo scontrol update nodename=node-01 state=resume")
    lab.other.ssh("sudo systemctl stop trainium-leave.service")  # what a shutdown does
    assert "drain" in lab.head.ssh("sinfo -h -n node-02 -p batch -o %T")
    lab.until(lambda: lab.state(job) == "COMPLETED", 200)
    assert lab.run("fred", "cat ran").split() == ["node-02", "node-01"]
    lab.other.ssh("sudo systemctl start trainium-leave.service")
    lab.until(lambda: lab.head.ssh("sinfo -h -o '%D %T'") == "2 idle", 30)


def test_a_killed_controller_and_accounting_lose_no_job(lab: Lab) -> None:
    """Neither those that run nor those that were handed in just now: what `sbatch` of the class
    has answered is on the disk (Slurm's own answers up to five seconds before)."""

    def hand_in(student: str, seconds: int) -> str:
        script = f"sleep {seconds}; echo done > survived"
        return lab.submit(student, script, "--gpus=2", sbatch="sbatch")

    with ThreadPoolExecutor(4) as pool:
        running = list(pool.map(hand_in, STUDENTS[:4], [40] * 4))
        lab.until(lambda: [lab.state(j) for j in running] == ["RUNNING"] * 4, 30)
        waiting = list(pool.map(hand_in, STUDENTS[4:], [0] * 2))
    before = lab.head.ssh("systemctl show -p MainPID --value slurmctld slurmdbd").split()
    lab.head.ssh(f"sudo kill -9 {' '.join(before)}")
    lab.until(lambda: "UP" in lab.head.ssh("scontrol ping", check=False), 60)
    after = lab.head.ssh("systemctl show -p MainPID --value slurmctld slurmdbd").split()
    assert len(after) == 2 and not set(before) & set(after), "systemd has started both again"
    lab.other.ssh("sudo kill -9 $(systemctl show -p MainPID --value slurmd)")
    # One that ended in the last second before the kill runs again, after Slurm's two minutes.
    lab.ended(*running, *waiting, seconds=240)
    for student in STUDENTS:
        assert lab.run(student, "cat survived") == "done"


DRIVER = (
    "import sys; from labkit.cli import guarded;sys.exit(guarded(None, sys.argv[1:], ('job.py',)))"
)


def test_host_cluster_puts_the_run_into_the_queue(lab: Lab, tmp_path: Path) -> None:
    """What `nox -s benchmark -- --host cluster` does, from a student's repository."""
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / ".gitignore").write_text("results/\n")
    (repo / "job.py").write_text(
        "import os, socket, subprocess, sys\n"
        "tried = [sys.executable, '/usr/local/bin/try-devices']\n"
        "said = subprocess.run(tried, capture_output=True, text=True).stdout.split()\n"
        "print(socket.gethostname(), said == [os.environ['NEURON_RT_VISIBLE_CORES']])\n"
        "print(os.environ['SLURM_JOB_PARTITION'], os.environ['SLURM_JOB_NAME'][:7])\n"
    )
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin"]):
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run([*git, *words], cwd=repo, check=True)
    config = tmp_path / "ssh-config"
    config.write_text(
        f"Host *\n  IdentityFile {lab.keys['cleo']}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
    )
    env = {
        **os.environ,
        **lab.cloud.environ,
        "PYTHONPATH": f"{ROOT / 'shared'}:{ROOT / 'infra'}",
        "LABKIT_SSH_CONFIG": str(config),
        "LABKIT_CLASS": str(lab.folder.file),
    }

    def run(*more: str, **variables: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", DRIVER, "--backend", "hw", "--host", "cluster", *more]
        return subprocess.run(
            words, cwd=repo, env={**env, **variables}, capture_output=True, text=True, timeout=120
        )

    done = run("--student", "cleo")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "srun:" not in line]
    assert re.fullmatch(r"node-0[12] True", lines[0]) and lines[1] == "batch labkit-", lines
    assert "$" in done.stderr, "what it has cost"
    done = run("--student", "mallory")
    assert done.returncode == 2 and "mallory has no account on the cluster" in done.stderr
    done = run("--student", "cleo", SLURM_PARTITION="grading")
    assert done.returncode and "Invalid account" in done.stdout + done.stderr, done


def test_grading_goes_through_the_grading_queue(lab: Lab) -> None:
    """What the staff do on the first node; the reports are those of a run without a queue."""
    graded = cluster_grading.Grading(lab.head)
    graded.run("one")
    graded.same_secret("one", "two")
    graded.start("two", "--scheduler slurm:grading --jobs 2")
    seen = set()

    def ended() -> bool:
        seen.update(lab.head.ssh("squeue -h -n labkit-grade -t R -o '%P %a %u %N'").splitlines())
        return graded.code("two") != ""

    lab.until(ended, 400)
    assert graded.code("two") == "0", graded.log("two")
    assert {line.rpartition(" ")[0] for line in seen} == {"grading staff ubuntu"}, seen
    assert {line.rpartition(" ")[2] for line in seen} == {"node-01", "node-02"}, "each has a node"
    assert graded.differ("one", "two") == "" and "student000" in graded.grades("two")
    lab.until(lambda: lab.head.ssh("squeue -h -n labkit-grade") == "", 30)


def test_a_benchmark_of_this_repository_with_host_cluster(lab: Lab, tmp_path: Path) -> None:
    """`nox -s benchmark -- vecadd --host cluster`, after nox has installed the packages."""
    course = cluster_grading.course(tmp_path / "course")
    config = tmp_path / "ssh-config"
    config.write_text(f"Host *\n  IdentityFile {lab.keys['bea']}\n  IdentitiesOnly yes\n")
    words = "benchmark vecadd --backend sim --target trn1 --case transpose_128x128"
    done = subprocess.run(
        [sys.executable, "-m", "labkit", *words.split(), "--host", "cluster", "--student", "bea"],
        cwd=course,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            **lab.cloud.environ,
            "PYTHONPATH": f"{course / 'shared'}:{course / 'infra'}",
            "LABKIT_SSH_CONFIG": str(config),
            "LABKIT_CLASS": str(lab.folder.file),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Latencies are predicted by nkisim, not measured" in done.stdout
    results = json.loads((course / "results/results.json").read_text())
    assert results and "transpose_128x128" in json.dumps(results), "they came home"

    def told() -> list[str]:
        words = "sudo sacct -X -n -P -u bea --format=JobName,Partition,Account,State"
        return [line for line in lab.head.ssh(words).splitlines() if line.startswith("labkit-")]

    lab.until(lambda: bool(told()) and "RUNNING" not in told()[0])  # accounting comes later
    (record,) = told()
    assert record.split("|")[1:] == ["batch", "students", "COMPLETED"], record


def test_who_leaves_the_roster_leaves_the_cluster_and_the_work_is_saved(lab: Lab) -> None:
    cloud = lab.cloud
    lab.run("fred", "mkdir -p labs && echo answer > labs/answer.py")
    job = lab.submit("fred", "sleep 600", "--gpus=1")
    lab.folder.write(STUDENTS[:-1])
    code, output = play("configure", lab.folder, cloud, lab.nodes.key, *lab.options())
    assert code == 0, output
    assert lab.run("fred", "echo in", check=False) == "", "the account is closed"
    assert lab.head.ssh(f"squeue -h -j {job} 2>/dev/null; true") == ""
    code, output = play("configure", lab.folder, cloud, lab.nodes.key, *lab.options())
    assert code == 0 and set(changed(output).values()) == {0}, output
    code, down = play("teardown", lab.folder, cloud, lab.nodes.key, "-e", "yes=true")
    assert code == 0 and "0 billable resources of class lab" in down, down
    with tarfile.open(lab.folder.path / "out/lab/work/node-01.tar.gz") as archive:
        names = archive.getnames()
    assert "fred/labs/answer.py" in names and "ada/labs/README.md" in names
    assert cloud.leftovers() == []


def test_the_examples_of_the_roles_readmes_make_a_cluster_of_one_machine(
    nodes: Cluster, tmp_path: Path
) -> None:
    """Each of Slurm's roles by its example play as it is written, but for what the example cannot
    know (addresses, devices, accounts)."""
    nodes.close()
    nodes.boot({"node-01": "127.0.76.1"})
    host = nodes.hosts["node-01"]
    for student in ("alice", "bob"):  # of role student_account
        host.ssh(f"id -u {student} || sudo useradd -m -s /bin/bash {student}")
    run_examples(nodes, tmp_path, host, SLURM, stand_ins(nodes))
    end = time.monotonic() + 60
    while (state := host.ssh("sinfo -h -o '%D %T'", check=False)) != "1 idle":
        assert time.monotonic() < end, state
        time.sleep(0.5)
    opened = host.ssh("sudo -iu alice srun --gpus=1 python3 /usr/local/bin/try-devices")
    assert len(opened.split()) == 1, opened
    assert host.ssh("sudo -iu alice python3 /usr/local/bin/try-devices") == ""
