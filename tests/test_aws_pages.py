"""Links to AWS's documentation: each to a function that exists, and handouts have today's table."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from docs.aws_pages import LABS, MODULES, SITE, WHAT, address, table

from labkit.dialect import KERNELS, PACKAGE

ROOT = Path(__file__).parents[1]
USED = re.compile(r"\bnisa\.([a-z]\w+)\(")
#: asks for the chip; no instruction
NO_INSTRUCTION = {"get_nc_version", "nc_version"}


@pytest.mark.parametrize("lab", LABS)
def test_a_handout_has_the_table_of_today(lab):
    text = (ROOT / "labs" / lab / "README.md").read_text("utf-8")
    assert table(lab) in text, "python -m docs.aws_pages writes it anew"


def test_every_lab_has_a_table():
    assert set(LABS) == {path.parent.name for path in ROOT.glob("labs/*/spec.py")}


@pytest.mark.parametrize("lab, dialect", [(lab, d) for lab, of in LABS.items() for d in of])
def test_each_instruction_of_a_lab_has_a_link_and_exists(lab, dialect):
    names = LABS[lab][dialect].split()
    used = USED.findall((ROOT / "labs" / lab / KERNELS[dialect]).read_text("utf-8"))
    assert {f"nisa.{name}" for name in used if name not in NO_INSTRUCTION} <= set(names)
    for name in names:
        module, _, function = name.partition(".")
        package = import_module(f"{PACKAGE[dialect]}.{MODULES[module].removeprefix('nki.')}")
        assert hasattr(package, function) and name in WHAT, name


def test_an_address_has_the_form_of_the_documentation():
    form = rf"{re.escape(SITE)}/[\w./]+/generated/nki\.(isa|language)\.\w+\.html"
    for names in LABS.values():
        for dialect, functions in names.items():
            for name in functions.split():
                assert re.fullmatch(form, address(name, dialect))


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda p: p.name)
def test_other_links_to_aws_are_pages_of_its_documentation(page):
    for link in re.findall(r"https://awsdocs-neuron[^\s)>`]+", page.read_text("utf-8")):
        assert re.match(rf"{re.escape(SITE)}/(latest|v\d+\.\d+\.\d+)/", link), link
