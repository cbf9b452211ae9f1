"""What is asked of a plan: the table of its parameters, and a scenario made of them.

A parameter is a flag of `holdfast plan` and a key of a TOML file, by the same name and with the
same parser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import exp
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import ConfigurationError
from holdfast.sim.buying import Way, ways_of_table
from holdfast.sim.durations import seconds_of
from holdfast.sim.laws import Early, Exponential, Fixed, Law, LogNormal, Weibull
from holdfast.sim.model import (
    DAY_S,
    Failures,
    Fleet,
    Notices,
    Recovery,
    SaveCosts,
    Scenario,
    of_job,
    per_node_days,
)
from holdfast.sim.values import (
    count,
    days,
    flag,
    number,
    part,
    period,
    repair_law,
    share,
    shown,
    spread,
    wait_law,
)

FILE_MAX_BYTES = 1 << 20
TARGET = 0.9
DAYS = 30.0
BUY = "buy"  # a file's tables [buy.NAME], and the flag --buy
# What fails beside hosts and processes at their rate.
OTHERS = ("hang-share", "infant-share", "rack-mtbf", "slice-mtbf")


class Parameter(NamedTuple):
    """One parameter: its name, what stands for its value in a usage line, its parser, its help."""

    name: str
    metavar: str | None  # None: it is there or it is not
    parse: Callable[[object], Any]
    help: str


@dataclass(frozen=True, slots=True)
class Question:
    """A scenario, the law of the time between failures of the whole run, and the goodput aimed at.

    `ways`: to buy the machines, which are weighed against one another.

    The law has the scenario's mean. It is exponential for any fleet in its steady state; of another
    law, the run is as good as new after each failure.
    """

    scenario: Scenario
    between: Law
    target: float = TARGET
    ways: tuple[Way, ...] = ()


PARAMETERS = (
    Parameter("hosts", "N", count(1), "Hosts that train."),
    Parameter("chips-per-host", "N", count(1), "Accelerators of a host; 1 if not given."),
    Parameter(
        "mtbf",
        "TIME",
        period,
        "Mean time between failures of the whole run, but for racks, slices and infants.",
    ),
    Parameter(
        "failures-per-1000-node-days",
        "RATE",
        number,
        "The same as fleets publish it: failures of 1000 hosts in a day.",
    ),
    Parameter(
        "host-share",
        "SHARE",
        share,
        "Of the failures, those that take the host along, and with it its memory; 1 if not given.",
    ),
    Parameter(
        "weibull",
        "SHAPE",
        number,
        "The time between failures of the run is Weibull with that shape: below 1 a failure makes "
        "the next one likelier for a while.",
    ),
    Parameter(
        "hang-share",
        "SHARE",
        share,
        "Of the failures that leave the host, those after which processes hang; 0 if not given.",
    ),
    Parameter(
        "hang-detect", "TIME", seconds_of, "After so long it is noticed; 300 s if not given."
    ),
    Parameter(
        "infant-share",
        "SHARE",
        share,
        "Of the hosts that are new or repaired, those that are lost early, beside other failures.",
    ),
    Parameter("infant-mean", "TIME", period, "How long such a host lasts on average."),
    Parameter("hosts-per-rack", "N", count(1), "Hosts that are lost together with their rack."),
    Parameter("rack-mtbf", "TIME", period, "Mean time between failures of one whole rack."),
    Parameter("hosts-per-slice", "N", count(1), "Hosts of a slice; whole racks, if there are."),
    Parameter("slice-mtbf", "TIME", period, "Mean time between failures of one whole slice."),
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
        "restart-cold",
        "TIME",
        seconds_of,
        "The same without standbys, in a run too young for them; as long if not given.",
    ),
    Parameter(
        "standby-ready",
        "TIME",
        seconds_of,
        "So old a run is, from its first launch, when it has standbys; 0 if not given.",
    ),
    Parameter(
        "restart-spread",
        "SIGMA",
        spread,
        "Simulated restarts are log-normal around it, with that sigma; 0 if not given.",
    ),
    Parameter(
        "reschedule",
        "TIME|LAW",
        wait_law,
        "To get another host for a lost one where no spare is left; without --repair 0.",
    ),
    Parameter("spares", "N", count(0), "Idle hosts that take a lost one's place at once."),
    Parameter(
        "repair",
        "TIME|LAW",
        repair_law,
        "After so long, a lost host is there again; or by a law, lognormal:MEDIAN:SIGMA.",
    ),
    Parameter(
        "elastic", None, flag, "Go on with the slices that are whole, where that beats waiting."
    ),
    Parameter("least-slices", "N", count(1), "On so many at least; 1 if not given."),
    Parameter("interval", "TIME", period, "Train so long between saves, instead of the best."),
    Parameter(
        "memory-copy",
        "TIME",
        seconds_of,
        "There is a memory tier, and a copy to it blocks training for so long.",
    ),
    Parameter(
        "memory-interval", "TIME", period, "Train so long between copies, instead of the best."
    ),
    Parameter("peers", None, flag, "Each copy in memory is on another host too."),
    Parameter("notice-recall", "SHARE", share, "Of the losses of hosts, those that are announced."),
    Parameter(
        "notice-precision",
        "SHARE",
        share,
        "Of the announcements, those that come true; 1 if not given.",
    ),
    Parameter("notice-lead", "TIME", seconds_of, "How long ahead they come; 30 s if not given."),
    Parameter("step", "TIME", period, "A step of training; 1 s if not given."),
    Parameter(
        "idle",
        "SHARE",
        part,
        "Of the training, the share that is no step: data, evaluation; 0 if not given.",
    ),
    Parameter("days", "DAYS", days, "How long the run lasts: days, or 54d, 12h; 30 if not given."),
    Parameter("target", "SHARE", share, "The goodput that is aimed at; 0.9 if not given."),
)


def parsed(given: Iterable[tuple[str, object]], where: str) -> dict[str, Any]:
    """Parameters by name, each parsed; `where`: `--` for flags, or a file's name.

    Raises ConfigurationError for an unknown name, with the nearest one, and for a bad value.
    """
    known = {one.name: one for one in PARAMETERS}
    values = {}
    for key, value in given:
        name = key.replace("_", "-")
        if name == BUY:
            values[name] = ways_of_table(value, where)
            continue
        if name not in known:
            close = get_close_matches(name[:100], known, n=1)
            hint = f"did you mean {close[0]}?" if close else "see holdfast plan --help"
            raise ConfigurationError(f"{where}: {shown(key)} is not a parameter of a plan; {hint}")
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
            raise ConfigurationError(
                f"{path} has more than {FILE_MAX_BYTES} bytes: it is not a plan"
            )
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
    ways = tuple(values.get(BUY, {}).values())
    return Question(scenario, between, values.get("target", TARGET), ways)


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
                hosts_per_rack=values.get("hosts-per-rack", 0),
                hosts_per_slice=values.get("hosts-per-slice", 0),
                spares=values.get("spares", 0),
                elastic=values.get("elastic", False),
                least_slices=values.get("least-slices", 1),
            ),
            failures=_failures(values, hosts, is_told=is_told),
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
        for name in ("mtbf", rate, "weibull", "host-share", *OTHERS):
            if name in values:
                raise ConfigurationError(f"--{name} and --trace both say what fails: give one")
    elif ("mtbf" in values) == (rate in values):
        raise ConfigurationError(
            f"give either --mtbf or --{rate}: one of them says how often the run fails"
        )
    if rate in values and "hosts" not in values:
        raise ConfigurationError(f"--{rate} counts the failures of hosts: give --hosts too")
    if "memory-copy" in values and "host-share" not in values and not is_told:
        raise ConfigurationError(
            "--memory-copy helps after failures that leave the host running: give --host-share, "
            "the share of those that take the host"
        )
    if values.get("elastic") and "weibull" in values:
        raise ConfigurationError(
            "--elastic needs to know which host fails, and --weibull is of the whole run: give one"
        )
    for name in OTHERS[1:]:
        if "weibull" in values and name in values:
            raise ConfigurationError(
                f"--weibull is the law of all failures of the run, and --{name} tells of others "
                "beside them: give one"
            )
    if values.get("hang-share") and values.get("host-share", 1.0) == 1:
        raise ConfigurationError(
            "--hang-share is of the failures that leave the host: give --host-share too, below 1"
        )
    for name, other in (
        ("elastic", "hosts-per-slice"),
        ("least-slices", "elastic"),
        ("hang-detect", "trace" if is_told else "hang-share"),
        ("infant-share", "infant-mean"),
        ("infant-mean", "infant-share"),
        ("rack-mtbf", "hosts-per-rack"),
        ("hosts-per-rack", "rack-mtbf"),
        ("slice-mtbf", "hosts-per-slice"),
        ("memory-interval", "memory-copy"),
        ("peers", "memory-copy"),
        ("notice-precision", "notice-recall"),
        ("notice-lead", "notice-recall"),
        ("restart-from-memory", "memory-copy"),
    ):
        if values.get(name) and other not in values and other != "trace":
            raise ConfigurationError(f"--{name} has no effect without --{other}: give both")


def _failures(values: Mapping[str, Any], hosts: int, *, is_told: bool) -> Failures:
    infants = values.get("infant-share", 0.0)
    rack, of_slice = (
        Exponential(values[name]) if name in values else None
        for name in ("rack-mtbf", "slice-mtbf")
    )
    return Failures(
        between=None if is_told else _per_host(values, hosts),
        host_share=values.get("host-share", 1.0),
        hang_share=values.get("hang-share", 0.0),
        hang_detect_s=values.get("hang-detect", 300.0),
        early=Early(infants, values["infant-mean"]) if infants else None,
        rack_between=rack,
        slice_between=of_slice,
        notices=_notices(values),
    )


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


def _saves(values: Mapping[str, Any]) -> SaveCosts:
    return SaveCosts(
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
    repair = _law(values["repair"]) if "repair" in values else None
    replace = _law(values["reschedule"]) if "reschedule" in values else repair or Fixed(0.0)
    restart_s, sigma = values.get("restart", 300.0), values.get("restart-spread", 0.0)
    from_memory_s = values.get("restart-from-memory", restart_s)
    restart: Law = Fixed(restart_s)
    if sigma and restart_s:
        restart = LogNormal(restart_s / exp(sigma**2 / 2), sigma)
    return Recovery(
        restart=restart,
        restore_s=max(0.0, restart_s - from_memory_s),
        restore_from_memory_s=max(0.0, from_memory_s - restart_s),
        cold_s=values.get("restart-cold"),
        standby_ready_s=values.get("standby-ready", 0.0),
        replace=replace,
        repair=repair,
    )


def _law(value: Law | float) -> Law:
    """What was fitted is a number of seconds, what was given is a law."""
    return Fixed(value) if isinstance(value, int | float) else value
