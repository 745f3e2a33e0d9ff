"""The chip: its numbers, dtypes and memories, and what each operation computes."""
