"""Rules of the repository that a reader relies on: imports, sizes, no machine's paths."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LABS = sorted(p.parent for p in ROOT.glob("labs/*/spec.py"))
STDLIB = set(sys.stdlib_module_names)
MAX_LINES = 800
SUFFIXES = {".py", ".md", ".toml", ".yml", ".yaml", ".cfg", ".sh", ".js", ".html", ""}


def tracked() -> list[Path]:
    """Return the text files of the repository: what git would commit."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip("not a git working tree")
    files = [ROOT / name for name in done.stdout.split("\0") if name]
    return [f for f in files if f.is_file() and f.suffix in SUFFIXES]


def imports(path: Path) -> set[str]:
    """Return the dotted names that a file imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
    return names


def foreign(folder: Path, allowed: set[str]) -> dict[str, set[str]]:
    """Return the top-level packages that a folder's files import and may not."""
    found = {
        str(p.relative_to(ROOT)): {n.split(".")[0] for n in imports(p)} - STDLIB - allowed
        for p in folder.rglob("*.py")
    }
    return {name: bad for name, bad in found.items() if bad}


@pytest.mark.parametrize("lab", LABS, ids=lambda p: p.name)
def test_a_lab_has_the_five_names(lab):
    from labkit.spec import FILES

    assert [name for name in FILES if not (lab / name).is_file()] == []


@pytest.mark.parametrize("lab", LABS, ids=lambda p: p.name)
def test_kernels_import_numpy_and_nki_only(lab):
    for path in (*lab.glob("kernels*.py"), *lab.glob("solutions*/*.py")):
        names = imports(path) - {"__future__", "math", "numpy"}
        package = "nki" if "nki" in path.stem or "nki" in path.parent.name else "neuronxcc.nki"
        assert {n for n in names if n != package and not n.startswith(f"{package}.")} == set()


@pytest.mark.parametrize("lab", LABS, ids=lambda p: p.name)
def test_testers_and_specs_know_labkit_and_not_the_simulator(lab):
    for name in ("tester.py", "spec.py", "reference.py"):
        assert "nkisim" not in {n.split(".")[0] for n in imports(lab / name)}


def test_nkisim_needs_numpy_and_ml_dtypes_only_and_knows_no_lab():
    allowed = {"numpy", "ml_dtypes", "nkisim", "neuronxcc", "nki"}
    found = foreign(ROOT / "shared" / "nkisim", allowed)
    # arrays of torch and JAX are accepted where those are, which takes an import in a function;
    # so does a plot (the extra `plot`)
    # and whatever sets the threads of BLAS (the extra `labs`); Parquet is written where pyarrow is;
    # tools of a language model are served where its SDK is (the extra `mcp`)
    optional = {"torch", "jax", "matplotlib", "threadpoolctl", "pyarrow", "mcp"}
    assert {n: bad - optional for n, bad in found.items() if bad - optional} == {}


def test_labkit_uses_the_public_door_of_nkisim():
    allowed = {
        "numpy",
        "ml_dtypes",
        "rich",
        "filelock",
        "nkisim",
        "neuronxcc",
        "nki",
        "labkit",
        "influxdb_client",
        "pyarrow",  # these two inside of functions only
        "confine",
    }  # of labkit.grade, beside a lone sandbox_worker.py
    staff = {
        "jinja2",
        "distributed",
        "dask",
        "dask_jobqueue",
        "cryptography",
        "starlette",
        "uvicorn",
    }  # extra `grade`
    found = foreign(ROOT / "shared" / "labkit", allowed)
    assert {
        n: bad
        for n, bad in found.items()
        if bad - (staff if n.startswith(("shared/labkit/grade", "shared/labkit/board")) else set())
    } == {}
    for path in (ROOT / "shared" / "labkit").rglob("*.py"):
        assert not any(n.startswith("nkisim.") for n in imports(path)), path.name


def test_no_one_imports_a_lab():
    for path in (ROOT / "shared").rglob("*.py"):
        assert not any(n.split(".")[0] == "labs" for n in imports(path)), path.name


def test_files_have_at_most_800_lines():
    size = {
        p.relative_to(ROOT).as_posix(): len(p.read_text(encoding="utf-8").splitlines())
        for p in tracked()
        if p.suffix == ".py"
    }
    assert {name: n for name, n in size.items() if n > MAX_LINES} == {}


def test_no_paths_of_a_machine():
    pattern = re.compile(r"(?<![\w.$}])/(?:home/(?!ubuntu\b)|Users/|work/|root/)\w")
    found = [
        f"{p.relative_to(ROOT)}: {m.group()}"
        for p in tracked()
        if p != Path(__file__)
        and "infra" not in p.relative_to(ROOT).parts  # students' homes on their hosts
        for m in pattern.finditer(p.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


def test_links_between_pages_lead_somewhere():
    """Pages of the starter's template lie at the top of an export, beside its docs/."""
    template = ROOT / "shared" / "labkit" / "starter" / "template"
    broken = [
        f"{p.relative_to(ROOT)} -> {target}"
        for p in tracked()
        if p.suffix == ".md"
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", p.read_text("utf-8"))
        if not ((ROOT if p.parent == template else p.parent) / target).exists()
    ]
    assert broken == []


def test_completion_shows_the_public_names_alone():
    import labkit
    import nkisim

    assert set(dir(nkisim)) == {*nkisim.__all__, "__version__"}
    assert set(dir(labkit)) == set(labkit.__all__)
    for module in (nkisim, labkit):
        assert all(hasattr(module, name) for name in dir(module))
