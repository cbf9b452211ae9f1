"""Why a rank's process ended, as a table, and which of several ranks' ends was the cause.

`classify` answers for one process, `root_cause` for an attempt. Causes are few, and each is there
because something is decided differently for it (`core.run.restart`); the words are for people.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum

from holdfast import errors
from holdfast.core.value import value
from holdfast.errors import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_UNAVAILABLE,
)


class ExitCause(StrEnum):
    """Why it ended. The value is the cause that a history and an attempt record carry."""

    DONE = "done"
    STOPPED = "stopped"  # asked to, and did; saved if it exited with 75
    PREEMPTED = "preempted"  # stopped because a notice came: only the controller knows
    USER_ERROR = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"  # a signal from somebody
    CRASHED = "crashed"  # a signal that the process brought upon itself
    ACCELERATOR = "accelerator"
    PEER_LOST = "peer_lost"  # it lost contact with another rank: a victim, rarely the cause
    HANG = "hang"
    HOST_LOST = "host_lost"
    ROLLED_BACK = "rolled_back"  # a person wanted the run to go back: only the controller knows
    BAD_CHECKPOINT = "bad_checkpoint"
    NOT_FETCHED = "not_fetched"  # part of a set in memory did not come from another host
    STORE_UNAVAILABLE = "store_unavailable"
    CONFIGURATION = "configuration"
    EXITED_EARLY = "exited_early"  # code 0, and the run was not done
    UNKNOWN = "unknown"


HISTORY_CAUSE: dict[ExitCause, str] = {cause: cause.value for cause in ExitCause}

# What an attempt was lost to with its machine, as histories and attempt records name it. Not
# `preempted`: that run was warned, and has left in order.
MACHINE_PREEMPTED, MACHINE_MAINTENANCE = "machine_preempted", "machine_maintenance"
LOSS_CAUSES = (ExitCause.HOST_LOST.value, MACHINE_PREEMPTED, MACHINE_MAINTENANCE)


def learned_later(cause: str, found: str | None) -> str:
    """An attempt's cause, by what was found out afterwards of its machine.

    A host that fell silent is all that the others see; its service knows why. What else ended it
    stands.
    """
    is_only_silence = cause == ExitCause.HOST_LOST.value
    return found if is_only_silence and found in (MACHINE_PREEMPTED, MACHINE_MAINTENANCE) else cause


@value
class RankReport:
    """The exception that ended a rank: its type's name, text, `file:line`, and whole traceback.

    `declared`: the script itself gave up (`run.fail`), and may have asked to go back to
    `rollback_to` (core.run.rollback.Target) and to skip batches from there.
    """

    type: str
    message: str
    where: str
    traceback: str
    declared: bool = False
    rollback_to: int | str | None = None
    skip_batches: int = 0


@value
class Exit:
    """All that is known of one process's end.

    `code` or `signal` is None, whichever did not end it. `finished`: its session said that the
    last step is saved; `has_session`: it had one. `asked_to_stop`: before it ended. `oom_killed`:
    the kernel's count of such kills went up. `hang`, `host_lost`: the supervisor's own verdict.
    """

    code: int | None = None
    signal: int | None = None
    core_dumped: bool = False
    finished: bool = False
    has_session: bool = True
    report: RankReport | None = None
    oom_killed: bool = False
    asked_to_stop: bool = False
    hang: bool = False
    host_lost: bool = False


# Linux numbers (the same on x86-64 and ARM). A table, because `core` does not import `signal`.
SIGNAL_NAMES: dict[int, str] = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
_CRASH_SIGNALS = (4, 5, 6, 7, 8, 11, 31)
_STOP_SIGNALS = (2, 15)
_MESSAGE_MAX = 500


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 40` for what has no name."""
    return SIGNAL_NAMES.get(number, f"signal {number}")


# --- what an exception means: (its type's name, its text, the cause), the first match counts ------


def _errors_with(exit_code: int) -> str:
    """A pattern of the names of Holdfast's own errors that end a command with this code."""
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type))
    own = (kind for kind in kinds if issubclass(kind, errors.HoldfastError))
    return "|".join(kind.__name__ for kind in own if kind.exit_code == exit_code)


