"""A measured profile is read, matched with the predicted one, and shown above it.

The samples are made by hand in the documented formats (`hand_made_profiles`); no chip has run.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import numpy as np
import pytest
from test_viewer_browser import CHROMIUM, DRIVER, Page, chromium  # noqa: F401

from hand_made_profiles import hand_made
from nkisim import report
from nkisim.report.measured import load_measured, table
from nkisim.simulation.prediction import profile


@pytest.fixture(scope="module")
def prof():
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

    @nki.jit
    def add(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(8):
            x = nl.load(a[:, i * 512 : (i + 1) * 512])
            y = nl.load(b[:, i * 512 : (i + 1) * 512])
            nl.store(out[:, i * 512 : (i + 1) * 512], nl.add(x, nl.exp(y)))
        return out

    return profile(add, *[np.ones((128, 4096), np.float32)] * 2, target="trn2")


def save(tmp_path, document):
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(document))
    return path


def compared(tmp_path, prof, document):
    predicted = report.report_of(prof)
    return report.both(load_measured(save(tmp_path, document), "k", "trn2"), predicted), predicted


@pytest.mark.parametrize("explorer", [False, True], ids=["neuron-profile", "neuron-explorer"])
@pytest.mark.parametrize("places", [True, False], ids=["lines", "no lines"])
def test_each_instruction_finds_its_partner(tmp_path, prof, explorer, places):
    measured, predicted = compared(
        tmp_path, prof, hand_made(prof, {"vector": 2.0}, explorer, places)
    )
    assert measured.head["matched"] == len(predicted.columns["start"])
    assert measured.head["unmatched"] == [0, 0]
    pair, kinds = measured.columns["pair"], predicted.head["kinds"]
    for i in np.nonzero(pair >= 0)[0]:
        assert measured.columns["engine"][i] == predicted.columns["engine"][pair[i]]
        assert measured.columns["line"][i] == predicted.columns["line"][pair[i]]
        if kinds[predicted.columns["kind"][pair[i]]]["engine"] == "vector":
            assert measured.us("dur")[i] == pytest.approx(
                2 * predicted.us("dur")[pair[i]], abs=2e-3
            )
    worst = measured.head["differences"][0]
    assert worst["engine"] == "vector"
    assert worst["predicted_us"] / worst["measured_us"] == pytest.approx(0.5, rel=0.02)


def test_an_instruction_that_the_compiler_added_has_no_partner_and_the_others_keep_theirs(
    tmp_path, prof
):
    document = hand_made(prof, {}, places=False)
    engines = [
        k
        for k, r in enumerate(document["instruction"])
        if r["label"] == "Vector" and r["opcode"] != "EVENT_SEMAPHORE"
    ]
    extra = copy.deepcopy(document["instruction"][engines[2]])
    document["instruction"].append(
        {**extra, "opcode": "MEMSET", "timestamp": extra["timestamp"] + 1}
    )
    measured, predicted = compared(tmp_path, prof, document)
    assert measured.head["unmatched"] == [1, 0]
    assert measured.head["matched"] == len(predicted.columns["start"])


def test_a_measured_wait_is_the_tools_own_and_the_set_up_is_none(tmp_path, prof):
    document = hand_made(prof, {}, explorer=True)
    for row in document["Instruction"]:
        row["evt_wait_time_ns"] = 7000 if row["engine"] == "vector" else 0
    measured, _ = compared(tmp_path, prof, document)
    vector = [r for r in measured.head["differences"] if r["engine"] == "vector"]
    assert all(r["measured_wait_us"] == pytest.approx(7.0 * r["count"]) for r in vector)
    assert "set-up before the kernel" in measured.head["findings"][0]["text"]
    assert measured.us("start")[0] == 0


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("{", "is not JSON"),
        ("[]", "no JSON object"),
        ("{}", "no list"),
        ('{"summary": [{"total_time": 1}]}', "summary-json"),
        ('{"instruction": [{}]}', "no instru"),
        ('{"instruction": [{"label": "Vector"}]}', "as documented"),
        (
            '{"instruction": [{"label": "Vector", "opcode": "X", "timestamp": "a", "duration": '
            "1}]}",
            "as documented",
        ),
    ],
)
def test_what_is_no_measured_profile_is_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(report.ReportError, match=sentence):
        load_measured(path)


def test_the_command_line_and_the_table(tmp_path, prof):
    report.save_json(prof, tmp_path / "p.json")
    path = save(tmp_path, hand_made(prof, {"vector": 2.0}))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "nkisim",
            "view",
            str(tmp_path / "p.json"),
            "--measured",
            str(path),
            "--summary",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "0 measured and 0 predicted ones have no partner" in done.stdout
    assert "-50%" in done.stdout
    wrong = subprocess.run(
        [
            sys.executable,
            "-m",
            "nkisim",
            "view",
            str(tmp_path / "p.json"),
            "--measured",
            str(tmp_path / "none.json"),
        ],
        capture_output=True,
        text=True,
    )
    assert wrong.returncode == 2 and "cannot be read" in wrong.stderr
    measured, _ = compared(tmp_path, prof, hand_made(prof, {}))
    assert "matched" in table(measured)


@pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no Chromium with a chromedriver is installed (Debian, Ubuntu: chromium-driver)",
)
def test_the_page_shows_both_and_a_click_selects_the_partner(tmp_path, prof, chromium):  # noqa: F811
    measured, predicted = compared(tmp_path, prof, hand_made(prof, {"vector": 2.0}))
    report.save_html(measured, tmp_path / "two.html", compare=predicted)
    page = Page(chromium, tmp_path / "two.html")
    banner = page.text("banner")
    assert "measured on a NeuronCore (measured.json)" in banner and "Predicted by nkisim" in banner
    assert "error of the prediction" in page.text("cards")
    assert "wait, A" in page.text("panel")
    page.js("document.querySelector('#panel tr.go').click()")
    page.frame()
    a, b = page.js("return nkisim.timelines.map(t => t.selected)")
    assert measured.columns["pair"][a] == b >= 0
    page.js("nkisim.focus(1); nkisim.select(arguments[0])", int(b))
    assert page.js("return nkisim.timelines[0].selected") == a
    assert [e for e in chromium.get_log("browser") if e["level"] == "SEVERE"] == []
