"""`labkit` and `python -m labkit`: the commands, or a sentence about what is not installed."""

from __future__ import annotations

import sys
from importlib import import_module

NEEDS = ("rich", "filelock")  # of every command; the extra "labs"


def main() -> int:
    """Run the command line; 2 if a package that every command needs is not there."""
    missing = []
    for name in NEEDS:
        try:
            import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        print(
            f"could not run: labkit needs {' and '.join(missing)}: "
            'pip install "trainium-labs[labs]"\n(the simulator alone, nkisim, needs neither)',
            file=sys.stderr,
        )
        return 2
    from .commands import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
