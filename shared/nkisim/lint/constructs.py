"""The table of Python constructs that a compiler of NKI refuses, dislikes or reads differently.

A row says, version by version, what becomes of a construct; the scans find constructs, this says
what they mean. Each row is also a page of `python -m nkisim explain`.

Sources: "guide", the NKI language guide (get-started/nki-language-guide, NKI 0.6); "migration",
the NKI migration guide (nki/migration, NKI 0.6 and 0.7); "notes", the release notes of NKI;
"announced", the announcement of 16 October 2026 (changes to NKI specialization); "parser", the
open front end of NKI 0.1 and 0.2 (leanprover/KLR, KLR/NKI/Simplify.lean); "api", the docstrings of
NKI 0.6; "builds", what teams report of compilers; "beta 1", the programming model and the page of errors of Neuron SDK 2.26.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors.rules import RULES, Rule

BETA1, NKI = "beta1", "nki"
VERSIONS = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7")
NEWEST = VERSIONS[-1]
#: the last release that specializes kernels by a compiler of its own unless it is told otherwise
#: (it can trace them as well), and the first that traces them with Python
BOTH, TRACED = "0.6", "0.7"

REFUSED = "refused"  # documents say that the compiler takes it for an error
DOUBTFUL = "doubtful"  # no document allows it, and none says that it is refused
UNLISTED = "unlisted"  # refused by a compiler that is open, and by later documents not listed
DEPRECATED = "deprecated"  # still works; a release to come drops it
DIFFERS = "differs"  # runs, and can mean something else than in Python
ACCEPTED = "accepted"

#: verdict -> how a finding of it is graded; "strict" makes errors of the warnings
SEVERITY = {
    **dict.fromkeys((REFUSED, DOUBTFUL), "warning"),
    **dict.fromkeys((UNLISTED, DEPRECATED, DIFFERS), "note"),
}


@dataclass(frozen=True)
class Construct:
    """A row: a construct, and what becomes of it.

    `verdicts`: (version from which on, verdict), ascending; kernels of beta 1 have the one version
    "beta1". `says`: one clause that follows the name of the construct in a finding.
    """

    key: str
    id: str
    dialect: str
    title: str
    verdicts: tuple[tuple[str, str], ...]
    says: str
    remedy: str
    source: str
    in_run: bool = False  # the simulator says it itself when it comes to the place

    def verdict(self, version: str) -> str:
        """Return what becomes of the construct in a version of NKI."""
        latest = ACCEPTED
        for since, verdict in self.verdicts:
            if since == BETA1 or VERSIONS.index(since) <= VERSIONS.index(version):
                latest = verdict
        return latest

    def history(self) -> str:
        """Return the verdicts as text, such as "NKI 0.1-0.2 refused, since 0.3 unlisted"."""
        if self.dialect == BETA1:
            return f"NKI beta 1: {self.verdicts[0][1]}"
        steps = []
        for n, (since, verdict) in enumerate(self.verdicts):
            if n + 1 < len(self.verdicts):
                last = VERSIONS[VERSIONS.index(self.verdicts[n + 1][0]) - 1]
                steps.append(
                    f"{since} to {last} {verdict}" if last != since else f"{since} {verdict}"
                )
            else:
                steps.append(f"since {since} {verdict}")
        return "NKI " + ", ".join(steps)

    def message(self, what: str, remedy: str = "") -> str:
        """Return the text of a finding; `what` is the construct as it was written."""
        return f"{what}: {self.says} ({self.history()}). Try: {remedy or self.remedy}"

    def rule(self) -> Rule:
        """Return the row's page."""
        text = (
            f"{self.says[0].upper()}{self.says[1:]}. {self.history()} (source: {self.source})."
            f"\nTry: {self.remedy}."
        )
        refused = any(verdict == REFUSED for _, verdict in self.verdicts)
        return Rule(
            self.id,
            self.title,
            text,
            hint=self.remedy,
            refused=SEVERITY[REFUSED] if refused else "",
        )


