"""The instructions: one table, a row each, and how the nl language lowers to them."""