_RUNTIME = r"(XlaRuntimeError|JaxRuntimeError|DistBackendError|DistNetworkError|RuntimeError)"
_REPORTS: tuple[tuple[re.Pattern[str], re.Pattern[str], ExitCause], ...] = tuple(
    (re.compile(kind), re.compile(text, re.IGNORECASE | re.DOTALL), cause)
    for kind, text, cause in (
        (_errors_with(EXIT_CONFIGURATION), r"", ExitCause.CONFIGURATION),
        (r"BdbQuit", r"", ExitCause.CONFIGURATION),  # it has read the end of its input
        (r"NoGoodCheckpoint|CorruptCheckpoint", r"", ExitCause.BAD_CHECKPOINT),
        (r"PartNotFetched", r"", ExitCause.NOT_FETCHED),
        (_errors_with(EXIT_UNAVAILABLE), r"", ExitCause.STORE_UNAVAILABLE),
        (r"MemoryError|OutOfMemoryError", r"", ExitCause.OUT_OF_MEMORY),
        (_RUNTIME, r"RESOURCE_EXHAUSTED|out of memory", ExitCause.OUT_OF_MEMORY),
        (
            _RUNTIME,
            r"uncorrectable ECC|fallen off the bus|hardware error|NVLink|device (lost|halted)",
            ExitCause.ACCELERATOR,
        ),
        (
            _RUNTIME,
            r"(connection (closed|reset|refused)|broken pipe|timed? ?out|heartbeat|UNAVAILABLE)"
            r".*(gloo|nccl|tcpstore|coordination|barrier|peer|rank)"
            r"|(gloo|nccl|tcpstore|coordination|barrier|peer|rank)"
            r".*(connection (closed|reset|refused)|broken pipe|timed? ?out|heartbeat|UNAVAILABLE)",
            ExitCause.PEER_LOST,
        ),
        (r"KeyboardInterrupt", r"", ExitCause.KILLED),
        (r"", r"", ExitCause.USER_ERROR),
    )
)


def _cause_of(report: RankReport) -> ExitCause:
    name = report.type.rpartition(".")[2]
    for kind, text, cause in _REPORTS:
        if (kind.fullmatch(name) or not kind.pattern) and text.search(report.message):
            return cause
    return ExitCause.USER_ERROR


def _words_of(report: RankReport) -> str:
    lines = report.message.strip().splitlines()
    message = lines[0][:_MESSAGE_MAX] if lines else ""
    if report.declared:  # the script knows best what was wrong
        return message or "the script gave up"
    if message and not report.type:  # it is no exception
        return message
    if report.type == "BdbQuit":
        message = "a debugger has no keyboard under holdfast run: start the script by itself"
    where = f" at {report.where}" if report.where else ""
    what = report.type or "an error without a name"  # the report is what the rank says
    return f"{what}{where}" + (f": {message}" if message else "")


# --- what an exit means --------------------------------------------------------------------------


def _signal_of(end: Exit) -> int:
    """The signal that ended it, also as a shell tells it (128 + number); 0: none."""
    if end.signal is not None:
        return end.signal
    shell = (end.code or 0) - 128
    return shell if shell in SIGNAL_NAMES else 0


def _by_signal(end: Exit, cause: ExitCause) -> tuple[ExitCause, str]:
    how = "crashed with" if cause is ExitCause.CRASHED else "killed by"
    dumped = ", core dumped" if end.core_dumped else ""
    return cause, f"{how} {signal_name(_signal_of(end))}{dumped}"


def _says(cause: ExitCause, words: str) -> Callable[[Exit], tuple[ExitCause, str]]:
    if "{" not in words:
        return lambda _: (cause, words)
    return lambda end: (cause, words.format(code=end.code, signal=signal_name(_signal_of(end))))


def _reported(end: Exit) -> tuple[ExitCause, str]:
    assert end.report is not None  # noqa: S101 - the rule's condition
    return _cause_of(end.report), _words_of(end.report)


# fmt: off
_RULES: tuple[
    tuple[Callable[[Exit], bool], Callable[[Exit], tuple[ExitCause, str]]], ...
] = (
    (lambda e: e.host_lost, _says(ExitCause.HOST_LOST, "its host was lost")),
    (lambda e: e.hang, _says(ExitCause.HANG, "hung: no step within the deadline")),
    (lambda e: e.code == EXIT_DONE and (e.finished or not (e.has_session or e.asked_to_stop)),
        _says(ExitCause.DONE, "done")),
    (lambda e: e.code == EXIT_SAVED_START_ME_AGAIN, _says(ExitCause.STOPPED, "saved and stopped")),
    (lambda e: e.asked_to_stop and e.code == EXIT_DONE,
        _says(ExitCause.STOPPED, "exited 0 when asked to stop")),
    (lambda e: e.asked_to_stop and _signal_of(e) in _STOP_SIGNALS,
        _says(ExitCause.STOPPED, "ended by {signal} when asked to stop")),
    (lambda e: e.code == EXIT_DONE,
        _says(ExitCause.EXITED_EARLY, "exited 0 before the run was done")),
    (lambda e: e.oom_killed,
        _says(ExitCause.OUT_OF_MEMORY, "killed by the kernel: the host or its cgroup ran out of "
              "memory")),
    (lambda e: e.report is not None, _reported),
    (lambda e: _signal_of(e) in _CRASH_SIGNALS, lambda e: _by_signal(e, ExitCause.CRASHED)),
    (lambda e: _signal_of(e) != 0, lambda e: _by_signal(e, ExitCause.KILLED)),
    (lambda e: e.code == EXIT_CONFIGURATION,
        _says(ExitCause.CONFIGURATION, "exited {code}: invalid configuration or arguments")),
    (lambda e: e.code in (126, 127),
        _says(ExitCause.CONFIGURATION, "exited {code}: a shell could not run the command")),
    (lambda e: e.code == EXIT_UNAVAILABLE,
        _says(ExitCause.STORE_UNAVAILABLE,
              "exited {code}: the store or a resource is not available")),
    (lambda e: e.code is not None, _says(ExitCause.USER_ERROR, "exited with code {code}")),
    (lambda e: True, _says(ExitCause.UNKNOWN, "ended for an unknown reason")),  # noqa: ARG005
)
# fmt: on


