"""`nki_cpu_simulator.nki.builtin`: what kernels of AWS's library find under the name `builtin`,
which the parser of NKI 0.1 and 0.2 knew without an import.
"""

from __future__ import annotations

from . import language as lang

_ = lang  # builtin.lang.shared_constant
