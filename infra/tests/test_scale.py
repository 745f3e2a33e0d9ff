"""A course of a thousand: what docs/scale.md says on paper, and what the fake counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import scale_table
from conftest import START, ClassFolder, Classroom, Lab, commands_at, talk_to
from labcloud.client import LabCloud
from test_rates import asks_too_fast, guards_of, minutes

REGIONS = ["us-east-1", "us-east-2", "us-west-2"]
VCPUS = "L-2C3B7624"


@pytest.fixture()
def classroom(cloud: LabCloud, monkeypatch: pytest.MonkeyPatch) -> Classroom:
    """Return commands whose minutes are counted: no listing is late."""
    return commands_at(cloud, monkeypatch)


def run_all(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, students: int
) -> dict[str, tuple[int, float]]:
    """Let a class over three regions live; return command -> calls and virtual minutes."""
    each = -(-students // 3)
    cloud.post("set", quotas={"*": 100_000.0, VCPUS: each * 8.0}, regions=REGIONS)
    folder.write(students, regions=REGIONS)
    took = {}
    ups = {"provision": students, "status": students, "stop": 0, "teardown": 0}
    for command, up in ups.items():
        mark = len(cloud.log())
        more = {"discard_work": folder.data["name"]} if command in ("provision", "teardown") else {}
        done = classroom(command, folder.file, **more)
        assert done.get("exit_code", 0) == 0, (command, done["summary"], done.get("warnings"))
        assert len(cloud.running()) == up, command
        log = cloud.log(mark)
        assert not asks_too_fast(log), command
        took[command] = (len(log), minutes(log))
        if command == "provision":
            assert Counter(guards_of(cloud)) == {"armed": students}
    assert cloud.leftovers() == []
    print(students, "students, calls and virtual minutes:", took)  # shown with -s
    return took


def as_counted(took: dict[str, tuple[int, float]], students: int) -> None:
    """Hold a run to the calls and minutes that the table computes."""
    for command in scale_table.COUNTED:
        calls, paper = took[command][0], scale_table.calls(command, students)
        assert abs(calls - paper) <= 5 + 0.1 * paper, (command, calls, paper)
    waits = scale_table.provision_minutes(scale_table.Course(students, 1))
    assert 0.7 * waits < took["provision"][1] < 1.5 * waits + 2, (took["provision"], waits)


@pytest.mark.full
def test_a_thousand_over_three_regions(lab: Lab) -> None:
    as_counted(run_all(lab.folder, lab.cloud, lab, 1000), 1000)


@pytest.mark.full
def test_a_thousand_over_two_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two classes of five hundred, as docs/scale.md says: a folder, a name and an account each."""
    for account, name in (("111111111111", "lab-a"), ("222222222222", "lab-b")):
        (tmp_path / name).mkdir()
        folder = ClassFolder(tmp_path / name)
        folder.write(0, name=name, account=account)
        with LabCloud(START, account) as cloud, monkeypatch.context() as patch:
            talk_to(cloud, patch)
            classroom = commands_at(cloud, patch)
            as_counted(run_all(folder, cloud, classroom, 500), 500)


@pytest.mark.full
def test_sixty_over_three_regions(lab: Lab) -> None:
    as_counted(run_all(lab.folder, lab.cloud, lab, 60), 60)


def test_the_table_is_computed() -> None:
    (written,) = scale_table.PLACE.findall(scale_table.PAGE.read_text(encoding="utf-8"))
    assert written == scale_table.table(), "run python infra/tests/scale_table.py"


def test_a_class_without_room_in_one_region_goes_on_in_the_next(lab: Lab) -> None:
    lab.post("set", quotas={"*": 100_000.0, VCPUS: 16.0}, regions=REGIONS)
    lab.write(7, regions=REGIONS)
    done = lab("provision")
    assert done["exit_code"] == 1 and len(done["launched"]) == 6 and len(done["unplaced"]) == 1
    regions = Counter(r["region"] for r in lab.machines())
    assert regions == dict.fromkeys(REGIONS, 2)
