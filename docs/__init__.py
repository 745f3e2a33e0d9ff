"""Pages of the documentation, and what draws and builds them."""
