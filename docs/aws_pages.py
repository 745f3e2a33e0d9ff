"""AWS's page on each instruction of the labs: `python -m docs.aws_pages` writes them in handouts.

An address is a base and the name of the function, so a table of names is all that there is to keep.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = "https://awsdocs-neuron.readthedocs-hosted.com/en"
#: dialect -> where its release has a page for each function
BASES = {
    "beta1": f"{SITE}/v2.25.0/general/nki/api/generated/",
    "nki": f"{SITE}/latest/nki/api/generated/",
}
#: function -> what it does, in a few words
WHAT = {
    "nl.load": "HBM to SBUF",
    "nl.store": "SBUF to HBM",
    "nl.load_transpose2d": "a load that transposes; slow",
    "nl.affine_range": "a loop whose iterations need nothing of each other",
    "nl.sequential_range": "a loop whose iterations do",
    "nl.broadcast_to": "repeats a row over partitions",
    "nl.mgrid": "indices of a view, an array for each dimension",
    "nl.device_print": "prints a tile",
    "nl.add": "an addition; here also the name of the operation",
    "nisa.dma_copy": "a transfer between HBM and SBUF",
    "nisa.tensor_tensor": "two tiles, element by element",
    "nisa.tensor_scalar": "a tile and a number, or a number for each partition",
    "nisa.tensor_reduce": "a sum or maximum along free dimensions",
    "nisa.tensor_copy": "a copy on chip, PSUM to SBUF for example",
    "nisa.activation": "f(x * scale + bias) of each element",
    "nisa.activation_reduce": "that, and the sum of each row",
    "nisa.reciprocal": "1 / x of each element",
    "nisa.nc_matmul": "a product of matrices, into PSUM",
    "nisa.nc_transpose": "turns a tile",
    "nisa.max8": "the eight largest of each row",
    "nisa.nc_find_index8": "where eight values are in each row",
    "nisa.iota": "counts up",
    "nisa.dma_compute": "a transfer that adds to what is there, or scales",
    "nisa.nc_matmul_mx": "a product of tiles in MX formats",
    "nisa.quantize_mx": "a tile to an MX format, with a scale for each block",
    "nisa.memset": "fills a tile with a number",
    "nisa.scalar_tensor_tensor": "a tile and a number, then a second tile",
    "nisa.tensor_tensor_scan": "each element from the one before it",
    "nisa.affine_select": "keeps elements or not, by their position",
    "nisa.bn_stats": "mean and variance of a piece of each row",
    "nisa.bn_aggr": "mean and variance of all pieces",
}
#: lab -> the functions that it uses, by dialect
LABS = {
    "vecadd": {
        "beta1": "nl.load nl.store nl.add nl.affine_range nl.sequential_range nisa.tensor_tensor "
        "nisa.nc_transpose nisa.dma_copy nl.device_print",
        "nki": "nisa.dma_copy nisa.tensor_tensor nisa.nc_transpose nisa.tensor_copy "
        "nl.device_print",
    },
    "ffnn": {
        "beta1": "nl.load nl.store nl.load_transpose2d nl.broadcast_to nisa.nc_transpose "
        "nisa.nc_matmul nisa.tensor_copy nisa.tensor_tensor nisa.tensor_reduce nisa.tensor_scalar "
        "nisa.activation nisa.activation_reduce nisa.reciprocal nisa.max8 nisa.nc_find_index8",
        "nki": "nisa.dma_copy nisa.nc_transpose nisa.nc_matmul nisa.tensor_copy "
        "nisa.tensor_tensor nisa.tensor_reduce nisa.tensor_scalar nisa.activation "
        "nisa.activation_reduce nisa.reciprocal nisa.max8 nisa.nc_find_index8",
    },
    "conv2d": {
        "beta1": "nl.load nl.store nisa.dma_copy nisa.nc_matmul nisa.nc_transpose "
        "nisa.tensor_copy nisa.tensor_scalar nisa.tensor_reduce nl.mgrid",
        "nki": "nisa.dma_copy nisa.nc_matmul nisa.nc_transpose nisa.tensor_copy "
        "nisa.tensor_scalar nisa.tensor_reduce",
    },
    "convnet": {
        "nki": "nisa.dma_copy nisa.nc_matmul nisa.nc_transpose nisa.tensor_copy nisa.tensor_scalar",
    },
    "moe": {
        "nki": "nisa.dma_copy nisa.dma_compute nisa.nc_matmul nisa.nc_matmul_mx nisa.quantize_mx "
        "nisa.nc_transpose nisa.tensor_copy nisa.tensor_tensor nisa.tensor_scalar "
        "nisa.scalar_tensor_tensor nisa.activation nisa.activation_reduce nisa.reciprocal "
        "nisa.max8 nisa.nc_find_index8 nisa.memset",
    },
    "norms": {
        "nki": "nisa.dma_copy nisa.tensor_copy nisa.tensor_tensor nisa.tensor_scalar "
        "nisa.scalar_tensor_tensor nisa.tensor_reduce nisa.activation nisa.activation_reduce "
        "nisa.reciprocal nisa.bn_stats nisa.bn_aggr",
    },
    "attention": {
        "nki": "nisa.dma_copy nisa.nc_matmul nisa.nc_transpose nisa.tensor_copy nisa.tensor_tensor "
        "nisa.tensor_scalar nisa.scalar_tensor_tensor nisa.tensor_reduce nisa.activation "
        "nisa.activation_reduce nisa.reciprocal nisa.memset nisa.iota nisa.affine_select",
    },
    "puzzles": {
        "nki": "nisa.dma_copy nisa.tensor_copy nisa.tensor_scalar nisa.tensor_reduce "
        "nisa.activation nisa.nc_transpose nisa.nc_matmul nisa.affine_select "
        "nisa.tensor_tensor_scan",
    },
}
MODULES = {"nl": "nki.language", "nisa": "nki.isa"}
PLACE = re.compile(r"<!-- aws-pages -->\n.*?<!-- /aws-pages -->\n", re.S)


def address(function: str, dialect: str) -> str:
    """Return the address of AWS's page on a function such as `nisa.nc_matmul`."""
    module, _, name = function.partition(".")
    return f"{BASES[dialect]}{MODULES[module]}.{name}.html"


def table(lab: str) -> str:
    """Return the part of a handout that links to AWS's pages, with its marks around it."""
    out = ["<!-- aws-pages -->"]
    marked = len(LABS[lab]) > 1  # a lab of one dialect has nothing to leave out
    for dialect, names in LABS[lab].items():
        out += [f"<!-- {dialect} -->"] * marked
        out += ["", "| instruction | what it does |", "| --- | --- |"]
        out += [
            f"| [`{name}`]({address(name, dialect)}) | {WHAT[name]} |" for name in names.split()
        ]
        out += ["", *[f"<!-- /{dialect} -->"] * marked]
    return "\n".join([*out, "<!-- /aws-pages -->"]) + "\n"


def main() -> int:
    """Write the tables into the handouts."""
    for lab in LABS:
        page = ROOT / "labs" / lab / "README.md"
        text = page.read_text("utf-8")
        page.write_bytes(PLACE.sub(lambda _, lab=lab: table(lab), text).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
