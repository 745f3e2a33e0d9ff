"""`python -m nkisim COMMAND`; see nkisim.cli."""
from __future__ import annotations

import sys

from nkisim.doors.cli import main

if __name__ == "__main__":
    sys.exit(main())
