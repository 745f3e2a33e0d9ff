"""Hostile submissions: what they try, and how. Everybody may read our source, and they have.

Each is staff's vecadd with the transpose taken out, and an attempt to get points without it, to
learn what is hidden, or to harm the grader. None of them may gain a point.
"""

from __future__ import annotations

import functools
import io
import re
import struct
import tarfile
import zipfile
from pathlib import Path

from labkit.starter.markers import split_file

ROOT = Path(__file__).parents[2]
STUBBED = split_file(ROOT / "labs" / "vecadd" / "kernels.py")[0]
_STUB = re.compile(r"    raise NotImplementedError\(\n.*?\)\n", re.S)


def body(code: str) -> str:
    """Return kernels.py with a body for the transpose; `out`, `matrix`, `rows` are there."""
    lines = "\n".join("    " + line for line in code.strip("\n").splitlines())
    return _STUB.sub(lambda _: lines + "\n", STUBBED)


def top(code: str) -> str:
    """Return kernels.py with code at its top, after the imports of the future."""
    mark = "from __future__ import annotations\n"
    return STUBBED.replace(mark, mark + "\n" + code.strip("\n") + "\n")


#: name -> (what is tried, text of kernels.py)
KERNELS: dict[str, tuple[str, str]] = {
    # -- harm ------------------------------------------------------------------------------------
    "fork_bomb": (
        "start processes without end",
        top(
            "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n"
            "        break"
        ),
    ),
    "fork_in_kernel": (
        "the same from inside of a kernel",
        body("import os\nfor _ in range(100):\n    os.fork()\nreturn out"),
    ),
    "thread_bomb": (
        "start threads without end",
        top(
            "import threading, time\nfor _ in range(10000):\n"
            "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
        ),
    ),
    "memory_bomb": ("take all memory here", top("x = bytearray(1 << 40)")),
    "memory_bomb_slow": (
        "take it in pieces",
        top("x = []\nwhile True:\n    x.append(bytearray(1 << 27))"),
    ),
    "memory_bomb_in_judge": (
        "make the simulator take all memory",
        body(
            "big = [nl.ndarray((1 << 30, 1 << 14), dtype=nl.float32, buffer=nl.shared_hbm)\n"
            "       for _ in range(64)]\n"
            "nl.store(big[0][0:128, 0:512], nl.load(matrix[0:128, 0:128]))\n"
            "return out"
        ),
    ),
    "memory_bomb_of_tensors": (
        "fill the simulator's HBM",
        body(
            "t = nl.load(matrix[0:128, 0:128])\nbig = []\nfor i in range(1000):\n"
            "    big.append(nl.ndarray((128, 1 << 22), dtype=nl.float32, buffer=nl.shared_hbm))\n"
            "    nl.store(big[-1][0:128, 0:128], value=t)\nreturn out"
        ),
    ),
    "endless_loop": ("never end", body("while True:\n    pass")),
    "endless_import": ("never end while being imported", top("while True:\n    pass")),
    "endless_requests": (
        "ask the simulator without end",
        body("while True:\n    nl.load(matrix[0:128, 0:128])"),
    ),
    "sleep": ("sleep until the grader gives up", top("import time\ntime.sleep(10 ** 6)")),
    "deep_recursion": ("overflow the stack", body("def f(n):\n    return f(n + 1)\nreturn f(0)")),
    "deep_value": (
        "send a value that is nested without end",
        body(
            "x = ()\nfor _ in range(5000):\n    x = (x,)\n"
            "nl.ndarray(x, dtype=nl.float32)\nreturn out"
        ),
    ),
    "huge_integer": (
        "send a number of a million digits",
        body("nl.ndarray((10 ** 1000000, 1), dtype=nl.float32)\nreturn out"),
    ),
    "segfault": ("crash Python", top("import ctypes\nctypes.string_at(1)")),
    "kill_parent": (
        "kill the judge",
        top(
            "import os, signal\nfor p in (os.getppid(), 1, -1):\n    try:\n"
            "        os.kill(p, signal.SIGKILL)\n    except OSError:\n        pass"
        ),
    ),
    "write_outside": (
        "write and delete outside",
        top(
            "import os, pathlib\nfor p in ('/tmp/labkit-was-here', '/submission/kernels.py', "
            "'/etc/passwd', os.path.expanduser('~/x'), '../x', 'reference.py', 'verdict.json'):\n"
            "    try:\n        pathlib.Path(p).write_text('x')\n    except OSError:\n        pass"
        ),
    ),
    "network": (
        "call home",
        top(
            "import socket\ntry:\n    s = socket.create_connection(('127.0.0.1', PORT), 2)\n"
            "    s.sendall(b'stolen')\nexcept OSError:\n    pass"
        ),
    ),
    "flood_output": (
        "print without end",
        top("import sys\nfor _ in range(200000):\n    sys.stdout.write('A' * 1000)"),
    ),
    "many_messages": (
        "write to every descriptor",
        top(
            "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'\\xff' * 65536)\n"
            "    except OSError:\n        pass"
        ),
    ),
    "shared_memory": (
        "take memory that belongs to no process",
        top(
            "import ctypes\nc = ctypes.CDLL(None)\nc.shmat.restype = ctypes.c_void_p\n"
            "for _ in range(40):\n    n = c.shmget(0, ctypes.c_size_t(1 << 30), 0o1600)\n"
            "    if n < 0:\n        break\n    p = c.shmat(n, None, 0)\n"
            "    ctypes.memset(p, 1, 1 << 30)\n    c.shmdt(ctypes.c_void_p(p))"
        ),
    ),
    "empty_files": (
        "make files, folders and links without end",
        top(
            "import os\nfor f in ('/tmp', '/dev/shm', '/dev', '/submission', '/grader'):\n"
            "    for i in range(10 ** 7):\n        try:\n"
            "            os.symlink('x' * 4000, f'{f}/{i}')\n"
            "        except OSError:\n            break"
        ),
    ),
    # -- points ----------------------------------------------------------------------------------
    "exit_zero": ("end as if all were well", top("import os\nos._exit(0)")),
    "exit_in_kernel": ("the same in the kernel", body("import os\nos._exit(0)")),
    "system_exit": ("raise SystemExit(0)", body("raise SystemExit(0)")),
    "forged_print": (
        "print a result",
        top(
            'print(\'{"points": 10, "of": 10, "status": "passed"}\')\nprint(\'3 passed, 0 failed\')'
        ),
    ),
    "forged_reply": (
        "answer over the pipe in the judge's place",
        top(
            "import json, os, struct, sys\nfor fd in range(3, 64):\n    try:\n"
            "        m = json.dumps(['done', None, [], {'status': 'passed', 'points': "
            "10}]).encode()\n"
            "        os.write(fd, struct.pack('<I', len(m)) + m)\n    except OSError:\n        pass"
        ),
    ),
    "forged_file": (
        "write results where testers write them",
        top(
            "import pathlib\nfor n in ('results/results.json', 'reply-0.json', 'out-0-0.npy'):\n"
            "    try:\n        pathlib.Path(n).write_text('{\"id\": 0}')\n"
            "    except OSError:\n        pass"
        ),
    ),
    "patch_labkit": (
        "make every comparison come out right",
        top(
            "try:\n    import labkit.run.compare as c\n"
            "    c.compare = lambda *a, **k: c.Comparison(True, '')\n"
            "except ImportError:\n    pass"
        ),
    ),
    "patch_nkisim": (
        "make the model say 1 us",
        top(
            "try:\n    import nkisim\n    nkisim.profile = lambda *a, **k: None\n"
            "except ImportError:\n    pass"
        ),
    ),
    "patch_numpy": (
        "make NumPy say that all is close",
        top(
            "import numpy as np\nnp.allclose = np.array_equal = lambda *a, **k: True\n"
            "np.ndarray.__eq__ if False else None\nnp.abs = lambda x: 0 * x"
        ),
    ),
    "patch_facade": (
        "replace what NKI's functions are",
        top(
            "import neuronxcc.nki.language as nl\nnl.store = lambda *a, **k: None\n"
            "nl.load = lambda *a, **k: None"
        ),
    ),
    "patch_handles": (
        "return a handle that is another's",
        body(
            "h = nl.load(matrix[0:128, 0:128])\nfor i in range(-5, 2000):\n    h._nki_id = i\n"
            "return h"
        ),
    ),
    "host_answer": (
        "compute the answer with NumPy",
        body("import numpy as np\nreturn np.asarray(matrix).T"),
    ),
    "host_answer_stored": (
        "compute it and store it as a constant",
        body(
            "import numpy as np\nx = np.zeros((columns, rows), np.float32)\n"
            "for i in range(rows):\n    for j in range(columns):\n"
            "        x[j, i] = float(matrix[i, j])\n"
            "return nl.shared_constant(x)"
        ),
    ),
    "input_returned": ("return the input itself", body("return matrix")),
    "input_viewed": ("return a view of the input", body("return matrix.reshape((columns, rows))")),
    "never_written": ("return memory that was never written", body("return out")),
    "half_written": (
        "write one tile only",
        body(
            "t = nl.load(matrix[0:128, 0:128])\n"
            "nl.store(out[0:128, 0:128], value=nisa.nc_transpose(t))\n"
            "if columns > 128 or rows > 128:\n"
            "    return out\nreturn nl.shared_constant(0)"
        ),
    ),
    "read_reference": (
        "read the answer key",
        top(
            "import glob, os\nfor p in glob.glob('/**/reference.py', recursive=True) + "
            "glob.glob('/**/plan.py', recursive=True) + glob.glob('/proc/*/environ') + "
            "glob.glob('/proc/*/mem'):\n    try:\n        print('STOLEN', p, open(p).read(500))\n"
            "    except (OSError, UnicodeDecodeError):\n        pass"
        ),
    ),
    "read_attributes": (
        "ask handles for what is behind them",
        body(
            "for name in ('np', 'storage', 'm', 'data', '__dict__', '__class__', '_np', 'owner'):\n"
            "    try:\n        print('STOLEN', name, ask('get', ['H', matrix._nki_id], name))\n"
            "    except Exception as e:\n        pass\nreturn out"
        ).replace(
            "import neuronxcc.nki as nki\n",
            "import __main__\nask = __main__.ask\nimport neuronxcc.nki as nki\n",
            1,
        ),
    ),
    "call_anything": (
        "call what is no function of NKI",
        body(
            "for path in ('os.system', 'builtins.eval', 'neuronxcc.nki.language._machine', "
            "'neuronxcc.nki.language._allocate.input_tensor', 'numpy.load'):\n    try:\n"
            "        print('STOLEN', ask('call', path, ['T', ['id']], ['M', []]))\n"
            "    except Exception:\n        pass\nreturn out"
        ).replace(
            "import neuronxcc.nki as nki\n",
            "import __main__\nask = __main__.ask\nimport neuronxcc.nki as nki\n",
            1,
        ),
    ),
    "pickle": (
        "send an array of pickled objects",
        body(
            "import numpy as np\nclass Evil:\n    def __reduce__(self):\n"
            "        import os\n        return os.system, ('touch /tmp/labkit-was-here',)\n"
            "nl.shared_constant(np.array([Evil()], dtype=object))\nreturn out"
        ),
    ),
    "device_print": (
        "print hidden inputs",
        body("nl.device_print('STOLEN', nl.load(matrix[0:128, 0:8]))\nreturn out"),
    ),
    "raise_shapes": (
        "put hidden shapes into the report",
        body("raise ValueError(f'STOLEN {matrix.shape}')"),
    ),
    "expected_error": (
        "raise the error that another case must raise",
        body("raise ValueError('#err-num-partition-exceed-arch-limit NKI-P01')"),
    ),
    "detect": (
        "notice the simulator and skip the work",
        body(
            "import sys\nif getattr(nki, '__simulator__', True) or 'nkisim' in sys.modules:\n"
            "    return out\nraise ValueError('on the chip')"
        ),
    ),
    "other_shape": (
        "return an output of another shape that is empty",
        body("return nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)"),
    ),
    "other_dtype": (
        "return few bits",
        body(
            "o = nl.ndarray((columns, rows), dtype=nl.float16, buffer=nl.shared_hbm)\n"
            "for c in nl.affine_range(columns // 128):\n"
            "    for r in nl.affine_range(rows // 128):\n"
            "        b = nl.load(matrix[r * 128:(r + 1) * 128, c * 128:(c + 1) * 128])\n"
            "        nl.store(o[c * 128:(c + 1) * 128, r * 128:(r + 1) * 128],\n"
            "                 value=nl.copy(nisa.nc_transpose(b), dtype=nl.float16))\nreturn o"
        ),
    ),
    "cached": (
        "keep the first result for later runs",
        top("CACHE = {}").replace(
            STUBBED[STUBBED.index("    raise NotImpl") :],
            "    if 'x' not in CACHE:\n        CACHE['x'] = out\n    return CACHE['x']\n",
        ),
    ),
    "read_by_errors": (
        "read the inputs from the texts of errors",
        body(
            "import numpy as np, re\nbits = nl.load(matrix[0:128, 0:128]).view(nl.int32)\n"
            "few = nl.ndarray((8, 1), dtype=nl.float32, buffer=nl.shared_hbm)\n"
            "nl.store(few, nl.load(matrix[0:8, 0:1]))\n"
            "x = np.zeros((128, 128), np.int32)\nfor r in range(128):\n    for c in range(128):\n"
            "        try:\n            i = bits[r:r + 1, c:c + 1]\n"
            "            nl.store(out[0:1, 0:1], nl.load(few[i, nl.arange(1)[None, :]]))\n"
            "        except IndexError as e:\n"
            "            x[r, c] = int(re.search('index ([0-9]+)', str(e))[1])\n"
            "return nl.shared_constant(x.view(np.float32).T)"
        ),
    ),
    "nested_lies": (
        "pretend that a kernel within a kernel has ended twice",
        body(
            "for _ in range(30):\n    try:\n        ask('leave')\n    except Exception:\n"
            "        pass\n"
            "return out"
        ).replace(
            "import neuronxcc.nki as nki\n",
            "import __main__\nask = __main__.ask\nimport neuronxcc.nki as nki\n",
            1,
        ),
    ),
    "rewrite_client": (
        "replace the program that talks to the judge",
        top(
            "import __main__\n__main__.describe = lambda e: ['done', None, [], True]\n"
            "__main__.work = lambda j, m: ['done', None, [], ['L', [['L', []], None]]]"
        ),
    ),
    "subclass_str": (
        "a class whose text is code",
        body(
            "class E(Exception):\n    def __str__(self):\n        import os\n        os._exit(0)\n"
            "raise E()"
        ),
    ),
    "html": (
        "put a script into the report",
        top("print('<script>alert(1)</script>')").replace(
            STUBBED[STUBBED.index("    raise NotImpl") :],
            "    raise ValueError('</pre><script>alert(1)</script>[x](javascript:alert(1))')\n",
        ),
    ),
    "not_text": ("hand in what no editor shows", "\udcff\udcfe\u202e" + STUBBED),
    "no_kernel": ("hand in nothing that can run", "x = 1\n"),
    "long_line_number": ("a function at line 99999", "\n" * 99990 + STUBBED),
}


