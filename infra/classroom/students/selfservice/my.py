"""Start, stop and reach your machine: python my.py start | stop | status | cost | ssh | extend.

Needs Python 3.8 or newer and OpenSSH, nothing else. The link below is yours alone: who has it can
start and stop your machine. `setup` writes a block into ~/.ssh/config, after which `ssh NAME`,
editors and scp reach the machine wherever it is, and refuse another that answers at its address.
"""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

LINK = ""
TRIES, BEGIN, END = 60, "# >>> trainium-labs {0} >>>", "# <<< trainium-labs {0} <<<"

# How to reach machines without a public address; {0} is the region, {1} the machine.
TUNNELS = {
    "session-manager": (
        *("ssm", "start-session", "--region", "{0}", "--target", "{1}"),
        *("--document-name", "AWS-StartSSHSession", "--parameters", "portNumber=22"),
    ),
    "instance-connect": (
        *("ec2-instance-connect", "open-tunnel", "--region", "{0}", "--instance-id", "{1}"),
    ),
}


class Stop(Exception):
    """End with a sentence."""


def ask(do="", ticket=""):
    """Send one request; return the answer, whatever its status."""
    if not LINK.startswith(("https://", "http://127.0.0.1")):
        raise Stop("This my.py holds no link: get yours from your page.")
    body = urllib.parse.urlencode({"do": do, "t": ticket}).encode() if do else None
    request = urllib.request.Request(LINK, body, {"Accept": "application/json"})
    for attempt in range(6):
        try:
            with urllib.request.urlopen(request, timeout=40) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 429 and attempt < 5:  # too many at once: nothing was done
                time.sleep(2 + 3 * attempt)
                continue
            try:
                return json.load(error)
            except ValueError:
                raise Stop(f"The page answered {error.code}. Try again in a minute.") from None
        except (urllib.error.URLError, OSError) as error:
            raise Stop(
                f"The page could not be reached: {getattr(error, 'reason', error)}."
            ) from None
    raise Stop("Too many people ask at once. Try again in a minute.")


def fetch_facts():
    """Return the facts of the machine; end with the page's sentence if there are none."""
    for _ in range(TRIES):
        answer = ask()
        if answer["facts"]:
            return answer
        if not answer["retry"]:
            raise Stop(answer["text"])
        say(answer["text"])
        time.sleep(answer["retry"])
    raise Stop("AWS is too busy. Try again later.")


def say(text):
    """Print progress for the user on stderr, apart from the command's output."""
    print(text, file=sys.stderr, flush=True)


def act(do):
    """Do something, waiting as long as the page says."""
    ticket = fetch_facts()["ticket"]
    for _ in range(TRIES):
        answer = ask(do, ticket)
        say(answer["text"])
        if not answer["retry"]:
            if answer["status"] >= 400:
                raise Stop("")
            return answer
        time.sleep(answer["retry"])
        ticket = fetch_facts()["ticket"]
    raise Stop("AWS is too busy. Try again later.")


def show(f):
    """Print the facts of a machine."""
    rows = [
        ("machine", "{} ({})".format(f["machine"], f["state"])),
        ("address", f["address"] or "-"),
        (
            "used",
            "${:.2f} of ${:.2f}, {:.1f} hours".format(f["used_usd"], f["cap_usd"], f["hours"]),
        ),
        ("left", "{:.1f} hours at ${:.2f}".format(f["hours_left"], f["usd_hour"])),
        ("stops", "every night at " + f["stops_nightly"]),
        ("deleted", "on " + f["ends"]),
    ]
    for name, value in rows:
        print(f"{name:8} {value}")


def awake(f):
    """Start the machine if it does not run; return its facts once it has an address."""
    if f["state"] not in ("running", "pending"):
        act("start")
    for _ in range(TRIES):
        f = fetch_facts()["facts"]
        if f["state"] == "running" and f["address"]:
            return f
        time.sleep(5)
    raise Stop("It does not come up: {}.".format(f["state"]))


