"""A profile as plain data: one JSON-ready head and a few dozen typed columns; saving and loading.

The page, the Perfetto trace and the summary are made of this, whether the profile was just
computed or read from a file; so nothing can be seen in one and not in the others.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkisim import __version__

FORMAT, VERSION = "nkisim-profile", 1
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync", "dma")
DMA = ENGINES.index("dma")


class ReportError(ValueError):
    """There is nothing to report, or a file is not a profile of ours; a sentence for the user."""


@dataclass
class Report:
    """What is known about one profile: `head` is JSON-ready, `columns` are NumPy arrays."""

    head: dict[str, Any]
    columns: dict[str, np.ndarray]

    def us(self, name: str) -> np.ndarray:
        """Return a column of ticks in microseconds."""
        return self.columns[name] * self.head["tick_us"]

    def pack(self) -> dict[str, Any]:
        """Return the report as one JSON-ready dict, columns compressed."""
        layout, parts, at = [], [], 0
        for name, array in self.columns.items():
            data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
            layout.append([name, array.dtype.kind + str(array.dtype.itemsize), len(array), at])
            data += b"\0" * (-len(data) % 8)  # typed arrays start at multiples of 8
            parts.append(data)
            at += len(data)
        blob = gzip.compress(b"".join(parts), compresslevel=6, mtime=0)
        return {
            "format": FORMAT,
            "version": VERSION,
            "nkisim": __version__,
            "head": self.head,
            "layout": layout,
            "blob": base64.b64encode(blob).decode("ascii"),
        }


def unpack(packed: Any, name: str) -> Report:
    """Return the report that `pack` packed; `name` says in errors where it came from."""
    if not isinstance(packed, dict) or packed.get("format") != FORMAT:
        raise ReportError(f"{name} is not a profile that nkisim saved.")
    if packed.get("version") != VERSION:
        raise ReportError(
            f"{name} was saved by nkisim {packed.get('nkisim', '?')} in profile format "
            f"{packed.get('version')}; this is nkisim {__version__}, which reads format {VERSION}. "
            "Profile the kernel again and save it with this version."
        )
    try:
        blob = gzip.decompress(base64.b64decode(packed["blob"], validate=True))
        columns = {
            str(column): np.frombuffer(blob, np.dtype("<" + code), count, at).copy()
            for column, code, count, at in packed["layout"]
        }
        head = packed["head"]
        if not {"kernel", "target", "tick_us", "kinds"} <= head.keys() or "start" not in columns:
            raise KeyError("head")
    except (ValueError, KeyError, TypeError, OSError, EOFError, AttributeError) as error:
        raise ReportError(
            f"{name} is damaged ({type(error).__name__}: {error}); was it cut off? "
            "Save the profile again."
        ) from None
    return Report(head, columns)


def load(path: str | os.PathLike[str]) -> Report:
    """Read a profile saved as JSON, or the one inside a page.

    Raises ReportError if the file is something else, or of another version.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read()
        text = raw.decode("utf-8")
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ReportError(f"{path} is not a profile that nkisim saved.") from None
    if text.lstrip()[:1] == "<":
        embedded = re.search(
            r'<script type="application/json" id="profile">(.*?)</script>', text, re.DOTALL
        )
        if not embedded:
            raise ReportError(f"{path} is a web page, but not one that nkisim wrote.")
        text = embedded[1]
    try:
        return unpack(json.loads(text), str(path))
    except json.JSONDecodeError:
        raise ReportError(f"{path} is not a profile that nkisim saved.") from None
