"""Which versions of Python the project says that it runs on, and what an older one is told."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import neuronxcc.nki.isa as beta1_isa
import nki.isa as nisa
import pytest

ROOT = Path(__file__).parents[1]
TEMPLATE = "shared/labkit/starter/template/noxfile.py.txt"
FRONT_DOORS = ("noxfile.py", TEMPLATE)


def oldest():
    """Return the oldest version that pyproject.toml permits, as text."""
    return re.search(r'requires-python = ">=(3\.\d+)"', (ROOT / "pyproject.toml").read_text())[1]


@pytest.mark.parametrize("name", FRONT_DOORS)
def test_a_python_that_is_too_old_is_told_so_and_which_is_needed(name, tmp_path):
    text = (ROOT / name).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 7))  # so far it gets
    major, minor = map(int, oldest().split("."))
    (tmp_path / "door.py").write_text(
        f"import sys\nsys.version_info = ({major}, {minor - 1}, 18)\nsys.version = '{major}."
        f"{minor - 1}.18 (main)'\nsys.path.insert(0, '')\nsys.modules['nox'] = sys.modules['sys']\n"
        f"exec({text.replace('from __future__ import annotations', '')!r})\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, "door.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"need Python {oldest()} or newer" in done.stderr.replace("needs", "need")
    assert f"this is Python {major}.{minor - 1}.18 ({sys.executable})" in done.stderr


def test_all_that_name_the_oldest_python_name_the_same():
    said = set()
    for path in (ROOT / "README.md", ROOT / "shared/labkit/starter/template/README.md"):
        said |= set(re.findall(r"Python (3\.\d+) or newer", path.read_text(encoding="utf-8")))
    for name in FRONT_DOORS:
        found = re.search(r"OLDEST = \((\d), (\d+)\)", (ROOT / name).read_text(encoding="utf-8"))
        said.add(".".join(found.groups()))
    assert said == {oldest()}


@pytest.mark.parametrize("isa", [beta1_isa, nisa], ids=["neuronxcc.nki", "nki"])
def test_a_generation_prints_as_its_number_in_every_python(isa):
    generation = isa.nc_version.gen3
    assert (str(generation), f"{generation}", generation) == ("3", "3", 3)
    assert repr(generation) == "<nc_version.gen3: 3>"


def test_the_tests_for_other_pythons_exist():
    sys.path.insert(0, str(ROOT / "tests" / "labkit"))
    try:
        from try_pythons import SLOW, TESTS
    finally:
        sys.path.pop(0)
    assert not [name for name in TESTS + SLOW if not (ROOT / "tests" / f"{name}.py").is_file()]
