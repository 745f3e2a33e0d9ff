"""`python -m nkisim view FILE`: open a saved profile in the browser."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import webbrowser
from pathlib import Path


def command(argv: list[str]) -> int:
    """Open a profile (JSON or page) in the browser and print where the page is."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim view",
        description="Show a profile that was saved with --json (prof.save_json) or --html.",
    )
    parser.add_argument("file")
    parser.add_argument("--compare", metavar="OTHER", help="show a second profile below it")
    parser.add_argument(
        "--measured",
        metavar="PROFILE",
        help="show what was measured on a chip "
        "above it: JSON of neuron-profile, or of Neuron Explorer's tables",
    )
    parser.add_argument(
        "--html",
        metavar="OUT",
        help="where to write the page; default: a new "
        "temporary folder, and a page is shown where it is",
    )
    parser.add_argument("--summary", action="store_true", help="print the summary, open nothing")
    parser.add_argument("--no-open", action="store_true", help="only print the path of the page")
    options = parser.parse_args(argv)
    from nkisim.report import ReportError, both, load, load_measured, save_html, summary
    from nkisim.report.measured import table

    try:
        report = load(options.file)
        other = load(options.compare) if options.compare else None
        if options.measured:
            if other is not None:
                raise ReportError("--measured and --compare exclude each other.")
            measured = load_measured(options.measured, report.head["kernel"], report.head["target"])
            report, other = both(measured, report), report
        if options.summary:
            print(table(report) if options.measured else summary(report))
            return 0
        path = _page(options)
        if options.html and path in (
            Path(f).resolve() for f in (options.file, options.compare) if f
        ):
            raise ReportError(f"{options.html} is the profile itself; write the page elsewhere.")
        if path != Path(options.file).resolve():
            save_html(report, path, compare=other)
    except ReportError as problem:
        print(f"nkisim view: {problem}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"nkisim view: {error.filename} cannot be written: {error.strerror}.", file=sys.stderr
        )
        return 2
    print(path)
    if not options.no_open and not webbrowser.open(path.as_uri()):
        print("nkisim view: no browser was found; open the page by hand.", file=sys.stderr)
    return 0


def _page(options: argparse.Namespace) -> Path:
    """Return where the page is, or is to be written."""
    if options.html:
        return Path(options.html).resolve()
    two = options.compare or options.measured
    if options.file.lower().endswith((".html", ".htm")) and not two:
        return Path(options.file).resolve()
    folder = tempfile.mkdtemp(prefix="nkisim-view-")  # kept: the browser reads it later
    return Path(folder, os.path.splitext(os.path.basename(options.file))[0] + ".html")
