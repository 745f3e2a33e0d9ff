"""What goes wrong with a mixture of experts: the tester names what agrees with an output."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labkit import Mistake

P = 128
UNWEIGHTED = "the experts are added up without their weights"
LINEAR = "silu is missing: this is (x gate) * (x up) times down"
EXCHANGED = "silu is applied to x up: it belongs to x gate"
ORDER = ("x and the matrices are in different orders: if partition p has rows p * (d / 128) + c of "
         "a matrix, it needs the same numbers of x")


def wide(x: np.ndarray) -> np.ndarray:
    """Return x in float64."""
    return x.astype(np.float64)


def blocks_first(x: np.ndarray) -> np.ndarray | None:
    """Return x with number c * 128 + p where p * (d / 128) + c belongs; None if they are one."""
    *lead, d = x.shape
    if d == P:
        return None
    return x.reshape(*lead, d // P, P).swapaxes(-1, -2).reshape(x.shape)


def pieces_alike(right: Any, table: np.ndarray, which: np.ndarray) -> np.ndarray | None:
    """Return the rows if each tile of 128 has the numbers of the first one."""
    return right(table, which[np.arange(len(which)) % P]) if len(which) > P else None


def order_of_groups(right: Any, table: np.ndarray, which: np.ndarray) -> np.ndarray | None:
    """Return the rows if row i of partition p goes to place i * 128 + p."""
    n = len(which) // P
    if n < 2 or len(which) % P:
        return None
    rows = right(table, which)
    return rows.reshape(P, n, -1).swapaxes(0, 1).reshape(rows.shape)


def written(right: Any, table: np.ndarray, rows: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return the table with rows written over those that they belong to."""
    out, real = wide(table), which[:, 0] < len(table)
    out[which[real, 0]] = rows[real]
    return out


