"""What hostile submissions and accidents did to a grader once, each tried again."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

from grading import ROOT, SOLVED
from labkit import SpecError
from labkit.cli import guarded
from labkit.grade.facade import Facade
from labkit.grade.gradescope import RUN, check, results
from labkit.grade.judge import Bench
from labkit.grade.plan import load_plan
from labkit.grade.rules import read_source
from labkit.grade.run import alone, seed_of
from labkit.grade.submissions import parse_time, safe_id, take

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")


def bench_of(folder, text):
    """Return a bench of vecadd for one kernels.py."""
    (folder / "kernels.py").write_text(text)
    return Bench(
        {"submission": str(folder), "sandbox": "none", "kernels": "kernels", "seed": 3},
        load_plan(ROOT / "labs" / "vecadd"),
        Facade(),
    )


@pytest.mark.parametrize("line", ["nl.load(matrix[0:300])", "nl.lod(matrix)", "1 / 0"])
def test_an_error_in_one_case_is_no_error_of_the_next(tmp_path, line):
    wrong = textwrap.indent(f"if matrix.shape[0] == 128:\n    {line}\n", "    ")
    marker = "    # BEGIN SOLUTION step=4"
    bench = bench_of(tmp_path, SOLVED.replace(marker, wrong + marker))
    try:
        first, next_ = (
            bench.run(bench.graded.lab.case(name), "trn2")
            for name in ("transpose_128x128", "transpose_256x384")
        )
        assert "error" in first
        assert "error" not in next_, next_["error"]
        assert next_["outputs"].shape == (384, 256)
    finally:
        bench.stop()


def test_a_secret_that_was_cut_off_is_no_secret(tmp_path):
    """A disk that was full when the secret was written left an empty file, and a seed that
    everybody can compute."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret").write_text("")
    with pytest.raises(SpecError, match="is not a secret"):
        seed_of(tmp_path, "vecadd")


