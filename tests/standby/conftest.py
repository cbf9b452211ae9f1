"""Standbys that end with their test, and what they have learned."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.agent.reaper import processes
from holdfast.agent.tree import become_subreaper

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
import corpus  # noqa: F401 - tests import it too
import forking
import standing
from standing import Standing

sys.path.pop(0)
MODULES = ("json", "logging", "inspect", "asyncio", "multiprocessing", "pickle", "pdb")


@pytest.fixture(scope="session")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a small program may have learned. Nobody adds to its never-list."""
    return standing.learn(tmp_path_factory.mktemp("learned") / "imports.json", *MODULES)


@pytest.fixture(scope="session")
def imports_with_numpy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, and what comes with it."""
    return standing.learn(tmp_path_factory.mktemp("learned") / "numpy.json", *MODULES, "numpy")


@pytest.fixture
def surroundings() -> dict[str, str]:
    """An environment like a rank's. Hashes are the same in two processes, so that sets are."""
    added = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "PYTHONHASHSEED": "7"}
    return {**os.environ, **added}


@pytest.fixture
def stand(surroundings: dict[str, str]) -> Iterator[Callable[..., Standing]]:
    """Start a standby in a folder; the environment is `surroundings` unless given."""
    started: list[Standing] = []

    def start(argv: list[str], imports: Path, cwd: Path, env: object = None, **more: object):
        standby = Standing(argv, imports, cwd, env or surroundings, **more)
        started.append(standby)
        return standby

    yield start
    for standby in started:
        standby.close()


@pytest.fixture
def fork_server(surroundings: dict[str, str]) -> Iterator[Callable[..., forking.Forking]]:
    """Start a fork server in a folder; the environment is `surroundings` unless given."""
    started: list[forking.Forking] = []

    def start(argv: list[str], imports: Path, cwd: Path, env: object = None):
        become_subreaper()
        server = forking.Forking(argv, imports, cwd, env or surroundings)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()
    processes.libc.prctl(processes.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
