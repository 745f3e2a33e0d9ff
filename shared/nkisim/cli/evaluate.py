"""`python -m nkisim evaluate FILE:KERNEL`: is it right, how long does it take, how sure is that?"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from nkisim.cli import requests, settings, watch
from nkisim.cli.document import Parser
from nkisim.cli.kernel_arguments import (
    add_constants,
    add_values,
    constants_of,
    file_of,
    named_argument,
)
from nkisim.cli.serve import add_worker_arguments, desk_of
from nkisim.cli.words import CannotRun
from nkisim.errors import NkiError
from nkisim.evaluation.edits import apply_dict

_EXAMPLE = """example:
  python -m nkisim evaluate kernels.py:add --arg 128x512:float32 --arg 128x512:float32 \\
      --reference reference.py:add

Several kernels (a.py:k b.py:k) are evaluated in several processes; with --json each is a line.
Times are predicted, not measured. Exit codes: 0 nothing is wrong, 1 something is, 2 it could not
run."""


def command(argv: list[str]) -> int:
    """Evaluate kernels; print what is known of them."""
    options = parser().parse_args(argv)
    if options.watch:
        return watch.rerun("evaluate", argv, file_of(options.kernel[0]))
    with settings.restored():
        return _command(options)


def _command(options: argparse.Namespace) -> int:
    try:
        settings.settle(options, file_of(options.kernel[0]))
        asked = [_request(options, kernel) for kernel in options.kernel]
    except NkiError as error:
        print(error.render(), file=sys.stderr)
        return 2
    except CannotRun as problem:
        print(f"nkisim evaluate: {problem}", file=sys.stderr)
        return 2
    if len(asked) == 1 and not options.isolated and not options.loader:
        answers = [requests.answer(asked[0])]
    else:
        with desk_of(options) as desk:
            answers = list(desk.ask_all(asked))
    for kernel, answer in zip(options.kernel, answers):
        if options.json:
            print(json.dumps(answer, indent=None if len(answers) > 1 else 1))
        else:
            print(text(kernel, answer))
        if options.fix and _write_fixes(kernel, answer):
            print(f"wrote {kernel.rpartition(':')[0]}", file=sys.stderr)
    return max((a["exit_code"] for a in answers), default=2)


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        "evaluate",
        description="Say whether a kernel is right, predict its time, and say how sure that is.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("kernel", nargs="+", metavar="FILE:KERNEL")
    add_values(parser)
    add_constants(parser)
    parser.add_argument(
        "--reference", metavar="FILE:FUNCTION",
        help="takes what the kernel takes, returns what it should",
    )  # fmt: skip
    settings.add_settings(parser)
    parser.add_argument(
        "--seed", action="append", type=int, metavar="N",
        help="of fresh inputs besides those given; may be repeated (default: 1)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON: docs/evaluate.md")
    parser.add_argument(
        "--brief", action="store_true", help="leave out the floor, traffic, time by line, advice"
    )
    parser.add_argument("--no-fixes", action="store_true", help="do not look for edits that mend")
    parser.add_argument("--fix", action="store_true", help="write the first fix into the file")
    settings.add_watch(parser)
    parser.add_argument(
        "--isolated", action="store_true", help="in a process of its own, with limits"
    )
    add_worker_arguments(parser)
    return parser


def _request(options: argparse.Namespace, kernel: str) -> dict[str, Any]:
    named = {n: v for n, _, v in (text.partition("=") for text in options.kwarg)}
    for text in [*options.kwarg, *options.set]:
        named_argument(text.partition("=")[0] + "=0", "--kwarg")
    asked = {
        "kernel": kernel,
        "args": options.arg,
        "kwargs": named,
        "set": constants_of(options),
        "reference": options.reference,
        "target": options.target,
        "release": options.release,
        "seeds": options.seed,
        "details": not options.brief,
        "fixes": not options.no_fixes,
        "seconds": options.timeout or None,
    }
    return {k: v for k, v in asked.items() if v is not None}


def text(kernel: str, answer: dict[str, Any]) -> str:
    """Return an answer as a person reads it."""
    lines = [f"{kernel}: {answer['verdict']}"]
    for step in answer.get("ladder", ()):
        mark = {True: "yes", False: "NO", None: "-"}[step["passed"]]
        lines.append(f"  {step['step']:<10}{mark:<5}{step['text']}".rstrip())
    if (time := answer.get("time")) is not None:
        lines.append(
            f"{time['latency_us']:,.1f} us predicted for {answer['target']}, not measured; error "
            f"of the model: {time['error']}"
        )
        if time["defer"]:
            lines.append("defer: the model does not know enough to order it with other kernels")
    if (floor := answer.get("floor", {}).get("floor_us")) and time is not None:
        ratio = time["latency_us"] / floor
        lines.append(f"floor {floor:,.1f} us: it takes {ratio:.2f} times that")
    lines += [f"advice: {a['sentence']}" for a in answer.get("advice", ())]
    for f in answer.get("findings", ()):
        place = f["where"] and f" ({f['where']['file']}:{f['where']['line']})"
        lines.append(f"{f['severity']}: {f['id']} {f['text']}{place or ''}")
        lines += [f"  fix: {fix['title']}" for fix in f["fixes"]]
    error = answer.get("error")
    if error and not answer.get("findings"):
        lines.append(f"error: {error['id']} {error['what']}".replace("  ", " "))
    return "\n".join(lines)


def _write_fixes(kernel: str, answer: dict[str, Any]) -> bool:
    """Write the first fix of an answer into the kernel's file; return whether there is one."""
    fixes = [fix for f in answer.get("findings", ()) for fix in f["fixes"]]
    if not fixes:
        return False
    path = Path(kernel.rpartition(":")[0])
    path.write_text(apply_dict(path.read_text("utf-8"), fixes[0]["edits"]), "utf-8")
    return True
