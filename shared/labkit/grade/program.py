"""A kernel as a program: what it asks for, recorded without values and carried out afterwards.

The judge first lets a kernel say all that it wants, and computes nothing (`nkisim.record`). What
came over the pipe is the program; it is carried out when the kernel's process has said that it is
done. So no answer tells a value, and no clock does. The same program runs on other inputs, and with
the iterations of its loops in another order, and no second run has to be told from the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

MOST_BYTES = 256 << 20  # of the messages of a program


class Request:
    """One request of a kernel's process, and what belongs to it.

    `first`: the number of the first handle that it makes, `made`: of those of its answer; the same
    request always makes the same ones, in whatever order requests are carried out. `answer`: of the
    next index of a loop.
    `calls`: the kernel's functions that the simulator called meanwhile. `requests`: those of a
    kernel that is called here. `failed`: it ended in an error that Python's protocols ask for.
    """

    __slots__ = ("answer", "calls", "failed", "first", "made", "message", "requests")

    def __init__(self, message: list[Any], first: int):
        self.message, self.first, self.made = message, first, first
        self.answer: Any = None
        self.calls: list[Call] = []
        self.requests: list[Request] = []
        self.failed = False

    @property
    def advances(self) -> int | None:
        """Return the handle of the loop whose next index this asks for; None if it does not."""
        match self.message:
            case ["operator", _, _, "next", [["H", int(loop), *_]]]:
                return loop
        return None

    def walk(self) -> Iterator[Request]:
        """Yield this request and those within it."""
        yield self
        for request in (*self.requests, *(r for call in self.calls for r in call.requests)):
            yield from request.walk()


class Call:
    """A call of a function of the kernel's by the simulator: its requests, and what came of it."""

    __slots__ = ("first", "requests", "result", "wrong")

    def __init__(self, first: int):
        self.first = first
        self.requests: list[Request] = []
        self.result: Any = None
        self.wrong: str | None = None


class Program:
    """What one call of a kernel has asked for; `first`: the number of its first argument."""

    def __init__(self, first: int):
        self.first = first
        self.requests: list[Request] = []
        self.calls: list[Call] = []  # after its last request
        self.result: Any = None

    @property
    def asks_id(self) -> bool:
        """Return whether it asks which instance of the grid it is."""
        return any(
            request.message[0] == "call" and request.message[3].endswith(".program_id")
            for outer in self.requests
            for request in outer.walk()
        )


class Body:
    """The requests of one iteration: those between two that ask for an index."""

    def __init__(self, requests: list[Request], begin: int, end: int, until: int):
        self.requests, self.begin, self.end, self.until = requests, begin, end, until

    @property
    def over(self) -> list[int]:
        """Return the handles that it made, and that are forgotten before another iteration could
        need them."""
        made = range(self.requests[self.begin].first, self.requests[self.end].first)
        within = (r for outer in self.requests[self.begin : self.until] for r in outer.walk())
        return [id for id in {id for r in within for id in r.message[2]} if id in made]


def loops_of(requests: list[Request]) -> dict[int, dict[int, Body]]:
    """Return the loops that can run in another order: by the place of the first request for an
    index, the bodies by index. The last request for one has to have found none: a loop that was
    left before has no end."""
    places: dict[int, list[int]] = defaultdict(list)
    for place, request in enumerate(requests):
        if (loop := request.advances) is not None:
            places[loop].append(place)
    loops = {}
    for at in places.values():
        indices = [requests[place].answer for place in at[:-1]]
        whole = indices and requests[at[-1]].failed
        if not whole or not all(type(index) is int for index in indices):
            continue
        after = [*at[1:], at[-1] + 1]
        loops[at[0]] = {
            index: Body(requests, begin, end, until)
            for index, begin, end, until in zip(indices, at, after, after[1:])
        }
    return loops
