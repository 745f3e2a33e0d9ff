"""A request to evaluate a kernel, as a program sends it: a dict in, a dict out, both plain JSON.

The same requests go to `nkisim evaluate`, `nkisim serve`, the MCP server and the environment;
docs/evaluate.md says what a request and an answer hold.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from nkisim import __version__
from nkisim.checks.finding import Finding
from nkisim.cli.document import document
from nkisim.cli.kernel_arguments import value_of
from nkisim.cli.words import CannotRun
from nkisim.errors import NkiError, trim
from nkisim.errors.lines import register_source
from nkisim.evaluation.evaluate import error_dict, evaluate, no_rule, setting
from nkisim.evaluation.ladder import Ladder
from nkisim.finder import install
from nkisim.lint.level import VERSION_VARIABLE, release
from nkisim.tuning.sweep import ENDS, refusal, silence
from nkisim.workers import Lost, limited

#: key -> what it may be; others are a mistake that is said
KEYS = {
    "id": object,
    "kernel": str,
    "source": str,
    "args": list,
    "kwargs": dict,
    "set": dict,
    "reference": str,
    "reference_source": str,
    "target": str,
    "release": str,
    "seeds": list,
    "details": bool,
    "fixes": bool,
    "seconds": (int, float),
}
MODULES = 64  # that are kept loaded


class BadRequest(CannotRun):
    """A request that makes no sense; the message is a sentence for whoever sent it."""


#: takes a request, and is a context that yields (its kernel, what a compiler refuses in its source
#: where that cannot be read from the kernel); raises what loading the file raises
Loader = Callable[[Mapping[str, Any]], AbstractContextManager[tuple[Any, list[Finding]]]]


def envelope(request: Mapping[str, Any], exit_code: int, **fields: Any) -> dict[str, Any]:
    """Return the fields that every answer begins with, and then its own."""
    asked = {"id": request["id"]} if "id" in request else {}
    return document("evaluate", exit_code, fields.pop("error", None), **asked, **fields)


def loader_of(name: str) -> Loader:
    """Return the loader called "MODULE:FUNCTION"; raises BadRequest if there is none."""
    module, _, function = name.partition(":")
    try:
        loader: Loader = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadRequest(f"--loader {name}: {error}") from None
    return loader


def answer(request: Mapping[str, Any], loader: Loader | None = None) -> dict[str, Any]:
    """Evaluate what a request asks for; return the answer. Nothing is raised for what the request
    or its kernel does wrong. `loader`: see Loader."""
    try:
        check(request)
        with setting(VERSION_VARIABLE, request.get("release")), ExitStack() as stack:
            release()  # is there such a one?
            return _answer(request, loader or _loaded, stack)
    except CannotRun as problem:
        return failed(request, str(problem))
    except NkiError as error:  # of a target, a release: the request's
        return envelope(request, 2, verdict="not_run", right=None, error=error_dict(error))


def failed(request: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the answer to a request that could not be done."""
    error = no_rule("command", text)
    return envelope(request, 2, verdict="not_run", right=None, error=error)


def lost(request: Mapping[str, Any], what: Lost) -> dict[str, Any]:
    """Return the answer to a request whose process has no answer: the kernel looped or died."""
    ladder = Ladder()
    ladder.set("parses", True)
    ladder.set("runs", False, what.text)
    error = no_rule(what.why, what.text)
    return envelope(
        request, 1, kernel=_name(request), verdict=ladder.verdict, right=False,
        ladder=ladder.to_list(), error=error, findings=[], time=None,
    )  # fmt: skip


def check(request: Mapping[str, Any]) -> None:
    """Raise BadRequest for a request that makes no sense."""
    if not isinstance(request, Mapping):
        raise BadRequest(f"a request is an object, not {type(request).__name__}")
    for key, value in request.items():
        if key not in KEYS:
            raise BadRequest(f"a request has no {key!r}; it may have {', '.join(KEYS)}")
        if not isinstance(value, KEYS[key]):  # type: ignore[arg-type]
            raise BadRequest(f"{key} is {type(value).__name__}, which it may not be")
    if ":" not in request.get("kernel", "") and "source" not in request:
        raise BadRequest('give "kernel": "FILE:KERNEL", or "source" and "kernel": "NAME"')


def key_of(request: Mapping[str, Any]) -> str:
    """Return what tells requests apart whose answers may differ: they, and the files they name.

    Of the folders of these files, names, times and sizes count: kernels import their neighbours.
    """
    digest = hashlib.sha256(__version__.encode())
    digest.update(
        json.dumps({k: v for k, v in request.items() if k != "id"}, sort_keys=True).encode()
    )
    for word in ("kernel", "reference"):
        file = request.get(word, "").rpartition(":")[0]
        if not file:
            continue
        try:
            with open(file, "rb") as text:
                digest.update(text.read())
            with os.scandir(os.path.dirname(os.path.abspath(file))) as entries:
                for f in sorted(
                    (f for f in entries if f.name.endswith(".py")), key=lambda f: f.name
                ):
                    about = f.stat()
                    digest.update(f"{f.name} {about.st_mtime_ns} {about.st_size}".encode())
        except OSError as error:
            digest.update(str(error).encode())
    return digest.hexdigest()


