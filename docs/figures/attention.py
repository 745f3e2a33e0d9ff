"""Diagrams of the attention lab."""

from __future__ import annotations

from .drawing import Drawing


def tile() -> Drawing:
    """Draw one tile of attention: what each engine makes, and which dimension is in partitions."""
    d = Drawing(
        "A tile of attention",
        "128 queries and a block of 512 keys: the Tensor Engine makes the scores in PSUM, the "
        "Vector Engine finds the largest, the Scalar Engine computes exponentials and their sum, "
        "the Tensor Engine turns them and multiplies them by the rows of v.",
        640,
        226,
    )
    boxes = (
        (20.0, "q turned", "[d, n]", "dma"), (20.0, "k turned", "[d, 512]", "dma"),
        (148.0, "scores", "[n, 512] PSUM", "hot"),
        (276.0, "exponentials", "[n, 512] SBUF", "faint"),
        (404.0, "turned", "4 x [128, n]", "faint"), (532.0, "rows of out", "[n, d] PSUM", "hot"),
    )  # fmt: skip
    for k, (x, name, shape, look) in enumerate(boxes):
        y = 96.0 if k == 1 else 30.0
        d.rect(x, y, 96, 46, look, round=3)
        d.text(x + 48, y + 20, name, "ink small bold", "middle")
        d.text(x + 48, y + 37, shape, "ink small", "middle")
    for x in (118.0, 246.0, 374.0, 502.0):
        d.line((x, 53), (x + 28, 53), arrow=True)
    d.line((118, 112), (146, 78), arrow=True)
    d.rect(404, 96, 96, 46, "dma", round=3)
    d.text(452, 116, "rows of v", "ink small bold", "middle")
    d.text(452, 133, "4 x [128, d]", "ink small", "middle")
    d.line((502, 112), (530, 78), arrow=True)
    for x, engine in ((196.0, "Tensor"), (324.0, "Vector, Scalar"), (452.0, "Tensor"),
                      (580.0, "Tensor")):  # fmt: skip
        d.text(x, 92, engine, "dim small", "middle")
    d.text(20, 168, "kept from block to block, for each query, in float32:", "ink small")
    d.text(
        20, 188, "the largest score, the sum of exponentials [n, 1], the rows [n, d]", "ink small"
    )
    d.text(20, 208, "blue: loaded from HBM; nothing else comes from there", "dim small")
    return d
