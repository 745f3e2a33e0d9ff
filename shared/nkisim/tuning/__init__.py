"""Tuning: which constants, arguments and variants of a kernel are predicted to be the fastest."""