def _answer(request: Mapping[str, Any], loader: Loader, stack: ExitStack) -> dict[str, Any]:
    seconds = request.get("seconds")
    args = tuple(_value(a) for a in request.get("args", ()))
    kwargs = {n: _value(a) for n, a in request.get("kwargs", {}).items()}
    reference = _reference(request)
    try:
        with limited(seconds), silence():
            kernel, refused = stack.enter_context(loader(request))
    except BadRequest:
        raise
    except ENDS as error:
        return _broken(request, error)
    try:
        evaluation = evaluate(
            kernel, *args, reference=reference, target=request.get("target"),
            release=request.get("release"), seeds=request.get("seeds", (1,)),
            limits={"seconds": seconds} if seconds else None,
            fixes=request.get("fixes", True), **kwargs,
        )  # fmt: skip
    except NkiError:
        raise
    except Exception as error:
        raise BadRequest(f"the reference fails: {refusal(error)[0]}") from None
    evaluation.refuse(refused)
    facts = evaluation.to_dict(request.get("details", True))
    return {**envelope(request, 1 if evaluation.right is False else 0), **facts}


@contextmanager
def _loaded(request: Mapping[str, Any]) -> Iterator[tuple[Any, list[Finding]]]:
    """Yield the kernel that a request names; its source is read when it is launched."""
    kernel = _load(request, "kernel", "source")
    constants = getattr(getattr(kernel, "func", kernel), "__globals__", {})
    for name, value in request.get("set", {}).items():
        if name not in constants:
            raise BadRequest(f"set: the file defines no {name}")
        constants[name] = value
    yield kernel, []


def _broken(request: Mapping[str, Any], error: BaseException) -> dict[str, Any]:
    """Return the answer for a file that cannot be loaded: no Python, or it fails."""
    ladder = Ladder()
    if isinstance(error, SyntaxError):
        ladder.set("parses", False, str(error))
    else:
        ladder.set("parses", True)
        ladder.broken(error)
    trim(error)
    return envelope(
        request, 1, kernel=_name(request), verdict=ladder.verdict, right=False,
        ladder=ladder.to_list(), error=error_dict(getattr(error, "nki_error", error)),
        findings=[], time=None,
    )  # fmt: skip


def _name(request: Mapping[str, Any]) -> str:
    return str(request.get("kernel", "")).rpartition(":")[2]


def _value(value: Any) -> Any:
    """Return an argument: "128x512:float32" is an array of random values, "x.npy" its array."""
    if not isinstance(value, str):
        return value
    if value.endswith(".npy") and os.path.isfile(value):
        return np.load(value, allow_pickle=False)
    return value_of(value, "args:")


def _reference(request: Mapping[str, Any]) -> Callable[..., Any] | None:
    if "reference" not in request:
        return None
    try:
        return _load(request, "reference", "reference_source")
    except BadRequest:
        raise
    except ENDS as error:
        raise BadRequest(f"the reference cannot be loaded: {refusal(error)[0]}") from None


_modules: OrderedDict[tuple[str, str], types.ModuleType] = OrderedDict()


def _load(request: Mapping[str, Any], what: str, source: str) -> Any:
    """Return the function that a request names; raises BadRequest, and what its file raises."""
    file, _, name = request.get(what, "").rpartition(":")
    if source in request:
        file = file or f"<{source} {hashlib.sha256(request[source].encode()).hexdigest()[:12]}>"
        text = request[source]
    else:
        try:
            with open(file, encoding="utf-8") as opened:
                text = opened.read()
        except (OSError, UnicodeDecodeError) as error:
            raise BadRequest(f"{what}: {file} cannot be read: {error}") from None
        file = os.path.abspath(file)
    module = _module(file, text, bool(request.get("set")))
    function = getattr(module, name, None)
    if not callable(function):
        callables = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise BadRequest(f"{what}: there is no function {name!r}; there are {', '.join(callables)}")
    return function


def _module(file: str, text: str, anew: bool) -> types.ModuleType:
    """Return a file's module; the last ones are kept, by their text, unless it is wanted `anew`."""
    key = file, text
    register_source(file, text)  # other texts may have been loaded under the name since
    if key in _modules and not anew:
        _modules.move_to_end(key)
        return _modules[key]
    install()
    folder = os.path.dirname(file)
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)  # its own imports, as if it was run
    module = types.ModuleType(f"candidate_{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}")
    module.__file__ = file
    code = compile(text, file, "exec", dont_inherit=True)
    sys.modules[module.__name__] = module
    exec(code, module.__dict__)
    if not anew:
        _modules[key] = module
    while len(_modules) > MODULES:
        _, old = _modules.popitem(last=False)
        sys.modules.pop(old.__name__, None)
    return module
