"""docs/class-days.md, replayed: every command runs and prints what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import INFRA, public_key
from function_server import FunctionServer
from labcloud.client import LabCloud

PAGE = INFRA.parent / "docs/class-days.md"
SETUP = INFRA.parent / "AWS_SETUP.md"
PARTS = re.compile(
    r"^```(?P<kind>console|yaml|csv)(?: (?:as|file)=(?P<name>\S+))?\n(?P<text>.*?)^```$"
    r"|^<!-- passes: (?P<hours>\d+) hours, (?P<how>busy|idle) -->$"
    r'|^<!-- edit (?P<file>\S+): "(?P<old>.*?)" => "(?P<new>.*?)" -->$',
    re.M | re.S,
)


class Days:
    """Hold the home folder of the page, and do what its parts say."""

    def __init__(self, cloud: LabCloud, home: Path) -> None:
        self.cloud, self.home, self.count = cloud, home, 0
        self.server: FunctionServer | None = None
        (home / ".ssh").mkdir(parents=True)
        (home / ".ssh/id_ed25519.pub").write_text(public_key(1))
        (home / "password").write_text("a long enough password\n")

    def commands(self, text: str, student: str) -> None:
        """Run the commands of a console block."""
        for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            code = 0
            if shown and (end := re.fullmatch(r"\(exit code (\d+)\)", shown[-1])):
                code, shown = int(end[1]), shown[:-1]
            said = self.run(command, student, code)
            for line in shown:
                assert " ".join(line.split()) in said, f"$ {command}\n{line}\nis not in\n{said}"
            self.count += 1

    def run(self, command: str, student: str, code: int) -> str:
        """Run one command as staff or as a student; return what it said, in one line."""
        program, *words = shlex.split(command.replace("~/", f"{self.home}/"))
        assert program == "python"
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "COLUMNS": "200"}
        folder = self.home
        if student:
            folder = self.student(student)
        else:
            environ |= {
                **self.cloud.in_its_time,
                "CLASSROOM_NOW": self.cloud.post("now")["now"],
                "ANSIBLE_VAULT_PASSWORD_FILE": str(self.home / "password"),
            }
        return self.ended([sys.executable, *words], command, folder, environ, code)

    def ended(
        self, words: list[str], command: str, folder: Path, environ: dict[str, str], code: int
    ) -> str:
        """Run a program to its end, which must have an exit code; return what it said."""
        done = subprocess.run(
            words,
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == code, f"$ {command}\n{said}"
        self.cloud.settle()
        return said

    def student(self, name: str) -> Path:
        """Return a student's folder with the my.py that the link gives."""
        folder = self.home / name
        if not folder.exists():
            self.server = FunctionServer(
                self.cloud, self.home, "us-east-2", "trainium-labs_nki-fall_my"
            )
            text = (self.home / f"nki-fall/out/nki-fall/{name}.md").read_text()
            (link,) = re.findall(r"<(https://\S+)>", text)
            with urllib.request.urlopen(
                self.server.local(link) + "&" + urllib.parse.urlencode({"get": "my.py"})
            ) as answer:
                program = answer.read().decode()
            folder.mkdir()
            (folder / "my.py").write_text(program.replace("'https://127.", "'http://127."))
        return folder

    def passes(self, hours: int, busy: bool) -> None:
        """Let time pass on machines that compute, or do not."""
        assert self.server is not None
        now = self.cloud.post("now")["at"]
        if busy:
            import datetime as dt

            for i in self.cloud.running():
                begin, end = (
                    dt.datetime.fromtimestamp(t, dt.timezone.utc).isoformat()
                    for t in (now, now + hours * 3600)
                )
                self.cloud.post("busy", instance=i, start=begin, end=end)
        self.server.pass_time(hours * 60)

    def edit(self, name: str, old: str, new: str) -> None:
        """Do what the page says of a file."""
        path = self.home / ("nki-fall" if name == "class.yml" else ".") / name
        old, new = (t.encode().decode("unicode_escape") for t in (old, new))
        text = path.read_text()
        assert old in text, text
        path.write_text(text.replace(old, new))


@pytest.fixture()
def days(cloud: LabCloud, tmp_path: Path) -> Iterator[Days]:
    """Return the page's home folder; the function that students reach ends with the test."""
    made = Days(cloud, tmp_path / "home")
    yield made
    if made.server is not None:
        made.server.process.kill()
        made.server.process.wait()


@pytest.mark.full
def test_every_command_of_the_page_does_what_it_shows(days: Days) -> None:
    for part in PARTS.finditer(PAGE.read_text(encoding="utf-8")):
        if part["kind"] == "console":
            days.commands(part["text"], part["name"] or "")
            if "teardown" in part["text"] and days.server:
                days.server.process.kill()  # the function is gone, and so is its address
                days.server.process.wait()
        elif part["kind"]:
            (days.home / part["name"]).write_text(part["text"])
        elif part["hours"]:
            days.passes(int(part["hours"]), part["how"] == "busy")
        else:
            days.edit(part["file"], part["old"], part["new"])
    assert days.count >= 25 and days.cloud.leftovers() == []


class FirstDay(Days):
    """Walk the first page of AWS_SETUP.md in a shell, from an empty home folder."""

    def run(self, command: str, student: str, code: int) -> str:
        """Run one command of the page; return what it said, in one line."""
        environ = {
            **self.cloud.in_its_time,
            "HOME": str(self.home),
            "COLUMNS": "200",
            "CLASSROOM_NOW": self.cloud.post("now")["now"],
            "PATH": os.environ["PATH"],
        }
        return self.ended(["bash", "-c", command], command, self.home, environ, code)


@pytest.mark.full
def test_the_first_page_of_the_setup_brings_one_machine_up_and_down(
    cloud: LabCloud, tmp_path: Path
) -> None:
    page = SETUP.read_text(encoding="utf-8").split("## A class, step by step")[0]
    assert len(page.rstrip().splitlines()) <= 60, "one page"
    day = FirstDay(cloud, tmp_path / "home")
    for part in re.finditer(
        r"^```(?:yaml file=(\S+)|console)\n(.*?)^```$|^<!-- passes: (\d+) minutes -->$",
        page,
        re.M | re.S,
    ):
        name, text, minutes = part.groups()
        if name:
            (day.home / name).write_text(text)
        elif minutes:
            cloud.post("advance", seconds=60 * int(minutes))
        else:
            day.commands(text, "")
    assert day.count == page.count("\n$ ") >= 8
    assert [e["kind"] for e in cloud.post("events")].count("running") == 1
    assert cloud.leftovers() == []


def test_nothing_of_the_page_is_left_out() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(PARTS.findall(text)) == text.count("\n```") // 2 + text.count("<!--")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs wait in real time no longer than they must."""
    monkeypatch.setenv("CLASSROOM_ATTEMPTS", "2")
