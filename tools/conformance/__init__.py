"""Run public suites and course repositories on the simulator, and count what becomes of them.

`nox -s conformance -- --sources DIR` takes a folder of checkouts, `DIR/owner+name` or
`DIR/owner+name@ref`. Nothing of the sources is part of this repository, and nothing is fetched.
"""
