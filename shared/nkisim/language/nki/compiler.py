"""`nki.compiler` (ncc): what a kernel asks of the compiler (NKI 0.7). It changes no run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from ...errors import fail, trim


class AddressRotation(Enum):
    """Whether the compiler may move a tensor's address for a better layout."""

    AUTO = "auto"  # only of tensors that have no address yet
    ENABLE = "enable"
    DISABLE = "disable"


class _Config:
    """Options by keyword, each True, False or not said."""

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            kind: type = AddressRotation if field.name == "address_rotation" else bool
            if value is not None and not isinstance(value, kind):
                raise trim(
                    fail(
                        "NKI-N14",
                        f"{type(self).__name__}: {field.name} is no {kind.__name__}",
                        given=f"{field.name}={value!r}"[:60],
                    )
                )


@dataclass(frozen=True, kw_only=True)
class CompileConfig(_Config):
    """Options of the compiler: @nki.jit(compile_config=CompileConfig(...))."""

    address_rotation: AddressRotation = AddressRotation.AUTO
    non_ssa_legalization: bool | None = None
    dead_code_elim: bool | None = None
    barrier_check: bool | None = None
    prefetch_auto: bool = False
    nki_alloc_fallback: bool = True


@dataclass(frozen=True, kw_only=True)
class SpecializationConfig(_Config):
    """Options of tracing: @nki.jit(specialization_config=SpecializationConfig(...)).

    `allow_nested_config_override`: a kernel that this one calls, and that asks for something else,
    goes by this one's configuration, with a warning in place of an error.
    """

    allow_nested_config_override: bool = False


@dataclass(frozen=True)
class Options:
    """What a kernel asks for; None where it says nothing."""

    compile_config: CompileConfig | None = None
    specialization_config: SpecializationConfig | None = None

    def __post_init__(self) -> None:
        for name, kind in (
            ("compile_config", CompileConfig),
            ("specialization_config", SpecializationConfig),
        ):
            given = getattr(self, name)
            if given is not None and not isinstance(given, kind):
                raise trim(
                    fail(
                        "NKI-N14",
                        f"nki.jit: {name} is no {kind.__name__}",
                        given=f"{given!r}"[:60],
                        limit=f"nki.compiler.{kind.__name__}(...)",
                    )
                )

    def differs(self, outer: Options) -> str:
        """Return the name of a request that differs from the kernel around it, or ""."""
        return next(
            (
                name
                for name in ("compile_config", "specialization_config")
                if getattr(self, name) not in (None, getattr(outer, name))
            ),
            "",
        )

    @property
    def overrides(self) -> bool:
        """Return whether what inner kernels ask for otherwise is let pass."""
        config = self.specialization_config
        return config is not None and config.allow_nested_config_override


def __getattr__(name: str) -> Any:
    """Say that a name of the package is not modelled, or that it does not exist."""
    from .versions import missing

    raise missing("ncc", name, globals())


__all__ = ["AddressRotation", "CompileConfig", "SpecializationConfig"]
