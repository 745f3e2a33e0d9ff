"""How each rule is known: from which documents, from builds or from chips, or what it follows from.

A rule that AWS's page of errors names is documented there. What compilers refuse by release says so
in its own rows (`language/nki/verdict.py`, `lint/constructs.py`).
"""

from __future__ import annotations

_ARCHITECTURE = "documented (architecture guides of the generations)"
_GUIDE = "documented (programming guide of NKI)"
_REFERENCE = "documented (API reference)"
_NAMED = "documented (page of NKI API errors)"
_TRACING = "follows from tracing, as documented: Python runs the kernel before there are data"
_FOLLOWS = "follows from what is documented; neither compiler nor chip reports it"
_BUILT = "met in builds (the code is in the text)"
_SIMULATOR = "it is about the simulator and its tools, not about the chip"

_OF_RULES = {
    _ARCHITECTURE: "P04 P05 D01 D03 D11 M04 M06 M09 M10 M11 E01 E03 U05",
    _GUIDE: "P02 P06 I02 I03 I05 I06 I11 S02 S07 M02 M05 L02 L03 L05 O02 O08 K03 K04 K06",
    _REFERENCE: "S08 S09 S10 S11 S13 D02 D04 D05 D06 D07 D08 D09 M07 E04 E05 E06 E07 E11 E12 E13 "
    "E14 E15 K05 K11 K12 K18 N01 N02 N03 N04 N06 N07 N08 N09 N10 N11 N12 N13 N14 A01 A02 A03 A04 "
    "A06",
    _TRACING: "I14 S06 S14 L06 L07 L12 K14 K19 K20",
    _FOLLOWS: "I16 S15 D10 L10 O04 O07 U01 U02 U03 U04 U06 U07 A05",
    _BUILT: "R12 R13",
    "ran on a trn2: one team's kernel was wrong, and right with a tile for each sum; "
    "the architecture guide names a group for each bank": "M12",
    "documented (release notes of NKI and of the SDK, FAQ of NKI)": "T03",
    "read in the open compiler, and built (as the text says)": "N05",
    "ran on chips: published kernels use more than is documented": "A10",
    _SIMULATOR: "K07 K08 K09 K10 K13 K15 K16 K17 C01 T01 T02 G00 X01 X02 X03",
}
_KNOWN = {f"NKI-{id}": how for how, ids in _OF_RULES.items() for id in ids.split()}


def basis(id: str, name: str) -> str:
    """Return how a rule is known; `name` is that of AWS's page of errors, "" if it has none."""
    if id in _KNOWN:
        return _KNOWN[id]
    return _NAMED if name else ""


__all__ = ["basis"]
