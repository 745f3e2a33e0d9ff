"""The table of causes: why a kernel takes longer than it must.

A `Cause` says how it is recognised (`find`: a `Sign` for each line that has it), what is removed
to know what it costs (`without`: the time of the body then), and the sentence. A new cause is a
row of `CAUSES`. Of causes that save about as much, the one that is higher up is told first; of
causes of one `kin`, which are remedied alike, only one is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from . import compute, dma, masks, waits, work
from .facts import Facts
from .sign import Sign


@dataclass(frozen=True)
class Cause:
    """One way to lose time. `says` and `remedy` are filled with `Sign.say`."""

    name: str
    find: Callable[[Facts], Iterable[Sign]]
    without: Callable[[Facts, Sign], float]
    says: str
    remedy: str
    kin: str = ""
    narrows: bool = False  # the remedy is a shorter dtype, which a task may rule out: it comes last


CAUSES = (
    Cause(
        "unread-results",
        work.unread_results,
        work.left_out,
        "{count} instructions lead to nothing: no result of theirs comes to HBM",
        "leave them out",
        kin="unread",
    ),
    Cause(
        "masked-work",
        work.masked_work,
        work.left_out,
        "the mask selects nothing of {tiles} tiles, and {count} instructions work on these",
        "leave those tiles out: end the inner loop at the last tile where the mask selects "
        "something",
        kin="mask",
    ),
    Cause(
        "masked-columns",
        masks.masked_columns,
        masks.narrowed,
        "the mask selects something in {left:.0%} of the columns that it goes through, and "
        "{count} instructions work on the others as well",
        "let each tile of rows end at the last column where the mask selects something",
        kin="mask",
    ),
    Cause(
        "unread-loads",
        work.unread_loads,
        work.left_out,
        "{nbytes} are loaded in {count} DMAs, and nothing reads them",
        "leave the loads out",
        kin="unread",
    ),
    Cause(
        "spills",
        dma.spills,
        dma.gone,
        "tiles that do not fit in {memory} are spilled, which moves {nbytes} more",
        "make the tiles smaller, or fewer of them live at a time",
    ),
    Cause(
        "repeated-loads",
        dma.repeated_loads,
        dma.only_new,
        "{what}",
        "load them once, before the loop that uses them again (or change the order of the "
        "loops), and keep them in SBUF",
    ),
    Cause(
        "round-trip",
        dma.round_trips,
        dma.fused,
        "{nbytes} of intermediate results go to HBM and back ({other})",
        "use them while they are in SBUF: fuse the two passes",
    ),
    Cause(
        "transposing-dma",
        dma.transposing,
        dma.streaming,
        "a DMA that transposes moves single elements of {item} bytes, {rate:.1f} of "
        "{full:.0f} GB/s",
        "load the rows as they are and transpose on the Tensor Engine (nisa.nc_transpose), or "
        "keep the operand transposed in HBM",
        kin="size",
    ),
    Cause(
        "small-pieces",
        dma.small_pieces,
        dma.streaming,
        "its DMAs move pieces of {piece}, with a descriptor for each: {rate:.1f} of "
        "{full:.0f} GB/s",
        "let each partition {verb} more than {enough} that are contiguous in HBM",
        kin="size",
    ),
    Cause(
        "small-transfers",
        dma.small_transfers,
        dma.joined,
        "{count} DMAs of {nbytes} ({partitions} of {pmax} partitions by {row}): each takes its "
        "queue {trigger:.2f} us, whatever its size",
        "move more partitions, and more bytes a partition, with each DMA",
        kin="size",
    ),
    Cause(
        "descriptors",
        dma.descriptors,
        dma.made_before,
        "the descriptors of {count} DMAs are made one DMA after the other while the kernel runs, "
        "{each:.2f} us each",
        "have them made before it starts, where places are fixed: "
        "nisa.dma_copy(..., dge_mode=nisa.dge_mode.none); they then take space in HBM",
        kin="queue",
    ),
    Cause(
        "one-queue",
        dma.one_queue,
        dma.two_queues,
        "the {full} engine's unit makes the descriptors of {count} DMAs, and the {other} engine's "
        "unit of fewer",
        "let every second DMA be triggered by the other one: engine=nisa.engine.{other}",
        kin="queue",
    ),
    Cause(
        "one-tile",
        waits.one_tile,
        waits.halved,
        "load, compute and store of a tile follow each other: the DMA engines stand still "
        "while the tile is computed, and the other way round",
        "use more and smaller tiles (here: half the size), so that one is loaded while another "
        "is computed",
        kin="tiles",
    ),
    Cause(
        "few-tiles",
        waits.few_tiles,
        waits.halved,
        "the tiles are few and large: nothing overlaps with the first load and the last store",
        "use more and smaller tiles (here: half the size)",
        kin="tiles",
    ),
    Cause(
        "late-loads",
        waits.late_loads,
        waits.no_leads,
        "its loads come late: the compiler triggers them a fixed time before their first use, when "
        "{other} is done, and for {count} of them that is not soon enough",
        "load the next tiles before the code that computes these ones (prefetch), or more bytes "
        "with each load",
        kin="loads",
    ),
    Cause(
        "blocked-queue",
        waits.blocked_queue,
        waits.later,
        "{count} of its DMAs wait for {what} at the head of their queue, and keep the loads of "
        "{other} waiting behind them, which could go",
        "compute what they wait for one or two tiles earlier: put that part of the next iterations "
        "before them (software pipelining)",
        kin="loads",
    ),
    Cause(
        "in-turn",
        waits.in_turn,
        waits.any_order,
        "the {engine} Engine waits here for {other}, while later instructions of its own are ready",
        "begin the next tile before this one ends: put the first part of the next iteration before "
        "the last part of this one (software pipelining)",
    ),
    Cause(
        "single-buffer",
        waits.single_buffer,
        waits.no_reuse,
        "it waits until the last use ({other}) of the buffer that it overwrites",
        "give the tile a buffer of its own (allocate it inside of the loop; where tiles "
        "are placed, more physical tiles or another address)",
    ),
    Cause(
        "psum-banks",
        waits.psum_banks,
        waits.no_banks,
        "matmuls wait for a bank of PSUM until {other} has drained it",
        "let the next matmuls fill another bank meanwhile: accumulate in fewer banks at a time, "
        "or drain each as soon as it is complete",
    ),
    Cause(
        "fp32-passes",
        compute.wide,
        compute.narrow_dtype,
        "a matmul of float32 goes through the Tensor Engine {passes} times",
        "if the task allows 16 bits, use bfloat16 operands (PSUM still adds in float32)",
        narrows=True,
    ),
    Cause(
        "weights-reload",
        compute.reloads,
        compute.no_reload,
        "the Tensor Engine spends longer on loading the stationary operand ({rows} x "
        "{columns}{apart}) than on streaming {moving} moving columns",
        "use a stationary operand for more columns, and keep its elements contiguous in SBUF",
    ),
    Cause(
        "transposes",
        compute.transposes,
        compute.no_transposes,
        "{count} transposes take the Tensor Engine {busy:.0%} of the time",
        "{remedy}",
    ),
    Cause(
        "separate-sums",
        work.separate_sums,
        work.summed_meanwhile,
        "{count} instructions only sum what {other} has just written",
        "let that one sum as well: reduce_res= of nisa.activation or of nisa.tensor_scalar_reduce",
    ),
    Cause(
        "vector-squares",
        work.squares,
        work.on_scalar,
        "the Vector Engine is busy {busy:.0%} of the time and the Scalar Engine {idle:.0%}, and "
        "{count} of the first one's instructions multiply a tile by itself",
        "let the Scalar Engine do that: nisa.activation(op=nl.square)",
    ),
    Cause(
        "short-matmuls",
        compute.short_matmuls,
        compute.joined_matmuls,
        "{count} matmuls stream {moving} columns each, and each costs {fixed:.0f} cycles more",
        "stream up to {most} columns with each load of the stationary operand: as many results as "
        "a bank of PSUM holds",
    ),
    Cause(
        "short-instructions",
        compute.short_instructions,
        compute.no_gaps,
        "{count} instructions of the {engine} Engine go through {elements} elements a partition "
        "each; starting one takes as long as {fixed:.0f}",
        "work on larger tiles; where each takes the last one's result, one nisa.tensor_tensor_scan "
        "goes along the row",
    ),
    Cause(
        "idle-lanes",
        compute.idle_lanes,
        compute.all_lanes,
        "the {engine} Engine works on {partitions} of {pmax} partitions",
        "lay the data out over all partitions",
    ),
    Cause(
        "activation-tables",
        compute.tables,
        compute.no_tables,
        "the Scalar Engine changes its function table {count} times, {each:.1f} us each "
        "({functions})",
        "do all of one function before the next one, or compute one of them on another engine",
    ),
    Cause(
        "cold-clock",
        compute.cold,
        compute.warm,
        "the Tensor Engine runs at 1/{factor:g} of its clock for {cold:.1f} us, as it has had "
        "breaks",
        "keep it busy without breaks: have the next operands in SBUF before it needs them, and "
        "let products of other tiles fill the breaks",
    ),
    Cause(
        "wide-data",
        dma.wide,
        dma.narrow,
        "the DMA engines are busy {busy:.0%} of the time and no other engine more than "
        "{other:.0%}: what limits is the number of bytes, most of them here",
        "move fewer: if the task allows 16 bits, such a dtype in HBM halves them",
        narrows=True,
    ),
)

__all__ = ["CAUSES", "Cause", "Sign"]
