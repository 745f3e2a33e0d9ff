"""What this machine is and has: environments, device, whose turn it is on a NeuronCore."""

from __future__ import annotations

import fcntl
import getpass
import glob
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .files import HOME, Refused, say


def version_of(folder, name):
    """Return the version of a package in a site-packages folder, or None."""
    for info in glob.glob(str(folder / (name + "-*.dist-info"))):
        version = Path(info).name[len(name) + 1 : -len(".dist-info")]
        if not version.startswith(("0.0.", "1.0.post")):  # PyPI's placeholders of these names
            return version
    return None


def venvs(patterns):
    """Return the environments that match: path, python, versions of what speaks a dialect."""
    environments = []
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.expanduser(pattern)), reverse=True):
            python = os.path.join(path, "bin", "python")
            if not os.path.exists(python):
                continue
            one = {"path": path, "python": python, "neuronx-cc": None, "nki": None}
            for site in Path(path).glob("lib/python3*/site-packages"):
                if (site / "neuronxcc" / "nki").is_dir():
                    one["neuronx-cc"] = version_of(site, "neuronx_cc") or "?"
                if (site / "nki").is_dir():
                    one["nki"] = version_of(site, "nki")
            environments.append(one)
    return environments


def machine():
    """Return the EC2 instance type, "" elsewhere (Nitro hosts tell it as the product's name)."""
    try:
        vendor = Path("/sys/devices/virtual/dmi/id/sys_vendor").read_text().strip()
        return (
            Path("/sys/devices/virtual/dmi/id/product_name").read_text().strip()
            if vendor == "Amazon EC2"
            else ""
        )
    except OSError:
        return ""


def facts(patterns):
    """Return what the other side must know of this machine."""
    try:
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        uptime = None
    free = shutil.disk_usage(HOME.parent).free
    return {
        "time": time.time(),
        "host": socket.gethostname(),
        "user": getpass.getuser(),
        "machine": machine(),
        "uptime_s": uptime,
        "neuron": os.path.exists("/dev/neuron0"),
        "free": free,
        "python": sys.executable,
        "venvs": venvs(patterns),
        "home": str(HOME),
    }


def device_lock(job):
    """Hold the NeuronCore that the run will use; refuse where another user holds it."""
    core = (
        job["env"].get("NEURON_RT_VISIBLE_CORES") or login_value("NEURON_RT_VISIBLE_CORES") or "0"
    )
    folder = job["env"].get("TRAINIUM_LABS_LOCKS") or (
        "/run/lock" if os.path.isdir("/run/lock") else tempfile.gettempdir()
    )
    name = os.path.join(folder, "trainium-labs-core-" + core.replace("/", "_"))
    try:
        handle = os.open(name, os.O_RDWR)
    except FileNotFoundError:
        handle = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
        os.fchmod(handle, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        who = os.read(handle, 200).decode(errors="replace").strip() or "someone"
        raise Refused(
            f"NeuronCore {core} is in use by {who}. Try again when that has ended, or "
            "set NEURON_RT_VISIBLE_CORES to the core that is yours."
        ) from None
    os.ftruncate(handle, 0)
    now = time.strftime("%H:%M", time.gmtime())
    os.write(handle, f"{getpass.getuser()} since {now} UTC".encode())
    return handle, core


def login_value(name):
    """Return a variable as a login shell has it: what profile.d sets, SSH commands do not see."""
    try:
        return subprocess.run(
            ["bash", "-lc", "echo $" + name],
            capture_output=True,
            text=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def packages(job, env, log):
    """Return a folder with the packages that the program needs and its Python lacks, "" if none.

    They go into a folder of ours: the image's own environment is not touched.
    """
    names = dict(job["needs"])  # import name -> pip requirement
    test = (
        f"import importlib.util as u; print(*(n for n in {sorted(names)} "
        "if u.find_spec(n) is None))"
    )
    lacking = subprocess.run(
        [job["python"], "-c", test], env=env, capture_output=True, text=True
    ).stdout.split()
    if not lacking:
        return ""
    tag = hashlib.sha256(repr((job["python"], sorted(lacking))).encode()).hexdigest()[:12]
    target = HOME / "env" / tag
    if target.exists():
        return str(target)
    say(log, f"installing {', '.join(lacking)} for the labs, once, next to the environment")
    part = HOME / "env" / (tag + ".part")
    shutil.rmtree(str(part), ignore_errors=True)
    # numpy comes along only where there is none: the SDK's must not be hidden
    alone = [n for n in lacking if n == "ml_dtypes" and "numpy" not in lacking]
    for group, flags in ((alone, ["--no-deps"]), ([n for n in lacking if n not in alone], [])):
        if group:
            done = subprocess.run(
                [
                    job["python"],
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--target",
                    str(part),
                    *flags,
                    *(names[n] for n in group),
                ],
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
            )
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
                raise Refused(
                    f"{job['python']} lacks {', '.join(group)}, and pip could not "
                    f"install it: {last}"
                )
    part.rename(target)
    return str(target)
