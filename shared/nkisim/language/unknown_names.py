"""What NumPy, PyTorch, Triton and CUDA call what NKI calls otherwise, or has not.

Names that people and programs invent, each with what to write in both dialects. In the texts `t` is
a tile, `y` a tile for the result, `x` and `out` are tensors in HBM.
"""

from __future__ import annotations

from ..chip import ops

BETA1, NKI = "beta1", "nki"

# names | neuronxcc.nki | nki
_TABLE = """
clip clamp clip_by_value | nl.minimum(nl.maximum(t, low), high) | nisa.tensor_scalar(dst=y, data=t, op0=nl.maximum, operand0=low, op1=nl.minimum, operand1=high)
fill fill_ set_value memset_value constant_fill | nl.full(shape, value, dtype=nl.float32) | nisa.memset(dst=t, value=0.0)
memset zero zero_ clear | nisa.memset(shape, value, dtype) | nisa.memset(dst=t, value=0.0)
reshape view flatten ravel | t.reshape(shape) | t.reshape(shape)
squeeze unsqueeze | t.reshape(shape) | t.reshape(shape)
scalar_mul scalar_multiply mul_scalar multiply_scalar tensor_scalar_mul scale mults scalar_tensor | nl.multiply(t, 2.0) | nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply, operand0=2.0)
scalar_add add_scalar tensor_scalar_add adds increment | nl.add(t, 1.0) | nisa.tensor_scalar(dst=y, data=t, op0=nl.add, operand0=1.0)
scalar_sub sub_scalar subtract_scalar tensor_scalar_sub | nl.subtract(t, 1.0) | nisa.tensor_scalar(dst=y, data=t, op0=nl.subtract, operand0=1.0)
scalar_div div_scalar divide_scalar tensor_scalar_div | nl.multiply(t, 1.0 / 2.0) | nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply, operand0=1.0 / 2.0)
tensor_add tensor_tensor_add add_tensors vector_add vadd | nl.add(t, u) | nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.add)
tensor_sub tensor_subtract tensor_tensor_sub vector_sub | nl.subtract(t, u) | nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.subtract)
tensor_mul tensor_multiply tensor_tensor_mul vector_mul vmul hadamard | nl.multiply(t, u) | nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.multiply)
tensor_max tensor_maximum | nl.maximum(t, u) | nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.maximum)
tensor_min tensor_minimum | nl.minimum(t, u) | nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.minimum)
div true_divide tensor_div tensor_divide vector_div truediv fdiv floordiv floor_divide | nl.multiply(t, nl.reciprocal(u)) | nisa.reciprocal(dst=y, data=u); nisa.tensor_tensor(dst=y, data1=t, data2=y, op=nl.multiply)
reduce_sum sum_reduce row_sum rsum reduce_add tensor_sum segment_sum | nl.sum(t, axis=1, keepdims=True) | nisa.tensor_reduce(dst=y, op=nl.add, data=t, axis=1), with y of one element a partition
reduce_max max_reduce row_max rmax tensor_reduce_max amax | nl.max(t, axis=1, keepdims=True) | nisa.tensor_reduce(dst=y, op=nl.maximum, data=t, axis=1), with y of one element a partition
reduce_min min_reduce row_min rmin amin | nl.min(t, axis=1, keepdims=True) | nisa.tensor_reduce(dst=y, op=nl.minimum, data=t, axis=1), with y of one element a partition
reduce_mean row_mean average_pool avg | nl.mean(t, axis=1, keepdims=True) | nl.mean(t, axis=1, keepdims=True)
reduce tensor_reduction | nisa.tensor_reduce(nl.add, t, axis=1) | nisa.tensor_reduce(dst=y, op=nl.add, data=t, axis=1)
dot mm bmm gemm matmul_ einsum linear addmm inner tensordot tl_dot matvec mv | nl.matmul(t, u), or nisa.nc_matmul(stationary, moving) | nisa.nc_matmul(dst=p, stationary=t, moving=u), with p in nl.psum and the dim that is summed over on the partitions of both
matmul tensor_matmul mat_mul batch_matmul pe_matmul | nisa.nc_matmul(stationary, moving), or nl.matmul(t, u) | nisa.nc_matmul(dst=p, stationary=t, moving=u), with p in nl.psum and the dim that is summed over on the partitions of both
transpose permute swapaxes trans transpose2d | nisa.nc_transpose(t), or nl.transpose(t) | nisa.nc_transpose(dst=p, data=t), with p in nl.psum, of the dtype of t
copy tensor_copy_ clone assign mov move vector_copy | nl.copy(t) | nisa.tensor_copy(dst=y, src=t)
cast astype static_cast_ to convert convert_element_type type_cast | nl.copy(t, dtype=nl.bfloat16) | nisa.tensor_copy(dst=y, src=t), with y of the other dtype
load dma_load tensor_load tl_load ld load_tile load_tensor dma dma_in copy_in hbm_to_sbuf read | nl.load(x[0:128]) | nisa.dma_copy(dst=t, src=x[0:128])
store dma_store tensor_store tl_store st store_tile store_tensor dma_out copy_out sbuf_to_hbm write save | nl.store(out[0:128], value=t) | nisa.dma_copy(dst=out[0:128], src=t)
dma_start async_copy cp_async memcpy memcpy_async copy_async | nisa.dma_copy(dst=out, src=x) | nisa.dma_copy(dst=t, src=x[0:128])
concatenate concat cat stack hstack vstack split chunk | t = nl.ndarray(shape, dtype=nl.float32); t[:, 0:n] = a; t[:, n:] = b | nisa.tensor_copy(dst=t[:, 0:n], src=a); nisa.tensor_copy(dst=t[:, n:2 * n], src=b)
empty tensor Tensor new_tensor allocate alloc create_tensor make_tile tile_alloc sbuf_tensor sbuf_alloc array as_tensor from_numpy buffer_alloc empty_like_ | nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf) | nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
full_like | nl.full(t.shape, value, dtype=t.dtype) | y = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.sbuf); nisa.memset(dst=y, value=0.0)
ones_like | nl.ones(t.shape, dtype=t.dtype) | y = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.sbuf); nisa.memset(dst=y, value=1.0)
value scalar constant const literal number float_ int_ sbuf_scalar Scalar immediate | a number of Python: 1.0 | a number of Python: 1.0
float fp32 f32 float_32 double float64 fp64 | nl.float32 | nl.float32
bf16 bfloat bfp16_ BF16 | nl.bfloat16 | nl.bfloat16
fp16 f16 half float_16 | nl.float16 | nl.float16
int i32 integer long int_32 s32 | nl.int32 | nl.int32
bool boolean i1 | nl.bool_ | nl.bool_
fp8 float8 float8e4 fp8_e4m3 float8_e4 | nl.float8_e4m3 | nl.float8_e4m3
SBUF statebuf sram shared smem shared_memory SB | buffer=nl.sbuf | buffer=nl.sbuf
PSUM accumulator accum acc | buffer=nl.psum | buffer=nl.psum
HBM dram DRAM global_memory gmem device_memory global_hbm | buffer=nl.shared_hbm | buffer=nl.shared_hbm
range arange_ loop for_range irange trange xrange static_loop | nl.affine_range(n) | range(n)
fori foreach for_loop loop_range parallel_range prange parallel_loop pipeline | nl.affine_range(n) | range(n); nl.fori_loop for a count that the kernel computes
thread_id threadIdx block_id blockIdx get_program_id pid thread_idx block_idx core_id get_rank | nl.program_id(0) | nl.program_id(0)
num_threads block_dim blockDim gridDim grid_dim program_count num_blocks num_cores | nl.num_programs(0) | nl.num_programs(0)
syncthreads sync barrier __syncthreads synchronize wait fence debug_barrier | nothing: the compiler waits where data needs it | nothing: the compiler waits where data needs it; nisa.core_barrier between two cores
exp_ expf fast_exp vexp | nl.exp(t) | nisa.activation(dst=y, op=nl.exp, data=t)
gelu_ gelu_tanh gelu_fast | nl.gelu(t) | nisa.activation(dst=y, op=nl.gelu, data=t)
swish silu_ | nl.silu(t) | nisa.activation(dst=y, op=nl.silu, data=t)
leaky_relu relu6 elu | nl.maximum(t, nl.multiply(t, 0.01)), nl.minimum(nl.maximum(t, 0.0), 6.0) | nisa.tensor_scalar(dst=y, data=t, op0=nl.maximum, operand0=0.0, op1=nl.minimum, operand1=6.0)
layer_norm layernorm batch_norm group_norm | nl.mean, nl.var, nl.rsqrt: (t - mean) * rsqrt(var + eps) | nisa.bn_stats and nisa.bn_aggr, then nisa.tensor_scalar with both columns
log_softmax logsumexp | nl.softmax(t, axis=1), and nl.log of it | nl.softmax(t, axis=1), and nl.log of it
pow | nl.power(t, 2.0) | nisa.tensor_tensor(dst=y, data1=t, data2=t, op=nl.multiply) for a square
mod remainder fmod_ | nl.mod(t, n); of indices Python computes it | of indices Python computes it; of tiles t - n * floor(t / n)
mul times multiply_ | nl.multiply(t, u) | nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.multiply)
sub minus | nl.subtract(t, u) | nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.subtract)
plus add_ | nl.add(t, u) | nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.add)
neg | nl.negative(t) | nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply, operand0=-1.0)
absolute | nl.abs(t) | nisa.activation(dst=y, op=nl.abs, data=t)
inverse recip rcp inv | nl.reciprocal(t) | nisa.reciprocal(dst=y, data=t)
argmax argmin topk_ max_index | nisa.max8 and nisa.nc_find_index8 | nisa.max8 and nisa.nc_find_index8
sort argsort topk | nisa.max8, eight values at a time | nisa.topk, or nisa.max8 for eight values at a time
cumsum scan prefix_sum cumprod | nisa.tensor_tensor_scan | nisa.tensor_tensor_scan
gather take index_select embedding take_along_axis | nl.load(x[index_tile, ...]) | nisa.dma_copy(dst=t, src=x.vector_select(0, rows))
scatter index_put scatter_add put | nl.store(out[index_tile, ...], value=t) | nisa.dma_copy(dst=out.vector_select(0, rows), src=t)
select where_ mask_fill masked_fill masked_select if_else cond | nl.where(condition, a, b) | nl.where(condition, a, b)
tril triu causal_mask | nisa.affine_select | nisa.affine_select
pad constant_pad | nl.zeros of the larger shape, then t[:, a:b] = ... | nisa.memset of the larger tile, then nisa.tensor_copy into a part of it
tile repeat expand broadcast broadcast_in_dim expand_as broadcast_ | nl.broadcast_to(t, shape=(128, 512)) | nl.broadcast_to(t, (128, 512)), or t.broadcast(dim, size)
arange iota_ linspace | nl.arange(n)[None, :] for indices, nisa.iota for values | nisa.iota(dst=y, pattern=[[1, n]])
print printf debug_print device_printf | nl.device_print("t", t) | nl.device_print("t", t)
shape size numel tile_shape get_shape dim_size | t.shape | t.shape
cdiv ceil_div ceildiv | -(-a // b), of Python | -(-a // b), of Python
eye identity diag | nl.shared_identity_matrix(128) | nl.shared_identity_matrix(128)
maximum_ fmax vmax | nl.maximum(t, u) | nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.maximum)
vector scalar_engine_op dve | nisa.tensor_tensor, nisa.tensor_scalar, nisa.activation | nisa.tensor_tensor, nisa.tensor_scalar, nisa.activation
activate act activation_func | nisa.activation(nl.exp, t) | nisa.activation(dst=y, op=nl.exp, data=t)
zeros ones full ndarray | nl.{name}(shape, dtype=nl.float32) | nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf), and nisa.memset(dst=t, value=0.0)
"""  # noqa: E501

