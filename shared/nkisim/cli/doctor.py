"""`python -m nkisim doctor`: what would serve the two NKI packages here, why, and what is wrong.

Every check is a function that looks at this Python and returns findings; nothing is changed and
no SDK is imported into this process. Last, a fresh Python imports `neuronxcc.nki` for real, so
that the verdict is an observation and not an opinion.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from nkisim import __version__, finder
from nkisim.cli import document, enable

OK, NOTE, PROBLEM = "ok", "note", "problem"
_NEEDS = {"numpy": (1, 26), "ml_dtypes": (0, 4)}
_PYTHON = (3, 10)
_PLACEHOLDER_COMPILER = "1.0.post1"
_PLACEHOLDER_NKI = "0.0.1"
#: neuronx-cc 2.21 belongs to SDK 2.26, 2.25 to SDK 2.30: the minor versions differ by five.
_SDK_MINUS_COMPILER = 5
#: nki 0.1 came with neuronx-cc 2.22 (SDK 2.27), 0.7 with 2.28 (SDK 2.33): release contents of the
#: SDKs 2.27 to 2.33. Of later ones nothing is known.
_COMPILER_MINUS_NKI, _FIRST_NKI, _LAST_NKI = 21, 1, 7
_IMPORT_SECONDS = 300
_ASK_PYTHON = (  # sys.path[0] is this folder, where the script's would be
    "import sys; del sys.path[0]; from importlib.util import find_spec as f; "
    "print('some' if any(map(f, ('nki', 'nkisim', 'neuronxcc'))) else 'none')"
)


@dataclass(frozen=True)
class Finding:
    """One line of the report: `status` is ok, note or problem; `fix` says what to do."""

    check: str
    status: str
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """Who serves neuronxcc.nki ("simulator", "sdk" or "none"), why, and all findings."""

    backend: str
    why: str
    findings: list[Finding]

    @property
    def exit_code(self) -> int:
        """Return 0 if all is well, 1 if a problem was found."""
        return int(any(finding.status == PROBLEM for finding in self.findings))


def parser() -> document.Parser:
    """Return the parser of the command."""
    parser = document.Parser(
        "doctor",
        description="Say what would serve neuronxcc.nki (kernels.py of the labs) and nki "
        "(kernels_nki.py) in this Python, and what stands in their way. Exit code: "
        "0 fine, 1 a problem was found, 2 the doctor could not run.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="say instead what the errors in the log of a compiler, of AWS's "
        "simulator or of the runtime mean, the cause first; - is standard "
        "input; exit code: 0 no error in it, 1 errors, 2 it cannot be read",
    )
    return parser


def command(argv: list[str]) -> int:
    """Print the diagnosis; return 0 (fine), 1 (a problem was found) or 2 (could not run)."""
    options = parser().parse_args(argv)
    if options.log is not None:
        from nkisim.cli import compile_log

        return compile_log.command(options.log, options.json)
    try:
        diagnosis = diagnose()
    except Exception as error:  # the one program that must not die of a broken installation
        problem = f"{type(error).__name__}: {error}"
        print(f"nkisim doctor: could not run: {problem}", file=sys.stderr)
        if options.json:
            document.print_json(
                document.document("doctor", 2, document.sentence(problem, "python"))
            )
        return 2
    if options.json:
        document.print_json(document.document("doctor", diagnosis.exit_code, **asdict(diagnosis)))
    else:
        print(render(diagnosis))
    return diagnosis.exit_code


def diagnose() -> Diagnosis:
    """Run all checks."""
    backend, why, served = check_import()
    return Diagnosis(
        backend,
        why,
        [
            *check_python(),
            *check_path(),
            *check_packages(),
            *check_environment(),
            *check_neuronxcc(),
            *check_compiler(),
            *check_nki(),
            *check_versions(),
            *check_hook(),
            *served,
        ],
    )


def render(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as text."""
    mark = {OK: "ok     ", NOTE: "note   ", PROBLEM: "PROBLEM"}
    lines = []
    for finding in diagnosis.findings:
        text = "\n".join([finding.text, *([f"-> {finding.fix}"] if finding.fix else [])])
        lines.append(
            f"{mark[finding.status]}  {finding.check:<12}  " + text.replace("\n", "\n" + " " * 23)
        )
    count = sum(finding.status == PROBLEM for finding in diagnosis.findings)
    lines += [
        "",
        f"neuronxcc.nki is served by: {diagnosis.backend} ({diagnosis.why})",
        "No problem found."
        if not count
        else "1 problem found."
        if count == 1
        else f"{count} problems found.",
    ]
    return "\n".join(lines)


