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
