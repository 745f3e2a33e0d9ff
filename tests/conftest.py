"""For all tests: generated examples have no deadline, since a busy machine is no failure."""

import os
import signal
import sys

import pytest
from hypothesis import settings

# A shell's background jobs ignore Ctrl-C, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each worker has a core: BLAS threads that outnumber the cores wait for each other in a spin.
# NumPy and PyTorch read these when they are imported, and the tests' children inherit them.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")

# Many tests compare generations, with kernels of both dialects; test_release_verdicts.py does not.
os.environ.setdefault("NKISIM_TARGETS", "all")

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def own_process():
    """Put back what commands that run in this process change: the script, and our variables."""
    main, argv, path = sys.modules["__main__"], [*sys.argv], sys.path[0]
    before = {name: value for name, value in os.environ.items() if name.startswith("NKI")}
    yield
    sys.modules["__main__"], sys.argv[:], sys.path[0] = main, argv, path
    for name in [name for name in os.environ if name.startswith("NKI")]:
        del os.environ[name]
    os.environ.update(before)


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
            if item.get_closest_marker("full"):  # not keywords, which have the folders' names too
                item.add_marker(skip)
