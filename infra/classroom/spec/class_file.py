"""class.yml: what a class is. Every mistake of both files is found in one pass, with its line and a
remedy."""

from __future__ import annotations

import datetime as dt
import difflib
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from zoneinfo import ZoneInfo

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
)

from ..aws import organisations, rate_limit
from ..aws.problems import BadClass, Problem
from . import assistants, clusters, courses, crosschecks, fields, instance_types, yaml_source
from . import roster as rosters
from . import sdk as sdks
from .roster import Student


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Budget(_Strict):
    """Say how many dollars a student and the class may cost."""

    per_student_usd: Annotated[float, Field(gt=0, le=10_000)] = 50
    class_usd: Annotated[float, Field(gt=0, le=1_000_000)]
    # of a budget that needs no tag: whatever the account pays for counts. None: class_usd; 0: no
    # such budget, for accounts that pay for other things, too
    account_usd: Annotated[float, Field(ge=0, le=10_000_000)] | None = None
    extra_usd: dict[str, Annotated[float, Field(ge=0, le=10_000)]] = {}  # student -> more
    stop_each: bool = False  # AWS stops a student's machine at per_student_usd; it charges for it
    in_aws: bool = True  # false: an account that may not have budgets; `budget: none` says so too


class Idle(_Strict):
    """Say when a machine counts as idle."""

    cpu_percent: Annotated[float, Field(gt=0, le=20)] = 1
    minutes: Annotated[int, Field(ge=5, le=120, multiple_of=5)] = 15
    grace_minutes: Annotated[int, Field(ge=1, le=60)] = 5


class Lab(_Strict):
    """Hold the repository and the commit that students work on."""

    repository: Annotated[str, AfterValidator(fields.repository)]
    commit: Annotated[str, BeforeValidator(fields.commit)]
    extras: list[str] = ["labs"]


class Block(_Strict):
    """Say how long a capacity block lasts and what it may cost, in all."""

    hours: Annotated[int, Field(ge=24, le=4368, multiple_of=24)]
    max_upfront_usd: Annotated[float, Field(gt=0)]


class Cluster(_Strict):
    """Say how large a Slurm cluster is and what one student may take of it."""

    nodes: Annotated[int, Field(ge=1, le=64)]
    core_hours_per_student: Annotated[float, Field(gt=0, le=10_000)] = 20
    devices_per_student: Annotated[int, Field(ge=1, le=64)] = 1  # at the same time
    interactive_minutes: Annotated[int, Field(ge=5, le=720)] = 60
    batch_minutes: Annotated[int, Field(ge=5, le=1440)] = 120


class Reservation(_Strict):
    """Say for which days capacity is kept, and what that may cost."""

    begins: dt.date
    ends: dt.date
    max_usd: Annotated[float, Field(gt=0, le=1_000_000)]


