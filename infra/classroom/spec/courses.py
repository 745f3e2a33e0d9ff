"""Courses: `course: trn2` in class.yml decides dialect, Neuron SDK and instance type together.

The same rows as in nkisim/course.py, which the classroom does not import; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import instance_types
from . import sdk as sdks


@dataclass(frozen=True)
class Course:
    """A row: what a class of this course has where class.yml does not say otherwise."""

    dialect: str  # neuronxcc.nki | nki
    sdk: str
    instance_type: str
    family: str  # of the machines that it runs on


COURSES = {
    "trn1": Course("neuronxcc.nki", "2.26.1", "trn1.2xlarge", "trn1"),
    "trn2": Course("nki", "2.33.0", "trn2.3xlarge", "trn2"),
}
#: families whose machines have the chip of another one
LIKE = {"inf2": "trn1"}


def fill(data: dict[str, Any]) -> None:
    """Write into a class's data what its course decides and the file does not say."""
    course = COURSES.get(str(data.get("course")))
    if course is not None:
        for key in ("dialect", "sdk", "instance_type"):
            data.setdefault(key, getattr(course, key))


def check(good: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield (place, what, remedy) for keys that contradict the course of the file."""
    name = good.get("course")
    course = COURSES.get(str(name))
    if course is None:
        return
    remedy = f"Leave it out: the course {name} decides it."
    if (dialect := good.get("dialect", course.dialect)) != course.dialect:
        yield ("dialect",), f"The course {name} writes {course.dialect}, not {dialect}.", remedy
    version = good.get("sdk") or course.sdk
    if sdks.dialect_problem(version, course.dialect):
        problem = f"SDK {version} does not run the kernels of the course {name} ({course.dialect})."
        yield ("sdk",), problem, f"{remedy[:-1]} ({course.sdk})."
    machine = instance_types.TYPES.get(str(good.get("instance_type") or course.instance_type))
    if machine is not None and LIKE.get(machine.family, machine.family) != course.family:
        problem = f"The course {name} runs on {course.family} machines; {machine.name} is none."
        yield ("instance_type",), problem, f"{remedy[:-1]} ({course.instance_type})."
