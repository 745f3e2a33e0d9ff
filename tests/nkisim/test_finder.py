"""The import rule: who serves `neuronxcc.nki`, and that it is one thing and not two halves."""

from __future__ import annotations

import pytest

WHO = "import neuronxcc.nki as nki; print(getattr(nki, '__simulator__', False))"


# -- one simulator, under two names ------------------------------------------------------------


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "line",
    [
        "from neuronxcc import nki",
        "import neuronxcc.nki as nki",
        "import neuronxcc.nki",
        "import neuronxcc.nki.language as nl",
        "import neuronxcc.nki.isa as nisa",
        "import neuronxcc.nki.compiler as ncc",
        "import neuronxcc.nki as nki; nki.compiler, nki.language, nki.isa.constants",
        "import neuronxcc.nki.typing as nt",
        "from neuronxcc.nki.typing import tensor",
        "from neuronxcc.nki.language import par_dim",
        "from neuronxcc.nki import baremetal, benchmark, trace",
        "from neuronxcc.nki.isa.constants import dge_mode",
        "from neuronxcc.nki.language.constants import sizeinbytes",
        "import neuronxcc.nki.language as nl; assert nl.constants.sizeinbytes(nl.bfloat16) == 2",
        "import neuronxcc.nki.isa as nisa; nisa.vector_engine, nisa.constants.engine",
        "import importlib; importlib.import_module('neuronxcc.nki.isa.constants').dge_mode",
        "import neuronxcc; assert 'nkisim' in neuronxcc.__version__",
    ],
)
def test_every_import_form_works_as_the_first_line(python, line):
    python.says(line)


def test_all_names_are_the_facades_own_modules(python):
    assert (
        python.says("""
        import neuronxcc.nki.isa.constants, neuronxcc.nki.language as nl
        import sys, nkisim.finder, nkisim.language.beta1.language
        from neuronxcc import nki
        assert nl is nki.language is nkisim.language.beta1.language
        for name, target in nkisim.finder.SERVED.items():
            assert sys.modules[name] is sys.modules[target], name
            parent, _, leaf = name.rpartition(".")
            assert getattr(sys.modules[parent], leaf) is sys.modules[name], name
        print(nki.__simulator__, sys.modules["neuronxcc"].__path__)
    """)
        == "True []"
    )


def test_the_order_of_the_two_names_does_not_matter(python):
    python.says("""
        import nkisim.language.beta1.isa as ours
        import neuronxcc.nki.isa as theirs
        assert ours is theirs
    """)


def test_no_file_of_the_facade_is_loaded_twice(python):
    python.says("""
        import neuronxcc.nki.language, importlib, sys
        try:
            importlib.import_module("neuronxcc.nki.isa_constants")  # the file's own name
        except ImportError:
            pass
        seen = {}
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None) or ""
            if "nkisim" in file:
                assert seen.setdefault(file, module) is module, file
    """)


def test_the_facade_keeps_its_own_identity(python):
    """Relative imports inside the facade and pickling depend on it."""
    assert python.says("""
        import neuronxcc.nki.language as nl
        from neuronxcc import nki
        print(nki.__name__, nki.__spec__.name, nl.__name__, nl.__spec__.name)
    """) == " ".join(["nkisim.language.beta1"] * 2 + ["nkisim.language.beta1.language"] * 2)


def test_threads_that_import_at_once_get_one_module(python):
    assert (
        python.says("""
        import threading, importlib, sys
        got = []
        names = ["neuronxcc.nki", "neuronxcc.nki.isa.constants", "neuronxcc.nki.language"] * 4
        threads = [threading.Thread(target=lambda n=n: got.append(importlib.import_module(n)))
                   for n in names]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(len(got), len({id(m) for m in got}))
    """)
        == "12 3"
    )


def test_installing_costs_no_numpy(python):
    assert (
        python.says("""
        import sys
        import neuronxcc  # still only a name
        print([m for m in ("numpy", "ml_dtypes", "nkisim.language.beta1") if m in sys.modules])
    """)
        == "[]"
    )


def test_install_twice_leaves_one_finder_at_each_end(python):
    python.says("""
        import sys, nkisim.finder as f
        sys.meta_path.append(type("Late", (), {"find_spec": staticmethod(lambda *a: None)}))
        f.install(); f.install()
        ours = [x for x in sys.meta_path if type(x).__module__ == "nkisim.finder"]
        assert ours == [sys.meta_path[0], sys.meta_path[-1]], sys.meta_path
    """)