#: functions of nl that nisa has no instruction for, by what makes them
_BINARY = {name for name, op in ops.ALU.items() if op.isa and not op.unary}
_UNARY = {name for name, op in ops.ACTIVATIONS.items() if op.isa} - {"copy"}
_REDUCED = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply"}


def _read() -> dict[str, tuple[str, str]]:
    hints: dict[str, tuple[str, str]] = {}
    for line in _TABLE.strip().splitlines():
        names, beta1, nki = (part.strip() for part in line.split(" | "))
        for name in names.split():
            hints.setdefault(name, (beta1, nki))
    return hints


TABLE = _read()


def instead(module: str, name: str, dialect: str) -> str:
    """Return what to write for a name that `nl` or `nisa` does not have, or ""."""
    if module == "nisa":
        made = _instruction(name, dialect)
        if made:
            return made
    for spelt in (name, name.lower(), name.rstrip("_"), name.lower().replace("tensor_", "", 1)):
        if spelt in TABLE:
            return TABLE[spelt][dialect == NKI].replace("{name}", name)
    return ""


def _instruction(name: str, dialect: str) -> str:
    """Return the instruction for what nl has as a function."""
    if name in _BINARY:
        return (
            f"nisa.tensor_tensor(dst=y, data1=t, data2=u, op=nl.{name}), nisa.tensor_scalar "
            "with a number"
            if dialect == NKI
            else f"nisa.tensor_tensor(t, u, op=nl.{name})"
        )
    if name in _UNARY:
        return (
            f"nisa.activation(dst=y, op=nl.{name}, data=t)"
            if dialect == NKI
            else f"nisa.activation(nl.{name}, t)"
        )
    if name in _REDUCED:
        return (
            f"nisa.tensor_reduce(dst=y, op=nl.{_REDUCED[name]}, data=t, axis=1)"
            if dialect == NKI
            else f"nisa.tensor_reduce(nl.{_REDUCED[name]}, t, axis=1)"
        )
    return ""


