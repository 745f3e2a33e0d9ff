"""results.json: every run is appended, with where it came from; nothing is ever lost.

{"schema": "trainium-labs/results", "schema_version": 1, "runs": [{...provenance, "cases": []}]}
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock, Timeout

from ..files import replace
from ..spec import hbm_bytes

if TYPE_CHECKING:
    from ..evaluate import Outcome
    from ..spec import Lab

SCHEMA = "trainium-labs/results"
SCHEMA_VERSION = 1


class ResultsError(Exception):
    """The results file cannot be written; the text says why."""


def provenance(lab: Lab, backend: str, target: str, seed: int) -> dict[str, Any]:
    """Return where a result comes from: backend, versions, hash of the kernels, machine kind."""
    import nkisim

    return {
        "id": uuid.uuid4().hex,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "student": os.environ.get("LABKIT_STUDENT"),
        "backend": backend,
        "target": target,
        "seed": seed,
        "dialect": lab.dialect,
        "nkisim": nkisim.__version__ if backend == "sim" else None,
        "sdk": sdk_version() if backend != "sim" else None,
        "kernels_sha256": hashlib.sha256(lab.kernels.read_bytes()).hexdigest(),
        "git_commit": git_commit(lab.folder),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": f"{sys.platform}-{platform.machine()}",
    }


def sdk_version() -> str | None:
    """Return the version of the installed neuronx-cc, or None."""
    try:
        return metadata.version("neuronx-cc")
    except metadata.PackageNotFoundError:
        return None


def git_commit(folder: Path) -> str | None:
    """Return the commit of the working tree around `folder`, "+" appended if it is changed."""
    sent = os.environ.get("LABKIT_GIT_COMMIT")  # a tree that was sent here has no repository
    if sent is not None:
        return sent or None

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *args],
            check=True,
            text=True,
            capture_output=True,
            timeout=10,
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def append_run(path: Path, run: dict[str, Any]) -> list[str]:
    """Append a run to a results file; return sentences that the user should see."""
    return append_runs(path, [run])[1]


def append_runs(
    path: Path, runs: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Append runs to a results file, atomically; return the new ones, and notes for the user.

    A run whose "id" is in the file is not appended again. Only what is
    marked "unfinished" is replaced, by what its program writes later. Two
    processes may write at once (a lock), a kill leaves the old file or the new one (a rename), and
    a file that we cannot read is kept under another name.
    """
    notes: list[str] = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(str(path) + ".lock", timeout=30):
            document = _read(path, notes)
            recorded = {
                run["id"]: place for place, run in enumerate(document["runs"]) if run.get("id")
            }
            new = []
            for run in runs:
                place = recorded.get(run.get("id"))
                if place is None:
                    document["runs"].append(run)
                elif document["runs"][place].get("unfinished"):
                    document["runs"][place] = run
                else:
                    continue
                new.append(run)
            if new:
                _write(path, document)
    except Timeout:
        raise ResultsError(
            f"{path} is locked by another run for more than 30 s; if none is "
            f"running, delete {path}.lock"
        ) from None
    except OSError as error:
        raise ResultsError(
            f"cannot write {path}: {error.strerror or error}; --results FILE writes elsewhere"
        ) from None
    if os.environ.get("INFLUXDB_V2_URL"):
        from .queue import after_a_run

        notes += after_a_run(path)
    return new, notes


def _read(path: Path, notes: list[str]) -> dict[str, Any]:
    fresh: dict[str, Any] = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "runs": []}
    if not path.exists():
        return fresh
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        why = f"is not JSON ({error})"
    else:
        good = (
            isinstance(document, dict)
            and document.get("schema") == SCHEMA
            and document.get("schema_version") == SCHEMA_VERSION
            and isinstance(document.get("runs"), list)
        )
        if good:
            return document
        why = "is not a results file of this version"
    aside = _free_name(path)
    replace(path, aside)
    notes.append(f"{path.name} {why}; it was kept as {aside.name} and a new one begun.")
    return fresh


def _free_name(path: Path) -> Path:
    count = 1
    while (aside := path.with_name(f"{path.stem}.kept-{count}{path.suffix}")).exists():
        count += 1
    return aside


def _write(path: Path, document: dict[str, Any]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # a temporary file is its owner's alone
        replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_times(path: Path, lab: Lab, outcomes: Sequence[Outcome], backend: str, seed: int) -> str:
    """Write the latencies of right kernels by case to `path`; return what was done, in words.

    `seed`: of the run, which need not be the lab's.
    The file of a contest: {"kind": "measured" or "predicted", "execution_times_us": {case: us}}
    with their origin, what the contest ranks on and, where all are known, "hbm_bytes" by case (read
    and written). Predicted and measured times never share a file.
    """
    timed = [o for o in outcomes if o.latency and o.status == "passed"]
    if not timed:
        return f"nothing is written to {path.name}: no case is both right and timed"
    kind = timed[0].latency_kind
    used = timed[0].target
    document = {
        "lab": lab.name,
        "kind": kind,
        **provenance(lab, backend, used, seed),
        "execution_times_us": {
            o.case.name: round(o.latency[f"p{o.case.percentile}"], 1) for o in timed if o.latency
        },
        "rank": list(lab.contest.rank),
    }
    moved = {o.case.name: n for o in timed if (n := hbm_bytes(o.stats))}
    if len(moved) == len(timed):
        document["hbm_bytes"] = moved
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, document)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror or error}") from None
    left = len(outcomes) - len(timed)
    return f"{len(timed)} {kind} latencies written to {path}" + (
        f"; {left} cases are left out, not being right and timed" if left else ""
    )
