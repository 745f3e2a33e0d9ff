"""Subscripts of integers and slices: each form of them is resolved by a function written for it.

Each operand of each instruction is a subscript, and a loop over its keys that asks what each of
them is would be a large part of what it costs to record an instruction. So the loop runs once for
each form, `t[:, 1, 4:8]` being (slice, int, slice), and writes the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Resolver = Callable[[Any, tuple], Any]
#: by rank, partition dim (-1: none, in HBM) and type of each key, one dict in the other; at None
#: what resolves such subscripts of such tensors
RESOLVERS: dict[Any, Any] = {}


def resolver(rank: int, part: int, keys: tuple, made: type) -> Resolver:
    """Return the function for subscripts like `keys`, which is added to RESOLVERS.

    The function gets a tensor and the keys, and returns the view, of the class `made`. Integers and
    slices that lie inside of the tensor are one; for what leaves it, counts from its end or has a
    step, which is for others, it returns None.
    """
    types = [type(k) for k in keys]
    resolvers = RESOLVERS
    for at in (rank, part, *types):
        resolvers = resolvers.setdefault(at, {})
    found = resolvers[None] = (
        _nothing
        if len(types) > rank or not {int, slice}.issuperset(types)
        else _written(rank, part, types, made)
    )
    return found


def _nothing(t: Any, keys: tuple) -> None:
    return None


def _written(rank: int, part: int, types: list[type], made: type) -> Resolver:
    """Write the function for integers and slices."""
    dims = range(len(types))
    body = [
        f"{''.join(f'k{d}, ' for d in dims)} = keys" if types else "",
        f"{''.join(f'n{d}, ' for d in range(rank))} = t.shape" if rank else "",
        f"{''.join(f's{d}, ' for d in range(rank))} = t.strides" if rank else "",
    ]
    numbers = [d for d in dims if types[d] is int]
    body += [f"if k{d} < 0 or k{d} >= n{d}: return None" for d in numbers]
    body.append("offset = t.offset" + "".join(f" + k{d} * s{d}" for d in numbers))
    for d in dims:
        if types[d] is slice:
            body += [
                f"if k{d}.step is not None: return None",
                f"a, b = k{d}.start, k{d}.stop",
                "if b is not None:",  # one by one: Python takes long for 0 < b <= n
                f"    if type(b) is not int or b < 1 or b > n{d}: return None",
                f"    n{d} = b",
                "if a is not None:",
                f"    if type(a) is not int or a < 0 or a >= n{d}: return None",
                f"    offset += a * s{d}",
                f"    n{d} -= a",
            ]
    kept = [d for d in range(rank) if d not in numbers or d == part]
    sizes = ["1" if d in numbers else f"n{d}" for d in kept]  # a partition dim never goes away
    strides = [f"s{d}" for d in kept]
    if part >= 0 and len(kept) < 2:  # tile[:, k] is (P, 1)
        sizes.append("1")
        strides.append("t.dtype.itemsize")
    body += [
        "v = new(made)",  # as Tensor.__init__ and `like` do
        *(f"v.{name} = t.{name}" for name in ("m", "storage", "dtype", "memory", "owner")),
        "v.offset = offset",
        f"v.shape = ({''.join(f'{n}, ' for n in sizes)})",
        f"v.strides = ({''.join(f'{s}, ' for s in strides)})",
        f"v.nblock = {max(part, 0) - sum(d < part for d in numbers)}",
        "v.oob = v.pending = v._np = None",
        "return v",
    ]
    names: dict[str, Any] = {"new": object.__new__, "made": made}
    exec("def resolve(t, keys):\n" + "".join(f"    {line}\n" for line in body if line), names)
    return names["resolve"]


__all__ = ["RESOLVERS", "resolver"]
