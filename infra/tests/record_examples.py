"""Record what a cloud answers during a class's life: `record_examples.py labcloud|ministack FILE`.

For labcloud that takes seconds; the other needs ministack (infra/requirements-tools.txt).
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from classroom.aws import rate_limit
from classroom.cli import commands
from classroom.cli.recording import recording
from conftest import START, ClassFolder
from labcloud.client import LabCloud
from secondcloud.cloud import SecondCloud

LIFE = ("provision", "status", "stop", "start", "teardown")


def life(folder: ClassFolder, file: Path, cloud: Any) -> None:
    """Take a class of one through its life, and record it."""
    for command in LIFE:
        options = (
            {"discard_work": folder.data["name"]} if command in ("provision", "teardown") else {}
        )
        if isinstance(cloud, LabCloud):
            os.environ["CLASSROOM_NOW"] = cloud.post("now")["now"]
        with recording(str(file), command, folder.file, options):
            done = commands.run(command, str(folder.file), **options)
        print(command, done["summary"])
        if isinstance(cloud, LabCloud):
            cloud.post("advance", seconds=60)


def main(which: str, file: Path) -> None:
    """Record one of them to a new file."""
    with tempfile.TemporaryDirectory() as place:
        folder = ClassFolder(Path(place))
        folder.write(["alice"], regions=["us-east-2"])
        if which == "labcloud":
            with LabCloud(START) as lab:
                os.environ.update(lab.environ)
                rate_limit.clock = lambda: lab.post("now")["at"]
                rate_limit.sleep = lambda s: lab.post("advance", seconds=s)  # type: ignore[assignment]
                life(folder, file, lab)
        else:
            end = dt.date.today() + dt.timedelta(weeks=8)
            folder.write(teardown=end.isoformat())
            with SecondCloud() as second:
                os.environ.update(second.environ)
                life(folder, file, second)
    file.with_name(file.name + ".private").unlink()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve())