def classify(end: Exit) -> tuple[ExitCause, str]:
    """The cause of one process's end, and a phrase for people: the first rule that fits."""
    for fits, answer in _RULES:
        if fits(end):
            return answer(end)
    raise AssertionError("the last rule fits everything")  # pragma: no cover


def signature(cause: ExitCause, end: Exit) -> str:
    """What two ends must share to be "the same failure".

    The exception's type and place, not its text, which often carries a step or a value; but a bad
    checkpoint's text, which names the set: another set is another failure. Where memory runs out is
    chance: its type alone.
    """
    if end.report is not None and cause is ExitCause.OUT_OF_MEMORY and not end.oom_killed:
        return f"{cause.value}: {end.report.type}"
    if end.report is not None and cause is not ExitCause.OUT_OF_MEMORY:
        what = end.report.message if cause is ExitCause.BAD_CHECKPOINT else end.report.where
        return f"{cause.value}: {end.report.type} at {what}"
    if _signal_of(end):
        return f"{cause.value}: {signal_name(_signal_of(end))}"
    return f"{cause.value}: exit {end.code}"


# Of the standard library, requests, urllib3, httpx, aiohttp, botocore, and Google's clients.
_AWAY = re.compile(
    r"failed: (\S*\.)?(\w*(Connect|Disconnect|Timeout)\w*|gaierror|URLError|MaxRetryError"
    r"|ServiceUnavailable|DeadlineExceeded|TooManyRequests) at .*",
    re.DOTALL,
)


def may_pass(signature: str) -> bool:
    """Whether the exception says that somebody else was away, a source of data for example.

    That comes back in the same way until they are there again, and is no bug.
    """
    return _AWAY.fullmatch(signature) is not None


def is_from_script(cause: ExitCause, end: Exit) -> bool:
    """Whether the script itself ended so, by an exception or an exit: it may do so again for ever.

    What came from outside is not: a signal, the kernel's lack of memory, a host, a store, a peer.
    """
    own = (ExitCause.USER_ERROR, ExitCause.EXITED_EARLY)
    return cause in own or (cause is ExitCause.OUT_OF_MEMORY and not end.oom_killed)


# How much an end explains: the smallest counts. Victims of a collapse, what the supervisor kills
# in its wake, and the ranks that were well come after the one that failed.
_VICTIM_RANK: dict[ExitCause, int] = {
    ExitCause.PEER_LOST: 1,
    ExitCause.KILLED: 2,
    ExitCause.UNKNOWN: 2,
    ExitCause.STOPPED: 3,
    ExitCause.DONE: 4,
}


def root_cause(in_order: Sequence[tuple[int, Exit]]) -> tuple[ExitCause, str, int | None]:
    """The end that explains an attempt: (cause, words, rank).

    `in_order`: (rank, end) of every rank that ended, by time. The first failure counts, unless it
    only lost contact with a peer: a rank that raised takes its time to leave, and its peers may be
    gone before it. A SIGKILL is a cause if nothing failed before it, else it was probably ours.
    What a script declared to be its failure goes before all. DONE and STOPPED only if all are.
    """
    best: tuple[int, ExitCause, str, int] | None = None
    something_failed = False
    for rank, end in in_order:
        cause, words = classify(end)
        weight = _VICTIM_RANK.get(cause, 0)
        if cause is ExitCause.KILLED and not something_failed:
            weight = 0
        if end.report is not None and end.report.declared and weight == 0:
            weight = -1
        something_failed |= weight < _VICTIM_RANK[ExitCause.STOPPED]
        if best is None or weight < best[0]:
            best = (weight, cause, words, rank)
    if best is None:
        return ExitCause.UNKNOWN, "no rank's end was seen", None
    _, cause, words, rank = best
    if cause is ExitCause.DONE:
        return cause, words, None
    return cause, f"rank {rank}: {words}" if len(in_order) > 1 else words, rank
