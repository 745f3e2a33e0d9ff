"""The latency model against published measurements: tools for maintainers."""
