"""Programs of others that tests run: where they are, or why they are not."""

from __future__ import annotations

import os
import shutil

import pytest


def find(program: str) -> str:
    """Return the path of a program, from CLASSROOM_TOOLS or the PATH; "" where there is none."""
    folders = [f for f in (os.environ.get("CLASSROOM_TOOLS"), os.environ["PATH"]) if f]
    return shutil.which(program, path=os.pathsep.join(folders)) or ""


def needs(program: str) -> pytest.MarkDecorator:
    """Skip tests where a program is missing."""
    why = f"{program} is not installed: see infra/requirements-tools.txt"
    return pytest.mark.skipif(not find(program), reason=why)
