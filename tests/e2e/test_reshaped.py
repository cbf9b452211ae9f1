"""Saved by 2 ranks, restored by 1 and by 4, and on a transposed mesh: the same to the bit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from processes import EXIT_CONFIGURATION, EXIT_DONE, House, Process, house_in

pytestmark = pytest.mark.real

pytest.importorskip("jax")

TRAINER = Path(__file__).with_name("reshaped_trainer.py")
DEVICES = 4


def start(house: House, ranks: int, until: int, name: str = "r", **env: object) -> Process:
    flags = f"--xla_force_host_platform_device_count={DEVICES // ranks}"
    env = {"XLA_FLAGS": flags, "MESH": "2x2", "RESHARD": "same", "JAX_PLATFORMS": "cpu"} | env
    return house.run("--ranks", ranks, steps=until, trainer=TRAINER, name=name, **env)


def train(house: House, ranks: int, until: int, name: str = "r", **env: object) -> tuple[str, str]:
    """Up to that step; (what it began from, its last digest)."""
    out = start(house, ranks, until, name, **env).wait(EXIT_DONE)
    own = [line.rpartition("] ")[2] for line in out.splitlines()]
    began, ended = (
        [line.removeprefix(word) for line in own if line.startswith(word)]
        for word in ("from ", "final ")
    )
    assert len(began) == len(ended) == ranks, out
    assert len(set(began)) == len(set(ended)) == 1, out
    return began[0], ended[0]


class Before(NamedTuple):
    """A run of two ranks that saved step 3, and how a run ends that nothing disturbs."""

    store: Path
    saved: str
    undisturbed: str


@pytest.fixture(scope="module", autouse=True)
def nobody_stands_by() -> Iterator[None]:
    """No second attempt comes: standbys would import JAX for nobody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_STANDBY", "off")
        yield


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Before:
    folder = tmp_path_factory.mktemp("before")
    with house_in(folder) as house:
        _, saved = train(house, 2, until=3)
        _, undisturbed = train(house, 1, until=6, name="undisturbed")
    return Before(folder / "store" / "r", saved, undisturbed)


@pytest.fixture
def saved(house: House, before: Before) -> str:
    """The digest at step 3 of the run `r` that this house's store has."""
    shutil.copytree(before.store, house.store / "r")
    return before.saved


@pytest.mark.parametrize(
    ("ranks", "env"),
    [
        (1, {}),
        (4, {}),
        (2, {"TRANSPOSED": 1}),
        (4, {"MESH": "1x4", "TRANSPOSED": 1}),
        (1, {"MESH": "4x1"}),
    ],
    ids=["1", "4", "transposed", "4-of-another-shape", "1-of-another-shape"],
)
def test_goes_on_as_if_nothing_had_changed(
    house: House, before: Before, saved: str, ranks: int, env: dict[str, object]
) -> None:
    began, ended = train(house, ranks, until=6, **env)
    assert began == f"3 {saved}"
    assert ended == before.undisturbed


@pytest.mark.usefixtures("saved")
def test_without_a_rule_for_the_data_it_is_refused(house: House) -> None:
    run = start(house, 1, until=6, RESHARD="")
    run.saw("written by 2 ranks and is read by 1.*data stream 0.*run.data.source, reshard=…")
    run.wait(EXIT_CONFIGURATION)
