"""Where the simulator does not do what the documentation says, with the reason.

Names are those of the tests of test_row_matrix.py, "row-mask-dtype-rank", and may have `*`. Every
test that is named here must fail: one that passes has been mended, and its name goes.
"""
from __future__ import annotations

DISAGREEMENTS: dict[str, str] = {}
