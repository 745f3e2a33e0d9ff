"""A kernel of a stranger's process as one of this process: recorded first, carried out afterwards.

The judge, `labkit evaluate` and `labkit serve` launch kernels so. No value is computed before the
kernel's process has said that it is done, so that no answer and no clock tells it one.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import nkisim

from .program import Program
from .rpc_server import Session


class Recording:
    """What a kernel asks for in one launch, in each instance of its grid.

    `job`: what its process is told to run it. `answer`: what that says of the kernel. `named`: its
    name and arguments, as `function_of` takes them. `anew`: gives the session of a process that
    has run nothing; a kernel that needs values is run again in that, as it may have kept something
    of its first run.
    """

    def __init__(
        self,
        session: Session,
        job: list[Any],
        answer: Any,
        named: tuple[Any, ...],
        anew: Callable[[], Session],
    ):
        self.session, self.job, self.anew = session, job, anew
        self.programs: list[Program] = []  # of each instance
        self.wrong: Exception | None = None  # what has ended the last one of them
        self.played, self.asks_id = 0, False
        name, inputs, keywords = named
        self.recorder, self.player = (
            configured(session, function_of(name, inputs, keywords, run), answer)
            for run in (self._record, self._play)
        )
        self.grid: tuple[int, ...] = ()
        self.language = importlib.import_module(f"{session.package}.language")

    def record(self, args: tuple[Any, ...], kwargs: dict[str, Any], target: str | None) -> Any:
        """Let the process run the kernel, without values if it can do without; return a kernel
        that carries out what came of it. Raises what the kernel and its launch raise."""
        try:
            nkisim.record(self.recorder, *args, target=target, **kwargs)
        finally:
            self.grid = self.player.launched().grid
            self.asks_id = any(program.asks_id for program in self.programs)
        return self.player

    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.wrong is not None:  # it needs values, and is launched again with them
            self.programs.clear()
            self.wrong, self.session = None, self.anew()
        try:
            return self.session.record(self.job, args, kwargs)
        except Exception as error:
            self.wrong = error
            raise
        finally:
            self.programs.append(self.session.program)

    def _play(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        at, self.played = self.played % len(self.programs), self.played + 1
        if self.asks_id:  # whoever asks depends on it
            ids = [self.language.program_id(axis) for axis in range(len(self.grid))]
            at = int(np.ravel_multi_index(ids, self.grid))
        wrong = self.wrong if at + 1 == len(self.programs) else None
        try:
            result = self.session.play(self.programs[at], args, kwargs)
        except Exception as error:
            if wrong is None or str(error) not in str(wrong):  # an earlier one, of values
                raise
        if wrong is not None:
            raise wrong
        return result


def configured(session: Session, kernel: Any, answer: Any) -> Any:
    """Return a function as a kernel with the options, grid, schedule, mutable parameters and
    signature that a student's process says its kernel has."""
    complete = isinstance(answer, list) and len(answer) == 5 and isinstance(answer[0], list)
    options, grid, schedule, mutable, defined = answer if complete else ([], None, None, None, None)
    with contextlib.suppress(Exception):  # it can say anything
        where, parameters = defined
        kernel.__signature__ = _signature(parameters)
        kernel.__code__ = session.standing_at(where, kernel.__code__)
    names = list(inspect.signature(kernel).parameters)
    for place, name in enumerate(names) if isinstance(mutable, list) else ():
        if place in mutable or name in mutable:
            kernel.__annotations__[name] = "mutable_tensor"
    kernel.nki_options = tuple(o for o in options if isinstance(o, str))
    launched = importlib.import_module(session.package).jit(kernel)
    if grid is not None:
        launched = launched[grid]
    if isinstance(schedule, list) and len(schedule) == 2:
        launched = session.at(schedule[1], launched.with_schedule, schedule[0])
    return launched


_KINDS = (
    *(inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD),
    *(inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY),
    inspect.Parameter.VAR_KEYWORD,
)


def _signature(parameters: Any) -> inspect.Signature:
    """Return a signature of parameters given as (name, kind, [default] or []).

    They come from a student's process, so they can be anything. Raises an Exception, of any kind,
    if they make no signature.
    """
    if any(len(name) > 80 for name, _, _ in parameters):  # reports show the names
        raise ValueError("a parameter's name is too long")
    return inspect.Signature(
        [
            inspect.Parameter(name, _KINDS[kind], default=(*default, inspect.Parameter.empty)[0])
            for name, kind, default in parameters
        ]
    )


def function_of(name: str, inputs: int, keywords: list[str], run: Callable[..., Any]) -> Any:
    """Return a function of so many inputs and these keywords that calls run(args, kwargs).

    Names are those of the lab's cases, no word of it is the student's.
    """
    first = "".join(f"input{i}, " for i in range(inputs))
    named = ", ".join(f"{k}={k}" for k in keywords)
    scope: dict[str, Any] = {"run": run}
    parameters = f"{first}{', '.join(keywords)}"
    exec(f"def kernel({parameters}): return run(({first}), dict({named}))\n", scope)
    scope["kernel"].__name__ = scope["kernel"].__qualname__ = name
    return scope["kernel"]
