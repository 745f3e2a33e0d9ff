"""`python -m nkisim mcp`: the tools evaluate, profile, explain and docs for a language model.

A server of the Model Context Protocol on standard input and output, made with its official SDK
(`pip install "trainium-labs[mcp]"`). Kernels run in processes of their own, with limits.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

from nkisim.cli import main as cli
from nkisim.cli.serve import Desk, add_worker_arguments, desk_of

INSTRUCTIONS = (
    "Write and improve kernels for AWS Trainium (NKI). `evaluate` says whether a kernel is right, "
    "predicts its time and says what to change; it does not run on hardware, and times are "
    "predicted. Apply its fixes first, then its advice, until latency_us is near floor_us. Do not "
    "order two kernels by time where `defer` is true. `explain` has the page of a rule, `docs` "
    "the instructions and rules about a word."
)
MOST = 12  # answers of docs


def tools(desk: Desk) -> list[Any]:
    """Return the functions that are tools; their docstrings are what a model reads."""

    def evaluate(
        kernel: str,
        source: str = "",
        args: list[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        reference: str = "",
        reference_source: str = "",
        target: str = "trn2",
        release: str = "",
    ) -> dict[str, Any]:
        """Say whether a kernel is right, how long it takes, how sure that is, and what to change.

        kernel: "FILE:KERNEL", or ":KERNEL" with `source`, the text of a file. args:
        "128x512:float32" for an array of that shape and dtype, or plain values. reference:
        "FILE:FUNCTION" (or ":FUNCTION" with reference_source) takes what the kernel takes and
        returns what it should.
        The answer has verdict, ladder, findings with fixes (edits that were tried), time, floor,
        tensors, regions, critical_path and advice. Times are predicted, in microseconds.
        """
        asked = _asked(kernel, source, args, kwargs, reference, reference_source, target, release)
        return desk.ask(asked)

    def profile(
        kernel: str,
        source: str = "",
        args: list[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
        target: str = "trn2",
        release: str = "",
    ) -> dict[str, Any]:
        """Predict where the time of a kernel goes; arguments as for evaluate.

        The answer has time, floor, tensors (bytes moved, and how often each is read), regions (by
        line and loop), critical_path and advice. It says nothing about values.
        """
        asked = _asked(kernel, source, args, kwargs, "", "", target, release)
        return desk.ask({**asked, "fixes": False})

    def explain(id: str) -> str:
        """Return the page of a rule (NKI-P01), of an error code of AWS's compiler or runtime
        (NCC_EVRF051), or of the errors in a line of a log."""
        pages = cli.pages_of(id)
        return "\n\n\n".join(pages) or f"there is no page for {id!r}"

    def docs(word: str) -> str:
        """Return instructions whose names have a word in them, with their parameters, and the rules
        that are about it."""
        return look_up(word)

    return [evaluate, profile, explain, docs]


def _asked(
    kernel: str,
    source: str,
    args: list[Any] | None,
    kwargs: dict[str, Any] | None,
    reference: str,
    reference_source: str,
    target: str,
    release: str,
) -> dict[str, Any]:
    """Return a request of what was given."""
    given = {
        "kernel": kernel if ":" in kernel else f":{kernel}",
        "source": source,
        "args": args,
        "kwargs": kwargs,
        "reference": reference if not reference or ":" in reference else f":{reference}",
        "reference_source": reference_source,
        "target": target,
        "release": release,
    }
    return {k: v for k, v in given.items() if v}


def look_up(word: str) -> str:
    """Return what the table of instructions and the rules say about a word."""
    from nkisim.api import rows

    wanted = word.strip().lower()
    lines = []
    for row in rows():
        name = row["nki"] or row["beta1"]
        if wanted and wanted in name.lower():
            parameters = row["parameters"].get("nki") or row["parameters"].get("beta1") or {}
            given = ", ".join(p if must else f"{p}=" for p, must in parameters.items())
            lines.append(f"{name}({given})  on {', '.join(row['engines'])}")
    rules = cli.all_rules()
    about = [
        f"{id}: {rule.title}"
        for id, rule in sorted(rules.items())
        if wanted and re.search(rf"\b{re.escape(wanted)}", f"{rule.title} {rule.text}".lower())
    ]
    return "\n".join([*lines[:MOST], *about[:MOST]]) or f"nothing is known about {word!r}"


def parser() -> argparse.ArgumentParser:
    """Return the parser of mcp."""
    parser = argparse.ArgumentParser(
        prog="nkisim mcp",
        description="Serve the tools evaluate, profile, explain and docs to a language model "
        "(Model Context Protocol, standard input and output).",
    )
    add_worker_arguments(parser)
    return parser


def command(argv: list[str]) -> int:
    """Serve the tools until the client goes."""
    options = parser().parse_args(argv)
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        print(
            "nkisim mcp: the SDK of the protocol is not installed: "
            'pip install "trainium-labs[mcp]"',
            file=sys.stderr,
        )
        return 2
    with desk_of(options) as desk:
        server = MCPServer("nkisim", instructions=INSTRUCTIONS)
        for tool in tools(desk):
            server.add_tool(tool)
        server.run("stdio")
    return 0