def test_graders_that_begin_together_have_one_secret(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        seeds = {*pool.map(lambda _: seed_of(tmp_path, "vecadd"), range(32))}
    assert len(seeds) == 1
    assert [p.name for p in (tmp_path / "private").iterdir()] == ["secret"]
    assert (tmp_path / "private" / "secret").stat().st_mode & 0o077 == 0


def test_no_name_is_the_file_of_another_student():
    name = safe_id("José")
    assert safe_id(name) != name
    assert safe_id("ann-2") == "ann-2"


@pytest.mark.parametrize("year", ["0001", "9999"])
def test_a_time_without_a_zone_is_a_sentence_in_any_year(year):
    with pytest.raises(SpecError, match="says no zone"):
        parse_time(f"{year}-01-01T00:00:00")


def test_two_graders_do_not_work_on_one_folder(tmp_path):
    with (
        alone(tmp_path),
        pytest.raises(SpecError, match="another grader works on"),
        alone(tmp_path),
    ):
        pass
    with alone(tmp_path):
        pass


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_a_sentence(code, capsys):
    def write(argv):
        raise OSError(code, os.strerror(code))  # what a write says: no name of a file

    assert guarded(write, []) == 2
    assert os.strerror(code) in capsys.readouterr().err


REFUSED = """import nki
import nki.language as nl
@nki.jit
def {name}(matrix):
    {more}
    return nl.ndarray(matrix.shape, dtype=matrix.dtype, buffer="shared_hbm")
"""


@pytest.mark.parametrize(
    "name, more, after",
    [
        ("kernel", "pass", ""),
        ("kernel", "z = " + "+".join(["1"] * 900), ""),  # deeper than Python's own recursion
        ("other", "pass", "kernel = nki.jit(other)"),
        ("other", "pass", "table = {'a': other}\nkernel = table['a']"),
        ("other", "pass", "def swap(f):\n    return other\n@swap\ndef kernel(matrix):\n    pass"),
        ("other", "pass", "for kernel in [other]:\n    pass"),
    ],
)
def test_what_the_compiler_refuses_is_found_however_it_is_hidden(name, more, after):
    text = REFUSED.format(name=name, more=more) + after + "\n"
    compile(text, "kernels_nki.py", "exec")
    _, refused = read_source({"kernels_nki.py": text}, "kernels_nki.py", ["kernel"], "nki")
    assert {f["id"] for f in refused["kernel"]} == {"NKI-G35"}


def test_functions_that_are_not_the_kernel_are_not_read():
    """What runs on the host may use all of Python."""
    text = REFUSED.replace('"shared_hbm"', "nl.shared_hbm").format(name="kernel", more="pass")
    host = REFUSED.format(name="host", more="yield 1").replace("@nki.jit\n", "")
    _, refused = read_source({"kernels_nki.py": text + host}, "kernels_nki.py", ["kernel"], "nki")
    assert refused == {"kernel": []}


def taken(folder, data):
    """Return what the grader takes of a kernels.py."""
    (folder / "ann").mkdir()
    (folder / "ann" / "kernels.py").write_bytes(data)
    return take({"student": "ann", "source": "ann"}, folder, "vecadd", ["kernels.py"], None, folder)


@pytest.mark.parametrize(
    "data",
    [
        b"# coding: unicode_escape\n# \\nimport os\n",
        b"# coding: utf-7\n# +AAo-import os\n",
        b"\r# coding: utf-7\n# +AAo-import os\n",
        b"#!python\n# vim: set fileencoding=cp037 :\n",
    ],
)
def test_code_that_is_a_comment_in_utf8_is_not_taken(tmp_path, data):
    found = taken(tmp_path, data)
    assert "save it as UTF-8" in found.problem and not found.files


@pytest.mark.parametrize(
    "cookie, codec",
    [
        ("latin-1", "latin-1"),
        ("iso-8859-15", "iso-8859-15"),
        ("cp1252", "cp1252"),
        ("utf-8", "utf-8"),
        ("utf8", "utf-8"),
    ],
)
def test_a_file_in_an_older_encoding_is_read_as_its_author_wrote_it(tmp_path, cookie, codec):
    text = f"# -*- coding: {cookie} -*-\nname = 'Zoë'\n"
    found = taken(tmp_path, text.encode(codec))
    scope = {}
    exec(compile(found.files["kernels.py"], "kernels.py", "exec"), scope)
    assert found.problem == "" and scope["name"] == "Zoë"
    assert "Zoë" in found.files["kernels.py"].decode("utf-8")


def test_results_of_gradescope_do_not_name_hidden_cases():
    """Gradescope gives a submission's container the results of the student's earlier ones."""
    look = {"target": "trn2", "page": "transpose_896x384-trn2.html"}
    document = results(
        {
            "lines": [],
            "cases": [],
            "points": 0.0,
            "of": 10.0,
            "nkisim": "0",
            "key": "",
            "flags": [],
            "looks": [
                {**look, "case": "transpose_896x384", "hidden": True, "what": "transpose_896x384"},
                {**look, "case": "transpose_128x128", "hidden": False, "what": "fast"},
            ],
        }
    )
    assert check(document) == [] and "896" not in json.dumps(document["extra_data"]["flags"][0])
    assert document["extra_data"]["flags"][1]["case"] == "transpose_128x128"


def test_what_gradescope_lays_beside_the_grader_is_not_for_submissions(tmp_path):
    """Where bubblewrap is not to be had, kernels run as another user, who reads what all may."""
    (tmp_path / "source").mkdir()
    (tmp_path / "submission_metadata.json").write_text("{}")
    os.chmod(tmp_path, 0o755)
    script = RUN.format(lab="vecadd", more="", minutes=10)
    subprocess.run(
        ["bash", "-c", script],
        check=True,
        env={**os.environ, "AUTOGRADER": str(tmp_path), "GRADER_PYTHON": "true"},
    )
    assert tmp_path.stat().st_mode & 0o077 == 0
