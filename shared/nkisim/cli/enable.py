"""`python -m nkisim enable | disable`: a start-up hook for notebooks and unmodified scripts.

Three small files go into the site-packages folder of the active venv:

- `_nkisim_hook.py`: installs the finder if nkisim is there, does nothing if it is not;
- `nkisim.pth`: calls the hook when Python 3.10 to 3.17 starts;
- `nkisim.start`: does the same from Python 3.15 on (PEP 829), where it replaces the `.pth`.

The hook is its own module because neither of the other two formats can hold a `try`, and Python
must start without a complaint after nkisim has been uninstalled.
"""

from __future__ import annotations

import argparse
import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nkisim.cli import document
from nkisim.cli.words import CannotRun

HOOK, PTH, START = "_nkisim_hook.py", "nkisim.pth", "nkisim.start"
#: In the order of writing; removing goes backwards, so that nothing ever calls a missing hook.
FILES = (HOOK, PTH, START)

_HOOK_TEXT = '''\
"""Start-up hook of nkisim, written by `python -m nkisim enable`; `disable` removes it."""
HOME = {home!r}


def start():
    try:
        try:
            from nkisim.finder import install
        except ImportError:
            import os
            import sys
            if not os.path.isfile(os.path.join(HOME, "nkisim", "finder.py")):
                return  # nkisim was removed: leave Python alone
            sys.path.append(HOME)
            from nkisim.finder import install
        install()
    except Exception:  # a start-up hook must never stop Python; `doctor` reports it
        pass
'''


def contents() -> dict[str, str]:
    """Return the text of each file of the hook, for the nkisim that is running."""
    home = str(Path(__file__).resolve().parents[2])
    return {
        HOOK: _HOOK_TEXT.format(home=home),
        PTH: "import _nkisim_hook; _nkisim_hook.start()\n",
        START: "_nkisim_hook:start\n",
    }


def in_venv() -> bool:
    """Return whether the running Python belongs to a virtual environment."""
    return sys.prefix != sys.base_prefix


def venv_folder() -> Path:
    """Return the site-packages folder of the running Python."""
    return Path(sysconfig.get_path("purelib"))


def user_folder() -> Path:
    """Return the user's own site-packages folder."""
    return Path(site.getusersitepackages())


def enable_command(argv: list[str]) -> int:
    """Write the hook; return 0, or 2 if that was refused or not possible."""
    return _give("enable", argv, _enable)


def disable_command(argv: list[str]) -> int:
    """Remove the hook; return 0, or 2 if that was refused or not possible."""
    return _give("disable", argv, _disable)


def _give(command: str, argv: list[str], body: Callable[[Path, str], list[str]]) -> int:
    from nkisim.cli import answer  # needs NumPy, which doctor, a user of this module, may miss

    options = _parser(command).parse_args(argv)

    def answered() -> tuple[int, dict[str, Any]]:
        folder = _choose(options)
        return 0, {"folder": str(folder), "files": body(folder, _flag(options))}

    return answer.give(command, answered, as_json=options.json)


def _enable(folder: Path, flag: str) -> list[str]:
    """Write what is not as it should be; return the names of these files."""
    new = contents()
    try:
        changed = [name for name in FILES if _read(folder / name) != new[name]]
        folder.mkdir(parents=True, exist_ok=True)
        for name in changed:
            _write(folder / name, new[name])
    except OSError as error:
        raise CannotRun(f"cannot write to {folder}: {error.strerror or error}.") from None
    if changed:
        print(
            f"Enabled: wrote {', '.join(changed)} to {folder}.\n"
            "Programs and notebooks that start from now on find neuronxcc.nki.\n"
            "Undo: python -m nkisim disable" + flag
        )
    else:
        print(f"Already enabled in {folder}; nothing changed.")
    return changed


def _disable(folder: Path, flag: str) -> list[str]:
    """Remove what is there; return the names of these files."""
    removed = []
    for name in reversed(FILES):
        try:
            (folder / name).unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = f"cannot remove {folder / name}: {error.strerror or error}."
            raise CannotRun(problem) from None
        removed.append(name)
    _remove_byte_code(folder)
    print(
        f"Disabled: removed {', '.join(removed)} from {folder}."
        if removed
        else f"Not enabled in {folder}; nothing to remove."
    )
    return removed


#: what each command does
_DOES = {
    "enable": "Let every program of this venv import neuronxcc.nki; a real SDK still wins.",
    "disable": "Remove what enable wrote.",
}


def _parser(name: str) -> document.Parser:
    parser = document.Parser(name, description=_DOES[name])
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--user",
        action="store_true",
        help="in your user site-packages: all your programs of this Python version",
    )
    where.add_argument(
        "--force",
        action="store_true",
        help="in the site-packages of this Python although it is no venv",
    )
    document.add_json(parser)
    parser.set_defaults(command=name)
    return parser


def enable_command_parser() -> document.Parser:
    """Return the parser of enable."""
    return _parser("enable")


def disable_command_parser() -> document.Parser:
    """Return the parser of disable."""
    return _parser("disable")


def _choose(options: argparse.Namespace) -> Path:
    """Return the folder to work on; raise CannotRun if there is none."""
    if options.user:
        if not site.ENABLE_USER_SITE:
            raise CannotRun(
                f"{sys.executable} does not read your user site-packages"
                + (
                    ", as it runs in a venv. Drop --user: the venv has its own."
                    if in_venv()
                    else "; --user would have no effect."
                )
            )
        return user_folder()
    if in_venv() or options.force:
        return venv_folder()
    command = options.command
    raise CannotRun(
        f"{sys.executable} does not run in a venv, and the hook would reach every program of this "
        "Python.\n"
        "  1. Activate a venv and repeat the command (make one: python -m venv .venv).\n"
        f"  2. Or: python -m nkisim {command} --user   (all your own programs)\n"
        f"  3. Or: python -m nkisim {command} --force  (this Python, e.g. a conda environment)"
    )


def _flag(options: argparse.Namespace) -> str:
    return " --user" if options.user else " --force" if options.force else ""


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return ""  # not ours or damaged: write it anew


def _remove_byte_code(folder: Path) -> None:
    cache = folder / "__pycache__"
    try:
        for path in cache.glob(f"{Path(HOOK).stem}.*.pyc"):
            path.unlink()
        cache.rmdir()
    except OSError:
        pass  # in use by others, or not there: byte code without a source does nothing


def _write(path: Path, text: str) -> None:
    """Write a file so that a Python that starts meanwhile sees all of it or none."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".nkisim-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide it from other users of the venv
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
