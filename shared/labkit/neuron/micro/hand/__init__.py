"""Micro-kernels that are generated, one for each instruction of the table."""
