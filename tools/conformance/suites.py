"""The suites as data: which checkouts, where the tests or kernels are, how each is run.

A suite names its checkouts (`owner/name`, or `owner/name@ref` for one that has moved on to another
dialect since), or a file by which any checkout of a course is known. Course repositories are not
listed: these are solutions to assignments that are still given.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Files of one kind in a checkout. `files` are glob patterns relative to it.

    `how` cases are found and run: see `_job` in layouts.py. `path`: folders put on
    sys.path, relative to the checkout or as `owner+name/folder` in the sources. `partner`: the
    checkout that holds the references of "numpy pairs"; without `values` their kernels are only
    planned, not computed. `slow` parts run with --full only. `seconds`: the
    time limit of a file. `env`: variables that the files want set. `partner` of "harness": the
    folder of the programs that files NAME_ref.py are put into, NAME_test.py. `sample` of "tests":
    so many cases of each test function run (--full: all), its smallest and larger ones, each for at
    most `each` seconds of the processor; functions are counted in a row of their own.
    """

    how: str
    files: tuple[str, ...]
    path: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    partner: str = ""
    values: bool = True
    slow: bool = False
    seconds: int = 300
    env: tuple[tuple[str, str], ...] = ()
    sample: int = 0
    each: int = 0


@dataclass(frozen=True)
class Suite:
    """One row of the report. Without `checkouts`, `marks` are files that a checkout must have."""

    name: str
    about: str
    target: str
    parts: tuple[Part, ...]
    checkouts: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


_SDK, _SAMPLES = "aws-neuron/aws-neuron-sdk", "aws-neuron/nki-samples"
_TUTORIALS = "src/nki_samples/tutorials"
_CONV = Part("conv2d", ("part2/*.py",))
_LAB6_PATH = ("ucb-152+lab6/nki_ffnn",)  # some forks keep only the files that they changed

_TRNSCI = ("trnfft", "trntensor", "trnsparse", "trnrand", "trnsolver")

#: Where AWS's kernel library has tests of kernels; its tests of its own harness are not ours.
_LIBRARY = "test/integration/nkilib/**/test_*.py"


def _library(*options: str, version: str = "") -> Part:
    options = ("-p", "nki_library_harness", "--test-mode", "simulation", *options)
    env = [("PYTEST_ADDOPTS", " ".join(options))]
    if version:
        env.append(("NKI_LANGUAGE_VERSION", version))
    return Part(
        "tests", (_LIBRARY,), path=(".", "src"), sample=2, each=60, seconds=7200, env=tuple(env)
    )


def _autocomp(folder: str) -> Part:
    return Part("harness", (f"sols/{folder}/*_ref.py",), partner=f"harnesses/{folder}", seconds=600)


