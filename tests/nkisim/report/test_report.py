"""What the summary, the saved profile, the page and the Perfetto trace say of a kernel."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import perfetto.protos.perfetto.trace.perfetto_trace_pb2 as perfetto
import pytest

from nkisim import report
from nkisim.checks.finding import Finding
from nkisim.cli.kernel_arguments import load_kernel
from nkisim.errors import NkiError
from nkisim.simulation.prediction import profile
from nkisim.timing.regions import active_us

KERNELS = Path(__file__).parents[1].joinpath("kernels_for_reports.py")


def kernel(name):
    return load_kernel(f"{KERNELS}:{name}")


def zeros(*shape):
    return np.zeros(shape, np.float32)


@pytest.fixture(scope="module")
def add():
    """Return the profile of an addition of 2 tiles: 4 loads, 2 additions, 2 stores."""
    return profile(kernel("add"), zeros(2, 128, 1000), zeros(2, 128, 1000), target="trn2")


@pytest.fixture(scope="module")
def matmul():
    return profile(
        kernel("matmul"), zeros(256, 128), zeros(256, 1024), target="trn2", compute=False
    )


def metric(text, name):
    found = re.search(rf"^ +{name} +(\S+)$", text, re.MULTILINE)
    assert found, f"no {name} in\n{text}"
    return float(found[1])


# -- summary -------------------------------------------------------------------------------------


def test_the_summary_says_first_that_it_is_predicted(add):
    first = report.summary(add).splitlines()[0]
    assert "predicted by nkisim for trn2 - not measured" in first


def test_the_summary_is_alphabetical_one_metric_a_line(add):
    lines = [
        line.split()
        for line in report.summary(add, metrics=True).split("metrics:\n")[1].splitlines()
    ]
    names = [name for name, _ in lines]
    assert names == sorted(names) and len(names) > 30


def test_the_summary_answers_the_questions_of_the_handout(add):
    text = report.summary(add, metrics=True)
    assert metric(text, "dma_transfer_count") == 6
    assert metric(text, "total_time") == pytest.approx(add.profile_total_us / 1e6, rel=1e-4)
    assert metric(text, "hbm_read_bytes") == 2 * metric(text, "hbm_write_bytes") == 2048000
    assert metric(text, "dma_transfer_total_bytes") == 3072000
    assert metric(text, "dma_transfer_average_bytes") == 512000
    assert metric(text, "vector_engine_instruction_count") == 2


def test_percentages_are_fractions_of_the_total_time(add):
    text = report.summary(add, metrics=True)
    for name in ("vector_engine", "dma", "total"):
        active = metric(text, f"{name}_active_time")
        assert 0 < active < metric(text, "total_time")
        assert metric(text, f"{name}_active_time_percent") == pytest.approx(
            active / metric(text, "total_time"), rel=1e-3
        )


def test_a_matmul_in_float32_counts_twice_as_in_neuron_profile(matmul):
    text = report.summary(matmul, metrics=True)
    assert metric(text, "model_flops") == pytest.approx(2 * 2 * 128 * 1024 * 256, rel=1e-4)
    assert metric(text, "matmul_instruction_count") == 4
    half = profile(
        kernel("matmul"),
        np.zeros((256, 128), np.float16),
        np.zeros((256, 1024), np.float16),
        target="trn2",
        compute=False,
    )
    assert metric(report.summary(half, metrics=True), "model_flops") == pytest.approx(
        2 * 128 * 1024 * 256, rel=1e-4
    )


def test_a_transpose_is_work_of_the_hardware_but_not_of_the_model():
    text = report.summary(
        profile(kernel("transpose"), zeros(128, 128), target="trn2"), metrics=True
    )
    assert metric(text, "model_flops") == metric(text, "mfu_estimated_percent") == 0
    assert metric(text, "hardware_flops") == metric(text, "transpose_flops") > 0


def test_a_target_that_nothing_was_compared_with_is_said_to_be_uncalibrated(add):
    trn3 = profile(kernel("add"), zeros(1, 128, 8), zeros(1, 128, 8), target="trn3")
    assert "not calibrated" in report.summary(trn3).splitlines()[0]
    assert "calibrated" not in report.summary(add).splitlines()[0]


def test_the_error_of_the_model_is_told_where_it_is_known(tmp_path):
    known = profile(kernel("add"), zeros(1, 128, 8), zeros(1, 128, 8), target="trn2")
    known.model_error = "median 7 %, 90th percentile 21 %"
    assert "error of the model: median 7 %" in report.summary(known).splitlines()[0]
    report.save_html(known, tmp_path / "p.html")
    assert report.load(tmp_path / "p.html").head["model_error"] == known.model_error


def test_findings_are_told_with_their_places():
    text = report.summary(profile(kernel("reads_nothing"), zeros(128, 8), target="trn2"))
    found = re.search(r"findings \(1\):\n +error: NKI-\w+ .*\((\S+):\d+\)", text)
    assert found and found[1] == KERNELS.name, text
    assert "what to change first, once the errors above are mended:" in text


def test_overlapping_activity_counts_once():
    start, stop = np.array([5.0, 0.0, 1.0, 9.0]), np.array([6.0, 3.0, 2.0, 10.0])
    assert active_us(start, stop) == 3 + 1 + 1
    assert active_us(start[:0], stop[:0]) == 0


def test_an_empty_kernel_gets_a_sentence():
    with pytest.raises(NkiError, match="an output of nothing is never written"):
        profile(kernel("nothing"), zeros(128, 128), compute=False)


# -- saved and loaded ----------------------------------------------------------------------------


def test_a_saved_profile_says_the_same_when_it_is_loaded(add, tmp_path):
    report.save_json(add, tmp_path / "p.json")
    back = report.load(tmp_path / "p.json")
    fresh = report.report_of(add)
    assert back.head == json.loads(json.dumps(fresh.head))
    assert back.columns.keys() == fresh.columns.keys()
    for name, column in fresh.columns.items():
        assert back.columns[name].dtype == column.dtype
        np.testing.assert_array_equal(back.columns[name], column)
    assert report.summary(back) == report.summary(add)


def test_a_page_holds_its_profile(add, tmp_path):
    report.save_html(add, tmp_path / "p.html")
    assert report.summary(report.load(tmp_path / "p.html")) == report.summary(add)


def test_times_survive_to_a_tenth_of_a_nanosecond(matmul):
    times = report.report_of(matmul)
    np.testing.assert_allclose(times.us("start"), matmul.timeline.start_us, atol=1e-4)
    np.testing.assert_allclose(
        times.us("start") + times.us("dur"), matmul.timeline.end_us, atol=2e-4
    )


def test_transfers_on_one_row_do_not_overlap(matmul):
    columns = report.report_of(matmul).columns
    moves = columns["engine"] == 5
    for row in set(columns["row"][moves].tolist()):
        on_row = moves & (columns["row"] == row)
        start, stop = columns["start"][on_row], (columns["start"] + columns["dur"])[on_row]
        start, stop = np.sort(start), stop[np.argsort(start)]
        assert (start[1:] >= stop[:-1]).all()


@pytest.mark.parametrize(
    "spoil, sentence",
    [
        (lambda text: text.replace('"version":1', '"version":7'), "profile format 7"),
        (lambda text: text.replace("nkisim-profile", "other"), "not a profile that nkisim saved"),
        (lambda text: text[: len(text) // 2], "not a profile that nkisim saved"),
        (lambda text: re.sub('"blob":"[^"]{40}', '"blob":"', text), "damaged"),
        (lambda text: "<html></html>", "not one that nkisim wrote"),
        (lambda text: "[1, 2]", "not a profile that nkisim saved"),
        (lambda text: "", "not a profile that nkisim saved"),
    ],
)
def test_what_is_no_profile_of_this_version_gets_a_sentence(add, tmp_path, spoil, sentence):
    report.save_json(add, tmp_path / "p.json")
    text = (tmp_path / "p.json").read_text("utf-8")
    (tmp_path / "p.json").write_text(spoil(text), "utf-8")
    with pytest.raises(report.ReportError, match=sentence):
        report.load(tmp_path / "p.json")


def test_a_file_that_is_not_there_or_not_text_gets_a_sentence(tmp_path):
    with pytest.raises(report.ReportError, match="cannot be read"):
        report.load(tmp_path / "none.json")
    (tmp_path / "trace.ntff").write_bytes(bytes(range(256)))
    with pytest.raises(report.ReportError, match="not a profile"):
        report.load(tmp_path / "trace.ntff")


# -- the page ------------------------------------------------------------------------------------


def test_a_page_needs_no_network_and_runs_no_script_but_its_own(add, tmp_path):
    report.save_html(add, tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert not re.search(r'(src|href)="?http', text) and "url(" not in text


def test_source_text_cannot_become_markup(add, tmp_path):
    assert "</script>" in KERNELS.read_text("utf-8")
    report.save_html(add, tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text("utf-8")
    assert "<img" not in text
    assert text.count("</script>") == 2  # the data and the script, closed by us
    source = report.load(tmp_path / "p.html").head["files"][0]["text"]
    assert any("</script><img src=x" in line for line in source)


def test_a_page_does_not_say_where_on_the_disk_the_kernel_lies(tmp_path):
    prof = profile(kernel("add"), zeros(1, 128, 8), zeros(1, 128, 8), target="trn2")
    prof.findings.append(Finding("NKI-A05", "error", f"a tile made at {KERNELS}:22 is lost"))
    report.save_html(prof, tmp_path / "p.html")
    head = report.load(tmp_path / "p.html").head
    assert head["findings"][0]["text"] == f"a tile made at {KERNELS.name}:22 is lost"
    assert [f["name"] for f in head["files"]] == [KERNELS.name]
    assert str(KERNELS.parent) not in json.dumps(head)


# -- Perfetto ------------------------------------------------------------------------------------


class Trace:
    """A trace file, read with Perfetto's own messages: slices, counters and names of tracks."""

    def __init__(self, path):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rb") as file:
            packets = perfetto.Trace.FromString(file.read()).packet
        interned = packets[0].interned_data
        assert packets[0].sequence_flags & perfetto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        names = {e.iid: e.name for e in interned.event_names}
        labels = {e.iid: e.name for e in interned.debug_annotation_names}
        texts = {e.iid: e.str.decode() for e in interned.debug_annotation_string_values}
        self.tracks = {
            p.track_descriptor.uuid: p.track_descriptor
            for p in packets
            if p.HasField("track_descriptor")
        }
        self.slices, self.counters, running = [], {}, {}
        for p in packets:
            assert p.trusted_packet_sequence_id == 1
            event = p.track_event
            if not p.HasField("track_event"):
                continue
            assert event.track_uuid in self.tracks
            assert p.sequence_flags & perfetto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            if event.type == event.TYPE_COUNTER:
                self.counters.setdefault(event.track_uuid, []).append(event.counter_value)
            elif event.type == event.TYPE_SLICE_BEGIN:
                args = {
                    labels[a.name_iid]: texts[a.string_value_iid]
                    if a.string_value_iid
                    else a.double_value
                    if a.HasField("double_value")
                    else a.int_value
                    for a in event.debug_annotations
                }
                assert event.track_uuid not in running  # they follow each other
                running[event.track_uuid] = {
                    "ns": p.timestamp,
                    "name": names[event.name_iid],
                    "args": args,
                    "track": event.track_uuid,
                    "starts": list(event.flow_ids),
                    "ends": list(event.terminating_flow_ids),
                }
            else:
                slice = running.pop(event.track_uuid)
                assert p.timestamp >= slice["ns"]
                self.slices.append({**slice, "end": p.timestamp})
        assert not running

    def instructions(self):
        """Return the slices of instructions by number."""
        return {
            s["args"]["instruction"]: s
            for s in self.slices
            if s["name"] != "trigger" and s["track"] < 1000
        }


