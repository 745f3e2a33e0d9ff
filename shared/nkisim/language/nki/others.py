"""Arguments of other instructions: which of them have the one that a call wanted."""

from __future__ import annotations

import re

from ...isa.table import ROWS, Row

_ENGINES = {"tensor": "Tensor", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd"}
_SHOWN = 4  # names in a sentence
#: instructions that most kernels use; they are named first
_COMMON = (
    *("nisa.tensor_copy", "nisa.tensor_scalar", "nisa.tensor_tensor", "nisa.activation"),
    *("nisa.dma_copy", "nisa.nc_matmul", "nisa.tensor_reduce"),
)


def who_has(api: str, name: str) -> str:
    """Return which instructions have an argument that `api` lacks, as a sentence, or ""."""
    apis = sorted({_api(row) for row in ROWS.values() if name in _arguments(row)}, key=_order)
    if not apis:
        return ""
    more = len(apis) - _SHOWN
    which = ", ".join(apis[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    alone = _where(api) if name == "engine" else ""
    return f"{alone}{name}= is an argument of {which}"


def _where(api: str) -> str:
    """Return where an instruction that has no choice runs, as the begin of a sentence."""
    engines = {e for row in ROWS.values() if _api(row) == api for e in row.engines}
    if engines == {"dma"}:
        return f"{api} runs in the DMA queues; "
    names = [_ENGINES[e] for e in engines if e in _ENGINES]
    return f"{api} runs on the {names[0]} Engine alone; " if len(names) == 1 else ""


def _order(api: str) -> tuple[int, str]:
    return (_COMMON.index(api) if api in _COMMON else len(_COMMON), api)


def _api(row: Row) -> str:
    return row.nki.partition("(")[0]


def _arguments(row: Row) -> list[str]:
    return re.findall(r"[(,]\s*(\w+)", row.nki)
