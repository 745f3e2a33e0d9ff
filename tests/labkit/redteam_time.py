"""Submissions that go for time: attacks on what a kernel is charged, each with an honest twin.

An attack is the body of a kernel, for a task that can be judged: inputs, and a reference in NumPy.
Its twin does the same work as it is meant to be done. `lab` makes a lab of them, one case for each
kernel, which the real judge grades. An attack is held to one of two ends: it fails with the words
`says`, or it is right and predicted to be no faster than its twin.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from labkit.grade.run import one_judge

FASTER = 0.001  # share of the honest time: rounding of a verdict, no gain


class Task(NamedTuple):
    """What kernels compute: parameters, the shape and dtype of the output, the reference.

    `inputs`: arguments of `Tensor`; `more`: keywords of `Case`.
    """

    inputs: str
    out: str
    reference: str
    more: str = ""


_WIDE = "Tensor((128, 2048)), "
_HALF = "Tensor((128, 2048), 'bfloat16'), "
TASKS: dict[str, Task] = {
    "copy": Task(_WIDE, "x.shape", "x", "accumulate=0"),
    "copy16": Task(_HALF, "x.shape", "x", "accumulate=0"),
    "add": Task(2 * _WIDE, "x.shape", "x + y"),
    "add16": Task(2 * _HALF, "x.shape", "x.astype(np.float64) + y.astype(np.float64)"),
    "thrice": Task(_WIDE, "x.shape", "3 * x"),
    "combine": Task(2 * _WIDE, "x.shape", "(x - 2) * y", "roundings=2"),
    "negate": Task(_WIDE, "x.shape", "-x"),
    "zeros": Task(_WIDE, "x.shape", "np.zeros_like(x)", "accumulate=0"),
    "turn": Task("Tensor((128, 128)), ", "x.shape", "x.T", "accumulate=0"),
    "turn16": Task("Tensor((128, 128), 'bfloat16'), ", "x.shape", "x.T", "accumulate=0"),
    "swap": Task("Tensor((512, 512)), ", "(512, 512)", "x.T", "accumulate=0"),
    "product": Task(
        "Tensor((128, 128)), Tensor((128, 512)), ",
        "y.shape",
        "x.T.astype(np.float64) @ y.astype(np.float64)",
        "accumulate=128, functions=('matmul',)",
    ),
    "total": Task(
        _WIDE, "(128, 1)", "x.sum(1, keepdims=True, dtype=np.float64)", "accumulate=2048"
    ),
    "most": Task(_WIDE, "(128, 1)", "x.max(1, keepdims=True)", "accumulate=0"),
    "across": Task(
        "Tensor((128, 512)), ",
        "(1, 512)",
        "x.sum(0, keepdims=True, dtype=np.float64)",
        "accumulate=128",
    ),
    "spread": Task("Tensor((1, 512)), ", "(128, 512)", "np.repeat(x, 128, 0)", "accumulate=0"),
    "later": Task("Tensor((128, 512)), ", "x.shape", "x.astype(np.float64) + 64", "roundings=64"),
    "sums": Task(
        "Tensor((1024, 512)), ",
        "(128, 512)",
        "x.reshape(8, 128, 512).sum(0, dtype=np.float64)",
        "accumulate=8",
    ),
}


class Attack(NamedTuple):
    """A kernel that asks for time that it has not earned.

    `tries`: what it tries, in words. `body`: of the kernel; `out` is there. `honest`: the body of
    its twin, "" for that of the task. `says`: what the verdict says if it fails; "" if it is right,
    and as slow as its twin. `forms`: the cheaper forms that it goes for, (row, by what). `above`:
    text of the file above the kernel; `below`: what follows it. `hole`: a number of those that a
    review found.
    """

    dialect: str
    task: str
    tries: str
    body: str
    honest: str = ""
    says: str = ""
    forms: tuple[tuple[str, str], ...] = ()
    target: str = "trn2"
    above: str = ""
    below: str = ""
    hole: int = 0


_HEAD = {
    "beta1": """
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


def tile(shape, dtype, buffer=nl.sbuf):
    return nl.ndarray((nl.par_dim(shape[0]), *shape[1:]), dtype=dtype, buffer=buffer)
