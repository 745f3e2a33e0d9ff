"""The import rule: what `import neuronxcc.nki` and `import nki` resolve to.

The AWS SDK wins wherever it is installed; without it the simulator answers to the same names.
`install()` is all that a door (`import nkisim`, `import labkit`, the pytest plugin, the command
line, the start-up hook) has to call. It imports nothing heavy: the facade, and NumPy with it, is
loaded when a program first imports `neuronxcc.nki`.

Two finders share the work. One stands last in `sys.meta_path` and serves `neuronxcc` if no
other finder did. One stands first; unless NKI_BACKEND=sim it serves nothing and only refuses what
would otherwise be half a package (see `_First`). For `nki` the rule is the same, but that neither a
folder without a package nor the placeholder of that name on PyPI (0.0.1) counts as the SDK.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` would make up most of what the start-up hook costs
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

ROOT = "neuronxcc"
NKI = "neuronxcc.nki"
FACADE = "nkisim.language.beta1"
VERSION = "2.21+nkisim"  # of neuronx-cc, for scripts that print it
NKI_PACKAGE = "nki"  # the dialect of SDK 2.29 and later
NKI_FACADE = "nkisim.language.nki"

#: Name that a kernel imports -> module that it gets, the very same object. Parents first.
SERVED = {
    NKI: FACADE,
    f"{NKI}.language": f"{FACADE}.language",
    f"{NKI}.language.constants": f"{FACADE}.language_constants",
    f"{NKI}.isa": f"{FACADE}.isa",
    f"{NKI}.isa.constants": f"{FACADE}.isa_constants",
    f"{NKI}.compiler": f"{FACADE}.compiler",
    f"{NKI}.typing": f"{FACADE}.typing",
}
SERVED_NKI = {
    NKI_PACKAGE: NKI_FACADE,
    f"{NKI_PACKAGE}.language": f"{NKI_FACADE}.language",
    f"{NKI_PACKAGE}.language.dtypes": f"{NKI_FACADE}.dtypes",
    f"{NKI_PACKAGE}.dtype": f"{NKI_FACADE}.dtypes",
    f"{NKI_PACKAGE}.isa": f"{NKI_FACADE}.isa",
    f"{NKI_PACKAGE}.isa.constants": f"{NKI_FACADE}.isa_constants",
    f"{NKI_PACKAGE}.collectives": f"{NKI_FACADE}.collectives",
    f"{NKI_PACKAGE}.compiler": f"{NKI_FACADE}.compiler",
    f"{NKI_PACKAGE}.typing": f"{NKI_FACADE}.typing",
    f"{NKI_PACKAGE}.simulator": f"{NKI_FACADE}.simulator",
    f"{NKI_PACKAGE}.tensor": f"{NKI_FACADE}.constants",  # of NKI 0.1 and 0.2
    f"{NKI_PACKAGE}.meta": f"{NKI_FACADE}.meta",
    f"{NKI_PACKAGE}.meta.tensor": f"{NKI_FACADE}.constants",
}
#: The name under which AWS's kernel library looks for a simulator, and puts it in place of `nki`.
SHIM = "nki_cpu_simulator"
SERVED_SHIM = {
    SHIM: f"{NKI_FACADE}.shim",
    **{
        name.replace(NKI_PACKAGE, f"{SHIM}.{NKI_PACKAGE}", 1): target
        for name, target in SERVED_NKI.items()
        if name != f"{NKI_PACKAGE}.dtype"
    },
    f"{SHIM}.{NKI_PACKAGE}.builtin": f"{NKI_FACADE}.builtin",
}

#: What `neuronxcc.nki` holds beside the language: kernels of AWS, in packages of their own.
KERNELS_OF_AWS = ("kernels", "_private_kernels", "_pre_prod_kernels", "_pre_prod_nkl", "docs")

BACKENDS = ("auto", "sim", "sdk")
#: The first compiler release (Neuron SDK 2.30) that refuses `neuronxcc.nki` inside kernels.
FIRST_COMPILER_WITHOUT_NKI = (2, 25)
PLACEHOLDER_VERSION = "0.0.1"  # of the distribution `nki` on PyPI, which holds nothing
_GROUPS = (SERVED, SERVED_NKI, SERVED_SHIM)
SDK_INDEX = "https://pip.repos.neuron.amazonaws.com"
SDK_INSTALL = f'pip install "neuronx-cc==2.21.*" --extra-index-url {SDK_INDEX}'


def requested_backend() -> str:
    """Return what NKI_BACKEND asks for; raise ImportError if it is not one of the three values."""
    given = os.environ.get("NKI_BACKEND", "")
    value = given.strip().lower() or "auto"
    if value not in BACKENDS:
        raise ImportError(
            f"NKI_BACKEND={given!r} is not a backend. It can be\n"
            "  auto  the AWS Neuron SDK if it is installed, else the simulator (the default)\n"
            "  sim   the simulator, even beside the SDK\n"
            "  sdk   the SDK only; fail if it is not installed",
            name=NKI,
        )
    return value


def install() -> None:
    """Make `import neuronxcc.nki` follow the import rule in this process.

    Calling it again costs nothing. It does not fail for a wrong NKI_BACKEND or a broken SDK: the
    import of `neuronxcc.nki` does, so that `doctor` can still run. The one exception is
    NKI_BACKEND=sim in a process that has already imported the SDK's nki (or NKI_BACKEND=sdk in
    one that has the simulator's): too late to obey, and silence would mislead.
    """
    sys.meta_path[:] = [_FIRST, *(f for f in sys.meta_path if f not in (_FIRST, _LAST)), _LAST]
    loaded = sys.modules.get(NKI)
    if loaded is None:
        return
    served = "sim" if getattr(loaded, "__simulator__", False) else "sdk"
    try:
        wanted = requested_backend()
    except ImportError:
        return
    if wanted not in ("auto", served):
        raise _already_imported(wanted, NKI)


def active_backend() -> str:
    """Import `neuronxcc.nki` and return who serves it: "sim" or "sdk"."""
    install()
    return "sim" if getattr(import_module(NKI), "__simulator__", False) else "sdk"


def spoken(compiler: str | None, package: str | None) -> str:
    """Return the dialect for given versions of `neuronx-cc` and `nki` (None: not installed).

    A compiler before 2.25 takes neuronxcc.nki ("beta1"), also beside a package `nki` (SDK 2.27 to
    2.29 have both); a later one, or the package alone, speaks "nki". Without an SDK it is "beta1".
    """
    if compiler is not None:
        parts = tuple(int(p) for p in compiler.split(".")[:2] if p.isdigit())
        return "beta1" if parts < FIRST_COMPILER_WITHOUT_NKI else "nki"
    return "nki" if package not in (None, PLACEHOLDER_VERSION) else "beta1"


def version(distribution: str) -> str | None:
    """Return the version of a package that pip has installed, None if there is none."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def installed_dialect() -> str:
    """Return the dialect of the SDK that is installed here, "beta1" or "nki"; else "beta1"."""
    return spoken(version("neuronx-cc"), version("nki"))


