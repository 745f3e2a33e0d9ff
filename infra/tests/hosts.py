"""Real hosts for the roles: Debian with systemd booted by systemd-nspawn, each listening on an
address of its own.

What is real: systemd, SSH, sudo, apt, accounts, timers. What stands in, and says so in its text:
the Neuron tools, the
Neuron environments, InfluxDB 2 (a small service in a package of the same name, from a signed local
repository), and the NFS server, which would need the kernel's.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PACKAGES = "systemd,systemd-sysv,dbus,openssh-server,python3,python3-apt,sudo,acl,ca-certificates,iproute2,git,rsync,gpg,curl,procps,bsdutils,gawk,python3-venv,python3-boto3,libpam-systemd,dbus-user-session"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "trainium-labs"

#: how the names of the hosts' control groups begin
GROUPS = "trainium-labs"
BOOT = r"""
set -e
mount -t tmpfs tmpfs /run; mkdir -p /run/systemd
mount -t tmpfs -o size=2g tmpfs "$W"; mkdir -p "$W/u" "$W/w" "$W/m"
mount -t overlay overlay -o "lowerdir=$ROOTFS,upperdir=$W/u,workdir=$W/w" "$W/m"
echo "$NAME" > "$W/m/etc/hostname"; printf '127.0.0.1 localhost %s\n' "$NAME" > "$W/m/etc/hosts"
mkdir -p "$W/m/etc/ssh/sshd_config.d"
printf 'ListenAddress %s\nPort 22\nPasswordAuthentication no\nUseDNS no\n' "$IP" > "$W/m/etc/ssh/sshd_config.d/00-lab.conf"
# Control groups of its own: hosts that share them end each other's services, which have the same names.
for top in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
  if [ -w "$top/cgroup.procs" ]; then mkdir "$top/$GROUP"; echo $$ > "$top/$GROUP/cgroup.procs"; fi
done
exec systemd-nspawn -q -D "$W/m" --boot --register=no --keep-unit --machine="$NAME" --resolv-conf=off --timezone=off --link-journal=no --console=pipe $NSPAWN
"""

INFLUXD = r"""#!/usr/bin/python3
# A stand-in for InfluxDB 2 in tests: /health, /api/v2/setup, orgs and authorizations only. Not InfluxDB.
import json, os
from http.server import BaseHTTPRequestHandler, HTTPServer
STATE = "/var/lib/influxdb-stand-in.json"
def state():
    return json.load(open(STATE)) if os.path.exists(STATE) else {}
class H(BaseHTTPRequestHandler):
    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code); self.send_header("Content-Type", "application/json"); self.send_header("Content-Length", str(len(data))); self.end_headers(); self.wfile.write(data)
    def operator(self):
        return self.headers["Authorization"] == "Token " + state().get("token", "")
    def do_GET(self):
        if self.path == "/health": return self.answer(200, {"status": "pass"})
        if self.path == "/api/v2/setup": return self.answer(200, {"allowed": not state()})
        if not self.operator(): return self.answer(401, {"code": "unauthorized"})
        if self.path == "/api/v2/orgs?org=" + state()["org"]: return self.answer(200, {"orgs": [{"id": "0d1", "name": state()["org"]}]})
        self.answer(404, {"code": "not found"})
    def do_POST(self):
        body, old = json.loads(self.rfile.read(int(self.headers["Content-Length"]))), state()
        if self.path == "/api/v2/setup":
            if old: return self.answer(422, {"code": "conflict"})
            json.dump({**{k: body[k] for k in ("org", "bucket", "username", "token")}, "given": []}, open(STATE, "w"))
            return self.answer(201, {"ok": True})
        if not self.operator(): return self.answer(401, {"code": "unauthorized"})
        if self.path != "/api/v2/authorizations" or body["orgID"] != "0d1": return self.answer(400, {"code": "invalid"})
        token = "of-%d" % len(old["given"])
        json.dump({**old, "given": old["given"] + [{**body, "token": token}]}, open(STATE, "w"))
        self.answer(201, {"token": token})
    def log_message(self, *a): pass
