"""The options of the engine, read into one plain object. Pure.

    wishes = Wishes.of({"image": "example/lm:1", "memory": "64Gi", "claim": "runs"})

Each value is checked here, with a sentence that names it; what two of them make together is checked
where the manifest is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.engines.protocol import EngineOption
from holdfast.errors import ConfigurationError

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # of DNS, RFC 1123
DOMAIN = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
QUANTITY = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?([KMGTP]i|[mkMGTP])?")
GRID = re.compile(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){0,2}")
LONGEST_IMAGE = 4096
MOST = 2**31 - 1
KINDS = ("jobset", "job")
RESTARTS = ("pods", "in-place", "all")
WITH = ("access", "prepull")

OPTIONS = (
    EngineOption("image", "The container image, with Holdfast and your script in it; needed."),
    EngineOption("kind", "jobset, or job: an Indexed Job alone, for clusters without JobSet."),
    EngineOption("object", "The JobSet's or Job's name, where the run's is none for Kubernetes."),
    EngineOption("namespace", "Else that of the kubeconfig's context."),
    EngineOption("context", "Of the kubeconfig; else its current one."),
    EngineOption("server", "An address instead of a kubeconfig, such as that of `kubectl proxy`."),
    EngineOption("claim", "The volume claim that all pods mount where the store is."),
    EngineOption("secret", "A secret with the key `run`: what --secret-file reads."),
    EngineOption("env-from", "A secret whose keys become variables: credentials of the store."),
    EngineOption("account", "The pods' service account."),
    EngineOption("with", "access: an account that may hear of its pods and nodes; prepull: the "
                 "image is pulled on every node ahead; or both, with a comma."),
    EngineOption("cpu", "Of each pod, such as 32."),
    EngineOption("memory", "Of each pod, such as 64Gi; what lies in /dev/shm counts."),
    EngineOption("shm", "Of it for /dev/shm; else by the newest checkpoint, else half."),
    EngineOption("accelerator", "GKE's name, such as tpu-v5p-slice or nvidia-h100-80gb."),
    EngineOption("topology", "Of a TPU slice, such as 2x2x4; each slice is a Job of its own."),
    EngineOption("chips", "Accelerators of each host; 4 for TPUs unless said."),
    EngineOption("resource", "Their name; else google.com/tpu or nvidia.com/gpu."),
    EngineOption("selector", "Labels of the nodes: KEY=VALUE,KEY=VALUE."),
    EngineOption("tolerate", "Taints that do not matter: KEY,KEY."),
    EngineOption("exclusive", "A label of nodes: each Job has such a group of nodes for itself. "
                 "Else GKE's node pool for TPU slices; off: none."),
    EngineOption("restart", "What is made again after a disruption: pods (those that left), "
                 "in-place (their containers, where pods stay), all (as for several slices)."),
    EngineOption("retries", "How often pods may end otherwise, such as for want of memory: 100."),
    EngineOption("queue", "Kueue's local queue."),
    EngineOption("max-run", "Seconds for which Kueue's provisioning request asks for nodes."),
    EngineOption("flex-start", "on: nodes of GKE's flex-start."),
    EngineOption("boot-disk", "DISK@PROJECT: nodes whose secondary boot disk has the image."),
    EngineOption("image-streaming", "on: nodes that stream images."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the options say; "" or None: nothing."""

    image: str
    kind: str = "jobset"
    name: str = ""
    namespace: str = ""
    claim: str = ""
    secret: str = ""
    env_from: str = ""
    account: str = ""
    with_access: bool = False
    with_prepull: bool = False
    cpu: str = ""
    memory: str = ""
    shm: str = ""
    accelerator: str = ""
    topology: tuple[int, ...] = ()
    chips: int | None = None
    resource: str = ""
    selector: tuple[tuple[str, str], ...] = ()
    tolerate: tuple[str, ...] = ()
    exclusive: str = ""
    restart: str = ""
    retries: int = 100
    queue: str = ""
    max_run_s: int | None = None
    flex_start: bool = False
    boot_disk: tuple[str, str] | None = None
    image_streaming: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Wishes:
        """Raises ConfigurationError for a value that is not valid."""
        given = _Given(options)
        image = options.get("image", "")
        if not image or not image.isprintable() or " " in image or len(image) > LONGEST_IMAGE:
            raise ConfigurationError(
                f"-o image={image!r} is no container image: name one that has Holdfast in it, "
                "such as -o image=example/lm:1"
            )
        extras = given.words("with", re.compile("|".join(WITH)), " or ".join(WITH))
        return cls(
            image,
            kind=given.one("kind", KINDS) or "jobset",
            name=given.text("object", LABEL, "a name of small letters, digits and -"),
            namespace=given.text("namespace", LABEL, "a name of small letters, digits and -"),
            claim=given.text("claim", DOMAIN, "a claim's name"),
            secret=given.text("secret", DOMAIN, "a secret's name"),
            env_from=given.text("env-from", DOMAIN, "a secret's name"),
            account=given.text("account", DOMAIN, "a service account's name"),
            with_access="access" in extras,
            with_prepull="prepull" in extras,
            cpu=given.text("cpu", QUANTITY, "a quantity such as 32 or 500m"),
            memory=given.text("memory", QUANTITY, "a quantity such as 64Gi"),
            shm=given.text("shm", QUANTITY, "a quantity such as 32Gi"),
            accelerator=given.text("accelerator", VALUE, "a name such as tpu-v5p-slice"),
            topology=tuple(map(int, filter(None, given.text("topology", GRID, "a grid such as "
                           "2x2x4").split("x")))),
            chips=given.whole("chips", 1, 1024),
            resource=given.text("resource", KEY, "a resource such as nvidia.com/gpu"),
            selector=tuple(given.labels("selector")),
            tolerate=given.words("tolerate", KEY, "taints' keys"),
            exclusive=given.text("exclusive", KEY, "a label's key, or off"),
            restart=given.one("restart", RESTARTS),
            retries=100 if (found := given.whole("retries", 0, MOST)) is None else found,
            queue=given.text("queue", DOMAIN, "a queue's name"),
            max_run_s=given.whole("max-run", 1, MOST),
            flex_start=given.flag("flex-start"),
            boot_disk=given.boot_disk(),
            image_streaming=given.flag("image-streaming"),
        )  # fmt: skip