class _First:
    """Stand before all other finders: obey NKI_BACKEND=sim, refuse half a package.

    Python takes a folder without `__init__.py` for a (namespace) package. After an SDK was
    uninstalled, `neuronxcc/nki/` may be left with nothing in it but old byte code, and would be
    imported as an empty module without the last finder ever being asked.
    """

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec if the simulator has to serve `name`, else None."""
        if name == NKI_PACKAGE or name.startswith(f"{NKI_PACKAGE}."):
            return _nki_spec(name, path)
        if name.startswith(f"{SHIM}.") and getattr(sys.modules[SHIM], "__simulator__", False):
            return _facade_spec(name)
        if name != ROOT and not name.startswith("neuronxcc."):
            return None
        backend = requested_backend()
        if name == ROOT:
            return _spec(ROOT) if backend == "sim" else None
        root = sys.modules.get(ROOT)
        if _is_simulated(root):
            return _facade_spec(name)
        if backend == "sim":
            raise _already_imported(backend, name)
        if name == NKI:
            spec = PathFinder.find_spec(name, path)
            if spec is not None and _is_namespace(spec):
                raise broken_sdk(root)
        return None


class _Last:
    """Stand behind all other finders: serve `neuronxcc` if no other does."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for `neuronxcc`; say clearly what is missing below it."""
        if name == ROOT:
            if requested_backend() == "sdk":
                raise ImportError(no_sdk_text(), name=name)
            return _spec(ROOT)
        if name == SHIM:
            return _spec(SHIM)
        if name == NKI_PACKAGE:
            if requested_backend() == "sdk":
                raise ImportError(no_nki_package_text(), name=name)
            return _spec(NKI_PACKAGE)
        if name == NKI:
            raise broken_sdk(sys.modules.get(ROOT))
        # `from neuronxcc.nki.language import nonsense`
        if name.startswith((f"{FACADE}.", f"{NKI_FACADE}.")):
            raise _not_simulated(name)
        return None


