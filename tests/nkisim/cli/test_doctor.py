"""`python -m nkisim doctor`: each trap is called by its name, and nothing else is."""

from __future__ import annotations

import json
import os

import pytest


def ask(python, **env):
    """Return the exit code and the doctor's JSON; check that the text form agrees."""
    done = python.nkisim("doctor", "--json", **env)
    answer = json.loads(done.stdout)
    assert answer["exit_code"] == done.returncode and done.stderr == "", done.stderr
    return done.returncode, answer


def problems(answer) -> dict[str, str]:
    return {
        finding["check"]: finding["text"] + " " + finding["fix"]
        for finding in answer["findings"]
        if finding["status"] == "problem"
    }


def package(name: str, version: str) -> dict[str, str]:
    return {
        f"{name.replace('-', '_')}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\n"
        f"Name: {name}\nVersion: {version}\n"
    }


def test_a_laptop_without_an_sdk_is_fine(python):
    code, answer = ask(python)
    assert (code, answer["backend"], answer["why"]) == (0, "simulator", "no SDK is installed")
    assert {
        "python",
        "numpy",
        "ml_dtypes",
        "NKI_BACKEND",
        "neuronxcc",
        "neuronx-cc",
        "hook",
        "import",
        "import nki",
    } == {finding["check"] for finding in answer["findings"]}


@pytest.mark.skipif(os.name == "nt", reason="a script of a shell plays the other Python")
def test_a_plain_python_that_is_another_one_is_a_note(python, tmp_path):
    """The twin is the test above: there the venv's own comes first on the PATH."""
    other = tmp_path / "bin"
    other.mkdir()
    (other / "python").write_text("#!/bin/sh\necho none\n")
    (other / "python").chmod(0o755)
    code, answer = ask(python, PATH=str(other))
    (said,) = [f for f in answer["findings"] if f["check"] == "PATH"]
    assert code == 0 and said["status"] == "note" and str(other / "python") in said["text"]
    assert "neither nki nor nkisim" in said["text"] and "activate" in said["fix"]
    (other / "python").unlink()
    _, answer = ask(python, PATH=str(other))
    (said,) = [f for f in answer["findings"] if f["check"] == "PATH"]
    assert "no python on the PATH" in said["text"]


def test_the_text_form_says_the_same(python):
    done = python.nkisim("doctor")
    assert done.returncode == 0
    assert "neuronxcc.nki is served by: simulator" in done.stdout
    assert "No problem found." in done.stdout and "PROBLEM" not in done.stdout
    assert "neuronxcc.nki (kernels.py of the labs)" in done.stdout
    assert "import nki (kernels_nki.py of the labs) is served by the simulator" in done.stdout


def test_a_machine_with_a_fitting_sdk_is_fine(python, sdk):
    sdk.write(python.site, version="2.21.33363.0+82129205")
    (python.site / "neuronxcc" / "nki" / "__init__.py").write_text(
        "import atexit\nprint('ERROR of no account')\natexit.register(print, 'bye')\n"
    )
    code, answer = ask(python)
    assert (code, answer["backend"]) == (0, "sdk")
    assert any("Neuron SDK 2.26" in finding["text"] for finding in answer["findings"])
    assert ask(python, NKI_BACKEND="sdk")[1]["why"] == "NKI_BACKEND=sdk"
    assert ask(python, NKI_BACKEND="sim")[1]["backend"] == "simulator"


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "version, fits", [("2.24.5133.0", True), ("2.25.3371.0", False), ("2.27.5334.0", False)]
)
def test_an_sdk_that_refuses_the_dialect_is_told_by_its_version(python, sdk, version, fits):
    """Its import may still work; the compiler then refuses the kernel."""
    sdk.write(python.site, version=version)
    code, answer = ask(python)
    assert (code == 0) is fits
    assert ("neuronx-cc" in problems(answer)) is not fits
    assert ("kernels_nki.py" in problems(answer).get("neuronx-cc", "")) is not fits
    assert ask(python, NKI_BACKEND="sim")[0] == 0  # the way out that the sentence names


