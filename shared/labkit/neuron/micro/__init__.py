"""Micro-kernels for verify_sim: one instruction many times, so that its time can be told."""
