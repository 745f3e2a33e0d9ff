"""Diagrams of the machine and of the labs' ideas; every number comes from `nkisim.chip.hw`."""

from __future__ import annotations

from nkisim.chip.hw import CORES, MIB, TRN1, size

from .chip import CHIP
from .drawing import Drawing
from .operations import OPERATIONS


def memory() -> Drawing:
    """Draw the memories from far to near, with their sizes on each generation."""
    d = Drawing(
        "The memories of a NeuronCore",
        "From far to near: the host's memory, HBM, SBUF and PSUM, and the engines. "
        + " ".join(f"{c.name}: SBUF {size(c.sbuf_bytes)} a partition." for c in CORES),
        620,
        400,
    )
    at = [300 + 105 * k for k in range(len(CORES))]
    for x, core in zip(at, CORES):
        d.text(x, 26, core.name, "ink bold", "middle")
    rows = [
        ("Host memory", "your arrays; outside of the chip", "faint", ["", "", ""]),
        (
            "HBM",
            "inputs, outputs; for one core:",
            "dma",
            [f"{c.hbm_gbps_per_core:,.0f} GB/s" for c in CORES],
        ),
        (
            "SBUF",
            f"{TRN1.pmax} partitions: all work is here",
            "vector",
            [f"{c.sbuf_total_bytes / MIB:g} MiB" for c in CORES],
        ),
        (
            "PSUM",
            f"{TRN1.psum_banks} banks: sums of products",
            "tensor",
            [f"{c.psum_total_bytes / MIB:g} MiB" for c in CORES],
        ),
    ]
    below = [
        ["", "", ""],
        [f"of {c.hbm_gbps:,.0f} a chip" for c in CORES],
        [f"{size(c.sbuf_bytes)} x {c.pmax}" for c in CORES],
        [f"{c.psum_banks} x {size(c.psum_bank_bytes)} x {c.pmax}" for c in CORES],
    ]
    y = 40
    for (name, what, fill, numbers), small in zip(rows, below):
        d.rect(16, y, 216, 50, fill, round=5)
        d.text(28, y + 21, name, "ink bold")
        d.text(28, y + 39, what, "ink small")
        for x, number, more in zip(at, numbers, small):
            d.text(x, y + 21, number, "ink", "middle")
            d.text(x, y + 39, more, "dim small", "middle")
        y += 72
    for top, words in (
        (90, "copied by the runtime, before and after the kernel"),
        (162, f"{TRN1.dma_engines} DMA engines: nl.load, nl.store, nisa.dma_copy"),
        (234, "the Tensor Engine writes here; Vector and Scalar read"),
    ):
        d.line((60, top + 2), (60, top + 20), arrow=True)
        d.line((80, top + 20), (80, top + 2), arrow=True)
        d.text(94, top + 15, words, "dim small")
    engines = [
        ("Tensor", "tensor", "pe_ghz"),
        ("Vector", "vector", "dve_ghz"),
        ("Scalar", "scalar", "act_ghz"),
        ("GpSimd", "gpsimd", "pool_ghz"),
    ]
    for k, (name, fill, clock) in enumerate(engines):
        x = 16 + 149 * k
        d.rect(x, 330, 139, 52, fill, round=5)
        d.text(x + 10, 351, name, "ink bold")
        d.text(x + 10, 370, "/".join(f"{getattr(c, clock):g}" for c in CORES) + " GHz", "ink small")
    return d


def layout() -> Drawing:
    """Draw a tile in SBUF."""
    p = TRN1.pmax
    d = Drawing(
        "A tile in SBUF",
        f"A tile has at most {p} rows, one a partition; the other "
        "dimensions lie one after another within a partition.",
        620,
        250,
    )
    left, top, wide, high = 150, 56, 400, 18
    names = ["partition 0", "partition 1", "partition 2", "...", f"partition {p - 1}"]
    for r, name in enumerate(names):
        y = top + r * (high + 6)
        d.text(left - 12, y + 13, name, "dim small", "end")
        d.rect(left, y, wide, high, "faint")
        if name != "...":
            for k in range(8):
                d.rect(left + 30 + 24 * k, y, 24, high, "dma")
            d.text(left + 42, y + 13, "0", "ink small", "middle")
            d.text(left + 66, y + 13, "1", "ink small", "middle")
            d.text(left + 30 + 24 * 7.5, y + 13, "F-1", "ink small", "middle")
    d.text(left, 22, f"tile[p, f]: shape (at most {p}, F)", "ink bold")
    d.text(left + 30, 44, "free dimension: along a partition", "dim small")
    d.line((left + 232, 40), (left + 300, 40), arrow=True)
    d.line((22, 60), (22, 170), arrow=True)
    d.text(30, 185, "partition dimension", "dim small")
    y = top + 5 * (high + 6) + 26
    d.text(left, y, f"{p} lanes: an engine reads and writes all partitions at once,", "ink small")
    d.text(
        left,
        y + 17,
        "an element of each in a cycle. Longer rows take longer, more rows do not.",
        "ink small",
    )
    return d


