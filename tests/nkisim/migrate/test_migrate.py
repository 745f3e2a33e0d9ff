"""`migrate`: what comes out computes the same, and what a person must decide is said."""

from __future__ import annotations

import ast
import textwrap

import numpy as np
import pytest

import nkisim
from nkisim.cli import main
from nkisim.migrate.file import Call, migrate

HEAD = """# a comment at the top
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128


@nki.jit
"""
RNG = np.random.default_rng(3)


def arrays(*shapes, dtype=np.float32):
    return tuple(RNG.standard_normal(s).astype(dtype) for s in shapes)


def rewritten(body, *args, signature="kernel(x)", also="", **kwargs):
    """Return the migration of a kernel, which must compute the same."""
    text = (
        HEAD.replace("@nki.jit\n", also + "@nki.jit\n")
        + f"def {signature}:\n"
        + textwrap.indent(textwrap.dedent(body).strip(), "    ")
        + "\n"
    )
    done = migrate("kernels.py", text, [Call("kernel", args, kwargs)], "trn2")
    (run,) = done.comparisons
    assert run.error is None, f"{run.error!r}\n{done.text}"
    assert run.equal and run.worst < 1e-5, done.text
    assert "neuronxcc" not in done.text and not done.refused
    return done


MADE = "out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
OUT = " " * 8 + MADE


def test_a_kernel_keeps_its_comments_names_and_loops():
    done = rewritten(
        OUT
        + """
        for i in nl.affine_range(x.shape[0] // P):      # row blocks
            # the load
            t = nl.load(x[i * P:(i + 1) * P])
            u = nisa.activation(nl.exp, t, scale=0.5)  # half of it
            nl.store(out[i * P:(i + 1) * P], value=u)
        return out""",
        *arrays((256, 64)),
    )
    assert done.decisions == []
    for line in (
        "# a comment at the top",
        "import nki\n",
        "for i in range(x.shape[0] // P):",
        "# row blocks",
        "# the load",
        "# half of it",
        "u = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.sbuf)",
        "nisa.activation(dst=u, op=nl.exp, data=t, scale=0.5)",
    ):
        assert line in done.text
    ast.parse(done.text)


def test_sums_in_psum_and_transposes_become_instructions_with_a_destination():
    done = rewritten(
        """
        M, K = x.shape
        out = nl.ndarray((M, y.shape[1]), dtype=x.dtype, buffer=nl.hbm)
        acc = nl.zeros((M, y.shape[1]), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(K // P):
            left = nl.load(x[:, k * P:(k + 1) * P])
            right = nl.load(y[k * P:(k + 1) * P, :])
            acc += nl.matmul(left, right)
        nl.store(out, value=acc)
        return out""",
        *arrays((64, 256), (256, 32)),
        signature="kernel(x, y)",
    )
    assert done.decisions == []
    for part in (
        "nl.ndarray((M, y.shape[1]), dtype=nl.float32, buffer=nl.psum)",
        "nisa.nc_transpose(dst=",
        "nisa.nc_matmul(dst=acc, stationary=",
        "nl.shared_hbm",
        "nisa.tensor_copy(dst=drained, src=acc)",
    ):
        assert part in done.text
    assert "zeros" not in done.text


def test_index_expressions_become_slices_and_box_masks_shorter_ones():
    done = rewritten(
        OUT
        + """
        rows, cols = x.shape
        for t in nl.affine_range((rows + 127) // 128):
            i_p = t * 128 + nl.arange(128)[:, None]
            i_f = nl.arange(cols)[None, :]
            a = nl.load(x[i_p, i_f], mask=(i_p < rows))
            b = nl.multiply(a, 2.0)
            nl.store(out[i_p, i_f], value=b, mask=(i_p < rows))
        return out""",
        *arrays((200, 48)),
    )
    assert done.decisions == []
    assert (
        "x[t * 128:t * 128 + min(128, rows - t * 128), 0:cols]"
        in done.text.replace("\n", " ").replace("  ", "")
        or "min(128, rows - (t * 128))" in done.text
    )
    assert "arange" not in done.text and "mask" not in done.text


def test_windows_become_views_and_inner_reductions_permuted_ones():
    done = rewritten(
        """
        out = nl.ndarray((128, 4, 6), dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        i_p, i_r, i_c, i_y, i_x = nl.mgrid[0:128, 0:4, 0:6, 0:2, 0:2]
        best = nisa.tensor_reduce(np.max, t[i_p, 2 * i_r + i_y, 2 * i_c + i_x], axis=[3, 4])
        nl.store(out, value=best)
        return out""",
        *arrays((128, 8, 12)),
    )
    assert done.decisions == []
    assert ".permute((0, 1, 3, 2, 4))" in done.text and "op=nl.maximum" in done.text
    done = rewritten(
        """
        out = nl.ndarray((128, 12), dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nl.store(out, value=nisa.tensor_reduce(nl.add, t, axis=[1]))
        return out""",
        *arrays((128, 8, 12)),
    )
    assert done.decisions == [] and "permute((0, 2, 1))" in done.text


def test_windows_of_a_size_that_is_a_parameter_stay_so():
    text = (
        HEAD
        + """def kernel(x, pool):
    out = nl.ndarray((128, 12 // pool), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    i_p = nl.arange(128)[:, None, None]
    i_c = nl.arange(12 // pool)[None, :, None]
    i_x = nl.arange(pool)[None, None, :]
    nl.store(out, value=nisa.tensor_reduce(nl.max, t[i_p, pool * i_c + i_x], axis=[2]))
    return out
"""
    )
    x = arrays((128, 12))
    done = migrate(
        "kernels.py", text, [Call("kernel", (*x, 1), {}), Call("kernel", (*x, 3), {})], "trn2"
    )
    assert done.decisions == [] and all(c.equal and not c.worst for c in done.comparisons)
    assert "reshape_dim(1, (12 // pool, pool))" in done.text


def test_block_dims_go_behind_the_partitions():
    done = rewritten(
        """
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray((4, nl.par_dim(128), 16), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(t.shape[0]):
            t[i] = nl.load(x[i])
            t[i] = nl.add(t[i], t[i])
            nl.store(out[i], value=t[i])
        return out""",
        *arrays((4, 128, 16)),
    )
    assert done.decisions == []
    assert "nl.ndarray((128, 4, 16)" in done.text and "range(t.shape[1])" in done.text
    assert "nisa.tensor_tensor(dst=t[:, i], data1=t[:, i], data2=t[:, i], op=nl.add)" in done.text


def test_operators_of_tiles_become_functions_and_a_row_comes_to_all_partitions_by_a_view():
    done = rewritten(
        OUT
        + """
        t = nl.load(x)
        row = nl.broadcast_to(nl.load(b), shape=(128, 16))
        if t is not None:
            t = (t + row) * 2.0 - t
        nl.store(out, value=t)
        return out""",
        *arrays((128, 16), (1, 16)),
        signature="kernel(x, b)",
    )
    assert done.decisions == []
    assert "nl.load(b.broadcast(0, 128))" in done.text and "nl.subtract(nl.multiply(" in done.text


def test_vectors_lie_along_the_partitions():
    rewritten(MADE + "nl.store(out, value=nl.add(nl.load(x), 1.0))\nreturn out", *arrays((100,)))


def test_tiles_of_an_allocator_become_a_list_with_addresses():
    done = rewritten(
        OUT
        + """
        n = x.shape[0] // P
        slots = 2
        t = nl.ndarray((n, nl.par_dim(P), x.shape[1]), dtype=x.dtype,
                       buffer=ncc.sbuf.mod_alloc(base_addr=64, num_free_tiles=(slots,)))
        for i in nl.affine_range(n):
            t[i] = nl.load(x[i * P:(i + 1) * P])
            t[i] = nl.multiply(t[i], 2.0)
            nl.store(out[i * P:(i + 1) * P], value=t[i])
        return out""",
        *arrays((512, 64)),
        also="import neuronxcc.nki.compiler as ncc\n@ncc.skip_middle_end_transformations\n",
    )
    assert done.decisions == [] and "ncc" not in done.text
    for line in (
        "t = []",
        "for slot in range(n):",
        "nisa.dma_copy(dst=t[i], src=x[i * P:(i + 1) * P])",
        "address=(0, 64 + slot % slots * (x.shape[1]) * size_in_bytes(x.dtype))",
    ):
        assert line in done.text, done.text


def test_a_broadcast_of_a_tile_is_a_view_or_a_load_of_a_row():
    done = rewritten(
        OUT
        + """
        g = nl.load(w.reshape((1, w.shape[0]))[0:1, :])
        for i in nl.affine_range(x.shape[0] // P):
            t = nl.load(x[i * P:(i + 1) * P])
            s = nl.sum(t, axis=1, keepdims=True)
            t[...] = nl.multiply(t, s.broadcast_to((P, x.shape[1])))
            t[...] = nl.multiply(t, g.broadcast_to((P, x.shape[1])))
            u = nl.add(t, g)
            nl.store(out[i * P:(i + 1) * P], value=u)
        return out""",
        *arrays((256, 64), (64,)),
        signature="kernel(x, w)",
    )
    assert done.decisions == []
    assert "s.broadcast(1, x.shape[1])" in done.text
    assert done.text.count(".broadcast(0, P))") == 1 and ".broadcast(0, 128))" in done.text


def test_functions_with_a_mask_compute_on_slices():
    done = rewritten(
        OUT
        + """
        n = x.shape[0]
        i_p, i_f = nl.mgrid[0:P, 0:x.shape[1]]
        for i in nl.affine_range((n + P - 1) // P):
            inside = i * P + i_p < n
            t = nl.load(x[i * P + i_p, i_f], mask=inside)
            u = nl.exp(t, mask=inside)
            u[...] = nl.multiply(u, t, mask=inside)
            nl.store(out[i * P + i_p, i_f], value=u, mask=inside)
        return out""",
        *arrays((200, 64)),
    )
    assert done.decisions == []
    assert "data1=u[0:min(" in done.text and "mask" not in done.text.split("def kernel")[1]


def test_a_tile_of_one_dim_gets_a_second_one():
    done = rewritten(
        OUT
        + """
        t = nl.ndarray((nl.par_dim(x.shape[0]),), dtype=x.dtype, buffer=nl.sbuf)
        t = nl.load(x[:, 0])
        u = nl.load(x)
        nl.store(out, value=nl.multiply(u, t))
        return out""",
        *arrays((128, 64)),
    )
    assert "nl.ndarray((x.shape[0], 1)" in done.text


def test_what_is_not_mechanical_keeps_its_text_and_is_listed_with_line_and_reason():
    body = (
        MADE
        + """
t = nl.load(x)
u = nisa.affine_select(nl.arange(128)[:, None] >= nl.arange(64)[None, :], t, 0.0)
v = nl.ndarray((1, 4), dtype=nl.float32)
for i in nl.static_range(0):
    v[...] = nisa.reciprocal(v)
nl.store(out, value=u)
return out"""
    )
    text = (
        HEAD
        + "def kernel(x):\n"
        + textwrap.indent(body, "    ")
        + "\n\n\n@nki.jit\n"
        + "def other(x):\n    return nl.load(x)\n"
    )
    done = migrate("kernels.py", text, [Call("kernel", arrays((128, 64)), {})], "trn2")
    said = {d.text: d.why for d in done.decisions}
    assert "pattern" in said[next(t for t in said if "affine_select" in t)]
    assert "no run reached" in said["def other"]
    assert any("not reached" in why for why in said.values())
    line = next(d.line for d in done.decisions if "affine_select" in d.text)
    assert text.splitlines()[line - 1].strip() == next(t for t in said if "affine_select" in t)
    assert "u = nisa.affine_select(nl.arange(128)" in done.text  # as it was
    assert done.comparisons[0].error is not None  # and so it cannot run


def test_a_difference_is_seen(monkeypatch):
    """The two runs are compared: a rewriting that computes another thing does not pass."""
    from nkisim.migrate import language

    monkeypatch.setitem(language.OPERATORS, ast.Add, "subtract")
    text = (
        HEAD
        + "def kernel(x):\n"
        + textwrap.indent(MADE + "t = nl.load(x)\nnl.store(out, value=t + t)\nreturn out", "    ")
        + "\n"
    )
    done = migrate("kernels.py", text, [Call("kernel", arrays((128, 8)), {})], "trn2")
    assert done.comparisons[0].worst > 0.1


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "old_kernels.py"
    path.write_text(
        HEAD
        + "def kernel(x, factor=2.0):\n"
        + textwrap.indent(
            MADE + "nl.store(out, value=nl.multiply(nl.load(x), factor))\nreturn out", "    "
        )
        + "\n"
    )
    return path


def test_the_command_writes_a_file_that_runs(script, capsys, monkeypatch):
    assert main.main(["migrate", f"{script}:kernel", "--arg", "128x16:float32"]) == 0
    said = capsys.readouterr().out
    assert "kernel: the same outputs; predicted" in said
    new = script.with_name("old_kernels_nki.py")
    scope: dict = {"__name__": "new"}
    exec(compile(new.read_text(), str(new), "exec"), scope)
    (x,) = arrays((128, 16))
    np.testing.assert_array_equal(nkisim.simulate(scope["kernel"], x), x * 2)

    assert main.main(["migrate", f"{script}:kernel", "--arg", "128x16:float32"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert (
        main.main(["migrate", str(script), "--call", "kernel 128x16:float32 factor=3.0", "-o", "-"])
        == 0
    )
    got = capsys.readouterr()
    assert got.out == new.read_text() and "the same outputs" in got.err


def test_wrong_requests_are_sentences(script, capsys, tmp_path):
    assert main.main(["migrate", str(script)]) == 2
    assert "Kernels in it: kernel" in capsys.readouterr().err
    assert main.main(["migrate", str(tmp_path / "none.py")]) == 2
    assert main.main(["migrate", f"{script}:kernel"]) == 1  # no argument: it does not run
    assert "The old kernel does not run" in capsys.readouterr().err
    assert not script.with_name("old_kernels_nki.py").exists()
    nowhere = str(tmp_path / "no" / "folder.py")
    assert main.main(["migrate", f"{script}:kernel", "--arg", "128x16:float32", "-o", nowhere]) == 2
    assert f"{nowhere} cannot be written" in capsys.readouterr().err