def test_an_sdk_without_nki(python, sdk):
    sdk.write(python.site, version="2.27.5334.0", nki=False)
    code, answer = ask(python)
    assert (code, answer["backend"]) == (1, "none")
    assert "has no neuronxcc.nki" in problems(answer)["neuronxcc"]
    assert ask(python, NKI_BACKEND="sim")[0] == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("inside", ["", "nki", "nki/language/__pycache__"])
def test_a_leftover_folder_is_named(python, inside):
    (python.site / "neuronxcc" / inside).mkdir(parents=True)
    code, answer = ask(python)
    assert (code, answer["backend"]) == (1, "none")
    assert f"Delete the folder: {python.site / 'neuronxcc'}" in problems(answer)["neuronxcc"]
    assert "NKI_BACKEND=sim" in problems(answer)["neuronxcc"]
    assert ask(python, NKI_BACKEND="sim")[0] == 0


def test_an_sdk_with_an_empty_folder_nki(python, sdk):
    sdk.write(python.site, version="2.24.5133.0", nki=False)
    (python.site / "neuronxcc" / "nki").mkdir()
    code, answer = ask(python)
    assert (code, answer["backend"]) == (1, "none")
    assert "has no neuronxcc.nki" in problems(answer)["neuronxcc"]


@pytest.mark.parametrize("listed", [package("nki", "0.0.1"), {}])
def test_the_placeholder_nki_of_pypi(python, sdk, listed):
    sdk.tree(python.site, {"nki/__init__.py": "raise ImportError('get it from AWS')\n", **listed})
    code, answer = ask(python)
    assert (code, answer["backend"]) == (0, "simulator")
    said = {f["check"]: f["text"] + f["fix"] for f in answer["findings"]}
    assert "placeholder on PyPI" in said["nki"] and "pip uninstall nki" in said["nki"]
    assert "served by the simulator" in said["import nki"]


def test_the_real_nki_is_no_problem(python, sdk):
    sdk.tree(python.site, {"nki/__init__.py": "", **package("nki", "0.3.0")})
    code, answer = ask(python)
    said = {f["check"]: f["text"] for f in answer["findings"]}
    assert code == 0 and "served by the SDK" in said["import nki"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "nki, compiler, wanted",
    [
        ("0.6.0", "2.27.5334.0", ""),
        ("0.7.0", "2.28.7631.0+a1b2", ""),
        ("0.3.0", "2.24.8799.0", ""),
        ("0.9.0", "2.40.1.0", ""),  # of neither is anything known
        ("0.6.0", "2.24.5133.0", '"nki==0.6.*" "neuronx-cc==2.27.*"'),
        ("0.3.0", "2.27.5334.0", '"nki==0.6.*" "neuronx-cc==2.27.*"'),
        ("0.3.0", "2.21.33363.0", '"nki==0.3.*" "neuronx-cc==2.24.*"'),
        ("0.8.0", "2.28.7631.0", '"nki==0.7.*" "neuronx-cc==2.28.*"'),
        ("0.7.0", "2.31.1.0", '"nki==0.7.*" "neuronx-cc==2.28.*"'),
    ],
)
def test_nki_and_its_compiler_are_of_one_sdk(python, sdk, nki, compiler, wanted):
    """nki 0.6 beside neuronx-cc 2.24 ends a build with NCC_INLA001, which says nothing of it."""
    sdk.tree(python.site, {"nki/__init__.py": "", **package("nki", nki)})
    sdk.tree(python.site, package("neuronx-cc", compiler))
    code, answer = ask(python)
    said = problems(answer).get("nki", "")
    assert (wanted in said and "not of one SDK" in said and code == 1) if wanted else said == ""
    assert "nki" not in problems(ask(python, NKI_BACKEND="sim")[1])


def test_a_beta_of_nki_beside_another_compiler_is_a_note(python, sdk):
    sdk.tree(python.site, {"nki/__init__.py": "", **package("nki", "0.7.0b1")})
    sdk.tree(python.site, package("neuronx-cc", "2.27.5334.0"))
    answer = ask(python)[1]
    assert "nki" not in problems(answer)
    assert any("not of one SDK" in finding["text"] for finding in answer["findings"])


