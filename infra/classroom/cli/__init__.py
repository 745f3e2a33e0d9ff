"""The commands: one function each, for the command line and the playbooks."""
