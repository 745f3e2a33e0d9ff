"""The notebooks run from top to bottom, and say what their pages promise."""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(ROOT.glob("labs/*/*.ipynb"))
HERE = {
    "PYTHONPATH": f"{ROOT / 'shared'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    "NKI_BANNER": "0",
}


def name_of(path: Path) -> str:
    """Return the place of a notebook below labs/."""
    return path.relative_to(ROOT / "labs").as_posix()


def test_every_lab_has_a_notebook_in_each_dialect():
    written = [p for file in ("kernels", "kernels_nki") for p in ROOT.glob(f"labs/*/{file}.py")]
    assert set(NOTEBOOKS) == {
        p.with_name(p.name.replace("kernels", "tour")).with_suffix(".ipynb") for p in written
    }


def test_the_notebooks_are_what_their_tours_say():
    made = runpy.run_path(str(ROOT / "tools" / "notebooks.py"))["all_notebooks"]()
    assert made == {name_of(p): p.read_text("utf-8") for p in NOTEBOOKS}, (
        "python tools/notebooks.py writes them anew"
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_speaks_one_dialect(path):
    code = "".join("".join(c["source"]) for c in json.loads(path.read_text("utf-8"))["cells"])
    assert ("import neuronxcc.nki" in code, "import nki\n" in code) == (
        (False, True) if path.stem.endswith("_nki") else (True, False)
    )
    assert "kernels_nki.py" not in code or path.stem.endswith("_nki")
    assert ("trn1" if path.stem.endswith("_nki") else "trn2") not in code


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_is_committed_without_outputs(path):
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Return a function that runs a notebook once and returns its cells."""
    if (
        importlib.util.find_spec("nbclient") is None
        or importlib.util.find_spec("ipykernel") is None
    ):
        pytest.skip("nbclient and ipykernel are not installed (extra: notebook)")
    import nbformat
    from nbclient import NotebookClient

    done = {}

    def run(path):
        if path not in done:
            book = nbformat.read(path, as_version=4)
            client = NotebookClient(
                book,
                timeout=120,
                kernel_name="python3",
                resources={"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}},
            )
            with pytest.MonkeyPatch.context() as patch:
                for name, value in HERE.items():
                    patch.setenv(name, value)
                client.execute()  # a cell that fails, and is not tagged for it, raises
            done[path] = book.cells
        return done[path]

    return run


def said(cell) -> str:
    """Return all that a cell has put out, as HTML where it has that."""
    out = []
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        out.append(
            data.get("text/html")
            or data.get("text/plain")
            or output.get("text")
            or "\n".join(output.get("traceback", ()))
        )
    return "\n".join(out)


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_runs(path, executed):
    cells = executed(path)
    magic = [c for c in cells if c.source.startswith("%%nki")]
    wrong = [c for c in magic if "raises-exception" in c.metadata.get("tags", ())]
    assert len(magic) > len(wrong) >= 1
    for cell in magic:
        if cell in wrong:
            assert "NKI-" in said(cell) and "limit" in said(cell), cell.source
            if "def " in cell.source:
                assert f"Cell In[{cell.execution_count}]" in said(cell)
        else:
            assert "predicted, not measured" in said(cell), cell.source


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["tour", "tour_nki"])
def test_the_tour_of_vecadd_shows_a_tile_a_finding_and_a_page(executed, name):
    cells = executed(ROOT / "labs" / "vecadd" / f"{name}.ipynb")
    by_name = {
        name: said(c)
        for c in cells
        if c.cell_type == "code"
        for name in ("look", "unwritten")
        if f"def {name}(" in c.source
    }
    assert "picture of the tile" in by_name["look"] and "No findings" in by_name["look"]
    assert "NKI-U02" in by_name["unwritten"] and "&gt;" in by_name["unwritten"]
    assert "<iframe" in said(cells[-2])


@pytest.mark.full
def test_what_the_tours_compute_is_right(executed):
    for name in ("ffnn/tour", "ffnn/tour_nki", "conv2d/tour", "conv2d/tour_nki"):
        errors = [
            float(said(c).split("(")[-1].rstrip(")"))
            for c in executed(ROOT / "labs" / f"{name}.ipynb")
            if c.cell_type == "code" and c.source.rstrip().endswith(".max()")
        ]
        assert errors and max(errors) < 1e-3


def browser() -> bool:
    """Return whether there is a Chromium with its driver."""
    return bool(
        (shutil.which("chromium") or shutil.which("chromium-browser"))
        and shutil.which("chromedriver")
    )


@pytest.mark.full
@pytest.mark.skipif(
    importlib.util.find_spec("jupyterlab") is None,
    reason="JupyterLab is not installed (extra: test)",
)
@pytest.mark.skipif(not browser(), reason="no Chromium with a chromedriver is installed")
def test_jupyterlab_itself_shows_the_tour(tmp_path):
    """Run the tour in real JupyterLab, in a browser."""
    pytest.importorskip("selenium")
    from .jupyterlab_page import tour

    text, complaints = tour(ROOT / "labs" / "vecadd" / "tour.ipynb", tmp_path, HERE)
    assert "predicted, not measured" in text and "NKI-P01" in text
    assert complaints == []
