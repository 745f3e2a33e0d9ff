"""Loops that are recorded without executing every iteration.

The first iteration says what all others record. Where values are computed all iterations run.

- source.py: what the source of a loop does, and whether only indices tell its iterations apart
- loopindex.py: an index that knows how far each loop moves it, and notices who asks for its value
- views.py: how far the loops move each operand
- extrapolate.py: from the record of one iteration to that of all
- pyrange.py: the loops of Python's `range`
"""
