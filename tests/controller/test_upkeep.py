"""Upkeep: what fails in it stands in the way of nothing else."""

from __future__ import annotations

from holdfast.controller.upkeep import Upkeep


def test_a_task_that_fails_does_not_end_the_others() -> None:
    """Else nobody would renew the lease or hear a `holdfast stop` from then on."""
    said: list[str] = []
    rounds: list[int] = []

    def fails() -> None:
        raise RuntimeError("can't start new thread")

    upkeep = Upkeep(None, said.append, said.append)
    upkeep.tasks += [fails, lambda: rounds.append(1)]
    upkeep.start()
    assert upkeep.close(60.0)
    assert len(rounds) >= 2  # one when it is woken, and the last
    assert said == [
        "What is done beside the run has failed (RuntimeError: can't start new thread); "
        "it is tried again"
    ]
