"""Ranks under `jax.distributed`, with gloo: collectives, a coordination service, its barriers."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Distributed, Ranks
from processes import EXIT_DONE

from holdfast.snapshot.sets import read_manifest

pytestmark = pytest.mark.real

pytest.importorskip("jax")


class TestJax(Distributed):
    trainer = Path(__file__).with_name("jax_trainer.py")
    left_to_the_other = frozenset(
        (
            "test_sigterm[run run 0 0 1 1]",
            "test_sigterm_to_a_rank_that_waits_for_the_other",
            "test_before_the_first_step_nothing_is_saved[join-1]",
            "test_before_the_first_step_nothing_is_saved[step-run 0 1]",
            "test_sigkill[1-0]",
            "test_sigkill_before_the_first_step[step-0]",
            "test_one_rank_fails[1-exit]",
        )
    )

    def test_what_the_ranks_share_is_stored_once(self, ranks: Ranks) -> None:
        ranks.run(steps=2).wait(EXIT_DONE)
        arrays = read_manifest(ranks.house.sets()[-1]).arrays
        rows = {
            path: [piece.index[0] if piece.index else None for _, piece in stored.pieces]
            for path, stored in arrays.items()
            if path.startswith("state/")
        }
        assert rows == {
            "state/weights": [(0, 8)],
            "state/momentum": [(0, 4), (4, 8)],
            "state/key": [(0, 2)],
            "state/count": [None],
        }
        assert [rank for rank, _ in arrays["state/momentum"].pieces] == [0, 1]
