"""Measurement records: published latencies of public kernels, and how to run those kernels.

A record names a public repository, a commit, a file and a function; the user has checked the
repository out under `DIR/<owner>+<name>/`. The recorded version is read with `git show`, the
constants that the record sets are replaced in its source, and the kernel is ready to be traced.
Kernels of other people are executed: only point `--sources` at repositories that you trust.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..chip import dtypes
from ..errors import NkiError
from ..errors.lines import register_source

METRICS = {
    "nc_latency": "latency_us",
    "kernel_body": "body_us",
    "profile_total": "profile_total_us",
}
SCHEMA = 1
HERE = "."  # source.repo of a kernel that is measured where it is developed


class Skipped(Exception):
    """A record that cannot be run here, with the reason."""


@dataclass(frozen=True)
class Record:
    """One published number."""

    id: str
    target: str
    metric: str
    value_us: float
    source: dict[str, Any]
    args: list[dict[str, Any]]
    descriptors: str | None = None
    set: dict[str, Any] = field(default_factory=dict)
    kwargs: dict[str, Any] = field(default_factory=dict)
    confidence: str = ""
    twin: dict[str, Any] = field(default_factory=dict)  # a kernel of ours with its structure
    task: str = ""  # "family" of the file: records of one task
    label: str = ""  # "variant" of the file
    scale: str = "absolute"  # "relative": only ratios within the family are to be trusted
    ranked: bool = True  # False: it computed something else, so it was only timed
    parts: tuple[Record, ...] = ()  # launches whose times add up to this number
    counters: dict[str, float] = field(default_factory=dict)  # what the profiler counted
    file: str = ""  # that it stands in

    @property
    def variant(self) -> str:
        """Return what tells variants of a family apart: constants, arguments, candidate."""
        return self.label or json.dumps(
            [self.set, self.args, self.kwargs, self.source.get("candidate")], sort_keys=True
        )

    @property
    def family(self) -> str:
        """Return what it is a variant of: same function, target, metric and descriptor path.

        Candidates of one file of code strings are steps of one optimisation, so one family.
        """
        return self.task or " ".join(
            (
                self.target,
                self.source["path"].rsplit("/", 1)[-1],
                self.source["function"],
                self.metric,
                self.descriptors or "",
            )
        )


FOLDER = Path(__file__).parent
#: the files of records that come with the repository
CARRIED = (
    "measurements.json",
    "measurements-2.json",
    "measurements-nki.json",
    "measurements-3.json",
)


def load(path: str | None = None) -> list[Record]:
    """Read a file of records; without a path: all that nkisim carries."""
    if path is None:
        return [r for name in CARRIED for r in load(str(FOLDER / name))]
    else:
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise NkiError(
                id="NKI-C01",
                what="The measurements cannot be read.",
                given=str(exc),
                limit="a JSON file",
                hint="check --measurements",
            ) from None
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError(
                f"schema {data.get('schema')!r}"
                if isinstance(data, dict)
                else f"a JSON {type(data).__name__}"
            )
        if not isinstance(data.get("records"), list):
            raise ValueError("no list named records")
        return [
            replace(r, file=Path(path).name)
            for r in (
                *(_record(n, r) for n, r in enumerate(data["records"])),
                *(_sum(n, r) for n, r in enumerate(data.get("sums", []))),
            )
        ]
    except (ValueError, RecursionError) as exc:
        raise NkiError(
            id="NKI-C01",
            what="This is not a file of measurement records.",
            given=str(exc),
            limit=f"schema {SCHEMA}: records with id, target, metric, value_us, source and args",
            hint="see shared/nkisim/calibration/README.md for the format",
        ) from None


#: what the fields of a record are
_FIELDS: dict[str, Any] = {
    "id": str,
    "target": str,
    "metric": str,
    "value_us": (int, float),
    "source": dict,
    "args": list,
    "descriptors": str,
    "set": dict,
    "kwargs": dict,
    "confidence": str,
    "twin": dict,
    "scale": str,
    "ranked": bool,
}
#: what the profiler counts, by the names that records have; `..._mb`: published in 10^6 bytes
COUNTERS = (
    "dma_transfers",
    "dma_bytes",
    "hbm_read_bytes",
    "hbm_write_bytes",
    "hbm_read_mb",
    "hbm_write_mb",
    "pe_active",
    "dve_active",
    "act_active",
    "dma_active",
    "spill_bytes",
)
_NEEDED = ("id", "target", "metric", "value_us", "source", "args")


def _record(number: int, fields: Any) -> Record:
    """Check and return one record; ValueError says what is wrong with it."""
    if not isinstance(fields, dict):
        raise ValueError(f"record {number} is {fields!r:.40}")
    name = f"record {fields.get('id', number)!r:.60}"
    missing = [f for f in _NEEDED if f not in fields]
    if missing:
        raise ValueError(f"{name} has no {', '.join(missing)}")
    given = {f: v for f, v in fields.items() if f in _FIELDS and (v is not None or f in _NEEDED)}
    for field_name, value in given.items():
        if (
            not isinstance(value, _FIELDS[field_name])
            or isinstance(value, bool)
            and _FIELDS[field_name] is not bool
        ):
            raise ValueError(f"{name}: {field_name} is {value!r:.40}")
    if not 0 < given["value_us"] < math.inf:
        raise ValueError(f"{name}: value_us is {given['value_us']!r}")
    for key in ("repo", "commit", "path", "function"):
        if not isinstance(given["source"].get(key), str):
            raise ValueError(f"{name}: source has no {key}")
    if given["source"]["commit"].startswith("-"):  # git would take it for an option
        raise ValueError(f"{name}: commit {given['source']['commit']!r:.60} is no commit")
    for name_of, spelling in (("task", "family"), ("label", "variant")):
        if spelling in fields:
            given[name_of] = str(fields[spelling])
    given["counters"] = {
        c: float(fields[c]) for c in COUNTERS if isinstance(fields.get(c), (int, float))
    }
    return Record(**given)


def _sum(number: int, fields: Any) -> Record:
    """Return a record of several launches, which are its parts."""
    if not isinstance(fields, dict) or not fields.get("parts"):
        raise ValueError(f"sum {number} has no parts")
    parts = tuple(_record(n, p) for n, p in enumerate(fields["parts"]))
    whole = _record(
        number, {**fields["parts"][0], **{k: v for k, v in fields.items() if k != "parts"}}
    )
    return replace(whole, parts=parts)


def source_text(record: Record, sources: Path) -> str:
    """Return the recorded version of the kernel's file."""
    src = record.source
    if src["repo"] == HERE:
        return _text_here(src, sources)
    repo = sources / src["repo"].replace("/", "+")
    if not repo.is_dir():
        raise Skipped(f"{src['repo']} is not checked out at {repo}")

    def git(*args: str) -> subprocess.CompletedProcess:
        try:
            return subprocess.run(
                ["git", "-C", str(repo), *args],
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=60,
            )
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as exc:
            raise Skipped(f"git cannot read {repo}: {exc}") from None

    if git("cat-file", "-e", f"{src['commit']}^{{commit}}").returncode != 0:
        raise Skipped(
            f"{repo} has no commit {src['commit'][:10]}; fetch it, or clone all of {src['repo']}"
        )
    shown = git("show", f"{src['commit']}:{src['path']}")
    if shown.returncode != 0:
        raise Skipped(
            f"{src['path']} of {src['commit'][:10]}: "
            + (shown.stderr.strip().splitlines() or ["git show failed"])[-1]
        )
    return shown.stdout


