"""A proxy on loopback: it logs each call, answers those of `answers.py`, and passes on the rest."""

from __future__ import annotations

import http.client
import json
import re
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .answers import ANSWERS, Call, Memory

HOP = ("connection", "transfer-encoding", "content-length", "keep-alive", "date", "server")


def call_of(method: str, path: str, headers: Any, body: bytes, memory: Memory) -> Call:
    """Return what a request asks for; the operation of a REST service is its method and the first
    part of its path."""
    scope = re.search(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/", headers.get("Authorization") or "")
    region, service = (scope[1], scope[2]) if scope else ("us-east-1", "none")
    if (headers.get("Content-Type") or "").startswith("application/x-www-form"):
        form = dict(urllib.parse.parse_qsl(body.decode()))
        return Call(service, region, form.pop("Action", "?"), form, memory)
    try:
        params = json.loads(body or b"{}")
    except ValueError:  # a file on its way to S3
        params = {}
    if target := headers.get("X-Amz-Target"):
        return Call(service, region, target.split(".")[-1], params, memory)
    first = path.split("?")[0].split("/")[1]
    return Call(service, region, f"{method} /{first}", params, memory)


class Proxy:
    """Hold a running proxy: `url`, and `log`, whose entries are dicts."""

    def __init__(self, upstream: str) -> None:
        self.log: list[dict[str, Any]] = []
        self.memory: Memory = {}
        host = upstream.removeprefix("http://")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                """Answer or pass on one request."""
                n = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(n) if n else b""
                if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                    body = _chunks(self.rfile)
                call = call_of(self.command, self.path, self.headers, body, outer.memory)
                entry = {"service": call.service, "region": call.region, "op": call.op}
                entry["by"] = "ministack"
                answer = ANSWERS.get((call.service, call.op))
                reply = answer.reply(call) if answer else None
                if reply is not None:
                    entry.update(by="proxy", status=reply.status)
                    self.send(reply.status, [("Content-Type", reply.kind)], reply.body)
                else:
                    entry["status"] = self.pass_on(body)
                outer.log.append(entry)

            def pass_on(self, body: bytes) -> int:
                """Ask the emulator; return the status of its answer."""
                upstream = http.client.HTTPConnection(host, timeout=120)
                drop = ("transfer-encoding", "content-length", "expect")
                headers = {k: v for k, v in self.headers.items() if k.lower() not in drop}
                headers["Content-Length"] = str(len(body))
                upstream.request(self.command, self.path, body, headers)
                answer = upstream.getresponse()
                data = answer.read()
                kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in HOP]
                length = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.send(answer.status, kept, data, length)
                upstream.close()
                return answer.status

            def send(
                self, status: int, headers: list[Any], body: bytes, length: str | None = None
            ) -> None:
                """Send an answer."""
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", length or str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = handle_any

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """End the proxy."""
        self.server.shutdown()
        self.server.server_close()


def _chunks(stream: Any) -> bytes:
    out = b""
    while size := int(stream.readline().split(b";")[0], 16):
        out += stream.read(size)
        stream.readline()
    stream.readline()
    return out