class ClassSpec(_Strict):
    """Hold a class as class.yml describes it."""

    name: Annotated[str, AfterValidator(fields.name)]
    account: Annotated[str, BeforeValidator(fields.account)] = ""
    contact: Annotated[str, AfterValidator(fields.email)]
    regions: Annotated[
        list[Annotated[str, AfterValidator(fields.region)]], Field(min_length=1, max_length=6)
    ]
    instance_type: Annotated[str, AfterValidator(fields.machine)] = "trn1.2xlarge"
    mode: Literal["per-student", "shared", "cluster"] = "per-student"
    cluster: Cluster | None = None
    market: Literal["on-demand", "spot", "capacity-block"] = "on-demand"
    capacity_block: Block | None = None
    reservations: Annotated[list[Reservation], Field(max_length=10)] = []
    sdk: Annotated[str, BeforeValidator(fields.sdk)]
    dialect: Literal["neuronxcc.nki", "nki"] = "neuronxcc.nki"
    # decides the two above and instance_type
    course: Annotated[Literal["trn1", "trn2"] | None, BeforeValidator(fields.course)] = None
    profiler: Literal["auto", "neuron-profile", "neuron-explorer"] = "auto"
    influx_org: str = "trainium-labs"
    influx_bucket: str = "neuron-profile"
    disk_gib: Annotated[int, Field(ge=110, le=2000)] = (
        150  # the Neuron image's snapshot alone is 100 GiB
    )
    ssh_cidrs: Annotated[
        list[Annotated[str, AfterValidator(fields.cidr)]], Field(max_length=50)
    ] = []
    reach: Literal["public", "session-manager", "instance-connect"] = "public"
    vpc: Annotated[dict[str, str], BeforeValidator(fields.vpc)] = {}  # region -> id
    subnets: Annotated[dict[str, list[str]], BeforeValidator(fields.subnets)] = {}
    tags: Annotated[dict[str, str], BeforeValidator(fields.tags)] = {}  # on all that is made
    boundary: Annotated[str, AfterValidator(fields.boundary)] = ""  # of the roles, an ARN
    allow_world: str = ""
    staff_key: str = "~/.ssh/id_ed25519.pub"
    elastic_ip: bool = False
    budget: Budget
    hours_per_student: Annotated[float, Field(gt=0, le=2000)] = 30
    my: Literal["", "lambda"] = ""  # "lambda": students start and stop their own machine
    mail_from: Annotated[str, AfterValidator(fields.optional_email)] = ""
    stop_nightly: Annotated[str, BeforeValidator(fields.clock)]
    time_zone: Annotated[str, AfterValidator(fields.zone)]
    idle: Idle = Idle()
    teardown: dt.date
    save_work: bool = True
    work_copies: Literal["", "s3"] = ""  # "s3": copies of the work that outlive disks
    lab: Lab
    roster: str = "roster.csv"
    prices: str = ""

    _folder: Path = PrivateAttr(default=Path("."))
    _students: list[Student] = PrivateAttr(default_factory=list)
    _staff_public_key: str = PrivateAttr(default="")
    _assistants: list[assistants.Assistant] = PrivateAttr(default_factory=list)

    @property
    def students(self) -> list[Student]:
        """Return the rows of the roster."""
        return self._students

    @property
    def assistants(self) -> list[assistants.Assistant]:
        """Return the rows of staff.csv."""
        return self._assistants

    @property
    def private(self) -> bool:
        """Return whether machines have no public address."""
        return self.reach != "public"

    @property
    def staff_public_key(self) -> str:
        """Return the text of the staff key file."""
        return self._staff_public_key

    def cap(self, students: list[str]) -> float:
        """Return how many dollars the machine of these students may cost."""
        extra = self.budget.extra_usd
        if self.cluster and not {s.id for s in self.students} & set(students):
            return self.cap([s.id for s in self.students]) / self.cluster.nodes  # a node's share
        return sum(self.budget.per_student_usd + extra.get(s, 0.0) for s in students)

    @property
    def folder(self) -> Path:
        """Return the folder of class.yml."""
        return self._folder

    @property
    def out(self) -> Path:
        """Return the folder for student pages, keys and reports; git ignores it."""
        return self._folder / "out" / self.name

    @property
    def machine(self) -> instance_types.MachineType:
        """Return the facts about the instance type."""
        return instance_types.TYPES.get(self.instance_type, instance_types.DRILL)

    @property
    def teardown_at(self) -> dt.datetime:
        """Return the moment of the final teardown, 06:00 local time."""
        return dt.datetime.combine(self.teardown, dt.time(6), ZoneInfo(self.time_zone))

    @property
    def profiler_kind(self) -> str:
        """Return the profiler with `auto` resolved."""
        return sdks.profiler_for(self.sdk) if self.profiler == "auto" else self.profiler


# What pydantic finds by itself, said in our words: type -> (what, remedy). {…} come from the
# error's context.
_WORDS = {
    "missing": ("`{field}` is missing.", "See infra/examples/class.yml for a filled-in one."),
    "extra_forbidden": ("`{field}` is not a known key.", "{near}"),
    "literal_error": ("`{field}` is {value}, which is not one of the choices.", "Use {expected}."),
    "date_from_datetime_parsing": (
        "`{field}` is {value}, which is not a date.",
        "Write it as 2027-01-15.",
    ),
    "date_parsing": ("`{field}` is {value}, which is not a date.", "Write it as 2027-01-15."),
    "date_type": ("`{field}` is {value}, which is not a date.", "Write it as 2027-01-15."),
    "greater_than": ("`{field}` is {value}; it must be above {gt}.", "Write a larger number."),
    "greater_than_equal": ("`{field}` is {value}; the least is {ge}.", "Write a larger number."),
    "less_than_equal": ("`{field}` is {value}; the most is {le}.", "Write a smaller number."),
    "multiple_of": ("`{field}` is {value}; it must be a multiple of {multiple_of}.", "Round it."),
    "too_short": ("`{field}` is empty.", "Write at least one."),
    "too_long": ("`{field}` has too many entries.", "At most {max_length}."),
    "list_type": ("`{field}` is {value}, which is not a list.", "Write it in brackets: [a, b]."),
    "string_type": ("`{field}` is {value}, which is not text.", "Put it in quotes."),
    "float_parsing": ("`{field}` is {value}, which is not a number.", "Write one, without quotes."),
    "float_type": ("`{field}` is {value}, which is not a number.", "Write one, without quotes."),
    "int_parsing": ("`{field}` is {value}, which is not a number.", "Write a whole one."),
    "int_type": ("`{field}` is {value}, which is not a number.", "Write a whole one."),
    "int_from_float": ("`{field}` is {value}, which is not a whole number.", "Round it."),
    "bool_parsing": ("`{field}` is {value}, not true or false.", "Write true or false."),
    "bool_type": ("`{field}` is {value}, not true or false.", "Write true or false."),
    "model_type": (
        "`{field}` is {value}, which has no keys of its own.",
        "See infra/examples/class.yml.",
    ),
}


