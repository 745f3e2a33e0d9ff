"""Public attention kernels on the shapes of labs/attention: values, and predicted times.

    python tools/benchmarks/public_attention.py --sources DIR [--only TEXT] [--target trn2]
        [--write]

DIR is a folder of checkouts, OWNER+NAME, as for `nox -s conformance`; what is not there is left
out. Each kernel gets the inputs of a case of the lab in the layout that it asks for, and its
output is held against the lab's reference: the worst error is in units of the case's tolerance.
A layout that the lab's kernel has to make itself (keys that are turned already) is said.
`--write` puts the table into docs/tuning.md. Everything is predicted, nothing is measured.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from kernels_vs_floor import LABS, markdown, put, show

import nkisim
from labkit import make_inputs
from labkit.load import load_lab, load_module
from labkit.spec import Case
from labkit.tolerance import tolerance

LAB = load_lab(LABS / "attention")
SPEC = load_module(LAB.folder / "spec.py", "spec_of_attention")
OURS = load_module(LAB.kernels, "kernels_of_attention")
REFERENCE = load_module(LAB.folder / "reference.py", "reference_of_attention")
#: cases without a mask: of the sizes of the contest, for kernels that have none
PLAIN = tuple(SPEC.plain_case(n, n, 128, "bfloat16") for n in (1024, 2048))
CONTEST = LAB.fleet("contest", "trn2")
GROUPED = tuple(c for c in CONTEST if c.kernel == "grouped")
ONE_GROUP = tuple(c for c in GROUPED if c.inputs[1].shape[0] == 1)
DECODE = tuple(c for c in CONTEST if c.kernel == "decode")
HEAD = ("kernel", "case", "values", "predicted", "ours", "of ours", "what differs")


@dataclass(frozen=True)
class Call:
    """A kernel, what it is called with, and how its output becomes that of the lab's kernel."""

    kernel: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    output: Callable[[Any], np.ndarray] = np.asarray


@dataclass(frozen=True)
class Public:
    """A public kernel: where it is, the cases that it can do, and how it is called."""

    name: str
    repository: str
    file: str
    cases: tuple[Case, ...]
    call: Callable[[ModuleType, list[np.ndarray]], Call]
    differs: str
    path: str = "."  # what its imports need, in the checkout
    newer: bool = True  # import nki; else neuronxcc.nki


def scaled(q: np.ndarray) -> np.ndarray:
    """Return queries with the scale in them: for kernels that have none."""
    return (q.astype(np.float32) * q.shape[-1] ** -0.5).astype(q.dtype)


def turned(x: np.ndarray) -> np.ndarray:
    """Return a tensor whose last two dimensions are exchanged."""
    return np.ascontiguousarray(x.swapaxes(-1, -2))


def of_sample(version: str) -> Callable[[ModuleType, list[np.ndarray]], Call]:
    """Return how a kernel of the tutorial is called: q, k and v are [d, n]."""

    def call(module: ModuleType, inputs: list[np.ndarray]) -> Call:
        q, k, v = inputs
        return Call(getattr(module, version), (turned(scaled(q)), turned(k), turned(v)))

    return call


def flash_fwd(module: ModuleType, inputs: list[np.ndarray]) -> Call:
    """Call nki-samples' flash attention: q and k [1, heads, d, n], v [1, heads, n, d]."""
    q, k, v = inputs
    config = module.FlashConfig(training=False, seq_tile_size=min(2048, q.shape[1]))
    kernel = module.flash_fwd[1, len(k)]
    return Call(
        kernel,
        (turned(q)[None], turned(k)[None], v[None], None),
        {"config": config},
        lambda out: out[0],
    )


def cte(module: ModuleType, inputs: list[np.ndarray]) -> Call:
    """Call nki-library's attention for prompts: all layouts are the lab's."""
    q, k, v = inputs
    return Call(module.attention_cte, (q, k, v), {"scale": float(q.shape[2] ** -0.5), "tp_k": True})


