"""verify_sim against a fake chip, which is the simulator with other constants: none was here."""
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from labkit.neuron import verify
from labkit.spec import SpecError
from labkit.worker import Worker

ROOT = Path(__file__).parents[3]


class FakeChip:
    """FAKE: answers for the chip and for the SDK's simulator with what nkisim computes."""

    def __init__(self, added_us: float = 5.0, wrong: str = ""):
        self.worker, self.added, self.wrong = Worker("sim", in_process=True), added_us, wrong

    def run(self, backend, lab, case, target):
        reply = self.worker.receive(self.worker.send(verify.job_of(
            case, kernels=str(lab.kernels), backend="sim", target=target, dialect=lab.dialect,
            seed=lab.seed, measure=True, profile="")), 60)
        if backend == "hw" and "latency" in reply:
            reply["latency"] = {k: v + self.added for k, v in reply["latency"].items()}
            reply["latency_kind"] = "measured"
        if backend == "sdk-sim":
            reply["latency"] = None
        if backend == "hw" and case.kernel == self.wrong:
            reply["outputs"] = np.asarray(reply["outputs"]) + 1
        return reply


@pytest.fixture
def here(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NKI_BANNER", "0")
    lab = verify.micro_lab()
    small = tuple(c for c in lab.cases if c.name.startswith(("copy_128x64", "tensor_tensor_128x64",
                                                             "tensor_copy_128x512")))
    monkeypatch.setattr(verify, "micro_lab", lambda: verify.Lab(
        lab.name, lab.title, lab.folder, small))


def test_latencies_are_compared_and_become_records_that_fit(tmp_path, here, capsys):
    assert verify.verify_sim(["micro", "--out", str(tmp_path)], FakeChip().run) == 0
    text = capsys.readouterr().out
    assert "predicted us" in text and "measured us" in text and "launch_us" in text
    cases = json.loads((tmp_path / "verify_sim.json").read_text())["cases"]
    assert len(cases) == 6 and all(set(c["verdicts"].values()) == {"passed"} for c in cases)
    assert all(c["measured_us"] == pytest.approx(c["predicted_us"] + 5) for c in cases)
    (proposal,) = json.loads((tmp_path / "verify_sim.proposal.json").read_text())
    launch = next(c for c in proposal["constants"] if c["name"] == "launch_us")
    assert launch["proposed"] == pytest.approx(launch["now"] + 5, rel=0.1)
    assert proposal["after_pct"] < proposal["before_pct"]
    page = (tmp_path / "verify_sim.html").read_text()
    assert page.count("<tr") == 7 and "Proposal for constants" in page


def test_an_output_that_differs_is_named_and_gives_no_record(tmp_path, here, capsys):
    code = verify.verify_sim(["micro", "--out", str(tmp_path)], FakeChip(wrong="tensor_tensor").run)
    assert code == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "micro/tensor_tensor_128x64f32: sim and hw:" in text
    records = json.loads((tmp_path / "verify_sim.records.json").read_text())["records"]
    assert {r["source"]["function"] for r in records} == {"copy", "tensor_copy"}


def test_without_a_chip_it_says_what_to_do(here):
    if Path("/dev/neuron0").exists():
        pytest.skip("there is a chip here")
    with pytest.raises(SpecError, match="no Neuron device here"):
        verify.verify_sim(["micro"])


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_every_micro_kernel_is_right_in_simulation(target, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    assert verify.verify_sim(["micro", "--backend", "sim", "--target", target, "--out",
                              str(tmp_path)]) == 0
    assert "micro/matmul" in capsys.readouterr().out
