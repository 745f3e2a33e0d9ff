"""The summary in the terminal, in the shape of `neuron-profile view --output-format summary-text`.

Names and units are that tool's, so that the questions of a handout read the same offline and on
hardware: times in seconds, `_percent` as a fraction of 1, sizes in bytes. Percentages of time refer
to total_time.
"""

from __future__ import annotations

from typing import Any

from .columns import Report
from .document import report_of


def headline(report: Report) -> str:
    """Return the sentence that says whose numbers these are."""
    head = report.head
    text = f"predicted by nkisim for {head['target']} - not measured"
    if not head["calibrated"]:
        text += f"; {head['target']} is not calibrated against hardware"
    elif head["model_error"]:
        text += f"; error of the model: {head['model_error']}"
    return text


def summary(prof: Any) -> str:
    """Return the summary of a profile as text: one metric a line, alphabetical."""
    report = report_of(prof)
    values = report.head["metrics"]
    width = max(map(len, values)) + 4
    seconds = values.get("nc_latency")
    time = f"{seconds * 1e6:,.1f} us, " if seconds else ""
    lines = [f"{report.head['kernel']}: {time}{headline(report)}"]
    lines += [f"    {name:<{width}}{_text(value)}" for name, value in values.items()]
    findings = report.head["findings"]
    if findings:
        lines += ["", f"findings ({len(findings)}):"]
        lines += [
            f"    {f['severity']}: {f['id']} {f['text']}"
            + (f"  ({f['place']})" if f["place"] else "")
            for f in findings
        ]
    told = [": ".join(filter(None, (a["place"], a["text"]))) for a in report.head.get("advice", ())]
    told = told or list(filter(None, [report.head.get("verdict")]))
    if told:  # a measured profile has none
        lines += ["", "what to change first:", *(f"    {text}" for text in told)]
    return "\n".join(lines)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
