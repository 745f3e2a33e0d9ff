"""Doors for programs that write kernels: the tools over MCP, the environment, the docs' loop."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from pathlib import Path

import pytest

from nkisim.agents import mcp as server
from nkisim.agents.environment import WRONG, KernelEnv
from nkisim.cli import requests
from nkisim.cli.serve import Desk
from nkisim.evaluation.edits import apply_dict

HERE = Path(__file__).parents[1]
KERNELS = HERE / "kernels_to_evaluate.py"
SOURCE = KERNELS.read_text("utf-8")


def task(name, **more):
    return {
        "kernel": f":{name}",
        "source": SOURCE,
        "args": ["128x1024:float32"],
        "reference": f"{KERNELS}:double_of",
        "target": "trn2",
        **more,
    }


@pytest.fixture(scope="module")
def desk():
    with Desk(jobs=1, seconds=20) as one:
        yield one


def test_the_official_client_calls_the_tools():
    mcp = pytest.importorskip("mcp")
    from mcp.client.stdio import stdio_client

    async def talk():
        how = mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "nkisim", "mcp", "--jobs", "1"]
        )
        async with stdio_client(how) as (read, write):
            async with mcp.ClientSession(read, write) as session:
                await session.initialize()
                listed = await session.list_tools()
                out = {tool.name: tool.description for tool in listed.tools}
                assert set(out) == {"evaluate", "profile", "explain", "docs"} and all(out.values())
                said = {}
                for name, given in {
                    "evaluate": task("misspelt"),
                    "profile": {k: v for k, v in task("double").items() if k != "reference"},
                    "explain": {"id": "NKI-P01"},
                    "docs": {"word": "nc_matmul"},
                }.items():
                    answer = await session.call_tool(name, given)
                    assert not answer.is_error
                    said[name] = answer.content[0].text
                return said

    said = asyncio.run(asyncio.wait_for(talk(), 120))
    wrong = json.loads(said["evaluate"])
    assert wrong["verdict"] == "refused" and wrong["findings"][0]["fixes"]
    assert json.loads(said["profile"])["advice"] and "128 partitions" in said["explain"]
    assert "nisa.nc_matmul(" in said["docs"]


def test_without_the_sdk_the_command_is_a_sentence(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert server.command([]) == 2
    assert "trainium-labs[mcp]" in capsys.readouterr().err


def test_what_is_unknown_is_said():
    assert server.look_up("xyzzy") == "nothing is known about 'xyzzy'"


def test_an_episode_rewards_what_is_right_and_faster(desk):
    env = KernelEnv(task("double"), desk=desk, steps=3)
    seen, info = env.reset()
    assert info["verdict"] == "right" and seen["source"] == SOURCE
    first = info["latency_us"]
    seen, reward, done, cut, info = env.step(
        {"source": SOURCE.replace("COLUMNS = 128", "COLUMNS = 512")}
    )
    assert reward == pytest.approx(math.log(first / info["latency_us"])) and reward > 0
    seen, reward, done, cut, info = env.step({"source": "nonsense("})
    assert reward == WRONG["does_not_parse"] and not done and not cut
    seen, reward, done, cut, info = env.step({"source": SOURCE})
    assert reward < 0 and cut and info["latency_us"] == first


def test_a_model_that_replays_edits_mends_the_kernel(desk):
    env = KernelEnv(task("misspelt"), desk=desk)
    seen, info = env.reset()
    assert info["verdict"] == "refused"
    edits = [fix["edits"] for f in seen["findings"] for fix in f["fixes"]]
    seen, reward, *_, info = env.step({"edits": edits[0]})
    assert info["verdict"] == "right" and reward == 0.0


@pytest.mark.parametrize(
    "name, verdict, args, reference",
    [
        ("matmul", "refused", ["128x128:bfloat16", "128x128:bfloat16"], "ffnn/reference.py:matmul"),
        ("conv2d", "refused", ["1x128x6x6:float32", "128x128x3x3:float32", "128:float32"],
         "conv2d/reference.py:conv2d_exact"),
        ("silu", "wrong", ["128x256:float32"], "silu_of"),
        ("rms_norm", "right", ["128x256:float32"], "rms_norm_of"),
    ],
)  # fmt: skip
def test_the_kernels_of_the_loop_are_right_after_their_first_fix(name, verdict, args, reference):
    root = Path(__file__).parents[3]
    tasks = root / "tools" / "searchers" / "tasks.py"
    reference = f"{root / 'labs'}/{reference}" if "/" in reference else f"{tasks}:{reference}"
    task = {
        "kernel": f"{tasks}:{name}", "source": tasks.read_text("utf-8"), "args": args,
        "reference": reference, "target": "trn2", "details": False,
    }  # fmt: skip
    found = requests.answer(task)
    assert found["verdict"] == verdict
    if verdict != "right":
        fix = next(fix for f in found["findings"] for fix in f["fixes"])
        mended = apply_dict(task["source"], fix["edits"])
        assert requests.answer({**task, "source": mended, "seeds": [7]})["verdict"] == "right"
