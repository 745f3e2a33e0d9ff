"""Fakes of AWS's programs, with the options and formats that AWS's documents give them.

They run nothing on any device. FAKE_NEURON_FAIL=NAME makes a command of that name fail.
"""

from __future__ import annotations

import sys
from pathlib import Path

COMMON = """#!{python}
# FAKE: stands in for AWS's program of this name in tests; it runs nothing
import json, os, sys
words = sys.argv[1:]
if os.environ.get("FAKE_NEURON_FAIL") in words:
    sys.exit("ERROR: nrt_init failed: no device")
def option(*names):
    return next((words[words.index(n) + 1] for n in names if n in words), None)
INSTRUCTION = [{{"timestamp": 1000 + 400 * k, "duration": 300, "label": "Vector", "opcode":
                 "TENSOR_TENSOR", "operands": ""}} for k in range(4)]
"""
LS = (
    COMMON
    + """
devices = [{{"neuron_device": 0, "bdf": "00:1e.0", "connected_to": None, "nc_count": 2,
             "memory_size": 34359738368, "neuron_processes": []}}]
if os.environ.get("FAKE_NEURON_LS") == "2.34":
    if "--json-output" in words:
        sys.exit("unknown flag --json-output")
    print(json.dumps({{"instance_type": "trn1.2xlarge", "neuron_devices": devices}}))
elif "--json-output" in words:
    print(json.dumps(devices))
"""
)
PROFILER = (
    COMMON
    + """
NAME = os.path.basename(sys.argv[0])
if words[0] == "capture":
    n = (option("--profile-nth-exec") or [w for w in words if w.startswith("--profile-nth-exec=")]
         [0].split("=")[1])
    stem, ext = os.path.splitext(option("-s"))
    open(f"{{stem}}_exec_{{n}}{{ext}}", "w").write("ntff")
elif words[0] == "view":
    kind = option("--output-format")
    total = {{"total_time": 28.5e-6, "dma_active_time": 1e-5}}
    if kind == "summary-json":
        print("level=info msg=processing")
        print(json.dumps({{"n_395760075800974": total}}))
    elif kind == "json" and NAME == "neuron-profile":
        json.dump({{"summary": [total], "instruction": INSTRUCTION, "dma": []}},
                  open(option("--output-file"), "w"))
    elif kind == "parquet" and NAME == "neuron-explorer":
        import pyarrow, pyarrow.parquet as pq
        rows = [{{"start_ts": r["timestamp"], "end_ts": r["timestamp"] + 300, "duration_ns": 300,
                  "engine": "vector", "opcode": r["opcode"], "operands": "",
                  "nki_source_location": "kernels.py:7"}} for r in INSTRUCTION]
        folder = option("--output-file")
        pq.write_table(pyarrow.Table.from_pylist(rows[:2]), folder + "/Instruction.parquet")
        pq.write_table(pyarrow.Table.from_pylist(rows[2:]), folder + "/Instruction_1.parquet")
        pq.write_table(pyarrow.Table.from_pylist([total]), folder + "/Summary.parquet")
        pq.write_table(pyarrow.Table.from_pylist([{{"x": 1}}]),
                       folder + "/InstructionChain.parquet")
    else:
        print(f"View profile at http://localhost:3001/ ({{NAME}}, FAKE)")
"""
)


def put_fakes(folder: Path, *names: str) -> Path:
    """Write the fakes into a folder for PATH."""
    folder.mkdir(exist_ok=True)
    for name in names:
        text = (LS if name == "neuron-ls" else PROFILER).format(python=sys.executable)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder
