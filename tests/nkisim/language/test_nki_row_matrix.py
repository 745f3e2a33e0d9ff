"""Rows of the package nki x dtype x rank x view x memory, computed and timing-only: oracles.

The microscaling rows and those of random numbers and of two cores have tests of their own below:
their operands are no plain tiles.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import replace
from functools import partial

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.isa.table import ROWS as TABLE
from nkisim.simulation.launch import launch
from oracle import newer
from oracle.common import BF16, FP16, FP32, cast, is_float
from rowmatrix.check import out_of_reach, record
from rowmatrix.data import fill, prefill
from rowmatrix.nki_rows import ROWS
from rowmatrix.nki_spec import TILE, VIEWS

MEMORIES = {"sbuf": nl.sbuf, "psum": nl.psum, "hbm": nl.shared_hbm}
ENUMS = {"reduce_cmd": nisa.reduce_cmd}
OPS = ("op", "op0", "op1", "reduce_op", "cmp_op", "comp_op0", "comp_op1")


def name_of(dtype):
    return getattr(nl, dtype.name)


def viewed(t, view, shape):
    """Return the part of a storage that a view means, of an array or a tensor."""
    if view == "swapped":
        order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        return t.transpose(order) if isinstance(t, np.ndarray) else t.permute(order)
    return VIEWS[view][1](t, shape)


class Trial:
    """One call of a row: its storages, memories, views and arguments.

    `fresh`: what it writes are new storages, that hold nothing beforehand.
    """

    fresh = False

    def __init__(self, row, sample, grid, dtype, view, turn):
        self.row, self.sample, self.turn = row, sample, turn
        rng = np.random.default_rng(
            zlib.crc32(repr((row.id, grid, dtype.name, view, turn)).encode())
        )
        self.used = {
            n: o for n, o in row.operands.items() if n not in row.optional or sample.get(n) is TILE
        }
        self.shape = {n: o.shape(grid) for n, o in self.used.items()}
        self.view, self.memory, self.arrays = {}, {}, {}
        psum = 0
        for k, (n, o) in enumerate(self.used.items()):
            shape = self.shape[n]
            self.view[n] = view if o.views and (view != "swapped" or len(shape) > 2) else "whole"
            whole = VIEWS[self.view[n]][0](shape)
            kinds = o.dtypes or (dtype,)
            kind = kinds[(turn + k) % len(kinds)]
            self.arrays[n] = (
                prefill(whole, kind) if o.role == "w" else fill(rng, whole, kind, o.fill)
            )
            self.memory[n] = o.memories[(turn // (k + 1)) % len(o.memories)]
            if self.memory[n] == "psum" and o.role == "r" and row.one_psum:
                psum += 1
                self.memory[n] = "psum" if psum == 1 else "sbuf"
        self.args = {k: v(grid) if callable(v) else v for k, v in sample.items() if v is not TILE}

    def kernel(self, count):
        """Return the kernel: it brings the storages, calls, and stores what was written, whole."""

        def kernel(*given):
            tiles = {}
            for n, x in zip(self.used, given, strict=True):
                if self.fresh and self.used[n].role == "w":
                    tiles[n] = nl.ndarray(x.shape, dtype=x.dtype, buffer=MEMORIES[self.memory[n]])
                    continue
                t = nl.load(x)
                count["load"] += 1
                if self.memory[n] != "sbuf":
                    where = nl.ndarray(x.shape, dtype=x.dtype, buffer=MEMORIES[self.memory[n]])
                    if self.memory[n] == "hbm":
                        nisa.dma_copy(where, t)
                        count["dma_copy"] += 1
                    else:
                        nisa.tensor_copy(where, t)
                        count["tensor_copy"] += 1
                    t = where
                tiles[n] = t
            self.issue({n: viewed(t, self.view[n], self.shape[n]) for n, t in tiles.items()}, count)
            return tuple(self.stored(tiles[n], count) for n in self.written)

        return nki.jit(kernel)

    def issue(self, views, count):
        given = {
            k: getattr(nl, v)
            if k in OPS and v not in ("bypass", "prelu")
            else getattr(nl, v)
            if k in OPS
            else getattr(ENUMS[k], v)
            if k in ENUMS
            else v
            for k, v in self.args.items()
        }
        given.update(views)
        several = [given.pop(n) for n in list(given) if n.startswith("srcs")]
        if several:
            given["srcs"] = several
        if "acc" in given:  # a product before it: what accumulate= adds to
            given["dst"] = given.pop("acc")
            if given["accumulate"] is not False:
                nisa.nc_matmul(given["dst"], given["stationary"], given["moving"], accumulate=False)
                count["nc_matmul"] += 1
        getattr(nisa, self.row.name)(**given)
        count[self.row.name] += 1
        if self.row.name.startswith("activation") and isinstance(given.get("bias"), float):
            count["memset"] += 1  # the tile of a bias that is a number

    def stored(self, t, count):
        if t.buffer is nl.psum:
            copy = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(copy, t)
            count["tensor_copy"] += 1
            t = copy
        if t.buffer is nl.shared_hbm:
            return t
        out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, t)
        count["dma_copy"] += 1
        return out

    @property
    def written(self):
        return [n for n, o in self.used.items() if o.role != "r"]

    def expected(self):
        """Return what each written storage holds afterwards."""
        parts = {n: viewed(a, self.view[n], self.shape[n]) for n, a in self.arrays.items()}
        given = {
            n: x
            for n, x in parts.items()
            if self.used[n].role == "r" or n in self.row.expects or n == "reduce_res"
        }
        srcs = [given.pop(n) for n in list(given) if n.startswith("srcs")]
        args = {k: v for k, v in self.args.items() if k != "scales"}
        args.update(dict(e.split("=") for e in self.row.expects if "=" in e))
        if "acc" in given:
            before = newer.nc_matmul(**{**given, "accumulate": False})["acc"]
            given["acc"] = before
        found = self.row.oracle(**args, **given, **({"srcs": srcs} if srcs else {}))
        out = {}
        for n in self.written:
            whole = self.arrays[n].copy()
            part = viewed(whole, self.view[n], self.shape[n])
            part[...] = cast(found[n], whole.dtype).reshape(part.shape)
            out[n] = whole
        return out

    def __str__(self):
        return (
            f"{self.row.id}({', '.join(f'{k}={v}' for k, v in self.args.items())}) with "
            + ", ".join(
                f"{n}: {a.dtype.name}{list(self.shape[n])} {self.view[n]} in {self.memory[n]}"
                for n, a in self.arrays.items()
            )
        )


def wrong(trial):
    """Run a trial; return what is wrong with it, or nothing."""
    count = Counter()
    kernel, arrays = trial.kernel(count), list(trial.arrays.values())
    try:
        run = nkisim.run(kernel, *(a.copy() for a in arrays), target=trial.row.target)
    except Exception as exc:
        return f"{type(exc).__name__}: {str(exc)[:300]}"
    said = []
    for (n, want), got in zip(trial.expected().items(), run.outputs, strict=True):
        x, y = got.astype(np.float64), want.astype(np.float64)
        eps = float(ml_dtypes.finfo(got.dtype).eps) if is_float(got.dtype) else 0.0
        size = max(1.0, float(np.abs(y[np.abs(y) < 1e30]).max(initial=0)))
        margin = (
            np.abs(y) * max(trial.row.rtol, eps) + trial.row.rtol * size
            if is_float(got.dtype)
            else 0.0
        )
        same = (np.abs(x - y) <= margin) | (x == y)
        if not same.all():
            at = tuple(np.argwhere(~same)[0])
            said.append(
                f"{n}: {int((~same).sum())} of {x.size} elements, first {at}: "
                f"{got[at]} instead of {want[at]}"
            )
    if run.instructions != +count:
        said.append(f"instructions {dict(run.instructions)}, expected {dict(+count)}")
    said += out_of_reach(run.trace)
    timed = launch(
        kernel, tuple(a.copy() for a in arrays), {}, target=trial.row.target, compute=False
    )
    if record(timed.trace) != record(run.trace):
        said.append("the timing-only run has another record")
    return "\n".join(said)


def cells():
    for row in ROWS:
        for rank, grid in row.grids.items():
            for view in row.views:
                if view == "swapped" and len(grid) < 3:
                    continue
                for dtype in row.dtypes:
                    yield pytest.param(
                        row, grid, view, dtype, id=f"{row.id}-{dtype.name}-{rank}-{view}"
                    )


@pytest.mark.sample(160)
@pytest.mark.parametrize("row, grid, view, dtype", list(cells()))
def test_row(row, grid, view, dtype):
    found = []
    for turn, sample in enumerate(row.samples):
        trial = Trial(row, sample, grid, dtype, view, turn)
        if said := wrong(trial):
            found.append(f"{trial}\n  {said}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.id)
def test_a_wrong_row_would_be_found(row, monkeypatch):
    """The oracle of each row with one element changed: every cell has to see it."""

    def other(**args):
        found = row.oracle(**args)
        first = next(iter(found))
        found[first] = np.array(found[first], copy=True)
        found[first].flat[-1] = 77
        return found

    grid, dtype = next(iter(row.grids.values())), row.dtypes[0]
    trial = Trial(
        row,
        row.samples[0],
        grid,
        dtype,
        row.views[-1] if len(grid) > 2 else "steps" if "steps" in row.views else "whole",
        0,
    )
    assert not wrong(trial)
    monkeypatch.setattr(trial, "row", replace(row, oracle=other))
    assert "instead of" in wrong(trial)


# -- microscaling ----------------------------------------------------------------------------------

PACKED = {"float8_e4m3fn_x4": nl.float8_e4m3fn_x4, "float8_e5m2_x4": nl.float8_e5m2_x4}


@pytest.mark.parametrize("source", [BF16, FP16], ids=lambda d: d.name)
@pytest.mark.parametrize("partitions", [32, 64, 96, 128])
@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("how", ["plain", "wide", "zeros"])
def test_quantize(source, partitions, dtype, how):
    rng = np.random.default_rng(partitions)
    src = cast(
        rng.standard_normal((partitions, 48)) * 2.0 ** rng.integers(-6, 7, (partitions, 1))
        if how == "wide"
        else fill(rng, (partitions, 48), FP32),
        source,
    )
    if how == "zeros":
        src[8:16] = 0
    before = np.full((partitions if partitions > 32 else 4, 12), 99, np.uint8)

    @nki.jit
    def kernel(src, scales):
        t, s = nl.load(src), nl.load(scales)
        q = nl.ndarray((partitions, 12), dtype=PACKED[dtype])
        nisa.quantize_mx(q, t, s)
        out = nl.ndarray((partitions, 48), dtype=nl.uint8, buffer=nl.shared_hbm)
        bits = nl.ndarray(s.shape, dtype=nl.uint8, buffer=nl.shared_hbm)
        nisa.dma_copy(out, q.view(nl.uint8))
        nisa.dma_copy(bits, s)
        return out, bits

    want = newer.quantize_mx(src=src, dst_scale=before, dtype=dtype)
    run = nkisim.run(kernel, src, before, target="trn3")
    small, _ = newer.SMALL[dtype]
    got = [x.view(small).astype(float) for x in (run.outputs[0], want["packed"])]
    assert (got[0] == got[1]).all()  # -0.0 is 0.0
    assert (run.outputs[1] == want["dst_scale"]).all()


@pytest.mark.parametrize("partitions", [32, 64, 96, 128])
@pytest.mark.parametrize("dtypes", [(a, b) for a in PACKED for b in PACKED])
@pytest.mark.parametrize("accumulate", [None, False, True])
def test_product_of_packed_tiles(partitions, dtypes, accumulate):
    rng = np.random.default_rng(partitions)
    arrays = []
    for dtype, columns in zip(dtypes, (16, 24), strict=True):
        values = fill(rng, (partitions, 4 * columns), FP32)
        bits = cast(values, FP32).astype(newer.SMALL[dtype][0]).view(np.uint8)
        scales = rng.integers(124, 131, (partitions if partitions > 32 else 4, columns))
        arrays += [bits, scales.astype(np.uint8)]

    @nki.jit
    def kernel(*given):
        a, sa, b, sb = map(nl.load, given)
        acc = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.psum)
        a, b = a.view(PACKED[dtypes[0]]), b.view(PACKED[dtypes[1]])
        if accumulate is not False:
            nisa.nc_matmul_mx(acc, a, b, sa, sb)
        nisa.nc_matmul_mx(acc, a, b, sa, sb, accumulate=accumulate)
        res = nl.copy(acc)
        out = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, res)
        return out

    want = newer.nc_matmul_mx(
        **dict(zip(("stationary", "stationary_scale", "moving", "moving_scale"), arrays)),
        dtypes=dtypes,
    )["acc"]
    want = want if accumulate is False else 2 * want
    got = nkisim.run(kernel, *arrays, target="trn3").outputs
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


# -- random numbers, two cores ---------------------------------------------------------------------

INTEGERS = [np.dtype(d) for d in ("uint8", "int8", "uint16", "int16", "uint32", "int32")]


def random_kernel(x, call, dtype, view):
    """Return the bytes that a row of random numbers leaves in a storage of twice the size."""

    def kernel(x):
        t = nl.load(x)
        u = nl.ndarray(x.shape, dtype=dtype)
        nisa.memset(u, 3)
        call(u[:, 0:32] if view == "cut" else u[:, ::2])
        nisa.tensor_copy(t, t)
        out = nl.ndarray(u.shape, dtype=dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, u)
        return out

    return nki.jit(kernel)


@pytest.mark.parametrize("view", ["cut", "steps"])
@pytest.mark.parametrize("engine", ["vector", "gpsimd"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_random_bits(dtype, engine, view):
    x = np.ones((64, 64), np.float32)
    kernel = random_kernel(x, partial(nisa.rng, engine=nisa.engine[engine]), name_of(dtype), view)
    first, again = (nkisim.run(kernel, x).outputs for _ in range(2))
    assert (first == again).all()  # a launch begins with the same state
    some, rest = (
        (first[:, :32], first[:, 32:]) if view == "cut" else (first[:, ::2], first[:, 1::2])
    )
    assert (rest == 3).all()
    info = np.iinfo(dtype)
    share = (some.astype(np.float64) - info.min) / (float(info.max) - info.min)
    assert abs(share.mean() - 0.5) < 0.05 and abs(share.std() - 12**-0.5) < 0.03


@pytest.mark.parametrize("dtype", [FP32, BF16, FP16], ids=lambda d: d.name)
@pytest.mark.parametrize("low, high", [(0.0, 1.0), (-2.0, 3.0)])
@pytest.mark.parametrize("tiles", [True, False])
def test_uniform_numbers(dtype, low, high, tiles):
    x = np.ones((64, 64), np.float32)

    def call(dst):
        ends = [nl.full((64, 1), v, nl.float32) if tiles else v for v in (low, high)]
        nisa.rand2(dst, *ends)

    got = nkisim.run(random_kernel(x, call, name_of(dtype), "cut"), x, target="trn3").outputs
    some = got[:, :32].astype(np.float64)
    assert (got[:, 32:] == 3).all() and low <= some.min() and some.max() <= high
    assert abs(some.mean() - (low + high) / 2) < 0.05 * (high - low)


@pytest.mark.parametrize("engine, words", [("gpsimd", 6), ("vector", 24)])
def test_the_state_of_a_generator_repeats_its_numbers(engine, words):
    state = np.arange(128 * words, dtype=np.uint32).reshape(128, words)

    @nki.jit
    def kernel(state, other):
        outs = []
        for s in (state, other, state):
            nisa.rand_set_state(nl.load(s), engine=nisa.engine[engine])
            t = nl.ndarray((128, 8), dtype=nl.uint32)
            nisa.rng(t, engine=nisa.engine[engine])
            out = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
            nisa.dma_copy(out, t)
            outs.append(out)
        return tuple(outs)

    a, b, c = nkisim.run(kernel, state, state + 1, target="trn3").outputs
    assert (a == c).all() and (a != b).any()


@pytest.mark.parametrize("dtype", [FP32, BF16, *INTEGERS[:3]], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(128, 8), (32, 3, 8), (1, 16)], ids=str)
@pytest.mark.parametrize("view", ["whole", "cut", "steps"])
def test_an_exchange_of_tiles(dtype, shape, view):
    rng = np.random.default_rng(0)
    x = np.stack([fill(rng, shape, dtype) for _ in range(2)])

    @nki.jit
    def kernel(x):
        me = nl.program_id()
        whole = VIEWS[view][0](shape)
        t, u = (nl.ndarray(whole, dtype=name_of(dtype)) for _ in range(2))
        nisa.memset(t, 1)
        nisa.memset(u, 2)
        nisa.dma_copy(viewed(t, view, shape), x[me])
        nisa.sendrecv(viewed(t, view, shape), viewed(u, view, shape), 1 - me, 1 - me, pipe_id=0)
        out = nl.ndarray((2, *whole), dtype=name_of(dtype), buffer=nl.shared_hbm)
        nisa.dma_copy(out[me], u)
        return out

    got = nkisim.run(kernel[2], x).outputs
    want = np.full(got.shape, 2, dtype)
    for core in range(2):
        viewed(want[core], view, shape)[...] = x[1 - core]
    assert (got == want).all()


def test_every_row_of_this_dialect_alone_is_tried():
    here = {
        "quantize_mx",
        "nc_matmul_mx",
        "rng",
        "rand2",
        "rand_set_state",
        "sendrecv",
        "rand_get_state",
        "set_rng_seed",
        "core_barrier",
    }  # the last in test_nki_cores.py
    alone = {name for name, row in TABLE.items() if row.nki and not row.public}
    assert alone <= {row.name for row in ROWS} | here
