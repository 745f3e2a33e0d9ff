"""The rules that the simulator enforces or reports, for `python -m nkisim explain ID`.

Each has a stable id, the SDK's name of the condition where it has one (page "NKI API Errors"),
a title that states the limit, a page of text, and a hint ("Try: ..."). `errors.fail` and
`Machine.find` refer to them by id; title and hint stand in where a call gives none of its own.
`{field}` in a text is a field of `chip.hw.NeuronCore`: its value on each target is put there.
"""

from __future__ import annotations

from dataclasses import dataclass

from .basis import basis


@dataclass(frozen=True)
class Rule:
    """One rule: `text` says why the chip has it and what to do.

    `refused`: findings of this severity or a worse one report what AWS's compiler is known to
    refuse; "" for rules about other things.
    """

    id: str
    title: str
    text: str
    name: str = ""
    hint: str = ""
    refused: str = ""
    nki_hint: str = ""  # the hint for kernels of the package nki, if it is another one


_PAGES = """
NKI-P01 | err_num_partition_exceed_arch_limit | At most 128 partitions
SBUF and PSUM are 128 partitions wide, and an engine has a lane for each. The first dim of a tile is its partition dim, so no tile has more than 128 rows, whatever their size. A 1-D HBM access of n elements becomes a tile of n partitions. Loop over chunks of 128 rows, or reshape so that more elements lie along the free dimension: one instruction then does more work for the same start-up cost.
NKI-P02 | - | A tensor on chip has a partition dim and a free dim
Every on-chip tensor is [partition, free...]. One element per partition is shape (P, 1), not (P,).
Try: shape (n, 1) for one element a partition.
NKI-P03 | err_failed_to_infer_tile_from_local_tensor | The partition dim comes first
Compute instructions take tiles: the partition dim, then free dims. Block dims in front of nl.par_dim must be indexed away first (t[i]), and an index expression for the partitions has its axis first: nl.arange(128)[:, None].
NKI-P04 | - | Where a range of partitions may start
More than 64 partitions start at 0; 33 to 64 start at 0 or 64; up to 32 start at 0, 32, 64 or 96. Engines read whole quadrants of 32 partitions. DMA has no such rule.
NKI-P05 | - | No stride over partitions
Partitions of a tile are contiguous on chip. In HBM any stride is fine, so do the striding in the load.
Try: put the strided dim on the free axis, or load the rows with a strided access to HBM.
NKI-P06 | - | One partition dim
nl.par_dim marks the partition dim; a tensor has one.
Try: mark one dim only; the dims before it are block dims.
NKI-P07 | err_size_of_dimension_exceed_arch_limit | Sizes of Tensor Engine operands
The array is 128 x 128. The stationary operand has at most 128 elements per partition, the moving one 512 (a PSUM bank of float32), and a transpose on the Tensor Engine takes 128 x 128, on the Vector Engine 32 x 32.
Try: loop over tiles of the size in the limit.
NKI-P08 | err_size_of_dimension_exceed_arch_limit | How many elements an instruction takes
An operand of an engine has up to 64K elements per partition in SBUF and 4K in PSUM (8K on trn3), and what a view repeats counts each time. bn_stats takes up to 512; max8 and find_index8 8 to 16384; their value operands exactly 8. A DMA of more elements than SBUF has repeats them on one side only (assumed: no document says it).
Try: split the free dim, or fill it up to the smallest size.
NKI-I01 | err_tensor_access_out_of_bound | An access stays inside its tensor
Indices are known when the kernel is traced, so an access outside of a tensor is an error there. Where the last tile is partial, a mask cuts the access: nl.load(x[i_p, i_f], mask=(i_p < n)).
Try: check the loop bound; end the slice of a partial last tile at the size, or pass mask=(index < size) (neuronxcc.nki).
NKI-I02 | - | Run-time indices stay inside the tensor
An index tile is data; the chip checks it when the DMA runs. oob_mode.skip drops the rows that are outside.
NKI-I03 | - | What a subscript may be
Integers, a:b slices, nl.ds, ..., index expressions, and for DMA one index tile. Numbers are integers: size / 2 is a float in Python, size // 2 is not.
Try: t[i], t[0:128, j*512:(j+1)*512], t[nl.arange(128)[:, None], nl.arange(512)[None, :]].
Try (import nki): t[i], t[0:128, j*512:(j+1)*512], t[:, nl.ds(start, size)].
NKI-I04 | err_cannot_assign_to_index | Indices and masks are read-only
They describe an access, they hold no data. nisa.iota makes a tile of an index expression.
Try: build another expression with + - * and comparisons; nisa.iota makes a tile of one.
NKI-I05 | - | Index expressions are affine
const + sum of coefficient * index, with integer coefficients: that is what an access pattern of the hardware can do. No division, remainder or product of indices.
Try: + and - of indices, and * with integers; loop over the rest.
NKI-I06 | - | Index expressions broadcast like NumPy
Sizes are equal or 1 in each dimension, counted from the last one.
Try: give each nl.arange an axis of its own with None.
NKI-I07 | err_unsupported_expression_in_mask | Masks compare index expressions
(i_p < 64) & (i_f < n), with affine expressions on both sides. A mask costs nothing: it cuts the access pattern when the kernel is traced. It cannot depend on data.
Try: mask=(i_p < n) & (i_f < k).
NKI-I08 | err_ambiguous_tensor_truth_value | Tensors, indices and masks have no truth value
The kernel is traced once, before any data exists: `if tile > 0` cannot be decided. Join masks with &; select data with nl.where. (Also err_dynamic_control_flow_not_supported and err_control_flow_condition_depending_on_arange.)
Try: loop over nl.affine_range(n), join masks with &, select data with nl.where.
Try (import nki): loop over range(n); select data with nl.where.
NKI-I09 | err_1d_arange_not_supported | An index expression needs its axis
nl.arange(128) says how many, not along which axis. nl.arange(128)[:, None] are partitions, nl.arange(512)[None, :] the free dimension.
NKI-I10 | err_unsupported_mixing_basic_advanced_tensor_indexing | Slices or index expressions, not both
A subscript is basic (ints, slices) or advanced (index expressions, ints).
Try: write nl.arange(n)[None, :] in place of the slice.
NKI-I11 | - | One index tile in an indirect access
An index tile is int32 or uint32 of shape (n, 1) in SBUF; the other subscripts are nl.arange expressions or ints.
Try: t[idx_tile[i_p, 0], i_f] with i_p, i_f from nl.arange.
NKI-I12 | err_indirect_indices_free_dim | Indirect access selects rows
DMA descriptors can start anywhere, but each moves a contiguous run: run-time indices select partitions or blocks, not free elements.
NKI-I13 | err_indirect_indices_are_not_supported_with_nki_api | Not every API takes an index tile
nl.load, nl.store, nisa.dma_copy and nisa.dma_transpose do.
Try: gather the rows with nl.load first.
NKI-I14 | - | Masks are joined with &, not with and
Python decides `a and b` by the truth of a, and takes b if it is true: of two masks only the second is left, of `a or b` the first. A chained comparison, 0 <= i_f < n, is such an `and`. The kernel runs, here and in the SDK, and computes or stores more than it says.
Try: (i_p < 64) & (i_f < n), each comparison in parentheses.
NKI-I15 | err_ambiguous_tensor_truth_value | A parameter that may be left out is tested with `is None`
`if bias:` asks for the truth of a tensor. A parameter is a handle when the kernel is traced: it is true if it is there, and no element of it is looked at. Kernels that do this have run, and the SDK's page of errors refuses it, so say what is meant. The truth of a tile would be data, which is an error (NKI-I08).
Try: if bias is not None: ...
NKI-I16 | - | Rows of a scatter go to different places
Where run-time indices choose the rows that a DMA writes, the rows are moved at the same time, in no order: of two that go to one place, either is left, or a part of each. Equal values do no harm. nisa.dma_compute, which adds, reads a row before it writes it and takes unique indices only; nisa.dma_copy with dst_rmw_op=np.add waits where indices repeat.
Try: give each row a place of its own (a spare row for each one that is dropped, or oob_mode.skip), or add up rows of one place by a product first.
NKI-S01 | err_store_dst_shape_smaller_than_other_shape | Destination and value have the same shape
An instruction writes the elements it computes, one each; only dims of size 1 of the value are repeated to fill the destination. In neuronxcc.nki AWS's page of errors has that as right (a value of (128, 1) assigned to (128, 512)), and nl.store does it as well.
Try: make the tile with the shape of the value, or write a part of it: t[0:64] = value.
Try (import nki): make the tile with the shape of the source or of the result; a part of a tile is t[0:64].
NKI-S02 | - | Operands have matching shapes
Equal free dims, or 1; the contraction dim of a matmul lies on the partitions of both operands.
Try: slice both operands to the same tile.
NKI-S03 | err_exceed_max_supported_dimension | The number of dims an instruction takes
Matmul, transposes and 2-D loads take two dims. Elsewhere an access pattern has a partition dim and up to four free dims; the compiler splits an instruction on a tile of more, and the simulator warns because it predicts it as one.
Try: reshape the free dims to one before the call.
NKI-S04 | err_num_partition_mismatch | Operands lie on the same number of partitions
A lane works on its own partition. nisa instructions and Python operators never repeat a partition; nl functions do, through the Tensor Engine.
Try: nl.broadcast_to(x, shape=(128, n)), or the nl functions (nl.add ...), which do it for you.
Try (import nki): nisa.dma_copy(dst=t, src=row.broadcast(0, 128)) of a row in HBM; on chip a product with ones.
NKI-S05 | err_annotation_shape_mismatch | A shape that the kernel promises
assert_shape states what the kernel counts on, so that a wrong tile size shows where it arises and not three instructions later.
Try: print the shape, and check the arithmetic of the tile sizes.
NKI-S06 | - | Sizes are positive integers
Use // for sizes. A size of 0 usually means that the tile is larger than the tensor.
Try: use // instead of / for sizes; is the size a multiple of the tile size?.
NKI-S07 | - | A reshape is a view
In HBM any regrouping of contiguous elements is free. On chip only free dims can be regrouped: moving data between partitions is work for a DMA or a transpose.
Try: reshape the whole tensor in HBM before slicing and loading it.
NKI-S08 | - | Tiles of the PE array
tile_position and tile_size are multiples of 32; several small matmuls then share the array.
Try: leave both out: the whole array is the default.
NKI-S09 | - | Vector operands
A number, or one element per partition: a tile of shape (P, 1).
Try: a number, or a tile of shape (P, 1); nisa.tensor_tensor for two tiles of one shape.
NKI-S10 | - | Reductions run over free axes
A lane reduces what lies in its own partition. Across partitions: a matmul with ones, a transpose, or the slow nisa.tensor_partition_reduce.
Try: axis=1 for a tile (P, F); across partitions a matmul by ones or a transpose.
NKI-S11 | - | Operands of gathers and sequence instructions
Gathers read their indices per group of 16 partitions, in fixed dtypes and shapes; sequence_bounds works on one partition.
Try: help() of the function lists the shapes and dtypes.
NKI-S12 | err_exceed_max_supported_dimension | nl.transpose takes 2-D tiles
nl.transpose swaps the partition dim with one free dim.
Try: reshape the free dims to one first.
NKI-S13 | - | Shuffle masks
32 source partitions of a quadrant; 255 leaves a partition as it is.
NKI-S14 | - | Sizes that are floats
Python's / makes a float even where it divides: 8 / 2 is 4.0. The SDK takes such a float for the integer that it equals, and so does the simulator; a float that is no whole number is an error. Large sizes lose digits as floats, and the size that does not divide evenly is found by no one.
Try: // for every size, bound and offset.
NKI-S15 | - | A copy does not transpose
nisa.dma_copy takes the elements of both sides in their order. Where source and destination have the same two sizes in the other order, (64, 128) and (128, 64), each row of one becomes parts of several rows of the other: a regrouping, which hardly any kernel wants there. One that wants it says so with a view. A reshape that exchanges two sizes of a tensor, (64, 128) to (128, 64), is a view, and moves no element either: it is a note where no reshape of the kernel exchanges them back.
Try: nisa.dma_transpose or nl.load_transpose2d to transpose; x.reshape(...) to regroup.
NKI-D01 | - | No 64-bit types
The engines compute in float32; NumPy makes float64 and int64 unless told otherwise. Convert before the call: x.astype(np.float32).
NKI-D02 | - | The data types of the chip
float32, tfloat32, bfloat16, float16, float8_e4m3, float8_e5m2, and 8-, 16- and 32-bit integers.
NKI-D03 | - | Constants fit in 32 bits
Constants travel inside the instruction, which has 32 bits for them. Sizes and addresses have 64.
Try: a float constant, or a smaller integer.
NKI-D04 | - | A view as another dtype
The last dim's bytes must divide by the new item size.
Try: reshape so that the last dim is contiguous and long enough.
NKI-D05 | - | Dtypes of Tensor Engine and shuffle operands
Matmuls take floats: float32 with float32, 8- and 16-bit floats with each other. Accumulation is float32.
Try: cast with nl.copy(x, dtype=...).
Try (import nki): nisa.tensor_copy into a tile of the other dtype.
NKI-D06 | - | Bit operators take integers
and, or, xor, not and shifts work on the stored bits; the bits of a float mean something else.
Try: cast to an integer dtype, or .view() the bits as uint32.
NKI-D07 | - | Dtypes that the documentation names
The documents of an instruction name the dtypes of its operands. This one is of another: the chip may still take it, but no document promises that.
Try: cast the operand to a documented dtype.
NKI-D08 | - | Sums of products are floats
The Tensor Engine multiplies floats and PSUM adds them up as float32; an integer accumulator would cut off each product.
Try: nl.zeros(..., dtype=nl.float32, buffer=nl.psum), and nl.copy(acc, dtype=nl.int32) at the end.
Try (import nki): dst in float32, and nisa.tensor_copy into an integer tile at the end.
NKI-D09 | - | Promises about values are kept
is_stationary_onezero=True and is_moving_onezero=True promise the Tensor Engine that an operand holds zeros and ones only: then it computes float32 in fewer passes. With other values the product is wrong, and nothing says so.
Try: leave the keyword out, or make the operand of comparisons, masks, ones or an identity.
NKI-D10 | - | Integers that their arithmetic or dtype does not hold
The engines compute in float32, which has every integer up to 2**24 (16,777,216) and every second one beyond; bfloat16 has them up to 256, float16 up to 2,048. Results that an integer dtype cannot hold saturate: a sum of uint8 stays uint8 unless dtype= says more. Exact on 32-bit integers are bit operators, and add, subtract and multiply of two tiles on GpSimd.
Try: dtype=nl.int32 or nl.float32 for sums; nisa.tensor_tensor on int32 tiles, or two halves of 16 bits, for large integers.
NKI-D11 | - | Products are added up in float32
PSUM adds products to float32 in place. An accumulator of 16 bits has no such addition: each product goes to a tile of its own, the Vector Engine adds it, and each sum is rounded to 8 or 11 bits of mantissa (float16 also ends at 65,504).
Try: nl.zeros(..., dtype=nl.float32, buffer=nl.psum), and a cast of the complete sum.
NKI-M01 | err_unsupported_memory | Operands in the wrong memory
Compute engines read SBUF and PSUM, never HBM. The Tensor Engine reads SBUF and writes PSUM. DMA moves between HBM and SBUF. GpSimd does not reach PSUM.
NKI-M02 | - | Operands are tiles
Instructions read and write tiles: tensors in SBUF or PSUM that the kernel has made, never arrays of the host, lists or indices.
Try: nl.load the kernel's argument into a tile, or make one with nl.ndarray.
Try (import nki): nisa.dma_copy the kernel's argument into a tile, or make one with nl.ndarray.
NKI-M03 | err_unsupported_memory | HBM is written by DMA
out[...] = tile is no instruction; nl.store(out[...], value=tile) is.
NKI-M04 | - | A tile fits into a partition
A partition of SBUF has {sbuf_bytes}; a kernel can use {sbuf_usable_bytes}. A partition of PSUM has {psum_bytes}, in banks of {psum_bank_bytes}.
NKI-M05 | - | Memories
A tensor lives in HBM (kernel inputs and outputs, gigabytes, slow), in SBUF (tiles, megabytes, fast) or in PSUM (results of the Tensor Engine).
Try: buffer=nl.sbuf, nl.psum or nl.shared_hbm.
NKI-M06 | - | A matmul writes one PSUM bank
A bank is 2 KiB per partition: 512 float32. The accumulators of a matmul group cannot cross into the next bank.
NKI-M07 | - | One operand from PSUM
Two-operand Vector Engine instructions read at most one operand from PSUM.
NKI-M08 | err_hbm_tensor_with_init_value_not_supported | HBM tensors have no initial value
HBM is written by DMA, so a value takes an instruction; nl.zeros and nl.full make tiles.
Try: nl.ndarray, then nl.store a tile or a number.
Try (import nki): nl.ndarray, then nisa.memset a tile and nisa.dma_copy it.
NKI-M11 | - | A tensor in HBM fits into the memory of the chip
All cores of a chip share its HBM, {hbm_bytes}.
Try: print the shape; a size beyond all memory is a product too many.
NKI-M12 | - | One open sum in a bank of PSUM
PSUM has eight banks, and the architecture guide counts eight open sums of products, one in each. Several that begin with accumulate=False in one bank, such as the columns of one tile, went wrong on a trn2 (NKI 0.6): all but the last one lost a product. AWS's simulator and this one compute them rightly, and some builds end with NCC_ISCH715. Single products may share a bank, and kernels of AWS's library put sums into one bank that the compiler begins: without accumulate=.
Try: a PSUM tile for each sum, or copy a sum out before the next one begins.
NKI-M10 | - | Tiles that live at the same time fit into SBUF and PSUM
A tile's memory is free again when it has been read for the last time. What is alive at the same time, of all tiles, has to fit into a partition: of SBUF {sbuf_usable_bytes}; of PSUM {psum_bytes}. What does not is spilled: from SBUF to HBM and back, from PSUM to SBUF. The predicted time has that.
Try: smaller tiles, or load later and use sooner.
NKI-M09 | - | A copy from PSUM that the compiler inserts
The Tensor Engine cannot read PSUM. The compiler copies such an operand to SBUF, on an engine and at a time that it chooses.
Try: t = nl.copy(psum_tile) where it suits you.
Try (import nki): nisa.tensor_copy(dst=t, src=psum_tile) where it suits you.
NKI-E01 | - | Engines and operators
Each instruction runs on some engines, and takes some operators; the error lists them.
Try: leave engine= out, or pick one of the list.
NKI-E02 | err_unsupported_memory | GpSimd and PSUM
GpSimd has no port to PSUM.
Try: the vector or the scalar engine, or copy the tile to SBUF first.
NKI-E03 | - | Needs a newer NeuronCore
Some instructions and DMA features came with NeuronCore-v3 (trn2).
Try: simulate for trn2, or use what the hint of the error names.
NKI-E04 | - | Read-modify-write DMAs add
A DMA can add to what the destination holds, and nothing else; and it cannot both add and skip rows.
Try: op=np.add, with oob_mode.error.
NKI-E05 | - | Combined operators
op0 and op1 of one instruction are both bit operators or both arithmetic.
Try: make two calls.
NKI-E06 | - | Operators that can reduce
A reduction combines elements in any order, so its operator must not care; and a few instructions have an adder or a comparator only.
Try: nl.add or nl.max, or another instruction for the rest.
NKI-E07 | - | Activation functions have a valid range
The Scalar Engine evaluates piecewise polynomials; outside of the documented range its result is wrong, silently.
NKI-E08 | err_activation_bias_invalid_type | Activation bias
A vector of shape (P, 1), in float32, bfloat16 or float16.
Try: a tile of shape (P, 1) in float32, bfloat16 or float16.
NKI-E09 | err_activation_scale_scalar_or_vector | Activation scale
A number, or a tile of shape (P, 1).
Try: a number, or a float32 tile of shape (P, 1).
NKI-E10 | err_activation_scale_invalid_type | Activation scale is float32
The Scalar Engine multiplies by the scale in float32 and reads it as such.
Try: nl.copy(scale, dtype=nl.float32).
Try (import nki): nisa.tensor_copy(dst, scale), with dst in float32.
NKI-E11 | - | Operators and activation functions
An op argument is a function of nl or NumPy (nl.add, np.add), not called, that the instruction has.
NKI-E12 | - | What range_select puts elsewhere
nisa.range_select writes the least float32 where the comparisons fail; there is no choice.
Try: leave on_false_value= out.
NKI-E13 | - | Operators of an engine
Not every engine has every operator: the Scalar Engine multiplies and adds (from NeuronCore-v3 on), GpSimd has power, rsqrt and exact 32-bit integers. What an engine lacks by its documents may be refused by the compiler, or run elsewhere.
Try: leave engine= out, and the compiler picks one that can.
NKI-E14 | - | Performance modes of the Tensor Engine
perf_mode="double_row" multiplies two pairs of 8-bit floats a cycle, on NeuronCore-v3 and newer: the contraction is over the partitions and the dim next to them, which is 2, as in (128, 2, 512). Both operands are float8_e4m3 or float8_e5m2 (on NeuronCore-v4 also float8_e4m3fn). It does not go together with transpose mode, nor with a part of the columns of the array. Other dtypes have one rate, whatever perf_mode says.
Try: leave perf_mode out, or bring the operands into that form.
NKI-E15 | - | is_transpose moves elements, it does not multiply
With is_transpose=True the stationary operand is transposed: the moving operand is an identity, or a permutation, and from NeuronCore-v3 on the Tensor Engine passes each element on as it is, float32 twice as fast as a product. With any other moving operand the chip does not compute the product, and it does not add to what PSUM holds. On NeuronCore-v2 the keyword only tells the profiler what the instruction is for.
Try: leave is_transpose out for a product; nisa.nc_transpose for a transpose.
NKI-L01 | err_local_variable_used_out_of_scope | A tile lives in the loop body that made it
Loop bodies are scopes: what an iteration creates is gone with it. Create the tensor before the loop and assign inside.
NKI-L02 | - | Loop-carried value in an affine_range
affine_range promises independent iterations, and the compiler takes you by your word: it overlaps and reorders them. A value from another iteration may not be there yet. What += accumulates is defined when the loop has ended, not in between.
NKI-L03 | - | Arguments of a range
(stop), (start, stop) or (start, stop, step), as integers, like Python's range.
Try: nl.affine_range(size // tile).
NKI-L04 | err_unexpected_output_dependencies | Two iterations write one place
Iterations of affine_range may run in any order, so which value stays is undefined, also where two stores overlap in part. Accumulating with += is fine.
NKI-L05 | - | Iterations share a tile
Overlapping iterations need a tile each. Sharing one is at best slow (no overlap) and at worst wrong.
NKI-L06 | - | Conditions on a loop index belong into `if` statements
The SDK traces the body of affine_range and sequential_range once, with a symbol for the index. `if i == 0:` is supported. In an expression, `x if i > 0 else y` or `i < n and j < k`, Python asks the symbol for its truth, which cannot differ from iteration to iteration. The simulator runs the body in every iteration, with an int, and decides each time: it may compute what the chip does not.
Try: an if statement; & between comparisons in a mask; nl.static_range, whose index is an int in the SDK as well.
NKI-L07 | - | Python variables change once in a traced loop
The SDK traces the body of affine_range and sequential_range once, so a Python number that the body changes (count += 1, size = size // 2, first = False) changes once: on the chip every iteration works with the same value. The simulator puts it back before each iteration, and computes what the chip does.
Try: compute it from the loop's index; nl.static_range or Python's range run the body each time.
NKI-L12 | - | The body of a loop of the chip is traced once
Since 0.7 nl.fori_loop and nl.while_loop call their body once, and the chip repeats the instructions that it issues then. The simulator calls it in each iteration, so that a counter or a flag of Python can choose others later: on the chip it does not.
Try: a first or last iteration that differs stands before or after the loop.
NKI-L10 | - | A sum in PSUM ends when it is read
A group of matmuls that adds up in PSUM is read when it is complete. Matmuls that go on adding to an accumulator after it was read pile up on all that came before: most often it was created outside of the loop whose sum it is meant to be.
Try: acc = nl.zeros(..., buffer=nl.psum) inside that loop.
NKI-O01 | err_cannot_update_immutable_parameter | Inputs are read-only
A parameter belongs to the caller: overwriting it would change the caller's data behind its back. Parameters annotated nt.mutable_tensor can be written, and must be returned.
Try: create the output with nl.ndarray(..., buffer=nl.shared_hbm), store there and return it.
NKI-O02 | - | A kernel returns HBM tensors
What a kernel returns is what the caller gets, and only HBM outlives the kernel. One tensor, or a tuple of them.
Try: out = nl.ndarray(shape, dtype, buffer=nl.shared_hbm); nl.store(out, value=tile); return out.
Try (import nki): out = nl.ndarray(shape, dtype=..., buffer=nl.shared_hbm); nisa.dma_copy(dst=out, src=tile); return out.
NKI-O03 | err_tensor_output_not_written_to | Outputs are written
An output that no instruction writes holds garbage. Most often the loop that should write it runs zero times.
Try: check size // tile size, and the last tile.
NKI-O04 | - | Outputs are written completely
Elements that no store reaches hold garbage on the chip and NaN here. Most often the size is no multiple of the tile. Where run-time indices choose the rows that are stored, it is a warning: the caller may know which rows to look at.
Try: a mask for the last tile, or sizes that are multiples.
Try (import nki): sizes that are multiples, or a last block that ends with the tensor: min(start + tile, size).
NKI-O05 | err_shared_hbm_must_in_kernel_level | shared_hbm tensors are created at the top level
shared_hbm is allocated once for a launch and outlives it, so it cannot depend on a loop or a branch.
Try: create it at the top of the kernel; nl.private_hbm for scratch space inside.
NKI-O06 | err_mutable_parameter_not_returned | Mutable parameters are returned
The compiler learns from the return statement that the parameter's memory is an output as well. In import nki any argument can be written, and the simulators show the host what is written. Under XLA, which PyTorch and JAX use, it stays lost if the argument is not returned: two teams have met that on chips. AWS's library returns the caches that its kernels update, and takes the new ones from the result.
Try: add it to what the kernel returns.
Try (import nki): return the argument as well, and use what the call returns: out, cache = kernel(cache, row).
NKI-O07 | - | Inputs that are read in part
A kernel that never reads an input, or not all of it, may be right: a caller always passes it, or half of a matrix is known. More often a bias is forgotten, a loop ends too early, or one of two operands is longer than the other along the sum.
Try: compare the bounds of the loops with the shape of the input.
NKI-O08 | - | Outputs are whole tensors that the kernel has written
A launch hands back memory that its instructions wrote: whole tensors that the kernel creates, or arguments that it may write and has written. A reshape with the elements in the same order is the same memory. A permuted or sliced view is not: its elements would have to be copied, and no instruction of the kernel does that. An input that was not written and a constant are no results of the kernel either: copy them.
Try: create the output in the shape that is wanted, and store or copy into it.
NKI-R12 | - | A DMA reads as many rows as there are partitions
A DMA whose source does not move on with the partition (a stride of 0) puts one row into all partitions. One team has met "BIRCodegen does not support broadcast patterns" for it (NCC_IBCG901) with nisa.dma_copy of neuronxcc.nki, from HBM and from SBUF.
Try: nl.broadcast_to(row, shape=(128, n)) of a row in SBUF.
NKI-R13 | - | nisa.dma_transpose moves 2-byte elements
The compiler of neuronxcc.nki refuses nisa.dma_transpose of float32 with the code NCC_ISFV902, as published measurements say; two-byte dtypes compile. It is an error here, but in nki.jit(mode="simulation"), which compiles nothing, a note. Package nki has no such limit, but for descriptors that the hardware makes (dge_mode=hwdge) and for indirect sources.
Try: nisa.nc_transpose, or nl.load_transpose2d.
NKI-K01 | err_nki_api_outside_of_nki_kernel | nl and nisa work inside kernels
nl and nisa calls are instructions for the chip, not computations on arrays: they mean something only while a kernel is being traced.
Try: put the call into a function decorated with @nki.jit and call that with NumPy arrays.
NKI-K02 | err_nested_kernel_with_spmd_grid | Only the outermost kernel has a grid
A grid says how often the whole kernel runs; a kernel called from a kernel becomes part of its caller.
Try: call it without the grid, in a loop.
NKI-K03 | - | A kernel is a function
nki.jit, baremetal, benchmark and simulate_kernel take a function.
Try: pass the function itself, without calling it.
NKI-K04 | - | Arguments of a kernel
Arguments are bound as in any Python call, and arrays must have elements.
Try: compare the call with the kernel's signature.
NKI-K05 | - | Integer arguments
Sizes, bounds and positions are integers when the kernel is traced. In Python 512 / 2 is the float 256.0.
Try: use // instead of / so that sizes stay integers.
NKI-K06 | - | Launch grids
A launch of kernel[g0, g1] runs the kernel g0 * g1 times; nl.program_id(axis) tells an instance which one it is.
Try: sizes of at least 1, and axes below the number of grid dims.
NKI-K07 | - | Files of the launchers
save_neff_name and save_trace_name name files that the launcher writes; here they are placeholders, because nothing is compiled.
Try: a folder that exists and can be written.
NKI-K08 | - | Latency percentiles
The SDK records a fixed set of percentiles.
Try: get_latency_percentile(99), or 50.
NKI-K09 | - | DMA descriptors
Descriptors of a DMA are either prepared by the compiler (static: --disable-dge, and always on trn1) or made by hardware when the DMA starts (dge: trn2 and newer), which costs time for each DMA on its queue.
Try: leave descriptors= out.
NKI-K10 | - | What the compiler is taken to do
A prediction assumes which freedoms the compiler uses, each an option with a name: docs/latency-model.md says what they mean. () is strictly as written.
Try: leave compiler= out.
NKI-K11 | - | Arguments that an instruction does not have
Beta 1 of NKI takes keywords that it does not know and ignores them, so a misspelt mask= or scale= changes the result without a word. Later versions refuse them.
Try: help(function) lists the arguments.
NKI-K12 | - | dtype= of an instruction that writes an operand
An instruction with a dst operand writes it in the dtype that it has. A result of another dtype= that is assigned, t[...] = op(x, dtype=...), is made in that dtype and then copied to t; with mask= it is written to t as it is.
Try: create dst with the dtype that you want, and leave dtype= out.
NKI-K13 | - | NKI_PRECISE_FP is 0 or 1
1, the default, rounds every value to the dtype of its tensor, as the chip does. 0 keeps low-precision tensors in float32, so that a wrong kernel can be told from one that is right and rounds: docs/environment.md. Tensors that the kernel places itself (ncc.sbuf.mod_alloc ...) are rounded in both.
Try: NKI_PRECISE_FP=0 python script.py.
NKI-K14 | - | Tiles are worked on by nl and nisa
A kernel is traced before any data is there: a tile has no values for NumPy or Python to work with, and few methods. Each operation is a call of nl or nisa, which makes an instruction.
Try: nl.exp(t) for np.exp(t), nl.max(t, axis=1) for t.max(axis=1), nl.transpose(t) for t.T.
Try (import nki): nl.exp(t) for np.exp(t), nl.max(t, axis=1, keepdims=True) for t.max(axis=1), nisa.nc_transpose for t.T.
NKI-N01 | - | Arguments are those of the signature
The package nki refuses a keyword that a function does not have (since 0.2), numbers in place of members of an enum (since 0.3), and more arguments than there are. Arguments have moved between releases: nisa.dma_copy and nisa.dma_transpose have had `priority` before `oob_mode` since 0.4, and nisa.affine_select has had `offset` at the end since 0.3. Keywords are safe in all of them.
Try: give arguments by keyword; help(nisa.tensor_tensor) prints a signature.
NKI-N02 | - | Run-time offsets go through .select, .vector_select and .ap
A subscript is made of numbers of the host. An offset that the kernel computes is a register or a tile of int32 or uint32 in SBUF: (1, 1) for one place (t.select(dim, index), t.ap(pattern, scalar_offset=...)), (P, 1) for one row of HBM a partition (t.vector_select(0, rows), t.ap(pattern, vector_offset=...)). A view has one such offset, and is used as it is.
Try: make all other views first, the indirect one last.
NKI-N03 | - | The pairs of an access pattern
t.ap(pattern) takes [[stride, count], ...], outermost first, in elements of the storage. On chip the first pair is the partitions: they follow each other, so its stride is the number of elements that the tensor has in a partition. nisa.iota and nisa.affine_select take up to four pairs [step, number] for the free dims.
Try: start from t.get_pattern() and change the free pairs.
NKI-N04 | - | Tensors and registers have no operators
Instructions write a dst; there is no value that x + y could be. The functions of nl (nl.add ...) make a new tile, the instructions (nisa.tensor_tensor, nisa.tensor_scalar) write one that you have made. Registers are loaded, stored, moved, used as offsets, bounds and conditions.
Try: nl.add(x, y), or nisa.tensor_tensor(dst, x, y, op=nl.add).
NKI-N05 | - | Results are written into a dst, not assigned
`t[...] = value` is Python of neuronxcc.nki. AWS's simulator of the package nki copies, and kernels with such assignments have been built. The open compiler of 0.1 and 0.2 rewrites `t[...] = nisa.f(...)` to a dst with a warning; documents of later releases show no assignment. The result of an instruction is not a tile, so that assigning it is an error.
Try: nisa.f(dst=t[...], ...), nisa.tensor_copy(dst, src) or nisa.memset(dst, value).
NKI-N06 | - | Deprecated in the package nki
It works in the release that is asked about and will go. Loops over tiles are Python's range; loops whose bounds the kernel computes are nl.fori_loop and nl.while_loop.
Try: what the finding names.
NKI-N07 | - | Kinds of values
Since 0.3 the value of nisa.memset is an integer for an integer tile (0, not 0.0). A register takes an integer, and nisa.register_load, _store and _move take registers where the signature says so.
Try: write 0 for integer tiles and 0.0 for float tiles.
NKI-N08 | - | A sum begins with a write
accumulate=True adds to what lies in PSUM, accumulate=False overwrites. On a tile that nothing has written, True adds to what the last kernel left there. Without accumulate= the first write to each place overwrites it and later ones add, place by place: windows that overlap add only where they meet.
Try: leave accumulate out, or give accumulate=(k > 0).
NKI-N09 | - | A sum in PSUM goes on from a matmul
On NeuronCore-v2 and -v3 accumulating onto what memset or tensor_copy has written is undefined; AWS's simulator adds. The usual form needs no zeros: a new PSUM tile for each result, and nisa.nc_matmul without accumulate=.
Try: leave out the memset.
NKI-N10 | - | Cores wait for each other at the same points
kernel[2] runs on two cores that have their own SBUF and PSUM and share HBM. nisa.core_barrier and nisa.sendrecv wait until the other core has come to the same call (with the same pipe_id); if it never does, the chip hangs. So both cores go through the same sequence of them. A barrier blocks one engine, and orders what the cores do with the tensor that it names: other engines, and DMAs of other tensors, go on.
Try: take barriers out of conditions on nl.program_id(0).
NKI-N11 | - | Edges go between instructions that are there
kernel.with_schedule([(consumer, producer)]) names instructions by their name= argument, and instr.depends_on(other) takes what a call of nisa returns. An edge only restricts what the compiler may move; it changes no result. One that names nothing has no effect on the chip, and no one says so.
Try: nisa.activation(..., name="act0"), and the same name in the pair.
NKI-N12 | - | Scalars are 32-bit integers of the device
Since 0.7, s = nisa.scalar_load(tile) is an integer that the program on the chip computes with: + - * with integers of Python and other scalars, which wrap around in 32 bits. It is a scalar_offset= of .ap, an index of .select, a bound of nl.fori_loop, and nisa.scalar_store writes it. Comparisons are traced, but nothing takes their result. Scalars of 64 bits (nl.int64) are not modelled.
Try: nisa.scalar_store(tile, s), then compute in the tile.
NKI-N13 | - | Grids of tiles and blocks
nl.tiles(x, tile_shape=(128, 256)) views a tensor as a grid of tiles, nl.blocks as a grid of blocks of tiles; nl.alloc_tiles and nl.alloc_blocks make a tensor and its grid (NKI 0.7). Shapes are tuples of positive integers; a tile has as many dims as the tensor. Subscripts count cells: g[i, j] is one tile and g[i, :] a row of them, both grids still, and .data is the tensor that an instruction takes. On chip the tiles of nl.alloc_tiles lie side by side, so that .data is one tile, or tiles of one row.
Try: nisa.dma_copy(dst=t, src=g[i, j].data).
NKI-N14 | - | What a kernel asks of the compiler
@nki.jit(compile_config=CompileConfig(...), specialization_config=SpecializationConfig(...)), of nki.compiler, since 0.7. A kernel that another one calls is compiled with it: if it asks for something else, that is an error, or a warning if the outer one has allow_nested_config_override=True. The simulator takes the options and does nothing with them.
Try: leave the options of the inner kernel out.
NKI-K15 | - | NKISIM_SHUFFLE and NKISIM_THREADS are numbers
With NKISIM_SHUFFLE=7 the iterations of affine_range and the instances of a grid run in an order that the seed 7 chooses, and a DMA takes effect only when something waits for it: what touches the same bytes, in the same iteration or after the loop. A kernel whose result depends on the order then gives other numbers, the same ones each time. NKISIM_THREADS=2 computes matrix products in two threads beside the kernel; 1 in the kernel's own.
Try: NKISIM_SHUFFLE=1 python script.py.
NKI-K16 | - | NKISIM_CHECKS is teach, strict or off
NKISIM_CHECKS says how strictly findings are taken: teach (the default) reports them, strict ends a run with the first error or warning that no comment has turned off, off looks for none, which is a little faster. What no chip can do is an error in all of them.
Try: NKISIM_CHECKS=strict python script.py.
NKI-K17 | - | What a kernel is tuned over
`nkisim.tune` and `python -m nkisim tune` predict a kernel with every combination of some values and run the fastest with arithmetic. A value belongs to an argument of the kernel or to a constant of the file that defines it; what the file computed from a constant when it was imported stays as it is. A candidate that breaks a rule is no error: it is listed with the rule.
Try: --set FREE_DIM=500,1000,2000, or choices=dict(FREE_DIM=[500, 1000, 2000]).
NKI-K18 | - | One LNC degree in a graph
A logical NeuronCore is one physical core or two. Since 0.7 NEURON_LOGICAL_NC_CONFIG, 1 or 2, says on how many a kernel runs, and neuronx-cc refuses a graph whose kernels have another degree than its own (NCC_EVRF066). Without the variable a kernel runs on one core, and neuronx-cc compiles graphs for two on trn2. kernel[2] says the same in the program, and is on its way out.
Try: export NEURON_LOGICAL_NC_CONFIG=2, and kernel(x) without brackets.
NKI-K19 | - | A tensor belongs to one launch
A kernel that keeps a tile in a global variable, in a mutable default or in an object and uses it in the next launch would read memory that belongs to another kernel by then. A compiled kernel cannot do it at all: the Python program runs once, when the kernel is traced.
Try: make it in the kernel each time; return what has to last, and pass it to the next launch.
NKI-K20 | - | A kernel has one dialect
neuronxcc.nki (instructions return tiles) and nki (instructions write into dst=) are two languages with names in common. A kernel that is decorated in the one and calls the other gets tensors that neither of them knows; since 0.4 the compiler of nki refuses neuronxcc.nki inside of a kernel. The launchers of neuronxcc.nki (baremetal, benchmark, profile, simulate_kernel) take kernels of their own dialect: one of import nki has run there without an error, and its outputs were zeros.
Try: import nki, import nki.isa as nisa and import nki.language as nl; or neuronxcc.nki in all three.
NKI-C01 | - | Files of measurement records
Records say which public kernel took how long: see shared/nkisim/calibration/README.md.
Try: --measurements with a file of that form.
NKI-A01 | - | Addresses of direct allocation
A tile's bytes lie inside the usable part of a partition; bases of partitions (and bytes in PSUM) are 0. The SDK calls this "allocated memory out of bound".
Try: lower base_addr, fewer physical tiles, or a smaller tile.
Try (import nki): a lower address=, or a smaller tile.
NKI-A02 | - | Alignment of direct allocation
An engine reads elements at multiples of their size.
Try: round base_addr up to a multiple of the item size.
NKI-A03 | - | Numbers of physical tiles
One number per block dim, or ().
Try: num_free_tiles=(2,) for one block dim and two buffers.
NKI-A04 | - | Blocks of directly allocated tensors
Each block index has an address of its own, so a tile is t[i].
Try: loop over the blocks: t[i].
NKI-A05 | - | Two tiles at one address
Direct allocation does what you say: two live tiles at the same address overwrite each other, and neither compiler nor chip tells. The simulator remembers who wrote which bytes last.
NKI-A06 | - | What a kernel that allocates directly leaves to the compiler
Direct allocation is all or nothing: the compiler leaves placing to the kernel, also of every intermediate result.
Try: buffer=ncc.sbuf.mod_alloc(...) for every nl.ndarray on chip, and t[...] = op(...) into one of them.
NKI-A07 | err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel | Transposes in a kernel that allocates directly
A transpose on the Tensor Engine multiplies by an identity matrix that the compiler would have to place. nl.matmul without transpose_x contains such a transpose.
Try: nl.matmul(..., transpose_x=True), or multiply with an identity of your own.
Try (import nki): multiply with an identity of your own.
NKI-A08 | err_bias_tensor_must_be_specified_in_allocation | Activations in a kernel that allocates directly
Without bias the compiler would have to place a vector of zeros.
Try: allocate a (128, 1) tile, set it to 0, and pass it as bias=.
NKI-A09 | err_tensor_creation_on_scratchpad_with_init_value_not_supported | Direct allocation has no initial value
zeros, ones and full need an instruction that writes the value, and a directly allocated tensor is a place only.
Try: nl.ndarray, then t[...] = 0.
Try (import nki): nl.ndarray, then nisa.memset(dst=t, value=0.0).
NKI-A10 | - | The end of SBUF belongs to the compiler
A kernel can use {sbuf_usable_bytes} of a partition; the rest is the compiler's. Published kernels that use a little more have run, so this is a warning: less room for the compiler means spills, or an error there.
NKI-U01 | - | Read before anything was written
Memory holds whatever was there before: on the chip the kernel reads garbage, and often the right garbage, until it does not. The simulator knows which bytes were written.
NKI-U02 | - | An output depends on memory that nothing has written
A kernel may read elements that were never written, for example compute on all of a tile that a mask loaded in part, as long as it drops what comes out, for example by a mask at the store. Here they have reached an output: on the chip that is garbage, here mostly NaN. The simulator follows such elements from instruction to instruction, and names the first one that read them.
Try: write all of the tile first (nl.zeros, or nisa.memset), or read and store only what was written: a slice, or mask= (neuronxcc.nki).
NKI-U03 | - | Accumulation into memory that was never set
psum += matmul adds to what is there. Only nl.zeros tells the chip that the first matmul starts anew.
Try: nl.zeros(..., dtype=nl.float32, buffer=nl.psum).
Try (import nki): nisa.nc_matmul without accumulate=: the first write overwrites.
NKI-U04 | - | Computed and never read
An instruction computes or loads what reaches no output: its tile is never read, or only by lines that are dropped themselves, or the same line writes over it, from other data, before anything has read it. The time is spent, and most often another result is wrong: a store of the wrong tile, a sum whose accumulate= names the wrong loop variable, a destination that does not move with the loop. Constants that are written over are no finding, nor is a second result that an instruction has to have.
Try: store it or use it, or leave the instruction out; for a sum, accumulate=(k > 0) with the variable of the innermost loop.
NKI-U05 | - | Accumulator registers are reset first, and read out
The Scalar and the Vector Engine have one float32 register per partition, which reduce_cmd drives: reset_reduce (or load_reduce) begins a sum, reduce adds to it, reduce_res reads it out. They keep what was in them, from the last kernel as well. All summing instructions of an engine share them, so two sums at a time do not work, and an instruction of the Vector Engine with reduce_cmd.idle may change them.
Try: reduce_cmd.reset_reduce for the first part of a sum, reduce for the others, one sum after the other; keep a sum in a tile if other instructions come between its parts.
NKI-U06 | - | An instruction reads what it writes, at another place
An engine reads, computes and writes as a stream, and a DMA moves several parts at the same time. In place is fine, where each element is read and written at one address. Where source and destination are different, overlapping parts of one tensor (t[:, 1:] = t[:, :-1]), some elements are read after they were written: the result depends on how far the reads are ahead. The simulator reads all of the source first.
Try: copy to another tile, and back.
NKI-U07 | - | The first NaN or infinity
An instruction has made a NaN or an infinity of finite numbers, and one has reached an output, or a 16- or 8-bit tile holds an infinity that float32 would not. Named is the first one, since all others follow from it: exp of values beyond 88 (a softmax subtracts the maximum first), a sum of squares in float16, which ends at 65,504, float8_e4m3 beyond 240, a root of a variance that rounding has made negative, a division by 0.
Try: subtract the maximum before exp; dtype=nl.float32 for squares and sums; scale before a cast to 8 bits; nl.maximum(x, eps) before a root or a division.
NKI-T01 | - | Targets
The generation of the NeuronCore is {generation}.
NKI-T02 | - | Courses
A course decides what hangs together: trn1 (Trainium 1, neuronxcc.nki), trn2 and trn3 (Trainium 2 and 3, import nki), each with an SDK and an instance type. It is chosen by --course, else by the variable NKI_COURSE, else by course = "trn2" below [tool.nkisim] in the nearest pyproject.toml. If none is chosen, a kernel's own dialect decides: neuronxcc.nki runs on trn1, import nki on trn2. The word none chooses no course, and simulates what AWS does not run as well.
Try: trn1, trn2, trn3 or none.
NKI-T03 | - | A kernel of another course
The kernel is written in another dialect than the course that is chosen. AWS runs kernels of neuronxcc.nki with Neuron SDKs up to 2.29, and kernels of import nki from NKI 0.3 on Trainium 2 and 3 only, so no machine of that course runs it.
Try: the other course, --target to choose the generation for one command, or --course none (NKI_COURSE=none) to simulate it all the same.
NKI-G00 | - | How strictly the language is held
NKI_LANGUAGE says what is done about what a compiler of NKI refuses: refuse (the default) makes an error of forms of calls that the compiler is known to refuse in the release and on the generation that are asked about (`python -m nkisim coverage --releases` lists them) and reports constructs of Python that it refuses; teach reports both and goes on; strict makes an error of all warnings of this kind; off says nothing. NKI_LANGUAGE_VERSION says which release of NKI is asked about, 0.1 to 0.7: the newest unless told otherwise. NKI_COMPILER_FRONTEND=custom, a variable of AWS's, keeps what specialized kernels before 0.7, a compiler that reads a subset of Python: loops over nl.dynamic_range and `while register:` are there, scalars are not. With tracer, the default of 0.7, Python runs the kernel once. `python -m nkisim lint FILE` reports on a file without running it.
Try: NKI_LANGUAGE=strict python script.py.
NKI-X01 | - | A call that could not be understood
The call has the wrong number, names or types of arguments. Beta 1 of NKI ignores unknown keywords, so a misspelt one shows as a missing one.
Try: compare the call with the signature in the error.
NKI-X02 | - | Not modelled
The SDK can do this, the simulator cannot (yet). `python -m nkisim coverage` lists what is modelled.
Try: write it with what is modelled.
NKI-X03 | - | Findings that were looked at
A comment `# nkisim: ignore[NKI-L05] reason` on a line that a finding names turns that finding off there. The reason is for the next person who reads the kernel, so it is not optional. It is for the author: the grader turns nothing off.
"""


#: rules of these pages that builds have met; those of the package nki say so themselves
_SEEN = ("NKI-R12", "NKI-R13")


def _with_basis(text: str, how: str) -> str:
    """Return a page with the line that says how its rule is known, above what to try."""
    head, line, tail = text.partition("\nTry")
    return f"{head}\nHow it is known: {how}.{line}{tail}" if how else text


def _parse(pages: str) -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for block in pages.strip().split("\nNKI-"):
        head, _, text = block.partition("\n")
        id, name, title = (part.strip() for part in head.split("|"))
        id = id if id.startswith("NKI-") else f"NKI-{id}"
        hint, _, nki_hint = text.partition("\nTry: ")[2].partition("\nTry (import nki): ")
        name = "" if name == "-" else name
        rules[id] = Rule(
            id,
            title,
            _with_basis(text.strip(), basis(id, name)),
            name,
            hint.strip().rstrip("."),
            "note" if id in _SEEN else "",
            nki_hint.strip().rstrip("."),
        )
    return rules


RULES: dict[str, Rule] = _parse(_PAGES)
