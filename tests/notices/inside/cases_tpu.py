"""Cloud TPU's API about one node: what it announces, and calls that fail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.cloud import tpu_v2alpha1

from holdfast.core.notices.board import NoticeAction, NoticeState, Scope
from holdfast.testing.tpu import TpuEmulator

NODE = "projects/p/locations/z/nodes/lm"


@pytest.fixture
def tpu():
    with TpuEmulator() as emulator:
        emulator.nodes[NODE] = tpu_v2alpha1.Node(
            name=NODE,
            state=tpu_v2alpha1.Node.State.READY,
            health=tpu_v2alpha1.Node.Health.HEALTHY,
        )
        yield emulator


def test_maintenance_symptoms_and_the_end_of_a_node_are_told_once(tpu, listening):
    watching = listening(f"tpu:{NODE}@{tpu.endpoint}", naps=True)
    watching.answered()
    opens = datetime.now(UTC) + timedelta(hours=2)
    tpu.do("window", "lm", opens.isoformat())
    (told,) = watching.heard(1)
    assert (told.action, told.scope) == (NoticeAction.TERMINATE, Scope.SLICE)
    assert watching.leaves(told, 7200)
    tpu.do("symptom", "lm", "MESH_BUILD_FAIL", "3", "no answer")
    assert watching.heard(2)[1].words == "symptom MESH_BUILD_FAIL of worker 3: no answer"
    tpu.do("maintain", "lm")
    assert watching.heard(3)[2].state is NoticeState.STARTED
    assert watching.heard(3)[2].words == "maintenance is under way"
    tpu.do("health", "lm")
    assert (watching.heard(4)[3].key, watching.heard(4)[3].state) == (
        told.key,
        NoticeState.WITHDRAWN,
    )
    tpu.do("preempt", "lm")
    assert watching.heard(5)[4].words == "the node is preempted"
    assert watching.said == []


def test_trouble_is_counted_said_once_and_over(tpu, listening):
    tpu.do("fail", "UNAVAILABLE", "3")
    watching = listening(f"tpu:{NODE}@{tpu.endpoint}", naps=True)
    watching.answered()
    assert watching.standing.failures >= 2
    assert [level for level, _ in watching.said] == ["warning", "info"]
    tpu.do("preempt", "lm")
    assert watching.heard(1)


def test_a_node_that_is_not_there_is_trouble(tpu, listening):
    watching = listening(f"tpu:{NODE}-other@{tpu.endpoint}", naps=True)
    watching.until(lambda: watching.standing.failures)
    assert f"does not tell of {NODE}-other" in watching.said[0][1]