def setup(f):
    """Write the block of ~/.ssh/config and pin the machine's key; return the name."""
    home = Path.home() / ".ssh"
    home.mkdir(mode=0o700, exist_ok=True)
    alias, known = f["alias"], home / ("known_hosts." + f["alias"])
    if not re.fullmatch(r"[a-z0-9-]+", alias) or not re.fullmatch(r"i-[0-9a-f]+", f["machine"]):
        raise Stop("The page's answer makes no sense.")
    strict = "accept-new"
    if re.fullmatch(r"ssh-ed25519 [A-Za-z0-9+/=]+", f["host_key"]):
        known.write_text("{} {}\n".format(f["machine"], f["host_key"]), encoding="utf-8")
        strict = "yes"
    key_file = home / alias
    program = f'"{sys.executable}" "{Path(__file__).resolve()}" proxy'
    lines = [
        BEGIN.format(alias),
        "Host " + alias,
        "    User " + f["user"],
        "    ProxyCommand " + program,
        "    HostKeyAlias " + f["machine"],
        f'    UserKnownHostsFile "{known}"',
        "    StrictHostKeyChecking " + strict,
        "    IdentityFile %s" % (key_file if key_file.exists() else "~/.ssh/id_ed25519"),
        "    ServerAliveInterval 15",
        END.format(alias),
    ]
    file = home / "config"
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    pattern = re.escape(lines[0]) + r".*?" + re.escape(lines[-1]) + r"\n"
    rest = re.sub(pattern, "", old, flags=re.S)
    file.write_text("\n".join(lines) + "\n" + rest, encoding="utf-8")
    os.chmod(file, 0o600)
    return alias


def through_aws(f):
    """Carry an SSH connection to a machine without a public address; takes AWS's command line."""
    if f["reach"] not in TUNNELS or not re.fullmatch(r"[a-z0-9-]+", f["region"]):
        raise Stop("The page's answer makes no sense.")
    words = [w.format(f["region"], f["machine"]) for w in TUNNELS[f["reach"]]]
    try:
        if subprocess.call(["aws", *words]):
            raise Stop("AWS did not open the connection: are you signed in (`aws sso login`)?")
    except FileNotFoundError:
        raise Stop("Reaching this machine takes AWS's command line (`aws`).") from None


def proxy(f):
    """Carry an SSH connection to wherever the machine is: ssh calls this by itself."""
    f = f if f["state"] == "running" and f["address"] else awake(f)
    if f.get("reach"):
        return through_aws(f)
    for attempt in range(20):
        try:
            port = int(os.environ.get("MY_SSH_PORT", "22"))
            wire = socket.create_connection((f["address"], port), timeout=10)
            break
        except OSError as error:
            if attempt == 19:
                raise Stop(f"{f['address']} does not answer: {error}.") from None
            time.sleep(3)
    wire.settimeout(None)

    def up():
        while True:
            piece = os.read(0, 65536)
            if not piece:
                break
            wire.sendall(piece)
        wire.shutdown(socket.SHUT_WR)

    threading.Thread(target=up, daemon=True).start()
    while True:
        piece = wire.recv(65536)
        if not piece:
            return
        os.write(1, piece)


def main(words):
    """Run one command; exit code 0 done, 1 refused, 2 not understood."""
    commands = ("start", "stop", "status", "cost", "ssh", "extend", "setup", "proxy")
    if not words or words[0] not in commands:
        say("python my.py " + " | ".join(commands[:-1]))
        return 2
    try:
        if words[0] in ("start", "stop", "extend"):
            act(words[0])
            return 0
        f = fetch_facts()["facts"]
        if words[0] in ("status", "cost"):
            show(f)
        elif words[0] == "setup":
            say(f"Now `ssh {setup(f)}` reaches the machine.")
        elif words[0] == "proxy":
            proxy(f)
        else:
            return subprocess.call(["ssh", setup(awake(f)), *words[1:]])
        return 0
    except Stop as stop:
        if str(stop):
            say(str(stop))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
