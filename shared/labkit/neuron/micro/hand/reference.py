"""These kernels have no reference: backends are held against each other."""
