"""The adapters for searchers, without these: what they put in the place of a chip."""

from __future__ import annotations

import ast
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
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "searchers" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
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
    program = ROOT / "tools" / "searchers" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, program, flag, tmp_path, *more], text=True, capture_output=True
    )
    assert done.returncode == 2 and "no checkout" in done.stderr and "Traceback" not in done.stderr


NKIBENCH_KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def kernel(v1):
    out = nl.ndarray((128, 2, 64), dtype=v1.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        nl.store(out[:, i], nl.multiply(nl.load(v1[:, i]), nl.sigmoid(nl.load({read}))))
    return out
"""
NKIBENCH_TASK = """
import numpy as np

def forward(x):
    raise AssertionError("nkibench.py has its own statement, and never calls this one")

def transform_to_nki_inputs(inputs):
    return [np.reshape(inputs[0], (128, 2, 64))]
"""


def nkibench(folder, read):
    """Write a checkout with one task of NKIBench's layout; return it."""
    bench = folder / "NKIBench"
    (bench / "kernels").mkdir(parents=True)
    (bench / "reference").mkdir()
    (bench / "kernels" / "silu_0.py").write_text(NKIBENCH_KERNEL.format(read=read))
    (bench / "reference" / "silu_numpy_0.py").write_text(NKIBENCH_TASK)
    impl = {"task": "./reference/silu_numpy_0.py", "kernel": "./kernels/silu_0.py"}
    case = {"values": {"M": 256, "N": 64}, "impls": [impl]}
    summary = {"silu": {"seed": "./seeds/silu.yaml", "cases": {"0": case}}}
    (bench / "summary.json").write_text(json.dumps(summary))
    return folder


def run_nkibench(checkout, *options):
    program = str(ROOT / "tools" / "searchers" / "nkibench.py")
    command = [sys.executable, program, "--checkout", str(checkout)]
    return subprocess.run([*command, *options], capture_output=True, text=True)


def test_a_task_of_nkibench_is_evaluated_from_a_checkout(tmp_path):
    done = run_nkibench(nkibench(tmp_path, "v1[:, i]"), "--json", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["task"], said["verdict"], said["target"]) == ("silu", "right", "trn1")
    assert said["time"]["predicted"] is True and said["floor"]["floor_us"] > 0


def test_a_wrong_kernel_of_nkibench_is_wrong_and_no_checkout_is_said(tmp_path):
    done = run_nkibench(nkibench(tmp_path, "v1[:, 0]"))
    assert done.returncode == 1 and "silu (x times its logistic function): wrong" in done.stdout
    done = run_nkibench(tmp_path / "nothing")
    assert done.returncode == 2 and "NKIBench/summary.json" in done.stderr


def test_statements_of_nkibench_are_those_of_numpy_at_a_small_size():
    bench, rng = adapter("nkibench"), np.random.default_rng(0)
    q, k = rng.standard_normal((1, 8, 4, 16)), rng.standard_normal((2, 1, 8, 2, 16))
    scores = np.einsum("bnhd,bmhd->bhnm", q, np.repeat(k[0], 2, 2)) / 4
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected = np.einsum("bhnm,bmhd->bhnd", weights, np.repeat(k[1], 2, 2))
    assert np.allclose(bench.attention(q, *k), expected)
    delta, u, a = (rng.standard_normal((3, n)) for n in (5, 5, 2))
    b, c = rng.standard_normal((2, 2, 5))
    first = bench.scanned(delta, u, a, b, c)[:, 0]
    assert np.allclose(first, delta[:, 0] * u[:, 0] * (b[:, 0] @ c[:, 0]))
    for task in bench.TASKS.values():
        sizes = dict(M=8, N=8, K=8, B=2, R=4, C=4, S=2, H=2, D=8, QH=4, KH=2)
        assert np.isfinite(task.compute(*bench.inputs_of(task, sizes, 0))).all()


@pytest.mark.full
def test_the_throughput_of_serve_is_measured_in_its_small_mode():
    program = str(ROOT / "tools" / "benchmarks" / "serving.py")
    done = subprocess.run(
        [sys.executable, program, "--candidates", "22", "--jobs", "1"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines()[2:]]
    assert len(rows) == 6 and rows[3].endswith("beside that work") and "loops" in rows[5]


OWN = """
import nki
import nki.isa as nisa
import nki.language as nl


def sums_of(x):
    import numpy as np

    return np.exp(x.astype(np.float64)).sum(1, keepdims=True)


def product_of(a, b):
    import numpy as np

    return a.astype(np.float64).T @ b


@nki.jit
def product(a, b):
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in range(0, a.shape[1], 128):
        for n in range(0, b.shape[1], 512):
            x = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x, src=a[:, m : m + 128])
            y = nl.ndarray((128, 512), dtype=b.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=y, src=b[:, n : n + 512])
            acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=acc, stationary=x, moving=y)
            done = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=done, src=acc)
            nisa.dma_copy(dst=out[m : m + 128, n : n + 512], src=done)
    return out


@nki.jit
def sums(x):
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    y = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.activation(dst=y, op=nl.exp, data=a)
    nisa.tensor_reduce(dst=total, op=nl.add, data=y, axis=1)
    nisa.dma_copy(dst=out, src=total)
    return out
"""
#: (kernel of tools/searchers/tasks.py or of OWN, its arguments, causes whose rewrites apply)
REWRITTEN = {
    "rms_norm": (["128x1024:float32"], {"descriptors", "vector-squares", "repeated-loads"}),
    "product": (
        ["128x256:float32", "128x1024:float32"],
        {"descriptors", "fp32-passes", "repeated-loads"},
    ),
    "sums": (["128x512:float32"], {"descriptors", "separate-sums"}),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_no_rewrite_leads_to_what_a_finding_warns_of_or_doubts(name, tmp_path, monkeypatch):
    """Each edit that advice leads to, at all lines of a kernel, as far as the result is right."""
    from nkisim.cli import requests

    monkeypatch.syspath_prepend(ROOT / "tools" / "searchers")
    rewrites = adapter("rewrites")
    args, causes = REWRITTEN[name]
    file = tmp_path / "own.py"
    file.write_text(OWN)
    file = ROOT / "tools" / "searchers" / "tasks.py" if name == "rms_norm" else file
    source = file.read_text("utf-8")

    def evaluated(text):
        found = requests.answer(
            {
                "kernel": f":{name}", "source": text, "args": args, "target": "trn2",
                "reference": f"{file}:{name}_of", "fixes": False, "details": False,
            }
        )  # fmt: skip
        said = {
            f["id"]
            for f in found["findings"]
            if f["severity"] != "note" or f["id"].startswith("NKI-R")
        }
        return found["verdict"], said

    _, before = evaluated(source)
    made = next(n for n in ast.parse(source).body if getattr(n, "name", "") == name)
    lines, used = range(made.lineno, made.end_lineno + 1), set()
    for cause in rewrites.REWRITES:
        for _, text in rewrites.rewrites(source, cause, lines):
            verdict, after = evaluated(text)
            if verdict == "right":
                used.add(cause)
                assert after <= before, cause
    assert used == causes
