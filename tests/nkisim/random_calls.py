"""Calls of every instruction with arguments that fit by chance, in both dialects.

Most are refused. What must not happen is an error of Python from inside, or one of ours that only
repeats such an error (NKI-X01 with Python's own sentence).
"""

from __future__ import annotations

import inspect
from typing import Any

import neuronxcc.nki as old
import neuronxcc.nki.isa as old_isa
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

import nkisim
from nkisim.errors import NkiError
from nkisim.isa.table import ROWS

SHAPES = (
    (128, 8),
    (128, 64),
    (64, 8),
    (32, 4),
    (16, 8),
    (1, 1),
    (128, 1),
    (128, 2, 4),
    (8, 128),
    (64, 2, 2, 2),
    (128, 16),
    (1, 64),
    (128, 6),
)
DTYPES = ("float32", "bfloat16", "int32", "uint32", "uint8", "float16", "int8", "uint16")
X = np.arange(128 * 64, dtype=np.float32).reshape(128, 64) % 100
INDEX = np.arange(128, dtype=np.int32)[:, None]

#: what a parameter is mostly given, by its name; else anything
OPS = (
    "add",
    "multiply",
    "subtract",
    "maximum",
    "minimum",
    "exp",
    "copy",
    "square",
    "relu",
    "bitwise_and",
    "left_shift",
    "equal",
    "less",
    "greater_equal",
    "logical_and",
    "power",
    "abs",
    "rsqrt",
)
NUMBERS = (0, 1, -1, 2.5, 8, 16, 3, 1e30, float("nan"), 2**31, -(2**40), True)
ODD = (
    None,
    "x",
    [],
    (),
    [1, 2],
    {},
    1j,
    object(),
    b"x",
    np.float32(2),
    np.zeros(3),
    np.zeros((128, 64), np.float32),
    slice(0, 3),
    range(3),
    print,
    float,
    Ellipsis,
)


def names(dialect: str) -> list[str]:
    """Return the names of the instructions that a dialect has."""
    rows = [row for row in ROWS.values() if (row.nki if dialect == "nki" else row.public)]
    return sorted(row.nki.partition("(")[0] if dialect == "nki" else row.public for row in rows)


class Call:
    """One call: `made` are its arguments as text, for whoever reads the failure."""

    def __init__(self, dialect: str, name: str, seed: int):
        self.dialect, self.name, self.seed = dialect, name, seed
        self.made: dict[str, str] = {}

    def __str__(self) -> str:
        args = ", ".join(f"{k}={v}" for k, v in self.made.items())
        return f"{self.dialect} {self.name}({args})  # seed {self.seed}"

    def run(self) -> BaseException | None:
        """Run the call in a kernel; return what it raised."""
        rng = np.random.default_rng([self.seed, len(self.name), sum(map(ord, self.name))])
        module, _, attribute = self.name.partition(".")
        spaces = (
            {"nisa": nisa, "nl": nl} if self.dialect == "nki" else {"nisa": old_isa, "nl": old_nl}
        )
        function = getattr(spaces[module], attribute)

        def kernel(x, index):
            return self._body(rng, function, x, index)

        jitted = nki.jit(kernel) if self.dialect == "nki" else old.jit(kernel)
        try:
            target = ("trn2", "trn3")[rng.integers(2)] if self.dialect == "nki" else "trn2"
            nkisim.run(jitted, X, INDEX, target=target)
        except Exception as exc:
            return exc
        return None

    def _body(self, rng: np.random.Generator, function: Any, x: Any, index: Any) -> Any:
        pool = _Pool(self.dialect, rng, x, index)
        given = {}
        odd = rng.integers(3) == 0
        for parameter in inspect.signature(function).parameters.values():
            if (
                parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
                or parameter.name == "name"
            ):
                continue
            if parameter.default is not parameter.empty and rng.integers(3):
                continue
            value, text = pool.odd() if odd and rng.integers(4) == 0 else pool.of(parameter.name)
            given[parameter.name], self.made[parameter.name] = value, text
        result = function(**given)
        lang = nl if self.dialect == "nki" else old_nl
        out = lang.ndarray((128, 64), dtype=x.dtype, buffer=lang.shared_hbm)
        if self.dialect == "nki":
            nisa.dma_copy(out, x)
        else:
            old_nl.store(out, old_nl.load(x))
            if result is not None and type(result).__name__ == "Tensor":
                old_isa.tensor_copy(result)
        return out


