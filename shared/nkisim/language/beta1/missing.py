"""What to say about a name that the facade does not have: unsupported, misspelt, or unknown."""

from __future__ import annotations

import difflib
from typing import Any

from ...errors import complete
from ...machine import numpy_idioms
from .. import unknown_names
from ..public_names import offered
from .names import NAMES

# Names that the SDK has and this simulator does not model.
NOT_MODELLED = {
    "nl": {
        "all_reduce": "a reduction over the instances of a grid",
        "gemm_grid": "use nl.mgrid",
        "gemm_stationary_grid": "use nl.mgrid",
        "float32r": "use nl.tfloat32",
    },
    "nisa": {
        "builtin_custom_op": "custom C++ operators run on the chip only",
        "_tiled_offloaded_fma": "",
        "_tiled_offloaded_memcpy": "",
    },
    "ncc": {"allocation_scope": "place tensors with ncc.sbuf.alloc or mod_alloc"},
    "nki": {"FrameworkKernel": "call the kernel with NumPy arrays or torch tensors"},
}


@complete
def missing(module: str, name: str, names: dict[str, Any]) -> AttributeError:
    """Return the AttributeError for a name that a facade module does not have."""
    remedies = NOT_MODELLED.get(module, {})
    if name in remedies:
        more = f": {remedies[name]}" if remedies[name] else ""
        return AttributeError(
            f"{module}.{name} exists in NKI but is not modelled by nkisim{more}. "
            "`python -m nkisim coverage` lists what is."
        )
    public = names["__all__"] if module in ("nki", "nt") else offered(NAMES[module], names)
    text = (
        unknown_names.instead(module, name, unknown_names.BETA1) if module in ("nl", "nisa") else ""
    )
    if text:
        return AttributeError(f"{module} has no {name!r}. Write {text}")
    same = numpy_idioms.nl_name(name) if module in ("nl", "nisa") else ""
    if same:  # of another library, or of the other module
        return AttributeError(f"{module} has no {name!r}. What you look for may be nl.{same}.")
    near = [n for n in public if len(name) > 3 and n.startswith(name)] or difflib.get_close_matches(
        name, public, n=3, cutoff=0.7
    )
    hint = f" Did you mean {' or '.join(f'{module}.{n}' for n in near)}?" if near else ""
    return AttributeError(f"{module} has no {name!r}.{hint}")