#: outside the subset that the parser reads; since 0.7 Python itself runs what is no instruction
OLD = (("0.1", REFUSED), ("0.3", UNLISTED), (TRACED, ACCEPTED))
#: what builds of 0.6 have refused as well, and none of the later documents lists
UNTIL_TRACED = (("0.1", REFUSED), (TRACED, ACCEPTED))
ALWAYS = (("0.1", REFUSED),)

_SUBSET = (
    "before 0.7 NKI is a subset of Python, and this is not in it: the compiler of 0.1 and "
    "0.2 refuses it, and the language guide of later ones does not list it"
)

_ROWS: tuple[Construct, ...] = (
    # -- the new dialect: statements
    Construct(
        "try",
        "NKI-G01",
        NKI,
        "Kernels have no try statement",
        OLD,
        _SUBSET,
        "test beforehand, with if or assert",
        "parser, guide",
    ),
    Construct(
        "raise",
        "NKI-G02",
        NKI,
        "Kernels have no raise statement",
        OLD,
        _SUBSET,
        "assert condition, message",
        "parser, guide",
    ),
    Construct(
        "with",
        "NKI-G03",
        NKI,
        "with is for nl.no_reorder() alone",
        OLD,
        "the only context of a kernel is nl.no_reorder(), without `as`",
        "open files and contexts before the launch",
        "parser, guide",
    ),
    Construct(
        "import",
        "NKI-G04",
        NKI,
        "Kernels import at the top of the file",
        UNTIL_TRACED,
        "the compiler reads the source of a kernel and of what it calls, and takes no import "
        "statement in a function: a build of 0.6 says so",
        "move the import to the top of the file",
        "parser, builds",
    ),
    Construct(
        "global",
        "NKI-G05",
        NKI,
        "Kernels have no global variables",
        (("0.1", REFUSED), ("0.3", UNLISTED), (TRACED, DIFFERS)),
        "a kernel is compiled once for its arguments and kept: what it keeps in or reads from "
        "a variable outside is not noticed when it changes",
        "pass it as an argument, return it as a result",
        "parser, guide",
    ),
    Construct(
        "delete",
        "NKI-G06",
        NKI,
        "Kernels have no del statement",
        OLD,
        _SUBSET,
        "leave it out: tiles live as long as they are used",
        "parser",
    ),
    Construct(
        "loop_else",
        "NKI-G07",
        NKI,
        "Loops have no else",
        OLD,
        _SUBSET,
        "a flag that is set before break",
        "parser",
    ),
    Construct(
        "loop_target",
        "NKI-G08",
        NKI,
        "A loop has one variable",
        OLD,
        "the variable of a for statement is one name, and a tuple is taken apart in the body; "
        "the compiler of 0.1 and 0.2 refuses more, and the language guide shows no other",
        "for pair in pairs: a, b = pair",
        "parser",
    ),
    Construct(
        "match",
        "NKI-G09",
        NKI,
        "Kernels have no match statement",
        OLD,
        _SUBSET,
        "if and elif",
        "parser",
    ),
    Construct(
        "async",
        "NKI-G10",
        NKI,
        "Kernels are plain functions",
        ALWAYS,
        "yield and await make a function that stops and goes on; a kernel is one list of "
        "instructions",
        "return a list or a tuple",
        "parser, guide",
    ),
    Construct(
        "generator",
        "NKI-G39",
        NKI,
        "Generators came with tracing",
        (("0.1", REFUSED), (TRACED, ACCEPTED)),
        "a function that yields, which a kernel calls, is not supported before 0.7",
        "return a list",
        "parser, notes 0.7",
    ),
    Construct(
        "nested_function",
        "NKI-G11",
        NKI,
        "Functions are defined outside of kernels",
        (("0.1", REFUSED), ("0.3", UNLISTED), ("0.6", ACCEPTED)),
        "a function in a function is refused by the compiler of 0.1 and 0.2; since 0.6 it is "
        "how nl.fori_loop takes its body",
        "define it at the top of the file and pass it what it uses",
        "parser, migration",
    ),
    # -- expressions
    Construct(
        "lambda",
        "NKI-G12",
        NKI,
        "Kernels have no lambda",
        OLD,
        _SUBSET,
        "a function at the top of the file; functions can be passed as values",
        "parser",
    ),
    Construct(
        "comprehension",
        "NKI-G13",
        NKI,
        "Kernels have no comprehensions",
        OLD,
        _SUBSET,
        "a for statement and append",
        "parser",
    ),
    Construct(
        "tile_comprehension",
        "NKI-G44",
        NKI,
        "Tiles are not made in comprehensions",
        UNTIL_TRACED,
        "the compiler of 0.1 and 0.2 has no comprehensions, and builders say that 0.6 refuses "
        "one that makes tiles",
        "a for statement and append",
        "parser, builds",
    ),
    Construct(
        "walrus",
        "NKI-G14",
        NKI,
        "Kernels have no :=",
        OLD,
        _SUBSET,
        "assign in a statement of its own",
        "parser",
    ),
    Construct(
        "format_spec",
        "NKI-G15",
        NKI,
        "f-strings have no format specifications",
        OLD,
        "the compiler of 0.1 and 0.2 formats values as they are and with !r, and refuses "
        "what stands after a colon",
        "leave out the colon and what follows it",
        "parser",
    ),
    Construct(
        "starred",
        "NKI-G16",
        NKI,
        "Calls and lists have no * and **",
        OLD,
        _SUBSET,
        "write the arguments out",
        "parser",
    ),
    Construct(
        "identity",
        "NKI-G17",
        NKI,
        "is compares with None alone",
        (("0.1", DEPRECATED), ("0.3", REFUSED), (TRACED, ACCEPTED)),
        "`is` asks for the identity of Python objects, which a kernel that is parsed has not; "
        "the compilers of 0.3 to 0.6 refuse it. `is None` is common in AWS's own kernels and "
        "is not reported",
        "== and !=",
        "notes 0.3, migration",
    ),
    Construct(
        "matmul_operator",
        "NKI-G18",
        NKI,
        "@ is not the Tensor Engine",
        (("0.1", REFUSED), (TRACED, ACCEPTED)),
        "there is no @ in NKI",
        "nisa.nc_matmul(dst=, stationary=, moving=)",
        "parser",
    ),
    Construct(
        "builtin",
        "NKI-G19",
        NKI,
        "Not every builtin of Python is there",
        OLD,
        "the compiler of 0.1 and 0.2 knows isinstance, type, slice, print, min, max, abs, "
        "str, bool, int, float, divmod, tuple, list, dict, len and range; the language guide "
        "of later ones lists no other",
        "a for statement over range(len(x))",
        "parser",
    ),
    Construct(
        "reflection",
        "NKI-G45",
        NKI,
        "Kernels do not look at Python itself",
        UNTIL_TRACED,
        "repr, vars, dir, id, hash, globals, eval and their like ask Python about its objects: "
        "the compiler resolves no such name (failed to resolve name 'builtins.repr', a build of "
        "0.6)",
        "print(x) or an f-string; compute it before the launch",
        "parser, builds",
    ),
    Construct(
        "numpy_call",
        "NKI-G20",
        NKI,
        "NumPy computes outside of kernels",
        OLD,
        "NumPy works on arrays of the host. The compiler of 0.1 and 0.2 does not know it; in "
        "later ones it computes constants at best",
        "compute before the launch and pass the result; nl.shared_constant(array) for a "
        "constant array; the math module for numbers",
        "parser, api",
    ),
    Construct(
        "math_function",
        "NKI-G21",
        NKI,
        "Not all of math is there",
        OLD,
        "the compiler of 0.1 and 0.2 knows ceil, floor, gcd, log2, log10, pow, sqrt and the "
        "constants pi, e, inf and nan",
        "compute it before the launch",
        "parser",
    ),
    Construct(
        "list_method",
        "NKI-G22",
        NKI,
        "Some methods of lists are not Python's",
        (("0.1", DIFFERS), ("0.3", ACCEPTED)),
        "in 0.1 and 0.2 list.count() is the length, list.index gives None for what is not "
        "there, list.remove takes all that are equal, and list.pop the last element only",
        "len(x), a loop, x.pop()",
        "parser",
    ),
    Construct(
        "shape_is_list",
        "NKI-G23",
        NKI,
        "A shape is a tuple",
        (("0.1", DIFFERS),),
        "a tuple never equals a list, so this comparison is always false",
        "t.shape == (128, 512)",
        "parser, api",
    ),
    Construct(
        "string_keys",
        "NKI-G24",
        NKI,
        "Keys of a dict are strings",
        OLD,
        "dicts of a kernel have strings as keys",
        "str keys, or a list",
        "migration",
    ),
    # -- tensors
    Construct(
        "operator",
        "NKI-G25",
        NKI,
        "Tensors have no operators",
        ALWAYS,
        "tensors have no + - * / and no comparisons: an instruction says where its result goes",
        "nisa.tensor_tensor(dst=, data1=, data2=, op=nl.add), or nl.add(a, b)",
        "parser, migration",
    ),
    Construct(
        "assign_item",
        "NKI-G26",
        NKI,
        "Tensors are written by instructions",
        (("0.1", REFUSED), ("0.3", UNLISTED)),
        "the compiler of 0.1 and 0.2 turns t[...] = nisa.f() into dst= with a warning and "
        "refuses everything else; later documents show no such assignment",
        "nisa.f(dst=t[...], ...)",
        "parser, migration",
        in_run=True,
    ),
    Construct(
        "tile_condition",
        "NKI-G27",
        NKI,
        "Conditions are decided when a kernel is compiled",
        ALWAYS,
        "data in a tensor is not known when the kernel is compiled, so no if, while, "
        "and, or, not can ask for it",
        "nisa.tensor_copy_predicated or nisa.select_reduce for "
        "elements, nl.while_loop with a register for loops",
        "guide",
    ),
    Construct(
        "register_condition",
        "NKI-G28",
        NKI,
        "Registers decide loops through functions",
        (("0.1", ACCEPTED), ("0.6", DEPRECATED), (TRACED, REFUSED)),
        "`while register:` is deprecated in 0.6 and gone in 0.7: a register has no value while "
        "Python traces a kernel, so it is nothing for if, while, int() or range()",
        "nl.while_loop(register, body); what is not migrated yet compiles with "
        "NKI_COMPILER_FRONTEND=custom",
        "notes 0.6, announced, api",
        in_run=True,
    ),
    Construct(
        "dynamic_range",
        "NKI-G29",
        NKI,
        "dynamic_range is gone",
        (("0.1", ACCEPTED), ("0.6", DEPRECATED), (TRACED, REFUSED)),
        "loops over dynamic_range are deprecated in 0.6 and gone in 0.7",
        "nl.fori_loop(lower, upper, body); what is not migrated yet compiles with "
        "NKI_COMPILER_FRONTEND=custom",
        "notes 0.6, announced",
        in_run=True,
    ),
    Construct(
        "dynamic_exit",
        "NKI-G30",
        NKI,
        "A loop on the chip has no way out",
        ALWAYS,
        "the body of a loop over dynamic_range becomes a loop of the chip: break, continue and "
        "return cannot leave it",
        "nl.while_loop with a register that says when to stop",
        "parser, api",
    ),
    Construct(
        "old_range",
        "NKI-G31",
        NKI,
        "range is enough",
        (("0.1", ACCEPTED), ("0.5", DEPRECATED)),
        "affine_range, sequential_range and static_range are range under other names, and "
        "deprecated",
        "range(n)",
        "api",
    ),
    Construct(
        "body_state",
        "NKI-G41",
        NKI,
        "The body of a loop of the chip is traced once",
        (("0.1", ACCEPTED), (TRACED, DIFFERS)),
        "nl.fori_loop and nl.while_loop call their body once, for all iterations: what it "
        "changes in Python it changes once, where the simulator does so in each iteration",
        "keep what goes on from one iteration to the next in a tile",
        "migration, guide",
    ),
    # -- signatures and calls
    Construct(
        "keyword_only",
        "NKI-G32",
        NKI,
        "Kernels have no keyword-only parameters",
        (("0.1", ACCEPTED), ("0.3", REFUSED), (TRACED, UNLISTED)),
        "the compilers of 0.3 to 0.6 refuse the * in the signature of a kernel",
        "put parameters with defaults at the end",
        "notes 0.3, migration",
    ),
    Construct(
        "varargs",
        "NKI-G33",
        NKI,
        "Kernels have no *args",
        OLD,
        "a kernel is compiled for named arguments",
        "a tuple as one argument",
        "parser",
    ),
    Construct(
        "list_argument",
        "NKI-G34",
        NKI,
        "Lists are no arguments of kernels",
        (("0.1", ACCEPTED), ("0.3", REFUSED), (TRACED, UNLISTED)),
        "arguments are kept beside the compiled kernel and must not change; a list can",
        "a tuple",
        "notes 0.3, migration",
    ),
    Construct(
        "string_buffer",
        "NKI-G35",
        NKI,
        "Buffers are objects, not strings",
        (("0.1", ACCEPTED), ("0.3", REFUSED)),
        "buffer= takes nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm since 0.3",
        "buffer=nl.sbuf",
        "notes 0.3, migration",
    ),
    Construct(
        "integer_enum",
        "NKI-G36",
        NKI,
        "Members of enums have names",
        (("0.1", ACCEPTED), ("0.3", REFUSED)),
        "engine, dge_mode, oob_mode, reduce_cmd, dma_engine and perf_mode take members since "
        "0.3, no numbers (those behind them have changed) and no strings",
        "nisa.dge_mode.hwdge",
        "notes 0.3, migration",
        in_run=True,
    ),
    Construct(
        "jit_target",
        "NKI-G37",
        NKI,
        "The target is no argument of nki.jit",
        (("0.1", ACCEPTED), ("0.3", REFUSED)),
        "nki.jit(platform_target=...) raises since 0.3",
        "the variable NEURON_PLATFORM_TARGET_OVERRIDE",
        "notes 0.3",
    ),
    Construct(
        "older_call",
        "NKI-G43",
        NKI,
        "Calls of older releases",
        (("0.1", ACCEPTED), ("0.3", REFUSED)),
        "releases up to 0.2, of some calls 0.3, have it so, and later ones refuse it. It can "
        "mean nothing else, so it runs as it was meant",
        "what the finding names; NKI_LANGUAGE_VERSION=0.2 takes all such calls",
        "migration",
        in_run=True,
    ),
    Construct(
        "plain_class",
        "NKI-G38",
        NKI,
        "Classes of kernels are NKIObjects",
        (("0.1", ACCEPTED), ("0.3", UNLISTED), (TRACED, ACCEPTED)),
        "a class that a kernel makes objects of has the base NKIObject, Enum or NamedTuple: "
        "so say the guides of 0.3 to 0.6; the parser of 0.1 and 0.2 takes one without a base",
        "class C(nl.NKIObject): ...",
        "parser, guide",
    ),
    Construct(
        "subclass",
        "NKI-G42",
        NKI,
        "Inheritance came with tracing",
        (("0.1", REFUSED), (TRACED, ACCEPTED)),
        "a class that inherits from another one of yours is not supported before 0.7",
        "one class with all fields",
        "notes 0.7",
    ),
    Construct(
        "class_equality",
        "NKI-G40",
        NKI,
        "== on objects is Python's",
        (("0.1", ACCEPTED), (TRACED, DIFFERS)),
        "since 0.7 == on objects of your classes is that of Python, the same object unless the "
        "class has an __eq__ (a dataclass has); earlier compilers had one of their own",
        "@dataclass on the class, or compare the fields",
        "announced, migration 0.7",
    ),
    Construct(
        "dtype_of_numpy",
        "NKI-G46",
        NKI,
        "A dtype is compared with one of nl",
        (("0.1", DIFFERS),),
        "the dtype of a tensor is the name of a type of nl, and no class of NumPy equals a name: "
        "the comparison is False whatever the dtype is. In neuronxcc.nki nl.float32 is NumPy's",
        "nl.float32 in the place of np.float32",
        "api",
    ),
    # -- beta 1
    Construct(
        "condition_on_index",
        "NKI-L06",
        BETA1,
        "Conditions on a loop index belong into `if` statements",
        ((BETA1, DIFFERS),),
        "the SDK traces the body once, with a symbol for the index, and an expression cannot "
        "pick in every iteration as it does here",
        "an if statement; & between comparisons in a mask",
        "beta 1",
    ),
    Construct(
        "counter",
        "NKI-L07",
        BETA1,
        "Python variables change once in a traced loop",
        ((BETA1, DIFFERS),),
        "the SDK traces the body of affine_range and sequential_range once, so a Python "
        "variable that an iteration changes is changed once",
        "compute it from the index (i * 2 + 1); nl.static_range",
        "beta 1",
        in_run=True,
    ),
    Construct(
        "builtin_on_index",
        "NKI-L08",
        BETA1,
        "Loop indices are symbols to builtins",
        ((BETA1, DOUBTFUL),),
        "in affine_range and sequential_range the index is a symbol when the SDK traces the "
        "body, and min, max, abs, int, range and their like want a number. The simulator runs "
        "them in every iteration",
        "nl.static_range, whose index is an int; a mask for the last tile instead of min(...)",
        "beta 1",
    ),
    Construct(
        "old_while",
        "NKI-L09",
        BETA1,
        "Kernels have no while loops",
        ((BETA1, REFUSED),),
        "beta 1 has no while statement in kernels but the one of nl.scalar(True), which begins "
        "unconditionally (err_while_loop_requires_unconditional_entry)",
        "for i in nl.static_range(n)",
        "beta 1",
    ),
    Construct(
        "out_of_scope",
        "NKI-L01",
        BETA1,
        "A tile lives in the loop body that made it",
        ((BETA1, REFUSED),),
        "the body of a loop is a scope, and what is made in it is gone after it "
        "(err_local_variable_used_out_of_scope)",
        "create the tile before the loop and write it: t[...] = value",
        "beta 1",
        in_run=True,
    ),
    Construct(
        "out_of_block",
        "NKI-L11",
        BETA1,
        "The body of an if or a loop is a scope",
        ((BETA1, DIFFERS),),
        "AWS's page of errors has a tile that is made in an if under a Python loop and used "
        "after it as an error (err_local_variable_used_out_of_scope); kernels that do so "
        "have compiled all the same",
        "create the tile before it and write it: t[...] = value",
        "beta 1",
    ),
    Construct(
        "old_tile_condition",
        "NKI-I08",
        BETA1,
        "Conditions cannot ask for data",
        ((BETA1, REFUSED),),
        "data in a tile is not known when the kernel is traced "
        "(err_dynamic_control_flow_not_supported)",
        "nl.where(condition, x, y)",
        "beta 1",
        in_run=True,
    ),
)

CONSTRUCTS: dict[str, Construct] = {row.key: row for row in _ROWS}
for _row in _ROWS:  # what the run finds as well has its page among the rules
    RULES.setdefault(_row.id, _row.rule())
