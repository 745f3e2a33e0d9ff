"""A provisioned class whose students have links, and what a browser or my.py sends to them."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from conftest import ClassFolder, Classroom
from function_server import FunctionServer
from labcloud.client import LabCloud

REGION = "us-east-2"


def ask(link: str, form: dict[str, str] | None = None, method: str = "") -> dict[str, Any]:
    """Send one request as my.py does; return the answer."""
    body = urllib.parse.urlencode(form).encode() if form is not None else None
    request = urllib.request.Request(
        link, body, {"Accept": "application/json"}, method=method or None
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return {"facts": None, "ticket": "", "retry": 0, **json.load(error), "status": error.code}


def act(link: str, do: str) -> dict[str, Any]:
    """Press a button of the page."""
    return ask(link, {"do": do, "t": ask(link)["ticket"]})


def changed(link: str, **values: str) -> str:
    """Return a link with other values in it."""
    head, _, query = link.partition("?")
    return head + "?" + urllib.parse.urlencode({**dict(urllib.parse.parse_qsl(query)), **values})


class Class:
    """Hold a provisioned class with links, and its running function."""

    def __init__(self, folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
        self.folder, self.cloud, self.classroom = folder, cloud, classroom
        assert classroom("provision", folder.file)["exit_code"] == 0
        self.provisioned = cloud.post("now")["now"]
        cloud.post("advance", seconds=120)
        name = f"trainium-labs_{folder.data['name']}_my"
        self.server = FunctionServer(cloud, folder.path, REGION, name)
        self.links = self.read()

    def read(self) -> dict[str, str]:
        """Write the pages and return student -> link, as the pages show them."""
        self.classroom("pages", self.folder.file)
        out = {}
        for student in self.folder.students:
            page = self.folder.path / "out" / self.folder.data["name"] / f"{student}.md"
            (link,) = [w[1:-1] for w in page.read_text().split() if w.startswith("<https://")]
            out[student] = self.server.local(link)
        return out

    def state(self, student: str) -> str:
        """Return the state of a student's machine."""
        return ask(self.links[student])["facts"]["state"]
