"""The judge's end of a stranger's kernel: its requests, carried out on the simulator.

Every request names a function of the facade, or a handle and one of a few operators and attributes.
Nothing else can be asked for, nothing that comes back is code, and every size has a limit. Errors
and findings keep the student's lines: a call is made through a stub that stands at that line.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import functools
import importlib
import json
import operator
import os
import select
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

import numpy as np

import nkisim

from ..inputs import dtype_of
from ..spec import SpecError
from .facade import Facade
from .program import MOST_BYTES, Call, Program, Request, loops_of
from .sandbox_worker import BY_NAME, IN_PLACE, METHODS

LARGEST = 64 << 20  # bytes of a message
DEEPEST = 24  # of a nested value, and of kernels that call kernels
LONGEST = 200_000  # items of a collection
MOST_LINES = 100_000  # of a student's file, and characters of a name
#: attributes that NKI has, by the kind of thing; nothing else of what the judge holds can be asked
_TENSOR = frozenset(("shape", "dtype", "ndim", "itemsize", "size", "strides", "offset"))
_GRID = frozenset(
    """
        shape dtype buffer data element_shape tile_shape is_remainder index_step_elements
        is_data_representable
    """.split()
)
_ATTRIBUTES = {
    "Tensor": _TENSOR,
    "BlockTensor": _TENSOR,
    "Indirect": frozenset(("shape", "dtype")),
    "NkiTensor": _TENSOR | {"buffer", "name", "data", "base_tensor"},
    "NkiInstruction": frozenset(("name",)),
    "range": frozenset(("start", "stop", "step")),
    "NkiTileGrid": _GRID,
    "NkiBlockGrid": _GRID | {"block_shape"},
    "Index": frozenset(("shape", "ndim")),
    "Grid": frozenset("pxyz"),
    "finfo": frozenset(("min", "max", "eps", "bits", "tiny")),
}
_OPERATORS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in """
        add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift matmul lt le gt ge eq ne
        getitem setitem iadd isub imul itruediv neg pos invert abs index truth
    """.split()
}
_OPERATORS |= {
    "iter": iter,
    "next": next,
    "len": len,
    "repr": repr,
    "str": str,
    "int": int,
    "float": float,
}


def _enter(context: Any) -> None:
    if not isinstance(context, contextlib.AbstractContextManager):
        raise TypeError("`with` is for nl.no_reorder()")
    context.__enter__()


_UNARY = frozenset(("neg", "pos", "invert", "abs", "index", "truth"))
_UNARY |= {"iter", "next", "len", "repr", "str", "int", "float", "enter", "exit", "array"}
_OPERATORS["array"] = operator.methodcaller("__array__")  # of a tensor, which says that it is none
_OPERATORS |= {"enter": _enter, "exit": lambda context: context.__exit__(None, None, None)}
#: loops of the chip, whose bodies are called as often as its memory says; what a kernel may count
#: so is bounded: this many in a run, as no kernel needs, and far fewer than outputs have elements
_LOOPS, MOST_LOOPS = frozenset(("fori_loop", "while_loop", "dynamic_range")), 2000
#: what outlives a launch: expressions of numbers, which no run has put anything into
_LASTING = frozenset(("Index", "Mask", "Slice"))
OTHERWISE = "the kernel asks for something else when it runs again"
#: errors about how something is written, which Python's own protocols ask for (hasattr, __radd__)
_ASKED = (TypeError, AttributeError, StopIteration)
#: what a kernel may catch an error as
_CAUGHT = (TypeError, AttributeError, IndexError, KeyError, ValueError, RuntimeError, Exception)


class _OperatorName:
    """Stands for a function of NumPy that is no ufunc, such as np.max: an instruction looks up its
    name. It may be any function, np.load too, so the judge never has the function itself."""

    def __init__(self, name: str):
        self.__name__ = self.nki_op = name

    def __call__(self, *_: Any) -> Any:
        raise TypeError(f"a kernel cannot call np.{self.__name__}")


@functools.lru_cache(maxsize=256)  # instructions remember what an operator is
def _numpy_function(name: str) -> Any:
    """Return the ufunc of that name, or what stands for another function of NumPy."""
    function = getattr(np, name, None)
    return function if isinstance(function, np.ufunc) else _OperatorName(name)


class Refused(Exception):
    """The student's process does not keep to the protocol, or is gone; the text says how."""


