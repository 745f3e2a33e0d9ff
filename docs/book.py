"""Put the site's pages together and build them: `nox -s docs` runs `python docs/book.py`.

The pages are the Markdown that a reader finds in the repository, at the same places, so that links
hold in both. Made here: what `explain --all` and `coverage` print, and a page for each error,
the references, from docstrings, and the handouts of each dialect.
Nothing of labs/*/solutions is in it: the site may be given to students.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

from labkit.dialect import KERNELS
from labkit.starter.handouts import render
from nkisim.cli import coverage, main, verdicts_page

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "docs"
SOURCES = (
    "*.md",
    "docs/*.md",
    "docs/figures/*.svg",
    "docs/figures/*.png",
    "labs/*/README.md",
    "infra/README.md",
    "tools/conformance/*.md",
)
REFERENCES = {
    "nkisim": (
        "The simulator from Python; its programs are `python -m nkisim COMMAND`.",
        (
            "automodule:: nkisim.api",
            "autofunction:: nkisim.profile",
            "autoclass:: nkisim.Profile",
            "autoclass:: nkisim.Run",
            "autoclass:: nkisim.Finding",
            "autoclass:: nkisim.NkiError",
            "automodule:: nkisim.notebook",
        ),
    ),
    "labkit": (
        "Labs as data, and what judges them; its programs are `python -m labkit COMMAND`.",
        (
            "automodule:: labkit.spec",
            "automodule:: labkit.run.compare",
            "automodule:: labkit.tolerance",
            "automodule:: labkit.mistakes",
            "automodule:: labkit.inputs",
        ),
    ),
}
#: dialect -> folder and title of its handouts: what the students of such a course read
COURSES = {
    "beta1": ("trn1", "Labs for Trainium 1 (neuronxcc.nki)"),
    "nki": ("trn2", "Labs for Trainium 2 and 3 (import nki)"),
}
#: Where labs begin; the others follow by name.
FIRST = ("puzzles", "vecadd", "ffnn", "norms", "attention", "moe", "conv2d", "convnet")


def labs_in(dialect: str = "") -> list[str]:
    """Return the labs that have kernels in a dialect, or in any, in the order of a course."""
    found = [
        page.parent.name
        for page in ROOT.glob("labs/*/README.md")
        if not dialect or (page.parent / KERNELS[dialect]).is_file()
    ]
    return sorted(found, key=lambda lab: (FIRST.index(lab) if lab in FIRST else len(FIRST), lab))


#: group of the sidebar -> pages that are made here, with their names there
MADE = {
    "Reference": {
        "What is modelled": "reference/coverage",
        "What is checked": "reference/checks",
        "Errors, one by one": "errors/index",
        "What does not build": "reference/releases",
        "nkisim": "reference/nkisim",
        "labkit": "reference/labkit",
    },
}


def groups() -> dict[str, dict[str, str]]:
    """Return what the sidebar shows: title of a group, and its pages with their names there.

    First the labs; then what docs/README.md, the map of the pages, lists in the same groups.
    """
    out: dict[str, dict[str, str]] = {
        title: {f"{lab} <{folder}/{lab}/README>": "" for lab in labs_in(dialect)}
        for dialect, (folder, title) in COURSES.items()
    }
    out["Labs, both dialects"] = {f"{lab} <labs/{lab}/README>": "" for lab in labs_in()}
    out["Map of all pages"] = {"Documentation": "docs/README"}
    group = out["Map of all pages"]
    for line in (ROOT / "docs" / "README.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            group = out[line[3:]] = dict(MADE.get(line[3:], {}))
        elif found := re.match(r"- \[(.+?)\]\((.+?)\.md\)", line):
            group[found[1]] = posixpath.normpath(f"docs/{found[2]}")
    return out


def contents() -> str:
    """Return the sidebar, which stands unseen at the end of the first page."""
    out, shown = [], groups()
    named = {
        page or name.partition("<")[2].rstrip(">")
        for group in shown.values()
        for name, page in group.items()
    }
    rest = [
        f.relative_to(ROOT).with_suffix("").as_posix()
        for pattern in SOURCES
        for f in sorted(ROOT.glob(pattern))
        if f.suffix == ".md" and f.name != "README.md"
    ]
    more = {page: "" for page in rest if page not in named}
    for caption, pages in (shown | ({"More": more} if more else {})).items():
        rows = [f"{name} <{page}>" if page else name for name, page in pages.items()]
        out += ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *rows, "```"]
    return "\n".join(out) + "\n"


def errors(checks: str) -> dict[str, str]:
    """Return file name and text of a page for each rule of all checks, and of their list."""
    out, listed, ids = (
        {},
        [
            "# Errors",
            "",
            "A page for each error and finding; all of them [on one](../reference/checks.md).",
            "",
        ],
        [],
    )
    for part in re.split(r"^(?=##+ )", checks, flags=re.M)[1:]:
        head, _, body = part.partition("\n")
        level, _, title = head.partition(" ")
        if level == "##":
            listed += ["", f"## {title}", ""]
            continue
        ids.append(title.partition(":")[0])
        listed += [f"- [{title}]({ids[-1]}.md)"]
        # no part of the tree of contents: 200 entries on each page took most of the time of a build
        text = f"# {title}\n\n{body.strip()}\n\n[All errors](index.md)\n"
        out[f"{ids[-1]}.md"] = f"---\norphan: true\n---\n\n{text}"
    return {"index.md": "\n".join([*listed, ""]), **out}


def assemble(pages: Path) -> None:
    """Write all pages to a folder."""
    shutil.rmtree(pages, ignore_errors=True)
    for pattern in SOURCES:
        for source in sorted(ROOT.glob(pattern)):
            target = pages / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for dialect, (folder, _) in COURSES.items():
        for lab in labs_in(dialect):
            target = pages / folder / lab / "README.md"
            target.parent.mkdir(parents=True, exist_ok=True)
            text = (ROOT / "labs" / lab / "README.md").read_text("utf-8")
            target.write_text(render(text, dialect, lab), "utf-8")
    with open(pages / "README.md", "a", encoding="utf-8") as file:
        file.write(contents())
    checks = main.pages()
    (pages / "errors").mkdir()
    for name, text in errors(checks).items():
        (pages / "errors" / name).write_text(text, "utf-8")
    (pages / "reference").mkdir()
    for name, text in (
        ("checks", checks),
        ("coverage", coverage.markdown()),
        ("releases", verdicts_page.markdown()),
    ):
        (pages / "reference" / f"{name}.md").write_text(text, "utf-8")
    for name, (about, parts) in REFERENCES.items():
        blocks = [f"```{{eval-rst}}\n.. {part}\n```\n" for part in parts]
        (pages / "reference" / f"{name}.md").write_text(
            "\n".join([f"# {name}", "", about, "", *blocks]), "utf-8"
        )


def build(folder: Path = BUILD) -> int:
    """Build the site in a folder; what Sphinx warns of, a dead link for example, is an error."""
    pages, site = folder / "pages", folder / "site"
    assemble(pages)
    shutil.rmtree(site, ignore_errors=True)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-b",
            "html",
            "-W",
            "--keep-going",
            "-q",
            "-c",
            str(ROOT / "docs"),
            "-d",
            str(folder / "doctrees"),
            str(pages),
            str(site),
        ]
    )
    if done.returncode == 0:
        (site / "index.html").write_text(
            '<!doctype html><html lang="en"><title>trainium-labs</title>'
            '<meta http-equiv="refresh" content="0; url=README.html">'
            '<a href="README.html">trainium-labs</a></html>',
            "utf-8",
        )
        print(f"the site is in {site}: open index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(build())