def tkg(module: ModuleType, inputs: list[np.ndarray]) -> Call:
    """Call nki-library's attention for a new token: a group of heads is a sequence of its batch.

    It takes queries and keys that are in SBUF, turned; the kernel around it loads them.
    """
    import nki
    import nki.isa as nisa
    import nki.language as nl

    q, k, v, k_cache, v_cache, length = inputs
    (groups, capacity, d), heads = k_cache.shape, len(q)
    each = heads // groups
    allocator = sys.modules[module.SbufManager.__module__]
    settings = module.AttnTKGConfig(
        groups, each, 1, capacity, capacity, d, 0,
        tp_k_prior=True, use_pos_id=True, qk_in_sb=True,
    )  # fmt: skip

    @nki.jit
    def token(q, k, v, k_cache, v_cache, mask, positions):  # type: ignore[no-untyped-def]
        out = nl.ndarray((groups, each, d, 1), dtype=q.dtype, buffer=nl.shared_hbm)
        room = nl.tile_size.total_available_sbuf_size - 16 * 1024
        manager = allocator.SbufManager(0, room, allocator.Logger("token"))
        manager.open_scope()
        there = []
        for tensor in (q, k):
            there.append(manager.alloc_stack(tensor.shape, dtype=tensor.dtype, buffer=nl.sbuf))
            nisa.dma_copy(dst=there[-1], src=tensor)
        module.attention_tkg(
            *there, v, k_cache, v_cache, mask, out, settings, manager, None, positions
        )
        manager.close_scope()
        return out

    return Call(
        token,
        (
            turned(scaled(q)), turned(k), v[:, None, None], k_cache[:, None], v_cache[:, None],
            np.ones((1, groups, each, 1), np.uint8),
            np.full((groups, 1), length[0, 0], np.float32),
        ),
        output=lambda out: np.asarray(out).reshape(heads, d),
    )  # fmt: skip


def autocomp4(module: ModuleType, inputs: list[np.ndarray]) -> Call:
    """Call autocomp's task 4: q, k and v are [d, n]."""
    q, k, v = inputs
    return Call(module.solution, (turned(scaled(q)), turned(k), turned(v)))


