"""Subscripts of integers and slices: each form of them is resolved by a function written for it.

Each operand of each instruction is a subscript, and a loop over its keys that asks what each of
them is would be a large part of what it costs to record an instruction. So the loop runs once for
each form, `t[:, 1, 4:8]` being (slice, int, slice), and writes the function.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: (rank, partition dim or -1, type of each key ...) -> resolves such subscripts of such tensors
RESOLVERS: dict[tuple, Callable[[Any, tuple], Any]] = {}


def resolver(form: tuple, made: type) -> Callable[[Any, tuple], Any]:
    """Return the function for subscripts of a form, which is added to RESOLVERS.

    The function gets a tensor and the keys, and returns the view, of the class `made`. Integers and
    slices that lie inside of the tensor are one; for what leaves it, counts from its end or has a
    step, which is for others, it returns None.
    """
    rank, part, *kinds = form
    found = RESOLVERS[form] = _nothing if len(kinds) > rank or not {int, slice}.issuperset(kinds) \
        else _written(rank, part, kinds, made)
    return found


def _nothing(t: Any, keys: tuple) -> None:
    return None


def _written(rank: int, part: int, kinds: list[type], made: type) -> Callable[[Any, tuple], Any]:
    """Write the function for integers and slices."""
    dims = range(len(kinds))
    body = [f"{''.join(f'k{d}, ' for d in dims)} = keys" if kinds else "",
            f"{''.join(f'n{d}, ' for d in range(rank))} = t.shape" if rank else "",
            f"{''.join(f's{d}, ' for d in range(rank))} = t.strides" if rank else ""]
    numbers = [d for d in dims if kinds[d] is int]
    if numbers:
        body.append(f"if not ({' and '.join(f'0 <= k{d} < n{d}' for d in numbers)}): return None")
    body.append("offset = t.offset" + "".join(f" + k{d} * s{d}" for d in numbers))
    for d in dims:
        if kinds[d] is slice:
            body += [f"a, b = k{d}.start, k{d}.stop",
                     f"if k{d}.step is not None: return None",
                     "if a is not None or b is not None:",
                     "    if a is None: a = 0",
                     f"    if b is None: b = n{d}",
                     "    if not (type(a) is int and type(b) is int "
                     f"and 0 <= a < b <= n{d}): return None",
                     f"    offset += a * s{d}",
                     f"    n{d} = b - a"]
    kept = [d for d in range(rank) if d not in numbers or d == part]
    sizes = ["1" if d in numbers else f"n{d}" for d in kept]    # a partition dim never goes away
    strides = [f"s{d}" for d in kept]
    if part >= 0 and len(kept) < 2:                             # tile[:, k] is (P, 1)
        sizes.append("1")
        strides.append("t.dtype.itemsize")
    body += ["v = new(made)",                   # as Tensor.__init__ and `like` do
             *(f"v.{name} = t.{name}" for name in ("m", "storage", "dtype", "kind", "owner")),
             "v.offset = offset",
             f"v.shape = ({''.join(f'{n}, ' for n in sizes)})",
             f"v.strides = ({''.join(f'{s}, ' for s in strides)})",
             f"v.nblock = {max(part, 0) - sum(d < part for d in numbers)}",
             "v.oob = v.pending = v._np = None",
             "return v"]
    names: dict[str, Any] = {"new": object.__new__, "made": made}
    exec("def resolve(t, keys):\n" + "".join(f"    {line}\n" for line in body if line), names)
    return names["resolve"]


__all__ = ["RESOLVERS", "resolver"]
