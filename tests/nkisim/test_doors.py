"""The doors that install the finder: run, enable and disable, pytest, and the banner."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

NKI = "import neuronxcc.nki as nki; print(nki.__simulator__)"


# -- python -m nkisim run ----------------------------------------------------------------------

FACTS = """
    import json, sys
    main = sys.modules["__main__"]
    print(json.dumps([sys.argv, sys.path[0], __name__, __file__, __package__, __spec__,
                      type(__loader__).__name__, main.__dict__ is globals(), __doc__,
                      sorted(k for k in globals() if k not in ("__annotations__",))]))
"""


@pytest.mark.parametrize("env", [{}, {"PYTHONSAFEPATH": "1"}])
def test_run_shows_a_script_what_python_shows_it(python, env):
    python.script("sub/facts.py", FACTS)
    arguments = ("sub/facts.py", "-m", "--help", "--full-traceback", "a b", "-")
    ours, theirs = python.nkisim("run", *arguments, **env), python.run(*arguments, **env)
    assert json.loads(ours.stdout) == json.loads(theirs.stdout), ours.stderr
    assert ours.returncode == 0


def test_run_m_shows_a_module_what_python_shows_it(python):
    python.script("pack/__init__.py", "")
    python.script("pack/__main__.py", "import sys; print(sys.argv[1:], sys.path[0], __name__)")
    for module in ("pack", "pack.__main__"):
        arguments = ("-m", module, "-x", "--kernel", "tiled")
        ours, theirs = python.nkisim("run", *arguments), python.run(*arguments)
        assert ours.stdout == theirs.stdout != "", ours.stderr


def test_run_finds_the_simulator_and_the_scripts_neighbours(python):
    python.script("lab/kernels.py", "import neuronxcc.nki as nki")
    python.script("lab/main.py", "from kernels import nki; print(nki.__simulator__)")
    assert python.nkisim("run", "lab/main.py").stdout == "True\n"


@pytest.mark.parametrize(
    "end, code, said",
    [
        ("", 0, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.stdout.flush(); sys.stdout = None", 0, ""),
        ("import sys; sys.stdout.close()", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('no more')", 1, "no more\n"),
    ],
)
def test_run_passes_the_exit_code_on(python, end, code, said):
    python.script("s.py", f"print('x')\n{end}\n")
    done = python.nkisim("run", "s.py")
    assert (done.returncode, done.stdout, done.stderr) == (code, "x\n", said)


def test_run_lets_a_script_play_with_its_streams_and_files(python):
    """What the course's benchmark scripts do: silence the SDK, restore, move the profile."""
    python.script(
        "s.py",
        """
        import atexit, os, subprocess, sys
        sys.stdout = open(os.devnull, "w"); print("hidden")
        sys.stdout = sys.__stdout__
        open("profile.neff", "w").close()
        subprocess.run([sys.executable, "-c", "import os; os.rename('profile.neff', 'x.neff')"],
                       check=True)
        atexit.register(lambda: print("last", json.__name__))
        import json
        print(os.path.exists("x.neff"))
    """,
    )
    done = python.nkisim("run", "s.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nlast json\n", "")


def test_run_works_with_multiprocessing_and_pickle(python):
    python.script(
        "s.py",
        """
        import multiprocessing, pickle
        class Case: pass
        def double(n): return 2 * n
        if __name__ == "__main__":
            assert type(pickle.loads(pickle.dumps(Case()))) is Case
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
    """,
    )
    done = python.nkisim("run", "s.py")
    assert done.stdout == "[2, 4]\n", done.stderr


BROKEN_RULE = """
    from nkisim.errors import NkiError
    class Rule(NkiError):
        def render(self): return "NKI-P01 five slots"
    def kernel(): raise Rule("NKI-P01", "too many partitions")
    print("before")
    kernel()
"""


