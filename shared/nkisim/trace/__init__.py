"""The record of what a kernel did, and who waits for whom in it."""
