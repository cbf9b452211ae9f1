"""Which exporters are asked for: what is meant, and one sentence for what is not."""

from __future__ import annotations

import pytest

from holdfast.cli.exporting import flags
from holdfast.errors import ConfigurationError
from holdfast.export.asked import AskedExporters, Gcp, parse


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("", AskedExporters()),
        ("prometheus", AskedExporters(9464)),
        ("prometheus:0", AskedExporters(0)),
        ("prometheus=9100, tensorboard=/logs/a:b", AskedExporters(9100, "/logs/a:b")),
        ("gcp:proj/us-central1-a", AskedExporters(gcp=Gcp("proj", "us-central1-a"))),
        ("gcp:example.com:proj/z/TPU", AskedExporters(gcp=Gcp("example.com:proj", "z", "TPU"))),
    ],
)
def test_what_is_meant(text: str, asked: AskedExporters) -> None:
    assert parse(text) == asked


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("promtheus", "there is no exporter 'promtheus'"),
        ("prometheus:x", "give a port"),
        ("prometheus:99999", "give a port"),
        ("prometheus,prometheus:1", "named twice"),
        ("tensorboard", "name the log folder"),
        ("tensorboard:\x1b[31m", "name the log folder"),
        ("gcp:proj", "project and zone"),
        ("gcp:a/b/c/d", "project and zone"),
        ("gcp:Bad Project/z", "project and zone"),
        ("\x1b]0;x\x07", "there is no exporter"),
    ],
)
def test_what_is_not(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as raised:
        parse(text)
    assert str(raised.value).isprintable()


def test_the_child_is_asked_for_the_same() -> None:
    asked = parse("prometheus:1,tensorboard:/x,gcp:p/z/TPU")
    words = flags(asked)
    assert words == ["--prometheus", "--port", "1", "--tensorboard", "/x", "--gcp", "p/z/TPU"]
    assert flags(AskedExporters()) == []
