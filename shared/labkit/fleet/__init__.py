"""All labs at once: what `nox -s benchmark` and `nox -s profile` run, and staff's commands."""
