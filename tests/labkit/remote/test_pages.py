"""What NEURON_PROFILE.md says: figures that come out (commands: tests/test_docs_commands.py)."""
from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

import nkisim
from labkit.load import load_module

from ...test_docs import occurs

ROOT = Path(__file__).resolve().parents[3]
#: What the page predicts with: no load is left out.
AS_WRITTEN = ("reorder", "engines", "rename")
PAGE = ROOT / "NEURON_PROFILE.md"


@cache
def predicted(lab: str, kernel: str, *shapes: tuple[int, ...], dtype: str = "float32",
              **constants: int):
    module = load_module(ROOT / "labs" / lab / "kernels.py", "kernels")
    for name, value in constants.items():
        setattr(module, name, value)
    import ml_dtypes
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32
    return nkisim.profile(getattr(module, kernel), *[np.ones(s, kind) for s in shapes],
                          target="trn2", compute=False, compiler=AS_WRITTEN)


def test_the_figures_of_the_examples():
    text = " ".join(PAGE.read_text("utf-8").split())
    add = [predicted("vecadd", "vector_add_stream", (256000,), (256000,), FREE_DIM=n)
           for n in (2000, 1000)]
    assert occurs(f"1 MB, ~{add[0].profile_total_us:.1f} us.", text)
    assert occurs(f"half the size, ~{add[1].profile_total_us:.1f} us.", text)
    steps = [predicted("ffnn", f"nki_matmul_{name}", (1024, 512), (1024, 1024), dtype="bfloat16")
             for name in ("tiled", "hoist_load", "block_free_dimension")]
    assert occurs(", ".join(f"~{p.profile_total_us:.0f} us" for p in steps), text)
    assert "transfers " + ", ".join(str(p.dma_transfer_count) for p in steps) in text
    assert ", ".join(f"{p.hbm_read_bytes / 1e6:.1f}" for p in steps) + " MB" in text
