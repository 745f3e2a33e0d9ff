"""The conv2d lab as data: cases, thresholds and points of three courses that gave this problem."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit import Case, Lab, RubricLine, Step, Tensor
from labkit.spec import time_limit


def conv_case(name: str, batch: int, c_in: int, c_out: int, size: int, height: int, width: int,
              dtype: str = "float32", *, pool: int | None = None, bias: float = 1.0,
              **more: Any) -> Case:
    """Return a case. Without `pool` it runs conv2d_nki; with 1 or 2, fused_conv2d_maxpool.

    Biases are in [0, bias). One output element sums c_in * size * size products and the bias.
    Filters have both signs, so that products cancel. A sum of positive ones is so large that what
    its tolerance allows would hide products of float32 that were computed in float16. In 16 bits
    a kernel may store the sum in that dtype before it adds the bias: two roundings. `flops` are
    those of the direct sum; in float32 those of Winograd's algorithm, which needs fewer products.
    """
    inputs = (Tensor((batch, c_in, height, width), dtype),
              Tensor((c_out, c_in, size, size), dtype, low=-1.0),
              Tensor((c_out,), dtype, high=bias))
    products = batch * c_in * c_out * size * size * height * width
    rows, columns = height - size + 1, width - size + 1
    step = pool or 1                        # what a window of the pool leaves out is not needed
    needed: float = batch * c_in * c_out * size * size
    needed *= (rows // step * step) * (columns // step * step)
    if dtype == "float32":
        needed *= winograd_share(size)
    more.setdefault("timeout_s", time_limit(products))
    kernel = "conv2d_nki" if pool is None else "fused_conv2d_maxpool"
    return Case(name, kernel, "conv2d_exact", inputs,
                kwargs={} if pool is None else {"pool_size": pool},
                accumulate=c_in * size * size + 1, flops=2 * needed,
                functions=("matmul",) if dtype == "float32" else (),
                roundings=1 if dtype == "float32" else 2, added=bias, **more)


def winograd_share(size: int) -> float:
    """Return the share of the products of a direct sum that Winograd's algorithm needs.

    For tiles of m x m outputs it multiplies (m + size - 1)^2 numbers in place of (m * size)^2. In
    float32, tiles of 6 x 6 numbers are within the tolerance (0.7 of it, for 256 channels and 3 x 3
    filters), and tiles of 8 x 8 are not (Lavin and Gray, https://arxiv.org/abs/1509.09308).
    """
    m = max(1, 7 - size)
    return min(1.0, ((m + size - 1) / (m * size)) ** 2)


#: Berkeley, spring 2025 (trn1): (in, out, filter, batch, image, dtype) and the p50 to stay under.
BERKELEY = {
    (128, 128, 3, 16, 256, "float16"): 13000,
    (128, 128, 5, 16, 32, "float16"): 1000,
    (128, 256, 3, 4, 32, "float32"): 1000,
    (128, 256, 3, 4, 256, "float16"): 7000,
    (128, 256, 3, 16, 32, "float32"): 3000,
    (128, 256, 3, 64, 32, "float16"): 8000,
    (128, 256, 5, 4, 32, "float32"): 3000,
    (128, 256, 5, 16, 32, "float16"): 2000,
    (256, 256, 3, 4, 32, "float32"): 3000,
    (256, 256, 3, 16, 32, "float16"): 3000,
    (256, 256, 3, 64, 32, "float16"): 10000,
    (256, 256, 5, 4, 32, "float32"): 5000,
    (256, 256, 5, 16, 32, "float16"): 4000,
    (256, 256, 5, 64, 32, "float16"): 12000,
}
BASIC = {(128, 256, 3, 4, 32, "float32"), (128, 256, 3, 4, 256, "float16"),
         (256, 256, 5, 4, 32, "float32")}
#: Cases of that fleet that are also part of the quick run.
_QUICK = {(128, 256, 3, 4, 32, "float32"), (128, 256, 5, 4, 32, "float32"),
          (256, 256, 3, 16, 32, "float16")}


def berkeley_name(c_in: int, c_out: int, size: int, batch: int, image: int, dtype: str) -> str:
    """Return the name that the handout gives a case."""
    return f"in{c_in}_out{c_out}_filter{size}x{size}_batch{batch}_{image}x{image}_{dtype}"


def _berkeley(key: tuple[int, int, int, int, int, str], limit: float) -> Case:
    c_in, c_out, size, batch, image, dtype = key
    fleets = ("berkeley", "full") + ("basic",) * (key in BASIC) + ("quick",) * (key in _QUICK)
    return conv_case(berkeley_name(*key), batch, c_in, c_out, size, image, image, dtype, bias=50,
                     fleets=fleets, threshold_us={"trn1": limit}, percentile=50)


#: Stanford: p99 by dtype for 256 -> 256 channels, 3 x 3, batch 1. In 2024 (trn1) the thresholds of
#: 224 x 224; in 2025 (trn2) a relaxed and a full one, and thresholds for 32 x 16 as well.
STANFORD_2024 = {"float32": 4300, "float16": 1300}
STANFORD_2025 = {("float32", 224): (4964, 4596), ("float16", 224): (1365, 1002),
                 ("float32", 32): (110, 110), ("float16", 32): (84, 84)}


def _stanford_speed(dtype: str, height: int, width: int, pool: int) -> Case:
    relaxed, full = STANFORD_2025[dtype, height]
    limits = {"trn2": full} | ({"trn1": STANFORD_2024[dtype]} if height == 224 else {})
    fleets = ("full", "stanford_pool") + ("stanford",) * (pool == 1)
    return conv_case(speed_name(dtype, height, width, pool), 1, 256, 256, 3, height, width, dtype,
                     pool=pool, threshold_us=limits, relaxed_us={"trn2": relaxed}, percentile=99,
                     fleets=fleets + ("quick",) * (height == 32 or dtype == "float16"))


def speed_name(dtype: str, height: int, width: int, pool: int) -> str:
    """Return the name of a case of Stanford's performance tests."""
    return f"speed_{height}x{width}_{dtype}" + ("_pool" if pool == 2 else "")


#: What the course grades for speed: (in, out, filter, batch, rows, columns, dtype, pool), and by
#: generation the latency for half of the points and for all of them, in us. Each limit lies
#: between two steps of the staff's ladder, so that each step earns more (solutions/README.md).
GRADED = {
    (256, 256, 3, 1, 32, 16, "float16", 1): {"trn1": (100, 42), "trn2": (350, 45)},
    (256, 256, 3, 1, 32, 16, "float32", 1): {"trn1": (250, 70), "trn2": (350, 75)},
    (256, 256, 3, 1, 32, 16, "float16", 2): {"trn1": (50, 34), "trn2": (110, 45)},
    (128, 1024, 1, 1, 64, 64, "float16", 1): {"trn1": (100, 68), "trn2": (140, 60)},
    (128, 1024, 1, 1, 64, 64, "float16", 2): {"trn1": (100, 60), "trn2": (140, 67)},
}


def graded_name(key: tuple[int, int, int, int, int, int, str, int]) -> str:
    """Return the name of a case that is graded for speed."""
    c_in, c_out, size, _, height, width, dtype, pool = key
    return (f"graded_{c_in}to{c_out}_{size}x{size}_{height}x{width}_{dtype}"
            + ("_pool" if pool == 2 else ""))


def _graded() -> tuple[Case, ...]:
    return tuple(
        conv_case(graded_name(key), key[3], key[0], key[1], key[2], key[4], key[5], key[6],
                  pool=key[7], threshold_us={t: full for t, (_, full) in limits.items()},
                  relaxed_us={t: half for t, (half, _) in limits.items()}, percentile=99,
                  fleets=("quick", "full", "graded"))
        for key, limits in GRADED.items())


SMALL = tuple(f"small_in{i}_out{o}" for i in (128, 256) for o in (128, 256))


def _stanford_right() -> tuple[Case, ...]:
    """Return Stanford's correctness tests: batch 4, fp32; small images, then large ones."""
    small = tuple(conv_case(f"small_in{i}_out{o}", 4, i, o, 3, 32, 16, pool=1,
                            fleets=("quick", "full", "stanford", "stanford_pool"))
                  for i in (128, 256) for o in (128, 256))
    large = tuple(conv_case(name, 4, 256, 256, 3, 224, 224, pool=pool, bias=bias,
                            fleets=("full", "stanford_pool") + ("stanford",) * (pool == 1))
                  for name, pool, bias in (("large", 1, 1.0), ("large_bias", 1, 50.0),
                                           ("large_bias_pool", 2, 50.0)))
    return small + large


def _odd() -> tuple[Case, ...]:
    """Return shapes that no handout has: what a kernel tuned to the tables gets wrong."""
    return (
        conv_case("odd_batch3_384_1x1", 3, 384, 128, 1, 20, 37, "bfloat16"),
        conv_case("odd_5x5_height37_pool", 1, 128, 384, 5, 38, 24, "float16", pool=2),
        conv_case("odd_7x7_height37", 2, 128, 128, 7, 37, 41),
        conv_case("odd_width500", 1, 128, 128, 3, 12, 500, "float16"),
        conv_case("odd_width1300", 1, 128, 128, 3, 9, 1300, "float32", pool=1),
        conv_case("odd_one_row", 1, 128, 128, 3, 3, 64, "bfloat16"),
        conv_case("odd_one_pixel", 2, 128, 256, 3, 3, 3),               # the filter is the image
        conv_case("odd_1x1_height90", 1, 128, 128, 1, 90, 31),          # rows, and no halo
        # filters that leave SBUF too little room for whole rows
        conv_case("odd_5x5_width700_pool", 1, 384, 128, 5, 6, 700, pool=2),
    )


def _speed_line(text: str, points: float, target: str, course: str, relaxed: float,
                dtype: str, height: int, width: int, pool: int) -> RubricLine:
    return RubricLine(text, points, (speed_name(dtype, height, width, pool),), speed=True,
                      target=target, course=course, relaxed=relaxed)


def _rubric() -> tuple[RubricLine, ...]:
    year24, year25 = "Stanford CS149, 2024 (trn1)", "Stanford CS149, 2025 (trn2)"
    lines = [RubricLine(f"{i} to {o}, {f}x{f}, batch {b}, {s}x{s} {d}", 5,
                        (berkeley_name(i, o, f, b, s, d),), speed=True, target="trn1",
                        course="Berkeley CS152 lab 6, open-ended portion (trn1)")
             for i, o, f, b, s, d in BERKELEY]
    for course, target, points, extra in ((year24, "trn1", 15.0, 2.5), (year25, "trn2", 2.5, 2.5)):
        lines += [
            RubricLine("right on small images", points, SMALL, target=target, course=course),
            RubricLine("right on large images", points, ("large",), target=target, course=course),
            RubricLine("right with a bias", points, ("large_bias",), target=target,
                       course=course),
            RubricLine("right with max-pool", extra, ("large_bias_pool",), target=target,
                       course=course)]
    for pool, text in ((1, ""), (2, " with max-pool")):
        for dtype in ("float32", "float16"):
            lines.append(_speed_line(f"fast in {dtype}{text}", 7.5 if pool == 1 else 2.5, "trn1",
                                     year24, 0.0, dtype, 224, 224, pool))
            lines.append(_speed_line(f"fast in {dtype}{text}", 17.5 if pool == 1 else 7.5, "trn2",
                                     year25, 0.95, dtype, 224, 224, pool))
            lines.append(_speed_line(f"extra: fast in {dtype}{text}, 32 x 16", 1.25, "trn2",
                                     year25, 0.95, dtype, 32, 16, pool))
    return tuple(lines)


CASES = (
    *_stanford_right(),
    *(_stanford_speed(dtype, height, width, pool) for height, width in ((32, 16), (224, 224))
      for dtype in ("float32", "float16") for pool in (1, 2)),
    *_graded(),
    *(_berkeley(key, limit) for key, limit in BERKELEY.items()),
    *_odd(),
)


def _steps() -> tuple[Step, ...]:
    """Return the sections of the README; a case belongs to the first that it needs."""
    pooled = [c for c in CASES if c.kwargs.get("pool_size") == 2]
    rest = [c for c in CASES if c not in pooled]
    fast = [c for c in rest if c.threshold_us]
    large = [c for c in rest if c not in fast
             and (c.inputs[0].shape[2] > 64 or c.inputs[0].shape[3] > 512)]  # a bank: 512 pixels
    small = [c for c in rest if c not in fast and c not in large]
    sections = ("1. A kernel that is right", "2. A kernel for large images", "3. A fast kernel",
                "4. Max-pool")
    return tuple(Step(n, section, tuple(c.name for c in mine)) for n, (section, mine) in
                 enumerate(zip(sections, (small, large, fast, pooled)), 1))


LAB = Lab(
    name="conv2d",
    title="Convolution and max-pool",
    folder=Path(__file__).parent,
    cases=CASES,
    rubric=_rubric(),
    steps=_steps(),
    seed=152,
)
