"""The server: where it is, how points get there, how they come back.

Variables are those of the official client (INFLUXDB_V2_URL, _ORG, _TOKEN) and
INFLUXDB_V2_BUCKET (default trainium-labs). InfluxDB 2 and what speaks its write API is written to
with that client; InfluxDB 1 below 1.8, which it cannot write to, through its own /write.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..spec import SpecError
from .points import MEASUREMENT, TAGS

TIMEOUT_S = 3.0


class HistoryError(SpecError):
    """The server did not take or give points; the text is a sentence."""


class Unreachable(HistoryError):
    """The server cannot be reached now; points wait."""


@dataclass(frozen=True)
class Server:
    """A server and the bucket (or database) there."""

    url: str
    org: str = ""
    token: str = ""
    bucket: str = "trainium-labs"

    @property
    def name(self) -> str:
        """Return what identifies it among servers."""
        return f"{self.url} {self.bucket}"

    def _open(self, path: str, data: bytes | None = None, **query: str) -> tuple[bytes, Any]:
        url = f"{self.url}/{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        headers = {"Authorization": f"Token {self.token}"} if self.token else {}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers), timeout=TIMEOUT_S
            ) as answer:
                return answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            raise HistoryError(
                self._refusal(error.code, error.read().decode(errors="replace"))
            ) from None
        except (OSError, ValueError) as error:
            raise Unreachable(
                f"the history server {self.url} does not answer ({getattr(error, 'reason', error)})"
            ) from None

    def _refusal(self, code: int, text: str) -> str:
        if code in (401, 403):
            return f"{self.url} refuses the token; INFLUXDB_V2_TOKEN must be one that may write"
        if code == 404 or "not found" in text:
            return (
                f"{self.url} has no bucket {self.bucket!r} (InfluxDB 1: no such database): "
                "make it, or name yours with INFLUXDB_V2_BUCKET"
            )
        return f"{self.url} refuses the points ({code}): {' '.join(text.split())[:200]}"

    def is_v1(self) -> bool:
        """Return whether it is an InfluxDB 1, which says its version at /ping."""
        return self._open("ping")[1].get("X-Influxdb-Version", "").lstrip("v").startswith("1.")

    def write(self, points: Sequence[dict[str, Any]]) -> None:
        """Write points; when this returns, the server has them."""
        try:
            from influxdb_client import InfluxDBClient, Point
            from influxdb_client.client.write_api import SYNCHRONOUS
            from influxdb_client.rest import ApiException
        except ImportError:
            raise HistoryError(
                "the history server needs the package influxdb-client: run  "
                'python -m pip install -e ".[history]"'
            ) from None
        if self.is_v1():
            lines = "\n".join(Point.from_dict(dict(p)).to_line_protocol() for p in points)
            self._open("write", lines.encode(), db=self.bucket, precision="ns")
            return
        try:
            with InfluxDBClient(
                self.url, token=self.token, org=self.org, timeout=int(TIMEOUT_S * 1000)
            ) as client:
                client.write_api(write_options=SYNCHRONOUS).write(
                    self.bucket, record=[dict(p) for p in points]
                )
        except ApiException as error:
            raise HistoryError(
                self._refusal(error.status or 0, str(error.body or error.reason))
            ) from None
        except Exception as error:  # urllib3's, which the client lets through
            raise Unreachable(
                f"the history server {self.url} does not answer ({type(error).__name__})"
            ) from None

    def read(self) -> list[dict[str, Any]]:
        """Return all points, by InfluxQL: InfluxDB 1, and 2 through its 1.x-compatible door."""
        query = f'SELECT "p50", "right" FROM "{MEASUREMENT}" GROUP BY {", ".join(TAGS)}'
        body, _ = self._open("query", db=self.bucket, epoch="ns", q=query)
        try:
            series = json.loads(body)["results"][0].get("series", ())
        except (ValueError, KeyError, IndexError, TypeError):
            raise HistoryError(f"{self.url} does not answer InfluxQL") from None
        return [
            {
                "measurement": MEASUREMENT,
                "tags": one["tags"],
                "time": row[0],
                "fields": {k: v for k, v in zip(one["columns"][1:], row[1:]) if v is not None},
            }
            for one in series
            for row in one["values"]
        ]


def configured() -> Server | None:
    """Return the server that the environment names, if any; LABKIT_HISTORY=off turns it off."""
    url = os.environ.get("INFLUXDB_V2_URL")
    if not url or os.environ.get("LABKIT_HISTORY") == "off":
        return None
    return Server(
        url.rstrip("/"),
        os.environ.get("INFLUXDB_V2_ORG", ""),
        os.environ.get("INFLUXDB_V2_TOKEN", ""),
        os.environ.get("INFLUXDB_V2_BUCKET", "trainium-labs"),
    )