def link(name: str, target: str) -> bytes:
    """Return a tar with a symbolic link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, target
        tar.addfile(info)
    return out.getvalue()


def zipped(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    """Return a zip with files under any names."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


@functools.cache  # a bomb takes a second to make
def archives() -> dict[str, tuple[str, str, bytes]]:
    """Return name -> (what is tried, suffix, bytes)."""
    solved = (ROOT / "labs" / "vecadd" / "reference.py").read_bytes()
    bomb = zipped({"kernels.py": b"\0" * (300 << 20)})
    return {
        "zip_bomb": ("fill the disk", ".zip", bomb),
        "zip_many": ("a million files", ".zip", zipped({f"f{i}": b"" for i in range(20000)})),
        "path_traversal": (
            "write outside",
            ".zip",
            zipped(
                {
                    "../../../../tmp/labkit-was-here": b"x",
                    "/tmp/labkit-was-here": b"x",
                    "../kernels.py": STUBBED.encode(),
                }
            ),
        ),
        "symlink_tar": (
            "hand in the answer key by a link",
            ".tar",
            link("kernels.py", str(ROOT / "labs/vecadd/kernels.py")),
        ),
        "symlink_zip": (
            "the same in a zip",
            ".zip",
            zipped({"kernels.py": str(ROOT / "labs/vecadd/kernels.py").encode()}, 0o120777),
        ),
        "device_tar": ("hand in a device", ".tar", _device()),
        "not_a_zip": ("hand in noise", ".zip", struct.pack("<I", 0x04034B50) + b"\0" * 40),
        "own_tester": (
            "hand in a tester that always passes, and a reference",
            ".zip",
            zipped(
                {
                    "labs/vecadd/kernels.py": STUBBED.encode(),
                    "labs/vecadd/tester.py": b"print('passed')",
                    "labs/vecadd/reference.py": solved,
                    "labs/vecadd/spec.py": b"LAB = None",
                    "sitecustomize.py": b"import os; os._exit(0)",
                    "numpy.py": b"raise SystemExit(0)",
                    "neuronxcc/nki/__init__.py": b"x = 1",
                }
            ),
        ),
    }


def _device() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("kernels.py")
        info.type, info.devmajor, info.devminor = tarfile.CHRTYPE, 1, 5
        tar.addfile(info)
    return out.getvalue()
