"""Random kernels of all rows of both dialects, against oracles that share no code with nkisim.

A kernel brings operands into a memory, issues one row with random arguments, dtypes, masks or
views, and stores what the row wrote; a loop of a random kind does that for several inputs, chosen
by its variable. The oracles (tests/nkisim/oracle) are plain NumPy written from the documents.

    python tests/nkisim/random_kernels.py --seeds 2000

prints how many kernels and forms were tried, those whose values are not the oracle's, and how many
of the kernels with one mistake in them were caught: refused, found, or of other values.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import nkisim

HERE = Path(__file__).parent
for folder in (HERE, HERE / "isa", HERE / "language", HERE.parents[1]):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

import neuronxcc.nki as old  # noqa: E402
import neuronxcc.nki.language as old_nl  # noqa: E402
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402
from test_nki_row_matrix import Trial as NkiTrial  # noqa: E402
from test_nki_row_matrix import viewed  # noqa: E402
from test_row_matrix import SPECS, dtypes_of  # noqa: E402

from nkisim.errors import NkiError  # noqa: E402
from nkisim.isa.table import ROWS  # noqa: E402
from oracle.common import E4M3, E5M2, is_float  # noqa: E402
from rowmatrix import check, masks, mx  # noqa: E402
from rowmatrix.data import prefill  # noqa: E402
from rowmatrix.nki_rows import ROWS as NKI_ROWS  # noqa: E402
from rowmatrix.trial import Trial  # noqa: E402

_VALUES, _NOTHING = "its values are not documented", "it writes nothing"
#: rows that have no kernels here: why, and the test that has the row
NOT_HERE = {
    "rand": (
        _VALUES,
        "isa/test_row_arguments.py::test_random_numbers_lie_in_their_interval_and_follow_the_seed",
    ),
    "random_seed": (
        _NOTHING,
        "isa/test_row_arguments.py::test_random_numbers_lie_in_their_interval_and_follow_the_seed",
    ),
    "rng": (_VALUES, "language/test_nki_row_matrix.py::test_random_bits"),
    "rand2": (_VALUES, "language/test_nki_row_matrix.py::test_uniform_numbers"),
    "rand_get_state": (
        _VALUES,
        "language/test_nki_row_matrix.py::test_the_state_of_a_generator_repeats_its_numbers",
    ),
    "rand_set_state": (
        _NOTHING,
        "language/test_nki_row_matrix.py::test_the_state_of_a_generator_repeats_its_numbers",
    ),
    "set_rng_seed": (
        _NOTHING,
        "language/test_nki_rows.py::test_random_bits_fill_the_dtype_and_repeat",
    ),
    "core_barrier": (
        _NOTHING,
        "language/test_nki_cores.py::test_a_barrier_orders_the_tensor_that_it_names",
    ),
    "sendrecv": (
        "it takes two cores",
        "language/test_nki_row_matrix.py::test_an_exchange_of_tiles",
    ),
    "partition_broadcast": (
        "a lowering of nl.broadcast_to",
        "isa/test_row_arguments.py::test_a_row_is_repeated_over_partitions",
    ),
    "indirect_gather": (
        "a form of other rows",
        "language/test_nki_indirect.py::test_a_gather_reads_the_columns_that_a_group_of_partitions_names",
    ),
    "indirect_scatter": (
        "a form of other rows",
        "language/test_nki_indirect.py::test_a_scatter_writes_them_and_keeps_the_others",
    ),
}

OLD_LOOPS = ("range", "affine_range", "sequential_range", "static_range")
LOOPS = ("range", "affine_range", "sequential_range", "static_range", "fori_loop")


class Kernel(NamedTuple):
    """A random kernel: `trials` are its inputs, one for each iteration of a loop of kind `loop`."""

    dialect: str
    trials: list[Any]
    loop: str

    @property
    def row(self) -> str:
        first = self.trials[0]
        return first.row.name

    @property
    def form(self) -> tuple:
        """Return what makes it another form than other kernels of the row."""
        t = self.trials[0]
        places = t.places if self.dialect == "beta1" else t.memory
        what = (t.mask.name, t.grid) if self.dialect == "beta1" else tuple(t.view.items())
        return (
            self.dialect,
            self.row,
            what,
            tuple(sorted(places.items())),
            self.loop,
            tuple(a.dtype.name for a in t.arrays.values()),
            tuple(
                sorted(
                    (k, str(v))
                    for k, v in (t.params if self.dialect == "beta1" else t.args).items()
                )
            ),
        )

    def __str__(self) -> str:
        return f"{self.dialect}, {len(self.trials)} x in a {self.loop}: {self.trials[0]}"


def random_kernel(seed: int) -> Kernel:
    """Return the kernel of a seed."""
    rng = np.random.default_rng([7, seed])

    def pick(values: Any) -> Any:
        values = list(values)
        return values[int(rng.integers(len(values)))]

    count, turn = int(rng.integers(1, 4)), int(rng.integers(1 << 20))
    if rng.integers(2):
        row = pick((*NKI_ROWS, *mx.ROWS))
        if row in mx.ROWS:
            trials = [mx.MxTrial(row, np.random.default_rng([8, seed])) for _ in range(count)]
            return Kernel("nki", [_again(t, k) for k, t in enumerate(trials)], pick(LOOPS))
        grid, dtype, sample = pick(row.grids.values()), pick(row.dtypes), pick(row.samples)
        view = pick(v for v in row.views if v != "swapped" or len(grid) > 2)
        return Kernel(
            "nki",
            [_again(NkiTrial(row, sample, grid, dtype, view, turn), k) for k in range(count)],
            pick(LOOPS),
        )
    spec = pick(SPECS)
    dtype, (_rank, grid) = pick(dtypes_of(spec)), pick(spec.grids.items())
    cases = [
        c
        for name in spec.masks
        if (c := masks.of(name, spec.domain(grid) or (1, 1), spec.step, spec.low)) is not None
    ]
    case, sample = pick(cases), pick(s for s in spec.samples if s.fits(dtype))
    trials = [_again(Trial(spec, sample, grid, case, dtype, turn), k) for k in range(count)]
    # what lies in HBM beforehand is made in the kernel, which no loop of the device can
    return Kernel(
        "beta1", trials, "range" if "hbm" in trials[0].places.values() else pick(OLD_LOOPS)
    )


def _again(trial: Any, k: int) -> Any:
    """Return the k-th of several trials that differ in the order of their partitions only."""
    fixed = {"index", "offset", "indices", "segment_ids", "vals"}  # they name others of it
    if not fixed & set(trial.arrays):
        trial.arrays = {
            n: np.ascontiguousarray(np.roll(a, k, axis=0)) for n, a in trial.arrays.items()
        }
    return trial


# -- running -------------------------------------------------------------------------------------


def run(
    kernel: Kernel, change: str = "", meant: Kernel | None = None
) -> tuple[list[dict[str, np.ndarray]], list[Any]]:
    """Run a kernel; return what it wrote, by iteration and operand, and its findings.

    `change`: a mistake in the loop or in the stores; `meant`: the kernel without its mistake.
    """
    meant = meant or kernel
    if kernel.dialect == "beta1":
        body, names, arrays = _old_body(kernel, meant)
        target = kernel.trials[0].spec.target
    else:
        body, names, arrays = _new_body(kernel)
        target = kernel.trials[0].row.target
    got = nkisim.run(_in_loop(meant, body, change), *arrays, target=target)
    outs = got.outputs if isinstance(got.outputs, tuple) else (got.outputs,)
    n = len(kernel.trials)
    return (
        [{name: outs[k][i] for k, name in enumerate(names)} for i in range(n)],
        [f for f in got.findings if f.severity != "note"],
    )


def _old_body(kernel: Kernel, meant: Kernel) -> tuple[Callable, list[str], list[np.ndarray]]:
    """Return what an iteration does with its inputs, the names of what it writes, the inputs."""
    first = kernel.trials[0]
    written = {n: e.value for n, e in meant.trials[0].expected().items()}
    given = [n for n in first.arrays if n not in written] + list(written)
    arrays = [
        np.stack(
            [
                t.arrays.get(
                    n, prefill(written[n].shape, written[n].dtype) if n in written else None
                )
                for t in kernel.trials
            ]
        )
        for n in given
    ]

    def body(inputs: list) -> list:
        count: Counter = Counter()
        tiles = {
            n: check._bring(x, first.places[n], count, n in written)
            for n, x in zip(given, inputs, strict=True)
        }
        kw = {k: check._argument(first, k, v) for k, v in first.params.items()}
        kw.update((n, t) for n, t in tiles.items() if n)
        if first.spec.call is not None:
            kw = first.spec.call(old_nl, kw)
        result = check._issue(first, check._public(first), kw, tiles.get(""))
        if "" in tiles and not first.assigned:
            tiles[""] = result
        return [(tiles[n], first.places[n]) for n in written]

    return body, list(written), arrays


def _new_body(kernel: Kernel) -> tuple[Callable, list[str], list[np.ndarray]]:
    first = kernel.trials[0]
    arrays = [np.stack([t.arrays[n] for t in kernel.trials]) for n in first.used]
    places = {"sbuf": nl.sbuf, "psum": nl.psum, "hbm": nl.hbm}

    def body(inputs: list) -> list:
        tiles = {}
        for n, x in zip(first.used, inputs, strict=True):
            t = tiles[n] = nl.ndarray(x.shape, dtype=x.dtype, buffer=places[first.memory[n]])
            if first.memory[n] == "psum":
                t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=x)
            if first.memory[n] == "psum":
                nisa.tensor_copy(tiles[n], t)
        first.issue(
            {n: viewed(t, first.view[n], first.shape[n]) for n, t in tiles.items()}, Counter()
        )
        return [(tiles[n], first.memory[n]) for n in first.written]

    return body, first.written, arrays


def _in_loop(kernel: Kernel, body: Callable, change: str) -> Any:
    """Return the kernel: the body in a loop; each iteration takes and stores its part."""
    n, is_old = len(kernel.trials), kernel.dialect == "beta1"
    lang: Any = old_nl if is_old else nl

    def part(x: Any, i: Any) -> Any:
        """Return x[i]; a loop of the device counts in a register, which chooses by select."""
        return x.select(0, i) if kernel.loop == "fori_loop" else x[i]

    def iteration(i: Any, inputs: tuple, outs: list) -> None:
        at = n - 1 - i if change == "wrong loop variable" else i
        wrote = body([part(x, at) for x in inputs])
        for k, (tile, place) in enumerate(wrote):
            if change == "dropped store" and k == len(wrote) - 1:
                continue
            if place == "psum":
                copied = lang.ndarray(tile.shape, dtype=tile.dtype, buffer=lang.sbuf)
                if is_old:
                    copied[...] = check.nisa.tensor_copy(tile)
                else:
                    nisa.tensor_copy(copied, tile)
                tile = copied
            if is_old and place != "hbm":
                old_nl.store(part(outs[k], i), tile)
            elif is_old:
                check.nisa.dma_copy(dst=part(outs[k], i), src=tile)
            else:
                nisa.dma_copy(dst=part(outs[k], i), src=tile)

    def function(*inputs: Any) -> tuple:
        outs: list = []
        shapes = _shapes(kernel)
        for shape, dtype in shapes:
            outs.append(lang.ndarray((n, *shape), dtype=dtype, buffer=lang.shared_hbm))
        if kernel.loop == "fori_loop":
            nl.fori_loop(0, n, lambda i: iteration(i, inputs, outs))
            return tuple(outs)
        loop = range(n) if kernel.loop == "range" else getattr(lang, kernel.loop)(n)
        for i in loop:
            iteration(i, inputs, outs)
        return tuple(outs)

    return (old if is_old else nki).jit(function)


def _shapes(kernel: Kernel) -> list[tuple[tuple[int, ...], Any]]:
    first = kernel.trials[0]
    if kernel.dialect == "beta1":
        return [(e.value.shape, e.value.dtype) for e in first.expected().values()]
    return [(first.arrays[n].shape, getattr(nl, first.arrays[n].dtype.name)) for n in first.written]


# -- comparing -----------------------------------------------------------------------------------


def wrong(kernel: Kernel, change: str = "", meant: Kernel | None = None) -> str:
    """Run a kernel; return what is not as the oracle says, or nothing.

    `meant`: the kernel without its mistake, whose values are expected.
    """
    meant = meant or kernel
    try:
        wrote, findings = run(kernel, change, meant)
    except NkiError as exc:
        if meant is kernel and not change and not documented(kernel):
            return ""  # what is not documented may be refused
        return f"{exc.id}: {str(exc)[:300]}"
    except IndexError as exc:
        return f"IndexError: {exc}"
    said = [f.id for f in findings] if meant is not kernel or change else []
    for i, (trial, got) in enumerate(zip(meant.trials, wrote, strict=True)):
        said += [
            f"iteration {i}: {text}"
            for text in (
                _old_differences(trial, got)
                if kernel.dialect == "beta1"
                else _new_differences(trial, got)
            )
        ]
    return "\n".join(said)


def _old_differences(trial: Trial, got: dict[str, np.ndarray]) -> Iterator[str]:
    for name, want in trial.expected().items():
        before = trial.arrays.get(name, prefill(want.value.shape, want.value.dtype))
        if not trial.assigned:  # a new tile: elsewhere it holds nothing
            known = np.ones(want.value.shape, bool) if want.known is None else want.known
            want = copy.copy(want)
            want.known = known & want.written
        yield from check._values(name or "the result", got[name], want, before, trial.assigned)


def _new_differences(trial: NkiTrial, got: dict[str, np.ndarray]) -> Iterator[str]:
    for name, want in trial.expected().items():
        x, y = got[name].astype(np.float64), want.astype(np.float64)
        margin: Any = 0.0
        if is_float(want.dtype):
            eps = float(ml_dtypes.finfo(want.dtype).eps)
            size = max(1.0, float(np.abs(y[np.abs(y) < 1e30]).max(initial=0)))
            margin = np.abs(y) * max(trial.row.rtol, eps) + trial.row.rtol * size
        with np.errstate(invalid="ignore"):
            same = (np.abs(x - y) <= margin) | (x == y) | (np.isnan(x) & np.isnan(y))
        if want.dtype in (E4M3, E5M2):
            same |= ~np.isfinite(y)
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            yield f"{name}: {int((~same).sum())} of {x.size}, first {at}: {x[at]} for {y[at]}"


# -- mistakes ------------------------------------------------------------------------------------

OTHER = {
    "add": "subtract",
    "subtract": "add",
    "multiply": "add",
    "maximum": "minimum",
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "exp": "square",
    "square": "exp",
    "relu": "abs",
    "copy": "square",
    "tanh": "exp",
    "abs": "relu",
    "less": "greater",
    "greater": "less",
    "equal": "not_equal",
    "bitwise_and": "bitwise_or",
    "bitwise_or": "bitwise_and",
    "greater_equal": "less_equal",
    "less_equal": "greater_equal",
    "left_shift": "right_shift",
}


def mutants(kernel: Kernel) -> Iterator[tuple[str, Kernel, str]]:
    """Yield (mistake, the kernel with it, the change of loop or stores)."""
    if len(kernel.trials) > 1:
        yield "wrong loop variable", kernel, "wrong loop variable"
    yield "dropped store", kernel, "dropped store"
    old_one = kernel.dialect == "beta1"
    for what, change in (
        ("wrong op", _other_op),
        ("operands swapped", _swapped),
        ("slice off by one", _shifted),
        ("wrong dtype", _other_dtype),
        ("dropped mask", _unmasked if old_one else None),
        ("wrong scale", mx.other_scale),
        ("wrong rows of scales", mx.other_rows),
        ("wrong packed dtype", mx.other_packing),
    ):
        if change is None:
            continue
        trials = copy.deepcopy(kernel.trials)
        if all([change(t) for t in trials]):
            yield what, kernel._replace(trials=trials), ""


def _other_op(trial: Any) -> bool:
    params = trial.params if isinstance(trial, Trial) else trial.args
    for k in ("op", "op0", "cmp_op", "comp_op0"):
        if params.get(k) in OTHER:
            params[k] = OTHER[params[k]]
            return True
    return False


def _reads(trial: Any) -> list[str]:
    written = (
        {o.name for o in trial.operands if o.role != "read"}
        if isinstance(trial, Trial)
        else set(trial.written)
    )
    return [n for n in trial.arrays if n not in written]


def _swapped(trial: Any) -> bool:
    names, arrays = _reads(trial), trial.arrays
    for a in names:
        for b in names:
            if a < b and arrays[a].shape == arrays[b].shape and arrays[a].dtype == arrays[b].dtype:
                arrays[a], arrays[b] = arrays[b], arrays[a]
                return True
    return False


def _shifted(trial: Any) -> bool:
    """Read one element to the side of where the operand is."""
    for n in _reads(trial):
        if (
            trial.arrays[n].ndim > 1
            and trial.arrays[n].shape[-1] > 1
            and n not in ("index", "offset", "indices", "segment_ids", "predicate")
        ):
            trial.arrays[n] = np.ascontiguousarray(np.roll(trial.arrays[n], 1, axis=-1))
            return True
    return False


def _other_dtype(trial: Any) -> bool:
    for n in _reads(trial):
        if trial.arrays[n].dtype == np.float32:
            trial.arrays[n] = trial.arrays[n].astype(ml_dtypes.float8_e5m2)
            return True
    return False


def _unmasked(trial: Trial) -> bool:
    if trial.mask.name == "none" or trial.selected.all():
        return False
    trial.mask = masks.Case("none")
    trial.selected = np.ones_like(trial.selected)
    return True


def means_the_same(kernel: Kernel, other: Kernel) -> bool:
    """Return whether the oracle gives the same values for a kernel with a mistake, wherever values
    are compared at all."""
    for a, b in zip(kernel.trials, other.trials, strict=True):
        try:
            x, y = a.expected(), b.expected()
        except Exception:  # the oracle has no words for it
            return False
        for n in x:
            (p, known, written), (q, _, other_written) = _parts(x[n]), _parts(y[n])
            if p.shape != q.shape or ((written != other_written) & known).any():
                return False
            looked_at = written & known
            if not np.allclose(
                np.where(looked_at, p.astype(float), 0),
                np.where(looked_at, q.astype(float), 0),
                rtol=1e-2,
                atol=1e-2 if is_float(p.dtype) else 1.0,
                equal_nan=True,
            ):
                return False
    return True


def _parts(expected: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values, which of them the documents say, and which are written."""
    values = expected if isinstance(expected, np.ndarray) else expected.value
    known = getattr(expected, "known", None)
    known = np.ones(values.shape, bool) if known is None else known
    if values.dtype in (E4M3, E5M2):  # overflow of 8-bit floats is not documented
        known = known & np.isfinite(values.astype(np.float32))
    return values, known, getattr(expected, "written", np.ones(values.shape, bool))


