"""What a compiler of NKI refuses in the source of a kernel, said before the kernel runs."""
