"""`nox -s leaderboard -- key|sign|page|live ...`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from ..dialect import DIALECTS
from ..grade.report import write
from ..grade.run import write_json
from ..show import add_json, terminal
from ..spec import SpecError
from .entries import (
    KINDS,
    Entry,
    body_of,
    make_key,
    pseudonym,
    public_of,
    read_entries,
    read_key,
    sign,
)
from .page import csv_of, render, show
from .rank import REFERENCE, tables


def leaderboard_parser() -> argparse.ArgumentParser:
    """Return the parser of leaderboard."""
    parser = argparse.ArgumentParser(prog="nox -s leaderboard --", description=leaderboard.__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    key = commands.add_parser("key", help="make the key of the grading host")
    key.add_argument("file", type=Path)
    signing = commands.add_parser("sign", help="sign what the grader has judged")
    signing.add_argument(
        "verdicts",
        type=Path,
        help="OUT/verdicts of nox -s grade, or a file of times that a chip has measured",
    )
    signing.add_argument("--key", type=Path, required=True)
    signing.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where the entries go"
    )
    signing.add_argument(
        "--reference", metavar="STUDENT", help="this one is the reference (staff's own submission)"
    )
    signing.add_argument("--name", help="whose measured times these are")
    page = commands.add_parser("page", help="verify entries and write the page")
    page.add_argument("entries", type=Path, nargs="+", help="files, or folders of them")
    page.add_argument("--public-key", required=True, metavar="HEX")
    page.add_argument("--out", type=Path, default=Path("dist") / "leaderboard.html", metavar="FILE")
    page.add_argument("--csv", type=Path, metavar="FILE", help="write the standings as CSV too")
    page.add_argument(
        "--dialects-together",
        action="store_true",
        help="rank kernels of neuronxcc.nki and of nki in one table",
    )
    live = commands.add_parser("live", help="a server for the lab session")
    live.add_argument("--lab", required=True)
    live.add_argument("--key", type=Path, required=True)
    live.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="DIR",
        help="where the queue, tokens and results are kept",
    )
    live.add_argument(
        "--roster",
        type=Path,
        metavar="CSV",
        help="students who get a token (column student); tokens.csv is written",
    )
    live.add_argument("--port", type=int, default=8000)
    live.add_argument("--jobs", type=int, default=1, help="judged at a time")
    live.add_argument("--sandbox", default="auto")
    live.add_argument(
        "--dialect",
        choices=DIALECTS,
        help="of the kernels that are sent (default: the first that the lab has)",
    )
    live.add_argument(
        "--seconds-between",
        type=float,
        default=30.0,
        metavar="S",
        help="between two submissions of a student (default: %(default)s)",
    )
    for one in (key, signing, page):
        add_json(one)
    return parser


def leaderboard(argv: Sequence[str] | None = None) -> int:
    """Run the contest: make a key, sign verdicts, build the page, serve it live."""
    args = leaderboard_parser().parse_args(argv)
    if args.what == "key":
        print(f"{args.file}: keep it on the grading host; its public key is\n{make_key(args.file)}")
        return 0
    if args.what == "sign":
        return _sign(args)
    if args.what == "live":
        from .live import serve

        return serve(args)
    return _page(args)


def _sign(args: argparse.Namespace) -> int:
    key = read_key(args.key)
    at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    if args.verdicts.is_file():
        body = _measured(args.verdicts, args.name, at)
        path = args.out / f"{body['name']}-{body['target']}-{at.replace(':', '')}.json"
        write_json(path, sign(key, body))
        print(f"{path}: signed")
        return 0
    sources = sorted(args.verdicts.glob("*.json"))
    if not sources:
        raise SpecError(f"{args.verdicts} has no verdicts; give OUT/verdicts of nox -s grade")
    if args.reference and args.reference not in {p.stem for p in sources}:
        raise SpecError(f"{args.verdicts} has no verdict on {args.reference!r}, the reference")
    count = left = 0
    stale: list[str] = []
    for source in sources:
        verdict = json.loads(source.read_text(encoding="utf-8"))
        reference = source.stem == args.reference
        name = REFERENCE if reference else pseudonym(key, source.stem)
        bodies = body_of(verdict, name, at)
        left += not bodies
        if not bodies:
            stale += [p.name for p in sorted(args.out.glob(f"{name}-{verdict['lab']}-*.json"))]
        for target, body in bodies.items():
            stamp = f"{verdict['key'][:12]}"  # signing the same verdict again changes nothing
            path = args.out / f"{name}-{verdict['lab']}-{target}-{stamp}.json"
            if not path.exists():
                write_json(path, sign(key, body))
                count += 1
    print(
        f"{count} new entries in {args.out}; {left} verdicts are not wholly right and have none; "
        f"public key {public_of(key)}"
    )
    if stale:
        print(
            f"still in {args.out}, of earlier verdicts on who has none now: {', '.join(stale)}; "
            "delete those that should not count"
        )
    return 0


def _measured(path: Path, name: str | None, at: str) -> dict[str, object]:
    """Return the body of an entry of a file that `tester.py --record` wrote on a chip."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        kind, times = document["kind"], document["execution_times_us"]
        version = document["sdk"] or f"nkisim {document['nkisim']}"
        moved = document.get("hbm_bytes", {})
        rank = [q for q in document.get("rank", ["time"]) if q != "bytes" or moved]
        body = {
            "lab": document["lab"],
            "dialect": document.get("dialect", "beta1"),
            "kind": kind,
            "backend": document["backend"],
            "version": version,
            "target": document["target"],
            "times_us": times,
            "rank": rank or ["time"],  # a chip does not count bytes
            "hbm_bytes": moved,
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise SpecError(f"{path} is no execution_times.json of tester.py --record") from None
    if kind not in KINDS or not name:
        raise SpecError("--name says whose times these are")
    return {**body, "name": name, "at": at}


def _page(args: argparse.Namespace) -> int:
    if not re.fullmatch("[0-9a-f]{64}", args.public_key):
        raise SpecError("--public-key takes the 64 hexadecimal digits that `key` and `sign` print")
    good: list[Entry] = []
    refused: list[tuple[str, str]] = []
    for path, entry in read_entries(args.entries, args.public_key):
        if isinstance(entry, Entry):
            good.append(entry)
        else:
            refused.append((path.name, str(entry)))
    made = tables(good, args.dialects_together)
    write(args.out, render(made, args.public_key, len(good), refused))
    if args.csv:
        write(args.csv, csv_of(made))
    console = terminal()
    show(console, made, refused)
    console.print(
        f"{args.out}: {len(good)} entries verified, {len(refused)} refused", highlight=False
    )
    return 1 if refused else 0
