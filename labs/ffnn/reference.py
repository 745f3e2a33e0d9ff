"""The network in NumPy: what the kernels must compute, and a program to time and store it.

    python reference.py --benchmark             time the prediction
    python reference.py --store-data [FOLDER]   write X, W1, b1, W2, b2 and the predictions Y
    python reference.py --load-data [FOLDER]    predict from stored inputs and compare with Y
"""
from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

try:
    import numpy as np

    from labkit import AnyArgmax, SpecError, make_inputs
    from labkit.inputs import load_array
except ModuleNotFoundError as error:
    print(f"could not run: {error.name} is not installed; README.md at the top of the repository "
          "has the command that installs what the labs need", file=sys.stderr)
    sys.exit(2)

NAMES = ("X", "W1", "b1", "W2", "b2")


def transpose(matrix: np.ndarray) -> np.ndarray:
    """Return the transposed matrix."""
    return matrix.T


def matmul(lhsT: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Return lhsT.T @ rhs in float64."""
    return lhsT.T.astype(np.float64) @ rhs.astype(np.float64)


def relu(x: np.ndarray) -> np.ndarray:
    """Return x where it is positive, else 0."""
    return np.maximum(x, 0)


def softmax(x: np.ndarray) -> np.ndarray:
    """Return exp(x) divided by its sum over the row; the maximum is taken off to avoid overflow."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def bias_add_act(A: np.ndarray, b: np.ndarray, act: str = "relu") -> np.ndarray:
    """Return act(A + b) in float64."""
    return {"relu": relu, "softmax": softmax}[act](A.astype(np.float64) + b)


def probabilities(X: np.ndarray, W1: np.ndarray, b1: np.ndarray, W2: np.ndarray,
                  b2: np.ndarray) -> np.ndarray:
    """Return the class probabilities of every row of X, in the dtype of the inputs."""
    return softmax(relu(X @ W1 + b1) @ W2 + b2)


def forward(*inputs: np.ndarray) -> np.ndarray:
    """Return the class probabilities in float64."""
    return probabilities(*(a.astype(np.float64) for a in inputs))


def predict(*inputs: np.ndarray) -> AnyArgmax:
    """Return what the predictions must be: any class whose float64 probability is a largest one."""
    X, W1, _, _, _ = inputs
    return AnyArgmax(forward(*inputs), accumulate=X.shape[1] + W1.shape[1])


def main() -> int:
    """Predict with NumPy in float32, the size of the full lab unless --small is given."""
    from spec import FULL_LAB, SMALL_LAB, network_case
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--benchmark", action="store_true", help="time the prediction")
    parser.add_argument("--store-data", nargs="?", const="data", metavar="FOLDER",
                        help="write inputs and predictions there (default: data)")
    parser.add_argument("--load-data", nargs="?", const="data", metavar="FOLDER",
                        help="read inputs and predictions from there (default: data)")
    parser.add_argument("--small", action="store_true", help="a small network, for a quick try")
    parser.add_argument("--seed", type=int, default=152, help="seed of the inputs")
    args = parser.parse_args()
    size = SMALL_LAB if args.small else FULL_LAB
    try:
        case = network_case("data", "nki_predict", size, folder=args.load_data or "")
        inputs = make_inputs(case, args.seed)
        stored = load_array(Path(args.load_data) / "Y.npy", (size.batch,), np.dtype(np.int32)) \
            if args.load_data else None
        print(f"network {size.inputs} -> {size.hidden} -> {size.classes}, batch {size.batch}")
        predictions = probabilities(*inputs).argmax(axis=1).astype(np.int32)
        print(f"first predictions: {predictions[:12]} ...")
        if args.store_data:
            store(Path(args.store_data), inputs, predictions)
    except (SpecError, OSError) as error:
        print(f"could not run: {error}", file=sys.stderr)
        return 2
    if args.benchmark:
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            probabilities(*inputs).argmax(axis=1)
            times.append(time.perf_counter() - begun)
        print(f"NumPy predicts in {1e3 * min(times):.1f} ms (best of {len(times)})")
    if stored is not None:
        same = int((stored == predictions).sum())
        print(f"{same} of {stored.size} predictions are the stored ones")
        return 0 if same == stored.size else 1
    return 0


def store(folder: Path, inputs: list[np.ndarray], predictions: np.ndarray) -> None:
    """Write the arrays as .npy files, which know their dtype and shape."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip((*NAMES, "Y"), (*inputs, predictions)):
        np.save(folder / f"{name}.npy", array)
    print(f"stored {', '.join(NAMES)} and Y in {folder}")


if __name__ == "__main__":
    sys.exit(main())
