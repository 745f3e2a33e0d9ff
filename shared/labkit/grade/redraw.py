"""Other inputs for the cases that students see and that count by their time.

Hidden cases have other shapes, so a kernel could be fast and careless on the shapes that it knows:
in float16, without the maximum that softmax subtracts. Each of these runs again, then: on more
inputs of its own distribution, and on those of the lab's other cases, hidden ones included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from ..inputs import dtype_of
from ..spec import Case, Tensor

#: elements of an output that are compared on a case's own distribution, in at most so many runs: in
#: one row in a thousand float16 takes the two best classes of a network for each other
ELEMENTS, MOST = 4096, 16


def draws(case: Case, cases: Iterable[Case], elements: int) -> Iterator[Case]:
    """Yield the case, with the ranges of its inputs, for each further run on other inputs.

    `cases`: those of the lab; `elements`: those of the smallest output. An input of integers, or of
    a file, keeps its range (it holds indices), unless the case says from where else it may come.
    """
    if any(tensor.file for tensor in case.inputs):
        return
    for _ in range(max(1, min(MOST, -(-ELEMENTS // max(1, elements))))):
        yield case
    if any(tensor.anywhere for tensor in case.inputs):
        yield dataclasses.replace(case, inputs=tuple(map(_moved, case.inputs)))
    drawn = {_ranges(case, case)}
    for other in cases:
        if _alike(case, other) and (ranges := _ranges(case, other)) not in drawn:
            drawn.add(ranges)
            yield dataclasses.replace(
                case,
                inputs=tuple(
                    dataclasses.replace(tensor, low=low, high=high)
                    for tensor, (low, high) in zip(case.inputs, ranges)
                ),
                # sums of other values have other errors, at most as in so many terms
                accumulate=case.accumulate * max(1, other.accumulate),
                roundings=max(case.roundings, other.roundings),
                added=max(case.added, other.added),
                functions=(*case.functions, *other.functions),
            )


def _moved(tensor: Tensor) -> Tensor:
    """Return an input with the range that it may have all the same, if it has one."""
    low, high = tensor.anywhere or (tensor.low, tensor.high)
    return dataclasses.replace(tensor, low=low, high=high)


def _ranges(case: Case, other: Case) -> tuple[tuple[float, float], ...]:
    """Return the ranges of a case's inputs, where they may be drawn with those of another."""
    return tuple(
        (theirs.low, theirs.high) if _drawn(tensor) else (tensor.low, tensor.high)
        for tensor, theirs in zip(case.inputs, other.inputs)
    )


def _drawn(tensor: Tensor) -> bool:
    """Return whether values of an input may be any of a range."""
    return not tensor.distinct and dtype_of(tensor.dtype).kind not in "iub"


def _alike(case: Case, other: Case) -> bool:
    """Return whether another case asks the same of a kernel, on other shapes or ranges."""
    return (
        (other.kernel, other.reference, other.kwargs) == (case.kernel, case.reference, case.kwargs)
        and [tensor.dtype for tensor in other.inputs] == [tensor.dtype for tensor in case.inputs]
        and other.expect == case.expect
    )
