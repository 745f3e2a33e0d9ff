"""What NEURON_PROFILE.md and docs/remote.md say: commands that exist, figures that come out."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import nkisim
from labkit.load import load_module

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "NEURON_PROFILE.md", ROOT / "docs" / "remote.md")


def commands():
    """Yield the commands of the pages that are ours: program, subcommand, flags."""
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
            for line in block.splitlines():
                words = line.split("#")[0].split()
                if words[:2] == ["nox", "-s"]:
                    yield page.name, ("labkit", words[2]), words[3:]
                elif words[:2] == ["python", "-m"]:
                    yield page.name, (words[2], words[3]), words[4:]
                elif words[:1] == ["python"]:
                    yield page.name, (words[1],), words[2:]


@cache
def help_of(program: tuple[str, ...]) -> str:
    start = [str(ROOT / program[0])] if len(program) == 1 else ["-m", *program]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "shared"), "COLUMNS": "200"}
    done = subprocess.run([sys.executable, *start, "--help"], capture_output=True, text=True,
                          cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page, program, words", list(commands()),
                         ids=lambda x: x if isinstance(x, str) else " ".join(x))
def test_commands_and_flags_exist(page, program, words):
    text = help_of(program)
    for flag in (w for w in words if w.startswith("--") and w != "--"):
        assert flag in text, f"{page}: {' '.join(program)} has no {flag}"


@cache
def predicted(lab: str, kernel: str, *shapes: tuple[int, ...], dtype: str = "float32",
              **constants: int):
    module = load_module(ROOT / "labs" / lab / "kernels.py", "kernels")
    for name, value in constants.items():
        setattr(module, name, value)
    import ml_dtypes
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32
    return nkisim.profile(getattr(module, kernel), *[np.ones(s, kind) for s in shapes],
                          target="trn2", compute=False)


def test_the_figures_of_the_examples():
    text = " ".join(PAGES[0].read_text("utf-8").split())
    add = [predicted("vecadd", "vector_add_stream", (256000,), (256000,), FREE_DIM=n)
           for n in (2000, 1000)]
    assert f"{add[0].profile_total_us:.1f} us" in text
    assert f"{add[1].profile_total_us:.1f} us" in text
    steps = [predicted("ffnn", f"nki_matmul_{name}", (1024, 512), (1024, 1024), dtype="bfloat16")
             for name in ("tiled", "hoist_load", "block_free_dimension")]
    assert ", ".join(f"{p.profile_total_us:.0f} us" for p in steps) in text
    assert "transfers " + ", ".join(str(p.dma_transfer_count) for p in steps) in text
    assert ", ".join(f"{p.hbm_read_bytes / 1e6:.1f}" for p in steps) + " MB" in text
