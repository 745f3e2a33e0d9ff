"""`nki.language.dtypes`: the names of the data types."""

from __future__ import annotations

from ..public_names import show_public_names_only
from .language import (
    bfloat16,
    bool_,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)

__all__ = [
    "bfloat16",
    "bool_",
    "float16",
    "float32",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "int8",
    "int16",
    "int32",
    "tfloat32",
    "uint8",
    "uint16",
    "uint32",
]
show_public_names_only(__name__)
