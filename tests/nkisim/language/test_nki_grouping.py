"""A result goes to a destination with as many elements, however both group their free dims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

X = np.linspace(0.5, 2, 4 * 16, dtype=np.float32).reshape(4, 16)

WRITES: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "tensor_copy": (lambda d, t: nisa.tensor_copy(dst=d, src=t), X),
    "tensor_tensor": (lambda d, t: nisa.tensor_tensor(dst=d, data1=t, data2=t, op=nl.add), X + X),
    "tensor_scalar": (
        lambda d, t: nisa.tensor_scalar(dst=d, data=t, op0=nl.multiply, operand0=2.0),
        X * 2,
    ),
    "scalar_tensor_tensor": (
        lambda d, t: nisa.scalar_tensor_tensor(
            dst=d, data=t, op0=nl.add, operand0=1.0, op1=nl.multiply, operand1=t
        ),
        (X + 1) * X,
    ),
    "activation": (lambda d, t: nisa.activation(dst=d, data=t, op=nl.square), X * X),
    "reciprocal": (lambda d, t: nisa.reciprocal(dst=d, data=t), 1 / X),
    "tensor_tensor_scan": (
        lambda d, t: nisa.tensor_tensor_scan(
            dst=d, data0=t, data1=t, initial=0.0, op0=nl.maximum, op1=nl.maximum
        ),
        np.maximum.accumulate(X, axis=1),
    ),
}


@pytest.mark.parametrize("row", WRITES)
@pytest.mark.parametrize("columns", (8, 4))
def test_a_strided_destination_takes_the_elements_in_their_order(row, columns):
    # of a width of 8 the first 4: strides that no regrouping of 16 elements has
    write, expected = WRITES[row]

    def kernel(a: Any) -> Any:
        t = nl.ndarray((4, 16), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=a)
        wide = nl.ndarray((4, 4, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=wide, value=0.0)
        write(wide[:, :, 0:4], t)
        out = nl.ndarray(wide.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=wide)
        return out

    got = np.asarray(nkisim.run(nki.jit(kernel), X.copy(), target="trn2").outputs)
    np.testing.assert_allclose(got[:, :, :4], expected.reshape(4, 4, 4), rtol=1e-5)
    assert not got[:, :, 4:].any()
