"""The contest: signed entries, ranks, a page, and a small server for the lab session."""