host, port = os.environ["INFLUXD_HTTP_BIND_ADDRESS"].rsplit(":", 1)
HTTPServer((host, int(port)), H).serve_forever()
"""


def why_not() -> str:
    """Return why hosts cannot be booted here, or an empty string."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [
        t
        for t in (
            *("systemd-nspawn", "mmdebstrap", "unshare", "setpriv"),
            *("ssh", "ssh-keygen", "gpg", "dpkg-deb"),
        )
        if not shutil.which(t)
    ]
    return (
        f"needs {', '.join(missing)} (apt-get install mmdebstrap systemd-container openssh-client"
        " gpg)"
        if missing
        else ""
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time do what the others then find done."""
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def rootfs(work: Path, more: str = "") -> Path:
    """Unpack the root file system with `more` packages, making it first if it is not in the cache."""
    packages = ",".join(filter(None, (PACKAGES, more)))
    CACHE.mkdir(parents=True, exist_ok=True)
    tar = CACHE / f"rootfs-{hashlib.sha256(packages.encode()).hexdigest()[:12]}.tar"
    with locked(tar.with_suffix(".lock")):
        if not tar.exists():
            _debootstrap(tar, packages)
    root = work / "rootfs"
    root.mkdir()
    subprocess.run(["tar", "-xf", str(tar), "-C", str(root), "--exclude=./dev/*"], check=True)
    return root


def _debootstrap(tar: Path, packages: str) -> None:
    """Make a root file system of Debian packages, as an archive."""
    temporary = tar.with_suffix(".tmp.tar")
    sources = [str(p) for p in Path("/etc/apt/sources.list.d").glob("*.sources")][:1]
    subprocess.run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            "--dpkgopt=force-unsafe-io",  # a root file system that is thrown away needs no fsync
            f"--include={packages}",
            "bookworm",
            str(temporary),
            *sources,
        ],
        check=True,
    )
    temporary.rename(tar)


class Image:
    """Hold a prepared root file system, which no host changes, and the staff's key for it."""

    def __init__(self, place: Path, packages: str = "") -> None:
        self.root, self.key, known = place / "rootfs", place / "staff", place / "variables.json"
        if not known.exists():
            place.mkdir(parents=True, exist_ok=True)
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)]
            subprocess.run(key, check=True)
            rootfs(place, packages)
            public = self.key.with_suffix(".pub").read_text().strip()
            known.write_text(json.dumps(prepare(self.root, public, place)))
        self.variables: dict[str, str] = json.loads(known.read_text())


def shared_image(base: Path) -> Image:
    """Return the image that all test files of a run boot; the first one that asks makes it.

    `base`: the folder of temporary files of this worker (pytest's `getbasetemp`).
    """
    top = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with locked(top / "image.lock"):
        return Image(top / "image")


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file of the image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def prepare(root: Path, staff_key: str, work: Path) -> dict[str, str]:
    """Make the image look like a Neuron image; return the variables that name the local package
    repository."""
    for source in [root / "etc/apt/sources.list", *(root / "etc/apt/sources.list.d").glob("*")]:
        source.unlink(missing_ok=True)  # the hosts need nothing from outside
    subprocess.run(["chroot", str(root), "useradd", "-m", "-s", "/bin/bash", "ubuntu"], check=True)
    subprocess.run(["chroot", str(root), "usermod", "-p", "*", "ubuntu"], check=True)
    write(root / "etc/sudoers.d/ubuntu", "ubuntu ALL=(ALL) NOPASSWD:ALL\n", 0o440)
    write(root / "home/ubuntu/.ssh/authorized_keys", staff_key + "\n", 0o600)
    subprocess.run(
        ["chroot", str(root), "chown", "-R", "ubuntu:ubuntu", "/home/ubuntu"], check=True
    )
    _environment(root, "pytorch_2_8")
    for name in ("pytorch_2_7", "pytorch_2_8_nxd_inference", "jax_0_6"):
        write(
            root / f"opt/aws_neuronx_venv_{name}/bin/activate",
            f"VIRTUAL_ENV=/opt/aws_neuronx_venv_{name}; export VIRTUAL_ENV\n",
        )
    _tools(root, work)
    _file_server(root, work)
    write(root / "srv/neuron-use", "0\n")
    write(root / "srv/stat", "cpu  100 0 100 10000 0 0 0 0 0 0\n")
    commit = _labs(root, work)
    return {"commit": commit, **_packages(root, work)}


