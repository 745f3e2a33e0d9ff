"""How far a student is with a lab: `python -m labkit LAB`, and `progress("LAB")` in a notebook.

A step is not started, failing, too slow or passing. A page and a notebook also show what the lines
of each kernel read and write, drawn from its own run.
"""

from __future__ import annotations

import argparse
import linecache
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from rich.table import Table

from .cli import known_labs
from .dialect import DEFAULT_TARGET, default_dialect
from .evaluate import FAILED, Outcome, evaluate, exit_code
from .inputs import make_inputs
from .load import load_module
from .show import add_json, answer, show_failures, show_table, step_state, terminal
from .show import progress as bar_of
from .spec import TARGETS, Case, Lab, SpecError, Step

COLORS = {"passing": "#2f7d51", "failing": "#c11f5c", "too slow": "#96531a"}
#: labs whose drawing would have more lines than a reader looks at are not drawn
INSTRUCTIONS = 200


@dataclass
class State:
    """A step of a lab: its state, the runs of its cases, and drawings by case."""

    step: Step
    state: str
    outcomes: list[Outcome]
    drawings: dict[str, str] = field(default_factory=dict)


class Progress:
    """The steps of a lab that have cases; notebooks show a table, and below it the drawings."""

    def __init__(self, lab: Lab, target: str, states: list[State]):
        self.lab, self.target, self.states = lab, target, states

    @property
    def passing(self) -> int:
        """Return the number of steps that are done."""
        return sum(s.state == "passing" for s in self.states)

    def __repr__(self) -> str:
        rows = [f"{s.state:<12} {s.step.section}" for s in self.states]
        return "\n".join([self.headline(), *rows])

    def headline(self) -> str:
        """Return how many steps pass."""
        return f"{self.lab.name}: {self.passing} of {len(self.states)} passing"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(s.step.section)}</td><td><b style='color:"
            f"{COLORS.get(s.state, 'inherit')}'>{escape(s.state)}</b></td></tr>"
            for s in self.states
        )
        details = "".join(self._details(s) for s in self.states if s.state != "not started")
        return f"<p><b>{escape(self.headline())}</b></p><table>{rows}</table>{details}"

    def _details(self, s: State) -> str:
        """Return what one step's runs said and drew: folded, unless it is the only one."""
        details = "".join(
            f"<pre style='white-space:pre-wrap'>{escape(o.detail or o.text)}</pre>"
            for o in s.outcomes
            if o.status == FAILED or (s.state == "too slow" and o.text)
        )
        drawn = "".join(f"<div style='overflow-x:auto'>{svg}</div>" for svg in s.drawings.values())
        opened = " open" if len(self.states) == 1 else ""
        return (
            f"<details{opened}><summary>{escape(s.step.section)}: {escape(s.state)}</summary>"
            f"{details}{drawn}</details>"
            if details or drawn
            else ""
        )


def drawing(lab: Lab, case: Case, target: str) -> str:
    """Return the drawing of a kernel on the inputs of a case, as SVG."""
    import nkisim

    linecache.checkcache()  # the student has changed the file since
    module = load_module(lab.kernels, "kernels_drawn")
    for name, value in case.constants.items():
        setattr(module, name, value)
    made = nkisim.draw(
        getattr(module, case.kernel),
        *make_inputs(case, lab.seed),
        target=target,
        **case.kwargs,
        **case.kernel_kwargs,
    )
    return str(made.svg)


def run_steps(lab: Lab, target: str, steps: Sequence[Step], draw: bool = False) -> Progress:
    """Run the quick cases of some steps; with `draw`, draw those whose kernels came to an end."""
    names = {name for step in steps for name in step.cases}
    runs = [(case, target) for case in lab.fleet("quick", target) if case.name in names]
    if not runs:
        raise SpecError(f"no quick case of these steps of {lab.name} is for {target}")
    console, outcomes = terminal(), []
    with bar_of(console) as bar:
        task = bar.add_task(lab.label, total=len(runs))
        for outcome in evaluate(lab, runs):
            outcomes.append(outcome)
            bar.advance(task)
    states = []
    for step in steps:
        of_step = [o for o in outcomes if o.case.name in step.cases]
        if of_step:
            states.append(State(step, step_state(of_step, step.speed), of_step))
    for state in states if draw else ():
        for o in state.outcomes:
            if o.stats and sum(o.stats["instructions"].values()) <= INSTRUCTIONS:
                state.drawings[o.case.name] = drawing(lab, o.case, target)
    return Progress(lab, target, states)


