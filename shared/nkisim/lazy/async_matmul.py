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
from .stacks import matrix, stacked

if TYPE_CHECKING:
    from ..chip.memory import Storage
    from ..machine.instruction import Instr
    from ..machine.tensor import Tensor

MOST = 96 << 20  # bytes of operands that products on their way may keep alive
DEPTH = 4  # batches of products on their way
SWITCH = 2e-5  # seconds after which a thread that is done may have the interpreter
VARIABLE = "NKISIM_THREADS"


@functools.lru_cache(maxsize=1)
def _blas() -> Any:
    """Return what sets the threads of NumPy's BLAS, None if nothing can."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    libraries = ThreadpoolController().select(user_api="blas")
    return libraries if len(libraries) else None


@functools.lru_cache(maxsize=1)
def _workers(number: int, process: int) -> ThreadPoolExecutor:
    """Return the threads of a process; a fork has to make its own."""
    return ThreadPoolExecutor(number, thread_name_prefix="nkisim")


_lock = threading.Lock()
_inside = 0  # how many launches have threads, in all threads
_outside: tuple[float, Any, int] | None = None  # what the first one found


def threads() -> int:
    """Return how many threads BLAS may use, as NKISIM_THREADS says or it is set up.

    Raises NkiError if NKISIM_THREADS is no number from 1 on.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked and not (asked.isdecimal() and int(asked)):
        raise fail(
            "NKI-K15",
            f"{VARIABLE} is no number of threads",
            given=f"{VARIABLE}={asked}",
            limit="a number from 1 on",
            hint=f"{VARIABLE}=2, or leave it unset: as many as NumPy's BLAS uses",
        ).nowhere()
    blas = _blas()
    if blas is None:
        return 1
    if asked:
        return int(asked)
    with _lock:
        return _outside[2] if _outside is not None else _threads(blas)


def _threads(blas: Any) -> int:
    return max(library["num_threads"] for library in blas.info())


@contextmanager
def matmul_pool(wanted: bool) -> Iterator[MatmulPool | None]:
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
        yield MatmulPool(_workers(number - 1, os.getpid()))
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _outside is not None:
                sys.setswitchinterval(_outside[0])
                _outside[1].restore_original_limits()
                _outside = None


class Batch:
    """Products on their way, what waits for them, and the storages that must not be
    written (`read`) or read (`due`) before: references to those that are still there."""

    __slots__ = ("products", "held", "read", "due")

    def __init__(self, held: list[tuple[Any, Instr, Tensor]]):
        self.products: list[Future] = []
        self.held = held
        self.read: list[ref[Storage]] = []
        self.due: list[ref[Storage]] = []


class MatmulPool:
    """Products on their way; only so many bytes of their operands are kept alive.

    Threads take them in their order; so does the kernel's where it would wait for one, so that as
    many threads are at work as there are to be.
    """

    def __init__(self, workers: ThreadPoolExecutor):
        self.workers = workers
        self._all: deque[tuple[Future, int, tuple, list]] = deque()
        self._bytes = 0

    def start(self, batch: Batch, nbytes: int, product: list) -> None:
        """Send a product (see `multiply`) on its way that keeps so many bytes alive; wait for
        older ones if that are too many."""
        while self._all and (self._bytes + nbytes > MOST or self._all[0][0].done()):
            self._finish_oldest()
        kept = tuple(product)
        batch.products.append(self.workers.submit(multiply, product))
        self._all.append((batch.products[-1], nbytes, kept, product))
        self._bytes += nbytes

    def wait(self, one: Future) -> None:
        """Wait for a product, and compute meanwhile what has not begun."""
        while not one.done():
            for other, _, _, product in self._all:
                if product and other.cancel():  # it is empty once a thread has begun
                    multiply(product)
                    break
            else:
                one.exception()  # waits; who waits for the batch raises it

    def join(self) -> None:
        """Wait for the products that have begun; drop the others."""
        begun = [one for one, _, _, _ in self._all if not one.cancel()]
        for one in begun:
            one.exception()
        self._all.clear()
        self._bytes = 0

    def _finish_oldest(self) -> None:
        self.wait(self._all[0][0])
        self._bytes -= self._all.popleft()[1]

    def finish(self, batch: Batch) -> None:
        """Wait for the products of a batch."""
        for one in batch.products:
            self.wait(one)
            if not one.cancelled():
                one.result()


def multiply(product: list) -> None:
    """Compute left.T @ right, and empty `product`: left, parts of right, its columns, results.

    The parts lie below each other in `right`; several of them are copied, here, where the memory
    for that is near. The results are arrays that parts of the product are written to: (array,
    rows and columns, whether they replace what is there or are added to it).
    """
    left, parts, columns, results = product
    product.clear()
    right = parts[0] if len(parts) == 1 and parts[0].ndim == 2 else stacked(parts, columns)
    out, _, opens = results[0]
    alone = len(results) == 1 and opens and out.flags.c_contiguous
    total = out.reshape(-1, columns) if alone else matrix(left.shape[1], columns)
    with np.errstate(all="ignore"):
        np.matmul(left.T, right, out=total)
        for out, part, opens in results if not alone else ():
            value = total[part].reshape(out.shape)
            if opens:
                out[...] = value
            else:
                out += value


__all__ = ["DEPTH", "Batch", "MatmulPool", "matmul_pool", "multiply", "threads"]
