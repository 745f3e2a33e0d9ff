"""Run a command of the classroom library on the controller, with live progress and a table at the
end."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

OWN = ("command", "class_file", "students")  # what is no option of a command


def _end_with(parent: int) -> None:
    """End this process when its parent is gone.

    Ansible's workers live in sessions of their own: without this, one whose Ansible was killed, or
    interrupted at an unlucky moment, would go on starting machines unwatched.
    """
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


class ActionModule(ActionBase):
    """Honour check mode; put sentences, not tracebacks, into failures."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run one command."""
        result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        from classroom.cli.options import OPTIONS

        unknown = sorted(set(args) - {*OWN, *OPTIONS})
        if unknown:
            return {
                **result,
                "failed": True,
                "msg": f"trainium_class has no option {', '.join(unknown)}.",
            }
        if not args.get("class_file"):
            return {**result, "failed": True, "msg": "Say which class: -e class=path/to/class.yml"}
        from classroom.aws.problems import ClassroomError
        from classroom.cli import commands

        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        display = Display()
        options = {
            k: str(args[k] or "") if option.text else self._bool(args[k])
            for k, option in OPTIONS.items()
            if k in args
        }
        try:
            answer = commands.run(
                str(args["command"]),
                str(args["class_file"]),
                limit=list(args.get("students") or []),
                check=bool(self._task.check_mode),
                say=lambda text: display.display(f"    {text}"),
                **options,
            )
        except ClassroomError as error:
            return {**result, "failed": True, "msg": str(error), "exit_code": error.exit_code}
        display.display(self._text(answer))
        plain = json.loads(json.dumps(answer, default=str))
        failed = bool(plain.pop("exit_code", 0))
        msg = "\n".join([*plain.get("lines", []), plain.get("summary", "")])
        return {
            **result,
            **plain,
            "changed": bool(plain.get("changed")),
            "failed": failed,
            "msg": msg,
        }

    @staticmethod
    def _bool(value: Any) -> bool:
        return str(value).lower() in ("1", "true", "yes", "on")

    @staticmethod
    def _text(answer: dict[str, Any]) -> str:
        from rich.console import Console

        from classroom.cli.main import show

        out = Console(file=io.StringIO(), width=120, highlight=False)
        show({k: v for k, v in answer.items() if k != "changes" or answer.get("check")}, out)
        return out.file.getvalue().rstrip()  # type: ignore[attr-defined]
