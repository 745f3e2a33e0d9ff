"""Start machines: what they need before, and what became of each launch."""
