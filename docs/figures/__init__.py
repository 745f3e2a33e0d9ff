"""The figures of handouts and documentation, drawn by code: `python -m docs.figures`."""
