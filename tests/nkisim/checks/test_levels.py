"""NKISIM_CHECKS: what becomes of findings, in the library, in `run` and in pytest."""

from __future__ import annotations

import os
import subprocess
import sys

import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim

X = np.ones((128, 512), np.float32)
SCRIPT = """
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc import nki

@nki.jit
def kernel(x):
    out = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        t = nl.load(x[:, i * 128:(i + 1) * 128])
        acc[...] = nl.matmul(t, t, transpose_x=True)
    nl.store(out, nl.copy(acc))
    return out

def test_it():
    kernel(np.ones((128, 512), np.float32))
    print("ran to its end")

if __name__ == "__main__":
    test_it()
"""


@nki.jit
def shared_tile(x, bad=True):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 128), np.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        if not bad:
            tile = nl.ndarray((128, 128), np.float32, buffer=nl.sbuf)
        tile[...] = nl.load(x[:, i * 128 : (i + 1) * 128])  # here
        nl.store(out[:, i * 128 : (i + 1) * 128], tile)
    return out


@nki.jit
def half_stored(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out[0:64], nl.load(x[0:64]))
    return out


def test_each_level_in_the_library(monkeypatch):
    for level in ("", "teach"):
        monkeypatch.setenv("NKISIM_CHECKS", level)
        assert [f.id for f in nkisim.run(shared_tile, X).findings] == ["NKI-L05"]
        assert [f.id for f in nkisim.run(half_stored, X).findings] == ["NKI-O04"]
    monkeypatch.setenv("NKISIM_CHECKS", "strict")
    with pytest.raises(nkisim.NkiError, match="NKI-L05") as caught:
        nkisim.run(shared_tile, X)
    assert caught.value.where.text.endswith("# here")
    with pytest.raises(nkisim.NkiError, match="NKI-O04"):
        nkisim.profile(half_stored, X)
    assert nkisim.run(shared_tile, X, False).findings == []
    assert [f.id for f in nkisim.check(shared_tile, X)] == ["NKI-L05"]
    monkeypatch.setenv("NKISIM_CHECKS", "OFF")
    for kernel in (shared_tile, half_stored):
        assert nkisim.run(kernel, X).findings == []
    np.testing.assert_array_equal(nkisim.run(shared_tile, X).outputs, X)


def test_what_no_chip_can_do_is_an_error_in_all_of_them(monkeypatch):
    @nki.jit
    def kernel(x):
        return nl.load(x[64:192])

    monkeypatch.setenv("NKISIM_CHECKS", "off")
    with pytest.raises(nkisim.NkiError, match="NKI-I01"):
        nkisim.run(kernel, X)


def test_there_are_three(monkeypatch):
    monkeypatch.setenv("NKISIM_CHECKS", "some")
    with pytest.raises(nkisim.NkiError, match="NKI-K16.*NKISIM_CHECKS=some"):
        nkisim.run(shared_tile, X)


@pytest.fixture
def program(tmp_path):
    (tmp_path / "test_kernel.py").write_text(SCRIPT)

    def run(*command, **env):
        clean = {k: v for k, v in os.environ.items() if k != "NKISIM_CHECKS"}
        return subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**clean, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        )

    return run


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "level, code, said", [("teach", 0, True), ("strict", 1, True), ("off", 0, False)]
)
def test_each_level_in_run_and_pytest(program, level, code, said):
    for done in (
        program("-m", "nkisim", "run", "--checks", level, "test_kernel.py"),
        program("-m", "nkisim", "run", "test_kernel.py", NKISIM_CHECKS=level),
    ):
        assert done.returncode == code and ("NKI-L05" in done.stderr) == said
        assert ("ran to its end" in done.stdout) == (not code)
    done = program(
        "-m",
        "pytest",
        "-q",
        "-p",
        "nkisim.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "--nkisim-checks",
        level,
        "test_kernel.py",
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("NKI-L05" in done.stdout) == (level == "strict")