@pytest.mark.parametrize(
    "placed", [package("neuronx-cc", "1.0.post1"), {}, package("neuronx-cc", "unknown")]
)
def test_nki_without_a_compiler_is_compared_with_nothing(python, sdk, placed):
    sdk.tree(python.site, {"nki/__init__.py": "", **package("nki", "0.6.0"), **placed})
    assert "nki" not in problems(ask(python)[1])


def test_the_placeholder_compiler_of_pypi(python, sdk):
    sdk.tree(python.site, {"neuronx-cc/__init__.py": "", **package("neuronx-cc", "1.0.post1")})
    code, answer = ask(python)
    assert (code, answer["backend"]) == (1, "simulator")
    assert "placeholder on PyPI" in problems(answer)["neuronx-cc"]
    assert "pip.repos.neuron.amazonaws.com" in problems(answer)["neuronx-cc"]


def test_sdk_asked_for_and_not_there(python):
    code, answer = ask(python, NKI_BACKEND="sdk")
    assert (code, answer["backend"]) == (1, "none")
    assert "has no package neuronxcc" in problems(answer)["neuronxcc"]


def test_a_wrong_backend_does_not_stop_the_doctor(python):
    code, answer = ask(python, NKI_BACKEND="hardware")
    assert code == 1 and "NKI_BACKEND='hardware'" in problems(answer)["NKI_BACKEND"]


def test_an_sdk_that_cannot_be_imported_shows_why(python, sdk):
    sdk.write(python.site)
    (python.site / "neuronxcc" / "nki" / "__init__.py").write_text("import islpy_missing")
    code, answer = ask(python)
    assert (code, answer["backend"]) == (1, "none")
    assert "islpy_missing" in problems(answer)["import"]


def test_an_sdk_that_dies_in_its_import_shows_it(python, sdk):
    sdk.write(python.site)
    (python.site / "neuronxcc" / "nki" / "__init__.py").write_text("import os; os._exit(9)")
    assert "exit code 9" in problems(ask(python)[1])["import"]


def test_missing_packages_are_named_with_the_command_that_helps(python):
    (python.site / "zz_packages.pth").unlink()
    code, answer = ask(python)
    assert code == 1 and {"numpy", "ml_dtypes"} <= set(problems(answer))
    assert 'pip install "numpy>=' in problems(answer)["numpy"]


def test_an_old_package_is_named(python, sdk):
    sdk.tree(python.site, {"ml_dtypes/__init__.py": "", **package("ml_dtypes", "0.3.2")})
    assert "ml_dtypes 0.3.2 is too old" in problems(ask(python)[1])["ml_dtypes"]


# -- the start-up hook -------------------------------------------------------------------------


def hook(answer) -> dict[str, str]:
    (finding,) = [f for f in answer["findings"] if f["check"] == "hook"]
    return finding


def test_a_working_hook(python):
    python.nkisim("enable")
    code, answer = ask(python)
    assert code == 0 and hook(answer)["text"] == f"enabled in {python.site}"


def test_half_a_hook(python):
    python.nkisim("enable")
    (python.site / "nkisim.start").unlink()
    code, answer = ask(python)
    assert code == 1 and "lacks nkisim.start" in hook(answer)["text"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("line", ["HOME = '/no/such/folder'", "HOME = None", ""])
def test_a_hook_that_points_nowhere(python, line):
    python.nkisim("enable")
    (python.site / "_nkisim_hook.py").write_text(f"{line}\ndef start(): pass\n")
    code, answer = ask(python)
    assert code == 1 and "where no nkisim is" in hook(answer)["text"]
    assert "python -m nkisim enable" in hook(answer)["fix"]


def test_a_doctor_that_cannot_run_says_so_with_exit_code_2(python):
    done = python.run(
        "-c",
        "import nkisim.cli.doctor as d, subprocess\n"
        "def no(*a, **k): raise PermissionError('no children here')\n"
        "subprocess.run = no\n"
        "raise SystemExit(d.command([]))",
    )
    assert done.returncode == 2 and "could not run" in done.stderr
    assert "Traceback" not in done.stderr
