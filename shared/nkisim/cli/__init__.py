"""The command line: `python -m nkisim ...`."""
