"""The adapters for searchers, without these: what they put in the place of a chip."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nkisim

ROOT = Path(__file__).resolve().parents[1]
KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def {name}(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.multiply(nl.load(x), {factor}))
    return out
"""
HARNESS = """
import numpy as np
{kernels}
def test_nki(ref_func, test_func):
    x = np.ones((128, 64), np.float32)
    return np.allclose(ref_func(x), test_func(x))

def benchmark_nki(nki_func):
    bench = nki.benchmark(warmup=2, iters=10)(nki_func)
    bench(np.ones((128, 64), np.float32))
    p99 = bench.benchmark_result.nc_latency.get_latency_percentile(99)
    print("Latency: {{:.3f}} ms (P99)".format(p99 / 1000.0))
"""


def adapter(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "searchers" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def double(x):
    import neuronxcc.nki.language as nl

    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.multiply(nl.load(x), 2.0))
    return out


@pytest.mark.skipif(os.name == "nt", reason="AccelOpt calls neuron-profile in a POSIX shell")
def test_a_trace_that_accelopt_asks_for_holds_the_prediction_and_says_so(tmp_path, monkeypatch):
    """As its kernel_wrapper does: baremetal with names of files, then neuron-profile in a shell."""
    import neuronxcc.nki as nki

    accelopt = adapter("accelopt_nkisim")
    x = np.ones((128, 512), np.float32)
    baremetal = accelopt.Launcher(nki.baremetal)
    trace, summary = tmp_path / "t.ntff", tmp_path / "s.json"
    options = {
        "save_neff_name": str(tmp_path / "k.neff"),
        "additional_compile_opt": "--disable-dge --logical-nc-config=1",
    }
    out = baremetal(double, save_trace_name=str(trace), **options)(x)
    assert (out == 2 * x).all()
    assert (baremetal(double, **options)(3 * x) == 6 * x).all()  # other arrays: run anew

    monkeypatch.setenv("PATH", os.environ["PATH"])
    accelopt.install_command(tmp_path)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "shared")}
    done = subprocess.run(
        f"neuron-profile view --output-format summary-json -n {tmp_path}/k.neff "
        f"-s {trace} > {summary}",
        shell=True,
        env=env,
    )
    assert done.returncode == 0
    [(key, metrics)] = json.loads(summary.read_text("utf-8")).items()
    assert "predicted by nkisim" in key and "not measured" in key
    prof = nkisim.profile(double, x, descriptors="static")
    assert metrics["total_time"] == pytest.approx(prof.profile_total_us / 1e6)
    assert metrics["hbm_read_bytes"] == x.nbytes


def test_a_trace_that_is_none_is_refused(tmp_path, capsys):
    (tmp_path / "t.ntff").write_text("This is not an NTFF")
    code = adapter("accelopt_nkisim").summary_json(
        ["view", "--output-format", "summary-json", "-n", "k.neff", "-s", str(tmp_path / "t.ntff")]
    )
    assert code == 1 and "not a profile" in capsys.readouterr().err


def test_a_table_of_profiles_says_that_they_are_predicted(tmp_path):
    path = tmp_path / "profiles.csv"
    path.write_text('kernel,profile\na.py,"{""latency"": 1.5}"\n')
    adapter("accelopt_nkisim").label(path)
    [row] = csv.DictReader(path.open(newline=""))
    assert json.loads(row["profile"]) == {"latency": 1.5}
    assert row["profile_source"].startswith("predicted by nkisim")


@pytest.mark.parametrize("factor, said", [("2.0", "Latency:"), ("3.0", "Test failed")])
def test_a_harness_of_autocomp_judges_and_times_a_kernel(tmp_path, factor, said):
    autocomp = adapter("autocomp_nkisim")
    kernels = "".join(
        KERNEL.format(name=name, factor=by) for name, by in (("solution", factor), ("ref", "2.0"))
    )
    script = tmp_path / "code_0.py"
    script.write_text(HARNESS.format(kernels=kernels) + autocomp._MAIN.format(reference="ref"))
    done = subprocess.run(
        [sys.executable, "-m", "nkisim", "run", str(script)],
        text=True,
        capture_output=True,
        env={**autocomp.environment(), "PYTHONPATH": str(ROOT / "shared")},
    )
    assert said in done.stdout, done.stderr
    assert ("nothing was measured" in done.stdout) == (done.returncode == 0) == (factor == "2.0")


@pytest.mark.parametrize(
    "name, flag", [("autocomp_nkisim", "--autocomp"), ("accelopt_nkisim", "--accelopt")]
)
def test_a_folder_that_is_no_checkout_is_a_sentence_and_2(tmp_path, name, flag):
    more = ["search"] if name.startswith("autocomp") else ["scripts/x.py"]
    program = ROOT / "searchers" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, program, flag, tmp_path, *more], text=True, capture_output=True
    )
    assert done.returncode == 2 and "no checkout" in done.stderr and "Traceback" not in done.stderr
