"""Google's client against the emulator: what is there, what is asked, and what goes wrong."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from holdfast.core.hosts.fleet import (
    ActOutcome,
    Condition,
    ResourceState,
    SliceHealth,
    SliceState,
    diagnose,
)
from holdfast.core.hosts.wanted import Buy, Machines
from holdfast.errors import ConfigurationError
from holdfast.provision.cloud_tpu.client import CloudTpu
from holdfast.provision.protocol import ProviderError, ProviderRefusedError
from holdfast.testing.tpu import TpuEmulator

NODE = Machines(
    "cloud-tpu", "lm", "c0ffee", "lm", "p", "z", "v5litepod-8", "v2-alpha-tpuv5-lite",
    script="#!/bin/sh\ntrue\n", labels=(("team", "vision"),), metadata=(("a", "b"),),
)  # fmt: skip
SLICES = replace(NODE, is_queued=True, slices=2)
LIMIT_S = 30.0


@pytest.fixture
def tpu():
    with TpuEmulator() as emulator:
        yield emulator


@pytest.fixture(params=["v2alpha1", "v2"])
def cloud(tpu, request):
    client = CloudTpu("p", "z", api=request.param, endpoint=tpu.endpoint)
    client.api = request.param
    yield client
    client.close()


def fit(machines, cloud):
    """The same in the client's version; only one of them knows autocheckpoint."""
    return replace(machines, api=cloud.api, autocheckpoint=cloud.api == "v2alpha1")


def until(tpu, cloud, machines, name, is_so):
    found = {}

    def look():
        found.update(one={r.name: r for r in cloud.describe(machines, name)}.get(name))
        return is_so(found["one"])

    end_s = time.monotonic() + LIMIT_S
    while not look():
        assert time.monotonic() < end_s, found
        tpu.wait_for(lambda: False, 0.01)
    return found["one"]


def made(tpu, cloud, machines, name="lm-g1"):
    assert cloud.create(machines, name).outcome is ActOutcome.ACCEPTED
    is_up = lambda one: diagnose(one)[0] is Condition.HEALTHY  # noqa: E731
    return until(tpu, cloud, machines, name, is_up)


def test_a_node_lives_and_dies(tpu, cloud):
    machines = fit(replace(NODE, buy=Buy.SPOT), cloud)
    assert cloud.describe(machines, "lm-g1") == ()
    one = made(tpu, cloud, machines)
    assert (one.owner, one.accelerator, one.slices_wanted) == ("c0ffee", "v5litepod-8", 1)
    assert one.slices[0].autocheckpoint is (True if cloud.api == "v2alpha1" else None)
    (sent,) = tpu.nodes.values()
    assert dict(sent.labels) == {"team": "vision", "holdfast-run": "c0ffee"}
    assert dict(sent.metadata) == {"a": "b", "startup-script": "#!/bin/sh\ntrue\n"}
    assert sent.scheduling_config.spot
    assert (sent.network_config.enable_external_ips, sent.network_config.network) == (True, "")
    again = cloud.create(machines, "lm-g1")
    assert (again.outcome, again.operation) == (ActOutcome.ACCEPTED, "")
    tpu.do("preempt", "lm-g1")
    (one,) = cloud.describe(machines, "lm-g1")
    assert diagnose(one) == (Condition.PREEMPTED, "lm-g1 was preempted")
    answer = cloud.delete(machines, "lm-g1")
    until(tpu, cloud, machines, "lm-g1", lambda one: one is None)
    assert cloud.progress(answer.operation).outcome is ActOutcome.ACCEPTED
    assert cloud.delete(machines, "lm-g1").outcome is ActOutcome.ACCEPTED


def test_slices_of_a_queue_live_and_die_together(tpu, cloud):
    machines = fit(replace(SLICES, buy=Buy.SPOT), cloud)
    tpu.do("creating", "60")
    assert cloud.create(machines, "lm-g1").outcome is ActOutcome.ACCEPTED
    (one,) = cloud.describe(machines, "lm-g1")
    assert (one.state, one.slices_wanted, one.owner) == (ResourceState.WAITING, 2, "c0ffee")
    assert cloud.delete(machines, "lm-g1").outcome is ActOutcome.ACCEPTED
    until(tpu, cloud, machines, "lm-g1", lambda one: one is None)
    tpu.do("creating", "0")
    one = made(tpu, cloud, machines, "lm-g2")
    assert [s.name for s in one.slices] == ["lm-g2-0", "lm-g2-1"]
    assert "spot" in next(iter(tpu.queued.values()))
    assert all(one.network_config.enable_external_ips for one in tpu.nodes.values())
    tpu.do("preempt", "lm-g2-1")
    (one,) = cloud.describe(machines, "lm-g2")
    assert diagnose(one)[0] is Condition.PREEMPTED
    assert one.healthy == ("lm-g2-0",)
    cloud.delete(machines, "lm-g2")
    until(tpu, cloud, machines, "lm-g2", lambda one: one is None)
    assert tpu.nodes == tpu.queued == {}


