"""Every public name of the SDK's `neuronxcc.nki`, and what the simulator makes of it.

The names are those of language/beta1/names.py. What a function lowers to is not written down
anywhere: it is called in a kernel, and the trace tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..chip import ops
from ..instruction_table import declared
from ..isa.cheaper import Cheaper
from ..isa.table import ROWS
from ..language import beta1 as facade
from ..language.beta1 import compiler, isa, language
from ..language.beta1.missing import NOT_MODELLED
from ..language.beta1.names import NAMES
from ..simulation.launch import launch
from . import coverage_nki, document, verdicts_page

nl, nisa, ncc = language, isa, compiler

TITLES = {
    "nki": "`neuronxcc.nki`",
    "nl": "`neuronxcc.nki.language` (nl)",
    "nisa": "`neuronxcc.nki.isa` (nisa)",
    "ncc": "`neuronxcc.nki.compiler` (ncc)",
}
MODULES = {"nki": facade, "nl": language, "nisa": isa, "ncc": compiler}

# Names that are taken and change nothing, or less than in the SDK; with the reason.
ACCEPTED = {
    "nki.profile": "counts instructions and writes placeholders for its files",
    "ncc.enable_stack_allocator": "placement by the compiler is not modelled",
    "ncc.force_auto_alloc": "direct allocations are kept",
    "ncc.multi_buffer": "the kernel's own buffers are kept",
    "ncc.no_reorder": "the simulator never reorders",
}

MODELLED, TAKEN, MISSING = "modelled", "accepted but not modelled", "missing"


#: Instructions of the table by public name ("nisa.activation").
PUBLIC = {row.public: row for row in ROWS.values() if row.public}


def names() -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each public name of the SDK, and of rows that are newer than it."""
    for module, text in NAMES.items():
        listed = text.split()
        newer = (p.partition(".")[2] for p in PUBLIC if p.startswith(f"{module}."))
        for name in dict.fromkeys((*listed, *newer)):
            yield module, name


def status(module: str, name: str) -> tuple[str, str]:
    """Return what the simulator makes of a name, and a remark."""
    if f"{module}.{name}" in ACCEPTED:
        return TAKEN, ACCEPTED[f"{module}.{name}"]
    if name in NOT_MODELLED[module] or not hasattr(MODULES[module], name):
        return MISSING, NOT_MODELLED[module].get(name, "")
    return MODELLED, ""


# -- what a function lowers to -------------------------------------------------------------------


class _Tiles:
    """Operands for a probe."""

    def __init__(self, x: Any):
        self.x = x  # HBM (32, 32) float32
        self.t = nl.load(x)
        self.other = nl.load(x)
        self.row = nl.load(x[0:1])
        self.v = self.t[:, 0:1]
        self.i32 = nl.zeros((32, 32), np.int32)
        self.out = nl.ndarray((32, 32), np.float32, buffer=nl.private_hbm)
        self.idx = nl.zeros((32, 1), np.int32)
        self.p, self.f = nl.mgrid[0:32, 0:32]
        rows = nl.arange(32)[:, None]
        self.at = self.t[rows, self.idx[0:1] + nl.arange(8)[None, :]]  # a run-time offset


_UNARY, _BINARY = ops.elementwise(NAMES["nl"])
_BITS = {name for name, op in ops.ALU.items() if op.kind == "bitvec"}  # of integers
_REDUCE = "all max mean min prod softmax sum var".split()


def _call(name: str, *operands: str, **kwargs: Any) -> Callable[[_Tiles], Any]:
    return lambda o: getattr(nl, name)(*(getattr(o, x) for x in operands), **kwargs)


PROBES: dict[str, Callable[[_Tiles], Any]] = {
    **{f"nl.{n}": _call(n, "i32" if n in _BITS else "t") for n in (*_UNARY, "transpose")},
    **{f"nl.{n}": _call(n, *2 * ["i32" if n in _BITS else "t"]) for n in (*_BINARY, "matmul")},
    **{f"nl.{n}": _call(n, "t", axis=1) for n in _REDUCE},
    "nl.zeros": lambda o: nl.zeros((32, 32), np.float32),
    "nl.zeros_like": lambda o: nl.zeros_like(o.t),
    "nl.ones": lambda o: nl.ones((32, 32), np.float32),
    "nl.full": lambda o: nl.full((32, 32), 2, np.float32),
    "nl.rand": lambda o: nl.rand((32, 32)),
    "nl.random_seed": lambda o: nl.random_seed(1),
    "nl.broadcast_to": lambda o: nl.broadcast_to(o.row, shape=(32, 32)),
    "nl.static_cast": lambda o: nl.static_cast(o.t, np.float16),
    "nl.dropout": lambda o: nl.dropout(o.t, 0.5),
    "nl.rms_norm": lambda o: nl.rms_norm(o.t, o.t, 1, 32),
    "nl.where": lambda o: nl.where(o.i32, o.t, o.t),
    "nisa.nc_transpose": lambda o: nisa.nc_transpose(o.t),
}