def test_a_broken_rule_is_its_five_slots_and_no_traceback(python):
    python.script("s.py", BROKEN_RULE)
    done = python.nkisim("run", "s.py")
    assert (done.returncode, done.stdout, done.stderr) == (1, "before\n", "NKI-P01 five slots\n")


def test_a_broken_rule_in_the_sdks_own_exception_type_too(python):
    python.script(
        "s.py",
        """
        from nkisim.errors import NkiError
        class Rule(NkiError):
            def render(self): return "NKI-P01 five slots"
        error = IndexError("out of bounds")
        error.nki_error = Rule("NKI-P01", "too far")
        raise error
    """,
    )
    done = python.nkisim("run", "s.py")
    assert (done.returncode, done.stderr) == (1, "NKI-P01 five slots\n")


def test_full_traceback_shows_it_all(python):
    python.script("s.py", BROKEN_RULE)
    done = python.nkisim("run", "--full-traceback", "s.py")
    assert done.returncode == 1
    assert "Traceback" in done.stderr and "nkisim" in done.stderr


def frames(done) -> list[str]:
    """Return the functions in a traceback."""
    return [
        line.rsplit(" ", 1)[1] for line in done.stderr.splitlines() if line.startswith("  File ")
    ]


def test_what_was_printed_before_an_error_stands_before_it(python):
    """Into a file or a grader's log, where Python holds stdout back."""
    python.script("rule.py", BROKEN_RULE)
    python.script("other.py", "print('before')\nraise ValueError('after')")
    for script in ("rule.py", "other.py"):
        done = python.run(
            "-c",
            "import subprocess, sys; subprocess.run([sys.executable, '-m', "
            f"'nkisim', 'run', '{script}'], stderr=subprocess.STDOUT)",
        )
        assert done.stdout.startswith("before\n"), done.stdout


