"""What the checks know: one record of this host, of a run's past, and of a script. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run's journals and checkpoints tell. None: it was never measured.

    `state_bytes`: of one checkpoint, all ranks together. `blocked_s`: for how long a save holds up
    training, `write_s` how long its way to the run store then takes.
    """

    name: str
    ranks: int = 1
    state_bytes: int | None = None
    step_s: float | None = None
    blocked_s: float | None = None
    write_s: float | None = None

    @property
    def need_s(self) -> float | None:
        """From an order to the durable set, as `core.notices.plan.SaveTime` has it.

        Two steps, the copy, the write of what is in memory and newer than the store, and its own.
        """
        if self.step_s is None or self.blocked_s is None or self.write_s is None:
            return None
        return 2 * self.step_s + self.blocked_s + 2 * self.write_s


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """The memory tier: its folder, the room for it, whose limit that is; 0 buffers: it is off."""

    folder: str
    filesystem: str
    buffers: int
    room_bytes: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """A folder that a run writes: `trouble` says why it cannot. None: not measured.

    `skew_s`: by how much the clock that stamps its files is ahead of this host's.
    """

    path: str
    filesystem: str = ""
    is_remote: bool = False
    trouble: str = ""
    free_bytes: int | None = None
    fsync_s: float | None = None
    skew_s: float | None = None


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A run store in a bucket. `trouble`: why it could not be opened, written and so on (`step`).

    `took_s`: a small read. `skew_s`: by how much the clock that stamps its objects is ahead of this
    host's, as far as whole seconds can tell. `is_exclusive`: it refuses to create what is there.
    `left`: the object that the look could not take away again. None: not measured.
    """

    url: str
    step: str = ""
    trouble: str = ""
    took_s: float | None = None
    skew_s: float | None = None
    is_exclusive: bool | None = None
    left: str = ""


@dataclass(frozen=True, slots=True)
class SourceFact:
    """A source of notices that is named or found (`why`), and what it said when it was asked.

    `trouble`: of all of it, or of a part of it where something has answered.
    """

    name: str
    why: str
    has_answered: bool
    trouble: str = ""


class BadHabit(StrEnum):
    """What a script does that costs it its last save."""

    HANDLER_REPLACES = "handler-replaces"  # a SIGTERM handler that forgets the one before it
    IGNORES_SIGTERM = "ignores-sigterm"
    DIES_OF_SIGTERM = "dies-of-sigterm"  # SIG_DFL
    HANDLER_EXITS = "handler-exits"  # os._exit in a handler
    HANDLER_RAISES = "handler-raises"  # sys.exit in a handler
    EXITS_HARD = "exits-hard"  # os._exit elsewhere
    SWALLOWS_STOP = "swallows-stop"  # around a boundary of ours
    SWALLOWS_EXIT = "swallows-exit"  # anywhere else
    JAX_REPLACES = "jax-replaces"  # jax.distributed.initialize takes SIGTERM over


@dataclass(frozen=True, slots=True)
class ScriptHabit:
    """Where a script does that; `words`: the code in a few words."""

    line: int
    habit: BadHabit
    words: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the checks look at. None: this host does not say.

    Limits are the soft ones; -1: unlimited. `versions`: of installed packages, by their names.
    """

    grace_s: float = 30.0
    ranks: int = 1
    keep_last: int = 3
    run: RunRecord | None = None
    state_bytes: int | None = None
    memory: MemoryFacts | None = None
    store: FolderFacts | None = None
    bucket: ObjectStore | None = None  # the store, where it is one; then `store` is None
    mirror: FolderFacts | None = None  # the folder of its working copy
    keeps_programs: bool = False  # --compile-cache is not off
    has_cache_key: bool = False  # --cache-key-file names one
    cache_key_trouble: str = ""  # why it cannot be used; "": it can
    scratch: FolderFacts | None = None
    sources: tuple[SourceFact, ...] = ()
    listens: bool = True  # --notice is not off
    script: str | None = None
    habits: tuple[ScriptHabit, ...] = ()
    open_files: int | None = None
    core_bytes: int | None = None
    core_pattern: str = ""
    locked_bytes: int | None = None
    has_infiniband: bool = False
    devices: tuple[str, ...] = ()  # accelerators: GPUs of NVIDIA's, TPUs
    cuda_trouble: str = ""  # why the driver of the GPUs cannot be opened; "": it can
    ptrace_scope: int | None = None
    is_root: bool = False
    has_py_spy: bool = False
    removes_ipc: bool = False
    is_synchronised: bool | None = None
    suspended_s: float = 0.0
    python: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    stranger: str = ""  # about another project's package in our folder
    jax_preemption: bool = False  # JAX_ENABLE_PREEMPTION_SERVICE is set by hand
    torchrun_shares_store: bool = False  # under torchrun, without the way round its old store
