"""What `--host` runs on the other machine: the standard library only, Python 3.8 or newer.

This package goes there as one zip file, named by its hash, and is called over SSH, a command a
call; each answers with a line of JSON. `follow` streams a run's output instead. All is kept in
~/.trainium-labs:

objects/ab/cdef...   files of working trees, by SHA-256: only what is new is ever sent
jobs/ID/             a run: job.json, tree/ (a snapshot), log, began.json, done.json
queue.lock           held by the run that computes: a student's runs follow each other

A run is alive as long as its supervisor holds jobs/ID/lock. The lock goes with the process, however
it ends, so a process id that is used again, a reboot or a wrong clock cannot be mistaken.
"""
