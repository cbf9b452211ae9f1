"""The batch script of a run under Slurm: plain bash, which a person can read and submit. Pure.

    batch_script(wanted, Grace(25, "..."), ["holdfast"])

One job has all hosts, the spares among them, and one step starts the same command on each. The job
outlives its nodes (--no-kill), and the step its tasks (--kill-on-bad-exit=0): Holdfast says who is
lost. At the end `holdfast again` tells whether the run wants to be started again, which the code of
`srun` does not: that is the highest of its tasks', of one that was killed too. The same job is
requeued then: it keeps its number, and nobody has to take back a second one that waits behind it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.engine import Submission
from holdfast.engines.protocol import EngineOption
from holdfast.errors import ConfigurationError

LEAD_S = 120  # Slurm may send a signal up to a minute early, and looks each minute or so
LEAST_LEAD_S, MOST_LEAD_S = 10, 65_535
COMMENT = "holdfast:"
OPTIONS = (
    EngineOption("partition", "Where the job runs, or several with commas."),
    EngineOption(
        "time", "Its limit, as sbatch has it: 30, 12:00:00 or 2-00; then it goes on anew."
    ),
    EngineOption("account", "Whom it is charged to."),
    EngineOption("qos", "Its quality of service."),
    EngineOption("gres", "Generic resources of each node, such as gpu:a100:8."),
    EngineOption("gpus", "GPUs of each node."),
    EngineOption("cpus", "CPUs of each node."),
    EngineOption("memory", "Memory of each node, such as 64G; 0: all of it."),
    EngineOption("signal", f"How many seconds before its limit it is told to save ({LEAD_S})."),
    EngineOption("sbatch", "More options of sbatch, such as '--exclusive --constraint=a100'."),
    EngineOption("setup", "A line of shell before the run, such as 'module load cuda'."),
    EngineOption("output", "The folder for what the job and its hosts print (where you submit)."),
    EngineOption("program", "How holdfast is called on the nodes (the one that submits)."),
)
_LINES = {  # options that are one of sbatch's
    "partition": "partition",
    "time": "time",
    "account": "account",
    "qos": "qos",
    "gres": "gres",
    "gpus": "gpus-per-node",
    "cpus": "cpus-per-task",
    "memory": "mem",
}
_WORD = re.compile(r"[\w@%+=:,./*()|&!\[\]~^-]+")  # nothing that a shell or sbatch would cut in two
_FOLDER = re.compile(r"[\w@+=:,./ ()~-]+")  # sbatch reads % as a pattern
# What the script says itself, or what would make several runs of one.
_OURS = {
    "--nodes", "-N", "--ntasks", "-n", "--ntasks-per-node", "--array", "-a", "--comment",
    "--job-name", "-J", "--output", "-o", "--open-mode", "--requeue", "--no-requeue", "--no-kill",
    "-k", "--signal", "--wrap", "--chdir", "-D", "--export", "--wait", "-W", "--clusters", "-M",
}  # fmt: skip
# Variables of sbatch: they count for more than lines of a script. Most are called as the option.
_VARIABLES = {
    "time": "TIMELIMIT", "t": "TIMELIMIT", "mem": "MEM_PER_NODE", "A": "ACCOUNT", "p": "PARTITION",
    "q": "QOS", "C": "CONSTRAINT", "G": "GPUS",
}  # fmt: skip
_NEVER = {"SBATCH_ARRAY_INX", "SBATCH_NO_REQUEUE", "SBATCH_WAIT"}
_TIME = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?")


class Grace(NamedTuple):
    """How long a run has from the notice until it is killed, less a margin; and why so long."""

    seconds: int | None
    reason: str


def batch_script(wanted: Submission, grace: Grace, program: Sequence[str]) -> str:
    """The whole script. `program`: how holdfast is called on the nodes.

    Raises ConfigurationError for an option that no script can have.
    """
    check_options(wanted)
    hosts = f"{wanted.hosts} host{'s' if wanted.hosts > 1 else ''}"
    spares = f" and {wanted.spares} spare" if wanted.spares else ""
    holdfast = shlex.join(program)
    run = _shell([wanted.run, "--store", wanted.store])
    setup = wanted.option("setup")
    lines = [
        "#!/bin/bash",
        f"# Run {wanted.run} of Holdfast on {hosts}{spares}; made by `holdfast submit`.",
        *(f"#SBATCH {line}" for line in _directives(wanted)),
        "",
        *([setup, ""] if setup else []),
        f"# {grace.reason}",
        "code=0",
        _step(wanted, grace, program),
        "",
        "# 75: it has saved, and wants to be started again; not so after `holdfast stop`.",
        f'{holdfast} again {run} --code "$code"',
        "code=$?",
        '[ "$code" -eq 75 ] && scontrol requeue "$SLURM_JOB_ID"',
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def overriding(script: str) -> set[str]:
    """The variables of sbatch that say something else than this script, or make no such job."""
    stated = re.findall(r"^#SBATCH --?([A-Za-z][a-z-]*)", script, re.MULTILINE)
    names = (_VARIABLES.get(one, one.upper().replace("-", "_")) for one in stated)
    return _NEVER | {f"SBATCH_{name}" for name in names}


def check_options(wanted: Submission) -> None:
    """Raises ConfigurationError for a value that a script must not have, or that means nothing."""
    for name, value in wanted.options:
        if not value or not value.isprintable():
            raise ConfigurationError(f"--option {name}={value!r} is not valid: it is one line")
        if name in _LINES and not _WORD.fullmatch(value):
            raise ConfigurationError(f"--option {name}={value!r} is not valid: it is one word")
    for name in ("gpus", "cpus"):
        value = wanted.option(name)
        if value and (name == "cpus" or value.isdigit()) and not _is_count(value):
            raise ConfigurationError(f"--option {name}={value!r} is not valid: write how many")
    if not _FOLDER.fullmatch(_output(wanted)):
        raise ConfigurationError(
            f"--option output={wanted.option('output')!r} is not valid: Slurm reads patterns in "
            "such names; use letters, digits and . / _ -"
        )
    lead = lead_s(wanted)
    limit = time_limit_s(wanted.option("time", "NONE"))
    if limit is not None and limit <= lead:
        raise ConfigurationError(
            f"--option time={wanted.option('time')} is over before the run has begun: it is told "
            f"{lead} s ahead to save and leave; say more, or --option signal=SECONDS"
        )
    _extra(wanted)
    if program := wanted.option("program"):
        program_words(program)


def program_words(said: str) -> list[str]:
    """Of --option program; raises ConfigurationError."""
    try:
        found = shlex.split(said)
    except ValueError as error:
        raise ConfigurationError(f"--option program={said!r} is not valid: {error}") from None
    if not found:
        raise ConfigurationError(f"--option program={said!r} is not valid: it names none")
    return found


def lead_s(wanted: Submission) -> int:
    """How long before its time limit a run is told: enough for two saves, where that is known."""
    said = wanted.option("signal")
    if not said:
        known_s = 2 * (wanted.save_ns or 0) // SECOND_NS
        return min(max(LEAD_S, known_s), MOST_LEAD_S)
    if not _is_count(said) or not LEAST_LEAD_S <= int(said) <= MOST_LEAD_S:
        raise ConfigurationError(
            f"--option signal={said!r} is not valid: seconds before the time limit, "
            f"{LEAST_LEAD_S} to {MOST_LEAD_S}"
        )
    return int(said)


def time_limit_s(text: str) -> int | None:
    """A time as sbatch and scontrol write it; None: no limit. Raises ConfigurationError.

    Minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]].
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "0", "NONE", "N/A"):
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"time {text!r} is not valid: write minutes, HH:MM:SS, or days as in 2-12:00:00"
        )
    days, *parts = found.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
    if len(numbers) == 3:
        return (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]
    return numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0)


