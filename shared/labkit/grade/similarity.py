"""Which submissions are alike: winnowed fingerprints of their tokens (Schleimer, Wilkerson and
Aiken, 2003), names and numbers left out, what the starter gives taken off.

A share of common fingerprints says where to look; it proves nothing. For MOSS, hand it the files
in OUT/private/submitted (docs/grading.md).
"""

from __future__ import annotations

import hashlib
import io
import keyword
import tokenize
from collections.abc import Mapping
from itertools import combinations

K = 12  # tokens of a fingerprint
WINDOW = 8  # of so many neighbours, one is kept


def tokens(text: str) -> list[str]:
    """Return the tokens of a file: names and literals by kind only, comments and layout not."""
    kinds = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                kinds.append(token.string if keyword.iskeyword(token.string) else "n")
            elif token.type == tokenize.NUMBER:
                kinds.append("0")
            elif token.type == tokenize.OP:
                kinds.append(token.string)
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass  # as far as it is Python
    return kinds


def fingerprints(text: str) -> set[int]:
    """Return the winnowed hashes of a file's runs of K tokens."""
    words = tokens(text)
    hashes = [
        int.from_bytes(
            hashlib.blake2b(" ".join(words[i : i + K]).encode(), digest_size=8).digest(), "big"
        )
        for i in range(len(words) - K + 1)
    ]
    return (
        {min(hashes[i : i + WINDOW]) for i in range(max(1, len(hashes) - WINDOW + 1))}
        if hashes
        else set()
    )


def pairs(texts: Mapping[str, str], given: str, least: float = 0.5) -> list[tuple[float, str, str]]:
    """Return (share, one, other) of the submissions that share at least `least`, most first.

    `share` is of the fingerprints of the smaller of the two, after those of `given` are taken off;
    too few say nothing. Files that are equal to the letter share all, if anything in them is their
    own.
    """
    given_prints = fingerprints(given)
    prints = {name: fingerprints(text) - given_prints for name, text in sorted(texts.items())}
    equal: dict[str, list[str]] = {}
    for name, found in prints.items():
        if found:
            equal.setdefault("\n".join(texts[name].split()), []).append(name)
    copies = [(1.0, *pair) for names in equal.values() for pair in combinations(names, 2)]
    where: dict[int, list[str]] = {}
    for name, found in prints.items():
        for f in found:
            where.setdefault(f, []).append(name)
    common: dict[tuple[str, str], int] = {}
    for names in where.values():
        if len(names) > max(10, len(prints) // 3):
            continue  # what many have comes from the handout
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                common[one, other] = common.get((one, other), 0) + 1
    found_pairs = []
    for (one, other), count in common.items():
        smaller = min(len(prints[one]), len(prints[other]))
        if smaller >= 10 and count / smaller >= least:
            found_pairs.append((round(count / smaller, 3), one, other))
    return sorted({*found_pairs, *copies}, key=lambda p: (-p[0], p[1], p[2]))
