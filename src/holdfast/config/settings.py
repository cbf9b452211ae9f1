"""Settings: one table.

A setting is one field of `Settings`, with its flag, its kind and its meaning; the variable
`HOLDFAST_<NAME>`, the key in holdfast.toml, `holdfast config` and the table in
docs/reference/configuration.md all follow from that field. Where values come from:
`holdfast.config.sources`.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.config.kinds import (
    AUTO,
    BUFFERS,
    CACHE,
    CACHE_BYTES,
    ENVIRONMENT,
    EXPORTERS,
    FILE,
    FLOPS,
    FOLDER,
    HANG,
    HOT,
    INSTANCE,
    LEAVE,
    MOST_BUFFERS,
    OFF,
    ON,
    PERIOD,
    PLACE,
    RELEASE,
    REPLACE,
    SAY,
    SECONDS,
    SOURCES,
    STAY,
    TEXT,
    ValueKind,
    choice,
    count,
)
from holdfast.core.value import value

if TYPE_CHECKING:
    from holdfast.core.hang.deadline import HangPolicy
    from holdfast.core.ledger.program import Declared
    from holdfast.core.run.restart import RestartPolicy
    from holdfast.core.save.policy import SavePolicy

PREFIX = "HOLDFAST_"
_T = TypeVar("_T")


def _setting(default: _T, flag: str, kind: ValueKind, doc: str, default_words: str = "") -> _T:
    shown_default = f"{default:g}" if isinstance(default, float) else str(default)
    words = default_words or f"`{shown_default}`"
    return field(
        default=default,
        metadata={"flag": flag, "kind": kind, "doc": doc, "default_words": words},
    )


@value
class Settings:
    """Everything that can be set. None: as the table says under "default"."""

    store: str = _setting(
        "~/.holdfast/store",
        "--store",
        PLACE,
        "Where runs live: a folder, or a URL: file://, s3://, gs:// or az://.",
    )
    store_credentials: str = _setting(
        ENVIRONMENT,
        "--store-credentials",
        choice(ENVIRONMENT, INSTANCE),
        "Whose credentials open an object store: those in variables, or this machine's too.",
    )
    mirror: str = _setting(
        "~/.holdfast/mirror",
        "--mirror",
        FOLDER,
        "Where this host keeps the records of runs in object stores: a local disk.",
    )
    name: str | None = _setting(
        None, "--name", TEXT, "The run's name.", default_words="the script's name"
    )
    scratch: str | None = _setting(
        None,
        "--scratch",
        FOLDER,
        "Where live journals and logs are written: a local disk or memory, never NFS or FUSE.",
        default_words="`/var/tmp`, else `/dev/shm`",
    )
    ranks: int | None = _setting(
        None,
        "--ranks",
        count(1),
        "Training processes on this host.",
        default_words="`1`, without a launcher's variables",
    )
    hosts: int = _setting(
        1, "--hosts", count(1), "Hosts that train; the same command runs on each of them."
    )
    host_index: int | None = _setting(
        None,
        "--host-index",
        count(0),
        "Which of them this is, from 0; those from the number of hosts on are spares.",
        default_words="what Slurm, Kubernetes, a TPU pod or a launcher says",
    )
    spares: int = _setting(
        0, "--spares", count(0), "More hosts, that wait to take the place of a lost one."
    )
    host_address: str | None = _setting(
        None,
        "--host-address",
        TEXT,
        "The address by which the other hosts reach this one.",
        default_words="that of the way to the controller",
    )
    slice: str | None = _setting(
        None,
        "--slice",
        TEXT,
        "Which of several slices this host belongs to: those of one train together, or none does.",
        default_words="what a TPU pod says (`MEGASCALE_SLICE_ID`)",
    )
    secret_file: str | None = _setting(
        None,
        "--secret-file",
        FILE,
        "A secret that all hosts of the run have, and nobody else: they command each other by it.",
        default_words="one in the run's folder, for its owner alone",
    )
    host_lost_s: float = _setting(
        10.0, "--host-lost", PERIOD, "How long a host is silent until it counts as lost."
    )
    quarantine_after: int = _setting(
        3,
        "--quarantine-after",
        count(0),
        "After how many losses or failures within an hour a host has no part any more; 0: never.",
    )
    preflight: str = _setting(
        ON,
        "--preflight",
        choice(ON, OFF),
        "Whether a host that was lost, or has failed, is tried out before the next attempt.",
    )
    straggler: str = _setting(
        SAY,
        "--straggler",
        choice(SAY, REPLACE),
        "What follows where all others wait for one host: that is said, or a spare replaces it.",
    )
    straggler_percent: int = _setting(
        10,
        "--straggler-percent",
        count(1),
        "By how much of a step a host must be behind for that, in percent.",
    )
    straggler_after_s: float = _setting(
        600.0, "--straggler-after", PERIOD, "And for how long, and for 100 steps."
    )
    elastic: int | None = _setting(
        None,
        "--elastic",
        count(1),
        "With as few hosts as this the run trains on, where waiting for the others costs more.",
        default_words="not set: the run waits until it has all its hosts",
    )
    host_back_s: float = _setting(
        60.0,
        "--host-back",
        PERIOD,
        "After how long a lost host is back, as a rule; `--elastic` goes by that at first.",
    )
    chips: int | None = _setting(
        None,
        "--chips",
        count(1),
        "Accelerators that the run occupies; goodput counts their time.",
        default_words="those of its hosts",
    )
    host_chips: int | None = _setting(
        None,
        "--host-chips",
        count(1),
        "Accelerators of this host; the hosts of several slices may have different ones.",
        default_words="its share of `--chips`, else one per rank",
    )
    ideal_step_s: float | None = _setting(
        None,
        "--ideal-step",
        PERIOD,
        "What a step would take at the hardware's best, in seconds: gives program goodput.",
        default_words="not set: program goodput is not measured",
    )
    flops_per_step: float | None = _setting(
        None,
        "--flops-per-step",
        FLOPS,
        "What a step computes on all chips together: gives program goodput, with the chips' peak.",
        default_words="what the script says (`run.flops`)",
    )
    peak_flops: float | None = _setting(
        None,
        "--peak-flops",
        FLOPS,
        "The peak of one chip, in FLOP/s, without sparsity.",
        default_words="that of the device, where the table of peaks has it",
    )
    grace_s: float = _setting(
        30.0,
        "--grace",
        SECONDS,
        "From a SIGTERM to the moment by which all must be saved and gone.",
    )
    notice: str = _setting(
        AUTO,
        "--notice",
        SOURCES,
        "Where warnings of maintenance and preemption come from, such as `gce` or "
        "`file:/tmp/notice`; `auto` is those that this host has.",
    )
    on_notice: str = _setting(
        LEAVE,
        "--on-notice",
        choice(LEAVE, STAY, RELEASE),
        "Once all is saved: leave; train on until the host is taken; or leave, and tell the cloud "
        "that it need not wait (Azure).",
    )
    save_every_s: float | None = _setting(
        None,
        "--save-every-s",
        PERIOD,
        "Save that often, instead of at the optimum.",
        default_words="the optimum of measured cost and failure rate",
    )
    save_every_steps: int | None = _setting(
        None,
        "--save-every",
        count(1),
        "Save every that many steps, instead of at the optimum.",
        default_words="the optimum of measured cost and failure rate",
    )
    snapshot_every_s: float | None = _setting(
        None,
        "--snapshot-every-s",
        PERIOD,
        "Copy to memory that often, instead of at the optimum.",
        default_words="the optimum of measured cost and failure rate",
    )
    snapshot_every_steps: int | None = _setting(
        None,
        "--snapshot-every",
        count(1),
        "Copy to memory every that many steps, instead of at the optimum.",
        default_words="the optimum of measured cost and failure rate",
    )
    keep_last: int = _setting(
        3, "--keep", count(1), "How many of the newest checkpoints stay; pinned ones always do."
    )
    memory: str = _setting(
        AUTO,
        "--memory",
        BUFFERS,
        "How many snapshots each rank holds in shared memory, from which a restart resumes at "
        "once; `auto` is 3, or none where they do not fit.",
    )
    memory_dir: str = _setting(
        "/dev/shm",  # noqa: S108 - checked for owner, mode and links
        "--memory-dir",
        FOLDER,
        "Where these are held: a folder in memory.",
    )
    max_failures: int = _setting(
        10,
        "--max-failures",
        count(1),
        "Give up after that many failures in a row without a new step.",
    )
    crash_loop: int = _setting(
        5,
        "--crash-loop",
        count(2),
        "How many failures of the script in the same way are a crash loop, whatever the progress: "
        "an alert, and longer and longer waits before the restart.",
    )
    crash_loop_within_s: float = _setting(
        3600.0,
        "--crash-loop-within",
        PERIOD,
        "The time within which those failures must happen.",
    )
    hold_finished_s: float = _setting(
        1800.0,
        "--hold-finished",
        SECONDS,
        "How long a run whose steps are all done waits for a run store that cannot take the last "
        "one, a full disk for example.",
    )
    hang: str | float = _setting(
        AUTO,
        "--hang",
        HANG,
        "After how long without a step the run is hung, and started again: learned, or as set.",
    )
    compile_cache: str | int = _setting(
        AUTO,
        "--compile-cache",
        CACHE,
        "Keep compiled programs (JAX) on this host and in the run's store, up to that size.",
    )
    cache_key_file: str | None = _setting(
        None,
        "--cache-key-file",
        FILE,
        "A secret that the run's hosts share: it seals compiled programs in the store.",
        default_words="none: where others may write the store, programs stay on their host",
    )
    standby: str = _setting(
        AUTO,
        "--standby",
        choice(AUTO, OFF, HOT),
        "Interpreters that have imported what a rank needs wait for the next attempt; `hot`: "
        "and have run the script up to its restore; or none do.",
    )
    export: str | None = _setting(
        None,
        "--export",
        EXPORTERS,
        "Whom the run's numbers go to while it runs, from a process of their own.",
        default_words="nobody",
    )
    status: str = _setting(
        "auto",
        "--status",
        choice("auto", "live", "plain", "off"),
        "The status block: live on a terminal, plain lines elsewhere; or as named.",
    )
    log_level: str = _setting(
        "info",
        "--log-level",
        choice("error", "warning", "info"),
        "Which of the supervisor's sentences are printed.",
    )

    @property
    def local_ranks(self) -> int:
        """Training processes on this host."""
        return self.ranks or 1

    @property
    def total_chips(self) -> int:
        """The chips whose time is counted, as far as this host knows: one per rank, if unset."""
        return self.chips or self.hosts * (self.host_chips or self.local_ranks)

    @property
    def has_several_hosts(self) -> bool:
        """Whether the same command runs on other hosts, too."""
        return self.hosts + self.spares > 1

    @property
    def memory_buffers(self) -> int:
        """How many buffers of the memory tier each rank makes; 0: there is no such tier."""
        if self.memory == OFF:
            return 0
        return MOST_BUFFERS if self.memory == AUTO else int(self.memory)

    @property
    def compile_cache_bytes(self) -> int | None:
        """How much may be kept of compiled programs; None: nothing."""
        if isinstance(self.compile_cache, str):
            return CACHE_BYTES if self.compile_cache == AUTO else None
        return self.compile_cache

    def declared(self) -> Declared:
        """What a step would take at best, as far as it is set."""
        from holdfast.core.ledger.program import Declared

        return Declared(
            ideal_step_ns=round((self.ideal_step_s or 0) * 1e9),
            flops_per_step=round(self.flops_per_step or 0),
            peak_flops=round(self.peak_flops or 0),
        )

    def save_policy(self) -> SavePolicy:
        """When to save: at the intervals that were set, whichever is due; else the optimum."""
        from holdfast.core.save import policy as saves

        return _fixed(self.save_every_s, self.save_every_steps) or saves.Optimal()

    def snapshot_policy(self) -> SavePolicy:
        """When to copy to memory, likewise."""
        from holdfast.core.save import policy as saves

        return _fixed(self.snapshot_every_s, self.snapshot_every_steps) or saves.IN_MEMORY

    def hang_policy(self) -> HangPolicy:
        """When a run counts as hung: learned, never, or after so many seconds without a step."""
        from holdfast.core.hang.deadline import OFF as NEVER
        from holdfast.core.hang.deadline import HangPolicy

        if not isinstance(self.hang, str):
            return HangPolicy(step_ns=round(self.hang * 1e9))
        word, _, least = self.hang.partition(":")
        if word != AUTO:
            return NEVER
        return HangPolicy(floor_ns=round(float(least) * 1e9)) if least else HangPolicy()

    def restart_policy(self) -> RestartPolicy:
        """When to start again after a failure: `max_failures` is the budget."""
        from holdfast.core.run import restart

        return (
            restart.HopelessCauses()
            | restart.SameFailure()
            | restart.SAME_HANG
            | restart.Budget(self.max_failures)
            | restart.BackOff()
            | restart.CrashLoop(self.crash_loop, self.crash_loop_within_s)
        )


def _fixed(seconds: float | None, steps: int | None) -> SavePolicy | None:
    """The policy of the intervals that were set, whichever is due; None: none was."""
    from holdfast.core.save import policy as saves

    by_time = None if seconds is None else saves.EverySeconds(seconds)
    by_steps = None if steps is None else saves.EverySteps(steps)
    return by_time | by_steps if by_time and by_steps else by_time or by_steps


class Setting(NamedTuple):
    """One row of the table: a field of `Settings`, and how to set it."""

    name: str
    default: Any
    default_words: str
    flag: str
    kind: ValueKind
    doc: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.name.upper()


TABLE: tuple[Setting, ...] = tuple(
    Setting(
        f.name, f.default, **{k: f.metadata[k] for k in ("default_words", "flag", "kind", "doc")}
    )
    for f in fields(Settings)
)
