"""Read YAML and remember the line of every key, so that each mistake can be pointed at."""

from __future__ import annotations

from typing import Any

import yaml

Lines = dict[tuple[str | int, ...], int]


class _Loader(yaml.SafeLoader):
    """Read a day that does not exist as text, so that its field can say so."""

    def construct_yaml_timestamp(self, node: Any) -> Any:
        """Return a date, or the text."""
        try:
            return super().construct_yaml_timestamp(node)
        except ValueError:
            return str(node.value)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_timestamp)


def load(text: str) -> tuple[Any, Lines, list[tuple[int, str]]]:
    """Return (data, line of each path, [(line, duplicate key)]); yaml.YAMLError if it is not
    YAML."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        lines: Lines = {(): 1}
        duplicates: list[tuple[int, str]] = []
        if root is None:
            return None, lines, duplicates
        _walk(root, (), lines, duplicates)
        return loader.construct_document(root), lines, duplicates
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: tuple, lines: Lines, duplicates: list[tuple[int, str]]) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen:
                duplicates.append((line, ".".join(map(str, (*path, name)))))
            seen.add(name)
            below = (*path, name)
            lines[below] = line
            _walk(value, below, lines, duplicates)
    elif isinstance(node, yaml.SequenceNode):
        for i, value in enumerate(node.value):
            below = (*path, i)
            lines[below] = value.start_mark.line + 1
            _walk(value, below, lines, duplicates)


def line_of(lines: Lines, path: tuple) -> int:
    """Return the line of `path`, or of its nearest parent that is in the file."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)
