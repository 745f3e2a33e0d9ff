"""Grade on other machines: a Dask cluster that is there, or jobs in a Slurm queue.

Both are Dask's: its scheduler sends the tasks, and a dead worker's again to another. Jobs of Slurm
come from dask-jobqueue, which knows what else a site wants of a job (an account, a network
interface): its settings are read as everywhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..spec import SpecError
from . import submissions

JOBS = 8  # of Slurm at a time, by default
#: what a job asks for where the site's settings say nothing: a judge at its limit (8 GiB with
#: --full), a submission at its own (2 GiB), and the worker. With less, a hostile kernel ends the
#: job of others.
JOB = {"cores": 1, "memory": "13GB"}
HERE = "127.0.0.1:0"


@contextmanager
def _client(address: str, jobs: int, private: Path) -> Iterator[Any]:
    """Give a client of the cluster at an address, or of one in Slurm's queue ("slurm:PARTITION").

    `private` is a folder on the file system that this machine and the jobs share.
    Raises SpecError if there is no such cluster, or if a package or a program is missing.
    """
    try:
        from distributed import Client
    except ImportError:
        raise SpecError('--scheduler needs Dask: pip install "trainium-labs[grade]"') from None
    kind, _, partition = address.partition(":")
    if kind == "slurm":
        with _slurm(partition, jobs, private) as cluster, Client(cluster) as client:
            yield client
        return
    try:
        client = Client(address, timeout="20s")
    except (OSError, ValueError) as error:
        raise SpecError(f"there is no Dask scheduler at {address}: {error}") from None
    with client:
        yield client


@contextmanager
def _slurm(partition: str, jobs: int, private: Path) -> Iterator[Any]:
    """Give a cluster of `jobs` jobs with one worker each; a job that ends too early is replaced.

    Anyone who can talk to a Dask scheduler can run code on it, and others have accounts on a
    cluster: so it talks TLS, with keys that only this user can read and that end with this run.
    """
    try:
        import dask
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise SpecError(
            '--scheduler slurm needs dask-jobqueue: pip install "trainium-labs[grade]"'
        ) from None
    if shutil.which("sbatch") is None:
        raise SpecError(
            "--scheduler slurm: there is no sbatch here; run this where jobs are "
            "submitted, on a login node of the cluster"
        )
    private = private.resolve()
    private.mkdir(parents=True, exist_ok=True, mode=0o700)
    site = dask.config.get("jobqueue.slurm", {})
    wanted: dict[str, Any] = {k: site.get(k) or v for k, v in JOB.items()}
    with (
        tempfile.TemporaryDirectory(prefix="keys-", dir=private) as keys,
        SLURMCluster(
            queue=partition or site.get("queue"),
            security=_keys(Path(keys)),
            protocol="tls://",
            job_name="labkit-grade",
            log_directory=str(private / "slurm"),
            **wanted,
            # pages about the cluster would be open to its whole network
            scheduler_options={
                **(site.get("scheduler-options") or {}),
                "dashboard": False,
                "dashboard_address": HERE,
            },
            worker_extra_args=[
                *(site.get("worker-extra-args") or []),
                "--no-dashboard",
                "--dashboard-address",
                HERE,
            ],
        ) as cluster,
    ):
        _try(cluster.job_script(), Path(keys) / "job.sh")
        cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs)
        print(
            f"{jobs} jobs go into Slurm's queue; squeue --name labkit-grade shows them",
            file=sys.stderr,
        )
        yield cluster


def _keys(folder: Path) -> Any:
    """Write a key and a certificate for one run to `folder`; return Dask's settings for them."""
    from distributed import Security

    made = Security.temporary()
    for name, text in (("key", made.tls_client_key), ("cert", made.tls_client_cert)):
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_text(text, encoding="ascii")
    files = {
        f"tls_{who}_{name}": str(folder / f"{name}.pem")
        for who in ("client", "scheduler", "worker")
        for name in ("key", "cert")
    }
    return Security(tls_ca_file=str(folder / "cert.pem"), require_encryption=True, **files)


def _try(script: str, path: Path) -> None:
    """Let Slurm look at a job without taking it; raise SpecError with its words if it would not."""
    path.write_text(script, encoding="utf-8")
    done = subprocess.run(["sbatch", "--test-only", str(path)], text=True, capture_output=True)
    if done.returncode:
        problem = done.stderr.strip() or f"sbatch ended with {done.returncode}"
        raise SpecError(
            f"Slurm does not take the job: {problem}\nGive --scheduler slurm:PARTITION, "
            "and what else your site needs (an account, memory, a network "
            "interface) under jobqueue: slurm: in ~/.config/dask/jobqueue.yaml"
        )


def on_cluster(
    tasks: Sequence[dict[str, Any]],
    judge: Callable[[dict[str, Any]], dict[str, Any]],
    address: str,
    jobs: int,
    private: Path,
) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None, str]]:
    """Yield tasks and what `judge` says of each, in the order in which they end; None and why if
    it fails, or if workers die of it whatever is tried.

    Raises SpecError as `_client` does.
    """
    with _client(address, min(jobs, len(tasks)), private) as client:
        from distributed import KilledWorker, as_completed

        futures, task_of = [], {}
        for task in tasks:
            # pure=False: the same code handed in twice is judged twice
            name = f"grade-{task['key'][:16]}-{submissions.safe_id(task['student'])}"
            futures.append(client.submit(judge, task, retries=3, pure=False, key=name))
            task_of[name] = task
        for future in as_completed(futures):
            try:
                yield task_of[future.key], future.result(), ""
            except KilledWorker:
                yield (
                    task_of[future.key],
                    None,
                    (
                        "every worker that judged it died; is there "
                        "enough memory, and time in the queue?"
                    ),
                )
            except RuntimeError as error:
                yield task_of[future.key], None, str(error)
