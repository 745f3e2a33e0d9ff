"""`nki_cpu_simulator`: the package that the simulation mode of AWS's kernel library imports."""

from __future__ import annotations

from .. import nki

__simulator__ = True
_ = nki