def lowering(symbol: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return [(instruction, engines that can run it)] of a plain call of a function."""
    if symbol in PUBLIC:
        return [(PUBLIC[symbol].name, PUBLIC[symbol].engines)]
    probe = PROBES.get(symbol)
    if probe is None:
        return []
    at: list[int] = []

    def kernel(x: Any) -> Any:
        operands = _Tiles(x)
        m = x.m
        nl.store(operands.out, operands.t)
        at.append(len(m.trace))
        probe(operands)
        m.flush()
        at.append(len(m.trace))
        return operands.out

    run = launch(kernel, (np.zeros((32, 32), np.float32),), {}, target="trn2")
    rows = [kind.row for kind, *_ in run.trace]
    return [(row.name, row.engines) for row in dict.fromkeys(rows[at[0] : at[1]])]


# -- the page -------------------------------------------------------------------------------------


def markdown() -> str:
    """Return the page of what is modelled."""
    counts = {MODELLED: 0, TAKEN: 0, MISSING: 0}
    parts: list[str] = []
    for module, title in TITLES.items():
        parts += [f"\n## {title}\n", "| name | status | instructions (engines) |", "|---|---|---|"]
        for name in sorted((n for m, n in names() if m == module), key=str.lower):
            state, remark = status(module, name)
            counts[state] += 1
            steps = ", ".join(
                f"`{row}` ({', '.join(engines)})" for row, engines in lowering(f"{module}.{name}")
            )
            parts.append(f"| `{module}.{name}` | {state} | {steps or remark or '-'} |")
    parts += [
        "\n## Instructions\n",
        "The table that the simulator is made of: a row per "
        "instruction. P is the number of partitions; unless it is said otherwise, an operand "
        "may lie in SBUF or PSUM and be of any dtype. Tiles that are *like* another have as "
        "many partitions and as many elements per partition, taken in order; free dims of "
        "size 1 repeat.\n",
        "| instruction | operands | mask | engines | source |",
        "|---|---|---|---|---|",
    ]
    parts += [
        f"| `{row.name}` | {'; '.join(map(str, row.documented)) or '-'} | {row.masking} | "
        f"{', '.join(row.engines)} | {row.source} |"
        for _, row in sorted(ROWS.items())
    ]
    parts += _cheaper()
    parts += coverage_nki.markdown()
    total = sum(counts.values())
    head = [
        "# What nkisim models\n",
        "Printed by `python -m nkisim coverage`.\n",
        f"Of the {total} public names of NKI beta 1 (Neuron SDK 2.26) "
        + ", ".join(f"{n} are {state}" for state, n in counts.items())
        + ".",
        "*Instructions* are what a plain call on float32 tiles issues on trn2; other operands "
        "may take others.\nThe first engine is the one that runs it unless `engine=` or the "
        "operands ask for another.",
    ]
    return "\n".join([*head, *parts]) + "\n"


def _cheaper() -> list[str]:
    """Return the lines of the table of what makes instructions cheaper."""
    rows: dict[Cheaper, list[str]] = {}
    for name, row in sorted(ROWS.items()):
        for reason in row.cheaper:
            rows.setdefault(reason, []).append(name)
    lines = [
        "\n## Forms that cost less\n",
        "Each reason for which an instruction takes fewer "
        "cycles than on float32 tiles that are contiguous in SBUF. Where the rule is *the "
        "operands*, the cost formula looks at what they are; else the rule refuses a kernel "
        "that only claims it. Every other form has the plain price, which a test holds all "
        "rows to.\n",
        "| instructions | by | when it may | rule | source |",
        "|---|---|---|---|---|",
    ]
    for reason, names in sorted(rows.items(), key=lambda item: item[1]):
        by = f"{reason.by} ({', '.join(reason.dtypes)})" if reason.dtypes else reason.by
        lines.append(
            f"| {', '.join(f'`{name}`' for name in names)} | {by} | {reason.when} | "
            f"{reason.rule or 'the operands'} | {reason.source} |"
        )
    return lines


def parser() -> document.Parser:
    """Return the parser of the command."""
    parser = document.Parser("coverage", description=command.__doc__)
    parser.add_argument(
        "--releases",
        action="store_true",
        help="what does not build, by release of the package nki, instead",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the table of instructions instead, for other tools",
    )
    return parser


def command(argv: list[str]) -> int:
    """Print what is modelled of the SDK's names, as Markdown."""
    options = parser().parse_args(argv)
    if options.json:
        document.print_json(document.document("coverage", 0, rows=declared()))
        return 0
    print(verdicts_page.markdown() if options.releases else markdown(), end="")
    return 0
