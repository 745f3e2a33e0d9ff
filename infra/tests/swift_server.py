"""OpenStack Swift as an S3 server for tests: real, of one disk, at an address of this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REGION = "us-east-2"
#: What S3 would call a key; it may do all.
KEYS = {"AWS_ACCESS_KEY_ID": "test:tester", "AWS_SECRET_ACCESS_KEY": "testing"}
NAMES = ("account", "container", "object", "proxy")
FILTERS = {
    "catch_errors": "",
    "cache": "use = egg:swift#memcache\nmemcache_servers = 127.0.0.1:1",  # none: it goes without
    "s3api": f"location = {REGION}\nstorage_domain = s3.{REGION}.amazonaws.com",
    "tempauth": "user_test_tester = testing .admin",
    "slo": "",
    "versioned_writes": "allow_object_versioning = true",
    "symlink": "",
}


def free_ports(n: int) -> list[int]:
    """Return ports of this machine that no one listens at."""
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _proxy(root: Path, name: str, address: str, port: int, more: str = "") -> None:
    """Write the settings of a server that speaks S3."""
    parts = [
        f"[DEFAULT]\nbind_ip = {address}\nbind_port = {port}\nworkers = 0\nuser = root\n"
        f"swift_dir = {root}/conf\n{more}"
    ]
    parts.append(f"[pipeline:main]\npipeline = {' '.join(FILTERS)} proxy-server\n")
    for f, words in FILTERS.items():
        egg = "" if words.startswith("use =") else f"use = egg:swift#{f}"
        parts.append(f"[filter:{f}]\n{egg}\n{words}\n")
    parts.append("[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n")
    (root / f"conf/{name}.conf").write_text("\n".join(parts))


def _configure(root: Path, ports: dict[str, int]) -> None:
    """Write the settings and the rings of a server of one disk."""
    folder, tool = root / "conf", Path(sys.executable).with_name("swift-ring-builder")
    folder.mkdir(parents=True)
    (root / "srv/d1").mkdir(parents=True)
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = s\nswift_hash_path_prefix = p\n"
        "[storage-policy:0]\nname = one\ndefault = yes\n"
    )
    for name in NAMES[:-1]:
        (folder / f"{name}.conf").write_text(
            f"[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = {ports[name]}\nworkers = 0\n"
            f"user = root\nswift_dir = {folder}\ndevices = {root}/srv\nmount_check = false\n"
            f"[pipeline:main]\npipeline = {name}-server\n"
            f"[app:{name}-server]\nuse = egg:swift#{name}\n"
        )
        ring = str(folder / f"{name}.builder")
        for words in (
            ["create", "4", "1", "0"],
            ["add", f"r1z1-127.0.0.1:{ports[name]}/d1", "1"],
            ["rebalance"],
        ):
            subprocess.run([str(tool), ring, *words], capture_output=True, timeout=60)
    _proxy(root, "proxy", "127.0.0.1", ports["proxy"])


@contextmanager
def running(root: Path, tls: tuple[str, Path, Path] | None = None) -> Iterator[str]:
    """Run Swift in a folder; give the address of its S3 API. `tls`: an address of this machine at
    which it listens at port 443 besides, and the files of certificate and key."""
    ports = dict(zip(NAMES, free_ports(4)))
    _configure(root, ports)
    places = {name: ("127.0.0.1", port) for name, port in ports.items()}
    if tls:
        places["tls"] = (tls[0], 443)
        _proxy(root, "tls", *places["tls"], f"cert_file = {tls[1]}\nkey_file = {tls[2]}\n")
    processes = []
    for name in places:
        kind = "proxy" if name == "tls" else name
        program = Path(sys.executable).with_name(f"swift-{kind}-server")
        processes.append(
            subprocess.Popen(
                [str(program), str(root / f"conf/{name}.conf")],
                stdout=(root / f"{name}.log").open("w"),
                stderr=subprocess.STDOUT,
            )
        )
    end = time.monotonic() + 120
    try:
        for name, place in places.items():
            while True:
                try:
                    socket.create_connection(place, 1).close()
                    break
                except OSError:
                    said = (root / f"{name}.log").read_text()[-800:]
                    assert time.monotonic() < end, f"swift-{name} does not answer: {said}"
                    time.sleep(0.2)
        yield f"http://127.0.0.1:{ports['proxy']}"
    finally:
        for process in processes:
            process.kill()
            process.wait()