def dma() -> Drawing:
    """Draw which elements one transfer of the vecadd kernels moves."""
    p = TRN1.pmax
    d = Drawing(
        "What one transfer moves",
        f"A transfer of the additions moves 1 element into 1 partition, {p} elements into "
        f"{p} partitions, or {p} rows of FREE_DIM elements.",
        620,
        320,
    )
    cases = [
        ("ROW_CHUNK = 1", 1, 1, f"4 bytes: 1 lane of {p}, a transfer for each element"),
        (f"ROW_CHUNK = {p}", 6, 1, f"{p} x 4 bytes: all lanes, but hardly a row"),
        ("FREE_DIM = 4", 6, 4, f"{p} x 16 bytes: the same start, four times the data"),
    ]
    for k, (name, rows, columns, what) in enumerate(cases):
        top = 20 + 100 * k
        d.text(16, top + 14, name, "ink bold")
        d.text(16, top + 34, what.split(":")[0], "ink small")
        d.text(16, top + 51, what.split(": ")[1], "dim small")
        for e in range(24):
            mine = e < rows * columns
            d.rect(265 + 8 * e, top + 20, 8, 26, "dma" if mine else "cell")
        d.text(265, top + 14, "HBM: the vector", "dim small")
        d.line((462, top + 33), (490, top + 33), arrow=True)
        for r in range(6):
            for c in range(4):
                mine = r < rows and c < columns
                d.rect(498 + 16 * c, top + 2 + 13 * r, 16, 13, "dma" if mine else "cell")
        d.text(568, top + 44, "SBUF", "dim small")
    d.text(
        16,
        314,
        f"6 of {p} partitions are drawn. A start costs the same for each; only its bytes differ.",
        "dim small",
    )
    return d


def matmul() -> Drawing:
    """Draw the tiles of a product of matrices."""
    k, m, n = TRN1.pmax, TRN1.gemm_stationary_fmax, TRN1.gemm_moving_fmax
    d = Drawing(
        "A product of matrices in tiles",
        f"Stationary tiles of {k} x {m} and moving tiles of {k} x {n}; products over k add "
        f"up in a PSUM bank of {n} float32 a partition.",
        620,
        330,
    )
    d.text(20, 24, "lhsT [K, M]: stationary", "ink bold")
    d.text(215, 24, "rhs [K, N]: moving", "ink bold")
    for r in range(3):
        for c in range(3):
            d.rect(20 + 44 * c, 36 + 44 * r, 44, 44, "tensor" if c == 1 else "cell")
        for c in range(2):
            d.rect(215 + 105 * c, 36 + 44 * r, 105, 44, "dma" if c == 1 else "cell")
        d.text(86, 62 + 44 * r, f"k={r}", "ink small", "middle")
        d.text(372, 62 + 44 * r, f"k={r}", "ink small", "middle")
    d.text(20, 186, f"{k} partitions x {m} columns", "dim small")
    d.text(240, 186, f"{k} partitions x {n} columns", "dim small")
    d.line((430, 102), (454, 102), arrow=True)
    d.rect(460, 58, 140, 88, "hot", round=4)
    d.text(530, 84, "one PSUM bank", "ink bold", "middle")
    d.text(530, 104, f"{m} x {n} float32", "ink small", "middle")
    d.text(530, 124, "sum over k", "ink small", "middle")
    d.text(20, 226, "result[m, n] = sum over k of lhsT[k, m].T @ rhs[k, n]", "ink")
    d.text(
        20,
        250,
        "A tile of lhsT is loaded into the cells and stays; the columns of rhs stream "
        "through, one a cycle.",
        "dim small",
    )
    d.text(
        20,
        270,
        f"float32 takes {TRN1.timing.pe_wide_passes} passes, 16-bit types one. "
        "PSUM adds: the sum over k costs nothing.",
        "dim small",
    )
    d.text(
        20, 290, "Then one instruction brings the bank to SBUF, and a transfer to HBM.", "dim small"
    )
    return d