class _Given:
    """The options as they were written."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def text(self, name: str, pattern: re.Pattern[str], what: str) -> str:
        value = self._options.get(name, "")
        if value and not pattern.fullmatch(value):
            raise ConfigurationError(f"-o {name}={value!r} is not {what}")
        return value

    def one(self, name: str, of: tuple[str, ...]) -> str:
        value = self._options.get(name, "")
        if value and value not in of:
            raise ConfigurationError(f"-o {name}={value!r} is none of {', '.join(of)}")
        return value

    def words(self, name: str, pattern: re.Pattern[str], what: str) -> tuple[str, ...]:
        found = tuple(filter(None, self._options.get(name, "").split(",")))
        for one in found:
            if not pattern.fullmatch(one):
                raise ConfigurationError(f"-o {name}={one!r} is not {what}")
        return tuple(dict.fromkeys(found))

    def labels(self, name: str) -> list[tuple[str, str]]:
        found: dict[str, str] = {}
        for one in filter(None, self._options.get(name, "").split(",")):
            key, equals, value = one.partition("=")
            if not equals or not KEY.fullmatch(key) or not VALUE.fullmatch(value):
                raise ConfigurationError(f"-o {name}={one!r} is no label: write NAME=VALUE")
            found[key] = value
        return list(found.items())

    def whole(self, name: str, low: int, high: int) -> int | None:
        text = self._options.get(name, "")
        if not text:
            return None
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 11 else -1
        if not low <= value <= high:
            raise ConfigurationError(f"-o {name}={text!r} is no whole number from {low} to {high}")
        return value

    def flag(self, name: str) -> bool:
        return self.one(name, ("on", "off")) == "on"

    def boot_disk(self) -> tuple[str, str] | None:
        text = self._options.get("boot-disk", "")
        if not text:
            return None
        disk, _, project = text.partition("@")
        if not LABEL.fullmatch(disk) or not LABEL.fullmatch(project):
            raise ConfigurationError(f"-o boot-disk={text!r} is not valid: write DISK@PROJECT")
        return disk, project
