"""Random calls of the microscaling rows: their operands pack four values, and share scales.

A storage of packed values is one of bytes, that the kernel views in a packed dtype. Scales lie in
the first rows of each quadrant; the other rows hold scales as well, which nothing may read.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import nki.isa as nisa
import nki.language as nl
import numpy as np

from oracle import newer
from oracle.common import BF16, FP16, FP32, U8, cast

from .data import fill, prefill
from .nki_spec import VIEWS, Of

BYTES = {"float8_e4m3fn_x4": 4, "float8_e5m2_x4": 4, "float4_e2m1fn_x4": 2}
QUANTIZED = ("float8_e4m3fn_x4", "float8_e5m2_x4")
ROWS = ("quantize_mx", "nc_matmul_mx")
PARTITIONS = (32, 64, 96, 128)
#: views of the elements of a storage: those of packed values are of whole packs
PARTS = ("whole", "cut", "steps")


def packs(n: int, part: str) -> int:
    """Return how many packed elements a storage needs for a view of n of them."""
    return VIEWS[part][0]((1, n))[1]


class MxTrial:
    """One call of a microscaling row: its storages, views and arguments; see Trial of the others.

    `parts`: which elements of its storage a packed operand views.
    """

    def __init__(self, name: str, rng: np.random.Generator):
        self.rng = rng
        self.row = SimpleNamespace(name=name, id=name, target="trn3", rtol=1e-5)
        self.used: dict[str, Of] = {}
        self.shape: dict[str, tuple] = {}
        self.view: dict[str, str] = {}
        self.memory: dict[str, str] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.parts: dict[str, str] = {}
        p = self._pick(PARTITIONS)
        self.args: dict[str, Any] = {"partitions": p, "scale": self._pick(("uint8", "e8m0"))}
        if name == "quantize_mx":
            self._quantize(p)
        else:
            self._product(p)

    def _pick(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def _add(
        self, n: str, array: np.ndarray, role: str = "r", view: str = "whole", memory: str = "sbuf"
    ) -> None:
        """Add an operand: `array` is what the storage of a view like that holds."""
        self.used[n], self.view[n], self.memory[n] = Of(role), view, memory
        self.arrays[n] = array

    def _scales(self, n: str, p: int, columns: int) -> None:
        rows = p if p > 32 else int(self._pick((4, 32)))
        self._add(n, self.rng.integers(122, 132, (rows, columns)).astype(U8))
        self.shape[n] = self.arrays[n].shape

    def _quantize(self, p: int) -> None:
        n, dtype, how = int(self.rng.integers(1, 13)), self._pick((BF16, FP16)), "plain"
        view, self.parts["dst"] = self._pick(PARTS), self._pick(PARTS)
        shape = VIEWS[view][0]((p, 4 * n))
        values = fill(self.rng, shape, FP32)
        if how := self._pick(("", "wide", "zeros")):
            wide = 2.0 ** self.rng.integers(-6, 7, (p, 1))
            values = values * wide if how == "wide" else np.where(wide < 1, 0.0, values)
        self.args.update(dtype=self._pick(QUANTIZED), how=how)
        self._add("src", cast(np.abs(values) if how == "zeros" else values, dtype), view=view)
        self._add("dst", prefill((p, 4 * packs(n, self.parts["dst"])), U8), "w")
        rows = p if p > 32 else int(self._pick((4, 32)))
        self._add("dst_scale", prefill((rows, n), U8), "u")
        self.shape.update(src=(p, 4 * n), dst=(p, n), dst_scale=(rows, n))

    def _product(self, p: int) -> None:
        columns = {"stationary": self._pick((2, 16, 24, 128)), "moving": self._pick((1, 16, 24))}
        dtype = self._pick((FP32, BF16))
        accumulate = self._pick((False, None, True)) if dtype == FP32 else False
        self.args.update(accumulate=accumulate, tiled=p < 96 and bool(self.rng.integers(2)))
        shape = self.shape["acc"] = (columns["stationary"], columns["moving"])
        view = self._pick(PARTS)
        self._add("acc", prefill(VIEWS[view][0](shape), dtype), "u", view, "psum")
        for n, m in columns.items():
            packed = self.args[f"{n} dtype"] = self._pick(tuple(BYTES))
            self.parts[n] = self._pick(PARTS)
            self.shape[n], size = (p, m), (p, BYTES[packed] * packs(m, self.parts[n]))
            if packed in newer.SMALL:
                small = fill(self.rng, size, FP32).astype(newer.SMALL[packed][0]).view(U8)
            else:
                small = self.rng.integers(0, 256, size).astype(U8)
            self._add(n, small)
            self._scales(f"{n}_scale", p, m)

    def dtype_of(self, n: str) -> str:
        """Return the packed dtype of an operand."""
        return str(self.args["dtype" if n == "dst" else f"{n} dtype"])

    @property
    def written(self) -> list[str]:
        return [n for n, o in self.used.items() if o.role != "r"]

    def issue(self, views: dict[str, Any], count: Any) -> None:
        """Call the row on tiles of its storages."""
        given = dict(views)
        for n, part in self.parts.items():
            tile = given[n].view(getattr(nl, self.dtype_of(n)))
            given[n] = VIEWS[part][1](tile, self.shape[n])
        for n in given:
            if n.endswith("scale") and self.args["scale"] == "e8m0":
                given[n] = given[n].view(nl.float8_e8m0fnu)
        if self.row.name == "quantize_mx":
            nisa.quantize_mx(**given)
            return
        given["dst"] = given.pop("acc")
        if self.args["tiled"]:
            given.update(tile_position=(0, 0), tile_size=(self.args["partitions"], 128))
        if self.args["accumulate"] is not False:  # a product before it, that it is added to
            nisa.nc_matmul_mx(**given, accumulate=False)
        nisa.nc_matmul_mx(**given, accumulate=self.args["accumulate"])

    def _part(self, n: str, storage: np.ndarray) -> np.ndarray:
        """Return the bytes of the elements that an operand is a view of, (P, elements, bytes)."""
        p, m = self.shape[n]
        bytes_of = storage.reshape(p, -1, BYTES[self.dtype_of(n)])
        return VIEWS[self.parts[n]][1](bytes_of.transpose(2, 0, 1), (p, m)).transpose(1, 2, 0)

    def expected(self) -> dict[str, np.ndarray]:
        """Return what each written storage holds afterwards."""
        out = {n: self.arrays[n].copy() for n in self.written}
        if self.row.name == "quantize_mx":
            src = VIEWS[self.view["src"]][1](self.arrays["src"], self.shape["src"])
            found = newer.quantize_mx(
                src=src, dst_scale=self.arrays["dst_scale"], dtype=self.args["dtype"]
            )
            part = self._part("dst", out["dst"])
            part[...] = found["packed"].reshape(part.shape)
            out["dst_scale"] = found["dst_scale"]
            return out
        given = {
            n: np.ascontiguousarray(self._part(n, self.arrays[n])).reshape(self.shape[n][0], -1)
            for n in self.parts
        }
        total = newer.nc_matmul_mx(
            **given,
            stationary_scale=self.arrays["stationary_scale"],
            moving_scale=self.arrays["moving_scale"],
            dtypes=(self.dtype_of("stationary"), self.dtype_of("moving")),
        )["acc"]
        part = VIEWS[self.view["acc"]][1](out["acc"], self.shape["acc"])
        part[...] = cast(total * (1 if self.args["accumulate"] is False else 2), part.dtype)
        return out

    def __str__(self) -> str:
        return (
            f"{self.row.id}({', '.join(f'{k}={v}' for k, v in self.args.items())}) with "
            + ", ".join(
                f"{n}: {a.dtype.name}{list(self.shape[n])} {self.parts.get(n, self.view[n])}"
                for n, a in self.arrays.items()
            )
        )


def other_scale(trial: Any) -> bool:
    """Double the scale of one group, or read the scale of another one: a mistake of a kernel."""
    names = [n for n in trial.arrays if n.endswith("_scale") and trial.used[n].role == "r"]
    for n in names[:1] if isinstance(trial, MxTrial) else ():
        trial.arrays[n] = trial.arrays[n].copy()
        trial.arrays[n][0] += 1
    return isinstance(trial, MxTrial) and bool(names)


def other_rows(trial: Any) -> bool:
    """Lay the scales one after another, where they are due at the start of each quadrant."""
    if not isinstance(trial, MxTrial) or trial.args["partitions"] <= 32:
        return False
    names = [n for n in trial.arrays if n.endswith("_scale") and trial.used[n].role == "r"]
    p = trial.args["partitions"]
    for n in names:
        laid = trial.arrays[n]
        trial.arrays[n] = laid.copy()
        trial.arrays[n][[newer.scale_row(g, p) for g in range(p // 8)]] = laid[: p // 8]
    return bool(names)


def other_packing(trial: Any) -> bool:
    """Take packed values for those of the other 8-bit dtype."""
    if not isinstance(trial, MxTrial):
        return False
    for k, v in trial.args.items():
        if v in QUANTIZED:
            trial.args[k] = QUANTIZED[1 - QUANTIZED.index(v)]
            return True
    return False
