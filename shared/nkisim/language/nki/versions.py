"""What changed between releases 0.1 and 0.7 of the package: names, arguments, since when."""

from __future__ import annotations

import difflib
from typing import Any

from ...errors import complete
from ...machine import numpy_idioms
from .. import unknown_names
from ..public_names import offered
from .names import NAMES

#: Arguments that are gone or came later, for all functions ("") or one.
_ARGUMENTS: dict[tuple[str, str], str] = {
    ("", "mask"): "since 0.1 there is no mask=: slice the operands with min(), or select with "
    "nisa.affine_select, nisa.range_select or nisa.select_reduce",
    ("", "dtype"): "since 0.1 instructions have no dtype=: the result has the dtype of dst",
    ("", "psumAccumulateFlag"): "psumAccumulateFlag is gone since 0.2; since 0.3 accumulate= says "
    "it",
    ("nisa.dma_copy", "dst_rmw_op"): "since 0.3: nisa.dma_compute(dst, [src, dst], "
    "reduce_op=nl.add)",
    ("nisa.dma_copy", "unique_indices"): "since 0.3 an argument of nisa.dma_compute",
    ("nisa.sendrecv", "use_gpsimd_dma"): "since 0.3: dma_engine=nisa.dma_engine.gpsimd_dma",
    ("nl.shared_constant", "dtype"): "since 0.3 the constant has the dtype of its array",
    ("nl.ndarray", "init_value"): "use nl.full, or nisa.memset(dst, value)",
}

#: Names of neuronxcc.nki that this dialect has not, and what to do instead.
_GONE: dict[tuple[str, str], str] = {
    ("nl", "arange"): "subscripts are slices and nl.ds; other patterns: t.ap(pattern)",
    ("nl", "mgrid"): "subscripts are slices and nl.ds; other patterns: t.ap(pattern)",
    ("nl", "atomic_rmw"): "nisa.dma_compute(dst, [src, dst], reduce_op=nl.add)",
    ("nl", "loop_reduce"): "reduce into a tile with nisa.tensor_tensor(dst=t, data1=t, ...)",
    ("nl", "all_reduce"): "nki.collectives.all_reduce",
    ("nl", "static_cast"): "nisa.tensor_copy(dst, src) casts to the dtype of dst",
    ("nl", "finfo"): "ml_dtypes.finfo, outside of the kernel",
    ("nl", "fp32"): "a number: -3.4028235e38",
    ("nl", "bfp16"): "a number",
    ("nl", "gemm_grid"): "",
    ("nl", "gemm_stationary_grid"): "",
    ("nl", "nc"): "kernel[2] runs on two cores",
    ("nl", "spmd_dim"): "kernel[2] runs on two cores; other loops are in the kernel",
    ("nisa", "builtin_custom_op"): "gone since 0.1",
}

#: Launchers that only neuronxcc.nki has.
_LAUNCHERS = ("baremetal", "benchmark", "profile", "simulate_kernel", "trace")

#: Names that the package has and this simulator does not model, with a word on them.
NOT_MODELLED: dict[str, dict[str, str]] = {
    "nl": dict.fromkeys(("int64", "uint64"), "elements of tensors have 32 bits at most"),
    "nisa": {},
    "nccl": dict.fromkeys(
        (
            "all_reduce",
            "all_gather",
            "all_gather_v",
            "reduce_scatter",
            "all_to_all",
            "all_to_all_v",
            "all_gather_v_prepare",
            "all_gather_v_trigger",
            "all_to_all_v_prepare",
            "all_to_all_v_trigger",
            "collective_permute",
            "collective_permute_implicit",
            "collective_permute_implicit_reduce",
            "collective_permute_implicit_current_processing_rank_id",
            "rank_id",
        ),
        "AWS's simulator does not have it either",
    ),
    "nki": {"FrameworkKernel": "call the kernel with arrays"},
    "ncc": {},
}
#: names that are there and that no release builds, which no hint leads to
_NOT_BUILT = ("nl.divide", "nl.mod", "nl.fmod")
_PAGES = {
    "nl": "nki.language",
    "nisa": "nki.isa",
    "nccl": "nki.collectives",
    "nki": "nki",
    "ncc": "nki.compiler",
    "nt": "nki.typing",
}


def said_of(api: str, argument: str) -> str:
    """Return what is known of an argument that a function does not have, or ""."""
    return _ARGUMENTS.get((api, argument)) or (
        _ARGUMENTS.get(("", argument), "") if api.startswith("nisa.") or argument == "mask" else ""
    )


@complete
def missing(module: str, name: str, names: dict[str, Any]) -> Exception:
    """Return the exception for a name that a module of the facade does not have."""
    page = _PAGES[module]
    if module == "nki" and name in _LAUNCHERS:
        return NotImplementedError(
            f"nki.{name} does not exist since 0.2 of the package nki. Run a kernel with "
            "nki.simulate(kernel)(*arrays); predict its time with nkisim.profile(kernel, *arrays)"
        )
    if name in NOT_MODELLED.get(module, ()):
        more = NOT_MODELLED[module][name]
        return AttributeError(
            f"{page}.{name} exists in NKI and is not modelled here"
            + (f": {more}" if more else "")
            + f". Its page: NKI API reference, {page}.{name}"
        )
    if (module, name) in _GONE:
        more = _GONE[module, name]
        return AttributeError(
            f"{page} has no {name}: neuronxcc.nki has it, this dialect not"
            + (f": {more}" if more else "")
        )
    public = names["__all__"] if module in ("nki", "nt") else offered(NAMES[module], names)
    text = (
        unknown_names.instead(module, name, unknown_names.NKI) if module in ("nl", "nisa") else ""
    )
    if text:
        return AttributeError(f"{page} has no {name!r}. Write {text}")
    same = numpy_idioms.nl_name(name) if module in ("nl", "nisa") else ""
    if same and (module == "nisa" or same in names):  # of another library, or of the other module
        return AttributeError(
            f"{page} has no {name!r}. What you look for may be "
            f"{numpy_idioms.NKI_IDIOMS.get(same, f'nl.{same}')}."
        )
    near = difflib.get_close_matches(
        name, [n for n in public if f"nl.{n}" not in _NOT_BUILT], n=3, cutoff=0.65
    )
    hint = f" Did you mean {' or '.join(f'{module}.{n}' for n in near)}?" if near else ""
    return AttributeError(f"{page} has no {name!r}.{hint}")