def autocomp8(module: ModuleType, inputs: list[np.ndarray]) -> Call:
    """Call autocomp's task 8: keys are turned, the mask is an input; it has no groups."""
    q, k, v = inputs
    heads, n, d = q.shape
    k, v = (np.repeat(x, heads // len(x), axis=0) for x in (k, v))
    return Call(
        module.solution,
        (scaled(q), turned(k), v, np.tril(np.ones((n, n), np.float32)), q.dtype, np.float32),
        {"num_heads": heads, "seq_len": n, "d_head": d},
        lambda out: out[0].astype(np.float32) / np.exp(out[1] - out[2]),  # by the sums of rows
    )


_SAMPLES, _TUTORIAL = "aws-neuron/nki-samples", "src/nki_samples/tutorials/"
_LIBRARY, _CORE = "aws-neuron/nki-library", "src/nkilib_src/nkilib/core/attention/"
_TURNED = "q and k come turned; no mask"
PUBLIC = (
    *(
        Public(
            f"nki-samples {version}", _SAMPLES,
            f"{_TUTORIAL}attention_fwd_performance/attention_kernels.py", PLAIN,
            of_sample(version), "q, k and v come turned; no mask", newer=False,
        )
        for version in ("attn_fwd_v3", "attn_fwd_v5", "attn_fwd_v7", "attn_fwd_v8", "attn_fwd_v8a",
                        "attn_fwd_v9", "attn_fwd_v11")
    ),
    Public("nki-samples flash_fwd", _SAMPLES, "src/nki_samples/reference/attention.py", ONE_GROUP,
           flash_fwd, "q and k come turned", newer=False),
    Public("nki-library attention_cte", _LIBRARY, f"{_CORE}attention_cte.py", GROUPED, cte, "",
           path="src"),
    Public("nki-library attention_tkg", _LIBRARY, f"{_CORE}attention_tkg.py", DECODE, tkg,
           "does not write the caches", path="src"),
    Public("autocomp 4", "ucb-bar/autocomp", "sols/trn-tutorial-nki2/4_attention_ref.py", PLAIN,
           autocomp4, "q, k and v come turned; no mask"),
    Public("autocomp 8", "ucb-bar/autocomp", "sols/trn-advanced-nki2/8_mha_ref.py", ONE_GROUP,
           autocomp8, "k comes turned, the mask from HBM; does not divide"),
)  # fmt: skip


def load(public: Public, checkout: Path) -> ModuleType:
    """Return the module of a public kernel; files that a harness completes get its imports."""
    file = checkout / public.file
    sys.path.insert(0, str(checkout / public.path))
    if "import nki" in (text := file.read_text("utf-8")) or not public.newer:
        if public.path != ".":
            return importlib.import_module(public.file.removeprefix("src/")[:-3].replace("/", "."))
        return load_module(file, f"public_{file.stem}")
    head = "import nki, math\nimport nki.isa as nisa\nimport nki.language as nl\n"
    place = str(file.with_suffix(".whole.py"))
    whole = f"{head}import numpy as np\n{text}"
    nkisim.register_source(place, whole)
    module = ModuleType(f"public_{file.stem}")
    sys.modules[module.__name__] = module
    exec(compile(whole, place, "exec"), module.__dict__)
    return module


def first(outputs: Any) -> Any:
    """Return the first output of a kernel."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


def worst(case: Case, given: np.ndarray) -> float:
    """Return the largest error of an output of a case, in units of its tolerance."""
    inputs = make_inputs(case, LAB.seed)
    right = first(getattr(REFERENCE, case.reference)(*inputs))
    limit = tolerance(inputs[0].dtype, case.accumulate, right, case.roundings, case.functions)
    off = np.abs(np.asarray(given, np.float64).reshape(right.shape) - right)
    return float((off / (limit.atol + limit.rtol * np.abs(right))).max())


def row(public: Public, module: ModuleType, case: Case, target: str) -> tuple[str, ...]:
    """Return a row of the table; where a kernel cannot do a case, why."""
    how: dict[str, Any] = {"target": target, "compute": False, "descriptors": "static"}
    ours = nkisim.profile(
        getattr(OURS, case.kernel), *make_inputs(case, LAB.seed), **how
    ).latency_us
    name = case.name.removesuffix("_bfloat16")
    try:
        call = public.call(module, make_inputs(case, LAB.seed))
        out = nkisim.run(call.kernel, *call.args, target=target, **call.kwargs).outputs
        off = worst(case, call.output(out))
        values = "right" if off <= 1 else f"{off:.2f} times the tolerance"
        call = public.call(module, make_inputs(case, LAB.seed))
        theirs = nkisim.profile(call.kernel, *call.args, **how, **call.kwargs).latency_us
    except Exception as error:  # other people's code: it can fail in any way
        said = f"{type(error).__name__}: {str(error).splitlines()[0]}"[:70]
        return public.name, name, "cannot", "", f"{ours:,.0f}", "", said
    return (public.name, name, values, f"{theirs:,.0f}", f"{ours:,.0f}", f"{theirs / ours:.2f}",
            public.differs)  # fmt: skip


def rows(sources: Path, only: str, target: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of all kernels whose name has `only` in it."""
    for public in PUBLIC:
        checkout = sources / public.repository.replace("/", "+")
        if only in public.name and checkout.is_dir():
            try:
                module = load(public, checkout)
            except Exception as error:  # their imports
                print(f"{public.name}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            for case in public.cases:
                print(public.name, case.name, file=sys.stderr, flush=True)
                yield row(public, module, case, target)


def commits(sources: Path) -> str:
    """Return which commit of each repository is there, with its date."""
    found = []
    for repository in dict.fromkeys(p.repository for p in PUBLIC):
        checkout = sources / repository.replace("/", "+")
        if checkout.is_dir():
            said = subprocess.run(
                ["git", "-C", str(checkout), "log", "-1", "--format=%h of %cs"],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            found.append(f"{repository} {said.stdout.strip()}")
    return ", ".join(found)


def main() -> int:
    """Print the table; return 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sources", type=Path, required=True, help="checkouts, OWNER+NAME")
    parser.add_argument("--only", default="", help="only kernels whose name contains this")
    parser.add_argument("--target", choices=("trn2", "trn3"), default="trn2")
    parser.add_argument("--write", action="store_true", help="put the table into docs/tuning.md")
    options = parser.parse_args()
    if not options.sources.is_dir():
        parser.error(f"--sources {options.sources}: there is no such folder")
    found = list(rows(options.sources, options.only, options.target))
    show(f"Predicted by nkisim for {options.target}; nothing is measured. In us", HEAD, found)
    print(commits(options.sources))
    if options.write:
        text = f"{options.target}, predicted; {commits(options.sources)}:\n\n"
        put("attention", text + markdown(HEAD, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
