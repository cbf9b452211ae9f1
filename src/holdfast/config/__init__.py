"""What the process's environment says: settings, and what a supervisor tells its ranks.

The only reader of os.environ in the package. The settings themselves stand in
`holdfast.config.settings`, where their values come from in `holdfast.config.sources`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config import sources
from holdfast.config.kinds import INSTANCE
from holdfast.config.settings import PREFIX, TABLE, Settings
from holdfast.config.sources import CONFIG_VARIABLE, Resolved, near, shown
from holdfast.config.trusted import own_uids
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.core.save.policy import SavePolicy

DEBUG_VARIABLE = "HOLDFAST_DEBUG"
OWNER_VARIABLE = "HOLDFAST_OWNER_PID"
TPU_VARIABLE = "HOLDFAST_TPU_ENDPOINT"
LISTENS_VARIABLE = "HOLDFAST_LISTENS"
LISTENS_MARK = f"{LISTENS_VARIABLE}=1".encode()  # as /proc shows it
STARTED_VARIABLE = "HOLDFAST_MACHINE_STARTED"
WORKING_COPY_VARIABLE = "HOLDFAST_WORKING_COPY"
SERVE_TOKEN_VARIABLE = "HOLDFAST_SERVE_TOKEN"  # noqa: S105 - a name
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}")
SECRET_MIN_CHARS = 4
SUMMARIES, AGREED = "summaries", "agreed"


def resolve(flags: Mapping[str, Any] | None = None, *, config_file: str | None = None) -> Resolved:
    """The settings of this process, from all sources: default < file < environment < flag.

    `flags` maps names of settings to values, None meaning "not given". The file is `config_file`,
    else what HOLDFAST_CONFIG names, else ./holdfast.toml if there is one. Raises ConfigurationError
    for a value that is not valid (naming its source), for an unknown key in the file, and for a
    ./holdfast.toml of somebody whose code is not run anyway.
    """
    return sources.resolve(os.environ, flags or {}, config_file, _trusted_uids())


def pass_on_file() -> None:
    """Have our processes beside a run read ./holdfast.toml too, if it was read.

    Where it is believed for the sake of the script's owner they would not, who run no script.
    """
    file = Path(sources.CONFIG_FILE)
    if os.environ.get(CONFIG_VARIABLE) or not file.exists():
        return
    if file.stat().st_uid not in own_uids():
        os.environ[CONFIG_VARIABLE] = str(file.absolute())


def _trusted_uids() -> frozenset[int]:
    """Root, this user, and whoever owns the program: this one, and the script of `run … -- …`.

    That is the first word behind `--` that is a file, the program itself (python3) left out.
    """
    files = [getattr(sys.modules.get("__main__"), "__file__", None)]
    if "--" in sys.argv:
        words = sys.argv[sys.argv.index("--") + 2 :]
        files.append(next((word for word in words if Path(word).is_file()), None))
    uids = set(own_uids())
    for file in filter(None, files):
        with contextlib.suppress(OSError):
            uids.add(Path(file).stat().st_uid)
    return frozenset(uids)


def strange_variables() -> tuple[str, ...]:
    """A sentence for each variable that starts like ours and is none: likely misspelled."""
    known = {row.variable for row in TABLE} | set(_RANK_VARIABLES.values())
    known |= {CONFIG_VARIABLE, DEBUG_VARIABLE, OWNER_VARIABLE, TPU_VARIABLE}
    known |= {LISTENS_VARIABLE, STARTED_VARIABLE, SERVE_TOKEN_VARIABLE, WORKING_COPY_VARIABLE}
    strangers = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    return tuple(f"{name} is not a variable of ours{near(name, known)}" for name in strangers)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a training process without a supervisor goes by."""

    name: str | None
    store: str
    chips: int
    grace_s: float
    keep_last: int
    settings: Settings

    def chips_of(self, world_size: int) -> int:
        """The chips whose time is counted: as set, else one per rank."""
        return world_size if self.settings.chips is None else self.chips

    def save_policy(self) -> SavePolicy:
        """When to save."""
        return self.settings.save_policy()


