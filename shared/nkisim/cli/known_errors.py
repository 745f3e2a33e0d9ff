"""What the compiler, its verifiers, AWS's simulator and the runtime say, and what to do about it.

The pages lie in data/errors, a file for each program that speaks. A page:

    == NCC_EVRF022                      its codes, or a name if it has none
    says: Shift of {} is not supported  the words it is known by; {} is any text
    here: NKI-D06                       the finding that says it before a compile, if there is one
    The cause, in a line.
    - a wrong line, as an example
    + the right one
    Try: the cure

`wrapper: yes` marks what is said about any failure, so that the cause stands on another line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "data" / "errors"
_CODE = re.compile(r"\b(?:NCC_)?([EI][A-Z]{3}\d{3})\b|\b(NRT_[A-Z_]+)\b", re.I)
_URL = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/compiler/error-codes/{}.html"
_ANY = ".{1,200}?"  # what {} stands for
_COMMON = frozenset("a an the of in on to is are not no and or with for error failed".split())
_SHARE = 0.6  # of the weight of a text's words, to be taken for a page's


@dataclass(frozen=True)
class Known:
    """One error of AWS's programs; the first of `names` is its title in lists."""

    names: tuple[str, ...]
    says: tuple[str, ...]
    here: tuple[str, ...]
    wrapper: bool
    cause: str
    example: tuple[str, ...]
    cure: str

    @property
    def head(self) -> str:
        """Return the codes and the words of the error."""
        codes = ", ".join(name for name in self.names if name.isupper() or "_" in name)
        words = self.says[0].replace("{}", "...")
        return f"{codes}: {words}" if codes and codes != words else words

    @property
    def address(self) -> str:
        """Return the page in AWS's documents, "" if there is none."""
        code = self.names[0].removeprefix("NCC_")
        return _URL.format(code) if re.fullmatch(r"E[A-Z]{3}\d{3}", code) else ""


class Match(NamedTuple):
    """An error that a text has, and where; `fixed`: letters of the words it is known by."""

    known: Known
    start: int
    end: int
    fixed: int = 0


def _page(block: str) -> Known:
    names, *lines = block.strip().splitlines()
    fields: dict[str, list[str]] = {"says": [], "here": [], "wrapper": [], "Try": []}
    cause, example = [], []
    for line in lines:
        key, _, value = line.partition(": ")
        if key in fields:
            fields[key].append(value)
        elif line[:2] in ("- ", "+ "):
            example.append(line)
        else:
            cause.append(line)
    return Known(
        tuple(names.split()),
        tuple(fields["says"]),
        tuple(id for line in fields["here"] for id in line.split()),
        bool(fields["wrapper"]),
        " ".join(cause),
        tuple(example),
        " ".join(fields["Try"]),
    )


@cache
def pages() -> tuple[Known, ...]:
    """Return all pages, in the order of the files."""
    return tuple(
        _page(block)
        for path in sorted(FOLDER.glob("*.txt"))
        for block in re.split(r"^== ", path.read_text(encoding="utf-8"), flags=re.M)[1:]
    )


def _of_code(code: str) -> Known:
    """Return the page of a code, or what its letters say if AWS documents no page for it."""
    for page in pages():
        if code in page.names:
            return page
    if code.startswith("NRT_"):
        return Known(
            (code,),
            (code,),
            (),
            False,
            "A status of the Neuron runtime that its documents do not describe.",
            (),
            "read the lines above it in the log",
        )
    inside = code.startswith("NCC_I")
    return Known(
        (code,),
        (code,),
        (),
        inside,
        (
            "An internal error of the compiler: a pass met what it did not expect, for which AWS "
            "documents no page. In a kernel it is most often an access that the hardware does "
            "not have."
            if inside
            else "An error in what the compiler was given; AWS documents no page for it."
        ),
        (),
        "the words behind the code, and a line with Reason:, say what; `nkisim check FILE` "
        "says what of a kernel cannot be built; if nothing helps, take the kernel apart until "
        "the error goes",
    )


_WORDS = re.compile(r"[a-z_]{3,}")