def _tools(root: Path, work: Path) -> None:
    """Install a package of stand-ins under the name and version of SDK 2.26's tools."""
    tree = work / "deb-tools"
    write(
        tree / "opt/aws/neuron/bin/neuron-ls",
        '#!/bin/sh\n# stand-in for tests\necho \'[{"neuron_device": 0, "nc_count": 2}]\'\n',
        0o755,
    )
    monitor = (
        "#!/bin/sh\n# stand-in for tests: prints what /srv/neuron-use says\necho"
        ' "{\\"neuron_runtime_data\\": [{\\"report\\": {\\"neuroncore_counters\\":'
        ' {\\"neuroncores_in_use\\": {\\"0\\": {\\"neuroncore_utilization\\": $(cat'
        ' /srv/neuron-use)}}}}}]}"\nsleep 60\n'
    )
    write(tree / "opt/aws/neuron/bin/neuron-monitor", monitor, 0o755)
    _deb(tree, "aws-neuronx-tools", "2.26.14.0", root / "srv/tools.deb")
    subprocess.run(
        ["chroot", str(root), "dpkg", "--install", "/srv/tools.deb"],
        check=True,
        capture_output=True,
    )


def _file_server(root: Path, work: Path) -> None:
    """Install a stand-in for the NFS server: a unit that does nothing, and an exportfs that writes
    down what it would export."""
    tree = work / "deb-nfs"
    (tree / "etc/exports.d").mkdir(parents=True)
    unit = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
    write(
        tree / "lib/systemd/system/nfs-server.service",
        unit + "[Install]\nWantedBy=multi-user.target\n",
    )
    exportfs = "#!/bin/sh\n# stand-in for tests\ncat /etc/exports.d/* > /run/exported\n"
    write(tree / "usr/sbin/exportfs", exportfs, 0o755)
    _deb(tree, "nfs-kernel-server", "1:2.6.2-4", root / "srv/nfs.deb")
    subprocess.run(
        ["chroot", str(root), "dpkg", "--install", "/srv/nfs.deb"], check=True, capture_output=True
    )


def _deb(tree: Path, name: str, version: str, deb: Path) -> str:
    """Build a package of stand-ins; return its control file."""
    control = (
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: tests"
        " <tests@example.edu>\nDescription: stand-in for tests\n"
    )
    write(tree / "DEBIAN/control", control)
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(deb)],
        check=True,
        capture_output=True,
    )
    return control


def _environment(root: Path, name: str) -> None:
    """Make a real environment with one package in it, where the Neuron packages would be."""
    path = f"/opt/aws_neuronx_venv_{name}"
    subprocess.run(["chroot", str(root), "python3", "-m", "venv", path], check=True)
    site = next((root / path.lstrip("/") / "lib").glob("python3*")) / "site-packages"
    write(site / "neuron_stand_in.py", f"NAME = {name!r}  # a stand-in for tests\n")