def session_settings() -> SessionSettings:
    """The settings of a training process without a supervisor (it has no flags)."""
    settings = resolve().settings
    return SessionSettings(
        name=settings.name,
        store=settings.store,
        chips=settings.total_chips,
        grace_s=settings.grace_s,
        keep_last=settings.keep_last,
        settings=settings,
    )


# What launchers other than ours tell a process: its number, and how many there are. Slurm's are
# those of the step (srun); a batch script has SLURM_NTASKS too, and is no rank.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
_JAX_PREEMPTION = "JAX_ENABLE_PREEMPTION_SERVICE"


def launcher_world() -> tuple[int, int, str] | None:
    """(rank, world size, the variable that says so), by the first launcher that says anything.

    Raises ConfigurationError when the two do not fit together.
    """
    for rank_variable, size_variable in _LAUNCHERS:
        rank, size = os.environ.get(rank_variable, ""), os.environ.get(size_variable, "")
        count, number = _count(size), _count(rank)
        if not count:
            continue
        if count == 1:
            return 0, 1, size_variable
        if number is None or number >= count:
            raise ConfigurationError(
                f"{size_variable} is {count} and {rank_variable} is {shown(rank)}: "
                f"set {rank_variable} to this process's number, 0 to {count - 1}"
            )
        return number, count, size_variable
    return None


def _count(text: str) -> int | None:
    """A number of processes or of one; None when it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def decline_jax_preemption() -> bool:
    """Have a JAX that is imported later leave SIGTERM alone; False: the user has chosen."""
    if os.environ.get(_JAX_PREEMPTION):
        return False
    os.environ[_JAX_PREEMPTION] = "false"
    return True


def cpu_threads() -> str:
    """How many threads XLA has on a CPU: what NPROC says, and what this process may use."""
    return f"{os.environ.get('NPROC', '')} of {len(os.sched_getaffinity(0))}"


def run_store(flag: str | None) -> str:
    """The store that a command should look in; `flag` is its --store."""
    return resolve({"store": flag}).settings.store


def mirror_folder() -> str:
    """Where this host keeps the records of runs in object stores."""
    return resolve().settings.mirror


def summaries_folder() -> Path:
    """Where this host keeps summaries of finished runs: beside the records of object stores."""
    return Path(resolve().settings.mirror).expanduser() / SUMMARIES


def agreed_folder() -> Path:
    """Where this user's agreements are kept on this host: likewise beside them."""
    return Path(resolve().settings.mirror).expanduser() / AGREED


def instance_credentials() -> bool:
    """Whether an object store's credentials may be asked of this machine's metadata service."""
    return resolve().settings.store_credentials == INSTANCE


def scratch_folder() -> str | None:
    """The configured scratch folder, if any."""
    return resolve().settings.scratch


# What an object store's library reads by itself, and takes for credentials: one group is enough.
_CREDENTIALS = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE",),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
        ("AWS_SKIP_SIGNATURE",),
    ),
    "gs": (
        ("GOOGLE_APPLICATION_CREDENTIALS",),
        ("GOOGLE_SERVICE_ACCOUNT",),
        ("GOOGLE_SERVICE_ACCOUNT_PATH",),
        ("GOOGLE_SERVICE_ACCOUNT_KEY",),
        ("GOOGLE_SKIP_SIGNATURE",),
    ),
    "az": (
        ("AZURE_STORAGE_ACCOUNT_KEY",),
        ("AZURE_STORAGE_SAS_TOKEN",),
        ("AZURE_STORAGE_SAS_KEY",),
        ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"),
        ("AZURE_FEDERATED_TOKEN_FILE",),
        ("AZURE_SKIP_SIGNATURE",),
    ),
}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def has_credentials(scheme: str) -> bool:
    """Whether the environment has credentials for an object store: "s3", "gs" or "az".

    Without them the store's library would ask this machine's metadata service on its own.
    """
    return any(all(map(os.environ.get, group)) for group in _CREDENTIALS[scheme])


_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL")


def without_secrets(text: str) -> str:
    """The text without what stands in variables that hold secrets."""
    for name, value in os.environ.items():
        if len(value) >= SECRET_MIN_CHARS and _SECRET.search(name):
            text = text.replace(value, "***")
    return text


