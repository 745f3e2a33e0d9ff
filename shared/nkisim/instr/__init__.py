"""The rows of the instruction table, by the engine that runs them."""
