"""`python -m nkisim view FILE`: open a saved profile in the browser."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

from nkisim.cli import answer, document
from nkisim.cli.words import CannotRun


def parser() -> answer.Parser:
    """Return the parser of the command."""
    parser = answer.Parser(
        "view",
        description="Show a profile that was saved with --json (prof.save_json) or --html.",
    )
    parser.add_argument("file")
    parser.add_argument(
        "--compare", metavar="OTHER", nargs="+", help="show up to seven more profiles below it"
    )
    parser.add_argument(
        "--names",
        metavar="A,B",
        help="what to call the profiles, separated by commas; default: their files",
    )
    parser.add_argument(
        "--table",
        metavar="OUT",
        help="write its instructions as OUT.csv or OUT.parquet, in Neuron Explorer's columns, and "
        "open nothing",
    )
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
    parser.add_argument(
        "--metrics",
        action="store_true",
        help="the same, with all metrics by neuron-profile's names",
    )
    parser.add_argument("--no-open", action="store_true", help="only print the path of the page")
    document.add_json(parser)
    return parser


def command(argv: list[str]) -> int:
    """Open a profile (JSON or page) in the browser and print where the page is."""
    options = parser().parse_args(argv)
    return answer.give("view", lambda: _view(options), as_json=options.json)


def _view(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from nkisim.report import (
        ReportError,
        both,
        load,
        load_measured,
        save_html,
        save_table,
        summary,
    )
    from nkisim.report.measured import table

    try:
        report = load(options.file)
        others = [load(file) for file in options.compare or ()]
        if options.measured:
            if others:
                raise ReportError("--measured and --compare exclude each other.")
            measured = load_measured(options.measured, report.head["kernel"], report.head["target"])
            report, others = both(measured, report), [report]
        if options.table:
            save_table(report, options.table)
            print(options.table)
            return 0, {"page": None, "head": report.head}
        if options.summary or options.metrics:
            print(table(report) if options.measured else summary(report, options.metrics))
            return 0, {"page": None, "head": report.head}
        path = _page(options)
        if options.html and path in (
            Path(f).resolve() for f in (options.file, *(options.compare or ()))
        ):
            raise ReportError(f"{options.html} is the profile itself; write the page elsewhere.")
        if path != Path(options.file).resolve():
            save_html(report, path, compare=others, names=_names(options))
    except ReportError as problem:
        raise CannotRun(str(problem)) from None
    except BrokenPipeError:  # `... | head` has seen enough
        raise
    except OSError as error:
        raise CannotRun(f"{error.filename} cannot be written: {error.strerror}.") from None
    print(path)
    quiet = options.no_open or options.json
    if not quiet and not webbrowser.open(path.as_uri()):
        print("nkisim view: no browser was found; open the page by hand.", file=sys.stderr)
    return 0, {"page": str(path), "head": report.head}


def _names(options: argparse.Namespace) -> list[str]:
    """Return what the profiles are called: as asked, or as their files where there are several."""
    if options.names:
        return [name.strip() for name in options.names.split(",")]
    files = [options.file, *(options.compare or ())]
    stems = [os.path.splitext(os.path.basename(file))[0] for file in files]
    return stems if len(files) > 1 and len(set(stems)) == len(stems) else []


def _page(options: argparse.Namespace) -> Path:
    """Return where the page is, or is to be written."""
    if options.html:
        return Path(options.html).resolve()
    two = options.compare or options.measured
    if options.file.lower().endswith((".html", ".htm")) and not two:
        return Path(options.file).resolve()
    folder = tempfile.mkdtemp(prefix="nkisim-view-")  # kept: the browser reads it later
    return Path(folder, os.path.splitext(os.path.basename(options.file))[0] + ".html")
