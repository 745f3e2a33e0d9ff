"""Prices, and what a class has cost."""