#: arguments of the package nki as other libraries, releases and guesses name them
_SYNONYMS = {
    "dst": "out output result destination dest res ret y target dst_tile out_tile",
    "data": "input inp x tensor in_ src source data_tile in_tile input_tile a operand data1 tile",
    "src": "input inp x tensor in_ source data src_tile",
    "data1": "src0 src1 a lhs x in0 in1 input1 left operand0 t1 data0 first tensor1 input0 data_a",
    "data2": "src2 b rhs y in2 input2 right operand1 t2 second tensor2 data_b other data1_ operand",
    "stationary": "lhs a x lhsT lhs_t weights w left lhs_tile mat1 stationary_tile",
    "moving": "rhs b y right rhs_tile mat2 moving_tile inputs",
    "value": "val fill fill_value constant number v init",
    "op": "operator op0 operation func fn function activation act ufunc np_op opcode",
    "op0": "op operator operation func fn op1_",
    "operand0": "operand scalar value operand_0 other number const imm constant scalar0",
    "op1": "operator1 second_op",
    "operand1": "operand_1 scalar1",
    "axis": "dim axes dims dimension axs",
    "keepdims": "keepdim keep_dims keep_dim",
    "dtype": "type data_type",
    "shape": "size dims sizes",
    "buffer": "memory mem space location",
}
_SAID = {
    ("nisa.nc_matmul", "transpose_x"): "nothing is transposed: stationary is (K, M) and moving "
    "(K, N), with the dim that is summed over first",
    ("nisa.nc_matmul", "transpose_moving"): "nothing is transposed: moving is (K, N)",
    ("nisa.nc_matmul", "transpose_stationary"): "nothing is transposed: stationary is (K, M)",
    ("nisa.nc_matmul", "is_transpose_x"): "nothing is transposed: stationary is (K, M)",
}


def argument(api: str, name: str, there: object) -> str:
    """Return what to write for an argument that a function does not have, or ""."""
    if (api, name) in _SAID:
        return _SAID[api, name]
    if api.startswith("nl.") and name in ("dst", "out", "output"):
        function = api[3:]
        made = _instruction(function, NKI)
        return (
            "functions of nl return a new tile; into one that is there: " + made
            if made
            else "functions of nl return a new tile: y = " + api + "(...)"
        )
    names = list(there)  # type: ignore[call-overload]
    meant = [right for right in names if name in _SYNONYMS.get(right, "").split()]
    return f"its name is {meant[0]}: {api}({meant[0]}=...)" if meant else ""
