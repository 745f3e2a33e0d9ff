"""What goes wrong with attention: the tester names what agrees with an output."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labkit import Mistake

BLOCK = 512
UNSCALED = "the scores are not scaled: multiply them by 1 / sqrt(d)"
HALF = "query i sees all keys: hide those after its own position"
OTHER = "head h has the keys of group h % groups: neighbours share one, h // (heads / groups)"


def wide(x: np.ndarray) -> np.ndarray:
    """Return x in float64."""
    return x.astype(np.float64)


def scores(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return the scaled scores in float64."""
    result: np.ndarray = wide(q) @ wide(k).T / np.sqrt(q.shape[1])
    return result


def blocks(q: np.ndarray, k: np.ndarray) -> list[np.ndarray] | None:
    """Return the scores in blocks of keys, or None if they are in one."""
    whole = scores(q, k)
    parts = [whole[:, c:c + BLOCK] for c in range(0, len(k), BLOCK)]
    return parts if len(parts) > 1 else None


def by_block(right: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray | None:
    """Return the sum of the attention of each block by itself."""
    if len(k) <= BLOCK:
        return None
    parts = [right(q, k[c:c + BLOCK], v[c:c + BLOCK]) for c in range(0, len(k), BLOCK)]
    return np.sum(parts, axis=0)


def not_shrunk(rows: bool, total: bool) -> Callable[..., np.ndarray | None]:
    """Return the mistake of an online softmax in which one or both sums are not scaled."""
    def output(right: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray | None:
        parts = blocks(q, k)
        if parts is None:
            return None
        above, below, largest, first = 0.0, 0.0, None, 0
        for part in parts:
            seen = part.max(axis=1, keepdims=True)
            new = seen if largest is None else np.maximum(seen, largest)
            shrink = 1.0 if largest is None else np.exp(largest - new)
            powers = np.exp(part - new)
            above = above * (1.0 if rows else shrink) + powers @ wide(v[first:first + BLOCK])
            below = below * (1.0 if total else shrink) + powers.sum(axis=1, keepdims=True)
            largest, first = new, first + BLOCK
        return above / below
    return output


def last_block(right: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray | None:
    """Return the attention of the last block of keys alone."""
    rest = len(k) % BLOCK or BLOCK
    return None if len(k) <= BLOCK else right(q, k[-rest:], v[-rest:])


def same_rows(right: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray | None:
    """Return the attention in which every block has the first rows of v."""
    return None if len(k) <= BLOCK else right(q, k, v[np.arange(len(v)) % BLOCK])


def last_piece(right: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray | None:
    """Return the attention in which only the last 128 keys of each block have values."""
    where = np.arange(len(v))
    size = np.minimum(BLOCK, len(v) - where // BLOCK * BLOCK)
    kept = where % BLOCK // 128 == (size - 1) // 128
    return None if kept.all() else right(q, k, wide(v) * kept[:, None])


def masked(keep: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    """Return the mistake of another mask: keep(query, key) says what is seen."""
    def output(right: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        n = np.arange(len(q))
        found = np.where(keep(n[:, None], n), scores(q, k), -np.inf)
        powers = np.exp(found - found.max(axis=1, keepdims=True))
        result: np.ndarray = powers / powers.sum(axis=1, keepdims=True) @ wide(v)
        return result
    return output


def heads_of(change: Callable[..., Any]) -> Callable[..., Any]:
    """Return the mistake of other heads: change(q, k, v) gives q, k and v for each head."""
    def output(right: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Any:
        return right(*change(q, k, v))
    return output


def cached(keys: Callable[[int, int], slice], mistaken: bool = False) -> Callable[..., Any]:
    """Return the mistake of a token that sees other rows of the caches: keys(length, capacity)."""
    def output(right: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, k_cache: np.ndarray,
               v_cache: np.ndarray, length: np.ndarray) -> Any:
        _, k_new, v_new = right(q, k, v, k_cache, v_cache, length)
        if mistaken:
            k_new, v_new = wide(k_cache), wide(v_cache)
        seen, each = keys(int(length[0, 0]), k_cache.shape[1]), len(q) // len(k)
        out = np.full(q.shape, np.nan)
        for h, query in enumerate(wide(q)):
            found = k_new[h // each, seen] @ query / np.sqrt(len(query))
            if found.size:
                powers = np.exp(found - found.max())
                out[h] = powers @ v_new[h // each, seen] / powers.sum()
        return out, k_new, v_new
    return output


def moved(step: int) -> Callable[..., Any]:
    """Return the mistake of a token that is written `step` rows away."""
    def output(right: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, k_cache: np.ndarray,
               v_cache: np.ndarray, length: np.ndarray) -> Any:
        tokens = int(length[0, 0])
        if not 0 <= tokens + step < k_cache.shape[1]:
            return None
        k_new, v_new = wide(k_cache), wide(v_cache)
        k_new[:, tokens + step], v_new[:, tokens + step] = k, v
        out = right(q, k_new[:, tokens], v_new[:, tokens], k_new, v_new, length)[0]
        return out, k_new, v_new
    return output


ALONE = (
    Mistake(UNSCALED, lambda right, q, k, v: right(wide(q) * np.sqrt(q.shape[-1]), k, v)),
    Mistake("the scores are multiplied by 1 / d (or twice by 1 / sqrt(d)): it is 1 / sqrt(d)",
            lambda right, q, k, v: right(wide(q) / np.sqrt(q.shape[-1]), k, v)),
    Mistake("k and v are exchanged", lambda right, q, k, v: right(q, v, k)),
)
MISTAKES = {
    "attention": (
        *ALONE,
        Mistake("the rows are not divided by the sum of the powers",
                lambda right, q, k, v:
                np.exp(scores(q, k) - scores(q, k).max(axis=1, keepdims=True)) @ wide(v)),
        Mistake("each block of keys has a softmax of its own: the largest score and the sum must "
                "go on from block to block", by_block),
        Mistake("neither the sum of the powers nor that of the rows is scaled when the largest "
                "score grows: multiply both by exp(old - new)", not_shrunk(True, True)),
        Mistake("the sum of the rows is not scaled when the largest score grows: multiply it by "
                "exp(old - new), like the sum of the powers", not_shrunk(True, False)),
        Mistake("the sum of the powers is not scaled when the largest score grows: multiply it by "
                "exp(old - new), like the sum of the rows", not_shrunk(False, True)),
        Mistake("the last block of keys alone counts: sums must go on from block to block",
                last_block),
        Mistake("every block is multiplied by the first rows of v: take those of its own keys",
                same_rows),
        Mistake("of each block the last 128 keys alone are multiplied by v: products must add up, "
                "with accumulate=True after the first", last_piece),
    ),
    "causal_attention": (
        *ALONE,
        Mistake(HALF, masked(lambda query, key: key < np.inf)),
        Mistake("the mask is turned around: query i sees keys i and later",
                masked(lambda query, key: key >= query)),
        Mistake("query i does not see key i: its own position is not hidden",
                masked(lambda query, key: key < query)),
        Mistake("query i sees key i + 1 as well", masked(lambda query, key: key <= query + 1)),
        Mistake("query i sees the later keys of its own tile as well: the tile on the diagonal "
                "needs the mask", masked(lambda query, key: key // 128 <= query // 128)),
        Mistake("in the tile on the diagonal the mask is turned around: it hides earlier keys",
                masked(lambda query, key: (key // 128 < query // 128)
                       | ((key // 128 == query // 128) & (key >= query)))),
        Mistake("the mask is the same for all tiles: it hides keys by the query's row in its tile, "
                "not by its position", masked(lambda query, key: key <= query % 128)),
    ),
    "grouped_attention": (
        *ALONE,
        Mistake(OTHER, heads_of(lambda q, k, v: (
            q, k[np.arange(len(q)) % len(k)], v[np.arange(len(q)) % len(k)]))),
        Mistake("all heads have the keys of the first group",
                heads_of(lambda q, k, v: (q, k[:1], v[:1]))),
        Mistake("all heads of a group have the queries of its first head",
                heads_of(lambda q, k, v: (
                    q[np.arange(len(q)) // (len(q) // len(k)) * (len(q) // len(k))], k, v))),
        Mistake(HALF, lambda right, q, k, v: np.stack([
            masked(lambda query, key: key < np.inf)(right, x, k[h * len(k) // len(q)],
                                                    v[h * len(k) // len(q)])
            for h, x in enumerate(q)])),
    ),
    "decode": (
        Mistake(UNSCALED, lambda right, q, *rest: right(wide(q) * np.sqrt(q.shape[1]), *rest)),
        Mistake(OTHER, lambda right, q, k, *rest: (
            right(q[np.arange(len(q)).reshape(-1, len(k)).T.ravel()], k, *rest)[0][
                np.argsort(np.arange(len(q)).reshape(-1, len(k)).T.ravel())],
            *right(q, k, *rest)[1:])),
        Mistake("the new token does not see itself: it is at position length, and sees positions "
                "0 to length", cached(lambda length, capacity: slice(0, length))),
        Mistake("all rows of the caches are seen, not the first length + 1",
                cached(lambda length, capacity: slice(0, capacity))),
        Mistake("the new key and value are not written into the caches",
                cached(lambda length, capacity: slice(0, length + 1), mistaken=True)),
        Mistake("the new key and value are written one row too late: at position length, counted "
                "from 0", moved(1)),
        Mistake("the new key and value are written one row too early, over the last token",
                moved(-1)),
        Mistake("the new key is in the cache of values, and the new value in that of keys",
                lambda right, q, k, v, *rest: right(q, v, k, *rest)),
    ),
}
