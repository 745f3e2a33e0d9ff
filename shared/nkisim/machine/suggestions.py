"""Cures for the mistakes that are made most: shapes that differ, operators, operands in HBM.

A cure is Python that can be put in the place of the user's line, with its own names where they can
be read from it, in the words of the kernel's dialect.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..chip import dtypes, ops
from ..errors import DIALECT
from . import source_text

TILE = "nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)"
_COPY = ("dst", "src")
_OPERATORS: dict[str, Any] = {op.symbol: op.node for op in ops.ARITHMETIC}
_OPERATORS |= {"//": ast.FloorDiv, "@": ast.MatMult}


def _names(signature: str) -> list[str]:
    """Return the arguments of nisa.f(dst, data, axis=1)."""
    return re.findall(r"(\w+)(?:=[^,)]*)?[,)]", signature.partition("(")[2])


def _names_dst() -> bool:
    return DIALECT.get().names_dst


def made(name: str, shape: Sequence[int], dtype: Any, like: str = "", memory: str = "sbuf") -> str:
    """Return the statement that makes a tile; `like`: the name of a tensor of its dtype."""
    of = f"{like}.dtype" if like else f"nl.{dtypes.name(dtype)}"
    return f"{name} = nl.ndarray({tuple(shape)}, dtype={of}, buffer=nl.{memory})"


def _window(text: str, width: int) -> str:
    """Return `row[:, j:j + width]` of `row[:, j:n]`, a slice of columns whose start is no number.

    Such a window moves. A wider destination would take what is no part of it. "" of other texts.
    """
    match = re.fullmatch(r"(\w+\[[^\[\],]+, )([^:\[\],]*[A-Za-z_][^:\[\],]*):[^:\[\],]*\]", text)
    return f"{match[1]}{match[2]}:{match[2]} + {width}]" if match else ""


def copy(api: str, dst: Any, src: Any, names: Sequence[str] = _COPY) -> str:
    """Return what to write where the two sides of a copy have different shapes."""
    if not src.shape:
        return (
            "slice one element, which is a piece of shape (1, 1): x[i:i+1, j:j+1], and the "
            "same of the destination"
        )
    if len(src.shape) == 2 and src.shape == dst.shape[::-1]:
        turn = "nisa.nc_transpose turns a tile" if _names_dst() else "nl.transpose(t) turns a tile"
        return f"one of the two is transposed: {turn}; or make the destination {src.shape}"
    given = source_text.arguments(api, names)
    one = given.get(names[0], "out" if dst.memory == "hbm" else "t")
    other = given.get(names[1], "x" if src.memory == "hbm" else "t")
    whole = all(n <= m for n, m in zip(src.shape, dst.shape)) and len(src.shape) == len(dst.shape)
    if dst.memory == "hbm" and whole:
        piece = source_text.part(one, dst.shape, src.shape)
        return (
            f"write the part of the destination that the tile fills: {names[0]}={piece}"
            if piece
            else f"a destination of the shape of the tile, {src.shape}"
            + ": a slice goes from start to start + size, i * 128 to i * 128 + 128" * (":" in one)
        )
    if len(src.shape) == len(dst.shape) == 2 and src.shape[1] > dst.shape[1]:
        if window := _window(other, dst.shape[1]):
            return f"as many columns as the destination has: {names[1]}={window}"
    name = one if one.isidentifier() else "t"
    if dst.memory != "hbm" and src.memory == "hbm" and len(src.shape) == 1 < len(dst.shape):
        row = source_text.base(other) or "x"
        return (
            f"a number as a subscript takes a dim away: {names[1]}={row}[0:1] is one row, "
            f"{names[1]}={row}[0:{dst.shape[0]}] as many as the tile has"
            if "[" in other
            else f"a tile has two dims: {names[1]}={row}.reshape({(1, *src.shape)}) is one row, "
            f"{names[1]}={row}.reshape({(*src.shape, 1)}) one column"
        )
    if dst.memory != "hbm" and src.shape[0] <= 128:
        hint = "make the tile with the shape of the source: " + made(
            name, src.shape, src.dtype, source_text.base(other) if given else "", dst.memory
        )
        piece = source_text.part(one, dst.shape, src.shape)
        return hint + (f"; or fill a part of it: {names[0]}={piece}" if piece else "")
    piece = source_text.part(other, src.shape, dst.shape)
    more = (
        " (a loop moves the others, 128 rows at most each time)"
        if dst.memory != "hbm" and src.shape[0] > 128
        else ""
    )
    return (
        f"slice the source to the shape of the destination: {names[1]}={piece}{more}"
        if piece
        else f"a slice of the source of the shape {dst.shape}{more}"
    )


def value(dst: Any, shape: tuple[int, ...]) -> str:
    """Return what to write where a value of `shape` is assigned to a tile of another one."""
    text = source_text.target()
    name = source_text.base(text) or "t"
    piece = source_text.part(name, dst.shape, shape) if text in (name, f"{name}[...]") else ""
    memory = "" if dst.memory == "sbuf" else f", buffer=nl.{dst.memory}"
    return (
        "make the tile with the shape of the value: "
        f"{name} = nl.ndarray({shape}, dtype=nl.{dtypes.name(dst.dtype)}{memory})"
        + (f"; or write a part of it: {piece} = ..." if piece else "")
    )


def result(api: str, dst: Any, shape: tuple[int, ...], signature: str) -> str:
    """Return what to write where the result of an instruction has another shape than dst.

    `signature`: the instruction's name and arguments, as in its row.
    """
    names = _names(signature)
    given = source_text.arguments(api, names)
    text = given.get("dst", "dst")
    if api.endswith("nc_matmul") and dst.shape == shape[::-1]:
        swapped = (
            source_text.call(api, names, stationary=given["moving"], moving=given["stationary"])
            if "moving" in given
            else f"{api}(dst=..., stationary=B, moving=A)"
        )
        return (
            "stationary and moving are exchanged (the columns of stationary are the rows of "
            f"the result): {swapped}"
        )
    name = text if text.isidentifier() else "t"
    hint = "make dst with the shape of the result: " + made(
        name, shape, dst.dtype, memory=dst.memory
    )
    read = next((n for n in ("data", "data1", "src") if n in given), "")
    if read and len(shape) == len(dst.shape) == 2 and shape[1] > dst.shape[1] > 1:
        if window := _window(given[read], dst.shape[1]):
            return f"as many columns as dst has: {read}={window}"
        hint += f"; or where a window moves: {read}={given[read]}[:, j:j + {dst.shape[1]}]"
    piece = source_text.part(text, dst.shape, shape)
    return hint + (f"; or write a part of it: dst={piece}" if piece and piece != text else "")


def out_of_hbm(api: str, dst: Any, memory: str, names: Sequence[str], shape: Any = None) -> str:
    """Return what to write where an instruction is to write HBM."""
    given = source_text.arguments(api, names)
    text = given.get("dst", "out[...]")
    like = source_text.base(text) if given else ""
    like = "" if memory == "psum" else like
    first = made(
        "result", shape or dst.shape, "float32" if memory == "psum" else dst.dtype, like, memory
    )
    then = source_text.call(api, names, dst="result") or f"{api}(dst=result, ...)"
    if memory == "psum":
        last = (
            made("tile", shape or dst.shape, dst.dtype, source_text.base(text) if given else "")
            + f"; nisa.tensor_copy(dst=tile, src=result); nisa.dma_copy(dst={text}, src=tile)"
        )
    else:
        last = f"nisa.dma_copy(dst={text}, src=result)"
    return f"compute into a tile, and copy that: {first}; {then}; {last}"


def in_hbm(name: str, tensor: Any) -> str:
    """Return what to write where an operand of an instruction lies in HBM."""
    if name == "dst":
        given = source_text.arguments("nisa.tensor_copy", _COPY)
        if not _names_dst():
            return "nl.store(out[...], value=tile)"
        if "src" in given:
            return (
                "HBM is written by DMA: nisa.dma_copy("
                f"dst={given.get('dst', 'out[...]')}, src={given['src']})"
            )
        return "compute into a tile in SBUF, and copy that: nisa.dma_copy(dst=out[...], src=tile)"
    text = source_text.argument(name) or "x[...]"
    given = source_text.arguments("nisa.tensor_copy", _COPY) if _names_dst() else {}
    if len(given) == 2 and len(tensor.shape) > 1:
        return f"HBM is read by DMA: nisa.dma_copy(dst={given['dst']}, src={given['src']})"
    if tensor.shape and (tensor.shape[0] > 128 or len(tensor.shape) < 2):
        return (
            "copy a tile of it first: nisa.dma_copy(dst=tile, src=x[0:128]), in a loop over "
            "all rows"
            if _names_dst()
            else "load a tile of it first: tile = nl.load(x[0:128]), in a loop over all rows"
        )
    if not _names_dst():
        return f"load it first: tile = nl.load({text})"
    return (
        "copy it into a tile first: "
        + made("tile", tensor.shape, tensor.dtype)
        + f"; nisa.dma_copy(dst=tile, src={text})"
    )


# -- tiles of a size that there is not ---------------------------------------------------------


def no_size(size: int | None) -> str:
    """Return what to write where a size is no positive integer; `size`: None if no integer."""
    if size is None:
        return "use // instead of /: sizes are whole numbers"
    return (
        f"a size of {size} is of a loop with one turn too many, range((n + 127) // 128) for tiles "
        "of 128, or of n // 128 where n is less than 128"
    )


def too_high() -> str:
    """Return what to write where a tile that is too high is what the kernel returns, else ""."""
    name = source_text.assigned()
    if name and not source_text.is_returned(name):
        return ""
    return "; what the kernel returns is no tile: buffer=nl.shared_hbm"


def ended(dim: int, size: int) -> str:
    """Return the slice of the statement that ends with the tensor, which has `size` there."""
    name, start, stop = source_text.sliced(dim) or ("x", "i", "i + 128")
    end = size if stop.isdigit() else f"min({stop}, {size})"
    return f"{name}[{':, ' * dim}{start}:{end}]"


def iterated(on_chip: bool, indices: str) -> str:
    """Return what to write where a tensor is looped over or unpacked."""
    if "," in source_text.target():
        return "its sizes are t.shape: rows, columns = t.shape"
    if on_chip:
        return "one instruction works on all rows of a tile: leave the loop out"
    return f"loop over indices: {indices}"


# -- operators of the package nki --------------------------------------------------------------


def operator(operand: Any, symbol: str, function: str, other: Any, turned: bool) -> str:
    """Return the instructions for `x symbol other`; `turned`: x is the right operand."""
    read = source_text.operands(_OPERATORS[symbol], operand) if symbol in _OPERATORS else None
    left, right, inplace = read or (("a", "t", False) if turned else ("t", "a", False))
    number = isinstance(other, (int, float)) and not isinstance(other, bool)
    if number and not read:
        left, right = (repr(other), "t") if turned else ("t", repr(other))
    tile, with_ = (right, left) if turned else (left, right)
    dst = tile if inplace else source_text.assigned() or "result"
    before = (
        ""
        if dst == tile
        else f"{dst} = nl.ndarray({tile}.shape, dtype={tile}.dtype, buffer=nl.sbuf); "
    )
    if symbol == "@":
        return (
            "nisa.nc_matmul(dst=p, stationary=..., moving=...), with p in nl.psum and the dim "
            "that is summed over on the partitions of both"
        )
    if symbol == "/":
        return before + _quotient(dst, tile, with_, other, number, turned)
    if symbol in ("//", "%", "**"):
        return _power_or_division(symbol, before, dst, tile, other, number, turned)
    if number or getattr(other, "shape", (0, 0))[1:] == (1,) != operand.shape[1:]:
        swap = ", reverse0=True" if turned and symbol in ("-", "<<", ">>") else ""
        return (
            f"{before}nisa.tensor_scalar(dst={dst}, data={tile}, op0=nl.{function}, "
            f"operand0={with_}{swap})"
        )
    if getattr(operand, "shape", ())[1:] == (1,) and getattr(other, "shape", (0, 1))[1:] != (1,):
        swap = ", reverse0=True" if symbol in ("-", "<<", ">>") else ""
        dst = tile if inplace else source_text.assigned() or "result"
        return (
            f"{dst} = nl.ndarray({with_}.shape, dtype={with_}.dtype, buffer=nl.sbuf); "
            f"nisa.tensor_scalar(dst={dst}, data={with_}, op0=nl.{function}, operand0={tile}{swap})"
        )
    return (
        f"{before}nisa.tensor_tensor(dst={dst}, data1={left}, data2={right}, "
        f"op=nl.{function}), or nl.{function}(x, y)"
    )


def _quotient(dst: str, tile: str, with_: str, other: Any, number: bool, turned: bool) -> str:
    """Return a division: the engines have none, so by the reciprocal."""
    if number and not turned:
        return (
            f"nisa.tensor_scalar(dst={dst}, data={tile}, op0=nl.multiply, operand0=1.0 / {with_})"
        )
    if number:
        return (
            f"nisa.reciprocal(dst={dst}, data={tile}); nisa.tensor_scalar(dst={dst}, "
            f"data={dst}, op0=nl.multiply, operand0={with_})"
        )
    inverse = (
        f"inverse = nl.ndarray({with_}.shape, dtype=nl.float32, buffer=nl.sbuf); "
        f"nisa.reciprocal(dst=inverse, data={with_}); "
    )
    if getattr(other, "shape", (0, 0))[1:] == (1,):
        return (
            f"{inverse}nisa.tensor_scalar(dst={dst}, data={tile}, op0=nl.multiply, "
            "operand0=inverse)"
        )
    return f"{inverse}nisa.tensor_tensor(dst={dst}, data1={tile}, data2=inverse, op=nl.multiply)"


def _power_or_division(
    symbol: str, before: str, dst: str, tile: str, other: Any, number: bool, turned: bool
) -> str:
    """Return powers, and what the engines do not have: whole quotients and remainders."""
    if symbol == "**" and number and not turned:
        if other == 2:
            return (
                f"{before}nisa.tensor_tensor(dst={dst}, data1={tile}, data2={tile}, op=nl.multiply)"
            )
        if other in (0.5, -0.5, -1):
            function = {0.5: "nl.sqrt", -0.5: "nl.rsqrt", -1: "nl.reciprocal"}[other]
            return f"{before}nisa.activation(dst={dst}, op={function}, data={tile})"
        return (
            f"{before}nisa.tensor_scalar(dst={dst}, data={tile}, op0=nl.power, operand0={other!r})"
        )
    if symbol == "**":
        return "exp(b * log(a)): nisa.activation with nl.log, a product, and one with nl.exp"
    quotient = (
        f"{before}nisa.tensor_scalar(dst={dst}, data={tile}, op0=nl.multiply, operand0="
        f"{'1.0 / ' + repr(other) if number else 'inverse'}); "
        f"nisa.activation(dst={dst}, op=nl.floor, data={dst})"
    )
    if symbol == "//" and not turned:
        return quotient
    return (
        "a - b * floor(a / b), instruction by instruction: the engines have no remainder; "
        "of indices and sizes Python computes it"
    )


def unary(operand: Any, symbol: str) -> str:
    """Return the instruction for -t, ~t and abs(t)."""
    if symbol == "abs":
        return "nl.abs(t), or nisa.activation(dst, op=nl.abs, data=t)"
    if symbol == "~":
        return "nisa.tensor_scalar(dst, data=t, op0=nl.bitwise_xor, operand0=-1) for integers"
    return "nisa.tensor_scalar(dst, data=t, op0=nl.multiply, operand0=-1.0)"


def no_bound(args: Sequence[Any]) -> str:
    """Return what to write where the bound of a loop is a tensor or a shape, "" if none is."""
    for argument in args:
        if isinstance(argument, tuple) and argument:
            return f"a shape has a size for each dim: shape[0] here is {argument[0]}"
        shape = getattr(argument, "shape", None)
        if shape:
            return (
                f"a count is a number of the host: range(t.shape[0]) here is range({shape[0]})"
                if _names_dst()
                else "a count is a number of the host: nl.affine_range(t.shape[0]) here is "
                f"{shape[0]}"
            )
    return ""


def extreme() -> str:
    """Return what to write for Python's max or min of two tiles, "" if it is something else."""
    for python, name in (("max", "maximum"), ("min", "minimum")):
        calls = source_text.calls(python)
        if calls and not source_text.asks(ast.Compare) and len(calls[0].args) == 2:
            given = ", ".join(ast.unparse(a) for a in calls[0].args)
            return f"nl.{name}({given}) compares element by element"
    return ""