def in_turn(right: Any, table: np.ndarray, rows: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Return the table with row i added to row i."""
    out, n = wide(table), min(len(table), len(rows))
    out[:n] += rows[:n]
    return out


def logits_of(x: np.ndarray, router: np.ndarray) -> np.ndarray:
    """Return the logits in float64."""
    result: np.ndarray = wide(x) @ wide(router)
    return result


def best_of(x: np.ndarray, router: np.ndarray, k: int) -> np.ndarray:
    """Return the numbers of the k best experts."""
    best: np.ndarray = np.argsort(-logits_of(x, router), axis=1, kind="stable")[:, :k]
    return best


def over_all(right: Any, x: np.ndarray, router: np.ndarray, k: int, scores: str) -> Any:
    """Return weights from the softmax over all experts."""
    if scores != "softmax":
        return None
    logits, numbers = logits_of(x, router), best_of(x, router, k)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return np.take_along_axis(powers, numbers, axis=1), numbers


def not_divided(right: Any, x: np.ndarray, router: np.ndarray, k: int, scores: str) -> Any:
    """Return exponentials or sigmoids that are not divided by their sum."""
    numbers = best_of(x, router, k)
    best = np.take_along_axis(logits_of(x, router), numbers, axis=1)
    return np.exp(best - best[:, :1]) if scores == "softmax" else 1 / (1 + np.exp(-best)), numbers


def raw(right: Any, x: np.ndarray, router: np.ndarray, k: int, scores: str) -> Any:
    """Return the logits themselves."""
    numbers = best_of(x, router, k)
    return np.take_along_axis(logits_of(x, router), numbers, axis=1), numbers


def over_eight(right: Any, x: np.ndarray, router: np.ndarray, k: int, scores: str) -> Any:
    """Return weights whose sum is that of the eight largest."""
    if k == 8:
        return None
    return right(x, router, 8, scores)[0][:, :k], best_of(x, router, k)


def smallest(right: Any, x: np.ndarray, router: np.ndarray, k: int, scores: str) -> Any:
    """Return the k smallest."""
    return right(x, -router, k, scores)[0], best_of(x, -router, k)


def silu(x: np.ndarray) -> np.ndarray:
    """Return x * sigmoid(x)."""
    return x / (1 + np.exp(-x))


Body = Callable[[np.ndarray, np.ndarray], np.ndarray]


def mixture(body: Body, weighted: bool = True) -> Callable[..., np.ndarray]:
    """Return the mistake of decode whose layers are joined by `body`."""
    def output(right: Any, x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
               chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
        out, rows = np.zeros(x.shape), wide(x)
        for t, j in np.ndindex(*chosen.shape):
            e = chosen[t, j]
            hidden = body(rows[t] @ wide(gate[e]), rows[t] @ wide(up[e]))
            out[t] += (float(weights[t, j]) if weighted else 1.0) * (hidden @ wide(down[e]))
        return out
    return output


def reordered(right: Any, x: np.ndarray, *rest: np.ndarray, **more: Any) -> Any:
    """Return what comes of tokens whose numbers lie in blocks of 128."""
    turned = blocks_first(x)
    if turned is None:
        return None
    made = right(turned, *rest, **more)
    return (made[0], made[1].scores.argmax(axis=-1)) if isinstance(made, tuple) else made


def rows_in_blocks(right: Any, x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
                   *rest: np.ndarray) -> np.ndarray | None:
    """Return the mixture if the rows of each matrix are loaded 128 neighbours at a time."""
    turned = [blocks_first(m.swapaxes(1, 2)) for m in (gate, up, down)]
    if all(t is None for t in turned):
        return None
    given = [m if t is None else t.swapaxes(1, 2) for m, t in zip((gate, up, down), turned)]
    return right(x, *given, *rest)


def hidden_in_blocks(right: Any, x: np.ndarray, gate: np.ndarray, up: np.ndarray,
                     down: np.ndarray, *rest: np.ndarray) -> np.ndarray | None:
    """Return the mixture if the columns of each matrix are taken 128 neighbours at a time."""
    turned = [blocks_first(m) for m in (gate, up, down)]
    given = [m if t is None else t for m, t in zip((gate, up, down), turned)]
    return None if all(t is None for t in turned) else right(x, *given, *rest)


def first_experts(right: Any, *given: np.ndarray) -> np.ndarray:
    """Return the mixture of experts 0 to k - 1."""
    *rest, chosen, weights = given
    return right(*rest, np.broadcast_to(np.arange(chosen.shape[1]), chosen.shape), weights)


def first_token(right: Any, *given: np.ndarray) -> np.ndarray | None:
    """Return the mixture in which all tokens have the experts and weights of the first."""
    *rest, chosen, weights = given
    if len(chosen) == 1:
        return None
    return right(*rest, np.broadcast_to(chosen[:1], chosen.shape),
                 np.broadcast_to(weights[:1], weights.shape))


def only(which: int) -> Callable[..., np.ndarray | None]:
    """Return the mistake that only one expert of each token counts."""
    def output(right: Any, *given: np.ndarray) -> np.ndarray | None:
        *rest, chosen, weights = given
        if chosen.shape[1] == 1:
            return None
        return right(*rest, chosen[:, [which]], weights[:, [which]])
    return output


def without_scales(right: Any, *given: np.ndarray) -> np.ndarray:
    """Return the mixture with scales of 1, for fp8."""
    *rest, scales, chosen, weights = given
    return right(*rest, np.ones_like(scales), chosen, weights)


def exchanged_scales(right: Any, x: np.ndarray, gate: np.ndarray, up: np.ndarray,
                     down: np.ndarray, scales: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    """Return the mixture if gate has the scales of up."""
    b = gate.shape[2] // P
    turned = np.concatenate([scales[..., b:2 * b], scales[..., :b], scales[..., 2 * b:]], axis=-1)
    return right(x, gate, up, down, turned, *rest)


def scales_of(gate: float | None, up: float | None, down: float | None) -> Any:
    """Return the mistake that parts of the scales are a number instead."""
    def output(right: Any, x: np.ndarray, *given: np.ndarray) -> np.ndarray:
        *matrices, scales, chosen, weights = given
        b, other = matrices[0].shape[2] // P, scales.copy()
        parts = (slice(0, b), slice(b, 2 * b), slice(2 * b, None))
        for part, number in zip(parts, (gate, up, down)):
            if number is not None:
                other[..., part] = number
        return right(x, *matrices, other, chosen, weights)
    return output


def scales_of_gate(right: Any, x: np.ndarray, *given: np.ndarray) -> np.ndarray:
    """Return the mixture if up has the scales of gate."""
    *matrices, scales, chosen, weights = given
    b, other = matrices[0].shape[2] // P, scales.copy()
    other[..., b:2 * b] = scales[..., :b]
    return right(x, *matrices, other, chosen, weights)


def scaled_late(right: Any, x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
                scales: np.ndarray, chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mixture if gate is scaled after silu."""
    b, out, rows = gate.shape[2] // P, np.zeros(x.shape), wide(x)
    first, second, last = (wide(s.reshape(len(scales), -1)) for s in (
        scales[..., :b], scales[..., b:2 * b], scales[..., 2 * b:]))
    for t, j in np.ndindex(*chosen.shape):
        e = chosen[t, j]
        hidden = silu(rows[t] @ wide(gate[e])) * first[e] * (rows[t] @ wide(up[e])) * second[e]
        out[t] += float(weights[t, j]) * (hidden @ wide(down[e]) * last[e])
    return out


def exponents_of_one(right: Any, *given: np.ndarray) -> np.ndarray:
    """Return the mixture with exponents of 0, for MXFP8."""
    *rest, scales, chosen, weights = given
    return right(*rest, np.full_like(scales, 127), chosen, weights)


def first_quadrant(right: Any, *given: np.ndarray) -> np.ndarray:
    """Return the mixture if all quadrants have the exponents of the first."""
    *rest, scales, chosen, weights = given
    return right(*rest, np.concatenate([scales[:, :4]] * 4, axis=1), chosen, weights)


def unweighted_lists(right: Any, *given: np.ndarray) -> np.ndarray:
    """Return the mixture of many tokens with weights of 1."""
    return right(*given[:-1], np.ones_like(given[-1]))


def across(right: Any, x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
           tokens: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mixture of many tokens if expert e has place e of each list."""
    count = len(gate)
    return right(x, gate, up, down, tokens[:, :count].T, weights[:, :count].T)


def columns_in_blocks(right: Any, x: np.ndarray, gate: np.ndarray, up: np.ndarray,
                      down: np.ndarray, scales: np.ndarray, *rest: np.ndarray) -> np.ndarray:
    """Return the mixture for MXFP8 if columns of a matrix are taken 128 neighbours at a time."""
    def order(n: int) -> np.ndarray:
        p, b = np.divmod(np.arange(n), n // P)
        column = np.empty(n, int)
        column[b // 4 * 512 + 4 * p + b % 4] = b * P + p
        return column

    d, h = x.shape[1], gate.shape[2]
    blocks, last = d // 512, h // 512
    columns = [c * h + order(h) for c in range(2 * blocks)]
    columns += [2 * blocks * h + c * d + order(d) for c in range(last)]
    return right(x, gate[:, :, order(h)], up[:, :, order(h)], down[:, :, order(d)],
                 scales[..., np.concatenate(columns)], *rest)


def last_wins(right: Any, x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
              tokens: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mixture of many tokens if each expert's rows are written over those before."""
    out = np.zeros(x.shape)
    for e in range(len(gate)):
        one = right(x, gate[e:e + 1], up[e:e + 1], down[e:e + 1], tokens[e:e + 1],
                    weights[e:e + 1])
        real = tokens[e][tokens[e] < len(x)]
        out[real] = one[real]
    return out


def first_list(right: Any, x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
               tokens: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mixture of many tokens if all experts have the list of the first."""
    return right(x, gate, up, down, np.broadcast_to(tokens[:1], tokens.shape), weights)


def joined(body: Body) -> Callable[..., np.ndarray]:
    """Return the mistake of experts whose layers are joined by `body`."""
    def output(right: Any, x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
               tokens: np.ndarray, weights: np.ndarray) -> np.ndarray:
        out = np.zeros(x.shape)
        for e, row in enumerate(tokens):
            real = row < len(x)
            rows = wide(x[row[real]])
            hidden = body(rows @ wide(gate[e]), rows @ wide(up[e]))
            out[row[real]] += wide(weights[e, real, None]) * (hidden @ wide(down[e]))
        return out
    return output


CHOICE = (
    Mistake("experts 0 to k - 1 are taken: which they are must come from chosen", first_experts),
    Mistake("all tokens go through the experts of the first token", first_token),
    Mistake("only the last expert of each token counts: their results must be added up", only(-1)),
    Mistake("only the first expert of each token counts: their results must be added up", only(0)),
    Mistake(ORDER, reordered),
)
MISTAKES = {
    "gather": (
        Mistake("the first rows of the table are returned: which is not used",
                lambda right, table, which: right(
                    table, np.arange(len(which))[:, None] % len(table))),
        Mistake("all tiles have the rows of the first 128 numbers: the slice must move on",
                pieces_alike),
        Mistake("rows are out of order: row i of partition p is number p * rows + i of out, if "
                "which was loaded so", order_of_groups),
    ),
    "scatter_add": (
        Mistake("rows are written, not added: what was in the table is lost", written),
        Mistake("row i is added to row i: which is not used", in_turn),
        Mistake("the table is returned as it was",
                lambda right, table, rows, which: wide(table)),
        Mistake("rows are added twice", lambda right, table, rows, which: right(
            table, 2 * wide(rows), which)),
    ),
    "route": (
        Mistake("the softmax is over all experts: it must be over the k chosen ones", over_all),
        Mistake("the weights are not divided by their sum", not_divided),
        Mistake("the logits are returned, not their weights", raw),
        Mistake("the sum is over the 8 values of max8: the first k of them count", over_eight),
        Mistake("the k smallest logits are chosen, not the largest", smallest),
        Mistake(ORDER, reordered),
    ),
    "decode": (
        Mistake(UNWEIGHTED, mixture(lambda g, u: silu(g) * u, weighted=False)),
        Mistake(LINEAR, mixture(lambda g, u: g * u)),
        Mistake(EXCHANGED, mixture(lambda g, u: g * silu(u))),
        Mistake("up is missing: this is silu(x gate) times down", mixture(lambda g, u: silu(g))),
        Mistake("the sigmoid is applied, not silu: silu(x) is x * sigmoid(x)",
                mixture(lambda g, u: u / (1 + np.exp(-g)))),
        *CHOICE,
        Mistake("rows b * 128 to b * 128 + 127 of a matrix lie together: in the order of "
                "load_columns partition p has row p * (d / 128) + b", rows_in_blocks),
        Mistake("columns b * 128 to b * 128 + 127 go together: column p * (n / 128) + b of a "
                "matrix belongs to partition p", hidden_in_blocks),
    ),
    "decode_fp8": (
        Mistake("the scales are not applied", without_scales),
        Mistake("gate has the scales of up, and up those of gate", exchanged_scales),
        Mistake("gate is not scaled", scales_of(1.0, None, None)),
        Mistake("up is not scaled", scales_of(None, 1.0, None)),
        Mistake("down is not scaled", scales_of(None, None, 1.0)),
        Mistake("up has the scales of gate", scales_of_gate),
        Mistake("gate is scaled after silu: a function must see the scaled number", scaled_late),
        *CHOICE,
    ),
    "experts": (
        Mistake(UNWEIGHTED, unweighted_lists),
        Mistake("each expert writes over what the experts before it gave: rows must be added",
                last_wins),
        Mistake("all experts have the list of the first", first_list),
        Mistake("expert e has place e of each list: the numbers of one expert must lie along "
                "partitions, so turn the lists", across),
        Mistake(ORDER, reordered),
        Mistake(LINEAR, joined(lambda g, u: g * u)),
        Mistake(EXCHANGED, joined(lambda g, u: g * silu(u))),
    ),
    "decode_mx": (
        Mistake("the exponents are not applied", exponents_of_one),
        Mistake("all quadrants of 32 partitions have the exponents of the first: quadrant q needs "
                "rows 4 q to 4 q + 3", first_quadrant),
        Mistake("columns b * 128 to b * 128 + 127 go together: the four numbers of a pack are "
                "neighbours, 512 * b + 4 * p + r", columns_in_blocks),
        *CHOICE[:4],
    ),
}