# -- the checks --------------------------------------------------------------------------------


def check_python() -> list[Finding]:
    """Check the version of Python and say where nkisim comes from."""
    version = ".".join(map(str, sys.version_info[:3]))
    text = f"Python {version} ({sys.executable}), nkisim {__version__} in {_home()}"
    if sys.version_info < _PYTHON:
        return [Finding("python", PROBLEM, text, "Use Python 3.10 or newer.")]
    return [Finding("python", OK, text)]


def check_path() -> list[Finding]:
    """Look at the Python that a plain `python` starts, as in python kernel.py."""
    python = shutil.which("python")
    if python is None:
        text = "there is no python on the PATH, so that a command which begins with python ends."
        return [Finding("PATH", NOTE, text, f"Use {sys.executable}, or activate its venv.")]
    try:
        asked = subprocess.run(
            [python, "-c", _ASK_PYTHON],
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_IMPORT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    if asked.returncode or asked.stdout.strip() != "none":
        return []
    return [
        Finding(
            "PATH",
            NOTE,
            f"a plain python is {python}, which has neither nki nor nkisim: a kernel's file\n"
            "that it is given ends in an ImportError.",
            f"Use {sys.executable}, or activate its venv.",
        )
    ]


def check_packages() -> list[Finding]:
    """Check the two packages that the simulator needs."""
    findings = []
    for name, least in _NEEDS.items():
        needed = ".".join(map(str, least))
        fix = f'{sys.executable} -m pip install "{name}>={needed}"'
        version = finder.version(name)
        if PathFinder.find_spec(name) is None:
            findings.append(Finding(name, PROBLEM, f"{name} is not installed.", fix))
        elif version is None:
            findings.append(Finding(name, NOTE, f"{name} is there, its version is unknown."))
        elif _numbers(version) < least:
            findings.append(
                Finding(name, PROBLEM, f"{name} {version} is too old; needed: {needed}", fix)
            )
        else:
            findings.append(Finding(name, OK, f"{name} {version}"))
    return findings


def check_environment() -> list[Finding]:
    """Check NKI_BACKEND."""
    given = os.environ.get("NKI_BACKEND")
    try:
        value = finder.requested_backend()
    except ImportError as error:
        return [
            Finding(
                "NKI_BACKEND",
                PROBLEM,
                str(error),
                "Unset NKI_BACKEND or give it one of these values.",
            )
        ]
    return [Finding("NKI_BACKEND", OK, value if given else f"{value} (not set)")]


def check_neuronxcc() -> list[Finding]:
    """Look for a package `neuronxcc` that is not the simulator's."""
    spec = PathFinder.find_spec(finder.ROOT)
    if spec is None:
        if _backend() == "sdk":
            return [Finding("neuronxcc", PROBLEM, finder.no_sdk_text())]
        return [Finding("neuronxcc", OK, "not installed, so the simulator can step in")]
    if spec.origin is None:
        folders = map(os.path.abspath, spec.submodule_search_locations or [])
        return [
            Finding("neuronxcc", _unless_sim(PROBLEM), finder.leftover_text(folder))
            for folder in folders
        ]
    folder = os.path.dirname(os.path.abspath(spec.origin))
    if not has_nki(spec):
        return [Finding("neuronxcc", _unless_sim(PROBLEM), finder.no_nki_text(folder))]
    return [Finding("neuronxcc", OK, f"the SDK's, in {folder}")]


def check_compiler() -> list[Finding]:
    """Look at the distribution `neuronx-cc`: PyPI's placeholder, too new, or fine."""
    version = finder.version("neuronx-cc")
    if version is None:
        return [Finding("neuronx-cc", OK, "not installed (the SDK's compiler)")]
    if version == _PLACEHOLDER_COMPILER:
        return [
            Finding(
                "neuronx-cc",
                PROBLEM,
                f"neuronx-cc {version} is a placeholder on PyPI, not the compiler: pip believes "
                "that "
                "the SDK is\ninstalled, but there is nothing in it that Python could import.",
                f"{sys.executable} -m pip uninstall neuronx-cc; for the real one (Linux x86-64): "
                f"{finder.SDK_INSTALL}",
            )
        ]
    numbers = _numbers(version)
    sdk = f"neuronx-cc {version}"
    if len(numbers) > 1:
        sdk += f" (Neuron SDK {numbers[0]}.{numbers[1] + _SDK_MINUS_COMPILER})"
    if numbers >= finder.FIRST_COMPILER_WITHOUT_NKI:
        return [
            Finding(
                "neuronx-cc",
                _unless_sim(PROBLEM),
                f"{sdk} refuses neuronxcc.nki inside kernels, even where the import still works; "
                "SDK "
                "2.29 was the last to compile it.",
                f"Use the package nki (kernels_nki.py of the labs), {finder.SDK_INSTALL}, or set "
                "NKI_BACKEND=sim",
            )
        ]
    return [Finding("neuronx-cc", OK, sdk)]


def check_nki() -> list[Finding]:
    """Look at the distribution `nki`, the newer dialect: PyPI's placeholder or the real one."""
    version = finder.version("nki")
    spec = PathFinder.find_spec("nki")
    if version == _PLACEHOLDER_NKI or (version is None and _only_raises(spec)):
        return [
            Finding(
                "nki",
                NOTE,
                f"nki {version or _PLACEHOLDER_NKI} is a placeholder on PyPI: where nkisim is not "
                "imported first, import nki ends in an\n"
                "ImportError. With nkisim the simulator serves "
                "nki in spite of it.",
                f"{sys.executable} -m pip uninstall nki",
            )
        ]
    if version is None:
        return []
    return [
        Finding(
            "nki",
            NOTE,
            f"nki {version} is the SDK's (import nki, the dialect of SDK 2.29 "
            "and later); neuronxcc.nki is the older one",
        )
    ]


def check_versions() -> list[Finding]:
    """Compare the SDK's nki with its compiler: both are of one SDK, or a build fails."""
    package, compiler = finder.version("nki"), finder.version("neuronx-cc")
    if package in (None, _PLACEHOLDER_NKI) or compiler in (None, _PLACEHOLDER_COMPILER):
        return []
    nki, cc = _numbers(package)[:2], _numbers(compiler)[:2]
    if len(nki) < 2 or len(cc) < 2:
        return []
    asked = nki[1], cc[1] - _COMPILER_MINUS_NKI
    minors = [minor for minor in asked if _FIRST_NKI <= minor <= _LAST_NKI]
    if not minors or nki[0] != 0 or cc[0] != 2 or asked[0] == asked[1]:
        return []
    minor = max(minors)  # the older of the two follows the newer one
    return [
        Finding(
            "nki",
            NOTE if re.search(r"\d(a|b|rc|\.dev)\d", package) else _unless_sim(PROBLEM),
            f"nki {package} and neuronx-cc {compiler} are not of one SDK: a build ends in errors "
            "that name neither\n(NCC_INLA001, a binary file that is read as JSON).",
            f'{sys.executable} -m pip install "nki==0.{minor}.*" '
            f'"neuronx-cc==2.{minor + _COMPILER_MINUS_NKI}.*" --extra-index-url {finder.SDK_INDEX}',
        )
    ]


def check_hook() -> list[Finding]:
    """Check the start-up hook that `enable` writes, in the venv and in the user's folder."""
    findings = []
    wanted = enable.contents()
    for folder in dict.fromkeys([enable.venv_folder(), enable.user_folder()]):
        files = [name for name in enable.FILES if (folder / name).exists()]
        if not files:
            continue
        missing = [name for name in enable.FILES if name not in files]
        home = _home_in_hook(folder / enable.HOOK)
        again = "python -m nkisim enable" + (" --user" if folder == enable.user_folder() else "")
        if missing:
            findings.append(
                Finding(
                    "hook",
                    PROBLEM,
                    f"{folder} lacks {', '.join(missing)} of the start-up hook.",
                    f"Repeat: {again}",
                )
            )
        elif home is None or not (home / "nkisim" / "finder.py").is_file():
            findings.append(
                Finding(
                    "hook",
                    PROBLEM,
                    f"the hook in {folder} points to {home or 'nothing'}, where no nkisim is.",
                    f"Repeat: {again}",
                )
            )
        elif any((folder / name).read_text("utf-8") != wanted[name] for name in files):
            findings.append(
                Finding(
                    "hook",
                    NOTE,
                    f"enabled in {folder}, for the nkisim in {home}",
                    f"To use this nkisim: {again}",
                )
            )
        else:
            findings.append(Finding("hook", OK, f"enabled in {folder}"))
    return findings or [
        Finding(
            "hook",
            OK,
            "not enabled (python -m nkisim enable would let every "
            "program of this venv use the simulator)",
        )
    ]


_MARK = "nkisim-doctor:"  # an SDK may print lines of its own
_PROBE = """
import json, sys
sys.path[:] = {path!r}
from nkisim import finder
try:
    answer = [finder.active_backend(), sys.modules["neuronxcc.nki"].__file__]
except ImportError as error:
    answer = ["", str(error)]
try:
    import nki
    answer += ["sim" if getattr(nki, "__simulator__", False) else "sdk", nki.__file__]
except Exception as error:
    answer += ["", f"{{type(error).__name__}}: {{error}}"]
print({mark!r} + json.dumps(answer), flush=True)
"""


def check_import() -> tuple[str, str, list[Finding]]:
    """Import neuronxcc.nki in a fresh Python; return backend, reason and findings."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", _PROBE.format(path=sys.path, mark=_MARK)],
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_IMPORT_SECONDS,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return (
            "none",
            "its import did not end",
            [
                Finding(
                    "import",
                    PROBLEM,
                    f"import neuronxcc.nki did not end within {_IMPORT_SECONDS} s.",
                )
            ],
        )
    for line in child.stdout.splitlines():
        if line.startswith(_MARK):
            served, text, *nki_lines = json.loads(line[len(_MARK) :])
            break
    else:  # it died of something else
        served, nki_lines = "", ["", "not tried"]
        text = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    if not served:
        return (
            "none",
            "its import fails",
            [
                Finding("import", PROBLEM, f"import neuronxcc.nki fails: {text.splitlines()[0]}"),
                _nki_lines(*nki_lines),
            ],
        )
    backend = "simulator" if served == "sim" else "sdk"
    return (
        backend,
        _why(backend),
        [
            Finding("import", OK, f"import neuronxcc.nki (kernels.py of the labs): {text}"),
            _nki_lines(*nki_lines),
        ],
    )


def _nki_lines(served: str, text: str) -> Finding:
    """Say who answers `import nki`; without it only kernels of that dialect cannot run."""
    if not served:
        return Finding("import nki", NOTE, f"import nki fails: {(text.splitlines() or [''])[0]}")
    who = "the simulator" if served == "sim" else "the SDK"
    return Finding(
        "import nki", OK, f"import nki (kernels_nki.py of the labs) is served by {who}: {text}"
    )


def _why(backend: str) -> str:
    requested = finder.requested_backend()
    if requested != "auto":
        return f"NKI_BACKEND={requested}"
    return "the SDK is installed and wins" if backend == "sdk" else "no SDK is installed"


def _backend() -> str:
    """Return the requested backend; "auto" for a wrong value, which has its own finding."""
    try:
        return finder.requested_backend()
    except ImportError:
        return "auto"


def _unless_sim(status: str) -> str:
    """Return `status`, but only a note if NKI_BACKEND=sim steps around the trouble."""
    return NOTE if _backend() == "sim" else status


# -- looking things up -------------------------------------------------------------------------


def has_nki(spec: ModuleSpec) -> bool:
    """Return whether a package `neuronxcc` holds a real subpackage or module `nki`."""
    # By its bare name: for a dotted one, Python expects the parent to be imported.
    nki = PathFinder.find_spec("nki", spec.submodule_search_locations)
    return nki is not None and nki.origin is not None


def _home() -> Path:
    return Path(__file__).resolve().parents[2]


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: "2.21.33363.0+abc" -> (2, 21, 33363, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _only_raises(spec: ModuleSpec | None) -> bool:
    """Return whether a module is a few lines that raise ImportError."""
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return False
    path = Path(spec.origin)
    return path.stat().st_size < 4096 and "raise ImportError" in path.read_text("utf-8", "replace")


def _home_in_hook(path: Path) -> Path | None:
    if not path.is_file():
        return None
    match = re.search(r"^HOME = (.*)$", path.read_text("utf-8", "replace"), re.MULTILINE)
    try:
        return Path(ast.literal_eval(match[1])) if match else None
    except (SyntaxError, ValueError, TypeError):  # damaged, or not ours
        return None
