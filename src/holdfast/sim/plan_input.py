"""What is asked of a plan: the table of its parameters, and a scenario made of them.

A parameter is a flag of `holdfast plan` and a key of a TOML file, by the same name and with the
same parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import exp, isfinite
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import ConfigurationError
from holdfast.sim.durations import seconds_of
from holdfast.sim.laws import Exponential, Fixed, Law, LogNormal, Weibull
from holdfast.sim.model import (
    DAY_S,
    Failures,
    Fleet,
    Notices,
    Recovery,
    Saves,
    Scenario,
    of_job,
    per_node_days,
)

FILE_MAX_BYTES = 1 << 20
TARGET = 0.9
DAYS = 30.0
SPREAD_MOST = 3.0


class Parameter(NamedTuple):
    """One parameter: its name, what stands for its value in a usage line, its parser, its help."""

    name: str
    metavar: str | None  # None: it is there or it is not
    parse: Callable[[object], Any]
    help: str


@dataclass(frozen=True, slots=True)
class Question:
    """A scenario, the law of the time between failures of the whole run, and the goodput aimed at.

    The law has the scenario's mean. It is exponential for any fleet in its steady state; of another
    law, the run is as good as new after each failure.
    """

    scenario: Scenario
    between: Law
    target: float = TARGET


def _count(least: int) -> Callable[[object], int]:
    def parse(given: object) -> int:
        try:
            if isinstance(given, bool) or not isinstance(given, int | str):
                raise ValueError
            number = int(given)
        except ValueError:
            raise ValueError(f"{_shown(given)} is not a whole number") from None
        if number < least:
            raise ValueError(f"{number} is too few: give {least} or more")
        return number

    return parse


def _number(given: object) -> float:
    try:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError
        number = float(given)
    except (ValueError, OverflowError):
        raise ValueError(f"{_shown(given)} is not a number") from None
    if not (number > 0 and isfinite(number)):
        raise ValueError(f"{number:g} is impossible: give a number above 0")
    return number


def _share(given: object) -> float:
    try:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError
        share = float(given)
    except (ValueError, OverflowError):
        raise ValueError(f"{_shown(given)} is not a share: give a number from 0 to 1") from None
    if not 0 <= share <= 1:
        raise ValueError(f"{share:g} is no share: give a number from 0 to 1")
    return share


def _part(given: object) -> float:
    share = _share(given)
    if share == 1:
        raise ValueError("1 leaves nothing: give less")
    return share


def _spread(given: object) -> float:
    sigma = 0.0 if given in (0, "0") else _number(given)
    if sigma > SPREAD_MOST:
        raise ValueError(f"{sigma:g} is too much: give up to {SPREAD_MOST:g}")
    return sigma


def _period(given: object) -> float:
    value_s = seconds_of(given)
    if not value_s:
        raise ValueError("0 is no time: give more than 0")
    return value_s


def _days(given: object) -> float:
    value_s = seconds_of(given, unit="d")
    if not value_s:
        raise ValueError("a run of no time has no goodput: give more than 0")
    return value_s


def _flag(given: object) -> bool:
    """As a file has it, or in the words of a policy."""
    value = {"true": True, "false": False}.get(given) if isinstance(given, str) else given
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(given)} is neither true nor false")
    return value


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


PARAMETERS = (
    Parameter("hosts", "N", _count(1), "Hosts that train."),
    Parameter("chips-per-host", "N", _count(1), "Accelerators of a host; 1 if not given."),
    Parameter("mtbf", "TIME", _period, "Mean time between failures of the whole run."),
    Parameter(
        "failures-per-1000-node-days",
        "RATE",
        _number,
        "The same as fleets publish it: failures of 1000 hosts in a day.",
    ),
    Parameter(
        "host-share",
        "SHARE",
        _share,
        "Of the failures, those that take the host along, and with it its memory; 1 if not given.",
    ),
    Parameter(
        "hang-share",
        "SHARE",
        _share,
        "Of the failures that do not, those that are hangs; 0 if not given.",
    ),
    Parameter("hang-detect", "TIME", seconds_of, "Until a hang is noticed; 300 s if not given."),
    Parameter(
        "weibull",
        "SHAPE",
        _number,
        "The time between failures of the run is Weibull with that shape: below 1 a failure makes "
        "the next one likelier for a while.",
    ),
    Parameter("save-stall", "TIME", seconds_of, "How long a save blocks training; 0 if not given."),
    Parameter("save-write", "TIME", seconds_of, "How much later it is durable; 0 if not given."),
    Parameter(
        "restart",
        "TIME",
        seconds_of,
        "From a failure to the first new step, on hosts that are there; 300 s if not given.",
    ),
    Parameter(
        "restart-from-memory",
        "TIME",
        seconds_of,
        "The same where the memory tier is restored from; as long if not given.",
    ),
    Parameter(
        "restart-spread",
        "SIGMA",
        _spread,
        "Simulated restarts are log-normal around it, with that sigma; 0 if not given.",
    ),
    Parameter(
        "reschedule",
        "TIME",
        seconds_of,
        "To get another host for a lost one where no spare is left; without --repair 0.",
    ),
    Parameter("spares", "N", _count(0), "Idle hosts that take a lost one's place at once."),
    Parameter("repair", "TIME", _period, "After so long, a lost host is there again."),
    Parameter("hosts-per-slice", "N", _count(1), "Hosts of a slice, which trains whole or not."),
    Parameter(
        "elastic", None, _flag, "Go on with the slices that are whole, where that beats waiting."
    ),
    Parameter("least-slices", "N", _count(1), "On so many at least; 1 if not given."),
    Parameter("interval", "TIME", _period, "Train so long between saves, instead of the best."),
    Parameter(
        "memory-copy",
        "TIME",
        seconds_of,
        "There is a memory tier, and a copy to it blocks training for so long.",
    ),
    Parameter(
        "memory-interval", "TIME", _period, "Train so long between copies, instead of the best."
    ),
    Parameter("peers", None, _flag, "Each copy in memory is on another host too."),
    Parameter(
        "notice-recall", "SHARE", _share, "Of the losses of hosts, those that are announced."
    ),
    Parameter(
        "notice-precision",
        "SHARE",
        _share,
        "Of the announcements, those that come true; 1 if not given.",
    ),
    Parameter("notice-lead", "TIME", seconds_of, "How long ahead they come; 30 s if not given."),
    Parameter("step", "TIME", _period, "A step of training; 1 s if not given."),
    Parameter(
        "idle",
        "SHARE",
        _part,
        "Of the training, the share that is no step: data, evaluation; 0 if not given.",
    ),
    Parameter("days", "DAYS", _days, "How long the run lasts: days, or 54d, 12h; 30 if not given."),
    Parameter("target", "SHARE", _share, "The goodput that is aimed at; 0.9 if not given."),
)


def parsed(given: Iterable[tuple[str, object]], where: str) -> dict[str, Any]:
    """Parameters by name, each parsed; `where`: `--` for flags, or a file's name.

    Raises ConfigurationError for an unknown name, with the nearest one, and for a bad value.
    """
    known = {one.name: one for one in PARAMETERS}
    values = {}
    for key, value in given:
        name = key.replace("_", "-")
        if name not in known:
            close = get_close_matches(name[:100], known, n=1)
            hint = f"did you mean {close[0]}?" if close else "see holdfast plan --help"
            raise ConfigurationError(f"{where}: {_shown(key)} is no parameter of a plan; {hint}")
        try:
            values[name] = known[name].parse(value)
        except ValueError as error:
            place = f"--{name}" if where == "--" else f"{where}: {name}"
            raise ConfigurationError(f"{place}: {error}") from None
    return values


def from_file(path: Path) -> dict[str, Any]:
    """The parameters of a TOML file; raises ConfigurationError for what is none."""
    import tomllib

    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
        if len(data) > FILE_MAX_BYTES:
            raise ConfigurationError(f"{path} has more than {FILE_MAX_BYTES} bytes: it is no plan")
        raw = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from None
    return parsed(raw.items(), str(path))


def question_of(values: Mapping[str, Any]) -> Question:
    """The scenario that these parameters describe, for a plan.

    Raises ConfigurationError where they do not say enough, or contradict one another.
    """
    scenario = scenario_of(values)
    mtbf_s, shape = scenario.mtbf_s, values.get("weibull")
    assert mtbf_s is not None  # noqa: S101 - something fails
    try:
        between: Law = Exponential(mtbf_s) if shape is None else Weibull(mtbf_s, shape)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return Question(scenario, between, values.get("target", TARGET))


def scenario_of(values: Mapping[str, Any], *, is_told: bool = False) -> Scenario:
    """The scenario that these parameters describe; `is_told`: what fails is told by a trace.

    Raises ConfigurationError where they do not say enough, or contradict one another.
    """
    _complete(values, is_told=is_told)
    hosts = values.get("hosts", 1)
    try:
        return Scenario(
            fleet=Fleet(
                hosts=hosts,
                chips_per_host=values.get("chips-per-host", 1),
                hosts_per_slice=values.get("hosts-per-slice", 0),
                spares=values.get("spares", 0),
                elastic=values.get("elastic", False),
                least_slices=values.get("least-slices", 1),
            ),
            failures=Failures(
                between=None if is_told else _per_host(values, hosts),
                host_share=values.get("host-share", 1.0),
                hang_share=values.get("hang-share", 0.0),
                hang_detect_s=values.get("hang-detect", 300.0),
                notices=_notices(values),
            ),
            saves=_saves(values),
            recovery=_recovery(values),
            duration_s=values.get("days", DAYS * DAY_S),
            step_s=values.get("step", 1.0),
            idle=values.get("idle", 0.0),
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _complete(values: Mapping[str, Any], *, is_told: bool) -> None:
    """Raises ConfigurationError for what is missing, or given twice."""
    rate = "failures-per-1000-node-days"
    if is_told:
        for name in ("mtbf", rate, "weibull", "host-share"):
            if name in values:
                raise ConfigurationError(f"--{name} and --trace both say what fails: give one")
    elif ("mtbf" in values) == (rate in values):
        raise ConfigurationError(f"give either --mtbf or --{rate}: how often does the run fail?")
    if rate in values and "hosts" not in values:
        raise ConfigurationError(f"--{rate} is of hosts: give --hosts too")
    if "memory-copy" in values and "host-share" not in values and not is_told:
        raise ConfigurationError(
            "--memory-copy insures against failures that leave the host alone: give --host-share, "
            "the share of those that do not"
        )
    if values.get("elastic") and "weibull" in values:
        raise ConfigurationError(
            "--elastic asks which host fails, and --weibull is of the whole run: give one of them"
        )
    for name, other in (
        ("elastic", "hosts-per-slice"),
        ("least-slices", "elastic"),
        ("memory-interval", "memory-copy"),
        ("peers", "memory-copy"),
        ("notice-precision", "notice-recall"),
        ("notice-lead", "notice-recall"),
        ("restart-from-memory", "memory-copy"),
    ):
        if values.get(name) and other not in values:
            raise ConfigurationError(f"--{name} says nothing without --{other}: give both")


def _per_host(values: Mapping[str, Any], hosts: int) -> Law:
    if "mtbf" in values:
        return of_job(values["mtbf"], hosts)
    return per_node_days(values["failures-per-1000-node-days"])


def _notices(values: Mapping[str, Any]) -> Notices:
    return Notices(
        recall=values.get("notice-recall", 0.0),
        precision=values.get("notice-precision", 1.0),
        lead=Fixed(values.get("notice-lead", 30.0)),
    )


def _saves(values: Mapping[str, Any]) -> Saves:
    return Saves(
        stall_s=values.get("save-stall", 0.0),
        write_s=values.get("save-write", 0.0),
        interval_s=values.get("interval"),
        memory="memory-copy" in values,
        copy_s=values.get("memory-copy", 0.0),
        memory_interval_s=values.get("memory-interval"),
        peers=values.get("peers", False),
    )


def _recovery(values: Mapping[str, Any]) -> Recovery:
    """Where hosts are repaired and no others are to be had, the run waits for the first of them."""
    repair = Fixed(values["repair"]) if "repair" in values else None
    replace = Fixed(values["reschedule"]) if "reschedule" in values else repair or Fixed(0.0)
    restart_s, spread = values.get("restart", 300.0), values.get("restart-spread", 0.0)
    from_memory_s = values.get("restart-from-memory", restart_s)
    restart: Law = Fixed(restart_s)
    if spread and restart_s:
        restart = LogNormal(restart_s / exp(spread**2 / 2), spread)
    return Recovery(
        restart=restart,
        restore_s=max(0.0, restart_s - from_memory_s),
        restore_from_memory_s=max(0.0, from_memory_s - restart_s),
        replace=replace,
        repair=repair,
    )
