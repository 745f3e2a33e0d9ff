"""What a convolution must compute, several times over: from plain loops to tiles of matmuls.

Run it to compare them, `python reference.py`, and to time them, `python reference.py --benchmark`.
PyTorch is the golden model; `conv2d_exact` needs only NumPy and is what kernels are checked with.
"""
from __future__ import annotations

import argparse
import sys
import time

import numpy as np

P = 128


def conv2d_torch(X: np.ndarray, W: np.ndarray, bias: np.ndarray, pool_size: int = 1) -> np.ndarray:
    """Convolve and pool with PyTorch."""
    import torch
    if X.dtype.name == "bfloat16":  # torch.from_numpy does not know ml_dtypes
        X, W, bias = (a.astype(np.float32) for a in (X, W, bias))
    out = torch.nn.functional.conv2d(*(torch.from_numpy(a) for a in (X, W, bias)))
    if pool_size > 1:
        out = torch.nn.functional.max_pool2d(out, pool_size)
    return out.numpy()


def conv2d_numpy(X: np.ndarray, W: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Convolve as it is defined: one output element at a time."""
    batch, _, in_height, in_width = X.shape
    c_out, _, size, _ = W.shape
    height, width = in_height - size + 1, in_width - size + 1
    out = np.empty((batch, c_out, height, width))
    for b in range(batch):
        for m in range(c_out):
            for r in range(height):
                for c in range(width):
                    out[b, m, r, c] = np.sum(X[b, :, r:r + size, c:c + size] * W[m]) + bias[m]
    return out


def conv2d_numpy_matmul(X: np.ndarray, W: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Convolve as a sum of matrix products, one per filter tap."""
    batch, c_in, in_height, in_width = X.shape
    c_out, _, size, _ = W.shape
    height, width = in_height - size + 1, in_width - size + 1
    out = np.zeros((batch, c_out, height * width))
    for i in range(size):
        for j in range(size):
            shifted = X[:, :, i:i + height, j:j + width].reshape(batch, c_in, height * width)
            out += W[:, :, i, j] @ shifted
    return out.reshape(batch, c_out, height, width) + bias[:, None, None]


def conv2d_numpy_matmul_tiled(X: np.ndarray, W: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Convolve with products no larger than the Tensor Engine's: 128 x 128 by 128 x 512."""
    batch, c_in, in_height, in_width = X.shape
    c_out, _, size, _ = W.shape
    height, width = in_height - size + 1, in_width - size + 1
    rows = max(1, 512 // width)
    out = np.empty((batch, c_out, height, width))
    for b in range(batch):
        for m in range(0, c_out, P):
            for r in range(0, height, rows):
                n = min(rows, height - r)
                for c in range(0, width, 512):
                    w = min(512, width - c)
                    acc = np.zeros((P, n * w))  # a PSUM bank
                    for k in range(0, c_in, P):
                        for i in range(size):
                            for j in range(size):
                                window = X[b, k:k + P, r + i:r + i + n, c + j:c + j + w]
                                acc += W[m:m + P, k:k + P, i, j] @ window.reshape(P, n * w)
                    out[b, m:m + P, r:r + n, c:c + w] = acc.reshape(P, n, w)
            out[b, m:m + P] += bias[m:m + P, None, None]
    return out


def maxpool_numpy(x: np.ndarray, pool_size: int) -> np.ndarray:
    """Take the maximum of each square of pool_size x pool_size elements."""
    batch, channels, height, width = x.shape
    squares = x.reshape(batch, channels, height // pool_size, pool_size, width // pool_size,
                        pool_size)
    return squares.max(axis=(3, 5))


def conv2d_exact(X: np.ndarray, W: np.ndarray, bias: np.ndarray, pool_size: int = 1) -> np.ndarray:
    """Convolve and pool in float64, an image at a time.

    The result is float64 for float32 inputs, and float32 for narrower ones, whose outputs keep at
    most 11 bits: the largest case would otherwise take a gigabyte.
    """
    batch, c_in, in_height, in_width = X.shape
    c_out, _, size, _ = W.shape
    height, width = in_height - size + 1, in_width - size + 1
    taps = W.astype(np.float64).transpose(2, 3, 0, 1).reshape(size * size, c_out, c_in)
    out = np.empty((batch, c_out, height // pool_size, width // pool_size),
                   dtype=np.float64 if X.dtype == np.float32 else np.float32)
    for b in range(batch):
        image = X[b].astype(np.float64)
        acc = np.zeros((c_out, height * width))
        for t, tap in enumerate(taps):
            i, j = divmod(t, size)
            acc += tap @ image[:, i:i + height, j:j + width].reshape(c_in, height * width)
        acc += bias.astype(np.float64)[:, None]
        out[b] = maxpool_numpy(acc.reshape(1, c_out, height, width), pool_size)[0]
    return out


def make_images(batch: int, c_in: int, c_out: int, size: int, height: int, width: int,
                dtype: str = "float32", seed: int = 152
                ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return random X, W and bias."""
    rng = np.random.default_rng(seed)
    return ((rng.random((batch, c_in, height, width), dtype=np.float32)).astype(dtype),
            (rng.random((c_out, c_in, size, size), dtype=np.float32)).astype(dtype),
            (rng.random(c_out, dtype=np.float32) * 50).astype(dtype))


#: (batch, c_in, c_out, filter size, height, width): small for all, large for the fast ones
SMALL, LARGE = (1, 128, 128, 3, 12, 12), (4, 128, 256, 3, 64, 64)


def main() -> int:
    """Check the references against each other, and time them with --benchmark."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--benchmark", action="store_true", help="time the references")
    parser.add_argument("--seed", type=int, default=152, help="seed of the inputs")
    args = parser.parse_args()
    plain = [conv2d_numpy, conv2d_numpy_matmul, conv2d_numpy_matmul_tiled, conv2d_exact]
    try:
        import torch  # noqa: F401
        plain.insert(0, conv2d_torch)
    except ImportError:
        print("PyTorch is not installed (pip install torch): its model is left out")
    failed = 0
    for shape in (SMALL, LARGE):
        inputs = make_images(*shape, seed=args.seed)
        expected = conv2d_exact(*inputs)
        print(f"batch {shape[0]}, channels {shape[1]} to {shape[2]}, filter {shape[3]}, "
              f"image {shape[4]} x {shape[5]}")
        for model in plain:
            if shape is LARGE and model is conv2d_numpy:
                continue  # two million windows: minutes
            begun = time.perf_counter()
            right = np.allclose(model(*inputs), expected, rtol=1e-5)
            seconds = time.perf_counter() - begun
            failed += not right
            took = f"  {1e3 * seconds:10.1f} ms" if args.benchmark else ""
            print(f"  {model.__name__:28} {'as expected' if right else 'WRONG':12}{took}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
