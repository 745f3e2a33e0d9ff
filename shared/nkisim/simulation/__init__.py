"""Launches and predictions: what a kernel is given, what it returns, and how long it takes."""