def test_slices_that_their_queue_has_left_behind_are_deleted_one_by_one(tpu, cloud):
    machines = fit(SLICES, cloud)
    made(tpu, cloud, machines)
    tpu.queued.clear()
    found = cloud.describe(machines, "lm-g1")
    assert [one.name for one in found] == ["lm-g1-0", "lm-g1-1"]
    for one in found:
        assert cloud.delete(machines, one.name).outcome is ActOutcome.ACCEPTED
    tpu.wait_for(lambda: not tpu.nodes, 10.0)
    assert tpu.nodes == {}


def test_health_is_told_as_it_is(tpu, cloud):
    machines = fit(NODE, cloud)
    made(tpu, cloud, machines)
    tpu.do("maintain", "lm-g1", "a\x1b[31m\nwindow")
    (one,) = cloud.describe(machines, "lm-g1")
    assert one.slices[0].health is SliceHealth.MAINTENANCE
    assert one.slices[0].words == "a [31m window"
    if cloud.api == "v2alpha1":
        assert one.slices[0].maintenance.is_ongoing
        node = next(iter(tpu.nodes.values()))
        node.upcoming_maintenance.window_start_time = "2026-11-20T21:00:40.123Z"
        (one,) = cloud.describe(machines, "lm-g1")
        assert one.slices[0].maintenance.start_unix_ns == 1795208440 * 10**9
    tpu.do("health", "lm-g1", "TIMEOUT")
    assert diagnose(cloud.describe(machines, "lm-g1")[0])[0] is Condition.SICK
    for word in ("99", "HIDDEN", "UNKNOWN", "STATE_UNSPECIFIED"):
        tpu.do("state", "lm-g1", word)
        (one,) = cloud.describe(machines, "lm-g1")
        assert one.slices[0].state is SliceState.UNKNOWN, word
        assert diagnose(one)[0] is Condition.UNKNOWN


def test_of_others_only_what_has_our_name_is_told(tpu, cloud):
    machines = fit(NODE, cloud)
    made(tpu, cloud, replace(machines, owner="other"), "lm-g1")
    made(tpu, cloud, replace(machines, owner="other"), "stranger")
    assert [(r.name, r.owner) for r in cloud.describe(machines, "lm-g1")] == [("lm-g1", "other")]
    assert [r.name for r in cloud.describe_all()] == ["lm-g1", "stranger"]


@pytest.mark.parametrize(
    ("code", "is_refusal"),
    [
        ("UNAVAILABLE", False),
        ("INTERNAL", False),
        ("UNKNOWN", False),
        ("PERMISSION_DENIED", True),
        ("UNAUTHENTICATED", True),
        ("INVALID_ARGUMENT", True),
    ],
)
def test_an_error_is_no_answer(tpu, cloud, code, is_refusal):
    words = "refuses to say .* check the project" if is_refusal else "does not answer"
    for method in ("ListNodes", "ListQueuedResources", "GetNode"):
        tpu.do("fail", code, "1", method)
        with pytest.raises(ProviderError, match=words) as failed:
            cloud.describe(fit(NODE, cloud), "lm-g1")
        assert isinstance(failed.value, ProviderRefusedError) is is_refusal
    tpu.do("unreachable", "z")
    with pytest.raises(ProviderError, match="not complete"):
        cloud.describe(fit(NODE, cloud), "lm-g1")


def test_what_a_list_does_not_know_yet_is_asked_for_by_name(tpu, cloud, monkeypatch):
    machines = fit(NODE, cloud)
    made(tpu, cloud, machines)
    monkeypatch.setattr(cloud, "describe_all", lambda: ())
    assert [one.name for one in cloud.describe(machines, "lm-g1")] == ["lm-g1"]


def test_quota_stock_out_and_refusal_are_told_apart(tpu, cloud):
    machines = fit(NODE, cloud)
    tpu.do("quota")
    assert cloud.create(machines, "lm-g1").outcome is ActOutcome.QUOTA
    tpu.do("stockout")
    answer = cloud.create(machines, "lm-g1")
    assert answer.outcome is ActOutcome.ACCEPTED
    assert tpu.wait_for(lambda: not tpu.nodes, LIMIT_S)
    answer = cloud.progress(answer.operation)
    assert answer.outcome is ActOutcome.STOCKOUT
    assert "no more capacity" in answer.words
    for code, outcome in (
        ("PERMISSION_DENIED", ActOutcome.REFUSED),
        ("INVALID_ARGUMENT", ActOutcome.REFUSED),
        ("UNAVAILABLE", ActOutcome.TROUBLE),
        ("DEADLINE_EXCEEDED", ActOutcome.TROUBLE),
        ("NOT_FOUND", ActOutcome.ACCEPTED),
    ):
        tpu.do("fail", code, "1", "DeleteNode")
        assert cloud.delete(machines, "lm-g1").outcome is outcome
    unknown = "projects/p/locations/z/operations/none"
    assert cloud.progress(unknown).outcome is ActOutcome.ACCEPTED
    tpu.do("fail", "UNAVAILABLE", "1", "GetOperation")
    assert cloud.progress(unknown) is None


