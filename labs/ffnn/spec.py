"""The ffnn lab as data: the kernels alone, then the network, small and at the lab's full size."""
from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from labkit import Case, Lab, RubricLine, Step, Tensor
from labkit.spec import time_limit

MATMULS = ("tiled", "hoist_load", "block_free_dimension", "fully_optimized")
INPUTS = ("X", "W1", "b1", "W2", "b2")


class Network(NamedTuple):
    """The sizes of a network with one hidden layer."""

    batch: int
    inputs: int
    hidden: int
    classes: int


SMALL_LAB = Network(256, 512, 1024, 512)
FULL_LAB = Network(2048, 4096, 8192, 2048)
_BOTH = ("quick", "full")


def _weights(shape: tuple[int, int], inputs: int, dtype: str, file: str) -> Tensor:
    """Return weights or biases of a layer: uniform, with a variance of 2 / inputs.

    That is how networks with relu begin. The scores of classes spread by about 0.8 whatever the
    sizes are, and what 16 bits lose of them is outside of the tolerance of float32. (With smaller
    weights all probabilities are nearly equal, and a network in float16 is right as well.)
    """
    most = (6 / inputs) ** 0.5
    return Tensor(shape, dtype, -most, most, file)


def network_case(name: str, kernel: str, size: Network, *, dtype: str = "float32",
                 matmul: str = "tiled", folder: str = "", **more: Any) -> Case:
    """Return a case of nki_forward or nki_predict; inputs from the .npy files of `folder` if given.

    An output sums over the inputs and then over the hidden neurons.
    """
    n = size
    files = [str(Path(folder) / f"{name}.npy") if folder else "" for name in INPUTS]
    tensors = (Tensor((n.batch, n.inputs), dtype, file=files[0]),
               _weights((n.inputs, n.hidden), n.inputs, dtype, files[1]),
               _weights((1, n.hidden), n.inputs, dtype, files[2]),
               _weights((n.hidden, n.classes), n.hidden, dtype, files[3]),
               _weights((1, n.classes), n.hidden, dtype, files[4]))
    predict = kernel == "nki_predict"
    more.setdefault("timeout_s", time_limit(n.batch * n.hidden * (n.inputs + n.classes)))
    return Case(name, kernel, "predict" if predict else "forward", tensors,
                kernel_kwargs={"matmul_kernel": matmul}, accumulate=n.inputs + n.hidden,
                functions=("matmul", "exp"), roundings=3,
                output_dtype="int32" if predict else None,
                flops=2 * n.batch * n.hidden * (n.inputs + n.classes), **more)


def transpose_case(rows: int, cols: int, dtype: str = "float32", **more: Any) -> Case:
    """Return a case of nki_transpose; values are only moved, so the result must be exact.

    A tile of 128 x 128 takes two transfers, element by element 32,768; 64 leave much room.
    """
    return Case(f"transpose_{rows}x{cols}" + (f"_{dtype}" if dtype != "float32" else ""),
                "nki_transpose", "transpose", (Tensor((rows, cols), dtype),), accumulate=0,
                most_transfers=64 * -(-rows // 128) * -(-cols // 128), **more)


def bias_case(act: str, rows: int, cols: int, most: int = 1, **more: Any) -> Case:
    """Return a case of nki_bias_add_act; softmax sums a row, and rounds exp, sum and quotient.

    `most`: the largest |A|. exp(x) has the absolute rounding error of x as a relative one: sum
    and difference with the maximum round to three times that of `most`.
    """
    large = f"_to{most}" if most > 1 else ""
    return Case(f"bias_add_{act}_{rows}x{cols}{large}", "nki_bias_add_act", "bias_add_act",
                (Tensor((rows, cols), low=-most, high=most), Tensor((1, cols), low=-1.0)),
                kwargs={"act": act}, accumulate=cols if act == "softmax" else 1,
                functions=("exp",) if act == "softmax" else (),
                roundings=1 if act != "softmax" else 4 + 3 * most * (most > 1), **more)


def matmul_case(which: str, k: int, m: int, n: int, dtype: str = "float32", **more: Any) -> Case:
    """Return a case of one of the matmul kernels: lhsT [k, m] times rhs [k, n]."""
    suffix = f"_{dtype}" if dtype != "float32" else ""
    return Case(f"matmul_{which}_{k}x{m}x{n}{suffix}", f"nki_matmul_{which}", "matmul",
                (Tensor((k, m), dtype, low=-1.0), Tensor((k, n), dtype, low=-1.0)), accumulate=k,
                functions=("matmul",) if dtype == "float32" else (), flops=2 * k * m * n, **more)


_FULL: dict[str, Any] = {"fleets": ("full", "lab")}
_F = FULL_LAB

CASES = (
    transpose_case(128, 128),
    transpose_case(384, 1280),
    transpose_case(256, 1152, "bfloat16"),
    transpose_case(_F.batch, _F.inputs, **_FULL),
    transpose_case(_F.batch, _F.hidden, **_FULL),
    bias_case("relu", 256, 1024),
    bias_case("softmax", 256, 512),
    bias_case("softmax", 200, 77),
    bias_case("softmax", 128, 64, most=1000),
    bias_case("relu", _F.batch, _F.hidden, **_FULL),
    bias_case("softmax", _F.batch, _F.classes, **_FULL),
    *(matmul_case(which, 512, 640, 1536) for which in MATMULS),
    *(matmul_case(which, 256, 128, 192, "float16") for which in MATMULS),
    network_case("forward_small", "nki_forward", SMALL_LAB),
    *(network_case(f"predict_small_{which}", "nki_predict", SMALL_LAB, matmul=which)
      for which in MATMULS),
    network_case("forward", "nki_forward", FULL_LAB, **_FULL),
    *(network_case("predict" + (f"_{which}" if which != "tiled" else ""), "nki_predict",
                   FULL_LAB, matmul=which, **_FULL) for which in MATMULS),
)


def _step(number: int, section: str, *kernels: str) -> Step:
    return Step(number, section, tuple(c.name for c in CASES if c.kernel in kernels))


LAB = Lab(
    name="ffnn",
    title="A feed-forward neural network",
    folder=Path(__file__).parent,
    cases=CASES,
    rubric=(
        RubricLine("nki_transpose", 6, (f"transpose_{_F.batch}x{_F.inputs}",
                                        f"transpose_{_F.batch}x{_F.hidden}")),
        RubricLine("nki_bias_add_act", 8, (f"bias_add_relu_{_F.batch}x{_F.hidden}",
                                           f"bias_add_softmax_{_F.batch}x{_F.classes}")),
        RubricLine("nki_forward", 8, ("forward",)),
        RubricLine("nki_predict", 8, ("predict",)),
    ),
    steps=(_step(2, "2. nki_transpose", "nki_transpose"),
           _step(3, "3. nki_bias_add_act", "nki_bias_add_act"),
           _step(4, "4. nki_forward and nki_predict", "nki_forward", "nki_predict")),
    seed=152,
)
