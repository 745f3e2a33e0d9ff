"""`nkisim lint` and files of two dialects: what a run refuses (NKI-K20), it refuses."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import nkisim
from nkisim.cli import main

X = np.ones((128, 64), np.float32)

NEW, NEW_ISA, NEW_NL = "import nki", "import nki.isa as nisa", "import nki.language as nl"
OLD = "import neuronxcc.nki as nki"
OLD_ISA, OLD_NL = "import neuronxcc.nki.isa as nisa", "import neuronxcc.nki.language as nl"
BODY = """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    {}
    return out
"""
OF_NEW = BODY.format("nisa.dma_copy(dst=out, src=x)")
OF_OLD = BODY.format("nl.store(out, nl.load(x))")

MIXED = {
    "a launcher of the older one": (OLD, NEW_ISA, NEW_NL, OF_NEW),
    "functions of the older one": (NEW, NEW_ISA, OLD_NL, OF_OLD),
    "instructions of the newer one": (OLD, NEW_ISA, OLD_NL, OF_NEW),
}
FALLBACK = """
try:
    import nki
    import nki.isa as nisa
    import nki.language as nl
except ImportError:
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl
"""
TWO = """
import neuronxcc.nki as older
import neuronxcc.nki.language as older_nl
@older.jit
def first(x):
    return older_nl.load(x)
"""
ONE = {
    "the newer one": (NEW, NEW_ISA, NEW_NL, OF_NEW),
    "the older one": (OLD, OLD_ISA, OLD_NL, OF_OLD),
    "whichever is there": (FALLBACK, OF_NEW),
    "a kernel of each": (TWO, NEW, NEW_ISA, NEW_NL, OF_NEW),
}


def lint(tmp_path, lines, capsys):
    file = tmp_path / "kernels.py"
    file.write_text("\n".join(lines), encoding="utf-8")
    code = main.main(["lint", str(file)])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("lines", MIXED.values(), ids=MIXED)
def test_a_file_that_mixes_dialects_is_refused_as_by_a_run(lines, tmp_path, capsys):
    code, said = lint(tmp_path, lines, capsys)
    assert code == 1 and "NKI-K20" in said and "1 refused" in said
    spec = importlib.util.spec_from_file_location("mixed_kernels", tmp_path / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(module.kernel, X)
    assert caught.value.id == "NKI-K20"


@pytest.mark.parametrize("lines", ONE.values(), ids=ONE)
def test_a_file_whose_kernels_have_one_dialect_each_is_not(lines, tmp_path, capsys):
    code, said = lint(tmp_path, lines, capsys)
    assert code == 0 and "0 refused" in said


# -- a launcher of the one dialect, a kernel of the other -----------------------------------------

LAUNCHERS = {
    "baremetal": lambda nki, kernel: nki.baremetal()(kernel)(X),
    "baremetal of the kernel": lambda nki, kernel: nki.baremetal(kernel)(X),
    "benchmark": lambda nki, kernel: nki.benchmark(warmup=1, iters=2)(kernel)(X),
    "profile": lambda nki, kernel: nki.profile(kernel)(X),
    "simulate_kernel": lambda nki, kernel: nki.simulate_kernel(kernel, X),
    "on two cores": lambda nki, kernel: nki.simulate_kernel(kernel[2], X),
    "jit": lambda nki, kernel: nki.jit(kernel)(X),
}


def kernels():
    """Return a kernel of the newer dialect, and one of the older."""
    import neuronxcc.nki as older
    import neuronxcc.nki.language as older_nl
    import nki
    import nki.language as nl

    @nki.jit
    def new(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    @older.jit
    def old(x):
        out = older_nl.ndarray(x.shape, dtype=x.dtype, buffer=older_nl.shared_hbm)
        older_nl.store(out, older_nl.load(x))
        return out

    return older, new, old


@pytest.mark.parametrize("launch", LAUNCHERS.values(), ids=LAUNCHERS)
def test_a_launcher_of_the_older_dialect_takes_no_kernel_of_the_newer(
    launch, monkeypatch, tmp_path
):
    """On a chip such a run gave zeros, without an error."""
    monkeypatch.chdir(tmp_path)  # launchers leave files
    older, new, old = kernels()
    with pytest.raises(nkisim.NkiError, match="is given new, a kernel of import nki") as caught:
        launch(older, new)
    assert caught.value.id == "NKI-K20" and "nki.simulate(kernel)" in caught.value.hint
    if launch is not LAUNCHERS["on two cores"]:  # grids of the older dialect are others
        launch(older, old)
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.2")  # SDKs that had both side by side
    if launch is not LAUNCHERS["jit"]:
        launch(older, new)


def test_each_dialect_launches_its_own_kernels():
    import nki

    _, new, old = kernels()
    assert np.array_equal(nki.simulate(new)(X), X) and np.array_equal(old(X), X)
    assert all(np.array_equal(nkisim.run(kernel, X).outputs, X) for kernel in (new, old))
