"""`python -m nkisim COMMAND`; see nkisim/cli."""

from __future__ import annotations

import sys


def _put_working_folder_last() -> None:
    """Look for modules in the working folder last, where `python -m` looks first.

    A user's ast.py or random.py there would be taken for Python's own.
    """
    if len(sys.path) > 1 and not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        sys.path.append(sys.path[0])
        sys.path[0] = sys.path[1]  # commands put a script's folder in its place


if __name__ == "__main__":
    _put_working_folder_last()
    from nkisim.cli.main import main

    sys.exit(main())
