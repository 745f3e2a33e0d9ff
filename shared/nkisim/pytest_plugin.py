"""pytest plugin: `import neuronxcc.nki` works in conftest files and tests.

Installed packages load it by themselves (entry point `pytest11`); a checkout that is only on
the path uses `-p nkisim.pytest_plugin`.
"""
from __future__ import annotations

from nkisim.finder import install

install()  # on import: plugins are imported before any conftest
