"""One rule for arithmetic, declared on the row: prediction, summary and page say the same."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import report
from nkisim.isa.table import ROWS

SQUARE = 2 * 128 * 128 * 128


@nki.jit
def products(x, transposes):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, nl.copy(nisa.nc_matmul(tile, tile, is_transpose=transposes)))
    return out


@nki.jit
def transposed(x):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nisa.nc_transpose(nl.load(x))))
    return out


@nki.jit
def double_row(x):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x, dtype=nl.float8_e4m3)
    nl.store(out, nl.copy(nisa.nc_matmul(tile, tile, perf_mode="double_row_gen3")))
    return out


@nki.jit
def copied(x):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


@pytest.mark.parametrize(
    "kernel, shape, more, model, transposing",
    [
        (products, (128, 128), (False,), SQUARE, 0),
        (products, (128, 128), (True,), 0, SQUARE),  # counted as the model's by one of two rules
        (transposed, (128, 128), (), 0, SQUARE),
        (double_row, (128, 2, 128), (), 2 * SQUARE, 0),
        (copied, (128, 128), (), 0, 0),
    ],
)
def test_prediction_and_summary_count_the_same(kernel, shape, more, model, transposing):
    prof = nkisim.profile(kernel, np.zeros(shape, np.float16), *more, target="trn2", compute=False)
    said = report.report_of(prof).head["metrics"]
    assert prof.flops == said["model_flops"] == model
    assert said["transpose_flops"] == transposing
    assert (prof.mfu > 0) == (said["mfu_estimated_percent"] > 0) == (model > 0)
    assert said["matmul_instruction_count"] == (model + transposing > 0)


def test_what_accumulates_matmuls_declares_its_arithmetic():
    from nkisim.isa.formulas import no_flops

    assert [name for name, row in ROWS.items() if row.accumulates and row.flops is no_flops] == []