@pytest.fixture
def traced(tmp_path):
    def read(prof, name="t.pftrace"):
        report.save_perfetto(prof, tmp_path / name)
        return Trace(tmp_path / name)

    return read


@pytest.mark.parametrize("name", ["t.pftrace", "t.pftrace.gz"])
def test_a_trace_has_every_instruction_where_the_timeline_has_it(add, traced, name):
    slices = traced(add, name).instructions()
    assert len(slices) == len(add.trace) == 8
    for i, s in slices.items():
        assert s["ns"] / 1e3 == pytest.approx(add.timeline.start_us[i], abs=1e-3)
        assert s["args"]["ends_us"] == pytest.approx(add.timeline.end_us[i], abs=1e-3)
    assert slices[2]["args"]["line"].startswith(KERNELS.name)


def test_slices_of_a_track_do_not_overlap(matmul, traced):
    tracks = {}
    for s in traced(matmul).slices:
        tracks.setdefault(s["track"], []).append((s["ns"], s["end"]))
    assert len(tracks) > 16
    for slices in tracks.values():
        assert slices == sorted(slices)
        assert all(a[1] <= b[0] for a, b in zip(slices, slices[1:]))


def test_each_transfer_has_its_trigger_on_a_queue(add, traced):
    triggers = [s for s in traced(add).slices if s["name"] == "trigger"]
    assert sorted(s["args"]["of_instruction"] for s in triggers) == [0, 1, 3, 4, 5, 7]
    for s in triggers:
        i = s["args"]["of_instruction"]
        assert s["ns"] / 1e3 == pytest.approx(add.timeline.issue_us[i], abs=1e-3)
        assert s["track"] == 2 + add.timeline.queue[i]