def test_other_packages_are_not_our_business(python):
    done = python.code("import neuronxcc_tools")
    assert "ModuleNotFoundError: No module named 'neuronxcc_tools'" in done.stderr


@pytest.mark.parametrize(
    "line, name",
    [
        ("import neuronxcc.nki.nccl", "neuronxcc.nki.nccl"),
        ("from neuronxcc.nki.nccl import collectives", "neuronxcc.nki.nccl"),
        ("import neuronxcc.starfish", "neuronxcc.starfish"),
    ],
)
def test_what_is_not_modelled_is_a_sentence(python, line, name):
    assert f"The simulator has no {name}" in python.refuses(line)


@pytest.mark.parametrize(
    "line",
    [
        "from neuronxcc.nki import nonsense",
        "from neuronxcc.nki.language import nonsense",
        "from neuronxcc.nki.isa.constants import nonsense",
        "import neuronxcc.nki.language.nonsense",
    ],
)
def test_a_name_that_does_not_exist_is_an_import_error_with_its_public_name(python, line):
    assert "The simulator has no neuronxcc.nki." in (text := python.refuses(line))
    assert "nonsense" in text


def test_the_facades_own_sentence_about_a_missing_name_gets_through(python):
    assert "Did you mean nl.ones" in python.refuses("from neuronxcc.nki.language import onez")


# -- who wins ----------------------------------------------------------------------------------


def test_without_an_sdk_the_simulator_serves(python):
    assert python.says(WHO) == "True"
    assert python.says(WHO, NKI_BACKEND="auto") == "True"
    assert python.says(WHO, NKI_BACKEND="") == "True"


def test_the_sdk_wins(python, sdk):
    sdk.write(python.site)
    assert python.says(WHO) == "False"
    assert python.says(WHO, NKI_BACKEND="sdk") == "False"
    assert python.says("print(nkisim.finder.active_backend())") == "sdk"


def test_sim_beats_the_sdk_and_nothing_of_the_sdk_is_mixed_in(python, sdk):
    sdk.write(python.site)
    sdk.tree(python.site, {"neuronxcc/extra.py": ""})
    assert python.says(WHO, NKI_BACKEND="sim") == "True"
    assert "The simulator has no neuronxcc.extra." in python.refuses(
        "import neuronxcc.nki, neuronxcc.extra", NKI_BACKEND="sim"
    )


def test_an_sdk_in_a_later_folder_of_the_path_wins(python_with_user_site, sdk, tmp_path):
    """The trap of a plain path line: it would shadow an SDK in the user's site-packages."""
    python = python_with_user_site
    base = str(tmp_path / "userbase")
    user = python.call("-m", "site", "--user-site", PYTHONUSERBASE=base).stdout.strip()
    sdk.write(type(tmp_path)(user))
    (python.site / "nkisim_path.pth").write_text(str(python.shared))
    assert python.nkisim("enable").returncode == 0
    done = python.call("-c", WHO, PYTHONUSERBASE=base)
    assert done.stdout.strip() == "False", done.stderr
    assert python.call("-s", "-c", WHO).stdout.strip() == "True"  # without the user's folder


def test_sdk_without_an_sdk_refuses(python):
    text = python.refuses("import neuronxcc.nki", NKI_BACKEND="sdk")
    assert text.startswith("NKI_BACKEND=sdk asks for the AWS Neuron SDK")
    assert "pip.repos.neuron.amazonaws.com" in text and "unset NKI_BACKEND" in text


@pytest.mark.parametrize("with_sdk", [False, True])
def test_a_wrong_value_names_the_three(python, sdk, with_sdk):
    if with_sdk:
        sdk.write(python.site)
    text = python.refuses("print('still here')\nimport neuronxcc.nki", NKI_BACKEND="hardware")
    assert "NKI_BACKEND='hardware'" in text
    assert all(f"\n  {value} " in text for value in ("auto", "sim", "sdk"))


def test_sim_set_before_the_first_import_counts_even_after_start(python, sdk):
    """A notebook cell sets the variable long after the start-up hook ran."""
    sdk.write(python.site)
    assert python.says("import os; os.environ['NKI_BACKEND'] = 'sim'\n" + WHO) == "True"


