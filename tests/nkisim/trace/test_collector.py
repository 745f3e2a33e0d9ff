"""The garbage collector is paused by whoever needs it, and put back by the last of them."""

from __future__ import annotations

import gc
import threading

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.simulation.launch import launch
from nkisim.trace import collector


@pytest.fixture(params=[True, False], ids=["on", "off"])
def as_found(request):
    """Run with the collector on, and off; say how it was, and put it back."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_it_is_put_back_as_it_was_found(as_found):
    with collector.paused():
        assert not gc.isenabled()
        with collector.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() == as_found


def test_so_it_is_after_an_error(as_found):
    with pytest.raises(ZeroDivisionError), collector.paused():
        raise ZeroDivisionError
    assert gc.isenabled() == as_found


def test_the_last_thread_puts_it_back(as_found):
    """The first one leaves while the second is still at work."""
    entered, leave = threading.Event(), threading.Event()

    def second():
        with collector.paused():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=second)
    with collector.paused():
        thread.start()
        assert entered.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join(10)
    assert gc.isenabled() == as_found


SEEN: list[bool] = []


@nki.jit
def looks(x, fails):
    SEEN.append(gc.isenabled())
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    if fails:
        raise RuntimeError("in the kernel")
    return out


@pytest.mark.parametrize("compute", [True, False])
def test_a_launch_pauses_it(as_found, compute):
    x = np.ones((128, 4), np.float32)
    SEEN.clear()
    launch(looks, (x, False), {}, compute=compute)
    assert SEEN == [False] and gc.isenabled() == as_found
    with pytest.raises(RuntimeError):
        launch(looks, (x, True), {}, compute=compute)
    assert gc.isenabled() == as_found