def test_tracks_have_names_and_stand_in_order_below_their_group(matmul, traced):
    tracks = traced(matmul).tracks
    (core,) = [t for t in tracks.values() if "not measured" in t.name]
    below = sorted(
        (t.sibling_order_rank, t.name) for t in tracks.values() if t.parent_uuid == core.uuid
    )
    assert [name for _, name in below][:3] == ["Tensor Engine", "Vector Engine", "Scalar Engine"]
    assert all(t.name for t in tracks.values())
    assert sum(t.name.startswith("DMA engine ") for t in tracks.values()) == 16


def test_arrows_lead_from_what_was_waited_for(matmul, traced):
    slices = traced(matmul).instructions()
    starts = {flow: i for i, s in slices.items() for flow in s["starts"]}
    ends = {flow: i for i, s in slices.items() for flow in s["ends"]}
    waits = {i: int(p) for i, p in enumerate(matmul.timeline.pred) if p >= 0}
    assert starts.keys() == ends.keys() and waits
    assert {ends[flow]: starts[flow] for flow in ends} == waits


def test_counters_follow_the_memory(add, traced):
    trace = traced(add)
    (sbuf,) = [
        c for uuid, c in trace.counters.items() if trace.tracks[uuid].name.startswith("SBUF")
    ]
    assert max(sbuf) == add.sbuf_peak_bytes and sbuf[-1] == 0


