"""The parameters of a plan as flags, for the commands that take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.places import open_run, store_option
from holdfast.sim.plan_input import PARAMETERS, from_file, parsed

if TYPE_CHECKING:
    from holdfast.journal.gathered import Gathered
    from holdfast.sim.fitted import Fit, Fitted

OF_A_FILE = ".jsonl"
DRAWN = 100  # sets of parameters, where they are fitted


@dataclass(frozen=True, slots=True)
class GivenParameters:
    """What is asked: the parameters that were given, and under them those of a recorded run."""

    given: Mapping[str, Any]
    run: str | None = None
    fit: Fit | None = None

    @property
    def values(self) -> dict[str, Any]:
        """All that is known."""
        return dict(self.given) if self.fit is None else self.fit.values(self.given)

    def drawn(self, count: int) -> list[dict[str, Any]]:
        """The same so many times, each as likely; empty where all was given."""
        fit, given = self.fit, self.given
        return [] if fit is None else [fit.drawn(given, number) for number in range(count)]

    @property
    def fitted(self) -> tuple[Fitted, ...]:
        """The fitted values that count."""
        return () if self.fit is None else self.fit.used(self.given)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the run does not tell."""
        return () if self.fit is None else self.fit.assumed(self.given)

    def with_given(self, more: Mapping[str, Any]) -> GivenParameters:
        """The same with parameters that are given otherwise."""
        return GivenParameters({**self.given, **more}, self.run, self.fit)


def parameters(command: Callable[..., None]) -> Callable[..., None]:
    """A flag for each parameter, --file and --from-run; values are parsed where a file's are."""
    command = click.option(
        "--file",
        metavar="FILE",
        help="Take parameters from a TOML file, by the same names; flags win over it.",
    )(command)
    command = store_option(command)
    command = click.option(
        "--from-run",
        metavar="RUN",
        help="Fit parameters from what a run recorded, or a history FILE.jsonl; files and flags "
        "win over it.",
    )(command)
    for one in reversed(PARAMETERS):
        more: dict[str, Any] = {"is_flag": True, "default": None}
        if one.metavar is not None:
            more = {"metavar": one.metavar}
        command = click.option(f"--{one.name}", help=one.help, **more)(command)
    return command


def asked(
    file: str | None, run: str | None, store: str | None, flags: Mapping[str, object]
) -> GivenParameters:
    """All that was given, parsed; raises ConfigurationError, and what opening a run raises."""
    values = {} if file is None else from_file(Path(file))
    given = values | parsed(((name, v) for name, v in flags.items() if v is not None), "--")
    if run is None:
        return GivenParameters(given)
    from holdfast.sim.fitted import fit
    from holdfast.sim.observed import observe

    return GivenParameters(given, run, fit(observe(_recorded(run, store))))


def _recorded(run: str, store: str | None) -> Gathered:
    """What a run recorded, by its name, or the history in a file."""
    from holdfast.journal.gathered import gathered_history, gathered_run

    if run.endswith(OF_A_FILE):
        from holdfast.journal.history_file import read_history

        return gathered_history(read_history(run))
    from holdfast.journal.attempts import attempts
    from holdfast.journal.live import live_journals
    from holdfast.journal.recorded import load_run

    folder = open_run(run, store)
    recorded = load_run(folder.path, live_journals(folder))
    from_memory = [one.attempt for one in attempts(folder).records if one.from_memory]
    return gathered_run(recorded, from_memory, folder)
