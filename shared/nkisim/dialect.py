"""The two dialects as data: what differs between them, each difference a trait with a name.

A front end (`language/beta1`, `language/nki`) gives the record of its dialect to the launch, and
the machine and the rows of the instruction table ask for a trait, never for a name. What differs
between releases of the package nki is a trait as well (`older`, `traced`, `scalars`), which its
front end sets.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """What a kernel is written in. No trait has a default: a dialect says all of them."""

    name: str  # in records and on command lines
    # Calls
    own_signatures: bool  # parameters and defaults are those of `Row.nki`, not of `Row.signature`
    names_dst: bool  # all calls name what they write: no result is a value
    nki_operands: bool  # operands take what the package nki documents (`Operand.nki_dtypes` ...)
    long_vectors: bool  # of a vector with more partitions than the tile, the first ones are read
    newer_dtypes: bool  # those of `dtypes.NEWER` exist
    # Instructions
    all_integers_exact: bool  # GpSimd computes all arithmetic of 32-bit integers, or a part of it
    psum_stays_on_dve: bool  # nisa.tensor_tensor of PSUM is never GpSimd's unless it is named
    sums_in_registers: bool  # nisa.tensor_scalar_reduce uses the accumulator registers, and
    # with them four operators; it takes reverse0
    partition_average: bool  # nisa.tensor_partition_reduce takes nl.average
    # Memory
    zeros_before_sums: bool  # a sum in PSUM begins with zeros that the kernel asks for
    places_all_tiles: bool  # a kernel that places a tensor on chip places every one
    sums_are_states: bool  # whether a sum goes on is known as it is issued, not from the record
    # The compiler
    refuses_dma_forms: bool  # DMAs of one row for all partitions, 4-byte transposes
    middle_end: bool  # its middle end works on kernels, unless they ask it not to
    compiler_options: tuple[str, ...]  # what it does besides (timing/compiler.py)
    # The release
    older: bool  # calls are those of NKI 0.1 and 0.2
    traced: bool  # kernels are traced with Python: nothing asks for a value
    scalars: bool  # and there are scalars: loops count in them


BETA1 = Dialect(
    name="beta1",
    own_signatures=False,
    names_dst=False,
    nki_operands=False,
    long_vectors=False,
    newer_dtypes=False,
    all_integers_exact=False,
    psum_stays_on_dve=False,
    sums_in_registers=False,
    partition_average=False,
    zeros_before_sums=True,
    places_all_tiles=True,
    sums_are_states=False,
    refuses_dma_forms=True,
    middle_end=True,
    compiler_options=(),
    older=False,
    traced=False,
    scalars=False,
)
#: of the newest release; the front end says what holds for an older one
NKI = Dialect(
    name="nki",
    own_signatures=True,
    names_dst=True,
    nki_operands=True,
    long_vectors=True,
    newer_dtypes=True,
    all_integers_exact=True,
    psum_stays_on_dve=True,
    sums_in_registers=True,
    partition_average=True,
    zeros_before_sums=False,
    places_all_tiles=False,
    sums_are_states=True,
    refuses_dma_forms=False,
    middle_end=False,
    compiler_options=(
        "use-order",
        "step-loads",
        "keep-loads",
        "software-elements",
        "slice-spills",
        "late-fills",
    ),
    older=False,
    traced=True,
    scalars=True,
)
