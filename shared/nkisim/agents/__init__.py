"""Doors for programs that write kernels: tools of a language model, an environment to learn in."""
