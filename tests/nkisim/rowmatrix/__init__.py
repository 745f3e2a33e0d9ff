"""The matrix of instructions: every row, mask, dtype, rank and memory, against the oracles."""
