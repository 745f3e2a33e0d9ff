"""A product that waits for a bank of PSUM: the critical path names who had it."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

import nkisim

P, N, MANY = 128, 512, 12


@nki.jit
def drained_late(a, b, slow=True):
    """Keep eight banks with slow passes, and go on for long with what the last product gives."""
    out = nl.ndarray((P, N), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.ndarray(a.shape, a.dtype), nl.ndarray(b.shape, b.dtype)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    total = nl.ndarray((P, N), nl.float32)
    nisa.memset(dst=total, value=0.0)
    for i in range(MANY):
        bank = nl.ndarray((P, N), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=bank, stationary=left, moving=right)
        tile = nl.ndarray((P, N), nl.float32)
        if i < MANY - 1 and slow:
            for _ in range(3):
                nisa.activation(dst=tile, op=nl.gelu, data=bank)
        else:
            nisa.tensor_copy(dst=tile, src=bank)
        if i == MANY - 1:
            for _ in range(40):
                nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


def path_of(slow):
    a, b = np.zeros((P, P), np.float32), np.zeros((P, N), np.float32)
    prof = nkisim.profile(drained_late, a, b, slow=slow, target="trn2", compute=False, compiler=())
    return prof.critical_path()


def test_the_one_who_had_the_bank_is_on_the_path():
    path = path_of(slow=True)
    waits = [s for s in path["steps"] if s["name"] == "nc_matmul" and s["why"] == "space"]
    assert waits and all("activation is the last to use" in s["why_text"] for s in waits)
    # 1.3 us is a table of gelu that is loaded; a wait for a bank would be 12
    on_chip = [s for s in path["steps"] if s["engine"] != "dma"]
    assert on_chip and all(s["spent_us"].get("latency", 0.0) < 2.0 for s in on_chip)


def test_where_banks_are_free_none_is_waited_for():
    assert "space" not in {s["why"] for s in path_of(slow=False)["steps"]}
