"""What is read from instructions is the same for every version of Python."""

from __future__ import annotations

import sys

import pytest

from nkisim.machine.bytecode import changed_names, is_for_statement, joins


class Loop:
    """Iterates over two numbers; notes which statement asked for them."""

    def __init__(self):
        self.statement, self.changed = None, None

    def __iter__(self):
        frame = sys._getframe(1)
        self.statement = is_for_statement(frame.f_code, frame.f_lasti)
        if self.statement:
            self.changed = set(changed_names(frame.f_code, frame.f_lasti))
        return iter((1, 2))


def plain(loop):
    for _ in loop:
        pass


def last_of_two(loop):
    for _ in range(2):
        for _ in loop:
            pass


def with_much_in_it(loop):
    a = b = c = 0
    for i in loop:
        a, b, c = b + i, c * i, a - i
        a, b, c = b + i, c * i, a - i
        a, b, c = b + i, c * i, a - i
        a, b, c = b + i, c * i, a - i
        a, b, c = b + i, c * i, a - i
        a, b, c = b + i, c * i, a - i
        a, b, c = b + i, c * i, a - i
        a, b, c = b + i, c * i, a - i
        a, b, c = b + i, c * i, a - i


def around_comprehensions(loop):
    for i in loop:
        _ = [i + k for k in (1, 2)], {i + k for k in (1, 2) for _ in (1, 2)}, {i: i for i in (1,)}


def around_displays(loop):
    for i in loop:
        _ = [*range(i), i, i], {*range(i), i}, {"a": i, **{"b": i}}


def after_a_walrus(loop):
    for _ in (again := loop):
        assert again


def of_a_condition(loop):
    for _ in loop if loop else ():
        pass


@pytest.mark.parametrize(
    "function",
    [
        plain,
        last_of_two,
        with_much_in_it,
        around_comprehensions,
        around_displays,
        after_a_walrus,
        of_a_condition,
    ],
    ids=lambda f: f.__name__,
)
def test_a_for_statement_is_one(function):
    loop = Loop()
    function(loop)
    assert loop.statement is True


@pytest.mark.parametrize(
    "function",
    [
        lambda loop: [i for i in loop],
        lambda loop: {i for i in loop},
        lambda loop: {i: i for i in loop},
        lambda loop: [i for i in loop if i],
        lambda loop: [k for _ in range(2) for k in loop],
        lambda loop: [k for _ in range(2) if loop for k in loop if k],
        lambda loop: {k for _ in range(2) for _ in range(2) for k in loop},
        lambda loop: {k: [k, *range(k)] for _ in range(2) for k in loop},
        lambda loop: [k for k in loop for _ in range(2)],
        lambda loop: [[j for j in range(i)] for _ in range(2) for i in loop],
        lambda loop: [[j for j in loop] for i in range(2)],
        lambda loop: list(i for i in loop),
        lambda loop: list(k for _ in range(2) for k in loop),
        lambda loop: list(zip(loop, (1, 2))),
        lambda loop: [*loop],
        lambda loop: max(*loop),
        lambda loop: [a := 1, *loop] and a,
        lambda loop: 1 in loop,
    ],
)
def test_what_else_asks_for_an_iterator_is_none(function):
    loop = Loop()
    function(loop)
    assert loop.statement is False


def test_a_for_statement_of_a_generator_hands_iterations_to_someone_unknown():
    loop = Loop()

    def generator():
        for i in loop:
            yield i + 1

    assert list(generator()) == [2, 3] and loop.statement is False


def test_variables_that_a_body_reads_and_then_binds_anew():
    loop = Loop()
    shared = 1

    def reads():
        return shared

    a = b = c = d = e = 1
    for i in loop:
        a += i
        b, c = c, b
        d = i  # bound first
        if d and reads():
            shared = shared + d + e
    assert (a, b, c, shared) == (4, 1, 1, 6)
    assert loop.changed == {"a", "b", "c", "shared"}


class Truth:
    """Notes whether the value of what asks for its truth is kept."""

    def __init__(self):
        self.kept = None

    def __bool__(self):
        frame = sys._getframe(1)
        self.kept = joins(frame.f_code, frame.f_lasti)
        return True


def an_if(t):
    if t:
        return 1


def an_if_that_joins(t):
    if t and 1:
        return 1


def a_while(t):
    while t or 1:
        break


@pytest.mark.parametrize(
    "function, kept",
    [
        (lambda t: t and 1, True),
        (lambda t: t or 1, True),
        (lambda t: [t and 1], True),
        (lambda t: 1 and t and 2, True),
        (lambda t: not t, False),
        (lambda t: 1 if t else 2, False),
        (an_if, False),
        (an_if_that_joins, False),
        (a_while, False),
    ],
)
def test_conditions_whose_value_is_kept(function, kept):
    truth = Truth()
    function(truth)
    assert truth.kept is kept