def conv() -> Drawing:
    """Draw a convolution as shifted products."""
    d = Drawing(
        "A convolution as nine products",
        "For each tap of a 3 x 3 filter the window of the image, shifted by the tap, is "
        "multiplied with the tap's weights; all nine add up in one PSUM bank.",
        620,
        300,
    )
    cell = 15
    for t, (i, j) in enumerate(((0, 0), (0, 1), (2, 2))):
        x, y = 20 + 150 * t, 46
        d.text(x, 32, f"tap ({i}, {j})", "ink bold")
        for r in range(6):
            for c in range(7):
                inside = i <= r < i + 4 and j <= c < j + 5
                d.rect(x + cell * c, y + cell * r, cell, cell, "dma" if inside else "cell")
        d.text(x, y + 112, "window of X [in, pixels]", "dim small")
        d.rect(x + 28, y + 128, 44, 44, "tensor")
        d.text(x + 50, y + 154, "W", "ink", "middle")
        d.text(x, y + 190, f"W[:, :, {i}, {j}] turned", "dim small")
        d.line((x + 78, y + 150), (x + 104, y + 150), arrow=True)
        d.text(x + 110, y + 155, "+" if t < 2 else "=", "ink bold")
    d.text(296, 92, "...", "ink bold")
    d.rect(465, 150, 138, 92, "hot", round=4)
    d.text(534, 178, "one PSUM bank", "ink bold", "middle")
    d.text(534, 198, "4 x 5 outputs of", "ink small", "middle")
    d.text(534, 214, f"{TRN1.pmax} channels", "ink small", "middle")
    d.text(
        20,
        268,
        "The window is an access pattern on rows that lie in SBUF: nothing is copied. "
        "With more input channels",
        "dim small",
    )
    d.text(
        20,
        286,
        f"than {TRN1.pmax}, the sum goes on over the groups, in the same bank.",
        "dim small",
    )
    return d


def pool() -> Drawing:
    """Draw pooling that is fused with the convolution."""
    d = Drawing(
        "Pooling where the sum lies",
        "The maximum of each 2 x 2 square of a PSUM bank, the bias and the cast are two "
        "instructions; a quarter of the bytes is stored.",
        620,
        220,
    )
    d.text(20, 26, "PSUM: sums", "ink bold")
    for r in range(4):
        for c in range(6):
            d.rect(20 + 22 * c, 40 + 22 * r, 22, 22, "hot" if (r // 2 + c // 2) % 2 else "vector")
    d.line((160, 84), (212, 84), arrow=True)
    d.text(158, 104, "Vector: max", "dim small")
    d.text(222, 26, "SBUF: maxima", "ink bold")
    for r in range(2):
        for c in range(3):
            d.rect(226 + 22 * c, 62 + 22 * r, 22, 22, "hot" if (r + c) % 2 else "vector")
    d.line((300, 84), (372, 84), arrow=True)
    d.text(302, 104, "+ bias, cast", "dim small")
    d.text(382, 26, "SBUF: results", "ink bold")
    d.rect(386, 62, 66, 44, "scalar")
    d.line((460, 84), (528, 84), arrow=True)
    d.text(470, 104, "store", "dim small")
    d.rect(536, 62, 62, 44, "dma")
    d.text(567, 89, "HBM", "ink", "middle")
    d.text(
        20,
        160,
        "acc[p, 2 r + y, 2 c + x]: a view of the bank with five dimensions; the "
        "maximum goes over y and x.",
        "dim small",
    )
    d.text(
        20,
        180,
        "One more instruction adds the bias, rounds to the dtype of the output and writes SBUF.",
        "dim small",
    )
    d.text(20, 200, "Nothing of the convolution itself ever goes to HBM.", "dim small")
    return d


DIAGRAMS = {
    "memory": memory,
    "layout": layout,
    "dma": dma,
    "matmul": matmul,
    "conv": conv,
    "pool": pool,
    **CHIP,
    **OPERATIONS,
}
