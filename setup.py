"""Refuses a Python that is too old, at once and in a sentence; all else is in pyproject.toml.

Older pips download and compare packages for minutes before they look at `requires-python`. So this
file and noxfile.py are in a syntax that old Pythons read, and say it first.
"""

import sys

OLDEST = (3, 10)

if sys.version_info < OLDEST:
    sys.stderr.write(
        f"trainium-labs needs Python {OLDEST[0]}.{OLDEST[1]} or newer; this is Python "
        f"{sys.version.split()[0]} ({sys.executable}).\n"
        "Install a newer one, from your system's packages or python.org, and give the command with "
        "it, as in  python3.13 -m pip ...\n"
    )
    sys.exit(2)

import setuptools  # noqa: E402

setuptools.setup()
