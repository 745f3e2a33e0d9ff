"""Matrix products beside the kernel: threads that multiply while the kernel goes on.

BLAS uses all cores for one product, and none while the kernel's Python runs. Here each product has
one thread, and there are as many threads as BLAS would use; so the kernel is recorded meanwhile. A
product's bytes are then those of BLAS with one thread, whatever the number of cores.

With one thread (OMP_NUM_THREADS=1, say), without threadpoolctl, or with a BLAS whose threads that
cannot set, nothing of this happens.
"""
from __future__ import annotations

import functools
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ..errors import fail

if TYPE_CHECKING:
    from ..chip.memory import Storage
    from .instruction import Instr
    from .tensor import Tensor

MOST = 96 << 20         # bytes of operands that products on their way may keep alive
DEPTH = 4               # batches of products on their way
SWITCH = 1e-4           # seconds after which a thread that is done may have the interpreter
VARIABLE = "NKISIM_THREADS"


@functools.lru_cache(maxsize=1)
def _blas() -> Any:
    """Return what sets the threads of NumPy's BLAS, None if nobody can."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    found = ThreadpoolController().select(user_api="blas")
    return found if len(found) else None


@functools.lru_cache(maxsize=1)
def _workers(number: int, process: int) -> ThreadPoolExecutor:
    """Return the threads of a process; a fork has to make its own."""
    return ThreadPoolExecutor(number, thread_name_prefix="nkisim")


_lock = threading.Lock()
_inside = 0             # how many launches have threads, in all threads
_outside: tuple[float, Any, int] | None = None      # what the first one found


def threads() -> int:
    """Return how many threads BLAS may use, as NKISIM_THREADS says or it is set up.

    Raises NkiError if NKISIM_THREADS is no number from 1 on.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked and not (asked.isdecimal() and int(asked)):
        raise fail("NKI-K15", f"{VARIABLE} is no number of threads",
                   given=f"{VARIABLE}={asked}", limit="a number from 1 on",
                   hint=f"{VARIABLE}=2, or leave it unset: as many as NumPy's BLAS uses").nowhere()
    blas = _blas()
    if blas is None:
        return 1
    if asked:
        return int(asked)
    with _lock:
        return _outside[2] if _outside is not None else _threads(blas)


def _threads(blas: Any) -> int:
    return max(x["num_threads"] for x in blas.info())


@contextmanager
def beside(wanted: bool) -> Iterator[Flying | None]:
    """Let BLAS use one thread for a product, and yield what computes products beside the kernel;
    None if there is but one thread, or it is not `wanted`."""
    global _inside, _outside
    number = threads() if wanted else 1
    if number < 2:
        yield None
        return
    with _lock:
        _inside += 1
        if _outside is None:
            usual = _threads(_blas())
            _outside = sys.getswitchinterval(), _blas().limit(limits=1), usual
            sys.setswitchinterval(min(SWITCH, _outside[0]))
    try:
        yield Flying(_workers(number, os.getpid()))
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _outside is not None:
                sys.setswitchinterval(_outside[0])
                _outside[1].restore_original_limits()
                _outside = None


class Batch:
    """Products on their way, what waits for them, and the storages of which nobody may write
    (`read`) or read (`due`) a part before: references to those that are still there."""

    __slots__ = ("products", "held", "read", "due")

    def __init__(self, held: list[tuple[Any, Instr, Tensor]]):
        self.products: list[Future] = []
        self.held = held
        self.read: list[ref[Storage]] = []
        self.due: list[ref[Storage]] = []

    def wait(self) -> None:
        """Wait for the products."""
        for one in self.products:
            one.result()


class Flying:
    """Products on their way, of which only so many bytes of operands are kept alive.

    What they use is let go in the kernel's thread, whose memory it is (pages.py).
    """

    def __init__(self, workers: ThreadPoolExecutor):
        self.workers = workers
        self._all: deque[tuple[Future, int, tuple]] = deque()
        self._bytes = 0

    def start(self, batch: Batch, nbytes: int, product: list) -> None:
        """Send a product (see `multiply`) on its way that keeps so many bytes alive; wait for
        older ones if that are too many."""
        while self._all and (self._bytes + nbytes > MOST or self._all[0][0].done()):
            self._land()
        kept = tuple(product)
        batch.products.append(self.workers.submit(multiply, product))
        self._all.append((batch.products[-1], nbytes, kept))
        self._bytes += nbytes

    def land(self) -> None:
        """Wait for all of them."""
        while self._all:
            self._land()

    def _land(self) -> None:
        product, nbytes, _ = self._all.popleft()
        product.exception()                     # waits; who waits for the batch raises it
        self._bytes -= nbytes


def multiply(product: list) -> None:
    """Compute left.T @ right, and empty `product`: left, right, the result's array, parts, copies.

    `copies`: what has to be done before, (to, from). `parts`: arrays that rows of the result are
    written to: (array, begin, end, whether they replace what is there or are added to it).
    """
    left, right, total, parts, copies = product
    product.clear()
    with np.errstate(all="ignore"):
        for to, part in copies:
            to[...] = part
        np.matmul(left.T, right, out=total)
        for out, start, end, opens in parts:
            value = total[start:end].reshape(out.shape)
            if opens:
                out[...] = value
            else:
                out += value


__all__ = ["DEPTH", "Batch", "Flying", "beside", "multiply", "threads"]
