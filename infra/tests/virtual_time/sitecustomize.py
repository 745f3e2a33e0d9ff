"""Let commands that tests start as processes wait in the fake cloud's time.

What runs in a test's own process does so by the fixture `cloud` (conftest.py). Python imports this
module when it starts, if its folder is on PYTHONPATH (labcloud/client.py).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import urllib.request
from pathlib import Path


def install(url: str) -> None:
    """Replace the clock of the commands by the fake cloud's."""
    infra = str(Path(__file__).resolve().parents[2])
    sys.path.insert(0, infra)
    from classroom.aws import rate_limit

    sys.path.remove(infra)

    def post(what: str, **body: float) -> dict[str, float]:
        with urllib.request.urlopen(f"{url}/lab/{what}", json.dumps(body).encode()) as answer:
            return json.load(answer)

    rate_limit.clock = lambda: post("now")["at"]
    rate_limit.now = lambda: dt.datetime.fromtimestamp(rate_limit.clock(), dt.timezone.utc)
    rate_limit.sleep = lambda seconds: post("until", at=rate_limit.clock() + seconds)


if clock := os.environ.get("LABCLOUD_CLOCK"):
    install(clock)
