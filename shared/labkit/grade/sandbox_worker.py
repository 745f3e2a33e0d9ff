"""The process of a stranger's kernels: `python -I -S sandbox_worker.py FOLDER READ WRITE LIMITS`.

It stands alone: Python, NumPy, and this file. There is no simulator here, no reference, no inputs.
`neuronxcc.nki` (and `nki`) are stand-ins whose every call, subscript and operator is a request over
a pipe to the judge, where the simulator runs. A kernel here can therefore do what a kernel can do
on a chip, say which instructions run on which tiles, and nothing else: there are no values to
compute with, no clock to turn back, no result to write. Whatever a submission does to this process
it does to itself.
"""

# mypy: ignore-errors
# (stand-ins are made at run time: their types say nothing)
from __future__ import annotations

import base64
import builtins
import ctypes
import difflib
import enum
import functools
import json
import os
import re
import struct
import sys
import types

LARGEST = 64 << 20  # bytes of a message
#: parameters of functions that choose addresses, which the simulator gives by name if all are there
BY_NAME = ("idx", "pdim_size", "fdim_size")


ITSELF = object()  # an answer: the first operand


class Remote(Exception):
    """An error that the judge answered with; `number` is what it calls it."""

    number = -1


class Pipe:
    """Messages: four bytes of length, then JSON."""

    def __init__(self, read, write):
        self.read, self.write = read, write

    def send(self, value):
        data = json.dumps(value).encode()
        data = struct.pack("<I", len(data)) + data
        while data:
            data = data[os.write(self.write, data) :]

    def take(self):
        (size,) = struct.unpack("<I", self._bytes(4))
        return json.loads(self._bytes(size))

    def _bytes(self, size):
        parts = []
        while size:
            part = os.read(self.read, min(size, 1 << 20))
            if not part:
                os._exit(0)  # the judge has gone
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class State:
    """What this process knows: the pipe, the names of the facade, what it may forget."""

    pipe = None
    folder = ""
    constants = {}  # path -> what stands for it here
    kinds = {}  # name -> class of handles
    classes = {}  # class of the facade -> its path, the kinds that are instances of it
    sources = {}  # modules of the simulator that need nothing of it
    loops = {}  # by code and place, which stay alive here: what the body of a `for` changes
    dropped = []  # handles without a reference
    callbacks = []  # functions that the judge may call (ncc.sbuf.alloc)
    depth = 0  # of kernels in kernels


def dtype_of(name):
    """Return the NumPy dtype of a name; bfloat16 and its like come from ml_dtypes."""
    import numpy as np

    if name == "void32":
        return np.dtype("V4")
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def encode(value):
    """Return a value as JSON for the pipe; types that JSON lacks become tagged lists."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if isinstance(value, Handle):
        return ["H", value._nki_id]
    path = getattr(value, "_nki_path", None)
    if path is not None:
        return ["C", path]
    if kind in (tuple, list) or isinstance(value, tuple):
        return ["T" if isinstance(value, tuple) else "L", [encode(v) for v in value]]
    if kind is dict:
        return ["M", [[encode(k), encode(v)] for k, v in value.items()]]
    if kind is slice:
        return ["S", [encode(value.start), encode(value.stop), encode(value.step)]]
    if value is Ellipsis:
        return ["E"]
    if kind is range:
        return ["L", list(value)]
    if "numpy" in sys.modules:
        import numpy as np

        if isinstance(value, np.dtype):
            return ["D", value.name]
        if isinstance(value, type) and issubclass(value, np.generic):
            return ["G", np.dtype(value).name]
        name = getattr(value, "__name__", "")
        if isinstance(value, np.ufunc) or name and getattr(np, name, None) is value:
            return ["U", name]  # np.add, np.max: an operator by its name
        if isinstance(value, (np.ndarray, np.generic)):
            a = np.ascontiguousarray(value)
            return [
                "A",
                a.dtype.name,
                list(np.shape(value)),
                isinstance(value, np.generic),
                base64.b64encode(a.tobytes()).decode(),
            ]
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Kernel):
        value = value.func
    if callable(value):
        State.callbacks.append(value)
        names = [] if isinstance(value, type) else parameters(value)
        return ["F", len(State.callbacks) - 1, [name for name in names if name in BY_NAME]]
    raise TypeError(f"{kind.__name__} cannot be given to an instruction")


def decode(value):
    """Return what the judge has sent."""
    if type(value) is not list:
        return value
    tag = value[0]
    if tag == "T":
        return tuple(decode(v) for v in value[1])
    if tag == "L":
        return [decode(v) for v in value[1]]
    if tag == "M":
        return {decode(k): decode(v) for k, v in value[1]}
    if tag == "H":
        return kind_of(value[2])._nki_made(*value[1:2], *value[3:])
    if tag == "S":
        return slice(*map(decode, value[1]))
    if tag == "I":
        return ITSELF
    if tag == "C":
        return State.constants[value[1]]
    if tag == "D":
        return dtype_of(value[1])
    if tag == "G":
        return dtype_of(value[1]).type
    raise ValueError(tag)


def place():
    """Return [file, line, function] of the student's code that is being executed."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(State.folder):
            return [name[len(State.folder) :], frame.f_lineno, frame.f_code.co_name]
        frame = frame.f_back
    return None


