"""What runs on a Neuron machine, against fakes of AWS's programs: nothing was run with the real."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from fake_tools import put_fakes

from labkit.neuron import commands
from labkit.run import backends, neuron_profiles, neuron_tools
from labkit.run.neuron_tools import NeuronError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Neuron machines run Linux")


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    monkeypatch.setattr(neuron_tools, "TOOLS", tmp_path / "nothing")

    def put(*names):
        folder = put_fakes(tmp_path / "fakes", *names)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return folder

    return put


@pytest.fixture
def captured(tmp_path):
    for suffix in ("neff", "ntff"):
        (tmp_path / f"add.{suffix}").write_text(suffix)
    return str(tmp_path / "add")


@pytest.mark.parametrize("release", ["2.26", "2.34"])
def test_devices_in_the_old_and_in_the_announced_format(fakes, monkeypatch, release):
    fakes("neuron-ls")
    monkeypatch.setenv("FAKE_NEURON_LS", release)
    (device,) = neuron_tools.devices()
    assert device["nc_count"] == 2


def test_the_newer_profiler_is_taken_where_both_are(fakes):
    fakes("neuron-profile")
    assert neuron_tools.profiler().name == "neuron-profile"
    assert (
        neuron_tools.profiler().tunnel("lab")
        == "ssh -L 3001:localhost:3001 -L 8086:localhost:8086 lab"
    )
    fakes("neuron-explorer")
    assert neuron_tools.profiler().name == "neuron-explorer"
    assert "-L 3002:localhost:3002" in neuron_tools.profiler().tunnel("lab")


@pytest.mark.parametrize("tool", ["neuron-profile", "neuron-explorer"])
def test_a_profile_becomes_files_that_are_read_at_home(fakes, captured, tool, tmp_path):
    if tool == "neuron-explorer":
        pytest.importorskip("pyarrow", reason="pyarrow reads Neuron Explorer's Parquet")
    fakes(tool)
    made = neuron_profiles.bring(captured)
    assert [Path(f).name for f in made] == [
        "add.neff",
        "add.ntff",
        "add.summary.json",
        "add.measured.json",
    ]
    assert json.loads(Path(f"{captured}.summary.json").read_text())["total_time"] == 28.5e-6
    from nkisim import report

    measured = report.load_measured(f"{captured}.measured.json")
    assert len(measured.columns["start"]) == 4
    assert measured.head["profile_total_us"] == pytest.approx(28.5)


def test_without_a_tool_the_profile_is_kept_and_why_is_said(fakes, captured, monkeypatch):
    monkeypatch.setenv("PATH", "")
    made = neuron_profiles.bring(captured)
    assert made[:2] == [f"{captured}.neff", f"{captured}.ntff"]
    assert all("aws-neuronx-tools" in text for text in made[2:])


def test_a_tool_that_fails_is_one_sentence(fakes, captured, monkeypatch):
    fakes("neuron-profile")
    monkeypatch.setenv("FAKE_NEURON_FAIL", "view")
    with pytest.raises(NeuronError, match="neuron-profile failed .*nrt_init failed: no device"):
        neuron_profiles.summary(Path(f"{captured}.neff"), Path(f"{captured}.ntff"))


def test_a_kernel_of_an_sdk_without_benchmark_is_measured_by_its_neff(fakes, tmp_path):
    fakes("neuron-profile")

    def compiles():
        assert os.environ["NEURON_FRAMEWORK_DEBUG"] == "1"
        Path("MODULE_0_graph.neff").write_text("neff")
        return "outputs"

    here = os.getcwd()
    outputs, latency, why = neuron_profiles.measure(compiles, str(tmp_path / "kept"))
    assert why == "" and latency is not None
    assert outputs == "outputs" and os.getcwd() == here
    assert latency["p50"] == latency["max"] == pytest.approx(28.5) and latency["std"] == 0
    assert sorted(p.name for p in tmp_path.glob("kept.*")) == [
        "kept.measured.json",
        "kept.neff",
        "kept.ntff",
        "kept.summary.json",
    ]
    assert "NEURON_FRAMEWORK_DEBUG" not in os.environ
    outputs, latency, why = neuron_profiles.measure(lambda: "right all the same")
    assert outputs == "right all the same" and latency is None and "saved no NEFF" in why


def test_percentiles():
    found = neuron_profiles.percentiles([1.0, 2.0, 3.0, 4.0, 100.0])
    assert found["p50"] == 3 and found["p99"] == found["max"] == 100 and found["min"] == 1
    assert found["mean"] == 22


class FakeNki:
    """FAKE of neuronxcc.nki.benchmark: writes what its documents say that it writes."""

    def benchmark(self, kernel, **options):
        self.options = options

        def run(*args, **kwargs):
            if "save_neff_name" in options:
                Path(options["save_neff_name"]).write_text("neff")
                Path(options["save_trace_name"]).write_text("ntff")

        run.benchmark_result = type(
            "Result",
            (),
            {"nc_latency": type("Latency", (), {"get_latency_percentile": staticmethod(float)})()},
        )
        return run


def test_the_sdks_benchmark_with_the_handouts_iterations(fakes, tmp_path, monkeypatch):
    fakes("neuron-profile")
    monkeypatch.chdir(tmp_path)
    nki = FakeNki()
    latency = backends._measure(nki, print, (), {}, {}, str(tmp_path / "p"))
    assert (nki.options["warmup"], nki.options["iters"]) == (5, 20)
    assert latency == {"p50": 50, "p99": 99, "min": 0, "p10": 10, "p90": 90, "max": 100}
    assert (tmp_path / "p.measured.json").exists() and (tmp_path / "p.summary.json").exists()


def test_check_says_what_to_do(fakes, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    fakes("neuron-ls", "neuron-explorer")
    assert commands.check() == 1  # there is no device and no compiler here
    text = capsys.readouterr().out
    assert "1 devices, 2 cores" in text and "neuron-explorer at" in text
    assert "modprobe" in text or "/dev/neuron0 is there" in text
    assert "neuronx-cc is not in this Python" in text or "neuronx-cc 2" in text


def test_view_prints_the_tunnel_and_starts_the_page(fakes, captured, capfd, monkeypatch):
    fakes("neuron-profile")
    monkeypatch.setenv("LABKIT_HOST_NAME", "my-trn1")
    assert commands.neuron(["view", captured]) == 0
    text = capfd.readouterr().out
    assert "ssh -L 3001:localhost:3001 -L 8086:localhost:8086 my-trn1" in text
    assert "View profile at http://localhost:3001/" in text
    with pytest.raises(NeuronError, match="nox -s profile"):
        commands.neuron(["export", "nothing"])


def test_the_fakes_name_themselves(tmp_path):
    folder = put_fakes(tmp_path / "f", "neuron-ls", "neuron-profile")
    assert all("# FAKE" in p.read_text() for p in folder.iterdir())
    assert sys.executable in (folder / "neuron-ls").read_text()
