"""Tables of staff and students: CSV as spreadsheets and learning platforms write it."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Collection
from pathlib import Path

from .spec import SpecError

SEPARATORS = ",;\t"


def read_table(path: Path, need: str, known: Collection[str] = ()) -> list[dict[str, str]]:
    """Return the rows of a CSV: UTF-8, or UTF-16 with its mark; commas, semicolons or tabs.

    `need` is the column that must be there, and names the owner of a row: rows without it are
    errors, and an owner may have only one. With `known`, other columns are an error. Values
    lose the blanks around them, and names in `need` are normalised (NFC), since macOS writes some
    letters in two pieces. Raises SpecError, with the line, for anything that is not such a table.
    """
    try:
        data = path.read_bytes()
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error}") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SpecError(
            f'{path}, line {line}: not UTF-8, so names would be other names; save it as "CSV UTF-8"'
        ) from None
    first = text.split("\n", 1)[0]
    separator = max(SEPARATORS, key=first.count)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:
        raise SpecError(f"{path} is no CSV: {error}") from None
    head = [name.strip().lower() for name in rows[0]] if rows else []
    wrong = [name for name in head if known and name not in known]
    if need not in head or wrong or len({*head}) != len(head):
        more = f", and may have {', '.join(sorted({*known} - {need}))}" if known else ""
        raise SpecError(
            f"{path} must have the column {need}{more}; it has {', '.join(head) or 'nothing'}"
        )
    by_id: dict[str, dict[str, str]] = {}
    for number, row in enumerate(rows[1:], 2):
        if not any(value.strip() for value in row):
            continue
        if len(row) > len(head) and any(row[len(head) :]):
            raise SpecError(f"{path}, row {number}: {len(row)} values in {len(head)} columns")
        entry = {name: value.strip() for name, value in zip(head, row + [""] * len(head))}
        entry[need] = unicodedata.normalize("NFC", entry[need])
        if not entry[need]:
            raise SpecError(f"{path}, row {number}: no {need}")
        if entry[need] in by_id:
            raise SpecError(f"{path}, row {number}: {entry[need]} is there twice")
        by_id[entry[need]] = entry
    return list(by_id.values())
