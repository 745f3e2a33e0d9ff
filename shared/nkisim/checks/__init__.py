"""Passes over a record that find what the chip would keep to itself."""
