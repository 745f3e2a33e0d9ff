"""A slow, obviously right NumPy reading of the API reference, for each instruction."""
