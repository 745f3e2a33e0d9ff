"""Work that is done late or together: matrix products, and what waits for them."""
