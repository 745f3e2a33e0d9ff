"""Records in which the passes over them have found nothing: those need not look a second time.

A kernel that runs again, with other values, leaves the same record mostly.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from hashlib import blake2b
from typing import Any

from .execution import Execution

MOST = 64  # records that are remembered
_clean: dict[Hashable, None] = {}


def record_key(m: Execution, inputs: Iterable[Any]) -> Hashable:
    """Return all that the passes depend on; `inputs`: the tensors that came in."""
    tr, hw = m.trace, m.hw
    words = (tr.rows, tr.starts, tr.storages.data, tr.node_parent, tr.node_loop)
    digest = blake2b(digest_size=16)
    for some in words:
        digest.update(some)
    return (
        digest.digest(),
        tuple(map(len, words)),
        tuple(tr.op_specs),
        tuple(tr.loop_kind),
        tuple(tr.loop_line),
        hw.name,
        hw.sbuf_usable_bytes,
        hw.psum_bytes,
        hw.psum_bank_bytes,
        m.dialect,
        m.compute,
        m.direct,
        m.asked_id,
        m.skip_middle_end,
        frozenset(m.indexed),
        frozenset(m.unseen),
        frozenset(st.id for st in m.arenas.values()),
        tuple((t.storage.id, t.shape, t.dtype.num) for t in inputs),
    )


def is_clean(key: Hashable) -> bool:
    """Return whether nothing was found in a record that looked the same."""
    return key in _clean


def remember(key: Hashable) -> None:
    """Remember that nothing was found."""
    while len(_clean) >= MOST:
        _clean.pop(next(iter(_clean)), None)
    _clean[key] = None


__all__ = ["is_clean", "record_key", "remember"]
