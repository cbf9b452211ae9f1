"""Every reader against bytes that nobody good has written; `make fuzz` looks longer and deeper."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz_mutate import LITERALS
from fuzz_seeds import fuzz_folder
from fuzz_targets import TARGETS
from hypothesis import given, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).parent / "corpus"
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    folder = fuzz_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", TARGETS)
def test_good_bytes_are_read(name: str, place: Path) -> None:
    for seed in TARGETS[name].seeds():
        TARGETS[name].run(seed, place)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_broke_a_reader(path: Path, place: Path) -> None:
    TARGETS[path.parent.name].run(path.read_bytes(), place)


@pytest.mark.parametrize("name", TARGETS)
def test_the_worst_that_we_know_of(name: str, place: Path) -> None:
    """As the whole file, and in the place of its first value."""
    target = TARGETS[name]
    for worst in (*LITERALS, b'{"a":' * 100_000):
        target.run(worst, place)
        for seed in target.seeds():
            head, colon, tail = seed.partition(b": ")
            target.run((head + colon + worst + tail)[: target.max_bytes], place)


@pytest.mark.parametrize("name", TARGETS)
def test_bytes_that_were_changed(name: str, place: Path) -> None:
    target = TARGETS[name]
    seeds = target.seeds()

    @settings(derandomize=True)
    @given(st.sampled_from(seeds), st.integers(0, 2**32), st.integers(1, 3))
    def changed(seed: bytes, number: int, rounds: int) -> None:
        rng = random.Random(number)
        for _ in range(rounds):
            seed = target.mutate(rng, seed)[: target.max_bytes]
        target.run(seed, place)

    changed()


@pytest.mark.parametrize("name", TARGETS)
def test_bytes_of_no_meaning(name: str, place: Path) -> None:
    @settings(derandomize=True, max_examples=20)
    @given(st.binary(max_size=200))
    def rubbish(data: bytes) -> None:
        TARGETS[name].run(data, place)

    rubbish()