@pytest.mark.skipif(
    not shutil.which("trace_processor_shell"),
    reason="no trace_processor_shell: it is no package, perfetto.dev has it",
)
def test_perfetto_itself_reads_the_trace(matmul, tmp_path):
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    report.save_perfetto(matmul, tmp_path / "t.pftrace")
    config = TraceProcessorConfig(bin_path=shutil.which("trace_processor_shell"))
    with TraceProcessor(trace=str(tmp_path / "t.pftrace"), config=config) as tp:

        def count(query):
            return next(iter(tp.query(query))).n

        assert (
            count("select count(*) n from slice where name = 'nc_matmul'")
            == matmul.instructions["nc_matmul"]
        )
        assert count("select count(*) n from flow") == np.count_nonzero(matmul.timeline.pred >= 0)
        assert count("select count(*) n from stats where severity = 'error' and value > 0") == 0


# -- what comes first, tables --------------------------------------------------------------------


def test_the_summary_begins_with_time_by_line_and_ends_with_metrics(matmul):
    text = report.summary(matmul, metrics=True)
    assert text.startswith(report.summary(matmul)) and "metrics:" not in report.summary(matmul)
    at = [
        text.index(part)
        for part in ("floor ", "\nbound ", "time by line", "what to change", "metrics:")
    ]
    assert at == sorted(at)
    assert re.search(r"\d us +\d+%  kernels_for_reports.py:\d+ +nc_matmul", text)
    assert "lhs_t 256x128 float32" in text.splitlines()[1]