""",
    "nki": """
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def tile(shape, dtype, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def load(x):
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    return t
""",
}


def kernel(name: str, task: str, body: str, above: str = "", below: str = "") -> str:
    """Return the text of a kernel for a task."""
    inputs = ", ".join("xyz"[: TASKS[task].inputs.count("Tensor")])
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    made = f"    out = nl.ndarray({TASKS[task].out}, dtype=x.dtype, buffer=nl.shared_hbm)"
    if "return" not in body:
        lines += "\n    return out"
    return f"{above}\n\n@nki.jit\ndef {name}({inputs}):\n{made}\n{lines}\n{below}\n".replace(
        "KERNEL", name
    )


def file_of(dialect: str, kernels: Iterable[str]) -> str:
    """Return the text of a submission."""
    return "from __future__ import annotations\n" + _HEAD[dialect] + "\n".join(kernels)


def lab(folder: Path, dialect: str, cases: Iterable[tuple[str, str, str]]) -> Path:
    """Write a lab with a case for each (kernel, task, target); return its folder."""
    lab = folder / "redteam"
    (lab / "hidden").mkdir(parents=True)
    made, cases = [], list(cases)
    for name, task, target in cases:
        made.append(
            f"    Case({name!r}, {name!r}, {task!r}, ({TASKS[task].inputs}), "
            f"targets=({target!r},), {TASKS[task].more}),"
        )
    (lab / "spec.py").write_text(
        "from pathlib import Path\nfrom labkit import Case, Lab, RubricLine, Tensor\n\n"
        "LAB = Lab(name='redteam', title='Red team', folder=Path(__file__).parent, cases=(\n"
        + "\n".join(made)
        + "\n), rubric=("
        + " ".join(f"RubricLine({name!r}, 1, ({name!r},))," for name, _, _ in cases)
        + "))\n"
    )
    (lab / "hidden" / "plan.py").write_text(
        "from labkit.grade.plan import Plan\n\n\ndef plan(spec):\n    return Plan("
        "rubric=spec.LAB.rubric, targets=('trn1', 'trn2'), timeout_s=60, total_s=600)\n"
    )
    (lab / "reference.py").write_text(
        "import numpy as np\n\n\n"
        + "\n\n\n".join(
            f"def {task}({', '.join('xyz'[: what.inputs.count('Tensor')])}):\n"
            f"    return np.asarray({what.reference})"
            for task, what in TASKS.items()
        )
        + "\n"
    )
    for name in ("kernels.py", "kernels_nki.py", "tester.py", "README.md"):
        (lab / name).write_text("# as students get it\n")
    return lab


def judged(
    folder: Path, dialect: str, attacks: dict[str, Attack], sandbox: str
) -> dict[str, dict[str, Any]]:
    """Let the judge of the grader run attacks and twins in one submission; return its cases.

    Names of cases are those of attacks, and `honest_NAME` of their twins.
    """
    texts, cases = [], []
    for name, a in attacks.items():
        texts.append(kernel(name, a.task, a.body, a.above, a.below))
        cases.append((name, a.task, a.target))
        if not a.says:
            texts.append(kernel(f"honest_{name}", a.task, twin(a)))
            cases.append((f"honest_{name}", a.task, a.target))
    stem = "kernels" if dialect == "beta1" else "kernels_nki"
    submission = folder / "submission"
    submission.mkdir(parents=True)
    (submission / f"{stem}.py").write_text(file_of(dialect, texts))
    job = {
        "lab": str(lab(folder, dialect, cases)),
        "kernels": stem,
        "sandbox": sandbox,
        "seed": 20261123,
        "full": False,
        "staff_us": {},
        "key": "",
        "submission": str(submission),
        "submission_sha256": "",
    }
    with one_judge(600) as process:
        verdict = process.ask(job)
    return {case["case"]: case for case in verdict["cases"]}


def twin(attack: Attack) -> str:
    """Return the body of an attack's honest twin."""
    return attack.honest or HONEST[attack.dialect][attack.task]


def gain(attack: Attack, cases: dict[str, dict[str, Any]], name: str) -> str:
    """Return what an attack gains, or how it ends otherwise than it should; "" if all is well."""
    case = cases[name]
    if attack.says:
        if case["status"] == "passed":
            return f"it passes, in {case['latency_us']} us"
        text = f"{case['text']}\n{case['detail']}"
        return "" if attack.says in text else f"it fails otherwise: {text}"
    honest = cases[f"honest_{name}"]
    for which, one in (("its twin", honest), ("it", case)):
        if one["status"] != "passed":
            return f"{which} fails: {one['text']}\n{one['detail']}"
    if case["latency_us"] < honest["latency_us"] * (1 - FASTER):
        return f"{case['latency_us']} us, but its twin {honest['latency_us']} us"
    return ""


_BETA1 = {
    "copy": "nl.store(out, nl.copy(nl.load(x)))",
    "copy16": "nl.store(out, nl.copy(nl.load(x)))",
    "add": "nl.store(out, nl.add(nl.load(x), nl.load(y)))",
    "add16": "nl.store(out, nl.add(nl.load(x), nl.load(y)))",
    "thrice": "nl.store(out, nisa.tensor_scalar(nl.load(x), nl.multiply, 3.0))",
    "combine": "nl.store(out, nisa.scalar_tensor_tensor(data=nl.load(x), op0=nl.subtract, "
    "operand0=2.0, op1=nl.multiply, operand1=nl.load(y)))",
    "negate": "nl.store(out, nl.negative(nl.load(x)))",
    "zeros": "nl.store(out, nisa.memset((128, 2048), 0.0, x.dtype))",
    "turn": "nl.store(out, nisa.nc_transpose(nl.load(x)))",
    "turn16": "nl.store(out, nisa.nc_transpose(nl.load(x)))",
    "swap": """
wide = tile((128, 4, 512), x.dtype)
turned = tile((128, 4, 512), x.dtype)
for r in nl.affine_range(4):
    wide[:, r] = nl.load(x[r * 128:r * 128 + 128])
for c in nl.affine_range(4):
    for r in nl.affine_range(4):
        turned[:, c, r * 128:r * 128 + 128] = nisa.nc_transpose(
            wide[:, r, c * 128:c * 128 + 128])
    nl.store(out[c * 128:c * 128 + 128], turned[:, c])
""",
    "product": "nl.store(out, nl.copy(nisa.nc_matmul(nl.load(x), nl.load(y))))",
    "total": "nl.store(out, nisa.tensor_reduce(nl.add, nl.load(x), axis=1, keepdims=True))",
    "most": "nl.store(out, nisa.tensor_reduce(nl.maximum, nl.load(x), axis=1, keepdims=True))",
    "across": "nl.store(out, nisa.tensor_partition_reduce(nl.add, nl.load(x)))",
    "spread": "nl.store(out, nl.broadcast_to(nl.load(x), (128, 512)))",
    "later": """
t = nl.load(x)
for i in nl.sequential_range(64):
    t[...] = nisa.tensor_scalar(t, nl.add, 1.0)
nl.store(out, t)
""",
    "sums": """
t = nl.load(x[0:128])
for i in nl.sequential_range(7):
    t[...] = nl.add(t, nl.load(x[i * 128 + 128:i * 128 + 256]))
nl.store(out, t)
""",
}
_NKI = {
    "copy": "t, u = load(x), tile(x.shape, x.dtype)\nnisa.tensor_copy(dst=u, src=t)\n"
    "nisa.dma_copy(dst=out, src=u)",
    "add": "t, u = load(x), load(y)\nnisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)\n"
    "nisa.dma_copy(dst=out, src=t)",
    "thrice": "t = load(x)\nnisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=3.0)\n"
    "nisa.dma_copy(dst=out, src=t)",
    "combine": "t, u = load(x), load(y)\nnisa.scalar_tensor_tensor(dst=t, data=t, "
    "op0=nl.subtract, operand0=2.0, op1=nl.multiply, operand1=u)\n"
    "nisa.dma_copy(dst=out, src=t)",
    "zeros": "t = tile(x.shape, x.dtype)\nnisa.memset(t, 0.0)\nnisa.dma_copy(dst=out, src=t)",
    "turn": "t, p = load(x), tile(x.shape, x.dtype, nl.psum)\nnisa.nc_transpose(dst=p, data=t)\n"
    "nisa.tensor_copy(dst=t, src=p)\nnisa.dma_copy(dst=out, src=t)",
    "swap": """
wide, turned = tile((128, 4, 512), x.dtype), tile((128, 4, 512), x.dtype)
for r in range(4):
    nisa.dma_copy(dst=wide[:, r], src=x[r * 128:r * 128 + 128])
for c in range(4):
    for r in range(4):
        p = tile((128, 128), x.dtype, nl.psum)
        nisa.nc_transpose(dst=p, data=wide[:, r, c * 128:c * 128 + 128])
        nisa.tensor_copy(dst=turned[:, c, r * 128:r * 128 + 128], src=p)
    nisa.dma_copy(dst=out[c * 128:c * 128 + 128], src=turned[:, c])
""",
    "product": "s, t, p = load(x), load(y), tile(y.shape, nl.float32, nl.psum)\n"
    "nisa.nc_matmul(dst=p, stationary=s, moving=t)\nnisa.tensor_copy(dst=t, src=p)\n"
    "nisa.dma_copy(dst=out, src=t)",
    "total": "t, u = load(x), tile((128, 1), x.dtype)\n"
    "nisa.tensor_reduce(dst=u, op=nl.add, data=t, axis=1)\n"
    "nisa.dma_copy(dst=out, src=u)",
    "most": "t, u = load(x), tile((128, 1), x.dtype)\n"
    "nisa.tensor_reduce(dst=u, op=nl.maximum, data=t, axis=1)\n"
    "nisa.dma_copy(dst=out, src=u)",
    "across": "t, u = load(x), tile((1, 512), x.dtype)\n"
    "nisa.tensor_partition_reduce(dst=u, op=nl.add, data=t)\n"
    "nisa.dma_copy(dst=out, src=u)",
    "later": "t = load(x)\nfor i in range(64):\n"
    "    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)\n"
    "nisa.dma_copy(dst=out, src=t)",
    "sums": "t = load(x[0:128])\nfor i in range(1, 8):\n"
    "    nisa.tensor_tensor(dst=t, data1=t, data2=load(x[i * 128:i * 128 + 128]), "
    "op=nl.add)\nnisa.dma_copy(dst=out, src=t)",
}
_NKI["copy16"], _NKI["add16"], _NKI["turn16"] = _NKI["copy"], _NKI["add"], _NKI["turn"]
HONEST: dict[str, dict[str, str]] = {"beta1": _BETA1, "nki": _NKI}