@pytest.mark.parametrize("how", [("s.py",), ("-m", "s")])
def test_a_traceback_shows_the_users_frames_alone(python, how):
    path = python.script(
        "s.py",
        """
        import json
        def inner():
            try:
                {}["no"]
            except KeyError:
                raise RuntimeError("mine")
        def outer(): inner()
        outer()
    """,
    )
    done = python.nkisim("run", *how)
    plain = python.run("-c", f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')")
    assert done.returncode == 1
    assert frames(done) == ["inner", "<module>", "outer", "inner"]
    assert done.stderr.count(f'  File "{path}"') == 4
    assert done.stderr.endswith("RuntimeError: mine\n") and "KeyError: 'no'" in done.stderr
    assert len(plain.stderr.splitlines()) > len(done.stderr.splitlines())


def test_frames_between_two_of_the_users_are_cut_out(python, shared):
    """User -> simulator -> the user's kernel -> simulator -> library: the user's two remain."""
    python.script(
        "s.py",
        """
        import json, sys, types, nkisim.errors
        source = "def launch(f): f()\\ndef op(json): json.loads('[')\\n"
        ours = types.ModuleType("ours")
        exec(compile(source, nkisim.errors.__file__.replace("errors", "machine"), "exec"),
             ours.__dict__)
        def kernel(): ours.op(json)
        def fails():
            try:
                ours.launch(kernel)
            except ValueError as error:
                raise RuntimeError("mine") from error
        fails() if len(sys.argv) > 1 else ours.launch(kernel)
    """,
    )
    done = python.nkisim("run", "s.py")
    assert frames(done) == ["<module>", "kernel"] and "JSONDecodeError" in done.stderr
    done = python.nkisim("run", "s.py", "chained")
    assert frames(done) == ["fails", "kernel", "<module>", "fails"], done.stderr


def test_a_library_that_the_user_called_keeps_its_frames(python):
    python.script("s.py", "import json\njson.loads('[')\n")
    done = python.nkisim("run", "s.py")
    assert "s.py" in done.stderr and "decoder.py" in done.stderr and "nkisim" not in done.stderr


def test_a_syntax_error_is_shown_at_its_line_only(python):
    python.script("s.py", "x = 1\nprobs = # YOUR CODE HERE\n")
    done = python.nkisim("run", "s.py")
    assert done.returncode == 2  # as for check, lint and migrate: nothing ran
    assert 's.py", line 2' in done.stderr and "nkisim" not in done.stderr


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["vec_ad.py"], "there is no file vec_ad.py"),
        (["vec_ad.py"], "Did you mean vec_add.py?"),
        (["part9/vec_add.py"], "There is no folder part9"),
        (["."], "is a folder"),
        (["-m", "no_such_module"], "there is no module no_such_module"),
        (["-m", "pack"], "there is no module pack to run"),
        (["-m", "pack.nothing.at.all"], "there is no module pack.nothing.at.all"),
        ([], "name a script"),
        (["-m"], "-m"),
        (["--nonsense", "s.py"], "--nonsense"),
    ],
)
def test_nothing_to_run_is_a_sentence_and_exit_code_2(python, arguments, sentence):
    python.script("vec_add.py", "")
    python.script("pack/__init__.py", "")
    done = python.nkisim("run", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert sentence in done.stderr and "Traceback" not in done.stderr


def test_an_error_inside_the_module_is_not_a_missing_module(python):
    python.script("pack/__init__.py", "import no_such_dependency")
    python.script("pack/__main__.py", "")
    done = python.nkisim("run", "-m", "pack")
    assert done.returncode == 1
    assert "No module named 'no_such_dependency'" in done.stderr and "pack" in done.stderr


# -- python -m nkisim enable, disable ----------------------------------------------------------

HOOK_FILES = ["_nkisim_hook.py", "nkisim.pth", "nkisim.start"]


def hook_files(python, folder=None) -> list[str]:
    found = (folder or python.site).glob("*nkisim*")
    return sorted(path.name for path in found)


def test_enable_reaches_every_program_of_the_venv(python):
    assert python.call("-c", NKI).returncode == 1
    done = python.nkisim("enable")
    assert done.returncode == 0 and hook_files(python) == HOOK_FILES
    python.script("s.py", NKI)
    for how in (("-c", NKI), ("-I", "-c", NKI), ("-E", "-c", NKI), ("-s", "-c", NKI), ("s.py",)):
        done = python.call(*how)
        assert done.stdout == "True\n", (how, done.stderr)
    assert python.call("-S", "-c", NKI).returncode == 1  # as documented: no site, no hook


def test_enable_reaches_child_processes(python):
    python.nkisim("enable")
    done = python.call(
        "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {NKI!r}], check=True)"
    )
    assert done.stdout == "True\n", done.stderr


def test_enable_loads_nothing_heavy_into_a_starting_python(python):
    python.nkisim("enable")
    done = python.call(
        "-c",
        "import sys; print('nkisim.finder' in sys.modules, "
        "[m for m in ('numpy', 'argparse', 'typing') if m in sys.modules])",
    )
    assert done.stdout == "True []\n"


def test_enable_and_disable_twice(python):
    before = sorted(path.name for path in python.site.iterdir())
    first, second = python.nkisim("enable"), python.nkisim("enable")
    assert first.returncode == second.returncode == 0
    assert "Enabled" in first.stdout and "nothing changed" in second.stdout
    first, second = python.nkisim("disable"), python.nkisim("disable")
    assert first.returncode == second.returncode == 0
    assert "Disabled" in first.stdout and "nothing to remove" in second.stdout
    assert sorted(path.name for path in python.site.iterdir()) == before
    assert python.call("-c", NKI).returncode == 1


def test_enable_repairs_a_damaged_hook(python):
    python.nkisim("enable")
    (python.site / "nkisim.pth").write_text("# cut off")
    (python.site / "nkisim.start").unlink()
    done = python.nkisim("enable")
    assert "wrote nkisim.pth, nkisim.start" in done.stdout
    assert python.call("-c", NKI).stdout == "True\n"


def test_the_start_file_names_a_function_without_arguments(python):
    """What Python 3.15 does with it: resolve `module:function`, call it."""
    python.nkisim("enable")
    entry = (python.site / "nkisim.start").read_text().split()
    assert len(entry) == 1
    (python.site / "nkisim.pth").unlink()  # 3.18 ignores its import line
    done = python.call("-c", f"import pkgutil; pkgutil.resolve_name({entry[0]!r})(); {NKI}")
    assert done.stdout == "True\n", done.stderr


def test_python_starts_in_silence_after_nkisim_is_gone(python, shared, tmp_path):
    copy = tmp_path / "it's gone"
    shutil.copytree(shared / "nkisim", copy / "nkisim")
    assert python.run("-m", "nkisim", "enable", PYTHONPATH=str(copy)).returncode == 0
    assert python.call("-c", NKI).stdout == "True\n"
    (copy / "nkisim" / "finder.py").write_text("this is no Python")
    assert python.call("-c", "print('up')").stderr == ""
    shutil.rmtree(copy)
    done = python.call("-c", "print('up')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "up\n", "")


def test_a_wrong_backend_does_not_stop_a_starting_python(python):
    python.nkisim("enable")
    done = python.call("-c", "print('up')", NKI_BACKEND="nonsense")
    assert (done.returncode, done.stdout, done.stderr) == (0, "up\n", "")
    assert "NKI_BACKEND='nonsense'" in python.call("-c", NKI, NKI_BACKEND="nonsense").stderr


@pytest.mark.parametrize("command", ["enable", "disable"])
def test_user_is_refused_where_it_has_no_effect(python, command):
    done = python.nkisim(command, "--user")
    assert done.returncode == 2 and "Drop --user" in done.stderr


def test_outside_a_venv_it_refuses_and_names_the_ways(python):
    """The venv's own code with the one fact changed: no real Python is touched."""
    change = "import sys; sys.base_prefix = sys.prefix; "
    outside = change + "from nkisim.cli.main import main; sys.exit(main(sys.argv[1:]))"
    # Debian's Python has another folder for what lies in no venv
    asked = python.run("-c", change + "import sysconfig; print(sysconfig.get_path('purelib'))")
    folder = Path(asked.stdout.strip())
    assert python.site.parents[2] in folder.parents
    for command in ("enable", "disable"):
        done = python.run("-c", outside, command)
        assert done.returncode == 2 and "does not run in a venv" in done.stderr
        assert "--user" in done.stderr and "--force" in done.stderr
        assert hook_files(python, folder) == []
    assert python.run("-c", outside, "enable", "--force").returncode == 0
    assert hook_files(python, folder) == HOOK_FILES
    assert python.run("-c", outside, "disable", "--force").returncode == 0
    assert hook_files(python, folder) == []


def test_enable_user_writes_to_the_users_folder(python_with_user_site, tmp_path):
    python, env = python_with_user_site, {"PYTHONUSERBASE": str(tmp_path / "base")}
    done = python.nkisim("enable", "--user", **env)
    assert done.returncode == 0, done.stderr
    assert hook_files(python) == []
    assert python.call("-c", NKI, **env).stdout == "True\n"
    assert python.call("-s", "-c", NKI, **env).returncode == 1
    assert python.nkisim("disable", "--user", **env).returncode == 0
    assert python.call("-c", NKI, **env).returncode == 1


@pytest.mark.skipif(
    os.name == "nt" or not hasattr(os, "geteuid") or os.geteuid() == 0,
    reason="needs a folder that its owner cannot write to",
)
def test_a_folder_without_write_permission_is_a_sentence(python):
    python.site.chmod(0o500)
    try:
        done = python.nkisim("enable")
    finally:
        python.site.chmod(0o700)
    assert done.returncode == 2 and "cannot write to" in done.stderr


def test_a_folder_in_the_place_of_a_file_is_a_sentence(python):
    (python.site / "nkisim.pth").mkdir()
    for command in ("enable", "disable"):
        done = python.nkisim(command)
        assert done.returncode == 2, done.stdout
        assert "cannot" in done.stderr and "Traceback" not in done.stderr


# -- pytest ------------------------------------------------------------------------------------

PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error")


@pytest.fixture
def project(python):
    """A folder whose conftest imports a kernel file before anything of ours."""
    python.script("kernels.py", "import neuronxcc.nki as nki\n")
    python.script("conftest.py", "from kernels import nki\n")
    python.script(
        "test_it.py", "from kernels import nki\ndef test_it(): assert nki.__simulator__\n"
    )
    return python


def entry_point(python, sdk, record: str = "") -> None:
    sdk.tree(
        python.site,
        {
            "trainium_labs-0.1.0.dist-info/METADATA": "Metadata-Version: 2.1\n"
            "Name: trainium-labs\nVersion: 0.1.0\n",
            "trainium_labs-0.1.0.dist-info/entry_points.txt": "[pytest11]\n"
            "nkisim.pytest_plugin = nkisim.pytest_plugin\n",
            "trainium_labs-0.1.0.dist-info/RECORD": record,
        },
    )


def test_without_the_plugin_the_conftest_fails(project):
    """The twin: what the plugin is for."""
    assert project.run(*PYTEST, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1").returncode != 0


def test_the_plugin_on_the_command_line_comes_before_the_conftest(project):
    done = project.run(*PYTEST, "-p", "nkisim.pytest_plugin")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.full
def test_the_plugin_of_an_installed_package_comes_before_the_conftest(project, sdk):
    entry_point(project, sdk)
    done = project.run(*PYTEST)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.full
def test_both_ways_at_once_and_the_hook_do_not_quarrel(project, sdk):
    entry_point(project, sdk)
    project.nkisim("enable")
    done = project.run(*PYTEST, "-p", "nkisim.pytest_plugin")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.full
def test_the_hook_and_an_installed_wheel_cause_no_warning(project, sdk, shared):
    """pytest wants to rewrite the assertions of all files of a wheel that holds a plugin."""
    shutil.copytree(shared / "nkisim", project.site / "nkisim")
    entry_point(project, sdk, "nkisim/__init__.py,,\nnkisim/pytest_plugin.py,,\n")
    assert project.call("-m", "nkisim", "enable").returncode == 0
    done = project.call(*PYTEST)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


# -- import nkisim, import labkit --------------------------------------------------------------


@pytest.mark.parametrize("package", ["nkisim", "labkit"])
def test_importing_a_package_of_ours_opens_the_door(python, package):
    done = python.run("-c", f"import {package}\n{NKI}")
    assert done.stdout == "True\n", done.stderr


def test_importing_nkisim_costs_no_numpy(python):
    """The start-up hook, the plugin and the doctor (of a venv without NumPy) need it so."""
    done = python.run("-c", "import nkisim, sys; print('numpy' in sys.modules)")
    assert done.stdout == "False\n", done.stderr


# -- the banner --------------------------------------------------------------------------------


def test_the_banner_is_one_line_on_stderr_once(python):
    text = (
        "from nkisim.simulation.banner import announce; "
        "[announce(t, 'as asked') for t in ('trn1', 'trn1', 'trn2')]"
    )
    done = python.code(text)
    from nkisim import __version__

    assert done.stdout == ""
    assert done.stderr == (
        f"nkisim {__version__}: simulating NeuronCore-v2 (trn1: as asked); no hardware is used\n"
    )
    assert python.code(text, NKI_BANNER="0").stderr == ""
    other = "from nkisim.simulation.banner import announce; announce('trn2', 'x')"
    assert "NeuronCore-v3 (trn2: x)" in python.code(other).stderr
