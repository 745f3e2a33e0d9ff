"""A catalogue of kernels with one bug each, and the same kernels without."""
from . import habits, kernels, loops, memories, names, shapes, unwritten
from .parts import GRIDS, MISTAKES

__all__ = ["GRIDS", "MISTAKES", "habits", "kernels", "loops", "memories", "names", "shapes",
           "unwritten"]
