"""A network namespace's worth of object store: a server, a proxy before it, a bucket per test."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# --import-mode=importlib leaves them out; the tests import them too.
HERE = Path(__file__).parent
_PLACES = [
    str(HERE),
    *(str(HERE.parents[1] / name) for name in ("e2e", "snapshot", "runs", "serve")),
]
sys.path[:0] = _PLACES
import made_runs  # noqa: E402, F401
import served  # noqa: E402, F401
from processes import House  # noqa: E402
from servers import Moto, Proxy  # noqa: E402

for _place in _PLACES:
    sys.path.remove(_place)

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    moto = Moto()
    yield moto
    moto.close()


@pytest.fixture
def proxy(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """What the environment of the test and of its processes names as S3."""
    proxy = Proxy(moto.port)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-to-be-shown")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    yield proxy
    proxy.close()


@pytest.fixture
def bucket(moto: Moto, proxy: Proxy) -> str:
    """The name of a new bucket."""
    name = f"bucket-{next(_numbers)}"
    moto.make_bucket(name)
    return name


@pytest.fixture
def house(
    tmp_path: Path, store: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[House]:
    """A house whose store is in the bucket; `house.store` is its working copy here."""
    del store  # its checks of what is left behind, not its folder
    monkeypatch.setenv("HOLDFAST_STORE", f"s3://{bucket}/team")
    monkeypatch.setenv("HOLDFAST_MIRROR", str(tmp_path / "mirror"))
    folder = tmp_path / "work"
    folder.mkdir()
    house = House(folder, tmp_path / "mirror")
    yield house
    house.close()
