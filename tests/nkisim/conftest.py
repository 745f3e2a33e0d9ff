"""Throwaway Pythons: a bare venv that sees nkisim, what it needs, and pytest."""

from __future__ import annotations

import inspect
import os
import subprocess
import textwrap
import venv
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder that holds nkisim."""
    return SHARED


class Python:
    """A throwaway venv; `run` starts its interpreter in the folder `work`."""

    def __init__(self, root: Path, shared: Path, system_site_packages: bool = False):
        self.root, self.shared, self.work = root / "venv", shared, root / "work"
        self.work.mkdir()
        builder = venv.EnvBuilder(
            with_pip=False, symlinks=os.name != "nt", system_site_packages=system_site_packages
        )
        builder.create(self.root)
        folders = builder.ensure_directories(self.root)
        self.exe = folders.env_exe
        paths = self.call("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout
        self.site = Path(paths.strip())
        homes = {
            str(Path(PathFinder.find_spec(name).origin).parents[1])
            for name in ("numpy", "ml_dtypes")
        }
        homes.add(str(Path(pytest.__file__).parents[1]))
        # After the venv's own folder, where the tests put their fake SDKs.
        (self.site / "zz_packages.pth").write_text("\n".join(sorted(homes)))

    def call(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run with nothing of ours on the path, and with this Python first on the PATH."""
        clean = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("NKI_", "PYTHON", "PYTEST", "COV_"))
        }
        return subprocess.run(
            [self.exe, *args],
            env={
                **clean,
                "PATH": f"{Path(self.exe).parent}{os.pathsep}{os.environ.get('PATH', '')}",
                **env,
            },
            cwd=self.work,
            text=True,
            capture_output=True,
            timeout=120,
        )

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run with nkisim on the path."""
        return self.call(*args, **{"PYTHONPATH": str(self.shared), **env})

    def code(self, text: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run lines of code after the finder was installed."""
        return self.run(
            "-c", "import nkisim.finder; nkisim.finder.install()\n" + textwrap.dedent(text), **env
        )

    def says(self, text: str, **env: str) -> str:
        """Run lines of code that must succeed; return what they print."""
        done = self.code(text, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def refuses(self, text: str, **env: str) -> str:
        """Run lines of code that must end in ImportError; return its text."""
        done = self.code(text, **env)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "\nImportError: " in done.stderr, done.stderr
        return done.stderr.split("\nImportError: ", 1)[1]

    def nkisim(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m nkisim ...`."""
        return self.run("-m", "nkisim", *args, **env)

    def script(self, name: str, text: str) -> Path:
        """Write a file into the working folder."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path


def write_tree(folder: Path, files: dict[str, str]) -> Path:
    """Write files, given as `{path: text}`, below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def write_sdk(site: Path, version: str = "2.21.33363.0", nki: bool = True) -> None:
    """Write something that imports like the SDK."""
    files = {
        "neuronxcc/__init__.py": "",
        f"neuronx_cc-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\n"
        f"Name: neuronx-cc\nVersion: {version}\n",
    }
    if nki:
        files |= {
            f"neuronxcc/nki/{name}.py": ""
            for name in (
                "__init__",
                "language",
                "isa/__init__",
                "isa/constants",
                "compiler",
                "typing",
            )
        }
    write_tree(site, files)


@pytest.fixture
def sdk() -> SimpleNamespace:
    """Return the writers of fake installations."""
    return SimpleNamespace(write=write_sdk, tree=write_tree)


@pytest.fixture
def python(tmp_path: Path, shared: Path) -> Python:
    """Return a fresh venv."""
    if PathFinder.find_spec("neuronxcc") is not None:
        pytest.skip("the real SDK is installed beside these tests and would win")
    return Python(tmp_path, shared)


@pytest.fixture
def python_with_user_site(tmp_path: Path, shared: Path) -> Python:
    """Return a venv that also reads the user's site-packages (PYTHONUSERBASE says where)."""
    if PathFinder.find_spec("neuronxcc") is not None:
        pytest.skip("the real SDK is installed beside these tests and would win")
    return Python(tmp_path, shared, system_site_packages=True)


# -- kernels that break a rule ---------------------------------------------------------------------


def marked_line(kernel: Callable, mark: str = "# BUG") -> int | None:
    """Return the line of a kernel's source that carries the mark, or None."""
    lines, first = inspect.getsourcelines(getattr(kernel, "func", kernel))
    at = [first + i for i, line in enumerate(lines) if mark in line]
    return at[0] if at else None


@pytest.fixture
def breaks() -> Callable[..., Any]:
    """Return breaks(kernel, *args, id=, name=): run a kernel that breaks a rule; return the error.

    `body` is the function that carries the mark, if it is not the kernel itself.
    Checks the five slots, that the place is the line marked `# BUG`, and that the traceback ends
    in the user's code.
    """
    from nkisim import NkiError, run
    from nkisim.errors import is_ours

    def check(
        kernel: Any,
        *args: Any,
        id: str,
        name: str = "",
        target: str | None = None,
        body: Any = None,
        **kwargs: Any,
    ) -> Any:
        body = kernel if body is None else body
        with pytest.raises(NkiError) as caught:
            run(kernel, *args, target=target, **kwargs)
        error = caught.value
        assert error.id == id, error.render()
        if name:
            assert error.name == name
        assert error.what and error.limit and error.given and error.hint, error.render()
        line = marked_line(body)
        assert error.where is not None
        if line is not None:
            assert (error.where.line, error.where.file) == (line, kernel_file(body))
        text = error.render()
        for slot in (error.id, error.what, error.limit, error.given, error.hint, str(error.where)):
            assert slot in text
        assert not is_ours(caught.traceback[-1].path.__fspath__())
        return error

    return check


def kernel_file(kernel: Any) -> str:
    """Return the file that a kernel is written in."""
    return getattr(kernel, "func", kernel).__code__.co_filename
