"""`klr.frontend.Kernel`: what the lint says of a function for NKI 0.2, and what a run says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nki
import nki.language as nl

import nkisim
from nkisim.lint import level, program
from nkisim.lint.constructs import CONSTRUCTS, DIFFERS, NKI, REFUSED, UNLISTED

VERSION = "0.2"
#: what the kernel that was made last is refused for; klr_verdicts looks at it after each test
errors: list[str] = []


class Kernel:
    """A function, read as the parser of 0.2 would; `specialize` runs it as well."""

    def __init__(self, function: Callable):
        self.function = function
        verdicts = {row.id: row.verdict(VERSION) for row in CONSTRUCTS.values()}
        found = level.scan(program.of_kernel(function, NKI), VERSION)
        self.differs = [f for f in found if verdicts[f.id] == DIFFERS]
        errors[:] = [str(f) for f in found if verdicts[f.id] in (REFUSED, UNLISTED)]

    def specialize(self, args: tuple | None = None, *_: Any, **__: Any) -> str:
        """Run the function; where the lint says that Python differs, its assertions may fail."""
        missing = self.function.__code__.co_argcount - len(args or ())

        def kernel() -> Any:  # these functions store nothing, which a run refuses
            self.function(*(args or ()), *[None] * missing)
            out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
            nl.store(out, 0.0)
            return out

        try:
            nkisim.run(nki.jit(kernel))
        except Exception as error:
            if isinstance(error, nkisim.NkiError) or not self.differs:
                errors.append(f"{type(error).__name__}: {error}")
        return json.dumps({"errors": errors})

    def trace(self, path: str) -> str:
        """Write the file that tests remove."""
        Path(path).touch()
        return json.dumps({"errors": errors})

    def __call__(self, *args: Any) -> None:
        """Run the function, and raise for what is refused."""
        self.specialize(args)
        if errors:
            raise ValueError(errors[0])
