"""What rows, tensors and loops ask of the machine that executes a kernel.

They know this, and the interpreter knows them: so imports point one way. What comes back from it
as `Any` is of modules that are told about the machine themselves (`Tensor`, `Instr` ...).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from ..checks.finding import Findings
    from ..chip.hw import NeuronCore
    from ..chip.memory import Storage
    from ..dialect import Dialect
    from ..trace.trace import Trace
    from .state import Core, Launch, Loops, Memory, Settings


class Machine(Protocol):
    """One NeuronCore executing one kernel launch; `interpreter.Interpreter` is it."""

    hw: NeuronCore
    dialect: Dialect
    settings: Settings
    compute: bool  # as in settings
    trace: Trace
    findings: Findings
    launch: Launch
    memory: Memory
    loops: Loops
    core: Core
    watch: Any  # TileValues | None: looks at what instructions write
    pending: Any  # (Instr, Tensor) | None: the instruction whose result is not bound yet
    products: Any  # lazy.products.Products
    transfers: Any  # Transfers | None
    undefined: Any  # Undefined
    overflow: Any  # Overflow

    def here(self) -> int:
        """Return the line id of the user's current line."""

    def find(self, id: str, severity: str, text: str, where: int = -1, other: int = -1) -> None:
        """Add a finding, once per rule and pair of lines."""

    def new_storage(
        self,
        memory: str,
        nparts: int,
        row_bytes: int,
        *,
        grain: int = 1,
        where: int = -1,
        arena: bool = False,
        readonly: bool = False,
        shared: bool = False,
    ) -> Storage:
        """Create the bytes of a tensor; `shared` by the instances of a grid."""

    def result_tile(
        self, shape: tuple[int, ...], dtype: np.dtype, memory: str, where: int
    ) -> tuple[Storage, tuple[int, ...]]:
        """Create the storage of an instruction's result; return it and the tile's strides."""

    def place_tile(self, t: Any, idx: tuple[int, ...]) -> Any:
        """Return the physical tile of block `idx` of a directly allocated tensor."""

    def tile(self, value: Any, name: str, psum: bool = True) -> Any:
        """Return the operand `value` if it is a tile on chip that a compute engine can read."""

    def check_bounds(self, t: Any) -> None:
        """Raise if the access pattern leaves its tensor."""

    def issue(self, ins: Any) -> Any:
        """Take a planned instruction: commit it, or leave its result pending."""

    def flush(self) -> None:
        """Commit the pending instruction into a tile of its own."""

    def bind(self, ins: Any, t: Any, dst: Any) -> None:
        """Let the pending instruction write `dst`; its result tensor becomes that region."""

    def catch_up(self) -> None:
        """Compute what has been put off, since values are looked at."""

    def commit(self, ins: Any, dst: Any) -> None:
        """Check, record and execute an instruction that writes `dst`."""

    def effect(self, ins: Any) -> None:
        """Check, record and execute an instruction that writes no tensor: it sets a state."""

    def execute(self, ins: Any, dst: Any) -> None:
        """Run the row's semantics on the bytes."""

    def run(self, ins: Any, dst: Any) -> None:
        """Compute an instruction's result."""

    def assign(self, dst: Any, value: Any) -> Any:
        """Do dst[...] = value."""

    def accumulate(self, dst: Any, value: Any, op: str) -> Any:
        """Do dst += value."""

    def op(self, name: str, *args: Any, **kw: Any) -> Any:
        """Call an operation of the nl language by name (operators and assignments)."""

    def broadcast(self, t: Any, shape: tuple[int, ...]) -> Any:
        """Return `t` repeated to `shape`."""

    def loop(self, kind: str, values: range) -> Any:
        """Return the iterations of `nl.affine_range` and `nl.sequential_range`."""

    def enter(self, loop: int, parent: int, i: int) -> None:
        """Begin iteration `i` of a loop that runs in the iteration `parent` of another."""
