"""The summary in the terminal: where the time goes and what to do first; the metrics if asked for.

Metrics are in the shape of `neuron-profile view --output-format summary-text`: names and units are
that tool's, so that the questions of a handout read the same offline and on hardware: times in
seconds, `_percent` as a fraction of 1, sizes in bytes. Percentages of time refer to total_time.
"""

from __future__ import annotations

from typing import Any

from .columns import Report
from .document import report_of

REORDERED = 0.1  # of the time: what the order of instructions must change to be shown
MOST_LINES = 8  # of the table of time by line
LEAST_SHARE = 0.01  # of the time: lines that have less are not in it


def headline(report: Report) -> str:
    """Return the sentence that says whose numbers these are."""
    head = report.head
    text = f"predicted by nkisim for {head['target']} - not measured"
    if not head["calibrated"]:
        text += f"; {head['target']} is not calibrated against hardware"
    elif head["model_error"]:
        text += f"; error of the model: {head['model_error']}"
    return text


def what(head: dict[str, Any]) -> str:
    """Return what ran: case, arguments, dialect and release; "" if that is not known."""
    package = {"beta1": "neuronxcc.nki", "nki": "import nki"}.get(head.get("dialect", ""), "")
    if package == "import nki":
        package += f" {head['release']}"
    given = ", ".join(
        f"{a['name']} {'x'.join(map(str, a['shape']))} {a['dtype']}"
        if "shape" in a
        else f"{a['name']}={a['value']}"
        for a in head.get("arguments", ())
    )
    case = head.get("case") and f"case {head['case']}"
    return "; ".join(filter(None, (case, given, package, head.get("date"))))


def summary(prof: Any, metrics: bool = False) -> str:
    """Return the summary of a profile as text: where the time goes by line, findings, what to
    change first; with `metrics` also one metric a line, alphabetical."""
    report = report_of(prof)
    head, values = report.head, report.head["metrics"]
    seconds = values.get("nc_latency")
    time = f"{seconds * 1e6:,.1f} us, " if seconds else ""
    lines = [f"{head['kernel']}: {time}{headline(report)}"]
    if line := what(head):
        lines.append(f"    {line}")
    ordered = head.get("in_order_us")
    if ordered and abs(ordered / head["latency_us"] - 1) > REORDERED:
        lines.append(
            f"    {ordered:,.1f} us if the compiler keeps the order of your program (predicted); "
            "the error of the model does not say which"
        )
    if "floor" in head:
        lines += ["", *_floor(head), _bound(values), "", *_time_by_line(head)]
    if head.get("first_bad"):
        lines += ["", *map(first_bad, head["first_bad"])]
    findings = head["findings"]
    if findings:
        lines += ["", f"findings ({len(findings)}):"]
        lines += [
            f"    {f['severity']}: {f['id']} {f['text']}"
            + (f"  ({f['place']})" if f["place"] else "")
            for f in findings
        ]
    advice = [": ".join(filter(None, (a["place"], a["text"]))) for a in head.get("advice", ())]
    advice = advice or list(filter(None, [head.get("verdict")]))
    if advice:  # a measured profile has none
        wrong = any(f["severity"] == "error" for f in findings)
        after = ", once the errors above are mended" if wrong else ""
        lines += ["", f"what to change first{after}:", *(f"    {text}" for text in advice)]
    if metrics:
        width = max(map(len, values)) + 4
        lines += ["", "metrics:", *(f"    {name:<{width}}{_text(v)}" for name, v in values.items())]
    return "\n".join(lines)


def _floor(head: dict[str, Any]) -> list[str]:
    """Return what the least time for the job is, and how far the kernel is from it."""
    floor, latency = head["floor"], head["latency_us"]
    parts = f"launch {floor['launch_us']:.1f}, bytes {floor['bytes_us']:.1f}"
    if floor["tensor_us"]:
        parts += f", products {floor['tensor_us']:.1f}"
    times = latency / floor["floor_us"] if floor["floor_us"] else 1.0
    unknown = floor.get("unknown_bytes", 0)
    return [
        f"floor {floor['floor_us']:,.1f} us ({parts}): no kernel for this job is faster, and this "
        f"one takes {times:.2f} times as long",
        *[
            f"    it leaves out {unknown:,} bytes that run-time indices choose, since this run has "
            f"no values; with all of them it is {floor['with_unknown_us']:,.1f} us"
        ]
        * bool(unknown),
        f"work {floor['work_us']:,.1f} us (launch, and {floor['busiest']}, which is busy longest): "
        f"the other {max(0.0, latency - floor['work_us']):,.1f} us are waits",
    ]


def _bound(values: dict[str, Any]) -> str:
    """Return what limits a kernel, and what that means."""
    bound = values.get("bound", "?")
    if bound == "latency":
        return (
            "bound latency: apart from the launch, no engine is busy most of the time; "
            "instructions wait for each other, or for DMAs to begin"
        )
    who = "the DMA engines are" if bound == "dma" else f"the {bound} engine is"
    return f"bound {bound}: apart from the launch, {who} busy most of the time"


def _time_by_line(head: dict[str, Any]) -> list[str]:
    """Return a table of the lines that the time goes to, the longest first."""
    path = head["critical_path"]
    rows = [r for r in path["by_line"] if r["share"] >= LEAST_SHARE][:MOST_LINES]
    out = ["time by line (the critical path, predicted):"]
    width = max((len(r["where"]) for r in rows), default=0)
    name = max((len(r["instruction"]) for r in rows), default=0)
    out += [
        f"    {r['us']:9,.1f} us {r['share']:4.0%}  {r['where']:<{width}}  "
        f"{r['instruction']:<{name}}  {r['why_text']}"
        for r in rows
    ]
    left = len(path["by_line"]) - len(rows)
    if left:
        rest = path["total_us"] - sum(r["us"] for r in rows)
        out.append(f"    {rest:9,.1f} us in {left} more")
    return out


def first_bad(bad: dict[str, Any]) -> str:
    """Return where the first NaN or infinity was written, as a sentence."""
    place = f", {bad['place']}" if bad["place"] else ""
    return (
        f"first {bad['what']}: instruction {bad['instr']} ({bad['name']}{place}), in "
        f"{bad['elements']:,} of {bad['of']:,} elements"
    )


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
