"""Run a case: the child process, the backends, and how an output is compared."""
