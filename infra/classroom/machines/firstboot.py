"""The guard a machine is born with: it needs no Ansible, no agent and no network."""

from __future__ import annotations

import math

from ..spec.class_file import ClassSpec

AWAKE_SECONDS = 600  # holds a whole 5-minute sample of CloudWatch, wherever its minutes begin


def awake_processes(spec: ClassSpec) -> int:
    """Return how many busy processes make a 5-minute sample twice the idle limit or more."""
    return math.ceil(spec.machine.vcpus * 2 * spec.idle.cpu_percent / 100)


def script(spec: ClassSpec) -> str:
    """Return user data: stop by itself every night, stop after two hours unless `configure` has
    run, and re-arm the idle alarm at every boot.

    The machine's shutdown behaviour is "stop", so a power-off ends the billing of the machine.

    An alarm that has fired fires again only after it was OK, and one sample above the limit makes
    it OK. So the machine computes for ten minutes after each boot, whenever the CPU is
    otherwise idle: this re-arms the alarm no matter who started the machine, and no sample from
    before the stop counts against the new session.
    """
    hour, minute = spec.stop_nightly.split(":")
    n = awake_processes(spec)
    compute = f"seq {n} | xargs -P {n} -I@ timeout {AWAKE_SECONDS} sh -c 'while :; do :; done'"
    return f"""#cloud-config
# trainium-labs first-boot guard of class {spec.name}
write_files:
  - path: /etc/systemd/system/trainium-night.service
    content: |
      [Unit]
      Description=Stop for the night
      [Service]
      Type=oneshot
      ExecStart=/sbin/shutdown -h +5 "The machine stops for the night in 5 minutes. Save your work."
  - path: /etc/systemd/system/trainium-night.timer
    content: |
      [Unit]
      Description=Stop every night, whatever AWS or the laptop does
      [Timer]
      OnCalendar=*-*-* {hour}:{minute}:00 {spec.time_zone}
      [Install]
      WantedBy=timers.target
  - path: /etc/systemd/system/trainium-unconfigured.service
    content: |
      [Unit]
      Description=Stop a machine that was not configured
      ConditionPathExists=!/etc/trainium-labs/configured
      [Service]
      Type=oneshot
      ExecStart=/sbin/shutdown -h now
  - path: /etc/systemd/system/trainium-unconfigured.timer
    content: |
      [Unit]
      Description=Two hours after boot
      [Timer]
      OnBootSec=2h
      [Install]
      WantedBy=timers.target
  - path: /etc/systemd/system/trainium-awake.service
    content: |
      [Unit]
      Description=Compute after a boot, so that the idle alarm is OK and can fire again
      [Service]
      CPUSchedulingPolicy=idle
      ExecStart=/bin/sh -c "{compute}"
      SuccessExitStatus=123
      [Install]
      WantedBy=multi-user.target
runcmd:
  - systemctl daemon-reload
  - systemctl enable --now trainium-night.timer trainium-unconfigured.timer
  - systemctl enable --now --no-block trainium-awake.service
"""
