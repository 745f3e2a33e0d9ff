"""The guard a machine is born with: it needs no Ansible, no agent and no network."""

from __future__ import annotations

from .spec import ClassSpec


def script(spec: ClassSpec) -> str:
    """Return user data: stop by itself every night, and stop after two hours unless `configure` has
    run.

    The machine's shutdown behaviour is "stop", so a power-off ends the billing of the machine.
    """
    hour, minute = spec.stop_nightly.split(":")
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
      Description=Stop a machine that nobody configured
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
runcmd:
  - systemctl daemon-reload
  - systemctl enable --now trainium-night.timer trainium-unconfigured.timer
"""
