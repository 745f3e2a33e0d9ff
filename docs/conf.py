"""Sphinx's settings for the site; `nox -s docs` builds it (docs/book.py).

Sphinx, since its search is a plain script that works from file:// as well, its references come
from the docstrings, and it knows when a link leads nowhere.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "shared"))

project = "trainium-labs"
copyright = "the authors of trainium-labs; Apache-2.0"
root_doc = "README"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}
# pages say "LAB" or "docs/x.md" for a file; their blocks are text where a lexer stumbles
suppress_warnings = ["misc.highlighting_failure", "myst.strikethrough"]
exclude_patterns: list[str] = []

html_theme = "furo"
html_title = "trainium-labs"
html_static_path = [str(ROOT / "docs" / name) for name in ("site.css", "site.js")]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"


def _as_rst(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Make docstrings, whose code stands in single backticks, what Sphinx takes for code."""
    for k, line in enumerate(lines):
        parts = re.split(r"(`+[^`]*`+)", line)
        lines[k] = "".join(
            f"``{part.strip('`')}``"
            if part.startswith("`")
            else re.sub(r"([|*]|_(?!\w))", r"\\\1", part)
            for part in parts
        )


_sidebars: dict[str, str] = {}


def _sidebar_once(app: Any, page: str, _: str, context: dict[str, Any], tree: object) -> None:
    """Make the sidebar of pages that are not in it, which is the same in a folder, once: that took
    a third of the time of a build."""
    make, folder = context.get("toctree"), posixpath.dirname(page)
    if make is None or "orphan" not in app.env.metadata.get(page, ()):
        return

    def made(**how: Any) -> str:
        if folder not in _sidebars:
            _sidebars[folder] = make(**how)
        return _sidebars[folder]

    context["toctree"] = made


def setup(app: Any) -> None:
    """Register the above: before napoleon reads the sections, and before the theme asks."""
    app.connect("autodoc-process-docstring", _as_rst, priority=100)
    app.connect("html-page-context", _sidebar_once, priority=400)