class Overdue(BaseException):
    """The student's process, or what it has asked for, took too long. Not an Exception: an alarm
    rings anywhere in the simulator, which would take it for an error of the kernel."""


class StudentError(Exception):
    """The kernel raised an error of its own: kind, text and place as its process reports them."""

    def __init__(self, kind: str, text: str, where: tuple[str, int, str] | None):
        super().__init__(text)
        self.kind, self.text, self.where = kind, text, where


class Session:
    """One student's process: `files` are the texts of its files by name, for the lines."""

    def __init__(
        self,
        facade: Facade,
        read: int,
        write: int,
        files: dict[str, str],
        package: str = "neuronxcc.nki",
    ):
        self.package = package  # whose kernels these are: its jit launches them
        self.facade, self._read, self._write = facade, read, write
        self.deadline = time.monotonic() + 60
        self.files = files
        for name, text in files.items():  # tools that quote a line find it here
            nkisim.register_source(name, text)
        self._handles: dict[int, Any] = {}
        self._next = 0
        self._stubs: dict[tuple[str, int, str], Callable[..., Any]] = {}
        self._plays = False  # a program is carried out, and no process is asked
        self._advances = False  # what is asked for is the next index of a loop
        self._called = 0  # of the calls that belong to what is carried out
        self._reordered = 0  # loops that run in another order now, one within another
        self._outside: set[int] = set()  # handles that were made when no kernel ran
        self.begin()

    def begin(self) -> None:
        """Drop the state of the previous run: its tensors are not valid in the next one, even if
        the kernel kept them or made them from the same inputs."""
        self._handles = {
            k: handle
            for k, handle in self._handles.items()
            if k in self._outside or type(handle).__name__ in _LASTING
        }
        self._errors: list[BaseException] = []
        self._over: tuple[Exception, Any] | None = None  # the error that has ended the run
        self._depth = self._loops = 0
        self.program = Program(self._next)
        self._into = self.program.requests  # where requests are recorded
        self._during: Request | Program = self.program  # what the simulator is asked now
        self._bytes_left = MOST_BYTES

    # -- programs ----------------------------------------------------------------------------
    def record(self, job: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the process run a kernel (`job`: what it is told) on tensors of a launch that
        computes nothing; return its result. `program` is what it asks for."""
        self.begin()
        self._plays = False
        self.send([*job, self.encode(args), self.encode(kwargs)])
        self.program.result, result = self._served()
        return result

    def play(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out a recorded program on other tensors, and return the result.

        Where the simulator begins iterations in another order, each is carried out as it was
        recorded. Raises what the simulator raises, and ValueError where that cannot be done.
        """
        self.begin()
        last, self._next = self._next, program.first
        self._plays, self._during, self._called, self._reordered = True, program, 0, 0
        try:
            self.encode(args)
            self.encode(kwargs)
            self._carry_out(program.requests)
            self._called = 0
            return self.decode(program.result)
        finally:
            self._next, self._during = last, program

    def _carry_out(self, requests: list[Request]) -> None:
        self._range(requests, loops_of(requests), 0, len(requests))

    def _range(self, requests: list[Request], loops: Any, begin: int, end: int) -> None:
        place = begin
        while place < end:
            bodies = loops.get(place)
            if bodies is None or any(body.end > end for body in bodies.values()):
                value = self._again(requests[place])
                if type(value) is int and value != requests[place].answer:
                    raise ValueError(
                        "the kernel leaves a loop before its end, or goes through two at once: "
                        "its iterations cannot run in another order"
                    )
                place += 1
            else:
                place = self._loop(requests, loops, place, bodies)

    def _loop(self, requests: list[Request], loops: Any, place: int, bodies: Any) -> int:
        """Carry out a loop; return the place after it."""
        end, reordered = max(body.end for body in bodies.values()), False
        try:
            for expected in bodies:
                index = self._again(requests[place])
                if index != expected and not reordered:
                    reordered = True
                    self._reordered += 1
                if index not in bodies:
                    raise ValueError(OTHERWISE)
                body = bodies[index]
                if not self._reordered:  # what the kernel forgot before it asked for this index
                    self._drop(requests[body.begin].message)
                self._range(requests, loops, body.begin + 1, body.end)
                if self._reordered:
                    for id in body.over:
                        self._handles.pop(id, None)
        finally:
            self._reordered -= reordered
        self._again(requests[end])
        return end + 1

    def _again(self, request: Request) -> Any:
        """Carry out a recorded request; return its answer if that is an index of a loop."""
        message = request.message
        if not self._reordered:
            self._drop(message)
        outer = self._during, self._called
        self._during, self._called, self._next = request, 0, request.first
        try:
            if message[0] == "enter":
                self._inside(message, lambda: self._carry_out(request.requests))
                return None
            value = self._do(message[0], message)
        except _ASKED as error:
            if request.failed:
                return None
            if isinstance(error, StopIteration):
                raise ValueError(OTHERWISE) from None
            raise
        finally:
            self._during, self._called = outer
        if request.failed:
            raise ValueError(OTHERWISE)
        self._next = request.made
        self._encode_answer(message, value)
        return int(value) if type(request.answer) is int else None

    # -- bytes -------------------------------------------------------------------------------
    def send(self, value: Any) -> None:
        """Send a message; raise Refused if the process is gone."""
        data = json.dumps(value).encode()
        view = memoryview(struct.pack("<I", len(data)) + data)
        try:
            while view:
                if not select.select([], [self._write], [], self._left())[1]:
                    raise Overdue
                view = view[os.write(self._write, view) :]
        except OSError:
            raise Refused("the process that ran the kernels has ended") from None

    def _left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Overdue
        return left

    def _bytes(self, size: int) -> bytes:
        parts = []
        while size:
            if not select.select([self._read], [], [], self._left())[0]:
                raise Overdue
            part = os.read(self._read, min(size, 1 << 20))
            if not part:
                raise Refused("the process that ran the kernels has ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def take(self) -> Any:
        """Return the next message; raise Refused if it is malformed, Overdue if none arrives."""
        (size,) = struct.unpack("<I", self._bytes(4))
        if size > LARGEST:
            raise Refused(f"a message of {size} bytes; {LARGEST} are allowed")
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise Refused(f"a kernel that asks for more than {MOST_BYTES} bytes of instructions")
        try:
            return json.loads(self._bytes(size))
        except (ValueError, RecursionError):
            raise Refused("a message that is no JSON") from None

    # -- values ------------------------------------------------------------------------------
    def encode(self, value: Any) -> Any:
        """Return a value as the student's process may see it: numbers, names, handles."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if isinstance(value, enum.Enum):
            path = self.facade.paths.get(id(value))
            return ["C", path] if path else int(value.value)
        if isinstance(value, str):
            return str(value)  # a data type of `import nki`
        if kind is tuple or kind is list:
            return ["T" if kind is tuple else "L", [self.encode(v) for v in value]]
        if kind is dict:
            return ["M", [[self.encode(k), self.encode(v)] for k, v in value.items()]]
        if kind is slice:
            return ["S", [self.encode(v) for v in (value.start, value.stop, value.step)]]
        if isinstance(value, np.dtype):
            return ["D", value.name]
        if isinstance(value, type) and issubclass(value, np.generic):
            return ["G", np.dtype(value).name]
        if kind.__name__ == "int":  # a loop's index, which goes by that name
            return int(value)
        if id(value) in self.facade.paths:
            return ["C", self.facade.paths[id(value)]]
        self._handles[self._next] = value
        entry: list[Any] = ["H", self._next, kind.__name__]
        self._next += 1
        if len(self._handles) > 2_000_000:
            raise Refused("more than two million tensors and indices at a time")
        if kind.__name__ in ("Tensor", "BlockTensor"):
            entry[2] = "Tensor"
            entry += [[int(n) for n in value.shape], value.dtype.name]
        elif kind.__name__ == "NkiTensor":
            entry += [[int(n) for n in value.shape]]
        return entry

    def decode(self, value: Any, depth: int = 0) -> Any:
        """Return what the student's process has sent; raise Refused for what cannot be meant."""
        kind = type(value)
        if value is None or kind in (bool, float):
            return value
        if kind is int:
            if value.bit_length() > 64:
                raise ValueError("an integer of more than 64 bits")
            return value
        if kind is str:
            if len(value) > MOST_LINES:
                raise ValueError("a text of more than 100,000 characters")
            return value
        if kind is not list or not value or depth > DEEPEST:
            raise Refused("a value that is no value")
        try:
            return self._tagged(value, depth + 1)
        except (LookupError, TypeError, AttributeError) as error:
            raise Refused(f"a value that is no value ({type(error).__name__})") from None

    def _tagged(self, tagged: list[Any], depth: int) -> Any:
        tag = tagged[0]
        if tag == "H":
            if type(tagged[1]) is not int or tagged[1] not in self._handles:
                if self._reordered:
                    raise ValueError(
                        "an iteration uses a tile that the one before it made, so that they cannot "
                        "run in another order: make one tile before the loop, and write into it"
                    )
                raise Refused(
                    "a tensor of another run, or of none: what a kernel keeps from one "
                    "launch is gone in the next"
                )
            held = self._handles[tagged[1]]
            if isinstance(held, Iterator) and not self._advances:
                raise Refused("a loop that has begun is no operand: it would go on unseen")
            return held
        if tag == "C":
            return self.facade.objects[tagged[1]]
        if tag in ("T", "L", "S", "M") and len(tagged[1]) > LONGEST:
            raise ValueError(f"a collection of more than {LONGEST} items")
        if tag == "T":
            return tuple(self.decode(v, depth) for v in tagged[1])
        if tag == "L":
            return [self.decode(v, depth) for v in tagged[1]]
        if tag == "S":
            return slice(*(self.decode(v, depth) for v in tagged[1][:3]))
        if tag == "M":
            return {self.decode(k, depth): self.decode(v, depth) for k, v in tagged[1]}
        if tag == "E":
            return Ellipsis
        if tag in ("D", "G"):
            return self._dtype(tagged[1]) if tag == "D" else self._dtype(tagged[1]).type
        if tag == "U":
            return _numpy_function(str(tagged[1]))
        if tag == "A":
            return self._array(*tagged[1:5])
        if tag == "F":
            number, names = int(tagged[1]), tagged[2]
            if names == [*BY_NAME]:
                return lambda idx, pdim_size, fdim_size: self._call_back(
                    number, (idx, pdim_size, fdim_size), BY_NAME
                )
            return lambda *args: self._call_back(number, args)
        raise Refused("a value that is no value")

    @staticmethod
    def _dtype(name: Any) -> np.dtype:
        if name == "void32":
            return np.dtype("V4")
        try:
            dtype = dtype_of(str(name))
        except SpecError:
            raise ValueError("an unknown dtype") from None
        if dtype.hasobject:
            raise Refused("an array of Python objects")
        return dtype

    def _array(self, name: Any, shape: Any, scalar: Any, data: Any) -> Any:
        """Return an array of the kernel's own numbers (nl.shared_constant)."""
        dtype = self._dtype(name)
        if len(shape) > 32 or not all(type(n) is int and 0 <= n <= LARGEST for n in shape):
            raise Refused("an array of no shape")
        array = np.frombuffer(base64.b64decode(data), dtype)
        array = array.reshape(tuple(shape)).copy()
        return array[()] if scalar else array

    # -- requests ----------------------------------------------------------------------------
    def _call_back(self, number: int, args: tuple[Any, ...], names: Sequence[str] = ()) -> Any:
        """Call a function of the student's, such as one that chooses addresses; `names`: of the
        arguments, if they are given by name."""
        if self._plays:
            call = self._next_call()
            self._next = call.first
            self.encode(tuple(args))
            self._carry_out(call.requests)
        else:
            call = Call(self._next)
            self._during.calls.append(call)
            into, self._into = self._into, call.requests
            self.send(["callback", [number, self.encode(tuple(args)), [*names]]])
            while (message := self._message(self.take()))[0] not in ("result", "wrong"):
                self._answer(message)  # it asks something itself
            self._into = into
            if message[0] == "result":
                call.result = message[1]
            else:
                call.wrong = str(message[1])[:200]
        if call.wrong is not None:
            raise ValueError(call.wrong)
        return self.decode(call.result)

    def _next_call(self) -> Call:
        if self._called >= len(self._during.calls):
            raise ValueError(OTHERWISE)
        self._called += 1
        return self._during.calls[self._called - 1]

    @staticmethod
    def _message(message: Any) -> list[Any]:
        if not isinstance(message, list) or len(message) < 2 or not isinstance(message[0], str):
            raise Refused("a message that is no request")
        return message

    def serve(self) -> Any:
        """Carry out requests until the student's process is done; return what it says then.

        Raises what the simulator raised if the kernel let it pass, StudentError for an error of
        the kernel's own, Refused and Overdue. No kernel runs meanwhile.
        """
        first = self._next
        try:
            return self._served()[1]
        finally:
            self._outside.update(range(first, self._next))

    def _served(self) -> tuple[Any, Any]:
        """Return what the student's process says when it is done, as it is said and decoded."""
        while True:
            message = self._message(self.take())
            if message[0] == "done":
                self._drop(message)
                if self._over is not None:
                    error, where = self._over
                    if type(error).__name__ == "NeedsValues":  # no error: it runs again
                        raise error
                    raise StudentError(
                        "RuntimeError",
                        "the kernel caught this error and went on; "
                        f"it ends at its first one: {error}",
                        self._place(where),
                    )
                if len(message) < 4:
                    raise Refused("a message that is no request")
                return message[3], self.decode(message[3])
            if message[0] == "raised":
                self._raise(message)
            self._answer(message)

    def _drop(self, message: list[Any]) -> None:
        for id in message[2] if len(message) > 2 and isinstance(message[2], list) else ():
            if isinstance(id, int):
                self._handles.pop(id, None)

    def _raise(self, message: list[Any]) -> None:
        _, _, _, kind, text, where, number = (message + [None] * 7)[:7]
        if self._over is not None:
            raise self._over[0]
        if type(number) is int and 0 <= number < len(self._errors):
            error = self._errors[number]
            if type(error) is AttributeError:  # a name that there is not: it knows no line
                raise StudentError("AttributeError", str(error)[:2000], self._place(where))
            raise error
        raise StudentError(str(kind)[:80], str(text)[:2000], self._place(where))

    def _answer(self, message: list[Any]) -> None:
        """Carry out one request and answer it. Nothing of it is kept afterwards."""
        self._drop(message)
        kind = message[0]
        if self._over is not None:
            self.send(["error", self._error(self._over[0])])
            return
        request = self._keep(message)
        outer, self._during = self._during, request
        try:
            result = None
            if kind == "enter":
                self._nested(request)
            else:
                result = self._do(kind, message)
            request.made = self._next
            value = ["value", self._encode_answer(message, result)]
            if request.advances is not None:
                request.answer = value[1]
        except (Refused, Overdue):
            raise
        except Exception as error:
            request.failed = True
            # Of a kernel that runs with values, what goes wrong may depend on them ("index 57 is
            # out of bounds"): one that could ask for it without limit could read them.
            if not isinstance(error, _ASKED):
                self._over = error.with_traceback(None), message[1]
            value = ["error", self._error(error)]
        self._during = outer
        self.send(value)

    def _encode_answer(self, message: list[Any], value: Any) -> Any:
        """Return an answer as the process may see it. `acc += t` gives the tensor itself, not
        another: each iteration of a loop adds to it, in whatever order they run."""
        match message:
            case ["operator", _, _, str(name), [["H", int(id), *_], *_]]:
                if name in IN_PLACE and self._handles.get(id) is value:
                    return ["I"]
        return self.encode(value)

    def _keep(self, message: list[Any]) -> Request:
        """Record a request."""
        dropped = message[2] if len(message) > 2 and isinstance(message[2], list) else []
        request = Request(message, self._next)
        request.message[2:3] = [[id for id in dropped if type(id) is int]]
        self._into.append(request)
        return request

    def _error(self, error: Exception) -> list[Any]:
        if isinstance(error, StopIteration):
            return ["StopIteration", "", -1, "StopIteration"]
        if len(self._errors) < 1000:  # a loop that swallows errors does not fill memory
            self._errors.append(error.with_traceback(None))
        name = type(error).__name__
        base = next(kind.__name__ for kind in _CAUGHT if isinstance(error, kind))
        name = name if name.isidentifier() else "Error"
        return [name, str(error)[:2000], len(self._errors) - 1, base]

    def _nested(self, request: Request) -> None:
        """Run a kernel that is called by a kernel: serve until it returns."""

        def inner() -> None:
            self.send(["value", None])
            while True:
                message = self._message(self.take())
                if message[0] == "leave":
                    self._drop(message)
                    return
                if message[0] in ("done", "raised"):
                    raise Refused("a kernel that ends inside of another")
                self._answer(message)

        into, self._into = self._into, request.requests
        try:
            self._inside(request.message, inner)
        finally:
            self._into = into

    def _inside(self, message: list[Any], kernel: Callable[[], None]) -> None:
        """Call a kernel from a kernel, as the message "enter" says: over a grid, or none."""
        if self._depth >= DEEPEST:
            raise Refused(f"kernels call kernels more than {DEEPEST} deep")
        self._depth += 1
        try:
            called = importlib.import_module(self.package).jit(kernel)
            grid = self.decode(message[3]) if len(message) > 3 else None
            self.at(message[1], called if grid is None else called[grid])
        finally:
            self._depth -= 1

    def _place(self, where: Any) -> tuple[str, int, str] | None:
        """Return (file, line, function) if it is one of the student's, else None."""
        if not isinstance(where, list) or len(where) != 3 or where[0] not in self.files:
            return None
        name = str(where[2])[:80]
        line = where[1] if type(where[1]) is int and 0 < where[1] < MOST_LINES else 1
        return where[0], line, name if name.strip("<>").isidentifier() else "kernel"

    def _stub(self, where: Any) -> Callable[..., Any]:
        """Return a function that calls another one, standing at a line of the student's file."""
        place = self._place(where) or (next(iter(self.files), "kernels.py"), 1, "kernel")
        stub = self._stubs.get(place)
        if stub is None:
            file, line, name = place
            code = "\n" * (line - 1) + "def stub(f, args, kw): return f(*args, **kw)\n"
            scope: dict[str, Any] = {}
            exec(compile(code, file, "exec"), scope)  # no word of it is the student's
            stub = scope["stub"]
            stub.__code__ = stub.__code__.replace(co_name=name)
            if len(self._stubs) < 20_000:
                self._stubs[place] = stub
        return stub

    def standing_at(self, where: Any, code: CodeType) -> CodeType:
        """Return the code of one line as if it were at a line of the student's."""
        if place := self._place(where):
            file, line, name = place
            return code.replace(co_filename=file, co_firstlineno=line, co_name=name)
        return code

    def at(self, where: Any, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function as if from a line of the student's."""
        return self._stub(where)(function, args, {})

    def _do(self, what: str, message: list[Any]) -> Any:
        stub = self._stub(message[1])
        given = message[3:]
        self._advances = what == "operator" and given[:1] in (["next"], ["iter"])
        if what == "call" and len(given) == 3:
            function = self.facade.objects.get(given[0]) if isinstance(given[0], str) else None
            if function is None:
                raise Refused("a call of what is no function of NKI")
            return self._run(stub, function, given[1], given[2])
        if what == "operator" and len(given) == 2 and given[0] in _OPERATORS:
            args = [self.decode(item) for item in given[1]] if isinstance(given[1], list) else []
            if len(args) != (1 if given[0] in _UNARY else 3 if given[0] == "setitem" else 2):
                raise Refused(f"the operator {given[0]} with {len(args)} operands")
            if (
                any(type(item).__name__ == "VirtualRegister" for item in args)
                and given[0] != "getitem"
            ):
                raise TypeError("a register has no value before the kernel runs")
            if not any(isinstance(item, list) and item[:1] in (["H"], ["C"]) for item in given[1]):
                raise Refused("an operator without a tensor or an index")
            if given[0] in ("repr", "str"):
                return _OPERATORS[given[0]](args[0])[:500]
            return stub(_OPERATORS[given[0]], args, {})
        if what == "get" and len(given) == 2:
            return self._get(self.decode(given[0]), given[1], stub)
        if what == "method" and len(given) == 4:
            return self._method(stub, *given)
        if what == "name" and len(given) == 2 and all(type(item) is str for item in given):
            return self.facade.find(*given)
        if what == "module" and len(given) == 1 and type(given[0]) is str:
            return self.facade.no_module(given[0])
        raise Refused("not a request")

    def _run(self, stub: Callable[..., Any], function: Any, args: Any, kw: Any) -> Any:
        positional, named = self.decode(args), self.decode(kw)
        if (
            type(positional) is not tuple
            or type(named) is not dict
            or not all(type(k) is str for k in named)
        ):
            raise Refused("arguments that are none")
        name = getattr(function, "__name__", "")
        if name == "scalar":  # with all numbers, NumPy could do the kernel's work
            raise TypeError("nt.scalar makes a number of a tile, and kernels see none here")
        if name in _LOOPS and not all(
            type(argument) is int
            for argument in (*positional, *named.values())
            if not callable(argument)
        ):
            self._loops += 1
            if self._loops > MOST_LOOPS:
                raise ValueError(
                    f"more than {MOST_LOOPS:,} loops in a run whose bounds are "
                    "computed on the chip; the grader stops here, because their "
                    "lengths reveal what is in its memory"
                )
        return stub(function, positional, named)

    def _get(self, obj: Any, name: Any, stub: Callable[..., Any]) -> Any:
        """Return an attribute that NKI has: a plain value, or the note that it is a function."""
        if not isinstance(name, str) or name.startswith("_"):
            raise Refused("an attribute that NKI does not have")
        kind = type(obj).__name__
        constant = id(obj) in self.facade.paths
        getter = getattr(getattr(type(obj), name, None), "fget", None)
        if (
            not constant
            and name not in _ATTRIBUTES.get(kind, ())
            and name in dir(obj)
            and getattr(getter, "__name__", "") != "missing"  # which says what to write instead
        ):
            raise AttributeError(f"{kind} has no attribute {name!r}")  # for a kernel
        value = stub(getattr, (obj, name), {})
        if constant and callable(value) and not isinstance(value, type):
            return "(a function)"
        if isinstance(value, np.generic):
            return value.item()
        plain = value is None or isinstance(
            value, (bool, int, float, str, tuple, enum.Enum, np.dtype)
        )
        if (
            plain
            or kind == "Grid"
            or name in ("data", "base_tensor")
            or id(value) in self.facade.paths
            or isinstance(value, type)
            and issubclass(value, np.generic)
        ):
            return value
        raise AttributeError(f"{kind} has no attribute {name!r}")

    def _method(self, stub: Callable[..., Any], target: Any, name: Any, args: Any, kw: Any) -> Any:
        obj = self.decode(target)
        if name == "" and id(obj) in self.facade.paths:  # nl.par_dim(128)
            return self._run(stub, obj, args, kw)
        tensor = name in METHODS.get(type(obj).__name__, ())
        constant = (
            id(obj) in self.facade.paths
            and isinstance(name, str)
            and not name.startswith("_")
            and type(obj).__module__.startswith("nkisim.language.")
        )
        if not (tensor or constant):
            raise Refused("a method that NKI does not have")
        return self._run(stub, getattr(obj, name), args, kw)