def _labs(root: Path, work: Path) -> str:
    """Make a lab repository with an extra, and the packages that installing it takes."""
    wheels = root / "srv/pip"
    wheels.mkdir(parents=True)
    extra = work / "extra"
    write(
        extra / "pyproject.toml",
        '[build-system]\nrequires = ["setuptools>=68"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "lab-extra"\nversion = "1.0"\n[tool.setuptools]\npy-modules = ["lab_extra"]\n',
    )
    write(extra / "lab_extra.py", "ANSWER = 42\n")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(wheels), str(extra)], check=True)
    subprocess.run([*pip, "download", "--no-deps", "-d", str(wheels), "setuptools>=68"], check=True)
    write(root / "etc/pip.conf", "[global]\nno-index = true\nfind-links = /srv/pip\n")
    labs = root / "srv/labs.git"
    git = [
        "git",
        "-c",
        "user.name=labs",
        "-c",
        "user.email=labs@example.edu",
        "-c",
        "safe.directory=*",
        "-C",
        str(labs),
    ]
    labs.mkdir(parents=True)
    subprocess.run([*git, "init", "-q"], check=True)
    write(labs / "README.md", "labs\n")
    write(labs / "lab_work.py", "import lab_extra\n\nprint(lab_extra.ANSWER)\n")
    write(
        labs / "pyproject.toml",
        '[build-system]\nrequires = ["setuptools>=68"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "labs"\nversion = "1.0"\n[project.optional-dependencies]\nlabs = ["lab-extra"]\n'
        '[tool.setuptools]\npy-modules = ["lab_work"]\n',
    )
    write(labs / ".gitignore", ".venv/\n*.egg-info/\n")
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "labs"], check=True)
    pinned = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    write(labs / "README.md", "labs, changed after the pin\n")
    subprocess.run([*git, "commit", "-q", "-a", "-m", "later"], check=True)
    write(
        root / "etc/gitconfig",
        '[safe]\n\tdirectory = *\n[url "file:///srv/labs.git"]\n\tinsteadOf ='
        " https://github.com/example/labs.git\n",
    )
    return pinned


def _packages(root: Path, work: Path) -> dict[str, str]:
    """Build stand-in packages and a repository signed with a key made here."""
    apt, packages = root / "srv/apt", []
    pool = apt / "pool"
    pool.mkdir(parents=True)
    unit = "[Service]\nExecStart=/usr/bin/influxd\n[Install]\nWantedBy=multi-user.target\n"
    for name, version in (("influxdb2", "2.7.12-1"), ("influxdb2-cli", "2.7.5-1")):
        tree = work / f"deb-{name}"
        if name == "influxdb2":
            write(tree / "usr/bin/influxd", INFLUXD, 0o755)
            write(tree / "lib/systemd/system/influxdb.service", unit)
        deb = pool / f"{name}_{version}_all.deb"
        control = _deb(tree, name, version, deb)
        data = deb.read_bytes()
        packages.append(
            control + f"Filename: pool/{deb.name}\nSize: {len(data)}\nSHA256:"
            f" {hashlib.sha256(data).hexdigest()}\n"
        )
    index = "\n".join(packages) + "\n"
    write(apt / "dists/stable/main/binary-amd64/Packages", index)
    write(apt / "dists/stable/main/binary-all/Packages", index)
    sums = "".join(
        f" {hashlib.sha256(index.encode()).hexdigest()} {len(index)} main/binary-{a}/Packages\n"
        for a in ("amd64", "all")
    )
    write(
        apt / "dists/stable/Release",
        "Suite: stable\nCodename: stable\nComponents: main\nArchitectures: amd64"
        f" all\nSHA256:\n{sums}",
    )
    home = work / "gpg"
    home.mkdir(mode=0o700)
    gpg = [
        "gpg",
        "--homedir",
        str(home),
        "--batch",
        "--quiet",
        "--pinentry-mode",
        "loopback",
        "--passphrase",
        "",
    ]

    def new_key(who: str) -> None:
        identity = f"{who} <{who}@example.edu>"
        subprocess.run(
            [*gpg, "--quick-gen-key", identity, "rsa2048", "sign", "never"],
            check=True,
            capture_output=True,
        )

    def show(*options: str) -> str:
        return subprocess.run([*gpg, *options], check=True, capture_output=True, text=True).stdout

    new_key("tests")
    subprocess.run(
        [
            *gpg,
            "--clearsign",
            "-o",
            str(apt / "dists/stable/InRelease"),
            str(apt / "dists/stable/Release"),
        ],
        check=True,
        capture_output=True,
    )
    write(apt / "key.asc", show("--armor", "--export"))
    lines = show("--with-colons", "--list-keys").splitlines()
    fingerprint = next(line.split(":")[9] for line in lines if line.startswith("fpr:"))
    new_key("stranger")
    write(apt / "two-keys.asc", show("--armor", "--export"))
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    return {
        "influxdb_repository": "file:///srv/apt",
        "influxdb_key_url": "file:///srv/apt/key.asc",
        "influxdb_key_fingerprint": fingerprint,
    }


