"""Exit causes: the table, the words, and whose end explains an attempt."""

from __future__ import annotations

import itertools
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import errors
from holdfast.core.exits import (
    HISTORY_CAUSE,
    SIGNAL_NAMES,
    Exit,
    ExitCause,
    RankReport,
    classify,
    is_from_script,
    may_pass,
    root_cause,
    signal_name,
    signature,
)
from holdfast.core.run.ending import exit_code
from holdfast.core.run.restart import DEFAULT, Failure, GiveUp


def raised(kind: str, message: str = "", where: str = "train.py:41") -> Exit:
    return Exit(code=1, report=RankReport(kind, message, where, "Traceback …"))


DONE = Exit(code=0, finished=True)
BUG = raised("ValueError", "loss is nan at step 12\nsecond line")
NCCL = raised("DistBackendError", "NCCL error: remote process exited, connection closed by peer")
SIGKILLED = Exit(signal=9)


@pytest.mark.parametrize(
    ("end", "cause", "words"),
    [
        (DONE, ExitCause.DONE, "done"),
        (Exit(code=0, has_session=False), ExitCause.DONE, "done"),
        (Exit(code=0), ExitCause.EXITED_EARLY, "exited 0 before the run was done"),
        (Exit(code=75), ExitCause.STOPPED, "saved and stopped"),
        (Exit(code=0, asked_to_stop=True), ExitCause.STOPPED, "exited 0 when asked to stop"),
        (
            Exit(code=0, has_session=False, asked_to_stop=True),
            ExitCause.STOPPED,
            "exited 0 when asked to stop",
        ),
        (Exit(code=0, finished=True, asked_to_stop=True), ExitCause.DONE, "done"),
        (
            Exit(signal=15, asked_to_stop=True),
            ExitCause.STOPPED,
            "ended by SIGTERM when asked to stop",
        ),
        (
            Exit(code=143, asked_to_stop=True),
            ExitCause.STOPPED,
            "ended by SIGTERM when asked to stop",
        ),
        (Exit(signal=15), ExitCause.KILLED, "killed by SIGTERM"),
        (SIGKILLED, ExitCause.KILLED, "killed by SIGKILL"),
        (Exit(code=137), ExitCause.KILLED, "killed by SIGKILL"),
        (Exit(signal=9, asked_to_stop=True), ExitCause.KILLED, "killed by SIGKILL"),
        (Exit(signal=34), ExitCause.KILLED, "killed by signal 34"),
        (
            Exit(signal=9, oom_killed=True),
            ExitCause.OUT_OF_MEMORY,
            "killed by the kernel: the host or its cgroup ran out of memory",
        ),
        (Exit(signal=11), ExitCause.CRASHED, "crashed with SIGSEGV"),
        (
            Exit(signal=6, core_dumped=True),
            ExitCause.CRASHED,
            "crashed with SIGABRT, core dumped",
        ),
        (Exit(code=139), ExitCause.CRASHED, "crashed with SIGSEGV"),
        (BUG, ExitCause.USER_ERROR, "ValueError at train.py:41: loss is nan at step 12"),
        (raised("KeyError", where=""), ExitCause.USER_ERROR, "KeyError"),
        (Exit(code=1), ExitCause.USER_ERROR, "exited with code 1"),
        (Exit(code=2, has_session=False), ExitCause.USER_ERROR, "exited with code 2"),
        (Exit(code=78), ExitCause.CONFIGURATION, "exited 78: invalid configuration or arguments"),
        (Exit(code=127), ExitCause.CONFIGURATION, "exited 127: a shell could not run the command"),
        (
            Exit(code=69),
            ExitCause.STORE_UNAVAILABLE,
            "exited 69: the store or a resource is not available",
        ),
        (Exit(signal=9, hang=True), ExitCause.HANG, "hung: no step within the deadline"),
        (Exit(signal=9, host_lost=True, hang=True), ExitCause.HOST_LOST, "its host was lost"),
        (Exit(), ExitCause.UNKNOWN, "ended for an unknown reason"),
    ],
)
def test_table(end, cause, words):
    assert classify(end) == (cause, words)


