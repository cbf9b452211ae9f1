"""What every test has: a store and a house of its own, patience, and a check of what is left."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

# --import-mode=importlib leaves the folders out; tests find the modules loaded.
sys.path.insert(0, str(Path(__file__).parent / "e2e"))
sys.path.insert(0, str(Path(__file__).parent / "core" / "ledger"))
sys.path.insert(0, str(Path(__file__).parent))
import all_facts  # noqa: F401
import framework_adapter  # noqa: F401
import namespace  # noqa: F401
import own_process  # noqa: F401
import plain_ledger  # noqa: F401
import tiers
import written_values  # noqa: F401
from processes import House

del sys.path[:3]

# HYPOTHESIS_PROFILE=long looks harder. Deadlines are off: a busy machine is not a failure.
_LENIENT = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("ci", max_examples=100, deadline=None, suppress_health_check=_LENIENT)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=_LENIENT)
# A shell's background job ignores Ctrl-C, and so would every process that a test starts.
with contextlib.suppress(ValueError):  # not the main thread
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# The tests decide what Holdfast sees, not the shell they were started from.
for _name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
    del os.environ[_name]
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["NO_COLOR"] = "1"

_POLL_INTERVAL_S = 0.003
SELDOM = 20_000  # objects between two searches for garbage
_MARK = "PYTEST_STORE_MARK"  # in the environment of every process that the test starts
_Truthy = TypeVar("_Truthy")


def eventually(predicate: Callable[[], _Truthy], within_s: float = 60.0) -> _Truthy:
    """Wait until `predicate()` is true and return what it returned; fail after `within_s`.

    The one place where a test may sleep: between two looks, never for time to pass.
    """
    give_up_at = time.monotonic() + within_s
    while not (result := predicate()):
        if time.monotonic() > give_up_at:
            pytest.fail(f"not true within {within_s} s: {predicate}")
        time.sleep(_POLL_INTERVAL_S)
    return result


# Files of long tests: first, so that no worker is left alone with one at the end. The longest come
# first among them.
_LONG = (
    "objects",
    "distributed",
    "together",
    "test_pages",
    "faults",
    "test_compile",
    "plan_and_runs",
    "two_ranks",
    "crash",
    "exhaustive",
    "test_schedules",
    "test_fingerprint",
    "fuzz",
    "as_they_grew",
    "scenarios",
    "test_world",
    "walks",
    "test_drawn",
    "hang",
    "in_a_namespace",
    "prometheus",
    "browser",
    "test_hot",
    "test_memory",
    "reshaped",
    "e2e",
    "examples",
    "session",
    "standby",
    "chaos",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(tiers.Tiers(config.getoption("--tier"), tiers.Guard()), "tiers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first (with `--no-loadscope-reorder`), else as they are."""
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        path = str(item.path.relative_to(here))
        return next((n for n, words in enumerate(_LONG) if words in path), len(_LONG))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What is loaded now stays: garbage collections need not walk through it again and again.

    A worker that has collected the suite holds both frameworks and some thousand items. Walks make
    objects by the hundred thousand that stay: to look through them seldom is a tenth of their time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(SELDOM)


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., object]:
    return eventually


@pytest.fixture
def store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """A run store of this test's own, with its local scratch; both are the defaults meanwhile.

    When the test is over, no process that it started may be alive, adopted by others or not, and
    no scratch of a run may be left, but compiled programs for its next start.
    """
    mark = secrets.token_hex(8)
    scratch = tmp_path / "scratch"
    folder = tmp_path / "store"
    folder.mkdir()
    monkeypatch.setenv("HOLDFAST_STORE", str(folder))
    monkeypatch.setenv("HOLDFAST_SCRATCH", str(scratch))
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setenv("HOLDFAST_MEMORY_DIR", str(memory))
    monkeypatch.setenv("HOLDFAST_NOTICE", "off")  # the machine that tests run on may have some
    monkeypatch.setenv(_MARK, mark)
    yield folder
    if tiers.tier_of(request.node) != tiers.VIRTUAL:
        eventually(lambda: not _marked_processes(mark), within_s=60.0)
    kept = (".hfx", ".traced", ".void")
    files = (path for path in scratch.rglob("*") if path.is_file() and path.suffix not in kept)
    left = [str(path.relative_to(scratch)) for path in files]
    assert left == [], "local scratch was left behind"
    left = [str(path.relative_to(memory)) for path in memory.rglob("*") if path.is_file()]
    assert left == [], "memory was left behind"


@pytest.fixture
def house(store: Path, tmp_path: Path) -> Iterator[House]:
    """A working folder, the store, and processes that end with the test."""
    folder = tmp_path / "work"
    folder.mkdir()
    house = House(folder, store)
    yield house
    house.close()


@pytest.fixture
def script(house: House) -> Callable[..., str]:
    """Run a text as run `r`, in this process: its output, once it ended with the code expected.

    Without the sentence that says what it starts from.
    """

    def run(text: str, *words: object, code: int = 0, **env: object) -> str:
        env.setdefault("HOLDFAST_NAME", "r")
        said = house.here(house.script(text), *words, code=code, **env)
        return re.sub(r"(?m)^holdfast: (?:Attempt \d+: s|S)tarting from .*\n?", "", said)

    return run


@pytest.fixture(autouse=True)
def _no_child_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test ends without child processes of its own, zombies included.

    Of a virtual one, which is watched, only the main thread is asked: a process may have dozens.
    """
    is_virtual = tiers.tier_of(request.node) == tiers.VIRTUAL
    threads = str(os.getpid()) if is_virtual else "*"
    before = _children(threads)
    yield
    eventually(lambda: _children(threads) <= before, within_s=60.0)


def _children(threads: str) -> set[str]:
    found: set[str] = set()
    for children in Path("/proc/self/task").glob(f"{threads}/children"):
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            found |= set(children.read_text().split())
    return found


def _marked_processes(mark: str) -> list[str]:
    """Ids of processes, other than this one, that carry the mark in their environment."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={mark}".encode() in environ.read_bytes():
                found.append(environ.parent.name)
    return [pid for pid in found if pid != str(os.getpid())]