def test_a_saved_profile_has_the_same_summary(matmul, tmp_path):
    report.save_json(matmul, tmp_path / "m.json")
    assert report.summary(report.load(tmp_path / "m.json")) == report.summary(matmul)


def test_a_saved_profile_names_no_folder(matmul):
    head = json.dumps(report.report_of(matmul).head)
    assert str(KERNELS.parent) not in head


def test_the_date_is_the_one_of_the_environment_where_there_is_one(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    one = profile(kernel("transpose"), zeros(128, 128), target="trn2", compute=False)
    assert report.report_of(one).head["date"] == "1970-01-02 00:00 UTC"


def test_the_first_nan_is_named_with_its_line():
    one = profile(
        kernel("spoilt"), np.full((128, 64), -1.0, np.float32), target="trn2", tile_values=True
    )
    (said,) = (line for line in report.summary(one).splitlines() if line.startswith("first NaN"))
    assert "activation" in said and re.search(r"kernels_for_reports.py:\d+", said)
    right = profile(
        kernel("spoilt"), np.full((128, 64), 1.0, np.float32), target="trn2", tile_values=True
    )
    assert "first NaN" not in report.summary(right)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_instructions_are_a_table_in_the_columns_of_neuron_explorer(add, tmp_path, ending):
    path = tmp_path / f"add.{ending}"
    if ending == "csv":
        report.save_table(add, path)
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        report.save_table(add, path)
        rows = parquet.read_table(path).to_pylist()
    assert len(rows) == len(add.trace)
    launch = add.latency_us - add.body_us
    for i, row in enumerate(rows):
        assert int(row["start_ts"]) == pytest.approx(
            1e3 * (add.timeline.start_us[i] + launch), abs=1
        )
        assert str(row["predicted"]) == "True"
    assert {r["engine"] for r in rows} == {"DMA", "Vector"}
    assert {r["opcode"] for r in rows} == {"LOAD", "STORE", "TENSOR_TENSOR"}
    assert re.fullmatch(r"kernels_for_reports.py:\d+", rows[0]["nki_source_location"])


def test_a_table_that_was_predicted_can_be_read_as_one_that_was_measured(add, tmp_path):
    rows = [r for r in report.table.rows(add) if r["engine"] != "DMA"]
    (tmp_path / "t.json").write_text(json.dumps({"Instruction": rows}))
    back = report.load_measured(tmp_path / "t.json", "add", "trn2")
    assert len(back.columns["start"]) == len(rows)


def test_a_table_of_another_ending_is_refused(add, tmp_path):
    with pytest.raises(report.ReportError, match="csv or .parquet"):
        report.save_table(add, tmp_path / "add.xlsx")


def test_nine_profiles_are_too_many(add, tmp_path):
    with pytest.raises(report.ReportError, match="at most 8"):
        report.save_html(add, tmp_path / "nine.html", compare=[add] * 8)
