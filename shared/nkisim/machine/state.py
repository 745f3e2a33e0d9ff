"""What a machine knows while a kernel runs, by what it is about: each a small object of its own.

`Settings` of the launch and the `Launch` itself, `Memory`, the `Loops` around this place, and of
each core of the launch a `Core`. Who needs one of them is given that one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..chip.memory import Storage
from ..trace.trace import Storages
from .chosen_bytes import ChosenBytes


@dataclass(frozen=True)
class Settings:
    """How a kernel is executed."""

    compute: bool = True  # False: the record alone, without values
    checks: bool = True  # False: findings are of no interest
    skip_middle_end: bool = False  # affine_range keeps the order of statements
    every_iteration: bool = False  # of loops is executed
    shuffle: int | None = None  # seed of the order of iterations of affine_range


@dataclass
class Launch:
    """The kernel that is launched, and on what."""

    kernel: Any
    grid: tuple[int, ...] = ()
    cores: Any = None  # Cores | None: that run the kernel together, if several do
    asked_id: bool = False  # the kernel has called nl.program_id
    seeded: bool = False  # by nl.random_seed
    control: dict[int, float] = field(default_factory=dict)  # of each core: us of registers, loops


@dataclass
class Memory:
    """Storages, and what is known of their contents and places; storages go by their id."""

    storages: Storages
    # Tensors that the kernel places itself
    arenas: dict[tuple, Storage] = field(default_factory=dict)  # (memory, core) -> their memory
    direct: bool = False  # the kernel allocates directly
    placed: int = 0  # how many tensors it has placed
    sites: dict[tuple, Any] = field(default_factory=dict)  # allocations in loops: by place, ...
    sites_seen: dict[tuple, int] = field(default_factory=dict)  # ... and how often in an iteration
    shared: list[Any] = field(default_factory=list)  # tensors in shared_hbm, as they were made
    # Contents
    #: reshapes that exchange two sizes: (before, after) -> is it an input? -> the first line
    exchanged: dict[tuple, dict[bool, int]] = field(default_factory=dict)
    masked_out: set[Any] = field(default_factory=set)  # tiles that a mask kept from being written
    indexed: set[int] = field(default_factory=set)  # where indices at run time choose
    chosen: ChosenBytes = field(default_factory=ChosenBytes)  # ... and what, if values are known
    unseen: set[int] = field(default_factory=set)  # with reads that the record does not show
    psum_filled: set[int] = field(default_factory=set)  # that no matmul wrote last
    psum_sums: dict[int, dict[int, bool]] = field(default_factory=dict)  # place of a sum: was read?
    psum_owners: dict[tuple[int, int], Any] = field(default_factory=dict)  # ... and whose it is
    # What was found to be right, to be had again
    tiles: dict[tuple, tuple[int, ...]] = field(default_factory=dict)  # shape, ... -> strides
    layouts: dict[tuple, tuple] = field(default_factory=dict)  # nl.ndarray calls -> layout
    views: dict[tuple, tuple] = field(default_factory=dict)  # resolved subscripts -> view


@dataclass
class Loops:
    """The loops of the kernel."""

    open: list[bool] = field(default_factory=list)  # by number: is it running?
    nest: Any = None  # Extrapolation | None: those that are in their first iteration
    misfits: dict[Any, int] = field(default_factory=dict)  # how often loops did not fit, by source
    tile_loops: set[tuple] = field(default_factory=set)  # `for`s that change no Python number
    ordered: int = 0  # nl.no_reorder blocks around this place
    left_out: int = 0  # instructions that a mask left out


@dataclass
class Registers:
    """What engines keep from one instruction to the next."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    accumulators: dict[str, np.ndarray] = field(default_factory=dict)  # of ACT and DVE
    sums: dict[str, list[Any]] = field(default_factory=dict)  # what is known of them, by lane


@dataclass
class Core:
    """One core of the launch: where it is in the program, and what is its own."""

    program_id: tuple[int, ...] = ()
    node: int = 0  # loop iteration being executed
    top: int = 0  # the node of the kernel's top level
    body: Any = None  # bodies.Body | None: of the innermost loop of the device
    depth: int = 0  # nesting of kernels
    shared_at: int = 0  # how many of Memory.shared it has come to
    constants: dict[tuple, Any] = field(default_factory=dict)  # tiles (P, 1) of numbers
    accepted: dict[tuple, Any] = field(default_factory=dict)  # call signatures -> what was planned
    registers: Registers = field(default_factory=Registers)
