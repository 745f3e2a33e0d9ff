"""One call that says whether a kernel is right, how long it takes, and how sure that is."""