def _directives(wanted: Submission) -> list[str]:
    name = f"{_output(wanted)}/{wanted.run}-%j.out"
    return [
        f"--job-name={wanted.run}",
        f"--comment={COMMENT}{wanted.run_id}",
        f"--nodes={wanted.all_hosts}",
        "--ntasks-per-node=1",
        *(f"--{_LINES[key]}={value}" for key, value in wanted.options if key in _LINES),
        *_extra(wanted),
        "--no-kill",
        "--requeue",
        f"--signal=TERM@{lead_s(wanted)}",
        f"--output={_quoted(name)}",
        "--open-mode=append",
    ]


def _step(wanted: Submission, grace: Grace, program: Sequence[str]) -> str:
    flags = ["--ends-job"]
    if grace.seconds is not None and "--grace" not in wanted.flags:
        flags += ["--grace", str(grace.seconds)]
    words = wanted.run_words(program)
    at = words.index("--", len(program))
    command = _shell([*words[:at], *flags])
    srun = [
        "srun",
        f"--nodes={wanted.all_hosts}",
        "--ntasks-per-node=1",
        *([f"--cpus-per-task={cpus}"] if (cpus := wanted.option("cpus")) else []),
        "--cpu-bind=none",  # one task is a host: its ranks share what the job has there
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--export=ALL",  # with SBATCH_EXPORT=NONE it has not even PATH, nor what --option setup set
    ]
    output = shlex.quote(f"{_output(wanted)}/{wanted.run}-%j.%t.out")
    return " \\\n    ".join(
        [
            " ".join(srun),
            f"--output={output} --open-mode=append",
            command,
            f"-- {_shell(words[at + 1 :])} || code=$?",
        ]
    )