def comparison(operand: Any, symbol: str, function: str, other: Any) -> str:
    """Return what to write for `t > 0`, also where Python's max, min or an `if` asks it."""
    if call := extreme():
        return call
    if source_text.asks(ast.If) or source_text.asks(ast.While) or source_text.asks(ast.IfExp):
        word = "while" if source_text.asks(ast.While) else "if"
        return (
            f"no `{word}` depends on data: nl.where(condition, a, b) selects, with condition = "
            + _compared(function, other)
        )
    return _compared(function, other) + " makes a tile of 1.0 and 0.0, for nl.where or a product"


def _compared(function: str, other: Any) -> str:
    number = isinstance(other, (int, float))
    return f"nl.{function}(t, {other!r})" if number else f"nl.{function}(a, b)"


# -- operands that are no tiles, or lie elsewhere ----------------------------------------------


def host_array(array: Any) -> str:
    """Return what to write for an array of NumPy's in the place of a tile."""
    first = array.reshape(-1)[0] if array.size else 0.0
    if array.ndim > 1 and array.shape[0] <= 128 and (array == first).all():
        dtype = "float32" if array.dtype.kind == "f" else "int32"
        number = float(first) if array.dtype.kind == "f" else int(first)
        if _names_dst():
            return (
                f"make a tile: t = nl.ndarray({array.shape}, dtype=nl.{dtype}, buffer=nl.sbuf); "
                f"nisa.memset(dst=t, value={number})"
            )
        return f"make a tile: nl.full({array.shape}, {number}, dtype=nl.{dtype})"
    return "pass it as a kernel argument, or use nl.shared_constant" + (
        " and nisa.dma_copy into a tile" if _names_dst() else " and nl.load"
    )