def ask(what, *args):
    """Send a request and return the answer; calls of ours in between are answered."""
    dropped, State.dropped = State.dropped, []
    State.pipe.send([what, place(), dropped, *args])
    return answer()


def answer():
    """Return the judge's next answer, or raise the error that it is."""
    while True:
        kind, value = State.pipe.take()
        if kind == "value":
            return decode(value)
        if kind == "callback":
            number, args, names = value
            try:
                called, given = State.callbacks[number], decode(args)
                result = called(**dict(zip(names, given))) if names else called(*given)
                State.pipe.send(["result", encode(result)])
            except Exception as error:
                State.pipe.send(["wrong", str(error)])
            continue
        name, text, number, base = value
        if name == "StopIteration":
            raise StopIteration
        base = getattr(builtins, base)
        error = type(name, (Remote,) if base is Exception else (base, Remote), {})(text)
        error.number = number
        raise error


class Handle:
    """Stands for a thing that the judge holds: a tensor, an index expression, a loop."""

    __slots__ = ("__weakref__", "_nki_id", "dtype", "shape")
    __array_ufunc__ = None  # NumPy scalars on the left must defer

    @classmethod
    def _nki_made(cls, id, shape=None, dtype=None):
        self = object.__new__(cls)
        self._nki_id = id
        if shape is not None:
            self.shape = tuple(shape)
        if dtype is not None:
            self.dtype = dtype_of(dtype)
        return self

    def __del__(self):
        State.dropped.append(self._nki_id)

    def __getattr__(self, name):
        kind = type(self).__name__
        if name == "__array__" and kind in ("Tensor", "NkiTensor"):  # np.array(tile)
            return lambda *a, **k: ask("operator", "array", [["H", self._nki_id]])
        if name.startswith("_"):
            raise AttributeError(name)
        if name in METHODS.get(kind, ()):
            return lambda *a, **k: ask("method", ["H", self._nki_id], name, encode(a), encode(k))
        return ask("get", ["H", self._nki_id], name)

    def __call__(self, *args, **kw):
        return ask("method", ["H", self._nki_id], "", encode(args), encode(kw))

    def __iter__(self):
        it = ask("operator", "iter", [["H", self._nki_id]])
        return Iterator(it, numbers(sys._getframe(1)) if type(self).__name__ == "Loop" else {})

    def __bool__(self):
        return ask("operator", "truth", [["H", self._nki_id]])

    def __setitem__(self, key, value):
        ask("operator", "setitem", [["H", self._nki_id], encode(key), encode(value)])

    def __copy__(self, memo=None):
        return self  # a second one would drop what this one still names

    __deepcopy__ = __copy__

    def __enter__(self):
        return ask("operator", "enter", [["H", self._nki_id]])

    def __exit__(self, kind, error, trace):
        if kind is None:
            ask("operator", "exit", [["H", self._nki_id]])

    __hash__ = object.__hash__

    def __repr__(self):
        return ask("operator", "repr", [["H", self._nki_id]])

    def __str__(self):
        return ask("operator", "str", [["H", self._nki_id]])

    def __format__(self, spec):
        return format(repr(self), spec)


def kind_of(name):
    """Return the class of handles of a kind, which has the name of the simulator's."""
    if name not in State.kinds:
        more = {"__class__": property(lambda self: range)} if name == "range" else {}
        State.kinds[name] = type(name, (Handle,), {"__slots__": (), **more})
    return State.kinds[name]


#: operators that change their first operand, and give it
IN_PLACE = ("iadd", "isub", "imul", "itruediv")
#: methods of tensors: views of them, and questions about their shape
_TENSOR = ("reshape", "expand_dims", "view", "broadcast_to", "astype", "assert_shape")
METHODS = {
    "NkiInstruction": ("depends_on",),
    "Tensor": _TENSOR,
    "BlockTensor": _TENSOR,
    "NkiTensor": (
        *("slice", "select", "vector_select", "permute", "broadcast", "expand_dim", "squeeze_dim"),
        *("reshape_dim", "flatten_dims", "reshape", "rearrange", "view", "reinterpret_cast", "ap"),
        *("indirect", "is_contiguous", "get_pattern", "is_indirect"),
    ),
}


