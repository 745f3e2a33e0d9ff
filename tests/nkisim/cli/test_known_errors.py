"""`explain` and `doctor --log`: what AWS's compiler, verifiers, simulator and runtime say.

`compiler_codes.txt` lists the pages of AWS's error codes: code, words in the index, on the page;
`messages.txt` what is said about kernels, behind the rule here that says it.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

import nkisim
from nkisim.cli import compile_log, known_errors, main

CODES = [
    line.split("\t")
    for line in (Path(__file__).parents[1] / "compiler_codes.txt")
    .read_text(encoding="utf-8")
    .splitlines()
]
NOISE = (
    "2026-03-01T10:00:00Z INFO 4242 [job.Frontend.0]: finished after 0.003 seconds\n"
    "INFO ||NCC_WRAPPER||: Compile cache path: /var/tmp/neuron-compile-cache, 0 errors\n"
)

MESSAGES = [
    line.split("\t")
    for line in Path(__file__).with_name("messages.txt").read_text(encoding="utf-8").splitlines()
]
#: what no rule says before a build -> a word of its page
OTHERS = (
    ("'nisa.matmul' op 'stationary' must be a float type, got '!nisa.float32r'", "tfloat32"),
    ("module 'nki' has no attribute 'simulate_kernel'", "ends with NotImplementedError"),
    ("module 'nki' has no attribute 'baremetal'", "nki.simulate(kernel)"),
    ("module 'nki' has no attribute 'exp'", "ends with AttributeError"),
    ("failed to resolve name 'nl.arange'", "ends with AttributeError"),
    ("[json.exception.parse_error.101] at line 1, column 1", "nkisim doctor"),
)


def asked(*words: str, capsys) -> str:
    assert main.main(["explain", *words]) == 0, words
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


def log(text: str | bytes) -> compile_log.Report:
    return compile_log.read(io.BytesIO(text.encode() if isinstance(text, str) else text))


@pytest.mark.parametrize("code, index, page", CODES, ids=[row[0] for row in CODES])
def test_each_code_of_the_compiler_is_found_by_code_and_by_words(code, index, page, capsys):
    for written in (code, code[4:], code.lower(), f"ERROR [{code}] something else"):
        said = asked(written, capsys=capsys)
        assert code in said.splitlines()[0], (written, said)
    for words in filter(None, (index, page)):
        assert code in asked(words, capsys=capsys).splitlines()[0]
        line = f"2026-03-01 ERROR 4242 [neuronx-cc]: {words} - Please open a support ticket"
        assert [code in f.known.names for f in log(NOISE + line + "\n" + NOISE).found] == [True]
    said = asked(code, capsys=capsys)
    assert f"/error-codes/{code[4:]}.html" in said or len(known_errors.meant(code)[0].names) > 1
    assert "\nTry: " in said and "\n    - " in said and "\n    + " in said


@pytest.mark.parametrize("rule, words", MESSAGES)
def test_what_verifiers_and_simulators_say_leads_to_the_rule(rule, words, capsys):
    """The words of a partition that may not start there led to a page about the number of dims."""
    assert f"Before a compile: {rule} (" in asked(words, capsys=capsys)
    assert f"Before a compile: {rule} (" in asked(*words.split(), capsys=capsys)  # no quotes
    (found,) = log(f"{NOISE}12:00 ERROR 77 [pass]: {words} (in kernel)\n{NOISE}").found
    assert found.known.here[0] == rule and found.line == 3


@pytest.mark.parametrize("words, page", OTHERS)
def test_what_no_rule_says_has_a_cause_and_a_cure(words, page, capsys):
    said = asked(words, capsys=capsys)
    assert page in said and "\nTry: " in said
    (found,) = log(f"{NOISE}12:00 ERROR 77 [pass]: {words} (in kernel)\n{NOISE}").found
    assert page in known_errors.page_text(found.known, main.all_rules())


def test_a_message_that_two_pages_know_is_that_of_the_one_that_says_more():
    """Equal ends of two patterns: the order must not depend on the hashes of words."""
    for text, names in (
        ("'nisa.tensor_scalar_arith' op 'operand0' must be float32, got 'i32'", "operand-dtype"),
        ("failed to resolve name 'builtins.repr'", "builtin-in-kernel"),
        ("failed to resolve name 'nl.arange'", "unresolved-name"),
        ("module 'nki' has no attribute 'benchmark'", "gone-launchers"),
        ("module 'nki' has no attribute 'bench'", "unknown-of-nki"),
    ):
        assert [known.names for known in known_errors.meant(text)] == [(names,)], text


@pytest.mark.parametrize(
    "part, rule",
    [
        ("free total elements", "NKI-R11"),
        ("same number of elements", "NKI-S01"),
        ("exceeds maximum 128", "NKI-P01"),
        ("at least 2 dimensions", "NKI-P02"),
        ("Expected binary operator", "NKI-E11"),
        ("invalid partition stride", "NKI-N03"),
        ("Out-of-bound access", "NKI-I01"),
        ("Dynamic Access", "NKI-N02"),
        ("partitions starting at partition", "NKI-P04"),
    ],
)
def test_a_part_of_a_message_is_enough(part, rule, capsys):
    assert f"Before a compile: {rule} (" in asked(part, capsys=capsys)


def test_every_page_is_complete_and_names_rules_that_are_there():
    rules = main.all_rules()
    for known in known_errors.pages():
        assert known.says and known.cause and known.cure, known.names
        assert set(known.here) <= {*rules, "AttributeError", "NotImplementedError"}, known.names
        runtime = known.names[0].startswith("NRT_") or known.names[0] == "driver-missing"
        assert runtime or [line[0] for line in known.example] == ["-", "+"], known.names
    names = [name for known in known_errors.pages() for name in known.names]
    assert len(names) == len(set(names))


def test_every_message_finds_its_own_page():
    for known in known_errors.pages():
        for says in known.says:
            if not says.isupper():
                text = says.replace("{}", "'x7'")
                assert known in known_errors.meant(text), (says, known_errors.meant(text))


@pytest.mark.parametrize(
    "written, first",
    [
        ("NCC_IABC901", "NCC_IABC901"),
        ("NCC_EZZZ999", "NCC_EZZZ999"),
        ("nrt_exec_oob", "NRT_EXEC_OOB"),
    ],
)
def test_codes_without_a_page_and_of_the_runtime(written, first, capsys):
    assert asked(written, capsys=capsys).startswith(first)


@pytest.mark.parametrize("word", ["bank", "psum", "partition", "zork", "two words", "the error"])
def test_other_words_are_no_message(word, capsys):
    assert main.main(["explain", word]) == 2
    assert capsys.readouterr().out == ""


def test_our_own_ids_in_a_line_are_found(capsys):
    assert asked("error: NKI-P04 rows 1..1", capsys=capsys).startswith("NKI-P04: ")
    assert asked("E  err_num_partition_exceed_arch_limit: x", capsys=capsys).startswith("NKI-P01: ")


def test_the_names_of_the_sdk_are_found_and_lead_to_rules_that_are_there(capsys):
    rules = main.all_rules()
    assert set(main._ALSO.values()) <= set(rules)
    for name, id in main._ALSO.items():
        assert name not in {rule.name for rule in rules.values()}
        assert asked(f"SyntaxError: {name}: see the page", capsys=capsys).startswith(f"{id}: ")


# -- doctor --log ------------------------------------------------------------------------------

BUILD = f"""{NOISE}Running birverifier
[NCC_INLA001] Unhandled exception with message: === BIR verification failed ===
Reason: Invalid access of 1 partitions starting at partition 1
Instruction: I-17
{NOISE}Reason: Invalid access of 1 partitions starting at partition 2
ERROR: neuronx-cc failed with 70
"""


def test_a_log_is_answered_with_its_causes_first():
    report = log(BUILD)
    assert [f.known.here for f in report.found] == [("NKI-P04",), ("NKI-P04",), ()]
    assert [f.line for f in report.found] == [5, 4, 10]  # the compiler's wrappers come last
    assert [f.known.wrapper for f in report.found] == [False, True, True]
    assert report.found[0].count == 2 and report.exit_code == 1
    said = compile_log.render(report)
    assert said.startswith("1. line 5 and 1 more: Reason: Invalid access of 1 partitions")


def test_a_log_without_errors_is_fine():
    report = log(NOISE + "Compiler status PASS\nfinished with 0 errors, no error found\n")
    assert report.exit_code == 0 and report.found == [] and report.unknown == []
    assert compile_log.render(report) == "No error was found in 4 lines."
    assert log("").exit_code == 0


def test_errors_without_a_page_are_counted_and_shown():
    report = log(NOISE + "".join(f"FooError: the flux is {n}\n" for n in range(5)))
    assert (report.exit_code, report.unknown_count, len(report.unknown)) == (1, 5, 3)
    assert "5 lines that look like an error" in compile_log.render(report)


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode("utf-16"),
        lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
        lambda text: text.encode("utf-8-sig"),
        lambda text: b"\x80\xff\xc3\n" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: gzip.compress(text.encode()),
        lambda text: text.replace("1 partitions", "\x1b[31m1 partitions\x1b[0m").encode(),
        lambda text: text.replace("1 partitions starting", "1 partitions\n  starting").encode(),
        lambda text: text.replace("\n", " ").encode(),
        lambda text: b"x" * 300_001 + b" " + text.replace("\n", " ").encode() + b" y" * 100_000,
        lambda text: text.replace("\n", "\0\n").encode(),
    ],
    ids=[
        "utf-16",
        "utf-16 twice",
        "bom",
        "broken",
        "crlf",
        "gzip",
        "colours",
        "wrapped",
        "one line",
        "a long line",
        "nul",
    ],
)
def test_any_encoding_and_size(encode):
    assert any(f.known.names == ("partition-start",) for f in log(encode(BUILD)).found)


def test_the_command(python, tmp_path):
    path = tmp_path / "compile.log"
    path.write_text(BUILD, encoding="utf-8")
    done = python.nkisim("doctor", "--log", str(path))
    assert done.returncode == 1 and done.stderr == ""
    assert "NKI-P04 (Where a range of partitions may start)" in done.stdout
    answer = json.loads(python.nkisim("doctor", "--log", str(path), "--json").stdout)
    assert answer["exit_code"] == 1 and answer["errors"][0]["findings"] == ["NKI-P04"]
    missing = python.nkisim("doctor", "--log", str(tmp_path / "no.log"))
    assert missing.returncode == 2 and "cannot be read" in missing.stderr
    assert python.nkisim("doctor", "--log", str(tmp_path)).returncode == 2
    (tmp_path / "cut.gz").write_bytes(gzip.compress(BUILD.encode() * 100)[:200])
    assert python.nkisim("doctor", "--log", str(tmp_path / "cut.gz")).returncode == 2


# -- what the pages promise: the finding says it here ------------------------------------------

HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\nimport numpy as np\n"
#: page -> the body of a kernel of x (256 x 512, float32) that is wrong, and the same right
KERNELS = {
    "partition-start": (
        "nisa.tensor_reduce(dst=s[1:2], op=nl.add, data=t[1:2], axis=1)",
        "nisa.tensor_reduce(dst=s, op=nl.add, data=t, axis=1)",
    ),
    "free-elements": (
        "nisa.tensor_tensor(dst=y, data1=t, data2=t[:, 0:1], op=nl.multiply)",
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply, operand0=t[:, 0:1])",
    ),
    "partition-elements": ("nisa.tensor_copy(dst=y, src=t[0:1])", "nisa.tensor_copy(dst=y, src=t)"),
    "copy-elements": (
        "nisa.dma_copy(dst=t, src=x[0:64])",
        "nisa.dma_copy(dst=t[0:64], src=x[0:64])",
    ),
    "partition-maximum": (
        "nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)",
        "nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)",
    ),
    "two-dims": (
        "nl.ndarray((128,), dtype=x.dtype, buffer=nl.sbuf)",
        "nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.sbuf)",
    ),
    "binary-operator": (
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.exp, operand0=1.0)",
        "nisa.activation(dst=y, op=nl.exp, data=t)",
    ),
    "partition-stride": (
        "nisa.tensor_copy(dst=y, src=t.ap([[1, 128], [1, 512]]))",
        "nisa.tensor_copy(dst=y, src=t.ap([[512, 128], [1, 512]]))",
    ),
    "bounds": ("nisa.dma_copy(dst=t, src=x[200:328])", "nisa.dma_copy(dst=t, src=x[128:256])"),
    "stationary-maximum": (
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:256], moving=t)",
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=t)",
    ),
    "wrong-memory": (
        "nisa.tensor_copy(dst=out[0:128], src=t)",
        "nisa.dma_copy(dst=out[0:128], src=t)",
    ),
    "tile-operator": (
        "t * 2.0",
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply, operand0=2.0)",
    ),
    "unknown-name": ("nl.clip(t, 0.0, 1.0)", "nl.minimum(nl.maximum(t, 0.0), 1.0)"),
    "unknown-keyword": (
        "nisa.memset(dst=y, value=0.0, dtype=nl.float32)",
        "nisa.memset(dst=y, value=0.0)",
    ),
    "operand-dtype": (
        "h = nl.ndarray((128, 1), dtype=nl.bfloat16, buffer=nl.sbuf)\n"
        "nisa.memset(dst=h, value=1.0)\n"
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.add, operand0=h)",
        "nisa.tensor_scalar(dst=y, data=t, op0=nl.add, operand0=t[:, 0:1])",
    ),
    "psum-dtype": (
        "q = nl.ndarray((128, 512), dtype=nl.float16, buffer=nl.psum)\n"
        "nisa.nc_matmul(dst=q, stationary=t[:, 0:128], moving=t)",
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=t)",
    ),
    "uninitialised": ("nisa.tensor_copy(dst=t, src=y)", "nisa.tensor_copy(dst=y, src=t)"),
    "verifier-floats": (
        "h = nl.ndarray((128, 512), dtype=nl.int8, buffer=nl.sbuf)\n"
        "nisa.memset(dst=h, value=1)\n"
        "nisa.nc_matmul(dst=p, stationary=h[:, 0:128], moving=h)",
        "nisa.nc_matmul(dst=p, stationary=t[:, 0:128], moving=t)",
    ),
    "hardware-cast": (
        "h = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.sbuf)\n"
        "nisa.dma_copy(dst=h, src=x[0:128], dge_mode=nisa.dge_mode.hwdge)",
        "nisa.dma_copy(dst=y, src=x[0:128], dge_mode=nisa.dge_mode.hwdge)",
    ),
    "unknown-of-nki": ("nki.exp(t)", "nl.exp(t)"),
    "NCC_IBIR297": (
        "nisa.tensor_tensor(dst=y[0:32], data1=t[0:32], data2=t[32:64], op=nl.add)",
        "nisa.tensor_tensor(dst=y[0:32], data1=t[32:64], data2=t[32:64], op=nl.add)",
    ),
    "instruction-names": (
        'for i in range(2):\n    nisa.dma_copy(dst=t, src=x[0:128], name="load")',
        'for i in range(2):\n    nisa.dma_copy(dst=t, src=x[0:128], name=f"load_{i}")',
    ),
    "control-flow": ("if t > 0:\n    pass", "nl.greater(t, 0.0)"),
}
BODY = """
@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[0:128])
    y = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    s = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.sbuf)
    p = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
{}
    nisa.dma_copy(dst=out[0:128], src=t)
    nisa.dma_copy(dst=out[128:256], src=t)
    return out
"""


def said_of(body: str, tmp_path: Path) -> set[str]:
    """Return the ids of all that is said of a kernel with this body."""
    path = tmp_path / "kernel_of_a_page.py"
    path.write_text(HEAD + BODY.format(re.sub("^", "    ", body, flags=re.M)), encoding="utf-8")
    names: dict = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    try:
        prof = nkisim.profile(names["kernel"], np.ones((256, 512), np.float32), target="trn2")
    except nkisim.NkiError as error:
        return {error.id}
    except (AttributeError, TypeError, IndexError) as error:
        return {getattr(getattr(error, "nki_error", None), "id", type(error).__name__)}
    return {
        finding.id
        for finding in prof.findings
        if finding.severity != "note" and finding.id != "NKI-U04"
    }  # y is not stored


@pytest.mark.parametrize("page", KERNELS)
def test_the_finding_of_a_page_says_it_before_a_compile(page, tmp_path):
    (known,) = [known for known in known_errors.pages() if page in known.names]
    wrong, right = KERNELS[page]
    assert said_of(right, tmp_path) == set()
    said = said_of(wrong, tmp_path)
    assert said & {*known.here}, said
