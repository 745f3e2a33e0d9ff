"""Real time series servers for tests: InfluxDB 1 and VictoriaMetrics (the v2 write path)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Program:
    """A server in a folder; it can be killed and started again on the same data."""

    name = ""

    def __init__(self, folder: Path):
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def why_not(cls) -> str:
        return "" if shutil.which(cls.name) else f"needs {cls.name} (apt-get install {cls.package})"

    package = ""

    def command(self) -> list[str]:
        raise NotImplementedError

    def get(self, path: str, **query: str) -> bytes:
        with urllib.request.urlopen(
            f"{self.url}/{path}?{urllib.parse.urlencode(query)}", timeout=10
        ) as answer:
            return answer.read()

    def start(self) -> None:
        log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            self.command(), stdout=log, stderr=log, start_new_session=True
        )
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{self.url}/{self.alive}", timeout=1).read()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    alive = "ping"

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


class Influx1(Program):
    """Debian's InfluxDB 1.6."""

    name = package = "influxd"
    package = "influxdb"

    def command(self) -> list[str]:
        config = self.folder / "influxdb.conf"
        config.write_text(
            f'reporting-disabled = true\nbind-address = "127.0.0.1:{free_port()}"\n'
            f'[meta]\n  dir = "{self.folder}/meta"\n'
            f'[data]\n  dir = "{self.folder}/data"\n  wal-dir = "{self.folder}/wal"\n'
            f'  wal-fsync-delay = "0s"\n'
            f'[http]\n  bind-address = "127.0.0.1:{self.port}"\n  log-enabled = false\n'
        )
        return ["influxd", "-config", str(config)]

    def create(self, database: str) -> None:
        data = urllib.parse.urlencode({"q": f'CREATE DATABASE "{database}"'}).encode()
        urllib.request.urlopen(f"{self.url}/query", data, timeout=10).read()

    def query(self, text: str, database: str = "trainium-labs") -> list[dict]:
        found = json.loads(self.get("query", db=database, epoch="ns", q=text))["results"][0]
        assert "error" not in found, found
        return found.get("series", [])

    def count(self) -> int:
        found = self.query('SELECT count("p50") FROM "latency"')
        return found[0]["values"][0][1] if found else 0


class Victoria(Program):
    """Debian's VictoriaMetrics: it takes the official InfluxDB 2 client's writes."""

    name = package = "victoria-metrics"
    alive = "health"

    def command(self) -> list[str]:
        # a point that is sent twice is kept once, as InfluxDB does by itself
        return [
            "victoria-metrics",
            f"-storageDataPath={self.folder}/vm",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-dedup.minScrapeInterval=1ms",
            "-retentionPeriod=100y",
        ]

    def kill(self) -> None:
        """End it in order: it answers before it has written to disk, and says so in its manual, so
        a kill loses what it has taken in the last seconds, whoever sent it."""
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def samples(self) -> list[tuple[str, int]]:
        """Return (labels, time in ms) of every sample of p50."""
        self.get("internal/force_flush")
        out = []
        for line in self.get(
            "api/v1/export", **{"match[]": "latency_p50", "start": "0"}
        ).splitlines():
            one = json.loads(line)
            out += [(json.dumps(one["metric"], sort_keys=True), t) for t in one["timestamps"]]
        return out


def environment(server: Program) -> dict[str, str]:
    return {
        **os.environ,
        "INFLUXDB_V2_URL": server.url,
        "INFLUXDB_V2_ORG": "class",
        "INFLUXDB_V2_TOKEN": "not-a-secret",
    }
