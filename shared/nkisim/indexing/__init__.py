"""Subscripts: from what a kernel writes in brackets to a strided access pattern."""
