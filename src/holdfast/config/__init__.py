"""What the process's environment says: the only reader of os.environ in the package.

The settings themselves stand in `holdfast.config.settings`, where their values come from in
`holdfast.config.sources`, what a supervisor tells its ranks in `holdfast.config.rank`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config import sources
from holdfast.config.cluster import SLICE_VARIABLE, ClusterPlace, place_in_cluster
from holdfast.config.kinds import INSTANCE
from holdfast.config.metadata_servers import keep_from_proxy
from holdfast.config.rank import (
    HOST_VARIABLE,
    OWNER_VARIABLE,
    RANK_VARIABLES,
    RankEnvironment,
    check_launcher,
    not_of_a_rank,
    of_attempt,
)
from holdfast.config.settings import PREFIX, TABLE, Settings
from holdfast.config.sources import CONFIG_VARIABLE, Resolved, near, shown
from holdfast.config.trusted import own_uids
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.core.save.policy import SavePolicy

DEBUG_VARIABLE = "HOLDFAST_DEBUG"
TPU_VARIABLE = "HOLDFAST_TPU_ENDPOINT"
LISTENS_VARIABLE = "HOLDFAST_LISTENS"
LISTENS_MARK = f"{LISTENS_VARIABLE}=1".encode()  # as /proc shows it
STARTED_VARIABLE = "HOLDFAST_MACHINE_STARTED"
# Of a run that was started over SSH (engines/ssh): the folder there, and what it waited for.
SSH_VARIABLES = ("HOLDFAST_SSH_JOB", "HOLDFAST_SSH_WAITS")
WORKING_COPY_VARIABLE = "HOLDFAST_WORKING_COPY"
RAY_WAITS_VARIABLE = "HOLDFAST_RAY_WAITS"  # what the agents of `holdfast.engines.ray` have
SERVE_TOKEN_VARIABLE = "HOLDFAST_SERVE_TOKEN"  # noqa: S105 - a name
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}|unix:/.+")
SECRET_MIN_CHARS = 4
_UNIX_NS_DIGITS = 19
SUMMARIES, AGREED, CALIBRATED = "summaries", "agreed", "calibrated.json"


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
    known = {row.variable for row in TABLE}
    if os.environ.get(RANK_VARIABLES["journal"]):  # inside a rank
        known |= set(RANK_VARIABLES.values())
    known |= {CONFIG_VARIABLE, DEBUG_VARIABLE, HOST_VARIABLE, OWNER_VARIABLE, TPU_VARIABLE}
    known |= {LISTENS_VARIABLE, STARTED_VARIABLE, SERVE_TOKEN_VARIABLE, WORKING_COPY_VARIABLE}
    known |= {RAY_WAITS_VARIABLE}
    known |= set(SSH_VARIABLES)
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


def start_of_job() -> str:
    """The cluster's name for this start of its job, as `17.2`; "": it tells none.

    Under Slurm a job that is requeued keeps its number, and counts.
    """
    job, restarts = (os.environ.get(f"SLURM_{name}", "") for name in ("JOB_ID", "RESTART_COUNT"))
    return job_of_pod() if _count(job) is None else f"{job}.{_count(restarts) or 0}"


def restart_of_torchrun() -> str:
    """Which start of its ranks this is, by torchrun's own count; "0" without it."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def job_of_pod() -> str:
    """The uid of what makes this pod, and makes it again; "": nothing tells.

    That is the JobSet, since several TPU slices are a Job each; without one, the Job.
    """
    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        return ""
    return os.environ.get("JOBSET_UID") or os.environ.get("JOB_UID", "")


def decline_jax_preemption() -> bool:
    """Have a JAX that is imported later leave SIGTERM alone; False: the user has chosen."""
    if os.environ.get(_JAX_PREEMPTION):
        return False
    os.environ[_JAX_PREEMPTION] = "false"
    return True


def cpu_threads() -> str:
    """How many threads XLA has on a CPU: what NPROC says, and what this process may use."""
    return f"{os.environ.get('NPROC', '')} of {len(os.sched_getaffinity(0))}"


def environment_digest() -> str:
    """Of the variables that programs may depend on: all but those that each attempt has anew."""
    others = {name: value for name, value in os.environ.items() if not of_attempt(name)}
    text = "\0".join(f"{name}={value}" for name, value in sorted(others.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


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


def calibrated_file() -> Path:
    """Where this user's calibrations of this host's devices are kept: likewise."""
    return Path(resolve().settings.mirror).expanduser() / CALIBRATED


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


def ask_metadata_directly() -> None:
    """Have libraries that are opened later ask metadata servers without a proxy between."""
    keep_from_proxy(os.environ)


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


def cluster_place() -> ClusterPlace | None:
    """Which of several hosts this is, by its cluster; see `place_in_cluster`."""
    return place_in_cluster(os.environ)


def cluster_slice() -> str:
    """Which of several slices this host belongs to, by its TPU pod; "": nobody says."""
    return os.environ.get(SLICE_VARIABLE, "")


def add_variables(variables: Mapping[str, str]) -> None:
    """For this process and those that it starts: whoever has started it could not set them."""
    os.environ.update(variables)


def inherited_environment() -> dict[str, str]:
    """The environment of this process, for the command that it starts.

    If the process is itself a rank, what frameworks read of that is left out.
    """
    return not_of_a_rank(os.environ)


def rank_environment() -> RankEnvironment | None:
    """What a supervisor has told this process; see `RankEnvironment.from_environ`."""
    return RankEnvironment.from_environ(os.environ)


def check_frameworks_ranks(rank: int, world_size: int) -> None:
    """Raises ConfigurationError where frameworks are told of other ranks than the run has."""
    check_launcher(rank, world_size, os.environ)


def claim_rank() -> None:
    """Mark this process as the one that is the run's: what it starts inherits the mark."""
    os.environ[OWNER_VARIABLE] = str(os.getpid())


def inside_claimed() -> bool:
    """Whether a parent of this process is the run's (data loader workers): then this one is not."""
    owner = os.environ.get(OWNER_VARIABLE)
    return bool(owner) and owner != str(os.getpid())
