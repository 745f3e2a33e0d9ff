"""Predicted time against SBUF, as an SVG; matplotlib is asked for when something is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import fail

if TYPE_CHECKING:
    from .tune import Tuning

_NAMED = 12  # points of the front that carry their values


def library() -> Any:
    """Return matplotlib, or raise NkiError (NKI-K17) with what to install."""
    try:
        import matplotlib
    except ImportError:
        raise fail(
            "NKI-K17",
            "a plot needs matplotlib, which is not installed",
            given="--svg, or save_svg",
            limit="the extra `plot`",
            hint='python -m pip install "trainium-labs[plot]", or matplotlib',
        ) from None
    return matplotlib


def save(tuning: Tuning, path: str | Path) -> None:
    """Write the plot. Raises NkiError (NKI-K17) without matplotlib, OSError."""
    library()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    rest = [r.prediction for r in tuning.rows if not r.pareto]
    front = sorted((r.prediction for r in tuning.rows if r.pareto), key=lambda p: p.us)
    tied = [r.prediction for r in tuning.tied]
    axes.scatter(
        [p.sbuf / 1024 for p in rest], [p.us for p in rest], s=18, color="0.6", label="candidates"
    )
    axes.scatter(
        [p.sbuf / 1024 for p in tied],
        [p.us for p in tied],
        s=70,
        facecolors="none",
        edgecolors="tab:orange",
        label="within the model's error of the fastest",
    )
    axes.scatter(
        [p.sbuf / 1024 for p in front],
        [p.us for p in front],
        s=30,
        color="tab:blue",
        label="Pareto front (time, SBUF, HBM bytes)",
    )
    several = len({r.prediction.candidate.name for r in tuning.rows}) > 1
    legend = []
    for n, p in enumerate(front[:_NAMED], 1):  # fastest first; the values are long
        axes.annotate(
            str(n), (p.sbuf / 1024, p.us), fontsize=7, xytext=(4, 4), textcoords="offset points"
        )
        legend.append(
            f"{n}  {p.us:,.1f} us"
            + (f"  {p.candidate.name}" if several else "")
            + (f"\n    {p.candidate}" if p.candidate.values else "")
        )
    axes.annotate("\n".join(legend), (1.02, 1), xycoords="axes fraction", va="top", fontsize=7)
    spread = [p.us for p in (*rest, *front)]
    if spread and max(spread) > 10 * min(spread):
        axes.set_yscale("log")
    axes.set_xlabel("SBUF at the peak, KiB per partition")
    axes.set_ylabel(f"latency predicted for {tuning.target}, us (not measured)")
    names = {r.prediction.candidate.name for r in tuning.rows}
    axes.set_title(", ".join(sorted(names)))
    axes.legend(fontsize=8)
    figure.savefig(path, format="svg", metadata={"Date": None})