def uses_plain_http(scheme: str) -> bool:
    """Whether the user named an endpoint without TLS: one in this machine or network."""
    named = (os.environ.get(variable) for variable in _ENDPOINTS.get(scheme, ()))
    return next((one.startswith("http://") for one in named if one), False)


def debugging() -> bool:
    """Whether errors come with their traceback: HOLDFAST_DEBUG is set, and not to 0."""
    return os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0")


def serve_token() -> str | None:
    """What `holdfast serve` demands of who looks, where no file was named; None: nothing."""
    return os.environ.get(SERVE_TOKEN_VARIABLE) or None


def inherited_working_copy() -> str | None:
    """What a supervisor tells its processes of the folder that its store is copied to."""
    return os.environ.get(WORKING_COPY_VARIABLE) or None


def tpu_endpoint() -> str | None:
    """Where an emulator of Cloud TPU's API listens on this machine; None: the real one is asked.

    It is spoken to without credentials or encryption, so no other machine may be named. Raises
    ConfigurationError.
    """
    place = os.environ.get(TPU_VARIABLE, "")
    if place and not _LOOPBACK.fullmatch(place):
        raise ConfigurationError(
            f"{TPU_VARIABLE} is {shown(place)}: it names an emulator on this machine, such as "
            "127.0.0.1:8080; unset it to use Cloud TPU itself"
        )
    return place or None


def machine_started_unix_ns() -> int | None:
    """When the startup script of this machine began, as it has told; None: nobody has."""
    text = os.environ.get(STARTED_VARIABLE, "")
    return int(text) if text.isdecimal() and len(text) == _UNIX_NS_DIGITS else None


def listens(sources: bool) -> dict[str, str]:
    """What the processes of a run carry: whether its supervisor hears notices itself."""
    return {LISTENS_VARIABLE: "1" if sources else "0"}


def inherited_environment() -> dict[str, str]:
    """A copy of this process's environment, for the command that it starts."""
    return dict(os.environ)


IMPORTS_VARIABLE = "HOLDFAST_IMPORTS"
# Fields of RankEnvironment, and the variables that carry them.
_RANK_VARIABLES = {
    "run": "HOLDFAST_RUN",
    "run_id": "HOLDFAST_RUN_ID",
    "store": "HOLDFAST_STORE",
    "attempt": "HOLDFAST_ATTEMPT",
    "incarnation": "HOLDFAST_INCARNATION",
    "journal": "HOLDFAST_JOURNAL",
    "resume_set": "HOLDFAST_RESUME",
    "resume_step": "HOLDFAST_RESUME_STEP",
    "resume_parent": "HOLDFAST_RESUME_PARENT",
    "skip_batches": "HOLDFAST_SKIP_BATCHES",
    "resume_from": "HOLDFAST_RESUME_FROM",
    "gate": "HOLDFAST_GATE",
    "ram": "HOLDFAST_RAM",
    "ram_buffers": "HOLDFAST_RAM_BUFFERS",
    "imports": IMPORTS_VARIABLE,
    "chips": "HOLDFAST_CHIPS",
    "rank": "RANK",
    "local_rank": "LOCAL_RANK",
    "world_size": "WORLD_SIZE",
    "local_world_size": "LOCAL_WORLD_SIZE",
    "master_addr": "MASTER_ADDR",
    "master_port": "MASTER_PORT",
    "coordinator_port": "HOLDFAST_COORDINATOR_PORT",
    "cache": "HOLDFAST_CACHE",
}
_NONE = "none"
_WHOLE_MAX_DIGITS = 18
_UNIX_NS_DIGITS = 19
_SET_NAME = re.compile(r"[0-9]{4,9}-[0-9]{12,13}")  # as in holdfast.snapshot.sets


