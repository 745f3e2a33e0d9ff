"""What a launch is handed and what it hands back: arrays of the host, as tensors in HBM."""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip import dtypes
from ..chip.memory import HBM, NEVER, contiguous_strides
from ..errors import NkiError, Where, defined_at, fail
from ..errors.frames import is_ours
from ..machine import allocate, operand_errors, unwritten
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from ..trace.names import assigned_on
from ..trace.written import written

if TYPE_CHECKING:
    from .launch import Kernel

#: The annotation of a parameter that is written, as text or as the name of its type.
_MUTABLE = re.compile(r"\bmutable(_tensor)?\b")


#: letters of an argument's value that a profile shows
LONGEST_VALUE = 60


@dataclass(frozen=True)
class TensorSpec:
    """An argument whose shape and dtype alone are given: nt.tensor[[rows, columns], dtype].

    Launchers that measure take it in place of an array; its elements are zeros.
    """

    shape: tuple[int, ...]
    dtype: np.dtype


def _is_torch(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch" and hasattr(value, "detach")


def _from_torch(tensor: Any) -> np.ndarray:
    """Return a torch tensor as an array; bfloat16 by way of its bits."""
    tensor = tensor.detach().cpu().contiguous()
    if str(tensor.dtype) == "torch.bfloat16":
        import ml_dtypes
        import torch

        bits: np.ndarray[Any, Any] = tensor.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    values: np.ndarray[Any, Any] = tensor.numpy()
    return values


def _to_torch(a: np.ndarray) -> Any:
    import torch

    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(a)


def _to_jax(a: np.ndarray) -> Any:
    from jax import numpy

    return numpy.asarray(a)


class Arguments:
    """The arguments of a launch, as HBM tensors."""

    def __init__(self, m: Machine, kernel: Kernel):
        self.m, self.kernel = m, kernel
        self.torch = self.jax = False
        self.old_style = kernel.mode == "trace"
        self.inputs: list[tuple[str, np.ndarray, Tensor, bool]] = []
        notes = getattr(kernel.func, "__annotations__", {})
        self.mutable = {
            n
            for n, a in notes.items()
            if _MUTABLE.search(a if isinstance(a, str) else getattr(a, "__name__", ""))
        }

    def written(self) -> bool:
        """Return whether the kernel has written into an argument, where that makes it an output."""
        return self.kernel.inputs_mutable and any(
            written(self.m.trace, t) for _, _, t, _ in self.inputs
        )

    def called(self, given: list[tuple[str, Any]]) -> tuple[dict[str, Any], ...]:
        """Return the call, ready for JSON: name, storage, shape and dtype of each array, then name
        and value of what is a number, a text or None."""
        arrays = [
            {
                "name": name,
                "storage": t.storage.id,
                "shape": list(array.shape),
                "dtype": dtypes.name(array.dtype),
            }
            for name, array, t, _ in self.inputs
        ]
        return (
            *arrays,
            *(
                {"name": name, "value": value if value is None else str(value)[:LONGEST_VALUE]}
                for name, value in given
                if value is None or isinstance(value, (bool, int, float, str))
            ),
        )

    def convert(self, value: Any, name: str) -> Any:
        """Turn arrays into tensors, inside tuples, lists and dicts as well."""
        if isinstance(value, np.ndarray):
            if not value.size and (t := self.kernel.enter_empty(self.m, value, name)) is not None:
                return t
            if np.ma.is_masked(value):
                given = f"{np.ma.getmaskarray(value).sum()} masked elements of {value.size}"
                raise fail(
                    "NKI-K04",
                    f"argument {name} is a masked array",
                    given=given,
                    limit="all elements have values",
                    hint=f"{name}.filled(0), before the kernel is called",
                )
            mutable = self.old_style or name in self.mutable
            t = allocate.input_tensor(self.m, value, name, mutable, self.kernel.inputs_mutable)
            self.inputs.append((name, value, t, mutable))
            return self.kernel.enter(t, name, bool(self.kernel.grid))
        if isinstance(value, TensorSpec):
            return self.convert(np.zeros(value.shape, value.dtype), name)
        if _is_torch(value):
            self.torch = True
            try:
                array = _from_torch(value)
            except (RuntimeError, TypeError) as exc:  # on no device, sparse, quantized, ...
                raise fail(
                    "NKI-K04",
                    f"argument {name} is a tensor of torch without values that can be read",
                    given=" ".join(str(exc).split()),
                    limit="a dense tensor, on the CPU or copied there",
                ) from None
            return self.convert(array, name)
        if type(value) in (tuple, list):
            return type(value)(self.convert(v, name) for v in value)
        if type(value) is dict:
            return {k: self.convert(v, name) for k, v in value.items()}
        if type(value).__module__.split(".")[0] in ("jax", "jaxlib") and hasattr(value, "shape"):
            self.jax = True
            return self.convert(np.asarray(value), name)
        return value


def no_tensor(exc: Exception, kernel: Kernel, given: Iterable[tuple[str, Any]]) -> NkiError | None:
    """Return the error of a kernel that used an argument as a tensor although it is none.

    `given`: the arguments by name, as the kernel got them. None if `exc` is anything else.
    """
    if not isinstance(exc, AttributeError) or not hasattr(np.ndarray, exc.name or ""):
        return None
    at, tb = None, exc.__traceback__
    while tb is not None:
        if not is_ours(tb.tb_frame.f_code.co_filename):
            code = tb.tb_frame.f_code
            at = Where(code.co_filename, tb.tb_lineno, code.co_name)
        tb = tb.tb_next
    defaults = {p.name: p.default for p in inspect.signature(kernel.func).parameters.values()}
    names = [name for name, value in {**defaults, **dict(given)}.items() if value is exc.obj]
    if exc.obj is None:  # so is what a call returns that returns nothing
        names = [n for n in names if at and re.search(rf"\b{n}\.{exc.name}\b", at.text)]
    if not names:
        return None
    name, class_name = names[0], type(exc.obj).__name__
    return fail(
        "NKI-K04",
        f"argument {name} of {kernel.__name__} is a {class_name}: it has no .{exc.name}",
        given=f"{class_name} {reprlib.repr(exc.obj)}",
        limit="a tensor is a NumPy array or a tensor of torch or jax",
        where=at,
        hint="give it a tensor, or ask `is not None` before it is used"
        if exc.obj is None
        else f"{name} = np.array({name}, dtype=np.float32), before the kernel is called",
    )


_IN_A_LOOP = (
    "If a loop does that, does it run at all? size // tile size is 0 for a tensor "
    "smaller than a tile"
)


def place_of(kernel: Kernel) -> Where | None:
    """Return where a kernel is defined: its `def`, below the decorators."""
    return defined_at(kernel.func)


def _stored(tile: Tensor, made: Where | None) -> str:
    """Return what to write where a tile is returned; `made`: where it was made."""
    name = assigned_on(made.file, made.line) if made else "?"
    return (
        f"out = nl.ndarray({tile.shape}, dtype=nl.{dtypes.name(tile.dtype)}, "
        "buffer=nl.shared_hbm); nisa.dma_copy(dst=out, src="
        f"{'tile' if name == '?' else name}); return out"
    )


class Results:
    """What a kernel returns, as arrays of the host."""

    def __init__(self, m: Machine, kernel: Kernel, args: Arguments):
        self.m, self.kernel, self.args = m, kernel, args
        self.returned: list[Tensor] = []
        self._kept = {t.storage.id for _, _, t, _ in args.inputs}  # their bytes are the caller's

    def _array_of(self, tensor: Tensor) -> np.ndarray:
        """Return an output's elements: its own bytes, which nothing else uses any more."""
        a = tensor.np
        if tensor.storage.id in self._kept or not a.flags.c_contiguous:
            return np.array(a, order="C")
        self._kept.add(tensor.storage.id)
        return a

    def convert(self, value: Any, what: str) -> Any:
        """Return an output, or several, as arrays, after checking that they are outputs."""
        m, kernel = self.m, self.kernel
        if isinstance(value, (tuple, list)):
            return type(value)(self.convert(v, f"{what}[{i}]") for i, v in enumerate(value))
        if isinstance(value, dict):
            return {k: self.convert(v, f"{what}[{k!r}]") for k, v in value.items()}
        value = kernel.leave(value)
        if not isinstance(value, Tensor):
            operand_errors.not_of_nki(value, what)
            raise fail(
                "NKI-O02",
                f"{kernel.__name__} returns something that is not a tensor",
                given=f"{what} is {type(value).__name__}",
                limit="HBM tensors",
                where=place_of(kernel),
            )
        if value.m is not m:
            raise fail(
                "NKI-O02",
                f"{kernel.__name__} returns a tensor of another launch",
                given=f"{what}: {value!r}",
                limit="outputs of this launch",
                where=place_of(kernel),
                hint="make the output in the kernel each time: "
                "tensors end with the launch that made them",
            )
        if value.memory is not HBM and kernel.mode == "simulation":
            m.find(
                "NKI-O02",
                "warning",
                f"{what} is returned from {value.memory.upper()}; on hardware "
                "outputs are HBM tensors, so this kernel can only be simulated",
            )
            if not m.compute:
                return None
            m.undefined.check_output(value, what)
            m.overflow.check_output(value)
            return np.array(value.np, order="C")
        if value.memory is not HBM:
            made = m.trace.where(value.storage.where)
            forgot = made is not None and "nl.ndarray(" in made.text and "buffer" not in made.text
            raise fail(
                "NKI-O02",
                f"{kernel.__name__} returns a tensor on chip",
                given=f"{what}: {value!r}",
                limit="outputs are HBM tensors",
                where=made if forgot else place_of(kernel),
                hint="store it: nl.store(out, value=tile), with out in nl.shared_hbm",
                nki_hint="nl.ndarray without buffer= is a tile: buffer=nl.shared_hbm"
                if forgot
                else _stored(value, made),
            )
        self.returned.append(value)
        m.check_bounds(value)
        st = value.storage
        assert st is not None
        self._check_made(value, what)
        if st.init == NEVER and (m.compute or not written(m.trace, value)):
            made = m.trace.where(st.where)
            raise fail(
                "NKI-O03",
                f"an output of {kernel.__name__} is never written",
                given=f"{what}: {value!r}" + (f", created at {made}" if made else ""),
                where=made or place_of(kernel),
                hint=f"nl.store(out[...], value=tile). {_IN_A_LOOP}",
                nki_hint=f"nisa.dma_copy(dst=out, src=tile). {_IN_A_LOOP}",
            )
        if not m.compute:
            bad = unwritten.never_stored(m, value) if m.settings.checks else None
            if bad is not None:
                m.undefined.never_stored(value, what, bad)
            return None
        m.undefined.check_output(value, what)
        m.overflow.check_output(value)
        a = self._array_of(value)
        return _to_torch(a) if self.args.torch else _to_jax(a) if self.args.jax else a

    def _check_made(self, tensor: Tensor, what: str) -> None:
        """Raise NKI-O08 unless an output is a whole tensor that this launch may hand back.

        A launch hands back memory, not a view: elements in another order, or a part of them, are
        a copy, which the kernel has to make.
        """
        st, name = tensor.storage, self.kernel.__name__
        source = next((arg for arg in self.args.inputs if arg[2].storage is st), None)
        if source is not None and not (
            source[3] or self.kernel.inputs_mutable and written(self.m.trace, source[2])
        ):
            raise fail(
                "NKI-O08",
                f"{name} returns its argument {source[0]}, which it has not written",
                given=f"{what}: {tensor!r}",
                limit="outputs are tensors that the kernel creates and writes",
                where=place_of(self.kernel),
                hint=_OWN_OUTPUT,
                nki_hint=_OWN_OUTPUT_NKI,
            )
        if source is None and st.readonly:
            raise fail(
                "NKI-O08",
                f"{name} returns a constant",
                given=f"{what}: {tensor!r}",
                limit="outputs are tensors that the kernel creates and writes",
                where=place_of(self.kernel),
                hint=_OWN_OUTPUT,
                nki_hint=_OWN_OUTPUT_NKI,
            )
        whole = tensor.offset == 0 and tensor.size * tensor.itemsize == st.nbytes
        order = contiguous_strides(tensor.shape, tensor.itemsize)
        in_order = all(
            n == 1 or s == step for n, s, step in zip(tensor.shape, tensor.strides, order)
        )
        if not (whole and in_order):
            what = "in another order" if whole else "a part of a tensor"
            raise fail(
                "NKI-O08",
                f"{name} returns a view: " + ("its elements " if whole else "") + what,
                given=f"{what}: shape {tensor.shape}, strides of "
                f"{tuple(s // tensor.itemsize for s in tensor.strides)} elements, over "
                f"{st.nbytes} bytes",
                limit="an output is a whole tensor, with its elements in the order in which "
                "they lie in memory",
                where=place_of(self.kernel),
                hint=_OWN_OUTPUT,
                nki_hint=_OWN_OUTPUT_NKI,
            )


_OWN_OUTPUT = (
    "out = nl.ndarray(shape, dtype, buffer=nl.shared_hbm) of the shape that is wanted; "
    "nl.store(out[...], value=tile) puts each element where it belongs; return out"
)
_OWN_OUTPUT_NKI = (
    "out = nl.ndarray(shape, dtype, buffer=nl.shared_hbm) of the shape that is "
    "wanted; nisa.dma_copy(dst=out[...], src=tile) puts each element where it "
    "belongs; return out"
)


def _find_lost_writes(m: Machine, args: Arguments, results: Results) -> None:
    """Add a finding for each argument that is written and not returned.

    It is a warning of import nki: a host without XLA may see the write, as AWS's simulator does.
    """
    returned = {t.storage.id for t in results.returned if t.storage is not None}
    kept = {t.storage.id: name for name, _, t, _ in args.inputs if t.storage.id not in returned}
    accesses, line = m.trace.operands(), m.trace.instructions().line
    written_to = accesses.storage[accesses.write]
    for storage in sorted(kept.keys() & set(np.unique(written_to).tolist())):
        first = accesses.instr[accesses.write][np.argmax(written_to == storage)]
        m.find(
            "NKI-O06",
            "warning",
            f"argument {kept[storage]} is written, and not returned: under XLA (PyTorch and JAX) "
            "the host keeps the tensor of before",
            int(line[first]),
        )


def outputs(m: Machine, kernel: Kernel, args: Arguments, result: Any) -> Any:
    """Return the kernel's outputs as arrays, after checking that they are outputs.

    Without arithmetic the checks are all: there is nothing to return.
    """
    results = Results(m, kernel, args)
    if result is None:
        if not args.old_style and not args.written():
            raise fail(
                "NKI-O02",
                f"{kernel.__name__} returns nothing",
                where=place_of(kernel),
                given="None",
                limit="a kernel returns its output tensors",
                hint="end the kernel with: return out",
            )
        out = None
    else:
        out = results.convert(result, "the result")
    if kernel.inputs_mutable and m.settings.checks:
        _find_lost_writes(m, args, results)
    for name, array, t, mutable in args.inputs:
        if (
            m.compute
            and kernel.inputs_mutable
            and array.flags.writeable
            and not array.flags.c_contiguous
        ):
            array[...] = t.np.reshape(array.shape)  # elsewhere in place
        if not mutable:
            continue
        if not args.old_style and not any(r.storage is t.storage for r in results.returned):
            raise fail(
                "NKI-O06",
                f"mutable parameter {name} is not returned",
                limit="a parameter annotated nt.mutable_tensor is an output as well",
                where=place_of(kernel),
                hint=f"return {name}",
            )
        if m.compute:
            m.undefined.check_output(t, f"argument {name}")
            m.overflow.check_output(t)
            array[...] = t.np.reshape(array.shape)
    if kernel.mode != "simulation" and not any(k.write_bytes for k in m.trace.op_specs):
        raise fail(
            "NKI-O03",
            f"{kernel.__name__} writes nothing: its outputs are as they came",
            given="no instruction that writes to HBM",
            where=place_of(kernel),
            hint=_OWN_OUTPUT,
            nki_hint=_OWN_OUTPUT_NKI,
        )
    return out