class Iterator:
    """Goes through a loop of the judge's."""

    def __init__(self, it, before):
        self.it, self.before, self.first = it, before, True

    def __iter__(self):
        return self

    def __next__(self):
        index = ask("operator", "next", [encode(self.it)])
        if self.before and not self.first:
            restore(sys._getframe(1), self.before)
        self.first = False
        return index


def numbers(frame):
    """Return the variables that hold numbers and that the body of a traced loop changes.

    The SDK traces the body of such a loop once, and what an iteration does to a number is not seen
    by the next one. The simulator does the same (machine/traced_variables.py).
    """
    code, at = frame.f_code, frame.f_lasti
    if (id(code), at) not in State.loops:
        bytecode = State.sources["bytecode"]
        names = bytecode.changed_names(code, at) if bytecode.is_for_statement(code, at) else ()
        State.loops[id(code), at] = code, names
    names = State.loops[id(code), at][1]
    if not names:
        return {}
    held = frame.f_locals
    plain = (bool, int, float, str, type(None))
    values = {k: held[k] for k in names if k in held and type(held[k]) in plain}
    forget(frame, held)
    return values


def restore(frame, before):
    """Give the numbers of a frame the values that they had before the loop."""
    held, moved = frame.f_locals, False
    for name, value in before.items():
        now = held.get(name, value)
        if type(now) in (bool, int, float, str, type(None)) and now != value:
            held[name], moved = value, True
    if moved and sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    forget(frame, held)


def forget(frame, held):
    """Empty the copy of its variables that a function's frame keeps before Python 3.13: tiles in it
    would not be dropped."""
    if type(held) is dict and frame.f_code.co_flags & 1:  # CO_OPTIMIZED
        held.clear()


def _binary(name, swap=False):
    def method(self, other):
        args = (other, self) if swap else (self, other)
        try:
            result = ask("operator", name, [encode(operand) for operand in args])
            return self if result is ITSELF else result
        except TypeError as error:
            if "NotImplemented" in str(error):
                return NotImplemented
            raise

    return method