def _text_here(src: dict[str, Any], root: Path) -> str:
    """Return a file of the working tree itself, if it is what was measured (its SHA-256)."""
    path = (root / src["path"]).resolve()
    if not path.is_relative_to(root.resolve()):
        raise Skipped(f"{src['path']} is not below {root}")
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise Skipped(f"{src['path']} cannot be read: {exc.strerror}") from None
    if src.get("sha256") != hashlib.sha256(data).hexdigest():
        raise Skipped(f"{src['path']} has changed since it was measured")
    return data.decode("utf-8", "replace")


def candidate(text: str, number: int) -> str:
    """Return the N-th `code` string, oldest first, of a file that nests them.

    The file is one expression, Candidate(parent=Candidate(parent=None, code=...), code=...).
    """
    codes: list[str] = []

    def visit(node: ast.AST) -> None:
        if not isinstance(node, ast.Call):
            return
        named = {k.arg: k.value for k in node.keywords}
        if "parent" in named:
            visit(named["parent"])  # the parent is older
        code = named.get("code")
        if isinstance(code, ast.Constant) and isinstance(code.value, str):
            codes.append(code.value)

    try:
        visit(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError) as exc:
        raise Skipped(f"the file of candidates does not parse: {exc}") from None
    if not 0 <= number < len(codes):
        raise Skipped(f"there is no candidate {number}; the file holds {len(codes)}")
    return codes[number]


