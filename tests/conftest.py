"""For all tests: generated examples have no deadline, since a busy machine is no failure."""

import signal

import pytest
from hypothesis import settings

# A shell's background jobs ignore Ctrl-C, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_addoption(parser):
    """Add --full, which runs what is marked `full` too."""
    parser.addoption(
        "--full",
        action="store_true",
        help="run all hostile submissions and all of a class, not a sample",
    )


def pytest_configure(config):
    """Name our marker."""
    config.addinivalue_line("markers", "full: runs with --full only")


def pytest_collection_modifyitems(config, items):
    """Leave out what only --full runs."""
    if not config.getoption("--full"):
        skip = pytest.mark.skip(reason="one of many like it: pytest --full runs all")
        for item in items:
            if "full" in item.keywords:
                item.add_marker(skip)