@cache
def _patterns() -> dict[str, list[tuple[frozenset[str], re.Pattern[str], Known, int]]]:
    """Return (words that a text has, pattern, page, letters) of what is said, by rarest word."""
    sayings = [
        (page, says, frozenset(_WORDS.findall(says.lower())) or frozenset((says.lower(),)))
        for page in pages()
        for says in page.says
    ]
    count = Counter(word for _, _, words in sayings for word in words)
    by_word: dict[str, list[tuple[frozenset[str], re.Pattern[str], Known, int]]] = {}
    for page, says, words in sayings:
        pieces = [
            r"\s+".join(map(re.escape, piece.split()))
            for piece in re.sub(r"^\{\}\s*|\s*\{\}$", "", says).split("{}")
        ]
        text = re.sub(r"['\"`]", "['\"`]?", (r"\s*" + _ANY + r"\s*").join(pieces))
        rarest = min(words, key=lambda word: (count[word], -len(word), word))
        pattern = re.compile(text, re.I | re.S)
        by_word.setdefault(rarest, []).append((words, pattern, page, sum(map(len, pieces))))
    return by_word


def found_in(text: str) -> list[Match]:
    """Return the errors that a text has, in the order of the text; none inside of a longer one."""
    words = set(_WORDS.findall(text.lower()))
    matches = (
        [
            Match(_of_code((f"NCC_{m[1]}" if m[1] else m[2]).upper()), m.start(), m.end())
            for m in _CODE.finditer(text)
        ]
        if "_" in text or any(map(str.isdigit, text))
        else []
    )
    matches = [
        m
        for m in matches
        if m.known.names[0] != "NRT_SUCCESS"
        and (m.known.says[0] != m.known.names[0] or "_" in text[m.start : m.end])
    ]
    for rare in words & _patterns().keys():
        for needed, pattern, page, fixed in _patterns()[rare]:
            if needed <= words:
                matches += [Match(page, m.start(), m.end(), fixed) for m in pattern.finditer(text)]
    # of two at one place, the one that says more of it
    matches.sort(key=lambda m: (m.start, -m.end, -m.fixed))
    kept: list[Match] = []
    for match in matches:
        if not any(k.start <= match.start and match.end <= k.end for k in kept):
            kept.append(match)
    return kept


def _plain(text: str) -> str:
    """Return a text without what differs from case to case: letters' case, numbers, quotes."""
    return " ".join(re.sub(r"\{\}|['\"`\d]+|\.\.\.", " ", text.lower()).split())


def meant(text: str) -> list[Known]:
    """Return the pages that a text is about, the best first: a line of a log, or part of one."""
    matches = found_in(text)
    matches.sort(key=lambda m: (m.known.wrapper, -len(m.known.says[0]), m.start))
    if matches:
        best = [m.known for m in matches if m.known.wrapper == matches[0].known.wrapper]
        return list(dict.fromkeys(best))
    asked = _plain(text)
    if len(set(asked.split()) - _COMMON) < 2 and not re.search(r"[a-z][A-Z]|_", text):
        return []
    inside = [page for page in pages() if any(asked in _plain(says) for says in page.says)]
    return inside or _most_similar(asked)


def _most_similar(asked: str) -> list[Known]:
    """Return the page whose words a text shares, the rarer the better; none if they are few."""
    sets = [(page, set(_plain(says).split())) for page in pages() for says in page.says]
    count = Counter(word for _, words in sets for word in words)
    wanted = set(asked.split())

    def weight(words: set[str]) -> float:
        return sum(1 / count[word] for word in words if word in count)

    total = sum(1 / count[word] if word in count else 0.2 for word in wanted)
    best = max(sets, key=lambda pair: (weight(pair[1] & wanted), -len(pair[1])))
    shared = best[1] & wanted
    return [best[0]] if len(shared) > 1 and total and weight(shared) >= _SHARE * total else []


def page_text(known: Known, rules: Mapping[str, Any]) -> str:
    """Return a page as text."""
    lines = [known.head, "", known.cause]
    if known.example:
        lines += ["", *("    " + line for line in known.example)]
    lines += ["", f"Try: {known.cure}"]
    if known.here and known.here[0] not in rules:
        lines += [
            f"Before a compile: a run of the simulator ends with {known.here[0]}, and says more."
        ]
    elif known.here:
        named = " and ".join(f"{id} ({rules[id].title})" for id in known.here)
        lines += [
            f"Before a compile: {named}; python -m nkisim check FILE finds it, "
            f"python -m nkisim explain {known.here[0]} has more."
        ]
    elif not known.wrapper:
        lines += ["Before a compile: no finding of the simulator says it."]
    return "\n".join([*lines, *([f"AWS's page: {known.address}"] if known.address else [])])
