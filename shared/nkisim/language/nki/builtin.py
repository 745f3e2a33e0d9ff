"""`nki_cpu_simulator.nki.builtin`: a name that AWS's kernel library imports and does not use."""
