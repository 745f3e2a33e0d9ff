"""Diagrams of the chip and of a core; every number comes from `nkisim.chip.hw`."""

from __future__ import annotations

from nkisim.chip.hw import CORES, TRN1, size

from .drawing import Drawing

WIDE = 380  # units of a drawing; a phone shows about 350 pixels


def chip() -> Drawing:
    """Draw a chip: its cores, its HBM, and the host beside it."""
    d = Drawing(
        "A Trainium chip",
        "A chip has several NeuronCores and HBM. The host copies arrays to HBM over PCIe; a kernel "
        "runs on one core.",
        WIDE,
        292,
        shown=520,
    )
    d.rect(4, 10, 92, 92, "faint", round=5)
    d.text(14, 32, "Host", "ink bold")
    d.text(14, 52, "processors,", "ink small")
    d.text(14, 68, "your arrays", "ink small")
    d.line((98, 48), (124, 48), arrow=True)
    d.line((124, 64), (98, 64), arrow=True)
    d.text(97, 84, "PCIe", "dim small")
    d.rect(128, 10, 248, 178, "panel", round=6)
    d.text(138, 30, "Trainium chip", "ink bold")
    for k, name in enumerate(("NeuronCore 0", "NeuronCore 1")):
        x = 138 + 104 * k
        d.rect(x, 42, 98, 74, "tensor" if k == 0 else "cell", round=4)
        d.text(x + 49, 62, name, "ink small", "middle")
        d.text(x + 49, 84, "SBUF, PSUM," if k == 0 else "", "ink small", "middle")
        d.text(x + 49, 100, "engines" if k == 0 else "", "ink small", "middle")
    d.text(349, 84, "...", "ink bold")
    d.line((187, 118), (187, 138), arrow=True)
    d.line((201, 138), (201, 118), arrow=True)
    d.text(212, 132, "DMA", "dim small")
    d.rect(138, 142, 228, 36, "dma", round=4)
    d.text(252, 165, "HBM", "ink bold", "middle")
    for k, head in enumerate(("cores", "HBM", "for one core")):
        d.text(110 + 95 * k, 212, head, "ink small bold")
    for r, c in enumerate(CORES):
        y = 234 + 20 * r
        d.text(8, y, c.name, "ink small bold")
        d.text(110, y, f"{c.cores_per_chip}", "ink small")
        d.text(205, y, size(c.hbm_bytes), "ink small")
        d.text(300, y, f"{c.hbm_gbps_per_core:,.0f} GB/s", "ink small")
    return d


def core() -> Drawing:
    """Draw a core: SBUF, PSUM, the engines, and which way data go."""
    d = Drawing(
        "A NeuronCore",
        "DMA engines bring tiles from HBM to SBUF. The Tensor Engine reads SBUF and writes PSUM; "
        "the Vector, Scalar and GpSimd Engines read both and write SBUF.",
        WIDE,
        352,
        shown=520,
    )
    d.rect(4, 8, 72, 300, "faint", round=5)
    d.text(40, 30, "HBM", "ink bold", "middle")
    d.text(40, 52, "inputs", "ink small", "middle")
    d.text(40, 68, "outputs", "ink small", "middle")
    d.line((78, 110), (120, 110), arrow=True)
    d.line((120, 150), (78, 150), arrow=True)
    d.text(100, 100, f"{TRN1.dma_engines} DMA", "dim small", "middle")
    d.text(100, 170, "engines", "dim small", "middle")
    d.rect(124, 8, 84, 300, "dma", round=5)
    d.text(166, 30, "SBUF", "ink bold", "middle")
    for r in range(9):
        d.rect(134, 44 + 20 * r, 64, 13, "cell")
    d.text(166, 240, f"{TRN1.pmax} rows:", "ink small", "middle")
    d.text(166, 256, "partitions", "ink small", "middle")
    d.text(166, 282, f"{size(TRN1.sbuf_bytes)} each", "ink small", "middle")
    d.text(166, 298, f"({TRN1.name})", "ink small", "middle")
    rows = (
        ("Tensor", "products of", "matrices", "tensor"),
        ("Vector", "two tiles; sums", "along a row", "vector"),
        ("Scalar", "functions: exp,", "gelu, ...", "scalar"),
        ("GpSimd", "the rest", "", "gpsimd"),
    )
    for k, (name, what, more, fill) in enumerate(rows):
        y = 8 + 76 * k + (14 if k else 0)
        d.rect(250, y, 126, 56, fill, round=4)
        d.text(258, y + 19, name, "ink bold")
        d.text(258, y + 35, what, "ink small")
        d.text(258, y + 49, more, "ink small")
        d.line((210, y + 18), (246, y + 18), arrow=True)
        if k:
            d.line((246, y + 38), (210, y + 38), arrow=True)
    d.line((330, 66), (330, 72), arrow=True)
    d.rect(250, 73, 126, 22, "hot", round=4)
    d.text(313, 89, "PSUM: sums", "ink small", "middle")
    d.line((263, 96), (263, 98), arrow=True)
    d.text(8, 330, "Tensor writes only PSUM. Vector, Scalar and GpSimd read", "ink small")
    d.text(8, 346, "PSUM too, and bring its sums back to SBUF.", "ink small")
    return d


CHIP = {"chip": chip, "core": core}