_FIRST, _LAST = _First(), _Last()


def _nki_spec(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Return a spec if the simulator has to serve `nki` or what is in it, before anybody else."""
    if name != NKI_PACKAGE:
        served = getattr(sys.modules.get(NKI_PACKAGE), "__simulator__", False)
        return _facade_spec(name) if served else None
    backend = requested_backend()
    if backend == "sim":
        return _spec(NKI_PACKAGE)
    spec = PathFinder.find_spec(name, path)
    if spec is None or not is_placeholder(spec):
        return None  # the real package, or nothing: `_Last` serves that
    if backend == "sdk":
        raise ImportError(no_nki_package_text(), name=name)
    return _spec(NKI_PACKAGE)


def is_placeholder(spec: ModuleSpec) -> bool:
    """Return whether what is found is no package: a folder, or a module that only raises."""
    if _is_namespace(spec):
        return True
    if not str(spec.origin).endswith("__init__.py"):
        return False
    import ast

    try:
        with open(str(spec.origin), encoding="utf-8") as file:
            body = ast.parse(file.read()).body
    except (OSError, SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.Raise) for node in body)


# -- what the simulator serves -----------------------------------------------------------------


def _facade_spec(name: str) -> ModuleSpec:
    if not any(name in group for group in _GROUPS):
        raise _not_simulated(name)
    return _spec(name)


def _spec(name: str) -> ModuleSpec:
    # _Loader is no importlib.abc.Loader because importing that would cost every start-up.
    loader: Any = _Loader()
    return ModuleSpec(name, loader, origin="nkisim", is_package=True)


def _is_simulated(root: ModuleType | None) -> bool:
    return isinstance(getattr(getattr(root, "__spec__", None), "loader", None), _Loader)


def _is_namespace(spec: Any) -> bool:
    return spec.origin is None and spec.submodule_search_locations is not None


class _Loader:
    """Give the facade's modules their second names, all at once and without a second copy."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty `neuronxcc`, or the facade's own module object."""
        if spec.name == ROOT:
            root = type(sys)(ROOT, "Served by nkisim, a simulator; the AWS SDK is not in use.")
            root.__simulator__ = True  # type: ignore[attr-defined]
            root.__version__ = VERSION  # type: ignore[attr-defined]
            return root
        served = next(group for group in _GROUPS if spec.name in group)
        modules = {name: import_module(target) for name, target in served.items()}
        for name, module in modules.items():
            if not hasattr(module, "__path__"):
                # Makes Python ask `_Last` about names that the module lacks, for a clear error.
                module.__path__ = []
            parent, _, leaf = name.rpartition(".")
            if parent in modules:
                setattr(modules[parent], leaf, module)
            sys.modules[name] = module
        self.own_spec = modules[spec.name].__spec__
        return modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Undo what the import system did to a module that was complete already."""
        if module.__name__ != ROOT:
            module.__spec__ = self.own_spec  # relative imports inside the facade depend on it


# -- sentences ---------------------------------------------------------------------------------


def broken_sdk(root: ModuleType | None) -> ImportError:
    """Describe a `neuronxcc` that was found but has no usable `nki`."""
    folders = [os.path.abspath(p) for p in getattr(root, "__path__", [])]
    where = " and ".join(folders) or str(getattr(root, "__file__", "an unknown place"))
    spec = getattr(root, "__spec__", None)
    if spec is not None and _is_namespace(spec):
        return ImportError(leftover_text(where), name=NKI, path=where)
    return ImportError(no_nki_text(where), name=NKI, path=where)


def leftover_text(where: str) -> str:
    """Describe a `neuronxcc` folder without a package in it."""
    return (
        f"{where} is a folder named neuronxcc without a package in it (no __init__.py), as an "
        "uninstalled Neuron SDK\nleaves behind. Python takes it for the SDK, so neither the "
        "SDK nor the simulator can serve neuronxcc.nki.\n"
        f"  1. Delete the folder: {where}\n"
        f"  2. Or install the SDK again (Linux x86-64): {SDK_INSTALL}\n"
        "  3. Or set NKI_BACKEND=sim to use the simulator in spite of it."
    )


def no_nki_text(where: str) -> str:
    """Describe an SDK that has no `neuronxcc.nki`."""
    return (
        f"The neuronxcc in {where} has no neuronxcc.nki. Neuron SDK 2.30 and later have "
        "dropped this dialect of NKI;\nthe simulator does not fill the gap of an installed "
        "SDK, because two halves would not fit.\n"
        f"  1. Install an SDK that has it, 2.26 at best: {SDK_INSTALL}\n"
        "  2. Or set NKI_BACKEND=sim to use the simulator beside this SDK.\n"
        "  3. `python -m nkisim doctor` shows what is installed."
    )


def no_sdk_text() -> str:
    """Describe NKI_BACKEND=sdk without an SDK."""
    return (
        f"NKI_BACKEND=sdk asks for the AWS Neuron SDK, but this Python ({sys.executable}) has "
        "no package neuronxcc.\n"
        f"  1. Install it (Linux x86-64 only): {SDK_INSTALL}\n"
        "  2. Or unset NKI_BACKEND (or set it to auto) to let the simulator step in.\n"
        "  3. `python -m nkisim doctor` shows what is installed."
    )


def no_nki_package_text() -> str:
    """Describe NKI_BACKEND=sdk without the package nki."""
    return (
        f"NKI_BACKEND=sdk asks for the AWS Neuron SDK, but this Python ({sys.executable}) has "
        "no package nki of it.\n"
        "  1. Install it (Linux x86-64 only): pip install nki "
        "--extra-index-url https://pip.repos.neuron.amazonaws.com\n"
        "  2. Or unset NKI_BACKEND (or set it to auto) to let the simulator step in.\n"
        "  3. `python -m nkisim doctor` shows what is installed."
    )


def _already_imported(wanted: str, name: str) -> ImportError:
    other = "the AWS SDK's" if wanted == "sim" else "the simulator's"
    return ImportError(
        f"NKI_BACKEND={wanted} came too late: this process has already imported {other} neuronxcc."
        "\nSet NKI_BACKEND before Python starts, or import nkisim before anything that imports "
        "neuronxcc.",
        name=name,
    )


def _not_simulated(name: str) -> ImportError:
    """Describe a name that the SDK may have and the simulator has not."""
    public = name
    part = name.removeprefix(f"{NKI}.").removeprefix(f"{FACADE}.").partition(".")[0]
    if part in KERNELS_OF_AWS and not name.startswith(NKI_PACKAGE):
        return ImportError(
            f"{NKI}.{part} holds kernels that AWS wrote in NKI; they come with the AWS SDK and are "
            "no part of the language.\nThe simulator has none of them. It runs their public "
            "sources: github.com/aws-neuron/nki-samples and github.com/aws-neuron/nki-library.",
            name=name,
        )
    for served, target in {**SERVED, **SERVED_NKI}.items():
        if name.startswith(f"{target}."):
            public = served + name[len(target) :]  # the last match is the longest
    parent, _, leaf = public.rpartition(".")
    try:
        getattr(sys.modules.get(parent), leaf)
    except AttributeError as error:
        if hasattr(sys.modules.get(parent), "__getattr__"):
            # The facade's own sentence: it knows what is not modelled, and what is spelt alike.
            return ImportError(f"The simulator has no {public}: {error}", name=public)
    return ImportError(
        f"The simulator has no {public}. If the AWS SDK has it, it is not modelled here; the "
        f"simulator serves {', '.join(SERVED_NKI if public.startswith(NKI_PACKAGE) else SERVED)}.",
        name=public,
    )
