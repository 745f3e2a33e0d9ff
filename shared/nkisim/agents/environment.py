"""An environment to learn to write kernels in, as gymnasium and OpenEnv have them.

    env = KernelEnv({"kernel": ":add", "source": text, "args": [...], "reference": "ref.py:add"})
    observation, info = env.reset()
    observation, reward, terminated, truncated, info = env.step({"source": new_text})

An observation is the answer to a request (docs/evaluate.md) and the source; an action is a new
source, or edits of the one there is. Nothing is imported but nkisim.
"""

from __future__ import annotations

import math
from typing import Any

from nkisim.cli.serve import Desk
from nkisim.evaluation.edits import apply_dict

#: rewards of what is not right: as bad as ten times slower, and worse the earlier it fails
WRONG = {"does_not_parse": -3.0, "lint": -2.5, "refused": -2.5, "fails": -2.0}
OTHER = -1.0


class KernelEnv:
    """One kernel that is to become right and fast.

    `task`: a request with `source`, `kernel`, `args` and `reference`; `desk`: where it is evaluated
    (default: one process of its own); `steps`: after which an episode is truncated; `near`: an
    episode ends once a right kernel takes at most this many times its floor.

    The reward of a right kernel is the natural logarithm of how many times faster it is than the
    first right one, less what was rewarded before; of others it is negative. A time that the model
    does not know enough to order (`defer`) is worth as much as what it replaces.
    """

    def __init__(
        self,
        task: dict[str, Any],
        desk: Desk | None = None,
        steps: int = 32,
        near: float = 1.1,
    ):
        self.task, self.steps, self.near = task, steps, near
        self._own = desk is None
        self.desk = desk or Desk(jobs=1)
        self.state: dict[str, Any] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode with the task's source; return (observation, info).

        `seed`: of the fresh inputs; `options`: keys of the task that are others this time.
        """
        asked = {**self.task, **(options or {})}
        if seed is not None:
            asked["seeds"] = [seed]
        self.state = {"task": asked, "step": 0, "first_us": None, "rewarded": 0.0}
        observation = self._judge(asked["source"])
        self._rate(observation)
        return observation, self._info(observation)

    def step(
        self, action: dict[str, Any]
    ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take a new source, or `edits` of the present one; return (observation, reward,
        terminated, truncated, info)."""
        self.state["step"] += 1
        source = action.get("source")
        if source is None:
            source = apply_dict(self.state["source"], action.get("edits", ()))
        observation = self._judge(source)
        reward = self._rate(observation)
        return (
            observation,
            reward,
            self.near_floor(observation),
            self.state["step"] >= self.steps,
            self._info(observation),
        )

    def close(self) -> None:
        """End the process that evaluates, if it is the environment's own."""
        if self._own:
            self.desk.close()

    def _judge(self, source: str) -> dict[str, Any]:
        self.state["source"] = source
        return {**self.desk.ask({**self.state["task"], "source": source}), "source": source}

    def _rate(self, seen: dict[str, Any]) -> float:
        if not seen.get("right"):
            return WRONG.get(seen["verdict"], OTHER)
        us = seen["time"]["latency_us"]
        if self.state["first_us"] is None:
            self.state["first_us"] = us
        total = math.log(self.state["first_us"] / us)
        if seen["time"]["defer"]:
            total = self.state["rewarded"]
        reward, self.state["rewarded"] = total - self.state["rewarded"], total
        return reward

    def near_floor(self, seen: dict[str, Any]) -> bool:
        floor = (seen.get("floor") or {}).get("floor_us")
        return bool(seen.get("right") and floor and seen["time"]["latency_us"] <= self.near * floor)

    def _info(self, seen: dict[str, Any]) -> dict[str, Any]:
        time = seen.get("time") or {}
        return {
            "verdict": seen["verdict"],
            "latency_us": time.get("latency_us"),
            "floor_us": (seen.get("floor") or {}).get("floor_us"),
            "predicted": True,
            "step": self.state["step"],
        }
