"""The lanes of the tests, for pytest: what runs by default, what --full adds, what --quick samples.

A test marked `full` runs with --full only. Of a parametrized test marked `sample(n)` the default
runs n cases, evenly spread over all, and --full runs each. --quick N runs N cases of each test that
it is given. A test that is named by its id always runs.

What an earlier run left when it was killed is removed before the first test. Each process of a run
has the number of pytest's process in its environment, and so do the folders of pytest.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

OWNER = "TRAINIUM_LABS_TESTS_OF"  # in the environment of what tests start: pytest's process
PATIENCE_S = 1800  # for a test with --full at least: some try hundreds of faults
MANY, LONG = "one of many like it: --full runs all", "takes long: --full runs it"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --full and --quick."""
    parser.addoption("--full", action="store_true", help="run every test, not a sample of them")
    parser.addoption("--quick", type=int, metavar="N", help="run N cases of each test at most")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Name the markers; remove what a killed run left, once a run."""
    if config.getoption("--full") and config.getoption("timeout", None) is None:
        config.option.timeout = PATIENCE_S
    config.addinivalue_line("markers", "full: runs with --full only")
    config.addinivalue_line("markers", "sample(n): n of its cases run without --full")
    if not hasattr(config, "workerinput"):
        remove_leftovers()
        os.environ[OWNER] = str(os.getpid())


def spread(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    """Return so many of the items at most, evenly spread: the first and the last, or the middle."""
    if len(items) <= most:
        return items
    last = len(items) - 1
    return [items[i * last // (most - 1)] for i in range(most)] if most > 1 else [items[last // 2]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the lane does not run."""
    named = {argument.split("::")[-1] for argument in config.args if "::" in argument}
    families: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        families[item.nodeid.split("[")[0]].append(item)
    if quick := config.getoption("--quick"):
        kept = {id(item) for family in families.values() for item in spread(family, quick)}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = [item for item in items if id(item) in kept]
    if config.getoption("--full"):
        for item in items:  # a mark is for a lane beside which nothing runs
            marker = item.get_closest_marker("timeout")
            if marker is not None and marker.args[0] < PATIENCE_S:
                item.add_marker(pytest.mark.timeout(PATIENCE_S), append=False)
        return
    for family in families.values():
        marker = family[0].get_closest_marker("sample")
        kept = {id(item) for item in (spread(family, marker.args[0]) if marker else family)}
        for item in family:
            if item.name in named:
                continue
            if item.get_closest_marker("full"):  # keywords have the folders' names too
                item.add_marker(pytest.mark.skip(reason=LONG))
            elif id(item) not in kept:
                item.add_marker(pytest.mark.skip(reason=MANY))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was not run and why: a green run must not hide it."""
    reasons: dict[str, Counter] = defaultdict(Counter)
    for report in terminalreporter.stats.get("skipped", []):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[why.removeprefix("Skipped: ")][report.nodeid.split("::")[0]] += 1
    if reasons:
        terminalreporter.section("not run here, and why")
    for why, files in sorted(reasons.items()):
        terminalreporter.line(f"{files.total():5d}  {why}")
        if why not in (MANY, LONG):
            for name, count in sorted(files.items()):
                terminalreporter.line(f"       {count:5d} x {name}")


def alive(pid: str) -> bool:
    """Say whether a process with this number goes on."""
    return not pid.isdigit() or Path(f"/proc/{pid}").exists()


def killed_runs() -> Iterable[tuple[int, str]]:
    """Yield each process that tests started, with pytest's process, where that has ended."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (entry / "environ").read_bytes().split(b"\0")
            for line in environ:
                name, _, pid = line.decode(errors="replace").partition("=")
                if name == OWNER and not alive(pid):
                    yield int(entry.name), pid


def remove_leftovers() -> None:
    """End what killed runs left running, then remove their folders; Linux only."""
    if not Path("/proc").is_dir():
        return
    for pid, _ in killed_runs():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for lock in Path(tempfile.gettempdir()).glob("pytest-of-*/pytest-*/.lock"):
        with contextlib.suppress(OSError):
            if not alive(lock.read_text()):
                shutil.rmtree(lock.parent, ignore_errors=True)