class _Set(ast.NodeTransformer):
    """Replace the values of assignments to named constants."""

    def __init__(self, values: dict[str, Any]):
        self.values, self.done = values, set()  # type: ignore[var-annotated]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id in self.values:
                self.done.add(target.id)
                node.value = ast.copy_location(ast.Constant(self.values[target.id]), node.value)
        return node


def kernel(record: Record, sources: Path) -> Any:
    """Return the record's function, from its recorded source with its constants set."""
    text = source_text(record, sources)
    name = f"{record.source['repo']}/{record.source['path']}"
    if "candidate" in record.source:
        text = candidate(text, record.source["candidate"])
        name += f"#{record.source['candidate']}"
    return _function(text, name, record.source["function"], record.set)


def twin(record: Record) -> Any:
    """Return the kernel of ours that has the structure of the record's (twins.py)."""
    if not record.twin:
        raise Skipped("no kernel of ours has its structure")
    file = "twins_nki.py" if record.twin.get("file") == "twins_nki.py" else "twins.py"
    text = (FOLDER / file).read_text("utf-8")
    func = _function(
        text,
        f"nkisim/calibration/{file}",
        str(record.twin.get("function")),
        record.twin.get("set", {}),
    )
    if record.twin.get("skip_middle_end"):  # as the record's kernel does
        from neuronxcc.nki.compiler import skip_middle_end_transformations

        func = skip_middle_end_transformations(func)
    return func


def _function(text: str, name: str, function: str, constants: dict[str, Any]) -> Any:
    """Return a function of a source, with constants of the source set."""
    try:
        tree = ast.parse(text)
    except SyntaxError as exc:
        raise Skipped(f"the source does not parse: {exc}") from None
    setter = _Set(constants)
    tree = setter.visit(tree)
    missing = set(constants) - setter.done
    if missing:
        raise Skipped("the source has no assignment to " + ", ".join(sorted(missing)))
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl
    import neuronxcc.nki.typing as nt

    space: dict[str, Any] = {
        "__name__": "record",
        "nki": nki,
        "nl": nl,
        "nisa": nisa,
        "nt": nt,
        "np": np,
        "math": math,
    }
    register_source(name, text)
    exec(compile(tree, name, "exec"), space)
    func = space.get(function)
    if func is None:
        raise Skipped(f"the source has no function {function}")
    return func


def arguments(record: Record) -> tuple[list[Any], dict[str, Any]]:
    """Build the record's arguments: arrays of ones, and plain values."""

    def build(arg: Any) -> Any:
        if isinstance(arg, dict) and "shape" in arg:
            try:
                return np.ones(tuple(arg["shape"]), dtypes.normalize(arg["dtype"]))
            except NkiError:
                raise
            except (TypeError, ValueError, KeyError, MemoryError):
                raise Skipped(f"an argument is no array: {arg}") from None
        return arg["value"] if isinstance(arg, dict) and "value" in arg else arg

    return [build(a) for a in record.args], {k: build(v) for k, v in record.kwargs.items()}
