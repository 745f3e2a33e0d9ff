"""Start ministack and the proxy before it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from other_tools import find

from .proxy import Proxy


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class SecondCloud:
    """Hold a running emulator and its proxy; use as a context manager."""

    def __init__(self) -> None:
        command = find("ministack")
        assert command, "ministack is not installed"
        port = free_port()
        self.home = Path(tempfile.mkdtemp(prefix="ministack-"))
        environ = {
            "PATH": f"{Path(command).parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "LOG_LEVEL": "WARNING",
        }
        self.output = (self.home / "log").open("wb")
        self.process = subprocess.Popen(
            [command], env=environ, cwd=self.home, stdout=self.output, stderr=subprocess.STDOUT
        )
        self.upstream = f"http://127.0.0.1:{port}"
        self._wait()
        self.proxy = Proxy(self.upstream)

    def _wait(self) -> None:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{self.upstream}/_ministack/health", timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)
                if self.process.poll() is not None:
                    break
        raise RuntimeError((self.home / "log").read_text(errors="replace")[-2000:])

    def __enter__(self) -> SecondCloud:
        return self

    def __exit__(self, *_: Any) -> None:
        self.proxy.close()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def log(self) -> list[dict[str, Any]]:
        """Return the calls so far."""
        return self.proxy.log

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment that makes boto3 and Ansible talk to this cloud."""
        return {
            "AWS_ACCESS_KEY_ID": "AKIAFAKE",
            "AWS_SECRET_ACCESS_KEY": "fake",
            "AWS_ENDPOINT_URL": self.proxy.url,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }
