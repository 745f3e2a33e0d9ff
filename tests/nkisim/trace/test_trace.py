"""The record of a run, read as arrays: the same as instruction by instruction."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.trace import trace as record
from nkisim.trace.trace import Trace


@nki.jit
def kernel(x, w):
    """Instructions of one, two and three operands, in nested loops, in all memories."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 1), np.float32)
    for i in nl.affine_range(2):
        acc = nl.zeros((128, 64), np.float32, buffer=nl.psum)
        for j in nl.affine_range(2):
            acc += nisa.nc_matmul(nl.load(w[j]), nl.load(x[i]))
        half = nl.add(acc, total)
        nl.store(out[i], half * 0.5)
    return out


@pytest.fixture(scope="module")
def trace() -> Trace:
    rng = np.random.default_rng(0)
    return nkisim.run(
        kernel, rng.random((2, 128, 64), np.float32), rng.random((2, 128, 128), np.float32)
    ).trace


def test_instructions_and_operands_are_what_iterating_gives(trace):
    instructions, operands, forms = trace.instructions(), trace.operands(), trace.operand_specs()
    seen = []
    for i, (kind, line, node, places) in enumerate(trace):
        assert trace.op_specs[instructions.spec[i]] is kind
        assert (instructions.line[i], instructions.node[i]) == (line, node)
        for number, (storage, offset) in enumerate(places):
            seen.append((i, number, storage, offset, offset, number < kind.outputs))
            form = forms[operands.operand_spec[len(seen) - 1]]
            assert form == (kind, number, kind.operands[number]) and form[0] is kind
    assert len(seen) > 20
    assert list(zip(*(x.tolist() for x in operands[:6]))) == seen
    np.testing.assert_array_equal(trace.spec_ids(), instructions.spec)


def test_the_table_of_storages_is_what_indexing_gives(trace):
    table = trace.storages.table()
    assert {s.memory for s in trace.storages} == {"hbm", "sbuf", "psum"}
    for i, s in enumerate(trace.storages):
        assert (table.hbm[i], table.psum[i]) == (s.memory == "hbm", s.memory == "psum")
        assert (
            table.nparts[i],
            table.row_bytes[i],
            table.line[i],
            table.node[i],
            table.arena[i],
            table.readonly[i],
        ) == s[2:]


def test_an_empty_trace():
    assert not len(Trace().operands().instr) and not len(Trace().instructions().spec)
    assert not len(Trace().storages.table().code)


def test_the_lowest_byte_of_a_reversed_access_is_its_last():
    @nki.jit
    def reverse(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:128, 0:8]
        nl.store(out, nl.copy(nl.load(x)[p, 7 - f]))
        return out

    x = np.arange(1024, dtype=np.float32).reshape(128, 8)
    run = nkisim.run(reverse, x)
    np.testing.assert_array_equal(run.outputs, x[:, ::-1])
    operands = run.trace.operands()
    (place,) = np.flatnonzero(operands.offset != operands.lowest)
    assert (operands.offset[place], operands.lowest[place]) == (28, 0)
    pattern = run.trace.operand_specs()[operands.operand_spec[place]][2]
    assert (pattern.span(), pattern.span(free=True)) == (4096, 32)
    # two tiles of 32 bytes a partition, at most
    assert nkisim.profile(reverse, x).sbuf_peak_bytes == 64


def test_lines_of_a_kernel_that_is_written_out(monkeypatch):
    """Many instructions in a row, on one line and on several, as in a long function."""
    monkeypatch.setattr(record, "_LONG", 0)
    body = ["t = nl.ndarray((128, 8), np.float32, buffer=nl.sbuf)", "t[...] = 0.0"]
    for i in range(600):
        body += [f"t[:, {i % 8}] = nl.add(t[:, 0],", f"                t[:, {i % 7}])"]
        body += ["t[...] = nl.exp(t); t[...] = nl.exp(t)"] if i % 5 == 0 else []
    body += ["nl.store(out, t)", "return out"]
    text = (
        "def written_out(x):\n out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n"
        + "".join(f" {line}\n" for line in body)
    )
    names = {"nl": nl, "np": np}
    exec(compile(text, "written_out.py", "exec"), names)
    kernel = names["written_out"]
    trace = nkisim.run(nki.jit(kernel), np.zeros((128, 8), np.float32)).trace
    lines = [trace.lines[line].line for line in trace.instructions().line.tolist()]
    source = text.splitlines()
    calls = ("nl.add(", "nl.exp(", "0.0", "nl.store(")
    said = [n for n, line in enumerate(source, 1) for _ in range(sum(map(line.count, calls)))]
    assert lines == said
