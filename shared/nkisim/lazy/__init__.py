"""Work that is done late or together: matrix products, loads, and what waits for them."""
