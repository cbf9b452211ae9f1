"""`holdfast simulate`: runs in virtual time, under the core that supervises real ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.door import console, say
from holdfast.cli.parameters import DRAWN, GivenParameters, asked, parameters
from holdfast.errors import ConfigurationError
from holdfast.sim.durations import in_words
from holdfast.sim.plan_input import parsed, question_of, scenario_of

TOLD = ("mtbf", "host-share", "hang-share", "hang-detect", "notice-recall", "notice-precision",
        "notice-lead")  # fmt: skip

ENOUGH_FAILURES = 2000  # what they cost is known to some 2 % of it

if TYPE_CHECKING:
    from holdfast.sim.replicate import Runs
    from holdfast.sim.traces import Trace


@click.command()
@parameters
@click.option("--replications", metavar="N", type=click.IntRange(1), default=1, help="Runs.")
@click.option("--seed", metavar="N", type=click.IntRange(0), default=0, help="Of the first run.")
@click.option("--trace", metavar="FILE", help="What befell a fleet, instead of drawn faults.")
@click.option(
    "--policy",
    "policies",
    metavar="NAME=VALUE,...",
    multiple=True,
    help="Parameters that are otherwise under this policy; several policies stand side by side.",
)
@click.option(
    "--journal", metavar="FILE", help="Write the first run for holdfast report --history FILE."
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def simulate(
    file: str | None,
    from_run: str | None,
    store: str | None,
    replications: int,
    seed: int,
    trace: str | None,
    policies: tuple[str, ...],
    journal: str | None,
    as_json: bool,
    **flags: object,
) -> None:
    """Simulate a training job in virtual time, and report what came of it.

    The parameters are those of holdfast plan. Faults are drawn, or replayed from a trace; what is
    done about them is decided by the core that supervises real runs. How to read the outcome:
    docs/how-to/simulate.md.
    """
    replayed = _trace(trace)
    ask, notes = _as_long_as_it_tells(asked(file, from_run, store, flags), replayed)
    variants = {name: ask.with_given(_changed(name)) for name in policies} or {"": ask}
    count = min(DRAWN, replications) if replications > 1 else 0
    runs = [_runs(name, changed, replayed, count) for name, changed in variants.items()]
    console, progress = _consoles()
    found = [one.replicate(replications, seed, progress(one.name)) for one in runs]
    if journal is not None:
        from holdfast.journal.history_file import write_history

        write_history(sys.stdout if journal == "-" else journal, runs[0].story(seed).history())
    if as_json or journal == "-":
        for note in notes:
            say(f"note: {note}")
    if as_json:
        basis = {
            "fitted": [asdict(one) for one in ask.fitted],
            "assumed": list(ask.assumed),
        }
        documents = [one.to_json() | basis for one in found]
        json.dump(documents if policies else documents[0], sys.stdout, indent=1, allow_nan=False)
        print()
    elif journal != "-":
        from holdfast.cli.simulate_screen import show

        show(found, console, (*notes, *ask.assumed), ask.fitted)


def _trace(path: str | None) -> Trace | None:
    if path is None:
        return None
    from holdfast.sim.trace_file import read_trace

    return read_trace(path)


def _as_long_as_it_tells(
    ask: GivenParameters, trace: Trace | None
) -> tuple[GivenParameters, tuple[str, ...]]:
    """Where nobody says how long the run lasts: a month, or till it has failed often enough.

    A month of a run that fails each few seconds is hundreds of thousands of failures, and minutes
    to simulate. With notes for the user.
    """
    if trace is not None:
        return ask, trace.notes
    if "days" in ask.values:
        return ask, ()
    scenario = scenario_of(ask.values)
    enough_s = ENOUGH_FAILURES * (scenario.mtbf_s or scenario.duration_s)
    if enough_s >= scenario.duration_s:
        return ask, ()
    note = (
        f"The run lasts {in_words(enough_s)} here, in which it fails some {ENOUGH_FAILURES:,} "
        "times: that tells as much as a month. --days says otherwise."
    )
    return ask.with_given({"days": enough_s}), (note,)


def _changed(policy: str) -> dict[str, Any]:
    """What a policy says: NAME=VALUE with commas between them."""
    pairs = [pair.partition("=") for pair in policy.split(",")]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise ConfigurationError(
                f"--policy {policy!r}: say NAME=VALUE, with the names of the flags, and commas "
                "between them"
            )
    return parsed(((name, value) for name, _, value in pairs), f"--policy {policy!r}")


def _runs(name: str, ask: GivenParameters, trace: Trace | None, count: int) -> Runs:
    """`count`: so many of the runs have parameters of their own, where these are fitted."""
    known = [values if trace is None else _untold(ask, values) for values in ask.drawn(count)]
    drawn = tuple(_of_values(name, values, trace) for values in known)
    values = ask.values if trace is None else _untold(ask, ask.values)
    return replace(_of_values(name, values, trace), drawn=drawn)


def _untold(ask: GivenParameters, values: Mapping[str, Any]) -> dict[str, Any]:
    """Without what a run was fitted with and a trace says: what fails."""
    return {name: value for name, value in values.items() if name in ask.given or name not in TOLD}


def _of_values(name: str, values: dict[str, Any], trace: Trace | None) -> Runs:
    from holdfast.sim.replicate import Runs

    if trace is not None:
        scenario = scenario_of(values, is_told=True)
        if "days" not in values:
            scenario = replace(scenario, duration_s=max(1.0, trace.span_ns / 1e9))
        return Runs(name, scenario, trace)
    question = question_of(values)
    between = question.between if "weibull" in values else None
    return Runs(name, question.scenario, between=between)


def _consoles() -> Any:
    """Where the outcome goes, and a maker of progress bars on a terminal's standard error."""
    from holdfast.cli.simulate_screen import progress_of

    return console(folded=False), progress_of(console(err=True))
