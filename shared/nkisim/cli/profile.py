"""`nkisim profile FILE:KERNEL`: predict a kernel's time without writing a script.

Only shapes and dtypes of the arguments matter to the prediction, so the inputs are random. Of a
script, `nkisim profile script.py args...`, each kernel that it calls is predicted.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from nkisim.cli import answer, profile_script, script, settings, watch
from nkisim.cli.kernel_arguments import (
    add_constants,
    add_values,
    call_of,
    constants_of,
    file_of,
    is_kernel,
    load_kernel,
)
from nkisim.cli.words import CannotRun
from nkisim.errors import NkiError
from nkisim.timing import compiler

_EXAMPLE = """example:
  nkisim profile kernels.py:vector_add_stream --arg 256000:float32 --arg 256000:float32 \\
      --html add.html
  nkisim profile --html last.html my_script.py

A prediction is not a measurement: every output says so. Exit codes: 0 profiled, 1 the kernel broke
a rule or failed, 2 there was nothing to profile."""


def parser() -> answer.Parser:
    """Return the parser of the command."""
    parser = answer.Parser(
        "profile",
        usage=script._USAGE.format("profile"),
        epilog=_EXAMPLE,
        description="Predict how long a kernel takes, or each kernel that a script calls, and show "
        "where the time goes.",
    )
    parser.add_argument("-m", dest="module", help="profile a module, as python -m runs it")
    parser.add_argument("script", nargs="?", metavar="script.py|FILE:KERNEL")
    add_values(parser)
    parser.add_argument(
        "--row",
        dest="number",
        type=int,
        metavar="N",
        help="of a script: show row N of its table, and write that one's files (default: the last)",
    )
    add_constants(parser)
    settings.add_settings(parser)
    parser.add_argument(
        "--compiler",
        metavar="NAMES",
        help=f"what the compiler may do, a list of {', '.join(compiler.OPTIONS)}; "
        "docs/latency-model.md says what each means. "
        f"Default: {','.join(compiler.DEFAULT)}, and where the compiler's "
        f'middle end works on the kernel {",".join(compiler.MIDDLE_END)}; "" for '
        "strictly as written",
    )
    parser.add_argument(
        "--descriptors",
        help="static or dge; default: as the target and the kernel's compile options imply",
    )
    parser.add_argument(
        "--metrics", action="store_true", help="print all metrics, too, by neuron-profile's names"
    )
    parser.add_argument("--html", metavar="FILE", help="write the page to look at")
    parser.add_argument("--perfetto", metavar="FILE", help="write a trace for ui.perfetto.dev")
    parser.add_argument(
        "--table",
        metavar="FILE",
        help="write its instructions as FILE.csv or FILE.parquet, in Neuron Explorer's columns",
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="print one JSON object instead of text (docs/json.md); with FILE.json: write what "
        "nkisim view reads",
    )
    parser.add_argument(
        "--no-compute",
        action="store_true",
        help="leave out the arithmetic: faster, the same prediction",
    )
    settings.add_timeout(parser)
    settings.add_watch(parser)
    return parser


def command(argv: list[str]) -> int:
    """Profile one kernel, or those of a script; print the summary, write the files asked for."""
    own = parser()
    options, rest = script.parse(own, profile_script.ordered(argv))
    of_kernel = is_kernel(options.script or "")
    if not of_kernel and options.no_compute:
        own.error("--no-compute goes with FILE:KERNEL; a script needs what kernels return")
    if of_kernel and options.number is not None:
        own.error("--row goes with a script, which may call many kernels")
    if options.watch:
        return watch.rerun("profile", argv, file_of(options.script or "."))
    return answer.give(
        "profile",
        lambda: _profile(options) if of_kernel else _profile_script(options, rest),
        as_json=options.json == "-",
        seconds=options.timeout,
        kernels_only=not of_kernel,
    )


def _profile(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    from nkisim.simulation.prediction import profile

    target = settings.settle(options, file_of(options.script))
    try:
        args, kwargs = call_of(options)
        constants = constants_of(options)
    except NkiError as error:
        raise CannotRun(error.render()) from error
    on = _compiler(options)
    prof = profile(
        load_kernel(options.script, constants),
        *args,
        target=target,
        compute=not options.no_compute,
        compiler=on,
        descriptors=options.descriptors,
        tile_values=options.html is not None or options.json not in (None, "-"),
        **kwargs,
    )
    return 0, _shown(prof, options)


def _profile_script(options: argparse.Namespace, rest: list[str]) -> tuple[int, dict[str, Any]]:
    """Run a script, print a table of the kernels that it called, and show one of them."""
    code, problem, rows = profile_script.run(options, rest, _compiler(options), options.descriptors)
    fields: dict[str, Any] = {"calls": [row.to_dict() for row in rows], "error": problem}
    if rows:
        print(profile_script.table(rows))
        chosen = profile_script.chosen(rows, options.number)
        print()
        fields.update(_shown(chosen.profile, options))
    return code, fields


def _compiler(options: argparse.Namespace) -> frozenset[str] | None:
    try:
        return None if options.compiler is None else compiler.options(options.compiler)
    except NkiError as error:
        raise CannotRun(error.render()) from error


def _shown(prof: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Print the summary of a profile, write the files asked for; return the fields of JSON."""
    from nkisim import report

    try:
        print(report.summary(prof, options.metrics))
        for path, save in (
            (options.html, report.save_html),
            (options.json, report.save_json),
            (options.perfetto, report.save_perfetto),
            (options.table, report.save_table),
        ):
            if path and path != "-":
                _save(save, prof, path)
    except report.ReportError as problem:
        raise CannotRun(str(problem)) from None
    return {"profile": prof.to_dict(), "head": report.report_of(prof).head}


def _save(save: Any, prof: Any, path: str) -> None:
    try:
        save(prof, path)
    except OSError as error:
        raise CannotRun(f"{path} cannot be written: {error.strerror}.") from None
    print(f"wrote {path}", file=sys.stderr)
