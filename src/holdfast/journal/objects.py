"""Object stores: whole objects under keys, through `obstore`; every failure as one clear sentence.

A `Bucket` is a prefix in a bucket or container (`s3://`, `gs://`, `az://`), or memory of this
process (`memory://`, for tests). Objects appear whole or not at all, and `create` is to them what
`link` is to files: of any number of callers exactly one succeeds.

What fails for a while is tried again, with jitter and a cap: by the library within one request, for
as long as the call's patience; a request is never repeated under a signature that has grown old.
Nothing here looks for a metadata server unless the user said that credentials come from there.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.config import (
    ask_metadata_directly,
    has_credentials,
    uses_plain_http,
    without_secrets,
)
from holdfast.errors import ConfigurationError, StoreUnavailable, needs_extra
from holdfast.journal.flow import Flow
from holdfast.journal.names import shown

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
MEMORY = "memory"
PART_BYTES = 8 << 20
MAX_CREATED_BYTES = 1 << 30
MAX_PARTS = 9_000  # S3 takes 10,000
PARTS_AT_A_TIME = 4
QUICK_S = 15.0
CONFLICTS_S = (0.1, 0.3, 1.0, 3.0)  # between two tries to create what another one is creating
SILENCE_S = 30.0  # of a store that has taken a request; then it is sent again
PATIENT_S = 240.0  # a signature lives for 15 minutes, credentials often no longer

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(/[^?#]*)?([?#].*)?", re.DOTALL)
_SEGMENT = re.compile(r"[A-Za-z0-9_=+.,@!'() -]+")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which object store: a checked URL. `str` gives it as people write it."""

    scheme: str  # s3, gs, az or memory
    bucket: str
    prefix: str  # without slashes at its ends; may be empty
    instance: bool = False  # credentials may come from this machine's metadata server

    def __str__(self) -> str:
        return "/".join(filter(None, (f"{self.scheme}://{self.bucket}", self.prefix)))

    def __truediv__(self, part: str) -> Place:
        prefix = "/".join(filter(None, (self.prefix, part)))
        return Place(self.scheme, self.bucket, prefix, self.instance)


@dataclass(frozen=True, slots=True)
class ListedObject:
    """What a listing says of an object."""

    nbytes: int
    e_tag: str


class Gone(Exception):  # noqa: N818 - a fact, caught by name
    """Somebody asked to stop before it was done."""


def is_object_url(text: str) -> bool:
    """Whether this names a place in an object store."""
    found = _URL.fullmatch(text)
    return found is not None and (found[1].lower() in SCHEMES or found[1].lower() == MEMORY)


def parse_place(text: str, *, instance: bool = False) -> Place:
    """The place that a URL names.

    Raises ConfigurationError for another scheme, and for a URL with a user, a password, a token or
    anything else that belongs in the environment; those are never repeated in the message.
    """
    found = _URL.fullmatch(text)
    scheme = found[1].lower() if found else ""
    if found is None or (scheme not in SCHEMES and scheme != MEMORY):
        kind = f"{scheme}://" if scheme else shown(text)
        raise ConfigurationError(
            f"{kind} is no object store that Holdfast knows; write s3://, gs:// or az://"
        )
    bucket, path = found[2], (found[3] or "").strip("/")
    if "@" in bucket or found[4]:
        raise ConfigurationError(
            f"the {scheme}:// URL of the store holds more than bucket and prefix; "
            "give credentials and options by environment variables, never in the URL"
        )
    segments = path.split("/") if path else []
    unfit = not re.fullmatch(r"[A-Za-z0-9_.:-]+", bucket) or any(
        not _SEGMENT.fullmatch(one) or set(one) == {"."} for one in segments
    )
    if unfit:
        raise ConfigurationError(
            f"{shown(text)} names no place in an object store; write {scheme}://bucket/prefix"
        )
    return Place(SCHEMES.get(scheme, scheme), bucket, path, instance)


