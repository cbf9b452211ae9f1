"""What Slurm tells, as it told it (22.05, `said/`), and what is made of rubbish."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.engine import EngineHost, EngineWait, HostStage, Submission
from holdfast.engines.protocol import EngineError
from holdfast.engines.slurm.standing import (
    Partition,
    check_fits,
    chosen,
    grace_of,
    job_of,
    job_standing,
    partitions,
    queue_wait,
)
from holdfast.errors import ConfigurationError

SAID = Path(__file__).with_name("said")
NAMES = ["h0", "h1", "h2", "h3"]
SECOND_NS = 1_000_000_000
LM = Submission("slurm", "lm", "0123456789ab", "/shared/runs", 3, 1, ("python", "train.py"))


def said(name: str) -> str:
    return (SAID / f"{name}.txt").read_text("utf-8")


def at(text: str) -> int:
    """Unix nanoseconds of a time of that day."""
    moment = datetime.fromisoformat(f"2026-11-27T{text}").replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND_NS


@pytest.mark.parametrize(
    ("job", "state", "is_over", "since", "expected"),
    [
        ("running", "runs (Slurm: RUNNING)", False, "01:50:38", None),
        ("completed", "is over (Slurm: COMPLETED)", True, "01:51:06", None),
        (
            "pending",
            "waits: the nodes are in use (Slurm: PENDING, Resources)",
            False,
            "01:55:03",
            "02:00:03",
        ),
        (
            "held",
            "waits: an operator holds it back (Slurm: PENDING, JobHeldAdmin)",
            False,
            "01:55:03",
            None,
        ),
        (
            "requeued",
            "waits, requeued 1 time: Slurm lets a requeued job wait a moment "
            "(Slurm: PENDING, BeginTime)",
            False,
            "01:56:08",
            "01:56:14",
        ),
        ("cancelled", "was cancelled, requeued 1 time (Slurm: CANCELLED)", True, "01:54:58", None),
    ],
)
def test_how_a_job_stands(
    job: str, state: str, is_over: bool, since: str, expected: str | None
) -> None:
    found = job_standing(said(f"job-{job}"), NAMES, said("nodes"), 4)
    assert (found.state, found.is_over, found.since_unix_ns) == (state, is_over, at(since))
    assert found.expected_unix_ns == (at(expected) if expected else None)
    ready = tuple(EngineHost(name, HostStage.READY, n) for n, name in enumerate(NAMES))
    assert found.hosts == (ready if job == "running" else ())


def test_a_job_that_was_preempted_and_cancelled_is_over() -> None:
    job = said("job-cancelled").replace("JobState=CANCELLED", "JobState=PREEMPTED")
    found = job_standing(job, NAMES, said("nodes"), 4)
    assert (found.is_over, found.hosts) == (True, ())
    assert found.state == "was preempted, requeued 1 time (Slurm: PREEMPTED)"


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("ReqNodeNotAvail,_UnavailableNodes:h1", "waits: nodes that it needs are down, drained or"),
        ("launch_failed_requeued_held", "waits: its start failed on a node"),
        ("AssocGrpGRES", "waits (Slurm: PENDING, AssocGrpGRES)"),
    ],
)
def test_why_a_job_waits(reason: str, state: str) -> None:
    job = said("job-pending").replace("Reason=Resources", f"Reason={reason}")
    assert job_standing(job, [], "", 4).state.startswith(state)


def test_a_node_that_is_drained_says_why() -> None:
    found = job_standing(said("job-running"), ["h0", "h1"], said("nodes-drained"), 2)
    drained = EngineHost("h1", HostStage.DRAINING, 1, "Slurm says 'disk is bad'")
    assert found.hosts == (EngineHost("h0", HostStage.READY, 0), drained)


def test_a_node_that_is_down_is_gone_and_what_slurm_left_out_moves_no_number() -> None:
    found = job_standing(said("job-running"), ["h0", "h1", "h2"], said("nodes-down"), 4)
    assert [one.stage.value for one in found.hosts] == ["ready", "gone", "ready"]
    assert found.hosts[1].reason == "Slurm says 'Not responding'"
    assert {one.index for one in found.hosts} == {None}
    assert job_standing(said("job-running"), ["h9"], "", 1).hosts[0].stage is HostStage.GONE


@pytest.mark.parametrize(
    ("state", "stage"),
    [
        ("IDLE*", HostStage.GONE),
        ("MIXED+POWERING_UP", HostStage.COMING),
        ("ALLOCATED+MAINT", HostStage.DRAINING),
        ("IDLE+CLOUD+POWERED_DOWN", HostStage.GONE),
        ("ALLOCATED+RESERVED", HostStage.READY),
        ("MIXED+PLANNED", HostStage.READY),  # for another job, on what is free there
    ],
)
def test_other_states_of_nodes(state: str, stage: HostStage) -> None:
    nodes = f"NodeName=h0 State={state} ThreadsPerCore=1"
    assert job_standing(said("job-running"), ["h0"], nodes, 1).hosts[0].stage is stage


def test_a_preemption_gives_all_hosts_a_deadline() -> None:
    found = job_standing(said("job-preempted"), ["h0", "h2"], said("nodes"), 2)
    assert {one.stage for one in found.hosts} == {HostStage.DRAINING}
    assert {one.deadline_unix_ns for one in found.hosts} == {at("02:21:06")}


def test_the_time_in_the_queue_is_slurms_own() -> None:
    assert queue_wait(said("job-running")) == EngineWait("queue", at("01:50:37"), at("01:50:38"))
    # Before its first start since it might start; after a requeue since that.
    held = said("job-running").replace("EligibleTime=2026-11-27T01:50:37", "EligibleTime=Unknown")
    assert queue_wait(held) is None
    again = said("job-cancelled")
    assert queue_wait(again) == EngineWait("queue", at("01:54:50"), at("01:54:56"))
    assert queue_wait(said("job-held")) is None


def test_the_job_of_a_run_is_found_by_its_comment() -> None:
    queue = "3|(null)\n4|holdfast:fedcba987654\n" + said("queue") + "6_1|holdfast:0123456789ab\n"
    assert job_of(queue, "0123456789ab") == "1"
    assert job_of(queue, "000000000000") == ""


def test_what_partitions_allow() -> None:
    low = Partition("low", 4, None, 3600, 30, is_default=True)
    high = Partition("high", 4, None, 3600, 0, is_default=False)
    assert partitions(said("partitions")) == (low, high)
    assert chosen(LM, (low, high)) == [low]
    assert chosen(of(("partition", "high,low")), (low, high)) == [high, low]
    check_fits(LM, [low])
    check_fits(of(("time", "60")), [low])


@pytest.mark.parametrize(
    ("options", "hosts", "sentence"),
    [
        ((("partition", "low,gpu"),), 3, "no partition 'gpu' here; there are low, high"),
        ((("time", "1-0"),), 3, "time=1-0 is above the limit of partition low, 60 min"),
        ((("time", "UNLIMITED"),), 3, "above the limit"),
        ((), 4, "are 5 nodes, and a job of partition low gets 4 at most"),
    ],
)
def test_what_slurm_would_never_start(
    options: tuple[tuple[str, str], ...], hosts: int, sentence: str
) -> None:
    wanted = Submission("slurm", "lm", "id", "/runs", hosts, 1, ("true",), options=options)
    with pytest.raises(ConfigurationError, match=sentence):
        check_fits(wanted, chosen(wanted, partitions(said("partitions"))))


def test_a_partition_must_be_named_where_none_is_the_default() -> None:
    with pytest.raises(ConfigurationError, match="no default partition"):
        chosen(LM, [Partition("a", 1, None, None, 0, is_default=False)])


@pytest.mark.parametrize(
    ("grace_s", "config", "save_s", "seconds", "words"),
    [
        (30, said("config"), 0, 25, "leaves 30 s (KillWait)"),
        (8, said("config"), 0, 4, "leaves 8 s (GraceTime of p)"),
        (600, "KillWait                = 120 sec", 0, 115, "leaves 120 s (KillWait)"),
        (0, said("config"), 40, 25, "a save takes 40 s, and that is longer"),
        (0, "", 0, None, "not known"),
    ],
)
def test_the_grace_is_what_slurm_leaves(
    grace_s: int, config: str, save_s: int, seconds: int | None, words: str
) -> None:
    place = Partition("p", 4, None, None, grace_s, is_default=True)
    wanted = of(save_ns=save_s * SECOND_NS)
    found = grace_of(wanted, [place], config)
    assert found.seconds == seconds
    assert words in found.reason


def of(*options: tuple[str, str], save_ns: int = 0) -> Submission:
    command = ("python", "train.py")
    return Submission("slurm", "lm", "id", "/runs", 3, 1, command, options=options, save_ns=save_ns)


@given(st.text(max_size=80), st.sampled_from(["job-running", "nodes", "partitions"]), st.data())
def test_rubbish_is_one_error(rubbish: str, name: str, data: st.DataObject) -> None:
    text = said(name)
    cut = data.draw(st.integers(0, len(text)))
    for broken in (rubbish, text[:cut] + rubbish + text[cut:], text[:cut]):
        for read in (queue_wait, partitions, lambda text: job_standing(text, NAMES, text, 4)):
            with contextlib.suppress(EngineError):
                read(broken)
