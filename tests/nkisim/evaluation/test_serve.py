"""nkisim serve: many requests, in order, and one that goes wrong costs only itself."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nkisim.cli.serve import Desk, converse

HERE = Path(__file__).parents[1]
KERNELS = HERE / "kernels_to_evaluate.py"


def request(name, **more):
    return {
        "id": name,
        "kernel": f"{KERNELS}:{name}",
        "args": ["128x256:float32"],
        "reference": f"{KERNELS}:double_of",
        "details": False,
        **more,
    }


@pytest.fixture(scope="module")
def desk():
    with Desk(jobs=2, seconds=60) as one:
        yield one


def test_answers_come_in_order_and_what_goes_wrong_costs_only_itself(desk):
    names = ["double", "loops", "triple", "dies", "misspelt", "double", "raises", "half"]
    asked = [request(n, fixes=False) | ({"seconds": 1} if n == "loops" else {}) for n in names]
    answers = list(desk.ask_all(asked))
    assert [a["id"] for a in answers] == names
    assert [a["verdict"] for a in answers] == [
        "right", "fails", "wrong", "fails", "refused", "right", "fails", "wrong",
    ]  # fmt: skip
    assert "not finished after 1 s" in answers[1]["ladder"][3]["text"]
    assert "ended with exit code 9" in answers[3]["error"]["what"]


@pytest.mark.full
def test_a_candidate_that_no_interrupt_ends_is_killed():
    """One that ignores the alarm itself; what only catches it is ended in its process."""
    deaf = (
        "import signal, nki\n@nki.jit\ndef k(x):\n"
        "    signal.signal(signal.SIGALRM, signal.SIG_IGN)\n    while True:\n        pass\n"
    )
    asked = {"source": deaf, "kernel": ":k", "args": ["128x128:float32"], "seconds": 1}
    with Desk(jobs=1, seconds=2) as one:
        lost, caught = one.ask(asked), one.ask(request("loops_and_catches_all", seconds=1))
        assert (lost["verdict"], lost["error"]["kind"]) == ("fails", "time")
        assert (caught["verdict"], caught["error"]["kind"]) == ("fails", "time")
        assert one.ask(request("double"))["verdict"] == "right"


def test_a_candidate_that_takes_all_memory_costs_only_itself(desk):
    takes = "import numpy as np, nki\n@nki.jit\ndef k(x):\n    return np.ones(1 << 45)\n"
    greedy = {"source": takes, "kernel": ":k", "args": ["128x128:float32"]}
    assert desk.ask(greedy)["verdict"] == "fails"
    assert desk.ask(request("double"))["verdict"] == "right"


def test_what_was_asked_before_is_not_done_again_unless_a_file_has_changed(desk, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(KERNELS.read_text("utf-8"), "utf-8")
    asked = request("double") | {"kernel": f"{file}:double"}
    hits = desk.hits
    first, again = desk.ask(asked), desk.ask({**asked, "id": "other"})
    assert desk.hits == hits + 1 and again == {**first, "id": "other"}
    file.write_text(file.read_text("utf-8").replace("operand0=2.0", "operand0=4.0"), "utf-8")
    assert desk.ask(asked)["verdict"] == "wrong" and desk.hits == hits + 1


def test_lines_in_and_lines_out(desk):
    lines = [json.dumps(request("double")), "", "nope", json.dumps({"id": 7}), "3"]
    out = io.StringIO()
    converse(desk, [line + "\n" for line in lines], out)
    answers = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [a["exit_code"] for a in answers] == [0, 2, 2, 2]
    assert answers[2]["id"] == 7 and "no JSON" in answers[1]["error"]["what"]


def test_the_command_answers_on_standard_output():
    done = subprocess.run(
        [sys.executable, "-m", "nkisim", "serve", "--jobs", "1"],
        input=f"{json.dumps(request('double'))}\n{json.dumps(request('double', args=[]))}\n",
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    right, refused = (json.loads(line) for line in done.stdout.splitlines())
    assert right["verdict"] == "right" and refused["error"]["id"] == "NKI-K04"
    assert refused["error"]["where"]["text"].startswith("def double("), "no user's line called it"


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no local sockets here")
def test_a_socket_answers_one_after_the_other(tmp_path):
    path = tmp_path / "s"
    server = subprocess.Popen(
        [sys.executable, "-m", "nkisim", "serve", "--socket", str(path), "--jobs", "1"],
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert path.stat().st_mode & 0o077 == 0
        for _ in range(2):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                with client.makefile("rw", encoding="utf-8") as talk:
                    talk.write(json.dumps(request("double")) + "\n")
                    talk.flush()
                    assert json.loads(talk.readline())["verdict"] == "right"
    finally:
        server.terminate()
        server.wait(20)
    assert not path.exists()


def test_processes_do_not_run_the_users_script_again(tmp_path):
    """A script without `if __name__ == "__main__":` that needs what only its own process has."""
    script = tmp_path / "search.py"
    script.write_text(
        "import sys\n"
        "assert 'only here' in sys.argv\n"
        "from nkisim.cli.serve import Desk\n"
        "with Desk(jobs=1, seconds=60) as desk:\n"
        f"    print(desk.ask({request('double')!r})['verdict'])\n"
        "sys.argv.remove('only here')\n",
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, str(script), "only here"], text=True, capture_output=True, timeout=120
    )
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr
