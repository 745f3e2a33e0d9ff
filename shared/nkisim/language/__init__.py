"""The front ends: what kernels import."""
