"""A bad description of a class gives one sentence for each mistake, with its line, and touches
nothing."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from classroom.aws.problems import BadClass
from classroom.spec import class_file, courses, roster, sdk
from conftest import INFRA, ClassFolder, public_key

NOW = dt.datetime(2026, 11, 21, tzinfo=dt.timezone.utc)
TEN = """\
name: NKI Fall
contact: staff
regions: [us-east-2, ohio]
instance_type: trn1.2xlrge
mode: per_student
sdk: "2.30"
ssh_cidrs: [0.0.0.0/0]
staff_key: staff.pub
budget: {per_student_usd: 50, class_usdd: 100}
stop_nightly: 23:30
time_zone: America/NewYork
teardown: 2026-01-15
lab: {repository: https://github.com/x/y.git, commit: main}
"""


def problems(file: Path) -> list[str]:
    """Return the sentences that loading a class gives."""
    try:
        class_file.load(file, NOW)
    except BadClass as error:
        return list(map(str, error.problems))
    return []


def test_many_mistakes_are_told_in_one_pass_each_with_its_line(folder: ClassFolder) -> None:
    folder.file.write_text(TEN)
    found = problems(folder.file)
    wanted = [
        (1, "class name"),
        (2, "e-mail"),
        (3, "'ohio'"),
        (4, "Did you mean trn1.2xlarge?"),
        (5, "`mode`"),
        (6, "compile error"),
        (7, "whole world"),
        (9, "`budget.class_usd` is missing"),
        (9, "Did you mean `class_usd`?"),
        (10, "not quoted"),
        (11, "Did you mean America/New_York?"),
        (12, "not in the future"),
        (13, "40 hex digits"),
    ]
    for line, words in wanted:
        assert any(p.startswith(f"class.yml:{line}: ") and words in p for p in found), (
            line,
            words,
            found,
        )
    assert len(found) == len(wanted), found


def test_the_example_is_right_but_for_the_key(folder: ClassFolder) -> None:
    for name in ("class.yml", "roster.csv"):
        (folder.path / name).write_text(
            (INFRA / "examples" / name).read_text().replace("~/.ssh/id_ed25519.pub", "staff.pub")
        )
    loaded = class_file.load(folder.file, NOW)
    assert [s.id for s in loaded.students] == ["alice", "bob"]


WORLD = ["0.0.0.0/0", "::/0"]
TRN2 = {"instance_type": "trn2.3xlarge"}
BLOCK = {**TRN2, "market": "capacity-block"}
# what class.yml says instead, and the words of each mistake
CHANGES: list[tuple[dict[str, Any], list[str]]] = [
    ({"ssh_cidrs": WORLD}, ["whole world", "whole world"]),
    ({"ssh_cidrs": ["10.0.0.0/8"], "allow_world": "yes"}, ["`allow_world` is 'yes'"]),
    ({"ssh_cidrs": WORLD, "allow_world": "yes-i-mean-it"}, []),
    ({"sdk": "latest"}, ["a surprise, not a pin"]),
    ({"sdk": 2.3}, ["2.3"]),
    ({"sdk": "2.99.0"}, ["2.99.0"]),
    (TRN2, ["capacity blocks only"]),
    (BLOCK, ["how long or how much"]),
    ({**BLOCK, "capacity_block": {"hours": 24, "max_upfront_usd": 120}}, []),
    ({"name": None}, ["`name` is empty"]),
    ({"hours_per_student": "many"}, ["not a number"]),
    ({"elastic_ip": "maybe"}, ["not true or false"]),
    ({"disk_gib": 150.5}, ["not a whole number"]),
]


@pytest.mark.parametrize(("changes", "words"), CHANGES)
def test_each_mistake_is_said_once_and_in_plain_words(
    folder: ClassFolder, changes: dict[str, Any], words: list[str]
) -> None:
    folder.file.write_text(yaml.safe_dump({**folder.data, **changes}))
    found = problems(folder.file)
    assert len(found) == len(words) and all(w in p for w, p in zip(words, found)), found
    assert not any("Input" in p for p in found)


@pytest.mark.parametrize(
    ("version", "dialect", "good"),
    [
        ("2.26.1", "neuronxcc.nki", True),
        ("2.29.1", "neuronxcc.nki", True),
        ("2.30.0", "neuronxcc.nki", False),
        ("2.26.1", "nki", False),
        ("2.27.0", "nki", False),
        ("2.28.1", "nki", False),
        ("2.29.0", "nki", True),
        ("2.32.0", "nki", True),
        ("2.33.0", "nki", True),
    ],
)
def test_sdk_and_dialect_must_fit(version: str, dialect: str, good: bool) -> None:
    assert (sdk.dialect_problem(version, dialect) is None) is good


def test_a_key_written_twice_and_broken_yaml(folder: ClassFolder) -> None:
    folder.file.write_text(folder.file.read_text() + "name: other\n")
    assert any("`name` is written twice" in p for p in problems(folder.file))
    text = "budget:\n  class_usd: 5\n  class_usd: 6\nssh_cidrs:\n  - 10.0.0.0/8\n  - nowhere\n"
    folder.file.write_text(text)
    found = problems(folder.file)
    assert any(p.startswith("class.yml:3: `budget.class_usd` is written twice") for p in found)
    assert any(p.startswith("class.yml:6: ") and "nowhere" in p for p in found)
    folder.file.write_text("name: [\n")
    assert "not YAML" in problems(folder.file)[0]
    folder.file.unlink()
    assert "does not exist" in problems(folder.file)[0]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (None, "cannot be read"),
        ("a: [", "not YAML"),
        ("5", "no `key: value` pairs"),
        ("as_of: 2026-01-01\non_demand_hour: {trn1.2xlarge: free}\n", "no number above 0"),
    ],
)
def test_an_unusable_price_table(folder: ClassFolder, table: str | None, words: str) -> None:
    if table is not None:
        (folder.path / "mine.yml").write_text(table)
    folder.write(prices="mine.yml")
    (found,) = problems(folder.file)
    assert words in found and "Copy infra/classroom/money/prices.yml" in found


ROWS = [
    ("alice,alice@example.edu,", 2, "student id is the same as in line 2"),
    ("Carol,carol@example.edu,", 3, "not a name that Linux and AWS both take"),
    ("root,r@example.edu,", 3, "name of an account"),
    ("dave,dave,", 3, "not an address"),
    ("erin,erin@example.edu,-----BEGIN OPENSSH PRIVATE KEY-----", 3, "PRIVATE key"),
    ("erin,erin@example.edu,PuTTY-User-Key-File-3: ssh-ed25519", 3, "PuTTY"),
    ("erin,erin@example.edu,ssh-dss AAAAB3NzaC1kc3MAAAAB", 3, "not accepted"),
    (f"erin,erin@example.edu,{public_key(5)[:-8]}", 3, "cut off"),
    ("erin,erin@example.edu,ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC", 3, "cut off"),
    ("a,b,c,d,e", 3, "cells"),
]


@pytest.mark.parametrize(("row", "line", "words"), ROWS)
def test_a_bad_row_is_told_with_its_line(
    folder: ClassFolder, row: str, line: int, words: str
) -> None:
    (folder.path / "roster.csv").write_text(
        f"student,email,public_key\nalice,alice@example.edu,{public_key(3)}\n{row}\n"
        if line == 3
        else f"student,email,public_key\n{row}\n{row}\n"
    )
    found = problems(folder.file)
    assert any(p.startswith("roster.csv:3: ") and words in p for p in found), found


def test_messages_never_show_a_key_or_a_name(folder: ClassFolder) -> None:
    secret = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU"
    (folder.path / "roster.csv").write_text(
        "student,email,public_key\nerin,Erin Example <e@x.edu>,-----BEGIN OPENSSH PRIVATE KEY-----"
        f" {secret}\n"
    )
    text = " ".join(problems(folder.file))
    assert "PRIVATE key" in text and secret not in text and "Erin Example" not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "column `student` is missing"),
        ("student,email,public_key\n", "roster is empty"),
        ("student;email\n", "semicolons"),
        ("student\temail\nalice\ta@example.edu\n", "tabs"),
        ("student,email\nalice,a@exämple.edu\n", "other letters than a to z"),
        ("student,mail\n", "`email` is missing"),
        ("student,email,Email\nalice,a@x.edu,b@x.edu\n", "`email` is there twice"),
    ],
)
def test_an_unusable_roster(folder: ClassFolder, text: str, words: str) -> None:
    (folder.path / "roster.csv").write_text(text)
    assert any(words in p for p in problems(folder.file))


def test_excel_marks_and_windows_lines_are_fine(folder: ClassFolder) -> None:
    (folder.path / "roster.csv").write_bytes(
        f"\ufeffStudent,Email,public_key\r\nalice,a@x.edu,{public_key(9)} me\r\n\r\n".encode()
    )
    loaded = class_file.load(folder.file, NOW)
    assert loaded.students[0].public_key == public_key(9)


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_as_a_key_gives_a_sentence_or_nothing(text: str) -> None:
    found = roster.key_problem(text)
    assert found is not None and all(isinstance(part, str) and part for part in found)


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_as_class_and_roster_give_sentences(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.mktemp("any")
    (path / "class.yml").write_bytes(raw)
    (path / "roster.csv").write_bytes(raw)
    found = problems(path / "class.yml")
    assert found and all(re.match(r".+:\d+: ", p) for p in found)


def test_the_image_is_the_newest_of_the_pinned_release_and_never_a_later_one() -> None:
    images = [
        {"ImageId": f"ami-{d}", "Name": f"Deep Learning AMI Neuron (Ubuntu 22.04) {d}"}
        for d in ("20250918", "20251029", "20251112", "20251219")
    ]
    assert sdk.pick_image(images, sdk.image_query("2.26.1"))["ImageId"] == "ami-20251112"
    assert sdk.pick_image(images, sdk.image_query("2.26.0"))["ImageId"] == "ami-20250918"
    assert sdk.pick_image(images, sdk.image_query("2.25.0")) is None


def test_a_pinned_sdk_is_not_the_latest_one() -> None:
    """AWS's `latest` moves on; the description says what an image carries."""

    def image(day: str, description: str) -> dict[str, str]:
        name = f"Deep Learning AMI Neuron (Ubuntu 24.04) {day}"
        return {"Name": name, "ImageId": f"ami-{day}", "Description": description}

    query = sdk.image_query("2.33.0")
    both = [image("20261021", "x Neuron SDK 2.33.0"), image("20261215", "x Neuron SDK 2.34.0")]
    found = sdk.pick_image(both, query)
    assert found is not None and found["ImageId"] == "ami-20261021"
    assert sdk.pick_image(both[1:], query) is None
    assert sdk.pick_image([image("20261215", "nothing said")], query) is None, "no one can know"


@pytest.mark.parametrize("name", ["sudo", "lp", "neuron", "docker", "systemd-network", "node-01"])
def test_a_student_is_not_called_like_an_account_a_group_or_a_machine(
    folder: ClassFolder, name: str
) -> None:
    folder.write(["alice", name])
    assert any("account or group that exists" in p for p in problems(folder.file))
    folder.write(["alice", name + "x" if "-" not in name else "x" + name])
    assert problems(folder.file) == []


def test_the_tools_on_a_machine_name_the_release_of_their_sdk() -> None:
    assert [sdk.tools_of(v) for v in ("2.21.1", "2.22", "2.26.1", "2.32.0")] == [
        "2.20",
        "2.22",
        "2.26",
        "2.32",
    ]


def test_a_class_of_the_commit_before_the_rooms_is_read(tmp_path: Path) -> None:
    """`tests/before` holds the example class of that commit; a class is not to be written anew."""
    before = INFRA.parent / "tests" / "before"
    text = (before / "class.yml").read_text("utf-8").replace("~/.ssh/id_ed25519.pub", "staff.pub")
    (tmp_path / "class.yml").write_text(text)
    (tmp_path / "staff.pub").write_text(public_key(1))
    (tmp_path / "roster.csv").write_text((before / "students.csv").read_text("utf-8"))
    spec = class_file.load(tmp_path / "class.yml", NOW)
    assert spec.name == "nki-fall" and spec.budget.per_student_usd == 50


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"course": "trn1"}, ""),
        ({"course": "trn1", "instance_type": "inf2.xlarge"}, ""),
        (
            {
                "course": "trn2",
                "market": "capacity-block",
                "capacity_block": {"hours": 24, "max_upfront_usd": 100},
            },
            "",
        ),
        ({"course": "trn2", "dialect": "neuronxcc.nki"}, "writes nki, not neuronxcc.nki"),
        ({"course": "trn1", "sdk": "2.31.0"}, "does not run the kernels of the course trn1"),
        ({"course": "trn2", "instance_type": "trn1.2xlarge"}, "runs on trn2 machines"),
        ({"course": "trn9"}, "`course`"),
        ({"course": "trn3"}, "no Trainium 3 machine for a class"),
        ({"course": "trn3"}, "Write `course: trn2`"),
        ({"instance_type": "trn3.48xlarge"}, "--target trn3"),
    ],
)
def test_the_course_decides_and_explicit_keys_must_agree(
    folder: ClassFolder, changes: dict, said: str
) -> None:
    for key in ("sdk", "instance_type"):
        del folder.data[key]
    file = folder.write(2, **changes)
    if said:
        assert any(said in problem for problem in problems(file)), problems(file)
        return
    spec = class_file.load(file, NOW)
    course = courses.COURSES[changes["course"]]
    assert (spec.dialect, spec.sdk) == (course.dialect, course.sdk)
    assert spec.instance_type == changes.get("instance_type", course.instance_type)


def test_courses_are_those_of_the_simulator() -> None:
    nkisim = pytest.importorskip("nkisim")
    for name, course in courses.COURSES.items():
        row = nkisim.course.COURSES[name]
        assert (course.dialect, course.sdk) == (row.package, row.sdk)
        assert course.instance_type == row.instance_type