def _say(error: dict[str, Any]) -> tuple[str, str]:
    context = error.get("ctx") or {}
    if error["type"] == "classroom":
        return context["what"], context["remedy"]
    loc = error["loc"]
    field = ".".join(str(p) for p in loc)
    model: Any = ClassSpec
    for part in loc[:-1]:
        models = {"budget": Budget, "idle": Idle, "lab": Lab, "cluster": Cluster}
        model = {**models, "capacity_block": Block}.get(part, model)
    near = difflib.get_close_matches(str(loc[-1]) if loc else "", list(model.model_fields), 1, 0.5)
    if error.get("input", "") is None and error["type"] != "missing":
        return f"`{field}` is empty.", "Write a value, or remove the line."
    words = _WORDS.get(
        error["type"],
        ("`{field}` is {value}: " + error["msg"] + ".", "See infra/examples/class.yml."),
    )
    values = {
        "field": field,
        "value": repr(error.get("input"))[:60],
        "near": f"Did you mean `{near[0]}`?" if near else "Remove it.",
        **context,
    }
    return words[0].format_map(values), words[1].format_map(values)


def load(path: str | Path, now: dt.datetime | None = None, *, ended_ok: bool = False) -> ClassSpec:
    """Read class.yml and its roster; raise BadClass with every mistake, or return the class.

    A class whose teardown date has passed is a mistake, unless `ended_ok`: it can still be looked
    at and stopped.
    """
    path = Path(path)
    now = now or rate_limit.now()
    shown = path.name
    try:
        text = path.read_text(encoding="utf-8-sig")
        source = yaml_source.load(text)
    except FileNotFoundError:
        asks = f"`python -m classroom init {path.parent if path.suffix else path}` asks"
        remedy = f"{asks} and writes it, or copy infra/examples/class.yml."
        raise BadClass([Problem(str(path), 1, "The file does not exist.", remedy)]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        what = f"This is not YAML: {getattr(error, 'problem', None) or error}."
        line, remedy = mark.line + 1 if mark else 1, "Check the indentation and the quotes."
        raise BadClass([Problem(shown, line, what, remedy)]) from None
    data = source.data
    if not isinstance(data, dict):
        what, remedy = "The file holds no `key: value` pairs.", "Copy infra/examples/class.yml."
        raise BadClass([Problem(shown, 1, what, remedy)])

    problems = [
        Problem(shown, line, f"`{key}` is written twice.", "Remove one.")
        for line, key in source.duplicates()
    ]

    def add(loc: tuple, what: str, remedy: str) -> None:
        problems.append(Problem(shown, source.line(tuple(loc)), what, remedy))

    folder = path.resolve().parent
    students, roster_problems = rosters.read(
        folder / str(data.get("roster") or "roster.csv"), str(data.get("roster") or "roster.csv")
    )
    if data.get("budget") == organisations.NO_BUDGET:
        data["budget"] = organisations.own_budget(len(students))
    courses.fill(data)
    spec, good = None, dict(data)
    try:
        spec = ClassSpec.model_validate(data)
        good = {name: getattr(spec, name) for name in ClassSpec.model_fields if name in data}
    except ValidationError as error:
        for e in error.errors():
            add(e["loc"], *_say(dict(e)))
            if e["loc"]:
                good.pop(e["loc"][0], None)
        for name in list(good):  # coerce what is right, so that cross checks see the same types
            field = ClassSpec.model_fields.get(name)
            if field is not None:
                hints = (field.annotation, *(field.metadata or [None]))
                good[name] = TypeAdapter(cast(Any, Annotated[hints])).validate_python(good[name])
    problems += roster_problems
    more = clusters.problems(good, data.get("cluster") is not None, students)
    more = [*more, *organisations.check(good, data), *courses.check(good)]
    for loc, what, remedy in [*crosschecks.check(good, students, now, ended_ok), *more]:
        add(loc, what, remedy)
    if isinstance(good.get("prices"), str) and good["prices"]:
        itype = str(good.get("instance_type") or "trn1.2xlarge")
        market = str(good.get("market") or "on-demand")
        problem = instance_types.price_problem(folder / good["prices"], itype, market)
        if problem:
            add(("prices",), *problem)
    given = str(data.get("staff_key") or ClassSpec.model_fields["staff_key"].default)
    staff_key, problem = assistants.staff_key(given, folder)
    if problem:
        add(("staff_key",), *problem)
    staff, staff_problems = assistants.read(folder / assistants.FILE)
    problems += staff_problems
    if problems or spec is None:
        raise BadClass(problems)
    spec._folder, spec._students, spec._staff_public_key = folder, students, staff_key
    spec._assistants = staff
    return spec