@pytest.mark.parametrize(
    ("kind", "message", "cause"),
    [
        ("MemoryError", "", ExitCause.OUT_OF_MEMORY),
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to …", ExitCause.OUT_OF_MEMORY),
        (
            "jaxlib.xla_extension.XlaRuntimeError",
            "RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes",
            ExitCause.OUT_OF_MEMORY,
        ),
        ("RuntimeError", "CUDA error: uncorrectable ECC error", ExitCause.ACCELERATOR),
        ("JaxRuntimeError", "UNAVAILABLE: heartbeat of rank 3 …", ExitCause.PEER_LOST),
        (
            "RuntimeError",
            "[/gloo/transport/tcp/pair.cc:534] Connection closed by peer",
            ExitCause.PEER_LOST,
        ),
        ("RuntimeError", "shape mismatch", ExitCause.USER_ERROR),
        ("ConnectionResetError", "Connection reset by peer", ExitCause.USER_ERROR),
        ("MyRuntimeError", "out of memory, says my own code", ExitCause.USER_ERROR),
        ("holdfast.errors.NoGoodCheckpoint", "", ExitCause.BAD_CHECKPOINT),
        ("CorruptCheckpoint", "a flipped bit", ExitCause.BAD_CHECKPOINT),
        ("StateMismatch", "the checkpoint does not fit", ExitCause.CONFIGURATION),
        ("StoreUnavailable", "the disk is full", ExitCause.STORE_UNAVAILABLE),
        ("ConfigurationError", "no such thing", ExitCause.CONFIGURATION),
        ("KeyboardInterrupt", "", ExitCause.KILLED),
    ],
)
def test_what_an_exception_means(kind, message, cause):
    assert classify(raised(kind, message))[0] is cause


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.HoldfastError)
    ],
)
def test_what_no_retry_heals_ends_with_78_and_is_not_tried_again(kind):
    cause = classify(raised(kind.__name__))[0]
    failure = Failure(0, cause, "the same", 0, 99, 0)
    gives_up = isinstance(DEFAULT.decide([failure], 0)[0], GiveUp)
    assert gives_up == (kind.exit_code == 78)
    assert exit_code(cause) == kind.exit_code


def test_a_traceback_counts_more_than_the_abort_that_follows_it():
    end = Exit(signal=6, report=BUG.report)
    assert classify(end)[0] is ExitCause.USER_ERROR


def test_the_signal_table_is_linuxs():
    for number, name in SIGNAL_NAMES.items():
        assert signal.Signals(number).name == name
    assert signal_name(64) == "signal 64"


def test_every_cause_has_a_history_cause_and_no_two_share_one():
    assert list(HISTORY_CAUSE) == list(ExitCause)
    assert len(set(HISTORY_CAUSE.values())) == len(ExitCause)
    expected = {"done", "preempted", "failed", "hang", "host_lost", "killed"}
    assert expected <= set(HISTORY_CAUSE.values())


# --- the same failure ---------------------------------------------------------------------------


def sign(end: Exit) -> str:
    return signature(classify(end)[0], end)


def test_the_place_makes_a_failure_the_same_not_the_values_in_its_text():
    again = raised("ValueError", "loss is nan at step 99")
    elsewhere = raised("ValueError", "loss is nan at step 12", where="train.py:7")
    assert sign(BUG) == sign(again) == "failed: ValueError at train.py:41"
    assert sign(BUG) != sign(elsewhere) != sign(raised("KeyError"))


def test_out_of_memory_is_one_failure_wherever_it_struck():
    assert sign(raised("MemoryError", where="a.py:1")) == sign(
        raised("MemoryError", where="b.py:2")
    )


def test_what_the_script_does_itself_is_its_own_and_what_is_done_to_it_is_not():
    own = [BUG, raised("MemoryError"), Exit(code=3), Exit(code=0)]
    others = [
        Exit(signal=9),
        Exit(signal=9, oom_killed=True),
        Exit(code=1, report=raised("MemoryError").report, oom_killed=True),
        Exit(signal=11),
        Exit(hang=True),
        Exit(host_lost=True),
        raised("StoreUnavailable"),
        raised("XlaRuntimeError", "gloo: connection reset by peer"),
    ]
    assert [is_from_script(classify(end)[0], end) for end in own] == [True] * len(own)
    assert [is_from_script(classify(end)[0], end) for end in others] == [False] * len(others)


def test_another_broken_set_is_another_failure():
    one, other = (raised("CorruptCheckpoint", f"0001-{step} is torn") for step in (10, 20))
    assert sign(one) != sign(other)