@pytest.mark.parametrize("machines", [NODE, SLICES], ids=["node", "queued"])
def test_a_creation_in_a_network_that_is_not_there_is_refused(tpu, cloud, machines):
    machines = fit(machines, cloud)
    method = "CreateQueuedResource" if machines.is_queued else "CreateNode"
    tpu.do("fail", "NOT_FOUND", "1", method)
    assert cloud.create(machines, "lm-g1").outcome is ActOutcome.REFUSED
    words = "The resource 'projects/p/global/networks/x' was not found"
    tpu.do("spoil", "NOT_FOUND", words)
    answer = cloud.create(machines, "lm-g1")
    assert answer.outcome is ActOutcome.ACCEPTED
    if machines.is_queued:
        is_failed = lambda one: one and one.state is ResourceState.FAILED  # noqa: E731
        one = until(tpu, cloud, machines, "lm-g1", is_failed)
        assert (one.failure, one.words) == (ActOutcome.REFUSED, words)
    else:
        assert tpu.wait_for(lambda: not tpu.nodes, LIMIT_S)
        assert cloud.progress(answer.operation) == (ActOutcome.REFUSED, words, "")


@pytest.mark.parametrize(
    ("verb", "failure"),
    [
        (("stockout",), ActOutcome.STOCKOUT),
        (("quota",), ActOutcome.QUOTA),
        (("spoil", "INTERNAL", "it broke"), ActOutcome.STOCKOUT),
        (("spoil", "INVALID_ARGUMENT", "no such type"), ActOutcome.REFUSED),
    ],
)
def test_why_a_queue_gave_up_is_told_apart(tpu, cloud, verb, failure):
    machines = fit(SLICES, cloud)
    tpu.do(*verb)
    assert cloud.create(machines, "lm-g1").outcome is ActOutcome.ACCEPTED
    is_failed = lambda one: one and one.state is ResourceState.FAILED  # noqa: E731
    one = until(tpu, cloud, machines, "lm-g1", is_failed)
    assert (one.failure, one.slices) == (failure, ())
    assert one.words


def test_a_queue_that_gives_up_says_why(tpu, cloud):
    machines = fit(SLICES, cloud)
    tpu.do("stockout")
    cloud.create(machines, "lm-g1")
    one = until(
        tpu, cloud, machines, "lm-g1", lambda one: one and one.state is ResourceState.FAILED
    )
    condition, reason = diagnose(one)
    assert condition is Condition.PREEMPTED
    assert "no more capacity" in reason


def test_maintenance_is_simulated_where_the_version_can(tpu, cloud):
    machines = fit(NODE, cloud)
    made(tpu, cloud, machines)
    if cloud.api == "v2":
        with pytest.raises(ConfigurationError, match="only version v2alpha1"):
            cloud.simulate_maintenance("lm-g1", ["0"])
        return
    assert cloud.simulate_maintenance("lm-g2", ["0"]).outcome is ActOutcome.REFUSED
    answer = cloud.simulate_maintenance("lm-g1", ["0", "3"])
    assert cloud.progress(answer.operation).outcome is ActOutcome.ACCEPTED
    (one,) = cloud.describe(machines, "lm-g1")
    assert diagnose(one) == (
        Condition.MAINTENANCE,
        "lm-g1 is in maintenance (simulated on worker 0, 3)",
    )


def test_what_a_version_does_not_have_is_said(tpu):
    cloud = CloudTpu("p", "z", api="v2", endpoint=tpu.endpoint)
    with pytest.raises(ConfigurationError, match="autocheckpoint is not in version v2"):
        cloud.create(replace(NODE, api="v2"), "lm-g1")
    queued = replace(SLICES, api="v2", autocheckpoint=False, buy=Buy.BEST_EFFORT)
    with pytest.raises(ConfigurationError, match="best-effort queued resources are not"):
        cloud.create(queued, "lm-g1")
    assert tpu.calls == []
    cloud.close()
    with pytest.raises(ConfigurationError, match="no API 'v9'"):
        CloudTpu("p", "z", api="v9", endpoint=tpu.endpoint)
