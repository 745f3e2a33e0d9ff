"""Read YAML with the line of every key, so that each mistake can be pointed at.

PyYAML makes the values, as everywhere in this package; ruamel.yaml says where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from ruamel.yaml import YAML, error
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.resolver import VersionedResolver


class _Loader(yaml.SafeLoader):
    """Read a day that does not exist as text, so that its field can say so."""

    def construct_yaml_timestamp(self, node: Any) -> Any:
        """Return a date, or the text."""
        try:
            return super().construct_yaml_timestamp(node)
        except ValueError:
            return str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_timestamp)


class _Untyped(VersionedResolver):
    """Take every scalar, so every key too, as text."""

    versioned_resolver: dict[str, Any] = {}  # type: ignore[assignment]


class _Places(RoundTripConstructor):
    """Make containers that know their lines (`.lc`), and note keys that are written twice."""

    def check_mapping_key(
        self, node: Any, key_node: Any, mapping: Any, key: Any, value: Any
    ) -> bool:
        """Return True: the last value of a key counts."""
        if key in mapping:
            mapping.__dict__.setdefault("repeated", []).append((key_node.start_mark.line + 1, key))
        return True


@dataclass(frozen=True)
class Source:
    """Hold what a YAML file says, and where."""

    data: Any  # as PyYAML reads it
    places: Any  # as ruamel.yaml reads it, all scalars as text

    def line(self, path: tuple[str | int, ...]) -> int:
        """Return the line of `path`, or of its nearest parent that is in the file."""
        at: Any = self.places
        line = 1
        for step in path:
            try:
                lc = at.lc
                where = lc.item(step) if isinstance(at, list) else lc.key(step)
                line, at = where[0] + 1, at[step]
            except (AttributeError, KeyError, IndexError, TypeError):
                break
        return line

    def duplicates(self) -> Iterator[tuple[int, str]]:
        """Yield (line, dotted path) of every key that its mapping has had before."""
        rest: list[tuple[tuple, Any]] = [((), self.places)]
        seen = set()
        for path, at in rest:
            if id(at) in seen:  # an alias, perhaps of a container around it
                continue
            seen.add(id(at))
            for line, key in getattr(at, "repeated", []):
                yield line, ".".join(map(str, (*path, key)))
            below: Any = enumerate(at) if isinstance(at, list) else getattr(at, "items", tuple)()
            rest += [((*path, key), value) for key, value in below]


def load(text: str) -> Source:
    """Return the text's only document; raise yaml.YAMLError if it is not YAML."""
    loader = _Loader(text)
    try:
        data = loader.get_single_data()
    finally:
        loader.dispose()
    places = YAML()
    places.Constructor, places.Resolver = _Places, _Untyped
    try:
        return Source(data, places.load(text))
    except error.YAMLError as problem:  # rare: PyYAML has accepted it
        raise yaml.YAMLError(str(problem)) from problem