def test_signals_and_codes_sign_for_themselves():
    assert sign(Exit(signal=11)) == sign(Exit(code=139)) == "crashed: SIGSEGV"
    assert sign(Exit(code=3)) == "failed: exit 3"


# --- several ranks ------------------------------------------------------------------------------


def test_one_rank():
    assert root_cause([(0, BUG)]) == (
        ExitCause.USER_ERROR,
        "ValueError at train.py:41: loss is nan at step 12",
        0,
    )


def test_the_first_to_fail_explains_the_others():
    cause, words, rank = root_cause([(1, BUG), (0, raised("KeyError")), (2, SIGKILLED)])
    assert (cause, rank) == (ExitCause.USER_ERROR, 1)
    assert words == "rank 1: ValueError at train.py:41: loss is nan at step 12"


def test_a_victim_that_left_first_is_not_the_cause():
    assert root_cause([(0, NCCL), (1, BUG)])[0] is ExitCause.USER_ERROR
    assert root_cause([(0, NCCL), (1, SIGKILLED)])[2] == 0  # that SIGKILL was ours
    assert root_cause([(1, SIGKILLED), (0, NCCL)])[::2] == (ExitCause.KILLED, 1)


def test_a_kill_before_everything_is_the_cause():
    assert root_cause([(1, SIGKILLED), (0, BUG)])[::2] == (ExitCause.KILLED, 1)
    assert root_cause([(2, DONE), (1, SIGKILLED), (0, SIGKILLED)])[2] == 1


def test_done_and_stopped_only_if_all_are():
    assert root_cause([(0, DONE), (1, DONE)]) == (ExitCause.DONE, "done", None)
    assert root_cause([(0, DONE), (1, Exit(code=75))])[0] is ExitCause.STOPPED
    assert root_cause([(0, DONE), (1, Exit(code=75)), (2, BUG)])[2] == 2


def test_nothing_is_known_of_an_attempt_without_ends():
    assert root_cause([]) == (ExitCause.UNKNOWN, "no rank's end was seen", None)


exits = st.builds(
    Exit,
    code=st.one_of(st.none(), st.integers(0, 255)),
    signal=st.one_of(st.none(), st.integers(1, 64)),
    core_dumped=st.booleans(),
    finished=st.booleans(),
    has_session=st.booleans(),
    report=st.one_of(st.none(), st.builds(RankReport, st.text(), st.text(), st.text(), st.text())),
    oom_killed=st.booleans(),
    asked_to_stop=st.booleans(),
    hang=st.booleans(),
    host_lost=st.booleans(),
)


@given(exits)
def test_every_end_has_a_cause_a_line_of_words_and_a_signature(end):
    cause, words = classify(end)
    assert words
    assert "{" not in words or end.report
    assert signature(cause, end).startswith(cause.value)


@given(st.lists(exits, min_size=1, max_size=4))
def test_the_root_is_one_of_the_ends_and_done_is_never_an_excuse(ends):
    in_order = list(enumerate(ends))
    cause, _, rank = root_cause(in_order)
    causes = [classify(end)[0] for end in ends]
    assert cause in causes
    assert rank is None or causes[rank] is cause
    fine = (ExitCause.DONE, ExitCause.STOPPED)
    assert (cause in fine) == all(c in fine for c in causes)


def test_which_rank_it_was_does_not_matter():
    for order in itertools.permutations(range(3)):
        ends = [(order[0], NCCL), (order[1], BUG), (order[2], SIGKILLED)]
        assert root_cause(ends)[2] == order[1]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("ConnectionResetError", True),
        ("TimeoutError", True),
        ("socket.gaierror", True),
        ("requests.exceptions.ConnectionError", True),
        ("botocore.exceptions.EndpointConnectionError", True),
        ("google.api_core.exceptions.ServiceUnavailable", True),
        ("ValueError", False),
        ("FileNotFoundError", False),
        ("urllib.error.HTTPError", False),
        ("ValueError at Timeout", False),
    ],
)
def test_what_may_pass(kind: str, expected: bool) -> None:
    end = Exit(code=1, report=RankReport(kind, "no", "data.py:7", ""))
    cause, _ = classify(end)
    assert may_pass(signature(cause, end)) == expected
