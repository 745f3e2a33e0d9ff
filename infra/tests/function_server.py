"""Runs a deployed function as Lambda's function URL does: a real HTTP server whose requests become
events, with the archive, the environment and the permissions that were deployed.

A process of its own. What differs from Lambda: the runs share one process (and so its memory), and
the time is the fake cloud's. Source: Lambda guide, "Invoking Lambda function URLs" (payload format
2.0; beyond the reserved concurrency the answer is 429).
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

from labcloud.client import LabCloud

KEY = "AKIAFUNCTION"


class FunctionServer:
    """Hold one running function; use as a context manager."""

    def __init__(self, cloud: LabCloud, folder: Path, region: str, name: str) -> None:
        self.cloud, self.seen = cloud, len(cloud.post("events"))
        found = cloud.post("deployed", region=region, name=name)
        self.open = found["open"]
        cloud.post("permit", key=KEY, policies=found["policies"], boundary=found["boundary"])
        self.code = folder / "function"
        with zipfile.ZipFile(io.BytesIO(base64.b64decode(found["zip"]))) as z:
            z.extractall(self.code)
        environ = {
            "PATH": os.environ["PATH"],
            **cloud.environ,
            "AWS_ACCESS_KEY_ID": KEY,
            **found["environment"],
            "LAB_URL": cloud.url,
            "PYTHONPATH": str(self.code),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, __file__, found["handler"], str(found["concurrency"] or 1000)],
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/"

    def __enter__(self) -> FunctionServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.wait()

    def local(self, link: str) -> str:
        """Return a link as it is answered here."""
        return self.url + "?" + link.split("?", 1)[1]

    def invoke(self, payload: dict[str, Any]) -> Any:
        """Call the function as a service does."""
        request = urllib.request.Request(self.url + "invoke", json.dumps(payload).encode())
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def due(self) -> list[Any]:
        """Run what schedules have called for since the last time; return the answers."""
        events = self.cloud.post("events")
        fresh, self.seen = events[self.seen :], len(events)
        return [self.invoke(e["payload"]) for e in fresh if e["kind"] == "invoke"]

    def pass_time(self, minutes: float) -> None:
        """Let virtual time pass; schedules that call the function are answered within 15
        minutes."""
        while minutes > 0:
            step = min(15, minutes)
            self.cloud.post("advance", seconds=step * 60)
            self.due()
            minutes -= step


def _serve(handler_name: str, concurrency: int) -> None:
    module_name, _, function_name = handler_name.rpartition(".")
    module = import_module(module_name)
    handler = getattr(module, function_name)

    class Time:
        """The fake's time for the function's modules; waiting takes none."""

        @staticmethod
        def time() -> float:
            with urllib.request.urlopen(os.environ["LAB_URL"] + "/lab/now", b"{}") as answer:
                return float(json.load(answer)["at"])

        @staticmethod
        def sleep(_: float) -> None:
            return

    aws = import_module(module_name.rpartition(".")[0] + ".aws")
    module.time = aws.time = Time  # type: ignore[attr-defined]
    room = threading.BoundedSemaphore(concurrency)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, query = self.path.partition("?")
            if path == "/invoke":
                self.answer(200, {}, json.dumps(handler(json.loads(body), None)))
                return
            if not room.acquire(blocking=False):
                self.answer(429, {}, '{"Reason":"ReservedFunctionConcurrentInvocationLimitExce"}')
                return
            try:
                event = {
                    "version": "2.0",
                    "rawPath": path,
                    "rawQueryString": query,
                    "queryStringParameters": dict(urllib.parse.parse_qsl(query)) or None,
                    "headers": {k.lower(): v for k, v in self.headers.items()},
                    "requestContext": {
                        "domainName": self.headers.get("Host", ""),
                        "http": {"method": self.command, "path": path, "sourceIp": "203.0.113.9"},
                    },
                    "body": base64.b64encode(body).decode() if body else None,
                    "isBase64Encoded": bool(body),
                }
                done = handler(event, None)
                self.answer(done["statusCode"], done["headers"], done["body"])
            except Exception as error:
                print(repr(error), file=sys.stderr)
                self.answer(502, {}, '{"Message":"Internal Server Error"}')
            finally:
                room.release()

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do

        def answer(self, status: int, headers: dict[str, str], text: str) -> None:
            data = text.encode()
            self.send_response(status)
            for k, v in headers.items():
                self.send_header(k, v)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        request_queue_size = 512
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    time.tzset()
    _serve(sys.argv[1], int(sys.argv[2]))