for _name in """
    add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift matmul
""".split():
    _dunder = _name.rstrip("_")
    setattr(Handle, f"__{_dunder}__", _binary(_name))
    setattr(Handle, f"__r{_dunder}__", _binary(_name, swap=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "getitem", *IN_PLACE):
    setattr(Handle, f"__{_name}__", _binary(_name))
for _name in ("neg", "pos", "invert", "abs", "len", "index", "int", "float"):
    setattr(
        Handle,
        f"__{_name}__",
        lambda self, _name=_name: ask("operator", _name, [["H", self._nki_id]]),
    )


class Asked:
    """A thing of the facade whose attributes, items and calls the judge is asked for."""

    def __getattr__(self, name):
        if name.startswith("_") or self._nki_path is None:
            raise AttributeError(name)
        value = ask("get", ["C", self._nki_path], name)
        if value == "(a function)":
            return lambda *a, **k: ask("method", ["C", self._nki_path], name, encode(a), encode(k))
        return value

    def __getitem__(self, key):
        return ask("operator", "getitem", [["C", self._nki_path], encode(key)])

    def __call__(self, *args, **kw):
        return ask("method", ["C", self._nki_path], "", encode(args), encode(kw))


class Constant(Asked):
    """A thing of the facade that is no function: a buffer, nl.mgrid, nl.tile_size."""

    def __init__(self, path):
        self._nki_path = path

    def __repr__(self):
        return ask("operator", "repr", [["C", self._nki_path]])


class Class(Asked, type):
    """The type of a class of the facade, such as nl.NkiTensor, whose instances are handles."""

    _nki_path = property(lambda cls: State.classes.get(cls, (None,))[0])

    def __instancecheck__(self, value):
        kinds = State.classes[self][1] if self in State.classes else ()
        return type.__instancecheck__(self, value) or type(value).__name__ in kinds


def function(path, name):
    """Return what stands for a function of the facade."""

    def call(*args, **kw):
        return ask("call", path, encode(args), encode(kw))

    call.__name__ = call.__qualname__ = name
    call._nki_path = path
    return call


class Kernel:
    """A function decorated with `@nki.jit`."""

    def __init__(self, func, options=(), grid=None, schedule=None):
        self.func = func.func if isinstance(func, Kernel) else func
        self.nki_options = (*getattr(func, "nki_options", ()), *options)
        self.grid, self.schedule = grid, schedule
        plain = self.func.func if isinstance(self.func, functools.partial) else self.func
        self.__name__ = getattr(plain, "__name__", "kernel")
        self.__doc__ = getattr(plain, "__doc__", None)

    def __repr__(self):
        return f"<nki kernel {self.__name__}>"

    def __getitem__(self, grid):
        return Kernel(self, grid=grid, schedule=self.schedule)

    def with_schedule(self, edges):
        """Note edges for the judge, which checks them, with the line that gives them."""
        return Kernel(self, grid=self.grid, schedule=[edges, place()])

    def __call__(self, *args, **kw):
        if not State.depth:
            raise RuntimeError("a kernel is called outside of a launch; the grader launches it")
        ask("enter", encode(self.grid))
        State.depth += 1
        try:
            return self.func(*args, **kw)
        finally:
            State.depth -= 1
            ask("leave")


def jit(func=None, *args, **options):
    """Replace nki.jit and all launchers: the grader decides how a kernel is launched."""
    if func is None or not callable(func):
        return lambda f: jit(f)
    return Kernel(func)


def option(name):
    """Return a decorator of ncc that notes an option."""

    def decorator(func=None, *args, **kw):
        if func is None or isinstance(func, int):
            return decorator
        func.nki_options = (*getattr(func, "nki_options", ()), name)
        return func

    return decorator


def build(modules, launchers, options, sources):
    """Make the modules of the facade out of the judge's list of their names."""
    for name, text in sources.items():
        State.sources[name] = types.ModuleType(name)
        exec(compile(text, name, "exec"), vars(State.sources[name]))
    for module, names in modules.items():
        here = types.ModuleType(module)
        here.__path__ = []
        here.__getattr__ = ask_for_names(module)
        sys.modules[module] = here
        parent, _, last = module.rpartition(".")
        if parent:
            if parent not in sys.modules:
                sys.modules[parent] = types.ModuleType(parent)
                sys.modules[parent].__path__ = []
            setattr(sys.modules[parent], last, here)
        for name, (kind, path, value) in names.items():
            setattr(here, name, stand_in(kind, path, value, name))
    for made, table in ((lambda name: jit, launchers), (option, options)):
        for module, names in table.items():
            for name in names:
                setattr(sys.modules[module], name, made(name))


def ask_for_names(module):
    """Return what asks the judge for a name that its list has not: of an older release, or none."""

    def find(name):
        if name.startswith("_"):
            raise AttributeError(name)
        kind, path, value = ask("name", module, name)
        made = stand_in(kind, path, value, name)
        setattr(sys.modules[module], name, made)
        return made

    return find


class NoModule:
    """Comes last of what finds modules: of those of NKI that there are not, the judge says why."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith(("neuronxcc.nki.", "nki.")):
            raise ImportError(ask("module", name), name=name)


def stand_in(kind, path, value, name):
    """Return what stands for one name of the facade."""
    if kind == "dtype":
        return dtype_of(value)
    if kind == "type":
        return dtype_of(value).type
    if path not in State.constants:
        State.constants[path] = _made(kind, path, value, name)
    return State.constants[path]


def _made(kind, path, value, name):
    if kind == "value":
        return value
    if kind == "function":
        return function(path, name)
    if kind == "enum":
        made = (enum.IntEnum if value.pop("") else enum.Enum)(name, value)
        for member in made:
            member._nki_path = f"{path}.{member.name}"
            State.constants[member._nki_path] = member
        return made
    if kind == "class" and hasattr(State.sources["objects"], name):
        return getattr(State.sources["objects"], name)
    if kind == "class":
        made = Class(value[0], (Handle,), {})
        State.classes[made], State.kinds[value[0]] = (path, value), made
        return made
    return Constant(path)


def describe(error):
    """Return what the judge learns of an error: kind, text, the student's line, its number."""
    where = None
    tb = error.__traceback__
    while tb is not None:
        name = tb.tb_frame.f_code.co_filename
        if name.startswith(State.folder):
            where = [name[len(State.folder) :], tb.tb_lineno, tb.tb_frame.f_code.co_name]
        tb = tb.tb_next
    if isinstance(error, SyntaxError):
        name = str(error.filename or "")
        where = [
            name[len(State.folder) :] if name.startswith(State.folder) else "",
            error.lineno or 0,
            "",
        ]
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)[:2000]
    except Exception:
        text = ""
    return [
        "raised",
        place(),
        [],
        type(error).__name__[:80],
        text,
        where,
        getattr(error, "number", -1),
    ]