class Bucket:
    """The objects below one place. Keys are relative to it. Safe for several threads.

    Its library runs threads of its own, which a fork does not take along: use it in the process
    that opened it.
    """

    def __init__(self, place: Place) -> None:
        """Nothing is asked of the store yet.

        Raises ConfigurationError when the extra is not installed or no credentials are set.
        """
        self.place = place
        self._inside = f"{place.prefix}/" if place.prefix else ""
        self._quick = _connect(place, QUICK_S)
        self._patient = self._quick if place.scheme == MEMORY else _connect(place, PATIENT_S)

    def where(self, key: str) -> str:
        """The URL of an object, for people."""
        return f"{self.place}/{key}" if key else str(self.place)

    def _full(self, key: str) -> str:
        return f"{self._inside}{key}"

    def get(self, key: str, max_bytes: int) -> bytes:
        """The bytes of an object; FileNotFoundError, StoreUnavailable (also when it is larger)."""
        with self._errors_said(f"read {self.where(key)}"):
            answer = _lib().get(self._quick, self._full(key))
            if answer.meta["size"] > max_bytes:
                raise StoreUnavailable(f"{self.where(key)} has more than {max_bytes} bytes")
            return bytes(answer.bytes())

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """That many bytes from `start` on, fewer at the object's end; as `get` for errors."""
        with self._errors_said(f"read {self.where(key)}"):
            full = self._full(key)
            return memoryview(_lib().get_range(self._patient, full, start=start, length=length))

    def size(self, key: str) -> int:
        """The bytes of an object; FileNotFoundError, StoreUnavailable."""
        with self._errors_said(f"look at {self.where(key)}"):
            nbytes: int = _lib().head(self._quick, self._full(key))["size"]
            return nbytes

    def stamped_s(self, key: str) -> float:
        """When the store says that an object was written, unix seconds; errors as of `size`."""
        with self._errors_said(f"look at {self.where(key)}"):
            at: float = _lib().head(self._quick, self._full(key))["last_modified"].timestamp()
            return at

    def has(self, key: str) -> bool:
        """Whether there is such an object; StoreUnavailable."""
        try:
            self.size(key)
        except FileNotFoundError:
            return False
        return True

    def put(self, key: str, data: bytes) -> str:
        """Create or replace an object, durable on return; its version. StoreUnavailable."""
        with self._errors_said(f"write {self.where(key)}"):
            return _version(_lib().put(self._quick, self._full(key), data, use_multipart=False))

    def create(self, key: str, data: bytes) -> str:
        """Create an object only if the key is free; its version, or "" when that is not known.

        FileExistsError to all but one caller; StoreUnavailable.

        A request whose answer was lost is repeated, and then finds what it has written itself:
        the very same bytes count as ours, so whoever competes writes what tells him from others.
        """
        for again_s in CONFLICTS_S:
            with self._errors_said(f"create {self.where(key)}"):
                full = self._full(key)
                with contextlib.suppress(_lib().exceptions.AlreadyExistsError):
                    return _version(
                        _lib().put(self._quick, full, data, mode="create", use_multipart=False)
                    )
            with contextlib.suppress(FileNotFoundError):
                if self.get(key, max(len(data), MAX_CREATED_BYTES)) != data:
                    raise FileExistsError(self.where(key))
                return ""
            time.sleep(again_s)  # S3 has refused it for a request that is under way (409)
        raise StoreUnavailable(f"cannot create {self.where(key)}: others try to, too; try again")

    def put_parts(self, key: str, data: Sequence[memoryview], flow: Flow | None = None) -> str:
        """Write an object of these bytes, one after the other, in parts; durable on return.

        Gives its version.

        Nobody sees it before it is whole. A part that fails is sent again, also for minutes; if it
        fails for good the parts are taken away. Raises Gone when `flow` is stopped meanwhile.
        """
        size = sum(view.nbytes for view in data)
        part_bytes = max(PART_BYTES, -(-size // MAX_PARTS))
        with self._errors_said(f"write {self.where(key)}"):
            if size <= part_bytes:
                _check(flow)
                whole = b"".join(data)
                return _version(
                    _lib().put(self._patient, self._full(key), whole, use_multipart=False)
                )
            return _version(
                _lib().put(
                    self._patient,
                    self._full(key),
                    _parts(data, part_bytes, flow),
                    use_multipart=True,
                    chunk_size=part_bytes,
                    max_concurrency=PARTS_AT_A_TIME,
                )
            )

    def list(self, prefix: str = "") -> Mapping[str, ListedObject]:
        """All objects whose key starts with the folder `prefix`; StoreUnavailable."""
        with self._errors_said(f"list {self.where(prefix)}"):
            blocks = _lib().list(self._quick, self._full(prefix) or None)
            return self._entries([one for block in blocks for one in block], prefix)

    def list_top(self) -> Mapping[str, ListedObject]:
        """The objects that lie directly in the folder; StoreUnavailable."""
        return self._entries(self._level()["objects"])

    def folders(self) -> tuple[str, ...]:
        """The names of the folders directly in the folder; StoreUnavailable."""
        found = self._level()["common_prefixes"]
        return tuple(sorted(one.rstrip("/").rpartition("/")[2] for one in found))

    def _level(self) -> Any:
        with self._errors_said(f"list {self.where('')}"):
            return _lib().list_with_delimiter(self._quick, self._full("").rstrip("/") or None)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are not there are no trouble. StoreUnavailable."""
        if not keys:
            return
        full = [self._full(key) for key in keys]
        with self._errors_said(f"clear {self.place}"):
            try:
                _lib().delete(self._quick, full)
            except FileNotFoundError:  # where each is a request of its own, the first ends them all
                for one in full:
                    with contextlib.suppress(FileNotFoundError):
                        _lib().delete(self._quick, one)

    def _entries(self, said: Sequence[Any], folder: str = "") -> dict[str, ListedObject]:
        """By key; the mark of the folder itself, which consoles make ("lm/"), is none of them."""
        within = self._full(f"{folder}/") if folder else self._inside
        return {
            one["path"].removeprefix(self._inside): ListedObject(one["size"], one["e_tag"] or "")
            for one in said
            if one["path"].startswith(within)
        }

    @contextlib.contextmanager
    def _errors_said(self, doing: str) -> Iterator[None]:
        """Turn the library's errors into ours."""
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchKey" in str(error) or not _says_no_bucket(str(error)):
                raise FileNotFoundError(f"cannot {doing}: there is no such object") from None
            raise self._unavailable(doing, error) from None
        except _lib().exceptions.BaseError as error:
            raise self._unavailable(doing, error) from None

    def _unavailable(self, doing: str, error: BaseException) -> StoreUnavailable:
        return StoreUnavailable(f"cannot {doing}: {_reason(self.place, error)}")


def _parts(data: Sequence[memoryview], part_bytes: int, flow: Flow | None) -> Iterator[memoryview]:
    _check(flow)
    for view in data:
        for start in range(0, view.nbytes, part_bytes):
            part = view[start : start + part_bytes]
            yield part
            _check(flow, part.nbytes)


def _version(answer: Any) -> str:
    return answer["e_tag"] or answer["version"] or ""


def _check(flow: Flow | None, nbytes: int = 0) -> None:
    if flow is not None and not flow.goes_on(nbytes):
        raise Gone


def _lib() -> Any:
    try:
        import obstore
    except ImportError:
        raise ConfigurationError(needs_extra("object stores need", "objects")) from None
    return obstore


def _connect(place: Place, patience_s: float) -> Any:
    _lib()
    from obstore import store as stores

    if place.scheme == MEMORY:
        return _memories.setdefault(place.bucket, stores.MemoryStore())
    if not place.instance and not has_credentials(place.scheme):
        raise ConfigurationError(
            f"no credentials for {place} are in the environment: {_CREDENTIALS[place.scheme]}, or "
            "take this machine's own with --store-credentials instance"
        )
    root = f"{place.scheme}://{place.bucket}"
    ask_metadata_directly()
    try:
        return _open(stores, place, root, patience_s)
    except (_lib().exceptions.BaseError, ValueError) as error:
        raise ConfigurationError(
            f"{root} cannot be opened: {_first_line(error)}; check the variables that describe it"
        ) from None


def _open(stores: Any, place: Place, root: str, patience_s: float) -> Any:
    from datetime import timedelta

    return stores.from_url(
        root,
        client_options={
            "allow_http": uses_plain_http(place.scheme),
            "connect_timeout": timedelta(seconds=5),
            "read_timeout": timedelta(seconds=SILENCE_S),
            "timeout": timedelta(seconds=120),
            "user_agent": "holdfast",
        },
        retry_config={
            "max_retries": 1000,  # it is time that limits
            "retry_timeout": timedelta(seconds=patience_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        },
    )


_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a key file",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}

_memories: dict[str, Any] = {}  # one for each name, for the life of this process


_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_SKEWED = ("RequestTimeTooSkewed", "RequestExpired")
_EXPIRED = ("ExpiredToken", "TokenRefreshRequired")
_REFUSED = ("403 ", "401 ", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch")
_AWAY = ("error sending request", "connection", "timed out", "timeout", "dns error", "retries")


def _says_no_bucket(text: str) -> bool:
    return any(word in text for word in _NO_BUCKET)


def _reason(place: Place, error: BaseException) -> str:
    """What is wrong and what to do, without the request ids and headers of the library's text."""
    text = str(error)
    kind = type(error).__name__
    root = f"{place.scheme}://{place.bucket}"
    if _says_no_bucket(text):
        return f"there is no bucket {root}; create it, or name another store"
    if any(word in text for word in _SKEWED):
        return f"{root} finds this host's clock wrong; run a time service (chrony)"
    if any(word in text for word in _EXPIRED):
        return f"the credentials for {root} have expired; renew them"
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or any(
        word in text for word in _REFUSED
    ):
        return f"no permission for {root}; check the credentials and what they may do"
    if "invalid path" in text:
        return f"{_first_line(error)}; remove that object with another tool"
    found = re.search(r"status code: (\d{3} [A-Za-z ]+)", text)
    if found:
        return f"{root} answers {found[1].strip()}; try again later"
    if any(word in text.lower() for word in _AWAY):
        return f"{root} cannot be reached; check the network and the endpoint"
    return f"{root} failed ({_first_line(error)})"


def _first_line(error: BaseException) -> str:
    """What the library says, without the details that follow, and without any secret."""
    return without_secrets(str(error).partition("\n")[0])[:160]