class _Pool:
    """Arguments: tiles of all kinds, and other things."""

    def __init__(self, dialect: str, rng: np.random.Generator, x: Any, index: Any):
        self.nki, self.rng, self.x, self.index = dialect == "nki", rng, x, index
        self.lang: Any = nl if self.nki else old_nl
        self.isa: Any = nisa if self.nki else old_isa
        self.first: Any = None

    def pick(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def odd(self) -> tuple[Any, str]:
        value = self.pick((*ODD, *NUMBERS))
        return value, repr(value)[:40]

    def tile(self) -> tuple[Any, str]:
        """Return a tile on chip that is written, mostly one like those before."""
        shape = self.first if self.first is not None and self.rng.integers(3) else self.pick(SHAPES)
        self.first = shape
        dtype, memory = self.pick(DTYPES), self.pick(("sbuf", "sbuf", "psum"))
        if self.rng.integers(2):
            dtype = "float32"
        t = self.lang.ndarray(
            shape, dtype=getattr(self.lang, dtype), buffer=getattr(self.lang, memory)
        )
        if self.rng.integers(8):
            if self.nki:
                nisa.memset(t, 1)
            else:
                t[...] = old_isa.memset(shape, 1, getattr(old_nl, dtype))
        return t, f"<{memory} {dtype}{list(shape)}>"

    def hbm(self) -> tuple[Any, str]:
        how = int(self.rng.integers(6))
        if how < 2:
            return self.x, "x"
        rows = self.lang.load(self.index)
        if how == 2:
            return self.x[0:32, 3:9], "x[0:32, 3:9]"
        if how == 3:
            return self.x[3, 4], "x[3, 4]"
        if not self.nki:
            return self.x[rows[old_nl.arange(128)[:, None], 0], old_nl.arange(64)[None, :]], "x[i]"
        if how == 4:
            return self.x.ap([[64, 128], [1, 64]], vector_offset=rows), "x.ap(vector_offset)"
        one = nl.ndarray((1, 1), dtype=nl.int32)
        nisa.memset(one, int(self.pick((0, 3, 200))))
        return self.x.ap([[64, 16], [1, 64]], scalar_offset=one), "x.ap(scalar_offset)"

    def view(self) -> tuple[Any, str]:
        """Return a view of a tile, at times one with an offset at run time."""
        t, text = self.tile()
        how = int(self.rng.integers(4))
        if how == 0:
            return t[0:8], f"{text}[0:8]"
        if how == 1 and len(t.shape) == 2 and t.shape[1] > 4:
            return t[:, 1:4], f"{text}[:, 1:4]"
        if how == 2:
            return t[(0,) * len(t.shape)], f"{text}[0, 0]"
        if self.nki and len(t.shape) == 2:
            one = nl.ndarray((1, 1), dtype=nl.int32)
            nisa.memset(one, int(self.pick((0, 1, 300))))
            n = t.shape[1]
            return t.ap(
                [[n, t.shape[0]], [1, max(1, n // 2)]], scalar_offset=one, indirect_dim=1
            ), f"{text}.ap(offset)"
        return t, text

    def of(self, name: str) -> tuple[Any, str]:
        """Return what a parameter of a name is likely to be given."""
        if name.startswith(
            ("op", "reduce_op", "cmp_op", "comp_op", "dst_rmw")
        ) and not name.startswith("operand"):
            op = self.pick(OPS)
            return getattr(self.lang, op), f"nl.{op}"
        if name in ("engine", "reduce_cmd", "oob_mode", "dge_mode", "mode"):
            enum = getattr(self.isa, "oob_mode" if name == "mode" else name)
            value = self.pick([v for k, v in vars(enum).items() if not k.startswith("_")] or (0,))
            return value, str(value)
        if name in (
            "shape",
            "axes",
            "axis",
            "tile_position",
            "tile_size",
            "shuffle_mask",
            "cores",
            "pattern",
        ):
            value = self.pick(
                (
                    1,
                    (1,),
                    [1, 2],
                    (128, 8),
                    (1, 0),
                    (2, 1, 0),
                    list(range(32)),
                    [[1, 8]],
                    [[2, 2], [1, 4]],
                    (0, 1),
                    (64, 64),
                    (32, 128),
                    -1,
                    [[1]],
                )
            )
            return value, repr(value)
        if name == "dtype":
            value = self.pick(DTYPES)
            return getattr(self.lang, value), f"nl.{value}"
        if name in ("mask", "pred", "expr"):
            i, f = old_nl.arange(128)[:, None], old_nl.arange(8)[None, :]
            return self.pick(
                (
                    (i < 64, "i < 64"),
                    (f < 3, "f < 3"),
                    (i + f, "i + f"),
                    (i >= f, "i >= f"),
                    (i < 200, "i < 200"),
                )
            )
        if name == "srcs":
            parts = [self.any_tensor() for _ in range(self.rng.integers(1, 4))]
            return [p for p, _ in parts], str([t for _, t in parts])
        if name.startswith(
            (
                "imm",
                "operand",
                "scale",
                "bias",
                "initial",
                "bound",
                "on_false",
                "max_value",
                "reduce_init",
                "min",
                "max",
                "prob",
                "value",
            )
        ) and self.rng.integers(2):
            value = self.pick(NUMBERS)
            return value, repr(value)
        if name.startswith(("reverse", "is_", "negate", "keepdims", "accumulate", "unique")):
            value = bool(self.rng.integers(2))
            return value, str(value)
        if name in (
            "n",
            "num_elem_per_idx",
            "num_valid_indices",
            "offset",
            "channel_multiplier",
            "index_offset",
            "padding_val",
            "range_start",
            "on_false_value",
            "priority",
            "send_to_rank",
            "recv_from_rank",
            "pipe_id",
            "dma_engine",
        ):
            value = self.pick(NUMBERS)
            return value, repr(value)
        return self.any_tensor()

    def any_tensor(self) -> tuple[Any, str]:
        return self.pick((self.tile, self.tile, self.tile, self.view, self.hbm))()


#: words of Python's own errors, that mean nothing to who wrote the call
PYTHON = (
    "object has no attribute",
    "not subscriptable",
    "indices must be",
    "unpack",
    "is not iterable",
    "not callable",
    "out of range",
    "unsupported operand",
    "NoneType",
    "object is not",
    "cannot be interpreted",
    "unhashable",
    "could not broadcast",
    "not supported between",
    "ambiguous",
    "cannot reshape",
    "operands could not",
    "broadcast",
)


def internal(exc: BaseException | None) -> bool:
    """Return whether an exception is not one of ours, or only repeats one of Python's."""
    if exc is None or hasattr(exc, "nki_error"):
        return False
    if not isinstance(exc, NkiError):
        return True
    return exc.id == "NKI-X01" and any(word in exc.what for word in PYTHON)
