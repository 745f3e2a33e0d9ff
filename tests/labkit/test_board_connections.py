"""Connections to the live server that keep others out."""

from __future__ import annotations

import asyncio
import os

import pytest

from labkit.board import live

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")


def test_connections_without_a_request_end(monkeypatch):
    """Slow heads, and pages that are not read, would be all connections that there may be."""
    import uvicorn

    monkeypatch.setattr(live, "HEAD_S", 0.2)

    async def hello(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send(
            {
                "type": "http.response.body",
                "body": b"x" * (1 << 18 if scope["path"] == "/big" else 5),
            }
        )

    async def talk(port, *parts):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.02)
        return reader, writer

    async def all_of_it():
        server = uvicorn.Server(
            uvicorn.Config(
                hello,
                port=0,
                http=live.prompt(),
                ws="none",
                log_level="error",
                limit_concurrency=4,
                lifespan="off",
            )
        )
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        held = [
            await talk(port, b"GET / HT"),
            await talk(port, whole, b"GET / HT"),
            await talk(port, b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"),
        ]
        assert len(server.server_state.connections) == 3
        await asyncio.sleep(0.4)
        for _ in range(4):
            for _, writer in held[:2]:  # a byte now and then
                if not writer.is_closing():
                    writer.write(b"T")
            await asyncio.sleep(0.05)
        left = len(server.server_state.connections)
        reader, _ = await talk(port, whole)
        said = await reader.readline()
        server.should_exit = True
        await asyncio.wait_for(serving, 20)
        return left, said

    left, said = asyncio.run(all_of_it())
    assert left == 0 and b"200" in said
