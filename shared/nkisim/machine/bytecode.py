"""What the simulator reads from the instructions that Python compiles a kernel to.

They change with each version of Python. All that depends on them is here, and
`tests/nkisim/loops/test_bytecode.py` holds it against what each version makes of small functions.
"""

from __future__ import annotations

import dis
import functools
import inspect
from types import CodeType

_COLLECTS = (
    "LIST_APPEND",
    "SET_ADD",
    "MAP_ADD",
    "LIST_EXTEND",
    "SET_UPDATE",
    "DICT_UPDATE",
)  # [*row for row in rows], Python 3.15
#: what a loop keeps on the stack: its iterator and, since Python 3.15, a place in it
_PER_LOOP = 1 + dis.stack_effect(dis.opmap["GET_ITER"])


def _instructions(code: CodeType) -> list[dis.Instruction]:
    """Return the instructions without the prefixes of long arguments."""
    return [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]


def is_for_statement(code: CodeType, at: int) -> bool:
    """Return whether the instruction at `at`, which asks for an iterator, is the head of a `for`.

    Then nothing lies between the loop and its body, as `zip` or a comprehension's list would. The
    compiler makes GET_ITER and at once FOR_ITER of such a statement, and of some `for` of a
    comprehension. A generator's frame hands iterations to an unknown caller.
    """
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return False
    steps = _instructions(code)
    for step, after in zip(steps, steps[1:]):
        if step.offset == at:
            return (
                step.opname == "GET_ITER"
                and after.opname == "FOR_ITER"
                and after.offset not in _comprehended(steps)
            )
    return False


def _comprehended(steps: list[dis.Instruction]) -> set[int]:
    """Return the offsets of those FOR_ITER that belong to comprehensions.

    The element goes to a collection that lies on the stack below all loops of its comprehension,
    so how deep it lies says how many there are. A display, [*a, b], has its own at once below.
    """
    offsets: set[int] = set()
    loops: list[tuple[int, int]] = []  # those around a step: where, and their end
    for step in steps:
        loops = [loop for loop in loops if loop[1] > step.offset]
        if step.opname == "FOR_ITER":
            loops.append((step.offset, step.argval))
        if step.opname in _COLLECTS and (depth := ((step.arg or 1) - 1) // _PER_LOOP):
            offsets.update(where for where, _ in loops[-depth:])
    return offsets


def changed_names(code: CodeType, at: int) -> dict[str, int]:
    """Return the local variables that a loop's body reads and then binds anew, with their lines.

    `at` is the offset of the instruction that asked for the loop's iterator. A variable that the
    body binds first is its own in each iteration, and is not among them.
    """
    body: list[dis.Instruction] = []
    end = None
    for step in dis.get_instructions(code):
        if step.offset <= at:
            continue
        if end is None:
            if step.opname == "FOR_ITER":
                end = step.argval
            continue
        if step.offset >= end:
            break
        body.append(step)
    lines = dict(dis.findlinestarts(code))
    line = code.co_firstlineno
    seen: dict[str, str] = {}
    changed: dict[str, int] = {}
    for step in body:
        line = lines.get(step.offset) or line
        # some versions of Python have instructions for two variables: LOAD_FAST_LOAD_FAST (a, b)
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        for name, verb in zip(names, _verbs(step.opname)):
            first = seen.setdefault(name, verb)
            if verb == "STORE" and first == "LOAD":
                changed.setdefault(name, line)
    return changed


def _verbs(opname: str) -> tuple[str, ...]:
    """Return what an instruction does to each local variable that it names."""
    if "_FAST" not in opname and "_DEREF" not in opname:
        return ()
    return tuple(word for word in opname.split("_") if word in ("LOAD", "STORE"))


@functools.lru_cache(maxsize=1024)
def joins(code: CodeType, at: int) -> bool:
    """Return whether the instruction at `at` decides an `and` or `or` whose value is kept.

    Then it leaves its operand on the stack, which may be the value of the whole: Python 3.10 and
    3.11 have an instruction for that, later ones copy the operand first. An `if` does neither.
    """
    before = ""
    for step in _instructions(code):
        if step.offset >= at:  # Python 3.10 may stand at the prefix
            decides = step.opname == "TO_BOOL" or step.opname.startswith("POP_JUMP")
            return step.opname.endswith("_OR_POP") or decides and before == "COPY"
        before = step.opname
    return False