def documented(kernel: Kernel) -> bool:
    """Return whether the documents say what any element of the results is."""
    return kernel.dialect == "nki" or any(
        e.known is None or bool((e.known & e.written).any())
        for t in kernel.trials
        for e in t.expected().values()
    )


class Counts:
    """What a number of seeds gave."""

    def __init__(self) -> None:
        self.kernels = self.silent = 0
        self.forms: set[tuple] = set()
        self.rows: Counter = Counter()
        self.wrong: list[str] = []
        self.made: Counter = Counter()
        self.caught: Counter = Counter()
        self.same: Counter = Counter()
        self.survived: list[str] = []

    def add(self, seed: int, mistakes: bool = True) -> None:
        """Try the kernel of a seed, and those with one mistake."""
        kernel = random_kernel(seed)
        self.kernels += 1
        self.forms.add(kernel.form)
        self.rows[kernel.row] += 1
        if said := wrong(kernel):
            self.wrong.append(f"seed {seed}: {kernel}\n  {said}")
            return
        if not documented(kernel):
            self.silent += 1
            return
        for what, other, change in mutants(kernel) if mistakes else ():
            self.made[what] += 1
            if wrong(other, change, kernel):
                self.caught[what] += 1
            elif change == "wrong loop variable" or not change and means_the_same(kernel, other):
                self.same[what] += 1  # iterations, or operands, that are alike
            else:
                self.survived.append(f"seed {seed}: {what}: {kernel}")

    def __str__(self) -> str:
        lines = [
            f"{self.kernels:,} kernels of {len(self.rows)} rows, {len(self.forms):,} forms; "
            f"{len(self.wrong)} differ from the oracle; of {self.silent} the documents say "
            "nothing"
        ]
        for what in sorted(self.made):
            lines.append(
                f"  {what}: {self.caught[what]:,} of {self.made[what]:,} caught, "
                f"{self.same[what]:,} mean the same"
            )
        return "\n".join((*lines, *self.wrong, *self.survived))


def rows_without_kernels() -> set[str]:
    """Return the rows of the table that no kernels are made of."""
    return set(ROWS) - {s.row for s in SPECS} - {r.name for r in NKI_ROWS} - set(mx.ROWS)


def main() -> int:
    """Try many kernels; return 1 if one is wrong, or a mistake was not caught."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000, help="how many kernels")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    args = parser.parse_args()
    counts = Counts()
    for seed in range(args.first, args.first + args.seeds):
        counts.add(seed)
    print(counts)
    return bool(counts.wrong or counts.survived)


if __name__ == "__main__":
    sys.exit(main())