def no_tile(name: str, value: Any) -> str:
    """Return what to write for a number or a text in the place of a tile."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        for api in ("nisa.tensor_tensor",):
            given = source_text.arguments(
                api, ("dst", "data1", "data2", "op") if _names_dst() else ("data1", "data2", "op")
            )
            if given and name in ("data1", "data2"):
                tile = given.get("data2" if name == "data1" else "data1", "t")
                dst = f"dst={given['dst']}, " if _names_dst() and "dst" in given else ""
                swap = ", reverse0=True" if name == "data1" else ""
                return (
                    f"a number is an operand of nisa.tensor_scalar: nisa.tensor_scalar({dst}"
                    f"data={tile}, op0={given.get('op', 'nl.add')}, operand0={given[name]}{swap})"
                )
        return (
            f"numbers are computed by Python, before the kernel runs: math.sqrt({value!r}), "
            f"max({value!r}, 0.0); nisa.memset fills a tile with one"
            if _names_dst()
            else f"numbers are computed by Python, before the kernel runs: math.sqrt({value!r}), "
            f"max({value!r}, 0.0); nl.full makes a tile of one"
        )
    if value is None or isinstance(value, str):
        return "a number, or a tile that the kernel has made"
    if not _names_dst():
        return ""
    return "copy the kernel's argument into a tile with nisa.dma_copy, or make one with nl.ndarray"


def assigned_hbm() -> str:
    """Return what to write for `out[...] = tile`."""
    target, text = source_text.target(), source_text.assigned_value()
    if not text:
        return "nl.store(out[...], value=tile), or nisa.dma_copy(dst=out, src=tile)"
    if "(" not in text and getattr(source_text.value_of(text), "memory", "") == "hbm":
        text = f"nl.load({text})"
    return f"nl.store({target}, value={text})"


def stored_on_chip() -> str:
    """Return what to write where nl.store is to write a tile.

    Either its arguments are exchanged, or the output was made where tiles are.
    """
    given = source_text.arguments("nl.store", ("dst", "value"))
    if "value" in given and getattr(source_text.value_of(given["value"]), "memory", "") == "hbm":
        return f"the destination comes first: nl.store({given['value']}, {given.get('dst', 't')})"
    name = source_text.base(given.get("dst", "")) or "out"
    return (
        f"if it is what the kernel returns, make it in HBM: {name} = nl.ndarray(shape, "
        f"dtype=nl.float32, buffer=nl.shared_hbm); a tile is assigned to: {name}[...] = ..."
    )


def row_of_matrix() -> str:
    """Return what to write where nl.load(x[i]) brings a row, one element to a partition.

    "" if the statement loads something else.
    """
    text = source_text.arguments("nl.load", ("src",)).get("src", "")
    x, index = source_text.base(text), source_text.first_index(text)
    if not index or len(getattr(source_text.value_of(text), "shape", ())) != 2:
        return ""
    return (
        f"{x}[{index}] is a vector, and lies down the partitions; a row stays one with "
        f"{x}[{index}:{index} + 1]. Up to 128 rows at a time are faster: {x}[0:128]"
    )


def vector_meant(one: Any, other: Any, function: str = "") -> str:
    """Return what to write where a vector of HBM became a column, and a row of it was meant.

    "" if neither tile is as long a column as the other is wide. `function`: what repeats a row, in
    the place of an operator, which does not.
    """
    for column, tile in ((one, other), (other, one)):
        n = column.shape[0]
        if column.size == n > 1 and tile.shape[0] != n == tile.size // tile.shape[0]:
            return (
                f"a vector of {n} elements is loaded as a column, ({n}, 1); load it as a row: "
                f"nl.load(x.reshape((1, {n})))"
                + (f", and write {function}(x, y) for the operator" if function else "")
            )
    return ""


def per_partition(vector: Any, tile: Any) -> str:
    """Return what to write where a row is given for an operand of one element a partition."""
    width = tile.size // tile.shape[0]
    if width > 1 and vector.size == width:
        row = "x" if vector.shape[0] == 1 else f"nl.load(x.reshape((1, {width})))"
        return (
            "a row that goes to all partitions is an operand of nl.add, nl.multiply ..., which "
            f"repeat it: nl.add(tile, {row})"
        )
    return "for a tile of the same shape use nisa.tensor_tensor"


def in_psum(name: str, tile: Any) -> str:
    """Return what to write where an operand lies in PSUM, and has to lie in SBUF."""
    if not _names_dst():
        return "copy it to SBUF first: nl.copy(x), or nisa.tensor_copy(x)"
    return (
        "copy it to SBUF first: "
        + made("tile", tile.shape, tile.dtype)
        + "; nisa.tensor_copy(dst=tile, src=...)"
    )


def psum_by_dma(name: str, given: Mapping[str, Any]) -> str:
    """Return what to write where a DMA reads or writes PSUM."""
    texts = source_text.arguments("nisa.dma_copy", _COPY)
    tile = made("tile", given[name].shape, given[name].dtype)
    if name == "src":
        return (
            f"{tile}; nisa.tensor_copy(dst=tile, src={texts.get('src', 'psum')}); "
            f"nisa.dma_copy(dst={texts.get('dst', 'out[...]')}, src=tile)"
        )
    if getattr(given["src"], "memory", "") != "hbm":
        return (
            "engines copy to PSUM: nisa.tensor_copy("
            f"dst={texts.get('dst', 'psum')}, src={texts.get('src', 'tile')})"
        )
    return (
        f"{tile}; nisa.dma_copy(dst=tile, src={texts.get('src', 'x[...]')}); "
        f"nisa.tensor_copy(dst={texts.get('dst', 'psum')}, src=tile)"
    )


def wrong_memory(
    api: str, dst: Any, shape: Sequence[int], writes: Sequence[str], signature: str
) -> str:
    """Return what to write where an instruction does not write the memory of dst."""
    names = _names(signature)
    memory = str(writes[0])
    if dst.memory == "hbm":
        return out_of_hbm(api, dst, memory, names, tuple(shape))
    given = source_text.arguments(api, names)
    text = given.get("dst", "dst")
    then = source_text.call(api, names, dst="result") or f"{api}(dst=result, ...)"
    return (
        f"{made('result', shape, 'float32' if memory == 'psum' else dst.dtype, '', memory)}; "
        f"{then}; nisa.tensor_copy(dst={text}, src=result)"
    )


def same_rows(one: str, a: Any, other: str, b: Any) -> str:
    """Return what to write where two operands lie on different numbers of partitions.

    A slice helps if they have as many elements in each partition.
    """
    name, big, small = (one, a, b) if a.shape[0] > b.shape[0] else (other, b, a)
    n = small.shape[0]
    if a.shape[1:] != b.shape[1:] and a.size * b.shape[0] != b.size * a.shape[0]:
        return _other_dim_first(one, a, b) or _other_dim_first(other, b, a) or _SAME_TILE
    hint = (
        f"slice {name} to the partitions of the other: {source_text.argument(name) or name}[0:{n}]"
    )
    if len(a.shape) == len(b.shape) == 3:
        hint += (
            "; the first dim of a tile is its partitions: what a loop counts stands behind "
            "it, (channels, images, pixels)"
        )
    return hint


_SAME_TILE = (
    "slice both to the same number of partitions and of elements in each; the first dim of a tile "
    "is its partitions"
)


def _other_dim_first(name: str, t: Any, other: Any) -> str:
    """Return how to lay out a stack of tiles of the other's shape, "" if it is none."""
    if t.shape[1:] != other.shape or len(t.shape) < 3:
        return ""
    count, rows, *rest = t.shape
    text = source_text.argument(name) or name
    return (
        f"the first dim of a tile is its partitions: make {text} of shape "
        f"{(rows, count, *rest)}, with what is counted behind them, and take one of the {count}: "
        f"{name}={text}[:, 0]"
    )


def same_columns(names: Sequence[str], tiles: Sequence[Any]) -> str:
    """Return what to write where two operands have different numbers of elements a partition."""
    small, big = sorted((0, 1), key=lambda i: tiles[i].size)
    given = source_text.argument(names[big])
    variable = "" if given else source_text.variable(lambda t: t is tiles[big])
    text = given or variable or names[big]
    piece = source_text.part(text, tiles[big].shape, tiles[small].shape)
    return (
        "slice both to the same tile"
        + (f": {'' if variable else names[big] + '='}{piece}" if piece else "")
        + ", or where a window moves: [:, j:j + n]"
    )
