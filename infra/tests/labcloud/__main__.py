"""python -m labcloud [PORT] [START]: run the fake cloud; prints the port it listens on."""

from __future__ import annotations

import sys

from .server import serve

serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0, sys.argv[2] if len(sys.argv) > 2 else None)
