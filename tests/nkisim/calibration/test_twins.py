"""Kernels of ours with the structure of published ones: right, and compared without any source."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import nkisim
from nkisim.calibration import records
from nkisim.calibration.calibrate import command
from nkisim.calibration.records import Skipped
from nkisim.timing.compiler import DEFAULT

CARRIED = {r.id: r for r in records.load()}
WITH_TWINS = [r for r in CARRIED.values() if r.twin]


def kernel(function, **constants):
    record = replace(WITH_TWINS[0], twin={"function": function, "set": constants})
    return records.twin(record)


def values(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "name, constants",
    [("vector_add_tiled", {"ROW_CHUNK": 16}), ("vector_add_stream", {"FREE_DIM": 2})],
)
def test_additions_add(name, constants):
    a, b = values(1024), -values(1024) * 3
    assert np.array_equal(nkisim.simulate(kernel(name, **constants), a, b), a + b)


def test_the_transpose_transposes():
    x = values(256, 384)
    assert np.array_equal(nkisim.simulate(kernel("matrix_transpose"), x), x.T)


@pytest.mark.parametrize("constants", [{}, {"ROWS": 1, "STRIPS": False}, {"COPY_ROWS": True}])
@pytest.mark.parametrize("pool", [1, 2])
def test_the_convolution_convolves(constants, pool):
    x, w, b = values(1, 128, 8, 10), values(128, 128, 3, 3), values(128)
    got = nkisim.simulate(kernel("conv2d", **constants), x, w, b, pool)
    want = b[None, :, None, None] + sum(
        np.einsum("bchw,oc->bohw", x[:, :, i : i + 6, j : j + 8], w[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )
    if pool == 2:
        want = want.reshape(1, 128, 3, 2, 4, 2).max((3, 5))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_every_twin_is_compared_without_sources(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(["--only", "stream", "--json"]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["compared"] == 0 and all(r["skipped"] for r in got["records"])
    assert {t["id"] for t in got["twins"]} == {r.id for r in WITH_TWINS if "stream" in r.id}
    assert all(t["predicted_us"] > 0 for t in got["twins"])


def test_sources_that_were_asked_for_and_are_absent_are_not_a_success(capsys, tmp_path):
    assert command(["--only", "stream", "--sources", str(tmp_path)]) == 2
    out = capsys.readouterr().out
    assert "nothing was compared" in out and "Kernels of ours" in out


def test_a_twin_does_what_the_published_counts_say():
    x, w, b = (np.ones(s, np.float16) for s in ((1, 256, 224, 224), (256, 256, 3, 3), (256,)))
    prof = nkisim.profile(
        kernel("conv2d", ROWS=1, STRIPS=False),
        x,
        w,
        b,
        target="trn2",
        compute=False,
        compiler=DEFAULT,
    )
    # counted in published traces: 7992 matmuls of 222 columns, 2664 loads of one row, 444 of
    # the bias, 444 stores; and four loads of weights
    assert prof.instructions["nc_matmul"] == 7992
    assert prof.instructions["load"] == 2664 + 444 + 4
    assert prof.instructions["store"] == 444


def test_a_record_without_a_twin_says_so():
    with pytest.raises(Skipped, match="no kernel of ours"):
        records.twin(CARRIED["accelopt-silu_M4096_N7168"])


def test_a_constant_that_a_twin_lacks_is_named():
    with pytest.raises(Skipped, match="FREE_DIMS"):
        kernel("vector_add_stream", FREE_DIMS=2)
