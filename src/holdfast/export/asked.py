"""Which exporters are asked for: `prometheus:9464,tensorboard:DIR,gcp:PROJECT/ZONE`."""

from __future__ import annotations

import re

from holdfast.core.value import value
from holdfast.errors import ConfigurationError
from holdfast.export.served import PORT

NAMES = ("prometheus", "tensorboard", "gcp")
WORDS = "prometheus[:PORT], tensorboard:DIR or gcp:PROJECT/ZONE[/ACCELERATOR], with commas between"
_PROJECT = re.compile(r"[a-z0-9:.-]{1,60}")
_PLACE = re.compile(r"[A-Za-z0-9-]{1,60}")
MOST_PORT = 65_535


@value
class Gcp:
    """A project of Google Cloud; `zone` and `accelerator` are labels of what is sent there."""

    project: str
    zone: str
    accelerator: str = "UNKNOWN"


@value
class AskedExporters:
    """The exporters; None: not that one. Port 0: the kernel chooses."""

    prometheus: int | None = None
    tensorboard: str | None = None
    gcp: Gcp | None = None

    @property
    def nothing(self) -> bool:
        """Whether there is none."""
        return self == AskedExporters()


def parse(text: str) -> AskedExporters:
    """What a setting or a flag names; raises ConfigurationError. `NAME=VALUE` is read too."""
    found: dict[str, object] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        form = re.fullmatch(r"([a-z]+)(?:[:=](.*))?", part, re.DOTALL)
        name, value = (form[1], form[2] or "") if form else (part, "")
        if name not in NAMES:
            raise ConfigurationError(f"there is no exporter {name[:40]!a}; give {WORDS}")
        if name in found:
            raise ConfigurationError(f"the exporter {name} is named twice; give {WORDS}")
        found[name] = _PARSE[name](value)
    return AskedExporters(**found)  # type: ignore[arg-type]


def _port(value: str) -> int:
    if not value:
        return PORT
    if not (value.isascii() and value.isdigit() and len(value) <= 5 and int(value) <= MOST_PORT):
        raise ConfigurationError(f"prometheus:{value[:40]}: give a port, 0 to {MOST_PORT}")
    return int(value)


def _folder(value: str) -> str:
    if not value or not value.isprintable():
        raise ConfigurationError("tensorboard: name the log folder, as in tensorboard:./logs")
    return value


def gcp_of(value: str) -> Gcp:
    """`PROJECT/ZONE[/ACCELERATOR]`; raises ConfigurationError."""
    project, *rest = value.split("/")
    fits = _PROJECT.fullmatch(project) and all(map(_PLACE.fullmatch, rest))
    if not fits or not 1 <= len(rest) <= 2:
        raise ConfigurationError(
            f"gcp:{value[:80]}: give project and zone, and the accelerator if you like, as in "
            "gcp:my-project/us-central1-a/TPU"
        )
    return Gcp(project, *rest)


_PARSE = {"prometheus": _port, "tensorboard": _folder, "gcp": gcp_of}
