"""`python -m nkisim COMMAND`; see nkisim/cli."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def _missing() -> list[str]:
    """Return what nkisim needs and this Python does not have: it may run from a checkout."""
    return [name for name in ("numpy", "ml_dtypes") if find_spec(name) is None]


def _put_working_folder_last() -> None:
    """Look for modules in the working folder last, where `python -m` looks first.

    A user's ast.py or random.py there would be taken for Python's own.
    """
    if len(sys.path) > 1 and not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        sys.path.append(sys.path[0])
        sys.path[0] = sys.path[1]  # commands put a script's folder in its place


if __name__ == "__main__":
    _put_working_folder_last()
    if (missing := _missing()) and sys.argv[1:2] != ["doctor"]:  # which names them, too
        print(
            f"could not run: nkisim needs {' and '.join(missing)}: in a virtual environment,  "
            f"python -m pip install {' '.join(missing)}",
            file=sys.stderr,
        )
        sys.exit(2)
    from nkisim.cli.main import main

    sys.exit(main())
