"""Give each of the two processes that compute at the same time half of the cores.

While a kernel runs in the child process, the parent computes its reference. BLAS threads that
outnumber the cores wait for each other in a spin, and a matmul then takes ten times as long.
NumPy reads these variables when it is first imported, so this module is imported before it; what
the user has set is respected.
"""

from __future__ import annotations

import os

for name in ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(name, str(max(1, (os.cpu_count() or 2) // 2)))
