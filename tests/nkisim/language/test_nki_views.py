"""Views, registers and scalars that ask for what there is not: each beside one that does not."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim import NkiError

X = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)


def ran(line, x=X):
    """Return what `line(tile, x)` returns inside of a kernel."""
    results = []

    @nki.jit
    def kernel(x):
        t = nl.load(x)
        results.append(line(t, x))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, t)
        return out

    results.append(kernel(x))
    return results


def number(value, dtype=nl.int32):
    """Return a (1, 1) tile that holds a number."""
    t = nl.ndarray((1, 1), dtype=dtype, buffer=nl.sbuf)
    nisa.memset(t, value)
    return t


def register(value):
    r = nisa.register_alloc()
    nisa.register_load(r, value)
    return r


def column(t):
    return t.reshape((128, 64, 1))


#: (wrong, rule, right and what shape that has)
VIEWS = [
    (
        lambda t, x: column(t).squeeze_dim(5),
        "NKI-S06",
        lambda t, x: column(t).squeeze_dim(-1),
        (128, 64),
    ),
    (
        lambda t, x: column(t).broadcast(3, 4),
        "NKI-S06",
        lambda t, x: column(t).broadcast(2, 4),
        (128, 64, 4),
    ),
    (
        lambda t, x: column(t).flatten_dims(2, 1),
        "NKI-S06",
        lambda t, x: column(t).flatten_dims(1, 2),
        (128, 64),
    ),
    (
        lambda t, x: t.reshape_dim(1, (-1, -1, 64)),
        "NKI-S06",
        lambda t, x: t.reshape_dim(1, (2, -1, 8)),
        (128, 2, 4, 8),
    ),
    (
        lambda t, x: t.reshape((128, -8, -8)),
        "NKI-S06",
        lambda t, x: t.reshape((128, -1, 8)),
        (128, 8, 8),
    ),
    (lambda t, x: x.reshape((-128, -64)), "NKI-S06", lambda t, x: x.reshape((-1, 32)), (256, 32)),
    (
        lambda t, x: t.rearrange(("p", ("a", "b")), ("p", "b", "a"), {"a": -8, "b": -8}),
        "NKI-S06",
        lambda t, x: t.rearrange(("p", ("a", "b")), ("p", "b", "a"), {"a": 16}),
        (128, 4, 16),
    ),
    *(
        (
            lambda t, x, dim=dim: x.ap(
                [[64, 16], [1, 4]], scalar_offset=register(number(1)), indirect_dim=dim
            ),
            "NKI-N02",
            lambda t, x: x.ap(
                [[64, 16], [1, 4]], scalar_offset=register(number(1)), indirect_dim=1
            ),
            (16, 4),
        )
        for dim in (-1, 2)
    ),
]


@pytest.mark.parametrize("wrong, rule, right, shape", VIEWS)
def test_dims_and_sizes_that_do_not_exist_are_refused(wrong, rule, right, shape):
    with pytest.raises(NkiError) as caught:
        ran(wrong)
    assert caught.value.id == rule
    assert ran(right)[0].shape == shape


@pytest.mark.parametrize(
    "line, rule, words",
    [
        (lambda t, x: ~nisa.scalar_load(number(3)), "NKI-N12", "no operator ~"),
        (lambda t, x: abs(nisa.scalar_load(number(3))), "NKI-N12", "no operator abs"),
        (lambda t, x: -register(number(3)), "NKI-N04", "no operator -"),
        (lambda t, x: nisa.register_alloc(2**32), "NKI-N07", "32 bits"),
        (
            lambda t, x: nisa.register_move(nisa.register_alloc(), -(2**31) - 1),
            "NKI-N07",
            "32 bits",
        ),
        (lambda t, x: nl.affine_range(4, step=0), "NKI-L03", "does not move"),
        (
            lambda t, x: nisa.nc_transpose(
                nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum), 5
            ),
            "NKI-M02",
            "data",
        ),
        (lambda t, x: nl.zeros_like(5), "NKI-M02", "nl.zeros_like takes a tensor"),
        (lambda t, x: nl.empty_like("x"), "NKI-M02", "takes a tensor or a grid"),
        (lambda t, x: nl.expand_dims(2.5, 0), "NKI-M02", "nl.expand_dims takes a tensor"),
        (lambda t, x: nl.device_print("t", 5), "NKI-M02", "nl.device_print takes a tensor"),
    ],
)
def test_what_numbers_of_the_device_and_loops_have_not_is_a_sentence(line, rule, words):
    with pytest.raises(NkiError) as caught:
        ran(line)
    assert caught.value.id == rule and words in str(caught.value)


def test_a_register_that_is_moved_keeps_what_was_loaded():
    def line(t, x):
        copy = nisa.register_alloc(np.int64(3))
        nisa.register_move(copy, register(number(2.5, nl.float32)))
        nisa.register_store(t[0:1, 0:1], copy)

    assert ran(line)[1][0, 0] == 2.5


# -- run-time offsets on chip: the pattern stays inside of its tensor, in each partition -----------

USES = {
    "activation": lambda u, view: nisa.activation(u, nl.copy, view),
    "tensor_copy": lambda u, view: nisa.tensor_copy(u, view),
    "nl": lambda u, view: nisa.tensor_copy(u, nl.add(view, 0.0)),
}


def at_run_time(use, offset, dim, partitions=16, first=0):
    """Return rows of 4 elements of a tile (128, 64), from an offset that is data."""

    def line(t, x):
        u = nl.ndarray((partitions, 4), dtype=nl.float32, buffer=nl.sbuf)
        use(
            u,
            t.ap(
                [[64, partitions], [1, 4]],
                offset=first,
                scalar_offset=number(offset),
                indirect_dim=dim,
            ),
        )
        nisa.tensor_copy(t[0:partitions, 0:4], u)

    return ran(line)[1][0:partitions, 0:4]


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(
    "offset, dim, partitions, first",
    [(0, 1, 16, 0), (60, 1, 16, 0), (58, 1, 16, 2), (32, 0, 16, 0), (96, 0, 32, 60)],
)
def test_an_offset_inside_moves_the_pattern(use, offset, dim, partitions, first):
    want = X.reshape(-1)[first + offset * (1 if dim else 64) :]
    got = at_run_time(use, offset, dim, partitions, first)
    assert got.tolist() == [want[p * 64 : p * 64 + 4].tolist() for p in range(partitions)]


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize(
    "offset, dim, partitions, first",
    [
        (61, 1, 16, 0),
        (64, 1, 16, 0),
        (59, 1, 16, 2),
        (-1, 1, 16, 0),
        (2048, 1, 16, 0),
        (128, 0, 16, 0),
        (64, 0, 128, 0),
    ],
)
def test_an_offset_that_leads_out_of_the_tensor_is_an_error(use, offset, dim, partitions, first):
    """It would read the next partition, which no engine does."""
    with pytest.raises(IndexError) as caught:
        at_run_time(use, offset, dim, partitions, first)
    assert caught.value.nki_error.id == "NKI-I02"


def test_an_offset_moves_by_whole_elements():
    with pytest.raises(NkiError, match="part of an element"):
        ran(
            lambda t, x: nl.ndarray((16, 64), dtype=nl.uint8).ap(
                [[16, 16], [1, 4]], scalar_offset=number(1), indirect_dim=1, dtype=nl.float32
            )
        )


def test_a_view_with_a_run_time_offset_is_printed(capsys):
    ran(lambda t, x: nl.device_print("row", x.select(0, number(3))))
    assert capsys.readouterr().out.startswith("row (64,) float32 hbm\n[192. 193.")


def test_the_tensor_that_a_view_is_one_of():
    @nki.jit
    def kernel(x):
        t = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x)
        base = t[:, 8:16].view(nl.uint32).base_tensor
        assert base.shape == (128, 64) and base.dtype == "float32" and base.buffer == nl.sbuf
        out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=base)
        return out

    x = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    assert (nki.simulate(kernel)(x) == x).all()