@dataclass(frozen=True, slots=True)
class RankEnvironment:
    """What the agent tells a rank at its start, by environment variables.

    The rank's first act is to create the journal at `journal`, exclusively: whoever succeeds is
    the rank. That holds through wrappers (`bash -c`, a launcher in between), where a pid would not.
    """

    run: str
    run_id: str  # two stores may have runs of one name
    store: str
    attempt: int
    incarnation: str
    journal: str  # path of the live journal, on local scratch
    resume_set: str | None  # the checkpoint set to restore; None: from scratch
    resume_step: int  # the last step that it contains; 0: from scratch
    resume_parent: int | None  # the attempt that wrote it
    skip_batches: int  # of each data stream, to be passed over from there
    resume_from: str | None  # where that set lies in memory; None: in the run store
    gate: str | None  # path of the gate (`journal.gate`) where all that is told; None: it is here
    ram: str | None  # the run's folder of the memory tier; None: there is none
    ram_buffers: int  # how many buffers each rank makes there
    imports: str  # path of what it imports before its first step, for the next attempt's standby
    chips: int  # of the whole run
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    master_addr: str
    master_port: int  # for torch.distributed
    coordinator_port: int  # for jax.distributed, which runs beside it
    cache: str | None  # folder of compiled programs on this host; None: keep none

    def to_environ(self) -> dict[str, str]:
        """The variables to start the rank with.

        Of JAX's, `jax.distributed.initialize` (0.10) itself reads only JAX_COORDINATOR_ADDRESS;
        the script passes the other two: `num_processes=int(os.environ["JAX_NUM_PROCESSES"])`.
        """
        values = asdict(self)
        variables = {
            variable: _NONE if values[name] is None else str(values[name])
            for name, variable in _RANK_VARIABLES.items()
        }
        return variables | {
            "JAX_COORDINATOR_ADDRESS": f"{self.master_addr}:{self.coordinator_port}",
            "JAX_NUM_PROCESSES": str(self.world_size),
            "JAX_PROCESS_ID": str(self.rank),
            # A supervisor started inside a rank gives its own ranks a fresh start.
            OWNER_VARIABLE: "",
        }

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> RankEnvironment | None:
        """The inverse; None when no supervisor started this process.

        Raises ConfigurationError when a supervisor's variables are there in part, or not readable.
        """
        environ = os.environ if environ is None else environ
        if not environ.get(_RANK_VARIABLES["journal"]):
            return None
        values: dict[str, Any] = {}
        for rule in fields(cls):
            variable = _RANK_VARIABLES[rule.name]
            text = environ.get(variable, "")
            try:
                values[rule.name] = _rank_value(str(rule.type), text)
                if rule.name == "resume_set" and not _SET_NAME.fullmatch(text) and text != _NONE:
                    raise ValueError  # it becomes a path
            except ValueError:
                raise ConfigurationError(
                    f"the variable {variable} is {shown(text)}: the environment that `holdfast "
                    "run` gave to this process was changed on the way; pass it on unchanged"
                ) from None
        rank = cls(**values)
        if not (0 <= rank.rank < rank.world_size and 0 <= rank.local_rank < rank.local_world_size):
            raise ConfigurationError(
                f"RANK {rank.rank} of WORLD_SIZE {rank.world_size}, LOCAL_RANK {rank.local_rank} "
                f"of LOCAL_WORLD_SIZE {rank.local_world_size} cannot be: the environment that "
                "`holdfast run` gave to this process was changed on the way; pass it on unchanged"
            )
        return rank


def _rank_value(kind: str, text: str) -> str | int | None:
    if kind.endswith("| None") and text == _NONE:
        return None
    if not text:
        raise ValueError
    return _whole(text) if kind.startswith("int") else text


def _whole(text: str) -> int:
    """A number as `str` writes it: digits of ASCII, at most those of 64 bits."""
    if not (text.isascii() and text.isdigit()) or len(text) > _WHOLE_MAX_DIGITS:
        raise ValueError
    return int(text)


def rank_mark(run_id: str) -> bytes:
    """What every process of a run on this host carries in its environment, as /proc shows it."""
    return f"{_RANK_VARIABLES['run_id']}={run_id}".encode()


def claim_rank() -> None:
    """Mark this process as the one that is the run's: what it starts inherits the mark."""
    os.environ[OWNER_VARIABLE] = str(os.getpid())


def inside_claimed() -> bool:
    """Whether a parent of this process is the run's (data loader workers): then this one is not."""
    owner = os.environ.get(OWNER_VARIABLE)
    return bool(owner) and owner != str(os.getpid())