@pytest.mark.parametrize("first", ["import neuronxcc.nki", "import neuronxcc"])
def test_sim_after_the_sdk_was_imported_is_too_late_and_says_so(python, sdk, first):
    sdk.write(python.site)
    text = python.refuses(
        f"{first}\nimport os; os.environ['NKI_BACKEND'] = 'sim'\n"
        "nkisim.finder.install()\nimport neuronxcc.nki"
    )
    assert text.startswith("NKI_BACKEND=sim came too late")


# -- found, but broken -------------------------------------------------------------------------


def test_an_empty_leftover_folder_is_named(python):
    leftover = python.site / "neuronxcc"
    leftover.mkdir()
    for line in (
        "import neuronxcc.nki",
        "from neuronxcc import nki",
        "import neuronxcc.nki.language as nl",
    ):
        text = python.refuses(line)
        assert f"1. Delete the folder: {leftover}" in text and "  3. " in text
    assert python.says(WHO, NKI_BACKEND="sim") == "True"
    leftover.rmdir()
    assert python.says(WHO) == "True"


def test_a_leftover_tree_is_not_taken_for_nki(python):
    """Old byte code keeps the folders alive; Python would import them as empty packages."""
    (python.site / "neuronxcc" / "nki" / "language" / "__pycache__").mkdir(parents=True)
    for line in ("import neuronxcc.nki as nki", "import neuronxcc.nki.language as nl"):
        assert "Delete the folder" in python.refuses(line)


def test_an_sdk_without_nki_is_not_filled_up(python, sdk):
    sdk.write(python.site, version="2.27.5334.0", nki=False)
    text = python.refuses("import neuronxcc.nki")
    assert str(python.site / "neuronxcc") in text and "2.30" in text and "NKI_BACKEND=sim" in text
    assert python.says("import neuronxcc; print(hasattr(neuronxcc, 'nki'))") == "False"
    assert python.says(WHO, NKI_BACKEND="sim") == "True"


def test_an_sdk_that_raises_is_not_hidden(python, sdk):
    sdk.write(python.site)
    (python.site / "neuronxcc" / "nki" / "__init__.py").write_text("import islpy_missing")
    done = python.code("import neuronxcc.nki")
    assert "No module named 'islpy_missing'" in done.stderr and done.returncode == 1


def test_pypis_placeholder_compiler_is_no_sdk(python, sdk):
    """Its folder has a hyphen, so nothing can import it."""
    sdk.tree(
        python.site,
        {
            "neuronx-cc/__init__.py": "",
            "neuronx_cc-1.0.post1.dist-info/METADATA": "Metadata-Version: 2.1\n"
            "Name: neuronx-cc\nVersion: 1.0.post1\n",
        },
    )
    assert python.says(WHO) == "True"


# -- nki, the dialect of today ------------------------------------------------------------------

WHO_NKI = "import nki; print('sim' if getattr(nki, '__simulator__', False) else 'sdk')"


def test_nki_is_served_where_there_is_no_sdk(python):
    assert python.says(WHO_NKI) == "sim"
    assert (
        python.says(
            "import nki.isa as nisa, nki.language as nl, nki.isa.constants as c\n"
            "from nki.language import ndarray\n"
            "print(nl.ndarray is ndarray, nisa.constants is c)"
        )
        == "True True"
    )
    assert "no nki.language.nonsense" in python.refuses("from nki.language import nonsense")
    assert "NKI_BACKEND=sdk" in python.refuses("import nki", NKI_BACKEND="sdk")


def test_the_real_nki_wins_and_the_placeholder_does_not(python, sdk):
    sdk.tree(python.site, {"nki/__init__.py": "raise ImportError('get it from AWS')"})
    assert python.says(WHO_NKI) == "sim"
    sdk.tree(python.site, {"nki/__init__.py": "", "nki/language.py": "mine = 1"})
    assert python.says(WHO_NKI) == "sdk"
    assert python.says("import nki.language; print(nki.language.mine)") == "1"
    assert python.says(WHO_NKI, NKI_BACKEND="sim") == "sim"


def test_a_folder_named_nki_is_no_package(python):
    (python.work / "nki").mkdir()
    assert python.says(WHO_NKI) == "sim"


def test_the_shim_of_the_kernel_library(python):
    assert (
        python.says("""
        import nki_cpu_simulator.nki.isa as nisa
        import nki_cpu_simulator.nki.language.dtypes
        import nki_cpu_simulator.nki.tensor, nki_cpu_simulator.nki.builtin
        from nki_cpu_simulator import nki as sim
        import nki
        print(sim is nki, nisa is nki.isa, callable(sim.cpu_simulate))""")
        == "True True True"
    )
