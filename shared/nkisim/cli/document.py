"""The JSON object that a command prints (docs/json.md), and the parser that prints it as well.

Nothing but the standard library is imported: `doctor` reports on installations that are broken.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from nkisim import __version__

#: version of each command's fields; a field that is taken away or changes its meaning raises it
VERSION = 1


class Parser(argparse.ArgumentParser):
    """A parser that answers a wrong call in JSON, too, if the call asks for JSON."""

    def __init__(self, command: str, **kwargs: Any):
        self.command = command
        self.asks_for_json = False
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(prog=f"nkisim {command}", **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Remember whether JSON is asked for, and parse."""
        words = list(sys.argv[1:] if args is None else args)
        self.asks_for_json = "--json" in words
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the call, and exit with 2."""
        if self.asks_for_json:
            print_json(document(self.command, 2, sentence(message)))
        super().error(message)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object instead of text, with exit code and error (docs/json.md)",
    )


def json_first(argv: Sequence[str]) -> list[str]:
    """Return the words with a bare --json at the end, so that it does not take the kernel's name.

    profile and tune wrote files before they answered in JSON: `--json x.json` and `--json -` are
    still those. Any other word after --json is not its own.
    """
    words = list(argv)
    for i, word in enumerate(words):
        after = words[i + 1] if i + 1 < len(words) else ""
        if word == "--json" and after and after != "-" and ".py" in after:
            return [*words[:i], *words[i + 1 :], "--json"]
    return words


def document(command: str, code: int, error: Any = None, /, **fields: Any) -> dict[str, Any]:
    """Return the JSON object of a command; `error` is None or a dict of `error_of`, `sentence`."""
    return {
        "schema": f"nkisim.{command}/{VERSION}",
        "command": command,
        "nkisim": __version__,
        "exit_code": code,
        "error": error,
        **fields,
    }


def sentence(what: str, kind: str = "command") -> dict[str, Any]:
    """Return the error of a command that could not run, in the form of `NkiError.to_dict`."""
    return {
        "kind": kind,
        **{key: "" for key in ("id", "name")},
        "what": what,
        **{key: "" for key in ("limit", "given")},
        "where": None,
        "hint": "",
    }


def print_json(answer: dict[str, Any]) -> None:
    """Print an answer to standard output; what is no number there is null."""
    try:
        text = json.dumps(answer, indent=1, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(answer), indent=1)
    print(text, flush=True)


def _finite(value: Any) -> Any:
    """Return a value of JSON without NaN and infinities, which JSON does not have."""
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list | tuple) else value
