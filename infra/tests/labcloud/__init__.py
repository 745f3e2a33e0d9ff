"""A cloud on loopback for tests: moto behind our own HTTP server, with a clock that can be
moved."""
