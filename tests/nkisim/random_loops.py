"""Random kernels of loops in loops, in either dialect."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from looping import count, same


def _indent(lines):
    return ["    " + line for line in lines]


def _block(head, lines):
    return [head + ":", *_indent(lines)]


_head = st.builds(
    "{}({})".format,
    st.sampled_from(["range", "nl.affine_range", "nl.sequential_range", "nl.static_range"]),
    st.sampled_from(["1", "2", "3", "4", "5", "1, 4", "size", "a + 2", "6, 0, -2"]),
)


def _loops(names, one):
    """Return lines of loops over the first of some names, and of others in it, of `one` line."""
    line = one.map(lambda x: [x])
    test = st.sampled_from(["if a > 1", "if i == 1", "if a < b and b > 0"])
    parts = [
        line,
        line,
        line,
        st.builds(_block, test, line),
        st.builds(
            lambda x, y, z: x + y + z,
            st.builds(_block, test, line),
            st.builds(_block, st.just("else"), line),
            st.one_of(st.just([]), line),
        ),
    ]
    if names[1:]:
        parts.append(_loops(names[1:], one))
    body = st.lists(st.one_of(parts), min_size=1, max_size=4).map(lambda x: sum(x, []))
    return st.builds(_block, _head.map(lambda x: f"for {names[0]} in {x}"), body)


def kernels(source, one, **sizes):
    """Return sources of kernels: `source` with a body of loops, whose lines are of `one`.

    Loops may be in one over a tuple, which is executed as it is: they run several times.
    """
    loops = _loops(["i", "j", "k"], one)
    again = st.builds(
        _block,
        st.sampled_from(
            [
                "for a in (1, 2, 0, 1)",
                "for b in (0, 1, 2)",
                "for a, b in ((0, 1), (1, 2), (1, 1), (2, 0))",
            ]
        ),
        loops,
    )
    return st.lists(st.one_of(loops, again), min_size=1, max_size=2).map(
        lambda loops: source.format(**sizes, body="\n".join(_indent(sum(loops, []))))
    )


def compiled(source, nki, **names):
    """Return the kernel, with a source that can be read."""
    file = f"<random {hash(source)}>"
    nkisim.register_source(file, source)
    exec(compile(source, file, "exec"), names)
    return nki.jit(names["kernel"])


def times_run_once(monkeypatch, sources, check):
    """Return how often loops of such kernels are executed once, in the same examples each time."""
    done = count(monkeypatch)

    @settings(max_examples=120, database=None, derandomize=True, deadline=None)
    @given(sources)
    def run(source):
        check(source)

    run()
    return len(done)


def same_as_one_by_one(kernel, *shape):
    """Assert that a kernel's record, or its error, is that of a run of all iterations.

    Most of these kernels read tiles that nothing has written; that is refused elsewhere.
    """
    with mock.patch("nkisim.machine.unwritten.refuse"):
        same(kernel, np.ones(shape, np.float32), computes=(False,))