def remove_groups(name: str) -> None:
    """Remove a host's control groups where no process is left in them."""
    for top in ("", "unified", "systemd"):
        for folder in sorted(Path("/sys/fs/cgroup", top, name).glob("**/"), reverse=True):
            with suppress(OSError):  # what still runs there keeps it
                folder.rmdir()


def remove_groups_of_killed_runs() -> None:
    """Remove the control groups of hosts whose tests have ended, with or without closing them."""
    for group in Path("/sys/fs/cgroup").glob(f"**/{GROUPS}-*"):
        if not Path("/proc", group.name.split("-")[2]).exists():
            remove_groups(group.name)


class Host:
    """Hold one booted host."""

    def __init__(
        self, name: str, ip: str, root: Path, work: Path, key: Path, nspawn: str = ""
    ) -> None:
        self.name, self.ip, self.key = name, ip, key
        place = work / f"host-{name}"
        shutil.rmtree(place, ignore_errors=True)  # of a host of this name that was closed
        place.mkdir()
        remove_groups_of_killed_runs()
        self.group = f"{GROUPS}-{os.getpid()}-{name}"
        environ = {**os.environ, "NAME": name, "IP": ip, "W": str(place), "ROOTFS": str(root)}
        environ |= {"NSPAWN": nspawn, "GROUP": self.group}
        # in a process namespace that ends with this process, however it ends: a host that outlives
        # its test keeps its address from the next run
        own = ["--pid", "--fork", "--kill-child", "--mount-proc"]
        self.process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL"),
                *("unshare", "--mount", "--propagation", "private", *own, "bash", "-c", BOOT),
            ],
            env=environ,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=(work / f"{name}.log").open("w"),
            stderr=subprocess.STDOUT,
        )

    def ssh(
        self, command: str, user: str = "ubuntu", key: Path | None = None, check: bool = True
    ) -> str:
        """Run a command on the host; return what it printed."""
        options = [
            "-oStrictHostKeyChecking=no",
            "-oUserKnownHostsFile=/dev/null",
            "-oLogLevel=ERROR",
            "-oBatchMode=yes",
            "-oConnectTimeout=30",  # on a busy machine sshd takes its time to say hello
        ]
        done = subprocess.run(
            ["ssh", "-i", str(key or self.key), *options, f"{user}@{self.ip}", command],
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {command}: {done.stderr}")
        return done.stdout.strip()

    def wait(self, seconds: float = 120) -> None:
        """Wait until SSH answers: a second on a quiet machine."""
        end, said = time.monotonic() + seconds, ""
        while time.monotonic() < end and self.process.poll() is None:
            try:
                self.ssh("echo up")
                return
            except (AssertionError, subprocess.TimeoutExpired) as error:
                said = str(error)
            time.sleep(0.3)
        state = "booted" if self.process.poll() is None else f"ended {self.process.returncode}"
        raise AssertionError(f"{self.name} at {self.ip} ({state}) did not answer: {said}")

    def ended(self, seconds: float = 30) -> bool:
        """Say whether the host has powered off."""
        try:
            self.process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False

    def close(self) -> None:
        """Power it off."""
        if self.process.poll() is None:
            try:
                self.ssh("sudo systemctl poweroff --force --force", check=False)
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        remove_groups(self.group)

    def kill(self) -> None:
        """Take its power away: what it booted ends with the first process of its namespace."""
        pid = self.process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), 9)
        self.process.wait(60)


def decrypted(vault: Path, place: Path) -> Path:
    """Read a generated key as the staff would, with ansible-vault."""
    program = [str(Path(sys.executable).parent / "ansible-vault"), "view", str(vault)]
    text = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    path = place / f"{vault.stem}-{len(list(place.iterdir()))}"
    path.touch(0o600)
    path.write_text(text)
    return path
