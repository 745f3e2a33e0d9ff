"""Stands in for a lab's tester: records runs in results/results.json, writes profiles, may hang."""

import argparse
import json
import os
import time
import uuid
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--backend")
parser.add_argument("--runs", type=int, default=1)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--megabytes", type=int, default=0)
parser.add_argument("--hang", action="store_true")
parser.add_argument("--code", type=int, default=0)
parser.add_argument("--say", default="")
args = parser.parse_args()
path = Path("results") / "results.json"
path.parent.mkdir(exist_ok=True)
document = {"schema": "trainium-labs/results", "schema_version": 1, "runs": []}
print(args.say, os.environ.get("LABKIT_GIT_COMMIT", "")[:7], flush=True)
for number in range(args.runs):
    time.sleep(args.pause)
    document["runs"].append({"id": uuid.uuid4().hex, "name": f"{args.say}{number}", "cases": []})
    part = path.with_suffix(".tmp")
    part.write_text(json.dumps(document))
    os.replace(part, path)
    print("run", number, flush=True)
if args.megabytes:
    Path("profiles").mkdir(exist_ok=True)
    with open("profiles/large.ntff", "wb") as file:
        for _ in range(args.megabytes):
            file.write(os.urandom(1 << 20))
if args.hang:
    try:
        while True:
            time.sleep(0.1)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
raise SystemExit(args.code)