SUITES = (
    Suite(
        "docs 2.26",
        "tests of the documentation, neuronxcc.nki at its last release",
        "trn2",
        (Part("tests", ("nki/test/test_*.py",)),),
        (f"{_SDK}@v2.26.1",),
    ),
    Suite(
        "docs 2.21",
        "the same, of the release that courses began with",
        "trn1",
        (Part("tests", ("general/nki/test/test_*.py",)),),
        (f"{_SDK}@v2.21.0",),
    ),
    Suite(
        "docs 2.32",
        "the same, after the dialect was frozen",
        "trn2",
        (Part("tests", ("nki/test/test_*.py",)),),
        (f"{_SDK}@v2.32.0",),
    ),
    Suite(
        "doc examples",
        "the documentation's tutorials, as scripts",
        "trn2",
        (
            Part("scripts", ("nki/examples/**/*_torch.py", "nki/examples/*.py")),
            Part("tests", ("nki/examples/**/test_*.py",), slow=True),
        ),
        (f"{_SDK}@v2.26.1",),
    ),
    Suite(
        "samples",
        "tests and tutorials of nki-samples, last neuronxcc.nki state",
        "trn2",
        (
            Part("scripts", ("src/nki_samples/tutorials/**/*_torch.py",), path=("src",)),
            Part(
                "tests", ("test/unit/test_[!f]*.py",), path=("src",), options=("--simulation-only",)
            ),  # flash attention takes minutes
            Part("tests", ("test/unit/test_*.py",), path=("src",), slow=True, seconds=1800),
        ),
        (f"{_SAMPLES}@0898a77",),
    ),
    Suite(
        "CS149 2024",
        "Stanford CS149 assignment 4 on Trainium 1: starter and solutions",
        "trn1",
        (Part("vecadd", ("part1/kernels.py",)), _CONV),
        marks=("part1/vec_add.py", "part2/conv2d.py"),
    ),
    Suite(
        "CS149 2025",
        "Stanford CS149 assignment 4 on Trainium 2: starter and solutions",
        "trn2",
        (Part("vecadd", ("part1/kernels.py",)), _CONV),
        marks=("part1/run_benchmark.py", "part2/conv2d.py"),
    ),
    Suite(
        "CS152 2025",
        "Berkeley CS152 lab 6 on Trainium 1: starter and solutions",
        "trn1",
        (
            Part("ffnn", ("nki_ffnn/kernels.py", "nki_ffnn/matmul_kernels.py"), path=_LAB6_PATH),
            Part("conv2d", ("nki_conv2d/*.py",)),
        ),
        marks=("nki_ffnn/kernels.py",),
    ),
    Suite(
        "contributed",
        "what users gave to nki-samples, as scripts",
        "trn2",
        (Part("scripts", ("contributed/*.py",), slow=True, seconds=1800),),
        (f"{_SAMPLES}@0898a77",),
    ),
    Suite(
        "projects",
        "scripts of other repositories that check their own kernels",
        "trn2",
        (Part("scripts", ("kernels/*/*.py", "moe/*.py", "tensor_add/*.py"), path=(".",)),),
        ("allenkchau/trainium-kernel-fusion", "EmilyWebber/nki-helpers"),
    ),
    Suite(
        "nki examples",
        "the documentation's tutorials in the package nki, as scripts",
        "trn2",
        (
            Part(
                "scripts",
                ("nki/examples/**/*_torch.py", "nki/examples/*.py", "nki/examples/simulate/*.py"),
                seconds=600,
            ),
        ),
        (f"{_SDK}@v2.32.0",),
    ),
    Suite(
        "nki samples",
        "the tutorials of nki-samples in the package nki (NKI 0.2)",
        "trn2",
        (
            Part(
                "scripts",
                (f"{_TUTORIALS}/matrix_multiplication/*_torch.py",),
                path=("src",),
                seconds=600,
            ),
        ),
        (_SAMPLES,),
    ),
    Suite(
        "nki samples MX",
        "its microscaling kernels, with their golden models",
        "trn3",
        (Part("scripts", (f"{_TUTORIALS}/mxfp-matmul/mx_toplevel.py",)),),
        (_SAMPLES,),
    ),
    Suite(
        "nki MX",
        "the documentation's microscaling kernels, with their golden models",
        "trn3",
        (Part("scripts", ("nki/deep-dives/src/mxfp-matmul/mx_toplevel.py",)),),
        (f"{_SDK}@v2.32.0",),
    ),
    Suite(
        "nki simulator tests",
        "tests that scientific libraries run with nki.simulate",
        "trn2",
        (
            Part(
                "tests",
                ("tests/test_nki_sim.py",),
                path=(".",),
                seconds=1800,
                env=tuple((f"{name.upper()}_USE_SIMULATOR", "1") for name in _TRNSCI),
            ),
        ),
        tuple(f"trnsci/{name}" for name in _TRNSCI),
    ),
    Suite(
        "NxD Inference",
        "attention that users gave, with its PyTorch reference",
        "trn2",
        (Part("scripts", ("contrib/models/*/src/test_*_nki.py",), seconds=600),),
        ("aws-neuron/neuronx-distributed-inference",),
    ),
    Suite(
        "autocomp",
        "kernels in the package nki against the kernels of its harness",
        "trn2",
        (_autocomp("trn-tutorial-nki2"), _autocomp("trn-advanced-nki2")),
        ("ucb-bar/autocomp",),
    ),
    Suite(
        "nki-autotune",
        "kernels that a search writes, simulated against NumPy; its first steps "
        "hold a whole result in PSUM, which only AWS's simulator does",
        "trn2",
        (
            Part(
                "tests",
                ("test/codegen/test_render.py", "test/transforms/test_*.py"),
                path=(".", "nkigym/src", "autotune/src"),
                seconds=900,
            ),
            Part("tests", ("test/ops/test_*.py",), path=(".", "nkigym/src", "autotune/src")),
        ),
        ("awslabs/nki-autotune",),
    ),
    Suite(
        "KLR",
        "the language tests of AWS's open front end of NKI 0.1 and 0.2, as lint cases",
        "trn2",
        (
            Part(
                "tests",
                ("interop/test/test_*.py",),
                path=("interop/test",),
                env=(("PYTEST_ADDOPTS", "-p klr_verdicts -o pythonpath="),),
            ),
        ),
        ("leanprover/KLR",),
    ),
    Suite(
        "nki-library",
        "AWS's kernel library in its simulation mode, some of each test",
        "trn2",
        (_library(version="0.3"),),
        ("aws-neuron/nki-library",),
    ),
    Suite(
        "nki-library trn3",
        "its tests that leave trn2 out",
        "trn3",
        (
            _library(
                "--platform-target", "trn3", "-p", "nki_library_harness_trn3_only", version="0.3"
            ),
        ),
        ("aws-neuron/nki-library",),
    ),
    Suite(
        "nki-library 2.29",
        "the branch of release 2.29, whose mlp.py can be imported",
        "trn2",
        (_library(version="0.3"),),
        ("aws-neuron/nki-library@2.29_release",),
    ),
    Suite(
        "nki-library 0.2",
        "the library as it was for NKI 0.2",
        "trn2",
        (_library(version="0.2"),),
        ("aws-neuron/nki-library@2.28",),
    ),
    Suite(
        "NKIBench",
        "kernels that compilers and searches wrote, with NumPy references",
        "trn2",
        (Part("numpy pairs", ("NKIBench/kernels/*.py",), slow=True, seconds=1800),),
        ("zhang677/AccelOpt",),
    ),
    Suite(
        "KDA",
        "candidates of a search over NKIBench; their logs say what the chip made of them",
        "trn2",
        (
            Part(
                "numpy pairs",
                ("workspaces/*/runs/*.py",),
                slow=True,
                seconds=1800,
                partner="zhang677+AccelOpt",
                values=False,
            ),
        ),
        ("Jerry2423/kda-for-trainium",),
    ),
)
