#!/usr/bin/python
"""Documentation of the trainium_class action; the code is in ../action, where progress can
be shown."""

from __future__ import annotations

DOCUMENTATION = r"""
module: trainium_class
short_description: Bring a class of Trainium machines into a state
version_added: "0.1.0"
description:
  - Calls the classroom library, which creates guards before machines, is idempotent, and
    honours check mode.
  - Runs on the controller as an action, so that long waits show progress.
options:
  command:
    description: What to do.
    required: true
    type: str
    choices:
    - init
    - roster
    - check
    - forecast
    - prices
    - provision
    - start
    - stop
    - status
    - hosts
    - cost
    - report
    - reserve
    - extend
    - save_work
    - restore
    - teardown
    - doctor
    - keys
    - pages
    - links
  class_file:
    description: Path of class.yml or of its folder.
    required: true
    type: str
  students:
    description: Students to limit the command to; empty means all.
    type: list
    elements: str
    default: []
  answers:
    description: 'For C(init): take the answers from this YAML file.'
    type: str
    default: ''
  source:
    description: 'For C(roster): the exported CSV file.'
    type: str
    default: ''
  mail_domain:
    description: 'For C(roster): of logins that are no mail addresses.'
    type: str
    default: ''
  remove_dropped:
    description: 'For C(roster): remove who is not in the export.'
    type: bool
    default: false
  refresh:
    description: 'For C(prices): read AWS''s public price list, write prices.yml next to class.yml.'
    type: bool
    default: false
  confirm_removals:
    description: 'For C(provision): terminate the machines of many removed students.'
    type: bool
    default: false
  confirm_changes:
    description: 'For C(provision), C(extend): apply an earlier end, a lower cap or other regions
      than the account has.'
    type: bool
    default: false
  discard_work:
    description: 'For C(provision), C(teardown): give up the work of these students (or of the
      whole class, by its name): their machines are ended without an archive.'
    type: str
    default: ''
  over_budget:
    description: 'For C(start): start although the budget is used up.'
    type: bool
    default: false
  elsewhere:
    description: 'For C(start): where a zone is full: a new machine in another, with the work.'
    type: bool
    default: false
  cancel:
    description: 'For C(reserve): give it up.'
    type: bool
    default: false
  as_of:
    description: 'For C(restore): as it was at the end of this day, or at this time.'
    type: str
    default: ''
  dry_run:
    description: 'For C(teardown): list, remove nothing.'
    type: bool
    default: false
  regions:
    description: 'For C(teardown): only these (the proof then covers only these).'
    type: str
    default: ''
  name:
    description: 'For C(teardown): name of a class whose class.yml is lost.'
    type: str
    default: ''
  keep_copies:
    description: 'For C(teardown): leave the bucket with the copies; it empties itself later.'
    type: bool
    default: false
  policy:
    description: 'For C(doctor): print the IAM policy that these commands need.'
    type: bool
    default: false
  assistant:
    description: 'For C(doctor): with --policy: that of assistants of these sections.'
    type: str
    default: ''
  request_quota:
    description: 'For C(doctor): ask AWS for the vCPUs, disks, addresses the class needs.'
    type: bool
    default: false
  drill:
    description: 'For C(doctor): take a t3.nano through every guard for real: an hour, about
      a cent.'
    type: bool
    default: false
  submit_transcript:
    description: 'For C(doctor): write the drill''s transcript without ids and names.'
    type: bool
    default: false
  rotate:
    description: 'For C(keys): replace those that were generated.'
    type: bool
    default: false
  revoke:
    description: 'For C(links): end the links so far; the pages hold new ones.'
    type: bool
    default: false
  sign_in:
    description: 'For C(links): print a policy for students who sign in to AWS instead.'
    type: bool
    default: false
author:
  - trainium-labs (@trainium-labs)
"""
EXAMPLES = r"""
- name: Bring the class up
  trainium_class:
    command: provision
    class_file: class.yml
"""
RETURN = r"""
summary:
  description: The closing line.
  returned: always
  type: str
changes:
  description: What was changed, or would be in check mode.
  returned: always
  type: list
"""