def kernel_of(module, name, constants=()):
    """Return the function of a kernel, and its options, grid, schedule, mutable parameters and
    signature."""
    found = getattr(module, name, None)
    if not callable(found):
        callables = [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]
        near = difflib.get_close_matches(name, callables, 1)
        near = f"; there is {near[0]}" if near else ""
        raise NameError(f"{module.__name__}.py has no kernel named {name}{near}")
    for constant in constants:
        if not hasattr(module, constant):
            raise NameError(f"{module.__name__}.py has no constant named {constant}")
    func = found.func if isinstance(found, Kernel) else found
    if not hasattr(func.func if isinstance(func, functools.partial) else func, "__name__"):
        raise TypeError(f"{module.__name__}.py has an object as {name}; a kernel is a function")
    options = list(getattr(found, "nki_options", ()))
    grid, schedule = getattr(found, "grid", None), getattr(found, "schedule", None)
    return func, [options, grid, schedule, written_to(func), signature(func)]


def signature(func):
    """Return where a function is, as place() does, and (name, kind, [default] or []) of each
    parameter, as inspect.signature has them: kinds are its numbers. None for other callables."""
    while hasattr(func, "__wrapped__"):
        func = func.__wrapped__
    code = getattr(func, "__code__", None)
    if code is None or not code.co_filename.startswith(State.folder):
        return None
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    names = list(code.co_varnames)
    given = dict(func.__kwdefaults__ or {})
    values = func.__defaults__ or ()
    given.update(zip(names[positional - len(values) : positional], values))
    kinds = [int(at >= code.co_posonlyargcount) for at in range(positional)]
    described = list(zip(names, kinds))
    rest = names[positional + keyword_only :]
    described += [(rest.pop(0), 2)] if code.co_flags & 4 else []
    described += [(name, 3) for name in names[positional : positional + keyword_only]]
    described += [(rest.pop(0), 4)] if code.co_flags & 8 else []
    plain = (int, float, str, type(None))
    shown = {n: [v if isinstance(v, plain) else "..."] for n, v in given.items()}
    if hasattr(func, "__self__") and positional:  # a method has its first argument already
        del described[0]
    where = [code.co_filename[len(State.folder) :], code.co_firstlineno, code.co_name]
    return [where, [[n, kind, shown.get(n, [])] for n, kind in described]]


def written_to(func):
    """Return the places and the names of the parameters that are annotated as mutable."""
    notes, written = getattr(func, "__annotations__", {}), []
    for place, name in enumerate(parameters(func)):
        note = notes.get(name, "")
        if re.search(r"\bmutable(_tensor)?\b", str(getattr(note, "_nki_path", None) or note)):
            written += [place, name]
    return written


def parameters(func):
    """Return the names of a function's parameters, without those that a partial has given."""
    given = set()
    while isinstance(func, functools.partial):
        given |= {*func.keywords}
        func = func.func
    code = getattr(func, "__code__", None)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code else ()
    return [name for name in names if name not in given]


def work(job, modules):
    """Do what the judge asks for next: import a file, look at a kernel, run it."""
    kind = job[0]
    if kind == "import":
        import importlib

        modules["kernels"] = importlib.import_module(job[1])
        return ["done", None, [], None]
    module = modules["kernels"]
    if kind == "kernel":
        return ["done", None, [], encode(kernel_of(module, *job[1:])[1])]
    _, name, constants, args, kwargs = job
    func = kernel_of(module, name)[0]
    before = {key: getattr(module, key) for key in constants}
    for key, value in constants.items():
        setattr(module, key, value)
    State.depth = 1
    try:
        result = func(*decode(args), **decode(kwargs))
        dropped, State.dropped = State.dropped, []
        return ["done", None, dropped, encode(result)]
    finally:
        State.depth = 0
        State.callbacks.clear()
        for key, value in before.items():
            setattr(module, key, value)


def main():
    """Serve the judge until it hangs up."""
    folder, read, write, limits = sys.argv[1:5]
    State.folder = folder.rstrip("/") + "/"
    State.pipe = Pipe(int(read), int(write))
    import numpy as _
    from confine import confine  # next to this file

    try:
        import ml_dtypes as _  # noqa: F401 (before the limits, which may forbid its threads)
    except ImportError:
        pass
    sys.path.insert(0, folder)
    sys.argv = ["kernels"]
    build(*State.pipe.take())
    sys.meta_path.append(NoModule)
    confine(json.loads(limits))
    modules = {}
    while True:
        job = State.pipe.take()
        try:
            reply = work(job, modules)
        except BaseException as error:  # SystemExit and KeyboardInterrupt are the student's
            reply = describe(error)
        State.pipe.send(reply)


if __name__ == "__main__":
    main()