def chosen(lab: Lab, step: int | None, target: str | None) -> tuple[Lab, str, list[Step]]:
    """Return a lab in the dialect that is written here, the generation, and the steps asked for."""
    default, _ = default_dialect(lab.folder)
    lab = lab.speaking(default) if default in lab.dialects else lab
    steps = [s for s in lab.steps if step in (None, s.number)]
    if not steps:
        numbers = ", ".join(str(s.number) for s in lab.steps)
        raise SpecError(f"the lab {lab.name} has no step {step}; its steps: {numbers or 'none'}")
    return lab, target or DEFAULT_TARGET[lab.dialect], steps


def progress(name: str, step: int | None = None, target: str | None = None) -> Progress:
    """Return how far the kernels of a lab are, as a table that a notebook shows.

    Args: the lab's name; the number of one step, which is then shown with its report and drawing
    (default: all steps); the generation (default: trn1, for kernels of nki trn2).
    Raises: SpecError for a lab or a step that there is not.
    """
    _, load = known_labs()
    lab, target, steps = chosen(load([name])[0], step, target)
    return run_steps(lab, target, steps, draw=True)


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body{{font:15px system-ui,sans-serif;max-width:720px;margin:2em auto;padding:0 1em}}
td{{padding:.15em 1em .15em 0}}details{{margin:.6em 0}}
@media(prefers-color-scheme:dark){{body{{background:#14171c;color:#e8ebf0}}}}</style>
<h1>{title}</h1>{body}</html>
"""


def show_progress_parser() -> argparse.ArgumentParser:
    """Return the parser of progress."""
    names, _ = known_labs()
    parser = argparse.ArgumentParser(prog="labkit", description=show_progress.__doc__)
    parser.add_argument("lab", choices=names, metavar="LAB", help=f"one of {', '.join(names)}")
    parser.add_argument("--step", type=int, metavar="N", help="this step alone, with its report")
    parser.add_argument("--target", choices=TARGETS, help="generation to simulate")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write a page with drawings")
    add_json(parser)
    return parser


def show_progress(argv: Sequence[str] | None = None) -> int:
    """Show which steps of a lab are not started, failing or passing: `python -m labkit LAB`."""
    _, load = known_labs()
    args = show_progress_parser().parse_args(argv)
    lab, target, steps = chosen(load([args.lab])[0], args.step, args.target)
    made = run_steps(lab, target, steps, draw=args.page is not None)
    console = terminal()
    table = Table(title=f"{made.headline()} ({target})", title_justify="left", box=None)
    table.add_column("step of README.md")
    table.add_column("state")
    for s in made.states:
        color = {"passing": "green", "failing": "red"}.get(s.state, "yellow")
        table.add_row(s.step.section, f"[{color}]{s.state}[/]")
    show_table(console, table)
    if args.step is not None:
        show_failures(console, [o for s in made.states for o in s.outcomes])
    elif upnext := next((s for s in made.states if s.state != "passing"), None):
        console.print(f"next: {upnext.step.section} (--step {upnext.step.number})", highlight=False)
    if args.page is not None:
        title = escape(f"{lab.title}: {made.passing} of {len(made.states)}")
        args.page.write_text(PAGE.format(title=title, body=made._repr_html_()), encoding="utf-8")
        console.print(f"wrote {args.page}", highlight=False, soft_wrap=True, markup=False)
    answer["steps"] = [
        {"number": s.step.number, "section": s.step.section, "state": s.state} for s in made.states
    ]
    outcomes = [o for s in made.states for o in s.outcomes]
    answer["cases"] = [{"lab": lab.label, **o.to_dict()} for o in outcomes]
    return exit_code(outcomes) or int(made.passing < len(made.states))