def _shell(words: Sequence[str]) -> str:
    """For bash: the same bytes, also where sbatch takes no carriage return, and no file has all."""
    return " ".join(
        shlex.quote(word) if _is_plain(word) else f"$'{_escaped(word)}'" for word in words
    )


def _is_plain(word: str) -> bool:
    return all(one.isprintable() or one in "\n\t" for one in word)


def _escaped(word: str) -> str:
    return "".join(
        chr(one) if 32 <= one < 127 and chr(one) not in "'\\" else f"\\{one:03o}"
        for one in os.fsencode(word)
    )


def _output(wanted: Submission) -> str:
    return wanted.option("output").rstrip("/") or ("/" if wanted.option("output") else ".")


def _extra(wanted: Submission) -> list[str]:
    """More options of sbatch, a line each."""
    said = wanted.option("sbatch")
    try:
        words = shlex.split(said)
    except ValueError as error:
        raise ConfigurationError(f"--option sbatch={said!r} is not valid: {error}") from None
    for word in words:
        name, _, value = word.partition("=")
        if not re.fullmatch(r"--[a-z][a-z-]*|-[A-Za-z]", name):
            raise ConfigurationError(
                f"--option sbatch={said!r} is not valid: write each as --NAME=VALUE or --NAME"
            )
        if name in _OURS or any(one.startswith(name) for one in _OURS if len(name) > 2):
            raise ConfigurationError(
                f"--option sbatch: {name} is what the run itself says; leave it out (another "
                "cluster is named by SLURM_CLUSTERS)"
            )
        _quoted(value)
    return [
        f"{name}{equals if name.startswith('--') else ' '}{_quoted(value)}" if equals else name
        for name, equals, value in (word.partition("=") for word in words)
    ]


def _quoted(value: str) -> str:
    """For a line of #SBATCH, where # begins a comment and quotes keep words together."""
    if any(one in value for one in "\"\\'`$") or not value.isprintable():
        raise ConfigurationError(f"{value!r} is not valid for sbatch: leave quotes and $ out")
    return value if not value or _WORD.fullmatch(value) else f'"{value}"'


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6 and int(text) > 0
