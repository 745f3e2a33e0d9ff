"""`python -m nkisim COMMAND`; see nkisim/cli."""

from __future__ import annotations

import sys

from nkisim.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
