"""The machine that a kernel runs on: tensors, access patterns, one instruction at a time."""
